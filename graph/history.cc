// Keeping and following histories.
#include "graph/history.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/buffer.h"

namespace tessera {
namespace {

const Buffer& BufferOf(const UOp& u) { return *u.arg<BufferArg>().buffer; }

const History* HistoryOf(const UOp& u) {
  return u.is(Op::kBuffer) ? BufferOf(u).history.get() : nullptr;
}

// What a node is computed from: its sources, or those of the expression that a buffer was.
absl::Span<const UOp> Sources(const UOp& u) {
  const History* h = HistoryOf(u);
  return h == nullptr ? u.srcs() : absl::Span<const UOp>(h->srcs);
}

}  // namespace

namespace {

// The nodes among which a lost gradient is looked for: the nearest ones.
std::vector<size_t> NearestHashes(const UOp& expression) {
  constexpr size_t kMostRemembered = 256;
  std::vector<size_t> hashes;
  std::vector<const UOp*> queue = {&expression};
  absl::flat_hash_set<const Node*> seen = {expression.get()};
  for (size_t i = 0; i < queue.size(); ++i) {
    if (queue[i]->dtype().IsFloat()) hashes.push_back(queue[i]->get()->hash);
    for (const UOp& s : queue[i]->srcs()) {
      if (queue.size() < kMostRemembered && seen.insert(s.get()).second) queue.push_back(&s);
    }
  }
  return hashes;
}

// The nodes below these expressions that depend on a marked tensor.
absl::flat_hash_set<const Node*> DependOnMarked(absl::Span<const UOp> expressions) {
  absl::flat_hash_set<const Node*> out;
  const std::vector<Tensor> tensors = Tensor::AllRequiringGrad();
  if (tensors.empty()) return out;
  absl::flat_hash_set<const Node*> marked;
  for (const Tensor& t : tensors) marked.insert(t.uop().get());
  for (const UOp& u : TopoSort(expressions)) {
    const UOp computed = u.realized();
    bool depends = marked.contains(u.get()) || (computed && marked.contains(computed.get())) ||
                   HistoryOf(u) != nullptr;
    for (const UOp& s : u.srcs()) depends |= out.contains(s.get());
    if (depends) out.insert(u.get());
  }
  return out;
}

}  // namespace

void KeepHistories(absl::Span<const UOp> expressions, absl::Span<const UOp> buffers) {
  const absl::flat_hash_set<const Node*> depend = DependOnMarked(expressions);
  for (size_t i = 0; i < expressions.size(); ++i) {
    const UOp& u = expressions[i];
    // An assignment begins anew: no gradient goes through it.
    const bool begins = u.size() == 0 || u.is(Op::kAssign) || !u.dtype().IsFloat();
    if (begins || !buffers[i].is(Op::kBuffer)) continue;
    Buffer& kept = *buffers[i].arg<BufferArg>().buffer;
    if (depend.contains(u.get())) {
      kept.history = std::make_shared<const History>(
          History{u.op(), u.dtype(), {u.srcs().begin(), u.srcs().end()}, u.arg()});
    } else {
      kept.computed_from = NearestHashes(u);
    }
  }
}

UOp WithHistory(const UOp& root) {
  bool any = false;
  for (const UOp& u : TopoSort({&root, 1})) any |= HistoryOf(u) != nullptr;
  if (!any) return root;
  absl::flat_hash_map<const Node*, UOp> done;
  std::vector<std::pair<UOp, bool>> stack = {{root, false}};  // node, sources done
  while (!stack.empty()) {
    auto [u, ready] = stack.back();
    stack.pop_back();
    if (done.contains(u.get())) continue;
    const History* h = HistoryOf(u);
    const absl::Span<const UOp> sources = Sources(u);
    if (!ready) {
      stack.emplace_back(u, true);
      for (const UOp& s : sources) stack.emplace_back(s, false);
      continue;
    }
    std::vector<UOp> srcs;
    for (const UOp& s : sources) srcs.push_back(done.at(s.get()));
    UOp made = h == nullptr ? u.WithSrcs(srcs) : UOp::Make(h->op, h->dtype, srcs, h->arg);
    const UOp value = h == nullptr ? u.realized() : u;
    if (value && !made.realized()) made.SetRealized(value);
    done.emplace(u.get(), std::move(made));
  }
  return done.at(root.get());
}

bool WasComputedFrom(const UOp& buffer, const UOp& value) {
  if (!buffer.is(Op::kBuffer)) return false;
  const std::vector<size_t>& from = BufferOf(buffer).computed_from;
  return std::find(from.begin(), from.end(), value.get()->hash) != from.end();
}

}  // namespace tessera
