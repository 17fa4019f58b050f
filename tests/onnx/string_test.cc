// Strings, which are held as numbers: what moves them, what reads them, and what takes none.
#include "examples/onnx/strings.h"

#include <chrono>

#include "examples/onnx/import.h"
#include "runtime/runtime.h"
#include "tests/graph/tensor_testing.h"
#include "tests/onnx/encode.h"
#include "tests/testing.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;
using Texts = std::vector<std::string>;

std::vector<Value> Made(const std::vector<std::string>& nodes, const Texts& outputs,
                        const std::vector<std::string>& initializers,
                        const absl::flat_hash_map<std::string, Value>& inputs = {},
                        const Device& data = "CPU") {
  Texts names;
  for (const auto& [name, value] : inputs) names.push_back(name);
  const std::string bytes = ModelText(GraphText(nodes, names, outputs, initializers), 20,
                                      Bytes(8, OpsetText("ai.onnx.ml", 4)));
  const Model model = ValueOrThrow(ParseModel(bytes, "test"));
  return Importer(model, data).Run(inputs);
}
Texts TextsOf(const Value& v) {
  EXPECT_TRUE(IsStrings(v));
  Texts out;
  for (const uint64_t n : v.tensor.ToVector<uint64_t>()) out.emplace_back(StringOf(n));
  return out;
}
// What one op makes of words a to f [2, 3] and more inputs.
Value OnWords(const std::string& op, const Texts& more, const std::vector<std::string>& attributes,
              std::vector<std::string> initializers, const std::string& domain = "") {
  Texts inputs = {"w"};
  inputs.insert(inputs.end(), more.begin(), more.end());
  initializers.push_back(StringsText("w", {2, 3}, {"a", "b", "c", "d", "e", "f"}));
  return Made({NodeText(op, inputs, {"y"}, attributes, domain)}, {"y"}, initializers)[0];
}

TEST(OnnxStrings, NumbersStandForThem) {
  EXPECT_EQ(NumberOf(""), 0u);
  EXPECT_EQ(NumberOf("word"), NumberOf(std::string("word")));
  EXPECT_NE(NumberOf("word"), NumberOf("Word"));
  EXPECT_EQ(StringOf(NumberOf(std::string("a\0b", 3))), absl::string_view("a\0b", 3));
  EXPECT_ERROR(StringOf(uint64_t{1} << 60), "STRING", "computed with");
}

TEST(OnnxStrings, WhatMovesElementsMovesThem) {
  EXPECT_THAT(TextsOf(OnWords("Transpose", {}, {}, {})), ElementsAre("a", "d", "b", "e", "c", "f"));
  EXPECT_THAT(
      TextsOf(OnWords("Gather", {"i"}, {IntAttribute("axis", 1)}, {Longs("i", {2}, {2, -3})})),
      ElementsAre("c", "a", "f", "d"));
  EXPECT_THAT(TextsOf(OnWords("Concat", {"w"}, {IntAttribute("axis", 0)}, {})),
              ElementsAre("a", "b", "c", "d", "e", "f", "a", "b", "c", "d", "e", "f"));
  EXPECT_THAT(TextsOf(OnWords("Pad", {"p", "v"}, {},
                              {Longs("p", {4}, {0, 0, 0, 1}), StringsText("v", {}, {"z"})})),
              ElementsAre("a", "b", "c", "z", "d", "e", "f", "z"));
  const Value shape = OnWords("Shape", {}, {}, {});
  EXPECT_EQ(shape.element, 0) << "which is no string";
  EXPECT_THAT(shape.tensor.ToVector<int64_t>(), ElementsAre(2, 3));
  const Value same = OnWords("Equal", {"v"}, {}, {StringsText("v", {}, {"e"})});
  EXPECT_THAT(same.tensor.ToVector<int>(), ElementsAre(0, 0, 0, 0, 1, 0));
}

TEST(OnnxStrings, AsDataOverPlaces) {
  const Tensor words = StringTensor({"x", "y", "z", "x"}, {4});
  const Device alone = "CPU", both = Sharding({"CPU:0", "CPU:1"}),
               halves = Sharding({"CPU:0", "CPU:1"}, 0);
  for (const auto& [device, data] : {std::pair(alone, alone), std::pair(halves, both)}) {
    const Value given = {words.To(device), false, kElementString};
    const std::vector<Value> out = Made(
        {NodeText("Where", {"c", "w", "u"}, {"y"}), NodeText("StringConcat", {"w", "u"}, {"z"})},
        {"y", "z"},
        {StringsText("u", {1}, {"!"}), TensorText("c", {4}, kElementBool, {1, 0, 1, 0})},
        {{"w", given}}, data);
    EXPECT_THAT(TextsOf(out[0]), ElementsAre("x", "!", "z", "!"));
    EXPECT_THAT(TextsOf(out[1]), ElementsAre("x!", "y!", "z!", "x!"));
  }
}

TEST(OnnxStrings, Casts) {
  const auto cast = [](const std::string& tensor, int64_t to) {
    return Made({NodeText("Cast", {"x"}, {"y"}, {IntAttribute("to", to)})}, {"y"}, {tensor})[0];
  };
  EXPECT_THAT(TextsOf(cast(Floats("x", {5}, {1, -0.1F, 1e-20F, INFINITY, NAN}), kElementString)),
              ElementsAre("1.0", "-0.1", "1e-20", "inf", "nan"));
  EXPECT_THAT(TextsOf(cast(Longs("x", {2}, {-7, int64_t{1} << 62}), kElementString)),
              ElementsAre("-7", "4611686018427387904"));
  EXPECT_THAT(
      cast(StringsText("x", {3}, {"1.5", "-2e3", "inf"}), kElementFloat).tensor.ToVector<float>(),
      ElementsAre(1.5F, -2000.F, INFINITY));
  EXPECT_THAT(cast(StringsText("x", {2}, {"12", "-3"}), kElementInt64).tensor.ToVector<int64_t>(),
              ElementsAre(12, -3));
  EXPECT_THAT(cast(StringsText("x", {3}, {"True", "0", "1"}), kElementBool).tensor.ToVector<int>(),
              ElementsAre(1, 0, 1));
  EXPECT_ERROR(cast(StringsText("x", {1}, {"x"}), kElementFloat), "Cast", "'x' is no number");
  EXPECT_ERROR(cast(StringsText("x", {1}, {"1.5"}), kElementInt64), "Cast", "no whole number");
  EXPECT_THAT(cast(StringsText("x", {1}, {"18446744073709551615"}), 13)  // UINT64
                  .tensor.ToVector<uint64_t>(),
              ElementsAre(UINT64_MAX));
  EXPECT_THAT(cast(StringsText("x", {1}, {"255"}), kElementUInt8).tensor.ToVector<int>(),
              ElementsAre(255));
  EXPECT_ERROR(cast(StringsText("x", {1}, {"300"}), kElementUInt8), "Cast",
               "'300' is out of range of UINT8");
}

TEST(OnnxStrings, WhatReadsThem) {
  const Value parts =
      Made({NodeText("StringSplit", {"x"}, {"y", "n"}, {IntAttribute("maxsplit", 1)})}, {"y"},
           {StringsText("x", {2}, {"  a \xC2\xA0 b c ", ""})})[0];
  EXPECT_THAT(TextsOf(parts), ElementsAre("a", "b c", "", ""));
  const auto in_case = [](const std::string& action) {
    return TextsOf(Made({NodeText("StringNormalizer", {"x"}, {"y"},
                                  {TextAttribute("case_change_action", action),
                                   TextsAttribute("stopwords", {"ÜBER"})})},
                        {"y"}, {StringsText("x", {3}, {"über", "Straße", "É"})})[0]);
  };
  EXPECT_THAT(in_case("UPPER"), ElementsAre("STRASSE", "É"));
  EXPECT_THAT(in_case("LOWER"), ElementsAre("straße", "é"));
  const auto counts = Made(
      {NodeText("TfIdfVectorizer", {"x"}, {"y"},
                {TextsAttribute("pool_strings", {"a", "b", "b", "a"}),
                 IntsAttribute("ngram_counts", {0, 2}), IntsAttribute("ngram_indexes", {0, 1, 2}),
                 IntAttribute("min_gram_length", 1), IntAttribute("max_gram_length", 2),
                 IntAttribute("max_skip_count", 0), TextAttribute("mode", "TF")})},
      {"y"}, {StringsText("x", {4}, {"a", "b", "a", "c"})})[0];
  EXPECT_THAT(counts.tensor.ToVector<float>(), ElementsAre(2, 1, 1));
  const auto constant = [](const std::string& attribute) {
    return TextsOf(Made({NodeText("Constant", {}, {"y"}, {attribute})}, {"y"}, {})[0]);
  };
  EXPECT_THAT(constant(TextAttribute("value_string", "é")), ElementsAre("é"));
  EXPECT_THAT(constant(TextsAttribute("value_strings", {"a", ""})), ElementsAre("a", ""));
}

TEST(OnnxStrings, SplitsLongTextsInTheirTime) {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += "ab ";
  const auto begin = std::chrono::steady_clock::now();
  const Value n =
      Made({NodeText("StringSplit", {"x"}, {"y", "n"})}, {"n"}, {StringsText("x", {1}, {text})})[0];
  EXPECT_THAT(n.tensor.ToVector<int64_t>(), ElementsAre(60000));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 5) << "each word is read once, not all after it";
}

TEST(OnnxStrings, BytesThatOneNodeMakes) {
  EXPECT_ERROR(Made({NodeText("StringConcat", {"x", "u"}, {"y"})}, {"y"},
                    {StringsText("x", {1}, {std::string(1 << 20, 'x')}),
                     StringsText("u", {257}, Texts(257))}),
               "StringConcat", "more than 268435456 bytes of strings");
}

TEST(OnnxStrings, WhatTakesNone) {
  EXPECT_ERROR(OnWords("Add", {"w"}, {}, {}), "Add", "input 0 is STRING; it takes no strings");
  EXPECT_ERROR(OnWords("Unique", {}, {}, {}), "Unique", "takes no strings");
  EXPECT_ERROR(OnWords("Scaler", {}, {}, {}, "ai.onnx.ml"), "Scaler", "no strings");
  EXPECT_ERROR(OnWords("RegexFullMatch", {}, {TextAttribute("pattern", "(")}, {}), "RegexFullMatch",
               "the pattern '('");
  EXPECT_ERROR(OnWords("RegexFullMatch", {}, {TextAttribute("pattern", "a)|(b")}, {}),
               "RegexFullMatch", "pattern: byte 1");
  EXPECT_ERROR(OnWords("ScatterElements", {"i", "u"}, {TextAttribute("reduction", "add")},
                       {Longs("i", {1, 1}, {0}), StringsText("u", {1, 1}, {"z"})}),
               "ScatterElements", "input 0 is STRING; reduction 'add'");
  EXPECT_THAT(TextsOf(OnWords("ScatterElements", {"i", "u"}, {TextAttribute("reduction", "none")},
                              {Longs("i", {1, 1}, {0}), StringsText("u", {1, 1}, {"z"})})),
              ElementsAre("z", "b", "c", "d", "e", "f"));
  EXPECT_ERROR(OnWords("StringNormalizer", {}, {}, {}), "StringNormalizer", "shape [C] or [1, C]");
  const auto fault = [](const std::string& tensor) {
    const std::string bytes = ModelText(GraphText({}, {}, {}, {tensor}));
    return ParseModel(bytes, "test").status();
  };
  EXPECT_THAT(fault(TensorText("x", {1}, kElementString, "12345678")),
              StatusIs(absl::StatusCode::kDataLoss, "strings in raw_data"));
  EXPECT_THAT(fault(StringsText("x", {3}, {"a"})),
              StatusIs(absl::StatusCode::kDataLoss, "of 3 STRING elements has 8 bytes"));
}

}  // namespace
}  // namespace tessera::onnx
