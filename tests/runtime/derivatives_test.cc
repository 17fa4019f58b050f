// Derivatives of functions: of every composed function forward against back, matrices against
// differences, and what is refused.
#include "graph/derivatives.h"

#include <cmath>

#include "graph/grad.h"
#include "graph/vmap.h"
#include "runtime/capture.h"
#include "tests/support/check.h"
#include "tests/support/composite_rows.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Weights that no symmetry of a function cancels.
Tensor Direction(const Tensor& like, double step) {
  return (Tensor::Arange(like.elements(), kFloat64) * step + 0.3)
      .Cos()
      .Reshape(like.shape())
      .Cast(like.dtype());
}

class DerivativesOfComposite : public ::testing::TestWithParam<CompositeRow> {};

// <u, J v> = <J^T u, v>.
TEST_P(DerivativesOfComposite, ForwardIsTheAdjointOfBackSlow) {
  const CompositeRow& row = GetParam();
  if (!row.differentiable) GTEST_SKIP() << "whole numbers, or a step";
  std::vector<Tensor> inputs = CompositeInputs(row, kFloat64), floats, v, u;
  for (const Tensor& t : inputs) {
    if (t.dtype().IsFloat()) floats.push_back(t), v.push_back(Direction(t, 1.3));
  }
  const auto f = [&](const std::vector<Tensor>& x) {
    std::vector<Tensor> all = inputs, out;
    size_t next = 0;
    for (Tensor& t : all) {
      if (t.dtype().IsFloat()) t = x[next++];
    }
    for (Tensor& y : row.fn(all)) {
      if (y.dtype().IsFloat()) out.push_back(y);
    }
    return out;
  };
  const auto [values, moved] = Jvp(f, floats, v);
  for (const Tensor& y : values) u.push_back(Direction(y, 0.7));
  const auto [same, pulled] = Vjp(f, floats, u);
  std::vector<Tensor> all;
  for (const std::vector<Tensor>& each : {values, moved, u, same, pulled, v}) {
    all.insert(all.end(), each.begin(), each.end());
  }
  const std::vector<std::vector<double>> read = ReferenceValues(all);
  const size_t n = u.size();  // values, moved, u, same; then pulled, v
  double forward = 0, back = 0, size = 0;
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(moved[i].shape(), values[i].shape());
    EXPECT_EQ(moved[i].dtype(), values[i].dtype());
    EXPECT_EQ(read[i], read[3 * n + i]);
    for (size_t k = 0; k < read[i].size(); ++k) {
      const double term = read[n + i][k] * read[2 * n + i][k];
      forward += term;
      size += std::fabs(term);
    }
  }
  for (size_t i = 4 * n; i < 4 * n + v.size(); ++i) {
    for (size_t k = 0; k < read[i].size(); ++k) back += read[i][k] * read[i + v.size()][k];
  }
  EXPECT_NEAR(forward, back, 1e-6 * (1 + size)) << row.name;
  EXPECT_TRUE(row.flat || size > 0) << row.name;
}

INSTANTIATE_TEST_SUITE_P(Functions, DerivativesOfComposite, ::testing::ValuesIn(CompositeRows()),
                         [](const auto& info) { return info.param.name; });

Tensor Numbers(const Dims& shape, uint64_t seed = 1) {
  Tensor::ManualSeed(seed);
  return Tensor::Uniform(-2, 2, shape).Cast(kFloat64).Realize();
}

void ExpectNear(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  const auto a = got.ToVector<double>(), b = want.ToVector<double>();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-9 * (1 + std::fabs(b[i])));
}

TEST(Derivatives, JacobianEitherWay) {
  const Tensor x = Numbers({3}), w = Numbers({5, 3}, 2), narrow = Numbers({2, 3}, 3);
  const auto through = [](const Tensor& by) {
    return [by](const Tensor& t) { return by.MatMul(t).Sin(); };
  };
  for (const Tensor& by : {w, narrow}) {  // forward: 5 results; back: 2
    ExpectNear(Jacobian(through(by), x), by.MatMul(x).Cos().Unsqueeze(1) * by);
  }
  const Tensor m = Numbers({2, 3}, 4);
  const Tensor j = Jacobian([](const Tensor& t) { return t.Transpose() * 2; }, m);
  EXPECT_EQ(j.shape(), Shape({3, 2, 2, 3}));
  ExpectNear(j.Reshape({6, 6}),
             Tensor::Eye(6, 6, kFloat64).Reshape({2, 3, 6}).Permute({1, 0, 2}).Reshape({6, 6}) * 2);
  const Tensor of_number = Jacobian([](const Tensor& t) { return t.Square().Sum(); }, x);
  ExpectNear(of_number, x * 2);
  const Tensor by_number = Jacobian([&](const Tensor& t) { return x * t * t; }, Numbers({}, 5));
  ExpectNear(by_number, x * 2 * Numbers({}, 5));
}

TEST(Derivatives, HessianOfAQuadraticForm) {
  const Tensor a = Numbers({4, 4}), x = Numbers({4}, 2);
  ExpectNear(Hessian([&](const Tensor& t) { return t.Dot(a.MatMul(t)); }, x), a + a.Transpose());
  // Of a loss that is not quadratic, its own Jacobian's Jacobian.
  const auto loss = [&](const Tensor& t) { return (a.MatMul(t).Tanh() * t.Exp()).Sum(); };
  const auto gradient = [&](const Tensor& t) { return Jacobian(loss, t); };
  ExpectNear(Hessian(loss, x), Jacobian(gradient, x));
}

TEST(Derivatives, OfWhatIsCapturedThereIsNone) {
  const Tensor x = Numbers({3});
  const auto f = [&](const Tensor& t) { return t * x; };
  ExpectNear(Jvp(f, {x}, {x * 0 + 1}).derivatives[0], x);
  ExpectNear(Vjp(f, {x}, {x * 0 + 1}).derivatives[0], x);
}

TEST(Derivatives, OfManyAndUnderJit) {
  const Tensor x = Numbers({4, 3}), y = Numbers({4, 3}, 2), v = Numbers({4, 3}, 3);
  const auto f = [](const Tensor& a, const Tensor& b) {
    return std::vector<Tensor>{a * b, (a.Exp() + b).Sum(1)};
  };
  Jit step([&](const Tensor& a, const Tensor& b, const Tensor& along) {
    return Jvp(f, {a, b}, {along, along * 2}).derivatives;
  });
  for (int i = 0; i < 2; ++i) {
    const auto got = step({x, y, v});
    ExpectNear(got[0], v * y + x * v * 2);
    ExpectNear(got[1], (x.Exp() * v + v * 2).Sum(1));
  }
  // Of each row, at once.
  const Tensor rows = Vmap(
      [](const Tensor& r) { return Jacobian([](const Tensor& t) { return t.Softmax(); }, r); }, x);
  const Tensor s = x.Softmax();
  ExpectNear(rows, Tensor::Eye(3, 3, kFloat64) * s.Unsqueeze(2) - s.Unsqueeze(1) * s.Unsqueeze(2));
}

TEST(Derivatives, SpreadOverPlaces) {
  const Tensor x = Numbers({4, 3}), v = Numbers({4, 3}, 2);
  const auto f = [](const Tensor& t) { return (t.Exp() * t.Sum(0, true)).Softmax(); };
  const Tensor want = Jvp(f, {x}, {v}).derivatives[0];
  for (int axis : {0, 1}) {
    const Sharding two({"CPU:0", "CPU:1"}, axis);
    ExpectNear(Jvp(f, {x.Shard(two)}, {v}).derivatives[0].To("CPU"), want);
    ExpectNear(Jvp(f, {x.Shard(two)}, {v.Shard(two)}).derivatives[0].To("CPU"), want);
  }
}

TEST(Derivatives, SayWhatIsWrong) {
  const Tensor x = Numbers({3});
  const auto message = [](const std::function<void()>& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing";
  };
  const auto twice = [](const Tensor& t) { return t * 2; };
  EXPECT_THAT(message([&] { Jvp(twice, {x}, {}); }),
              HasSubstr("Jvp: 1 tangents are needed, and 0 given"));
  EXPECT_THAT(message([&] { Vjp(twice, {x}, {Numbers({4})}); }),
              HasSubstr("Vjp: of the cotangents, f64[4] on CPU does not have the shape of f64[3]"));
  EXPECT_THAT(message([&] { Jvp(twice, {Tensor::Arange(3)}, {x}); }),
              HasSubstr("Jvp: the input i32[3]"));
  EXPECT_THAT(message([&] { Vjp([](const Tensor& t) { return t > 0; }, {x}, {x}); }),
              HasSubstr("Vjp: the result bool[3]"));
  EXPECT_THAT(message([&] { Hessian(twice, x); }), HasSubstr("is not one float"));
  EXPECT_THAT(message([&] { Jacobian([](const Tensor& t) { return t * t.Sum().Item(); }, x); }),
              HasSubstr("stands for an input while a function is traced"));
  const Variable n("derivatives_n", 1, 3);
  EXPECT_THAT(message([&] {
                Jacobian(twice, x.SliceAxis(0, {0, n}));
              }),
              HasSubstr("not all extents are fixed"));
}

}  // namespace
}  // namespace tessera
