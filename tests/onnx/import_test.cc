// The importer: host values, functions, control flow, errors; and what is plain.
#include "examples/onnx/import.h"

#include "absl/strings/str_cat.h"
#include "examples/onnx/plain.h"
#include "tests/onnx/encode.h"
#include "tests/testing.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The values of a model's first output for f32 vectors as inputs.
struct Ran {
  std::vector<float> values;
  std::string error;
  absl::StatusCode code = absl::StatusCode::kOk;
};
Ran Result(const std::string& bytes, const std::map<std::string, std::vector<float>>& inputs) {
  const absl::StatusOr<Model> model = ParseModel(bytes, "test");
  EXPECT_OK(model);
  Ran out;
  if (!model.ok()) return out;
  try {
    const std::set<std::string> host = HostInputs(*model);
    absl::flat_hash_map<std::string, Value> values;
    for (const auto& [name, v] : inputs) {
      values[name] = {Tensor::From(v, {static_cast<int64_t>(v.size())}, "CPU"),
                      host.contains(name)};
    }
    out.values = Importer(*model, "CPU").Run(values).at(0).tensor.ToVector<float>();
  } catch (const Error& e) {
    out.error = e.what();
    out.code = e.status().code();
  }
  return out;
}

TEST(OnnxImport, RunsNodesInOrder) {
  const std::string graph =
      GraphText({NodeText("Add", {"x", "w"}, {"a"}), NodeText("Neg", {"a"}, {"y"})}, {"x"}, {"y"},
                {Floats("w", {2}, {10, 20})});
  EXPECT_THAT(Result(ModelText(graph), {{"x", {1, 2}}}).values, ElementsAre(-11, -22));
}

// Nodes may lie in any order, as some converters leave them; a branch takes names as well.
TEST(OnnxImport, SortsNodes) {
  const std::string branch = GraphText({NodeText("Neg", {"b"}, {"r"})}, {}, {"r"});
  const std::string graph = GraphText(
      {NodeText("If", {"yes"}, {"y"},
                {GraphAttribute("then_branch", branch), GraphAttribute("else_branch", branch)}),
       NodeText("Add", {"a", "w"}, {"b"}), NodeText("Mul", {"x", "w"}, {"a"})},
      {"x"}, {"y"}, {Floats("w", {2}, {10, 20}), TensorText("yes", {}, kElementBool, "\1")});
  EXPECT_THAT(Result(ModelText(graph), {{"x", {1, 2}}}).values, ElementsAre(-20, -60));
  const std::string circle =
      GraphText({NodeText("Add", {"x", "b"}, {"a"}), NodeText("Neg", {"a"}, {"b"})}, {"x"}, {"b"});
  EXPECT_THAT(Result(ModelText(circle), {{"x", {1}}}).error,
              HasSubstr("nothing before it makes its input 'b'"));
}

// Before version 7 the axes of the second operand began where an attribute says.
TEST(OnnxImport, AddsByAxisInOldModels) {
  const std::string reshape = NodeText("Reshape", {"x", "s"}, {"m"});
  const auto model = [&](const std::vector<std::string>& attributes, const std::string& b) {
    return ModelText(
        GraphText({reshape, NodeText("Add", {"m", b}, {"y"}, attributes)}, {"x"}, {"y"},
                  {Longs("s", {2}, {2, 2}), Floats("w", {2}, {10, 20}), Floats("one", {}, {1})}),
        6);
  };
  const std::map<std::string, std::vector<float>> x = {{"x", {1, 2, 3, 4}}};
  const std::string broadcast = IntAttribute("broadcast", 1);
  EXPECT_THAT(Result(model({broadcast}, "w"), x).values, ElementsAre(11, 22, 13, 24));
  EXPECT_THAT(Result(model({broadcast, IntAttribute("axis", 0)}, "w"), x).values,
              ElementsAre(11, 12, 23, 24));
  EXPECT_THAT(Result(model({broadcast}, "one"), x).values, ElementsAre(2, 3, 4, 5));
}

TEST(OnnxImport, RegionsArePooledInKnownModes) {
  const auto pooled = [](const std::string& name, const std::string& value) {
    const std::string node =
        NodeText("RoiAlign", {"x", "rois", "batch"}, {"y"},
                 {IntAttribute("sampling_ratio", 1), TextAttribute(name, value)});
    return Result(ModelText(GraphText(
                      {node}, {}, {"y"},
                      {Floats("x", {1, 1, 2, 2}, {1, 2, 3, 4}),
                       Floats("rois", {1, 4}, {0.5, 0.5, 1.5, 1.5}), Longs("batch", {1}, {0})})),
                  {});
  };
  const std::string corners = "coordinate_transformation_mode";
  EXPECT_THAT(pooled("mode", "avg").values, ElementsAre(2.5));
  EXPECT_THAT(pooled("mode", "min").error, HasSubstr("mode is 'min'; avg and max are known"));
  EXPECT_THAT(pooled(corners, "pixel").error, HasSubstr("half_pixel and output_half_pixel"));
}

TEST(OnnxImport, AnInputReplacesItsInitializer) {
  const std::string graph =
      GraphText({NodeText("Neg", {"w"}, {"y"})}, {"w"}, {"y"}, {Floats("w", {1}, {7})});
  EXPECT_THAT(Result(ModelText(graph), {}).values, ElementsAre(-7));
  EXPECT_THAT(Result(ModelText(graph), {{"w", {3}}}).values, ElementsAre(-3));
}

// What sets a shape is found through the nodes between, and what follows from shapes is known.
TEST(OnnxImport, FindsHostInputs) {
  const std::string graph =
      GraphText({NodeText("Shape", {"x"}, {"s"}), NodeText("Mul", {"s", "k"}, {"t"}),
                 NodeText("Reshape", {"v", "t"}, {"y"})},
                {"x", "k", "v"}, {"y"});
  const std::string bytes = ModelText(graph);
  const absl::StatusOr<Model> model = ParseModel(bytes, "test");
  ASSERT_OK(model);
  EXPECT_THAT(HostInputs(*model), ElementsAre("k"));
}

// An image is data, though the shape of what is found in it follows from it.
TEST(OnnxImport, ImagesAreNoHostInputs) {
  const std::string bytes =
      ModelText(GraphText({NodeText("Conv", {"x", "w"}, {"c"}), NodeText("Cast", {"c"}, {"s"}),
                           NodeText("Reshape", {"v", "s"}, {"y"})},
                          {"x", "w", "v"}, {"y"}));
  EXPECT_TRUE(HostInputs(ValueOrThrow(ParseModel(bytes, "test"))).empty());
}

// What sets a shape is found; where it is given as data all the same, it is computed when needed.
TEST(OnnxImport, ReadsShapes) {
  const std::string reshape = NodeText("Reshape", {"x", "t"}, {"y"});
  // The shape of a graph within goes through its node's output.
  const std::string body = GraphText({NodeText("Identity", {"t0"}, {"t1"})}, {}, {"t1"});
  const std::string graph = GraphText(
      {NodeText("If", {"c"}, {"t"},
                {GraphAttribute("then_branch", body), GraphAttribute("else_branch", body)}),
       reshape},
      {"x", "t0", "c"}, {"y"});
  const std::string bytes = ModelText(graph);
  const absl::StatusOr<Model> model = ParseModel(bytes, "test");
  ASSERT_OK(model);
  EXPECT_THAT(HostInputs(*model), ElementsAre("c", "t0"));

  absl::flat_hash_map<std::string, Value> values;
  values["x"] = {Tensor::From(std::vector<float>{1, 2}, {2}, "CPU"), false};
  values["c"] = {Tensor::From(std::vector<float>{1}, {1}, "CPU"), true};
  values["t0"] = {Tensor::From(std::vector<int64_t>{2, 1}, {2}, "CPU"), false};
  EXPECT_THAT(onnx::Sizes(Importer(*model, "CPU").Run(values).at(0).tensor), ElementsAre(2, 1));
}

TEST(OnnxImport, PlacesKnownValuesBesideShardedData) {
  const std::string graph = GraphText(
      {NodeText("Shape", {"x"}, {"s"}), NodeText("Cast", {"s"}, {"f"}, {IntAttribute("to", 1)}),
       NodeText("Add", {"x", "f"}, {"y"})},
      {"x"}, {"y"});
  const std::string bytes = ModelText(graph);
  const absl::StatusOr<Model> model = ParseModel(bytes, "test");
  ASSERT_OK(model);
  const Sharding whole({"CPU:0", "CPU:1", "CPU:2"});
  absl::flat_hash_map<std::string, Value> values;
  values["x"] = {Tensor::From(std::vector<float>{1, 2, 3, 4}, {4}, "CPU")
                     .Shard({"CPU:0", "CPU:1", "CPU:2"}, 0),
                 false};
  const Tensor y = Importer(*model, whole).Run(values).at(0).tensor;
  EXPECT_TRUE(y.device().is_sharding());
  EXPECT_EQ(y.device().sharding().axis(), 0);
  EXPECT_THAT(y.ToVector<float>(), ElementsAre(5, 6, 7, 8));
}

// A function of the model with an attribute of its caller, and with its own default.
TEST(OnnxImport, CallsFunctions) {
  const std::string node =
      NodeText("Concat", {"a", "b"}, {"r"}, {ReferenceAttribute("axis", "where", 2)});
  const std::string function = Bytes(1, "Join") + Bytes(4, "a") + Bytes(4, "b") + Bytes(5, "r") +
                               Bytes(7, node) + Bytes(9, OpsetText("", 13)) + Bytes(10, "own") +
                               Bytes(11, IntAttribute("where", 0));
  const auto model = [&](const std::vector<std::string>& attributes) {
    const std::string call = NodeText("Join", {"x", "x"}, {"y"}, attributes, "own");
    return ModelText(GraphText({call}, {"x"}, {"y"}), 13, Bytes(25, function));
  };
  EXPECT_THAT(Result(model({}), {{"x", {1, 2}}}).values, ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(Result(model({IntAttribute("where", 5)}), {{"x", {1, 2}}}).error,
              HasSubstr("Concat: axis 5"));
}

// Functions of one name are told apart by their overload.
TEST(OnnxImport, CallsOverloads) {
  const auto function = [](const std::string& op, const std::string& overload) {
    return Bytes(25, Bytes(1, "F") + Bytes(4, "a") + Bytes(5, "r") +
                         Bytes(7, NodeText(op, {"a"}, {"r"})) + Bytes(9, OpsetText("", 13)) +
                         Bytes(10, "own") + Bytes(13, overload));
  };
  const auto call = [](const std::string& overload) {
    return ModelText(
        GraphText({NodeText("F", {"x"}, {"y"}, {}, "own") + Bytes(8, overload)}, {"x"}, {"y"}), 13,
        "");
  };
  const std::string both = function("Relu", "a") + function("Neg", "b");
  EXPECT_THAT(Result(call("a") + both, {{"x", {1, -2}}}).values, ElementsAre(1, 0));
  EXPECT_THAT(Result(call("b") + both, {{"x", {1, -2}}}).values, ElementsAre(-1, 2));
  EXPECT_THAT(Result(call("") + both, {{"x", {1, -2}}}).error, HasSubstr("no such op of own"));
}

std::string CallsItself() {
  const std::string function = Bytes(1, "F") + Bytes(4, "a") + Bytes(5, "r") +
                               Bytes(7, NodeText("F", {"a"}, {"r"}, {}, "own")) + Bytes(10, "own");
  return ModelText(GraphText({NodeText("F", {"x"}, {"y"}, {}, "own")}, {"x"}, {"y"}), 13,
                   Bytes(25, function));
}
// Each function calls the next one ten times: a few hundred bytes ask for 10^20 nodes.
std::string CallsTenfold() {
  std::string functions;
  for (int i = 0; i < 20; ++i) {
    std::string f = Bytes(1, absl::StrCat("F", i)) + Bytes(4, "a") + Bytes(5, "r");
    for (int k = 0; k < 10; ++k) {
      const std::string to = k == 0 ? "r" : absl::StrCat("r", k);
      f += Bytes(7, i == 19 ? NodeText("Neg", {"a"}, {to})
                            : NodeText(absl::StrCat("F", i + 1), {"a"}, {to}, {}, "own"));
    }
    functions += Bytes(25, f + Bytes(10, "own") + Bytes(9, OpsetText("", 13)));
  }
  return ModelText(GraphText({NodeText("F0", {"x"}, {"y"}, {}, "own")}, {"x"}, {"y"}), 13,
                   functions);
}

TEST(OnnxImport, RefusesWithoutCrashing) {
  const auto node = [](const std::string& text) {
    return ModelText(GraphText({text}, {"x"}, {"y"}));
  };
  const struct {
    std::string bytes;
    const char* error;
  } rows[] = {
      {node(NodeText("NoSuchOp", {"x"}, {"y"})), "NoSuchOp: there is no such op"},
      {node(NodeText("Relu", {"x"}, {"y"}, {}, "com.other")), "no such op of com.other"},
      {node(NodeText("Relu", {"nothing"}, {"y"})),
       "Relu: nothing before it makes its input 'nothing'"},
      {node(NodeText("Relu", {}, {"y"})), "Relu: input 0 is missing"},
      {node(NodeText("Relu", {"x"}, {"y", "z"})),
       "Relu: 2 outputs; there are at most 1 in its opset"},
      {node(NodeText("Relu", {"x"}, {"z"})), "nothing makes the output 'y'"},
      {node(NodeText("Concat", {}, {"y"}, {IntAttribute("axis", 0)})), "Concat: there is no input"},
      {node(NodeText("Constant", {}, {"y"})), "Constant: it holds neither"},
      {node(NodeText("Cast", {"x"}, {"y"}, {IntAttribute("to", 14)})),
       "Cast: the element type COMPLEX64"},
      {node(NodeText("Gemm", {"x", "x"}, {"y"})), "Gemm: of [2] and [2]"},
      {node(NodeText("Split", {"x"}, {"y"}, {IntAttribute("num_outputs", int64_t{1} << 60)})),
       "Split: num_outputs is"},
      {node(NodeText("TopK", {"x", "x"}, {"y"})), "TopK: "},
      {node(NodeText("\x1b[31mOp\n", {"x"}, {"y"})), "\\033[31mOp\\n: there is no such op"},
      {CallsItself(), "deeper than 32"},
      {CallsTenfold(), "nodes"},
  };
  for (const auto& row : rows) {
    const Ran ran = Result(row.bytes, {{"x", {1, 2}}});
    EXPECT_THAT(ran.error, HasSubstr(row.error));
  }
}

TEST(OnnxImport, KnowsRandomResults) {
  const auto draws = [](const std::string& op) {
    const std::string bytes = ModelText(GraphText({NodeText(op, {"x"}, {"y"})}, {"x"}, {"y"}));
    const absl::StatusOr<Model> model = ParseModel(bytes, "test");
    EXPECT_OK(model);
    Importer importer(*model, "CPU");
    absl::flat_hash_map<std::string, Value> values;
    values["x"] = {Tensor::From(std::vector<float>{0.5f, 0.5f}, {2}, "CPU"), false};
    importer.Run(values);
    return importer.draws() > 0;
  };
  EXPECT_TRUE(draws("Bernoulli"));
  EXPECT_TRUE(draws("RandomNormalLike"));
  EXPECT_FALSE(draws("Dropout"));
}

TEST(OnnxPlain, NamesItsReasons) {
  const auto reason = [](const std::string& bytes) {
    const absl::StatusOr<Model> model = ParseModel(bytes, "test");
    EXPECT_OK(model);
    return model.ok() ? PlainnessOf(*model).reason : "";
  };
  const auto node = [](const std::string& text) {
    return ModelText(GraphText({text}, {"x"}, {"y"}));
  };
  const auto with_input = [](const std::string& info) {
    return ModelText(Bytes(1, NodeText("Identity", {"x"}, {"y"})) + Bytes(11, info));
  };
  EXPECT_EQ(reason(node(NodeText("Relu", {"x"}, {"y"}))), "");
  EXPECT_EQ(reason(node(NodeText("ReverseSequence", {"x", "x"}, {"y"}))), "");
  EXPECT_EQ(reason(node(NodeText("NonZero", {"x"}, {"y"}))),
            "output shape follows from data (NonZero)");
  EXPECT_EQ(reason(node(NodeText("If", {"x"}, {"y"}))), "control flow (If)");
  EXPECT_EQ(reason(node(NodeText("StringConcat", {"x"}, {"y"}))), "strings (StringConcat)");
  EXPECT_EQ(reason(node(NodeText("SplitToSequence", {"x"}, {"y"}))), "sequences (SplitToSequence)");
  EXPECT_EQ(reason(node(NodeText("Cast", {"x"}, {"y"}, {IntAttribute("to", 21)}))),
            "element type UINT4");
  EXPECT_EQ(reason(with_input(InfoText("x", kElementString))), "strings");
  EXPECT_EQ(reason(with_input(Bytes(1, "x") + Bytes(2, Bytes(9, "")))), "optionals");
  EXPECT_EQ(reason(with_input(Bytes(1, "x") + Bytes(2, Bytes(4, "")))), "sequences");
  EXPECT_EQ(reason(node(NodeText("Normalizer", {"x"}, {"y"}, {}, "ai.onnx.ml"))), "ai.onnx.ml");
  EXPECT_EQ(reason(ModelText(GraphText({}, {}, {}), 20, Bytes(8, OpsetText("ai.onnx.ml", 3)))), "")
      << "whose ops it has counts, not what it imports";
}

}  // namespace
}  // namespace tessera::onnx
