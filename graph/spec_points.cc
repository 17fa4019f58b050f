// Points of loops, chosen and evaluated.
#include "graph/spec_points.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/fold.h"

namespace tessera {
namespace {

constexpr uint64_t kFewPoints = 1024;
constexpr int kPointsBetween = 24;
constexpr size_t kMostTurns = 16;
constexpr uint64_t kAlongALoop = 24;

bool IsNamed(const UOp& u, absl::string_view name) {
  return u.is(Op::kVar) && u.arg<VarArg>().name == name;
}

// What the values of a node lie between: of the highest or lowest of some, that of these.
const UOp& BoundsOf(const UOp& u) {
  if (!u.is(Op::kReduce) || u.size() < 2) return u;
  const Op op = u.arg<ReduceArg>().op;
  const bool runs = std::all_of(u.srcs().begin() + 1, u.srcs().end(), [](const UOp& r) {
    return r.is(Op::kRange) && r.src(0).vmin() > 0;
  });
  return runs && (op == Op::kMax || op == Op::kMin) ? u.src(0) : u;
}

// How many integers lie between two, both counted; saturates.
uint64_t CountBetween(int64_t low, int64_t high) {
  if (high < low) return 0;
  const uint64_t between = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  return between == UINT64_MAX ? between : between + 1;
}

uint64_t Magnitude(int64_t v) {
  return v < 0 ? -static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}

}  // namespace

SpecPoints::SpecPoints(std::vector<UOp> expressions, Reads reads, int64_t& budget, Blocks blocks)
    : reads_(reads), blocks_known_(blocks), budget_(budget) {
  for (const UOp& e : expressions) Add(e);
  for (const UOp& e : expressions) roots_.push_back(index_.at(e.get()));
  // A worker is below the number of workers, which is therefore chosen first.
  for (int i = 0; i < static_cast<int>(entries_.size()); ++i) {
    if (IsNamed(entries_[i].node, "rt_workers")) workers_ = i;
    if (IsNamed(entries_[i].node, "rt_blocks")) blocks_ = i;
    const Kind kind = entries_[i].kind;
    if (kind == Kind::kRange || kind == Kind::kVar || kind == Kind::kAny) free_.push_back(i);
  }
  choices_.assign(entries_.size(), kLowest);
  values_.resize(entries_.size());
  known_.resize(entries_.size());
  budget_ -= 4 * static_cast<int64_t>(entries_.size());
}

void SpecPoints::Add(const UOp& expression) {
  std::vector<std::pair<UOp, bool>> stack = {{expression, false}};
  while (!stack.empty()) {
    const auto [u, done] = stack.back();
    stack.pop_back();
    if (index_.contains(u.get())) continue;
    const bool integer = u.dtype().lanes() == 1 && (u.dtype().IsInt() || u.dtype().IsBool());
    Kind kind = integer && reads_ == Reads::kAny ? Kind::kAny : Kind::kUnknown;
    if (!integer) {
      kind = Kind::kUnknown;
    } else if (u.is(Op::kConst)) {
      kind = Kind::kConst;
    } else if (u.is(Op::kVar)) {
      // What each place has is one at a place: several are not chosen apart.
      const std::string& name = u.arg<VarArg>().name;
      const bool block = name == "rt_block" || name == "rt_blocks";
      kind = name[0] == '@' || (block && blocks_known_ == Blocks::kUnknown) ? Kind::kUnknown
                                                                            : Kind::kVar;
    } else if (u.is(Op::kRange)) {
      kind = Kind::kRange;
    } else if (IsElementwise(u.op())) {
      kind = Kind::kElementwise;
      // Floats are not followed.
      for (const UOp& s : u.srcs()) {
        if (s.dtype().IsFloat() || s.dtype().lanes() != 1) kind = Kind::kUnknown;
      }
      if (kind == Kind::kUnknown && reads_ == Reads::kAny) kind = Kind::kAny;
    }
    Entry entry{u, kind, {}};
    if (kind == Kind::kElementwise || kind == Kind::kRange) {
      if (!done) {
        stack.emplace_back(u, true);
        for (const UOp& s : u.srcs()) stack.emplace_back(s, false);
        continue;
      }
      for (const UOp& s : u.srcs()) entry.srcs.push_back(index_.at(s.get()));
    }
    index_.emplace(u.get(), static_cast<int>(entries_.size()));
    entries_.push_back(std::move(entry));
  }
}

std::optional<int64_t> SpecPoints::Of(int entry) const {
  if (!known_[entry]) return std::nullopt;
  return values_[entry].AsInt();
}

std::string SpecPoints::Where() const {
  std::string out;
  for (int f : free_) {
    const UOp& u = entries_[f].node;
    const std::optional<int64_t> value = Of(f);
    if (!value) continue;
    absl::StrAppend(&out, out.empty() ? "" : ", ",
                    u.is(Op::kRange) ? absl::StrCat("r", u.arg<RangeArg>().id)
                    : u.is(Op::kVar) ? u.arg<VarArg>().name
                                     : absl::StrCat("a ", Info(u.op()).text),
                    " = ", *value);
  }
  return out.empty() ? "each point" : out;
}

uint64_t SpecPoints::MostValues(int entry) const {
  const UOp& u = BoundsOf(entries_[entry].node);
  return CountBetween(u.vmin(), u.vmax());
}

bool SpecPoints::Take(int entry, int64_t lowest, int64_t step, uint64_t count) {
  if (count == 0) return false;
  const uint64_t choice = choices_[entry];
  const uint64_t number = choice == kLowest ? 0 : choice == kHighest ? count - 1 : choice - kFirst;
  if (number >= count) return false;
  values_[entry] = Scalar::Int(
      static_cast<int64_t>(static_cast<uint64_t>(lowest) + number * static_cast<uint64_t>(step)));
  known_[entry] = true;
  return true;
}

bool SpecPoints::EvaluateRange(int entry) {
  const Entry& e = entries_[entry];
  for (int s : e.srcs) {
    if (known_[s]) continue;
    known_[entry] = false;
    return true;
  }
  const auto src = [&](int k) { return values_[e.srcs[k]].AsInt(); };
  if (e.srcs.size() == 1) {
    return Take(entry, 0, 1, static_cast<uint64_t>(std::max<int64_t>(0, src(0))));
  }
  const int64_t begin = src(0), end = src(1), step = src(2);
  if (step <= 0 || begin >= end) return false;
  const uint64_t length = static_cast<uint64_t>(end) - static_cast<uint64_t>(begin);
  return Take(entry, begin, step, (length - 1) / static_cast<uint64_t>(step) + 1);
}

bool SpecPoints::EvaluateVar(int entry) {
  const UOp& u = entries_[entry].node;
  int64_t highest = u.vmax();
  const int above = IsNamed(u, "rt_worker") ? workers_ : IsNamed(u, "rt_block") ? blocks_ : -1;
  if (above >= 0) {
    if (above > entry && !EvaluateVar(above)) return false;
    highest = std::min(highest, values_[above].AsInt() - 1);
  }
  return Take(entry, u.vmin(), 1, CountBetween(u.vmin(), highest));
}

void SpecPoints::EvaluateElementwise(int entry) {
  const Entry& e = entries_[entry];
  const Op op = e.node.op();
  const auto is = [&](int k, int64_t value) {
    return known_[e.srcs[k]] && values_[e.srcs[k]].AsInt() == value;
  };
  const bool logical = e.node.dtype().IsBool();
  known_[entry] = true;
  if (op == Op::kWhere && known_[e.srcs[0]]) {
    const int chosen = e.srcs[values_[e.srcs[0]].bits ? 1 : 2];
    known_[entry] = known_[chosen];
    values_[entry] = values_[chosen];
    return;
  }
  // What decides by itself does so whatever the other operand is.
  if (op == Op::kAnd && (is(0, 0) || is(1, 0))) return void(values_[entry] = Scalar::Int(0));
  if (logical && op == Op::kOr && (is(0, 1) || is(1, 1))) {
    return void(values_[entry] = Scalar::Int(1));
  }
  absl::InlinedVector<Scalar, 3> args;
  for (int s : e.srcs) {
    if (!known_[s]) return void(known_[entry] = false);
    args.push_back(values_[s]);
  }
  const DType operand = e.node.src(op == Op::kWhere ? 1 : 0).dtype();
  values_[entry] = EvaluateScalarOp(op, e.node.dtype(), operand, args);
}

bool SpecPoints::Evaluate() {
  budget_ -= static_cast<int64_t>(entries_.size());
  for (int i = 0; i < static_cast<int>(entries_.size()); ++i) {
    const Entry& e = entries_[i];
    switch (e.kind) {
      case Kind::kConst:
        values_[i] = e.node.arg<Scalar>();
        known_[i] = true;
        break;
      case Kind::kUnknown:
        known_[i] = false;
        break;
      case Kind::kElementwise:
        EvaluateElementwise(i);
        break;
      case Kind::kRange:
        if (!EvaluateRange(i)) return false;
        break;
      case Kind::kVar:
        if (!EvaluateVar(i)) return false;
        break;
      case Kind::kAny:
        if (!Take(i, BoundsOf(e.node).vmin(), 1, MostValues(i))) return false;
        break;
    }
  }
  return true;
}

bool SpecPoints::AreFew() const {
  uint64_t points = 1;
  for (int f : free_) {
    const uint64_t n = MostValues(f);
    if (n > kFewPoints || points * n > kFewPoints) return false;
    points *= n;
  }
  return true;
}

bool SpecPoints::VisitEach(Visitor fn) {
  if (!AreFew()) return false;
  uint64_t points = 1;
  for (int f : free_) points *= MostValues(f);
  for (uint64_t p = 0; p < points && budget_ > 0; ++p) {
    uint64_t rest = p;
    for (int f : free_) {
      // A range in steps has fewer values than its bounds are apart.
      const uint64_t n = MostValues(f);
      choices_[f] = kFirst + (n == 0 ? 0 : rest % n);
      rest /= std::max<uint64_t>(1, n);
    }
    if (Evaluate() && !fn()) return false;
  }
  return budget_ > 0;
}

bool SpecPoints::VisitExtreme(Visitor fn, bool highest) {
  std::optional<int64_t> best;
  const auto better = [&]() -> std::optional<bool> {
    if (!Evaluate()) return false;
    if (!fn()) return std::nullopt;
    const std::optional<int64_t> now = At(0);
    if (!now || (best && (highest ? *now <= *best : *now >= *best))) return false;
    best = now;
    return true;
  };
  std::fill(choices_.begin(), choices_.end(), kLowest);
  if (!better()) return false;
  for (int f : free_) {
    if (budget_ <= 0) return false;
    choices_[f] = kHighest;
    const std::optional<bool> is_better = better();
    if (!is_better) return false;
    if (!*is_better) choices_[f] = kLowest;
  }
  return true;
}

std::vector<SpecPoints::Turn> SpecPoints::Turns() const {
  std::vector<Turn> turns;
  // The last entries first: they are what the expressions are, and decide most.
  for (int i = static_cast<int>(entries_.size()) - 1; i >= 0 && turns.size() < kMostTurns; --i) {
    const Entry& e = entries_[i];
    if (e.kind != Kind::kElementwise) continue;
    const Op op = e.node.op();
    const bool compares =
        op == Op::kCmpLt || op == Op::kCmpLe || op == Op::kCmpEq || op == Op::kCmpNe;
    const bool divides =
        op == Op::kFloorDiv || op == Op::kFloorMod || op == Op::kTruncDiv || op == Op::kTruncMod;
    if (compares || divides) turns.push_back({e.srcs[0], e.srcs[1], 0});
    if (op == Op::kCast && e.node.dtype().IsInt() && e.node.src(0).dtype().IsInt() &&
        e.node.src(0).vmax() > MaxInt(e.node.dtype())) {
      turns.push_back({e.srcs[0], -1, MaxInt(e.node.dtype())});
    }
  }
  return turns;
}

std::optional<int64_t> SpecPoints::ValueOf(const Turn& t) const {
  if (!known_[t.entry] || (t.less >= 0 && !known_[t.less])) return std::nullopt;
  int64_t value = 0;
  const int64_t less = t.less >= 0 ? values_[t.less].AsInt() : t.number;
  if (__builtin_sub_overflow(values_[t.entry].AsInt(), less, &value)) return std::nullopt;
  return value;
}

uint64_t SpecPoints::NumberOf(int entry) const {
  const Entry& e = entries_[entry];
  const auto value = static_cast<uint64_t>(values_[entry].AsInt());
  if (e.kind != Kind::kRange) return value - static_cast<uint64_t>(BoundsOf(e.node).vmin());
  if (e.srcs.size() == 1) return value;
  const auto begin = static_cast<uint64_t>(values_[e.srcs[0]].AsInt());
  return (value - begin) / static_cast<uint64_t>(values_[e.srcs[2]].AsInt());
}

// By how much a turn's value grows where each free entry alone goes a step up from a corner, those
// that change it most first.
std::vector<SpecPoints::Stride> SpecPoints::StridesAt(uint64_t corner, const Turn& t,
                                                      int64_t begin) {
  std::vector<Stride> strides;
  for (int f : free_) {
    if (known_[f]) strides.push_back({f, 0, NumberOf(f)});
  }
  for (Stride& s : strides) {
    if (budget_ <= 0) break;
    choices_[s.entry] = kFirst + (s.number == 0 ? 1 : s.number - 1);
    const std::optional<int64_t> value = Evaluate() ? ValueOf(t) : std::nullopt;
    choices_[s.entry] = corner;
    if (!value) continue;
    const auto [above, below] = s.number == 0 ? std::pair(*value, begin) : std::pair(begin, *value);
    if (__builtin_sub_overflow(above, below, &s.up)) s.up = 0;
  }
  std::sort(strides.begin(), strides.end(),
            [](const Stride& a, const Stride& b) { return Magnitude(a.up) > Magnitude(b.up); });
  return strides;
}

// From a corner, along one loop after another, those of the longest strides first, as far towards
// the turn as whole strides go: as a number is written in digits.
void SpecPoints::GoTowards(int64_t target, uint64_t corner, const Turn& t, int64_t begin,
                           absl::Span<const Stride> strides) {
  std::fill(choices_.begin(), choices_.end(), corner);
  int64_t now = begin;
  for (const Stride& s : strides) {
    int64_t missing = 0;
    if (s.up == 0 || budget_ <= 0 || __builtin_sub_overflow(target, now, &missing)) return;
    const uint64_t by = Magnitude(missing) / Magnitude(s.up), most = MostValues(s.entry);
    const uint64_t above = s.number < most ? most - 1 - s.number : 0;
    const bool down = (missing < 0) != (s.up < 0);
    choices_[s.entry] =
        kFirst + (down ? s.number - std::min(by, s.number) : s.number + std::min(by, above));
    const std::optional<int64_t> value = Evaluate() ? ValueOf(t) : std::nullopt;
    if (!value) choices_[s.entry] = corner;
    now = value.value_or(now);
  }
}

bool SpecPoints::VisitTurn(Visitor fn, const Turn& t) {
  for (const uint64_t corner : {kLowest, kHighest}) {
    std::fill(choices_.begin(), choices_.end(), corner);
    const std::optional<int64_t> begin = Evaluate() ? ValueOf(t) : std::nullopt;
    if (!begin) continue;
    const std::vector<Stride> strides = StridesAt(corner, t, *begin);
    for (const int64_t target : {-1, 0, 1}) {
      GoTowards(target, corner, t, *begin, strides);
      if (Evaluate() && !fn()) return false;
    }
  }
  return true;
}

void SpecPoints::Visit(Visitor fn) {
  if (AreFew()) return void(VisitEach(fn));
  if (!VisitExtreme(fn, true) || !VisitExtreme(fn, false)) return;
  for (const Turn& t : Turns()) {
    if (!VisitTurn(fn, t)) return;
  }
  std::mt19937_64 rng(1);
  for (int p = 0; p < kPointsBetween && budget_ > 0; ++p) {
    for (int f : free_) {
      const uint64_t most = std::max<uint64_t>(1, MostValues(f));
      const uint64_t number = rng() % (p % 2 == 0 ? most : std::min<uint64_t>(most, 8));
      choices_[f] = rng() % 4 < 2 ? kFirst + number : rng() % 2;
    }
    if (Evaluate() && !fn()) return;
  }
}

void SpecPoints::VisitPairs(absl::string_view variable, absl::FunctionRef<bool(Values)> fn) {
  const auto it = std::find_if(free_.begin(), free_.end(),
                               [&](int f) { return IsNamed(entries_[f].node, variable); });
  std::vector<std::optional<int64_t>> first(roots_.size());
  std::mt19937_64 rng(1);
  for (int p = 0; p < kPointsBetween && budget_ > 0; ++p) {
    for (int f : free_) {
      const uint64_t most = std::clamp<uint64_t>(MostValues(f), 1, 8);
      choices_[f] = kFirst + (p < 2 ? 0 : rng() % most);
    }
    if (it != free_.end()) choices_[*it] = kLowest;
    if (!Evaluate()) continue;
    for (size_t i = 0; i < roots_.size(); ++i) first[i] = At(static_cast<int>(i));
    if (it != free_.end()) choices_[*it] = p % 2 == 0 ? kFirst + 1 : kHighest;
    if (Evaluate() && !fn(first)) return;
  }
}

void SpecPoints::VisitAlongLoops(Visitor fn) {
  const auto reset = [&](int place) {
    for (int f : free_) {
      choices_[f] = entries_[f].kind == Kind::kVar ? kHighest : place == 0 ? kLowest : kHighest;
    }
  };
  reset(0);
  std::vector<int> loops;
  uint64_t points = 1;
  for (int f : free_) {
    if (entries_[f].kind != Kind::kRange) continue;
    loops.push_back(f);
    const uint64_t n = MostValues(f);
    points = n > kFewPoints || points * n > kFewPoints ? UINT64_MAX : points * n;
    if (points == UINT64_MAX) break;
  }
  if (points != UINT64_MAX) {
    for (uint64_t p = 0; p < points && budget_ > 0; ++p) {
      uint64_t rest = p;
      for (int f : loops) {
        const uint64_t n = std::max<uint64_t>(1, MostValues(f));
        choices_[f] = kFirst + rest % n;
        rest /= n;
      }
      if (Evaluate() && !fn()) return;
    }
    return;
  }
  for (int place = 0; place < 2; ++place) {
    for (int f : free_) {
      if (entries_[f].kind != Kind::kRange) continue;
      reset(place);
      const uint64_t values = std::min(MostValues(f), kAlongALoop);
      for (uint64_t v = 0; v < values && budget_ > 0; ++v) {
        choices_[f] = kFirst + v;
        if (Evaluate() && !fn()) return;
      }
    }
  }
}

}  // namespace tessera
