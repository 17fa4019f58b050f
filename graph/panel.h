// Panels of CPUs' products of matrices: what a tile of sums reads of the right operand, in order.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// The bytes that a panel may have: every tile of rows reads it whole, from the core's own cache or
// its part of the last one, which is slower by less than packing gains.
int64_t MostOfPanel(const Target& target);

// The bytes of the rows that one panel after another meets, so that they stay in the last cache:
// half of a core's part of it, or, of rows that all cores go by together, a quarter of it all.
int64_t BytesOfRowBlock(const Target& target, bool shared);

// The rows, at most, of the tile of a product whose sums a core keeps in registers.
int64_t MostTileRows(const Target& target);

// How many vectors of columns such a tile takes, of so many columns in all and vectors of each down
// the sum: the target's where there are enough columns and the panel stays in cache. Of fewer all;
// of four two, where the target's are three. One where the panel does not stay. `lanes` is a
// vector's.
int64_t VectorsOfPanel(const Target& target, int64_t columns, int64_t lanes, int64_t steps);

// Below so many rows the right operand is read in its own order.
inline constexpr int64_t kLeastRowsOfPanel = 4;

// Chips that have it sum the products of bf16 in pairs: to each lane of f32 those of two steps.
inline constexpr int64_t kStepsOfPair = 2;

// A tile of a CPU's matrix unit.
inline constexpr int64_t kRowsOfTile = 16, kBytesOfTileRow = 64;
inline constexpr int64_t kBytesOfTile = kRowsOfTile * kBytesOfTileRow;

// Whether a value is one: no vector of a CPU is as large.
bool IsTile(DType t);

// The bytes of the rows that panels meet in tiles: what stays in a core's own cache.
int64_t BytesOfTileRows(const Target& target);

// Rows and columns of what it sums at once: a square of four tiles, 16 x 16 each.
inline constexpr int64_t kSideOfSquare = 32;

// The bytes of a row that are read at once where several panels beside each other are filled: a
// cache's prefetcher follows them, but not the single lines of rows.
inline constexpr int64_t kBytesOfPanelsAtOnce = 256;

// Whether the target is a CPU with a matrix unit for operands of this dtype (see
// codegen/cpu_tiles.h).
bool HasTiles(DType operand, const Target& target);

// The same chip as if it had none.
Target WithoutTiles(const Target& target);

// Whether the factors of a product of two values are what it takes: bf16 cast to f32, or bytes cast
// to i32.
bool AreOfTiles(const UOp& product, const Target& target);

// Whether a value is a bf16, cast to f32: an operand of such products.
bool IsWidened(const UOp& u);

// Whether a target sums products of bf16 in pairs of steps, and the range of a sum that it takes
// so, or nothing.
bool SumsPairs(const Target& target);
UOp PairsOf(const UOp& reduce, const Target& target);

// Whether a CPU has dot products of four bytes at a time, in lanes of i32; and whether of unsigned
// by signed bytes alone.
bool SumsBytes(const Target& target);
bool MultipliesTwoSigns(const Target& target);

// Where a point of these ranges lies in a panel, and how many places that has. The last range is
// adjacent; but of `pairs`, one of them, two steps lie side by side at each place of the others.
// Between rows, of the last range or so many of the last, `gap` places stay free.
struct Places {
  UOp at;
  int64_t count = 0;
};
Places PlacesOf(const std::vector<UOp>& ranges, const UOp& pairs = UOp(), int64_t gap = 0,
                size_t of_row = 1);

// Where an element of the rows' operand of a product in tiles lies: of sixteen rows all `deep`
// tiles of so many steps each, then those of the next sixteen. Not simplified.
UOp PlaceInRowTiles(const UOp& row, const UOp& step, int64_t deep, int64_t steps);

// Whether an operand (or nothing) of such products is read from where two steps of `pairs` lie side
// by side.
bool LiesInPairs(const UOp& operand, const UOp& pairs);

}  // namespace tessera
