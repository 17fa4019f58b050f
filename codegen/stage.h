// Staging: a value kept in a core's scratch instead of being computed or gathered again.
#pragma once

#include "graph/kernel_form.h"
#include "graph/target.h"

namespace tessera {

// What reads `value` reads a STAGE of it instead, filled over `ranges` (all of constant extent), of
// which the last is adjacent. The value's other ranges stay those of the loops around.
UOp StageValue(const UOp& sink, const UOp& value, const std::vector<UOp>& ranges);

// The same, filled over new ranges of these kinds, which it puts in the place of the given ones.
// Of `pairs`, one of those given, two steps lie side by side (see graph/panel.h). A row, which lies
// in memory without a gap, has so many of the last ranges.
UOp StageValueOver(const UOp& sink, const UOp& value, std::vector<UOp>& ranges,
                   const std::vector<RangeKind>& kinds, const UOp& pairs = UOp(),
                   size_t of_row = 1);

// The same, the last range being the steps of a product whose rows the others are: it lies in tiles
// of a CPU's matrix unit (see graph/panel.h). Nothing where these would not be full.
UOp StageInTiles(const UOp& sink, const UOp& value, std::vector<UOp>& ranges,
                 const std::vector<RangeKind>& kinds);

// A stage, filled anew at each point of a loop around it, is filled for all of them at once.
UOp FillForAll(const UOp& sink, const UOp& stage, const UOp& loop);

// A STAGE of so many elements, filled with `value` at `offset` over `ranges`, whatever their kinds.
// One in registers is filled by the lanes of one range, and read at points that are known once
// copies and lanes are made: Expand makes a vector of it, and reads are lanes of that.
UOp MakeStage(int64_t id, int64_t elements, const UOp& offset, const UOp& value,
              absl::Span<const UOp> ranges, Space space = Space::kShared);
// An id that no stage of the kernel has.
int64_t FreshStageId(const UOp& sink);

// Stages expensive values that more than one loop of a row would compute, where a row fits cache.
UOp StageRecomputed(const UOp& sink, const Target& target);

}  // namespace tessera
