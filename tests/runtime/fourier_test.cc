// Fourier transforms against their sums, written out.
#include <cmath>
#include <complex>
#include <limits>

#include "runtime/capture.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

using Number = std::complex<double>;

constexpr double kTwoPi = 6.283185307179586477;

// The norm of the difference from the sums, over theirs.
double Apart(const Tensor& got, const std::vector<double>& x) {
  const auto n = static_cast<int64_t>(x.size() / 2);
  const std::vector<double> y = got.ToVector<double>();
  double error = 0, all = 0;
  for (int64_t k = 0; k < static_cast<int64_t>(y.size() / 2); ++k) {
    Number sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double angle = -kTwoPi * static_cast<double>(j * k % n) / static_cast<double>(n);
      sum += Number(x[2 * j], x[2 * j + 1]) * Number(std::cos(angle), std::sin(angle));
    }
    error += std::norm(sum - Number(y[2 * k], y[2 * k + 1]));
    all += std::norm(sum);
  }
  return std::sqrt(error / all);
}

TEST(Fourier, AnyLengthGivesItsSumsSlow) {
  for (int64_t n : {1, 2, 3, 5, 8, 17, 60, 127, 131, 262, 1000, 1024}) {
    SCOPED_TRACE(n);
    std::vector<double> x = Fractions(2 * n, 7), real = x;
    for (int64_t i = 0; i < n; ++i) real[2 * i + 1] = 0;
    const Tensor of_x = Tensor::From(x, {n, 2}), of_real = Tensor::From(real, {n, 2}).Select(1, 0);
    const Tensor y = of_x.Fft(), half = of_real.Rfft();
    EXPECT_EQ(half.shape(), Shape({n / 2 + 1, 2}));
    EXPECT_LT(Apart(y, x), 4e-15);
    EXPECT_LT(Apart(half, real), 4e-15);
    EXPECT_LT((y.Ifft() - of_x).Abs().Max().Item(), 1e-14);
    EXPECT_LT((half.Irfft(-1, {n}) - of_real).Abs().Max().Item(), 1e-14);
    EXPECT_LT(Apart(of_x.Cast(kFloat32).Fft(), x), 1e-6);
    EXPECT_LT(Apart(of_real.Cast(kFloat32).Rfft(), real), 1e-6);
  }
}

// As many as a second of sound has, and a power of two: by Parseval's theorem and one element.
TEST(Fourier, LongSignals) {
  for (int64_t n : {44100, 1 << 20}) {
    const Tensor k = Tensor::Arange(n, kInt64),
                 angle = (k * 1234).Mod(n).Cast(kFloat64) * (kTwoPi / static_cast<double>(n));
    const Tensor wave = angle.Cos().Cast(kFloat32).To("CPU");
    const std::vector<float> y = wave.Rfft(-1, {}, "forward").ToVector<float>();
    double others = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      if (i / 2 != 1234) others = std::max(others, std::fabs(static_cast<double>(y[i])));
    }
    EXPECT_NEAR(y[2 * 1234], 0.5, 1e-6);
    EXPECT_LT(others, 1e-6);
  }
}

TEST(Fourier, Dtypes) {
  const std::vector<double> x = {1, 2, -3, 4, 0.5, -1, 2, 0};
  for (DType t : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const Tensor y = Tensor::From(x, {4, 2}).Cast(t).Fft();
    EXPECT_EQ(y.dtype(), t);
    EXPECT_LT(Apart(y, x), t == kBFloat16 ? 4e-3 : 5e-4);
  }
  for (DType t : {kBool, kInt8, kInt64}) {
    const Tensor y = Tensor::From({1, 0, 1, 1}).Cast(t).Rfft();
    EXPECT_EQ(y.dtype(), kFloat32);
    const Tensor want = Tensor::From({{3.0, 0.0}, {0.0, 1.0}, {1.0, 0.0}});
    EXPECT_LT((y - want).Abs().Max().Item(), 1e-6);
  }
}

// What is not finite is seen by every element; batches without elements have none.
TEST(Fourier, Edges) {
  for (double odd : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL}) {
    for (int64_t n : {12, 131}) {
      std::vector<double> x(2 * n, 1.0);
      x[4] = odd;
      const Tensor bad = Tensor::From(x, {n, 2}).Fft().IsFinite();
      EXPECT_FALSE(bad.Any().Item());
    }
  }
  EXPECT_EQ(Tensor::Zeros({0, 6, 2}).Fft().Realize().shape(), Shape({0, 6, 2}));
  EXPECT_EQ(Tensor::Zeros({6, 0}).Rfft(0).Realize().shape(), Shape({4, 0, 2}));
  const std::string none = "axis of 0 elements";
  EXPECT_THAT(ErrorOf([] { Tensor::Zeros({3, 0, 2}).Fft(); }), ::testing::HasSubstr(none));
  EXPECT_THAT(ErrorOf([] { Tensor::Zeros({3, 1, 2}).Irfft(); }), ::testing::HasSubstr(none));
}

// A variable number of signals is compiled once.
TEST(Fourier, BatchesOfVariableExtent) {
  Variable n("n", 1, 5);
  const Tensor all = Tensor::From(Fractions(5 * 24, 3), {5, 12, 2}).To("CPU");
  Jit step([&](const Tensor& x) {
    const Tensor y = x.SliceAxis(0, {0, n});
    return std::vector<Tensor>{y.Fft(), y.Rfft(1)};
  });
  for (int64_t i : {2, 5, 1}) {
    const std::vector<Tensor> got = step({all}, {{"n", i}});
    const Tensor x = all.SliceAxis(0, {0, i});
    // Products of another number of columns may add up in another order.
    EXPECT_LE((got[0] - x.Fft()).Abs().Max().Item(), 5e-15);
    EXPECT_LE((got[1] - x.Rfft(1)).Abs().Max().Item(), 5e-15);
  }
}

}  // namespace
}  // namespace tessera
