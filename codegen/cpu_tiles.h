// Products of matrices by a CPU's matrix unit, whose registers are tiles: sixteen rows of 64 bytes.
//
// A tile of sums, 16 x 16, takes up the products of a tile of either operand at once: 32 steps of
// bf16, or 64 of bytes. Four of them stand in a square, so that each tile of an operand is loaded
// once for two products. A kernel is put so by TileByUnits:
//
//   for each block of rows                      (they stay in the core's own cache, if 32 do)
//     what the products read of a, laid out in tiles
//     for each few panels beside each other, of 32 columns
//       what they read of b, as the unit takes it, unless it lies so already (graph/panel.h)
//       the sums of all rows of the block, in scratch, square by square
//       what becomes of them, by vectors
//
// Few panels at once, since 64 bytes of a row by themselves come and go at a third of the rate of
// longer pieces, which a cache's prefetcher follows: 5 to 12 % of a product's time.
//
// Where a sum is longer than a part of a panel that stays in the innermost cache, it is summed part
// by part: each part takes up in scratch what those before it have summed. Sides are filled up with
// zeros to whole tiles. A panel is filled along memory where steps of the sum lie side by side, or
// those of a block do, as formats of weights have them: squares of sixteen columns turn in
// registers. What the sums of a tile run over are ranges of kind kMatrix, which is right by itself;
// UseTiles makes tiles of them.
//
// For each square and 32 steps of bf16 the unit takes 64 clocks (32768 products, 512 a clock) and
// loads 4 KiB. From the innermost cache these take 32 clocks. Of a panel that did not stay there
// all 4 KiB would come from the next one, which gives 51 bytes a clock at best: 80 clocks. The
// rows' 2 KiB and the sums are read past the innermost cache, so that a part of a panel may take
// two thirds of it: on a Xeon squares alone reach 0.73 of the peak with that; 0.6 with a third,
// where rows pass through it too.
#pragma once

#include "codegen/contraction.h"
#include "graph/kernel_form.h"
#include "graph/target.h"

namespace tessera {

inline constexpr char kTileName[] = "rt_tile_dot";  // the prelude's name, as an MMA's argument

// The contraction of two factors in tiles, if the target has them for these and they are worth it;
// or nothing. `row` is the one of its rows that has tiles.
UOp TileByUnits(const UOp& sink, const RangeSets& sets, const Contraction& c, const UOp& row,
                const Target& target);

// Sums over ranges of a tile become products of tiles, where their operands lie as tiles do.
UOp UseTiles(const UOp& sink);

}  // namespace tessera
