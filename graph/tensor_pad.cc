// Padding by modes: joined pieces of the tensor itself.
#include <algorithm>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::Show;

namespace {

// The `count` elements next to one side of an axis, nearest first, in order away from it.
struct Side {
  const Tensor& x;
  int axis;
  bool before;

  Tensor Part(const Extent& begin, const Extent& end, bool reversed) const {
    const Tensor part = x.SliceAxis(axis, {begin, end});
    return reversed ? part.Flip(axis) : part;
  }

  // Whole copies, then the part of one that is left: `period` elements of which the k-th copy is
  // reversed if `turns` says so. Pieces are in the order of the tensor.
  std::vector<Tensor> Pieces(PadMode mode, int64_t count) const {
    const Extent& n = x.shape()[axis];
    std::vector<Tensor> pieces;
    if (mode == PadMode::kReplicate || (mode == PadMode::kReflect && n.is_int(1))) {
      Extents dims(x.shape().begin(), x.shape().end());
      dims[axis] = count;
      const Extent edge = before ? Extent(0) : n - Extent(1);
      pieces.push_back(Part(edge, edge + Extent(1), false).Expand(dims));
      return pieces;
    }
    const int64_t period = mode == PadMode::kReflect ? n.min() - 1 : n.min();
    if (!n.is_int() && count > period) {
      Fail("axis ", axis, " of ", Show(x), " may be too short for ", count, " elements beside it");
    }
    internal::CheckPieces(x, axis, count / period);
    bool mirrored = mode != PadMode::kCircular;
    while (count > 0) {
      const int64_t take = std::min(count, period);
      pieces.push_back(Piece(mode, mirrored, take, n));
      mirrored = mode != PadMode::kCircular && !mirrored;
      count -= take;
    }
    if (before) std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }

  // By kReflect a mirrored piece leaves out the edge that it stands at; the next one, the edge
  // beyond.
  Tensor Piece(PadMode mode, bool mirrored, const Extent& take, const Extent& n) const {
    const Extent one = 1;
    if (mode == PadMode::kSymmetric && mirrored) {
      return before ? Part(0, take, true) : Part(n - take, n, true);
    }
    if (mode != PadMode::kReflect) {
      return before ? Part(n - take, n, false) : Part(0, take, false);
    }
    if (mirrored) return before ? Part(1, one + take, true) : Part(n - one - take, n - one, true);
    return before ? Part(n - one - take, n - one, false) : Part(1, one + take, false);
  }
};

Tensor PaddedAxis(const Tensor& x, int axis, PadMode mode, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return x;
  if (x.shape()[axis].min() == 0) Fail("axis ", axis, " of ", Show(x), " has nothing to repeat");
  std::vector<Tensor> all;
  if (before > 0) all = Side{x, axis, true}.Pieces(mode, before);
  all.push_back(x);
  if (after > 0) {
    const std::vector<Tensor> more = Side{x, axis, false}.Pieces(mode, after);
    all.insert(all.end(), more.begin(), more.end());
  }
  return Cat(all, axis);
}

}  // namespace

Tensor Tensor::PadBy(PadMode mode, const Pairs& pairs, Number value, CallSite at) const {
  Call call("PadBy", at, *this);
  if (static_cast<int>(pairs.size()) != rank()) {
    Fail("needs a pair for each axis of ", Show(*this), ", has ", pairs.size());
  }
  // What is removed goes first.
  Pairs kept, added;
  for (int i = 0; i < rank(); ++i) {
    const auto& [before, after] = pairs[i];
    if (!before.is_int() || !after.is_int()) {
      Fail("takes whole numbers of elements, not ", before.ToString(), " and ", after.ToString());
    }
    const int64_t b = before.value(), a = after.value();
    kept.emplace_back(std::max<int64_t>(0, -b), shape()[i] - Extent(std::max<int64_t>(0, -a)));
    added.emplace_back(std::max<int64_t>(0, b), std::max<int64_t>(0, a));
  }
  Tensor t = Shrink(kept);
  if (mode == PadMode::kConstant) return t.Pad(added, value);
  for (int i = 0; i < rank(); ++i) {
    t = PaddedAxis(t, i, mode, added[i].first.value(), added[i].second.value());
  }
  return t;
}

}  // namespace tessera
