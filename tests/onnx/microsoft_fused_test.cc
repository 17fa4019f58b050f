// Ops of com.microsoft into which products, activations and norms are fused.
#include "tests/onnx/microsoft.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OnnxFused, Errors) {
  const std::vector<std::string> values = {Floats("x", {1, 1}, {2}), Floats("v", {1}, {2})};
  EXPECT_THAT(
      RunMicrosoft("FusedGemm", {"x", "x"}, values, {TextAttribute("activation", "Cube")}).error,
      HasSubstr("FusedGemm: the activation 'Cube' is none"));
  EXPECT_THAT(RunMicrosoft("FusedGemm", {"v", "x"}, values, {}).error,
              HasSubstr("FusedGemm: of [1] and [1, 1]; both are matrices"));
  EXPECT_THAT(RunMicrosoft("BiasGelu", {"x"}, values, {}).error,
              HasSubstr("BiasGelu: input 1 is missing"));
  EXPECT_THAT(
      RunMicrosoft("EmbedLayerNormalization", {"v", "", "x", "x", "", "v", "v"}, values, {}).error,
      HasSubstr("EmbedLayerNormalization: ids of shape [1]; their rank is 2"));
  EXPECT_THAT(RunMicrosoft("SparseAttention", {"x"}, values, {}).error,
              HasSubstr("SparseAttention: there is no such op of com.microsoft"));
}

// By hand: 2 * 3 + 1 - 4, and 1 - 5 - 4, cut to -1 and 2.
TEST(OnnxFused, ConvThenSumThenClip) {
  const Ran ran =
      RunMicrosoft("FusedConv", {"x", "w", "b", "z"},
                   {Floats("x", {1, 1, 1, 2}, {2, 0}), Floats("w", {1, 1, 1, 1}, {3}),
                    Floats("b", {1}, {1}), Floats("z", {1, 1, 1, 2}, {-4, -5})},
                   {TextAttribute("activation", "Clip"),
                    Bytes(1, "activation_params") + Bytes(7, Raw<float>({-1, 2})) + Number(20, 6)});
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(ran.out[0].ToVector<float>(), ElementsAre(2, -1));
}

// The sum of what is normed is the fourth result.
TEST(OnnxSkipNorm, GivesTheSum) {
  const Ran ran = RunMicrosoft("SkipLayerNormalization", {"x", "s", "g", "", "c"},
                               {Floats("x", {1, 1, 2}, {1, 2}), Floats("s", {1, 2}, {10, 20}),
                                Floats("g", {2}, {1, 1}), Floats("c", {2}, {100, 200})},
                               {}, 4);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(ran.out[3].ToVector<float>(), ElementsAre(111, 222));
  EXPECT_THAT(ran.out[1].ToVector<float>(), ElementsAre(166.5f));
  ExpectNear(ran.out[0], {-1, 1});
}

TEST(OnnxFused, MatMulWithBatchesBehindRows) {
  const Ran ran = RunMicrosoft(
      "FusedMatMul", {"a", "b"}, {Wave("a", {2, 2, 3}, 1), Wave("b", {2, 2, 3}, 5)},
      {IntAttribute("transBatchA", 1), IntAttribute("transB", 1), FloatAttribute("alpha", 0.5f)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2, 2]");
  ExpectNear(ran.out[0],
             {-0.8392f, -0.7256f, 1.3384f, -0.492f, -0.9016f, -0.7096f, -0.996f, -1.132f});
}

TEST(OnnxFused, MatMulOfAVector) {
  const Ran ran = RunMicrosoft("FusedMatMul", {"a", "b"}, {Wave("a", {3}, 1), Wave("b", {2, 3}, 5)},
                               {IntAttribute("transA", 1), IntAttribute("transB", 1)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2]");
  ExpectNear(ran.out[0], {-1.6784f, -1.4512f});
}

TEST(OnnxFused, GemmThenSelu) {
  const Ran ran = RunMicrosoft(
      "FusedGemm", {"a", "b", "c"}, {Wave("a", {2, 3}, 1), Wave("b", {2, 3}, 5), Wave("c", {2}, 9)},
      {IntAttribute("transB", 1), FloatAttribute("beta", 0.5f), TextAttribute("activation", "Selu"),
       FloatAttribute("activation_alpha", 1.6f), FloatAttribute("activation_gamma", 1.1f)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2]");
  ExpectNear(ran.out[0], {-0.88461f, -1.45452f, -0.454072f, -1.61367f});
}

TEST(OnnxFused, GemmThenActivationByDefaults) {
  const Ran ran = RunMicrosoft(
      "FusedGemm", {"a", "b"}, {Wave("a", {2, 3}, 1), Wave("b", {3, 2}, 5)},
      {TextAttribute("activation", "HardSigmoid"), FloatAttribute("activation_alpha", 0.2f),
       FloatAttribute("activation_beta", 0.5f)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2]");
  ExpectNear(ran.out[0], {0, 0, 0, 0});
}

TEST(OnnxFused, ConvThenSum) {
  const Ran ran = RunMicrosoft("FusedConv", {"x", "w", "b", "z"},
                               {Wave("x", {1, 2, 3, 3}, 1), Wave("w", {1, 2, 2, 2}, 5),
                                Wave("b", {1}, 9), Wave("z", {1, 1, 2, 2}, 3)},
                               {TextAttribute("activation", "Relu")});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 1, 2, 2]");
  ExpectNear(ran.out[0], {0, 7.5328f, 0, 3.4688f});
}

TEST(OnnxFused, GeluWithABias) {
  const Ran ran =
      RunMicrosoft("BiasGelu", {"x", "b"}, {Wave("x", {2, 3}, 1), Wave("b", {3}, 5)}, {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 3]");
  ExpectNear(ran.out[0], {-0.118204f, 1.51232f, 0.363203f, -0.161787f, 1.9545f, 0.755516f});
}

TEST(OnnxFused, FastGeluWithABias) {
  const Ran ran =
      RunMicrosoft("FastGelu", {"x", "b"}, {Wave("x", {2, 3}, 1), Wave("b", {3}, 5)}, {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 3]");
  ExpectNear(ran.out[0], {-0.118438f, 1.51214f, 0.363184f, -0.161925f, 1.9546f, 0.755392f});
}

TEST(OnnxFused, FastGeluWithoutABias) {
  const Ran ran = RunMicrosoft("FastGelu", {"x"}, {Wave("x", {3}, 1)}, {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[3]");
  ExpectNear(ran.out[0], {-0.0928324f, -0.0374495f, 1.28671f});
}

TEST(OnnxFused, QuickGelu) {
  const Ran ran = RunMicrosoft("QuickGelu", {"x"}, {Wave("x", {4}, 1)}, {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[4]");
  ExpectNear(ran.out[0], {-0.102452f, -0.037281f, 1.28171f, -0.141434f});
}

TEST(OnnxSkipNorm, SimplifiedOfTwoAxes) {
  const Ran ran = RunNode(
      "SimplifiedLayerNormalization", {"x", "g"}, {Wave("x", {2, 2, 2}, 1), Wave("g", {2, 2}, 5)},
      {IntAttribute("axis", 1), FloatAttribute("epsilon", 0.01f), IntAttribute("stash_type", 1)},
      17, 2);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2, 2]");
  ExpectNear(ran.out[0], {-0.259424f, -0.111752f, -1.02439f, -0.578715f, 0.0604851f, 2.85792f,
                          0.632069f, 0.408275f});
  EXPECT_EQ(ran.out[1].shape().ToString(), "[2, 1, 1]");
  ExpectNear(ran.out[1], {0.831488f, 0.94508f});
}

TEST(OnnxSkipNorm, RowsAreAddedToEachBatch) {
  const Ran ran = RunMicrosoft("SkipLayerNormalization", {"x", "s", "g", "b", "c"},
                               {Wave("x", {2, 1, 3}, 1), Wave("s", {1, 3}, 4), Wave("g", {3}, 5),
                                Wave("b", {3}, 6), Wave("c", {3}, 7)},
                               {FloatAttribute("epsilon", 0.01f)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 1, 3]");
  ExpectNear(ran.out[0], {0.405784f, -1.92f, -1.47055f, 0.405784f, -1.92f, -1.47055f});
}

TEST(OnnxSkipNorm, BetaAndBiasMayBeMissing) {
  const Ran ran =
      RunMicrosoft("SkipLayerNormalization", {"x", "s", "g"},
                   {Wave("x", {1, 2, 3}, 1), Wave("s", {1, 2, 3}, 4), Wave("g", {3}, 5)}, {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 3]");
  ExpectNear(ran.out[0], {-0.263824f, 1.84982f, -0.191872f, -0.263824f, 1.84982f, -0.191872f});
}

TEST(OnnxSkipNorm, Simplified) {
  const Ran ran = RunMicrosoft(
      "SkipSimplifiedLayerNormalization", {"x", "s", "g", "c"},
      {Wave("x", {1, 2, 3}, 1), Wave("s", {1, 2, 3}, 4), Wave("g", {3}, 5), Wave("c", {3}, 7)},
      {FloatAttribute("epsilon", 0.01f)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 3]");
  ExpectNear(ran.out[0], {-0.307662f, -1.14861f, -0.150413f, 0.027159f, 1.36881f, -1.31449f});
}

TEST(OnnxEmbedNorm, CountsWords) {
  const Ran ran =
      RunMicrosoft("EmbedLayerNormalization", {"i", "j", "w", "p", "q", "g", "b", "m"},
                   {Ints("i", {2, 3}, {0, 2, 1, 1, 1, 0}), Ints("j", {2, 3}, {0, 1, 1, 0, 0, 0}),
                    Wave("w", {3, 2}, 1), Wave("p", {4, 2}, 2), Wave("q", {2, 2}, 3),
                    Wave("g", {2}, 4), Wave("b", {2}, 5), Ints("m", {2, 3}, {1, 1, 0, 1, 0, 1})},
                   {FloatAttribute("epsilon", 0.1f)}, 2);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 3, 2]");
  ExpectNear(ran.out[0], {0.437602f, 2.90761f, 0.328285f, 2.34281f, -0.0364573f, 0.458304f,
                          0.328285f, 2.34281f, -0.0364573f, 0.458304f, 0.328285f, 2.34281f});
  EXPECT_EQ(ran.out[1].shape().ToString(), "[2]");
  EXPECT_THAT(ran.out[1].ToVector<int64_t>(), ElementsAre(2, 2));
}

TEST(OnnxEmbedNorm, WithoutSegments) {
  const Ran ran = RunMicrosoft(
      "EmbedLayerNormalization", {"i", "", "w", "p", "", "g", "b", "", "k"},
      {Ints("i", {2, 3}, {0, 2, 1, 1, 1, 0}), Wave("w", {3, 2}, 1), Wave("p", {4, 2}, 2),
       Wave("g", {2}, 4), Wave("b", {2}, 5), Ints("k", {1, 3}, {3, 0, 1})},
      {FloatAttribute("epsilon", 0.1f)}, 3);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 3, 2]");
  ExpectNear(ran.out[0],
             {0.434702f, 2.89263f, 0.434702f, 2.89263f, -0.0381896f, 0.449353f, -0.00710168f,
              0.609975f, -0.00710168f, 0.609975f, -0.0071017f, 0.609974f});
  EXPECT_EQ(ran.out[1].shape().ToString(), "[2]");
  EXPECT_THAT(ran.out[1].ToVector<int64_t>(), ElementsAre(0, 0));
  EXPECT_EQ(ran.out[2].shape().ToString(), "[2, 3, 2]");
  ExpectNear(ran.out[2],
             {-1.88f, 1.08f, -0.8f, 2.16f, 3.24f, -1.88f, 1.08f, 0, 0.28f, -0.8f, 0.28f, -0.8f});
}

TEST(OnnxFused, MaxPoolWithChannelsLast) {
  const Ran ran = RunMicrosoft("NhwcMaxPool", {"x"}, {BytesOf("x", {1, 2, 3, 2}, kElementUInt8, 1)},
                               {IntsAttribute("kernel_shape", {1, 2})});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 2, 2]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(), ElementsAre(85, 122, 159, 196, 233, 88, 125, 162));
}

}  // namespace
}  // namespace tessera::onnx
