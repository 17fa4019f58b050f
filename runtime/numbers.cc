// Finding the numbers of graphs, and which of them vary from graph to graph.
#include "runtime/numbers.h"

#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/number_var.h"

namespace tessera {
namespace {

constexpr int kGraphsBefore = 2;  // with other numbers, before any of them vary
constexpr size_t kMostFamilies = 4096;
constexpr uint64_t kNumbersFollow = ~uint64_t{0} - 1;

// Graphs that are equal but for their numbers. Two kinds of graphs with one hash are taken for one
// family: then it is a worse guess of what will vary.
struct Family {
  std::vector<int64_t> first;  // the numbers of the one that came first
  std::vector<bool> varies;
  int graphs = 0;
};
struct Families {
  std::mutex mutex;
  absl::flat_hash_map<size_t, Family> by_hash;  // of the words without the numbers
};
Families& AllFamilies() {
  static Families& all = *new Families;
  return all;
}

// Nodes in whose place no VAR is as good: masks, shifts and divisors, which whole kernels are
// recognised by, and what extents are made of.
std::vector<bool> Structural(const PlanKey& key) {
  absl::flat_hash_map<const Node*, size_t> number;
  for (size_t i = 0; i < key.order.size(); ++i) number[key.order[i].get()] = i;
  std::vector<bool> out(key.order.size(), false);
  for (size_t i = key.order.size(); i-- > 0;) {
    const UOp& u = key.order[i];
    if (u.realized()) continue;
    ForEachArgUOp(u.arg(), [&](const UOp& e) { out[number.at(e.get())] = true; });
    const bool passes = out[i] && (IsMovement(u.op()) || IsElementwise(u.op()));
    if (!passes && !RecognisedByNumbers(u)) continue;
    for (const UOp& s : u.srcs()) {
      if (const auto it = number.find(s.get()); it != number.end()) out[it->second] = true;
    }
  }
  return out;
}

struct Found {
  PlanKey::Number number;
  uint32_t word;  // in which it stands
  bool is_pair;   // of extents, of which the second is as far from this as always
  int64_t mate;   // what stands for the second then
};

std::vector<Found> NumbersOf(const PlanKey& key) {
  std::vector<Found> out;
  const std::vector<bool> structural = Structural(key);
  for (size_t i = 0; i < key.order.size(); ++i) {
    const UOp& u = key.order[i];
    const int node = static_cast<int>(i);
    const uint32_t start = key.starts[i];
    if (u.realized() || structural[i]) continue;
    if (u.IsConst() && !u.dtype().IsBool()) {
      out.push_back({{node, -1, NumberOf(u)}, start + 1, false, 0});
      continue;
    }
    if (!u.is(Op::kShrink) && !u.is(Op::kPad)) continue;
    if (u.device().is_sharding() || !u.src(0).shape().is_static()) continue;
    const Pairs& pairs = u.arg<Pairs>();
    for (int axis = 0; axis < static_cast<int>(pairs.size()); ++axis) {
      const auto& [a, b] = pairs[axis];
      if (!a.is_int() || !b.is_int()) continue;
      const int64_t mate = u.is(Op::kShrink) ? b.value() - a.value() : a.value() + b.value();
      const bool still = u.is(Op::kShrink) ? u.src(0).shape()[axis].is_int(mate) : mate == 0;
      if (still) continue;
      // After the node's word, that of its source and the length; an extent has two.
      out.push_back({{node, axis, a.value()}, start + 4 + 4 * axis, true, mate});
    }
  }
  return out;
}

std::string NameOf(size_t slot) { return absl::StrCat("@number", slot); }

UOp VarOf(size_t slot, int64_t min, int64_t max) {
  return UOp::Make(Op::kVar, kInt64, {}, VarArg{NameOf(slot), min, max});
}

}  // namespace

bool LetNumbersVary(PlanKey& key) {
  const int64_t vary = IntFlag(Flag::kVary);
  if (vary < 1) return false;
  const std::vector<Found> found = NumbersOf(key);
  if (found.empty()) return false;
  std::vector<uint64_t> words = key.words;
  for (const Found& f : found) {
    words[f.word] = 0;
    if (f.is_pair) words[f.word + 2] = static_cast<uint64_t>(f.mate);
  }
  std::vector<bool> varies(found.size(), true);
  if (vary == 1) {
    Families& all = AllFamilies();
    std::lock_guard lock(all.mutex);
    const size_t hash = absl::HashOf(words);
    if (all.by_hash.size() >= kMostFamilies && !all.by_hash.contains(hash)) all.by_hash.clear();
    Family& family = all.by_hash[hash];
    if (family.first.size() != found.size()) family = {};
    if (family.graphs++ == 0) {
      for (const Found& f : found) family.first.push_back(f.number.value);
      family.varies.resize(found.size());
    }
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].number.value != family.first[i]) family.varies[i] = true;
    }
    if (family.graphs <= kGraphsBefore) return false;
    varies = family.varies;
  }
  words.push_back(kNumbersFollow);
  for (size_t i = 0; i < found.size(); ++i) {
    const Found& f = found[i];
    if (varies[i]) {
      words.push_back(i);
      key.numbers.push_back(f.number);
    } else {
      words[f.word] = key.words[f.word];
      if (f.is_pair) words[f.word + 2] = key.words[f.word + 2];
    }
  }
  if (key.numbers.empty()) return false;
  key.words = std::move(words);
  return true;
}

void BindNumbers(const PlanKey& key, std::map<std::string, int64_t>& bindings) {
  for (size_t i = 0; i < key.numbers.size(); ++i) bindings.emplace(NameOf(i), key.numbers[i].value);
}

UOp WithNumbersVaried(const PlanKey& key, absl::Span<const int> slots, const UOp& u,
                      absl::Span<const UOp> srcs) {
  if (u.IsConst()) return ConstantFrom(u.dtype(), NameOf(slots[0]));
  Pairs pairs = u.arg<Pairs>();
  for (int slot : slots) {
    auto& [a, b] = pairs[key.numbers[slot].axis];
    const bool shrink = u.is(Op::kShrink);
    const int64_t size = shrink ? b.value() - a.value() : a.value() + b.value();
    const int64_t most = shrink ? u.src(0).shape()[key.numbers[slot].axis].value() - size : size;
    const Extent begin(VarOf(slot, 0, most));
    a = begin;
    b = shrink ? begin + size : size - begin;
  }
  return UOp::Make(u.op(), srcs, std::move(pairs));
}

void ForgetNumbers() {
  Families& all = AllFamilies();
  std::lock_guard lock(all.mutex);
  all.by_hash.clear();
}

}  // namespace tessera
