// Panels: what products read of their column operands, laid out once for all tiles of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/contraction.h"
#include "graph/kernel_form.h"
#include "graph/target.h"

namespace tessera {

// The operand of what a sum adds up that varies over `along`: of a product the one factor that
// does; of another elementwise value its largest part that depends on no more than what is read
// along these ranges does, if that is one part. Nothing where there is no such operand.
UOp OperandAlong(const RangeSets& sets, const UOp& value, RangeMask along);

// Where b lies in panels of one vector each (see schedule/pack_panels.cc): the loop over these,
// which is then what a tile takes copies of; or nothing.
UOp LoopOverPanels(const RangeSets& sets, const Contraction& c, int64_t lanes,
                   const Target& target);

// The kernel with b in panels of at most so many bytes, in scratch. In a panel the range `fastest`
// is adjacent, where it is given; else the columns of a tile, which may lie across the range
// `across`, over which b is adjacent in memory. What the target sums in pairs of steps lies in
// pairs, unless `fastest` is given. A panel is filled anew in each step of the loops that b varies
// over; or, where `around` is given, of these alone.
UOp PackColumns(const UOp& sink, const UOp& fastest, const UOp& across, const Target& target,
                int64_t most_bytes, const std::vector<UOp>* around = nullptr);

// Sums of products whose columns lie in pairs take two steps at a time: of kind kMatrix, from which
// Expand makes the chip's products of pairs. A step that is left over is added by itself.
UOp SumPairs(const UOp& sink, const Target& target);

// The range of a sum of products of a and b of which the target takes pairs of steps, or nothing.
UOp PairsOf(const Contraction& c, const Target& target);

// Whether the target takes several steps of such a sum at once: pairs, or what a tile has.
bool TakesSteps(const Contraction& c, const Target& target);

// Factors that are cast where there is something to be read, and a constant elsewhere, are cast
// after that choice, where the target takes such products by pairs or in tiles.
UOp WidenLast(const UOp& sink, const Target& target);

// The loops of a sum as one, along which the operand of the rows lies in order, so that two steps
// are side by side there; of the columns' one each step is where it was. Nothing where pairs find
// no such order (tiles have one laid out), or the target does not ask for it.
UOp MergeSum(const UOp& sink, const Contraction& c, const Target& target);

}  // namespace tessera
