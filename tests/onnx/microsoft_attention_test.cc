// Attention of com.microsoft.
#include "tests/onnx/microsoft.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OnnxMicrosoftAttention, Errors) {
  const std::vector<std::string> values = {Wave("x", {1, 2, 2}, 1), Wave("w", {2, 6}, 2),
                                           Ints("m", {1, 1, 2, 2}, {1, 1, 1, 1})};
  const auto error = [&](const std::vector<std::string>& inputs,
                         const std::vector<std::string>& attributes) {
    return RunMicrosoft("Attention", inputs, values, attributes).error;
  };
  const std::string one = IntAttribute("num_heads", 1);
  EXPECT_THAT(error({"x", "w"}, {}), HasSubstr("Attention: attribute 'num_heads' is missing"));
  EXPECT_THAT(error({"x", "w"}, {IntAttribute("num_heads", 3)}),
              HasSubstr("Attention: an input of 3 heads has shape [1, 2, 2]"));
  EXPECT_THAT(error({"x", "w"}, {one, IntsAttribute("qkv_hidden_sizes", {2, 2, 3})}),
              HasSubstr("Attention: qkv_hidden_sizes do not fit weights of 6 columns"));
  EXPECT_THAT(error({"x", "w", "", "m"}, {one}),
              HasSubstr("Attention: a mask of shape [1, 1, 2, 2] for 2 keys"));
  EXPECT_THAT(error({"x", "w"}, {one, IntAttribute("do_rotary", 1)}),
              HasSubstr("Attention: do_rotary"));
}

// ONNX Runtime has packed inputs on GPUs alone: they are the same as those that come by themselves.
TEST(OnnxMultiHeadAttention, PackedInputs) {
  // [1, 2, 1, 3, 2]: two rows of q, k and v.
  const std::string all = Floats("all", {1, 2, 1, 3, 2}, {1, 2, 3, 4, 5, 6, -1, 0, 2, 1, 0, 9});
  const std::string both = Floats("both", {1, 2, 1, 2, 2}, {3, 4, 5, 6, 2, 1, 0, 9});
  const std::string q = Floats("q", {1, 2, 2}, {1, 2, -1, 0});
  const std::string k = Floats("k", {1, 2, 2}, {3, 4, 2, 1}),
                    v = Floats("v", {1, 2, 2}, {5, 6, 0, 9});
  const auto run = [&](const std::vector<std::string>& inputs,
                       const std::vector<std::string>& values) {
    const Ran ran =
        RunMicrosoft("MultiHeadAttention", inputs, values, {IntAttribute("num_heads", 1)});
    EXPECT_EQ(ran.error, "");
    return ran.out.empty() ? std::vector<float>() : ran.out[0].ToVector<float>();
  };
  const std::vector<float> apart = run({"q", "k", "v"}, {q, k, v});
  EXPECT_EQ(apart.size(), 4u);
  EXPECT_EQ(run({"all"}, {all}), apart);
  EXPECT_EQ(run({"q", "both"}, {q, both}), apart);
}

// What is given back: the row after those that count, whatever lay there; zeros after it where the
// batch has longer ones.
TEST(OnnxGroupQueryAttention, PresentRows) {
  const auto rows = [](const std::string& name, const std::vector<float>& values) {
    std::vector<float> all;
    for (const float v : values) all.insert(all.end(), 8, v);
    return Floats(name, {2, 1, static_cast<int64_t>(values.size()) / 2, 8}, all);
  };
  const Ran ran =
      RunMicrosoft("GroupQueryAttention", {"q", "k", "k", "p", "p", "n", "t"},
                   {Wave("q", {2, 1, 8}, 1), Floats("k", {2, 1, 8}, std::vector<float>(16, 9)),
                    rows("p", {1, 2, 3, 4}), Ints("n", {2}, {2, 1}), Ints("t", {}, {3})},
                   {IntAttribute("num_heads", 1), IntAttribute("kv_num_heads", 1)}, 3);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[1].shape().ToString(), "[2, 1, 3, 8]");
  EXPECT_THAT(ran.out[1].Max({-1}).ToVector<float>(), ElementsAre(1, 2, 9, 3, 9, 0));
}

// A sink is one more score: of zeros alone, each of two keys weighs a third.
TEST(OnnxGroupQueryAttention, SinkOfEachHead) {
  const Ran ran =
      RunMicrosoft("GroupQueryAttention", {"q", "q", "v", "", "", "n", "t", "", "", "", "", "s"},
                   {Floats("q", {1, 2, 8}, std::vector<float>(16, 0)),
                    Floats("v", {1, 2, 8}, std::vector<float>(16, 3)), Ints("n", {1}, {1}),
                    Ints("t", {}, {2}), Floats("s", {1}, {0})},
                   {IntAttribute("num_heads", 1), IntAttribute("kv_num_heads", 1)}, 3);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(ran.out[0].Max({-1}).ToVector<float>(),
              ElementsAre(::testing::FloatNear(1.5f, 1e-5f), ::testing::FloatNear(2, 1e-5f)));
}

TEST(OnnxGroupQueryAttention, Errors) {
  const std::vector<std::string> values = {Wave("q", {1, 2, 8}, 1), Ints("n", {1}, {1}),
                                           Ints("t", {}, {1})};
  const auto error = [&](const std::vector<std::string>& more) {
    std::vector<std::string> attributes = {IntAttribute("num_heads", 1),
                                           IntAttribute("kv_num_heads", 1)};
    attributes.insert(attributes.end(), more.begin(), more.end());
    return RunMicrosoft("GroupQueryAttention", {"q", "q", "q", "", "", "n", "t"}, values,
                        attributes, 3)
        .error;
  };
  EXPECT_THAT(
      error({}),
      HasSubstr("GroupQueryAttention: total_sequence_length is 1 for 2 new ones and a past of 0"));
  EXPECT_THAT(error({TextAttribute("k_quant_type", "PER_TENSOR")}),
              HasSubstr("GroupQueryAttention: k_quant_type PER_TENSOR"));
}

TEST(OnnxMicrosoftAttention, LengthsHideKeys) {
  const Ran ran = RunMicrosoft(
      "Attention", {"x", "w", "b", "m"},
      {Wave("x", {2, 2, 2}, 1), Wave("w", {2, 6}, 2), Wave("b", {6}, 3), Ints("m", {2}, {1, 2})},
      {IntAttribute("num_heads", 2)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2, 2]");
  ExpectNear(ran.out[0],
             {-0.1104f, 1.528f, -0.1104f, 1.528f, 2.54011f, -1.04909f, 2.98078f, -1.56075f});
}

TEST(OnnxMicrosoftAttention, EndsThenBegins) {
  const Ran ran = RunMicrosoft("Attention", {"x", "w", "b", "m"},
                               {Wave("x", {2, 2, 2}, 1), Wave("w", {2, 6}, 2), Wave("b", {6}, 3),
                                Ints("m", {4}, {2, 1, 1, 0})},
                               {IntAttribute("num_heads", 1)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2, 2]");
  ExpectNear(ran.out[0], {0.4544f, -2.72f, 0.4544f, -2.72f, 4.2512f, -3.736f, 4.2512f, -3.736f});
}

TEST(OnnxMicrosoftAttention, HiddenKeysWeighALittle) {
  const Ran ran =
      RunMicrosoft("Attention", {"x", "w", "b", "m"},
                   {Wave("x", {2, 2, 2}, 1), Wave("w", {2, 6}, 2), Wave("b", {6}, 3),
                    Ints("m", {2, 2}, {1, 0, 0, 0})},
                   {IntAttribute("num_heads", 1), FloatAttribute("mask_filter_value", -1)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2, 2]");
  ExpectNear(ran.out[0], {0.445623f, -2.65398f, -0.110378f, 1.52784f, 2.04158f, -1.06922f, 2.58513f,
                          -1.72523f});
}

TEST(OnnxMicrosoftAttention, PastIsStacked) {
  const Ran ran =
      RunMicrosoft("Attention", {"x", "w", "b", "", "p"},
                   {Wave("x", {2, 2, 2}, 1), Wave("w", {2, 6}, 2), Wave("b", {6}, 3),
                    Wave("p", {2, 2, 1, 1, 2}, 4)},
                   {IntAttribute("num_heads", 1), IntAttribute("unidirectional", 1)}, 2);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 2, 2]");
  ExpectNear(ran.out[0],
             {1.58053f, -0.836827f, -0.104444f, 1.51931f, 3.62545f, -3.4417f, 1.90681f, -1.81726f});
  EXPECT_EQ(ran.out[1].shape().ToString(), "[2, 2, 1, 3, 2]");
  ExpectNear(ran.out[1],
             {-0.24f,   1.24f,    -4.5184f, 0.8368f, 2.44f,   -1.3808f, -1.32f,   0.16f,
              -3.6912f, -0.3664f, -4.1664f, 0.3248f, 1.64f,   -0.92f,   -0.1104f, 1.528f,
              0.4544f,  -2.72f,   0.56f,    -2,      4.2512f, -3.736f,  1.7456f,  -0.712f});
}

TEST(OnnxMicrosoftAttention, ValuesOfAnotherSize) {
  const Ran ran =
      RunMicrosoft("Attention", {"x", "w"}, {Wave("x", {1, 2, 2}, 1), Wave("w", {2, 5}, 2)},
                   {IntAttribute("num_heads", 1), IntsAttribute("qkv_hidden_sizes", {2, 2, 1}),
                    FloatAttribute("scale", 0.5f)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 1]");
  ExpectNear(ran.out[0], {0.937008f, 0.309484f});
}

TEST(OnnxMultiHeadAttention, WithBiasAndPadding) {
  const Ran ran =
      RunMicrosoft("MultiHeadAttention", {"q", "k", "v", "b", "m"},
                   {Wave("q", {1, 2, 2}, 1), Wave("k", {1, 3, 2}, 2), Wave("v", {1, 3, 2}, 3),
                    Wave("b", {6}, 4), Ints("m", {1, 3}, {1, 0, 1})},
                   {IntAttribute("num_heads", 2)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 2]");
  ExpectNear(ran.out[0], {1.02166f, -0.283008f, 2.6492f, -1.10692f});
}

TEST(OnnxMultiHeadAttention, CacheAsItIs) {
  const Ran ran = RunMicrosoft(
      "MultiHeadAttention", {"q", "k", "v"},
      {Wave("q", {1, 1, 2}, 1), Wave("k", {1, 1, 3, 2}, 2), Wave("v", {1, 1, 3, 2}, 3)},
      {IntAttribute("num_heads", 1)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 1, 2]");
  ExpectNear(ran.out[0], {-0.491272f, 0.503493f});
}

TEST(OnnxMultiHeadAttention, PastComesFirst) {
  const Ran ran = RunMicrosoft(
      "MultiHeadAttention", {"q", "k", "v", "", "", "m", "p", "r"},
      {Wave("q", {1, 2, 2}, 1), Wave("k", {1, 3, 2}, 2), Wave("v", {1, 3, 2}, 3),
       Wave("m", {1, 1, 2, 4}, 6), Wave("p", {1, 1, 1, 2}, 4), Wave("r", {1, 1, 1, 2}, 5)},
      {IntAttribute("num_heads", 1), FloatAttribute("scale", 0.25f)}, 3);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 2]");
  ExpectNear(ran.out[0], {0.485417f, 0.113189f, -1.49289f, -0.268379f});
  EXPECT_EQ(ran.out[1].shape().ToString(), "[1, 1, 4, 2]");
  ExpectNear(ran.out[1], {-0.24f, 1.24f, -1.12f, 0.36f, 1.84f, -0.72f, 0.76f, -1.8f});
  EXPECT_EQ(ran.out[2].shape().ToString(), "[1, 1, 4, 2]");
  ExpectNear(ran.out[2], {0.2f, 1.68f, -0.68f, 0.8f, -1.76f, -0.28f, 1.2f, -1.36f});
}

TEST(OnnxMicrosoftRotary, OnePositionIsOfTheFirst) {
  const Ran ran = RunMicrosoft(
      "RotaryEmbedding", {"x", "p", "c", "s"},
      {Wave("x", {1, 2, 4}, 1), Longs("p", {1}, {3}), Wave("c", {5, 2}, 7), Wave("s", {5, 2}, 8)},
      {});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 4]");
  ExpectNear(ran.out[0],
             {-0.5248f, -0.224f, 5.3152f, 0.808f, 1.1984f, -2.2176f, -0.2112f, -3.6432f});
}

TEST(OnnxMicrosoftRotary, PartOfEachHead) {
  const Ran ran =
      RunMicrosoft("RotaryEmbedding", {"x", "p", "c", "s"},
                   {Wave("x", {1, 2, 1, 6}, 1), Longs("p", {1, 1}, {2}), Wave("c", {5, 2}, 7),
                    Wave("s", {5, 2}, 8)},
                   {IntAttribute("interleaved", 1), IntAttribute("rotary_embedding_dim", 4),
                    IntAttribute("num_heads", 2)});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 1, 6]");
  ExpectNear(ran.out[0], {1.6336f, 1.0848f, 1.5344f, 0.712f, 0.32f, 1.8f, 1.2816f, -0.2912f,
                          -0.4336f, -1.6896f, 1.12f, -1.44f});
}

TEST(OnnxGroupQueryAttention, Prompt) {
  const Ran ran = RunMicrosoft("GroupQueryAttention", {"q", "k", "v", "", "", "n", "t"},
                               {Wave("q", {1, 3, 16}, 1), Wave("k", {1, 3, 8}, 2),
                                Wave("v", {1, 3, 8}, 3), Ints("n", {1}, {2}), Ints("t", {}, {3})},
                               {IntAttribute("num_heads", 2), IntAttribute("kv_num_heads", 1)}, 3);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 3, 16]");
  ExpectNear(
      ran.out[0],
      {-0.68f,     0.8f,      -1.76f,    -0.28f,     1.2f,      -1.36f,    0.12f,      1.6f,
       -0.68f,     0.8f,      -1.76f,    -0.28f,     1.2f,      -1.36f,    0.12f,      1.6f,
       -0.918455f, 0.561545f, 1.44211f,  -0.518455f, 0.961545f, -1.59845f, -0.118455f, 1.36155f,
       -0.911748f, 0.568252f, 1.35204f,  -0.511748f, 0.968252f, -1.59175f, -0.111748f, 1.36825f,
       -1.03598f,  0.444025f, 1.29691f,  -0.635975f, 0.844025f, -1.71598f, -0.235975f, 1.24402f,
       -0.981354f, 0.498646f, 0.915813f, -0.581354f, 0.898646f, -1.66135f, -0.181354f, 1.29865f});
}

TEST(OnnxGroupQueryAttention, StepOfRowsOfOtherLengths) {
  const Ran ran =
      RunMicrosoft("GroupQueryAttention", {"q", "k", "v", "p", "r", "n", "t"},
                   {Wave("q", {2, 1, 16}, 1), Wave("k", {2, 1, 8}, 2), Wave("v", {2, 1, 8}, 3),
                    Wave("p", {2, 1, 2, 8}, 4), Wave("r", {2, 1, 2, 8}, 5), Ints("n", {2}, {2, 1}),
                    Ints("t", {}, {3})},
                   {IntAttribute("num_heads", 2), IntAttribute("kv_num_heads", 1)}, 3);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 1, 16]");
  ExpectNear(
      ran.out[0],
      {-0.559572f, 0.920428f, -1.63957f, -0.159572f, 1.12174f,  -1.23957f, 0.240428f,  1.00226f,
       -0.559992f, 0.920008f, -1.63999f, -0.159992f, 1.0989f,   -1.23999f, 0.240008f,  1.01514f,
       -0.929298f, 0.550702f, 1.82397f,  -0.529298f, 0.950702f, -1.6093f,  -0.129298f, 1.3507f,
       -0.918338f, 0.561662f, 1.76114f,  -0.518338f, 0.961662f, -1.59834f, -0.118338f, 1.36166f});
}

TEST(OnnxGroupQueryAttention, WindowAndCap) {
  const Ran ran =
      RunMicrosoft("GroupQueryAttention", {"q", "k", "v", "", "", "n", "t"},
                   {Wave("q", {1, 3, 16}, 1), Wave("k", {1, 3, 8}, 2), Wave("v", {1, 3, 8}, 3),
                    Ints("n", {1}, {2}), Ints("t", {}, {3})},
                   {IntAttribute("num_heads", 2), IntAttribute("kv_num_heads", 1),
                    IntAttribute("local_window_size", 2), FloatAttribute("softcap", 1.5f)},
                   3);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 3, 16]");
  ExpectNear(
      ran.out[0],
      {-0.68f,     0.8f,      -1.76f,   -0.28f,     1.2f,      -1.36f,    0.12f,      1.6f,
       -0.68f,     0.8f,      -1.76f,   -0.28f,     1.2f,      -1.36f,    0.12f,      1.6f,
       -0.90904f,  0.57096f,  1.31568f, -0.50904f,  0.97096f,  -1.58904f, -0.10904f,  1.37096f,
       -0.904794f, 0.575206f, 1.25866f, -0.504794f, 0.975206f, -1.58479f, -0.104794f, 1.37521f,
       -1.10121f,  0.378788f, 1.85879f, -0.701212f, 0.778788f, -1.78121f, -0.301212f, 1.17879f,
       -1.0962f,   0.383796f, 1.8638f,  -0.696204f, 0.783796f, -1.7762f,  -0.296204f, 1.1838f});
}

TEST(OnnxGroupQueryAttention, BufferIsLongerThanWhatItHolds) {
  const Ran ran =
      RunMicrosoft("GroupQueryAttention", {"q", "k", "v", "p", "r", "n", "t"},
                   {Wave("q", {1, 1, 16}, 1), Wave("k", {1, 1, 8}, 2), Wave("v", {1, 1, 8}, 3),
                    Wave("p", {1, 1, 4, 8}, 4), Wave("r", {1, 1, 4, 8}, 5), Ints("n", {1}, {2}),
                    Ints("t", {}, {3})},
                   {IntAttribute("num_heads", 2), IntAttribute("kv_num_heads", 1)}, 3);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 1, 16]");
  ExpectNear(ran.out[0], {-0.559572f, 0.920428f, -1.63957f, -0.159572f, 1.12174f, -1.23957f,
                          0.240428f, 1.00226f, -0.559992f, 0.920008f, -1.63999f, -0.159992f,
                          1.0989f, -1.23999f, 0.240008f, 1.01514f});
}

TEST(OnnxGroupQueryAttention, SmoothSoftmax) {
  const Ran ran = RunMicrosoft("GroupQueryAttention", {"q", "k", "v", "", "", "n", "t"},
                               {Wave("q", {1, 2, 16}, 1), Wave("k", {1, 2, 8}, 2),
                                Wave("v", {1, 2, 8}, 3), Ints("n", {1}, {1}), Ints("t", {}, {2})},
                               {IntAttribute("num_heads", 2), IntAttribute("kv_num_heads", 1),
                                IntAttribute("smooth_softmax", 1)},
                               3);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 16]");
  ExpectNear(
      ran.out[0],
      {-0.514638f, 0.605457f, -1.33201f, -0.21191f,  0.908186f, -1.02928f, 0.0908186f,  1.21091f,
       -0.512648f, 0.603115f, -1.32685f, -0.21109f,  0.904673f, -1.0253f,  0.0904673f,  1.20623f,
       -0.738499f, 0.451519f, 1.15955f,  -0.416872f, 0.773146f, -1.28526f, -0.0952456f, 1.09477f,
       -0.708134f, 0.441348f, 1.0501f,   -0.397463f, 0.752019f, -1.23627f, -0.086792f,  1.06269f});
}

TEST(OnnxGroupQueryAttention, PackedAndRotated) {
  const Ran ran = RunMicrosoft(
      "GroupQueryAttention", {"q", "", "", "p", "r", "n", "t", "c", "s"},
      {Wave("q", {1, 1, 64}, 1), Wave("p", {1, 1, 1, 16}, 4), Wave("r", {1, 1, 1, 16}, 5),
       Ints("n", {1}, {1}), Ints("t", {}, {2}), Wave("c", {6, 8}, 7), Wave("s", {6, 8}, 8)},
      {IntAttribute("num_heads", 2), IntAttribute("kv_num_heads", 1), IntAttribute("do_rotary", 1)},
      3);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 1, 32]");
  ExpectNear(
      ran.out[0],
      {0.20081f,    1.67536f,  -0.87919f, 0.60081f, -1.95919f, -0.47919f, 1.00081f, -1.55919f,
       -0.0791899f, 1.40081f,  -1.15919f, 0.32081f, 1.79536f,  -0.75919f, 0.72081f, -1.83919f,
       0.32051f,    0.989078f, -0.75949f, 0.72051f, -1.83949f, -0.35949f, 1.12051f, -1.43949f,
       0.0405097f,  1.52051f,  -1.03949f, 0.44051f, 1.10908f,  -0.63949f, 0.84051f, -1.71949f});
}

TEST(OnnxMicrosoftAttention, OfIntegers) {
  const Ran ran = RunMicrosoft(
      "QAttention", {"x", "w", "b", "s", "t", "", "z", "u", "p"},
      {BytesOf("x", {1, 2, 2}, kElementUInt8, 1), BytesOf("w", {2, 6}, kElementInt8, 2),
       Wave("b", {6}, 3), Floats("s", {}, {0.01f}),
       Floats("t", {6}, {0.01f, 0.02f, 0.01f, 0.03f, 0.01f, 0.02f}), UBytes("z", {}, {90}),
       SBytes("u", {6}, {0, 0, 0, 0, 0, 0}), Wave("p", {2, 1, 1, 1, 2}, 4)},
      {IntAttribute("num_heads", 1), IntAttribute("unidirectional", 1)}, 2);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[1, 2, 2]");
  ExpectNear(ran.out[0], {1.65464f, 0.120964f, 1.46372f, -0.346777f});
  EXPECT_EQ(ran.out[1].shape().ToString(), "[2, 1, 1, 3, 2]");
  ExpectNear(ran.out[1], {-0.24f, 1.24f, -2.7788f, 1.3877f, -1.6096f, 0.8549f, -1.32f, 0.16f,
                          2.3834f, 0.1114f, 0.859f, -1.8422f});
}

// As ONNX Runtime GenAI writes it: lengths are sums of a mask, which are data; the total is its
// extent.
TEST(OnnxGroupQueryAttention, LengthsFollowFromAMask) {
  const std::string graph = GraphText(
      {NodeText("ReduceSum", {"mask", "axis"}, {"sums"}, {IntAttribute("keepdims", 0)}),
       NodeText("Sub", {"sums", "one"}, {"last"}),
       NodeText("Cast", {"last"}, {"n"}, {IntAttribute("to", kElementInt32)}),
       NodeText("Shape", {"mask"}, {"extents"}), NodeText("Gather", {"extents", "one"}, {"extent"}),
       NodeText("Cast", {"extent"}, {"t"}, {IntAttribute("to", kElementInt32)}),
       NodeText("GroupQueryAttention", {"q", "q", "q", "p", "p", "n", "t"}, {"y", "k", "v"},
                {IntAttribute("num_heads", 1), IntAttribute("kv_num_heads", 1)}, "com.microsoft")},
      {"q", "mask", "p"}, {"y", "k", "v"}, {Longs("axis", {1}, {1}), Longs("one", {}, {1})});
  const std::string bytes = ModelText(graph, 17);
  const absl::StatusOr<Model> model = ParseModel(bytes, "test");
  ASSERT_OK(model.status());
  EXPECT_THAT(HostInputs(*model), ::testing::IsEmpty());
  Importer importer(*model, "CPU");
  const std::vector<Value> out =
      importer.Run({{"q", {Tensor::Ones({2, 1, 8}) * 5}},
                    {"mask", {Tensor::From(std::vector<int64_t>{1, 1, 1, 1, 1, 0}, {2, 3})}},
                    {"p", {Tensor::Ones({2, 1, 2, 8})}}});
  ASSERT_EQ(out.size(), 3u);
  EXPECT_THAT(out[1].tensor.Max({-1}).ToVector<float>(), ElementsAre(1, 1, 5, 1, 5, 0));
}

}  // namespace
}  // namespace tessera::onnx
