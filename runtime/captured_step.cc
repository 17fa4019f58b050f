// Tracing a step to a plan over slots.
#include "runtime/captured_step.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/buffer.h"
#include "graph/flags.h"
#include "graph/own_extent.h"
#include "graph/rewrite.h"
#include "graph/status.h"
#include "graph/tensor_internal.h"
#include "runtime/execute.h"

namespace tessera {
namespace {

using internal::Call;
using internal::Fail;
using internal::ThrowAsCall;
using internal::Trace;

UOp BaseOf(const UOp& u) {
  UOp base = u;
  while (base.is(Op::kAssign)) base = UOp(base.src(0));
  return base;
}

}  // namespace

CapturedStep::CapturedStep(const Jit::Step& step, const std::vector<Tensor>& inputs, CallSite at)
    : at_(at) {
  for (const Tensor& x : inputs) signature_.push_back({x.dtype(), x.shape(), x.device()});
  Trace trace;
  std::vector<Tensor> arguments;
  for (const Signature& s : signature_) {
    arguments.push_back(trace.AddInput(s.dtype, s.shape, s.device));
  }
  std::vector<UOp> placeholders;
  for (const Tensor& a : arguments) placeholders.push_back(a.uop());
  std::vector<Tensor> results = step(arguments);
  Call call("Jit", at_);
  for (const Tensor& r : results) {
    if (!r) Fail("the step returned an empty tensor as result ", &r - results.data());
    r.uop();  // a tensor from outside counts as captured
  }
  captured_ = trace.captured();
  for (size_t c = 0; c < captured_.size(); ++c) {
    if (!captured_[c]->makes_gradient()) continue;
    const Tensor made = captured_[c]->gradient();
    if (made) results.push_back(made);
    gradients_.push_back({static_cast<int>(c), bool{made}});
  }
  Collect(trace, arguments, placeholders, results);
  if (const int escaped = trace.Escaped({results, arguments}); escaped > 0) {
    Fail("the step stored ", escaped, escaped == 1 ? " tensor" : " tensors",
         " that it made in variables outside, where a replay would not update them; return ",
         "them, or Assign to a tensor that exists outside");
  }
  for (const auto& c : captured_) c->Release();
}

bool CapturedStep::Fits(const std::vector<Tensor>& inputs) const {
  if (inputs.size() != signature_.size() || no_grad_ != NoGrad::Active()) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const UOp& u = inputs[i].uop();
    const Signature& s = signature_[i];
    if (!(u.dtype() == s.dtype && u.device() == s.device && u.shape() == s.shape)) return false;
  }
  return true;
}

// What the plan computes, each node once.
struct CapturedStep::RootList {
  std::vector<UOp> nodes;
  absl::flat_hash_map<const Node*, int> index_of;

  int Add(const UOp& u) {
    const auto [it, fresh] = index_of.try_emplace(u.get(), static_cast<int>(nodes.size()));
    if (fresh) nodes.push_back(u);
    return it->second;
  }
};

void CapturedStep::Collect(Trace& trace, const std::vector<Tensor>& arguments,
                           const std::vector<UOp>& placeholders,
                           const std::vector<Tensor>& results) {
  RootList roots;
  CollectWrites(arguments, placeholders, roots);
  CollectResults(arguments, results, roots);
  drawn_ = trace.drawn();
  PrepareReplay(roots.nodes, placeholders);
}

void CapturedStep::CollectWrites(const std::vector<Tensor>& arguments,
                                 const std::vector<UOp>& placeholders, RootList& roots) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].uop() == placeholders[i]) continue;
    writes_.push_back({{Source::kInput, static_cast<int>(i)}, roots.Add(arguments[i].uop()), -1});
  }
  for (size_t c = 0; c < captured_.size(); ++c) {
    const Trace::Captured& t = *captured_[c];
    const int index = static_cast<int>(c);
    if (!t.is_placeholder()) constants_.push_back(index);
    if (!t.abandoned()) watched_.push_back(index);
    if (!t.assigned()) continue;
    if (t.is_view()) {
      View view{index, -1};
      if (!(t.base().uop() == t.base_version())) {
        view.root = roots.Add(UOp::Make(Op::kContiguous, {t.base_version()}));
      }
      views_.push_back(view);
    } else {
      writes_.push_back({{Source::kCaptured, index}, roots.Add(t.value()), -1});
    }
  }
}

void CapturedStep::CollectResults(const std::vector<Tensor>& arguments,
                                  const std::vector<Tensor>& results, RootList& roots) {
  // Versions that the step itself overwrites; a result that is one is a copy of it.
  std::vector<UOp> all = roots.nodes;
  for (const Tensor& r : results) all.push_back(r.uop());
  absl::flat_hash_set<const Node*> overwritten;
  for (const UOp& u : TopoSort(all)) {
    if (u.is(Op::kAssign)) overwritten.insert(u.src(0).get());
  }
  for (const Tensor& r : results) {
    Result out;
    out.kind = Result::kTensor;
    const auto same = std::find_if(results.data(), &r, [&](const Tensor& t) { return t.Is(r); });
    if (same != &r) {
      out.kind = Result::kResult;
      out.index = static_cast<int>(same - results.data());
      results_.push_back(out);
      continue;
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (r.Is(arguments[i])) out.tensor = {Source::kInput, static_cast<int>(i)};
    }
    for (size_t c = 0; c < captured_.size(); ++c) {
      if (r.Is(captured_[c]->tensor())) out.tensor = {Source::kCaptured, static_cast<int>(c)};
    }
    if (out.tensor.index < 0) {
      UOp u = r.uop();
      // Nor is a result what someone else has computed the same node into.
      if (u.is(Op::kBuffer) || u.realized() || overwritten.contains(u.get())) {
        u = UOp::Make(Op::kContiguous, {u});
      }
      out.kind = Result::kRoot;
      out.index = roots.Add(u);
    }
    results_.push_back(out);
  }
}

void CapturedStep::PrepareReplay(const std::vector<UOp>& roots,
                                 const std::vector<UOp>& placeholders) {
  PlanKey key = MakePlanKey(roots);
  CollectLeaves(key, placeholders);
  const int64_t most = (IntFlag(Flag::kKeepMib) << 20) - Replay::KeptBytes();
  if (most > 0) SetLasting(key, {LastingLeaves(), most});
  for (const UOp& u : key.order) {
    if (!u.is(Op::kVar) || OwnSizesOf(u)) continue;
    const VarArg& v = u.arg<VarArg>();
    variables_.push_back({v.name, v.min, v.max});
  }
  absl::StatusOr<CompiledPlanPtr> prepared = PreparePlan(roots, key);
  ThrowAsCall(prepared.status());
  CompiledPlanPtr plan = *std::move(prepared);
  for (size_t r = 0; r < roots.size(); ++r) {
    const PlanBuffer& b = plan->plan.buffers[plan->plan.roots[r]];
    Root root;
    root.like = UOp::Make(Op::kParam, roots[r].dtype(), {}, ParamArg{0, {}, b.device});
    root.dims = roots[r].shape().ToExtents();
    root.device = roots[r].device() ? roots[r].device() : b.device;
    root.symbolic = !roots[r].shape().is_static();
    if (b.kind == PlanBuffer::kInput) root.leaf = b.slot;
    roots_.push_back(std::move(root));
  }
  for (Write& w : writes_) w.leaf = roots_[w.root].leaf;
  std::vector<std::string> names;
  for (const Named& v : variables_) names.push_back(v.name);
  const std::vector<int> buffers(plan->plan.roots.begin(), plan->plan.roots.end());
  for (size_t r = 0; r < buffers.size(); ++r) {
    const auto end = buffers.begin() + static_cast<int64_t>(r);
    if (std::find(buffers.begin(), end, buffers[r]) != end)
      repeated_.push_back(static_cast<int>(r));
  }
  replay_ = std::make_unique<Replay>(std::move(plan), names);
}

void CapturedStep::CollectLeaves(const PlanKey& key, const std::vector<UOp>& placeholders) {
  absl::flat_hash_map<const Node*, Source> sources;
  for (size_t i = 0; i < placeholders.size(); ++i) {
    sources[placeholders[i].get()] = {Source::kInput, static_cast<int>(i)};
  }
  for (size_t c = 0; c < captured_.size(); ++c) {
    if (!captured_[c]->is_placeholder()) continue;
    sources[captured_[c]->seen().get()] = {Source::kCaptured, static_cast<int>(c)};
  }
  absl::flat_hash_set<const Node*> overwritten;
  for (const UOp& u : key.order) {
    if (u.is(Op::kAssign)) overwritten.insert(BaseOf(u).get());
  }
  const FirstWrites first_writes(key);
  for (const UOp& leaf : key.leaves) {
    Leaf l;
    if (const auto it = sources.find(leaf.get()); it != sources.end()) {
      l.source = it->second;
    } else {
      l.own = leaf;
    }
    l.overwritten = overwritten.contains(leaf.get());
    l.written = first_writes.Of(leaf);
    l.dtype = leaf.dtype();
    l.shape = leaf.shape();
    l.device = leaf.device();
    leaves_.push_back(std::move(l));
  }
}

// What is no input and not assigned, in memory that only plans write: its results are kept until
// one does.
std::vector<bool> CapturedStep::LastingLeaves() const {
  std::vector<bool> out;
  for (const Leaf& l : leaves_) {
    bool lasts = l.source.kind != Source::kInput && !l.overwritten;
    const UOp value = l.own ? l.own : lasts ? captured_[l.source.index]->now() : UOp();
    if (lasts && value.is(Op::kBuffer)) {
      const std::shared_ptr<Storage>& storage = value.arg<BufferArg>().buffer->storage;
      lasts = storage != nullptr && !MayChangeUnseen(*storage);
    }
    out.push_back(lasts);
  }
  return out;
}

}  // namespace tessera
