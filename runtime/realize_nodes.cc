// Realising nodes: storage for what is assigned, versions kept for readers elsewhere.
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/infer.h"
#include "graph/status.h"
#include "runtime/check_nan.h"
#include "runtime/runtime.h"

namespace tessera {
namespace {

UOp BaseOf(const UOp& u) {
  UOp base = u;
  while (base.is(Op::kAssign) && !base.realized()) base = UOp(base.src(0));
  const UOp computed = base.realized();
  return computed ? computed : base;
}

// The leaves that ASSIGNs of this graph overwrite.
absl::flat_hash_set<const Node*> Overwritten(const PlanKey& key) {
  absl::flat_hash_set<const Node*> out;
  for (const UOp& u : key.order) {
    if (u.is(Op::kAssign) && !u.realized()) out.insert(BaseOf(u.src(0)).get());
  }
  return out;
}

// The overwritten leaves whose old content something outside of this graph still reads: a node with
// more holders than the graph accounts for, that sees a leaf other than through an ASSIGN.
absl::flat_hash_set<const Node*> StillRead(absl::Span<const UOp> roots, const PlanKey& key,
                                           const absl::flat_hash_set<const Node*>& overwritten) {
  absl::flat_hash_map<const Node*, int> held;  // by this graph and by us
  for (const UOp& u : key.order) {
    ++held[u.get()];
    if (u.realized()) continue;
    for (const UOp& s : u.srcs()) ++held[s.get()];
  }
  for (const UOp& l : key.leaves) ++held[l.get()];
  absl::flat_hash_set<const Node*> is_root, out;
  for (const UOp& r : roots) is_root.insert(r.get());
  absl::flat_hash_map<const Node*, absl::InlinedVector<const Node*, 2>> sees;
  for (const UOp& u : key.order) {
    const UOp computed = u.realized();
    const UOp leaf = computed ? computed : u;
    auto& seen = sees[u.get()];
    if (leaf.is(Op::kBuffer)) {
      if (overwritten.contains(leaf.get())) seen.push_back(leaf.get());
    } else if (!u.is(Op::kAssign)) {
      for (const UOp& s : u.srcs()) {
        for (const Node* l : sees[s.get()]) seen.push_back(l);
      }
    }
    if (is_root.contains(u.get()) || seen.empty()) continue;
    const int extra = computed ? 1 : 0;  // `computed` above
    if (u.get()->refs.load() > held[u.get()] + (computed ? 0 : 1) ||
        (computed && leaf.get()->refs.load() > held[leaf.get()] + 2 + extra)) {
      out.insert(seen.begin(), seen.end());
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<UOp>> RealizeNodes(absl::Span<const UOp> roots,
                                              const Bindings& bindings) {
  return RealizeNodes(roots, bindings, IntFlag(Flag::kCheckNan) > 0);
}

absl::StatusOr<std::vector<UOp>> RealizeNodes(absl::Span<const UOp> roots, const Bindings& bindings,
                                              bool check_nan) {
  const PlanKey key = MakePlanKey(roots);
  const auto overwritten = Overwritten(key);
  std::vector<std::shared_ptr<Storage>> leaves;
  for (const UOp& leaf : key.leaves) {
    Buffer& buffer = *leaf.arg<BufferArg>().buffer;
    if (buffer.storage == nullptr) {
      if (!overwritten.contains(leaf.get())) {
        return absl::FailedPreconditionError(
            absl::StrCat("realize: ", Describe(leaf),
                         " was never given data; Assign to it first, or create it with Zeros"));
      }
      const int64_t bytes = leaf.shape().MaxElements() * leaf.dtype().bytes();
      ASSIGN_OR_RETURN(DeviceRuntime * device, GetDevice(leaf.device().place()));
      ASSIGN_OR_RETURN(buffer.storage, device->Allocate(bytes));
    }
    leaves.push_back(buffer.storage);
  }
  ASSIGN_OR_RETURN(CompiledPlanPtr plan, PreparePlan(roots, key));
  // Whoever reads an old version elsewhere goes on with a copy of it.
  if (!overwritten.empty()) {
    const auto keep = StillRead(roots, key, overwritten);
    for (size_t i = 0; i < key.leaves.size(); ++i) {
      const UOp& leaf = key.leaves[i];
      if (!keep.contains(leaf.get())) continue;
      ASSIGN_OR_RETURN(DeviceRuntime * device, GetDevice(leaf.device().place()));
      ASSIGN_OR_RETURN(std::shared_ptr<Storage> copy, device->Allocate(leaves[i]->bytes));
      if (device->IsHost()) {
        RETURN_IF_ERROR(device->CopyIn(copy->data, leaves[i]->data, leaves[i]->bytes));
      }
      leaf.arg<BufferArg>().buffer->storage = std::move(copy);
    }
  }
  bool made_nan = false;
  auto ran = ExecutePlan(*plan, leaves, bindings, check_nan ? &made_nan : nullptr);
  if (made_nan) return NameNanOp(key, bindings, ran.status());
  ASSIGN_OR_RETURN(auto storage, std::move(ran));
  std::vector<UOp> out;
  for (size_t i = 0; i < roots.size(); ++i) {
    const UOp& root = roots[i];
    const UOp done = root.realized();
    if (root.is(Op::kBuffer) || done) {
      out.push_back(done ? done : root);
      continue;
    }
    auto buffer = std::make_shared<Buffer>();
    buffer->storage = storage[i];
    const Device device = plan->plan.buffers[plan->plan.roots[i]].device;
    const UOp made = UOp::Make(Op::kBuffer, root.dtype(), {},
                               BufferArg{std::move(buffer), root.shape().ToExtents(), device});
    root.SetRealized(made);
    out.push_back(made);
  }
  return out;
}

}  // namespace tessera
