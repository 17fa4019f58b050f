// Replacing a loop by segments: tiles with their remainder, or single values.
#pragma once

#include <vector>

#include "graph/kernel_form.h"
#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// REDUCE(add) over these ranges, or the value where there are none.
UOp SumOver(const UOp& value, const std::vector<UOp>& ranges);

// Part of a range: what the range is there, and the ranges that run over the part. No ranges: the
// part is one value.
struct LoopSegment {
  UOp value;
  std::vector<UOp> ranges;
  bool again = false;  // points of others as well
  UOp within = {};     // whether a point is one of the range, where the part goes on beyond its end
};

// The kernel with `range` run segment by segment; together they must cover it once, but for those
// that do points again. A STORE becomes one for each segment (see StoresAgain), a REDUCE the
// combination of one for each.
UOp SplitIntoSegments(const UOp& sink, const UOp& range, const std::vector<LoopSegment>& segments);

// Gives the loops that reductions and stages run over `range` before others do ranges of their own,
// one for each depth of nesting, so that each can be tiled by itself. Adds them to `own`.
UOp SeparateLoops(const UOp& sink, const UOp& range, std::vector<UOp>& own);

// Lanes of what is left at the end of a range that are worth a tile of their own.
inline constexpr int64_t kLeastLanes = 4;

// Tiles of a range: `unroll` copies of `lanes` lanes, then what is left, by lanes, by halves of
// them down to `least_lanes` (0: none), and one by one; all that for each piece between two
// Thresholds, unless none of these has whole vectors. The loops over whole tiles keep the range's
// kind.
UOp Tile(const UOp& sink, const UOp& range, int64_t unroll, int64_t lanes, int64_t least_lanes = 0);

// The same, but what is left of a piece is done by lanes that end where it ends: elements that
// these share with the lanes before are computed and stored twice, which costs less than lanes of
// every half, and single elements, do. As Tile(..., kLeastLanes) where that would show: in a sum
// over the range, or in a kernel that reads what it writes.
UOp TileRepeating(const UOp& sink, const UOp& range, int64_t unroll, int64_t lanes);

// The same, but what is left of a range, if that shows, is lanes of which those beyond the end read
// nothing, count for nothing and write nothing. (Windows of 32 channels of 31 x 31 results by their
// gradients: 340 us with 15 of 31 one by one, 70 so.) As Tile(..., kLeastLanes) unless MayMask.
UOp TileMasking(const UOp& sink, const UOp& range, int64_t unroll, int64_t lanes,
                const Target& target);

// Whether lanes along a range can be left out of all that is read, reduced and written along it:
// that lies few elements apart, what is written side by side, and is of a size of which chips leave
// lanes out.
bool MayMask(const RangeSets& sets, const UOp& range, int64_t lanes, const Target& target);

// Gives the points of a range at which comparisons with it are decided (see DecidedPart) a loop of
// their own, of whole vectors of so many lanes: what windows reach over a border is masked there
// alone. The loops that there are then, in order; or just the range.
std::vector<UOp> CutDecided(UOp& sink, const UOp& range, int64_t lanes);

// CutDecided, and each of the loops by lanes as TileRepeating has them. Simplified.
UOp TileDecided(const UOp& sink, const UOp& range, int64_t lanes);

// Tiles of so many copies that lie as far from one another as they can, for loops over rows of
// memory: rows side by side share pages, where chips that fetch ahead follow one stream and not
// several (a third of the speed). As Tile gives them, where they would not cover the range alike.
UOp TileApart(const UOp& sink, const UOp& range, int64_t copies);

}  // namespace tessera
