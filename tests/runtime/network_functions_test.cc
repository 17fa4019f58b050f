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

// torch.nn.functional.embedding, and its derivatives
TEST(NetworkFunctions, Embedding) {
  const Tensor t = Waves({5, 3}), i = Tensor::From({{0, 4, 2}, {1, 1, 3}});
  const auto grad = [&](const EmbeddingOptions& o) {
    return Computed(Grad((Embedding(t, i, o) * Waves({2, 3, 3})).Sum(), {t})[0]);
  };
  EXPECT_EQ(Computed(Embedding(t, i, {.padding = 1})), Computed(t.Embedding(i)));
  ExpectNear(grad({.padding = 1}),
             {0, 0.644217687237691, 0.9854497299884601, 0, 0, 0, -0.8715757724135877,
              -0.9824526126243326, -0.6312666378723216, -0.87969575997167, -0.9791777291513174,
              -0.6181371122370347, 0.8632093666488739, 0.3349881501559051, -0.35078322768961984},
             1e-15);
  EXPECT_EQ(grad({.padding = -4}), grad({.padding = 1}));
  ExpectNear(grad({.by_frequency = true}),
             {0, 0.644217687237691, 0.9854497299884601, 0.4357064042863156, 0.4880424805340706,
              0.3108445523125367, -0.8715757724135877, -0.9824526126243326, -0.6312666378723216,
              -0.87969575997167, -0.9791777291513174, -0.6181371122370347, 0.8632093666488739,
              0.3349881501559051, -0.35078322768961984},
             1e-15);
  ExpectNear(Computed(Embedding(t, i, {.most = 1.1})),
             {0, 0.6018990907422223, 0.920715634175652, 0.8545989080882814, 0.3190983623493521,
              -0.36647912925192677, -0.6579403129196453, -0.7416396827882951, -0.4765343214019021,
              0.8632093666488739, 0.3349881501559051, -0.35078322768961984, 0.8632093666488739,
              0.3349881501559051, -0.35078322768961984, 0.015584740274901965, 0.6089583743316396,
              0.9159293697031327},
             1e-14);
  ExpectNear(Computed(Embedding(t, i, {.most = 0.9, .p = 1})),
             {0, 0.3557755875878226, 0.5442243571861887, 0.4993836858532005, 0.18646468516582546,
              -0.2141515705461129, -0.3156237615167761, -0.3557755951037744, -0.22860060716644648,
              0.5015481196848305, 0.19463722628456612, -0.20381459592788365, 0.5015481196848305,
              0.19463722628456612, -0.20381459592788365, 0.0091051710084536, 0.35577558801212406,
              0.5351191868267823},
             1e-14);
  EXPECT_EQ(grad({.most = 0.9}), grad({}));
  EXPECT_EQ(Embedding(t, Tensor::Zeros({2, 0}, kInt32), {.padding = 0, .most = 1}).shape(),
            Shape({2, 0, 3}));
  EXPECT_ERROR(Embedding(t, i, {.most = -1}), "Embedding", "a norm from 0 on");
  EXPECT_ERROR(Embedding(t, t, {.padding = 0}), "Embedding", "index");
}

// torch.nn.functional.embedding_bag of a vector, with an empty bag
TEST(NetworkFunctions, EmbeddingBagOfOffsets) {
  const Tensor t = Waves({5, 3}), i = Tensor::From({0, 4, 2, 1, 1, 3});
  const Tensor from = Tensor::From({0, 2, 2, 5});
  struct Row {
    BagMode mode;
    Values want, grad, padded;
  };
  const std::vector<Row> rows = {
      {BagMode::kSum,
       {0.8545989080882814, 0.9633160495870432, 0.6189706007365334, 0, 0, 0, 0.8548429608841601,
        -0.3124763123125224, -1.3328330932515613, 0.016813900484349713, 0.6569865987187891,
        0.9881682338770003},
       {0, 0.644217687237691, 0.9854497299884601, -1.7431515448271755, -1.9649052252486652,
        -1.2625332757446432, -0.8715757724135877, -0.9824526126243326, -0.6312666378723216,
        0.016813900484349713, 0.6569865987187891, 0.9881682338770003, 0, 0.644217687237691,
        0.9854497299884601},
       {0.8545989080882814, 0.9633160495870432, 0.6189706007365334, 0, 0, 0, -0.8715757724135877,
        -0.9824526126243326, -0.6312666378723216, 0.016813900484349713, 0.6569865987187891,
        0.9881682338770003}},
      {BagMode::kMean,
       {0.4272994540441407, 0.4816580247935216, 0.3094853003682667, 0, 0, 0, 0.28494765362805335,
        -0.10415877077084079, -0.44427769775052045, 0.016813900484349713, 0.6569865987187891,
        0.9881682338770003},
       {0, 0.3221088436188455, 0.49272486499423007, -0.5810505149423918, -0.6549684084162217,
        -0.4208444252482144, -0.2905252574711959, -0.32748420420811086, -0.2104222126241072,
        0.016813900484349713, 0.6569865987187891, 0.9881682338770003, 0, 0.3221088436188455,
        0.49272486499423007},
       {0.4272994540441407, 0.4816580247935216, 0.3094853003682667, 0, 0, 0, -0.8715757724135877,
        -0.9824526126243326, -0.6312666378723216, 0.016813900484349713, 0.6569865987187891,
        0.9881682338770003}},
      {BagMode::kMax,
       {0.8545989080882814, 0.644217687237691, 0.9854497299884601, 0, 0, 0, 0.8632093666488739,
        0.3349881501559051, -0.35078322768961984, 0.016813900484349713, 0.6569865987187891,
        0.9881682338770003},
       {},
       {0.8545989080882814, 0.644217687237691, 0.9854497299884601, 0, 0, 0, -0.8715757724135877,
        -0.9824526126243326, -0.6312666378723216, 0.016813900484349713, 0.6569865987187891,
        0.9881682338770003}}};
  for (const Row& r : rows) {
    const Tensor bags = EmbeddingBag(t, i, from, r.mode);
    ExpectNear(Computed(bags), r.want, 1e-15);
    ExpectNear(Computed(EmbeddingBag(t, i, from, r.mode, 1)), r.padded, 1e-15);
    if (r.grad.empty()) continue;
    ExpectNear(Computed(Grad((bags * Waves({4, 3})).Sum(), {t})[0]), r.grad, 1e-15);
  }
  ExpectNear(Computed(EmbeddingBag(t, i, from, BagMode::kSum, {}, Waves({6}))),
             {0.5505477320844887, 0.20556880899403432, -0.2360923370675591, 0, 0, 0,
              0.17540121001185305, -0.5667756921612739, -1.0423891301964703, -0.005898034281952255,
              -0.2304598796474019, -0.34663284257972526},
             1e-15);
  const Tensor none = Tensor::Zeros({0}, kInt32);
  EXPECT_EQ(EmbeddingBag(t, i, none).shape(), Shape({0, 3}));
  EXPECT_EQ(Computed(EmbeddingBag(t, none, from)), Values(12, 0));
  EXPECT_ERROR(EmbeddingBag(t, Tensor::From({{0, 1}}), from), "EmbeddingBag", "offsets [N]");
}

// torch.nn.functional.adaptive_max_pool2d and 1d with return_indices
TEST(NetworkFunctions, AdaptiveMaxPoolWithIndices) {
  const Tensor x = Waves({1, 2, 5, 7});
  const auto [values, at] = AdaptiveMaxPoolWithIndices(x, {3, 4});
  ExpectNear(Computed(values),
             {0.644217687237691,   0.9854497299884601, 0.9881682338770003,  0.8545989080882814,
              0.8457468311429343,  0.6569865987187891, 0.9881682338770003,  0.9906073556948704,
              0.9927664058359067,  0.9927664058359067, 0.28705265132772845, 0.05042268780681122,
              0.06720807252547492, 0.9946447738778378, 0.9962419287548636,  0.9962419287548636,
              0.9975574189078047,  0.8079734036669851, 0.9962419287548636,  0.9962419287548636,
              0.9975574189078047,  0.9985908724117705, 0.7979521167226351,  -0.45832545449175954},
             1e-15);
  EXPECT_EQ(Computed(at), (Values{1, 2, 11, 12, 21, 10, 11, 20, 29, 29, 31, 27,
                                  1, 3, 12, 12, 21, 22, 12, 12, 21, 30, 31, 33}));
  EXPECT_EQ(at.dtype(), kInt64);
  const auto [row_values, row_at] = AdaptiveMaxPoolWithIndices(Waves({2, 3, 5}), {2});
  ExpectNear(Computed(row_values),
             {0.9854497299884601, 0.9854497299884601, -0.35078322768961984, 0.016813900484349713,
              0.9881682338770003, 0.8545989080882814, -0.6181371122370347, 0.669569762196601,
              0.9906073556948704, 0.303118356745704, 0.05042268780681122, 0.9927664058359067},
             1e-15);
  EXPECT_EQ(Computed(row_at), (Values{2, 2, 0, 4, 1, 2, 2, 4, 0, 2, 2, 4}));
  // The first of equals, and NaN.
  const Tensor same = Tensor::From({{-kInf, -kInf, 1., kNan, 2., kNan}});
  EXPECT_EQ(Computed(AdaptiveMaxPoolWithIndices(same, {2}).indices), (Values{2, 3}));
  EXPECT_EQ(Computed(AdaptiveMaxPoolWithIndices(Tensor::Full({1, 6}, -kInf), {4}).indices),
            (Values{0, 1, 3, 4}));
  const Tensor ones = Tensor::Ones({1, 2, 4}, kFloat64);
  EXPECT_EQ(Computed(Grad(AdaptiveMaxPoolWithIndices(ones, {1, 2}).values.Sum(), {ones})[0]),
            (Values{1, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(AdaptiveMaxPoolWithIndices(x, {3, 0}).indices.shape(), Shape({1, 2, 3, 0}));
  EXPECT_ERROR(AdaptiveMaxPoolWithIndices(Waves({3}), {2}), "AdaptiveMaxPoolWithIndices",
               "fewer than those of f64[3]");
}

// torch.nn.functional.fractional_max_pool2d, whose samples begin with the last axis
TEST(NetworkFunctions, FractionalMaxPool) {
  const Tensor x = Waves({1, 2, 7, 6}), u = Tensor::From({{{0.3, 0.7}, {0.9, 0.05}}}, kFloat64);
  const auto [values, at] = FractionalMaxPool(x, {2, 3}, {4, 3}, u);
  ExpectNear(Computed(values),
             {0.9854497299884601, 0.9854497299884601, 0.9881682338770003, 0.9906073556948704,
              0.9906073556948704, 0.8457468311429343, 0.9906073556948704, 0.9906073556948704,
              0.9927664058359067, 0.9946447738778378, 0.9946447738778378, 0.8273279005953806,
              0.8177662545264458, 0.2546823328440351, 0.9962419287548636, 0.9975574189078047,
              0.9975574189078047, 0.9985908724117705, 0.7979521167226351, 0.22202401219308238,
              0.9985908724117705, 0.9993419970813103, 0.9993419970813103, 0.9998105805530252},
             1e-15);
  EXPECT_EQ(Computed(at), (Values{2, 2, 11, 20, 20, 21, 20, 20, 29, 38, 38, 39,
                                  6, 7, 5,  14, 14, 23, 24, 25, 23, 32, 32, 41}));
  // Drawn: each is the largest of some window, the last one at the end.
  Tensor::ManualSeed(5);
  const Tensor up = Tensor::Arange(30, kFloat64).Reshape({1, 1, 30});
  const Values drawn = Computed(FractionalMaxPool(up, {2}, {13}).values);
  for (size_t i = 1; i < drawn.size(); ++i) {
    EXPECT_TRUE(drawn[i] - drawn[i - 1] == 2 || drawn[i] - drawn[i - 1] == 3) << i;
  }
  EXPECT_EQ(drawn.back(), 29);
  EXPECT_EQ(Computed(FractionalMaxPool(up, {2}, {1}).values), Values{29});
  EXPECT_ERROR(FractionalMaxPool(x, {2, 3}, {8, 3}), "FractionalMaxPool", "axis 2");
  EXPECT_ERROR(FractionalMaxPool(x, {2, 3}, {4, 3}, Waves({2})), "FractionalMaxPool", "[1, 2, 2]");
}

}  // namespace
}  // namespace tessera
