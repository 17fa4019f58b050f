// Finding kernels with the same skeleton, and which of their numbers become VARs.
#include "schedule/share_kernels.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/kernel_form.h"
#include "graph/number_var.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr size_t kMostVars = 16;  // of one kernel
constexpr int64_t kFarthest = INT64_MAX / 4;

using Numbers = std::vector<int64_t>;
using Nodes = absl::flat_hash_set<const Node*>;

UOp OffsetVar(const std::string& name, int64_t max) {
  return UOp::Make(Op::kVar, kInt64, {}, VarArg{name, 0, max});
}

// A kernel without its numbers, and those in the order in which it has them.
struct Skeleton {
  struct Slot {
    UOp stand_in;  // in the graph, for the number
    UOp constant;  // what stood there; of an offset none
    UOp param;     // of an offset: in what buffer
    bool IsWhole() const { return !constant || constant.dtype().IsInt(); }
  };
  UOp graph;
  std::vector<Slot> slots;
  Numbers numbers;
  std::vector<std::string> draws;  // the variables of random numbers, which the graph counts anew
};

std::string SlotName(size_t slot) { return absl::StrCat("@slot", slot); }
UOp SlotVar(size_t slot) { return OffsetVar(SlotName(slot), kFarthest); }

// Nodes whose numbers stay: what indices, gates and extents are computed from, and what kernels are
// recognised by.
Nodes Known(absl::Span<const UOp> order) {
  Nodes out;
  for (size_t i = order.size(); i-- > 0;) {
    const UOp& u = order[i];
    const bool all = out.contains(u.get()) || u.is(Op::kRange) || RecognisedByNumbers(u);
    if (!all && !u.is(Op::kIndex)) continue;
    for (int s = all ? 0 : 1; s < u.size(); ++s) out.insert(u.src(s).get());
  }
  return out;
}

// Whether an index term is the same for a whole launch: the size of a place's part, say.
bool IsOfLaunch(const UOp& term) {
  const std::vector<UOp> order = TopoSort({&term, 1});
  return std::all_of(order.begin(), order.end(),
                     [](const UOp& u) { return !u.is(Op::kRange) && !u.is(Op::kIndex); });
}

bool IsComparison(const UOp& u) {
  return u.is(Op::kCmpLt) || u.is(Op::kCmpLe) || u.is(Op::kCmpEq) || u.is(Op::kCmpNe);
}

// An index as a value of another integer dtype.
UOp IndexAs(DType dtype, const UOp& index) {
  return dtype == kInt64 ? index : UOp::Make(Op::kCast, dtype, {index});
}

// A stand-in for each integer that the comparison compares with.
void StandIn(std::vector<UOp>& srcs, Skeleton& out) {
  for (UOp& s : srcs) {
    if (!s.IsConst() || !s.dtype().IsInt() || s.dtype() == kUInt64) continue;
    const int64_t number = NumberOf(s);
    if (number < -kFarthest || number > kFarthest) continue;  // their distance may overflow
    out.numbers.push_back(number);
    out.slots.push_back({IndexAs(s.dtype(), SlotVar(out.slots.size())), s, UOp()});
    s = out.slots.back().stand_in;
  }
}

// The offset with a stand-in for its constant, and for the factors of what a launch knows.
UOp OffsetWithout(const UOp& offset, const UOp& param, Skeleton& out) {
  Sum sum = ToSum(offset);
  Sum rest;
  const auto stand_in = [&](int64_t number) {
    out.slots.push_back({SlotVar(out.slots.size()), UOp(), param});
    out.numbers.push_back(number);
    return out.slots.back().stand_in;
  };
  UOp numbers = stand_in(sum.constant);
  for (const Sum::Term& t : sum.terms) {
    if (!IsOfLaunch(t.term)) {
      rest.terms.push_back(t);
      continue;
    }
    const UOp times = UOp::Make(Op::kMul, {t.term, stand_in(t.factor)});
    numbers = UOp::Make(Op::kAdd, {numbers, times});
  }
  return UOp::Make(Op::kAdd, {FromSum(rest, kInt64), numbers});
}

Skeleton SkeletonOf(const UOp& kernel) {
  Skeleton out;
  const std::vector<UOp> order = TopoSort({&kernel, 1});
  const Nodes known = Known(order);
  absl::flat_hash_map<const Node*, UOp> made;
  std::vector<UOp> srcs;
  for (const UOp& u : order) {
    srcs.clear();
    for (const UOp& s : u.srcs()) srcs.push_back(made.at(s.get()));
    if (u.is(Op::kVar) && absl::StartsWith(u.arg<VarArg>().name, kDrawVariable)) {
      VarArg draw = u.arg<VarArg>();
      out.draws.push_back(std::exchange(draw.name, absl::StrCat(kDrawVariable, out.draws.size())));
      made.emplace(u.get(), UOp::Make(Op::kVar, u.dtype(), {}, std::move(draw)));
      continue;
    }
    if (u.IsConst() && u.dtype().IsFloat() && !known.contains(u.get())) {
      out.slots.push_back({ConstantFrom(u.dtype(), SlotName(out.slots.size())), u, UOp()});
      out.numbers.push_back(NumberOf(u));
      made.emplace(u.get(), out.slots.back().stand_in);
      continue;
    }
    if (u.is(Op::kIndex) && u.src(0).is(Op::kParam)) {
      srcs[1] = OffsetWithout(srcs[1], u.src(0), out);
    } else if (IsComparison(u) && !known.contains(u.get())) {
      StandIn(srcs, out);
    }
    made.emplace(u.get(), u.size() == 0 ? u : u.WithSrcs(srcs));
  }
  out.graph = made.at(kernel.get());
  return out;
}

bool Differs(const Numbers& numbers) {
  return std::adjacent_find(numbers.begin(), numbers.end(), std::not_equal_to<>()) != numbers.end();
}

// PARAMs that a kernel both reads and writes.
Nodes Updated(const UOp& kernel) {
  Nodes targets, written, out;
  const std::vector<UOp> order = TopoSort({&kernel, 1});
  for (const UOp& u : order) {
    if (!WritesElements(u)) continue;
    targets.insert(u.src(0).get());
    written.insert(u.src(0).src(0).get());
  }
  for (const UOp& u : order) {
    const bool read = u.is(Op::kIndex) && !targets.contains(u.get());
    if (read && written.contains(u.src(0).get())) out.insert(u.src(0).get());
  }
  return out;
}

// One kernel for some that have the same skeleton.
class Sharing {
 public:
  explicit Sharing(std::vector<Skeleton> sharers) : all_(std::move(sharers)) {}

  // Whether one kernel can do for all.
  bool Find() {
    if (!KeepsDistances()) return false;
    for (size_t i = 0; i < all_[0].slots.size(); ++i) {
      const Skeleton::Slot& slot = all_[0].slots[i];
      values_.emplace(slot.stand_in, ValueOf(slot, Column(i)));
    }
    const bool draw_alike = std::all_of(
        all_.begin(), all_.end(), [&](const Skeleton& s) { return s.draws == all_[0].draws; });
    return (!vars_.empty() || !draw_alike) && vars_.size() <= kMostVars;
  }

  UOp Kernel() const { return Simplify(Substitute(all_[0].graph, values_)); }

  std::map<std::string, std::string> DrawsOf(size_t sharer) const {
    std::map<std::string, std::string> out;
    for (const std::string& draw : all_[sharer].draws) {
      out.emplace(absl::StrCat(kDrawVariable, out.size()), draw);
    }
    return out;
  }

  std::map<std::string, int64_t> NumbersOf(size_t sharer) const {
    std::map<std::string, int64_t> out;
    for (const Var& v : vars_) out.emplace(v.name, v.values[sharer]);
    return out;
  }

 private:
  struct Var {
    std::string name;
    Numbers values;  // by sharer
    bool is_whole;
  };

  Numbers Column(size_t slot) const {
    Numbers out;
    for (const Skeleton& s : all_) out.push_back(s.numbers[slot]);
    return out;
  }

  // What is read and written keeps its order where the offsets go along with one another.
  bool KeepsDistances() const {
    const Nodes updated = Updated(all_[0].graph);
    if (updated.empty()) return true;
    absl::flat_hash_map<const Node*, size_t> first;  // slot of a PARAM
    for (size_t i = 0; i < all_[0].slots.size(); ++i) {
      const UOp& param = all_[0].slots[i].param;
      if (!param || !updated.contains(param.get())) continue;
      const size_t other = first.emplace(param.get(), i).first->second;
      Numbers distances = Column(i);
      for (size_t k = 0; k < distances.size(); ++k) distances[k] -= all_[k].numbers[other];
      if (Differs(distances)) return false;
    }
    return true;
  }

  const std::string& NameOf(Numbers values, bool is_whole) {
    for (const Var& v : vars_) {
      if (is_whole && v.is_whole && v.values == values) return v.name;
    }
    const std::string name = absl::StrCat("@step", vars_.size());
    return vars_.emplace_back(Var{name, std::move(values), is_whole}).name;
  }

  UOp ValueOf(const Skeleton::Slot& slot, Numbers column) {
    if (!slot.IsWhole()) return ConstantOf(std::move(column), slot.constant);
    return IndexAs(slot.stand_in.dtype(), WholeOf(std::move(column)));
  }

  UOp WholeOf(Numbers column) {
    if (!Differs(column)) return UOp::Index(column[0]);
    const auto [least, most] = std::minmax_element(column.begin(), column.end());
    int64_t unit = 0;
    for (int64_t v : column) unit = std::gcd(unit, v - *least);
    // What all have beyond whole units, where none is negative: of other numbers by the same units
    // the same kernel is made.
    const int64_t begin = *least < 0 ? *least : *least % unit, length = *most - begin;
    for (int64_t& v : column) v = (v - begin) / unit;
    const UOp var = OffsetVar(NameOf(std::move(column), true), length / unit);
    return (Extent(begin) + Extent(unit) * Extent(var)).ToUOp();
  }

  UOp ConstantOf(Numbers column, const UOp& first) {
    if (!Differs(column)) return first;
    return ConstantFrom(first.dtype(), NameOf(std::move(column), false));
  }

  const std::vector<Skeleton> all_;
  Substitution values_;  // of stand-ins
  std::vector<Var> vars_;
};

using Members = std::vector<int>;  // kernels of a plan

// Kernels that may be alike, as far as is seen without a look at their graphs.
std::vector<Members> Candidates(const Plan& plan, size_t least) {
  absl::flat_hash_map<std::tuple<std::string, Device, int, int>, Members> found;
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    const PlanKernel& kernel = plan.kernels[k];
    found[{kernel.name, kernel.device, kernel.num_buffers, kernel.num_outputs}].push_back(
        static_cast<int>(k));
  }
  std::vector<Members> out;
  for (auto& [kind, members] : found) {
    if (members.size() >= least) out.push_back(std::move(members));
  }
  return out;
}

// The first of the members becomes the kernel of all, if that can be.
void ShareAmong(const Members& members, std::vector<Skeleton> skeletons, Plan& plan,
                std::vector<int>& now) {
  Sharing sharing(std::move(skeletons));
  if (!sharing.Find()) return;
  PlanKernel& shared = plan.kernels[members[0]];
  shared.graph = sharing.Kernel();
  shared.variables = VariablesOf(shared.graph);
  absl::flat_hash_map<int, size_t> sharer;
  for (size_t i = 0; i < members.size(); ++i) sharer.emplace(members[i], i);
  for (PlanStep& step : plan.steps) {
    const auto it = sharer.find(step.kernel);
    if (it == sharer.end()) continue;
    step.numbers = sharing.NumbersOf(it->second);
    step.names = sharing.DrawsOf(it->second);
  }
  for (int k : members) now[k] = members[0];
}

// Leaves out the kernels that have others in their place.
void Drop(const std::vector<int>& now, Plan& plan) {
  std::vector<int> number(now.size());
  size_t kept = 0;
  for (size_t k = 0; k < now.size(); ++k) {
    if (now[k] != static_cast<int>(k)) continue;
    number[k] = static_cast<int>(kept);
    if (kept != k) plan.kernels[kept] = std::move(plan.kernels[k]);
    ++kept;
  }
  plan.kernels.resize(kept);
  for (PlanStep& step : plan.steps) {
    if (step.kernel >= 0) step.kernel = number[now[step.kernel]];
  }
}

}  // namespace

void ShareKernels(Plan& plan) {
  const int64_t vary = IntFlag(Flag::kVary);
  if (vary < 1) return;
  const size_t least = vary == 1 ? 3 : 2;
  std::vector<int> now(plan.kernels.size());
  std::iota(now.begin(), now.end(), 0);
  for (const Members& candidates : Candidates(plan, least)) {
    absl::flat_hash_map<UOp, std::pair<Members, std::vector<Skeleton>>> alike;
    for (int k : candidates) {
      Skeleton s = SkeletonOf(plan.kernels[k].graph);
      auto& [members, skeletons] = alike[s.graph];
      members.push_back(k);
      skeletons.push_back(std::move(s));
    }
    for (auto& [graph, group] : alike) {
      if (group.first.size() < least) continue;
      ShareAmong(group.first, std::move(group.second), plan, now);
    }
  }
  Drop(now, plan);
}

}  // namespace tessera
