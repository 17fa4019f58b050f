// Ops of com.microsoft on quantised numbers.
#include "tests/onnx/microsoft.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// By hand: -5, 0, 95, 122.5 plus 0, 2 in quarters from 128; the last two saturate.
TEST(OnnxQLinear, AddOfRowsSaturates) {
  const Ran ran =
      RunMicrosoft("QLinearAdd", {"a", "s", "z", "b", "t", "u", "w", "v"},
                   {UBytes("a", {2, 2}, {0, 10, 200, 255}), Floats("s", {}, {0.5f}),
                    UBytes("z", {}, {10}), UBytes("b", {2}, {3, 5}), Floats("t", {}, {1}),
                    UBytes("u", {1}, {3}), Floats("w", {1}, {0.25f}), UBytes("v", {}, {128})},
                   {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].dtype(), kUInt8);
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(), ElementsAre(108, 136, 255, 255));
}

// By hand: -20, -10, 0, 30 halves, those below 0 by a tenth. A tie goes to the even number.
TEST(OnnxQLinear, ZeroPointsMayBeMissing) {
  for (const bool named : {true, false}) {
    std::vector<std::string> inputs = {"x", "s", "", "t"};
    if (named) inputs.push_back("");
    const Ran ran = RunMicrosoft(
        "QLinearLeakyRelu", inputs,
        {SBytes("x", {4}, {-20, -10, 0, 30}), Floats("s", {}, {0.5f}), Floats("t", {}, {0.2f})},
        {FloatAttribute("alpha", 0.1f)});
    ASSERT_EQ(ran.error, "");
    EXPECT_EQ(ran.out[0].dtype(), kInt8);
    EXPECT_THAT(ran.out[0].ToVector<int64_t>(), ElementsAre(-5, -2, 0, 75));
  }
}

TEST(OnnxQLinear, Errors) {
  const std::vector<std::string> values = {UBytes("x", {2}, {0, 10}), Floats("s", {2}, {1, 2}),
                                           UBytes("z", {}, {1}), Floats("t", {}, {1})};
  EXPECT_THAT(RunMicrosoft("QLinearSigmoid", {"x", "s", "z", "t", "z"}, values, {}).error,
              HasSubstr("QLinearSigmoid: input 1 has 2 elements; it is of a whole tensor"));
  EXPECT_THAT(RunMicrosoft("QLinearAdd", {"x", "t"}, values, {}).error,
              HasSubstr("QLinearAdd: has 2 inputs"));
  EXPECT_THAT(RunMicrosoft("QLinearTan", {"x", "t", "z", "t", "z"}, values, {}).error,
              HasSubstr("QLinearTan: there is no such op of com.microsoft"));
  EXPECT_THAT(RunMicrosoft("QGemm", {"x", "t", "z", "x", "t", "z"}, values, {}).error,
              HasSubstr("QGemm: of [2] and [2]; both are matrices"));
}

TEST(OnnxQLinear, MulOfSizes1) {
  const Ran ran = RunMicrosoft(
      "QLinearMul", {"a", "s", "z", "b", "t", "u", "w", "v"},
      {BytesOf("a", {2, 1}, kElementInt8, 3), Floats("s", {}, {0.05f}), SBytes("z", {}, {-7}),
       BytesOf("b", {1, 3}, kElementInt8, 5), Floats("t", {}, {0.02f}), SBytes("u", {}, {9}),
       Floats("w", {}, {0.03f}), SBytes("v", {}, {4})},
      {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 3]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(), ElementsAre(65, 115, -128, 122, 127, -128));
}

TEST(OnnxQLinear, Sigmoid) {
  const Ran ran =
      RunMicrosoft("QLinearSigmoid", {"x", "s", "z", "t", "u"},
                   {BytesOf("x", {6}, kElementUInt8, 1), Floats("s", {}, {0.05f}),
                    UBytes("z", {}, {120}), Floats("t", {}, {0.00390625f}), UBytes("u", {}, {0})},
                   {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[6]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(), ElementsAre(1, 7, 38, 134, 224, 250));
}

TEST(OnnxQLinear, SoftmaxOfVersion12) {
  const Ran ran =
      RunMicrosoft("QLinearSoftmax", {"x", "s", "z", "t", "u"},
                   {BytesOf("x", {2, 2, 3}, kElementInt8, 1), Floats("s", {}, {0.02f}),
                    SBytes("z", {}, {-3}), Floats("t", {}, {0.00390625f}), SBytes("u", {}, {-128})},
                   {IntAttribute("axis", 1), IntAttribute("opset", 12)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2, 3]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(),
              ElementsAre(-113, -97, -62, 10, -126, -124, -121, -113, -97, -63, 8, -126));
}

TEST(OnnxQLinear, SoftmaxOfVersion13) {
  const Ran ran =
      RunMicrosoft("QLinearSoftmax", {"x", "s", "z", "t", "u"},
                   {BytesOf("x", {2, 2, 3}, kElementInt8, 1), Floats("s", {}, {0.02f}),
                    SBytes("z", {}, {-3}), Floats("t", {}, {0.00390625f}), SBytes("u", {}, {-128})},
                   {IntAttribute("axis", 1), IntAttribute("opset", 13)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2, 3]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(),
              ElementsAre(-103, 115, 115, 103, -115, -115, -103, -103, 115, 103, 103, -115));
}

TEST(OnnxQLinear, ConcatHasItsScaleFirst) {
  const Ran ran = RunMicrosoft(
      "QLinearConcat", {"s", "z", "a", "t", "u", "b", "w", "v"},
      {Floats("s", {}, {0.1f}), UBytes("z", {}, {10}), BytesOf("a", {2, 1}, kElementUInt8, 1),
       Floats("t", {}, {0.05f}), UBytes("u", {}, {3}), BytesOf("b", {2, 2}, kElementUInt8, 2),
       Floats("w", {}, {0.2f}), UBytes("v", {}, {200})},
      {IntAttribute("axis", 1)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 3]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(), ElementsAre(14, 0, 0, 32, 0, 0));
}

TEST(OnnxQLinear, AveragePoolWithChannelsLast) {
  const Ran ran =
      RunMicrosoft("QLinearAveragePool", {"x", "s", "z", "t", "u"},
                   {BytesOf("x", {1, 3, 3, 2}, kElementUInt8, 1), Floats("s", {}, {0.1f}),
                    UBytes("z", {}, {100}), Floats("t", {}, {0.05f}), UBytes("u", {}, {90})},
                   {IntsAttribute("kernel_shape", {2, 2}), IntsAttribute("pads", {1, 0, 0, 0}),
                    IntAttribute("channels_last", 1)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 3, 2, 2]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(),
              ElementsAre(0, 60, 134, 208, 80, 26, 100, 174, 140, 86, 32, 106));
}

TEST(OnnxQLinear, GlobalAveragePool) {
  const Ran ran =
      RunMicrosoft("QLinearGlobalAveragePool", {"x", "s", "z", "t", "u"},
                   {BytesOf("x", {2, 2, 2, 2}, kElementInt8, 1), Floats("s", {}, {0.1f}),
                    SBytes("z", {}, {5}), Floats("t", {}, {0.05f}), SBytes("u", {}, {-4})},
                   {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2, 1, 1]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(), ElementsAre(119, -97, 71, -17));
}

TEST(OnnxQLinear, WhereHasAPlainCondition) {
  const Ran ran = RunMicrosoft(
      "QLinearWhere", {"c", "x", "s", "z", "y", "t", "u", "w", "v"},
      {TensorText("c", {3}, kElementBool, std::string("\1\0\0", 3)),
       BytesOf("x", {2, 1}, kElementUInt8, 3), Floats("s", {}, {0.1f}), UBytes("z", {}, {9}),
       BytesOf("y", {1, 3}, kElementUInt8, 5), Floats("t", {}, {0.2f}), UBytes("u", {}, {100}),
       Floats("w", {}, {0.15f}), UBytes("v", {}, {90})},
      {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 3]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(), ElementsAre(106, 79, 129, 131, 79, 129));
}

TEST(OnnxQLinear, GemmOfScaledColumns) {
  const Ran ran =
      RunMicrosoft("QGemm", {"a", "s", "z", "b", "t", "u", "c", "w", "v"},
                   {BytesOf("a", {2, 3}, kElementUInt8, 1), Floats("s", {}, {0.02f}),
                    UBytes("z", {}, {128}), BytesOf("b", {2, 3}, kElementInt8, 4),
                    Floats("t", {2}, {0.01f, 0.03f}), SBytes("u", {2}, {0, 0}),
                    Ints("c", {2}, {1000, -500}), Floats("w", {}, {0.05f}), UBytes("v", {}, {60})},
                   {IntAttribute("transB", 1), FloatAttribute("alpha", 0.5f)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(), ElementsAre(29, 166, 83, 38));
}

TEST(OnnxQLinear, GemmWithoutAScaleGivesFloats) {
  const Ran ran = RunMicrosoft(
      "QGemm", {"a", "s", "z", "b", "t", "u", "c"},
      {BytesOf("a", {2, 3}, kElementUInt8, 1), Floats("s", {}, {0.02f}), UBytes("z", {}, {128}),
       BytesOf("b", {2, 3}, kElementInt8, 4), Floats("t", {2}, {0.01f, 0.03f}),
       SBytes("u", {2}, {0, 0}), Ints("c", {2}, {1000, -500})},
      {IntAttribute("transB", 1), FloatAttribute("alpha", 0.5f)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2]");
  ExpectNear(ran.out[0], {-1.5702f, 5.2794f, 1.1271f, -1.1142f});
}

TEST(OnnxDynamicQuantize, MatMul) {
  const Ran ran = RunMicrosoft(
      "DynamicQuantizeMatMul", {"x", "w", "s", "z", "c"},
      {Wave("x", {2, 3}, 1), BytesOf("w", {3, 2}, kElementInt8, 2),
       Floats("s", {2}, {0.01f, 0.02f}), SBytes("z", {2}, {3, -5}), Floats("c", {2}, {0.5f, -1})},
      {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2]");
  ExpectNear(ran.out[0], {-1.11201f, -4.0327f, -1.03282f, -4.81907f});
}

TEST(OnnxDynamicQuantize, MatMulWithoutZeroPoints) {
  const Ran ran = RunMicrosoft(
      "DynamicQuantizeMatMul", {"x", "w", "s"},
      {Wave("x", {1, 3}, 1), BytesOf("w", {3, 2}, kElementUInt8, 2), Floats("s", {}, {0.01f})}, {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2]");
  ExpectNear(ran.out[0], {1.96753f, 1.88163f});
}

TEST(OnnxDynamicQuantize, MatMulIntegerToFloat) {
  const Ran ran =
      RunMicrosoft("MatMulIntegerToFloat", {"a", "b", "s", "t", "z", "", "c"},
                   {BytesOf("a", {2, 3}, kElementUInt8, 1), BytesOf("b", {3, 2}, kElementInt8, 4),
                    Floats("s", {}, {0.02f}), Floats("t", {2}, {0.01f, 0.03f}),
                    UBytes("z", {}, {100}), Floats("c", {2}, {0.5f, -1})},
                   {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2]");
  ExpectNear(ran.out[0], {-1.3184f, -1.9312f, 0.8572f, -5.0614f});
}

TEST(OnnxDynamicQuantize, LstmOfTwoDirections) {
  const Ran ran = RunMicrosoft(
      "DynamicQuantizeLSTM", {"x", "w", "r", "b", "", "", "", "", "s", "z", "t", "u"},
      {Wave("x", {2, 1, 2}, 1), BytesOf("w", {2, 2, 8}, kElementInt8, 2),
       BytesOf("r", {2, 2, 8}, kElementInt8, 3), Wave("b", {2, 16}, 4),
       Floats("s", {2}, {0.004f, 0.006f}), SBytes("z", {2}, {0, 0}),
       Floats("t", {2}, {0.005f, 0.003f}), SBytes("u", {2}, {0, 0})},
      {IntAttribute("hidden_size", 2), TextAttribute("direction", "bidirectional")}, 3);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2, 1, 2]");
  ExpectNear(ran.out[0], {0.00606153f, -0.227108f, -0.139768f, 0.236226f, 0.0502741f, -0.181559f,
                          -0.0757318f, 0.111455f});
  EXPECT_EQ(ran.out[1].shape().ToString(), "[2, 1, 2]");
  ExpectNear(ran.out[1], {0.0502741f, -0.181559f, -0.139768f, 0.236226f});
  EXPECT_EQ(ran.out[2].shape().ToString(), "[2, 1, 2]");
  ExpectNear(ran.out[2], {0.336669f, -0.424345f, -0.207267f, 0.860707f});
}

TEST(OnnxQLinear, ConvWithChannelsLast) {
  const Ran ran =
      RunMicrosoft("QLinearConv", {"x", "s", "z", "w", "t", "y", "u", "v", "b"},
                   {BytesOf("x", {1, 2, 2, 2}, kElementUInt8, 1), Floats("s", {}, {0.02f}),
                    UBytes("z", {}, {100}), BytesOf("w", {1, 2, 2, 1}, kElementInt8, 3),
                    Floats("t", {}, {0.01f}), SBytes("y", {}, {0}), Floats("u", {}, {0.05f}),
                    UBytes("v", {}, {90}), Ints("b", {1}, {500})},
                   {IntAttribute("channels_last", 1)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 1, 2, 1]");
  EXPECT_THAT(ran.out[0].ToVector<int64_t>(), ElementsAre(32, 175));
}

TEST(OnnxQLinear, EmbedLayerNormalization) {
  const Ran ran = RunMicrosoft(
      "QEmbedLayerNormalization",
      {"i", "", "w", "p", "", "g", "b", "m", "c", "d", "", "e", "f", "j", "k", "", "l", "n"},
      {Ints("i", {1, 2}, {0, 2}), BytesOf("w", {3, 2}, kElementUInt8, 1),
       BytesOf("p", {4, 2}, kElementUInt8, 2), BytesOf("g", {2}, kElementUInt8, 4),
       BytesOf("b", {2}, kElementUInt8, 5), Ints("m", {1, 2}, {1, 0}), Floats("c", {}, {0.02f}),
       Floats("d", {}, {0.03f}), Floats("e", {}, {0.01f}), Floats("f", {}, {0.04f}),
       UBytes("j", {}, {100}), UBytes("k", {}, {90}), UBytes("l", {}, {10}),
       UBytes("n", {}, {128})},
      {FloatAttribute("epsilon", 0.1f)}, 2);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 2]");
  ExpectNear(ran.out[0], {-3.24172f, -0.768175f, -3.24172f, -0.768175f});
  EXPECT_EQ(ran.out[1].shape().ToString(), "[1]");
  EXPECT_THAT(ran.out[1].ToVector<int64_t>(), ElementsAre(1));
}

}  // namespace
}  // namespace tessera::onnx
