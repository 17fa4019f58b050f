// Calls of captured steps: their slots are filled, and their results become tensors.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/buffer.h"
#include "graph/flags.h"
#include "graph/infer_device.h"
#include "graph/rewrite.h"
#include "graph/status.h"
#include "graph/tensor_internal.h"
#include "runtime/captured_step.h"
#include "runtime/execute.h"
#include "runtime/mesh.h"

namespace tessera {
namespace {

using internal::Fail;
using internal::ThrowAsCall;
using internal::Trace;

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

}  // namespace

void CapturedStep::CheckAliases(absl::Span<Storage* const> leaves) const {
  for (const Write& w : writes_) {
    if (w.leaf < 0) continue;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i] != leaves[w.leaf] || static_cast<int>(i) == w.leaf) continue;
      Fail("the step overwrites ", Name(w.target), ", which is ", Name(leaves_[i].source),
           " at the same time; pass a copy made with .Contiguous(), or use only one of them");
    }
  }
}

void CapturedStep::CheckValues(const Bindings& values) const {
  size_t used = 0;
  for (const Named& v : variables_) {
    if (v.name[0] == '@') continue;
    const auto it = values.find(v.name);
    ThrowAsCall(CheckBinding(v.name, v.min, v.max, it == values.end() ? nullptr : &it->second));
    ++used;
  }
  if (used == values.size()) return;
  for (const auto& [name, value] : values) {
    if (std::none_of(variables_.begin(), variables_.end(),
                     [&](const Named& v) { return v.name == name; })) {
      Fail("a value is given for '", name, "', which is no Variable of the step");
    }
  }
}

// By variable; draws the random numbers of the call.
std::vector<int64_t> CapturedStep::Values(const Bindings& values) const {
  internal::RandomState random;
  if (drawn_ > 0) random = internal::DrawRandom(drawn_);
  std::vector<int64_t> out;
  for (const Named& v : variables_) {
    if (v.name[0] == '@') {
      out.push_back(static_cast<int64_t>(v.name == Trace::kSeedName ? random.seed : random.first));
    } else {
      out.push_back(values.at(v.name));
    }
  }
  return out;
}

// Realises what the step captured, and checks that each write has somewhere to go.
void CapturedStep::Prepare(const std::vector<Tensor>& inputs) const {
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
    if (w.target.kind != Source::kInput || inputs[w.target.index].StandAlone()) continue;
    Fail("the step assigns to ", Name(w.target), ", which is a view of another tensor in this ",
         "call; pass the tensor that it was made from, and take the view in the step");
  }
}

CapturedStep::Bound CapturedStep::Bind(const std::vector<Tensor>& inputs, Rollback& undo) const {
  Bound bound;
  auto& [leaves, own, kept] = bound;
  leaves.resize(leaves_.size());
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& l = leaves_[i];
    const UOp& value = l.own ? l.own : ValueOf(l.source, inputs);
    Buffer& buffer = BufferOf(value);
    if (l.own && l.overwritten) {
      own.push_back(Take(buffer.storage ? CopyStorage(*buffer.storage, l.device)
                                        : AllocateTensor(l.shape, l.dtype, l.device, l.written)));
      leaves[i] = own.back().get();
      continue;
    }
    if (buffer.storage == nullptr) {
      if (!l.overwritten) {
        Fail(l.own ? std::string("a tensor made by the step") : Name(l.source), ", ",
             Describe(value), ", was never given data; Assign to it first");
      }
      undo.Give(buffer, Take(AllocateTensor(l.shape, l.dtype, l.device, l.written)));
    }
    ThrowAsCall(CheckNotLost(*buffer.storage, Describe(value)));
    leaves[i] = buffer.storage.get();
  }
  // What is read elsewhere, in another thread perhaps, stays as it is: see ToOverwrite.
  kept.resize(writes_.size());
  for (size_t w = 0; w < writes_.size(); ++w) {
    if (writes_[w].leaf < 0) continue;
    const Leaf& leaf = leaves_[writes_[w].leaf];
    if (leaf.own) continue;
    const UOp& value = ValueOf(leaf.source, inputs);
    if (value.get()->refs.load(std::memory_order_acquire) == 1) continue;
    kept[w] = Take(undo.ToOverwrite(BufferOf(value), leaf.device));
    leaves[writes_[w].leaf] = kept[w].get();
  }
  CheckAliases(leaves);
  return bound;
}

CapturedStep::Storages CapturedStep::Execute(const Bound& bound,
                                             const std::vector<int64_t>& numbers) const {
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
  // Of several tensors that are equal what was computed once is each one's own.
  for (int r : repeated_) {
    if (storage[r] != nullptr) storage[r] = Take(CopyStorage(*storage[r], roots_[r].device));
  }
  for (size_t r = 0; r < roots_.size(); ++r) {  // written into a buffer that the step made
    for (const auto& s : bound.own) {
      if (roots_[r].leaf >= 0 && s.get() == bound.leaves[roots_[r].leaf]) storage[r] = s;
    }
  }
  return storage;
}

// An error before it executes leaves all as it was: tensors, and which random numbers come next.
std::vector<Tensor> CapturedStep::Run(const std::vector<Tensor>& inputs, const Bindings& values) {
  Prepare(inputs);
  CheckValues(values);
  Rollback undo;
  Bound bound = Bind(inputs, undo);
  Storages storage = Execute(bound, Values(values));
  undo.Keep();
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
    } else if (r.kind == Result::kResult) {
      out.push_back(out[r.index]);
    } else if (const int leaf = roots_[r.index].leaf; leaf >= 0 && !storage[r.index]) {
      out.push_back(Tensor(ValueOf(leaves_[leaf].source, inputs)));
    } else {
      out.push_back(Tensor(result(r.index)));
    }
  }
  for (auto it = gradients_.rbegin(); it != gradients_.rend(); ++it) {
    captured_[it->captured]->SetGradient(it->made ? out.back() : Tensor());
    if (it->made) out.pop_back();
  }
  return out;
}

}  // namespace tessera
