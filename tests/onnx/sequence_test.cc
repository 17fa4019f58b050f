// Sequences, optionals, and what follows from data: shapes and the course of control flow.
#include <algorithm>

#include "examples/onnx/import.h"
#include "runtime/runtime.h"
#include "tests/graph/tensor_testing.h"
#include "tests/onnx/encode.h"
#include "tests/testing.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;

Tensor Vector(const std::vector<float>& v) {
  return Tensor::From(v, {static_cast<int64_t>(v.size())}, "CPU");
}
Tensor Long(int64_t v) { return Tensor::From(std::vector<int64_t>{v}, {}, "CPU"); }

// The first output of a graph for its inputs, all of them data.
using Inputs = std::map<std::string, Tensor>;
Value First(const std::string& graph, const Inputs& given) {
  const std::string bytes = ModelText(graph);
  const Model model = ValueOrThrow(ParseModel(bytes, "test"));
  absl::flat_hash_map<std::string, Value> inputs;
  for (const auto& [name, t] : given) inputs[name] = {t, false};
  return Importer(model, "CPU").Run(inputs).at(0);
}
std::vector<float> Numbers(const std::string& graph, const Inputs& given) {
  return First(graph, given).tensor.ToVector<float>();
}

// A graph of one op on the sequence a, b, a and on more inputs.
std::string OnSequence(const std::string& op, const std::vector<std::string>& more,
                       const std::string& result = "y", const std::vector<std::string>& then = {}) {
  std::vector<std::string> inputs = {"s"}, names = {"a", "b"}, nodes;
  inputs.insert(inputs.end(), more.begin(), more.end());
  std::copy_if(more.begin(), more.end(), std::back_inserter(names),
               [](const std::string& name) { return name != "b"; });
  nodes = {NodeText("SequenceConstruct", {"a", "b", "a"}, {"s"}), NodeText(op, inputs, {"y"})};
  nodes.insert(nodes.end(), then.begin(), then.end());
  return GraphText(nodes, names, {result});
}
const Inputs kTwo = {{"a", Vector({1, 2})}, {"b", Vector({3})}};
Inputs With(const std::string& name, const Tensor& t) {
  Inputs out = kTwo;
  out[name] = t;
  return out;
}

TEST(OnnxSequence, Positions) {
  EXPECT_THAT(Numbers(OnSequence("SequenceAt", {"i"}), With("i", Long(1))), ElementsAre(3));
  EXPECT_THAT(Numbers(OnSequence("SequenceAt", {"i"}), With("i", Long(-3))), ElementsAre(1, 2));
  EXPECT_THAT(Numbers(OnSequence("SequenceLength", {}), kTwo), ElementsAre(3));
  for (const int64_t i : {-4, 3}) {
    EXPECT_ERROR(First(OnSequence("SequenceAt", {"i"}), With("i", Long(i))), "SequenceAt",
                 "is none of a sequence of 3");
  }
  const auto joined = [](const std::string& op, const std::vector<std::string>& more,
                         const Inputs& in) {
    return Numbers(
        OnSequence(op, more, "z",
                   {NodeText("ConcatFromSequence", {"y"}, {"z"}, {IntAttribute("axis", 0)})}),
        in);
  };
  EXPECT_THAT(joined("SequenceErase", {}, kTwo), ElementsAre(1, 2, 3));
  EXPECT_THAT(joined("SequenceErase", {"i"}, With("i", Long(0))), ElementsAre(3, 1, 2));
  EXPECT_THAT(joined("SequenceInsert", {"b"}, kTwo), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT(joined("SequenceInsert", {"b", "i"}, With("i", Long(-3))),
              ElementsAre(3, 1, 2, 3, 1, 2));
  EXPECT_THAT(joined("SequenceInsert", {"b", "i"}, With("i", Long(3))),
              ElementsAre(1, 2, 3, 1, 2, 3));
}

TEST(OnnxSequence, Mistakes) {
  const auto graph = [](const std::vector<std::string>& nodes) {
    return GraphText(nodes, {"a"}, {"y"});
  };
  const Inputs a = {{"a", Vector({1, 2})}};
  EXPECT_ERROR(First(graph({NodeText("SequenceLength", {"a"}, {"y"})}), a), "SequenceLength",
               "input 0 is no sequence");
  EXPECT_ERROR(
      First(graph({NodeText("SequenceConstruct", {"a"}, {"s"}), NodeText("Relu", {"s"}, {"y"})}),
            a),
      "Relu", "input 0 is a sequence");
  EXPECT_ERROR(
      First(graph({NodeText("SequenceEmpty", {}, {"s"}), NodeText("SequenceErase", {"s"}, {"y"})}),
            a),
      "SequenceErase", "the sequence is empty");
  EXPECT_ERROR(
      First(graph({NodeText("Optional", {}, {"o"}), NodeText("OptionalGetElement", {"o"}, {"y"})}),
            a),
      "OptionalGetElement", "the optional is empty");
  for (const std::string op : {"Identity", "SequenceLength", "OptionalGetElement"}) {
    EXPECT_THAT(ErrorOf([&] { First(graph({NodeText(op, {}, {"y"})}), a); }),
                ::testing::StartsWith(op + ": "));
  }
  // more parts than nodes may be written out
  EXPECT_ERROR(First(GraphText({NodeText("Expand", {"a", "n"}, {"x"}),
                                NodeText("SplitToSequence", {"x"}, {"y"})},
                               {"a", "n"}, {"y"}),
                     {{"a", Vector({1})},
                      {"n", Tensor::From(std::vector<int64_t>{int64_t{1} << 40}, {1}, "CPU")}}),
               "SplitToSequence", "more than 1048576 parts");
}

// As PyTorch writes unbind, with a size of 1; parts of several elements keep their axis.
TEST(OnnxSequence, SplitsWithoutTheAxis) {
  const auto part = [](int64_t size, int64_t keep) {
    const std::string graph =
        GraphText({NodeText("SplitToSequence", {"x", "n"}, {"s"}, {IntAttribute("keepdims", keep)}),
                   NodeText("SequenceAt", {"s", "i"}, {"y"})},
                  {"x", "n", "i"}, {"y"});
    return First(graph, {{"x", Vector({1, 2, 3, 4})}, {"n", Long(size)}, {"i", Long(1)}}).tensor;
  };
  EXPECT_EQ(part(1, 0).rank(), 0);
  EXPECT_EQ(part(1, 1).rank(), 1);
  EXPECT_EQ(part(2, 0).rank(), 1);
  EXPECT_THAT(part(1, 0).ToVector<float>(), ElementsAre(2));
}

TEST(OnnxSequence, OfFiles) {
  const std::string one = Floats("a", {1}, {5}), two = Floats("b", {2}, {6, 7});
  const auto parse = [](const std::string& bytes, ValueInfo::Kind kind) {
    return ValueOrThrow(ParseValue(bytes, kind, "test"));
  };
  const std::string list = Number(2, 1) + Bytes(3, one) + Bytes(3, two);
  const ValueData sequence = parse(list, ValueInfo::Kind::kSequence);
  EXPECT_TRUE(sequence.is_sequence);
  const Value v = MakeValue(sequence, "CPU", false);
  ASSERT_EQ(v.sequence->size(), 2u);
  EXPECT_THAT((*v.sequence)[1].tensor.ToVector<float>(), ElementsAre(6, 7));
  EXPECT_TRUE(MakeValue(parse("", ValueInfo::Kind::kSequence), "CPU", false).is_sequence());

  const std::string some = Number(2, 1) + Bytes(3, two), some_list = Number(2, 3) + Bytes(5, list);
  EXPECT_EQ(parse(some, ValueInfo::Kind::kOptional).tensors.size(), 1u);
  EXPECT_EQ(parse(some_list, ValueInfo::Kind::kOptional).tensors.size(), 2u);
  EXPECT_TRUE(MakeValue(parse(Number(2, 1), ValueInfo::Kind::kOptional), "CPU", false).empty());
  EXPECT_TRUE(MakeValue(parse("", ValueInfo::Kind::kTensor), "CPU", false).empty());

  EXPECT_FALSE(ParseValue(Bytes(6, one), ValueInfo::Kind::kSequence, "test").ok());
  EXPECT_FALSE(ParseValue(Bytes(6, one), ValueInfo::Kind::kOptional, "test").ok());
  EXPECT_FALSE(ParseValue(Bytes(3, one.substr(1)), ValueInfo::Kind::kSequence, "test").ok());
}

// ---- what follows from data
std::string Branch(const std::string& op) {
  return GraphText({NodeText(op, {"x"}, {"r"})}, {}, {"r"});
}

TEST(OnnxData, ChoosesBranch) {
  const std::string graph =
      GraphText({NodeText("ReduceMax", {"x"}, {"m"}, {IntAttribute("keepdims", 0)}),
                 NodeText("Cast", {"m"}, {"c"}, {IntAttribute("to", kElementBool)}),
                 NodeText("If", {"c"}, {"y"},
                          {GraphAttribute("then_branch", Branch("Neg")),
                           GraphAttribute("else_branch", Branch("Exp"))})},
                {"x"}, {"y"});
  EXPECT_THAT(Numbers(graph, {{"x", Vector({0, 5})}}), ElementsAre(0, -5));
  EXPECT_THAT(Numbers(graph, {{"x", Vector({0, 0})}}), ElementsAre(1, 1));
}

// While x < 100, x doubles: the body gives its condition, x, and a list of what x was.
TEST(OnnxData, EndsLoop) {
  const std::string body =
      GraphText({NodeText("Add", {"v", "v"}, {"w"}), NodeText("Less", {"w", "limit"}, {"go"}),
                 NodeText("Identity", {"v"}, {"was"})},
                {"turn", "on", "v"}, {"go", "w", "was"});
  const auto graph = [&](const std::string& result) {
    return GraphText(
        {NodeText("Loop", {"", "", "x"}, {"last", "all"}, {GraphAttribute("body", body)})},
        {"x", "limit"}, {result});
  };
  const Tensor limit = Tensor::From(std::vector<float>{100}, {}, "CPU");
  const Inputs in = {{"x", Tensor::From(std::vector<float>{7}, {}, "CPU")}, {"limit", limit}};
  EXPECT_THAT(Numbers(graph("last"), in), ElementsAre(112));
  EXPECT_THAT(Numbers(graph("all"), in), ElementsAre(7, 14, 28, 56));
}

// Eight products, and shapes that follow from the last: with more of these the products are not
// computed again.
TEST(OnnxData, ComputesNothingTwice) {
  const auto kernels = [](int reads) {
    std::vector<std::string> nodes, outputs;
    std::string last = "x";
    for (int i = 0; i < 8; ++i) {
      nodes.push_back(NodeText("MatMul", {last, "x"}, {absl::StrCat("m", i)}));
      last = absl::StrCat("m", i);
    }
    for (int i = 0; i < reads; ++i) {
      nodes.push_back(NodeText("Mul", {last, "x"}, {absl::StrCat("t", i)}));
      nodes.push_back(NodeText("NonZero", {absl::StrCat("t", i)}, {absl::StrCat("y", i)}));
      outputs.push_back(absl::StrCat("y", i));
    }
    const Tensor x = Tensor::From(std::vector<float>{1, 0, 1, 1}, {2, 2}, "CPU");
    const int64_t before = GetRuntimeStats().kernels_run;
    EXPECT_THAT(Numbers(GraphText(nodes, {"x"}, outputs), {{"x", x}}),
                ElementsAre(0, 1, 1, 0, 0, 1));
    return GetRuntimeStats().kernels_run - before;
  };
  EXPECT_LT(kernels(5) - kernels(1), 4 * 8);
}

TEST(OnnxData, SetsShapes) {
  const Tensor x = Tensor::From(std::vector<float>{3, 0, 1, 3, 0, 2}, {2, 3}, "CPU");
  const auto one = [](const std::string& op, const std::vector<std::string>& attributes = {}) {
    return GraphText({NodeText("Neg", {"x"}, {"n"}), NodeText(op, {"n"}, {"y"}, attributes)}, {"x"},
                     {"y"});
  };
  const Value positions = First(one("NonZero"), {{"x", x}});
  EXPECT_THAT(onnx::Sizes(positions.tensor), ElementsAre(2, 4));
  EXPECT_THAT(positions.tensor.ToVector<float>(), ElementsAre(0, 0, 1, 1, 0, 2, 0, 2));
  EXPECT_THAT(Numbers(one("Unique"), {{"x", x}}), ElementsAre(-3, -2, -1, 0));
  EXPECT_THAT(Numbers(one("Unique", {IntAttribute("sorted", 0)}), {{"x", x}}),
              ElementsAre(-3, 0, -1, -2));
  const Tensor none = Tensor::Zeros({0, 3}, kFloat32, "CPU");
  EXPECT_THAT(onnx::Sizes(First(one("NonZero"), {{"x", none}}).tensor), ElementsAre(2, 0));
  EXPECT_THAT(onnx::Sizes(First(one("Unique"), {{"x", none}}).tensor), ElementsAre(0));
}

TEST(OnnxData, BoxesThatOverlapLeast) {
  const auto chosen = [](const std::vector<float>& boxes, const std::vector<float>& scores,
                         float threshold) {
    const auto n = static_cast<int64_t>(scores.size());
    const Inputs in = {{"boxes", Tensor::From(boxes, {1, n, 4}, "CPU")},
                       {"scores", Tensor::From(scores, {1, 1, n}, "CPU")},
                       {"most", Long(10)},
                       {"iou", Tensor::From(std::vector<float>{threshold}, {}, "CPU")}};
    return First(
               GraphText({NodeText("NonMaxSuppression", {"boxes", "scores", "most", "iou"}, {"y"})},
                         {"boxes", "scores", "most", "iou"}, {"y"}),
               in)
        .tensor.ToVector<float>();
  };
  // the second covers half of the first, the third nothing of either
  const std::vector<float> boxes = {0, 0, 2, 2, 0, 1, 2, 3, 5, 5, 6, 6};
  EXPECT_THAT(chosen(boxes, {1, 2, 3}, 0.5f), ElementsAre(0, 0, 2, 0, 0, 1, 0, 0, 0));
  EXPECT_THAT(chosen(boxes, {1, 2, 3}, 0.3f), ElementsAre(0, 0, 2, 0, 0, 1));
  EXPECT_THAT(chosen(boxes, {2, NAN, 3}, 0.3f), ElementsAre(0, 0, 2, 0, 0, 0));
  EXPECT_THAT(chosen({}, {}, 0.5f), ElementsAre());
}

}  // namespace
}  // namespace tessera::onnx
