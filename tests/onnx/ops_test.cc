// Ops where the public cases do not look: against plain loops, and against what ONNX's own runtimes
// give.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/onnx/run_node.h"

namespace tessera::onnx {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> UpTo(int n) {
  std::vector<float> out;
  for (int i = 0; i < n; ++i) out.push_back(static_cast<float>(i));
  return out;
}

TEST(OnnxOps, ResizedExtentsAreMultipliedInF32) {
  const Ran ran = RunNode("Resize", {"x", "", "s"},
                          {Floats("x", {5, 5}, UpTo(25)), Floats("s", {2}, {2.6f, 1.4f})}, {}, 13);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[13, 7]");
}

// 1.5 / 0.6 - 0.5 is 2 in f32, and a little less in f64.
TEST(OnnxOps, NearestElementsAreFoundInF32) {
  const auto resized = [](const std::string& mode, const std::string& coordinates) {
    return RunNode("Resize", {"x", "", "s"}, {Floats("x", {5}, UpTo(5)), Floats("s", {1}, {0.6f})},
                   {TextAttribute("mode", mode), TextAttribute("nearest_mode", "floor"),
                    TextAttribute("coordinate_transformation_mode", coordinates)},
                   11);
  };
  for (const char* mode : {"half_pixel", "pytorch_half_pixel"}) {
    const Ran ran = resized("nearest", mode);
    ASSERT_EQ(ran.error, "");
    EXPECT_THAT(ran.out[0].ToVector<float>(), ElementsAre(0, 2, 3)) << mode;
  }
  const Ran middle = resized("nearest", "tf_half_pixel_for_nn");
  ASSERT_EQ(middle.error, "");
  EXPECT_THAT(middle.out[0].ToVector<float>(), ElementsAre(0, 2, 4));
  EXPECT_THAT(resized("linear", "tf_half_pixel_for_nn").error, HasSubstr("tf_half_pixel_for_nn"));
}

// Grams whose items lie up to `skips` items apart, counted one by one.
TEST(OnnxOps, GramsWithSkips) {
  constexpr int64_t kItems = 40;
  std::vector<int64_t> x;
  for (int64_t i = 0; i < 2 * kItems; ++i) x.push_back(i * i % 7);
  const std::vector<std::vector<int64_t>> grams = {{1}, {2}, {1, 2}, {4, 0}, {1, 2, 4}, {0, 1, 4}};
  std::vector<int64_t> pool;
  for (const auto& gram : grams) pool.insert(pool.end(), gram.begin(), gram.end());
  for (const int64_t skips : {int64_t{0}, int64_t{3}, std::numeric_limits<int64_t>::max()}) {
    std::vector<float> expected;
    for (int64_t row = 0; row < 2; ++row) {
      for (const auto& gram : grams) {
        const auto others = static_cast<int64_t>(gram.size()) - 1;
        int count = 0;
        for (int64_t step = 1; step <= kItems && step - 1 <= (others == 0 ? 0 : skips); ++step) {
          for (int64_t p = 0; p + others * step < kItems; ++p) {
            bool found = true;
            for (int64_t k = 0; k <= others; ++k) {
              found = found && x[row * kItems + p + k * step] == gram[k];
            }
            count += found ? 1 : 0;
          }
        }
        expected.push_back(static_cast<float>(count));
      }
    }
    const Ran ran = RunNode(
        "TfIdfVectorizer", {"x"}, {Longs("x", {2, kItems}, x)},
        {IntAttribute("min_gram_length", 1), IntAttribute("max_gram_length", 3),
         IntAttribute("max_skip_count", skips), TextAttribute("mode", "TF"),
         IntsAttribute("ngram_counts", {0, 2, 6}),
         IntsAttribute("ngram_indexes", {0, 1, 2, 3, 4, 5}), IntsAttribute("pool_int64s", pool)},
        9);
    ASSERT_EQ(ran.error, "");
    EXPECT_EQ(ran.out[0].ToVector<float>(), expected) << skips;
  }
}

// Of a window over [-b, -b + size) those elements count that there are: 1 2 3 4 here.
TEST(OnnxOps, PoolsOfFarLargerWindows) {
  const auto pooled = [](const char* op, int64_t size, const std::vector<int64_t>& pads,
                         std::vector<std::string> more = {}, int outputs = 1) {
    more.push_back(IntsAttribute("kernel_shape", {size, 2}));
    more.push_back(IntsAttribute("pads", {pads[0], 0, pads[1], 0}));
    return RunNode(op, {"x"}, {Floats("x", {1, 1, 4, 2}, {1, 0, 2, 0, 3, 0, 4, 0})}, more, 20,
                   outputs);
  };
  constexpr int64_t kSize = 1'000'000'000;
  // Windows from -kSize + 2, which has two elements, to -1, which has all.
  const std::vector<int64_t> pads = {kSize - 2, 1};
  const auto values = [](const Ran& ran) {
    EXPECT_EQ(ran.error, "");
    return ran.out.empty() ? std::vector<float>() : ran.out[0].ToVector<float>();
  };
  EXPECT_THAT(values(pooled("MaxPool", kSize, pads)), ElementsAre(2, 3, 4, 4));
  EXPECT_THAT(values(pooled("MaxPool", kSize, {1, kSize - 4})), ElementsAre(4, 4));
  EXPECT_THAT(values(pooled("AveragePool", kSize, pads)), ElementsAre(0.75, 1, 1.25, 1.25));
  EXPECT_THAT(values(pooled("AveragePool", 50, {48, 1}, {IntAttribute("count_include_pad", 1)})),
              ElementsAre(0.03f, 0.06f, 0.1f, 0.1f));
  EXPECT_THAT(values(pooled("LpPool", kSize, pads, {IntAttribute("p", 1)})),
              ElementsAre(3, 6, 10, 10));
  EXPECT_THAT(values(pooled("MaxPool", 100, {8, 288}, {IntsAttribute("dilations", {3, 1})})),
              ElementsAre(2, 3, 4))
      << "every third";
  EXPECT_THAT(pooled("MaxPool", kSize, pads, {}, 2).error, HasSubstr("for indices"));
}

TEST(OnnxOps, PoliciesOfAspectRatios) {
  const auto extents = [](const std::string& policy) {
    const Ran ran = RunNode("Resize", {"x", "", "", "n"},
                            {Floats("x", {2, 4}, UpTo(8)), Longs("n", {2}, {4, 4})},
                            {TextAttribute("keep_aspect_ratio_policy", policy)}, 18);
    return ran.error.empty() ? ran.out[0].shape().ToString() : ran.error;
  };
  EXPECT_EQ(extents("stretch"), "[4, 4]");
  EXPECT_EQ(extents("not_larger"), "[2, 4]");
  EXPECT_EQ(extents("not_smaller"), "[4, 8]");
  EXPECT_THAT(extents("wider"), HasSubstr("keep_aspect_ratio_policy is 'wider'; stretch,"));
}

// Against the loops of the op's first implementation, for regions within, beyond and outside of
// images, turned round and rounded.
TEST(OnnxOps, RegionsByTheirMaxima) {
  constexpr int kChannels = 2, kHeight = 5, kWidth = 6, kRows = 3, kColumns = 2;
  std::vector<float> x;
  for (int i = 0; i < 2 * kChannels * kHeight * kWidth; ++i) {
    x.push_back(static_cast<float>(i * 37 % 61) - 50);
  }
  const std::vector<float> rois = {0, 0,  0, 11, 9,  1, 2,  2, 5,  7, 1, -9, -5, 3,  4,
                                   0, 15, 3, 30, 20, 1, 40, 2, 50, 4, 0, 6,  6,  2,  2,
                                   1, 1,  3, 5,  5,  0, 3,  1, 3,  1, 1, -5, -3, -1, -1};
  std::vector<float> expected;
  const auto rounded = [](float v) { return static_cast<int>(std::round(v * 0.5f)); };
  for (size_t r = 0; r < rois.size(); r += 5) {
    const int left = rounded(rois[r + 1]), top = rounded(rois[r + 2]);
    const auto width = static_cast<float>(std::max(rounded(rois[r + 3]) - left + 1, 1));
    const auto height = static_cast<float>(std::max(rounded(rois[r + 4]) - top + 1, 1));
    for (int c = 0; c < kChannels; ++c) {
      for (int i = 0; i < kRows * kColumns; ++i) {
        const auto bound = [](int bin, float length, int bins, int begin, int extent, bool end) {
          const float at =
              static_cast<float>(bin + (end ? 1 : 0)) * (length / static_cast<float>(bins));
          return std::clamp(static_cast<int>(end ? std::ceil(at) : std::floor(at)) + begin, 0,
                            extent);
        };
        const int row = i / kColumns, column = i % kColumns;
        float most = -kInfinity;
        for (int y = bound(row, height, kRows, top, kHeight, false);
             y < bound(row, height, kRows, top, kHeight, true); ++y) {
          for (int z = bound(column, width, kColumns, left, kWidth, false);
               z < bound(column, width, kColumns, left, kWidth, true); ++z) {
            const int plane = static_cast<int>(rois[r]) * kChannels + c;
            most = std::max(most, x[(plane * kHeight + y) * kWidth + z]);
          }
        }
        expected.push_back(most == -kInfinity ? 0 : most);
      }
    }
  }
  const auto pooled = [&](const std::vector<int64_t>& shape) {
    return RunNode("MaxRoiPool", {"x", "r"},
                   {Floats("x", {2, kChannels, kHeight, kWidth}, x), Floats("r", {9, 5}, rois)},
                   {IntsAttribute("pooled_shape", shape), FloatAttribute("spatial_scale", 0.5f)},
                   13);
  };
  const Ran ran = pooled({kRows, kColumns});
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[0].shape().ToString(), "[9, 2, 3, 2]");
  EXPECT_EQ(ran.out[0].ToVector<float>(), expected);
  EXPECT_THAT(pooled({3}).error, HasSubstr("MaxRoiPool: pooled_shape has to be two numbers"));
  EXPECT_THAT(pooled({3, 0}).error, HasSubstr("pooled_shape has to be two numbers"));
}

TEST(OnnxOps, ChoicesAreKnown) {
  const std::string x = Floats("x", {1, 4, 2, 2}, UpTo(16)), w = Floats("w", {1, 4, 1}, UpTo(4));
  const std::string r = Floats("r", {1, 1, 1}, {1}), v = Floats("v", {1, 1, 4}, UpTo(4));
  const auto error = [&](const std::string& op, const std::vector<std::string>& inputs,
                         const std::string& name, std::vector<std::string> more = {}) {
    more.push_back(TextAttribute(name, "other"));
    return RunNode(op, inputs, {x, w, r, v}, more, 26).error;
  };
  const std::string blocks = IntAttribute("blocksize", 2), to = IntAttribute("to", kElementFloat);
  EXPECT_THAT(error("DepthToSpace", {"x"}, "mode", {blocks}),
              HasSubstr("DepthToSpace: mode is 'other'; DCR and CRD are known"));
  EXPECT_THAT(error("SpaceToDepth", {"x"}, "mode", {blocks}), HasSubstr("attribute 'mode'"));
  EXPECT_THAT(error("Cast", {"x"}, "round_mode", {to}),
              HasSubstr("Cast: round_mode is 'other'; up, down and nearest are known"));
  EXPECT_THAT(error("RNN", {"v", "w", "r"}, "direction"),
              HasSubstr("RNN: direction is 'other'; forward, reverse and bidirectional are known"));
  EXPECT_THAT(error("MaxPool", {"x"}, "auto_pad", {IntsAttribute("kernel_shape", {1, 1})}),
              HasSubstr("MaxPool: auto_pad is 'other'; NOTSET, VALID, SAME_UPPER and SAME_LOWER"));
  EXPECT_THAT(error("Gelu", {"x"}, "approximate"), HasSubstr("none and tanh are known"));
}

// What is taken of a region outside of the source, by nearest elements too.
TEST(OnnxOps, RegionsBeyondTheSource) {
  const Ran ran =
      RunNode("Resize", {"x", "r", "", "n"},
              {Floats("x", {3}, {5, 6, 7}), Floats("r", {2}, {0, 2}), Longs("n", {1}, {5})},
              {TextAttribute("mode", "nearest"), FloatAttribute("extrapolation_value", 9),
               TextAttribute("coordinate_transformation_mode", "tf_crop_and_resize")},
              13);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(ran.out[0].ToVector<float>(), ElementsAre(5, 6, 7, 9, 9));
}

TEST(OnnxOps, IntegersAreReducedWithoutLoss) {
  const auto reduced = [](const char* op, const std::vector<int64_t>& values) {
    const Ran ran =
        RunNode(op, {"x"}, {Longs("x", {static_cast<int64_t>(values.size())}, values)}, {}, 18);
    EXPECT_EQ(ran.error, "");
    return ran.out.empty() ? -1 : ran.out[0].Item<int64_t>();
  };
  EXPECT_EQ(reduced("ReduceMean", {724892532700, 724892532738}), 724892532719);
  EXPECT_EQ(reduced("ReduceMean", {-1, -2}), -1);
  EXPECT_EQ(reduced("ReduceMean", {(int64_t{1} << 60) + 1}), (int64_t{1} << 60) + 1);
  EXPECT_EQ(reduced("ReduceL2", {300000003, 400000004}), 500000005);
  EXPECT_EQ(reduced("ReduceLogSumExp", {724892532719, 3}), 724892532719);
}

// 2 * 100 + 50 or + 200, cut to the range: of i8 before version 21.
TEST(OnnxOps, QuantisedProductsSaturate) {
  constexpr int64_t kInt8Element = 3;
  const auto product = [](int64_t element, char zero, int64_t opset) {
    const auto bytes = [&](const std::string& name, const std::vector<int64_t>& dims, char value) {
      return TensorText(name, dims, element, std::string(1, value));
    };
    const Ran ran = RunNode("QLinearMatMul", {"a", "s", "z", "b", "s", "z", "s", "y"},
                            {bytes("a", {1, 1}, 2), bytes("b", {1, 1}, 100), Floats("s", {}, {1}),
                             bytes("z", {}, 0), bytes("y", {}, zero)},
                            {}, opset);
    EXPECT_EQ(ran.error, "");
    return ran.out.empty() ? 0 : ran.out[0].Item<int64_t>();
  };
  EXPECT_EQ(product(kElementUInt8, static_cast<char>(200), 21), 255);
  EXPECT_EQ(product(kElementUInt8, static_cast<char>(200), 13), 255);
  EXPECT_EQ(product(kInt8Element, 50, 13), 127);
  EXPECT_EQ(product(kInt8Element, 50, 21), 250 - 256);  // as v1.21.0 has it
}

TEST(OnnxOps, HardmaxOfNothing) {
  for (const int64_t opset : {11, 13}) {
    const Ran ran = RunNode("Hardmax", {"x"}, {Floats("x", {2, 0}, {})}, {}, opset);
    ASSERT_EQ(ran.error, "");
    EXPECT_EQ(ran.out[0].shape().ToString(), "[2, 0]");
  }
}

TEST(OnnxOps, DropoutsMaskHasTheTypeOfItsVersion) {
  for (const auto& [opset, dtype] :
       {std::pair(7, kFloat32), std::pair(10, kBool), std::pair(13, kBool)}) {
    const Ran ran = RunNode("Dropout", {"x"}, {Floats("x", {3}, {1, 2, 3})}, {}, opset, 2);
    ASSERT_EQ(ran.error, "");
    EXPECT_EQ(ran.out[1].dtype(), dtype);
    EXPECT_THAT(ran.out[1].Cast(kFloat32).ToVector<float>(), Each(1));
  }
}

TEST(OnnxOps, StatisticsOfEachElement) {
  const Ran ran = RunNode(
      "BatchNormalization", {"x", "s", "b", "m", "v"},
      {Floats("x", {2, 1, 2}, {1, 2, 3, 4}), Floats("s", {1, 2}, {1, 2}),
       Floats("b", {1, 2}, {0, 1}), Floats("m", {1, 2}, {1, 3}), Floats("v", {1, 2}, {0, 3})},
      {IntAttribute("spatial", 0), FloatAttribute("epsilon", 1)}, 7);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(ran.out[0].ToVector<float>(), ElementsAre(0, 0, 2, 2));
}

// ---- regions

struct Box {
  float x0, y0, x1, y1;
};
// The mean of a bin's points, as the op's text and ONNX's own runtimes have it.
double BinMean(const std::vector<float>& image, int height, int width, const Box& box, bool half,
               int rows, int columns, int row, int column) {
  const float shift = half ? 0.5f : 0.0f;
  const auto points = [&](float begin, float end, int bins, int bin) {
    float length = end - begin;
    if (!half) length = std::max(length, 1.0f);
    const float size = length / static_cast<float>(bins);
    const int count = static_cast<int>(std::ceil(size));
    std::vector<double> at;
    for (int i = 0; i < count; ++i) {
      at.push_back(begin - shift + static_cast<float>(bin) * size +
                   (static_cast<float>(i) + 0.5f) * size / static_cast<float>(count));
    }
    return at;
  };
  const std::vector<double> ys = points(box.y0, box.y1, rows, row);
  const std::vector<double> xs = points(box.x0, box.x1, columns, column);
  double sum = 0;
  for (double y : ys) {
    for (double x : xs) {
      if (y < -1 || y > height || x < -1 || x > width) continue;
      const double v = std::min(std::max(y, 0.0), height - 1.0);
      const double h = std::min(std::max(x, 0.0), width - 1.0);
      const int top = static_cast<int>(v), left = static_cast<int>(h);
      for (const int r : {top, top + 1}) {
        for (const int c : {left, left + 1}) {
          const double share = (1 - std::fabs(v - r)) * (1 - std::fabs(h - c));
          if (share > 0) sum += share * image[r * width + c];
        }
      }
    }
  }
  return sum / std::max<double>(1, static_cast<double>(ys.size() * xs.size()));
}

TEST(OnnxOps, RegionsOfAnySizeWithoutASamplingRatio) {
  constexpr int kHeight = 7, kWidth = 9, kRows = 3, kColumns = 2;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> image(kHeight * kWidth);
  for (float& v : image) v = uniform(random);
  // Inside, whole, tiny, of no length, backwards, half outside, far larger than the image, beyond.
  std::vector<Box> boxes = {{1, 2, 6.5f, 5},    {0, 0, 9, 7},         {3, 3, 3.1f, 3.2f},
                            {4, 4, 4, 4},       {6, 5, 2, 1},         {-3, -2, 4, 3},
                            {-40, -90, 60, 70}, {100, 100, 110, 110}, {-1.5f, 0.5f, 8.5f, 6.5f}};
  for (int i = 0; i < 40; ++i) {
    const float x = uniform(random) * 9, y = uniform(random) * 9;
    boxes.push_back({x, y, x + (uniform(random) + 0.9f) * 12, y + (uniform(random) + 0.9f) * 12});
  }
  const auto n = static_cast<int64_t>(boxes.size());
  std::vector<float> rois;
  for (const Box& b : boxes) rois.insert(rois.end(), {b.x0, b.y0, b.x1, b.y1});
  for (const bool half : {true, false}) {
    const Ran ran =
        RunNode("RoiAlign", {"x", "r", "i"},
                {Floats("x", {1, 1, kHeight, kWidth}, image), Floats("r", {n, 4}, rois),
                 Longs("i", {n}, std::vector<int64_t>(boxes.size(), 0))},
                {IntAttribute("output_height", kRows), IntAttribute("output_width", kColumns),
                 TextAttribute("coordinate_transformation_mode",
                               half ? "half_pixel" : "output_half_pixel")},
                16);
    ASSERT_EQ(ran.error, "");
    const std::vector<float> got = ran.out[0].ToVector<float>();
    size_t at = 0;
    for (const Box& box : boxes) {
      for (int row = 0; row < kRows; ++row) {
        for (int column = 0; column < kColumns; ++column) {
          const double want =
              BinMean(image, kHeight, kWidth, box, half, kRows, kColumns, row, column);
          EXPECT_NEAR(got[at], want, 1e-4)
              << at << " of " << box.x0 << " " << box.y0 << " " << box.x1 << " " << box.y1;
          ++at;
        }
      }
    }
  }
}

// What a region does not reach is not multiplied by 0.
TEST(OnnxOps, RegionsBesideInfinities) {
  std::vector<float> image(16, 2);
  image[15] = kInfinity;
  const Ran ran = RunNode(
      "RoiAlign", {"x", "r", "i"},
      {Floats("x", {1, 1, 4, 4}, image), Floats("r", {1, 4}, {0, 0, 2, 2}), Longs("i", {1}, {0})},
      {}, 16);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(ran.out[0].ToVector<float>(), ElementsAre(2));
  const Ran max = RunNode(
      "RoiAlign", {"x", "r", "i"},
      {Floats("x", {1, 1, 4, 4}, image), Floats("r", {1, 4}, {0, 0, 2, 2}), Longs("i", {1}, {0})},
      {TextAttribute("mode", "max")}, 16);
  EXPECT_THAT(max.error, HasSubstr("mode is max and sampling_ratio 0"));
}

}  // namespace
}  // namespace tessera::onnx
