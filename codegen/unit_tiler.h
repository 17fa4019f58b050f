// Squares of tiles of one store: what they read, laid out (tile_panels.cc), and their sums
// (cpu_tiles.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/lanes.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/panel.h"
#include "graph/target.h"

namespace tessera {

inline constexpr int64_t kSide = kRowsOfTile;              // of a tile of sums
inline constexpr int64_t kSumBytes = 4;                    // f32 or i32
inline constexpr int64_t kSquare = kSideOfSquare / kSide;  // tiles a side

// Ids that nothing in the kernel has.
struct FreshIds {
  int64_t range, stage;
  UOp Range(int64_t extent, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{range++, kind});
  }
  UOp Loop(int64_t extent) { return Range(extent, RangeKind::kLoop); }
};

// What the products read of a, laid out for all panels: blocks of rows, and the loops that fill
// one.
struct RowBlocks {
  UOp row;                // the kernel's
  UOp block;              // the loop over blocks, or nothing
  int64_t each = 0;       // rows of a block: whole tiles
  bool uneven = false;    // whether the last one has fewer
  bool in_place = false;  // whether a lies so already: nothing is laid out
  size_t last_step = 0;   // the range of the sum that its steps run over fastest, by place
  UOp stage;
  std::vector<UOp> fill;
};

// So many rows that they stay in the core's own cache, in as many blocks as cores take evenly. Of
// what lies in scratch, which loads are not gated from, there is one. `a` is what is read of them,
// so many tiles deep.
RowBlocks BlocksOf(const UOp& row, const UOp& a, int64_t deep, const Target& target, FreshIds& ids);

// A store over the columns of a few panels beside each other, or of a narrower one.
struct PanelStore {
  UOp store, reduce;
  UOp panels;           // the loop over so many panels at a time, or nothing
  UOp column;           // that over their columns, or where the only one is
  int64_t columns = 0;  // of all of them
  int64_t count = 1;    // of panels
};

// The store in tiles, in three stages: rows, columns, sums. The first tiler of a kernel lays out
// the rows for all.
class UnitTiler {
 public:
  UnitTiler(const PanelStore& of, RowBlocks& rows, const Target& target, FreshIds& ids);

  // The store with its stages.
  UOp Run();

  // The stages' loops as vectors.
  UOp WithLanes(const UOp& sink) const;

 private:
  UOp RowAt(const UOp& in_block) const {
    return rows_.block ? Plus(Times(rows_.block, rows_.each), in_block) : in_block;
  }
  // Whether there is such a row, or nothing where there always is.
  UOp IsRow(const UOp& in_block) const {
    return rows_.uneven ? Below(RowAt(in_block), UOp(rows_.row.src(0))) : UOp();
  }
  UOp ColumnInPanel() const { return of_.column.is(Op::kRange) ? of_.column : UOp::Index(0); }

  // What is read, laid out. (Where something is asked for, ids are used up.)

  // Loops over the sum for a stage of what it reads, and their index as one: the step. Of short
  // ones that choose what is read there are copies.
  UOp OwnSteps(const UOp& of, Substitution& map, std::vector<UOp>& loops);
  UOp PlaceInRows(const UOp& row, const UOp& step) const {
    return PlaceInRowTiles(row, step, tiles_down_, steps_of_tile_);
  }
  // What is read of a at a row of the block and a step.
  UOp ReadRowAt(const UOp& row, const UOp& step) const;
  // Whether a is read from where it lies as the unit takes it.
  bool RowsLieAsTiles();
  UOp StageRows();
  // Where the panels, one after the other, have what a column reads at a step.
  UOp PlaceInPanels(const UOp& step, const UOp& column) const;
  // What is read of b at a step and a column of the panel.
  UOp ReadColumnAt(const UOp& step, const UOp& column) const;
  // Whether panels are read from where they lie as the unit takes them.
  bool ColumnsLieAsTiles();
  // How many steps of a range of the sum read b's elements side by side: all of them, or those of a
  // block, as formats of weights have them; or 0.
  int64_t StepsInRun(const UOp& along);
  // Steps may be in any order, but in one for all panels: where b is computed, those go last that
  // read the longest runs.
  void PutRunsLast();
  // A step of the sum's last range by its runs, instead of by the last of these loops: a loop over
  // them, copies of some, one within them. Copies are as many as leave nothing to be chosen by the
  // loop; or two, by which halves of bytes are chosen.
  UOp StepByRuns(std::vector<UOp>& fill);
  UOp StageColumns();

  // Sums.

  // The sums of sixteen columns, row after row, then those of the next sixteen.
  UOp PlaceOfSum(const UOp& row, const UOp& column) const;
  // Of some tiles of steps from `first` on, in so many parts: what the sums of all rows take up.
  UOp SumsOf(const UOp& columns, int64_t first, int64_t parts, int64_t each, const UOp& scratch);
  UOp StageSums(const UOp& columns);
  // The loops around a block, it, those over other columns, whose panels meet the same block, and
  // those over the block's rows and columns.
  std::vector<UOp> LoopsOfStore(const UOp& row) const;

  const PanelStore& of_;
  const RangeSets sets_;
  RowBlocks& rows_;
  const Target& target_;
  FreshIds& ids_;
  std::vector<UOp> summed_;             // the ranges of the sum, in the order of its steps
  UOp a_, b_;                           // the factors before they were cast: of rows, of columns
  const int64_t tiles_across_;          // a panel
  int64_t steps_ = 1, tiles_down_ = 1;  // of the sum
  int64_t steps_of_tile_ = 1;           // in a row of a tile of a
  int64_t steps_beside_ = 1;            // side by side in a panel
  bool fills_rows_ = false;
  std::vector<UOp> column_fill_;  // loops of the stage, in order
  int64_t run_ = 0;               // see StepsInRun
};

}  // namespace tessera
