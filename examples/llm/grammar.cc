// Grammars as networks, and what is wrong with some: built from the rules' ends backwards, so that
// each node knows what follows it.
#include "examples/llm/grammar.h"

#include <algorithm>
#include <bitset>

#include "examples/llm/grammar_matcher.h"
#include "examples/llm/grammar_tree.h"
#include "graph/status.h"
#include "runtime/mapped_file.h"

namespace tessera::llm {
namespace {

using Kind = Grammar::Kind;
using Range = std::pair<uint32_t, uint32_t>;

constexpr size_t kMostNodes = 1 << 19;
// Of what may be empty: so often it may be nothing, and each is a way to read the text.
constexpr int kMostEmptyRepeats = 256;

class Builder {
 public:
  Builder(const std::vector<GrammarRule>& rules, const std::string& name)
      : rules_(rules), name_(name) {}

  absl::StatusOr<Grammar> Build() {
    g_.nodes.emplace_back();  // kEnd
    // Where rules begin must be known before they are built: nodes that go on to it.
    for (size_t i = 0; i < rules_.size(); ++i) Add({Kind::kEither}, static_cast<int>(i));
    for (size_t i = 0; i < rules_.size(); ++i) {
      rule_ = static_cast<int>(i);
      Aim(Begin(rule_), {BuildChoice(rules_[i].choice, 0)});
      if (too_large_) {
        return GrammarError(name_, rules_[i].place,
                            "the grammar is too large: it has half a million parts");
      }
    }
    g_.root = Begin(0);
    empty_ = Reaching(false);
    RETURN_IF_ERROR(OrderNodes());
    RETURN_IF_ERROR(CheckEnds());
    RETURN_IF_ERROR(CheckRepeats());
    ClassifyBytes();
    return std::move(g_);
  }

 private:
  static int32_t Begin(int rule) { return 1 + rule; }

  int32_t Add(const Grammar::Node& node, int rule) {
    too_large_ = too_large_ || g_.nodes.size() >= kMostNodes || g_.edges.size() >= kMostNodes;
    if (too_large_) return 0;
    g_.nodes.push_back(node);
    rule_of_.resize(g_.nodes.size(), rule);
    return static_cast<int32_t>(g_.nodes.size()) - 1;
  }
  int32_t Add(const Grammar::Node& node) { return Add(node, rule_); }
  void Aim(int32_t either, const std::vector<int32_t>& targets) {
    g_.nodes[either].first = static_cast<int32_t>(g_.targets.size());
    g_.nodes[either].count = static_cast<int32_t>(targets.size());
    g_.targets.insert(g_.targets.end(), targets.begin(), targets.end());
  }
  int32_t AddBytes(const std::vector<Grammar::Edge>& edges) {
    const int32_t first = static_cast<int32_t>(g_.edges.size());
    g_.edges.insert(g_.edges.end(), edges.begin(), edges.end());
    return Add({Kind::kBytes, first, static_cast<int32_t>(edges.size())});
  }

  int32_t BuildChoice(const GrammarChoice& choice, int32_t next) {
    std::vector<int32_t> begins;
    for (const GrammarSequence& sequence : choice) {
      int32_t at = next;
      for (size_t i = sequence.size(); i-- > 0 && !too_large_;) at = BuildPiece(sequence[i], at);
      begins.push_back(at);
    }
    if (begins.size() == 1) return begins[0];
    const int32_t either = Add({Kind::kEither});
    Aim(either, begins);
    return either;
  }

  int32_t BuildPiece(const GrammarPiece& p, int32_t next) {
    if (p.max == 0) return next;
    if (p.min == 1 && p.max == 1) return BuildOnce(p, next);
    if (p.min == 0 && p.max == 1) {
      const int32_t either = Add({Kind::kEither});
      Aim(either, {BuildOnce(p, next), next});
      return either;
    }
    if (p.min <= 1 && p.max < 0) {
      const int32_t again = Add({Kind::kEither});
      const int32_t once = BuildOnce(p, again);
      Aim(again, {once, next});
      return p.min == 0 ? again : once;
    }
    const int32_t body = BuildOnce(p, 0);
    const int32_t repeat = Add({Kind::kRepeat, body, 0, next, p.min, p.max});
    places_.emplace_back(repeat, p.place);
    return repeat;
  }

  int32_t BuildOnce(const GrammarPiece& p, int32_t next) {
    switch (p.kind) {
      case GrammarPiece::Kind::kText:
        for (size_t i = p.text.size(); i-- > 0;) {
          const uint8_t byte = static_cast<uint8_t>(p.text[i]);
          next = AddBytes({{byte, byte, next}});
        }
        return next;
      case GrammarPiece::Kind::kClass:
        return BuildClass(p.ranges, next);
      case GrammarPiece::Kind::kRule:
        return Add({Kind::kCall, Begin(p.rule), 0, next});
      case GrammarPiece::Kind::kGroup:
        return BuildChoice(p.choice, next);
    }
    return next;
  }

  // UTF-8: a byte that says how many follow, and those.
  int32_t BuildClass(const std::vector<Range>& ranges, int32_t next) {
    struct Form {
      uint32_t low, high;
      uint8_t lead;
      int more;
    };
    constexpr Form kForms[] = {{0, 0x7F, 0, 0},
                               {0x80, 0x7FF, 0xC0, 1},
                               {0x800, 0xFFFF, 0xE0, 2},
                               {0x10000, 0x10FFFF, 0xF0, 3}};
    int32_t any[4] = {next, -1, -1, -1};  // what takes so many bytes of 10xxxxxx
    std::vector<Grammar::Edge> edges;
    for (const Form& form : kForms) {
      std::vector<Range> within;
      for (const auto& [low, high] : ranges) {
        const Range r = {std::max(low, form.low), std::min(high, form.high)};
        if (r.first <= r.second) within.push_back(r);
      }
      AddEdges(within, form.more, form.lead, any, &edges);
    }
    return AddBytes(edges);
  }

  // Edges for sorted ranges of values: a first byte, and `more` others of 6 bits each.
  void AddEdges(const std::vector<Range>& ranges, int more, uint32_t lead, int32_t* any,
                std::vector<Grammar::Edge>* edges) {
    const int shift = 6 * more;
    const auto add = [&](uint32_t first, uint32_t last, int32_t to) {
      edges->push_back({static_cast<uint8_t>(lead | first), static_cast<uint8_t>(lead | last), to});
    };
    std::vector<Range> within;  // some of what has one first byte
    uint32_t of = 0;
    const auto end_within = [&] {
      if (within.empty()) return;
      std::vector<Grammar::Edge> below;
      AddEdges(within, more - 1, 0x80, any, &below);
      add(of, of, AddBytes(below));
      within.clear();
    };
    for (auto [low, high] : ranges) {
      while (low <= high) {
        const uint32_t first = low >> shift, begin = first << shift, end = (first + 1) << shift;
        if (low == begin && high + 1 >= end) {  // all of one or several
          end_within();
          const uint32_t last = ((high + 1) >> shift) - 1;
          add(first, last, Any(more, any));
          low = (last + 1) << shift;
          continue;
        }
        if (of != first) end_within();
        of = first;
        const uint32_t to = std::min(high, end - 1);
        within.emplace_back(low - begin, to - begin);
        low = to + 1;
      }
    }
    end_within();
  }

  int32_t Any(int more, int32_t* any) {
    if (any[more] < 0) {
      const int32_t to = Any(more - 1, any);
      any[more] = AddBytes({{0x80, 0xBF, to}});
    }
    return any[more];
  }

  // ---- what can be known of a grammar before any text

  // The nodes from which a rule's end is reached: by any bytes, or by none.
  std::vector<bool> Reaching(bool by_bytes) const {
    const int32_t n = static_cast<int32_t>(g_.nodes.size());
    std::vector<std::vector<int32_t>> asked_by(n);
    for (int32_t i = 0; i < n; ++i) {
      ForEachBelow(i, [&](int32_t to) { asked_by[to].push_back(i); });
    }
    std::vector<bool> reaches(n);
    std::vector<int32_t> work = {0};
    while (!work.empty()) {
      const int32_t i = work.back();
      work.pop_back();
      if (reaches[i] || !Reaches(i, by_bytes, reaches)) continue;
      reaches[i] = true;
      work.insert(work.end(), asked_by[i].begin(), asked_by[i].end());
    }
    return reaches;
  }
  bool Reaches(int32_t i, bool by_bytes, const std::vector<bool>& reaches) const {
    const Grammar::Node& node = g_.nodes[i];
    switch (node.kind) {
      case Kind::kEnd:
        return true;
      case Kind::kBytes:
      case Kind::kEither: {
        if (node.kind == Kind::kBytes && !by_bytes) return false;
        bool any = false;
        ForEachBelow(i, [&](int32_t to) { any = any || reaches[to]; });
        return any;
      }
      case Kind::kCall:
        return reaches[node.first] && reaches[node.next];
      case Kind::kRepeat:
        return (node.min == 0 || reaches[node.first]) && reaches[node.next];
    }
    return false;
  }
  template <typename Fn>
  void ForEachBelow(int32_t i, Fn fn) const {
    const Grammar::Node& node = g_.nodes[i];
    if (node.kind == Kind::kBytes) {
      for (int32_t e = 0; e < node.count; ++e) fn(g_.edges[node.first + e].to);
    } else if (node.kind == Kind::kEither) {
      for (int32_t t = 0; t < node.count; ++t) fn(g_.targets[node.first + t]);
    } else if (node.kind != Kind::kEnd) {
      fn(node.first);
      fn(node.next);
    }
  }

  absl::Status CheckEnds() const {
    const std::vector<bool> ends = Reaching(true);
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (ends[Begin(static_cast<int>(i))]) continue;
      return GrammarError(
          name_, rules_[i].place,
          absl::StrCat("the rule ", ShowName(rules_[i].name),
                       " never ends: each of its alternatives has a rule that leads back to it"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckRepeats() const {
    for (const auto& [repeat, place] : places_) {
      const Grammar::Node& node = g_.nodes[repeat];
      if (std::max(node.min, node.max) <= kMostEmptyRepeats || !empty_[node.first]) continue;
      return GrammarError(name_, place,
                          absl::StrCat("what is repeated may be empty, so it counts to ",
                                       kMostEmptyRepeats, " at most"));
    }
    return absl::OkStatus();
  }

  // Of others `first` is no node.
  static bool Calls(const Grammar::Node& node) {
    return node.kind == Kind::kCall || node.kind == Kind::kRepeat;
  }

  // What may come next without a byte in between.
  std::vector<int32_t> Silent(int32_t i) const {
    const Grammar::Node& node = g_.nodes[i];
    std::vector<int32_t> out;
    if (node.kind == Kind::kBytes) return out;
    ForEachBelow(i, [&](int32_t to) { out.push_back(to); });
    if (Calls(node) && !(node.kind == Kind::kRepeat && node.min == 0) && !empty_[node.first]) {
      out.pop_back();
    }
    return out;
  }

  // Numbers nodes by Tarjan's strong components, callers first; a rule that is called within the
  // component of the call begins with itself.
  absl::Status OrderNodes() {
    const int32_t n = static_cast<int32_t>(g_.nodes.size());
    struct Visit {
      int32_t node;
      std::vector<int32_t> next;
      size_t at = 0;
    };
    std::vector<int32_t> seen(n, -1), low(n), open, component(n, -1);
    std::vector<Visit> path;
    int32_t count = 0, components = 0;
    const auto enter = [&](int32_t i) {
      seen[i] = low[i] = count++;
      open.push_back(i);
      path.push_back({i, Silent(i)});
    };
    for (int32_t start = 0; start < n; ++start) {
      if (seen[start] < 0) enter(start);
      while (!path.empty()) {
        Visit& v = path.back();
        const int32_t i = v.node;
        if (v.at < v.next.size()) {
          const int32_t to = v.next[v.at++];
          if (seen[to] < 0) {
            enter(to);
          } else if (component[to] < 0) {
            low[i] = std::min(low[i], seen[to]);
          }
          continue;
        }
        if (low[i] == seen[i]) {
          int32_t member;
          do {
            member = open.back();
            open.pop_back();
            component[member] = components;
          } while (member != i);
          ++components;
        }
        path.pop_back();
        if (!path.empty()) low[path.back().node] = std::min(low[path.back().node], low[i]);
      }
    }
    for (int32_t i = 0; i < n; ++i) {
      const Grammar::Node& node = g_.nodes[i];
      if (!Calls(node) || component[i] != component[node.first]) continue;
      const GrammarRule& rule = rules_[rule_of_[node.first]];
      return GrammarError(name_, rule.place,
                          absl::StrCat("the rule ", ShowName(rule.name),
                                       " begins with itself (left recursion); write what follows "
                                       "it as a repetition"));
    }
    g_.order.resize(n);
    for (int32_t i = 0; i < n; ++i) g_.order[i] = components - component[i];
    return absl::OkStatus();
  }

  void ClassifyBytes() {
    std::bitset<257> begins;
    for (const Grammar::Edge& e : g_.edges) {
      begins.set(e.low);
      begins.set(e.high + 1);
    }
    int of = 0;
    for (int b = 0; b < 256; ++b) {
      if (b > 0 && begins[b]) ++of;
      g_.class_of[b] = static_cast<uint8_t>(of);
    }
    g_.classes = of + 1;
  }

  const std::vector<GrammarRule>& rules_;
  const std::string& name_;
  Grammar g_;
  std::vector<int32_t> rule_of_ = {0};                    // by node
  std::vector<std::pair<int32_t, GrammarPlace>> places_;  // of repeats
  std::vector<bool> empty_;                               // from here a rule's end may come at once
  int rule_ = 0;
  bool too_large_ = false;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> ParseGrammar(absl::string_view text,
                                                            const std::string& name) {
  ASSIGN_OR_RETURN(const std::vector<GrammarRule> rules, ParseGrammarText(text, name));
  ASSIGN_OR_RETURN(Grammar built, Builder(rules, name).Build());
  auto grammar = std::make_shared<const Grammar>(std::move(built));
  if (GrammarMatcher(grammar).overflowed()) {
    return GrammarError(name, rules[0].place, "there are too many ways for a text to begin");
  }
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

}  // namespace tessera::llm
