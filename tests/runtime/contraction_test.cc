// Contractions by tiles: every remainder, every operand order, on guard pages.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/fold.h"
#include "graph/grad.h"
#include "graph/kernel_form.h"
#include "graph/tensor.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"
#include "tests/testing.h"

namespace tessera {
namespace {

// Realised inputs in blocks that end at an unmapped page.
Tensor Guarded(const Dims& shape) {
  return (Tensor::RandInt(-4, 5, shape).Cast(kFloat32)).Realize();
}

struct Triple {
  int64_t m, k, n;
};

// Small integers: any order of summation gives the same bits.
void ExpectProduct(int64_t m, int64_t k, int64_t n, bool transposed) {
  Tensor a = Guarded({m, k});
  Tensor b = transposed ? Guarded({n, k}) : Guarded({k, n});
  const std::vector<float> x = a.ToVector<float>(), y = b.ToVector<float>();
  Tensor c = a.MatMul(transposed ? b.Transpose() : b);
  const std::vector<float> got = c.ToVector<float>();
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float want = 0;
      for (int64_t l = 0; l < k; ++l)
        want += x[i * k + l] * (transposed ? y[j * k + l] : y[l * n + j]);
      ASSERT_EQ(got[i * n + j], want)
          << m << "x" << k << "x" << n << (transposed ? " transposed" : "") << " at " << i << ","
          << j;
    }
  }
}

TEST(Contraction, EveryRemainderOfATile) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (int64_t m : {1, 3, 4, 7, 8, 9, 17}) {
    for (int64_t n : {1, 15, 16, 17, 31, 33, 49}) {
      ExpectProduct(m, 5, n, false);
      ExpectProduct(m, 33, n, true);
    }
  }
}

TEST(Contraction, FewColumnsOfManyRowsSlow) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (int64_t n = 2; n < 16; ++n) {
    ExpectProduct(37, 70, n, false);
    ExpectProduct(37, 70, n, true);
    ExpectProduct(37, 5, n, true);
  }
  for (DType t : {kFloat64, kBFloat16, kFloat16}) {
    for (int64_t n : {4, 5, 7, 10, 15}) {
      const Tensor a = Guarded({3, 37, 70}).Cast(t), b = Guarded({3, 70, n}).Cast(t);
      const Tensor c = Guarded({3, 70, 37}).Cast(t), d = Guarded({3, n, 70}).Cast(t);
      for (const Tensor& left : {a, c.Transpose()}) {
        for (const Tensor& right : {b, d.Transpose()}) {
          EXPECT_EQ(Mismatch({left.MatMul(right)}), "") << t.ToString() << " " << n;
        }
      }
    }
  }
}

TEST(Contraction, EveryLengthOfTheSum) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (int64_t k : {1, 2, 15, 16, 17, 32, 63, 65}) {
    ExpectProduct(2, k, 20, true);
    ExpectProduct(9, k, 34, false);
  }
}

// Products of bf16, which some chips sum in pairs of steps: remainders of tiles and pairs, operands
// that lie along rows or columns, on guard pages.
// Reductions of other values of two operands, in tiles with all remainders: sums and extremes of
// whole numbers, which any order gives alike.
// Sums so short that rows are stored one after another, over panels of all columns; and few rows of
// columns that lie along the sum.
TEST(Contraction, ShortSumsSlow) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (int64_t k : {1, 2, 3, 8, 31, 32, 33}) {
    for (int64_t m : {4, 7, 19}) ExpectProduct(m, k, 67, true);
    ExpectProduct(40, k, 131, false);
  }
  for (DType t : {kBFloat16, kFloat16, kFloat64}) {
    for (int64_t k : {2, 3, 8, 31}) {
      const Tensor a = Guarded({2, 21, k}).Cast(t), b = Guarded({2, k, 67}).Cast(t);
      const Tensor c = Guarded({2, k, 21}).Cast(t), d = Guarded({2, 67, k}).Cast(t);
      for (const Tensor& left : {a, c.Transpose()}) {
        for (const Tensor& right : {b, d.Transpose()}) {
          EXPECT_EQ(Mismatch({left.MatMul(right)}), "") << t.ToString() << " " << k;
        }
      }
    }
  }
}

TEST(Contraction, DistancesOfEveryShape) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (const Triple& s : {Triple{4, 7, 16}, Triple{9, 33, 49}, Triple{37, 5, 70}}) {
    const Tensor a = Guarded({s.m, 1, s.k}), b = Guarded({1, s.n, s.k}), w = Guarded({s.k});
    const Tensor sums = (w * (a - b).Square() + a).Sum({2}), most = (a - b).Max({2});
    const Tensor turned = (a.Permute({1, 0, 2}) - b.Permute({1, 0, 2})).Abs().Min({2});
    const std::vector<float> x = a.ToVector<float>(), y = b.ToVector<float>();
    const std::vector<float> z = w.ToVector<float>(), got_sums = sums.ToVector<float>();
    const std::vector<float> got_most = most.ToVector<float>(),
                             got_least = turned.ToVector<float>();
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        float sum = 0, highest = -100, lowest = 100;
        for (int64_t l = 0; l < s.k; ++l) {
          const float apart = x[i * s.k + l] - y[j * s.k + l];
          sum += z[l] * apart * apart + x[i * s.k + l];
          highest = std::max(highest, apart);
          lowest = std::min(lowest, std::abs(apart));
        }
        ASSERT_EQ(got_sums[i * s.n + j], sum) << s.m << "x" << s.k << "x" << s.n;
        ASSERT_EQ(got_most[i * s.n + j], highest) << i << ", " << j;
        ASSERT_EQ(got_least[j * s.m + i], lowest) << i << ", " << j;
      }
    }
  }
}

TEST(Contraction, NarrowFloatsOfEveryShapeSlow) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  const auto narrow = [](const Tensor& x) { return x.Cast(kBFloat16).Realize(); };
  for (const auto [m, k, n] : {Triple{4, 2, 16},
                               {15, 3, 31},
                               {16, 32, 64},
                               {41, 67, 97},
                               {33, 1, 48},
                               {17, 47, 33},
                               {130, 1030, 33},
                               {323, 40, 95},
                               {70, 66, 128 + 96 + 5},
                               {300, 72, 544},
                               {64, 704, 256}}) {
    const Tensor x = Guarded({m, k}), y = Guarded({k, n}), a = narrow(x), b = narrow(y);
    const std::vector<float> want = x.MatMul(y).Cast(kBFloat16).ToVector<float>();
    EXPECT_EQ(a.MatMul(b).ToVector<float>(), want) << m << "x" << k << "x" << n;
    const Tensor across = narrow(y.T().Contiguous()).T(), turned = narrow(x.T().Contiguous()).T();
    EXPECT_EQ(a.MatMul(across).ToVector<float>(), want) << m << "x" << k << "x" << n;
    EXPECT_EQ(turned.MatMul(b).ToVector<float>(), want) << m << "x" << k << "x" << n;
  }
}

// What comes before and after products of bf16, and what goes around them.
TEST(Contraction, NarrowFloatsAmongOthers) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  const auto narrow = [](const Tensor& x) { return x.Cast(kBFloat16).Realize(); };
  const auto expect = [](const Tensor& got, const Tensor& want) {
    EXPECT_EQ(got.ToVector<float>(), want.Cast(kBFloat16).ToVector<float>());
  };
  for (const auto [m, k, n] : {Triple{70, 66, 45}, {32, 32, 32}, {17, 128, 100}}) {
    SCOPED_TRACE(absl::StrCat(m, "x", k, "x", n));
    const Tensor x = Guarded({3, m, k}), y = Guarded({3, k, n}), bias = Guarded({n});
    const Tensor a = narrow(x), b = narrow(y);
    expect(a.MatMul(b), x.MatMul(y));
    expect(a.MatMul(b[0]), x.MatMul(y[0]));
    expect(a.Relu().MatMul(-b), x.Relu().MatMul(-y));
    expect(a[1].MatMul(a[1].T()), x[1].MatMul(x[1].T()));
    const auto rounded = [](const Tensor& t) { return t.Cast(kBFloat16).Cast(kFloat32); };
    expect(a[0].MatMul(b[2]) + bias.Cast(kBFloat16), rounded(x[0].MatMul(y[2])) + bias);
    expect(a[2].MatMul(b[0]).Relu().Sum({0}), rounded(x[2].MatMul(y[0])).Relu().Sum({0}));
    expect(a[0].Pad({{1, 2}, {3, 0}}).MatMul(b[0].Pad({{0, 3}, {2, 1}})),
           x[0].Pad({{1, 2}, {3, 0}}).MatMul(y[0].Pad({{0, 3}, {2, 1}})));
    expect(a[0].Flip({0}).MatMul(b[0].Flip({1})), x[0].Flip({0}).MatMul(y[0].Flip({1})));
    expect(a[0].Slice({{0, m, 2}}).MatMul(b[0]), x[0].Slice({{0, m, 2}}).MatMul(y[0]));
  }
}

TEST(Contraction, SpecialNarrowFloats) {
  constexpr int64_t kSide = 48;
  std::vector<float> x(kSide * kSide, 1), y(kSide * kSide, 2);
  x[3 * kSide + 5] = NAN;
  x[7 * kSide + 8] = INFINITY;
  x[11 * kSide + 8] = INFINITY;
  x[11 * kSide + 9] = -INFINITY;
  x[20 * kSide + 8] = 1e-40f;  // less than f32 has with full precision: itself, or zero
  const auto narrow = [](const std::vector<float>& v) {
    return Tensor::From(v, {kSide, kSide}).Cast(kBFloat16).Realize();
  };
  const std::vector<float> got = narrow(x).MatMul(narrow(y)).Cast(kFloat32).ToVector<float>();
  for (int64_t j = 0; j < kSide; ++j) {
    EXPECT_TRUE(std::isnan(got[3 * kSide + j]));
    EXPECT_EQ(got[7 * kSide + j], INFINITY);
    EXPECT_TRUE(std::isnan(got[11 * kSide + j]));
    EXPECT_EQ(got[20 * kSide + j], 2 * (kSide - 1));
    EXPECT_EQ(got[21 * kSide + j], 2 * kSide);
  }
}

// Whole tiles or panels of columns may be nothing but padding.
TEST(Contraction, ColumnsThatArePadding) {
  for (const auto& [narrow, sums] : {std::pair(kBFloat16, kFloat32), {kInt8, kInt32}}) {
    const Tensor a = Guarded({40, 96}).Cast(narrow).Realize();
    for (const int64_t columns : {16, 32, 40}) {
      const Tensor b = Guarded({96, columns}).Cast(narrow).Realize();
      const auto product = [&](const Tensor& right) {
        return a.Cast(sums).MatMul(right.Cast(sums));
      };
      for (const auto& by : {std::pair<int64_t, int64_t>{0, 16}, {32, 0}, {16, 40}}) {
        const Pairs pads = {{0, 0}, {by.first, by.second}};
        EXPECT_EQ(product(b.Pad(pads)).ToVector<float>(),
                  product(b).Realize().Pad(pads).ToVector<float>())
            << columns << ", " << by.first << ", " << by.second;
      }
    }
  }
}

TEST(Contraction, BatchesBroadcast) {
  Tensor a = Guarded({3, 1, 5, 7}), b = Guarded({2, 7, 18});
  EXPECT_REFERENCE(a.MatMul(b));
  EXPECT_REFERENCE(Guarded({4, 6}).Unsqueeze(0).MatMul(Guarded({5, 6, 20})));
}

TEST(Contraction, ColumnsReusedByManyRowsArePacked) {
  Tensor a = Tensor::Empty({64, 96}), b = Tensor::Empty({128, 96});
  const std::vector<UOp> roots = {a.MatMul(b.Transpose()).uop()};
  ASSERT_OK_AND_ASSIGN(CompiledPlanPtr plan, PreparePlan(roots, MakePlanKey(roots)));
  ASSERT_EQ(plan->programs.size(), 1u);
  EXPECT_GT(plan->programs[0].scratch_bytes, 0);
  EXPECT_NE(plan->programs[0].text.find("rt_fma"), std::string::npos);
  EXPECT_NE(plan->programs[0].text.find("rt_store"), std::string::npos);
}

// Blocks of rows of a left operand that no cache holds: the same as row by row; whether each lays
// out the columns, or a kernel before them, of a right operand in either order.
TEST(Contraction, ManyRowsOfALongSum) {
  const Tensor a = Guarded({4096, 3072});
  for (const Tensor& b : {Guarded({3072, 40}), Guarded({3072, 480}), Guarded({480, 3072}).T()}) {
    const std::vector<float> got = a.MatMul(b).ToVector<float>();
    const int64_t columns = b.shape()[1].value();
    for (const int64_t at : {0, 700, 2047, 2048, 4032}) {
      const std::vector<float> want = a.Slice({{at, at + 64}}).MatMul(b).ToVector<float>();
      EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin() + at * columns)) << at;
    }
  }
}

// A left operand that lies along its rows is turned, in blocks, with rows and steps left over.
TEST(Contraction, LeftOperandsAcrossTheGrainSlow) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (const int64_t rows : {64, 80, 128, 130, 200}) {
    for (const int64_t k : {5, 16, 37}) {
      const Tensor a = Guarded({k, rows}), b = Guarded({k, 35}), c = Guarded({3, 35, k});
      const Tensor turned = a.T().Contiguous().Realize();
      EXPECT_EQ(a.T().MatMul(b).ToVector<float>(), turned.MatMul(b).ToVector<float>());
      EXPECT_EQ(a.T().MatMul(c.Transpose()).ToVector<float>(),
                turned.MatMul(c.Transpose()).ToVector<float>());
      EXPECT_EQ((a * 2 + 1).T().MatMul(b).ToVector<float>(),
                (turned * 2 + 1).MatMul(b).ToVector<float>());
    }
  }
}

// A convolution by plain loops, of small integers.
void ExpectConvolution(const Dims& image, const Dims& kernel, ConvOptions options) {
  if (options.stride.empty()) options.stride = {1, 1};
  if (options.padding.empty()) options.padding = {0, 0};
  if (options.dilation.empty()) options.dilation = {1, 1};
  const Tensor x = Guarded(image), w = Guarded(kernel);
  const Tensor y = x.Conv2d(w, options);
  const std::vector<float> a = x.ToVector<float>(), b = w.ToVector<float>();
  const std::vector<float> got = y.ToVector<float>();
  const int64_t in = x.size(1), high = x.size(2), wide = x.size(3), out = w.size(0);
  const int64_t each = w.size(1), h = w.size(2), v = w.size(3);
  size_t at = 0;
  for (int64_t n = 0; n < x.size(0); ++n) {
    for (int64_t o = 0; o < out; ++o) {
      const int64_t first = o / (out / options.groups) * each;
      for (int64_t i = 0; i < y.size(2); ++i) {
        for (int64_t j = 0; j < y.size(3); ++j) {
          float want = 0;
          for (int64_t t = 0; t < each * h * v; ++t) {
            const int64_t c = t / (h * v), p = t / v % h, q = t % v;
            const int64_t row =
                i * options.stride[0] + p * options.dilation[0] - options.padding[0];
            const int64_t col =
                j * options.stride[1] + q * options.dilation[1] - options.padding[1];
            if (row < 0 || row >= high || col < 0 || col >= wide) continue;
            want += a[((n * in + first + c) * high + row) * wide + col] * b[o * each * h * v + t];
          }
          ASSERT_EQ(got[at++], want) << testing::PrintToString(x.shape().ToString()) << " under "
                                     << w.shape().ToString() << " at " << o << "," << i << "," << j;
        }
      }
    }
  }
}

// Columns over two axes, whole, in parts, in lanes and halves of them, under gates of their own.
TEST(Contraction, ConvolutionsOfEverySize) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (const int64_t size : {1, 3, 4, 7, 8, 13, 14, 16, 17, 28, 33}) {
    ExpectConvolution({2, 3, size, size}, {17, 3, 3, 3}, {.padding = {1, 1}});
    ExpectConvolution({1, 2, size, size + 5}, {16, 2, 1, 2}, {.stride = {1, 2}, .padding = {0, 1}});
    ExpectConvolution({1, 4, size + 4, size + 3}, {32, 2, 3, 2},
                      {.stride = {2, 1}, .padding = {1, 0}, .dilation = {2, 1}, .groups = 2});
  }
}

// So deep that a part of the rows fills a core's cache.
TEST(Contraction, ConvolutionsInParts) {
  ExpectConvolution({1, 160, 24, 24}, {16, 160, 3, 3}, {.padding = {1, 1}});
  ExpectConvolution({1, 160, 23, 17}, {16, 160, 3, 3}, {});
  ExpectConvolution({1, 900, 7, 7}, {16, 900, 3, 3}, {.padding = {1, 1}});
  ExpectConvolution({1, 16, 8, 64}, {16, 16, 3, 3}, {.padding = {1, 1}});  // rows in few sets
}

// What the windows of a convolution have in common is laid out once: with borders, and in parts.
TEST(Contraction, WindowsAreLaidOutOnceSlow) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  ExpectConvolution({2, 5, 20, 40}, {16, 5, 3, 3}, {.padding = {4, 1}, .dilation = {2, 3}});
  ExpectConvolution({1, 3, 9, 64}, {18, 3, 5, 5}, {.padding = {2, 2}});
  ExpectConvolution({1, 160, 48, 48}, {16, 160, 3, 3}, {.padding = {1, 1}});
  ExpectConvolution({1, 160, 50, 41}, {16, 160, 3, 3}, {.padding = {1, 1}});
  ExpectConvolution({2, 3, 19, 20}, {64, 3, 3, 1}, {.padding = {2, 0}, .dilation = {2, 1}});
  // Borders alone are masked, of rows of several vectors.
  ExpectConvolution({1, 3, 12, 150}, {32, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3}});
  ExpectConvolution({1, 3, 9, 131}, {32, 3, 3, 5}, {.stride = {1, 2}, .padding = {1, 37}});
  ExpectConvolution({1, 32, 9, 131}, {32, 1, 3, 5}, {.padding = {1, 40}, .groups = 32});
  ExpectConvolution({1, 32, 9, 96}, {32, 1, 3, 3},
                    {.stride = {2, 2}, .padding = {1, 1}, .groups = 32});
}

// Of two operands that are no factors of what is summed, though both are narrow.
TEST(Contraction, NarrowDistances) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (const DType narrow : {kBFloat16, kInt8}) {
    const DType wide = narrow == kInt8 ? kInt32 : kFloat32;
    const Tensor x = Guarded({40, 1, 66}), y = Guarded({1, 50, 66});
    const Tensor a = x.Cast(narrow).Realize(), b = y.Cast(narrow).Realize();
    const Tensor d = (a - b).Cast(wide), s = (a + b).Cast(wide);
    EXPECT_EQ((d * d).Sum({2}).ToVector<float>(), ((x - y) * (x - y)).Sum({2}).ToVector<float>());
    EXPECT_EQ((s * d).Sum({2}).ToVector<float>(), ((x + y) * (x - y)).Sum({2}).ToVector<float>());
  }
}

// An operand of so many pieces that loops cut at their ends would be too many.
TEST(Contraction, OperandsOfManyPieces) {
  std::vector<Tensor> pieces, columns;
  for (int i = 0; i < 40; ++i) pieces.push_back(Guarded({50, 3 + i % 5}));
  const Tensor whole = Cat(pieces, 1).Realize(), other = Guarded({whole.size(1), 41});
  for (const DType dtype : {kFloat32, kBFloat16}) {
    std::vector<Tensor> now;
    for (const Tensor& p : pieces) now.push_back(p.Cast(dtype).Realize());
    const Tensor a = Cat(now, 1), b = other.Cast(dtype).Realize();
    const auto want = whole.MatMul(other).Cast(dtype).ToVector<float>();
    EXPECT_EQ(a.MatMul(b).ToVector<float>(), want);
    EXPECT_EQ(b.T().MatMul(a.T()).T().ToVector<float>(), want);
  }
}

// Rows of narrow floats are widened once for all vectors of columns.
TEST(Contraction, RowsAreWidenedOnce) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (const auto& [m, k, n] : {std::tuple(128, 77, 40), std::tuple(200, 300, 130),
                                std::tuple(65, 40, 33), std::tuple(256, 3, 64)}) {
    const Tensor a = Guarded({m, k}), b = Guarded({k, n}), want = a.MatMul(b);
    for (const DType t : {kFloat16, kBFloat16}) {
      const Tensor x = a.Cast(t).Realize(), y = b.Cast(t).Realize();
      EXPECT_EQ(x.MatMul(y).ToVector<float>(), want.Cast(t).ToVector<float>()) << m << t.ToString();
      const Tensor wide = x.Cast(kFloat32).MatMul(y.Cast(kFloat32));
      EXPECT_EQ(wide.ToVector<float>(), want.ToVector<float>()) << m << t.ToString();
    }
  }
}

// Of bf16, which chips sum in pairs of steps or in tiles: exact in f32, rounded once.
TEST(Contraction, NarrowConvolutionsSlow) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  const auto expect = [](const Dims& x_shape, const Dims& w_shape, const ConvOptions& options) {
    const Tensor x = Guarded(x_shape), w = Guarded(w_shape);
    const Tensor a = x.Cast(kBFloat16).Realize(), b = w.Cast(kBFloat16).Realize();
    SCOPED_TRACE(testing::PrintToString(x_shape) + " under " + testing::PrintToString(w_shape));
    const Tensor narrow = a.Conv(b, options), wide = x.Conv(w, options);
    const std::vector<Tensor> got = Grad(narrow.Cast(kFloat32).Sum(), {a, b});
    const std::vector<Tensor> want = Grad(wide.Sum(), {x, w});
    EXPECT_EQ(narrow.ToVector<float>(), wide.Cast(kBFloat16).ToVector<float>());
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(got[i].ToVector<float>(), want[i].Cast(kBFloat16).ToVector<float>()) << i;
    }
  };
  for (const int64_t size : {3, 7, 14, 16, 33}) {
    expect({2, 3, size, size}, {17, 3, 3, 3}, {.padding = {1, 1}});
    expect({1, 8, size, size + 2}, {32, 8, 3, 3}, {.padding = {1, 0}});
    expect({1, 4, size + 4, size + 3}, {32, 2, 3, 2},
           {.stride = {2, 1}, .padding = {1, 0}, .dilation = {2, 1}, .groups = 2});
  }
  expect({1, 16, 32, 64}, {16, 16, 3, 3}, {.padding = {1, 1}});
  expect({2, 6, 40}, {16, 6, 5}, {.padding = {2}});
  expect({1, 4, 5, 9, 18}, {20, 4, 3, 3, 3}, {.padding = {1, 1, 1}});
  expect({3, 64, 9, 9}, {64, 64, 1, 1}, {});
}

TEST(Contraction, SumsOfProductsThatAreNoContractionStillAddUp) {
  Tensor x = Guarded({19, 37}), y = Guarded({19, 37});
  EXPECT_REFERENCE((x * y).Sum({1}));
  EXPECT_REFERENCE((x * y).Sum({0}));
  EXPECT_REFERENCE((x * x).Sum());
}

// Panels turned in registers, with every remainder of columns and of the sum.
TEST(Contraction, ColumnsAcrossTheGrain) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (int64_t n : {16, 31, 33, 64}) {
    for (int64_t k : {15, 16, 17, 40}) ExpectProduct(37, k, n, true);
  }
}

}  // namespace
}  // namespace tessera
