// The validator's drivers: over graphs in memory, and over the statements of a text.
#include "graph/spec.h"

#include <algorithm>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "graph/flags.h"
#include "graph/rewrite.h"
#include "graph/spec_graph.h"
#include "graph/statement.h"
#include "graph/text.h"

namespace tessera {
namespace {

constexpr RuleInfo kRules[] = {
#define SPEC_RULE(id, name, stages, level, sentence) {name, stages, level, sentence},
#include "graph/spec_rules.def"
};
constexpr absl::string_view kStages[] = {"tensor", "kernel", "program"};
constexpr size_t kReportedInStatus = 8;

void CheckStage(SpecGraph& g) {
  CheckCommon(g);
  switch (g.stage) {
    case SpecStage::kTensor:
      return CheckTensorGraph(g);
    case SpecStage::kKernel:
      return CheckKernelGraph(g);
    case SpecStage::kProgram:
      return CheckProgramGraph(g);
  }
}

// The nodes that a text of these has: one for equal assignments, each of which is its own in
// memory.
std::vector<UOp> AsInText(absl::Span<const UOp> roots) {
  return Rebuild(roots, [](const UOp& built, const UOp& u) {
    if (!u.is(Op::kAssign)) return UOp();
    const absl::StatusOr<UOp> made =
        UOp::TryMake(built.op(), built.dtype(), built.srcs(), built.arg());
    return made.ok() ? *made : UOp();
  });
}

void CheckRoundTrip(SpecGraph& g, absl::Span<const UOp> roots) {
  if (!g.Applies(SpecRule::kRoundTrip) || roots.empty()) return;
  const std::vector<UOp> want = AsInText(roots);
  const absl::StatusOr<std::vector<UOp>> back = Parse(Print(roots));
  if (!back.ok()) return g.Report(SpecRule::kRoundTrip, g.roots[0], back.status().message());
  if (*back != want) {
    g.Report(SpecRule::kRoundTrip, g.roots[0], "the text of the graph reads back as other nodes");
  }
}

// The statements of a text, taken in order.
class TextGraph {
 public:
  TextGraph(SpecGraph& g, absl::string_view text) : g_(g) {
    int line = 0;
    for (absl::string_view raw : absl::StrSplit(text, '\n')) {
      ++line;
      absl::StatusOr<std::optional<Statement>> s = ParseStatement(raw);
      if (!s.ok()) {
        Broken(raw, line, s.status());
      } else if (*s) {
        statements_.push_back({**std::move(s), line});
      }
    }
    for (const Numbered& s : statements_) defined_.insert(s.statement.name);
  }

  void Check() {
    for (const Numbered& s : statements_) {
      if (s.statement.is_return()) {
        Return(s);
      } else {
        Define(s);
      }
    }
    if (returned_) return;
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (!used_[i]) g_.roots.push_back(static_cast<int>(i));
    }
  }

 private:
  struct Numbered {
    Statement statement;
    int line;
  };

  // A line that is no statement may still say what it defines; its users then find something.
  void Broken(absl::string_view raw, int line, const absl::Status& status) {
    const absl::string_view text = absl::StripAsciiWhitespace(raw);
    if (g_.Applies(SpecRule::kSyntax)) {
      g_.violations.push_back(
          {Shown(text), SpecRule::kSyntax, std::string(status.message()), line});
    }
    size_t n = 1;
    while (n < text.size() && (absl::ascii_isalnum(text[n]) || text[n] == '_' || text[n] == '.')) {
      ++n;
    }
    if (!text.empty() && text[0] == '%' && n > 1) broken_.insert(text.substr(0, n));
  }

  int NewNode(const Numbered& s) {
    const int i = static_cast<int>(g_.nodes.size());
    SpecNode n;
    n.op = s.statement.op;
    n.dtype = s.statement.dtype;
    n.first_src = static_cast<int>(g_.edges.size());
    g_.nodes.push_back(std::move(n));
    g_.texts.push_back(s.statement.text);
    g_.lines.push_back(s.line);
    used_.push_back(false);
    return i;
  }

  // The node with a name, or -1 after a report against node i.
  int Find(absl::string_view name, int i) {
    if (const auto it = names_.find(name); it != names_.end()) return it->second;
    if (broken_.contains(name)) return -1;
    if (defined_.contains(name)) {
      g_.Report(SpecRule::kUseBeforeDefinition, i, name, " is used before it is defined");
    } else {
      g_.Report(SpecRule::kUndefinedName, i, name, " is not defined");
    }
    return -1;
  }

  // As Find, for extents and annotations.
  absl::StatusOr<UOp> FindValue(absl::string_view name, int i, bool use) {
    const int k = Find(name, i);
    if (k < 0) return absl::NotFoundError(name);
    used_[k] = used_[k] || use;
    if (g_.nodes[k].bad) return absl::NotFoundError(name);
    return g_.nodes[k].value;
  }

  void Define(const Numbered& s) {
    const int i = NewNode(s);
    for (absl::string_view name : s.statement.srcs) {
      const int k = Find(name, i);
      if (k < 0) {
        g_.nodes[i].bad = g_.nodes[i].partial = true;
        continue;
      }
      used_[k] = true;
      g_.edges.push_back(k);
    }
    g_.nodes[i].num_srcs = static_cast<int>(g_.edges.size()) - g_.nodes[i].first_src;
    absl::string_view rest = s.statement.rest;
    const absl::StatusOr<Arg> arg = ParseArg(
        s.statement.op, s.statement.dtype, rest,
        [&](absl::string_view name) { return FindValue(name, i, true); }, buffers_);
    if (arg.ok()) {
      args_.push_back(std::make_unique<Arg>(*arg));
      g_.nodes[i].arg = args_.back().get();
    } else {
      g_.nodes[i].bad = true;
      // What is not found has been reported.
      if (!absl::IsNotFound(arg.status())) BadArgument(i, arg.status());
    }
    Annotated(s, i, arg.ok() ? rest : absl::string_view());
    // Equal statements are one node.
    const int node =
        g_.nodes[i].stand_in ? i : g_.index.emplace(g_.nodes[i].value.get(), i).first->second;
    if (node != i) used_[i] = true;
    if (!names_.emplace(s.statement.name, node).second) {
      g_.Report(SpecRule::kRedefinition, i, s.statement.name, " is defined twice");
    }
  }

  void BadArgument(int i, const absl::Status& status) {
    const absl::string_view op = Info(g_.nodes[i].op).text;
    const bool constant = Info(g_.nodes[i].op).arg == ArgKind::kScalar;
    const bool extent = absl::StrContains(status.message(), "an extent must be");
    g_.Report(constant ? SpecRule::kConstValue
              : extent ? SpecRule::kExtentForm
                       : SpecRule::kArgument,
              i, op, ": ", status.message());
  }

  void Annotated(const Numbered& s, int i, absl::string_view rest) {
    const auto annotation =
        ParseAnnotation(rest, [&](absl::string_view name) { return FindValue(name, i, false); });
    StatedShape stated;
    if (annotation.ok() && *annotation) {
      Extents dims;
      stated.known = true;
      for (const std::optional<Extent>& e : (*annotation)->dims) {
        stated.known &= e.has_value();
        dims.push_back(e.value_or(0));
      }
      stated.shape = Shape(std::move(dims));
      stated.device = (*annotation)->device.value_or(Device());
    }
    CheckNode(g_, i, UOp(), stated);
    if (!annotation.ok()) {
      if (!absl::IsNotFound(annotation.status())) {
        g_.Report(SpecRule::kSyntax, i, annotation.status().message());
      }
      return;
    }
    const SpecNode& n = g_.nodes[i];
    if (!*annotation || n.bad || n.vague) return;
    const absl::Status same =
        CheckAnnotation(**annotation, n.dtype, n.value.shape(), n.value.device());
    if (!same.ok()) g_.Report(SpecRule::kAnnotation, i, same.message());
  }

  void Return(const Numbered& s) {
    constexpr int kMostOfALine = 8;
    int reported = 0;
    const auto report = [&](SpecRule rule, std::string message) {
      if (g_.Applies(rule) && ++reported <= kMostOfALine) {
        g_.violations.push_back({Shown(s.statement.text), rule, std::move(message), s.line});
      }
    };
    if (returned_) return report(SpecRule::kSyntax, "a second return");
    returned_ = true;
    for (absl::string_view name : s.statement.srcs) {
      if (const auto it = names_.find(name); it != names_.end()) {
        g_.roots.push_back(it->second);
      } else if (!broken_.contains(name)) {
        const bool later = defined_.contains(name);
        report(later ? SpecRule::kUseBeforeDefinition : SpecRule::kUndefinedName,
               absl::StrCat(name, later ? " is used before it is defined" : " is not defined"));
      }
    }
  }

  SpecGraph& g_;
  std::vector<Numbered> statements_;
  absl::flat_hash_set<absl::string_view> defined_;
  absl::flat_hash_set<absl::string_view> broken_;
  absl::flat_hash_map<absl::string_view, int> names_;
  std::vector<bool> used_;
  std::vector<std::unique_ptr<Arg>> args_;
  TextBuffers buffers_;
  bool returned_ = false;
};

}  // namespace

const RuleInfo& Info(SpecRule rule) { return kRules[static_cast<int>(rule)]; }
absl::Span<const RuleInfo> AllRules() { return kRules; }
absl::string_view StageName(SpecStage stage) { return kStages[static_cast<int>(stage)]; }

std::string Violation::ToString() const {
  return absl::StrCat(node, ": ", Info(rule).name, " (level ", Info(rule).level, "): ", message);
}

int SpecLevel() { return static_cast<int>(IntFlag(Flag::kSpec)); }

SpecStage DetectStage(absl::string_view text) {
  SpecStage stage = SpecStage::kTensor;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const auto s = ParseStatement(line);
    if (!s.ok() || !*s || (*s)->is_return()) continue;
    const absl::string_view stages = Info((*s)->op).stages;
    if (stages == "p") return SpecStage::kProgram;
    if (!absl::StrContains(stages, 't')) stage = SpecStage::kKernel;
  }
  return stage;
}

std::vector<Violation> FindViolations(absl::Span<const UOp> roots, const SpecOptions& options) {
  SpecGraph g(options);
  g.stage = options.stage.value_or(SpecStage::kTensor);
  const std::vector<UOp> order = TopoSort(roots, /*with_extents=*/true);
  g.nodes.reserve(order.size());
  g.index.reserve(order.size());
  for (const UOp& u : order) g.index.emplace(u.get(), static_cast<int>(g.index.size()));
  for (const UOp& u : order) {
    SpecNode n;
    n.op = u.op();
    n.dtype = u.dtype();
    n.arg = &u.arg();
    n.first_src = static_cast<int>(g.edges.size());
    n.num_srcs = u.size();
    for (const UOp& s : u.srcs()) g.edges.push_back(g.index.at(s.get()));
    g.nodes.push_back(std::move(n));
    CheckNode(g, static_cast<int>(g.nodes.size()) - 1, u, {});
  }
  for (const UOp& r : roots) {
    if (r) g.roots.push_back(g.index.at(r.get()));
  }
  CheckStage(g);
  CheckRoundTrip(g, roots);
  return std::move(g.violations);
}

std::vector<Violation> VerifyText(absl::string_view text, const SpecOptions& options) {
  SpecGraph g(options);
  g.stage = options.stage ? *options.stage : DetectStage(text);
  TextGraph statements(g, text);
  statements.Check();
  CheckStage(g);
  std::stable_sort(g.violations.begin(), g.violations.end(),
                   [](const Violation& a, const Violation& b) { return a.line < b.line; });
  return std::move(g.violations);
}

absl::Status Verify(absl::Span<const UOp> roots, SpecStage stage, int level, absl::string_view pass,
                    const Target& target) {
  const std::vector<Violation> found = FindViolations(roots, {stage, level, target});
  if (found.empty()) return absl::OkStatus();
  std::string message = absl::StrCat(
      "spec: ", pass.empty() ? "" : absl::StrCat("after ", pass, ": "), "a ", StageName(stage),
      " graph breaks ", found.size(), found.size() == 1 ? " rule" : " rules");
  for (size_t i = 0; i < std::min(found.size(), kReportedInStatus); ++i) {
    absl::StrAppend(&message, "\n  ", found[i].ToString());
  }
  if (found.size() > kReportedInStatus) absl::StrAppend(&message, "\n  ...");
  return absl::InternalError(message);
}

}  // namespace tessera
