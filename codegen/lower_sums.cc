// Long sums of floats, in blocks.
#include <algorithm>

#include "codegen/lowerer.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/panel.h"

namespace tessera {
namespace {

// Values that one register takes up before they are added to those of other blocks; and what is no
// long sum. Of sums that leave no registers for those of all blocks, these wait in memory
// meanwhile.
constexpr int64_t kBlock = 128, kLong = 512;
constexpr int64_t kBlockOfMany = 1024, kLongOfMany = 1024;
constexpr size_t kFewSums = 8;
constexpr int64_t kMostPoints = 1ll << 40;  // that are told apart

// Whether blocks make it more exact: of what a unit sums, the unit decides.
bool IsSumOfFloats(const UOp& r) {
  return r.arg<ReduceArg>().op == Op::kAdd && r.dtype().IsFloat() && !IsTile(r.dtype()) &&
         !r.src(0).is(Op::kRescale) && !r.src(0).is(Op::kMma);
}

}  // namespace

std::vector<std::vector<int64_t>> Lowerer::BlocksOfSums(const std::vector<UOp>& group) const {
  const absl::Span<const UOp> ranges = ClosedRanges(group.back());
  std::vector<std::vector<int64_t>> out(ranges.size());
  if (std::none_of(group.begin(), group.end(), IsSumOfFloats)) return out;
  const bool alone = std::all_of(ranges.begin(), ranges.end(), [&](const UOp& r) {
    return r.arg<RangeArg>().kind == RangeKind::kLoop && (!threads_ || FilledAhead(r).empty());
  });
  if (!alone) return out;
  const bool few = group.size() <= kFewSums;
  if (threads_ && !few) return out;
  const int64_t block = few ? kBlock : kBlockOfMany, most = few ? kLong : kLongOfMany;
  int64_t all = 1;
  for (const UOp& r : ranges) all = std::min(most + 1, all * std::min(most + 1, r.src(0).vmax()));
  if (all <= most) return out;
  int64_t taken = 1;  // values by the innermost registers that are not in a block yet
  for (size_t i = ranges.size(); i-- > 0;) {
    int64_t left = std::min(kMostPoints, ranges[i].src(0).vmax()), stride = 1;
    while (left > block / taken) {
      const int64_t room = std::max<int64_t>(2, block / taken);
      const int64_t divisor = LargestDivisor(left, room);
      const int64_t steps = divisor > room / 2 ? divisor : room;
      stride *= steps;
      left = CeilDiv(left, steps);
      taken = 1;
      out[i].insert(out[i].begin(), stride);
    }
    taken *= left;
  }
  return out;
}

std::vector<UOp> Lowerer::RegistersOfBlock(const std::vector<UOp>& group,
                                           const std::vector<int>& pool,
                                           const std::vector<UOp>& whole, int block) {
  std::vector<UOp> out = whole;
  for (size_t i = 0; i < group.size(); ++i) {
    if (pool[i] != static_cast<int>(i)) {
      out[i] = out[pool[i]];
    } else if (IsSumOfFloats(group[i])) {
      out[i] = Append(block, UOp::Make(Op::kReg, {Start(group[i], block)}, FreshId()));
    }
  }
  return out;
}

void Lowerer::AddBlock(const std::vector<UOp>& whole, const std::vector<UOp>& of_block) {
  const int here = static_cast<int>(blocks_.size()) - 1;
  const auto load = [&](const UOp& reg) {
    return Append(here, UOp::Make(Op::kLoad, reg.dtype(), {reg}, FreshId()));
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    const auto before = of_block.begin() + i;
    if (whole[i] == *before || std::find(of_block.begin(), before, *before) != before) continue;
    const UOp sum = Append(here, UOp::Make(Op::kAdd, {load(whole[i]), load(*before)}));
    Append(here, UOp::Make(Op::kSet, {whole[i], sum}, FreshId()));
  }
}

}  // namespace tessera
