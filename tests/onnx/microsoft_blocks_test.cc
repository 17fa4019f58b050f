// Ops of com.microsoft on weights in blocks of few bits.
#include "tests/onnx/microsoft.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Sizes(int64_t k, int64_t n, int64_t block, int64_t bits) {
  return {IntAttribute("K", k), IntAttribute("N", n), IntAttribute("block_size", block),
          IntAttribute("bits", bits)};
}

TEST(OnnxMatMulNBits, Errors) {
  const std::vector<std::string> values = {Wave("a", {1, 16}, 1), UBytes("b", {1, 1, 1}, {1}),
                                           Floats("s", {1}, {1})};
  const auto error = [&](int64_t k, int64_t n, int64_t block, int64_t bits) {
    return RunMicrosoft("MatMulNBits", {"a", "b", "s"}, values, Sizes(k, n, block, bits)).error;
  };
  EXPECT_THAT(error(16, 1, 16, 4),
              HasSubstr("MatMulNBits: weights of [1, 1, 1] for 1 rows of 1 blocks"));
  EXPECT_THAT(error(16, 1, 24, 4), HasSubstr("MatMulNBits: K is 16, N 1 and block_size 24"));
  EXPECT_THAT(error(0, 1, 16, 4), HasSubstr("MatMulNBits: K is 0"));
  EXPECT_THAT(error(int64_t{1} << 62, int64_t{1} << 62, 16, 8), HasSubstr("MatMulNBits: "));
  EXPECT_THAT(error(16, 1, 16, 5), HasSubstr("MatMulNBits: numbers of 5 bits"));
}

// By hand: bytes of two numbers, the lower bits first, less 8; the second block is of half the
// size.
TEST(OnnxMatMulNBits, LowerBitsComeFirst) {
  std::vector<float> ones(17, 0);
  ones[0] = 1;
  ones[16] = 100;
  std::vector<uint8_t> bytes(16, 0x88);
  bytes[0] = 0x8b;  // 3, 0
  bytes[8] = 0x87;  // -1, 0
  const Ran ran = RunMicrosoft(
      "MatMulNBits", {"a", "b", "s"},
      {Floats("a", {1, 17}, ones), UBytes("b", {1, 2, 8}, bytes), Floats("s", {1, 2}, {2, 0.5f})},
      Sizes(17, 1, 16, 4));
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(ran.out[0].ToVector<float>(), ElementsAre(3 * 2 - 100 * 0.5f));
}

// The block of each column, where it is not the one that it lies in.
TEST(OnnxMatMulNBits, BlocksByIndex) {
  std::vector<float> ones(32, 0);
  ones[0] = 1;
  std::vector<int32_t> block(32, 0);
  block[0] = 1;
  const Ran ran = RunMicrosoft(
      "MatMulNBits", {"a", "b", "s", "", "g"},
      {Floats("a", {1, 32}, ones), UBytes("b", {1, 2, 16}, std::vector<uint8_t>(32, 130)),
       Floats("s", {1, 2}, {2, 0.5f}), Ints("g", {32}, block)},
      Sizes(32, 1, 16, 8));
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(ran.out[0].ToVector<float>(), ElementsAre(2 * 0.5f));
}

TEST(OnnxMatMulNBits, FourBits) {
  const Ran ran = RunMicrosoft("MatMulNBits", {"a", "b", "s"},
                               {Wave("a", {1, 2, 20}, 1), BytesOf("b", {2, 2, 8}, kElementUInt8, 2),
                                Floats("s", {2, 2}, {0.01f, 0.02f, 0.03f, 0.04f})},
                               {IntAttribute("K", 20), IntAttribute("N", 2),
                                IntAttribute("block_size", 16), IntAttribute("bits", 4)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 2]");
  ExpectNear(ran.out[0], {0.4176f, 0.6792f, -0.586f, -1.1264f});
}

TEST(OnnxMatMulNBits, ZeroPointsOfAnOddNumberOfBlocks) {
  const Ran ran = RunMicrosoft("MatMulNBits", {"a", "b", "s", "z"},
                               {Wave("a", {2, 40}, 1), BytesOf("b", {2, 3, 8}, kElementUInt8, 2),
                                Floats("s", {6}, {0.01f, 0.02f, 0.03f, 0.04f, 0.05f, 0.06f}),
                                BytesOf("z", {4}, kElementUInt8, 7)},
                               {IntAttribute("K", 40), IntAttribute("N", 2),
                                IntAttribute("block_size", 16), IntAttribute("bits", 4)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2]");
  ExpectNear(ran.out[0], {0.0147999f, -0.932f, -0.6588f, 2.196f});
}

TEST(OnnxMatMulNBits, EightBitsWithABias) {
  const Ran ran = RunMicrosoft("MatMulNBits", {"a", "b", "s", "z", "", "c"},
                               {Wave("a", {2, 16}, 1), BytesOf("b", {2, 1, 16}, kElementUInt8, 2),
                                Floats("s", {2, 1}, {0.01f, 0.02f}),
                                BytesOf("z", {2, 1}, kElementUInt8, 7), Wave("c", {2}, 3)},
                               {IntAttribute("K", 16), IntAttribute("N", 2),
                                IntAttribute("block_size", 16), IntAttribute("bits", 8)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2]");
  ExpectNear(ran.out[0], {3.372f, -5.1648f, -3.6224f, -8.4416f});
}

TEST(OnnxMatMulNBits, TwoBits) {
  const Ran ran =
      RunMicrosoft("MatMulNBits", {"a", "b", "s", "z"},
                   {Wave("a", {16}, 1), BytesOf("b", {2, 1, 4}, kElementUInt8, 2),
                    Floats("s", {2, 1}, {0.1f, 0.2f}), BytesOf("z", {2, 1}, kElementUInt8, 7)},
                   {IntAttribute("K", 16), IntAttribute("N", 2), IntAttribute("block_size", 16),
                    IntAttribute("bits", 2)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2]");
  ExpectNear(ran.out[0], {0.46f, 1.64f});
}

TEST(OnnxMatMulNBits, ZeroPointsOfFloats) {
  const Ran ran =
      RunMicrosoft("MatMulNBits", {"a", "b", "s", "z"},
                   {Wave("a", {1, 16}, 1), BytesOf("b", {2, 1, 8}, kElementUInt8, 2),
                    Floats("s", {2, 1}, {0.1f, 0.2f}), Floats("z", {2, 1}, {7.5f, 8.25f})},
                   {IntAttribute("K", 16), IntAttribute("N", 2), IntAttribute("block_size", 16),
                    IntAttribute("bits", 4)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2]");
  ExpectNear(ran.out[0], {1.34f, -4.54f});
}

TEST(OnnxGatherBlocks, OfFourBits) {
  const Ran ran = RunMicrosoft("GatherBlockQuantized", {"d", "i", "s"},
                               {BytesOf("d", {3, 8}, kElementUInt8, 1), Longs("i", {1, 2}, {2, -3}),
                                Floats("s", {3, 1}, {0.1f, 0.2f, 0.3f})},
                               {IntAttribute("bits", 4), IntAttribute("block_size", 16),
                                IntAttribute("gather_axis", 0), IntAttribute("quantize_axis", 1)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 16]");
  ExpectNear(ran.out[0], {0.9f,  -0.9f, -2.4f, 0,    -0.9f, 0.6f, 0.6f,  1.2f,  2.1f,  1.8f,  -1.2f,
                          -2.1f, 0.3f,  -1.5f, 1.8f, -0.9f, 0.3f, -0.8f, -0.8f, -0.5f, -0.3f, -0.3f,
                          0.2f,  -0.1f, 0.7f,  0.1f, -0.4f, 0.4f, 0.1f,  0.6f,  0.6f,  -0.8f});
}

TEST(OnnxGatherBlocks, OfEightBitsWithZeroPoints) {
  const Ran ran =
      RunMicrosoft("GatherBlockQuantized", {"d", "i", "s", "z"},
                   {BytesOf("d", {2, 16}, kElementUInt8, 1), Ints("i", {}, {1}),
                    Floats("s", {2, 1}, {0.1f, 0.2f}), BytesOf("z", {2, 1}, kElementUInt8, 7)},
                   {IntAttribute("bits", 8), IntAttribute("block_size", 16),
                    IntAttribute("gather_axis", 0), IntAttribute("quantize_axis", 1)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[16]");
  ExpectNear(ran.out[0], {-4.6f, 2.8f, 10.2f, 17.6f, 25, -18.8f, -11.4f, -4, 3.4f, 10.8f, 18.2f,
                          25.6f, -18.2f, -10.8f, -3.4f, 4});
}

TEST(OnnxMatMulBnb4, OfFloats) {
  const Ran ran = RunMicrosoft(
      "MatMulBnb4", {"a", "b", "s"},
      {Wave("a", {1, 12}, 1), BytesOf("b", {18}, kElementUInt8, 2), Floats("s", {3}, {0.5f, 1, 2})},
      {IntAttribute("K", 12), IntAttribute("N", 3), IntAttribute("block_size", 16),
       IntAttribute("quant_type", 0)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 3]");
  ExpectNear(ran.out[0], {2.2026f, 0.775f, 1.38542f});
}

TEST(OnnxMatMulBnb4, OfQuantiles) {
  const Ran ran = RunMicrosoft(
      "MatMulBnb4", {"a", "b", "s"},
      {Wave("a", {1, 12}, 1), BytesOf("b", {18}, kElementUInt8, 2), Floats("s", {3}, {0.5f, 1, 2})},
      {IntAttribute("K", 12), IntAttribute("N", 3), IntAttribute("block_size", 16),
       IntAttribute("quant_type", 1)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 3]");
  ExpectNear(ran.out[0], {-1.68101f, -1.09909f, 0.45542f});
}

TEST(OnnxMatMulBnb4, Errors) {
  EXPECT_THAT(RunMicrosoft("MatMulBnb4", {"a", "b", "s"},
                           {Wave("a", {1, 12}, 1), UBytes("b", {1}, {1}), Floats("s", {1}, {1})},
                           {IntAttribute("K", 12), IntAttribute("N", 1),
                            IntAttribute("block_size", 16), IntAttribute("quant_type", 1)})
                  .error,
              HasSubstr("MatMulBnb4: K is 12, N 1 and block_size 16 for 1 bytes"));
}

}  // namespace
}  // namespace tessera::onnx
