// One walk that leaves bodies out.
#include "schedule/outline_loops.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/loop_form.h"
#include "graph/walk.h"

namespace tessera {
namespace {

constexpr int kResultBit = 32;
constexpr int kLittle = 8;  // ops that are done again in each turn

// What a value is made of by movement alone.
UOp BaseOf(const UOp& value) {
  const UOp* at = &value;
  while (IsMovement(at->op()) && !at->is(Op::kPad)) at = &at->src(0);
  return *at;
}

// Whether a value is made of constants, counters and variables, by a few cheap ops; of one number
// that is made of variables, by any.
bool IsLittle(const UOp& value) {
  const bool number = value.rank() == 0 && !value.device();
  const auto is_much = [](const UOp& u) {
    const bool leaf = u.is(Op::kConst) || u.is(Op::kIota) || u.is(Op::kVar);
    const bool cheap = IsElementwise(u.op()) && !HasProperty(u.op(), kExpensive);
    return !leaf && !cheap && !IsMovement(u.op());
  };
  int left = number ? std::numeric_limits<int>::max() : kLittle;
  WalkDown({&value, 1}, [&](const UOp& u) {
    if (left >= 0) left = is_much(u) ? -1 : left - 1;
    return left >= 0;
  });
  return left >= 0;
}

class Outliner {
 public:
  explicit Outliner(Device default_device) : default_(default_device) {}

  Outlined Run(absl::Span<const UOp> roots) {
    for (const UOp& r : roots) out_.roots.push_back(r);
    const std::vector<UOp> order = TopoSort(roots);
    const auto loops = [](const UOp& u) { return u.is(Op::kLoop); };
    if (std::none_of(order.begin(), order.end(), loops)) return std::move(out_);
    const absl::flat_hash_set<const Node*> outside = OutsideOfBodies(roots, order);
    for (const UOp& u : order) {
      if (!outside.contains(u.get())) continue;
      if (u.is(Op::kLoop)) {
        AddLoop(u);
      } else if (u.is(Op::kResult)) {
        done_.emplace(u, Ran(u));
      } else {
        Keep(u);
      }
    }
    for (UOp& r : out_.roots) r = done_.at(r);
    return std::move(out_);
  }

 private:
  static absl::flat_hash_set<const Node*> OutsideOfBodies(absl::Span<const UOp> roots,
                                                          absl::Span<const UOp> order) {
    absl::flat_hash_set<const Node*> out;
    for (const UOp& r : roots) out.insert(r.get());
    for (auto u = order.rbegin(); u != order.rend(); ++u) {
      if (!out.contains(u->get())) continue;
      for (const UOp& s : u->srcs().subspan(u->is(Op::kLoop) ? 1 : 0)) out.insert(s.get());
    }
    return out;
  }

  UOp Now(const UOp& u) const {
    const auto it = done_.find(u);
    return it == done_.end() ? u : it->second;
  }

  void Keep(const UOp& u) {
    std::vector<UOp> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(Now(s));
    const bool same = std::equal(srcs.begin(), srcs.end(), u.srcs().begin());
    done_.emplace(u, same ? u : u.WithSrcs(srcs));
  }

  void AddLoop(const UOp& loop) {
    const LoopForm form(loop);
    OutlinedLoop out{loop, {}};
    std::vector<UOp> reads;
    // Each carried value begins in a buffer.
    for (const UOp& c : form.carried) {
      const UOp now = Now(c);
      const bool lies = now.is(Op::kParam) || now.is(Op::kBuffer) || now.size() > 0;
      reads.push_back(lies ? now : UOp::Make(Op::kContiguous, {now}));
    }
    const size_t carried = reads.size();
    absl::flat_hash_map<UOp, UOp> params;  // by base
    for (size_t i = 2 + carried; i < loop.srcs().size(); ++i) {
      const UOp now = Now(loop.src(static_cast<int>(i)));
      if (IsLittle(now)) {
        out.values.push_back(now);
        continue;
      }
      const UOp base = BaseOf(now);
      UOp& param = params[base];
      if (!param) {
        param = UOp::Make(Op::kParam, base.dtype(), {},
                          ParamArg{static_cast<int64_t>(reads.size()), base.shape().ToExtents(),
                                   base.device() ? base.device() : default_});
        reads.push_back(base);
      }
      out.values.push_back(Substitute(now, {{base, param}}));
    }
    loops_.emplace(loop, Loop{static_cast<int64_t>(out_.loops.size()), std::move(reads)});
    out_.loops.push_back(std::move(out));
  }

  UOp Ran(const UOp& result) const {
    const Loop& loop = loops_.at(result.src(0));
    const int64_t slot = (loop.number << kResultBit) + result.arg<int64_t>();
    const Device device = result.device() ? result.device() : default_;
    const UOp ran = UOp::Make(Op::kRan, result.dtype(), loop.reads,
                              ParamArg{slot, result.shape().ToExtents(), device});
    ran.SetMarks(result);
    return ran;
  }

  struct Loop {
    int64_t number;
    std::vector<UOp> reads;
  };
  const Device default_;
  Outlined out_;
  absl::flat_hash_map<UOp, Loop> loops_;
  absl::flat_hash_map<UOp, UOp> done_;
};

}  // namespace

int LoopOfRan(const UOp& ran) { return static_cast<int>(ran.arg<ParamArg>().slot >> kResultBit); }
int ResultOfRan(const UOp& ran) {
  return static_cast<int>(ran.arg<ParamArg>().slot & ((int64_t{1} << kResultBit) - 1));
}

Outlined OutlineLoops(absl::Span<const UOp> roots, Device default_device) {
  return Outliner(default_device).Run(roots);
}

}  // namespace tessera
