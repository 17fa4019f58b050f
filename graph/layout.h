// How an axis is cut into adjacent pieces, one a place: layouts, nests of them, and their images.
//
// A cut of n elements into P pieces is its boundaries, P + 1 numbers from 0 to n that never fall.
// Pieces may be empty. A Layout is a rule that gives a cut for any n; placements are compared by
// their cuts over the axis at hand, since several rules may give the same one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera {

class Layout {
 public:
  // In the order in which forms of one cut are preferred.
  enum class Kind : uint8_t { kBalanced, kAligned, kCeil, kSizes, kClip };

  // n/P each, and one more for the first n mod P.
  Layout() = default;
  // Balanced over units of so many elements; the last unit may be incomplete.
  static Layout Aligned(int64_t unit);
  // ceil(n/P) each while there are any, as torch.chunk.
  static Layout Ceil();
  static Layout Sizes(std::vector<int64_t> sizes);
  // Elements lo..hi of an axis of n elements that `base` cuts, lying where they lay. What is below
  // 0 or beyond n is padding, and joins the first or last piece. A Clip of a Clip is one Clip, and
  // one that cuts nothing is its base.
  static Layout Clip(const Layout& base, int64_t n, int64_t lo, int64_t hi);

  Kind kind() const { return kind_; }
  int64_t unit() const { return unit_; }                        // of Aligned
  const std::vector<int64_t>& sizes() const { return sizes_; }  // of Sizes
  const Layout& base() const { return *base_; }                 // of Clip, as the rest
  int64_t n() const { return n_; }
  int64_t lo() const { return lo_; }
  int64_t hi() const { return hi_; }

  std::string ToString() const;  // "balanced", "aligned(4)", "sizes(1,2)", "clip(ceil,8,1,6)"
  static absl::StatusOr<Layout> Parse(absl::string_view text);

  friend bool operator==(const Layout& a, const Layout& b);
  friend bool operator<(const Layout& a, const Layout& b);  // the order of forms
  template <typename H>
  friend H AbslHashValue(H h, const Layout& l) {
    h = H::combine(std::move(h), l.kind_, l.unit_, l.n_, l.lo_, l.hi_, l.sizes_);
    return l.base_ ? H::combine(std::move(h), *l.base_) : std::move(h);
  }

 private:
  Kind kind_ = Kind::kBalanced;
  int64_t unit_ = 0, n_ = 0, lo_ = 0, hi_ = 0;
  std::vector<int64_t> sizes_;
  std::shared_ptr<const Layout> base_;
};

using Cut = std::vector<int64_t>;  // boundaries

// One level of a nest: an inner layout is applied to each piece of the outer one.
struct NestLevel {
  int64_t parts = 1;
  Layout layout;
};
using Nest = absl::InlinedVector<NestLevel, 2>;

// Whether the nest, outermost level first, cuts an axis of n elements: counts and sums of Sizes
// are right, inner Sizes lie over equal pieces, only the outermost level clips, and to n elements.
absl::Status CheckNest(absl::Span<const NestLevel> nest, int64_t n);

// The boundaries of the finished nest, which must be valid.
Cut CutAxis(absl::Span<const NestLevel> nest, int64_t n);

// The layouts, one a level, that sort first among those that cut like this; nothing where no
// layouts do. Clip is never tried.
std::optional<std::vector<Layout>> WriteCut(absl::Span<const int64_t> parts, const Cut& cut);
// The same nest in the form that sorts first, where it has one without Clip.
Nest Canonical(absl::Span<const NestLevel> nest, int64_t n);

// The cut as it is in units of another size: boundary * num / den. Nothing where a boundary falls
// inside a unit.
std::optional<Cut> ScaleCut(const Cut& cut, int64_t num, int64_t den);

// The finest unit of Aligned whose boundaries survive that scaling.
int64_t FinestUnit(int64_t num, int64_t den);

struct Interval {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end > begin ? end - begin : 0; }
  friend bool operator==(const Interval&, const Interval&) = default;
};
Interval Intersect(const Interval& a, const Interval& b);  // empty ones begin where they end

}  // namespace tessera
