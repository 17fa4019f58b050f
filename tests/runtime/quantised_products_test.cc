// Contractions of weights in blocks of bytes, by plain loops over the bytes.
#include <gtest/gtest.h>

#include <vector>

#include "graph/flags.h"
#include "graph/tensor.h"
#include "runtime/runtime.h"
#include "tests/testing.h"

namespace tessera {
namespace {

// Weights in blocks of 32 that share a scale, as files hold them: a half, then 32 bytes, or 16 of
// two nibbles. Dequantised by ops on bytes inside the product.
struct Blocks {
  int bits;
  int64_t rows, columns;
  Tensor bytes;  // [rows, columns / 32, 2 + 4 * bits]
};

Blocks RandomBlocks(int bits, int64_t rows, int64_t columns) {
  const int64_t size = 2 + 4 * bits;
  Tensor quants = Tensor::RandInt(0, 256, {rows, columns / 32, size - 2}).Cast(kUInt8).Realize();
  Tensor scale = Tensor::RandInt(1, 5, {rows, columns / 32, 1}).Cast(kFloat16).Bitcast(kUInt16);
  Tensor low = scale.Cast(kUInt8), high = (scale >> 8).Cast(kUInt8);
  return {bits, rows, columns, Cat({low, high, quants}, 2).Realize()};
}

Tensor Dequantised(const Blocks& b) {
  const auto part = [&](int64_t from, int64_t to) {
    return b.bytes.Slice({Slice(), Slice(), Slice(from, to)});
  };
  const Tensor scale =
      (part(0, 1).Cast(kUInt16) | (part(1, 2).Cast(kUInt16) << 8)).Bitcast(kFloat16).Cast(kFloat32);
  Tensor q;
  if (b.bits == 8) {
    q = part(2, 34).Bitcast(kInt8);
  } else {
    const Tensor pairs = part(2, 18);
    q = Cat({(pairs & 15).Cast(kInt8) - 8, (pairs >> 4).Cast(kInt8) - 8}, 2);
  }
  return (q.Cast(kFloat32) * scale).Reshape({b.rows, b.columns});
}

std::vector<double> PlainDequantised(const Blocks& b) {
  const std::vector<uint8_t> bytes = b.bytes.ToVector<uint8_t>();
  const int64_t size = 2 + 4 * b.bits;
  std::vector<double> out(b.rows * b.columns);
  for (int64_t block = 0; block < b.rows * b.columns / 32; ++block) {
    const uint8_t* p = bytes.data() + block * size;
    const double scale = LoadScalar(p, kFloat16).AsFloat();
    for (int64_t i = 0; i < 32; ++i) {
      int q;
      if (b.bits == 8) {
        q = static_cast<int8_t>(p[2 + i]);
      } else {
        q = (i < 16 ? p[2 + i] & 15 : p[2 + i - 16] >> 4) - 8;
      }
      out[block * 32 + i] = scale * q;
    }
  }
  return out;
}

TEST(Contraction, QuantisedBlocks) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (int bits : {8, 4}) {
    for (int64_t rows : {1, 6, 40}) {
      const Blocks blocks = RandomBlocks(bits, rows, 96);
      const std::vector<double> w = PlainDequantised(blocks);
      for (int64_t m : {1, 3, 9}) {
        const Tensor x = Tensor::RandInt(-4, 5, {m, 96}).Cast(kFloat32).Realize();
        const std::vector<float> a = x.ToVector<float>();
        Tensor y = x.MatMul(Dequantised(blocks).Transpose());
        const int64_t before = GetRuntimeStats().kernels_run;
        const std::vector<float> got = y.ToVector<float>();
        // One row of weights that many rows of x use is dequantised once, before.
        const int kernels = rows == 1 && m > 4 ? 2 : 1;
        EXPECT_EQ(GetRuntimeStats().kernels_run - before, kernels) << m << "x" << rows;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < rows; ++j) {
            double want = 0;
            for (int64_t k = 0; k < 96; ++k) want += a[i * 96 + k] * w[j * 96 + k];
            ASSERT_EQ(got[i * rows + j], want) << bits << " bits, " << m << "x" << rows;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
