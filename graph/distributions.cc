// Densities, shares and draws: for each question a set of overloads, one for each distribution that
// has an answer.
#include "graph/distributions.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "graph/distribution_fields.h"
#include "graph/special_functions.h"
#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;
using internal::FloatResult;
using internal::kInfinity;
using internal::LogDiagonal;
using internal::Times;

namespace {

constexpr double kPi = std::numbers::pi;
const double kHalfLogTwoPi = 0.5 * std::log(2 * kPi);

}  // namespace

// ---- parameters, whatever they are called

std::vector<Tensor> internal::ParametersOf(const char* name, CallSite at, const Distribution& d) {
  Call call(name, at);
  return std::visit(
      [](auto of) {
        std::vector<Tensor> out;
        for (const Tensor* t : Fields(of)) {
          if (!*t) Fail("parameter ", out.size(), " of a ", NameOf(of), " is empty");
          out.push_back(*t);
        }
        return out;
      },
      d);
}

const char* internal::NameOf(const Distribution& d) {
  static constexpr const char* kNames[] = {"NormalDistribution",
                                           "LogNormalDistribution",
                                           "HalfNormalDistribution",
                                           "LaplaceDistribution",
                                           "CauchyDistribution",
                                           "LogisticDistribution",
                                           "GumbelDistribution",
                                           "StudentTDistribution",
                                           "UniformDistribution",
                                           "ExponentialDistribution",
                                           "GammaDistribution",
                                           "InverseGammaDistribution",
                                           "BetaDistribution",
                                           "WeibullDistribution",
                                           "ParetoDistribution",
                                           "VonMisesDistribution",
                                           "BernoulliDistribution",
                                           "BinomialDistribution",
                                           "GeometricDistribution",
                                           "NegativeBinomialDistribution",
                                           "PoissonDistribution",
                                           "CategoricalDistribution",
                                           "MultinomialDistribution",
                                           "DirichletDistribution",
                                           "MultivariateNormalDistribution"};
  static_assert(std::size(kNames) == std::variant_size_v<Distribution>);
  return kNames[d.index()];
}

Distribution internal::Widened(Distribution d, DType type) {
  std::visit(
      [&](auto& of) {
        for (Tensor* t : Fields(of)) *t = t->Cast(AccumulateType(type));
      },
      d);
  return d;
}

DType internal::ResultType(absl::Span<const Tensor> parameters) {
  DType type = parameters[0].dtype();
  for (const Tensor& t : parameters) type = Promote(type, t.dtype());
  return FloatResult(type);
}

namespace {

// Where x is supported, or NaN, what f makes of it; elsewhere -inf. Elsewhere f is given `safe`.
template <typename F>
Tensor Within(const Tensor& supported, const Tensor& x, double safe, F f) {
  const Tensor holds = supported | x.IsNan();
  return Where(holds, f(Where(holds, x, safe)), -kInfinity);
}
Tensor IsCount(const Tensor& x) { return (x >= 0) & (x == x.Floor()) & (x < kInfinity); }

// The ln of choices of k of n.
Tensor LogChoices(const Tensor& n, const Tensor& k) {
  return (n + 1).Lgamma() - (k + 1).Lgamma() - (n - k + 1).Lgamma();
}

struct LogProbOf {
  Tensor x, given;  // in the dtype that is computed in, and as it was

  Tensor operator()(const NormalDistribution& d) const {
    return -(((x - d.mean) / d.deviation).Square() * 0.5) - d.deviation.Log() - kHalfLogTwoPi;
  }
  Tensor operator()(const LogNormalDistribution& d) const {
    return Within(x > 0, x, 1, [&](const Tensor& t) {
      const Tensor log = t.Log();
      return LogProbOf{log, log}(NormalDistribution{d.mean, d.deviation}) - log;
    });
  }
  Tensor operator()(const HalfNormalDistribution& d) const {
    return Within(x >= 0, x, 1, [&](const Tensor& t) {
      return -((t / d.deviation).Square() * 0.5) - d.deviation.Log() - kHalfLogTwoPi + std::log(2);
    });
  }
  Tensor operator()(const LaplaceDistribution& d) const {
    return -((x - d.mean) / d.scale).Abs() - (d.scale * 2).Log();
  }
  Tensor operator()(const CauchyDistribution& d) const {
    return -((x - d.median) / d.scale).Square().Log1p() - (d.scale * kPi).Log();
  }
  Tensor operator()(const LogisticDistribution& d) const {
    const Tensor z = ((x - d.mean) / d.scale).Abs();
    return -z - (-z).Softplus() * 2 - d.scale.Log();
  }
  Tensor operator()(const GumbelDistribution& d) const {
    return Within(x > -kInfinity, x, 0, [&](const Tensor& t) {
      const Tensor z = (t - d.mode) / d.scale;
      return -z - (-z).Exp() - d.scale.Log();
    });
  }
  Tensor operator()(const StudentTDistribution& d) const {
    const Tensor z = (x - d.center) / d.scale, n = d.degrees;
    return -((n + 1) * 0.5 * (z * z / n).Log1p()) - (n * 0.5).BetaLn(n.FullLike(0.5)) -
           n.Log() * 0.5 - d.scale.Log();
  }
  Tensor operator()(const UniformDistribution& d) const {
    return Within((x >= d.low) & (x < d.high), x, 0,
                  [&](const Tensor& t) { return t * 0 - (d.high - d.low).Log(); });
  }
  Tensor operator()(const ExponentialDistribution& d) const {
    return Within(x >= 0, x, 1, [&](const Tensor& t) { return d.rate.Log() - d.rate * t; });
  }
  Tensor operator()(const GammaDistribution& d) const {
    return Within((x >= 0) & (x < kInfinity), x, 1, [&](const Tensor& t) {
      return d.shape.XLogY(d.rate) + (d.shape - 1).XLogY(t) - d.rate * t - d.shape.Lgamma();
    });
  }
  Tensor operator()(const InverseGammaDistribution& d) const {
    return Within(x > 0, x, 1, [&](const Tensor& t) {
      return d.shape * d.rate.Log() - (d.shape + 1) * t.Log() - d.rate / t - d.shape.Lgamma();
    });
  }
  Tensor operator()(const BetaDistribution& d) const {
    return Within((x >= 0) & (x <= 1), x, 0.5, [&](const Tensor& t) {
      return (d.a - 1).XLogY(t) + (d.b - 1).XLog1pY(-t) - d.a.BetaLn(d.b);
    });
  }
  Tensor operator()(const WeibullDistribution& d) const {
    return Within((x >= 0) & (x < kInfinity), x, 1, [&](const Tensor& t) {
      const Tensor z = t / d.scale;
      return (d.shape / d.scale).Log() + (d.shape - 1).XLogY(z) - z.Pow(d.shape);
    });
  }
  Tensor operator()(const ParetoDistribution& d) const {
    return Within(x >= d.scale, x, 1, [&](const Tensor& t) {
      return d.shape.Log() + d.shape * (d.scale / t).Log() - t.Log();
    });
  }
  Tensor operator()(const VonMisesDistribution& d) const {
    return d.concentration * ((x - d.mean).Cos() - 1) - d.concentration.BesselI0e().Log() -
           2 * kHalfLogTwoPi;
  }

  Tensor operator()(const BernoulliDistribution& d) const {
    return Within((x == 0) | (x == 1), x, 0, [&](const Tensor& t) {
      return Times(t, d.logits.LogSigmoid()) + Times(1 - t, (-d.logits).LogSigmoid());
    });
  }
  Tensor operator()(const BinomialDistribution& d) const {
    return Within(IsCount(x) & (x <= d.trials), x, 0, [&](const Tensor& t) {
      return LogChoices(d.trials, t) + Times(t, d.logits.LogSigmoid()) +
             Times(d.trials - t, (-d.logits).LogSigmoid());
    });
  }
  Tensor operator()(const GeometricDistribution& d) const {
    return Within(IsCount(x), x, 0, [&](const Tensor& t) {
      return Times(t, (-d.logits).LogSigmoid()) + d.logits.LogSigmoid();
    });
  }
  Tensor operator()(const NegativeBinomialDistribution& d) const {
    return Within(IsCount(x), x, 0, [&](const Tensor& t) {
      return Times(t, d.logits.LogSigmoid()) - d.failures * d.logits.Softplus() +
             (d.failures + t).Lgamma() - (t + 1).Lgamma() - d.failures.Lgamma();
    });
  }
  Tensor operator()(const PoissonDistribution& d) const {
    return Within(IsCount(x), x, 0,
                  [&](const Tensor& t) { return t.XLogY(d.rate) - d.rate - (t + 1).Lgamma(); });
  }
  Tensor operator()(const CategoricalDistribution& d) const {
    const Tensor log = d.logits.LogSoftmax();
    const Extent n = log.shape()[log.rank() - 1];
    const Tensor is = given.Unsqueeze(-1) == CountAlong(0, 1, n, kInt32);
    return Where(is.Any(-1), Where(is, log, 0).Sum(-1), -kInfinity);
  }

  Tensor operator()(const MultinomialDistribution& d) const {
    const Tensor log = d.logits.LogSoftmax();
    const Tensor terms = Times(x, log) - (x + 1).Lgamma();
    return Within(IsCount(x).All(-1), x.Sum(-1), 0,
                  [&](const Tensor& n) { return terms.Sum(-1) + (n + 1).Lgamma(); });
  }
  Tensor operator()(const DirichletDistribution& d) const {
    const Tensor c = d.concentration, inside = (x >= 0).All(-1);
    const Tensor log = (c - 1).XLogY(Where(inside.Unsqueeze(-1), x, 0.5)) - c.Lgamma();
    return Where(inside, log.Sum(-1) + c.Sum(-1).Lgamma(), -kInfinity);
  }
  Tensor operator()(const MultivariateNormalDistribution& d) const {
    const Tensor apart = d.cholesky.SolveTriangular((x - d.mean).Unsqueeze(-1)).Squeeze(-1);
    const Tensor each = apart.Square() * -0.5 - kHalfLogTwoPi;
    return each.Sum(-1) - LogDiagonal(d.cholesky);
  }
};

struct CdfOf {
  Tensor x;

  Tensor operator()(const NormalDistribution& d) const {
    return ((x - d.mean) / d.deviation).Ndtr();
  }
  Tensor operator()(const LogNormalDistribution& d) const {
    return ((x.Maximum(0).Log() - d.mean) / d.deviation).Ndtr();
  }
  Tensor operator()(const HalfNormalDistribution& d) const {
    return (x.Maximum(0) / d.deviation * std::sqrt(0.5)).Erf();
  }
  Tensor operator()(const LaplaceDistribution& d) const {
    const Tensor z = (x - d.mean) / d.scale, share = (-z.Abs()).Exp() * 0.5;
    return Where(z < 0, share, 1 - share);
  }
  Tensor operator()(const CauchyDistribution& d) const {
    return ((x - d.median) / d.scale).Atan() * (1 / kPi) + 0.5;
  }
  Tensor operator()(const LogisticDistribution& d) const {
    return ((x - d.mean) / d.scale).Sigmoid();
  }
  Tensor operator()(const GumbelDistribution& d) const {
    return (-(-((x - d.mode) / d.scale)).Exp()).Exp();
  }
  Tensor operator()(const StudentTDistribution& d) const {
    const Tensor z = (x - d.center) / d.scale, n = d.degrees, one_half = n.FullLike(0.5);
    const Tensor beyond = BetaInc(n * 0.5, one_half, 1 / (z * z / n + 1)) * 0.5;
    return Where(z < 0, beyond, 1 - beyond);
  }
  Tensor operator()(const UniformDistribution& d) const {
    return ((x - d.low) / (d.high - d.low)).Maximum(0).Minimum(1);
  }
  Tensor operator()(const ExponentialDistribution& d) const {
    return -(-(d.rate * x.Maximum(0))).Expm1();
  }
  Tensor operator()(const GammaDistribution& d) const {
    return d.shape.GammaInc(d.rate * x.Maximum(0));
  }
  Tensor operator()(const InverseGammaDistribution& d) const {
    return Where(x <= 0, 0, d.shape.GammaIncC(d.rate / Where(x <= 0, 1, x)));
  }
  Tensor operator()(const BetaDistribution& d) const {
    return BetaInc(d.a, d.b, x.Maximum(0).Minimum(1));
  }
  Tensor operator()(const WeibullDistribution& d) const {
    return -(-(x.Maximum(0) / d.scale).Pow(d.shape)).Expm1();
  }
  Tensor operator()(const ParetoDistribution& d) const {
    return -(d.shape * (d.scale / x.Maximum(d.scale)).Log()).Expm1();
  }

  Tensor operator()(const BernoulliDistribution& d) const {
    return Where(x < 0, 0, Where(x < 1, (-d.logits).Sigmoid(), Where(x.IsNan(), x, 1)));
  }
  Tensor operator()(const BinomialDistribution& d) const {
    const Tensor k = x.Floor(), all = k >= d.trials, none = k < 0,
                 inside = (all | none).LogicalNot();
    const Tensor safe = Where(inside, k, 0), n = Where(inside, d.trials, 1);
    const Tensor share = BetaInc(n - safe, safe + 1, (-d.logits).Sigmoid());
    return Where(none, 0, Where(all, 1, share));
  }
  Tensor operator()(const GeometricDistribution& d) const {
    return -(-((x.Floor() + 1).Maximum(0) * d.logits.Softplus())).Expm1();
  }
  Tensor operator()(const NegativeBinomialDistribution& d) const {
    const Tensor none = x < 0, k = Where(none, 0, x.Floor());
    return Where(none, 0, BetaInc(d.failures, k + 1, (-d.logits).Sigmoid()));
  }
  Tensor operator()(const PoissonDistribution& d) const {
    const Tensor none = x < 0, k = Where(none, 0, x.Floor());
    return Where(none, 0, (k + 1).GammaIncC(d.rate));
  }
};

// Parameters expanded to their batch, with axes before it.
struct DrawOf {
  Extents before;
  DType type;  // that is computed in

  Dims With(const Shape& batch) const {
    Extents dims = before;
    dims.insert(dims.end(), batch.begin(), batch.end());
    return dims;
  }
  // One draw of a standard distribution for each of the batch.
  template <typename Make>
  Tensor Each(absl::Span<const Tensor> parameters, Make make) const {
    return make(With(BroadcastTensors(parameters)[0].shape()));
  }
  Tensor Wide(const Tensor& parameter, absl::Span<const Tensor> all) const {
    return parameter.Expand(With(BroadcastTensors(all)[0].shape()));
  }
  Tensor Normals(absl::Span<const Tensor> all) const {
    return Each(all, [&](const Dims& shape) { return Tensor::RandN(shape, type); });
  }
  Tensor Waits(absl::Span<const Tensor> all) const {  // exponential, of rate 1
    return Each(all, [&](const Dims& shape) { return Tensor::Exponential(1, shape, type); });
  }

  Tensor operator()(const NormalDistribution& d) const {
    return d.mean + d.deviation * Normals({d.mean, d.deviation});
  }
  Tensor operator()(const LogNormalDistribution& d) const {
    return (d.mean + d.deviation * Normals({d.mean, d.deviation})).Exp();
  }
  Tensor operator()(const HalfNormalDistribution& d) const {
    return d.deviation * Normals({d.deviation}).Abs();
  }
  Tensor operator()(const LaplaceDistribution& d) const {
    return d.mean + d.scale * Each({d.mean, d.scale}, [&](const Dims& shape) {
                      return Tensor::Laplace(0, 1, shape, type);
                    });
  }
  Tensor operator()(const CauchyDistribution& d) const {
    return d.median + d.scale * Each({d.median, d.scale}, [&](const Dims& shape) {
                        return Tensor::Cauchy(0, 1, shape, type);
                      });
  }
  Tensor operator()(const LogisticDistribution& d) const {
    return d.mean + d.scale * Each({d.mean, d.scale}, [&](const Dims& shape) {
                      return Tensor::Logistic(0, 1, shape, type);
                    });
  }
  Tensor operator()(const GumbelDistribution& d) const {
    return d.mode + d.scale * Each({d.mode, d.scale}, [&](const Dims& shape) {
                      return Tensor::Gumbel(0, 1, shape, type);
                    });
  }
  Tensor operator()(const StudentTDistribution& d) const {
    const Tensor half = Wide(d.degrees, {d.degrees, d.center, d.scale}) * 0.5;
    const Tensor spread = (half / half.RandGamma()).Sqrt();
    return d.center + d.scale * spread * Tensor::RandN(half.shape(), type);
  }
  Tensor operator()(const UniformDistribution& d) const {
    return d.low + (d.high - d.low) * Each({d.low, d.high}, [&](const Dims& shape) {
                     return Tensor::Rand(shape, type);
                   });
  }
  Tensor operator()(const ExponentialDistribution& d) const { return Waits({d.rate}) / d.rate; }
  Tensor operator()(const GammaDistribution& d) const {
    return Wide(d.shape, {d.shape, d.rate}).RandGamma() / d.rate;
  }
  Tensor operator()(const InverseGammaDistribution& d) const {
    return d.rate / Wide(d.shape, {d.shape, d.rate}).RandGamma();
  }
  Tensor operator()(const BetaDistribution& d) const {
    return Wide(d.a, {d.a, d.b}).RandBeta(Wide(d.b, {d.a, d.b}));
  }
  Tensor operator()(const WeibullDistribution& d) const {
    return d.scale * Waits({d.shape, d.scale}).Pow(1 / d.shape);
  }
  Tensor operator()(const ParetoDistribution& d) const {
    return d.scale * (Waits({d.shape, d.scale}) / d.shape).Exp();
  }

  Tensor operator()(const BernoulliDistribution& d) const {
    return Wide(d.logits, {d.logits}).Sigmoid().Bernoulli();
  }
  Tensor operator()(const BinomialDistribution& d) const {
    return Wide(d.trials, {d.trials, d.logits}).RandBinomial(d.logits.Sigmoid());
  }
  Tensor operator()(const GeometricDistribution& d) const {
    return (Waits({d.logits}) / d.logits.Softplus()).Floor().Detach();
  }
  Tensor operator()(const NegativeBinomialDistribution& d) const {
    const Tensor rate = Wide(d.failures, {d.failures, d.logits}).RandGamma() * d.logits.Exp();
    return rate.RandPoisson();
  }
  Tensor operator()(const PoissonDistribution& d) const {
    return Wide(d.rate, {d.rate}).RandPoisson();
  }
  Tensor operator()(const CategoricalDistribution& d) const {
    return Wide(d.logits, {d.logits}).Categorical();
  }
  Tensor operator()(const DirichletDistribution& d) const {
    return Wide(d.concentration, {d.concentration}).RandDirichlet();
  }
  Tensor operator()(const MultivariateNormalDistribution& d) const {
    const Tensor z = Normals({d.mean, d.cholesky.Select(-1, 0)});
    return d.mean + d.cholesky.Tril().MatMul(z.Unsqueeze(-1)).Squeeze(-1);
  }
};

}  // namespace

Tensor LogProb(const Distribution& d, const Tensor& x, CallSite at) {
  std::vector<Tensor> given = internal::ParametersOf("LogProb", at, d);
  given.push_back(x);
  Call call("LogProb", at, given);
  const DType type = internal::ResultType(given);
  const LogProbOf of{x.Cast(AccumulateType(type)), x};
  return internal::OfEach(internal::Widened(d, type), "has no closed form of its density", of)
      .Cast(type);
}

Tensor Cdf(const Distribution& d, const Tensor& x, CallSite at) {
  std::vector<Tensor> given = internal::ParametersOf("Cdf", at, d);
  given.push_back(x);
  Call call("Cdf", at, given);
  const DType type = internal::ResultType(given);
  const CdfOf of{x.Cast(AccumulateType(type))};
  return internal::OfEach(internal::Widened(d, type), "has no closed form of the share up to x", of)
      .Cast(type);
}

Tensor Draw(const Distribution& d, const Dims& shape, CallSite at) {
  const std::vector<Tensor> given = internal::ParametersOf("Draw", at, d);
  Call call("Draw", at, given);
  const DType type = internal::ResultType(given);
  const Tensor drawn = internal::OfEach(internal::Widened(d, type), "cannot be drawn from",
                                        DrawOf{shape.extents(), AccumulateType(type)});
  return drawn.dtype().IsFloat() ? drawn.Cast(type) : drawn;
}

}  // namespace tessera
