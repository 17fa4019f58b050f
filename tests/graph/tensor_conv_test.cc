// Convolutions, pools and padding of one to three axes, against plain loops.
#include <algorithm>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using Sizes3 = std::array<int64_t, 3>;

int64_t Product(const Sizes3& s) { return s[0] * s[1] * s[2]; }

// Every point of a box.
template <typename Fn>
void ForEach(const Sizes3& box, Fn fn) {
  for (int64_t a = 0; a < box[0]; ++a) {
    for (int64_t b = 0; b < box[1]; ++b) {
      for (int64_t c = 0; c < box[2]; ++c) fn(Sizes3{a, b, c});
    }
  }
}

int64_t Flat(const Sizes3& at, const Sizes3& box) {
  return (at[0] * box[1] + at[1]) * box[2] + at[2];
}

// One convolution or pool; axes that are not there have extent 1.
struct Windows {
  int axes;
  Sizes3 image, kernel, stride, dilation, before, after;
  int64_t groups;

  Sizes3 Output() const {
    Sizes3 out;
    for (int i = 0; i < 3; ++i) {
      out[i] =
          (before[i] + image[i] + after[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
    }
    return out;
  }
  // The element under a window, or none where there is padding.
  bool Under(const Sizes3& p, const Sizes3& k, Sizes3* at) const {
    for (int i = 0; i < 3; ++i) {
      (*at)[i] = p[i] * stride[i] + k[i] * dilation[i] - before[i];
      if ((*at)[i] < 0 || (*at)[i] >= image[i]) return false;
    }
    return true;
  }
  template <typename T>
  T Options() const {
    T o;
    for (int i = 0; i < axes; ++i) {
      o.stride.push_back(stride[i]);
      o.dilation.push_back(dilation[i]);
      o.padding.push_back(before[i]);
    }
    for (int i = 0; i < axes; ++i) o.padding.push_back(after[i]);
    return o;
  }
  PoolOptions Pool() const {
    auto o = Options<PoolOptions>();
    for (int i = 0; i < axes; ++i) o.size.push_back(kernel[i]);
    return o;
  }
  std::vector<int64_t> Dims(int64_t n, int64_t c, const Sizes3& box) const {
    std::vector<int64_t> dims = {n, c};
    dims.insert(dims.end(), box.begin(), box.begin() + axes);
    return dims;
  }
};

const Windows kWindows[] = {
    {1, {9, 1, 1}, {3, 1, 1}, {2, 1, 1}, {1, 1, 1}, {1, 0, 0}, {2, 0, 0}, 1},
    {1, {8, 1, 1}, {2, 1, 1}, {1, 1, 1}, {3, 1, 1}, {0, 0, 0}, {0, 0, 0}, 2},
    {2, {6, 5, 1}, {3, 2, 1}, {2, 1, 1}, {1, 2, 1}, {1, 0, 0}, {2, 1, 0}, 1},
    {2, {5, 7, 1}, {1, 1, 1}, {3, 2, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, 2},
    {3, {4, 3, 5}, {2, 3, 2}, {1, 2, 2}, {2, 1, 1}, {1, 1, 0}, {0, 1, 1}, 2},
    {2, {1, 1, 1}, {2, 2, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 0}, {0, 0, 0}, 1},
    // Strides and dilations with and without common factors.
    {1, {9, 1, 1}, {4, 1, 1}, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}, {2, 0, 0}, 1},
    {2, {8, 7, 1}, {2, 3, 1}, {4, 2, 1}, {6, 2, 1}, {1, 0, 0}, {0, 1, 0}, 2},
    {2, {7, 13, 1}, {3, 2, 1}, {5, 3, 1}, {3, 7, 1}, {0, 2, 0}, {3, 0, 0}, 1},
};
constexpr int64_t kN = 2, kIn = 4, kOut = 6;

TEST(TensorConv, AgreesWithLoops) {
  for (const Windows& s : kWindows) {
    const Sizes3 out = s.Output();
    const int64_t in_group = kIn / s.groups, out_group = kOut / s.groups, k = Product(s.kernel);
    const auto x = Draw(kN * kIn * Product(s.image), 1), w = Draw(kOut * in_group * k, 2);
    const auto bias = Draw(kOut, 3);
    std::vector<double> expected;
    for (int64_t n = 0; n < kN; ++n) {
      for (int64_t o = 0; o < kOut; ++o) {
        ForEach(out, [&](const Sizes3& p) {
          double sum = bias[o];
          for (int64_t c = 0; c < in_group; ++c) {
            const int64_t channel = o / out_group * in_group + c;
            ForEach(s.kernel, [&](const Sizes3& q) {
              Sizes3 at;
              if (!s.Under(p, q, &at)) return;
              sum += x[(n * kIn + channel) * Product(s.image) + Flat(at, s.image)] *
                     w[(o * in_group + c) * k + Flat(q, s.kernel)];
            });
          }
          expected.push_back(sum);
        });
      }
    }
    const Tensor tx = Tensor::From(x, s.Dims(kN, kIn, s.image));
    const Tensor tw = Tensor::From(w, s.Dims(kOut, in_group, s.kernel));
    auto o = s.Options<ConvOptions>();
    o.groups = s.groups;
    o.bias = Tensor::From(bias);
    EXPECT_EQ(Sizes(tx.Conv(tw, o)), s.Dims(kN, kOut, out));
    ExpectNear(Values(tx.Conv(tw, o)), expected, 1e-12);
    if (s.axes == 1) ExpectNear(Values(tx.Conv1d(tw, o)), expected, 1e-12);
    if (s.axes == 3) ExpectNear(Values(tx.Conv3d(tw, o)), expected, 1e-12);
  }
}

// Each input element is spread over the outputs that it reaches.
TEST(TensorConv, OptionsMayBeLeftOut) {
  EXPECT_EQ(Tensor::Zeros({2, 3, 9}).Conv1d(Tensor::Zeros({5, 3, 2})).shape(), Shape({2, 5, 8}));
  EXPECT_EQ(Tensor::Zeros({2, 3, 9}).Conv1d(Tensor::Zeros({5, 3, 2}), {}).shape(),
            Shape({2, 5, 8}));
  EXPECT_EQ(Tensor::Zeros({1, 2, 4, 5, 6}).Conv3d(Tensor::Zeros({3, 2, 2, 2, 2})).shape(),
            Shape({1, 3, 3, 4, 5}));
}

TEST(TensorConv, TransposedAgreesWithLoops) {
  for (const Windows& s : kWindows) {
    for (int64_t more : {0, 1}) {
      Sizes3 out = {1, 1, 1};
      bool fits = true;
      for (int i = 0; i < s.axes; ++i) {
        out[i] = (s.image[i] - 1) * s.stride[i] + s.dilation[i] * (s.kernel[i] - 1) + 1 + more -
                 s.before[i] - s.after[i];
        fits &= out[i] > 0;
      }
      if (!fits) continue;
      const int64_t in_group = kIn / s.groups, out_group = 3, channels = out_group * s.groups;
      const int64_t k = Product(s.kernel);
      const auto x = Draw(kN * kIn * Product(s.image), 1), w = Draw(kIn * out_group * k, 2);
      std::vector<double> expected(kN * channels * Product(out), 0);
      for (int64_t n = 0; n < kN; ++n) {
        for (int64_t c = 0; c < kIn; ++c) {
          for (int64_t o = 0; o < out_group; ++o) {
            ForEach(s.image, [&](const Sizes3& p) {
              ForEach(s.kernel, [&](const Sizes3& q) {
                Sizes3 at = {0, 0, 0};
                for (int i = 0; i < s.axes; ++i) {
                  at[i] = p[i] * s.stride[i] + q[i] * s.dilation[i] - s.before[i];
                  if (at[i] < 0 || at[i] >= out[i]) return;
                }
                const int64_t channel = c / in_group * out_group + o;
                expected[(n * channels + channel) * Product(out) + Flat(at, out)] +=
                    x[(n * kIn + c) * Product(s.image) + Flat(p, s.image)] *
                    w[(c * out_group + o) * k + Flat(q, s.kernel)];
              });
            });
          }
        }
      }
      auto o = s.Options<ConvTransposeOptions>();
      o.groups = s.groups;
      o.output_padding = {more};
      const Tensor y = Tensor::From(x, s.Dims(kN, kIn, s.image))
                           .ConvTranspose(Tensor::From(w, s.Dims(kIn, out_group, s.kernel)), o);
      EXPECT_EQ(Sizes(y), s.Dims(kN, channels, out));
      ExpectNear(Values(y), expected, 1e-12);
    }
  }
}

// Whatever stride and dilation are, windows are of the input, and not of zeros between its
// elements.
TEST(TensorConv, TransposedHasNoWindowsOfZeros) {
  for (const auto& [stride, dilation] : {std::pair{3, 2}, {2, 2}, {2, 3}, {4, 6}, {3, 1}}) {
    const Tensor y =
        Tensor::Empty({1, 4, 20})
            .ConvTranspose(Tensor::Empty({4, 6, 5}), {.stride = {stride}, .dilation = {dilation}});
    int windows = 0;
    for (const UOp& u : TopoSort({&y.uop(), 1})) {
      if (!u.is(Op::kWindow)) continue;
      ++windows;
      EXPECT_LE(u.src(0).shape()[2].value(), 20 + 2 * dilation * 2) << stride << ", " << dilation;
    }
    EXPECT_EQ(windows, 1);
  }
}

TEST(TensorConv, PoolsAgreeWithLoops) {
  for (const Windows& s : kWindows) {
    const Sizes3 out = s.Output();
    const auto x = Draw(kN * kIn * Product(s.image), 5);
    std::vector<double> most, mean, inside, power, place, columns;
    for (int64_t row = 0; row < kN * kIn; ++row) {
      const double* image = &x[row * Product(s.image)];
      ForEach(out, [&](const Sizes3& p) {
        double max = -kInf, sum = 0, squares = 0, count = 0, at_max = -1;
        ForEach(s.kernel, [&](const Sizes3& q) {
          Sizes3 at;
          if (!s.Under(p, q, &at)) return;
          const double v = image[Flat(at, s.image)];
          if (v > max) max = v, at_max = static_cast<double>(Flat(at, s.image));
          sum += v;
          squares += v * v;
          count += 1;
        });
        most.push_back(max);
        place.push_back(at_max);
        mean.push_back(sum / static_cast<double>(Product(s.kernel)));
        inside.push_back(sum / count);
        power.push_back(std::sqrt(squares));
      });
      ForEach(s.kernel, [&](const Sizes3& q) {
        ForEach(out, [&](const Sizes3& p) {
          Sizes3 at;
          columns.push_back(s.Under(p, q, &at) ? image[Flat(at, s.image)] : 0);
        });
      });
    }
    const Tensor t = Tensor::From(x, s.Dims(kN, kIn, s.image));
    PoolOptions o = s.Pool();
    ExpectNear(Values(t.MaxPool(o)), most);
    ExpectNear(Values(t.AvgPool(o)), mean, 1e-14);
    ExpectNear(Values(t.LpPool(2, o)), power, 1e-14);
    ExpectNear(Values(t.Im2Col(o)), columns);
    o.count_padding = false;
    ExpectNear(Values(t.AvgPool(o)), inside, 1e-14);
    o.divisor = 5;
    std::vector<double> fifths = mean;
    for (double& m : fifths) m *= static_cast<double>(Product(s.kernel)) / 5;
    ExpectNear(Values(t.AvgPool(o)), fifths, 1e-13);
    const bool covered = std::find(place.begin(), place.end(), -1) == place.end();
    const auto both = t.MaxPoolWithIndices(o);
    ExpectNear(Values(both.values), most);
    if (covered) ExpectNear(Values(both.indices), place);
    // The adjoint of Im2Col adds each column where it came from.
    Ints extents(s.image.begin(), s.image.begin() + s.axes);
    const auto g = Draw(static_cast<int64_t>(columns.size()), 6);
    std::vector<double> images(x.size(), 0);
    size_t next = 0;
    for (int64_t row = 0; row < kN * kIn; ++row) {
      ForEach(s.kernel, [&](const Sizes3& q) {
        ForEach(out, [&](const Sizes3& p) {
          Sizes3 at;
          const double v = g[next++];
          if (s.Under(p, q, &at)) images[row * Product(s.image) + Flat(at, s.image)] += v;
        });
      });
    }
    const Tensor columns_of = Tensor::From(g, {kN, kIn * Product(s.kernel), Product(out)});
    ExpectNear(Values(columns_of.Col2Im(extents, o)), images, 1e-13);
  }
}

TEST(TensorConv, CeilModeCountsWhatIsThere) {
  const Tensor x = Tensor::Arange(6, kFloat32).Reshape({1, 1, 6});
  PoolOptions o{.size = {3}, .stride = {2}, .ceil_mode = true};
  EXPECT_THAT(Values(x.MaxPool(o)), ElementsAre(2, 4, 5));
  EXPECT_THAT(Values(x.AvgPool(o)), ElementsAre(1, 3, 4.5));
  o.padding = {1};
  EXPECT_THAT(Values(x.MaxPool(o)), ElementsAre(1, 3, 5, 5));
  // Declared padding counts; what lies beyond it does not.
  ExpectNear(Values(x.AvgPool(o)), {1.0 / 3, 2, 4, 5.0 / 2});
  o.count_padding = false;
  ExpectNear(Values(x.AvgPool(o)), {0.5, 2, 4, 5});
  // A window that would begin behind the axis is none.
  EXPECT_THAT(Values(x.MaxPool({.size = {1}, .stride = {4}, .padding = {0, 3}, .ceil_mode = true})),
              ElementsAre(0, 4));
}

TEST(TensorConv, PoolsOfSpecialValuesAndBack) {
  const Tensor x = Tensor::From({{{1.0, kNan, 3.0, 3.0, -kInf, -kInf}}}, kFloat32);
  const auto both = x.MaxPoolWithIndices({});
  ExpectNear(Values(both.values), {kNan, 3, -kInf});
  EXPECT_THAT(Values(both.indices), ElementsAre(1, 2, 4));
  EXPECT_THAT(Values(x.Cast(kInt8).MaxPool({})), ElementsAre(1, 3, -128));
  const Tensor flat = Tensor::From({{{{5, 6}, {7, 8}}}});
  const Tensor at = Tensor::From({{{{0, 3}, {9, 15}}}});
  EXPECT_THAT(Values(flat.MaxUnpool(at, {4, 4})),
              ElementsAre(5, 0, 0, 6, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 8));
  EXPECT_ERROR(flat.MaxUnpool(at.Flatten(), {4, 4}), "MaxUnpool", "indices of the same shape");
  EXPECT_ERROR(x.Conv2d(flat), "Conv2d", "images [N, C, H, W]");
  EXPECT_ERROR(x.MaxPool({.size = {9}}), "MaxPool", "a window of 9 elements does not fit axis 2");
  EXPECT_ERROR(x.MaxPool({.size = {2, 2}}), "MaxPool", "size must be one number");
  EXPECT_ERROR(x.MaxPool({.padding = {-1}}), "MaxPool", "padding must be");
  EXPECT_ERROR(flat.ConvTranspose(Tensor::Zeros({2, 1, 2, 2})), "ConvTranspose", "must be [1, out");
  const Tensor single = Tensor::Ones({1, 1, 1, 1}), dilated = Tensor::Ones({1, 1, 3, 3});
  EXPECT_ERROR(single.ConvTranspose(dilated, {.padding = {4, 4, 3, 3}, .dilation = {3}}),
               "ConvTranspose",
               "axis 2 of f32[1, 1, 1, 1] would become 0 elements with padding of 4 and 3");
  EXPECT_ERROR(single.ConvTranspose(dilated, {.stride = {2}, .padding = {2}}), "ConvTranspose",
               "would become -1 elements with padding of 2 and 2");
  EXPECT_ERROR(x.LpPool(0, {}), "LpPool", "finite p above 0");
}

TEST(TensorConv, AdaptivePools) {
  const auto v = Draw(2 * 7 * 5, 8);
  const Tensor x = Tensor::From(v, {1, 2, 7, 5});
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>{7, 5}, {3, 2}, {1, 1}, {9, 5}, {7, 3}}) {
    std::vector<double> mean, most;
    for (int64_t c = 0; c < 2; ++c) {
      for (int64_t i = 0; i < h; ++i) {
        for (int64_t j = 0; j < w; ++j) {
          double sum = 0, max = -kInf;
          const int64_t a = i * 7 / h, b = ((i + 1) * 7 + h - 1) / h;
          const int64_t p = j * 5 / w, q = ((j + 1) * 5 + w - 1) / w;
          for (int64_t r = a; r < b; ++r) {
            for (int64_t s = p; s < q; ++s) {
              sum += v[(c * 7 + r) * 5 + s];
              max = std::max(max, v[(c * 7 + r) * 5 + s]);
            }
          }
          mean.push_back(sum / static_cast<double>((b - a) * (q - p)));
          most.push_back(max);
        }
      }
    }
    ExpectNear(Values(x.AdaptiveAvgPool({h, w})), mean, 1e-13);
    ExpectNear(Values(x.AdaptiveMaxPool({h, w})), most);
  }
  EXPECT_EQ(Sizes(x.GlobalAvgPool()), (std::vector<int64_t>{1, 2, 1, 1}));
  ExpectNear(Values(x.GlobalMaxPool()), Values(x.AdaptiveMaxPool({1, 1})));
  ExpectNear(Values(x.GlobalAvgPool()), Values(x.AdaptiveAvgPool({1, 1})), 1e-14);
  EXPECT_ERROR(x.AdaptiveAvgPool({-1, 1}), "AdaptiveAvgPool", "cannot make -1 positions");
}

TEST(TensorPad, Modes) {
  const Tensor x = Tensor::From({1, 2, 3});
  const auto pad = [&](PadMode mode, int64_t a, int64_t b) {
    return Values(x.PadBy(mode, {{a, b}}, 9));
  };
  EXPECT_THAT(pad(PadMode::kConstant, 1, 2), ElementsAre(9, 1, 2, 3, 9, 9));
  EXPECT_THAT(pad(PadMode::kReflect, 2, 1), ElementsAre(3, 2, 1, 2, 3, 2));
  EXPECT_THAT(pad(PadMode::kReflect, 5, 4), ElementsAre(2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3));
  EXPECT_THAT(pad(PadMode::kReplicate, 2, 3), ElementsAre(1, 1, 1, 2, 3, 3, 3, 3));
  EXPECT_THAT(pad(PadMode::kCircular, 2, 1), ElementsAre(2, 3, 1, 2, 3, 1));
  EXPECT_THAT(pad(PadMode::kCircular, 4, 5), ElementsAre(3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2));
  EXPECT_THAT(pad(PadMode::kConstant, -1, 1), ElementsAre(2, 3, 9));
  EXPECT_THAT(pad(PadMode::kReflect, -1, 1), ElementsAre(2, 3, 2));
  EXPECT_THAT(pad(PadMode::kReplicate, -2, -1), ElementsAre());
  EXPECT_THAT(Values(Tensor::From({7}).PadBy(PadMode::kReflect, {{1, 2}})),
              ElementsAre(7, 7, 7, 7));
  const Tensor m = Tensor::From({{1, 2}, {3, 4}});
  EXPECT_THAT(Values(m.PadBy(PadMode::kReflect, {{1, 0}, {0, 1}})),
              ElementsAre(3, 4, 3, 1, 2, 1, 3, 4, 3));
  EXPECT_ERROR(x.PadBy(PadMode::kReflect, {{0, 0}, {0, 0}}), "PadBy", "a pair for each axis");
  EXPECT_ERROR(x.PadBy(PadMode::kConstant, {{-2, -2}}), "PadBy", "cannot take");
  EXPECT_ERROR(Tensor::Zeros({0}).PadBy(PadMode::kReplicate, {{1, 0}}), "PadBy",
               "nothing to repeat");
}

// torch.nn.functional.avg_pool2d of sin(0.7 i), whose last windows reach over the end.
TEST(TensorConv, AvgPoolByADivisor) {
  const Tensor x = (Tensor::Arange(25, kFloat64) * 0.7).Sin().Reshape({1, 1, 5, 5});
  PoolOptions o{.size = {3, 2}, .stride = {2}, .padding = {1}, .ceil_mode = true, .divisor = 5};
  ExpectNear(Values(x.AvgPool(o)),
             {-0.07015664553792397, -0.044872193562353835, 0.1167489558833614, -0.11469847778850015,
              -0.3217152168921981, 0.008271861025438244, 0.022182319144640063, -0.0896899306999428,
              -0.1132891282695542},
             1e-15);
  o.divisor = 0;
  EXPECT_ERROR(x.AvgPool(o), "AvgPool", "divisor 0");
}

}  // namespace
}  // namespace tessera
