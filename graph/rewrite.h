// Rewriting: rules as values (pattern -> replacement), and the one driver that applies them.
//
// A rule is one line: {x + 0, x} or {x * c0, [](const Match& m) -> UOp {...}}. A pattern is built
// from slots (Any, ConstAny), literals and ops; a slot used twice must match one node. A function
// on the right side returns the replacement, or nothing where its side condition does not hold.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "graph/uop.h"

namespace tessera {

struct Pat {
  enum Kind : uint8_t { kAny, kConst, kLiteral, kOp };
  Kind kind = kAny;
  int slot = -1;
  double literal = 0;
  Op op{};
  std::vector<Pat> srcs;
};

inline constexpr int kPatSlots = 6;

struct Match {
  std::array<UOp, kPatSlots> slots;
  UOp root;
  const UOp& operator[](const Pat& p) const { return slots[p.slot]; }
};

inline Pat Any(int slot) { return {Pat::kAny, slot, 0, Op{}, {}}; }
inline Pat ConstAny(int slot) { return {Pat::kConst, slot, 0, Op{}, {}}; }
inline Pat Literal(double v) { return {Pat::kLiteral, -1, v, Op{}, {}}; }
inline Pat OpPat(Op op, std::vector<Pat> srcs) { return {Pat::kOp, -1, 0, op, std::move(srcs)}; }

Pat operator+(Pat a, Pat b);
Pat operator-(Pat a, Pat b);
Pat operator*(Pat a, Pat b);
Pat operator-(Pat a);
Pat FloorDivPat(Pat a, Pat b);
Pat FloorModPat(Pat a, Pat b);
Pat LessPat(Pat a, Pat b);
Pat WherePat(Pat c, Pat a, Pat b);

using Replacement = std::function<UOp(const Match&)>;

struct RewriteRule {
  Pat pattern;
  Replacement replace;
  int line;            // where it is written: its name
  bool floats = true;  // applies to floating dtypes too
  RewriteRule(Pat p, Pat replacement, int line = __builtin_LINE());
  RewriteRule(Pat p, Replacement r, int line = __builtin_LINE());
  RewriteRule& IntsOnly() {
    floats = false;
    return *this;
  }
};

// Rules under a name, indexed by the op at their root.
class RuleSet {
 public:
  RuleSet(std::string name, std::vector<RewriteRule> rules);
  const std::string& name() const { return name_; }
  const std::vector<RewriteRule>& rules() const { return rules_; }
  // The first replacement that a rule gives for u, or nothing; `fired` names the rule.
  UOp Apply(const UOp& u, const RewriteRule** fired = nullptr) const;

 private:
  std::string name_;
  std::vector<RewriteRule> rules_;
  std::vector<std::vector<int>> by_op_;
};

// Matches without applying: for tests that instantiate every rule.
bool TryMatch(const Pat& p, const UOp& u, Match& m);

// Applies the rule sets everywhere below the roots, bottom up, until none fires. Two rules that
// undo each other are a bug: the driver stops and names them.
//
// Simplify alone sets `mark`: nodes that its rules leave as they are, which depends on the node
// alone, are marked as simplest, and what is marked is not looked at again.
std::vector<UOp> Rewrite(absl::Span<const UOp> roots, absl::Span<const RuleSet* const> sets,
                         bool mark = false);
UOp Rewrite(const UOp& root, const RuleSet& set, bool mark = false);

// Replaces nodes by others, everywhere below the roots (not inside the replacements).
using Substitution = absl::flat_hash_map<UOp, UOp>;
std::vector<UOp> Substitute(absl::Span<const UOp> roots, const Substitution& map);
UOp Substitute(const UOp& root, const Substitution& map);

// The roots, sources first: fn is given each node, over what its sources have become, and as it
// was; what it returns takes its place, or nothing does.
template <typename Fn>
std::vector<UOp> Rebuild(absl::Span<const UOp> roots, Fn fn) {
  Substitution map;
  bool any = false;
  for (const UOp& u : TopoSort(roots)) {
    UOp built = u;
    if (any) {
      absl::InlinedVector<UOp, 4> srcs;
      for (const UOp& s : u.srcs()) srcs.push_back(map.at(s));
      built = u.WithSrcs(srcs);
    }
    if (UOp other = fn(built, u)) {
      built = std::move(other);
      any = true;
    }
    map.emplace(u, std::move(built));
  }
  std::vector<UOp> out;
  for (const UOp& r : roots) out.push_back(map.at(r));
  return out;
}

}  // namespace tessera
