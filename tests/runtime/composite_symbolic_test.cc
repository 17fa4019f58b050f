// Composed functions over a variable extent: compiled once, and equal to the same of that extent.
#include <cmath>

#include "runtime/realize.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

using Fn = std::function<Tensor(const Tensor&)>;

// Of [n, 4, 6], n from 1 to 5.
const std::vector<std::pair<std::string, Fn>>& Functions() {
  static const std::vector<std::pair<std::string, Fn>> all = {
      {"Sort", [](const Tensor& x) { return x.Sort(0).values; }},
      {"ArgSort", [](const Tensor& x) { return x.ArgSort(2, true); }},
      {"CumSum", [](const Tensor& x) { return x.CumSum(0); }},
      {"CumSumBack",
       [](const Tensor& x) { return x.CumSum(0, {.exclusive = true, .reverse = true}); }},
      {"CumProd", [](const Tensor& x) { return x.CumProd(1); }},
      {"CumMax", [](const Tensor& x) { return x.CumMax(0).indices; }},
      {"LogCumSumExp", [](const Tensor& x) { return x.LogCumSumExp(0); }},
      {"Scatter",
       [](const Tensor& x) {
         return x.IndexAdd(1, Tensor::From({3, 0, 3}), x.SliceAxis(1, {0, 3}));
       }},
      {"ScatterRows",
       [](const Tensor& x) {
         return Tensor::Zeros({5, 4, 6}).IndexAdd(0, Tensor::Arange(x.shape()[0]) % 3, x);
       }},
      {"GatherND",
       [](const Tensor& x) {
         return x.GatherND(Tensor::From({{0, 1}, {4, 2}}));
       }},
      {"Conv1d",
       [](const Tensor& x) {
         return x.Conv1d(Tensor::Arange(24, kFloat32).Reshape({2, 4, 3}), {.padding = {1}});
       }},
      {"MaxPool", [](const Tensor& x) { return x.MaxPool({.size = {3}, .ceil_mode = true}); }},
      {"AvgPool", [](const Tensor& x) { return x.AvgPool({.count_padding = false}); }},
      {"GroupNorm", [](const Tensor& x) { return x.GroupNorm(2); }},
      {"BatchNorm", [](const Tensor& x) { return x.BatchNormTraining().output; }},
      {"Norm", [](const Tensor& x) { return x.Norm(2, 0); }},
      {"Einsum",
       [](const Tensor& x) {
         return Einsum("nij,nik->jk", {x, x});
       }},
      {"Loss", [](const Tensor& x) { return x.MseLoss(x * 0); }},
      {"CrossEntropy",
       [](const Tensor& x) {
         return x.CrossEntropy((Tensor::Arange(x.shape()[0]).Unsqueeze(1) + Tensor::Arange(6)) % 4);
       }},
      {"Resize", [](const Tensor& x) { return x.Resize({9}, {.mode = ResizeMode::kLinear}); }},
      {"PadBy",
       [](const Tensor& x) {
         return x.PadBy(PadMode::kReflect, {{0, 0}, {1, 2}, {0, 3}});
       }},
      {"NanMax", [](const Tensor& x) { return x.NanMax(0); }},
      {"Glu", [](const Tensor& x) { return x.Glu(1); }},
      {"Cross",
       [](const Tensor& x) {
         return x.SliceAxis(1, {0, 3}).Cross(x.SliceAxis(1, {1, 4}), 1);
       }},
      {"SearchSorted",
       [](const Tensor& x) {
         return Tensor::From({-1.0, 0.0, 1.0}).SearchSorted(x);
       }},
      {"Atan2", [](const Tensor& x) { return x.Atan2(x + 1); }},
  };
  return all;
}

TEST(CompositeSymbolic, EveryValueOfTheExtent) {
  std::vector<float> numbers(5 * 4 * 6);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>((i * 37 % 120)) / 32 - 1.75f;
  }
  const Tensor data = Tensor::From(numbers, {5, 4, 6}).To("CPU").Realize();
  const Variable n("composite_n", 1, 5);
  for (const auto& [name, fn] : Functions()) {
    SCOPED_TRACE(name);
    Tensor symbolic;
    try {
      symbolic = fn(data.SliceAxis(0, {0, n}));
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
      continue;
    }
    for (int64_t value : {1, 2, 4, 5}) {
      const Tensor want = fn(data.SliceAxis(0, {0, value}));
      const Tensor got = Realize({symbolic}, {{"composite_n", value}})[0];
      EXPECT_EQ(got.shape(), want.shape());
      const auto a = got.ToVector<double>(), b = want.ToVector<double>();
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_NEAR(a[i], b[i], 1e-5 * (1 + std::fabs(b[i]))) << "n = " << value << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
