// Models that are none, whatever their inputs: each is refused before a node runs.
#include "examples/onnx/check_model.h"

#include "absl/strings/match.h"
#include "examples/onnx/call.h"
#include "examples/onnx/import.h"
#include "examples/onnx/signatures.h"
#include "tests/onnx/encode.h"
#include "tests/testing.h"

namespace tessera::onnx {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// What is wrong with a model; empty: nothing.
std::string Fault(const std::string& bytes) {
  const absl::StatusOr<Model> model = ParseModel(bytes, "test");
  if (!model.ok()) return std::string(model.status().message());
  try {
    CheckModel(*model);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
std::string FaultOf(const std::string& node, int64_t opset = 20) {
  return Fault(ModelText(GraphText({node}, {"x"}, {"y"}), opset));
}

TEST(OnnxCheckModel, Versions) {
  const std::string graph = GraphText({NodeText("Relu", {"x"}, {"y"})}, {"x"}, {"y"});
  EXPECT_EQ(Fault(ModelText(graph, 1)), "");
  EXPECT_EQ(Fault(ModelText(graph, kNewestOpset)), "");
  EXPECT_THAT(Fault(ModelText(graph, 0)), StartsWith("opset_import: version 0 of ai.onnx"));
  EXPECT_THAT(Fault(ModelText(graph, kNewestOpset + 1)),
              StartsWith("opset_import: version 29 of ai.onnx; up to 28 are known"));
  EXPECT_THAT(Fault(ModelText(graph, 20, Bytes(8, OpsetText("ai.onnx", 13)))),
              HasSubstr("two versions of ai.onnx: 20 and 13"));
  EXPECT_EQ(Fault(ModelText(graph, 20, Bytes(8, OpsetText("ai.onnx", 20)))), "");
  EXPECT_THAT(Fault(Number(1, 8) + Bytes(7, graph)),
              StartsWith("Relu: the model imports no opset of ai.onnx"));
  EXPECT_EQ(Fault(Number(1, 2) + Bytes(7, graph)), "") << "as the first files did";
}

TEST(OnnxCheckModel, Names) {
  const std::string relu = NodeText("Relu", {"x"}, {"y"});
  const std::string w = Floats("w", {1}, {1});
  const auto fault = [](const std::string& graph) { return Fault(ModelText(graph)); };
  EXPECT_EQ(fault(GraphText({relu}, {"x", "w"}, {"y"}, {w})), "") << "an input with a default";
  EXPECT_EQ(fault(GraphText({relu}, {"x"}, {"y", "y"})), "");
  EXPECT_EQ(fault(GraphText({relu}, {"x"}, {"y", "nothing"})),
            "GraphProto: nothing makes the output 'nothing'");
  EXPECT_EQ(fault(GraphText({relu}, {"x", "x"}, {"y"})), "GraphProto: two inputs are named 'x'");
  EXPECT_EQ(fault(GraphText({relu}, {"x"}, {"y"}, {w, w})),
            "GraphProto: two initializers are named 'w'");
  EXPECT_EQ(fault(GraphText({relu, NodeText("Neg", {"x"}, {"y"}) + Bytes(3, "n")}, {"x"}, {"y"})),
            "Neg: its output 'y' is there already, made by node '', 'Relu'; at node 'n', 'Neg'");
  EXPECT_EQ(fault(GraphText({NodeText("Relu", {"x"}, {"w"})}, {"x"}, {"w"}, {w})),
            "Relu: its output 'w' is there already, an input or initializer of the graph; at node "
            "'', 'Relu'");
  EXPECT_EQ(fault(GraphText({NodeText("Relu", {"z"}, {"y"})}, {"x"}, {"y"})),
            "Relu: nothing before it makes its input 'z'; at node '', 'Relu'");
}

// A branch sees the names around it, and may use them for what is its own.
TEST(OnnxCheckModel, NamesOfBranches) {
  const auto fault = [](const std::string& branch) {
    return FaultOf(
        NodeText("If", {"x"}, {"y"},
                 {GraphAttribute("then_branch", branch), GraphAttribute("else_branch", branch)}));
  };
  EXPECT_EQ(fault(GraphText({NodeText("Relu", {"x"}, {"r"})}, {}, {"r"})), "");
  EXPECT_EQ(fault(GraphText({NodeText("Relu", {"x"}, {"x"})}, {}, {"x"})), "");
  EXPECT_THAT(fault(GraphText({NodeText("Relu", {"y"}, {"r"})}, {}, {"r"})),
              StartsWith("Relu: nothing before it makes its input 'y'"));
  EXPECT_THAT(fault(GraphText({}, {}, {"r"})), HasSubstr("nothing makes the output 'r'"));
}

TEST(OnnxCheckModel, Functions) {
  const auto fault = [](const std::vector<std::string>& nodes, const std::string& call,
                        const std::string& inputs = Bytes(4, "a") + Bytes(4, "b")) {
    std::string f =
        Bytes(1, "F") + inputs + Bytes(5, "r") + Bytes(9, OpsetText("", 13)) + Bytes(10, "own");
    for (const std::string& node : nodes) f += Bytes(7, node);
    return Fault(ModelText(GraphText({call}, {"x"}, {"y"}), 13, Bytes(25, f)));
  };
  const std::string add = NodeText("Add", {"a", "b"}, {"r"});
  const std::string call = NodeText("F", {"x", "x"}, {"y"}, {}, "own");
  EXPECT_EQ(fault({add}, call), "");
  EXPECT_EQ(fault({}, call), "FunctionProto: nothing makes the output 'r'; in function 'F'");
  EXPECT_THAT(fault({NodeText("Add", {"a", "x"}, {"r"})}, call), HasSubstr("its input 'x'"));
  EXPECT_THAT(fault({add, add}, call), HasSubstr("its output 'r' is there already"));
  EXPECT_THAT(fault({add}, call, Bytes(4, "a") + Bytes(4, "a")), HasSubstr("two inputs are named"));
  EXPECT_THAT(fault({add}, NodeText("F", {"x", "x", "x"}, {"y"}, {}, "own")),
              StartsWith("F: 3 inputs; there are at most 2"));
}

// Of functions that differ in their overload alone.
TEST(OnnxCheckModel, Overloads) {
  const auto function = [](const std::string& overload, const std::string& inputs) {
    return Bytes(25,
                 Bytes(1, "F") + inputs + Bytes(5, "a") + Bytes(10, "own") + Bytes(13, overload));
  };
  const std::string both =
      function("", Bytes(4, "a")) + function("two", Bytes(4, "a") + Bytes(4, "b"));
  const auto fault = [&](const std::string& overload) {
    const std::string call = NodeText("F", {"x", "x"}, {"y"}, {}, "own") + Bytes(8, overload);
    return Fault(ModelText(GraphText({call}, {"x"}, {"y"}), 13, both));
  };
  EXPECT_EQ(fault("two"), "");
  EXPECT_THAT(fault(""), StartsWith("F: 2 inputs; there are at most 1"));
}

TEST(OnnxCheckModel, Nodes) {
  const std::string pads = IntsAttribute("pads", {0, 0}), axis = IntAttribute("axis", 0);
  const struct {
    std::string node;
    int64_t opset;
    const char* fault;
  } rows[] = {
      {NodeText("Add", {"x"}, {"y"}), 20, "Add: input 1 is missing; at node '', 'Add'"},
      {NodeText("Add", {"", "x"}, {"y"}), 20, "Add: input 0 is missing"},
      {NodeText("Add", {"x", "x", "x"}, {"y"}), 20, "Add: 3 inputs; there are at most 2"},
      {NodeText("Add", {"x", "x", ""}, {"y"}), 20, ""},
      {NodeText("Relu", {"x"}, {"y", "z"}), 20, "Relu: 2 outputs; there are at most 1"},
      {NodeText("Relu", {"x"}, {}), 20, "Relu: output 0 is missing"},
      {NodeText("Concat", {}, {"y"}, {axis}), 20, "Concat: there is no input 0"},
      {NodeText("Concat", {"x"}, {"y"}), 20, "Concat: attribute 'axis' is missing"},
      {NodeText("Concat", {"x"}, {"y"}), 1, ""},
      {NodeText("Loop", {"", "", "x"}, {"y"}), 20, "Loop: attribute 'body' is missing"},
      {NodeText("Relu", {"x"}, {"y"}, {axis}), 20,
       "Relu: it has no attribute 'axis' in opset 20; it has none"},
      {NodeText("Softmax", {"x"}, {"y"}, {axis, pads}), 20,
       "Softmax: it has no attribute 'pads' in opset 20; it has axis"},
      {NodeText("Softmax", {"x"}, {"y"}, {TextAttribute("axis", "1")}), 20,
       "Softmax: attribute 'axis' is a string, not an int"},
      {NodeText("Softmax", {"x"}, {"y"}, {IntsAttribute("axis", {1})}), 20,
       "Softmax: attribute 'axis' is ints, not an int"},
      {NodeText("Constant", {}, {"y"}, {FloatAttribute("sparse_value", 1)}), 20,
       "Constant: attribute 'sparse_value' is a float, not a sparse tensor or a type"},
      {NodeText("Softmax", {"x"}, {"y"}, {Bytes(1, "axis") + Number(3, 1)}), 20, ""},
      {NodeText("ReduceSum", {"x"}, {"y"}, {IntsAttribute("axes", {0})}), 12, ""},
      {NodeText("ReduceSum", {"x"}, {"y"}, {IntsAttribute("axes", {0})}), 13,
       "ReduceSum: it has no attribute 'axes' in opset 13; it has keepdims, noop_with_empty_axes"},
      {NodeText("Relu", {"x"}, {"y"}, {IntsAttribute("consumed_inputs", {0})}), 5, ""},
      {NodeText("Relu", {"x"}, {"y"}, {IntsAttribute("consumed_inputs", {0})}), 6,
       "Relu: it has no attribute 'consumed_inputs'"},
      {NodeText("Relu", {"x"}, {"y"}, {IntAttribute("__note", 0)}), 20, ""},
      {NodeText("Gelu", {"x"}, {"y"}), 19, "Gelu: it came with opset 20; this is 19"},
      {NodeText("Scatter", {"x", "x", "x"}, {"y"}), 10, ""},
      {NodeText("Scatter", {"x", "x", "x"}, {"y"}), 11,
       "Scatter: it ended with opset 11; this is 11"},
      {NodeText("LayerNormalization", {"x", "x"}, {"y"}), 11, ""},
      {NodeText("Momentum", {"x", "x", "x", "x", "x"}, {"y"}, {}, "ai.onnx.preview.training"), 20,
       "Momentum: the model imports no opset of ai.onnx.preview.training"},
      {NodeText("Gelu", {"x"}, {"y"}, {axis}, "com.microsoft"), 20, ""},
  };
  for (const auto& row : rows) {
    const std::string fault = FaultOf(row.node, row.opset);
    EXPECT_EQ(fault.empty(), row.fault[0] == '\0') << fault;
    EXPECT_THAT(fault, StartsWith(row.fault));
  }
}

// A value that is of another kind than the attribute says it is.
TEST(OnnxCheckModel, ValuesOfOtherTypes) {
  const auto fault = [](const std::string& attribute) {
    return FaultOf(NodeText("Softmax", {"x"}, {"y"}, {Bytes(1, "axis") + attribute}));
  };
  EXPECT_EQ(fault(Number(3, 1) + Number(20, 2)), "");
  EXPECT_EQ(fault(Number(20, 2)), "") << "some writers leave out what is 0";
  EXPECT_THAT(fault(Number(20, 2) + Bytes(4, "1")),
              HasSubstr("attribute 'axis' says that it is of type 2 and has a value of type 3"));
  EXPECT_THAT(fault(Number(3, 1) + Bytes(4, "1")), HasSubstr("has values of two types, 2 and 3"));
  EXPECT_THAT(fault(Bytes(4, "1")), HasSubstr("attribute 'axis' is a string, not an int"));
}

// What is wrong with a model once it runs.
std::string RunFault(const std::string& bytes, const absl::flat_hash_map<std::string, Value>& in) {
  const Model model = ValueOrThrow(ParseModel(bytes, "test"));
  try {
    Importer(model, "CPU").Run(in);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// What a model says of its values: y = -relu(x), of x [2, 4].
class Declared {
 public:
  std::string input = InfoText("x", kElementFloat, {2, 4});
  std::string value = Bytes(1, "v");
  std::string output = Bytes(1, "y");
  std::string second = NodeText("Neg", {"v"}, {"y"});

  // What is wrong of it for an x of these extents.
  std::string Fault(const std::vector<int64_t>& extents = {2, 4}) const {
    const std::string bytes =
        ModelText(Bytes(1, NodeText("Relu", {"x"}, {"v"})) + Bytes(1, second) + Bytes(11, input) +
                  Bytes(12, output) + Bytes(13, value));
    return RunFault(bytes, {{"x", {Tensor::Zeros(extents, kFloat32, "CPU"), false}}});
  }
};

TEST(OnnxCheckModel, DeclaredInputs) {
  Declared d;
  EXPECT_EQ(d.Fault(), "");
  EXPECT_EQ(d.Fault({3, 4}), "Importer: the input 'x' is FLOAT [3, 4], declared as FLOAT [2, 4]");
  EXPECT_EQ(d.Fault({2}), "Importer: the input 'x' is FLOAT [2], declared as FLOAT [2, 4]");
  d.input = InfoText("x", kElementFloat, {-1, 4});
  EXPECT_EQ(d.Fault({3, 4}), "");
  EXPECT_THAT(d.Fault({3, 5}), HasSubstr("declared as FLOAT [?, 4]"));
  d.input = InfoText("x", kElementInt64);
  EXPECT_EQ(d.Fault(), "Importer: the input 'x' is FLOAT [2, 4], declared as INT64");
  d.input = Bytes(1, "x") + Bytes(2, Bytes(4, ""));
  EXPECT_THAT(d.Fault(), HasSubstr("'x' is a tensor, declared as a sequence"));
}

TEST(OnnxCheckModel, DeclaredResults) {
  for (const bool last : {false, true}) {
    Declared d;
    std::string& info = last ? d.output : d.value;
    const std::string name = last ? "y" : "v";
    const std::string made = last ? "Neg: its output 'y' is " : "Relu: its output 'v' is ";
    info = InfoText(name, kElementFloat, {2, -1});
    EXPECT_EQ(d.Fault(), "");
    info = InfoText(name, kElementInt64, {2, 4});
    EXPECT_THAT(d.Fault(), StartsWith(made + "FLOAT [2, 4], declared as INT64 [2, 4]; at node"));
    info = InfoText(name, kElementFloat, {2, 5});
    EXPECT_THAT(d.Fault(), StartsWith(made + "FLOAT [2, 4], declared as FLOAT [2, 5]; at node"));
    info = Bytes(1, name) + Bytes(2, Bytes(4, ""));
    EXPECT_THAT(d.Fault(), StartsWith(made + "a tensor, declared as a sequence"));
  }
}

// Extents of one example, and those of pools that round up, are not held against a model.
TEST(OnnxCheckModel, DeclaredShapesThatToolsGetWrong) {
  Declared d;
  d.input = InfoText("x", kElementFloat, {-1, 4});
  d.value = InfoText("v", kElementFloat, {1, 4});
  EXPECT_EQ(d.Fault(), "");
  d.output = InfoText("y", kElementFloat, {1, 4});
  EXPECT_EQ(d.Fault(), "");
  d.output = InfoText("y", kElementInt64, {1, 4});
  EXPECT_THAT(d.Fault(), HasSubstr("declared as INT64 [1, 4]")) << "types are";
  d.input = InfoText("x", kElementFloat, {1, 1, 3});
  d.value = Bytes(1, "v");
  d.output = InfoText("y", kElementFloat, {1, 1, 3});
  const auto pool = [](int64_t ceil_mode) {
    return NodeText("MaxPool", {"v"}, {"y"},
                    {IntsAttribute("kernel_shape", {1}), IntsAttribute("strides", {3}),
                     IntAttribute("ceil_mode", ceil_mode)});
  };
  d.second = pool(1);
  EXPECT_EQ(d.Fault({1, 1, 3}), "");
  d.second = pool(0);
  EXPECT_THAT(d.Fault({1, 1, 3}), StartsWith("MaxPool: its output 'y' is FLOAT [1, 1, 1]"));
}

TEST(OnnxCheckModel, DeclaredResultsOfBranches) {
  const auto fault = [](int64_t element) {
    const std::string branch =
        Bytes(1, NodeText("Relu", {"x"}, {"r"})) + Bytes(12, InfoText("r", element, {9}));
    return RunFault(
        ModelText(GraphText(
            {NodeText(
                "If", {"c"}, {"y"},
                {GraphAttribute("then_branch", branch), GraphAttribute("else_branch", branch)})},
            {}, {"y"}, {Floats("x", {1}, {1}), TensorText("c", {}, kElementBool, "\1")})),
        {});
  };
  EXPECT_EQ(fault(kElementFloat), "");
  EXPECT_THAT(fault(kElementBool), StartsWith("Relu: its output 'r' is FLOAT [1], declared as"));
}

TEST(OnnxCheckModel, TypesOfInputs) {
  const std::string f = Floats("f", {1}, {1}), i = Longs("i", {1}, {0});
  const std::string c = TensorText("c", {1}, kElementBool, "\1");
  const auto fault = [&](const std::string& op, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& attributes = {}, int64_t opset = 20) {
    return RunFault(
        ModelText(GraphText({NodeText(op, inputs, {"y"}, attributes)}, {}, {"y"}, {f, i, c}),
                  opset),
        {});
  };
  EXPECT_EQ(fault("Add", {"f", "i"}),
            "Add: input 0 is FLOAT, input 1 INT64; they have to be of one type: cast one of them; "
            "at node '', 'Add'");
  EXPECT_EQ(fault("Where", {"c", "f", "f"}), "");
  EXPECT_THAT(fault("Where", {"c", "f", "i"}), HasSubstr("input 1 is FLOAT, input 2 INT64"));
  EXPECT_THAT(fault("Clip", {"f", "", "i"}), HasSubstr("input 0 is FLOAT, input 2 INT64"));
  EXPECT_THAT(fault("Concat", {"f", "f", "i"}, {IntAttribute("axis", 0)}),
              HasSubstr("input 0 is FLOAT, input 2 INT64"));
  EXPECT_EQ(fault("Pow", {"f", "i"}, {}, 12), "");
  EXPECT_THAT(fault("Pow", {"f", "i"}, {}, 11), HasSubstr("of one type"));
  EXPECT_EQ(fault("Gather", {"f", "i"}), "");
}

TEST(OnnxCheckModel, ValuesForGraphs) {
  const std::string body = GraphText({NodeText("Identity", {"go"}, {"on"})}, {"n", "go"}, {"on"});
  EXPECT_EQ(RunFault(ModelText(GraphText(
                         {NodeText("Loop", {"n", "", "x"}, {"y"}, {GraphAttribute("body", body)})},
                         {}, {"y"}, {Longs("n", {}, {1}), Floats("x", {1}, {1})})),
                     {}),
            "Loop: the graph 'body' has 2 inputs; it is run on 3 values; at node '', 'Loop'");
}

TEST(OnnxCheckModel, InputsThatWereNotGiven) {
  EXPECT_THAT(RunFault(ModelText(GraphText({NodeText("Relu", {"x"}, {"y"})}, {"x"}, {"y"})), {}),
              StartsWith("Relu: its input 'x' is one of the model's, and was not given"));
}

TEST(OnnxCheckModel, EachOpHasASignature) {
  for (const absl::Span<const OpRow> rows : OpTables()) {
    for (const OpRow& row : rows) {
      const bool microsoft = absl::StartsWith(row.name, "com.microsoft.");
      EXPECT_EQ(SignaturesOf(row.name).empty(), microsoft) << row.name;
    }
  }
}

}  // namespace
}  // namespace tessera::onnx
