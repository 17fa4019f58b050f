// Parts of tensors for compositions that know where they lie.
#pragma once

#include <optional>

#include "graph/tensor.h"

namespace tessera::internal {

// Elements begin .. end of an axis, which are known to lie in it: Slice would cut symbolic bounds
// that are not proved to.
inline Tensor KnownPart(const Tensor& t, int axis, const Extent& begin, const Extent& end) {
  Pairs pairs;
  for (int i = 0; i < t.rank(); ++i) {
    if (i == axis) {
      pairs.emplace_back(begin, end);
    } else {
      pairs.emplace_back(Extent(0), t.shape()[i]);
    }
  }
  return t.Shrink(pairs);
}

// More pieces of a tensor, each a tensor of its own, are an Error.
inline constexpr int64_t kMostPieces = int64_t{1} << 20;
void CheckPieces(const Tensor& t, int axis, int64_t pieces);

// The first n elements of an axis, or all of it and zeros; along a symbolic one n are known to be
// there.
inline Tensor FittedTo(const Tensor& t, int axis, const Extent& n) {
  const Extent& have = t.shape()[axis];
  if (have == n) return t;
  if (!have.is_int() || !n.is_int()) return KnownPart(t, axis, 0, n);
  if (have.value() > n.value()) return t.SliceAxis(axis, {0, n});
  Pairs after(t.rank(), {0, 0});
  after[axis] = {0, n - have};
  return t.Pad(after);
}

// The elements of a SHRINK at their places in its source, among zeros: how many come before and
// after may be no expressions whose bounds show that they are not negative, as Pad asks.
Tensor BeforeShrink(const UOp& shrink, const Tensor& part);

// What a base is once v is assigned to a view of it, as a value of its own.
Tensor AfterAssign(const UOp& base, UOp view, Tensor v);

// How many neighbours an axis has: one less than elements, or none.
inline Extent LessOne(const Extent& n) {
  return n.min() > 0 ? n - Extent(1) : Max(n - Extent(1), 0);
}
// All elements but the last, and all but the first; nothing of nothing.
inline Tensor AllButLast(const Tensor& t, int axis) {
  return KnownPart(t, axis, 0, LessOne(t.shape()[axis]));
}
inline Tensor AllButFirst(const Tensor& t, int axis) {
  const Extent& n = t.shape()[axis];
  if (n.is_int() || n.min() > 0) return KnownPart(t, axis, n - LessOne(n), n);
  return t.Take(Tensor::Arange(LessOne(n), kInt64) + 1, axis);  // from where cannot be proved
}

// An extent over a number, if it is known to be so many times something.
inline std::optional<Extent> Divided(const Extent& n, int64_t by) {
  if (by < 1) return std::nullopt;
  if (by == 1) return n;
  const Extent part = tessera::FloorDiv(n, by);
  if (!(part * Extent(by) == n)) return std::nullopt;
  return part;
}

// A position along an axis, which may count from the end, as one that counts from the beginning.
Extent NormalPosition(const Tensor& t, int axis, const Extent& position);

}  // namespace tessera::internal
