// Contractions by tiles: every remainder, every operand order, on guard pages.
#include <gtest/gtest.h>

#include "graph/flags.h"
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

TEST(Contraction, EveryLengthOfTheSum) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (int64_t k : {1, 2, 15, 16, 17, 32, 63, 65}) {
    ExpectProduct(2, k, 20, true);
    ExpectProduct(9, k, 34, false);
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

TEST(Contraction, SumsOfProductsThatAreNoContractionStillAddUp) {
  Tensor x = Guarded({19, 37}), y = Guarded({19, 37});
  EXPECT_REFERENCE((x * y).Sum({1}));
  EXPECT_REFERENCE((x * y).Sum({0}));
  EXPECT_REFERENCE((x * x).Sum());
}

}  // namespace
}  // namespace tessera
