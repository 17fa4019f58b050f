// Recurrent networks: a batch of sequences that end at different steps, against each by itself.
#include <cmath>

#include "tests/onnx/run_node.h"

namespace tessera::onnx {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr int64_t kSteps = 5, kInputs = 3, kHidden = 2, kWhole = 2;
constexpr int64_t kLengths[] = {5, 2};

std::string Numbers(const std::string& name, const std::vector<int64_t>& dims, int seed) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(std::sin(static_cast<float>(7 * i + seed * seed)));
  }
  return Floats(name, dims, out);
}

struct Network {
  const char* op;
  int64_t gates;
  const char* direction;
  bool before_reset;
};

// Both sequences with their lengths, or one of them (0 or 1) cut to its length.
Ran RunNetwork(const Network& net, int64_t which) {
  const int64_t directions = std::string(net.direction) == "bidirectional" ? 2 : 1;
  std::vector<std::string> nodes,
      values = {Numbers("all", {kSteps, 2, kInputs}, 1),
                Numbers("w", {directions, net.gates * kHidden, kInputs}, 2),
                Numbers("r", {directions, net.gates * kHidden, kHidden}, 3),
                Numbers("b", {directions, 2 * net.gates * kHidden}, 4),
                Numbers("h_all", {directions, 2, kHidden}, 5),
                TensorText("lengths", {2}, 6, Raw<int32_t>({kLengths[0], kLengths[1]}))};
  std::vector<std::string> inputs = {"all", "w", "r", "b", "lengths", "h_all"};
  if (which != kWhole) {
    values.push_back(Longs("from", {2}, {0, which}));
    values.push_back(Longs("to", {2}, {kLengths[which], which + 1}));
    values.push_back(Longs("axes", {2}, {0, 1}));
    values.push_back(Longs("from_h", {2}, {0, which}));
    values.push_back(Longs("to_h", {2}, {directions, which + 1}));
    nodes.push_back(NodeText("Slice", {"all", "from", "to", "axes"}, {"x"}));
    nodes.push_back(NodeText("Slice", {"h_all", "from_h", "to_h", "axes"}, {"h"}));
    inputs = {"x", "w", "r", "b", "", "h"};
  }
  std::vector<std::string> attributes = {IntAttribute("hidden_size", kHidden),
                                         TextAttribute("direction", net.direction)};
  if (net.gates == 3) attributes.push_back(IntAttribute("linear_before_reset", net.before_reset));
  nodes.push_back(NodeText(net.op, inputs, {"y", "last"}, attributes));
  return RunGraph(GraphText(nodes, {}, {"y", "last"}, values), 20);
}

TEST(OnnxRecurrent, SequencesEndByThemselves) {
  for (const Network& net : std::vector<Network>{{"RNN", 1, "forward", false},
                                                 {"GRU", 3, "forward", false},
                                                 {"GRU", 3, "bidirectional", true},
                                                 {"GRU", 3, "reverse", false},
                                                 {"LSTM", 4, "reverse", false},
                                                 {"LSTM", 4, "bidirectional", false}}) {
    SCOPED_TRACE(absl::StrCat(net.op, " ", net.direction));
    const Ran both = RunNetwork(net, kWhole);
    ASSERT_EQ(both.error, "");
    for (int64_t i = 0; i < 2; ++i) {
      const Ran one = RunNetwork(net, i);
      ASSERT_EQ(one.error, "");
      const Tensor y = both.out[0].Select(2, i);  // [steps, directions, hidden]
      EXPECT_THAT(y.SliceAxis(0, {0, kLengths[i]}).ToVector<float>(),
                  Pointwise(FloatNear(1e-6f), one.out[0].ToVector<float>()));
      EXPECT_THAT(y.SliceAxis(0, {kLengths[i], kSteps}).ToVector<float>(), Each(0));
      EXPECT_THAT(both.out[1].Select(1, i).ToVector<float>(),
                  Pointwise(FloatNear(1e-6f), one.out[1].ToVector<float>()));
    }
  }
}

TEST(OnnxRecurrent, ShapesOfWeights) {
  const auto fault = [](const std::vector<int64_t>& w, const std::vector<int64_t>& r,
                        const std::vector<int64_t>& b, int64_t hidden = 2) {
    return RunGraph(GraphText({NodeText("GRU", {"x", "w", "r", "b"}, {"y"},
                                        {IntAttribute("hidden_size", hidden)})},
                              {}, {"y"},
                              {Numbers("x", {4, 1, 3}, 1), Numbers("w", w, 2), Numbers("r", r, 3),
                               Numbers("b", b, 4)}),
                    20)
        .error;
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(fault({1, 6, 3}, {1, 6, 2}, {1, 12}), "");
  EXPECT_THAT(fault({1, 3, 3}, {1, 6, 2}, {1, 12}), HasSubstr("W is of shape"));
  EXPECT_THAT(fault({1, 6, 3}, {1, 3, 2}, {1, 12}), HasSubstr("R is of shape"));
  EXPECT_THAT(fault({1, 6, 3}, {2, 6, 2}, {1, 12}), HasSubstr("R is of shape"));
  EXPECT_THAT(fault({1, 6, 3}, {1, 6, 2}, {1, 2}), HasSubstr("it is [1, 12]"));
  EXPECT_THAT(fault({1, 6, 3}, {1, 6, 2}, {1, 12}, 4), HasSubstr("hidden_size is 4, R is of 2"));
}

}  // namespace
}  // namespace tessera::onnx
