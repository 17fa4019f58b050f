// Realising nodes: storage for what is assigned, versions kept for readers elsewhere.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/fault.h"
#include "graph/flags.h"
#include "graph/infer.h"
#include "graph/infer_device.h"
#include "graph/node_map.h"
#include "graph/own_extent.h"
#include "graph/status.h"
#include "graph/unroll.h"
#include "runtime/check_nan.h"
#include "runtime/execute.h"
#include "runtime/mesh.h"
#include "runtime/rollback.h"

namespace tessera {
namespace {

using NodeSet = absl::flat_hash_set<const Node*>;

bool IsPending(const UOp& u) { return u.is(Op::kAssign) && !u.realized(); }

// The node that a version is: an ASSIGN still to be run, or the BUFFER that it lies in.
UOp VersionOf(const UOp& u) {
  const UOp computed = u.realized();
  return computed ? computed : u;
}

// The versions that ASSIGNs of this graph overwrite: BUFFERs, and other ASSIGNs of the graph.
NodeSet Overwritten(const PlanKey& key) {
  NodeSet out;
  for (const UOp& u : key.order) {
    if (IsPending(u)) out.insert(VersionOf(u.src(0)).get());
  }
  return out;
}

// Every VAR has a value within its bounds, and every value a VAR.
absl::Status CheckBindings(const PlanKey& key, const Bindings& bindings) {
  size_t used = 0;
  for (const UOp& u : key.order) {
    if (!u.is(Op::kVar) || OwnSizesOf(u)) continue;
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
      return absl::InvalidArgumentError(absl::StrCat("realize: a value is given for '", name,
                                                     "', which is no Variable of these tensors"));
    }
  }
  return absl::OkStatus();
}

// The overwritten versions that something outside of this graph still reads: a node with more
// holders than the graph accounts for, that sees such a version and not only later ones.
NodeSet StillRead(absl::Span<const UOp> roots, const PlanKey& key, const NodeSet& overwritten) {
  NodeMap<int> held(key.order.size());  // by this graph and by us
  const auto hold = [&held](const UOp& u) { ++*held.TryEmplace(u.get()).first; };
  for (const UOp& u : key.order) {
    hold(u);
    if (u.realized()) continue;
    for (const UOp& s : u.srcs()) hold(s);
  }
  for (const UOp& l : key.leaves) hold(l);
  NodeSet is_root, out;
  for (const UOp& r : roots) is_root.insert(r.get());
  absl::flat_hash_map<const Node*, absl::InlinedVector<const Node*, 2>> sees;
  for (const UOp& u : key.order) {
    const UOp computed = u.realized();
    const UOp version = computed ? computed : u;
    absl::InlinedVector<const Node*, 2> seen;
    if (version.is(Op::kBuffer) || version.is(Op::kAssign)) {
      if (overwritten.contains(version.get())) seen.push_back(version.get());
    } else {
      for (const UOp& s : u.srcs()) {
        const auto it = sees.find(s.get());
        if (it != sees.end()) seen.insert(seen.end(), it->second.begin(), it->second.end());
      }
    }
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    if (seen.empty()) continue;
    sees[u.get()] = seen;
    if (is_root.contains(u.get())) {  // computed now, unless it is the old version itself
      if (version.is(Op::kBuffer)) out.insert(version.get());
      continue;
    }
    const int extra = computed ? 1 : 0;  // `computed` above
    if (u.get()->refs.load() > held.At(u.get()) + (computed ? 0 : 1) ||
        (computed && version.get()->refs.load() > held.At(version.get()) + 2 + extra)) {
      out.insert(seen.begin(), seen.end());
    }
  }
  return out;
}

// What is computed: the roots, and every version that the ASSIGNs on the way leave, so that none is
// run again. A version that is overwritten in turn is kept as a copy where someone reads it.
struct Targets {
  std::vector<UOp> nodes;   // what gets a value: the roots first
  std::vector<UOp> values;  // of each: the node itself, or a copy
};

Targets TargetsOf(absl::Span<const UOp> roots, const PlanKey& key, const NodeSet& overwritten,
                  const NodeSet& still_read) {
  Targets out;
  const auto add = [&](const UOp& u) {
    const bool copy = !u.is(Op::kBuffer) && overwritten.contains(u.get()) &&
                      !FaultPlanted(Fault::kOldVersionNotCopied);
    out.nodes.push_back(u);
    out.values.push_back(copy ? UOp::Make(Op::kContiguous, {u}) : u);
  };
  NodeSet is_root;
  for (const UOp& r : roots) {
    is_root.insert(r.get());
    add(r);
  }
  for (const UOp& u : key.order) {
    if (!IsPending(u) || is_root.contains(u.get())) continue;
    if (!overwritten.contains(u.get()) || still_read.contains(u.get())) add(u);
  }
  return out;
}

absl::Status CopyBack(const Storage& from, Storage& to, Device device) {
  ASSIGN_OR_RETURN(const std::vector<DeviceRuntime*> places, DevicesOf(device));
  if (to.parts.empty()) return places[0]->CopyWithin(to.data, from.data, to.bytes);
  for (size_t i = 0; i < places.size(); ++i) {
    Storage& part = *to.parts[i];
    RETURN_IF_ERROR(places[i]->CopyWithin(part.data, from.parts[i]->data, part.bytes));
  }
  return absl::OkStatus();
}

using Storages = std::vector<std::shared_ptr<Storage>>;

// What a version has lost, if it has.
std::shared_ptr<const std::string> LossOf(const UOp& version) {
  if (!version.is(Op::kBuffer)) return nullptr;
  const std::shared_ptr<Storage>& storage = version.arg<BufferArg>().buffer->storage;
  return storage == nullptr ? nullptr : storage->lost;
}

// ASSIGNs that need what an error has left without values have none either, and are over: none is
// run on top of what an earlier run has left.
void LoseAssigned(const PlanKey& key) {
  absl::flat_hash_map<const Node*, std::shared_ptr<const std::string>> lost;
  for (const UOp& u : key.order) {
    const UOp version = VersionOf(u);
    std::shared_ptr<const std::string> why = LossOf(version);
    for (const UOp& s : u.srcs()) {
      const auto it = lost.find(s.get());
      if (it != lost.end() && version == u) why = it->second;
    }
    if (why == nullptr) continue;
    lost.emplace(u.get(), why);
    if (!IsPending(u)) continue;
    auto buffer = std::make_shared<Buffer>();
    buffer->storage = std::make_shared<Storage>();
    buffer->storage->lost = why;
    u.SetRealized(UOp::Make(Op::kBuffer, u.dtype(), {},
                            BufferArg{std::move(buffer), u.shape().ToExtents(), u.device()}));
  }
}

// The storage of each leaf; made for what is assigned and has none.
absl::StatusOr<Storages> BindLeaves(const PlanKey& key, const NodeSet& overwritten,
                                    Rollback& undo) {
  Storages leaves;
  std::optional<FirstWrites> first_writes;  // made where some memory is
  for (const UOp& leaf : key.leaves) {
    Buffer& buffer = *leaf.arg<BufferArg>().buffer;
    if (buffer.storage == nullptr) {
      if (!overwritten.contains(leaf.get())) {
        return absl::FailedPreconditionError(absl::StrCat(
            "realize: ", Describe(leaf),
            buffer.stands_for_input
                ? " stands for an input while a function is traced, which may not read values"
                : " was never given data; Assign to it first, or create it with Zeros"));
      }
      if (!first_writes) first_writes.emplace(key);
      ASSIGN_OR_RETURN(auto storage, AllocateTensor(leaf.shape(), leaf.dtype(), leaf.device(),
                                                    first_writes->Of(leaf)));
      undo.Give(buffer, std::move(storage));
    }
    if (buffer.storage->lost != nullptr) {
      LoseAssigned(key);
      return CheckNotLost(*buffer.storage, absl::StrCat("realize: ", Describe(leaf)));
    }
    leaves.push_back(buffer.storage);
  }
  return leaves;
}

// What is read elsewhere, in another thread perhaps, stays as it is: see ToOverwrite.
absl::Status KeepOldVersions(const PlanKey& key, const NodeSet& still_read, Storages& leaves,
                             Rollback& undo) {
  for (size_t i = 0; i < key.leaves.size(); ++i) {
    const UOp& leaf = key.leaves[i];
    if (!still_read.contains(leaf.get())) continue;
    ASSIGN_OR_RETURN(leaves[i], undo.ToOverwrite(*leaf.arg<BufferArg>().buffer, leaf.device()));
  }
  return absl::OkStatus();
}

// With CHECK_NAN what an error stops in mid-plan has assigned nothing.
struct Unassigned {
  Storage* storage;
  Device device;
  std::shared_ptr<Storage> before;
};

absl::StatusOr<std::vector<Unassigned>> CopyAssigned(const PlanKey& key, const NodeSet& overwritten,
                                                     const Storages& leaves) {
  std::vector<Unassigned> out;
  for (size_t i = 0; i < key.leaves.size(); ++i) {
    const UOp& leaf = key.leaves[i];
    if (!overwritten.contains(leaf.get())) continue;
    ASSIGN_OR_RETURN(std::shared_ptr<Storage> copy, CopyStorage(*leaves[i], leaf.device()));
    out.push_back({leaves[i].get(), leaf.device(), std::move(copy)});
  }
  return out;
}

// The value of each root, in the storage of its target; nodes remember theirs.
absl::StatusOr<std::vector<UOp>> Results(size_t roots, const Targets& targets, const Plan& plan,
                                         const Storages& storage, const Bindings& bindings) {
  std::vector<UOp> out;
  absl::flat_hash_set<const Storage*> given;
  for (size_t i = 0; i < targets.nodes.size(); ++i) {
    const UOp& node = targets.nodes[i];
    UOp made = VersionOf(node);
    if (!made.is(Op::kBuffer)) {
      auto buffer = std::make_shared<Buffer>();
      buffer->storage = storage[i];
      Device device = node.device() ? node.device() : plan.buffers[plan.roots[i]].device;
      // Of several tensors that are equal what was computed once is each one's own.
      if (!given.insert(storage[i].get()).second) {
        ASSIGN_OR_RETURN(buffer->storage, CopyStorage(*storage[i], device));
      }
      // With values for VARs, a node is that only this once; what an ASSIGN did is done.
      const bool lasting = bindings.empty() || node.is(Op::kAssign);
      Extents dims = node.shape().ToExtents();
      if (!lasting) {
        for (Extent& e : dims) {
          ASSIGN_OR_RETURN(e, ExtentValue(e, bindings));
        }
        device = DeviceWithin(node.shape(), device, dims);
      }
      made = UOp::Make(Op::kBuffer, node.dtype(), {},
                       BufferArg{std::move(buffer), std::move(dims), device});
      // A node without a device is at home on whichever it meets: elsewhere it is computed again.
      if (lasting && node.device()) node.SetRealized(made);
    }
    if (i < roots) out.push_back(made);
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
  PlanKey key = MakePlanKey(roots, /*draws_vary=*/true);
  RETURN_IF_ERROR(CheckBindings(key, bindings));
  const NodeSet overwritten = Overwritten(key);
  NodeSet still_read;
  Targets targets{{roots.begin(), roots.end()}, {roots.begin(), roots.end()}};
  if (!overwritten.empty()) {
    targets = {};
    still_read = StillRead(roots, key, overwritten);
    targets = TargetsOf(roots, key, overwritten, still_read);
    if (!std::equal(roots.begin(), roots.end(), targets.values.begin(), targets.values.end())) {
      key = MakePlanKey(targets.values, /*draws_vary=*/true);
    }
  }
  Rollback undo;
  ASSIGN_OR_RETURN(Storages leaves, BindLeaves(key, overwritten, undo));
  ASSIGN_OR_RETURN(CompiledPlanPtr plan, PrepareVarying(targets.values, key));
  RETURN_IF_ERROR(KeepOldVersions(key, still_read, leaves, undo));
  std::vector<Unassigned> unassigned;
  if (check_nan) {
    ASSIGN_OR_RETURN(unassigned, CopyAssigned(key, overwritten, leaves));
  }
  bool made_nan = false;
  Bindings values = KeyBindings(key);
  values.insert(bindings.begin(), bindings.end());
  auto ran = ExecutePlan(*plan, leaves, values, check_nan ? &made_nan : nullptr);
  if (!ran.ok()) {
    for (const Unassigned& u : unassigned) {
      if (CopyBack(*u.before, *u.storage, u.device).ok()) u.storage->lost = nullptr;
    }
    LoseAssigned(key);
  }
  if (made_nan) {
    // Of a loop the turn that makes it is named, as the op of a turn written out.
    const auto plain = WithoutLoops(targets.values, /*stop_at_realized=*/true);
    if (!plain.ok()) return ran.status();
    return NameNanOp(MakePlanKey(*plain, /*draws_vary=*/true), bindings, ran.status());
  }
  RETURN_IF_ERROR(ran.status());
  undo.Keep();
  return Results(roots.size(), targets, plan->plan, *ran, bindings);
}

}  // namespace tessera
