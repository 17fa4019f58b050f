// Serialising graphs into plan keys.
#include "runtime/plan_key.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/fault.h"
#include "graph/node_map.h"
#include "graph/number_var.h"
#include "graph/status.h"
#include "runtime/numbers.h"

namespace tessera {
namespace {

// The views of an ASSIGN's target, outermost first, if one of them was computed: it is written all
// the same, so here it is no leaf. Else nothing.
std::vector<UOp> ComputedView(const UOp& u) {
  std::vector<UOp> chain;
  if (!u.is(Op::kAssign)) return chain;
  bool computed = false;
  for (UOp v = u.src(1); !(v == u.src(0)); v = UOp(v.src(0))) {
    computed |= static_cast<bool>(v.realized());
    chain.push_back(v);
  }
  if (!computed) chain.clear();
  return chain;
}

// THREEFRY counts from a constant on: the sum, or nothing.
const UOp* CounterOf(const UOp& u) {
  if (!u.is(Op::kThreefry) || !u.src(0).is(Op::kAdd)) return nullptr;
  const UOp& first = u.src(0).src(1);
  return first.IsConst() && first.arg<Scalar>().bits <= INT64_MAX ? &u.src(0) : nullptr;
}

std::string DrawName(size_t slot) { return absl::StrCat(kDrawVariable, slot); }

class Writer {
 public:
  Writer(PlanKey& key, bool draws_vary) : key_(key), draws_vary_(draws_vary) {}

  void Run(absl::Span<const UOp> roots) {
    // The roots keep every node alive, so the stack need not count.
    std::vector<std::pair<const UOp*, bool>> stack;
    for (auto it = roots.rbegin(); it != roots.rend(); ++it) stack.emplace_back(&*it, false);
    while (!stack.empty()) {
      const UOp& u = *stack.back().first;
      const bool ready = stack.back().second;
      stack.pop_back();
      if (ready) {
        Write(u);
        continue;
      }
      if (!number_.TryEmplace(u.get(), -1).second) continue;
      stack.emplace_back(&u, true);
      if (u.realized()) continue;
      if (const UOp* counter = draws_vary_ ? CounterOf(u) : nullptr)
        counters_.insert(counter->get());
      const bool draw = counters_.contains(u.get());
      if (draw && draws_.try_emplace(u.get(), key_.draws.size()).second) key_.draws.push_back(u);
      const std::vector<UOp> view = ComputedView(u);
      for (int i = u.size() - 1; i >= 0; --i) {
        if (i == 1 && (draw || !view.empty() || StandsForFirst(u))) continue;
        if (!number_.Contains(u.src(i).get())) stack.emplace_back(&u.src(i), false);
      }
      const auto visit = [&](const UOp& e) {
        if (!number_.Contains(e.get())) stack.emplace_back(&e, false);
      };
      ForEachArgUOp(u.arg(), visit);
      for (const UOp& v : view) ForEachArgUOp(v.arg(), visit);
    }
    key_.starts.push_back(static_cast<uint32_t>(key_.words.size()));
    key_.words.push_back(~uint64_t{0});
    for (const UOp& r : roots) {
      key_.roots.push_back(static_cast<int>(number_.At(r.get())));
      key_.words.push_back(key_.roots.back());
    }
  }

 private:
  void Word(uint64_t w) { key_.words.push_back(w); }
  void Number(const UOp& u) {
    key_.refs.push_back(static_cast<uint32_t>(key_.words.size()));
    Word(number_.At(u.get()));
  }
  void Text(const std::string& s) {
    Word(s.size());
    for (size_t i = 0; i < s.size(); i += 8) {
      uint64_t w = 0;
      s.copy(reinterpret_cast<char*>(&w), 8, i);
      Word(w);
    }
  }
  void Write(const Extent& e) {
    Word(e.is_int() ? 0 : 1);
    if (e.is_int()) {
      Word(e.value());
    } else {
      Number(e.expr());
    }
  }
  template <typename List>
  void WriteInts(const List& list) {
    Word(list.size());
    for (int64_t v : list) Word(v);
  }
  template <typename List>
  void WriteExtents(const List& list) {
    Word(list.size());
    for (const Extent& e : list) Write(e);
  }

  void Write(const UOp& u) {
    *number_.TryEmplace(u.get()).first = next_++;
    key_.on_meshes |= u.device().is_sharding();
    key_.order.push_back(u);
    key_.starts.push_back(static_cast<uint32_t>(key_.words.size()));
    const UOp computed = u.realized();
    const UOp& leaf = computed ? computed : u;
    if (leaf.is(Op::kBuffer)) {
      // The same buffer may be reached as itself and as what a node was computed into.
      const auto [it, fresh] = slot_.try_emplace(leaf.get(), key_.leaves.size());
      if (fresh) key_.leaves.push_back(leaf);
      Word(static_cast<uint64_t>(Op::kBuffer));
      Word(it->second);
      Word(static_cast<uint64_t>(u.dtype().kind()));
      WriteExtents(u.shape().dims());
      WriteDevice(u.device());
      return;
    }
    const int size = StandsForFirst(u) ? 1 : u.size();
    Word(static_cast<uint64_t>(u.op()) | static_cast<uint64_t>(u.dtype().kind()) << 8 |
         static_cast<uint64_t>(size) << 16);
    const std::vector<UOp> view = ComputedView(u);
    if (!view.empty()) {
      Number(u.src(0));
      Number(u.src(2));
      Word(~static_cast<uint64_t>(view.size()));  // no number
      for (const UOp& v : view) {
        Word(static_cast<uint64_t>(v.op()));
        WriteArg(v.arg());
      }
      return;
    }
    if (const auto draw = draws_.find(u.get()); draw != draws_.end()) {
      Number(u.src(0));
      Word(~draw->second);  // no number
      return;
    }
    if (StandsForFirst(u)) return Number(u.src(0));
    for (const UOp& s : u.srcs()) Number(s);
    number_words_ = &key_.number_words;
    WriteArg(u.arg());
    number_words_ = nullptr;
  }

  void WritePairs(const Pairs& pairs) {
    Word(pairs.size());
    if (FaultPlanted(Fault::kPlanKeyLacksOffsets)) return;
    for (size_t axis = 0; axis < pairs.size(); ++axis) {
      const auto& [x, y] = pairs[axis];
      Write(x);
      const auto begin = static_cast<uint32_t>(key_.words.size()) - 1;
      Write(y);
      if (x.is_int() && y.is_int()) HoldsNumber(static_cast<int>(axis), begin);
    }
  }
  // The last word, and that at `begin`, hold numbers of the node that is being written.
  void HoldsNumber(int axis, uint32_t begin) {
    if (number_words_ == nullptr) return;
    const auto end = static_cast<uint32_t>(key_.words.size()) - 1;
    number_words_->push_back({static_cast<int>(key_.order.size()) - 1, axis, begin, end});
  }

  void WriteDevice(Device d) { Word(d.id()); }

  void WriteArg(const Arg& arg) {
    std::visit(
        [this](const auto& a) {
          using T = std::decay_t<decltype(a)>;
          if constexpr (std::is_same_v<T, Scalar>) {
            Word(FaultPlanted(Fault::kPlanKeyLacksConstants) ? 0 : a.bits);
            HoldsNumber(-1, static_cast<uint32_t>(key_.words.size()) - 1);
          } else if constexpr (std::is_same_v<T, VarArg>) {
            Text(a.name);
            Word(a.min);
            Word(a.max);
          } else if constexpr (std::is_same_v<T, ParamArg>) {
            Word(a.slot);
            WriteExtents(a.shape);
            WriteDevice(a.device);
          } else if constexpr (std::is_same_v<T, Extents>) {
            WriteExtents(a);
          } else if constexpr (std::is_same_v<T, Ints>) {
            WriteInts(a);
          } else if constexpr (std::is_same_v<T, Pairs>) {
            WritePairs(a);
          } else if constexpr (std::is_same_v<T, WindowArg>) {
            WriteInts(a.axes);
            WriteInts(a.size);
            WriteInts(a.stride);
            WriteInts(a.dilation);
          } else if constexpr (std::is_same_v<T, ReduceArg>) {
            Word(static_cast<uint64_t>(a.op));
            WriteInts(a.axes);
          } else if constexpr (std::is_same_v<T, int64_t>) {
            Word(a);
          } else if constexpr (std::is_same_v<T, Device>) {
            WriteDevice(a);
          } else if constexpr (std::is_same_v<T, std::string>) {
            Text(a);
          } else if constexpr (std::is_same_v<T, RangeArg>) {
            Word(a.id);
            Word(static_cast<uint64_t>(a.kind));
          } else if constexpr (std::is_same_v<T, StageArg>) {
            Word(a.id);
            Word(static_cast<uint64_t>(a.space));
            Word(a.ahead);
          } else if constexpr (std::is_same_v<T, ExchangeArg>) {
            CHECK(false, "an EXCHANGE before localise");
          }  // a BUFFER was written as a leaf, and no argument is no word
        },
        arg.value);
  }

  PlanKey& key_;
  NodeMap<int64_t> number_;
  absl::flat_hash_map<const Node*, uint64_t> slot_, draws_;
  absl::flat_hash_set<const Node*> counters_;  // of draws met so far
  const bool draws_vary_;
  std::vector<PlanKey::NumberWords>* number_words_ = nullptr;  // while an own argument is written
  int64_t next_ = 0;
};

}  // namespace

bool StandsForFirst(const UOp& u) { return u.is(Op::kMark) || u.is(Op::kStandIn); }

PlanKey MakePlanKey(absl::Span<const UOp> roots, bool draws_vary) {
  PlanKey key;
  Writer(key, draws_vary).Run(roots);
  return key;
}

FirstWrites::FirstWrites(const PlanKey& key) {
  for (const UOp& u : key.order) {
    if (u.is(Op::kAssign)) whole_.insert(u.src(1).get());
  }
}

void SetLasting(PlanKey& key, Lasting lasting) {
  if (std::find(lasting.slots.begin(), lasting.slots.end(), true) == lasting.slots.end()) return;
  key.words.push_back(~uint64_t{0});
  key.words.push_back(static_cast<uint64_t>(lasting.most_bytes));
  for (size_t slot = 0; slot < lasting.slots.size(); ++slot) {
    if (lasting.slots[slot]) key.words.push_back(slot);
  }
  key.lasting = std::move(lasting);
}

std::map<std::string, int64_t> KeyBindings(const PlanKey& key) {
  std::map<std::string, int64_t> out;
  for (size_t i = 0; i < key.draws.size(); ++i) {
    out.emplace(DrawName(i), static_cast<int64_t>(key.draws[i].src(1).arg<Scalar>().bits));
  }
  BindNumbers(key, out);
  return out;
}

std::vector<UOp> WithParams(absl::Span<const UOp> roots, const PlanKey& key) {
  absl::flat_hash_map<const Node*, UOp> params;
  for (size_t i = 0; i < key.leaves.size(); ++i) {
    const UOp& leaf = key.leaves[i];
    params[leaf.get()] =
        UOp::Make(Op::kParam, leaf.dtype(), {},
                  ParamArg{static_cast<int64_t>(i), leaf.shape().ToExtents(), leaf.device()});
  }
  return WithParams(roots, key, key.order, params);
}

std::vector<UOp> WithParams(absl::Span<const UOp> roots, const PlanKey& key,
                            absl::Span<const UOp> order,
                            const absl::flat_hash_map<const Node*, UOp>& params) {
  absl::flat_hash_map<const Node*, UOp> begins;  // of draws
  for (size_t i = 0; i < key.draws.size(); ++i) {
    const UOp var = UOp::Make(Op::kVar, kInt64, {}, VarArg{DrawName(i), 0, INT64_MAX});
    begins[key.draws[i].get()] = UOp::Make(Op::kCast, kUInt64, {var});
  }
  absl::flat_hash_map<const Node*, std::vector<int>> numbers;
  for (size_t i = 0; i < key.numbers.size(); ++i) {
    numbers[key.order[key.numbers[i].node].get()].push_back(static_cast<int>(i));
  }
  const auto with_srcs = [&](const UOp& u, absl::Span<const UOp> srcs) {
    const auto it = numbers.find(u.get());
    return it == numbers.end() ? u.WithSrcs(srcs) : WithNumbersVaried(key, it->second, u, srcs);
  };
  NodeMap<UOp> done(order.size());
  for (const UOp& u : order) {
    const UOp computed = u.realized();
    if (auto it = params.find((computed ? computed : u).get()); it != params.end()) {
      done.TryEmplace(u.get(), it->second);
      continue;
    }
    if (StandsForFirst(u)) {
      done.TryEmplace(u.get(), done.At(u.src(0).get()));
      continue;
    }
    absl::InlinedVector<UOp, 4> srcs;
    if (std::vector<UOp> view = ComputedView(u); !view.empty()) {
      const UOp target = done.At(u.src(0).get());
      srcs = {target, target, done.At(u.src(2).get())};
      for (auto v = view.rbegin(); v != view.rend(); ++v) srcs[1] = v->WithSrcs({srcs[1]});
    } else if (const auto begin = begins.find(u.get()); begin != begins.end()) {
      srcs = {done.At(u.src(0).get()), begin->second};
    } else {
      for (const UOp& s : u.srcs()) srcs.push_back(done.At(s.get()));
    }
    done.TryEmplace(u.get(), with_srcs(u, srcs));
  }
  std::vector<UOp> out;
  for (const UOp& r : roots) {
    const UOp& value = done.At(r.get());
    // What stands for the very value of a leaf is a tensor of its own.
    const bool held = value.is(Op::kParam) || value.is(Op::kAssign);
    out.push_back(held && StandsForFirst(r) ? UOp::Make(Op::kContiguous, {value}) : value);
  }
  return out;
}

}  // namespace tessera
