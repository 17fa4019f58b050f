// Sums of products of bytes against plain loops: exact in integers, and scaled by block in f32.
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "graph/flags.h"
#include "graph/tensor.h"
#include "runtime/runtime.h"
#include "tests/testing.h"

namespace tessera {
namespace {

int64_t Kernels() { return GetRuntimeStats().kernels_run; }

// Bytes at the edges of their dtype among random ones.
Tensor RandomBytes(const Dims& shape, DType dtype) {
  const int64_t low = dtype.IsUnsigned() ? 0 : -128, high = dtype.IsUnsigned() ? 255 : 127;
  const Tensor any = Tensor::RandInt(low, high + 1, shape);
  const Tensor kind = Tensor::RandInt(0, 4, shape);
  return Where(kind == 0, low, Where(kind == 1, high, any)).Cast(dtype).Realize();
}

Tensor Products(const Tensor& x, const Tensor& w) {
  return x.Unsqueeze(1).Cast(kInt32) * w.Unsqueeze(0).Cast(kInt32);
}

void ExpectExact(int64_t m, int64_t n, int64_t k, DType a, DType b) {
  const Tensor x = RandomBytes({m, k}, a), w = RandomBytes({n, k}, b);
  const std::vector<int32_t> got = Products(x, w).Sum({-1}).ToVector<int32_t>();
  const std::vector<int32_t> xs = x.ToVector<int32_t>(), ws = w.ToVector<int32_t>();
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      uint32_t want = 0;  // wraps
      for (int64_t l = 0; l < k; ++l) {
        want += static_cast<uint32_t>(xs[i * k + l] * ws[j * k + l]);
      }
      ASSERT_EQ(got[i * n + j], static_cast<int32_t>(want))
          << a.ToString() << " by " << b.ToString() << ", " << m << "x" << n << "x" << k << " at "
          << i << "," << j;
    }
  }
}

TEST(ByteProducts, AreExact) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  Tensor::ManualSeed(1);
  for (const DType a : {kInt8, kUInt8}) {
    for (const DType b : {kInt8, kUInt8}) {
      for (const int64_t k : {1, 4, 16, 31, 64, 192}) ExpectExact(1, 9, k, a, b);
      for (const int64_t m : {2, 5, 17}) ExpectExact(m, 35, 64, a, b);
      ExpectExact(3, 1, 32, a, b);
      ExpectExact(1, 1, 128, a, b);
    }
  }
}

// Matrices whose elements along the sum lie apart, of one or both.
TEST(ByteProducts, OfMatricesAsTheyLie) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  Tensor::ManualSeed(3);
  for (const auto& [m, k, n] : {std::array{9, 64, 35}, {16, 33, 8}, {3, 40, 70}, {70, 16, 130}}) {
    for (const DType a : {kInt8, kUInt8}) {
      for (const DType b : {kInt8, kUInt8}) {
        const Tensor x = RandomBytes({2, m, k}, a), w = RandomBytes({k, n}, b);
        const Tensor across = x.Transpose().Contiguous().Realize();
        const std::vector<double> p = x.ToVector<double>(), q = w.ToVector<double>();
        std::vector<double> want(2 * m * n);
        for (int i = 0; i < 2 * m; ++i) {
          for (int j = 0; j < n; ++j) {
            for (int l = 0; l < k; ++l) want[i * n + j] += p[i * k + l] * q[l * n + j];
          }
        }
        const Tensor wide = w.Cast(kInt32);
        EXPECT_EQ(x.Cast(kInt32).MatMul(wide).ToVector<double>(), want);
        EXPECT_EQ(across.Transpose().Cast(kInt32).MatMul(wide).ToVector<double>(), want);
        const Tensor rows = w.Transpose().Contiguous().Realize(), flat = x.Flatten(0, 1);
        EXPECT_EQ(flat.Cast(kInt32).Linear(rows.Cast(kInt32)).ToVector<double>(), want);
        EXPECT_EQ(flat.Cast(kInt32).MatMul(wide).ToVector<double>(), want);
      }
    }
  }
}

// Of so many that one of two signed ones is raised before: however each lies.
TEST(ByteProducts, OfManySigned) {
  Tensor::ManualSeed(4);
  const Tensor x = RandomBytes({300, 500}, kInt8), w = RandomBytes({500, 260}, kInt8);
  const std::vector<double> want =
      x.Cast(kFloat64).MatMul(w.Cast(kFloat64)).ToVector<double>();  // exact
  const Tensor x_across = x.T().Contiguous().Realize(), w_across = w.T().Contiguous().Realize();
  for (const Tensor& a : {x, x_across.T()}) {
    for (const Tensor& b : {w, w_across.T()}) EXPECT_EQ(a.MatMul(b).ToVector<double>(), want);
  }
}

TEST(ByteProducts, SumsWrap) {
  Tensor::ManualSeed(2);
  const int64_t n = 1 << 17;
  const Tensor x = Tensor::Full({1, n}, 255, kUInt8, "CPU").Contiguous().Realize();
  const Tensor w = Tensor::Full({8, n}, 127, kInt8, "CPU").Contiguous().Realize();
  const int32_t want = static_cast<int32_t>(static_cast<uint32_t>(n) * 255u * 127u);
  for (const int32_t got : Products(x, w).Sum({-1}).ToVector<int32_t>()) EXPECT_EQ(got, want);
}

struct Blocks {
  Tensor bytes, scales;  // [rows, blocks, length], [rows, blocks]
};
Blocks RandomBlocks(int64_t rows, int64_t blocks, int64_t length, DType dtype) {
  return {RandomBytes({rows, blocks, length}, dtype),
          Tensor::Uniform(-1, 1, {rows, blocks}).Realize()};
}

Tensor Scaled(const Blocks& x, const Blocks& w) {
  const Tensor dots = Products(x.bytes, w.bytes).Sum({-1});
  return (dots.Cast(kFloat32) * (x.scales.Unsqueeze(1) * w.scales)).Sum({-1});
}

void ExpectScaled(const Blocks& x, const Blocks& w) {
  const int64_t m = x.bytes.size(0), n = w.bytes.size(0), blocks = x.bytes.size(1),
                length = x.bytes.size(2);
  const std::vector<double> a = x.bytes.ToVector<double>(), b = w.bytes.ToVector<double>();
  const std::vector<double> s = x.scales.ToVector<double>(), t = w.scales.ToVector<double>();
  const int64_t before = Kernels();
  const std::vector<float> got = Scaled(x, w).ToVector<float>();
  const int64_t kernels = Kernels() - before;
  EXPECT_TRUE(kernels == 1 || blocks == 1) << kernels << ": " << m << "x" << n << ", " << blocks;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double want = 0, size = 0;
      for (int64_t k = 0; k < blocks; ++k) {
        const double scale = s[i * blocks + k] * t[j * blocks + k];
        double dot = 0;  // of numbers: a 0 among them makes no infinite scale a NaN
        for (int64_t l = 0; l < length; ++l) {
          const double product =
              a[(i * blocks + k) * length + l] * b[(j * blocks + k) * length + l];
          dot += product;
          size += std::fabs(product * scale);
        }
        want += dot * scale;
      }
      const float is = got[i * n + j];
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(is)) << i << "," << j << " of " << m << ": " << is;
      } else if (std::isinf(want)) {
        // Or NaN: lanes may scale parts of a dot product, of either sign, before adding them up.
        ASSERT_FALSE(std::isfinite(is)) << i << "," << j << " of " << m << ": " << is;
      } else {
        ASSERT_NEAR(is, want, 1e-6 * size) << m << "x" << n << ", " << blocks << " blocks of "
                                           << length << ", at " << i << "," << j;
      }
    }
  }
}

TEST(ByteProducts, ScaledByBlock) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  Tensor::ManualSeed(3);
  const DType i8 = kInt8;
  for (const int64_t length : {4, 8, 16, 32, 64, 128}) {
    for (const int64_t blocks : {1, 3, 4, 6}) {
      ExpectScaled(RandomBlocks(1, blocks, length, i8), RandomBlocks(7, blocks, length, i8));
    }
  }
  for (const int64_t m : {2, 5, 16, 17, 33}) {
    for (const int64_t n : {1, 4, 15, 16, 33}) {
      ExpectScaled(RandomBlocks(m, 4, 32, i8), RandomBlocks(n, 4, 32, i8));
    }
  }
  ExpectScaled(RandomBlocks(19, 2, 32, kUInt8), RandomBlocks(40, 2, 32, i8));
  ExpectScaled(RandomBlocks(19, 2, 32, i8), RandomBlocks(40, 2, 32, kUInt8));
  ExpectScaled(RandomBlocks(19, 2, 32, kUInt8), RandomBlocks(40, 2, 32, kUInt8));
}

TEST(ByteProducts, ScalesThatAreNotFinite) {
  Tensor::ManualSeed(4);
  for (const int64_t m : {1, 20}) {
    for (const float scale :
         {std::numeric_limits<float>::infinity(), std::nanf(""), -0.0f, 1e-41f}) {
      const Blocks x = RandomBlocks(m, 4, 32, kInt8);
      Blocks w = RandomBlocks(33, 4, 32, kInt8);
      const Tensor at = Tensor::Arange(33 * 4).Reshape({33, 4});
      w.scales = Where(at == 70, scale, w.scales).Realize();
      ExpectScaled(x, w);
    }
  }
}

// Nibbles of bytes, less 8, as files of models have them: [rows, blocks, 2 + 16] bytes.
TEST(ByteProducts, NibblesInBlocksOfTheirOwn) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  Tensor::ManualSeed(5);
  for (const int64_t m : {1, 4, 17, 40}) {
    for (const int64_t n : {5, 16, 50}) {
      for (const int64_t blocks : {1, 2, 4, 6}) {
        const Tensor stored = RandomBytes({n, blocks, 18}, kUInt8);
        const Tensor bytes = stored.SliceAxis(-1, {2, 18});
        const Tensor values = Stack({bytes & 15, bytes >> 4}, -2).Flatten(-2).Cast(kInt8) - 8;
        const Tensor scales = Tensor::Uniform(-1, 1, {n, blocks}).Realize();
        const Blocks x = RandomBlocks(m, blocks, 32, kInt8);
        ExpectScaled(x, {values, scales});
      }
    }
  }
}

// A view of a copy in which four bytes of a column lie next to those of the next one, 16 side by
// side.
Tensor InPanels(const Tensor& columns) {  // [n, blocks, length]
  const int64_t n = columns.size(0), blocks = columns.size(1), length = columns.size(2);
  const Tensor panels = columns.Reshape({n / 16, 16, blocks, length / 4, 4})
                            .Permute({0, 2, 3, 1, 4})
                            .Contiguous()
                            .Realize();
  return panels.Permute({0, 3, 1, 2, 4}).Reshape({n, blocks, length});
}

TEST(ByteProducts, ColumnsInPanels) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  Tensor::ManualSeed(6);
  for (const DType a : {kInt8, kUInt8}) {
    for (const DType b : {kInt8, kUInt8}) {
      for (const int64_t m : {1, 2, 9, 40}) {
        for (const int64_t length : {4, 32, 64}) {
          const Blocks x = RandomBlocks(m, 3, length, a), w = RandomBlocks(48, 3, length, b);
          ExpectScaled(x, {InPanels(w.bytes), w.scales});
          const Tensor one = InPanels(w.bytes).Flatten(1), rows = x.bytes.Flatten(1);
          EXPECT_EQ(Products(rows, one).Sum({-1}).ToVector<int32_t>(),
                    Products(rows, w.bytes.Flatten(1)).Sum({-1}).ToVector<int32_t>())
              << m << " rows, blocks of " << length;
        }
      }
    }
  }
  for (const int64_t m : {1, 4, 17}) {  // nibbles, and what is added to each block's sum
    const Tensor bytes = InPanels(RandomBytes({32, 4, 16}, kUInt8));
    const Tensor values = Stack({bytes & 15, bytes >> 4}, -2).Flatten(-2).Cast(kInt8) - 8;
    const Blocks x = RandomBlocks(m, 4, 32, kInt8);
    ExpectScaled(x, {values, Tensor::Uniform(-1, 1, {32, 4}).Realize()});
  }
}

TEST(ByteProducts, OfNothing) {
  const Tensor x = Tensor::Zeros({2, 0, 32}, kInt8, "CPU"),
               w = Tensor::Zeros({3, 0, 32}, kInt8, "CPU");
  const Tensor none = Tensor::Zeros({2, 0}, kFloat32, "CPU"),
               no = Tensor::Zeros({3, 0}, kFloat32, "CPU");
  EXPECT_EQ(Scaled({x, none}, {w, no}).ToVector<float>(), std::vector<float>(6, 0.0f));
}

}  // namespace
}  // namespace tessera
