// How accesses move with a range, and which range makes the best lanes.
#pragma once

#include "graph/kernel_form.h"
#include "graph/target.h"

namespace tessera {

// How far apart, either way, so many lanes may lie for loads of them to be vectors whose lanes are
// moved. (Of 16, 5 to 8 apart: a third to a half of the time that one by one takes; of 8 no less.)
int64_t MostShuffled(int64_t lanes);

// Bytes from one row of memory to the next: closer ones are one stream to the hardware.
inline constexpr int64_t kLeastStride = 1024;

// How an index moves with a range: by a fixed step (0: not at all), or in no regular way.
struct Step {
  bool linear = true;
  int64_t factor = 0;
};
Step StepOf(const UOp& index, const UOp& range, const RangeSets& sets);

// Where comparisons of a range with constants change, in order, 0 and the extent left out: between
// two of them each such comparison is a constant. Nothing where there are too many to cut at: more
// than a few, unless each chooses between two values, of which a piece needs but one.
std::vector<int64_t> Thresholds(const RangeSets& sets, const UOp& range);

// The longest piece of a range between two of them.
int64_t LongestPiece(const RangeSets& sets, const UOp& range);

// How many times Thresholds of the range choose between two values, as in a CAT, of which a piece
// needs but one; 0 where there are more of them than that, or too many.
size_t Choices(const RangeSets& sets, const UOp& range);

// Whether `condition` depends on the range only by comparisons that Thresholds counts.
bool DecidedByThresholds(const UOp& condition, const UOp& range, const RangeSets& sets);

// The longest part of a range, from its first point to before its end, at which each comparison of
// indices with the range is decided, whatever the other loops do; all of it where none is anywhere.
struct RangePart {
  int64_t begin = 0, end = 0;
};
RangePart DecidedPart(const RangeSets& sets, const UOp& range);

// Whether what an expression is made of is chosen by a range, and not by what is read: in copies
// for each step of it nothing is left to choose, and what they read alike they share.
bool ChoosesBy(const UOp& u, const UOp& range);

// How many lookups that move with the range wait for one another at most, among nodes that come
// after their sources.
int LookupsInTurn(absl::Span<const UOp> order, const UOp& range, const RangeSets& sets);

// For a load that jumps along `lane`: the loop of the kernel's stores along which it is adjacent,
// so that square blocks of it can turn in registers (see JoinTransposed); or nothing.
UOp TurnsWith(const UOp& load, const UOp& lane, const RangeSets& sets);

// The short loop of the one store over `lane` whose few results lie side by side for each point of
// `lane`, as channels of pixels do: written out, vectors of lanes interleave (see JoinTransposed);
// or nothing.
UOp InterleavesWith(const UOp& lane, const RangeSets& sets);

// The range of the nest over which most bytes are adjacent, or nothing where lanes would gather.
// Lanes of a target's vectors may interleave, need pieces between Thresholds that are long enough,
// and are not made of a reduction that would fill less than half of them, if others can be.
UOp BestLaneRange(const RangeSets& sets, const Target* vectors = nullptr);

// Lanes of one register for the widest type that depends on the range.
int64_t LanesFor(const UOp& range, const RangeSets& sets, const Target& target);

// Of GPUs: lanes of 16 bytes along the range, where every access that moves with it is whole
// vectors; else as many as are, or 1.
int64_t VectorLanes(const UOp& range, const RangeSets& sets);

// The largest power of two, at most `most`, of which all values of an index are known to be
// multiples.
int64_t AlignmentOf(const UOp& index, int64_t most);

}  // namespace tessera
