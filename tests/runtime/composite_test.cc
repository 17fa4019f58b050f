// Every composed function, one row each: compiled against the reference, spread over three places
// along every axis against itself on one, and its adjoint against differences.
#include <cmath>

#include "graph/grad.h"
#include "tests/support/check.h"
#include "tests/support/composite_rows.h"

namespace tessera {
namespace {

Sharding Three(int axis) { return Sharding({"CPU:0", "CPU:1", "CPU:2"}, axis); }

class Composite : public ::testing::TestWithParam<CompositeRow> {};

TEST_P(Composite, AgreesWithTheReference) {
  const CompositeRow& row = GetParam();
  Compared compared;
  EXPECT_EQ(Mismatch(row.fn(CompositeInputs(row)), &compared), "") << row.name;
  // Something must have been compared.
  int64_t elements = 0;
  for (const Tensor& t : row.fn(CompositeInputs(row))) elements += t.elements();
  EXPECT_GT(elements, 0);
  EXPECT_GT(compared.exact + compared.within, 0);
}

using Values = std::vector<std::vector<double>>;

Values CompiledValues(std::vector<Tensor> tensors) {
  Tensor::Realize(absl::MakeSpan(tensors));  // at once: for each alone all would run again
  Values values;
  for (const Tensor& t : tensors) values.push_back(t.ToVector<double>());
  return values;
}

void SpreadOverPlaces(const CompositeRow& row, Values (*values)(std::vector<Tensor>)) {
  const std::vector<Tensor> inputs = CompositeInputs(row), whole = row.fn(inputs);
  const Values want = values(whole);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (int axis = 0; axis < inputs[i].rank(); ++axis) {
      std::vector<Tensor> spread;
      for (size_t j = 0; j < inputs.size(); ++j) {
        spread.push_back(j == i ? inputs[j].Shard(Three(axis))
                                : inputs[j].To(Sharding({"CPU:0", "CPU:1", "CPU:2"})));
      }
      const std::vector<Tensor> parts = row.fn(spread);
      ASSERT_EQ(parts.size(), whole.size());
      const Values got = values(parts);
      for (size_t k = 0; k < parts.size(); ++k) {
        EXPECT_EQ(parts[k].shape(), whole[k].shape());
        for (size_t e = 0; e < want[k].size(); ++e) {
          const double x = got[k][e], y = want[k][e];
          ASSERT_TRUE(std::fabs(x - y) <= 1e-5 * (1 + std::fabs(y)) || x == y ||
                      (std::isnan(x) && std::isnan(y)))
              << row.name << ", input " << i << " along axis " << axis << ", result " << k
              << ", element " << e << ": " << x << " is not " << y;
        }
      }
    }
  }
}

// What is said of the graph; that kernels of shards are right the fuzzers of shards say.
TEST_P(Composite, SpreadOverPlacesSlow) {
  SpreadOverPlaces(GetParam(), [](std::vector<Tensor> t) { return ReferenceValues(t); });
}
TEST_P(Composite, CompiledOverPlacesLong) { SpreadOverPlaces(GetParam(), CompiledValues); }

Tensor Loss(const CompositeRow& row, const std::vector<Tensor>& inputs) {
  Tensor sum = Tensor::Scalar(0.0, kFloat64);
  for (const Tensor& t : row.fn(inputs)) {
    if (!t.dtype().IsFloat()) continue;
    // Weights that no symmetry of the function cancels.
    const Tensor w = (Tensor::Arange(t.elements(), kFloat64) * 0.37 + 0.2).Sin().Reshape(t.shape());
    sum = sum + (t * w).Sum();
  }
  return sum;
}

TEST_P(Composite, AdjointAgreesWithDifferences) {
  const CompositeRow& row = GetParam();
  if (!row.differentiable) GTEST_SKIP() << "whole numbers, or a step";
  std::vector<Tensor> inputs = CompositeInputs(row, kFloat64);
  const double h = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].dtype().IsFloat()) continue;
    std::vector<double> direction(inputs[i].elements());
    for (size_t e = 0; e < direction.size(); ++e) direction[e] = std::cos(1.3 * e + 0.5);
    const Tensor along = Tensor::From(direction, inputs[i].shape());
    std::vector<Tensor> asked;
    for (const double step : {h, -h}) {
      std::vector<Tensor> moved = inputs;
      moved[i] = inputs[i] + along * step;
      asked.push_back(Loss(row, moved));
    }
    asked.push_back((Grad(Loss(row, inputs), {inputs[i]})[0] * along).Sum());
    const std::vector<std::vector<double>> values = ReferenceValues(asked);
    const double difference = (values[0][0] - values[1][0]) / (2 * h), derivative = values[2][0];
    EXPECT_NEAR(derivative, difference, 1e-6 * (1 + std::fabs(difference)))
        << row.name << ", input " << i;
    EXPECT_TRUE(row.flat || derivative != 0) << row.name << ", input " << i;
  }
}

// Every dtype works, or is refused where the function is written.
class CompositeDtypes : public Composite {};

void TryDtypes(const CompositeRow& row, std::initializer_list<DType> dtypes) {
  int worked = 0;
  for (DType t : dtypes) {
    SCOPED_TRACE(t.ToString());
    const std::vector<Tensor> inputs = CompositeInputs(row, t);
    std::vector<Tensor> out;
    try {
      out = row.fn(inputs);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::ContainsRegex("^[A-Z][A-Za-z0-9]+: "));
      continue;
    }
    ++worked;
    EXPECT_EQ(Mismatch(out), "");
  }
  EXPECT_GT(worked, 0);
}

TEST_P(CompositeDtypes, WorkOrAreRefusedSlow) {
  const bool odd = std::string(GetParam().name).size() % 2 != 0;
  TryDtypes(GetParam(), {odd ? kBool : kInt8, kBFloat16});
}

TEST_P(CompositeDtypes, AllWorkOrAreRefusedLong) {
  TryDtypes(GetParam(), {kBool, kInt8, kInt16, kInt64, kUInt8, kUInt16, kUInt32, kUInt64,
                         kFloat8E4M3, kFloat8E5M2, kFloat16, kFloat64});
}

INSTANTIATE_TEST_SUITE_P(Functions, CompositeDtypes, ::testing::ValuesIn(CompositeRows()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Functions, Composite, ::testing::ValuesIn(CompositeRows()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
