// Jit: traces a step to a plan over slots, and fills the slots at each call.
#include "runtime/capture.h"

#include <algorithm>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/buffer.h"
#include "graph/flags.h"
#include "graph/infer_device.h"
#include "graph/own_extent.h"
#include "graph/status.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"
#include "runtime/execute.h"
#include "runtime/mesh.h"
#include "runtime/replay.h"

namespace tessera {
namespace {

using internal::Call;
using internal::Fail;
using internal::ThrowAsCall;
using internal::Trace;
using Storages = std::vector<std::shared_ptr<Storage>>;

Buffer& BufferOf(const UOp& u) { return *u.arg<BufferArg>().buffer; }

template <typename T>
T Take(absl::StatusOr<T> value) {
  ThrowAsCall(value.status());
  return *std::move(value);
}

UOp NewResult(const UOp& root, const Extents& dims, Device device,
              std::shared_ptr<Storage> storage) {
  auto buffer = std::make_shared<Buffer>();
  buffer->storage = std::move(storage);
  return UOp::Make(Op::kBuffer, root.dtype(), {}, BufferArg{std::move(buffer), dims, device});
}

// Of one Jit; an extent that takes more values than these is better a Variable.
constexpr size_t kMaxCaptures = 64;

// Where a tensor of a call comes from.
struct Source {
  enum Kind : uint8_t { kInput, kCaptured, kOwn } kind = kOwn;
  int index = -1;  // of the input or captured tensor
};

struct Signature {
  DType dtype;
  Shape shape;
  Device device;
};

// One captured step: a plan, and what each of its leaves and roots is in a call.
class Capture {
 public:
  Capture(const Jit::Step& step, const std::vector<Tensor>& inputs, CallSite at) : at_(at) {
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
    Collect(trace, arguments, placeholders, results);
    if (const int escaped = trace.Escaped({results, arguments}); escaped > 0) {
      Fail("the step stored ", escaped, escaped == 1 ? " tensor" : " tensors",
           " that it made in variables outside, where a replay would not update them; return ",
           "them, or Assign to a tensor that exists outside");
    }
    for (const auto& c : captured_) c->Release();
  }

  bool Fits(const std::vector<Tensor>& inputs) const {
    if (inputs.size() != signature_.size()) return false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const UOp& u = inputs[i].uop();
      const Signature& s = signature_[i];
      if (!(u.dtype() == s.dtype && u.device() == s.device && u.shape() == s.shape)) return false;
    }
    return true;
  }

  // Whether what it took for constant still is.
  bool IsCurrent() const {
    return std::all_of(constants_.begin(), constants_.end(),
                       [this](int c) { return captured_[c]->unchanged(); });
  }

  std::vector<Tensor> Run(const std::vector<Tensor>& inputs, const Bindings& values);

 private:
  struct Leaf {
    Source source;
    UOp own;  // a buffer that the step made
    bool overwritten = false;
    DType dtype;
    Shape shape;
    Device device;
  };
  struct Result {
    enum Kind : uint8_t { kTensor, kRoot } kind = kRoot;
    Source tensor;   // the very tensor
    int index = -1;  // of the root
  };
  struct Write {
    Source target;
    int root = -1, leaf = -1;
  };
  struct Root {
    UOp like;       // dtype and shape
    Extents dims;   // of the shape
    Device device;  // of the plan's buffer
    int leaf = -1;  // that it was written into
    bool symbolic = false;
  };
  struct Named {
    std::string name;
    int64_t min, max;
  };

  void Collect(Trace& trace, const std::vector<Tensor>& arguments,
               const std::vector<UOp>& placeholders, const std::vector<Tensor>& results);
  void CollectLeaves(const PlanKey& key, const std::vector<UOp>& placeholders);
  std::vector<bool> LastingLeaves() const;
  Tensor TensorOf(const Source& s, const std::vector<Tensor>& inputs) const {
    return s.kind == Source::kInput ? inputs[s.index] : captured_[s.index]->tensor();
  }
  const UOp& ValueOf(const Source& s, const std::vector<Tensor>& inputs) const {
    return s.kind == Source::kInput ? inputs[s.index].uop() : captured_[s.index]->now();
  }
  std::string Name(const Source& s) const {
    return s.kind == Source::kInput ? absl::StrCat("input ", s.index) : "a captured tensor";
  }
  // The storage of each leaf in one call.
  struct Bound {
    std::vector<Storage*> leaves;
    Storages own;   // made for this call
    Storages kept;  // by write: what others still see a copy of; null if nobody does
  };
  void Prepare(const std::vector<Tensor>& inputs) const;
  Bound Bind(const std::vector<Tensor>& inputs) const;
  Storages Execute(const Bound& bound, const std::vector<int64_t>& numbers) const;
  void CheckAliases(absl::Span<Storage* const> leaves) const;
  std::vector<int64_t> Values(const Bindings& values) const;

  CallSite at_;
  std::vector<Signature> signature_;
  std::vector<std::shared_ptr<Trace::Captured>> captured_;
  std::vector<int> constants_;  // captured tensors without a device
  std::vector<int> watched_;    // captured tensors that something else held at capture
  // Captured views that are assigned. What a view is of is its base's value after the step or,
  // where the base was assigned once more, a copy of the version before: a root.
  struct View {
    int captured = -1, root = -1;
  };
  std::vector<View> views_;
  std::vector<Leaf> leaves_;
  std::vector<Root> roots_;
  std::vector<Result> results_;
  std::vector<Write> writes_;
  std::vector<Named> variables_;
  int64_t drawn_ = 0;
  std::unique_ptr<Replay> replay_;
};

UOp BaseOf(const UOp& u) {
  UOp base = u;
  while (base.is(Op::kAssign)) base = UOp(base.src(0));
  return base;
}

void Capture::Collect(Trace& trace, const std::vector<Tensor>& arguments,
                      const std::vector<UOp>& placeholders, const std::vector<Tensor>& results) {
  std::vector<UOp> roots;
  absl::flat_hash_map<const Node*, int> root_of;
  const auto add_root = [&](const UOp& u) {
    const auto [it, fresh] = root_of.try_emplace(u.get(), static_cast<int>(roots.size()));
    if (fresh) roots.push_back(u);
    return it->second;
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].uop() == placeholders[i]) continue;
    writes_.push_back({{Source::kInput, static_cast<int>(i)}, add_root(arguments[i].uop()), -1});
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
        view.root = add_root(UOp::Make(Op::kContiguous, {t.base_version()}));
      }
      views_.push_back(view);
    } else {
      writes_.push_back({{Source::kCaptured, index}, add_root(t.value()), -1});
    }
  }
  // Versions that the step itself overwrites; a result that is one is a copy of it.
  std::vector<UOp> all = roots;
  for (const Tensor& r : results) all.push_back(r.uop());
  absl::flat_hash_set<const Node*> overwritten;
  for (const UOp& u : TopoSort(all)) {
    if (u.is(Op::kAssign)) overwritten.insert(u.src(0).get());
  }
  for (const Tensor& r : results) {
    Result out;
    out.kind = Result::kTensor;
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
      out.index = add_root(u);
    }
    results_.push_back(out);
  }
  drawn_ = trace.drawn();

  PlanKey key = MakePlanKey(roots);
  CollectLeaves(key, placeholders);
  const int64_t most = (IntFlag(Flag::kKeepMib) << 20) - Replay::KeptBytes();
  if (most > 0) SetLasting(key, {LastingLeaves(), most});
  for (const UOp& u : key.order) {
    if (!u.is(Op::kVar) || OwnSizesOf(u)) continue;
    const VarArg& v = u.arg<VarArg>();
    variables_.push_back({v.name, v.min, v.max});
  }
  CompiledPlanPtr plan = Take(PreparePlan(roots, key));
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
  replay_ = std::make_unique<Replay>(std::move(plan), names);
}

void Capture::CollectLeaves(const PlanKey& key, const std::vector<UOp>& placeholders) {
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
  for (const UOp& leaf : key.leaves) {
    Leaf l;
    if (const auto it = sources.find(leaf.get()); it != sources.end()) {
      l.source = it->second;
    } else {
      l.own = leaf;
    }
    l.overwritten = overwritten.contains(leaf.get());
    l.dtype = leaf.dtype();
    l.shape = leaf.shape();
    l.device = leaf.device();
    leaves_.push_back(std::move(l));
  }
}

// What is no input and not assigned, in memory that only plans write: its results are kept until
// one does.
std::vector<bool> Capture::LastingLeaves() const {
  std::vector<bool> out;
  for (const Leaf& l : leaves_) {
    bool lasts = l.source.kind != Source::kInput && !l.overwritten;
    const UOp value = l.own ? l.own : lasts ? captured_[l.source.index]->now() : UOp();
    if (lasts && value.is(Op::kBuffer)) {
      const std::shared_ptr<Storage>& storage = BufferOf(value).storage;
      lasts = storage != nullptr && !MayChangeUnseen(*storage);
    }
    out.push_back(lasts);
  }
  return out;
}

void Capture::CheckAliases(absl::Span<Storage* const> leaves) const {
  for (const Write& w : writes_) {
    if (w.leaf < 0) continue;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i] != leaves[w.leaf] || static_cast<int>(i) == w.leaf) continue;
      Fail("the step overwrites ", Name(w.target), ", which is ", Name(leaves_[i].source),
           " at the same time; pass a copy made with .Contiguous(), or use only one of them");
    }
  }
}

std::vector<int64_t> Capture::Values(const Bindings& values) const {
  std::vector<int64_t> out;
  size_t used = 0;
  internal::RandomState random;
  bool drawn = false;
  for (const Named& v : variables_) {
    if (v.name[0] == '@') {
      if (!drawn) random = internal::DrawRandom(drawn_);
      drawn = true;
      out.push_back(static_cast<int64_t>(v.name == Trace::kSeedName ? random.seed : random.first));
      continue;
    }
    const auto it = values.find(v.name);
    ThrowAsCall(CheckBinding(v.name, v.min, v.max, it == values.end() ? nullptr : &it->second));
    ++used;
    out.push_back(it->second);
  }
  if (!drawn && drawn_ > 0) internal::DrawRandom(drawn_);  // drawn, and not used
  if (used == values.size()) return out;
  for (const auto& [name, value] : values) {
    if (std::none_of(variables_.begin(), variables_.end(),
                     [&](const Named& v) { return v.name == name; })) {
      Fail("a value is given for '", name, "', which is no Variable of the step");
    }
  }
  return out;
}

// Realises what the step captured, and checks that each write has somewhere to go.
void Capture::Prepare(const std::vector<Tensor>& inputs) const {
  for (int c : watched_) {
    if (!captured_[c]->abandoned()) continue;
    Fail(
        "a tensor that the step captured is held by nothing else any more, so that changes to it "
        "cannot be seen; Assign to a captured tensor instead of replacing it, or pass it as an "
        "input");
  }
  std::vector<Tensor> pending;
  for (const auto& c : captured_) {
    if (!c->is_placeholder() || c->now().is(Op::kBuffer)) continue;
    for (const UOp& u : TopoSort({&c->now(), 1}, /*with_extents=*/true)) {
      if (!u.is(Op::kVar)) continue;
      Fail("the step captured ", internal::Show(c->tensor()), ", whose value depends on the ",
           "Variable '", u.arg<VarArg>().name, "'; compute it inside the step, or pass it as an ",
           "input");
    }
    pending.push_back(c->tensor());
  }
  if (!pending.empty()) Tensor::Realize(absl::MakeSpan(pending), at_);
  for (const Write& w : writes_) {
    if (internal::IsSharedMemory(ValueOf(w.target, inputs))) {
      Fail("the step assigns to ", Name(w.target),
           ", whose memory is one for all its places in this call; pass a copy made with ",
           ".Contiguous()");
    }
    if (w.target.kind != Source::kInput || !inputs[w.target.index].is_view()) continue;
    Fail("the step assigns to ", Name(w.target), ", which is a view of another tensor in this ",
         "call; pass the tensor that it was made from, and take the view in the step");
  }
}

Capture::Bound Capture::Bind(const std::vector<Tensor>& inputs) const {
  Bound bound;
  auto& [leaves, own, kept] = bound;
  leaves.resize(leaves_.size());
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& l = leaves_[i];
    const UOp& value = l.own ? l.own : ValueOf(l.source, inputs);
    Buffer& buffer = BufferOf(value);
    if (l.own && l.overwritten) {
      own.push_back(Take(buffer.storage ? CopyStorage(*buffer.storage, l.device)
                                        : AllocateTensor(l.shape, l.dtype, l.device)));
      leaves[i] = own.back().get();
      continue;
    }
    if (buffer.storage == nullptr) {
      if (!l.overwritten) {
        Fail(l.own ? std::string("a tensor made by the step") : Name(l.source), ", ",
             Describe(value), ", was never given data; Assign to it first");
      }
      buffer.storage = Take(AllocateTensor(l.shape, l.dtype, l.device));
    }
    ThrowAsCall(CheckNotLost(*buffer.storage, Describe(value)));
    leaves[i] = buffer.storage.get();
  }
  CheckAliases(leaves);
  // Whoever reads an old version elsewhere goes on with a copy of it.
  kept.resize(writes_.size());
  for (size_t w = 0; w < writes_.size(); ++w) {
    if (writes_[w].leaf < 0) continue;
    const Leaf& leaf = leaves_[writes_[w].leaf];
    if (leaf.own) continue;
    const UOp& value = ValueOf(leaf.source, inputs);
    if (value.get()->refs.load(std::memory_order_acquire) == 1) continue;
    Buffer& buffer = BufferOf(value);
    std::shared_ptr<Storage> copy = Take(CopyStorage(*buffer.storage, leaf.device));
    kept[w] = std::exchange(buffer.storage, std::move(copy));
  }
  return bound;
}

Storages Capture::Execute(const Bound& bound, const std::vector<int64_t>& numbers) const {
  Storages storage(roots_.size());
  if (IntFlag(Flag::kDebug) >= 2 || IntFlag(Flag::kCheckNan) != 0) {
    Bindings bindings;
    for (size_t i = 0; i < variables_.size(); ++i) bindings[variables_[i].name] = numbers[i];
    Storages shared;
    for (Storage* s : bound.leaves) shared.emplace_back(std::shared_ptr<void>(), s);
    bool made_nan = false;
    storage = Take(ExecutePlan(replay_->plan(), shared, bindings,
                               IntFlag(Flag::kCheckNan) != 0 ? &made_nan : nullptr));
    for (size_t r = 0; r < roots_.size(); ++r) {
      if (roots_[r].leaf >= 0) storage[r] = nullptr;
    }
  } else {
    ThrowAsCall(replay_->Run(bound.leaves, numbers, absl::MakeSpan(storage)));
  }
  for (size_t r = 0; r < roots_.size(); ++r) {  // written into a buffer that the step made
    for (const auto& s : bound.own) {
      if (roots_[r].leaf >= 0 && s.get() == bound.leaves[roots_[r].leaf]) storage[r] = s;
    }
  }
  return storage;
}

// Every check comes before the first change of a tensor.
std::vector<Tensor> Capture::Run(const std::vector<Tensor>& inputs, const Bindings& values) {
  Prepare(inputs);
  const std::vector<int64_t> numbers = Values(values);
  Bound bound = Bind(inputs);
  Storages storage = Execute(bound, numbers);
  std::vector<UOp> made(roots_.size());
  const auto result = [&](int r) -> const UOp& {
    if (made[r]) return made[r];
    const Root& root = roots_[r];
    Extents dims = root.dims;
    Device device = root.device;
    if (root.symbolic) {
      for (Extent& e : dims) e = Take(ExtentValue(e, values));
      device = DeviceWithin(Shape(root.dims), device, dims);
    }
    made[r] = NewResult(root.like, dims, device, storage[r]);
    return made[r];
  };
  for (size_t w = 0; w < writes_.size(); ++w) {
    const Root& root = roots_[writes_[w].root];
    std::shared_ptr<Storage>& s = storage[writes_[w].root];
    if (bound.kept[w]) s = std::move(bound.kept[w]);
    if (s == nullptr) continue;  // in place, and nobody reads another version
    made[writes_[w].root] = NewResult(root.like, root.dims, root.device, s);
    TensorOf(writes_[w].target, inputs).SetUOp(made[writes_[w].root]);
  }
  for (const View& v : views_) {
    const Tensor base = captured_[v.captured]->base();
    captured_[v.captured]->SetView(v.root >= 0 ? result(v.root) : base.uop());
  }
  std::vector<Tensor> out;
  for (const Result& r : results_) {
    if (r.kind == Result::kTensor) {
      out.push_back(TensorOf(r.tensor, inputs));
    } else if (const int leaf = roots_[r.index].leaf; leaf >= 0 && !storage[r.index]) {
      out.push_back(Tensor(ValueOf(leaves_[leaf].source, inputs)));
    } else {
      out.push_back(Tensor(result(r.index)));
    }
  }
  return out;
}

}  // namespace

struct Jit::Impl {
  Step step;
  mutable std::mutex mutex;
  std::vector<std::shared_ptr<Capture>> captures;  // the last one used is the last
};

Jit::Jit(Erased step) : impl_(std::make_unique<Impl>()) { impl_->step = std::move(step.step); }
Jit::~Jit() = default;
Jit::Jit(Jit&&) noexcept = default;

void Jit::CheckArity(size_t takes, size_t given) {
  if (takes == given) return;
  throw Error(absl::InvalidArgumentError(
      absl::StrCat("Jit: the step takes ", takes, " tensors, and ", given, " are passed")));
}

int Jit::captures() const {
  std::lock_guard lock(impl_->mutex);
  return static_cast<int>(impl_->captures.size());
}

std::vector<Tensor> Jit::operator()(const std::vector<Tensor>& inputs, const Bindings& values,
                                    CallSite at) {
  if (Trace::Current() != nullptr) {
    Call call("Jit", at);
    if (!values.empty()) {
      Fail(
          "inside a step that is being captured, Variables have no values yet; give them to the "
          "outer Jit");
    }
    return impl_->step(inputs);
  }
  {
    Call call("Jit", at);
    for (const Tensor& x : inputs) {
      if (!x) Fail("input ", &x - inputs.data(), " is empty: moved from, or never given a value");
    }
    std::vector<Tensor> pending;
    for (const Tensor& x : inputs) {
      if (!x.uop().is(Op::kBuffer)) pending.push_back(x);
    }
    if (!pending.empty()) Tensor::Realize(absl::MakeSpan(pending), at);
  }
  std::shared_ptr<Capture> capture;
  {
    std::lock_guard lock(impl_->mutex);
    auto& all = impl_->captures;
    for (auto it = all.begin(); it != all.end(); ++it) {
      if (!(*it)->Fits(inputs)) continue;
      if ((*it)->IsCurrent()) {
        capture = *it;
        std::rotate(it, it + 1, all.end());
      } else {
        all.erase(it);
      }
      break;
    }
    if (capture == nullptr) {
      capture = std::make_shared<Capture>(impl_->step, inputs, at);
      all.push_back(capture);
      if (all.size() > kMaxCaptures) all.erase(all.begin());
    }
  }
  Call call("Jit", at);
  return capture->Run(inputs, values);
}

Tensor Jit::One(const std::vector<Tensor>& inputs, const Bindings& values, CallSite at) {
  std::vector<Tensor> out = (*this)(inputs, values, at);
  Call call("Jit", at);
  if (out.size() != 1) Fail("the step has ", out.size(), " results, not one");
  return std::move(out[0]);
}

}  // namespace tessera
