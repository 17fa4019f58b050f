// Composed functions against what NumPy and SciPy gave, recorded by tools/record-values.
#include <cmath>
#include <fstream>
#include <limits>

#include "nlohmann/json.hpp"
#include "tests/support/check.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using In = const std::vector<Tensor>&;
using Fn = std::function<Tensor(In)>;

double NumberOf(const Json& v) {
  if (v.is_number()) return v.get<double>();
  const std::string text = v.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return text == "inf" ? INFINITY : -INFINITY;
}

std::vector<double> NumbersOf(const Json& values) {
  std::vector<double> out;
  for (const Json& v : values) out.push_back(NumberOf(v));
  return out;
}

Tensor TensorOf(const Json& input) {
  const auto shape = input["shape"].get<std::vector<int64_t>>();
  if (input["kind"] == "f") return Tensor::From(NumbersOf(input["values"]), shape).To("CPU");
  return Tensor::From(input["values"].get<std::vector<int64_t>>(), shape).To("CPU");
}

#define OF_ONE(...) [](In x) -> Tensor { return x[0].__VA_ARGS__; }
#define OF_TWO(function) [](In x) -> Tensor { return x[0].function(x[1]); }

Tensor Rows(In x, ScatterMode mode) {
  const Tensor index = x[1].Unsqueeze(1).Expand(Dims(x[2].shape()));
  return x[0].Scatter(0, index, x[2], mode);
}

Tensor Padded(In x, PadMode mode) { return x[0].PadBy(mode, {{2, 1}, {1, 2}}); }

// The filters of a window of 3 by 3 that lies within the image.
Tensor Pooled(In x, bool max) {
  const Tensor image = x[0].Unsqueeze(0).Unsqueeze(0);
  const PoolOptions o{.size = {3, 3}, .stride = {1, 1}};
  return (max ? image.MaxPool(o) : image.AvgPool(o)).Squeeze();
}

// Positions of an image of 4 by 5 as points from -1 to 1, the last axis first.
Tensor Sampled(In x) {
  const Tensor grid = Stack({x[2] / 2 - 1, x[1] * (2.0 / 3) - 1}, -1);
  GridSampleOptions o;
  o.padding = PadMode::kReplicate;
  o.align_corners = true;
  return x[0].Unsqueeze(0).Unsqueeze(0).GridSample(grid.Reshape({1, 1, 6, 2}), o).Flatten();
}

const std::map<std::string, Fn>& Functions() {
  static const std::map<std::string, Fn>& all = *new std::map<std::string, Fn>{
      {"exp", OF_ONE(Exp())},
      {"expm1", OF_ONE(Expm1())},
      {"sin", OF_ONE(Sin())},
      {"cos", OF_ONE(Cos())},
      {"tanh", OF_ONE(Tanh())},
      {"arctan", OF_ONE(Atan())},
      {"arcsinh", OF_ONE(Asinh())},
      {"sinh", OF_ONE(Sinh())},
      {"sinc", OF_ONE(Sinc())},
      {"floor", OF_ONE(Floor())},
      {"rint", OF_ONE(Round())},
      {"trunc", OF_ONE(Trunc())},
      {"sign", OF_ONE(Sign())},
      {"exp2", OF_ONE(Exp2())},
      {"fabs", OF_ONE(Abs())},
      {"sqrt", OF_ONE(Sqrt())},
      {"log", OF_ONE(Log())},
      {"log2", OF_ONE(Log2())},
      {"log10", OF_ONE(Log10())},
      {"log1p", OF_ONE(Log1p())},
      {"reciprocal", OF_ONE(Reciprocal())},
      {"arcsin", OF_ONE(Asin())},
      {"arccos", OF_ONE(Acos())},
      {"arctanh", OF_ONE(Atanh())},
      {"isnan", OF_ONE(IsNan())},
      {"isinf", OF_ONE(IsInf())},
      {"isfinite", OF_ONE(IsFinite())},
      {"signbit", OF_ONE(SignBit())},
      {"erf", OF_ONE(Erf())},
      {"erfc", OF_ONE(Erfc())},
      {"erfinv", OF_ONE(ErfInv())},
      {"gammaln", OF_ONE(Lgamma())},
      {"psi", OF_ONE(Digamma())},
      {"expit", OF_ONE(Sigmoid())},
      {"log_expit", OF_ONE(LogSigmoid())},
      {"hypot", OF_TWO(Hypot)},
      {"arctan2", OF_TWO(Atan2)},
      {"logaddexp", OF_TWO(LogAddExp)},
      {"copysign", OF_TWO(CopySign)},
      {"heaviside", OF_TWO(Heaviside)},
      {"fmod", OF_TWO(Fmod)},
      {"remainder", OF_TWO(Remainder)},
      {"maximum", OF_TWO(Maximum)},
      {"minimum", OF_TWO(Minimum)},
      {"xlogy", OF_TWO(XLogY)},
      {"logsumexp", OF_ONE(LogSumExp({1}))},
      {"softmax", OF_ONE(Softmax(0))},
      {"log_softmax", OF_ONE(LogSoftmax(1))},
      {"var", OF_ONE(Var({1}))},
      {"std", OF_ONE(Std({0, 2}, 0))},
      {"prod", OF_ONE(Prod({2}))},
      {"norm3", OF_ONE(Norm(3, {1}))},
      {"nansum", OF_ONE(NanSum())},
      {"nanmean", OF_ONE(NanMean())},
      {"argmax", OF_ONE(ArgMax(1))},
      {"argmin", OF_ONE(ArgMin(0))},
      {"median_low", OF_ONE(Median(1).values)},
      {"quantile", OF_ONE(Quantile(0.3, 1))},
      {"cumsum", OF_ONE(CumSum(1))},
      {"cumprod", OF_ONE(CumProd(2))},
      {"diff", OF_ONE(Diff(2, 1))},
      {"argsort", OF_ONE(ArgSort(1))},
      {"sort", OF_ONE(Sort(0).values)},
      {"searchsorted", OF_TWO(SearchSorted)},
      {"searchsorted_right", [](In x) -> Tensor { return x[0].SearchSorted(x[1], true); }},
      {"take_along_axis", [](In x) -> Tensor { return x[0].Gather(0, x[1]); }},
      {"take", [](In x) -> Tensor { return x[0].Take(x[1], 1); }},
      {"put_along_axis", [](In x) -> Tensor { return x[0].Scatter(0, x[1], x[2]); }},
      {"scatter_add",
       [](In x) -> Tensor {
         return x[0].rank() == 1 ? x[0].ScatterAdd(0, x[1], x[2]) : Rows(x, ScatterMode::kAdd);
       }},
      {"scatter_multiply", [](In x) -> Tensor { return Rows(x, ScatterMode::kMul); }},
      {"scatter_maximum", [](In x) -> Tensor { return Rows(x, ScatterMode::kMax); }},
      {"scatter_minimum", [](In x) -> Tensor { return Rows(x, ScatterMode::kMin); }},
      {"bincount", OF_ONE(BinCount(6))},
      {"bincount_weights", [](In x) -> Tensor { return x[0].BinCount(6, x[1]); }},
      {"matmul", OF_TWO(MatMul)},
      {"kron", OF_TWO(Kron)},
      {"outer", OF_TWO(Outer)},
      {"cross", OF_TWO(Cross)},
      {"trace", OF_ONE(Trace(1))},
      {"det", OF_ONE(Det())},
      {"einsum_bij_bkj_bik", [](In x) -> Tensor { return Einsum("bij,bkj->bik", x); }},
      {"tensordot", OF_TWO(TensorDot)},
      {"cdist", OF_TWO(CDist)},
      {"roll", OF_ONE(Roll(2, 1))},
      {"rot90", OF_ONE(Rot90(3))},
      {"tril", OF_ONE(Tril(1))},
      {"triu", OF_ONE(Triu(-1))},
      {"diagonal", OF_ONE(Diagonal(1))},
      {"vander", OF_ONE(Vander(4))},
      {"repeat", OF_ONE(RepeatInterleave(3, 1))},
      {"tile", OF_ONE(Tile({2, 3}))},
      {"pad_reflect", [](In x) -> Tensor { return Padded(x, PadMode::kReflect); }},
      {"pad_edge", [](In x) -> Tensor { return Padded(x, PadMode::kReplicate); }},
      {"pad_wrap", [](In x) -> Tensor { return Padded(x, PadMode::kCircular); }},
      {"pad_constant", [](In x) -> Tensor { return Padded(x, PadMode::kConstant); }},
      {"correlate2d",
       [](In x) -> Tensor {
         const auto image = [](const Tensor& t) { return t.Unsqueeze(0).Unsqueeze(0); };
         return image(x[0]).Conv2d(image(x[1])).Squeeze();
       }},
      {"convolve_full",
       [](In x) -> Tensor {
         const auto line = [](const Tensor& t) { return t.Unsqueeze(0).Unsqueeze(0); };
         return line(x[0]).ConvTranspose(line(x[1])).Squeeze();
       }},
      {"maximum_filter", [](In x) -> Tensor { return Pooled(x, true); }},
      {"uniform_filter", [](In x) -> Tensor { return Pooled(x, false); }},
      {"map_coordinates", Sampled},
      {"average", [](In x) -> Tensor { return x[0].Average(x[1], 1); }},
      {"ptp", OF_ONE(Ptp(0))},
      {"nanvar", OF_ONE(NanVar(1))},
      {"nanstd", OF_ONE(NanStd(0, 0))},
      {"nanprod", OF_ONE(NanProd(1))},
      {"nanmedian", OF_ONE(NanMedian(1).values)},
      {"trapezoid", OF_ONE(Trapezoid(0.5, 1))},
      {"cumulative_trapezoid", OF_ONE(CumTrapezoid(2, 0))},
      {"gradient", OF_ONE(Gradient(0.5, 1))},
      {"histogram", OF_ONE(Histogram(5, -2, 2))},
      {"digitize", [](In x) -> Tensor { return x[0].Bucketize(x[1], true); }},
      {"isin", OF_TWO(IsIn)},
      {"interp", [](In x) -> Tensor { return x[0].Interp(x[1], x[2]); }},
      {"cov", OF_ONE(Cov())},
      {"corrcoef", OF_ONE(CorrCoef())},
      {"gcd", OF_TWO(Gcd)},
      {"lcm", OF_TWO(Lcm)},
      {"bitwise_count", OF_ONE(PopCount())},
      {"ldexp", OF_TWO(LdExp)},
      {"frexp_fraction", OF_ONE(FrExp().first)},
      {"frexp_power", OF_ONE(FrExp().second)},
      {"nextafter", OF_TWO(NextAfter)},
      {"fmax", OF_TWO(FMax)},
      {"fmin", OF_TWO(FMin)},
      {"cbrt", OF_ONE(Cbrt())},
      {"deg2rad", OF_ONE(Deg2Rad())},
      {"rad2deg", OF_ONE(Rad2Deg())},
      {"logaddexp2", OF_TWO(LogAddExp2)},
      {"xlog1py", OF_TWO(XLog1pY)},
      {"round2", OF_ONE(RoundTo(2))},
      {"nonzero",
       [](In x) -> Tensor {
         const Tensor rows = x[0].NonZero(12);
         return rows.SliceAxis(0, {0, x[0].CountNonzero().Item<int64_t>()});
       }},
      {"masked_select", [](In x) -> Tensor { return x[0].MaskedSelect(x[1] != 0, 5); }},
      {"unravel_index", [](In x) -> Tensor { return Stack(x[0].UnravelIndex({2, 3, 4})); }},
      {"tril_indices", [](In) -> Tensor { return Tensor::TrilIndices(4, 5, 1); }},
      {"triu_indices", [](In) -> Tensor { return Tensor::TriuIndices(4, 5, -1); }},
      {"geomspace", [](In) -> Tensor { return Tensor::GeomSpace(-2, -50, 7, kFloat64); }},
      {"hann", [](In) -> Tensor { return Tensor::HannWindow(9, true, kFloat64); }},
      {"hann_symmetric", [](In) -> Tensor { return Tensor::HannWindow(8, false, kFloat64); }},
      {"hamming", [](In) -> Tensor { return Tensor::HammingWindow(9, true, kFloat64); }},
      {"hamming_symmetric", [](In) -> Tensor { return Tensor::HammingWindow(8, false, kFloat64); }},
      {"blackman", [](In) -> Tensor { return Tensor::BlackmanWindow(9, true, kFloat64); }},
      {"blackman_symmetric",
       [](In) -> Tensor { return Tensor::BlackmanWindow(8, false, kFloat64); }},
      {"bartlett", [](In) -> Tensor { return Tensor::BartlettWindow(9, true, kFloat64); }},
      {"bartlett_symmetric",
       [](In) -> Tensor { return Tensor::BartlettWindow(8, false, kFloat64); }},
      {"dstack", [](In x) -> Tensor { return DStack(x); }},
      {"column_stack", [](In x) -> Tensor { return ColumnStack(x); }},
      {"block_diag", [](In x) -> Tensor { return BlockDiag(x); }},
      {"pad_symmetric", [](In x) -> Tensor { return Padded(x, PadMode::kSymmetric); }},
      {"pad_symmetric_far",
       [](In x) -> Tensor {
         return x[0].PadBy(PadMode::kSymmetric, {{7, 5}, {0, 4}});
       }},
      {"convolve_full_1d", OF_TWO(Convolve)},
      {"convolve_same_1d", [](In x) -> Tensor { return x[0].Convolve(x[1], "same"); }},
      {"convolve_valid_1d", [](In x) -> Tensor { return x[0].Convolve(x[1], "valid"); }},
      {"solve", OF_TWO(Solve)},
      {"inv", OF_ONE(Inverse())},
      {"slogdet",
       [](In x) -> Tensor {
         const auto [sign, log] = x[0].SlogDet();
         return Stack({sign, log});
       }},
      {"cholesky", OF_ONE(Cholesky())},
      {"matrix_power", OF_ONE(MatrixPower(5))},
      {"matrix_power_back", OF_ONE(MatrixPower(-3))},
      {"solve_triangular", OF_TWO(SolveTriangular)},
      {"solve_triangular_upper",
       [](In x) -> Tensor { return x[0].SolveTriangular(x[1], true); }},
      {"fft", OF_ONE(Fft())},
      {"ifft", OF_ONE(Ifft())},
      {"rfft", OF_ONE(Rfft())},
      {"irfft", OF_ONE(Irfft())},
      {"irfft_odd", OF_ONE(Irfft(-1, {9}, "ortho"))},
      {"fftn", OF_ONE(Fft({1, 0}, {6, 3}, "forward"))},
      {"ifftn", OF_ONE(Ifft({}, {}, "ortho"))},
      {"rfftn", OF_ONE(Rfft({2, 0}, {5, 6}))},
      {"irfftn", OF_ONE(Irfft({2, 0}, {5, 7}))},
      {"fftshift", OF_ONE(FftShift({0, 2}))},
      {"ifftshift", OF_ONE(IfftShift({0, 2}))},
      {"fftfreq", [](In x) -> Tensor { return Tensor::FftFreq(x[0].size(0), 0.25, kFloat64); }},
      {"rfftfreq", [](In x) -> Tensor { return Tensor::RfftFreq(x[0].size(0), 0.25, kFloat64); }},
      {"qr_q", OF_ONE(Qr().first)},
      {"qr_r", OF_ONE(Qr().second)},
      {"svd_s", OF_ONE(Svd().s)},
      {"pinv", OF_ONE(PInverse())},
      {"eigvalsh", OF_ONE(Eigh().first)},
      {"lstsq", OF_TWO(LstSq)},
      {"matrix_rank", OF_ONE(MatrixRank())}};
  return all;
}

Json Recorded() {
  std::ifstream file("tests/data/recorded/values.json");
  return Json::parse(file);
}

// Products and sums of a few f64s, and functions of them within some units in the last place.
TEST(Recorded, ComposedFunctionsGiveWhatNumpyAndScipyGiveSlow) {
  std::map<std::string, bool> seen;
  const Json recorded = Recorded();
  for (const Json& row : recorded["rows"]) {
    std::string name = row["name"];
    SCOPED_TRACE(name);
    if (const size_t dot = name.find('.'); dot != std::string::npos) name.resize(dot);
    ASSERT_TRUE(Functions().contains(name));
    seen[name] = true;
    std::vector<Tensor> inputs;
    for (const Json& input : row["inputs"]) inputs.push_back(TensorOf(input));
    const Tensor got = Functions().at(name)(inputs);
    EXPECT_EQ(got.shape(), Shape(Dims(row["shape"].get<std::vector<int64_t>>()).extents()));
    const std::vector<double> want = NumbersOf(row["values"]);
    const std::vector<double> values = got.Cast(kFloat64).ToVector<double>();
    ASSERT_EQ(values.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i])) {
        EXPECT_TRUE(std::isnan(values[i])) << "element " << i << " is " << values[i];
      } else if (std::isinf(want[i])) {
        EXPECT_EQ(values[i], want[i]) << "element " << i;
      } else {
        EXPECT_NEAR(values[i], want[i], 1e-12 * std::max(1.0, std::fabs(want[i])))
            << "element " << i;
      }
    }
  }
  EXPECT_EQ(seen.size(), Functions().size());  // no function is left without a row
}

}  // namespace
}  // namespace tessera
