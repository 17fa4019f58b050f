// Layers, pools and losses of networks that are no members of Tensor.
#pragma once

#include <optional>

#include "graph/tensor.h"

namespace tessera {

struct EmbeddingOptions {
  std::optional<int64_t> padding = {};  // a row without a derivative; may count from the end
  // No row has a p-norm above that: longer ones are made shorter, which their derivative ignores.
  std::optional<double> most = {};
  double p = 2;
  bool by_frequency = false;  // a row's derivative is over how often the index names it
};
// The rows of a table [rows, E] at an index.
Tensor Embedding(const Tensor& table, const Tensor& index, const EmbeddingOptions& options,
                 CallSite at = CallSite::Here());
enum class BagMode : uint8_t { kSum, kMean, kMax };
// For each row of an index [N, L] what the rows of a table [rows, E] come to that it names: [N, E].
// Those that are outside, or `padding`, do not count; of none that counts it is 0. Weights, of the
// index's shape, are for sums.
Tensor EmbeddingBag(const Tensor& table, const Tensor& index, BagMode mode = BagMode::kMean,
                    std::optional<int64_t> padding = {}, const Tensor& weights = {},
                    CallSite at = CallSite::Here());
// The same of a vector [L] of bags one after another, which begin at the offsets [N], in order.
Tensor EmbeddingBag(const Tensor& table, const Tensor& index, const Tensor& offsets,
                    BagMode mode = BagMode::kMean, std::optional<int64_t> padding = {},
                    const Tensor& weights = {}, CallSite at = CallSite::Here());

// Tensor::AdaptiveMaxPool with the first position of each maximum in the pooled axes, flattened, as
// i64; a maximum has the derivative of the element there.
ValuesAndIndices AdaptiveMaxPoolWithIndices(const Tensor& x, const Ints& extents,
                                            CallSite at = CallSite::Here());
// The same of windows of one size whose distances vary by samples u [N, C, axes] from 0 to 1, drawn
// if there are none: along an axis of n elements window i of m begins at floor((i + u) a) -
// floor(u a), a = (n - size) / (m - 1), the last one ends the axis (Graham, 2015).
ValuesAndIndices FractionalMaxPool(const Tensor& x, const Ints& size, const Ints& extents,
                                   const Tensor& samples = {}, CallSite at = CallSite::Here());

// x^T W_k y + bias_k of vectors [..., A] and [..., B], for each of the weights [out, A, B].
Tensor Bilinear(const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& bias = {},
                CallSite at = CallSite::Here());
// Each element with probability p what Selu has at -infinity, all scaled so that mean and variance
// stay what they are of a normal input.
Tensor AlphaDropout(const Tensor& x, double p = 0.5, CallSite at = CallSite::Here());
// Slices along an axis whose p-norm is above `most`, made so much smaller that it is not.
Tensor Renorm(const Tensor& x, double p, int axis, double most, CallSite at = CallSite::Here());

// (x + sqrt(x^2 + b)) / 2.
Tensor Squareplus(const Tensor& x, double b = 4, CallSite at = CallSite::Here());
// The probabilities along an axis that lie nearest to x: most may be 0 (Martins and Astudillo,
// 2016).
Tensor Sparsemax(const Tensor& x, int axis = -1, CallSite at = CallSite::Here());

// Of logits and targets from 0 to 1: BinaryCrossEntropyWithLogits times alpha, or 1 - alpha where
// the target is 0 (without alpha: 1), times the gamma-th power of what is left to the right
// probability (Lin et al., 2017).
Tensor SigmoidFocalLoss(const Tensor& x, const Tensor& target, std::optional<double> alpha = 0.25,
                        double gamma = 2, LossReduction = LossReduction::kNone,
                        CallSite at = CallSite::Here());

}  // namespace tessera
