// Realising nodes: storage for what is assigned, versions kept for readers elsewhere.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/infer.h"
#include "graph/status.h"
#include "runtime/execute.h"

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

// The versions that later ASSIGNs of this graph overwrite.
absl::flat_hash_set<const Node*> OldVersions(const PlanKey& key) {
  absl::flat_hash_set<const Node*> out;
  for (const UOp& u : key.order) {
    if (u.is(Op::kAssign) && !u.realized()) out.insert(u.src(0).get());
  }
  return out;
}

// Every VAR has a value within its bounds, and every value a VAR.
absl::Status CheckBindings(const PlanKey& key, const Bindings& bindings) {
  size_t used = 0;
  for (const UOp& u : key.order) {
    if (!u.is(Op::kVar)) continue;
    const VarArg& v = u.arg<VarArg>();
    const auto it = bindings.find(v.name);
    RETURN_IF_ERROR(
        CheckBinding(v.name, v.min, v.max, it == bindings.end() ? nullptr : &it->second));
    ++used;
  }
  if (used == bindings.size()) return absl::OkStatus();
  for (const auto& [name, value] : bindings) {
    const auto is = [&name = name](const UOp& u) {
      return u.is(Op::kVar) && u.arg<VarArg>().name == name;
    };
    if (std::none_of(key.order.begin(), key.order.end(), is)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "realize: a value is given for '", name, "', which is no Variable of these tensors"));
    }
  }
  return absl::OkStatus();
}

// The overwritten leaves whose old content something outside of this graph still reads: a node with
// more holders than the graph accounts for, that sees a leaf other than through an ASSIGN.
absl::flat_hash_set<const Node*> StillRead(absl::Span<const UOp> roots,
                                           absl::Span<const UOp> computed_roots, const PlanKey& key,
                                           const absl::flat_hash_set<const Node*>& overwritten,
                                           const absl::flat_hash_set<const Node*>& old_versions) {
  absl::flat_hash_map<const Node*, int> held;  // by this graph and by us
  for (const UOp& u : key.order) {
    ++held[u.get()];
    if (u.realized()) continue;
    for (const UOp& s : u.srcs()) ++held[s.get()];
  }
  for (const UOp& l : key.leaves) ++held[l.get()];
  absl::flat_hash_set<const Node*> is_root, out;
  for (const UOp& r : roots) is_root.insert(r.get());
  for (const UOp& c : computed_roots) is_root.insert(c.get());
  absl::flat_hash_map<const Node*, absl::InlinedVector<const Node*, 2>> sees;
  for (const UOp& u : key.order) {
    const UOp computed = u.realized();
    const UOp leaf = computed ? computed : u;
    auto& seen = sees[u.get()];
    if (leaf.is(Op::kBuffer)) {
      if (overwritten.contains(leaf.get())) seen.push_back(leaf.get());
    } else if (u.is(Op::kAssign)) {
      // The last version is computed here; an older one would be again, from the leaf.
      if (old_versions.contains(u.get())) seen.push_back(BaseOf(u).get());
    } else {
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

absl::StatusOr<std::vector<UOp>> RealizeNodes(absl::Span<const UOp> wanted,
                                              const Bindings& bindings) {
  PlanKey key = MakePlanKey(wanted);
  const auto overwritten = Overwritten(key);
  const auto old_versions = OldVersions(key);
  std::vector<UOp> roots(wanted.begin(), wanted.end());
  std::vector<UOp> computed = roots;  // of each root: itself, or a copy of a version that is lost
  if (!overwritten.empty()) {
    // An ASSIGN runs once: the versions it leaves are results, asked for or not.
    absl::flat_hash_set<const Node*> is_root;
    for (const UOp& r : roots) is_root.insert(r.get());
    for (UOp& c : computed) {
      if (old_versions.contains(c.get()) && !c.realized()) c = UOp::Make(Op::kContiguous, {c});
    }
    for (const UOp& u : key.order) {
      if (!u.is(Op::kAssign) || u.realized() || old_versions.contains(u.get())) continue;
      if (!is_root.insert(u.get()).second) continue;
      roots.push_back(u);
      computed.push_back(u);
    }
    key = MakePlanKey(computed);
  }
  RETURN_IF_ERROR(CheckBindings(key, bindings));
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
  ASSIGN_OR_RETURN(CompiledPlanPtr plan, PreparePlan(computed, key));
  // Whoever reads an old version elsewhere goes on with a copy of it.
  if (!overwritten.empty()) {
    const auto keep = StillRead(roots, computed, key, overwritten, old_versions);
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
  ASSIGN_OR_RETURN(auto storage, ExecutePlan(*plan, leaves, bindings));
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
    // With values for VARs, a node is that only this once; what an ASSIGN did is done.
    const bool lasting = bindings.empty() || root.is(Op::kAssign);
    Extents dims = root.shape().ToExtents();
    if (!lasting) {
      for (Extent& e : dims) {
        ASSIGN_OR_RETURN(e, ExtentValue(e, bindings));
      }
    }
    const UOp made = UOp::Make(Op::kBuffer, root.dtype(), {},
                               BufferArg{std::move(buffer), std::move(dims), device});
    if (lasting) root.SetRealized(made);
    out.push_back(made);
  }
  out.resize(wanted.size());
  return out;
}

}  // namespace tessera
