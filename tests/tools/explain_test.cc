// tools/explain: every stage of an expression, from names and from files.
#include <fstream>

#include "tests/testing.h"
#include "tests/tools/run_tool.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ExplainTool, ShowsEveryStageInOrder) {
  const Outcome o = RunTool("explain", "softmax");
  EXPECT_EQ(o.exit, 0);
  size_t at = 0;
  for (const char* part : {"tensor graph", "REDUCE f32", "; ---- plan", "1 kernel, 0 copies",
                           "index form", "SINK void", "statements", "PUT", "RT_KERNEL("}) {
    const size_t found = o.out.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\n" << o.out;
    at = found;
  }
}

TEST(ExplainTool, ShowsTheStagesAskedFor) {
  const Outcome o = RunTool("explain", "--stage plan --stage text matmul");
  EXPECT_EQ(o.exit, 0);
  EXPECT_THAT(o.out, AllOf(HasSubstr("plan of"), HasSubstr("RT_KERNEL(dot_"),
                           Not(HasSubstr("SINK")), Not(HasSubstr("PROGRAM"))));
  EXPECT_THAT(RunTool("explain", "--stage text --prelude add").out, HasSubstr("typedef"));
}

TEST(ExplainTool, TakesTextFilesAndShowsTheirMistakes) {
  const std::string good = OwnTempDir() + "/explain_good.txt";
  std::ofstream(good) << "%0 = PARAM f32 () slot 0 [4, 8] @CPU\n"
                         "%1 = REDUCE f32 (%0) ADD axes=[1]\n";
  const Outcome o = RunTool("explain", good);
  EXPECT_EQ(o.exit, 0) << o.out;
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("1 kernel, 0 copies"), HasSubstr("RT_KERNEL(reduce_4x8_f32)")));
  const std::string bad = OwnTempDir() + "/explain_bad.txt";
  std::ofstream(bad) << "%0 = PARAM f32 () slot 0 [4, 8] @CPU\n%1 = SHL f32 (%0, %0)\n";
  const Outcome wrong = RunTool("explain", bad);
  EXPECT_EQ(wrong.exit, 1);
  EXPECT_THAT(wrong.out, HasSubstr("SHL"));
}

// What no plan is made of is said, whatever the validator says of the graph.
TEST(ExplainTool, GraphsThatAreNoTensors) {
  const auto explained = [](const std::string& text) {
    const std::string file = OwnTempDir() + "/explain_graph.txt";
    std::ofstream(file) << text;
    return RunTool("explain", file);
  };
  const Outcome sink = explained("%0 = CONST f32 () 1.0\n%1 = SINK void (%0)\n");
  EXPECT_EQ(sink.exit, 1);
  EXPECT_THAT(sink.out, HasSubstr("SINK: is no tensor"));
  const Outcome exchange = explained(
      "%0 = PARAM f32 () slot 0 [3] @CPU:0-1{M}\n"
      "%2 = EXCHANGE f32 (%0) \"CPU:0-1{M}<0:0..3,3..6>\" \"CPU:2<:1..5>\" [4]\n");
  EXPECT_EQ(exchange.exit, 1);
  EXPECT_THAT(exchange.out, HasSubstr("EXCHANGE: is what the scheduler makes"));
  const Outcome sharded =
      explained("%0 = PARAM f32 () slot 0 [4] @CPU:0-1{S0}\n%1 = NEG f32 (%0)\n");
  EXPECT_EQ(sharded.exit, 0) << sharded.out;
  EXPECT_THAT(sharded.out, HasSubstr("RT_KERNEL("));
}

TEST(ExplainTool, EveryNamedExpressionIsExplained) {
  const Outcome help = RunTool("explain", "--help");
  EXPECT_EQ(help.exit, 0);
  std::istringstream lines(help.out.substr(help.out.find("of:\n") + 4));
  int names = 0;
  for (std::string line; std::getline(lines, line); ++names) {
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    const Outcome o = RunTool("explain", name);
    EXPECT_EQ(o.exit, 0) << name << "\n" << o.out;
    EXPECT_THAT(o.out, HasSubstr("RT_KERNEL("));
  }
  EXPECT_GE(names, 10);
}

TEST(ExplainTool, ListsTheFlags) {
  const Outcome o = RunTool("explain", "--flags");
  EXPECT_EQ(o.exit, 0);
  EXPECT_THAT(o.out, AllOf(HasSubstr("  DEBUG=0 "), HasSubstr("  CORES=0 ")));
}

TEST(ExplainTool, RejectsWhatIsNoExpression) {
  const Outcome o = RunTool("explain", "nosuch");
  EXPECT_EQ(o.exit, 2);
  EXPECT_THAT(o.out, AllOf(HasSubstr("no expression and no file"), HasSubstr("softmax")));
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "no expression is named"}, {"--stage nonsense add", "'nonsense'"},
      {"add --stage", "is no stage"}, {"--foo add", "'--foo' is no option"},
      {"add sum", "'add', 'sum'"},    {"tests", "'tests' is empty, or no file"}};
  for (const auto& [arguments, why] : mistakes) {
    const Outcome wrong = RunTool("explain", arguments);
    EXPECT_EQ(wrong.exit, 2) << arguments;
    EXPECT_THAT(wrong.out, HasSubstr(why)) << arguments;
  }
}

}  // namespace
}  // namespace tessera
