// Reductions: in registers, several in one loop, and over threads.
#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "codegen/byte_dots.h"
#include "codegen/lowerer.h"
#include "codegen/matrix.h"
#include "graph/fault.h"
#include "graph/fold.h"
#include "graph/kernel_form.h"
#include "graph/panel.h"
#include "graph/status.h"

namespace tessera {

bool Lowerer::OverThreads(const UOp& u) const {
  return threads_ && std::any_of(ClosedRanges(u).begin(), ClosedRanges(u).end(), [](auto& r) {
           return r.template arg<RangeArg>().kind == RangeKind::kThread;
         });
}

absl::Status Lowerer::EmitCombines(const std::vector<UOp>& group, int home) {
  return AtHome(home, [&]() -> absl::Status {
    const UOp& range = ClosedRanges(group[0])[0];
    const bool whole = range.src(0).IsConst(shape_.threads) && ClosedRanges(group[0]).size() == 1;
    const bool warps = shape_.threads == kWarp || (shape_.rows == 1 && AllThreads());
    if (!whole || !warps) {
      return absl::InternalError("lower: a reduction over threads that not all of them reach");
    }
    RETURN_IF_ERROR(OpenLoop(range));
    std::vector<UOp> values;
    for (const UOp& r : group) {
      RETURN_IF_ERROR(Compute({r.src(0)}));
      values.push_back(*Find(r.src(0)));
    }
    CloseLoop();
    for (size_t i = 0; i < group.size(); ++i) {
      const UOp all = UOp::Make(Op::kCombine, group[i].dtype(), {values[i]}, group[i].arg());
      Define(group[i], Append(home, all));
    }
    return absl::OkStatus();
  });
}

absl::Status Lowerer::EmitRunning(const UOp& u) {
  const int here = Home(u);
  const RangeMask bit = sets_.Bit(u.src(1));
  int loop = here;
  while (loop > 0 && blocks_[loop].bit != bit && !blocks_[loop].head) --loop;
  if (loop == 0 || blocks_[loop].bit != bit || !blocks_[loop].head) {
    return absl::InternalError("lower: a RUNNING whose RANGE is not the innermost of its loops");
  }
  const UOp reg = Append(loop - 1, UOp::Make(Op::kReg, {Start(u, loop - 1)}, FreshId()));
  const UOp old = Append(here, UOp::Make(Op::kLoad, u.dtype(), {reg}, FreshId()));
  const UOp now = Append(here, UOp::Make(u.arg<ReduceArg>().op, {old, *Find(u.src(0))}));
  Append(here, UOp::Make(Op::kSet, {reg, now}, FreshId()));
  Define(u, now);
  earlier_.insert_or_assign(u.get(), old);
  return absl::OkStatus();
}

std::vector<UOp> Lowerer::ProductsOf(const UOp& value) {
  std::vector<UOp> out;
  for (UOp u = value; u.is(Op::kMma); u = UOp(u.src(2))) {
    out.push_back(u);
    if (u.size() == 2) break;
    if (IsByteDot(u)) return {};  // adds up to what is added then
  }
  if (!out.empty() && out.back().size() != 2) return {};
  std::reverse(out.begin(), out.end());
  return out;
}

namespace {

// Sums by units of several warps, which go on until they are waited for.
bool IsInPlace(const UOp& r) { return r.src(0).is(Op::kMma) && ReadInPlace(r.src(0).src(0)); }

bool IsRescaled(const UOp& r) { return r.src(0).is(Op::kRescale); }

}  // namespace

void Lowerer::FindSkippable() {
  RangeMask may_be_empty = 0;
  for (const UOp& r : sets_.ranges()) {
    if (r.src(0).vmin() < 1) may_be_empty |= sets_.Bit(r);
  }
  if (may_be_empty == 0) return;
  absl::flat_hash_map<const Node*, RangeMask> around;
  const std::vector<UOp>& order = sets_.order();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const RangeMask inside = around[it->get()] | (sets_.Closed(*it) & may_be_empty);
    for (const UOp& s : it->srcs()) {
      const auto [source, first] = around.emplace(s.get(), inside);
      if (!first) source->second &= inside;
    }
  }
  for (const UOp& r : reduces_) skippable_[r.get()] = around.at(r.get());
}

std::vector<UOp> Lowerer::ReducedWith(const UOp& first, size_t& few) {
  const auto skippable = [&](const UOp& r) {
    const auto it = skippable_.find(r.get());
    return it == skippable_.end() ? RangeMask{0} : it->second;
  };
  const auto alike = [&](const UOp& r) {
    return sets_.Free(r) == sets_.Free(first) && skippable(r) == skippable(first) &&
           Find(r) == nullptr;
  };
  std::vector<UOp> group;
  few = 0;
  if (!IsRescaled(first)) {
    for (const UOp& r : reduces_) {
      const bool same = depth_.at(r.get()) == depth_.at(first.get()) && !IsRescaled(r) &&
                        ClosedRanges(r) == ClosedRanges(first);
      if (same && alike(r)) group.push_back(r);
    }
    return group;
  }
  UOp whole = first;  // over the most ranges
  for (const UOp& r : reduces_) {
    if (!IsRescaled(r) || !(r.src(1) == first.src(1)) || !alike(r)) continue;
    group.push_back(r);
    if (r.size() > whole.size()) whole = r;
  }
  // None that is made of another's result, nor over part of the ranges within.
  const auto joins = [&](const UOp& r) {
    if (r.size() != 2 && !(ClosedRanges(r) == ClosedRanges(whole))) return false;
    const std::vector<UOp> below = TopoSort(r.srcs());
    return std::none_of(group.begin(), group.end(), [&](const UOp& other) {
      return std::find(below.begin(), below.end(), other) != below.end();
    });
  };
  group.erase(std::remove_if(group.begin(), group.end(), [&](const UOp& r) { return !joins(r); }),
              group.end());
  const auto end = std::stable_partition(group.begin(), group.end(),
                                         [&](const UOp& r) { return r.size() < whole.size(); });
  few = end - group.begin();
  return group;
}

absl::Status Lowerer::EmitReduces(const UOp& first) {
  const int home = Home(first);
  size_t few = 0;
  const std::vector<UOp> group = ReducedWith(first, few);
  if (group.empty()) return absl::InternalError("lower: a sum that is made of itself");
  if (OverThreads(first)) return EmitCombines(group, home);
  const std::vector<int> pool = Pool(group);
  return AtHome(home, [&]() -> absl::Status {
    RETURN_IF_ERROR(FillForTiles(group));
    const int begin = FaultPlanted(Fault::kAccumulatorKept) ? 0 : home;
    ASSIGN_OR_RETURN(std::vector<UOp> regs, Registers(group, pool, begin));
    const absl::Span<const UOp> ranges = ClosedRanges(group.back());
    const std::vector<std::vector<int64_t>> blocks = BlocksOfSums(group);
    std::vector<std::vector<UOp>> whole;  // of each loop over blocks, the registers before it
    const std::vector<UOp> early = FilledAhead(ranges[0]);
    const bool in_place = IsInPlace(group.back()), reading = in_place && ranges.size() == 1;
    if (!early.empty()) RETURN_IF_ERROR(FillFirst(early, ranges[0]));
    for (size_t i = 0; i < ranges.size(); ++i) {
      RETURN_IF_ERROR(OpenLoop(ranges[i], blocks[i]));
      for (size_t k = blocks[i].size(); k > 0; --k) {
        whole.push_back(regs);
        regs = RegistersOfBlock(group, pool, regs, static_cast<int>(blocks_.size() - 1 - k));
      }
      if (i > 0) continue;
      if (!early.empty()) {
        RETURN_IF_ERROR(reading ? AwaitFilled(early) : FillNext(early, ranges[0]));
      }
      RETURN_IF_ERROR(ComputeChains(ranges[0]));
      RETURN_IF_ERROR(EmitRescales(group, regs));
      RETURN_IF_ERROR(EmitSteps(absl::MakeSpan(group).first(few), absl::MakeSpan(regs).first(few)));
    }
    RETURN_IF_ERROR(
        EmitSteps(absl::MakeSpan(group).subspan(few), absl::MakeSpan(regs).subspan(few)));
    if (reading && !early.empty()) RETURN_IF_ERROR(FillFreed(early, ranges[0]));
    for (size_t i = 0; in_place && i < regs.size(); ++i) {
      Append(static_cast<int>(blocks_.size()) - 1,
             UOp::Make(Op::kWait, {regs[i]}, Ints{next_id_++, 0}));
    }
    for (size_t i = ranges.size(); i-- > 0;) {
      if (i == 0 && !early.empty()) RETURN_IF_ERROR(PutLate(ranges[0]));
      CloseLoop();
      for (size_t k = 0; k < blocks[i].size(); ++k) {
        AddBlock(whole.back(), regs);
        regs = std::move(whole.back());
        whole.pop_back();
        CloseLoop();
      }
    }
    for (size_t i = 0; i < group.size(); ++i) {
      const UOp& r = group[i];
      if (pool[i] == static_cast<int>(i)) {
        const UOp result = UOp::Make(Op::kLoad, r.dtype(), {regs[i]}, FreshId());
        Define(r, Append(home, result));
      } else {  // its part is in the other's register
        Define(r, Start(r, home));
      }
    }
    return absl::OkStatus();
  });
}

absl::Status Lowerer::FillForTiles(const std::vector<UOp>& group) {
  std::vector<UOp> stages;
  for (const UOp& r : group) {
    if (!IsTile(r.dtype()) || !r.src(0).is(Op::kMma)) continue;
    for (const UOp& fragment : r.src(0).srcs()) {
      const UOp& from = fragment.src(0);
      if (from.is(Op::kStage) && !(sets_.Free(from) & sets_.Closed(r))) stages.push_back(from);
    }
  }
  return Compute(stages);
}

absl::Status Lowerer::ComputeChains(const UOp& loop) {
  RangeMask open = 0;
  for (const Block& b : blocks_) open |= b.bit;
  for (const std::vector<UOp>& products : chains_) {
    for (const UOp& u : products) {
      const RangeMask free = sets_.Free(u);
      const bool known = (free & sets_.Bit(loop)) && !(free & ~open);  // at a point of this loop
      if (known) RETURN_IF_ERROR(Compute({u}));
    }
  }
  return absl::OkStatus();
}

absl::Status Lowerer::EmitRescales(const std::vector<UOp>& group, const std::vector<UOp>& regs) {
  if (!IsRescaled(group[0])) return absl::OkStatus();
  std::vector<UOp> factors;
  for (const UOp& r : group) factors.push_back(r.src(0).src(1));
  RETURN_IF_ERROR(Compute({factors.rbegin(), factors.rend()}));
  const int here = static_cast<int>(blocks_.size()) - 1;
  for (size_t i = 0; i < group.size(); ++i) {
    if (std::find(regs.begin(), regs.begin() + i, regs[i]) != regs.begin() + i) continue;
    const UOp old = Append(here, UOp::Make(Op::kLoad, group[i].dtype(), {regs[i]}, FreshId()));
    const UOp scaled = Append(here, UOp::Make(Op::kMul, {old, *Find(factors[i])}));
    Append(here, UOp::Make(Op::kSet, {regs[i], scaled}, FreshId()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<UOp>> Lowerer::Registers(const std::vector<UOp>& group,
                                                    const std::vector<int>& pool, int block) {
  std::vector<UOp> out;
  for (size_t i = 0; i < group.size(); ++i) {
    if (pool[i] != static_cast<int>(i)) {
      out.push_back(out[pool[i]]);
      continue;
    }
    if (const auto it = added_by_.find(group[i].get()); it != added_by_.end()) {
      const UOp& index = it->second.src(0);
      RETURN_IF_ERROR(Compute({UOp(index.src(0)), UOp(index.src(1))}));
    }
    out.push_back(Append(block, UOp::Make(Op::kReg, {Start(group[i], block)}, FreshId())));
  }
  return out;
}

UOp Lowerer::Start(const UOp& r, int block) {
  if (const auto it = added_by_.find(r.get()); it != added_by_.end()) {
    const UOp& index = it->second.src(0);
    const std::vector<UOp> srcs = {*Find(index.src(0)), *Find(index.src(1))};
    return Append(block, UOp::Make(Op::kLoad, r.dtype(), srcs, FreshId()));
  }
  const DType scalar = r.dtype().Scalar();
  const Op op = r.arg<ReduceArg>().op;
  const bool zero = op == Op::kMax && FaultPlanted(Fault::kMaxStartsAtZero);
  const UOp one = UOp::Const(scalar, zero ? tessera::Scalar() : ReduceIdentity(op, scalar));
  if (r.dtype().lanes() == 1) return one;
  return Append(block, UOp::Make(Op::kSplat, r.dtype(), {one}));
}

int Lowerer::MostSums(const std::vector<UOp>& group) const {
  constexpr int kMuchWork = 6;  // vector operations a sum
  const RangeMask loops = sets_.Closed(group[0]);
  int work = 0;
  for (const UOp& u : sets_.order()) {
    work += !u.is(Op::kReduce) && u.dtype().lanes() > 1 && (sets_.Free(u) & loops);
  }
  return work >= kMuchWork * static_cast<int>(group.size()) ? most_sums_ / 2 : most_sums_;
}

std::vector<int> Lowerer::Pool(const std::vector<UOp>& group) const {
  std::vector<int> pool(group.size());
  for (size_t i = 0; i < group.size(); ++i) pool[i] = static_cast<int>(i);
  int left = static_cast<int>(group.size());
  const int most = threads_ ? most_sums_ : MostSums(group);
  if (left <= most) return pool;
  absl::flat_hash_map<const Node*, int> uses;
  for (const UOp& u : sets_.order()) {
    for (const UOp& s : u.srcs()) ++uses[s.get()];
  }
  // Sums by the first of their parts, combined pair by pair until they are few enough.
  absl::flat_hash_map<const Node*, int> place;
  for (size_t i = 0; i < group.size(); ++i) place[group[i].get()] = static_cast<int>(i);
  for (bool more = true; more && left > most;) {
    std::vector<std::pair<const Node*, int>> pairs;
    for (const UOp& u : sets_.order()) {
      if (u.size() != 2 || place.contains(u.get())) continue;
      const auto a = place.find(u.src(0).get()), b = place.find(u.src(1).get());
      if (a == place.end() || b == place.end() || a->second == b->second) continue;
      if (uses[a->first] != 1 || uses[b->first] != 1) continue;
      const Op op = group[a->second].arg<ReduceArg>().op;
      if (!u.is(op) || group[b->second].arg<ReduceArg>().op != op) continue;
      const auto [first, second] = std::minmax(a->second, b->second);
      std::replace(pool.begin(), pool.end(), int{second}, int{first});
      pairs.emplace_back(u.get(), first);
    }
    place.insert(pairs.begin(), pairs.end());
    left -= static_cast<int>(pairs.size());
    more = !pairs.empty();
  }
  return pool;
}

namespace {

int Distinct(const std::vector<UOp>& values) {
  absl::flat_hash_set<const Node*> seen;
  for (const UOp& u : values) seen.insert(u.get());
  return static_cast<int>(seen.size());
}

// What a sum's product is of: the operands of a unit, where one gives a factor of it.
UOp ProductOf(const UOp& reduce) {
  UOp u = TakenUp(reduce);
  while (IsElementwise(u.op()) && u.size() > 0) {
    const auto by_unit = [](const UOp& s) { return s.is(Op::kMma) || s.is(Op::kCast); };
    const auto next = std::find_if(u.srcs().begin(), u.srcs().end(), by_unit);
    if (next == u.srcs().end()) break;
    u = UOp(*next);
  }
  return u.is(Op::kMma) ? u : TakenUp(reduce);
}

// The sums one after another; or by their factors, of which the one that has fewer values stays,
// all of them, while the other's go by.
std::vector<size_t> OrderOfSums(absl::Span<const UOp> group, bool by_factors) {
  std::vector<size_t> order(group.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!by_factors) return order;
  std::vector<UOp> factors[2];
  for (const UOp& r : group) {
    const UOp product = ProductOf(r);
    for (int k : {0, 1}) factors[k].push_back(UOp(product.src(k)));
  }
  const std::vector<UOp>& passing = factors[Distinct(factors[0]) < Distinct(factors[1])];
  const auto first = [&](size_t i) {
    return std::find(passing.begin(), passing.end(), passing[i]) - passing.begin();
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t x, size_t y) { return first(x) < first(y); });
  return order;
}

}  // namespace

absl::Status Lowerer::LoadFirst(const std::vector<UOp>& values) {
  std::vector<UOp> loads;
  absl::flat_hash_set<const Node*> seen;
  std::vector<UOp> stack = values;
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (!seen.insert(u.get()).second || u.is(Op::kReduce)) continue;
    if (u.is(Op::kStage)) return absl::OkStatus();
    if (u.is(Op::kIndex) || u.is(Op::kLoad)) loads.push_back(u);
    stack.insert(stack.end(), u.srcs().rbegin(), u.srcs().rend());
  }
  if (loads.size() < kReadAtOnce) return absl::OkStatus();
  return Compute({loads.rbegin(), loads.rend()});
}

absl::Status Lowerer::EmitSteps(absl::Span<const UOp> group, absl::Span<const UOp> regs) {
  std::vector<UOp> needed;
  const auto by_unit = [&](const UOp& r) { return !ProductsOf(TakenUp(r)).empty(); };
  const auto fused = [&](const UOp& r) {
    return by_unit(r) ||
           (r.arg<ReduceArg>().op == Op::kAdd && r.dtype().IsFloat() && TakenUp(r).is(Op::kMul));
  };
  const auto operands = [&](const UOp& r) {
    const UOp& value = TakenUp(r);
    if (!fused(r)) return std::vector<UOp>{value};
    std::vector<UOp> out;
    for (const UOp& product : by_unit(r) ? ProductsOf(value) : std::vector<UOp>{value}) {
      out.push_back(UOp(product.src(0)));
      out.push_back(UOp(product.src(1)));
    }
    return out;
  };
  for (const UOp& r : group) {
    for (const UOp& u : operands(r)) needed.push_back(u);
  }
  // All at once, as several sums may share what they read; one sum after the other where registers
  // would not hold so many operands.
  const int operands_at_once = Distinct(needed);
  const bool at_once =
      threads_ || (operands_at_once <= most_sums_ &&
                   operands_at_once + static_cast<int>(group.size()) <= 2 * most_sums_);
  // Reversed, as Compute takes the last first.
  std::reverse(needed.begin(), needed.end());
  if (threads_) RETURN_IF_ERROR(LoadFirst(needed));
  if (at_once) RETURN_IF_ERROR(Compute(needed));
  const bool products = std::all_of(group.begin(), group.end(), fused);
  const int inner = static_cast<int>(blocks_.size()) - 1;
  const auto factor = [&](const UOp& product, int k) { return *Find(product.src(k)); };
  const auto old = [&](size_t i) {
    return Append(inner, UOp::Make(Op::kLoad, group[i].dtype(), {regs[i]}, FreshId()));
  };
  const auto set = [&](size_t i, const UOp& next) {
    Append(inner, UOp::Make(Op::kSet, {regs[i], next}, FreshId()));
  };
  std::vector<UOp> by_units, regs_by_units;  // of several products each
  for (const size_t i : OrderOfSums(group, products && !at_once)) {
    const UOp& r = group[i];
    const UOp& value = TakenUp(r);
    if (at_once && by_unit(r) && value.size() == 3) {
      by_units.push_back(r);
      regs_by_units.push_back(regs[i]);
      continue;
    }
    if (!at_once) {
      const std::vector<UOp> own = operands(r);
      RETURN_IF_ERROR(Compute({own.rbegin(), own.rend()}));
    }
    UOp next = old(i);
    for (const UOp& p : ProductsOf(value)) {
      next = Append(inner, p.WithSrcs({factor(p, 0), factor(p, 1), next}));
    }
    if (!by_unit(r)) {
      next = fused(r) ? UOp::Make(Op::kFma, {factor(value, 0), factor(value, 1), next})
                      : UOp::Make(r.arg<ReduceArg>().op, {next, *Find(value)});
      Append(inner, next);
    }
    set(i, next);
  }
  AddInTurn(by_units, regs_by_units);
  return absl::OkStatus();
}

void Lowerer::AddInTurn(absl::Span<const UOp> sums, absl::Span<const UOp> regs) {
  const int inner = static_cast<int>(blocks_.size()) - 1;
  std::vector<UOp> so_far;
  std::vector<std::vector<UOp>> of_sum;
  size_t most = 0;
  for (size_t k = 0; k < sums.size(); ++k) {
    so_far.push_back(Append(inner, UOp::Make(Op::kLoad, sums[k].dtype(), {regs[k]}, FreshId())));
    of_sum.push_back(ProductsOf(TakenUp(sums[k])));
    most = std::max(most, of_sum.back().size());
  }
  for (size_t step = 0; step < most; ++step) {
    for (size_t k = 0; k < sums.size(); ++k) {
      if (step >= of_sum[k].size()) continue;
      const UOp& p = of_sum[k][step];
      so_far[k] = Append(inner, p.WithSrcs({*Find(p.src(0)), *Find(p.src(1)), so_far[k]}));
    }
  }
  for (size_t k = 0; k < sums.size(); ++k) {
    Append(inner, UOp::Make(Op::kSet, {regs[k], so_far[k]}, FreshId()));
  }
}

}  // namespace tessera
