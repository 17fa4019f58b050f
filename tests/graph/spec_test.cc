// The validator: each rule accepts and rejects (tests/graph/spec_cases.txt), valid graphs of all
// kinds pass, mistakes do not cascade, and docs/spec.md says what the tables say.
#include "graph/spec.h"

#include <chrono>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "graph/buffer.h"
#include "graph/tensor.h"
#include "graph/text.h"
#include "tests/graph/random_graph.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_TRUE(in.good() && !text.str().empty()) << path;
  return text.str();
}

struct Case {
  std::string rule;
  SpecStage stage = SpecStage::kTensor;
  bool accept = false;
  int line = 0;
  std::string text;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  int line = 0;
  for (absl::string_view l : absl::StrSplit(ReadFile("tests/graph/spec_cases.txt"), '\n')) {
    ++line;
    if (absl::StartsWith(l, "== ")) {
      const std::vector<std::string> words = absl::StrSplit(l, ' ');
      Case c{words.at(1), SpecStage::kTensor, words.at(3) == "accept", line, ""};
      while (StageName(c.stage) != words.at(2)) {
        c.stage = static_cast<SpecStage>(static_cast<int>(c.stage) + 1);
      }
      cases.push_back(std::move(c));
    } else if (!cases.empty()) {
      absl::StrAppend(&cases.back().text, l, "\n");
    }
  }
  return cases;
}

std::string All(const std::vector<Violation>& found) {
  std::string out;
  for (const Violation& v : found) absl::StrAppend(&out, v.line, ": ", v.ToString(), "\n");
  return out;
}

std::vector<Violation> Check(absl::string_view text, SpecStage stage, int level = kMaxSpecLevel) {
  SpecOptions options;
  options.stage = stage;
  options.level = level;
  return VerifyText(text, options);
}

TEST(SpecCases, EachBreaksItsRuleAndNoOther) {
  for (const Case& c : Cases()) {
    const std::vector<Violation> found = Check(c.text, c.stage);
    if (c.accept) {
      EXPECT_TRUE(found.empty()) << "line " << c.line << "\n" << c.text << All(found);
      auto roots = Parse(c.text);
      ASSERT_OK(roots) << "line " << c.line << "\n" << c.text;
      EXPECT_OK(Verify(*roots, c.stage, kMaxSpecLevel)) << "line " << c.line;
      continue;
    }
    std::set<std::string> rules;
    for (const Violation& v : found) rules.insert(Info(v.rule).name);
    EXPECT_EQ(rules, std::set<std::string>{c.rule}) << "line " << c.line << "\n"
                                                    << c.text << All(found);
    for (const Violation& v : found) {
      EXPECT_GT(v.line, 0);
      EXPECT_FALSE(v.node.empty() || v.message.empty());
    }
  }
}

// What can be read and made at all is rejected in memory by the same rule as in the text.
TEST(SpecCases, GraphsInMemoryBreakTheSameRules) {
  int compared = 0;
  for (const Case& c : Cases()) {
    auto roots = Parse(c.text);
    if (c.accept || !roots.ok()) continue;
    SpecOptions options;
    options.stage = c.stage;
    const std::vector<Violation> found = FindViolations(*roots, options);
    // Nodes that no root reaches are not part of a graph in memory.
    if (absl::StrContains(c.text, "return")) continue;
    ASSERT_FALSE(found.empty()) << "line " << c.line << "\n" << c.text;
    EXPECT_EQ(Info(found[0].rule).name, c.rule) << "line " << c.line << "\n" << All(found);
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

TEST(SpecCases, EveryRuleHasBoth) {
  std::set<std::string> accepted, rejected, names;
  for (const Case& c : Cases()) (c.accept ? accepted : rejected).insert(c.rule);
  for (const RuleInfo& r : AllRules()) {
    EXPECT_TRUE(names.insert(r.name).second) << r.name;
    // Of graphs in memory only: SpecMemory below.
    if (absl::string_view(r.name) == "inferred" || absl::string_view(r.name) == "round-trip") {
      continue;
    }
    EXPECT_TRUE(accepted.count(r.name)) << r.name << " has no accepting text";
    EXPECT_TRUE(rejected.count(r.name)) << r.name << " has no rejecting text";
  }
  for (const auto& set : {accepted, rejected}) {
    for (const std::string& name : set) EXPECT_TRUE(names.count(name)) << "no rule " << name;
  }
}

TEST(SpecCases, ALevelLeavesOutWhatIsAboveIt) {
  for (const Case& c : Cases()) {
    if (c.accept) continue;
    for (int level = 0; level <= kMaxSpecLevel; ++level) {
      for (const Violation& v : Check(c.text, c.stage, level)) {
        EXPECT_LE(Info(v.rule).level, level);
      }
    }
    for (const RuleInfo& r : AllRules()) {
      if (c.rule != r.name) continue;
      EXPECT_FALSE(Check(c.text, c.stage, r.level).empty()) << c.line;
      EXPECT_TRUE(Check(c.text, c.stage, r.level - 1).empty()) << c.line;
    }
  }
}

TEST(Spec, FindsTheStageOfAText) {
  EXPECT_EQ(DetectStage("%0 = CONST f32 () 1.0\n"), SpecStage::kTensor);
  for (const Case& c : Cases()) {
    if (!c.accept || c.stage == SpecStage::kTensor) continue;
    if (c.rule == "root" || c.rule == "op-stage") continue;
    EXPECT_EQ(DetectStage(c.text), c.stage) << c.line;
  }
}

TEST(Spec, GoesOnAfterAMistakeWithTheDeclaredType) {
  const std::vector<Violation> found = Check(R"(
%0 = PARAM f32 () slot 0 [4, 5] @CPU
%1 = PARAM f32 () slot 1 [3, 7] @CPU
%2 = ADD f32 (%0, %1)
%3 = RESHAPE f32 (%2) [9, 9]
%4 = CMPLT f32 (%0, %0)
%5 = ADD f32 (%4, %0)
%6 = SHL f32 (%5, %5)
%7 = ADD f32 (%2, %nowhere)
%8 = ADD f32 (%7, %7)
%9 = ADD f32 (%0, %1) : f32[4, 5]
%10 = RESHAPE f32 (%9) [7]
)",
                                             SpecStage::kTensor);
  std::vector<std::pair<int, std::string>> got;
  for (const Violation& v : found) got.emplace_back(v.line, Info(v.rule).name);
  const std::vector<std::pair<int, std::string>> want = {
      {4, "shapes-alike"},   {6, "compare-bool"},  {8, "operand-class"},
      {9, "undefined-name"}, {11, "shapes-alike"}, {12, "reshape-count"}};
  EXPECT_EQ(got, want) << All(found);
}

// What a value says for derivatives is checked as the rest: MARK names a tensor, STANDIN has two
// alike.
TEST(Spec, MarksAndStandIns) {
  const std::string begin = R"(
%0 = PARAM f32 () slot 0 [4, 5] @CPU
%1 = PARAM f32 () slot 1 [5] @CPU
%2 = PARAM f64 () slot 2 [4, 5] @CPU
%3 = MARK f32 (%0) 7
)";
  const auto rules = [&](const char* line) {
    std::string out;
    for (const Violation& v : Check(begin + line, SpecStage::kTensor)) {
      absl::StrAppend(&out, Info(v.rule).name);
    }
    return out;
  };
  EXPECT_EQ(rules("%4 = STANDIN f32 (%3, %0)\n"), "");
  EXPECT_EQ(rules("%4 = STANDIN f32 (%3, %1)\n"), "shapes-alike");
  EXPECT_EQ(rules("%4 = STANDIN f32 (%3, %2)\n"), "operands-alike");
}

TEST(Spec, AnAnnotationOfAWrongNodeMayBeImpossible) {
  const std::vector<Violation> found =
      Check("%0 = CONST f32 () 1.0\n%1 = SHL f32 (%0, %0) : f32[-9]\n%2 = NEG f32 (%1)\n",
            SpecStage::kTensor);
  ASSERT_EQ(found.size(), 1u) << All(found);
  EXPECT_EQ(found[0].rule, SpecRule::kOperandClass);
}

TEST(Spec, ANestedMistakeIsReportedOnce) {
  // After a wrong nesting the loops count as closed, each once.
  const std::vector<Violation> found = Check(R"(
%0 = CONST i64 () 0
%1 = CONST i64 () 4
%2 = RANGE i64 (%0, %1, %1) r0:loop
%3 = RANGE i64 (%0, %1, %1) r1:loop
%4 = END void (%2) 0
%5 = END void (%3) 1
%6 = END void (%3) 2
%7 = PROGRAM void (%2, %3, %4, %5, %6) "f"
)",
                                             SpecStage::kProgram);
  ASSERT_EQ(found.size(), 2u) << All(found);
  EXPECT_EQ(found[0].rule, SpecRule::kEndNesting);
  EXPECT_EQ(found[1].rule, SpecRule::kRangeClosedTwice);
}

TEST(Spec, StatusNamesPassNodeRuleAndLevel) {
  const UOp c = UOp::Const(kFloat32, 1.0);
  const absl::Status status =
      Verify({UOp::Make(Op::kNeg, {c})}, SpecStage::kKernel, 1, "lower_reduce");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                               "spec: after lower_reduce: a kernel graph breaks 1 rule"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("%1 = NEG f32 (%0): root (level 1): a root of a kernel graph is a SINK"));
  EXPECT_OK(Verify({c}, SpecStage::kKernel, 0, "lower_reduce"));
}

TEST(Spec, LimitsAreTheTargets) {
  const Device cpu(Place("CPU", 0));
  std::vector<UOp> stores;
  for (int i = 0; i < 3; ++i) {
    const UOp param = UOp::Make(Op::kParam, kFloat32, {}, ParamArg{i, {1}, cpu});
    const UOp element = UOp::Make(Op::kIndex, {param, UOp::Index(0)});
    stores.push_back(UOp::Make(Op::kStore, {element, element}, int64_t{i}));
  }
  const UOp sink = UOp::Make(Op::kSink, stores);
  Target target;
  EXPECT_OK(Verify({sink}, SpecStage::kKernel, 1, "", target));
  target.max_params = 2;
  EXPECT_THAT(Verify({sink}, SpecStage::kKernel, 1, "", target),
              StatusIs(absl::StatusCode::kInternal, "3 parameters; the target takes 2"));
  target = Target();
  target.max_nodes = 10;
  EXPECT_THAT(Verify({sink}, SpecStage::kKernel, 1, "", target),
              StatusIs(absl::StatusCode::kInternal, "11 nodes; the target takes 10"));
}

// Nodes that are corrupt: nothing but a bug in the graph core makes one.
TEST(SpecMemory, AStoredShapeThatIsNotInferredIsRejected) {
  const UOp x = UOp::Make(Op::kParam, kFloat32, {}, ParamArg{77, {4, 5}, Device(Place("CPU", 0))});
  const UOp y = UOp::Make(Op::kNeg, {x});
  EXPECT_OK(Verify({y}, SpecStage::kTensor, 2));
  Node* node = const_cast<Node*>(y.get());
  node->shape = Shape{5, 4};
  EXPECT_OK(Verify({y}, SpecStage::kTensor, 1));
  EXPECT_THAT(Verify({y}, SpecStage::kTensor, 2),
              StatusIs(absl::StatusCode::kInternal, "inferred (level 2): stores f32[5, 4]"));
  node->shape = x.shape();
  node->vmax = 3;
  EXPECT_THAT(Verify({y}, SpecStage::kTensor, 2),
              StatusIs(absl::StatusCode::kInternal, "inferred"));
  node->vmax = x.vmax();
}

TEST(SpecMemory, AGraphThatDoesNotReadBackAsItselfIsRejected) {
  const UOp n = UOp::Make(Op::kVar, kInt64, {}, VarArg{"spec_memory", 0, 3});
  EXPECT_OK(Verify({n}, SpecStage::kTensor, 2));
  VarArg& arg = std::get<VarArg>(const_cast<Node*>(n.get())->arg.value);
  arg.name = "another";  // no longer found under its hash
  EXPECT_OK(Verify({n}, SpecStage::kTensor, 1));
  EXPECT_THAT(Verify({n}, SpecStage::kTensor, 2),
              StatusIs(absl::StatusCode::kInternal, "round-trip (level 2)"));
  arg.name = "spec_memory";
}

TEST(SpecMemory, NodesAreCheckedWhenTheyAreMade) {
  ASSERT_EQ(SpecLevel(), 2) << "tests run at SPEC=2";
  EXPECT_THAT(UOp::TryMake(Op::kVar, kInt64, {}, VarArg{"n", 4, 3}),
              StatusIs(absl::StatusCode::kInvalidArgument, "[rule var-bounds, level 1]"));
  const UOp c = UOp::Const(kFloat32, 1.0);
  EXPECT_THAT(UOp::TryMake(Op::kLane, kFloat32, {c}, int64_t{1}),
              StatusIs(absl::StatusCode::kInvalidArgument, "[rule lane-form, level 1]"));
  EXPECT_THAT(UOp::TryMake(Op::kEnd, {c}, int64_t{1}),
              StatusIs(absl::StatusCode::kInvalidArgument, "[rule end-form, level 1]"));
}

bool InTensors(Op op) { return absl::StrContains(Info(op).stages, 't') && op != Op::kSink; }

TEST(SpecFuzz, NoGraphThatCanBeMadeIsRejected) {
  for (int seed = 0; seed < 300; ++seed) {
    std::mt19937 rng(seed);
    // ASSIGN needs a view of its base, each VAR and PARAM its own name, and an ITEM a loop, which
    // this does not give.
    const std::vector<UOp> roots = RandomGraph(60, rng, [](Op op) {
      return InTensors(op) && op != Op::kAssign && op != Op::kVar && op != Op::kParam &&
             op != Op::kItem;
    });
    const absl::Status status = Verify(roots, SpecStage::kTensor, kMaxSpecLevel);
    ASSERT_OK(status) << "seed " << seed << "\n" << Print(roots);
    SpecOptions options;
    options.stage = SpecStage::kTensor;
    const auto found = VerifyText(Print(roots), options);
    ASSERT_TRUE(found.empty()) << "seed " << seed << "\n" << All(found) << Print(roots);
  }
}

// Lines of all cases, shuffled, cut, changed: violations or none, never a crash; and what Parse
// takes and the validator accepts, it accepts in memory too.
void Mutate(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  const std::vector<Case> cases = Cases();
  const std::string bytes = " %=()[],:;.@#\"-0123456789abcdefxyzADRSTE\n";
  for (int seed = 0; std::chrono::steady_clock::now() < end; ++seed) {
    std::mt19937 rng(seed);
    const Case& c = cases[rng() % cases.size()];
    std::string text = c.text;
    const int changes = 1 + rng() % 3;
    for (int i = 0; i < changes; ++i) {
      std::vector<std::string> lines = absl::StrSplit(text, '\n');
      switch (rng() % 4) {
        case 0:
          std::swap(lines[rng() % lines.size()], lines[rng() % lines.size()]);
          break;
        case 1:
          lines.erase(lines.begin() + rng() % lines.size());
          break;
        case 2: {
          std::string& l = lines[rng() % lines.size()];
          if (!l.empty()) l[rng() % l.size()] = bytes[rng() % bytes.size()];
          break;
        }
        case 3: {
          const std::vector<std::string> other =
              absl::StrSplit(cases[rng() % cases.size()].text, '\n');
          lines.insert(lines.begin() + rng() % lines.size(), other[rng() % other.size()]);
          break;
        }
      }
      text = absl::StrJoin(lines, "\n");
    }
    for (SpecStage stage : {SpecStage::kTensor, SpecStage::kKernel, SpecStage::kProgram}) {
      const std::vector<Violation> found = Check(text, stage);
      if (!found.empty()) continue;
      auto roots = Parse(text);
      ASSERT_TRUE(roots.ok()) << roots.status() << " seed " << seed << "\n" << text;
      ASSERT_OK(Verify(*roots, stage, kMaxSpecLevel)) << "seed " << seed << "\n" << text;
    }
  }
}

TEST(SpecFuzz, MutatedTexts) { Mutate(std::chrono::seconds(3)); }
TEST(SpecFuzz, MutatedTextsLong) { Mutate(std::chrono::seconds(10)); }

// Texts whose time would grow with the number of paths, or with the square of their length.
TEST(SpecDepth, WhatIsSharedIsVisitedOnce) {
  std::string text = "%v = VAR i64 () n 0..1\n%x0 = MUL i64 (%v, %v)\n";
  for (int i = 0; i < 50; ++i)
    absl::StrAppend(&text, "%x", i + 1, " = MUL i64 (%x", i, ", %x", i, ")\n");
  absl::StrAppend(&text, "%p = PARAM f32 () slot 0 [%x50, 3] @CPU\n%r = RESHAPE f32 (%p) ");
  EXPECT_TRUE(Check(text + "[3, %x50]", SpecStage::kTensor).empty());
  EXPECT_FALSE(Check(text + "[3, %x49]", SpecStage::kTensor).empty());
}

TEST(SpecDepth, ALongStatementIsShownInPart) {
  constexpr int kMany = 20000;
  std::string names;
  for (int i = 0; i < kMany; ++i) absl::StrAppend(&names, i > 0 ? ", %a" : "%a", i);
  for (const std::string& text :
       {absl::StrCat("%0 = SINK void (", names, ")"), absl::StrCat("return ", names)}) {
    const std::vector<Violation> found = Check(text, SpecStage::kTensor);
    EXPECT_GT(found.size(), 1u);
    EXPECT_LT(found.size(), 20u);
    for (const Violation& v : found) EXPECT_LT(v.ToString().size(), 1000u);
  }
}

TEST(SpecDepth, AccessesInsideManyLoops) {
  std::string text =
      "%p = PARAM f32 () slot 0 [16] @CPU\n%0 = CONST i64 () 0\n%1 = CONST i64 () 1\n";
  std::string list, ends;
  constexpr int kLoops = 3000;
  for (int i = 0; i < kLoops; ++i) {
    absl::StrAppend(&text, "%r", i, " = RANGE i64 (%0, %1, %1) r", i, ":loop\n");
    absl::StrAppend(&text, "%e", i, " = END void (%r", i, ") 0\n");
    absl::StrAppend(&text, "%l", i, " = LOAD f32 (%p, %0) ", i, "\n");
    absl::StrAppend(&list, "%r", i, ", ");
    ends = absl::StrCat("%e", i, i > 0 ? ", " : "", ends);
  }
  for (int i = 0; i < kLoops; ++i) absl::StrAppend(&list, "%l", i, ", ");
  absl::StrAppend(&text, "%c = CONST i64 () 16\n%b = LOAD f32 (%p, %c) 0\n");
  const auto program = [&](const char* last) {
    return absl::StrCat(text, "%s = PROGRAM void (", list, last, ends, ") \"f\"\nreturn %s");
  };
  EXPECT_TRUE(Check(program(""), SpecStage::kProgram).empty());
  const std::vector<Violation> found = Check(program("%b, "), SpecStage::kProgram);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rule, SpecRule::kIndexBounds);
}

// What is evaluated at points is bounded for a whole graph; until then a mistake is found.
// Each is a node of its own, which a text cannot say; what differs otherwise is still seen.
TEST(SpecAssign, OfTensorsPassesAllRules) {
  Tensor x = Tensor::Empty({4}), y = x + 1;
  x.Assign(y * 2);
  x[Slice{1, 3}].Assign(7);
  const std::vector<UOp> roots = {(x * 3).uop(), x.uop(), y.uop()};
  EXPECT_OK(Verify(roots, SpecStage::kTensor, 2, "test", Target()));
}

TEST(SpecDepth, IndicesThatBoundsDoNotShow) {
  std::string text =
      "%p = PARAM f32 () slot 0 [16] @CPU\n%n = CONST i64 () 8\n%c = CONST i64 () 7\n"
      "%x0 = RANGE i64 (%n) r0:loop\n%v0 = INDEX f32 (%p, %x0)\n";
  constexpr int kIndices = 4000;
  for (int i = 1; i <= kIndices; ++i) {
    absl::StrAppend(&text, "%x", i, " = XOR i64 (%x", i - 1, ", %c)\n");
    absl::StrAppend(&text, "%i", i, " = INDEX f32 (%p, %x", i, ")\n");
    absl::StrAppend(&text, "%v", i, " = ADD f32 (%v", i - 1, ", %i", i, ")\n");
  }
  const auto kernel = [&](const char* at) {
    return absl::StrCat(text,
                        "%q = PARAM f32 () slot 1 [8] @CPU\n%y = XOR i64 (%x0, %n)\n%b = ", at,
                        "\n%w = ADD f32 (%v", kIndices, ", %b)\n%o = INDEX f32 (%q, %x0)\n",
                        "%s = STORE void (%o, %w, %x0) 0\n%z = SINK void (%s)\n");
  };
  EXPECT_TRUE(Check(kernel("INDEX f32 (%p, %y)"), SpecStage::kKernel).empty());
  const std::vector<Violation> found = Check(
      absl::StrReplaceAll(kernel("INDEX f32 (%p, %y)"), {{"[16]", "[7]"}}), SpecStage::kKernel);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].rule, SpecRule::kIndexBounds);
}

TEST(SpecDepth, AMeshOfATextHasAsManyPlacesAsItHas) {
  std::string runs = "0-60000";
  EXPECT_OK(Device::Parse(absl::StrCat("CPU:", runs, "{R}")));
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&runs, ",0-60000");
  EXPECT_FALSE(Device::Parse(absl::StrCat("CPU:", runs, "{R}")).ok());
}

TEST(SpecDepth, AMillionNodesAndSixtyFourDoublingsOnASmallStackSlow) {
  OnSmallStack([] {
    UOp x = UOp::Make(Op::kParam, kFloat32, {}, ParamArg{0, {4}, Device(Place("CPU", 0))});
    UOp chain = x, twice = x;
    for (int i = 0; i < 1000000; ++i) chain = UOp::Make(Op::kNeg, {chain});
    for (int i = 0; i < 64; ++i) twice = UOp::Make(Op::kAdd, {twice, twice});
    EXPECT_OK(Verify({chain, twice}, SpecStage::kTensor, kMaxSpecLevel));
    EXPECT_TRUE(Check(Print({chain, twice}), SpecStage::kTensor).empty());
  });
}

TEST(SpecDepth, ADeepKernelAndADeepProgramSlow) {
  OnSmallStack([] {
    const Device cpu(Place("CPU", 0));
    const UOp p = UOp::Make(Op::kParam, kFloat32, {}, ParamArg{0, {4}, cpu});
    const UOp r = UOp::Make(Op::kRange, kInt64, {UOp::Index(4)}, RangeArg{0, RangeKind::kLoop});
    const UOp element = UOp::Make(Op::kIndex, {p, r});
    UOp value = element;
    for (int i = 0; i < 200000; ++i) value = UOp::Make(Op::kNeg, {value});
    for (int i = 0; i < 64; ++i) value = UOp::Make(Op::kAdd, {value, value});
    Target target;
    target.max_nodes = 1000000;
    const UOp store = UOp::Make(Op::kStore, {element, value, r}, int64_t{0});
    EXPECT_OK(Verify({UOp::Make(Op::kSink, {store})}, SpecStage::kKernel, 2, "", target));
    UOp v = UOp::Make(Op::kLoad, kFloat32, {p, UOp::Index(0)}, int64_t{0});
    const UOp load = v;
    for (int i = 0; i < 200000; ++i) v = UOp::Make(Op::kNeg, {v});
    const UOp put = UOp::Make(Op::kPut, {p, UOp::Index(0), v}, int64_t{0});
    EXPECT_OK(Verify({UOp::Make(Op::kProgram, {load, put}, std::string("deep"))},
                     SpecStage::kProgram, 2));
  });
}

// docs/spec.md holds a row for each rule and each op, and the grammar of graph/text.h.
TEST(SpecDocs, SayWhatTheTablesSay) {
  const std::string docs = ReadFile("docs/spec.md");
  for (const RuleInfo& r : AllRules()) {
    std::string stages;
    for (SpecStage s : {SpecStage::kTensor, SpecStage::kKernel, SpecStage::kProgram}) {
      if (!absl::StrContains(r.stages, StageName(s).substr(0, 1))) continue;
      absl::StrAppend(&stages, stages.empty() ? "" : ", ", StageName(s));
    }
    EXPECT_THAT(docs, HasSubstr(absl::StrCat("| `", r.name, "` | ", stages, " | ", r.level, " | ",
                                             r.sentence, " |\n")));
  }
  size_t rows = 0;
  for (absl::string_view line : absl::StrSplit(docs, '\n')) rows += absl::StartsWith(line, "| `");
  EXPECT_EQ(rows, AllRules().size()) << "a row of a rule that does not exist";
  bool in_grammar = false;
  for (absl::string_view line : absl::StrSplit(ReadFile("graph/text.h"), '\n')) {
    in_grammar |= absl::StartsWith(line, "//   text ");
    if (in_grammar && !absl::StartsWith(line, "//   ")) break;
    if (in_grammar) {
      EXPECT_THAT(docs, HasSubstr(absl::StrCat("\n", line.substr(5), "\n")));
    }
  }
  EXPECT_TRUE(in_grammar);
}

}  // namespace
}  // namespace tessera
