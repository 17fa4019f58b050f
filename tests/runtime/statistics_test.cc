// Samples, rows, curves and polynomials: NumPy's values, and SciPy's, of sin(0.7 i); and errors.
#include "graph/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

Values Computed(const Tensor& t) { return t.Cast(kFloat64).ToVector<double>(); }
Tensor Of(const Values& v) { return Tensor::From(v); }
Tensor Waves(const Dims& shape) {
  const Extent n = Shape(shape.extents()).Elements();
  return (Tensor::Arange(n, kFloat64) * 0.7).Sin().Reshape(shape).To("CPU");
}

TEST(Statistics, Quantiles) {
  const Tensor x = Waves({3, 5});
  const Tensor along = Quantiles(x, {0, 0.3, 0.75}, 1);
  EXPECT_EQ(along.shape(), Shape({3, 3}));
  ExpectNear(
      Computed(along),
      {0, -0.9824526126243326, -0.36647912925192677, 0.39683405757226226, -0.8235139455053345,
       0.3866760096232395, 0.8632093666488739, -0.35078322768961984, 0.8545989080882814},
      1e-14);
  ExpectNear(Computed(Quantiles(x, {0.5, 1})), {0.3190983623493521, 0.9881682338770003}, 1e-14);
  const Tensor kept = Quantiles(x, {0.3, 0.6}, 0, true, QuantileMethod::kHigher);
  EXPECT_EQ(kept.shape(), Shape({2, 1, 5}));
  ExpectNear(Computed(kept),
             {0, 0.644217687237691, 0.8545989080882814, 0.3190983623493521, 0.016813900484349713,
              0.6569865987187891, 0.9881682338770003, 0.9854497299884601, 0.8632093666488739,
              0.3349881501559051},
             1e-14);
  EXPECT_EQ(Computed(Quantiles(Of({3}).Reshape({}), {0, 1})), (Values{3, 3}));
  EXPECT_ERROR(Quantiles(x, {}), "Quantiles", "one share or more");
  EXPECT_ERROR(Quantiles(x, {0.5, 2}), "Quantiles", "not 2");
}

TEST(Statistics, HistogramDd) {
  const Tensor points = Waves({20, 2}), weights = Tensor::Arange(20, kFloat64) + 0.5;
  const std::vector<HistogramAxis> axes = {{3, -1, 1}, {2, -0.5, 0.5}};
  const Tensor counts = HistogramDd(points, axes);
  EXPECT_EQ(counts.shape(), Shape({3, 2}));
  EXPECT_EQ(counts.dtype(), kInt32);
  EXPECT_EQ(Computed(counts), (Values{0, 2, 1, 0, 1, 2}));
  EXPECT_EQ(Computed(HistogramDd(points, axes, weights)), (Values{0, 18, 11.5, 0, 2.5, 22}));
  // What lies on the last edge counts, NaN does not.
  const Tensor edges = Tensor::From({{1., 0.5}, {kNan, 0.}, {0., kNan}, {-1., -0.5}});
  EXPECT_EQ(Computed(HistogramDd(edges, axes)), (Values{1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(Computed(HistogramDd(Tensor::Zeros({0, 2}), axes)), Values(6, 0));
  EXPECT_ERROR(HistogramDd(points, {{3, -1, 1}}), "HistogramDd", "f64[20, 2]");
  EXPECT_ERROR(HistogramDd(points, {{3, -1, 1}, {2, 1, 1}}), "HistogramDd", "along axis 1");
}

void ExpectUnique(const UniqueElements& u, const Values& values, const Values& indices,
                  const Values& counts, const Values& inverse) {
  EXPECT_EQ(Computed(u.values), values);
  EXPECT_EQ(Computed(u.indices), indices);
  EXPECT_EQ(Computed(u.counts), counts);
  EXPECT_EQ(Computed(u.inverse), inverse);
}

TEST(Statistics, UniqueRows) {
  const Tensor rows = Tensor::From(
      {{0, 1, 2}, {0, 1, 0}, {1, 2, 0}, {1, 0, 1}, {2, 0, 1}, {0, 1, 2}, {0, 1, 0}, {1, 2, 0}});
  const Values indices = {1, 0, 3, 2, 4}, inverse = {1, 0, 3, 2, 4, 1, 0, 3};
  const UniqueElements u = UniqueRows(rows, 5);
  ExpectUnique(u, {0, 1, 0, 0, 1, 2, 1, 0, 1, 1, 2, 0, 2, 0, 1}, indices, {2, 2, 1, 2, 1}, inverse);
  // Columns, of which there are fewer than asked for.
  const UniqueElements columns = UniqueRows(rows.Transpose(), 6, 1, -7);
  EXPECT_EQ(columns.values.shape(), Shape({3, 6}));
  ExpectUnique(columns, {0, 0, 1, 1, 2, -7, 1, 1, 0, 2, 0, -7, 0, 2, 1, 0, 1, -7},
               {1, 0, 3, 2, 4, 0}, {2, 2, 1, 2, 1, 0}, inverse);
  // Each NaN equals each; axes beyond the second count as well.
  const Tensor odd = Tensor::From({{kNan, 1.}, {kNan, 1.}, {0., kNan}, {-0., kNan}});
  EXPECT_EQ(Computed(UniqueRows(odd, 4).counts), (Values{2, 2, 0, 0}));
  EXPECT_EQ(UniqueRows(Waves({4, 2, 3}), 3).values.shape(), Shape({3, 2, 3}));
  EXPECT_EQ(Computed(UniqueRows(Tensor::From({3, 1, 3}), 2).values), (Values{1, 3}));
  ExpectUnique(UniqueRows(Tensor::Zeros({0, 2}), 1, 0, 4), {4, 4}, {0}, {0}, {});
  EXPECT_EQ(Computed(UniqueRows(Tensor::Zeros({3, 0}), 2).counts), (Values{3, 0}));
  EXPECT_ERROR(UniqueRows(Tensor::Scalar(1), 1), "UniqueRows", "axis");
}

// torch.unique_consecutive
TEST(Statistics, UniqueConsecutive) {
  const Tensor x = Tensor::From({1, 1, 2, 2, 2, 1, 3, 3});
  ExpectUnique(UniqueConsecutive(x, 5, 9), {1, 2, 1, 3, 9}, {0, 2, 5, 6, 0}, {2, 3, 1, 2, 0},
               {0, 0, 1, 1, 1, 2, 3, 3});
  EXPECT_EQ(Computed(UniqueConsecutive(x, 2).values), (Values{1, 2}));
  ExpectUnique(UniqueConsecutive(Tensor::Zeros({0}), 1, 4), {4}, {0}, {0}, {});
  EXPECT_ERROR(UniqueConsecutive(Waves({2, 2}), 3), "UniqueConsecutive", "a vector, not f64[2, 2]");
}

TEST(Statistics, OrderByKeys) {
  const Tensor keys =
      Tensor::From({{0, 0, 1, 1, 2, 0, 0, 1}, {1, 1, 2, 0, 0, 1, 1, 2}, {2, 0, 0, 1, 1, 2, 0, 0}});
  EXPECT_EQ(Computed(LexSort(keys)), (Values{1, 6, 2, 7, 3, 4, 0, 5}));
  EXPECT_ERROR(LexSort(Waves({2})), "LexSort", "keys [K, N]");
  const Tensor i = Tensor::From({0, 1, 2, -1}), j = Tensor::From({0, 3, 4, 1});
  EXPECT_EQ(Computed(RavelIndex({i, j}, {3, 5})), (Values{0, 8, 14, -1}));
  EXPECT_ERROR(RavelIndex({i}, {3, 5}), "RavelIndex", "axes of [3, 5]");
}

TEST(Statistics, CurvesAtUnevenDistances) {
  const Tensor x = Of({0, 0.5, 0.75, 2, 2.5}), y = Waves({2, 5});
  ExpectNear(Computed(Trapezoid(y, x)), {1.81972416356222, -1.6995310140629438}, 1e-14);
  const Values sums = {0.16105442180942275, 0.3647628489626916,  1.5201747843610254,
                       1.81972416356222,    -0.3055897500258019, -0.5373432981555419,
                       -1.5459178297159508, -1.6995310140629438};
  ExpectNear(Computed(CumTrapezoid(y, x)), sums, 1e-14);
  ExpectNear(Computed(CumTrapezoid(y.Transpose(), x, 0).Transpose()), sums, 1e-14);
  const Values slopes = {1.288435374475382,   1.3394305721605115,  1.1211414273906188,
                         -0.7825423923247179, -1.0564424329859377, -1.0415850894479357,
                         -0.6428666037112982, -0.3227646707355482, 1.0061004204528472,
                         1.2961610767133427};
  ExpectNear(Computed(Gradient(y, x)), slopes, 1e-14);
  ExpectNear(Computed(Gradient(y.Transpose(), x, 0).Transpose()), slopes, 1e-14);
  ExpectNear(Computed(Gradient(y, x.Expand({2, 5}))), slopes, 1e-14);
  ExpectNear(Computed(Gradient(y, x.Reshape({1, 5}))), slopes, 1e-14);
  ExpectNear(Computed(CumTrapezoid(y.Transpose(), x.Reshape({5, 1}), 0).Transpose()), sums, 1e-14);
  EXPECT_ERROR(Trapezoid(y, x.Reshape({5, 1})), "Trapezoid", "along axis 1 of f64[2, 5]");
  EXPECT_EQ(Computed(Trapezoid(Tensor::Zeros({2, 0}), Tensor::Zeros({0}))), (Values{0, 0}));
  EXPECT_ERROR(Trapezoid(y, Of({1, 2})), "Trapezoid", "along axis 1 of f64[2, 5]");
  EXPECT_ERROR(Gradient(Of({1}), Of({1})), "Gradient", "at least two elements");
}

TEST(Statistics, Unwrap) {
  const Tensor x = Of({0, 1, 2.5, 4, -2, -1, 3, -3.5, 6.5, 0.2});
  ExpectNear(Computed(Unwrap(x)),
             {0, 1, 2.5, 4, 4.283185307179586, 5.283185307179586, 3, 2.7831853071795862,
              0.21681469282041377, 0.2},
             1e-14);
  ExpectNear(Computed(Unwrap(x, 4)), {0, 1, 2.5, 4, 2, 3, 3, 4.5, 6.5, 8.2}, 1e-14);
  EXPECT_EQ(Computed(Unwrap(Of({0, 2, 0, -2, 0, 4}), 4)), (Values{0, 2, 0, -2, 0, 0}));
  ExpectNear(Computed(Unwrap(x.Reshape({10, 1}), 4, 0)), Computed(Unwrap(x, 4)), 0);
  EXPECT_EQ(Computed(Unwrap(Of({7}))), Values{7});
  EXPECT_EQ(Unwrap(Tensor::From({0, 7})).dtype(), kFloat32);
  EXPECT_ERROR(Unwrap(x, 0), "Unwrap", "period above 0");
}

TEST(Statistics, OfVectors) {
  const Tensor gaps = Of({1, kNan, 2, 3, kNan});
  EXPECT_EQ(Computed(NanCumSum(gaps, 0)), (Values{1, 1, 3, 6, 6}));
  EXPECT_EQ(Computed(NanCumProd(gaps, 0)), (Values{1, 1, 2, 6, 6}));
  EXPECT_EQ(Computed(NanCumSum(Tensor::From({1, 2}), 0)), (Values{1, 3}));
  const Tensor a = Of({1, 2, 3, 4}), b = Of({0, 1, 0.5});
  EXPECT_EQ(Computed(Correlate(a, b)), (Values{3.5, 5}));
  EXPECT_EQ(Computed(Correlate(a, b, "same")), (Values{2, 3.5, 5, 4}));
  EXPECT_EQ(Computed(Correlate(a, b, "full")), (Values{0.5, 2, 3.5, 5, 4, 0}));
  ExpectNear(Computed(PDist(Waves({4, 3}))),
             {1.6205776237068297, 2.453461311213304, 0.021287146668864304, 2.196315229090455,
              1.616434131801279, 2.4697300343233475},
             1e-13);
  ExpectNear(Computed(PDist(Waves({4, 3}), 1)),
             {2.5086718614087395, 4.114962440136393, 0.03230131585398787, 3.332709312025401,
              2.507345376294028, 4.147263755990381},
             1e-13);
  EXPECT_EQ(PDist(Waves({1, 3})).shape(), Shape({0}));
  EXPECT_ERROR(PDist(a), "PDist", "rows [N, E]");
}

TEST(Statistics, Polynomials) {
  const Tensor x = Tensor::Arange(6, kFloat64) * 10, y = Waves({6});
  ExpectNear(
      Computed(PolyFit(x, y, 3)),
      {8.330111800766051e-06, -0.0024332866640558552, 0.09382768107973222, -0.014711493080613288},
      1e-13);
  const Tensor both = PolyFit(x, Stack({y, x * x}, 1), 2);
  ExpectNear(Computed(both),
             {-0.0018085282789983997, 1, 0.08241542791268268, 0, 0.010278842321684275, 0}, 1e-11);
  EXPECT_EQ(PolyFit(Tensor::Arange(4), Tensor::Arange(4), 1).dtype(), kFloat32);
  ExpectNear(
      Computed(PolyVal(Of({1, -2, 0.5}), Waves({5}))),
      {0.5, -0.3734189459255025, -0.49978828964259125, -0.48128832262739785, -0.05775923956693496},
      1e-14);
  EXPECT_EQ(Computed(PolyVal(Tensor::Zeros({0}), Of({3}))), Values{0});
  EXPECT_EQ(Computed(PolyDer(Of({3, 2, 1, 5}))), (Values{9, 4, 1}));
  EXPECT_EQ(PolyDer(Of({3})).shape(), Shape({0}));
  EXPECT_EQ(Computed(PolyInt(Of({3, 2, 1}))), (Values{1, 1, 1, 0}));
  EXPECT_EQ(Computed(PolyInt(Tensor::Zeros({0}))), Values{0});
  EXPECT_ERROR(PolyFit(x, Of({1}), 1), "PolyFit", "y [N] or [N, K]");
  EXPECT_ERROR(PolyVal(both, x), "PolyVal", "a vector of coefficients");
}

// numpy.histogram
TEST(Statistics, HistogramOfEdges) {
  const Tensor x = Waves({4, 5}), weights = Tensor::Arange(20, kFloat64).Reshape({4, 5}) * 0.5;
  const Tensor edges = Of({-.9, -.3, .1, .7, 0.9854497299884601});
  EXPECT_EQ(Histogram(x, edges).dtype(), kInt32);
  EXPECT_EQ(Computed(Histogram(x, edges)), (Values{6, 3, 5, 3}));
  EXPECT_EQ(Computed(Histogram(x, edges, {.weights = weights})), (Values{32.5, 13.5, 23.5, 8.5}));
  ExpectNear(Computed(Histogram(x, edges, {.density = true})),
             {0.588235294117647, 0.4411764705882353, 0.4901960784313726, 0.618219496099815}, 1e-14);
  ExpectNear(Computed(Histogram(x, edges, {.weights = weights, .density = true})),
             {0.6944444444444443, 0.4326923076923077, 0.5021367521367522, 0.3817637486599285},
             1e-14);
  EXPECT_EQ(Computed(Histogram(Of({kNan, kInf, -kInf, 5}), Of({0, 1}))), Values{0});
  EXPECT_EQ(Computed(Histogram(Tensor::From({1, 2, 2, 3}), Tensor::From({1, 2, 3}))),
            (Values{1, 3}));
  const Tensor large = Tensor::From<int64_t>({1 << 30, (1 << 30) + 1, (1 << 30) + 2});
  EXPECT_EQ(Computed(Histogram(large, large)), (Values{1, 2}));
  ExpectNear(Computed(HistogramEdges(x, 4)),
             {-0.9824526126243326, -0.4897974009989994, 0.0028578106263338343, 0.49551302225166693,
              0.9881682338770003},
             1e-15);
  EXPECT_EQ(Computed(Histogram(x, HistogramEdges(x, 4))), (Values{6, 3, 4, 7}));
  EXPECT_EQ(Computed(HistogramEdges(Of({3, 3}), 2)), (Values{2.5, 3, 3.5}));
  EXPECT_EQ(Computed(HistogramEdges(Of({}), 2)), (Values{0, 0.5, 1}));
  EXPECT_ERROR(Histogram(x, Of({1})), "Histogram", "two edges or more, not f64[1]");
  EXPECT_ERROR(Histogram(x, edges, {.weights = edges}), "Histogram", "shape of");
  EXPECT_ERROR(HistogramEdges(x, 0), "HistogramEdges", "one interval or more");
}

// torch.cov
TEST(Statistics, CovOfWeights) {
  const Tensor x = Waves({3, 6}), f = Tensor::From({1, 2, 3, 1, 0, 2}), w = Waves({6}).Abs() + 0.1;
  const std::vector<Values> often = {
      {0.28635490890336573, -0.2745239569120288, -0.01717822771658532, -0.2745239569120288,
       0.5562630461542919, -0.27090399886613686, -0.01717822771658532, -0.27090399886613686,
       0.28280546169376997},
      {0.32214927251628644, -0.3088394515260324, -0.019325506181158483, -0.3088394515260324,
       0.6257959269235783, -0.304766998724404, -0.019325506181158483, -0.304766998724404,
       0.3181561444054912},
      {0.3681705971614702, -0.3529593731726085, -0.022086292778466837, -0.3529593731726085,
       0.7151953450555181, -0.34830514139931884, -0.022086292778466837, -0.34830514139931884,
       0.36360702217770424}};
  const std::vector<Values> weighted = {
      {0.18546536034145036, -0.19026612546483185, 0.0010946935459519179, -0.1902661254648318,
       0.4508900694413111, -0.251841346092493, 0.0010946935459519179, -0.251841346092493,
       0.24584119681975414},
      {0.23610244938800684, -0.24221395399717002, 0.0013935746656553755, -0.24221395399716994,
       0.5739953250775839, -0.3206008850393467, 0.0013935746656553755, -0.3206008850393467,
       0.31296253177823535},
      {0.32477480748434145, -0.3331815933437238, 0.0019169557322528585, -0.33318159334372377,
       0.7895691962628735, -0.4410080919865815, 0.0019169557322528585, -0.4410080919865815,
       0.43050102305821975}};
  const std::vector<Values> both = {
      {0.19972304900736082, -0.20615115805415646, 0.002412623128573671, -0.20615115805415646,
       0.3884003563922626, -0.1746837974136261, 0.002412623128573671, -0.17468379741362608,
       0.16886862086125984},
      {0.23035567673995197, -0.23776970039416848, 0.002782660470402519, -0.23776970039416848,
       0.44797146542400695, -0.20147601675777282, 0.002782660470402519, -0.2014760167577728,
       0.1947689344418341},
      {0.27208719315859936, -0.28084435041487354, 0.0032867706479833246, -0.28084435041487354,
       0.5291265245438727, -0.23797565861718456, 0.0032867706479833246, -0.23797565861718453,
       0.23005351305752647}};
  for (int c = 0; c < 3; ++c) {
    ExpectNear(Computed(Cov(x, {.correction = c, .frequencies = f})), often[c], 1e-14);
    ExpectNear(Computed(Cov(x, {.correction = c, .weights = w})), weighted[c], 1e-14);
    ExpectNear(Computed(Cov(x, {c, f, w})), both[c], 1e-14);
  }
  ExpectNear(Computed(Cov(x.Select(0, 0), {.frequencies = f})), {0.32214927251628644}, 1e-15);
  EXPECT_EQ(Computed(Cov(x, {})), Computed(x.Cov()));
  EXPECT_ERROR(Cov(x, {.weights = Waves({3})}), "Cov", "each sample of f64[3, 6]");
  EXPECT_ERROR(Cov(x, {.frequencies = w}), "Cov", "index");
}

// torch.diff and numpy.diff
TEST(Statistics, DiffOfMore) {
  const Tensor five = Tensor::Full({2, 1}, 5., kFloat64);
  ExpectNear(Computed(Diff(Waves({2, 3}), five, Waves({2, 2}), 2)),
             {5.644217687237691, -0.3029856444869219, -1.3266817727392293, 1.6296674172261512,
              3.608569416858157, -0.15755016135255617, 2.0220043355236053, -1.4584733210176664},
             1e-14);
  const Tensor x = Of({1, 2, 4, 7, 0});
  EXPECT_EQ(Computed(Diff(x, Tensor::Scalar(0.), Tensor::Scalar(9.))), (Values{1, 1, 2, 3, -7, 9}));
  EXPECT_EQ(Computed(Diff(x, {}, {})), Computed(x.Diff()));
  EXPECT_EQ(Computed(Diff(Of({}), Tensor::Scalar(2.), {})), Values{});
  EXPECT_ERROR(Diff(Waves({2, 3}), Waves({3, 1}), {}), "Diff", "f64[3, 1]");
}

}  // namespace
}  // namespace tessera
