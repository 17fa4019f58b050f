// Losses and normalisations against plain loops.
#include "tests/graph/tensor_testing.h"
#include "tests/support/waves.h"

namespace tessera {
namespace {

constexpr LossReduction kNone = LossReduction::kNone, kMean = LossReduction::kMean,
                        kSum = LossReduction::kSum;

// Each element's loss, its mean and its sum.
void Check(const std::function<Tensor(LossReduction)>& loss, const std::vector<double>& each) {
  ExpectNear(Values(loss(kNone)), each, 1e-13);
  double sum = 0;
  for (double v : each) sum += v;
  ExpectNear(Values(loss(kSum)), {sum}, 1e-13);
  ExpectNear(Values(loss(kMean)), {sum / static_cast<double>(each.size())}, 1e-13);
}

template <typename Fn>
std::vector<double> Each(const std::vector<double>& x, const std::vector<double>& t, Fn fn) {
  std::vector<double> out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(fn(x[i], t[i]));
  return out;
}

TEST(TensorLoss, ByElements) {
  const auto x = Draw(12, 1, -2, 2), t = Draw(12, 2, -2, 2), p = Draw(12, 3, 0.01, 0.99),
             q = Draw(12, 4, 0, 1);
  const Tensor tx = Tensor::From(x, {3, 4}), tt = Tensor::From(t, {3, 4});
  const Tensor tp = Tensor::From(p, {3, 4}), tq = Tensor::From(q, {3, 4});
  Check([&](LossReduction r) { return tx.MseLoss(tt, r); },
        Each(x, t, [](double a, double b) { return (a - b) * (a - b); }));
  Check([&](LossReduction r) { return tx.L1Loss(tt, r); },
        Each(x, t, [](double a, double b) { return std::fabs(a - b); }));
  Check([&](LossReduction r) { return tx.HuberLoss(tt, 0.5, r); },
        Each(x, t, [](double a, double b) {
          const double d = std::fabs(a - b);
          return d <= 0.5 ? d * d / 2 : 0.5 * (d - 0.25);
        }));
  Check([&](LossReduction r) { return tx.SmoothL1Loss(tt, 0.5, r); },
        Each(x, t, [](double a, double b) {
          const double d = std::fabs(a - b);
          return d < 0.5 ? d * d : d - 0.25;
        }));
  Check(
      [&](LossReduction r) { return tp.BinaryCrossEntropy(tq, r); },
      Each(p, q, [](double a, double b) { return -(b * std::log(a) + (1 - b) * std::log1p(-a)); }));
  Check([&](LossReduction r) { return tx.BinaryCrossEntropyWithLogits(tq, r); },
        Each(x, q, [](double a, double b) {
          const double s = 1 / (1 + std::exp(-a));
          return -(b * std::log(s) + (1 - b) * std::log(1 - s));
        }));
  const Tensor three = Tensor::Scalar(3.0, kFloat64), half = Tensor::Scalar(0.5, kFloat64);
  Check([&](LossReduction r) { return tx.BinaryCrossEntropyWithLogits(tq, r, half, three); },
        Each(x, q, [](double a, double b) {
          const double s = 1 / (1 + std::exp(-a));
          return -0.5 * (3 * b * std::log(s) + (1 - b) * std::log(1 - s));
        }));
  Check([&](LossReduction r) { return tx.KlDivLoss(tq, r); },
        Each(x, q, [](double a, double b) { return b * (std::log(b) - a); }));
  Check([&](LossReduction r) { return tx.KlDivLoss(tt, r, true); },
        Each(x, t, [](double a, double b) { return std::exp(b) * (b - a); }));
  Check([&](LossReduction r) { return tx.HingeLoss(tt.Sign(), r); },
        Each(x, t, [](double a, double b) { return std::max(0.0, 1 - (b < 0 ? -a : a)); }));
  Check([&](LossReduction r) { return tx.PoissonNllLoss(tq, true, r); },
        Each(x, q, [](double a, double b) { return std::exp(a) - b * a; }));
  Check([&](LossReduction r) { return tp.PoissonNllLoss(tq, false, r); },
        Each(p, q, [](double a, double b) { return a - b * std::log(a + 1e-8); }));
  // Where logarithms would be infinite, and what counts nothing.
  ExpectNear(Values(Tensor::From({0.0, 1.0}, kFloat64)
                        .BinaryCrossEntropy(Tensor::From({1.0, 1.0}, kFloat64), kNone)),
             {100, 0});
  ExpectNear(Values(Tensor::From({-2.0}, kFloat64).KlDivLoss(Tensor::From({0.0}, kFloat64))), {0});
  ExpectNear(Values(Tensor::From({-800.0, 800.0}, kFloat32)
                        .BinaryCrossEntropyWithLogits(Tensor::From({0.0, 0.0}, kFloat32), kNone)),
             {0, 800});
  EXPECT_ERROR(tx.MseLoss(tt.T()), "MseLoss", "must have the shape");
  EXPECT_ERROR(tx.HuberLoss(tt, 0), "HuberLoss", "delta above 0");
}

TEST(TensorLoss, OfClasses) {
  const int64_t n = 4, c = 3, d = 2;
  const auto x = Draw(n * c * d, 5, -2, 2), w = Draw(c, 6, 0.5, 2);
  const std::vector<int64_t> target = {0, 2, 1, 1, 2, 0, 1, 2};
  const Tensor tx = Tensor::From(x, {n, c, d}), tt = Tensor::From(target, {n, d});
  for (bool weighted : {false, true}) {
    for (std::optional<int64_t> ignored : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
      for (double smoothing : {0.0, 0.1}) {
        std::vector<double> each;
        double weights = 0, sum = 0;
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t k = 0; k < d; ++k) {
            const int64_t t = target[i * d + k];
            double all = 0, smooth = 0;
            for (int64_t j = 0; j < c; ++j) all += std::exp(x[(i * c + j) * d + k]);
            const auto log = [&](int64_t j) { return x[(i * c + j) * d + k] - std::log(all); };
            const auto weight = [&](int64_t j) { return weighted ? w[j] : 1.0; };
            for (int64_t j = 0; j < c; ++j) smooth -= weight(j) * log(j) / static_cast<double>(c);
            const bool counts = !ignored || t != *ignored;
            each.push_back(counts ? (smoothing - 1) * weight(t) * log(t) + smoothing * smooth : 0);
            weights += counts ? weight(t) : 0;
            sum += each.back();
          }
        }
        ClassLossOptions o{.ignore_index = ignored, .label_smoothing = smoothing};
        if (weighted) o.weight = Tensor::From(w);
        const auto with = [&](LossReduction r) {
          ClassLossOptions options = o;
          options.reduction = r;
          return options;
        };
        ExpectNear(Values(tx.CrossEntropy(tt, with(kNone))), each, 1e-13);
        ExpectNear(Values(tx.CrossEntropy(tt, with(kSum))), {sum}, 1e-13);
        ExpectNear(Values(tx.CrossEntropy(tt, with(kMean))), {sum / weights}, 1e-13);
        if (smoothing == 0) {
          ExpectNear(Values(tx.LogSoftmax(1).NllLoss(tt, with(kMean))), {sum / weights}, 1e-13);
        }
      }
    }
  }
  // A distribution with all on one class is that class.
  const Tensor hot = tt.OneHot(c, kFloat64).Transpose(1, 2);
  ExpectNear(Values(tx.CrossEntropy(hot)), Values(tx.CrossEntropy(tt)), 1e-13);
  ExpectNear(Values(tx.Select(2, 0)[0].CrossEntropy(Tensor::Scalar(2))),
             {-Values(tx.Select(2, 0)[0].LogSoftmax())[2]}, 1e-13);
  EXPECT_ERROR(tx.CrossEntropy(tt.Flatten()), "CrossEntropy", "must have the shape [4, 2]");
  EXPECT_ERROR(tx.CrossEntropy(tt.Cast(kFloat32)), "CrossEntropy", "integer dtype");
  ClassLossOptions wrong;
  wrong.weight = Tensor::Zeros({2});
  EXPECT_ERROR(tx.CrossEntropy(tt, wrong), "CrossEntropy", "one element for each class");
}

TEST(TensorLoss, Similarity) {
  const auto a = Draw(6, 7, -2, 2), b = Draw(6, 8, -2, 2);
  std::vector<double> expected;
  for (int i = 0; i < 2; ++i) {
    double ab = 0, aa = 0, bb = 0;
    for (int j = 0; j < 3; ++j) {
      ab += a[i * 3 + j] * b[i * 3 + j];
      aa += a[i * 3 + j] * a[i * 3 + j];
      bb += b[i * 3 + j] * b[i * 3 + j];
    }
    expected.push_back(ab / std::sqrt(aa * bb));
  }
  ExpectNear(Values(Tensor::From(a, {2, 3}).CosineSimilarity(Tensor::From(b, {2, 3}))), expected,
             1e-14);
  ExpectNear(Values(Tensor::Zeros({1, 3}).CosineSimilarity(Tensor::Ones({1, 3}))), {0});
}

TEST(TensorNorm, GroupsAndBatches) {
  const int64_t n = 2, c = 4, d = 3;
  const auto x = Draw(n * c * d, 9, -2, 2), w = Draw(c, 10, -2, 2), b = Draw(c, 11, -2, 2);
  const Tensor tx = Tensor::From(x, {n, c, d}), tw = Tensor::From(w), tb = Tensor::From(b);
  for (int64_t groups : {1, 2, 4}) {
    std::vector<double> expected(x.size());
    const int64_t size = c / groups * d;
    for (int64_t g = 0; g < n * groups; ++g) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < size; ++i) mean += x[g * size + i] / static_cast<double>(size);
      for (int64_t i = 0; i < size; ++i) {
        variance += std::pow(x[g * size + i] - mean, 2) / static_cast<double>(size);
      }
      for (int64_t i = 0; i < size; ++i) {
        const int64_t channel = (g * size + i) / d % c;
        expected[g * size + i] =
            (x[g * size + i] - mean) / std::sqrt(variance + 1e-5) * w[channel] + b[channel];
      }
    }
    ExpectNear(Values(tx.GroupNorm(groups, tw, tb)), expected, 1e-12);
    if (groups == c) ExpectNear(Values(tx.InstanceNorm(tw, tb)), expected, 1e-12);
  }
  std::vector<double> means(c), variances(c), expected(x.size());
  for (int64_t k = 0; k < c; ++k) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < d; ++j) means[k] += x[(i * c + k) * d + j] / (n * d);
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < d; ++j) {
        variances[k] += std::pow(x[(i * c + k) * d + j] - means[k], 2) / (n * d);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < d; ++j) {
        const int64_t at = (i * c + k) * d + j;
        expected[at] = (x[at] - means[k]) / std::sqrt(variances[k] + 1e-3) * w[k] + b[k];
      }
    }
  }
  const auto [y, mean, variance] = tx.BatchNormTraining(tw, tb, 1e-3, 1);
  ExpectNear(Values(y), expected, 1e-12);
  ExpectNear(Values(mean), means, 1e-14);
  for (double& v : variances) v *= static_cast<double>(n * d) / (n * d - 1);
  ExpectNear(Values(variance), variances, 1e-14);
  EXPECT_ERROR(tx.GroupNorm(3), "GroupNorm", "a multiple of 3 groups");
  EXPECT_ERROR(tx.GroupNorm(2, Tensor::Zeros({3})), "GroupNorm", "one element for each channel");
}

TEST(TensorNorm, NeighboursAndLengths) {
  const int64_t c = 5;
  const auto x = Draw(c, 12, -2, 2);
  for (int64_t size : {1, 2, 3, 4, 9}) {
    std::vector<double> expected;
    for (int64_t i = 0; i < c; ++i) {
      double sum = 0;
      for (int64_t j = i - (size - 1) / 2; j <= i + size / 2; ++j) {
        if (j >= 0 && j < c) sum += x[j] * x[j];
      }
      expected.push_back(x[i] / std::pow(2 + 0.5 / static_cast<double>(size) * sum, 0.75));
    }
    ExpectNear(Values(Tensor::From(x, {1, c}).LocalResponseNorm(size, 0.5, 0.75, 2)), expected,
               1e-13);
  }
  ExpectNear(Values(Tensor::From({{3, 4}, {0, 0}}).LpNormalize()), {0.6, 0.8, 0, 0}, 1e-6);
  ExpectNear(Values(Tensor::From({{3, 4}, {1, 0}}).LpNormalize(1, 0)), {0.75, 1, 0.25, 0}, 1e-6);
}

// PyTorch's values of sin(0.7 i).
TEST(TensorLoss, Forms) {
  const LossReduction none = LossReduction::kNone;
  const Tensor a = Waves({3, 4}), p = a * 0.5 + 0.1, n = a.Flip(0) * 0.7;
  ExpectNear(Computed(a.TripletMarginLoss(p, n, 1.5, 2, none, /*swap=*/true)),
             {1.3579494788259736, 1.9267528550924893, 1.6415216788178237}, 1e-14);
  ExpectNear(Computed(a.TripletMarginLoss(p, n, 1.5, 2, none)),
             {1.1196489406800798, 1.9267528550924893, 1.2658382159189019}, 1e-14);
  const Tensor x = Waves({2, 4}), size = x.Abs() + 0.1;
  const Tensor t = Tensor::From({{0., 1., 2., 3.5}, {1.5, 0.5, 4., 1.}}, kFloat64);
  ExpectNear(Computed(x.PoissonNllLoss(t, true, none, /*full=*/true)),
             {1, 1.2602788471490391, 1.3599234722003282, 1.7795147500853998, 1.1253103441321404,
              0.8795279884266003, 7.06185814471978, 1.3568443466204174},
             1e-14);
  ExpectNear(Computed(size.PoissonNllLoss(t, false, none, true, 0.01)),
             {0.1, 1.0262919300162332, 1.5549262320580461, 3.488245926194421, 1.8794183386272856,
              0.8381970119425699, 4.203223201138901, 0.99402734074969},
             1e-14);
  ExpectNear(Computed(x.PoissonNllLoss(t, true, LossReduction::kMean, true)), {1.9779072366667132},
             1e-14);
  ExpectNear(Computed(x.GaussianNllLoss(t, size, 1e-6, none, /*full=*/true)),
             {-0.23235401329235006, 0.856270714831273, 1.4340766448643298, 4.509310305640054,
              2.0628232589425473, 1.323414687576764, 13.117798778088183, 2.773929869498219},
             1e-13);
  const Tensor y = Tensor::From({2, 0, 3}), w = Tensor::From<double>({0.5, 1, 2, 3});
  ExpectNear(Computed(a.MultiMarginLoss(y, 1, 0.8, none, w)),
             {0.5682637969548223, 0.014278577769309388, 0.3516137736313416}, 1e-15);
  ExpectNear(Computed(a.MultiMarginLoss(y, 2, 0.8, LossReduction::kMean, w)), {0.1671290328389848},
             1e-15);
  EXPECT_ERROR(a.MultiMarginLoss(y, 1, 1, none, Waves({3})), "MultiMarginLoss", "each class");
}

TEST(TensorLoss, MeanOfBatch) {
  const LossReduction batch = LossReduction::kBatchMean;
  const Tensor a = Waves({3, 4}), logs = a.LogSoftmax(1), q = (-a).Softmax(1);
  ExpectNear(Computed(logs.KlDivLoss(q, batch)), {0.5069278133427504}, 1e-15);
  ExpectNear(Computed(logs.KlDivLoss(q.Log(), batch, true)), {0.5069278133427504}, 1e-15);
  EXPECT_ERROR(Tensor::Scalar(1.).MseLoss(Tensor::Scalar(2.), batch), "MseLoss", "kBatchMean");
}

// A variance for each row, as PyTorch takes it.
TEST(TensorLoss, VarianceOfRows) {
  const Tensor x = Waves({3, 3}), of_rows = Tensor::From<double>({0.5, 1, 2});
  ExpectNear(Computed(x.GaussianNllLoss(x * 0, of_rows, 1e-6, LossReduction::kNone)),
             {-0.34657359027997264, 0.06844283826990682, 0.6245375800543564, 0.372565205335175,
              0.05610853037243761, 0.061524436414173836, 0.5364846720445582, 0.5878768742930669,
              0.44619798230262886},
             1e-14);
}

}  // namespace
}  // namespace tessera
