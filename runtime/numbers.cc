// Finding the numbers of graphs, and which of them vary from graph to graph.
#include "runtime/numbers.h"

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/hash.h"
#include "graph/node_map.h"
#include "graph/number_var.h"

namespace tessera {
namespace {

constexpr int kGraphsBefore = 2;   // with other numbers, before any of them vary
constexpr size_t kWaysBefore = 4;  // of other numbers that decide the way, before those vary
constexpr size_t kMostFamilies = 4096;
constexpr uint64_t kNumbersFollow = ~uint64_t{0} - 1;

// Graphs that are equal but for their numbers. Two kinds of graphs with one hash are taken for one
// family: then it is a worse guess of what will vary.
struct Family {
  std::vector<int64_t> first;  // the numbers of the one that came first
  std::vector<bool> varies;
  int graphs = 0;
  // Hashes of the numbers that decided the way, of the first few that were different.
  std::vector<size_t> ways;
};
struct Families {
  std::mutex mutex;
  absl::flat_hash_map<size_t, Family> by_hash;  // of the words without the numbers
};
Families& AllFamilies() {
  static Families& all = *new Families;
  return all;
}

// What a number in the place of a node would decide: nothing but itself, the way that a kernel is
// computed, or extents.
enum class Decides : uint8_t { kNothing, kWay, kExtents };

// Masks, shifts and divisors are what whole kernels are recognised by, and known ones are cheaper:
// they decide the way. Of what extents are made, every number is known.
std::vector<Decides> DecidedBy(const PlanKey& key) {
  NodeMap<size_t> number(key.order.size());
  for (size_t i = 0; i < key.order.size(); ++i) number.TryEmplace(key.order[i].get(), i);
  std::vector<Decides> out(key.order.size(), Decides::kNothing);
  const auto raise = [&](const UOp& u, Decides to) {
    if (const size_t* at = number.Find(u.get())) out[*at] = std::max(out[*at], to);
  };
  for (size_t i = key.order.size(); i-- > 0;) {
    const UOp& u = key.order[i];
    if (u.realized()) continue;
    ForEachArgUOp(u.arg(), [&](const UOp& e) { raise(e, Decides::kExtents); });
    if (u.is(Op::kLoop)) raise(u.src(1), Decides::kExtents);  // the turns, of stacks
    const Decides own = out[i];
    const bool moves = IsMovement(u.op());
    if (own == Decides::kExtents && (moves || IsElementwise(u.op()))) {
      for (const UOp& s : u.srcs()) raise(s, own);
    } else if (RecognisedByNumbers(u)) {
      for (const UOp& s : u.srcs()) raise(s, Decides::kWay);
    } else if (own == Decides::kWay && (moves || u.is(Op::kCast))) {
      raise(u.src(0), own);
    }
  }
  return out;
}

struct Found {
  PlanKey::Number number;
  PlanKey::NumberWords at;
  int64_t mate;  // of a pair, what stands for the end: it is as far from the begin as always
  bool decides_way = false;
  bool is_pair() const { return at.axis >= 0; }
};

std::vector<Found> NumbersOf(const PlanKey& key) {
  std::vector<Found> out;
  const std::vector<Decides> decides = DecidedBy(key);
  for (const PlanKey::NumberWords& at : key.number_words) {
    const UOp& u = key.order[at.node];
    if (decides[at.node] == Decides::kExtents) continue;
    const bool way = decides[at.node] == Decides::kWay;
    if (u.IsConst()) {
      if (!u.dtype().IsBool()) out.push_back({{at.node, -1, NumberOf(u)}, at, 0, way});
      continue;
    }
    if (u.device().is_sharding() || !u.src(0).shape().is_static()) continue;
    const auto& [a, b] = u.arg<Pairs>()[at.axis];
    const int64_t begin = a.value(), end = b.value();
    const int64_t mate = u.is(Op::kShrink) ? end - begin : begin + end;
    const bool still = u.is(Op::kShrink) ? u.src(0).shape()[at.axis].is_int(mate) : mate == 0;
    if (!still) out.push_back({{at.node, at.axis, begin}, at, mate, way});
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
    words[f.at.begin] = 0;
    if (f.is_pair()) words[f.at.end] = static_cast<uint64_t>(f.mate);
  }
  std::vector<bool> varies(found.size(), true);
  if (vary == 1) {
    Families& all = AllFamilies();
    std::lock_guard lock(all.mutex);
    const size_t hash = HashAll(words);
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
    std::vector<int64_t> way;
    for (const Found& f : found) {
      if (f.decides_way) way.push_back(f.number.value);
    }
    const size_t way_hash = HashAll(way);
    const bool new_way =
        std::find(family.ways.begin(), family.ways.end(), way_hash) == family.ways.end();
    if (new_way && family.ways.size() <= kWaysBefore) family.ways.push_back(way_hash);
    if (family.graphs <= kGraphsBefore) return false;
    varies = family.varies;
    for (size_t i = 0; i < found.size() && family.ways.size() <= kWaysBefore; ++i) {
      if (found[i].decides_way) varies[i] = false;
    }
  }
  words.push_back(kNumbersFollow);
  for (size_t i = 0; i < found.size(); ++i) {
    const Found& f = found[i];
    if (varies[i]) {
      words.push_back(i);
      key.numbers.push_back(f.number);
    } else {
      words[f.at.begin] = key.words[f.at.begin];
      words[f.at.end] = key.words[f.at.end];
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
