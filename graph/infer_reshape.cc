// Whether a reshape keeps the number of elements, and where it takes sharded axes.
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/infer_context.h"
#include "graph/infer_device.h"
#include "graph/layout.h"
#include "graph/walk.h"

namespace tessera {
namespace {

// What a reshape does to an axis: where it goes, and boundary * num / den.
struct AxisImage {
  int axis;
  int64_t num, den;
};

Extent ProductOf(const Shape& shape, int begin, int end) {
  Extent n = 1;
  for (int i = begin; i < end; ++i) n = n * shape[i];
  return n;
}

// The last position of the result with as many elements before it. An axis of extent 1 stays one
// where it can, the last that is free: else it would be the axis of what follows it, on one place.
std::optional<AxisImage> ImageOfAxis(const Shape& from, int axis, const Shape& to,
                                     absl::Span<const int> taken = {}) {
  const Extent before = ProductOf(from, 0, axis), after = ProductOf(from, axis + 1, from.rank());
  if (before.is_int(0) || after.is_int(0)) return std::nullopt;
  int found = -1, single = -1;
  Extent prefix = 1;
  for (int j = 0; j < to.rank(); ++j) {
    const bool open = prefix == before;
    if (open) found = j;
    if (open && to[j].is_int(1) && std::find(taken.begin(), taken.end(), j) == taken.end()) {
      single = j;
    }
    prefix = prefix * to[j];
  }
  if (from[axis].is_int(1) && single >= 0) return AxisImage{single, 1, 1};
  if (found < 0) return std::nullopt;
  const Extent inner = ProductOf(to, found + 1, to.rank());
  if (inner == after) return AxisImage{found, 1, 1};
  if (!inner.is_int() || !after.is_int() || inner.is_int(0)) return std::nullopt;
  return AxisImage{found, after.value(), inner.value()};
}

bool Scales(int64_t v, const AxisImage& m) {
  int64_t scaled;
  return !__builtin_mul_overflow(v, m.num, &scaled) && scaled % m.den == 0;
}

// The nest after the reshape of its axis.
std::optional<Nest> ImageOfNest(const Nest& nest, int64_t n, const AxisImage& m) {
  if (m.num == m.den) return nest;
  absl::InlinedVector<int64_t, 2> parts;
  for (const NestLevel& l : nest) parts.push_back(l.parts);
  Nest base = nest;
  const Layout clip = nest[0].layout;
  const bool clipped = clip.kind() == Layout::Kind::kClip;
  int64_t whole = n;
  if (clipped) {
    if (!Scales(clip.lo(), m) || !Scales(clip.hi(), m) || !Scales(clip.n(), m)) return std::nullopt;
    base[0].layout = Layout(clip.base());
    whole = clip.n();
  }
  const std::optional<Cut> cut = ScaleCut(CutAxis(base, whole), m.num, m.den);
  if (!cut) return std::nullopt;
  const auto layouts = WriteCut(parts, *cut);
  if (!layouts) return std::nullopt;
  for (size_t i = 0; i < base.size(); ++i) base[i].layout = (*layouts)[i];
  if (clipped) {
    const auto scale = [&m](int64_t v) { return v * m.num / m.den; };
    base[0].layout =
        Layout::Clip(base[0].layout, scale(clip.n()), scale(clip.lo()), scale(clip.hi()));
  }
  return base;
}

// A product taken apart: its integer, and how often each other factor occurs.
struct Factors {
  int64_t number = 1;
  bool overflow = false;
  absl::flat_hash_map<const Node*, int64_t> rest;

  void Times(int64_t value) { overflow |= __builtin_mul_overflow(number, value, &number); }
  void Add(const Extent& e) {
    if (e.is_int()) return Times(e.value());
    const UOp root = e.expr();
    if (!root.is(Op::kMul)) return AddSum(root, 1);
    // A product may share its factors: each node is visited once, after all that it is a factor of.
    const std::vector<UOp> order = TopoSort({&root, 1});
    absl::flat_hash_map<const Node*, int64_t> times;
    times[root.get()] = 1;
    for (auto u = order.rbegin(); u != order.rend(); ++u) {
      const auto it = times.find(u->get());
      if (it == times.end()) continue;
      const int64_t n = it->second;
      if (u->is(Op::kMul)) {
        for (const UOp& s : u->srcs()) Count(times[s.get()], n);
      } else if (u->IsConst()) {
        Power(u->arg<Scalar>().AsInt(), n);
      } else {
        AddSum(*u, n);
      }
    }
  }

 private:
  // What divides all terms of a sum is a factor of its own: 2 and n + 1, not 2 * n + 2.
  void AddSum(const UOp& u, int64_t n) {
    const int64_t by = u.is(Op::kAdd) ? DivisorOf(u) : 1;
    const Extent whole(u), part = by > 1 ? FloorDiv(whole, by) : whole;
    if (part.is_int() || !(part * by == whole)) return Count(rest[u.get()], n);
    if (by > 1) Power(by, n);
    kept_.push_back(part.expr());
    Count(rest[part.expr().get()], n);
  }
  // Terms may be shared: each counts once.
  static int64_t DivisorOf(const UOp& sum) {
    int64_t out = 0;
    WalkDown({&sum, 1}, [&](const UOp& u) {
      if (out == 1 || u.is(Op::kAdd)) return out != 1;
      const UOp& number = u.is(Op::kMul) ? u.src(1) : u;
      const int64_t factor = number.IsConst() ? number.arg<Scalar>().AsInt() : 1;
      out = factor == std::numeric_limits<int64_t>::min() ? 1 : std::gcd(out, factor);
      return false;
    });
    return out;
  }
  void Count(int64_t& count, int64_t n) { overflow |= __builtin_add_overflow(count, n, &count); }
  void Power(int64_t base, int64_t n) {
    if (base >= -1 && base <= 1) return Times(base < 0 && n % 2 == 0 ? 1 : base);
    for (int64_t i = 0; i < n && !overflow && number != 0; ++i) Times(base);
  }

  std::vector<UOp> kept_;  // the nodes of `rest` that nothing else holds
};

}  // namespace

bool SurelyAsMany(const Shape& a, const Shape& b) {
  Factors left, right;
  for (const Extent& e : a) left.Add(e);
  for (const Extent& e : b) right.Add(e);
  return !left.overflow && !right.overflow && left.number == right.number &&
         left.rest == right.rest;
}

Sharding ReshapeImage(const Shape& from, const Sharding& sharding, const Shape& to,
                      std::vector<int>* lost) {
  std::vector<Placement> out = sharding.placements();
  std::vector<int> taken, axes;
  // Axes of extent 1 from the last on, so that they stay in order.
  for (int a = from.rank(); a-- > 0;) {
    if (from[a].is_int(1)) axes.push_back(a);
  }
  for (int a = 0; a < from.rank(); ++a) {
    if (!from[a].is_int(1)) axes.push_back(a);
  }
  for (int a : axes) {
    const std::vector<int> dims = sharding.DimsOf(a);
    if (dims.empty()) continue;
    std::optional<Nest> nest;
    const std::optional<AxisImage> image = ImageOfAxis(from, a, to, taken);
    if (image && std::find(taken.begin(), taken.end(), image->axis) == taken.end()) {
      nest = ImageOfNest(sharding.NestOf(a), ExtentOf(from, a), *image);
    }
    for (size_t i = 0; i < dims.size(); ++i) {
      if (nest) {
        out[dims[i]] = Placement::Shard(image->axis, (*nest)[i].layout);
      } else {
        out[dims[i]] = Placement::Replicate();
        if (lost != nullptr) lost->push_back(dims[i]);
      }
    }
    if (nest) taken.push_back(image->axis);
  }
  return sharding.With(std::move(out));
}

std::optional<Layout> SurvivingLayout(const Shape& from, int axis, const Shape& to) {
  const std::optional<AxisImage> image = ImageOfAxis(from, axis, to);
  if (!image) return std::nullopt;
  const int64_t unit = FinestUnit(image->num, image->den);
  if (ExtentOf(from, axis) <= unit) return std::nullopt;
  return Layout::Aligned(unit);
}

}  // namespace tessera
