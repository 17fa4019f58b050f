// Sums of cotangents, of which slices are joined.
#include "graph/grad_sum.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "graph/device.h"

namespace tessera {
namespace {

// Element operations that padded slices which overlap may take, added up as they are: fewer kernels
// than joining them takes.
constexpr int64_t kFewElements = 1 << 24;

// A cotangent that is 0 outside of [begin, end) of one axis.
struct Padded {
  int axis = 0;
  int64_t begin = 0, end = 0;
  Tensor value, whole;
};

std::optional<Padded> PaddedOf(const Tensor& t) {
  const UOp& u = t.uop();
  if (!u.is(Op::kPad)) return std::nullopt;
  std::optional<Padded> out;
  const Pairs& pairs = u.arg<Pairs>();
  for (int a = 0; a < u.rank(); ++a) {
    const auto& [before, after] = pairs[a];
    if (before.is_int(0) && after.is_int(0)) continue;
    const Extent& inner = u.src(0).shape()[a];
    if (out || !before.is_int() || !after.is_int() || !inner.is_int()) return std::nullopt;
    out = Padded{a, before.value(), before.value() + inner.value(), Tensor(UOp(u.src(0))), t};
  }
  if (out && u.device().is_sharding() && !u.device().sharding().DimsOf(out->axis).empty()) {
    return std::nullopt;
  }
  return out;
}

// Slices in order that do not overlap, as one tensor, whose axis has n elements; each fills what is
// between it and the one before with zeros. What is before and behind all of them comes last:
// slices that begin elsewhere are then joined by the same kernels.
Tensor Joined(absl::Span<const Padded> slices, int64_t n) {
  const int axis = slices[0].axis;
  const auto padded = [&](const Tensor& t, int64_t before, int64_t after) {
    Pairs pairs(t.rank(), {Extent(0), Extent(0)});
    pairs[axis] = {Extent(before), Extent(after)};
    return t.Pad(pairs);
  };
  std::vector<Tensor> pieces;
  int64_t end = slices[0].begin;
  for (const Padded& s : slices) {
    pieces.push_back(padded(s.value, s.begin - end, 0));
    end = s.end;
  }
  return padded(Cat(pieces, axis), slices[0].begin, n - end);
}

}  // namespace

Tensor SumOfCotangents(absl::Span<const Tensor> cotangents) {
  if (cotangents.size() == 1) return cotangents[0];
  const Shape& shape = cotangents[0].shape();
  std::vector<Padded> slices;
  std::vector<Tensor> terms;
  for (const Tensor& t : cotangents) {
    if (std::optional<Padded> slice = PaddedOf(t)) {
      slices.push_back(*std::move(slice));
    } else {
      terms.push_back(t);
    }
  }
  std::stable_sort(slices.begin(), slices.end(), [](const Padded& a, const Padded& b) {
    return std::tie(a.axis, a.begin) < std::tie(b.axis, b.begin);
  });
  // Each goes behind the first that it does not overlap.
  std::vector<std::vector<Padded>> rows;
  for (Padded& s : slices) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const std::vector<Padded>& r) {
      return r.back().axis == s.axis && r.back().end <= s.begin;
    });
    if (row == rows.end()) {
      rows.push_back({std::move(s)});
    } else {
      row->push_back(std::move(s));
    }
  }
  const bool few = shape.MaxElements() <= kFewElements / static_cast<int64_t>(cotangents.size());
  for (const std::vector<Padded>& r : rows) {
    if (rows.size() == 1 || !few) {
      terms.push_back(Joined(r, shape[r[0].axis].value()));
    } else {
      for (const Padded& s : r) terms.push_back(s.whole);
    }
  }
  Tensor sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) sum = sum + terms[i];
  return sum;
}

}  // namespace tessera
