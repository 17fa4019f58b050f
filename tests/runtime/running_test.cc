// Reductions that are kept running along a loop: every form of running sums, products and extremes
// against plain loops, on each kind of device; what their kernels cost; and what does not grow.
#include <cmath>
#include <limits>
#include <random>

#include "graph/grad.h"
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tests/codegen/kernels.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Whole numbers: their sums are exact in any order.
std::vector<float> Whole(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> out(n);
  for (float& v : out) v = static_cast<float>(random() % 19) - 9;
  return out;
}

// Calls f(element, element before it, or -1) along an axis of [rows, columns], in the scan's order.
template <typename F>
void Walk(int64_t rows, int64_t columns, int axis, bool reverse, F f) {
  const int64_t lines = axis == 0 ? columns : rows, n = axis == 0 ? rows : columns;
  for (int64_t l = 0; l < lines; ++l) {
    int64_t before = -1;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = reverse ? n - 1 - k : k;
      const int64_t at = axis == 0 ? i * columns + l : l * columns + i;
      f(at, before);
      before = at;
    }
  }
}

std::vector<float> Sums(const std::vector<float>& x, int64_t rows, int64_t columns, int axis,
                        const ScanOptions& o) {
  std::vector<float> out(x.size());
  Walk(rows, columns, axis, o.reverse, [&](int64_t at, int64_t before) {
    const float sum = before < 0 ? 0 : out[before];
    out[at] = sum + (o.exclusive ? (before < 0 ? 0 : x[before]) : x[at]);
  });
  return out;
}

TEST(Running, SumsOfEveryForm) {
  for (const char* place : {"CPU", "SIM:0"}) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {3, 2}, {2, 37}, {40, 65}, {3, 512}, {2, 1025}, {1, 1700}}) {
      const std::vector<float> values = Whole(rows * columns, 7);
      const Tensor x = Tensor::From(values).Reshape({rows, columns}).To(place);
      for (int form = 0; form < 8; ++form) {
        const int axis = form & 1;
        const ScanOptions o{.exclusive = (form & 2) != 0, .reverse = (form & 4) != 0};
        EXPECT_EQ(x.CumSum(axis, o).ToVector<float>(), Sums(values, rows, columns, axis, o))
            << place << " " << rows << "x" << columns << " form " << form;
      }
    }
  }
}

TEST(Running, OfAVariableExtent) {
  const Variable n("n", 1, 70);
  const std::vector<float> values = Whole(70, 3);
  const Tensor all = Tensor::From(values).Realize();
  for (int form = 0; form < 4; ++form) {
    const ScanOptions o{.exclusive = (form & 1) != 0, .reverse = (form & 2) != 0};
    Jit step([&](const Tensor& x) { return x.SliceAxis(0, {0, n}).CumSum(0, o); });
    for (const int64_t now : {1, 2, 33, 70}) {
      const std::vector<float> part(values.begin(), values.begin() + now);
      EXPECT_EQ(step.One({all}, {{"n", now}}).ToVector<float>(), Sums(part, 1, now, 1, o))
          << form << " " << now;
    }
  }
}

TEST(Running, ExtremesAndWhereTheyLie) {
  const int64_t rows = 3, columns = 530;
  std::vector<float> values = Whole(rows * columns, 11);
  values[5] = kInf;
  values[columns + 100] = kNan;
  values[2 * columns] = -kInf;
  values[2 * columns + 1] = -0.0f;
  values[2 * columns + 2] = 0.0f;
  const Tensor x = Tensor::From(values).Reshape({rows, columns});
  for (const bool max : {true, false}) {
    for (const int axis : {0, 1}) {
      std::vector<float> extreme(values.size());
      std::vector<int32_t> index(values.size());
      Walk(rows, columns, axis, false, [&](int64_t at, int64_t before) {
        const auto place = static_cast<int32_t>(axis == 0 ? at / columns : at % columns);
        const float v = values[at], e = before < 0 ? v : extreme[before];
        const bool now = before < 0 || std::isnan(v) || (max ? v >= e : v <= e);
        extreme[at] = now ? v : e;
        index[at] = now ? place : index[before];
      });
      const ValuesAndIndices got = max ? x.CumMax(axis) : x.CumMin(axis);
      const std::vector<float> found = got.values.ToVector<float>();
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_TRUE(found[i] == extreme[i] || (std::isnan(found[i]) && std::isnan(extreme[i])))
            << max << axis << " " << i << ": " << found[i] << ", not " << extreme[i];
      }
      EXPECT_EQ(got.indices.ToVector<int32_t>(), index) << max << axis;
    }
  }
}

TEST(Running, ProductsWrapAndNarrowFloatsAddInF32) {
  std::vector<int32_t> values(600);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(2 * i + 3);
  std::vector<int32_t> products(values.size());
  uint32_t product = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    product *= static_cast<uint32_t>(values[i]);
    products[i] = static_cast<int32_t>(product);
  }
  EXPECT_EQ(Tensor::From(values).CumProd(0).ToVector<int32_t>(), products);
  // 4096 halves of 1: a sum kept in f16 would stop at 2048.
  const Tensor ones = Tensor::Ones({4096}, kFloat16);
  EXPECT_EQ(ones.CumSum(0).Cast(kFloat32).ToVector<float>().back(), 4096);
}

TEST(Running, FusedWithWhatComesBeforeAndAfter) {
  const Tensor x = Tensor::From(Whole(6 * 40, 2)).Reshape({6, 40});
  EXPECT_REFERENCE((x * 0.25).Exp().CumSum(1) * 2 + x, x.CumSum(1).CumSum(0),
                   x.CumSum(1) / x.Abs().Sum(1, true), x.CumSum(1).Sum(1),
                   x.CumSum(1) + x.CumSum(0), x.CumSum(1).SliceAxis(1, {3, 39}),
                   x.Flip({1}).CumSum(1).Flip({1}), x.CumMax(1).indices,
                   x.Cast(kInt8).CumMax(0).values, x.LogCumSumExp(1));
}

// The adjoint of a running sum is the running sum from the other end.
TEST(Running, AdjointsRunBackward) {
  const int64_t n = 700;
  const std::vector<float> weights = Whole(n, 5);
  const Tensor x = Tensor::From(Whole(n, 6)), w = Tensor::From(weights);
  const Tensor loss = (x.CumSum(0) * w).Sum();
  EXPECT_EQ(Grad(loss, {x})[0].ToVector<float>(),
            Sums(weights, 1, n, 1, {.exclusive = false, .reverse = true}));
}

// A loop that a reduction closes as well is no loop of threads of a GPU's kernel.
TEST(Running, AdjointsOfExtremesOnGpus) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{6, 5}, {6, 1}, {1, 6}, {8, 8}, {40, 3}, {3, 40}}) {
    for (const int axis : {0, 1}) {
      std::vector<float> results[2];
      for (const char* device : {"CPU", "SIM"}) {
        const Tensor x =
            Tensor::From(Whole(rows * columns, 8)).Reshape({rows, columns}).To(device).Realize();
        const Tensor w = Tensor::From(Whole(rows * columns, 9)).Reshape({rows, columns});
        const Tensor loss = (x.CumMax(axis).values * w.To(device)).Sum();
        results[*device == 'S'] = Grad(loss, {x})[0].ToVector<float>();
      }
      ASSERT_EQ(results[0].size(), results[1].size());
      for (size_t i = 0; i < results[0].size(); ++i) {  // equal elements share theirs: fractions
        EXPECT_NEAR(results[0][i], results[1][i], 1e-4) << rows << " " << columns << " " << axis;
      }
    }
  }
}

// How often ops of a kind occur in the kernels of an expression.
std::pair<int, int> RunningsAndReductions(const Tensor& t) {
  std::pair<int, int> n;
  for (const PlanKernel& k : KernelsOf(t, SmallChip())) {
    for (const UOp& u : TopoSort({&k.graph, 1})) {
      n.first += u.is(Op::kRunning);
      n.second += u.is(Op::kReduce);
    }
  }
  return n;
}

TEST(Running, OnePassInPlaceOfAWindowEach) {
  const Tensor x = Tensor::Empty({64, 512});
  const std::pair<int, int> one = {1, 0};
  for (const Tensor& y : {x.CumSum(0), x.CumSum(1), x.CumSum(1, {.reverse = true}), x.CumProd(0),
                          x.CumSum(1, {.exclusive = true}), x.CumMax(1).values}) {
    EXPECT_EQ(RunningsAndReductions(y), one);
  }
}

// Windows that leave elements behind, masks that are no triangle, sums over a fixed part.
TEST(Running, WhatDoesNotGrowStartsOver) {
  const Tensor x = Tensor::Empty({64, 512});
  const Tensor i = Tensor::Arange(64), j = Tensor::Arange(64);
  const Tensor square = Tensor::Empty({64, 64});
  const auto masked = [&](const Tensor& mask) { return Where(mask, square, 0).Sum(1); };
  for (const Tensor& y :
       {x.Window({1}, {3}).Sum(-1), x.Pad({{0, 0}, {5, 0}}).Window({1}, {6}).Sum(-1),
        masked((j - i.Unsqueeze(1)).Abs() < 5), masked(j < 9), x.Softmax(1)}) {
    EXPECT_EQ(RunningsAndReductions(y).first, 0);
  }
  // The diagonal sums of a lower triangle are of other rows each: every element is new.
  EXPECT_EQ(RunningsAndReductions(masked(j <= i.Unsqueeze(1))).first, 0);
}

// Seed 4019293: a maximum over the few that two windows have in common is kept running, and where
// it lies is asked of it.
TEST(Running, WhatIsKeptIsReadAtItsOwnPointAlone) {
  const Tensor x = Tensor::From({4, 7, 1}, kFloat32).Reshape({1, 1, 3}).To("CPU").Realize();
  const ValuesAndIndices best =
      x.MaxPoolWithIndices({.size = {2}, .stride = {2}, .padding = {1}, .dilation = {2}});
  EXPECT_EQ(best.values.ToVector<float>(), (std::vector<float>{7, 7}));
  EXPECT_EQ(best.indices.ToVector<int64_t>(), (std::vector<int64_t>{1, 1}));
}

}  // namespace
}  // namespace tessera
