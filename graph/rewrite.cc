// Pattern matching and the fixed-point driver.
#include "graph/rewrite.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/error.h"
#include "graph/node_map.h"
#include "graph/status.h"

namespace tessera {
namespace {

Pat Binary(Op op, Pat a, Pat b) { return OpPat(op, {std::move(a), std::move(b)}); }

// Whether the node is of the kind that the pattern asks for, its sources left aside.
bool MayMatch(const Pat& p, const UOp& u) {
  if (p.kind == Pat::kAny) return true;
  return p.kind == Pat::kOp ? u.is(p.op) : u.IsConst();
}

bool MatchSources(const Pat& p, const UOp& u, Match& m, bool swapped) {
  const int n = static_cast<int>(p.srcs.size());
  // First what costs nothing: most rules fail here.
  for (int i = 0; i < n; ++i) {
    if (!MayMatch(p.srcs[i], u.src(swapped ? n - 1 - i : i))) return false;
  }
  for (int i = 0; i < n; ++i) {
    if (!TryMatch(p.srcs[i], u.src(swapped ? n - 1 - i : i), m)) return false;
  }
  return true;
}

// The replacement that a pattern on the right side stands for. A literal takes the dtype of its
// first sibling that has one, at the root that of the node replaced.
UOp Instantiate(const Pat& p, const Match& m, DType literal_type) {
  switch (p.kind) {
    case Pat::kAny:
    case Pat::kConst:
      return m[p];
    case Pat::kLiteral:
      return UOp::Const(literal_type, p.literal);
    case Pat::kOp:
      break;
  }
  DType type = literal_type;
  absl::InlinedVector<UOp, 3> srcs(p.srcs.size());
  for (bool literals : {false, true}) {
    for (size_t i = 0; i < p.srcs.size(); ++i) {
      if ((p.srcs[i].kind == Pat::kLiteral) != literals) continue;
      srcs[i] = Instantiate(p.srcs[i], m, type);
      if (!literals) type = srcs[i].dtype();
    }
  }
  return UOp::Make(p.op, srcs);
}

}  // namespace

Pat operator+(Pat a, Pat b) { return Binary(Op::kAdd, std::move(a), std::move(b)); }
Pat operator-(Pat a, Pat b) { return Binary(Op::kSub, std::move(a), std::move(b)); }
Pat operator*(Pat a, Pat b) { return Binary(Op::kMul, std::move(a), std::move(b)); }
Pat operator-(Pat a) { return OpPat(Op::kNeg, {std::move(a)}); }
Pat FloorDivPat(Pat a, Pat b) { return Binary(Op::kFloorDiv, std::move(a), std::move(b)); }
Pat FloorModPat(Pat a, Pat b) { return Binary(Op::kFloorMod, std::move(a), std::move(b)); }
Pat LessPat(Pat a, Pat b) { return Binary(Op::kCmpLt, std::move(a), std::move(b)); }
Pat WherePat(Pat c, Pat a, Pat b) {
  return OpPat(Op::kWhere, {std::move(c), std::move(a), std::move(b)});
}

bool TryMatch(const Pat& p, const UOp& u, Match& m) {
  switch (p.kind) {
    case Pat::kConst:
      if (!u.IsConst()) return false;
      [[fallthrough]];
    case Pat::kAny: {
      UOp& slot = m.slots[p.slot];
      if (slot) return slot == u;
      slot = u;
      return true;
    }
    case Pat::kLiteral: {
      if (!u.IsConst()) return false;
      const Scalar want = Convert(Scalar::Float(p.literal), kFloat64, u.dtype().Scalar());
      return u.arg<Scalar>() == want;
    }
    case Pat::kOp:
      break;
  }
  if (u.op() != p.op || u.size() != static_cast<int>(p.srcs.size())) return false;
  if (!HasProperty(p.op, kCommutative)) return MatchSources(p, u, m, false);
  const Match before = m;
  if (MatchSources(p, u, m, false)) return true;
  m = before;
  return MatchSources(p, u, m, true);
}

RewriteRule::RewriteRule(Pat p, Pat replacement, int line)
    : pattern(std::move(p)),
      replace([r = std::move(replacement)](const Match& m) {
        return Instantiate(r, m, m.root.dtype());
      }),
      line(line) {}

RewriteRule::RewriteRule(Pat p, Replacement r, int line)
    : pattern(std::move(p)), replace(std::move(r)), line(line) {}

RuleSet::RuleSet(std::string name, std::vector<RewriteRule> rules)
    : name_(std::move(name)), rules_(std::move(rules)), by_op_(kOpCount) {
  for (size_t i = 0; i < rules_.size(); ++i) {
    CHECK(rules_[i].pattern.kind == Pat::kOp, name_, ": a rule must have an op at its root");
    by_op_[static_cast<int>(rules_[i].pattern.op)].push_back(static_cast<int>(i));
  }
}

UOp RuleSet::Apply(const UOp& u, const RewriteRule** fired) const {
  for (int i : by_op_[static_cast<int>(u.op())]) {
    const RewriteRule& rule = rules_[i];
    const DType t = u.size() > 0 ? u.src(u.size() - 1).dtype() : u.dtype();
    if (t.IsFloat() && !rule.floats) continue;
    Match m;
    if (!TryMatch(rule.pattern, u, m)) continue;
    m.root = u;
    UOp r = rule.replace(m);
    if (r && !(r == u)) {
      if (fired != nullptr) *fired = &rule;
      return r;
    }
  }
  return UOp();
}

namespace {

// One call of Rewrite, on a stack of its own: graphs are deep.
class Rewriter {
 public:
  Rewriter(absl::Span<const RuleSet* const> sets, bool mark) : sets_(sets), mark_(mark) {}

  std::vector<UOp> Run(absl::Span<const UOp> roots) {
    for (const UOp& r : roots) stack_.push_back({r, kVisit, {}, false});
    while (!stack_.empty()) {
      Frame f = std::move(stack_.back());
      stack_.pop_back();
      Step(f);
    }
    std::vector<UOp> out;
    for (const UOp& r : roots) out.push_back(Result(r));
    return out;
  }

 private:
  // A frame visits a node (kVisit), rebuilds it over its finished sources (kBuild), or waits for
  // the node it was replaced by (kAlias).
  enum Stage : uint8_t { kVisit, kBuild, kAlias };
  struct Frame {
    UOp node;
    Stage stage;
    UOp other;
    bool made;  // by a rule
  };
  struct Done {
    UOp node, result;  // the first is what lies at the map's key, and stays there
  };

  void Set(const UOp& u, const UOp& result) { *done_.TryEmplace(u.get()).first = {u, result}; }
  bool IsSettled(const UOp& u) const {
    return mark_ && u.get()->simplest.load(std::memory_order_relaxed);
  }
  bool IsDone(const UOp& u) const { return IsSettled(u) || done_.Contains(u.get()); }
  const UOp& Result(const UOp& u) { return IsSettled(u) ? u : done_.At(u.get()).result; }

  void Step(const Frame& f) {
    if (f.stage == kAlias) return Set(f.node, UOp(Result(f.other)));
    if (IsDone(f.node)) return;
    if (f.stage == kVisit) {
      visited_ += f.made ? 0 : 1;
      if (VisitSources(f)) return;
    }
    const auto stays = [this](const UOp& s) { return Result(s) == s; };
    if (!std::all_of(f.node.srcs().begin(), f.node.srcs().end(), stays)) return Rebuild(f);
    if (const UOp next = ApplyOnce(f.node)) {
      stack_.push_back({f.node, kAlias, next, true});
      stack_.push_back({next, kVisit, {}, true});
    } else if (mark_) {
      f.node.get()->simplest.store(true, std::memory_order_relaxed);
    } else {
      Set(f.node, f.node);
    }
  }

  // Whether some of them have to be finished first.
  bool VisitSources(const Frame& f) {
    const size_t before = stack_.size();
    for (int i = f.node.size() - 1; i >= 0; --i) {
      const UOp& s = f.node.src(i);
      if (IsDone(s)) continue;
      if (stack_.size() == before) stack_.push_back({f.node, kBuild, {}, f.made});
      stack_.push_back({s, kVisit, {}, f.made});
    }
    return stack_.size() > before;
  }

  void Rebuild(const Frame& f) {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : f.node.srcs()) srcs.push_back(Result(s));
    const UOp built = f.node.WithSrcs(srcs);
    if (IsDone(built)) return Set(f.node, UOp(Result(built)));
    for (const UOp& s : srcs) {  // finished themselves
      if (!IsSettled(s)) done_.TryEmplace(s.get(), {s, s});
    }
    stack_.push_back({f.node, kAlias, built, f.made});
    stack_.push_back({built, kBuild, {}, f.made});
  }

  // What the first rule that fits makes of the node, or nothing.
  UOp ApplyOnce(const UOp& u) {
    for (const RuleSet* set : sets_) {
      const RewriteRule* fired = nullptr;
      UOp next = set->Apply(u, &fired);
      if (!next) continue;
      before_last_ = std::exchange(last_, fired);
      if (++fired_count_ >= 1000 * visited_ + 100000) {
        throw Error(absl::InternalError(absl::StrCat(
            set->name(), ": rules do not come to an end; the last were those at lines ",
            before_last_ ? before_last_->line : 0, " and ", last_->line)));
      }
      return next;
    }
    return UOp();
  }

  const absl::Span<const RuleSet* const> sets_;
  const bool mark_;
  NodeMap<Done> done_;
  absl::InlinedVector<Frame, 16> stack_;
  int64_t fired_count_ = 0, visited_ = 0;  // of the nodes that were there before
  const RewriteRule *last_ = nullptr, *before_last_ = nullptr;
};

}  // namespace

std::vector<UOp> Rewrite(absl::Span<const UOp> roots, absl::Span<const RuleSet* const> sets,
                         bool mark) {
  return Rewriter(sets, mark).Run(roots);
}

UOp Rewrite(const UOp& root, const RuleSet& set, bool mark) {
  const RuleSet* sets[] = {&set};
  return Rewrite({&root, 1}, sets, mark)[0];
}

std::vector<UOp> Substitute(absl::Span<const UOp> roots, const Substitution& map) {
  NodeMap<UOp> done;
  for (const auto& [from, to] : map) done.TryEmplace(from.get(), to);
  // What lies below a replaced node is not looked at.
  std::vector<const UOp*> stack;
  for (const UOp& r : roots) stack.push_back(&r);
  while (!stack.empty()) {
    const UOp& u = *stack.back();
    if (done.Contains(u.get())) {
      stack.pop_back();
      continue;
    }
    const size_t before = stack.size();
    for (int i = u.size() - 1; i >= 0; --i) {
      if (!done.Contains(u.src(i).get())) stack.push_back(&u.src(i));
    }
    if (stack.size() > before) continue;
    stack.pop_back();
    absl::InlinedVector<UOp, 4> srcs;
    bool same = true;
    for (const UOp& s : u.srcs()) {
      srcs.push_back(done.At(s.get()));
      same &= srcs.back() == s;
    }
    done.TryEmplace(u.get(), same ? u : u.WithSrcs(srcs));
  }
  std::vector<UOp> out;
  for (const UOp& r : roots) out.push_back(done.At(r.get()));
  return out;
}

UOp Substitute(const UOp& root, const Substitution& map) { return Substitute({&root, 1}, map)[0]; }

}  // namespace tessera
