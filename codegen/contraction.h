// Contractions: sums of products as a struct that templates take, and their register tiles
// (contraction_tiles.cc).
#pragma once

#include <optional>

#include "graph/kernel_form.h"
#include "graph/target.h"

namespace tessera {

// REDUCE(add) of a product: the ranges of the result over which only one operand varies (rows: a,
// columns: b), those over which both do, and those summed over. Columns are where the result is
// adjacent in memory. The operands are expressions of any depth.
struct Contraction {
  UOp reduce, a, b;
  std::vector<UOp> batch, rows, columns, inner;
  UOp lane;  // the column over which the result is adjacent
};

// Whether a and b are the factors of what is summed, and not just somewhere in it.
bool AreFactors(const Contraction& c);

// The contraction of a kernel that has just one, or nothing. Of integers only if asked for.
std::optional<Contraction> FindContraction(const RangeSets& sets, bool integers = false);

// The same for a kernel that has just one reduction, of any kind, of any elementwise value of two
// operands: distances as well as products. They need not be what the value is made of directly.
std::optional<Contraction> FindPairwise(const RangeSets& sets);

// The kernel with its contraction in register tiles and b, where rows reuse it, packed in panels;
// or nothing where loops do better.
UOp TileContraction(const UOp& sink, const RangeSets& sets, const Contraction& c,
                    const Target& target);

// Whether every load of an expression that moves with the range moves by one element; and whether
// what gates a load must be decided by splitting the range, or may differ from lane to lane.
enum class Gates { kByThresholds, kAny };
bool AdjacentOver(const UOp& u, const UOp& range, const RangeSets& sets,
                  Gates gates = Gates::kByThresholds);

// The loops over the batch and the columns, the lanes' the last of them, come before the others;
// only `block` before them.
UOp ColumnsOutward(const UOp& sink, const Contraction& c, const UOp& block = UOp());

// The same, but for the loops over the rows, which come before those over the columns.
UOp RowsOutward(const UOp& sink, const Contraction& c, const UOp& block);

// The bytes of an operand for one row or column of the result, at `each` a step of the sum; at most
// what no cache holds, so that they can be multiplied further.
int64_t BytesOfSum(const Contraction& c, int64_t each);

// The longest of some ranges, or nothing.
UOp Longest(const std::vector<UOp>& ranges);

// Which of the ranges of a kernel's one store only one operand varies over; or nothing where the
// columns are not adjacent in the result. Of the contraction, reduce, a and b are given.
std::optional<Contraction> SortRanges(const RangeSets& sets, Contraction c);

}  // namespace tessera
