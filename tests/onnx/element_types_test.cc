// Narrow element types: their codes, how files lay them out, and what casts give.
#include "examples/onnx/element_types.h"

#include <cmath>
#include <cstring>

#include "examples/onnx/import.h"
#include "tests/graph/tensor_testing.h"
#include "tests/onnx/encode.h"
#include "tests/testing.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kE4M3FNUZ = 18, kE5M2FNUZ = 20, kUInt4 = 21, kInt4 = 22, kE2M1 = 23, kE8M0 = 24,
                  kUInt2 = 25, kInt2 = 26, kE2M3 = 27, kE3M2 = 28;
constexpr int64_t kNarrow[] = {kE4M3FNUZ, kE5M2FNUZ, kUInt4, kInt4, kE2M1,
                               kE8M0,     kUInt2,    kInt2,  kE2M3, kE3M2};

// Of a tensor in a file; and of the codes 0 to 255, of which a type may take the low bits.
std::vector<float> Values(int64_t element, const std::vector<uint8_t>& bytes, int64_t count) {
  const std::string tensor =
      TensorText("t", {count}, element, std::string(bytes.begin(), bytes.end()));
  const absl::StatusOr<TensorData> t = ParseTensor(tensor, "t");
  EXPECT_OK(t);
  return t.ok() ? MakeTensor(*t, "CPU").ToVector<float>() : std::vector<float>();
}
std::vector<float> AllValues(int64_t element) {
  std::vector<uint8_t> bytes(256);
  for (int i = 0; i < 256; ++i) bytes[i] = static_cast<uint8_t>(i);
  if (!IsNarrow(element)) return Values(element, bytes, 256);
  const std::string data =
      Unpacked(element, {reinterpret_cast<const char*>(bytes.data()), 256}, 8, 256);
  std::vector<float> out(256);
  std::memcpy(out.data(), data.data(), data.size());
  return out;
}

TEST(OnnxElementTypes, HaveTheirValues) {
  // two to a byte, the low bits first
  EXPECT_THAT(Values(kInt4, {0x8F, 0x07}, 3), ElementsAre(-1, -8, 7));
  EXPECT_THAT(Values(kUInt4, {0x8F, 0x07}, 3), ElementsAre(15, 8, 7));
  EXPECT_THAT(Values(kInt2, {0xE4, 0x01}, 5), ElementsAre(0, 1, -2, -1, 1));
  EXPECT_THAT(Values(kUInt2, {0xE4, 0x01}, 5), ElementsAre(0, 1, 2, 3, 1));
  EXPECT_THAT(Values(kE2M1, {0x10, 0x32, 0x54, 0x76, 0xF9}, 10),
              ElementsAre(0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -6));
  // four to three bytes: 1, 8, 31, 63
  EXPECT_THAT(Values(kE2M3, {0x01, 0xF2, 0xFD}, 4), ElementsAre(0.125, 1, 7.5, -7.5));
  EXPECT_THAT(Values(kE3M2, {0x01, 0xF2, 0xFD}, 4), ElementsAre(0.0625, 0.5, 28, -28));
  const std::vector<float> powers = AllValues(kE8M0);
  EXPECT_EQ(powers[0], 0x1p-127f);
  EXPECT_EQ(powers[127], 1);
  EXPECT_EQ(powers[254], 0x1p127f);
  EXPECT_TRUE(std::isnan(powers[255]));
}

// Their exponents have a bias one greater than those of the types that tensors have.
TEST(OnnxElementTypes, WithoutNegativeZeros) {
  for (const auto& [element, like] : {std::pair(kE4M3FNUZ, int64_t{17}), {kE5M2FNUZ, 19}}) {
    const std::vector<float> values = AllValues(element), twice = AllValues(like);
    for (int code = 0; code < 256; ++code) {
      if (code == 0x80) {
        EXPECT_TRUE(std::isnan(values[code]));
      } else if (std::isfinite(twice[code])) {
        EXPECT_EQ(values[code], twice[code] / 2) << ElementName(element) << " " << code;
      }
    }
    EXPECT_EQ(values[0x7F], SmallFloatOf(element)->most);
  }
}

TEST(OnnxElementTypes, TypedDataOfSixBitsHasByteForEach) {
  const std::string tensor =
      Number(1, 3) + Number(2, kE2M3) + Number(5, 1) + Number(5, 8) + Number(5, 31);
  const TensorData t = ValueOrThrow(ParseTensor(tensor, "t"));
  EXPECT_THAT(MakeTensor(t, "CPU").ToVector<float>(), ElementsAre(0.125, 1, 7.5));
  EXPECT_FALSE(ParseTensor(TensorText("t", {5}, kInt4, "ab"), "t").ok());
  EXPECT_FALSE(ParseTensor(TensorText("t", {3}, kInt4, "abc"), "t").ok());
  EXPECT_OK(ParseTensor(TensorText("t", {0}, kInt4, ""), "t"));
}

// The values that Cast gives of f32 numbers, and of which type.
std::vector<float> Cast(const std::vector<float>& x, int64_t element,
                        const std::vector<std::string>& attributes = {}) {
  std::vector<std::string> all = attributes;
  all.push_back(IntAttribute("to", element));
  const std::string bytes =
      ModelText(GraphText({NodeText("Cast", {"x"}, {"y"}, all)}, {"x"}, {"y"}), 25);
  const Model model = ValueOrThrow(ParseModel(bytes, "test"));
  absl::flat_hash_map<std::string, Value> inputs;
  inputs["x"] = {Tensor::From(x, {static_cast<int64_t>(x.size())}, "CPU"), false};
  const Value y = Importer(model, "CPU").Run(inputs).at(0);
  EXPECT_EQ(y.element, element);
  return y.tensor.ToVector<float>();
}

// Each number of a type is itself; one between two of them is the nearest, or the even of both.
TEST(OnnxElementTypes, CastsRoundToTheNearest) {
  for (const int64_t element : kNarrow) {
    if (!SmallFloatOf(element) || element == kE8M0) continue;
    SCOPED_TRACE(ElementName(element));
    std::vector<float> numbers;  // ascending; every second one has an even code
    for (const float v : AllValues(element)) {
      if (std::isnan(v) || std::signbit(v)) break;
      if (!numbers.empty() && v <= numbers.back()) break;
      numbers.push_back(v);
    }
    ASSERT_EQ(numbers.back(), SmallFloatOf(element)->most);
    std::vector<float> given, expected;
    for (size_t i = 0; i + 1 < numbers.size(); ++i) {
      const float low = numbers[i], high = numbers[i + 1], middle = (low + high) / 2;
      for (const float sign : {1.0f, -1.0f}) {
        given.insert(given.end(), {sign * low, sign * std::nextafter(middle, low), sign * middle,
                                   sign * std::nextafter(middle, high)});
        expected.insert(expected.end(),
                        {sign * low, sign * low, sign * (i % 2 == 0 ? low : high), sign * high});
      }
    }
    const std::vector<float> got = Cast(given, element);
    for (size_t i = 0; i < given.size(); ++i) EXPECT_EQ(got[i], expected[i]) << given[i];
  }
}

TEST(OnnxElementTypes, CastsBeyondTheLargest) {
  const std::vector<float> x = {1e6f, -1e6f, INFINITY, -INFINITY, NAN};
  const std::vector<std::string> unsaturated = {IntAttribute("saturate", 0)};
  for (const int64_t element : {kE4M3FNUZ, kE5M2FNUZ}) {
    const auto most = static_cast<float>(SmallFloatOf(element)->most);
    const std::vector<float> y = Cast(x, element);
    EXPECT_EQ(std::vector<float>(y.begin(), y.end() - 1),
              (std::vector<float>{most, -most, most, -most}));
    EXPECT_TRUE(std::isnan(y.back()));
    for (const float v : Cast(x, element, unsaturated)) EXPECT_TRUE(std::isnan(v));
  }
  // there is no infinity, and no NaN
  EXPECT_THAT(Cast(x, kE2M1, unsaturated), ElementsAre(6, -6, 6, -6, 0));
  EXPECT_THAT(Cast(x, kE2M3), ElementsAre(7.5, -7.5, 7.5, -7.5, 0));
}

TEST(OnnxElementTypes, CastsOfIntegersWrap) {
  EXPECT_THAT(Cast({-9, -8, 7, 8, 16, -1.5, 2.5}, kInt4), ElementsAre(7, -8, 7, -8, 0, -1, 2));
  EXPECT_THAT(Cast({-1, 15, 16, 17.9f}, kUInt4), ElementsAre(15, 15, 0, 1));
  EXPECT_THAT(Cast({-3, -2, 1, 2}, kInt2), ElementsAre(1, -2, 1, -2));
  EXPECT_THAT(Cast({-1, 3, 4}, kUInt2), ElementsAre(3, 3, 0));
}

TEST(OnnxElementTypes, CastsToPowersOfTwo) {
  const std::vector<float> x = {1, 1.1f, 1.5f, 1.9f, -3, 0, 0x1.8p127f};
  const auto mode = [](const char* name) {
    return std::vector<std::string>{TextAttribute("round_mode", name)};
  };
  EXPECT_THAT(Cast(x, kE8M0), ElementsAre(1, 2, 2, 2, 4, 0x1p-127f, 0x1p127f));
  EXPECT_THAT(Cast(x, kE8M0, mode("down")), ElementsAre(1, 1, 1, 1, 2, 0x1p-127f, 0x1p127f));
  EXPECT_THAT(Cast(x, kE8M0, mode("nearest")), ElementsAre(1, 1, 2, 2, 4, 0x1p-127f, 0x1p127f));
  for (const float v : Cast({INFINITY, NAN}, kE8M0)) EXPECT_TRUE(std::isnan(v));
  EXPECT_TRUE(std::isnan(Cast({0x1.8p127f}, kE8M0, {IntAttribute("saturate", 0)})[0]));
  EXPECT_ERROR(Cast(x, kE8M0, mode("odd")), "Cast", "round_mode is 'odd'");
}

TEST(OnnxElementTypes, OfQuantisedNumbers) {
  const auto quantise = [](int64_t element) {
    const std::string bytes =
        ModelText(GraphText({NodeText("QuantizeLinear", {"x", "s"}, {"y"},
                                      {IntAttribute("output_dtype", element)})},
                            {"x", "s"}, {"y"}),
                  25);
    const Model model = ValueOrThrow(ParseModel(bytes, "test"));
    absl::flat_hash_map<std::string, Value> inputs;
    inputs["x"] = {Tensor::From(std::vector<float>{1, 100, -100}, {3}, "CPU"), false};
    inputs["s"] = {Tensor::From(std::vector<float>{2}, {}, "CPU"), false};
    return Importer(model, "CPU").Run(inputs).at(0).tensor.ToVector<float>();
  };
  EXPECT_THAT(quantise(kInt4), ElementsAre(0, 7, -8));
  EXPECT_THAT(quantise(kE2M1), ElementsAre(0.5, 6, -6));
  EXPECT_THAT(quantise(0), ElementsAre(0, 50, 0));  // UINT8, as where there is none
  EXPECT_ERROR(quantise(99), "QuantizeLinear", "the element type type 99 is none of a Tensor");
  EXPECT_ERROR(quantise(-1), "QuantizeLinear", "none of a Tensor");
  for (const int64_t element : {kElementFloat, kElementBool}) {
    EXPECT_ERROR(quantise(element), "QuantizeLinear", "is no type of quantised numbers");
  }
}

TEST(OnnxElementTypes, StayOnWhatMoves) {
  const std::string bytes = ModelText(
      GraphText({NodeText("Cast", {"x"}, {"t"}, {IntAttribute("to", kInt4)}),
                 NodeText("Transpose", {"t"}, {"u"}), NodeText("CastLike", {"w", "u"}, {"y"}),
                 NodeText("DequantizeLinear", {"y", "s"}, {"z"})},
                {"x", "w", "s"}, {"u", "y", "z"}),
      25);
  const Model model = ValueOrThrow(ParseModel(bytes, "test"));
  absl::flat_hash_map<std::string, Value> inputs;
  inputs["x"] = {Tensor::From(std::vector<float>{1, 2}, {2, 1}, "CPU"), false};
  inputs["w"] = {Tensor::From(std::vector<float>{9, -9}, {2}, "CPU"), false};
  inputs["s"] = {Tensor::From(std::vector<float>{0.5f}, {}, "CPU"), false};
  const std::vector<Value> out = Importer(model, "CPU").Run(inputs);
  EXPECT_EQ(out[0].element, kInt4);
  EXPECT_EQ(out[1].element, kInt4);
  EXPECT_EQ(out[2].element, 0);
  EXPECT_THAT(out[2].tensor.ToVector<float>(), ElementsAre(-3.5, 3.5));
}

}  // namespace
}  // namespace tessera::onnx
