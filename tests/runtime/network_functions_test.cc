// Layers and losses that are no members of Tensor: PyTorch's values, of sin(0.7 i); and errors.
#include "graph/network_functions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "graph/grad.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/waves.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

// torch.nn.functional.embedding_bag
TEST(NetworkFunctions, EmbeddingBag) {
  const Tensor t = Waves({5, 3}), i = Tensor::From({{0, 4, 2}, {1, 1, 3}});
  const Values sum = {-0.016976864325306318, -0.01913656303728939, -0.012296037135788196,
                      1.7432326337820976,    1.3269628990305993,   0.2866017784977606};
  const Values alone = {0.016813900484349713, 0.6569865987187891, 0.9881682338770003};
  Values mean = sum;
  for (double& x : mean) x /= 3;
  ExpectNear(Computed(EmbeddingBag(t, i)), mean, 1e-15);
  ExpectNear(Computed(EmbeddingBag(t, i, BagMode::kSum)), sum, 1e-15);
  ExpectNear(Computed(EmbeddingBag(t, i, BagMode::kMax)),
             {0.8545989080882814, 0.644217687237691, 0.9854497299884601, 0.8632093666488739,
              0.6569865987187891, 0.9881682338770003},
             1e-15);
  for (const BagMode mode : {BagMode::kSum, BagMode::kMean, BagMode::kMax}) {
    const Tensor padded = EmbeddingBag(t, i, mode, 1);
    ExpectNear(Computed(padded.Select(0, 1)), alone, 1e-15);
    // Of none that counts.
    EXPECT_EQ(Computed(EmbeddingBag(t, Tensor::From({{-1, 5}}), mode)), Values(3, 0));
    EXPECT_EQ(Computed(EmbeddingBag(t, Tensor::Zeros({2, 0}, kInt32), mode)), Values(6, 0));
  }
  ExpectNear(Computed(EmbeddingBag(t, i, BagMode::kSum, {}, Waves({2, 3}))),
             {-0.30834637750496496, -0.7625888528430715, -0.8581738749095615, 1.0283972853193544,
              0.17092209002843006, -0.7669404349341932},
             1e-14);
  const Tensor weights = Tensor::From({{1., 2., 3.}, {kNan, kInf, 1.}}).Cast(kFloat64);
  const Tensor padded = EmbeddingBag(t, i, BagMode::kSum, 1, weights);
  ExpectNear(Computed(padded.Select(0, 1)), alone, 1e-15);
  EXPECT_ERROR(EmbeddingBag(t, i, BagMode::kMean, {}, Waves({2, 3})), "EmbeddingBag", "sums alone");
  EXPECT_ERROR(EmbeddingBag(t, t), "EmbeddingBag", "index");
}

TEST(NetworkFunctions, Bilinear) {
  ExpectNear(Computed(Bilinear(Waves({2, 3}), Waves({2, 4}), Waves({2, 3, 4}), Waves({2}))),
             {0.2440336720161858, 1.2876404601135187, -0.3942498139939902, 1.4977148349793523},
             1e-14);
  EXPECT_EQ(Bilinear(Waves({3}), Waves({4}), Waves({2, 3, 4})).shape(), Shape({2}));
  EXPECT_ERROR(Bilinear(Waves({3}), Waves({4}), Waves({3, 4})), "Bilinear", "[out, A, B]");
}

TEST(NetworkFunctions, AlphaDropout) {
  Tensor::ManualSeed(3);
  const Tensor x = Tensor::RandN({40000}), y = AlphaDropout(x, 0.3).Realize();
  EXPECT_NEAR(y.Mean().Item(), 0, 0.03);
  EXPECT_NEAR(y.Std().Item(), 1, 0.03);
  EXPECT_EQ(Computed(AlphaDropout(Waves({5}), 0)), Computed(Waves({5})));
  EXPECT_ERROR(AlphaDropout(x, 1), "AlphaDropout", "below 1");
}

TEST(NetworkFunctions, Renorm) {
  ExpectNear(Computed(Renorm(Waves({2, 3, 2}), 2, 1, 1)),
             {0, 0.44039109095476553, 0.6776056446580588, 0.593551879475206, 0.26131313098968895,
              -0.2736343464196645, -0.5958144473008588, -0.6716105230518977, -0.4340656089190962,
              0.011561415595545042, 0.5124934271542824, 0.770837222208525},
             1e-14);
  ExpectNear(Computed(Renorm(Waves({3, 2}), 1, 0, 0.8)),
             {0, 0.644217687237691, 0.4264494967080873, 0.3735504600173058, 0.3349881501559051,
              -0.35078322768961984},
             1e-14);
  EXPECT_ERROR(Renorm(Waves({3}), 2, 0, -1), "Renorm", "a norm from 0 on");
}

TEST(NetworkFunctions, Activations) {
  const Tensor x = Waves({2, 4}) * 2;
  ExpectNear(Computed(Sparsemax(x)), {0, 0, 0.6222403633395861, 0.3777596366604137, 1, 0, 0, 0},
             1e-14);
  ExpectNear(Computed(Sparsemax(x.Transpose(), 0).Transpose()), Computed(Sparsemax(x)), 0);
  // Elements above 0 share alike in what is taken off.
  ExpectNear(Computed(Grad(Sparsemax(x).Select(1, 2).Sum(), {x})[0]), {0, 0, 0.5, -0.5, 0, 0, 0, 0},
             1e-14);
  EXPECT_EQ(Computed(Sparsemax(Tensor::Scalar(4.))), Values{1});
  EXPECT_EQ(Sparsemax(Tensor::Zeros({2, 0})).shape(), Shape({2, 0}));
  ExpectNear(Computed(Squareplus(x)),
             {1, 1.833762317989257, 2.38941239699009, 2.1842432082556473, 1.3896051710430493,
              0.708956774777187, 0.4549400876719003, 0.4194079853141274},
             1e-14);
  EXPECT_EQ(Squareplus(Tensor::From({1, 2})).dtype(), kFloat32);
}

// torchvision.ops.sigmoid_focal_loss
TEST(NetworkFunctions, SigmoidFocalLoss) {
  const Tensor x = Waves({2, 4}) * 2;
  const Tensor y = Tensor::From({{0., 1., 1., 0.}, {1., 0., 0.25, 1.}});
  ExpectNear(
      Computed(SigmoidFocalLoss(x, y)),
      {0.12996509635498973, 0.0028432404281551454, 0.00048770211123741355, 1.0217156402153011,
       0.011837887143354115, 0.03318044570967077, 0.03928153239915423, 0.4030970901502025},
      1e-13);
  ExpectNear(Computed(SigmoidFocalLoss(x, y, {}, 1.5, LossReduction::kMean)), {0.46798519207796685},
             1e-13);
  ExpectNear(Computed(SigmoidFocalLoss(x, y, {}, 0)),
             Computed(x.BinaryCrossEntropyWithLogits(y, LossReduction::kNone)), 1e-15);
  EXPECT_ERROR(SigmoidFocalLoss(x, y, 2), "SigmoidFocalLoss", "alpha from 0 to 1");
}

}  // namespace
}  // namespace tessera
