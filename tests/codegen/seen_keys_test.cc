// Loops over keys that end after those that are seen: of which programs they do.
#include <gtest/gtest.h>

#include <limits>

#include "tests/codegen/kernels.h"

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Loops whose end is computed, on a chip of one core.
int EndedLoops(const Tensor& t, Target target = SmallChip()) {
  target.cores = 1;
  const UOp program = ProgramOf(t, target);
  int count = 0;
  for (const UOp& s : program.srcs()) count += s.is(Op::kRange) && !s.src(1).IsConst();
  return count;
}

struct Operands {
  Tensor q, k, v;
  Operands(int64_t queries, int64_t keys)
      : q(Tensor::Empty({2, queries, 16})),
        k(Tensor::Empty({2, keys, 16})),
        v(Tensor::Empty({2, keys, 16})) {}
  // Attention with what `mask` makes of the scores.
  template <typename Fn>
  Tensor With(Fn mask) const {
    return mask(q.MatMul(k.Transpose())).Softmax().MatMul(v);
  }
};

Tensor Places(int64_t n) { return Tensor::Arange(n, kInt64); }

// Scores, their maximum, the exponentials, their sum, the shares and the second product.
TEST(SeenKeys, OfMasksByIndices) {
  for (const int64_t n : {256, 300}) {
    const Operands o(n, n);
    const Tensor row = Places(n).Unsqueeze(1), column = Places(n);
    const auto masked = [&](const Tensor& seen) {
      return o.With([&](const Tensor& s) { return Where(seen, s, -kInfinity); });
    };
    EXPECT_GE(EndedLoops(masked(column <= row)), 5) << n;
    EXPECT_GE(EndedLoops(masked(column < row + 1)), 5) << n;
    EXPECT_GE(EndedLoops(masked(row >= column)), 5) << n;
    EXPECT_GE(EndedLoops(masked((column > row - 64) & (column <= row))), 5) << n;
    EXPECT_GE(EndedLoops(masked(column + column <= row + column)), 5) << n;
    EXPECT_GE(
        EndedLoops(o.With([&](const Tensor& s) { return Where(column > row, -kInfinity, s); })), 5);
    const Tensor padding = Tensor::Empty({n}, kBool);
    EXPECT_GE(EndedLoops(o.With([&](const Tensor& s) {
                return Where(padding, Where(column <= row, s * 0.5, -kInfinity), -kInfinity);
              })),
              5);
    for (const DType dtype : {kInt64, kInt32}) {
      const Tensor lengths = Tensor::Empty({2, 1, 1}, dtype);
      EXPECT_GE(EndedLoops(masked(column.Cast(dtype) < lengths)), 5) << n;
      EXPECT_GE(EndedLoops(masked(column.Cast(dtype) <= row.Cast(dtype))), 5) << n;
      const Tensor places = Tensor::Arange(n, dtype);
      EXPECT_GE(EndedLoops(masked(places <= places.Unsqueeze(1))), 5) << n;
      EXPECT_GE(EndedLoops(masked(places - 3 < places.Unsqueeze(1) - 2)), 5) << n;
    }
  }
}

// Rows that may see nothing give zeros.
TEST(SeenKeys, OfRowsThatMaySeeNone) {
  const Operands o(256, 512);
  AttentionOptions causal, padded;
  causal.causal = true;
  padded.mask = Places(512) <= Tensor::Empty({2, 1, 1}, kInt64);
  EXPECT_GE(EndedLoops(o.q.ScaledDotProductAttention(o.k, o.v, causal)), 5);
  EXPECT_GE(EndedLoops(o.q.ScaledDotProductAttention(o.k, o.v, padded)), 5);
}

// The rows of several heads that share keys, one head after another, as language models have them.
TEST(SeenKeys, OfRowsOfSeveralHeads) {
  constexpr int64_t kShared = 2, kGroup = 3, kTokens = 256;
  const Variable position("position", 0, 512);
  const Extent keys = Extent(position) + kTokens;
  const Tensor q = Tensor::Empty({kShared, kGroup * kTokens, 16});
  const Tensor all = Tensor::Empty({kShared, 768, 16});
  const Tensor k = all.SliceAxis(1, {0, keys});
  const Tensor scores = q.MatMul(k.Transpose());
  const Tensor query = (Tensor::Arange(kTokens) + Extent(position)).Unsqueeze(1);
  const Tensor masked = Where(Tensor::Arange(keys) <= query,
                              scores.Reshape({kShared, kGroup, kTokens, keys}), -kInfinity);
  EXPECT_GE(EndedLoops(masked.Reshape({kShared, kGroup * kTokens, keys}).Softmax().MatMul(k)), 5);
}

// Of halves that are summed in pairs of steps, and in tiles of a matrix unit.
TEST(SeenKeys, OfHalves) {
  const auto narrow = [](const Dims& shape) { return NarrowInput(shape); };
  for (const int64_t n : {256, 512}) {
    const Tensor q = narrow({2, n, 64}), k = narrow({2, n, 64}), v = narrow({2, n, 64});
    AttentionOptions options;
    for (const bool causal : {false, true}) {
      options.causal = causal;
      const Tensor y = q.ScaledDotProductAttention(k, v, options);
      for (const Target& target : {ChipWithPairs(), ChipWithTiles()}) {
        const int ended = EndedLoops(y, target);
        EXPECT_TRUE(causal ? ended >= 5 : ended == 0) << n << " " << ended;
      }
    }
  }
}

// A weight that is 0 would matter, or there is nothing to leave out.
TEST(SeenKeys, OfOthersNothing) {
  constexpr int64_t kRows = 256;
  const Operands o(kRows, kRows);
  const Tensor row = Places(kRows).Unsqueeze(1), column = Places(kRows);
  const Tensor seen = column <= row;
  EXPECT_EQ(EndedLoops(o.With([](const Tensor& s) { return s; })), 0);
  EXPECT_EQ(EndedLoops(o.With([&](const Tensor& s) { return Where(seen, s, -1e9); })), 0);
  EXPECT_EQ(EndedLoops(o.With([&](const Tensor& s) { return Where(seen, -kInfinity, s); })), 0);
  EXPECT_EQ(EndedLoops(o.With([&](const Tensor& s) { return s + Where(seen, 0.0f, -kInfinity); })),
            0);
  const Tensor read = Tensor::Empty({kRows, kRows}, kBool);
  EXPECT_EQ(EndedLoops(o.With([&](const Tensor& s) { return Where(read, s, -kInfinity); })), 0);
  const Tensor shares = Where(seen, o.q.MatMul(o.k.Transpose()), -kInfinity).Softmax();
  EXPECT_EQ(EndedLoops((shares * Tensor::Empty({kRows, kRows})).MatMul(o.v)), 0);
  EXPECT_EQ(EndedLoops((shares + 1).MatMul(o.v)), 0);
  const Operands few(16, kRows);  // rows for which reading the values again is much
  const Tensor last = Places(16).Unsqueeze(1) + 100;
  EXPECT_EQ(
      EndedLoops(few.With([&](const Tensor& s) { return Where(column <= last, s, -kInfinity); })),
      0);
}

}  // namespace
}  // namespace tessera
