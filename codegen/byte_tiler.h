// How a kernel of dot products of bytes is put in tiles: with lanes along the sums (byte_dots.cc),
// or over columns that are laid out in panels (byte_panels.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/byte_dots.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/target.h"

namespace tessera {

// Bytes as the unsigned ones that are more by a constant.
struct RaisedBytes {
  UOp value;
  int64_t by = 0;
};
RaisedBytes Raise(const UOp& bytes);
// Whether one operand, b, must be raised to be unsigned where the other is signed.
bool MustRaise(const UOp& a, const UOp& b, const Target& target);

UOp ToInt32(const UOp& bytes);

// Whether rows are many enough for the columns to be laid out anew, and panels fit.
bool WorthPanels(const RangeSets& sets, const ByteDots& dots, const UOp& row, const UOp& along,
                 const Target& target);

// Whether the columns' bytes lie in panels of whole vectors, four of a column next to the next
// one's.
bool LieInPanels(const RangeSets& sets, const ByteDots& dots, const Target& target);

class ByteTiler {
 public:
  ByteTiler(const UOp& sink, const RangeSets& sets, const ByteDots& dots, const Target& target)
      : sink_(sink),
        sets_(sets),
        dots_(dots),
        c_(dots.c),
        target_(target),
        scaled_(dots.scaled),
        next_id_(FreshRangeId(sets)),
        next_stage_(FreshStageId(sink)) {}

  // Lanes along the sum, several columns at once as so many streams, and rows that share them.
  UOp Along(const UOp& along);

  // Lanes over columns, whose bytes and scales are laid out first for all rows to read: in a panel
  // of so many columns, four steps of a column lie next to those of the next one. Rows are copies.
  // Each element of the result then takes four bytes of its row and of a lane at a time.
  UOp Across(const UOp& row, const UOp& along);

  // Lanes over columns whose bytes lie in panels already: four steps of a column next to those of
  // the next one.
  UOp InPlace(const UOp& along);

 private:
  // The sum over `steps` of the products, of which the chip's own instruction takes four; what is
  // taken off again varies over `blocks`.
  UOp DotsOver(const UOp& a, const UOp& b, const std::vector<UOp>& steps,
               const std::vector<UOp>& blocks);

  // Keeps the rows' own factors, where they are more than numbers in memory.
  void KeepFactors();

  // Whether columns are many enough for several rows to be laid out first: a row alone is put
  // together in the shadow of what it waits for.
  bool KeepsRows() const;

  // What varies over rows and `over`, of which the lanes are the last, laid out as lanes read it
  // for all columns, if it fits; of bytes those of a lane, by `step`, side by side.
  UOp Kept(const UOp& value, std::vector<UOp> over, const UOp& step = UOp());

  // Lanes for `groups` of bytes of each of several blocks: of those first whose bytes are the
  // nearest, and of none by which bytes are chosen. What is left of each range of blocks is put in
  // its place, in copies where something is chosen by it.
  UOp BlocksBesides(int64_t most, int64_t groups, std::vector<UOp>& blocks, Substitution& map);

  // How far apart in memory the columns' bytes of neighbouring blocks are: the least of all loads
  // that move, 0 where none does or one jumps.
  int64_t StepInMemory(const UOp& range) const;

  // The sum of what is added in each block to the dot products: lanes over the innermost ranges of
  // blocks, in the same loops over the others.
  UOp SumOfRest(const Substitution& of_dots);

  // What the dot products are times, of which copies and lanes of blocks need several numbers: one
  // vector has those of all blocks that are side by side, and each takes its own from it. Of the
  // dot products' lanes, so many `groups` are of one block.
  void VectorsOfFactors(const UOp& of_dots, int64_t groups, Substitution& map);

  // The trailing ranges of blocks that fit lanes together: how many, and their number of lanes.
  struct Trailing {
    size_t first = 0;  // of the ranges of blocks
    int64_t lanes = 1;
  };
  Trailing TrailingBlocks() const;

  // These ranges of blocks by the lanes of a range.
  void PutAtLanes(const Trailing& trailing, const UOp& lane, Substitution& map) const;

  // The index of a point of these ranges, the last of them adjacent.
  static UOp PointOf(const std::vector<UOp>& ranges, const std::vector<int64_t>& extents);

  // The bytes of a column operand as they lie in its panel, which is filled along memory.
  UOp Panel(const UOp& b, const std::vector<UOp>& deep, const UOp& along, int64_t width,
            const Substitution& map, const UOp& panels, const UOp& column, const UOp& step,
            const UOp& part);

  // What a sum's products are times in each column and block, in a panel too.
  UOp PanelOfScales(const UOp& factor, int64_t width, const UOp& panels, const UOp& column);

  // Minus `by` times the sum of a row's bytes in each block, which all panels read; rows and blocks
  // are what `map` has for them.
  UOp SumsOfRows(int64_t by, const UOp& along, const Substitution& map);

  // The factors of the sum's products that vary over some of these ranges and none of the others.
  std::vector<UOp> FactorsOver(RangeMask these, RangeMask others) const;

  static int64_t PowerOfTwoIn(int64_t n) { return n & -n; }

  UOp Range(int64_t extent, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{next_id_++, kind});
  }

  static constexpr int64_t kMostCopies = 8;  // of steps inside a block

  // A loop of this many steps, in copies as long as these are few.
  UOp CopiesOf(const UOp& extent) {
    const int64_t n = extent.vmax();
    const bool few = extent.IsConst() && copies_ * n <= most_copies_;
    if (few) copies_ *= n;
    return UOp::Make(Op::kRange, kInt64, {extent},
                     RangeArg{next_id_++, few ? RangeKind::kUnroll : RangeKind::kLoop});
  }
  UOp CopiesOf(const UOp& range, Substitution& map) {
    const UOp r = CopiesOf(UOp(range.src(0)));
    map.emplace(range, r);
    return r;
  }

  // Copies of columns, and of rows as far as registers go.
  UOp TileOutputs(const UOp& sink);

  const UOp sink_;
  const RangeSets& sets_;
  const ByteDots& dots_;
  const Contraction& c_;
  const Target& target_;
  UOp scaled_;  // of the dots, with what is kept in place of what it is
  int64_t next_id_, next_stage_;
  int64_t copies_ = 1, most_copies_ = kMostCopies;
};

}  // namespace tessera
