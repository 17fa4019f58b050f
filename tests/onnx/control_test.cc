// Loop, Scan and If: turns as one loop, or written out.
#include <set>

#include "runtime/runtime.h"
#include "tests/onnx/run_node.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The first output for x, which is no value that the host knows.
struct Result {
  std::vector<float> values;
  std::string error;
};
Result Of(const std::string& graph, const std::vector<float>& x) {
  const std::string bytes = ModelText(graph, 20);  // of which the model shows parts
  const absl::StatusOr<Model> model = ParseModel(bytes, "test");
  EXPECT_OK(model.status());
  if (!model.ok()) return {};
  try {
    const Value value = {Tensor::From(x, {static_cast<int64_t>(x.size())}, "CPU")};
    return {Importer(*model, "CPU").Run({{"x", value}}).at(0).tensor.ToVector<float>(), ""};
  } catch (const Error& e) {
    return {{}, e.what()};
  }
}

// sum = sum + x while turns remain; each turn's sum is a row of the second output.
TEST(OnnxControl, WritesOutLoops) {
  const std::string body =
      GraphText({NodeText("Identity", {"go"}, {"go_on"}), NodeText("Add", {"sum", "x"}, {"next"}),
                 NodeText("Identity", {"next"}, {"row"})},
                {"turn", "go", "sum"}, {"go_on", "next", "row"});
  const auto loop = [&](const std::string& output) {
    return GraphText(
        {NodeText("Loop", {"n", "", "x"}, {"total", "rows"}, {GraphAttribute("body", body)})},
        {"x"}, {output}, {Longs("n", {}, {3})});
  };
  EXPECT_THAT(Of(loop("total"), {1, 2}).values, ElementsAre(4, 8));
  EXPECT_THAT(Of(loop("rows"), {1, 2}).values, ElementsAre(2, 4, 3, 6, 4, 8));
}

// Turns that are alike are one loop: more of them than may be written out.
TEST(OnnxControl, TurnsThatAreAlikeAreOneLoop) {
  const std::string body =
      GraphText({NodeText("Identity", {"go"}, {"go_on"}),
                 NodeText("Cast", {"turn"}, {"t"}, {IntAttribute("to", kElementFloat)}),
                 NodeText("Add", {"sum", "x"}, {"next"})},
                {"turn", "go", "sum"}, {"go_on", "next", "t"});
  const auto loop = [&](int64_t turns, const std::string& output) {
    return GraphText(
        {NodeText("Loop", {"n", "", "zero"}, {"total", "turns"}, {GraphAttribute("body", body)})},
        {"x"}, {output}, {Longs("n", {}, {turns}), Floats("zero", {1}, {0})});
  };
  EXPECT_THAT(Of(loop(12'000, "total"), {0.5}).values, ElementsAre(6'000));
  EXPECT_THAT(Of(loop(8, "turns"), {0.5}).values, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

// Turns of which one is unlike the others are written out.
TEST(OnnxControl, TurnsThatDifferAreWrittenOut) {
  const auto rows = [](std::vector<std::string> nodes) {
    nodes.push_back(NodeText("Identity", {"go"}, {"go_on"}));
    const std::string body = GraphText(nodes, {"turn", "go", "a"}, {"go_on", "next", "row"});
    return Of(
        GraphText(
            {NodeText("Loop", {"n", "", "x"}, {"last", "rows"}, {GraphAttribute("body", body)})},
            {"x"}, {"rows"}, {Longs("n", {}, {9}), Longs("zero", {1}, {0}), Longs("one", {}, {1})}),
        {3});
  };
  const std::string same = NodeText("Identity", {"a"}, {"next"});
  // What is carried grows.
  EXPECT_THAT(rows({NodeText("Concat", {"a", "x"}, {"next"}, {IntAttribute("axis", 0)}),
                    NodeText("ReduceSum", {"a"}, {"row"})})
                  .values,
              ElementsAre(3, 6, 9, 12, 15, 18, 21, 24, 27));
  // A shape follows from the number of the turn.
  EXPECT_THAT(
      rows({same, NodeText("Add", {"turn", "one"}, {"count"}),
            NodeText("Unsqueeze", {"count", "zero"}, {"shape"}),
            NodeText("Expand", {"a", "shape"}, {"wide"}), NodeText("ReduceSum", {"wide"}, {"row"})})
          .values,
      ElementsAre(3, 6, 9, 12, 15, 18, 21, 24, 27));
  // Each turn draws its own numbers.
  const Result drawn = rows({same, NodeText("RandomUniformLike", {"a"}, {"row"})});
  EXPECT_THAT(std::set<float>(drawn.values.begin(), drawn.values.end()), SizeIs(9)) << drawn.error;
  // A turn's own error is told.
  EXPECT_THAT(rows({same, NodeText("MatMul", {"a", "one"}, {"row"})}).error, HasSubstr("MatMul"));
}

// Turns end where a condition that follows from data says so.
TEST(OnnxControl, ConditionEndsTurns) {
  const std::string body =
      GraphText({NodeText("Add", {"a", "a"}, {"next"}),
                 NodeText("ReduceSum", {"next"}, {"sum"}, {IntAttribute("keepdims", 0)}),
                 NodeText("Less", {"sum", "limit"}, {"go_on"})},
                {"turn", "go", "a"}, {"go_on", "next", "next"});
  const std::string graph = GraphText(
      {NodeText("Loop", {"n", "", "x"}, {"last", "rows"}, {GraphAttribute("body", body)})}, {"x"},
      {"rows"}, {Longs("n", {}, {50}), Floats("limit", {}, {40})});
  EXPECT_THAT(Of(graph, {3}).values, ElementsAre(6, 12, 24, 48));
}

// Scan along any axes, both ways, as one loop and of few turns written out.
TEST(OnnxControl, ScansBothWays) {
  const std::string body =
      GraphText({NodeText("Add", {"sum", "part"}, {"next"})}, {"sum", "part"}, {"next", "next"});
  for (const int64_t turns : {3, 9}) {
    std::vector<float> x;
    for (int64_t i = 0; i < 2 * turns; ++i) x.push_back(static_cast<float>(i * i % 11));
    for (const bool back : {false, true}) {
      for (const bool prepend : {false, true}) {
        const std::string graph = GraphText(
            {NodeText("Reshape", {"x", "shape"}, {"m"}),
             NodeText(
                 "Scan", {"begin", "m"}, {"last", "rows"},
                 {GraphAttribute("body", body), IntAttribute("num_scan_inputs", 1),
                  IntsAttribute("scan_input_axes", {1}), IntsAttribute("scan_output_axes", {-1}),
                  IntsAttribute("scan_input_directions", {back}),
                  IntsAttribute("scan_output_directions", {prepend})})},
            {"x"}, {"rows"}, {Longs("shape", {2}, {2, turns}), Floats("begin", {2}, {10, 20})});
        std::vector<float> expected(x.size());
        for (int64_t row = 0; row < 2; ++row) {
          float sum = row == 0 ? 10 : 20;
          for (int64_t t = 0; t < turns; ++t) {
            sum += x[row * turns + (back ? turns - 1 - t : t)];
            expected[row * turns + (prepend ? turns - 1 - t : t)] = sum;
          }
        }
        EXPECT_THAT(Of(graph, x).values, ElementsAreArray(expected));
      }
    }
  }
}

// A loop that no number of turns ends is an error where it has had as many as there may be.
TEST(OnnxControl, LoopsWithoutEnd) {
  const std::string body =
      GraphText({NodeText("Identity", {"go"}, {"go_on"}), NodeText("Identity", {"sum"}, {"next"})},
                {"turn", "go", "sum"}, {"go_on", "next"});
  const Result ran =
      Of(GraphText({NodeText("Loop", {"", "", "x"}, {"y"}, {GraphAttribute("body", body)})}, {"x"},
                   {"y"}),
         {1});
  EXPECT_THAT(ran.error, HasSubstr("Loop: more than 10000 turns; at node '', 'Loop'"));
}

// Rows of no turns are none, of the shape that a turn's would have: [0, 2] beside one row.
TEST(OnnxControl, JoinsRowsOfNoTurns) {
  const std::string body =
      GraphText({NodeText("Identity", {"go"}, {"go_on"}), NodeText("Mul", {"x", "sum"}, {"row"})},
                {"turn", "go", "sum"}, {"go_on", "sum", "row"});
  const std::string scanned =
      GraphText({NodeText("Mul", {"sum", "part"}, {"row"})}, {"sum", "part"}, {"sum", "row"});
  const auto joined = [&](const std::string& node, int64_t turns = 0) {
    return GraphText(
        {NodeText("Unsqueeze", {"x", "axis"}, {"m"}), node,
         NodeText("Concat", {"rows", "m"}, {"y"}, {IntAttribute("axis", 0)})},
        {"x"}, {"y"},
        {Longs("n", {}, {turns}), Longs("axis", {1}, {0}), Floats("none", {0, 2}, {})});
  };
  const std::string loop =
      NodeText("Loop", {"n", "", "x"}, {"last", "rows"}, {GraphAttribute("body", body)});
  EXPECT_THAT(Of(joined(loop), {1, 2}).values, ElementsAre(1, 2));
  EXPECT_THAT(Of(joined(loop, -3), {1, 2}).values, ElementsAre(1, 2));
  const std::string scan =
      NodeText("Scan", {"x", "none"}, {"last", "rows"},
               {GraphAttribute("body", scanned), IntAttribute("num_scan_inputs", 1)});
  EXPECT_THAT(Of(joined(scan), {1, 2}).values, ElementsAre(1, 2));
}

// Each turn runs what the turn before ran: no kernel is made of all turns so far.
TEST(OnnxControl, TurnsOfALoopAreAlike) {
  const auto last = [](int64_t limit) {
    const std::string body =
        GraphText({NodeText("Mul", {"s", "three"}, {"p"}), NodeText("Add", {"p", "one"}, {"q"}),
                   NodeText("Mod", {"q", "prime"}, {"next"}), NodeText("Add", {"n", "one"}, {"n1"}),
                   NodeText("Less", {"n1", "limit"}, {"go_on"})},
                  {"turn", "go", "s", "n"}, {"go_on", "next", "n1"},
                  {Longs("three", {}, {3}), Longs("one", {}, {1}), Longs("prime", {}, {10007})});
    const Ran ran = RunGraph(
        GraphText({NodeText("Loop", {"", "yes", "begin", "zero"}, {"s", "n"},
                            {GraphAttribute("body", body)})},
                  {}, {"s", "n"},
                  {Longs("limit", {}, {limit}), Longs("begin", {}, {7}), Longs("zero", {}, {0}),
                   TensorText("yes", {}, kElementBool, std::string(1, '\1'))}),
        20);
    EXPECT_EQ(ran.error, "");
    return ran.out.empty() ? -1 : ran.out[0].Item<int64_t>();
  };
  const auto expected = [](int64_t turns) {
    int64_t s = 7;
    for (int64_t i = 0; i < turns; ++i) s = (s * 3 + 1) % 10007;
    return s;
  };
  EXPECT_EQ(last(5), expected(5));
  const RuntimeStats before = GetRuntimeStats();
  EXPECT_EQ(last(40), expected(40));
  EXPECT_EQ(GetRuntimeStats().plans_made, before.plans_made);
}

}  // namespace
}  // namespace tessera::onnx
