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

void KeepHistory(const UOp& expression, const UOp& buffer) {
  // An assignment begins anew: no gradient goes through it.
  if (!buffer.is(Op::kBuffer) || expression.size() == 0 || expression.is(Op::kAssign)) return;
  if (!expression.dtype().IsFloat()) return;
  absl::flat_hash_set<const Node*> marked;
  for (const Tensor& t : Tensor::AllRequiringGrad()) marked.insert(t.uop().get());
  constexpr size_t kMostRemembered = 256;
  std::vector<size_t> hashes;
  bool of_marked = false;
  for (const UOp& u : TopoSort({&expression, 1})) {
    const UOp computed = u.realized();
    if (hashes.size() < kMostRemembered && u.dtype().IsFloat()) hashes.push_back(u.get()->hash);
    of_marked |= marked.contains(u.get()) || (computed && marked.contains(computed.get())) ||
                 HistoryOf(u) != nullptr;
  }
  Buffer& kept = *buffer.arg<BufferArg>().buffer;
  if (of_marked) {
    kept.history = std::make_shared<const History>(
        History{expression.op(),
                expression.dtype(),
                {expression.srcs().begin(), expression.srcs().end()},
                expression.arg()});
  } else {
    kept.computed_from = std::move(hashes);
  }
}

UOp WithHistory(const UOp& root) {
  absl::flat_hash_map<const Node*, UOp> done;
  bool any = false;
  std::vector<std::pair<UOp, bool>> stack = {{root, false}};  // node, sources done
  while (!stack.empty()) {
    auto [u, ready] = stack.back();
    stack.pop_back();
    if (done.contains(u.get())) continue;
    const History* h = HistoryOf(u);
    any |= h != nullptr;
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
  return any ? done.at(root.get()) : root;
}

bool WasComputedFrom(const UOp& buffer, const UOp& value) {
  if (!buffer.is(Op::kBuffer)) return false;
  const std::vector<size_t>& from = BufferOf(buffer).computed_from;
  return std::find(from.begin(), from.end(), value.get()->hash) != from.end();
}

}  // namespace tessera
