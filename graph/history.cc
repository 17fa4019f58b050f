// Keeping and following histories.
#include "graph/history.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/buffer.h"
#include "graph/tensor_internal.h"

namespace tessera {
namespace {

const Buffer& BufferOf(const UOp& u) { return *u.arg<BufferArg>().buffer; }

// What is left of a history that leads to no tensor whose gradient can be asked for any more: that
// there was one.
const std::shared_ptr<const History>& Forgotten() {
  static const auto& forgotten =
      *new std::shared_ptr<const History>(new History{Op::kBuffer, kVoid, {}, {}});
  return forgotten;
}

const History* HistoryOf(const UOp& u) {
  if (!u.is(Op::kBuffer) || BufferOf(u).history == Forgotten()) return nullptr;
  return BufferOf(u).history.get();
}

// What a node is computed from: its sources, or those of the expression that a buffer was.
absl::Span<const UOp> Sources(const UOp& u) {
  const History* h = HistoryOf(u);
  return h == nullptr ? u.srcs() : absl::Span<const UOp>(h->srcs);
}

// Whether derivatives go through a node: floats, and LOOPs, which leave some.
bool CarriesDerivatives(const UOp& u) { return u.dtype().IsFloat() || u.is(Op::kLoop); }

// One thread at a time keeps, follows and forgets.
std::mutex& Mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

// The nodes among which a lost gradient is looked for: the nearest ones that have a derivative, the
// first of them first.
std::vector<size_t> NearestHashes(absl::Span<const UOp> first) {
  constexpr size_t kMostRemembered = 256;
  std::vector<size_t> hashes;
  std::vector<const UOp*> queue;
  absl::flat_hash_set<const Node*> seen;
  for (const UOp& u : first) {
    if (seen.insert(u.get()).second) queue.push_back(&u);
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    if (queue[i]->dtype().IsFloat()) hashes.push_back(queue[i]->get()->hash);
    for (const UOp& s : queue[i]->srcs()) {
      if (queue.size() >= kMostRemembered || !CarriesDerivatives(s)) continue;
      if (seen.insert(s.get()).second) queue.push_back(&s);
    }
  }
  return hashes;
}

// Which expressions have a derivative by a tensor that is marked now. Versions of before are not
// asked for: of a loop that adds up losses, what it had under the weights of before is forgotten.
class Marked {
 public:
  Marked() {
    for (const Tensor& t : Tensor::AllRequiringGrad()) nodes_.insert(internal::ValueNow(t).get());
  }
  bool none() const { return nodes_.empty(); }
  // Whether a marked tensor still is this very node.
  bool Stays(const UOp& u) const { return nodes_.contains(u.get()); }

  // Whether a buffer has a history that leads to one, be it one itself. A history that leads
  // nowhere goes.
  bool StillHasPast(const UOp& u) { return HistoryOf(u) != nullptr && StillLeads(u); }

  // The nodes below these expressions that lead to one.
  absl::flat_hash_set<const Node*> Above(absl::Span<const UOp> expressions) {
    absl::flat_hash_set<const Node*> out;
    if (none()) return out;
    for (const UOp& u : TopoSort(expressions)) {
      if (!CarriesDerivatives(u)) continue;
      const bool has_past = StillHasPast(u);
      bool leads = Is(u) || has_past;
      for (const UOp& s : u.srcs()) leads |= out.contains(s.get());
      if (leads) out.insert(u.get());
    }
    return out;
  }

 private:
  bool Is(const UOp& u) const {
    const UOp computed = u.realized();
    return nodes_.contains(u.get()) || (computed && nodes_.contains(computed.get()));
  }

  // Nearest first, as what is used still is seldom far.
  bool StillLeads(const UOp& buffer) {
    const History& h = *HistoryOf(buffer);
    if (Stays(UOp::Make(h.op, h.dtype, h.srcs, h.arg))) return true;
    std::vector<UOp> queue = {buffer};
    absl::flat_hash_set<const Node*> seen = {buffer.get()};
    for (size_t i = 0; i < queue.size(); ++i) {
      if (i > 0 && Is(queue[i])) return true;
      const UOp u = queue[i];
      for (const UOp& s : Sources(u)) {
        if (CarriesDerivatives(s) && !nowhere_.contains(s.get()) && seen.insert(s.get()).second) {
          queue.push_back(s);
        }
      }
    }
    for (const UOp& u : queue) {
      if (!Is(u)) nowhere_.insert(u.get());
    }
    kept_.insert(kept_.end(), queue.begin(), queue.end());
    Buffer& b = *buffer.arg<BufferArg>().buffer;
    b.computed_from = NearestHashes(b.history->srcs);
    forgotten_.push_back(std::exchange(b.history, Forgotten()));
    return false;
  }

  absl::flat_hash_set<const Node*> nodes_, nowhere_;
  std::vector<UOp> kept_;  // so that no other node comes to lie where one of nowhere_ was
  // These die without the lock, as what they hold may be freed by a function of the user's.
  std::vector<std::shared_ptr<const History>> forgotten_;
};

}  // namespace

void KeepHistories(absl::Span<const UOp> expressions, absl::Span<const UOp> buffers) {
  Marked marked;  // outlives the lock
  std::unique_lock lock(Mutex());
  const absl::flat_hash_set<const Node*> depend = marked.Above(expressions);
  for (size_t i = 0; i < expressions.size(); ++i) {
    const UOp& u = expressions[i];
    // An assignment begins anew: no gradient goes through it.
    const bool begins = u.size() == 0 || u.is(Op::kAssign) || !u.dtype().IsFloat();
    if (begins || !buffers[i].is(Op::kBuffer)) continue;
    Buffer& kept = *buffers[i].arg<BufferArg>().buffer;
    // Of a marked tensor's node itself another tensor was computed, as by a Reshape to its shape.
    const bool leads =
        marked.Stays(u) || std::any_of(u.srcs().begin(), u.srcs().end(),
                                       [&](const UOp& s) { return depend.contains(s.get()); });
    if (leads) {
      kept.history = std::make_shared<const History>(
          History{u.op(), u.dtype(), {u.srcs().begin(), u.srcs().end()}, u.arg()});
    } else {
      kept.computed_from = NearestHashes({&u, 1});
    }
  }
}

UOp WithHistory(const UOp& root) {
  absl::flat_hash_map<const Node*, UOp> done;
  std::vector<std::pair<UOp, bool>> stack = {{root, false}};  // node, sources done
  Marked marked;                                              // outlives the lock
  std::unique_lock lock(Mutex());
  bool any = false;
  for (const UOp& u : TopoSort({&root, 1})) any |= marked.StillHasPast(u);
  if (!any) return root;
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
