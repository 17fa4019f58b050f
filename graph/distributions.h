// Distributions by their parameters: densities, shares, moments, draws, and how far one is from
// another.
//
//   const GammaDistribution prior{.shape = a, .rate = b};
//   Tensor loss = -LogProb(prior, x).Sum() + KlDivergence(posterior, prior).Sum();
//
// Parameters are tensors that broadcast together, to their batch, and with x; results have the
// float dtype in which they meet, computed in f32 at least. Where a parameter lies outside its
// domain, which is not checked, they are NaN or have no meaning. Where a distribution has no closed
// form of what is asked for, that is an Error.
#pragma once

#include <variant>

#include "graph/tensor.h"

namespace tessera {

// ---- of real numbers
struct NormalDistribution {
  Tensor mean, deviation;
};
struct LogNormalDistribution {
  Tensor mean, deviation;  // of the logarithm
};
struct HalfNormalDistribution {
  Tensor deviation;  // of the normal one, whose magnitudes these are
};
struct LaplaceDistribution {
  Tensor mean, scale;
};
struct CauchyDistribution {
  Tensor median, scale;
};
struct LogisticDistribution {
  Tensor mean, scale;
};
struct GumbelDistribution {
  Tensor mode, scale;
};
struct StudentTDistribution {
  Tensor degrees, center, scale;
};
struct UniformDistribution {
  Tensor low, high;
};
struct ExponentialDistribution {
  Tensor rate;
};
struct GammaDistribution {
  Tensor shape, rate;
};
struct InverseGammaDistribution {
  Tensor shape, rate;  // of the gamma one, of whose numbers these are the reciprocals
};
struct BetaDistribution {
  Tensor a, b;
};
struct WeibullDistribution {
  Tensor shape, scale;
};
struct ParetoDistribution {
  Tensor shape, scale;  // the scale is the least x
};
struct VonMisesDistribution {
  Tensor mean, concentration;  // of angles
};

// ---- of whole numbers
struct BernoulliDistribution {
  Tensor logits;
};
struct BinomialDistribution {
  Tensor trials, logits;
};
struct GeometricDistribution {
  Tensor logits;  // x failures come before the first success
};
struct NegativeBinomialDistribution {
  Tensor failures, logits;  // x successes come before so many failures, a number above 0
};
struct PoissonDistribution {
  Tensor rate;
};
struct CategoricalDistribution {
  Tensor logits;  // [..., classes]; x is the position of a class
};

// ---- of vectors, the last axis
struct MultinomialDistribution {
  Tensor logits;  // [..., classes]; x is how often each class was drawn, of as many trials
};
struct DirichletDistribution {
  Tensor concentration;
};
struct MultivariateNormalDistribution {
  Tensor mean, cholesky;  // the lower L [..., N, N] of the covariance L L^T; graphs grow with N
};

using Distribution =
    std::variant<NormalDistribution, LogNormalDistribution, HalfNormalDistribution,
                 LaplaceDistribution, CauchyDistribution, LogisticDistribution, GumbelDistribution,
                 StudentTDistribution, UniformDistribution, ExponentialDistribution,
                 GammaDistribution, InverseGammaDistribution, BetaDistribution, WeibullDistribution,
                 ParetoDistribution, VonMisesDistribution, BernoulliDistribution,
                 BinomialDistribution, GeometricDistribution, NegativeBinomialDistribution,
                 PoissonDistribution, CategoricalDistribution, MultinomialDistribution,
                 DirichletDistribution, MultivariateNormalDistribution>;

// The logarithm of the density at x, or of the probability of a whole x: -inf outside the support.
// Of vectors and classes there is one number for each.
Tensor LogProb(const Distribution& d, const Tensor& x, CallSite at = CallSite::Here());
// The probability of what is no more than x.
Tensor Cdf(const Distribution& d, const Tensor& x, CallSite at = CallSite::Here());

Tensor Mean(const Distribution& d, CallSite at = CallSite::Here());
Tensor Variance(const Distribution& d, CallSite at = CallSite::Here());  // of each element
Tensor Entropy(const Distribution& d, CallSite at = CallSite::Here());   // in nats

// Of the batch, with axes of that shape before it. Derivatives go through locations and scales, and
// through rates that are scales; to them RandGamma and what is made of it are constants, as whole
// numbers are.
Tensor Draw(const Distribution& d, const Dims& shape = {}, CallSite at = CallSite::Here());

// The mean, over what p gives, of ln p - ln q: of two of a kind, and of some pairs of kinds.
Tensor KlDivergence(const Distribution& p, const Distribution& q, CallSite at = CallSite::Here());

}  // namespace tessera
