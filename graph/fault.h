// Faults that a test plants in the compiler, to show that the fuzzers find such: the table of all.
//
// FAULT=name plants one for the life of the process, and every result may be wrong. The hooks stand
// where real defects have stood, one line each. All of them lie above the text of a kernel, which
// the disk cache is keyed by, so that nothing kept on disk is ever wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

// X(name, what it breaks)
#define TESSERA_FAULTS(X)                                                                  \
  /* rules and index algebra */                                                            \
  X(ZeroTimesFloat, "x * 0 is 0 for floats: NaN, infinities and -0 are lost")              \
  X(FloatPlusZero, "x + 0 is x for floats: -0 + 0 stays -0")                               \
  X(NarrowCastMerged, "a cast to a narrower integer and back is dropped")                  \
  X(RoundingSkipped, "a cast to a narrower float and back is dropped")                     \
  X(WhereSwapped, "a WHERE with a known condition folds to the other branch")              \
  X(ModuloOffByOne, "x % c folds to x although x reaches c")                               \
  X(LessOffByOne, "a < b folds to true although they may be equal")                        \
  X(WrapIgnored, "sums are simplified as if they never left their dtype")                  \
  X(WhereBounds, "the bounds of a WHERE are those of its first branch")                    \
  X(CastBounds, "the bounds of a narrowing cast saturate instead of wrapping")             \
  X(RemainderOfVariable, "division by a variable takes every rest for smaller than it")    \
  /* index form */                                                                         \
  X(FlipOneAxis, "of several flipped axes only the first is")                              \
  X(PermuteInverted, "a PERMUTE indexes by its inverse")                                   \
  X(PadMaskLost, "what an expression makes of the zeros beside a PAD is let through")      \
  X(DilationIgnored, "a WINDOW's dilation counts as 1")                                    \
  X(ReduceRangeShared, "a reduction runs over a range that its position uses already")     \
  X(RangesMergedApart, "loops are merged although something closes only one of them")      \
  X(RangesNotSeparated, "nested reductions go on sharing a range")                         \
  /* fusion and order */                                                                   \
  X(ReaderEdgeLost, "a reader of an old version may come after its overwriting")           \
  X(JoinDespitePath, "groups are joined although one needs the other")                     \
  X(JoinOverwritten, "groups are joined although one overwrites what the other reads")     \
  X(JoinTransposed, "groups of one size and different shapes are joined")                  \
  X(OverwrittenInPlace, "an ASSIGN that reads what it overwrites elsewhere has no buffer") \
  X(OldVersionNotCopied, "a version that is wanted and overwritten is not copied")         \
  X(MoveInPlace, "a tensor assigned to a view of itself is moved in place")                \
  X(KernelTargetIgnored, "kernels that write the same value to different views are one")   \
  X(SecondStepSums, "the second step of a two-step reduction adds, whatever the first")    \
  /* memory */                                                                             \
  X(FreedEarly, "a temp's memory is free in the step that reads it last")                  \
  X(TempsOverlap, "a temp begins in the last bytes of the one before it")                  \
  /* code generation */                                                                    \
  X(LastChunkLost, "cores share a loop in equal chunks; what is left over is lost")        \
  X(RemainderLost, "a tiled loop ends with its last whole tile")                           \
  X(OddPartLost, "of an odd number of partial results the last is lost")                   \
  X(MaxStartsAtZero, "a running maximum starts at 0")                                      \
  X(AccumulatorKept, "an inner reduction starts where it ended in the row before")         \
  X(LanesShareScratch, "scratch filled at each point of a range is shared by its lanes")   \
  X(ScratchOverlaps, "stages share one place in scratch")                                  \
  X(LanesNotAdjacent, "a load that strides over memory takes its neighbours instead")      \
  /* text */                                                                               \
  X(FloorDivTruncates, "integer division is C's, whatever the signs")                      \
  X(MaxDropsNan, "a maximum with NaN gives the other operand")                             \
  X(ShortLiterals, "float literals have six digits")                                       \
  X(PlainCast, "a cast from float to integer is C's: undefined outside of the range")      \
  X(ShiftUnsigned, "negative numbers are shifted right as unsigned ones")                  \
  /* keys and replay */                                                                    \
  X(PlanKeyLacksConstants, "plans are found without regard to constants")                  \
  X(PlanKeyLacksOffsets, "plans are found without regard to where slices lie")             \
  X(KernelKeyByLength, "kernels are found by the length of their text")                    \
  X(TurnTakesFirst, "each turn of a loop takes what the first one took")                   \
  X(ReplayOldVariables, "a replay runs with the variables of the first one")               \
  X(ReplayOldInputs, "a replay reads the inputs of the first one")

namespace tessera {

enum class Fault : uint8_t {
  kNone,
#define TESSERA_FAULT_ENUM(name, meaning) k##name,
  TESSERA_FAULTS(TESSERA_FAULT_ENUM)
#undef TESSERA_FAULT_ENUM
};

namespace internal {
extern std::atomic<int> planted_fault;  // negative until the flag is read
int ReadPlantedFault();
}  // namespace internal

// Whether the flag FAULT names this one. A name that is not in the table ends the process.
inline bool FaultPlanted(Fault fault) {
  int planted = internal::planted_fault.load(std::memory_order_relaxed);
  if (planted < 0) [[unlikely]] {
    planted = internal::ReadPlantedFault();
  }
  return planted == static_cast<int>(fault);
}

// The table, for tests that walk it.
struct FaultInfo {
  const char* name;
  const char* meaning;
};
const std::vector<FaultInfo>& AllFaults();

}  // namespace tessera
