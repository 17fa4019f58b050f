// Means, variances, entropies, and divergences between distributions.
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "graph/distribution_fields.h"
#include "graph/distributions.h"
#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::kInfinity;
using internal::kNan;
using internal::LogDiagonal;
using internal::NameOf;
using internal::ParametersOf;
using internal::ResultType;
using internal::Times;
using internal::Widened;

namespace {

constexpr double kPi = std::numbers::pi, kEuler = std::numbers::egamma;
const double kLogTwoPi = std::log(2 * kPi);

// The share of I1 in I0, the length of the mean of unit vectors.
Tensor MeanLength(const Tensor& concentration) {
  return concentration.BesselI1e() / concentration.BesselI0e();
}
Tensor GammaOf(const Tensor& x) { return x.Lgamma().Exp(); }  // x > 0
// Over the batch that a value makes with a parameter on which it does not depend.
Tensor Over(const Tensor& parameter, const Tensor& value) {
  return BroadcastTensors({value, parameter})[0];
}
// Over what the logits p give of 0 and 1, of the ln of its probability by q.
Tensor MeanLog(const Tensor& p, const Tensor& q) {
  return Times(p.Sigmoid(), q.LogSigmoid()) + Times((-p).Sigmoid(), (-q).LogSigmoid());
}
Tensor ProbabilitiesOf(const Tensor& logits) { return logits.Softmax(); }

struct MeanOf {
  Tensor operator()(const NormalDistribution& d) const { return Over(d.deviation, d.mean); }
  Tensor operator()(const LogNormalDistribution& d) const {
    return (d.mean + d.deviation.Square() * 0.5).Exp();
  }
  Tensor operator()(const HalfNormalDistribution& d) const {
    return d.deviation * std::sqrt(2 / kPi);
  }
  Tensor operator()(const LaplaceDistribution& d) const { return Over(d.scale, d.mean); }
  Tensor operator()(const CauchyDistribution& d) const {
    return (d.median + d.scale).FullLike(kNan);
  }
  Tensor operator()(const LogisticDistribution& d) const { return Over(d.scale, d.mean); }
  Tensor operator()(const GumbelDistribution& d) const { return d.mode + d.scale * kEuler; }
  Tensor operator()(const StudentTDistribution& d) const {
    return Where(d.degrees > 1, Over(d.scale, d.center), kNan);
  }
  Tensor operator()(const UniformDistribution& d) const { return (d.low + d.high) * 0.5; }
  Tensor operator()(const ExponentialDistribution& d) const { return 1 / d.rate; }
  Tensor operator()(const GammaDistribution& d) const { return d.shape / d.rate; }
  Tensor operator()(const InverseGammaDistribution& d) const {
    return Where(d.shape > 1, d.rate / (d.shape - 1), kInfinity);
  }
  Tensor operator()(const BetaDistribution& d) const { return d.a / (d.a + d.b); }
  Tensor operator()(const WeibullDistribution& d) const {
    return d.scale * GammaOf(1 / d.shape + 1);
  }
  Tensor operator()(const ParetoDistribution& d) const {
    return Where(d.shape > 1, d.shape * d.scale / (d.shape - 1), kInfinity);
  }
  Tensor operator()(const VonMisesDistribution& d) const { return Over(d.concentration, d.mean); }
  Tensor operator()(const BernoulliDistribution& d) const { return d.logits.Sigmoid(); }
  Tensor operator()(const BinomialDistribution& d) const { return d.trials * d.logits.Sigmoid(); }
  Tensor operator()(const GeometricDistribution& d) const { return (-d.logits).Exp(); }
  Tensor operator()(const NegativeBinomialDistribution& d) const {
    return d.failures * d.logits.Exp();
  }
  Tensor operator()(const PoissonDistribution& d) const { return d.rate; }
  Tensor operator()(const DirichletDistribution& d) const {
    return d.concentration / d.concentration.Sum(-1, /*keepdim=*/true);
  }
  Tensor operator()(const MultivariateNormalDistribution& d) const {
    return Over(d.cholesky.Select(-1, 0), d.mean);
  }
};

struct VarianceOf {
  Tensor operator()(const NormalDistribution& d) const {
    return Over(d.mean, d.deviation.Square());
  }
  Tensor operator()(const LogNormalDistribution& d) const {
    const Tensor square = d.deviation.Square();
    return square.Expm1() * (d.mean * 2 + square).Exp();
  }
  Tensor operator()(const HalfNormalDistribution& d) const {
    return d.deviation.Square() * (1 - 2 / kPi);
  }
  Tensor operator()(const LaplaceDistribution& d) const {
    return Over(d.mean, d.scale.Square() * 2);
  }
  Tensor operator()(const CauchyDistribution& d) const {
    return (d.median + d.scale).FullLike(kInfinity);
  }
  Tensor operator()(const LogisticDistribution& d) const {
    return Over(d.mean, d.scale.Square() * (kPi * kPi / 3));
  }
  Tensor operator()(const GumbelDistribution& d) const {
    return Over(d.mode, d.scale.Square() * (kPi * kPi / 6));
  }
  Tensor operator()(const StudentTDistribution& d) const {
    const Tensor n = d.degrees, value = Over(d.center, d.scale.Square() * n / (n - 2));
    return Where(n > 2, value, Where(n > 1, value.FullLike(kInfinity), kNan));
  }
  Tensor operator()(const UniformDistribution& d) const {
    return (d.high - d.low).Square() * (1.0 / 12);
  }
  Tensor operator()(const ExponentialDistribution& d) const { return 1 / d.rate.Square(); }
  Tensor operator()(const GammaDistribution& d) const { return d.shape / d.rate.Square(); }
  Tensor operator()(const InverseGammaDistribution& d) const {
    const Tensor a = d.shape;
    return Where(a > 2, d.rate.Square() / ((a - 1).Square() * (a - 2)), kInfinity);
  }
  Tensor operator()(const BetaDistribution& d) const {
    const Tensor sum = d.a + d.b;
    return d.a * d.b / (sum.Square() * (sum + 1));
  }
  Tensor operator()(const WeibullDistribution& d) const {
    return d.scale.Square() * (GammaOf(2 / d.shape + 1) - GammaOf(1 / d.shape + 1).Square());
  }
  Tensor operator()(const ParetoDistribution& d) const {
    const Tensor a = d.shape;
    return Where(a > 2, d.scale.Square() * a / ((a - 1).Square() * (a - 2)), kInfinity);
  }
  Tensor operator()(const VonMisesDistribution& d) const {  // of directions
    return Over(d.mean, 1 - MeanLength(d.concentration));
  }
  Tensor operator()(const BernoulliDistribution& d) const {
    return d.logits.Sigmoid() * (-d.logits).Sigmoid();
  }
  Tensor operator()(const BinomialDistribution& d) const {
    return d.trials * d.logits.Sigmoid() * (-d.logits).Sigmoid();
  }
  Tensor operator()(const GeometricDistribution& d) const {
    return (-d.logits).Exp() / d.logits.Sigmoid();
  }
  Tensor operator()(const NegativeBinomialDistribution& d) const {
    return d.failures * d.logits.Exp() / (-d.logits).Sigmoid();
  }
  Tensor operator()(const PoissonDistribution& d) const { return d.rate; }
  Tensor operator()(const DirichletDistribution& d) const {
    const Tensor sum = d.concentration.Sum(-1, /*keepdim=*/true), share = d.concentration / sum;
    return share * (1 - share) / (sum + 1);
  }
  Tensor operator()(const MultivariateNormalDistribution& d) const {
    return Over(d.mean, d.cholesky.Tril().Square().Sum(-1));
  }
};

// How many elements vectors have, as a tensor.
Tensor LengthOf(const Tensor& vectors) {
  return Tensor::FromExtent(vectors.shape()[vectors.rank() - 1]).Cast(vectors.dtype());
}

struct EntropyOf {
  Tensor operator()(const NormalDistribution& d) const {
    return Over(d.mean, d.deviation.Log() + (kLogTwoPi + 1) / 2);
  }
  Tensor operator()(const LogNormalDistribution& d) const {
    return d.deviation.Log() + d.mean + (kLogTwoPi + 1) / 2;
  }
  Tensor operator()(const HalfNormalDistribution& d) const {
    return d.deviation.Log() + (kLogTwoPi + 1) / 2 - std::log(2);
  }
  Tensor operator()(const LaplaceDistribution& d) const {
    return Over(d.mean, (d.scale * 2).Log() + 1);
  }
  Tensor operator()(const CauchyDistribution& d) const {
    return Over(d.median, (d.scale * (4 * kPi)).Log());
  }
  Tensor operator()(const LogisticDistribution& d) const { return Over(d.mean, d.scale.Log() + 2); }
  Tensor operator()(const GumbelDistribution& d) const {
    return Over(d.mode, d.scale.Log() + (1 + kEuler));
  }
  Tensor operator()(const StudentTDistribution& d) const {
    const Tensor half = d.degrees * 0.5, more = half + 0.5;
    return Over(d.center, d.scale.Log() + more * (more.Digamma() - half.Digamma()) +
                              d.degrees.Log() * 0.5 + half.BetaLn(half.FullLike(0.5)));
  }
  Tensor operator()(const UniformDistribution& d) const { return (d.high - d.low).Log(); }
  Tensor operator()(const ExponentialDistribution& d) const { return 1 - d.rate.Log(); }
  Tensor operator()(const GammaDistribution& d) const {
    return d.shape - d.rate.Log() + d.shape.Lgamma() + (1 - d.shape) * d.shape.Digamma();
  }
  Tensor operator()(const InverseGammaDistribution& d) const {
    return d.shape + d.rate.Log() + d.shape.Lgamma() - (d.shape + 1) * d.shape.Digamma();
  }
  Tensor operator()(const BetaDistribution& d) const {
    return d.a.BetaLn(d.b) - (d.a - 1) * d.a.Digamma() - (d.b - 1) * d.b.Digamma() +
           (d.a + d.b - 2) * (d.a + d.b).Digamma();
  }
  Tensor operator()(const WeibullDistribution& d) const {
    return (1 - 1 / d.shape) * kEuler + (d.scale / d.shape).Log() + 1;
  }
  Tensor operator()(const ParetoDistribution& d) const {
    return (d.scale / d.shape).Log() + 1 / d.shape + 1;
  }
  Tensor operator()(const VonMisesDistribution& d) const {
    const Tensor k = d.concentration;
    return Over(d.mean, k.BesselI0e().Log() + k * (1 - MeanLength(k)) + kLogTwoPi);
  }
  Tensor operator()(const BernoulliDistribution& d) const { return -MeanLog(d.logits, d.logits); }
  Tensor operator()(const GeometricDistribution& d) const {
    return (-d.logits).Exp() * d.logits.Softplus() + (-d.logits).Softplus();
  }
  Tensor operator()(const CategoricalDistribution& d) const {
    const Tensor p = ProbabilitiesOf(d.logits);
    return p.Entr().Sum(-1);
  }
  Tensor operator()(const DirichletDistribution& d) const {
    const Tensor c = d.concentration, sum = c.Sum(-1);
    const Tensor each = c.Lgamma() - (c - 1) * c.Digamma();
    return each.Sum(-1) - sum.Lgamma() + (sum - LengthOf(c)) * sum.Digamma();
  }
  Tensor operator()(const MultivariateNormalDistribution& d) const {
    return Over(d.mean.Sum(-1), LogDiagonal(d.cholesky) + LengthOf(d.mean) * ((kLogTwoPi + 1) / 2));
  }
};

struct KlOf {
  Tensor operator()(const NormalDistribution& p, const NormalDistribution& q) const {
    const Tensor ratio = (p.deviation / q.deviation).Square();
    const Tensor apart = ((p.mean - q.mean) / q.deviation).Square();
    return (ratio + apart - 1 - ratio.Log()) * 0.5;
  }
  Tensor operator()(const LogNormalDistribution& p, const LogNormalDistribution& q) const {
    return (*this)(NormalDistribution{p.mean, p.deviation},
                   NormalDistribution{q.mean, q.deviation});
  }
  Tensor operator()(const HalfNormalDistribution& p, const HalfNormalDistribution& q) const {
    const Tensor ratio = (p.deviation / q.deviation).Square();
    return (ratio - 1 - ratio.Log()) * 0.5;
  }
  Tensor operator()(const LaplaceDistribution& p, const LaplaceDistribution& q) const {
    const Tensor ratio = p.scale / q.scale, apart = (p.mean - q.mean).Abs();
    return -ratio.Log() + apart / q.scale + ratio * (-(apart / p.scale)).Exp() - 1;
  }
  Tensor operator()(const LaplaceDistribution& p, const NormalDistribution& q) const {
    const Tensor ratio = (p.scale / q.deviation).Square();
    const Tensor apart = ((p.mean - q.mean) / q.deviation).Square();
    return (ratio * (2 / kPi)).Log() * -0.5 + ratio + apart * 0.5 - 1;
  }
  Tensor operator()(const CauchyDistribution& p, const CauchyDistribution& q) const {
    const Tensor apart = (p.median - q.median).Square();
    return ((p.scale + q.scale).Square() + apart).Log() - (p.scale * q.scale * 4).Log();
  }
  Tensor operator()(const GumbelDistribution& p, const GumbelDistribution& q) const {
    const Tensor ratio = p.scale / q.scale, apart = (p.mode - q.mode) / q.scale;
    return -ratio.Log() + apart + ratio * kEuler + ((ratio + 1).Lgamma() - apart).Exp() -
           (1 + kEuler);
  }
  Tensor operator()(const UniformDistribution& p, const UniformDistribution& q) const {
    const Tensor inside = (q.low <= p.low) & (p.high <= q.high);
    return Where(inside, ((q.high - q.low) / (p.high - p.low)).Log(), kInfinity);
  }
  Tensor operator()(const UniformDistribution& p, const NormalDistribution& q) const {
    const Tensor width = p.high - p.low, apart = (p.high + p.low) * 0.5 - q.mean;
    return (q.deviation / width).Log() + kLogTwoPi / 2 +
           (width.Square() * (1.0 / 12) + apart.Square()) / (q.deviation.Square() * 2);
  }
  Tensor operator()(const ExponentialDistribution& p, const ExponentialDistribution& q) const {
    const Tensor ratio = q.rate / p.rate;
    return ratio - 1 - ratio.Log();
  }
  Tensor operator()(const GammaDistribution& p, const GammaDistribution& q) const {
    return (p.shape - q.shape) * p.shape.Digamma() - p.shape.Lgamma() + q.shape.Lgamma() +
           q.shape * (p.rate / q.rate).Log() + p.shape * (q.rate / p.rate - 1);
  }
  Tensor operator()(const ExponentialDistribution& p, const GammaDistribution& q) const {
    return (*this)(GammaDistribution{p.rate.OnesLike(), p.rate}, q);
  }
  Tensor operator()(const GammaDistribution& p, const ExponentialDistribution& q) const {
    return (*this)(p, GammaDistribution{q.rate.OnesLike(), q.rate});
  }
  Tensor operator()(const InverseGammaDistribution& p, const InverseGammaDistribution& q) const {
    return (*this)(GammaDistribution{p.shape, p.rate}, GammaDistribution{q.shape, q.rate});
  }
  Tensor operator()(const BetaDistribution& p, const BetaDistribution& q) const {
    const Tensor da = p.a - q.a, db = p.b - q.b;
    return q.a.BetaLn(q.b) - p.a.BetaLn(p.b) + da * p.a.Digamma() + db * p.b.Digamma() -
           (da + db) * (p.a + p.b).Digamma();
  }
  Tensor operator()(const WeibullDistribution& p, const WeibullDistribution& q) const {
    const Tensor ratio = q.shape / p.shape, of_scale = (p.scale / q.scale).Log();
    return -ratio.Log() - q.shape * of_scale + (ratio - 1) * kEuler +
           (q.shape * of_scale + (ratio + 1).Lgamma()).Exp() - 1;
  }
  Tensor operator()(const ParetoDistribution& p, const ParetoDistribution& q) const {
    const Tensor ratio = q.shape / p.shape;
    const Tensor value = q.shape * (p.scale / q.scale).Log() - ratio.Log() + ratio - 1;
    return Where(p.scale >= q.scale, value, kInfinity);
  }
  Tensor operator()(const VonMisesDistribution& p, const VonMisesDistribution& q) const {
    const Tensor a = p.concentration, b = q.concentration;
    return (b.BesselI0e() / a.BesselI0e()).Log() + b - a +
           MeanLength(a) * (a - b * (p.mean - q.mean).Cos());
  }
  Tensor operator()(const BernoulliDistribution& p, const BernoulliDistribution& q) const {
    return MeanLog(p.logits, p.logits) - MeanLog(p.logits, q.logits);
  }
  // Of more trials than q has, something cannot be q's; of fewer there is no closed form.
  Tensor operator()(const BinomialDistribution& p, const BinomialDistribution& q) const {
    const Tensor each = (*this)(BernoulliDistribution{p.logits}, BernoulliDistribution{q.logits});
    const Tensor otherwise = Where(p.trials > q.trials, kInfinity, kNan).Cast(each.dtype());
    return Where(p.trials == q.trials, p.trials * each, otherwise);
  }
  Tensor operator()(const GeometricDistribution& p, const GeometricDistribution& q) const {
    return (-p.logits).Exp() * (q.logits.Softplus() - p.logits.Softplus()) +
           (-q.logits).Softplus() - (-p.logits).Softplus();
  }
  Tensor operator()(const PoissonDistribution& p, const PoissonDistribution& q) const {
    return p.rate.XLogY(p.rate / q.rate) - p.rate + q.rate;
  }
  Tensor operator()(const CategoricalDistribution& p, const CategoricalDistribution& q) const {
    const Tensor of_p = p.logits.LogSoftmax(), of_q = q.logits.LogSoftmax(), share = of_p.Exp();
    return Where(share == 0, 0, share * (of_p - of_q)).Sum(-1);
  }
  Tensor operator()(const DirichletDistribution& p, const DirichletDistribution& q) const {
    const Tensor a = p.concentration, b = q.concentration, sum = a.Sum(-1, /*keepdim=*/true);
    const Tensor each = (a - b) * (a.Digamma() - sum.Digamma()) - a.Lgamma() + b.Lgamma();
    return each.Sum(-1) + sum.Squeeze(-1).Lgamma() - b.Sum(-1).Lgamma();
  }
  Tensor operator()(const MultivariateNormalDistribution& p,
                    const MultivariateNormalDistribution& q) const {
    const Tensor ratio = q.cholesky.SolveTriangular(p.cholesky.Tril()).Square().Sum({-2, -1});
    const Tensor apart = q.cholesky.SolveTriangular((p.mean - q.mean).Unsqueeze(-1));
    return LogDiagonal(q.cholesky) - LogDiagonal(p.cholesky) +
           (ratio + apart.Square().Sum({-2, -1}) - LengthOf(p.mean)) * 0.5;
  }
};

template <typename Of>
Tensor Asked(const char* name, CallSite at, const Distribution& d, const char* what, Of of) {
  const std::vector<Tensor> given = ParametersOf(name, at, d);
  Call call(name, at, given);
  const DType type = ResultType(given);
  return internal::OfEach(internal::Widened(d, type), what, of).Cast(type);
}

}  // namespace

Tensor Mean(const Distribution& d, CallSite at) {
  return Asked("Mean", at, d, "has no closed form of its mean", MeanOf());
}
Tensor Variance(const Distribution& d, CallSite at) {
  return Asked("Variance", at, d, "has no closed form of its variance", VarianceOf());
}
Tensor Entropy(const Distribution& d, CallSite at) {
  return Asked("Entropy", at, d, "has no closed form of its entropy", EntropyOf());
}

Tensor KlDivergence(const Distribution& p, const Distribution& q, CallSite at) {
  std::vector<Tensor> given = ParametersOf("KlDivergence", at, p);
  for (const Tensor& t : ParametersOf("KlDivergence", at, q)) given.push_back(t);
  Call call("KlDivergence", at, given);
  const DType type = ResultType(given);
  const std::optional<Tensor> divergence = std::visit(
      [](const auto& a, const auto& b) -> std::optional<Tensor> {
        if constexpr (requires { KlOf()(a, b); }) {
          return KlOf()(a, b);
        } else {
          return std::nullopt;
        }
      },
      Widened(p, type), Widened(q, type));
  if (divergence.has_value()) return divergence->Cast(type);
  Fail("of a ", NameOf(p), " and a ", NameOf(q), " there is no closed form");
}

}  // namespace tessera
