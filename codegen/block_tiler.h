// How one block of threads computes a tile of a contraction: what whole kernels in tiles
// (block_tiles.h) and tiles of chained products (block_chain.h) are made of.
//
// Choose, then Bind or BindWithin; then each operand is staged and read, and the sums of the
// products of what is read are those of the thread's elements of the tile.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/byte_dots.h"
#include "codegen/contraction.h"
#include "codegen/matrix.h"
#include "graph/kernel_form.h"
#include "graph/product_chain.h"
#include "graph/rewrite.h"
#include "graph/target.h"

namespace tessera {

// One operand: what is staged of it, and how it lies there.
struct StagedOperand {
  UOp value;                // staged
  std::vector<UOp> ranges;  // rows of a, columns of b
  int64_t extent = 0;       // of the tile along them
  bool along_own = false;   // adjacent in memory along them, not along the sum
  bool turned = false;      // in scratch, too
  int64_t lanes = 1;        // of the vectors that are stored
  bool read_only = false;   // just a load
  int64_t pitch = 0;        // elements from one row to the next
  // As units of several warps read it: rows of 128 bytes one after another, those of the first 128
  // bytes of all rows first; in row r vector i of 16 bytes lies where i ^ (r % 8) would.
  bool swizzled = false;
  // What stands in the value for the place in the tile along the ranges, and along the sum.
  UOp at, step;
  // Filled so many steps of this loop before the one that reads it.
  int64_t ahead = 0;
  UOp loop;
};

// Sides of a tile that are given: rows, columns, and steps of the sum that are staged at once.
struct GivenTile {
  int64_t rows = 0, columns = 0, steps = 0;
  int64_t warps_down = 2, warps_across = 2;  // with matrix units
  bool computed = false;  // a is put together from other scratch, one element at a time
  bool kept = false;      // the sums stay in scratch
};

// The product of the extents of some ranges.
UOp CountOf(const std::vector<UOp>& ranges);
// The end of an index that tiles do not divide, or nothing.
UOp EndOf(const UOp& count, int64_t tile);
// The value with its loads of memory under one more condition, but for those below nodes for which
// others stand, as they are, and of what fills scratch.
UOp GatedLoads(const UOp& value, const UOp& gate, const Substitution& known = {});
// A store with its ranges replaced, closing these loops, where the gate (or nothing) holds; its
// loads then, too.
UOp GatedStore(const UOp& store, const Substitution& map, const UOp& gate,
               absl::Span<const UOp> closed);

// Shared memory of a block such that two share a multiprocessor.
int64_t SharedOfTwo(const Target& target);

class BlockTiler {
 public:
  // Ranges that it makes have ids from `first_range` on.
  BlockTiler(const UOp& kernel, const Contraction& contraction, const Target& target,
             int64_t first_range);
  // Sums of dot products of bytes, each times what its block is scaled by: the contraction's inner
  // ranges are those of a block.
  BlockTiler(const UOp& kernel, const ByteDots& dots, const Target& target, int64_t first_range);

  // Unit, tile and layout; false where the contraction is no work for tiles.
  bool Choose(const GivenTile* given = nullptr);
  // A grid of blocks over the tiles of the result, and loops over the sum.
  void Bind();
  // The one tile that begins there, for a kernel whose grid is bound; and whose threads are these,
  // if they are.
  void BindWithin(const UOp& row, const UOp& column, const Substitution& batch,
                  const UOp& thread = UOp());
  // Of two chained products, of which this is the second: the tiler of the first, whose columns are
  // the steps of this one.
  BlockTiler First(const ProductChain& chain, const ChainTile& tile, GivenTile given) const;
  // Whether staging an operand only copies what can be copied without waiting; its bytes.
  bool CanFetch(const StagedOperand& x) const;
  int64_t Bytes(const StagedOperand& x) const { return Elements(x) * x.value.dtype().bytes(); }
  // The tile of an operand in scratch, and the element of it that the products read.
  UOp Stage(const StagedOperand& x, int64_t id);
  UOp Read(const StagedOperand& x, const UOp& stage) const;
  // With a factor: at each step the sums of the steps before are multiplied by it first.
  UOp Sums(const UOp& a, const UOp& b, const UOp& factor = UOp()) const;
  // The kernel, with these sums in the place of the contraction's, and what is known of others.
  UOp Stored(const UOp& sums, const Substitution& known = {}) const;
  const StagedOperand& a() const { return a_; }
  const StagedOperand& b() const { return b_; }

 private:
  friend class ChainTiler;
  friend class WarpChain;
  static constexpr int64_t kMatrixSide = 16;     // of what a warp does at once of a unit
  static constexpr int64_t kSide = 16;           // threads along each side of a tile, without units
  static constexpr int64_t kMostRowBytes = 128;  // that are staged of a row at once

  UOp Range(int64_t extent, RangeKind kind, std::vector<UOp>& closed);
  // A unit, or none, and the operands as it takes them.
  void TakeUnit(const MatrixShape* unit);
  bool Grouped() const { return unit_ != nullptr && unit_->warps > 1; }
  // Tiles for units of several warps, of products so large that all multiprocessors have one; or
  // false.
  bool ChooseGroups(int64_t rows, int64_t columns, int64_t batch, int64_t steps);
  // Whether what follows the sums is much for each of a thread's.
  bool MuchAfter() const;
  // Puts the range that makes the widest vectors last. Returns their lanes.
  int64_t PutAdjacentLast(const UOp& value, std::vector<UOp>& ranges) const;
  // How the tiles of one step lie in scratch. Returns their bytes.
  int64_t LayStages();
  // How an operand lies in shared memory. `along_sum`: the lanes of vectors along the sum, `along`:
  // those along its own ranges.
  void Lay(StagedOperand& x, int64_t along_sum, int64_t along) const;
  // Large tiles read least; smaller ones where there would be too few for all multiprocessors, or
  // where most of one would be empty.
  void ChooseTile(int64_t rows, int64_t columns, int64_t batch);
  // The vectors in which sums are stored, and in which b is read without units.
  void ChooseLanes();
  // The threads of a tile, and the loops over its sum.
  void BindTile(std::vector<UOp>& closed);
  // Without matrix units: threads in rows of 16, each with every 16th row and vector of columns.
  void BindThreads(std::vector<UOp>& closed);
  void BindWarps(std::vector<UOp>& closed);
  UOp Column() const;
  // What the kernel's store takes: the sums, or what they become block by block.
  const UOp& Result() const { return scaled_ ? scaled_ : c_.reduce; }
  // Where the ranges of the result are at a thread's element, and whether it is there.
  UOp AtElement(Substitution& map) const;
  int64_t Elements(const StagedOperand& x) const;
  // Where an element of a tile lies in scratch.
  UOp Offset(const StagedOperand& x, const UOp& at, const UOp& step) const;

  const UOp sink_;
  const RangeSets sets_;
  Contraction c_;
  UOp scaled_;            // the sum over blocks, or nothing
  size_t blocks_ = 0;     // how many of the inner ranges are those of the blocks, the first ones
  int64_t of_block_ = 1;  // steps
  const Target& target_;
  int64_t next_id_;
  const MatrixShape* unit_ = nullptr;  // null: every thread for itself
  StagedOperand a_, b_;
  int64_t tile_rows_ = 0, tile_columns_ = 0, steps_ = 0, threads_ = 0;
  int64_t warps_down_ = 2, warps_across_ = 2;  // of a tile
  int64_t lanes_ = 1;                          // of a vector of columns
  UOp grid_, thread_, step_;
  MatrixRanges matrix_;
  UOp first_row_, first_column_;            // of the block
  UOp row_, column_unit_, lane_, at_step_;  // of a thread's sums within the block
  UOp row_gate_, column_gate_, step_gate_;  // ends that tiles reach over
  std::vector<UOp> closed_, sum_ranges_;    // by the store, by the sum
  std::vector<UOp> block_ranges_;           // by a sum of a block
  UOp in_tile_;                             // the first step of a block in its tile
  Substitution outer_;                      // what the batch's ranges are
};

}  // namespace tessera
