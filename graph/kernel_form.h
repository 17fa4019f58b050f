// Kernels in index form: which ranges a node depends on, which nodes close them, replacing ranges.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/numeric/int128.h"
#include "graph/error.h"
#include "graph/node_map.h"
#include "graph/uop.h"

namespace tessera {

// STORE or UPDATE: writes elements of a buffer.
inline bool WritesElements(const UOp& u) { return u.is(Op::kStore) || u.is(Op::kUpdate); }

// Whether a STORE, by an id below 0, may write elements again that the STORE of the opposite id
// (~id) writes, and then the same.
inline bool StoresAgain(const UOp& store) { return store.arg<int64_t>() < 0; }

// Whether some of a kernel's outputs are UPDATEs: its stores then have loops of their own.
bool HasUpdates(const UOp& sink);

// The RANGE of a kernel's RUNNINGs, whose points come one after another inside all other loops; or
// nothing.
UOp RunningRange(const UOp& sink);

// STORE, UPDATE and REDUCE (in a kernel) close ranges: those sources, after which the node no
// longer depends on them. A STAGE is filled by STOREs that close theirs.
bool ClosesRanges(const UOp& u);
absl::Span<const UOp> ClosedRanges(const UOp& u);

// A set of ranges by their numbers in a kernel: bit i is number i.
using RangeMask = absl::uint128;
inline constexpr size_t kMostRanges = 128;

// The loop along which the elements that a store writes are adjacent, at all its points, or
// nothing.
UOp AdjacentLoop(const UOp& store);

// What RangeSets throws of a kernel with more: what made them so many is left out then.
class TooManyRanges : public Error {
 public:
  TooManyRanges();
};
inline int Count(RangeMask m) {
  return std::popcount(absl::Uint128Low64(m)) + std::popcount(absl::Uint128High64(m));
}
inline int Lowest(RangeMask m) {
  const uint64_t low = absl::Uint128Low64(m);
  return low != 0 ? std::countr_zero(low) : 64 + std::countr_zero(absl::Uint128High64(m));
}

// The ranges of a kernel by number, and for every node those it depends on, as a mask.
class RangeSets {
 public:
  explicit RangeSets(const UOp& sink);
  const std::vector<UOp>& order() const { return order_; }    // every node, sources first
  const std::vector<UOp>& ranges() const { return ranges_; }  // by number
  RangeMask Bit(const UOp& range) const;
  RangeMask Free(const UOp& u) const { return free_.At(u.get()); }
  RangeMask Closed(const UOp& u) const;  // by the node itself
  // Ranges that some node of these ops closes.
  RangeMask ClosedBy(Op op) const;
  // Product of the extents of the ranges in a mask, each at its highest.
  int64_t Iterations(RangeMask mask) const;

 private:
  std::vector<UOp> order_, ranges_;
  NodeMap<RangeMask> free_;
};

// A reduction left without ranges: its value, but as sums of floats start at +0, -0 becomes +0.
UOp ReducedOnce(const ReduceArg& arg, const UOp& value);

// What stands for a range from now on: its value, and the ranges that its closers close instead.
struct RangeReplacement {
  UOp value;
  std::vector<UOp> ranges;
};
using RangeReplacements = absl::flat_hash_map<UOp, RangeReplacement>;
UOp ReplaceRanges(const UOp& sink, const RangeReplacements& map);

// The kernel whose stores all close these loops, in this order.
UOp WithLoops(const UOp& sink, absl::Span<const UOp> loops);

// The largest divisor of n that is at most `most`; 1 where no other is.
int64_t LargestDivisor(int64_t n, int64_t most);

// What one of so many cores takes of n at most, where each takes some: n in equal shares, rounded
// up.
int64_t ShareOf(int64_t n, int64_t cores);

// A REDUCE over a range that was closed below it, of a value that no longer depends on it, gets a
// range of its own.
UOp SeparateRanges(const UOp& sink);

// The one reduction of a kernel, or nothing.
UOp OnlyReduction(const RangeSets& sets);

// The reductions of an expression or a kernel that do not lie within others of it.
std::vector<UOp> TopReductions(const UOp& value);

// An id that no RANGE of the kernel has.
int64_t FreshRangeId(const RangeSets& sets);

}  // namespace tessera
