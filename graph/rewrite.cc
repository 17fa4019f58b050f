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

std::vector<UOp> Rewrite(absl::Span<const UOp> roots, absl::Span<const RuleSet* const> sets,
                         bool mark) {
  struct Done {
    UOp node, result;  // the first is what lies at the map's key, and stays there
  };
  NodeMap<Done> done;
  const auto set = [&done](const UOp& u, const UOp& result) {
    *done.TryEmplace(u.get()).first = {u, result};
  };
  const auto is_settled = [mark](const UOp& u) {
    return mark && u.get()->simplest.load(std::memory_order_relaxed);
  };
  const auto result = [&](const UOp& u) -> const UOp& {
    return is_settled(u) ? u : done.At(u.get()).result;
  };
  const auto is_done = [&](const UOp& u) { return is_settled(u) || done.Contains(u.get()); };
  // A frame visits a node (kVisit), rebuilds it over its finished sources (kBuild), or waits for
  // the node it was replaced by (kAlias).
  enum Stage : uint8_t { kVisit, kBuild, kAlias };
  struct Frame {
    UOp node;
    Stage stage;
    UOp other;
    bool made;  // by a rule
  };
  absl::InlinedVector<Frame, 16> stack;
  for (const UOp& r : roots) stack.push_back({r, kVisit, {}, false});
  int64_t fired_count = 0, visited = 0;  // of the nodes that were there before
  const RewriteRule *last = nullptr, *before_last = nullptr;
  while (!stack.empty()) {
    Frame f = std::move(stack.back());
    stack.pop_back();
    if (f.stage == kAlias) {
      set(f.node, UOp(result(f.other)));
      continue;
    }
    if (is_done(f.node)) continue;
    if (f.stage == kVisit) {
      visited += f.made ? 0 : 1;
      const size_t before = stack.size();
      for (int i = f.node.size() - 1; i >= 0; --i) {
        const UOp& s = f.node.src(i);
        if (is_done(s)) continue;
        if (stack.size() == before) stack.push_back({f.node, kBuild, {}, f.made});
        stack.push_back({s, kVisit, {}, f.made});
      }
      if (stack.size() > before) continue;
    }
    const auto stays = [&](const UOp& s) { return result(s) == s; };
    if (!std::all_of(f.node.srcs().begin(), f.node.srcs().end(), stays)) {
      absl::InlinedVector<UOp, 4> srcs;
      for (const UOp& s : f.node.srcs()) srcs.push_back(result(s));
      const UOp built = f.node.WithSrcs(srcs);
      if (is_done(built)) {
        set(f.node, UOp(result(built)));
      } else {
        for (const UOp& s : srcs) {  // finished themselves
          if (!is_settled(s)) done.TryEmplace(s.get(), {s, s});
        }
        stack.push_back({f.node, kAlias, built, f.made});
        stack.push_back({built, kBuild, {}, f.made});
      }
      continue;
    }
    UOp next;
    for (const RuleSet* set : sets) {
      const RewriteRule* fired = nullptr;
      next = set->Apply(f.node, &fired);
      if (!next) continue;
      before_last = std::exchange(last, fired);
      if (++fired_count >= 1000 * visited + 100000) {
        throw Error(absl::InternalError(absl::StrCat(
            set->name(), ": rules do not come to an end; the last were those at lines ",
            before_last ? before_last->line : 0, " and ", last->line)));
      }
      break;
    }
    if (!next) {
      if (mark) {
        f.node.get()->simplest.store(true, std::memory_order_relaxed);
      } else {
        set(f.node, f.node);
      }
    } else {
      stack.push_back({f.node, kAlias, next, true});
      stack.push_back({next, kVisit, {}, true});
    }
  }
  std::vector<UOp> out;
  for (const UOp& r : roots) out.push_back(result(r));
  return out;
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
