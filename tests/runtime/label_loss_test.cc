// Losses of several labels and of sequences: PyTorch's values and derivatives, and errors.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "graph/grad.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

std::vector<double> Computed(const Tensor& t) { return t.Cast(kFloat64).ToVector<double>(); }

// sin(0.7 i)
Tensor Waves(const Dims& shape) {
  const Extent n = Shape(shape.extents()).Elements();
  return (Tensor::Arange(n, kFloat64) * 0.7).Sin().Reshape(shape).To("CPU");
}

constexpr LossReduction kNone = LossReduction::kNone, kSum = LossReduction::kSum;

TEST(LabelLoss, MultiLabel) {
  const Tensor x = Waves({2, 4}), labels = Tensor::From({{3, 0, -1, 1}, {-1, 0, 1, 2}});
  ExpectNear(Computed(x.MultiLabelMarginLoss(labels, kNone)), {1.3832290252886386, 0}, 1e-14);
  ExpectNear(Computed(x.MultiLabelMarginLoss(labels)), {0.6916145126443193}, 1e-14);
  const Tensor y = Tensor::From({{1., 0., 1., 0.}, {0., 0., 1., 1.}});
  ExpectNear(Computed(x.MultiLabelSoftMarginLoss(y, kNone)), {0.822935087065044, 0.982288661544086},
             1e-14);
  ExpectNear(
      Computed(x.MultiLabelSoftMarginLoss(y, LossReduction::kMean, Tensor::From({1., 2., 3., 4.}))),
      {2.4304333475070354}, 1e-14);
  ExpectNear(Computed(x.PairwiseDistance(y)), {1.4698161569853578, 2.7691465160075692}, 1e-14);
  const Tensor apart = x.PairwiseDistance(y, 1, 1e-6, true);
  EXPECT_EQ(apart.shape(), Shape({2, 1}));
  ExpectNear(Computed(apart), {2.521977323898105, 4.539797762883445}, 1e-14);
  EXPECT_ERROR(x.MultiLabelMarginLoss(Tensor::From({1, 2})), "MultiLabelMarginLoss", "shape");
  EXPECT_ERROR(Tensor::Scalar(1.).MultiLabelMarginLoss(Tensor::Scalar(0)), "MultiLabelMarginLoss",
               "takes logits [..., classes]");
}

// The second has equal neighbours, the third and the fourth end before the last step, and the
// fourth has too few of them.
struct Sequences {
  Tensor logits = Waves({6, 4, 4});
  Tensor target = Tensor::From({{1, 2, 3}, {1, 1, 2}, {3, 0, 0}, {2, 2, 2}});
  Tensor steps = Tensor::From({6, 5, 4, 4}), lengths = Tensor::From({3, 3, 1, 3});
  Tensor Loss(LossReduction reduction, bool zero_infinity = false) const {
    return logits.LogSoftmax(2).CtcLoss(target, steps, lengths, 0, reduction, zero_infinity);
  }
};

TEST(LabelLoss, Ctc) {
  const Sequences s;
  const std::vector<double> each = {4.60352495751691, 5.228516389983972, 2.597670947425672, kInf};
  ExpectNear(Computed(s.Loss(kNone)), each, 1e-13);
  ExpectNear(Computed(s.Loss(kSum)), {kInf});
  ExpectNear(Computed(s.Loss(kSum, true)), {12.429712294926556}, 1e-13);
  ExpectNear(Computed(s.Loss(LossReduction::kMean, true)),
             {(each[0] / 3 + each[1] / 3 + each[2]) / 4}, 1e-13);
  ExpectNear(Computed(s.logits.Cast(kFloat32).LogSoftmax(2).CtcLoss(s.target, s.steps, s.lengths, 0,
                                                                    kNone)),
             each, 1e-5);
  // Of no labels at all: nothing but blanks.
  Sequences none;
  none.lengths = Tensor::From({0, 3, 1, 2});
  ExpectNear(Computed(none.Loss(kNone)),
             {10.01135791263436, 5.228516389983972, 2.597670947425672, 4.765588389929695}, 1e-13);
  none.target = Tensor::Zeros({4, 0}, kInt32);
  none.lengths = Tensor::Zeros({4}, kInt32);
  EXPECT_NEAR(Computed(none.Loss(kNone))[0], 10.01135791263436, 1e-13);
}

TEST(LabelLoss, DerivativeOfCtc) {
  const Sequences s;
  const auto grad = Computed(Grad(s.Loss(kSum, true), {s.logits})[0]);
  const std::vector<double> torch = {-0.06251908871,
                                     -0.572331564474,
                                     0.336802297528,
                                     0.298048355656,
                                     0.377676263051,
                                     -0.651511765826,
                                     0.144500488492,
                                     0.129335014283,
                                     -0.066305379951,
                                     0.164979020693,
                                     0.312933596643,
                                     -0.411607237384,
                                     0.0,
                                     0.0,
                                     0.0,
                                     0.0,
                                     -0.080256980831,
                                     -0.282170251254,
                                     -0.138166630117,
                                     0.500593862203,
                                     -0.460273385053,
                                     0.171777849199,
                                     0.191819532171,
                                     0.096676003683,
                                     -0.039398547016,
                                     0.157954035001,
                                     0.228856977502,
                                     -0.347412465486,
                                     0.0,
                                     0.0,
                                     0.0,
                                     0.0};
  ExpectNear({grad.begin(), grad.begin() + 32}, torch, 1e-11);
  for (const double g : grad) EXPECT_TRUE(std::isfinite(g));
}

struct CtcCase {
  int64_t steps, n, labels, classes;
  std::vector<int> input_lengths, target_lengths;
  std::function<Tensor(const Tensor&)> label;  // of 0, 1, ...
  std::vector<double> each;
  double mean, squares, most;  // of the derivative by the logits
};

// torch.nn.functional.ctc_loss of (3 sin(0.7 i)).log_softmax(2): steps that are too few or none, of
// labels that repeat or none; then the mean with zero_infinity, and what its derivative comes to.
TEST(LabelLoss, CtcAtItsEdgesSlow) {
  const auto mixed = [](int k) { return [k](const Tensor& i) { return i * 7 % k + 1; }; };
  const auto pairs = [](int k) { return [k](const Tensor& i) { return i.FloorDiv(2) % k + 1; }; };
  const auto same = [](const Tensor& i) { return i * 0 + 2; };
  const std::vector<CtcCase> cases = {{7,
                                       3,
                                       4,
                                       5,
                                       {7, 3, 5},
                                       {4, 4, 0},
                                       mixed(4),
                                       {6.292018585152473, kInf, 16.17999887110897},
                                       5.917667839132363,
                                       5.247685329110827,
                                       0.6831499479765272},
                                      {9,
                                       4,
                                       3,
                                       3,
                                       {9, 0, 0, 1},
                                       {3, 0, 2, 1},
                                       pairs(2),
                                       {5.528386737860185, 0, kInf, 1.3473774775921825},
                                       0.7975432642197278,
                                       0.7525564703104464,
                                       0.5264943679747394},
                                      {5,
                                       2,
                                       0,
                                       4,
                                       {5, 3},
                                       {0, 0},
                                       mixed(3),
                                       {17.73481985056436, 0.9514180544485228},
                                       9.343118952506442,
                                       15.572690664237154,
                                       1.274954042010306},
                                      {1,
                                       2,
                                       2,
                                       3,
                                       {1, 1},
                                       {1, 2},
                                       mixed(2),
                                       {1.3681882898817297, kInf},
                                       0.6840941449408648,
                                       2.3830044630810407,
                                       1.0628701594177863},
                                      {12,
                                       2,
                                       5,
                                       6,
                                       {12, 11},
                                       {5, 5},
                                       same,
                                       {22.956726020069706, 29.8669409756215},
                                       5.2823666995691205,
                                       1.10699314846289,
                                       0.2085124655646726},
                                      {200,
                                       2,
                                       20,
                                       30,
                                       {200, 150},
                                       {20, 20},
                                       pairs(29),
                                       {853.3670523033464, 611.7239319480832},
                                       36.62727460628574,
                                       0.82964757245242,
                                       0.011430208146722728}};
  for (const CtcCase& c : cases) {
    SCOPED_TRACE(c.steps);
    const Tensor logits = Waves({c.steps, c.n, c.classes}).Realize();
    const Tensor target = c.label(Tensor::Arange(c.n * c.labels)).Reshape({c.n, c.labels});
    const auto loss = [&](LossReduction reduction, bool zero_infinity) {
      return (logits * 3)
          .LogSoftmax(2)
          .CtcLoss(target, Tensor::From(c.input_lengths), Tensor::From(c.target_lengths), 0,
                   reduction, zero_infinity);
    };
    ExpectNear(Computed(loss(kNone, false)), c.each, 1e-12);
    const Tensor mean = loss(LossReduction::kMean, true), grad = Grad(mean, {logits})[0];
    ExpectNear(Computed(mean), {c.mean}, 1e-12);
    ExpectNear(Computed(grad.Square().Sum()), {c.squares}, 1e-11);
    ExpectNear(Computed(grad.Max()), {c.most}, 1e-11);
  }
}

// Against every path, written out.
TEST(LabelLoss, CtcOfAllPaths) {
  const Tensor logs = Waves({4, 1, 3}).LogSoftmax(2).Realize();
  const auto p = Computed(logs);
  const std::vector<std::vector<int>> targets = {{1, 2}, {2, 2}, {2}, {1, 2, 1}};
  for (const auto& target : targets) {
    double sum = 0;
    for (int path = 0; path < 81; ++path) {
      std::vector<int> spelt;
      double log = 0;
      int before = 0;
      for (int t = 0, rest = path; t < 4; ++t, rest /= 3) {
        const int label = rest % 3;
        log += p[3 * t + label];
        if (label != 0 && label != before) spelt.push_back(label);
        before = label;
      }
      if (spelt == target) sum += std::exp(log);
    }
    const auto n = static_cast<int64_t>(target.size());
    const Tensor loss = logs.CtcLoss(Tensor::From(target).Reshape({1, n}), Tensor::From({4}),
                                     Tensor::Full({1}, n, kInt32));
    EXPECT_NEAR(Computed(loss * n)[0], -std::log(sum), 1e-12);
  }
}

TEST(LabelLoss, CtcOfManySteps) {
  const Tensor logits = Waves({120, 2, 5}).Cast(kFloat32).Realize();
  const Tensor target = Tensor::From({{1, 2, 3, 4}, {2, 2, 1, 3}});
  const Tensor loss =
      logits.LogSoftmax(2).CtcLoss(target, Tensor::From({120, 100}), Tensor::From({4, 4}));
  const auto grad = Computed(Grad(loss, {logits})[0]);
  double sum = 0;
  for (const double g : grad) {
    EXPECT_TRUE(std::isfinite(g));
    sum += g;
  }
  EXPECT_NEAR(sum, 0, 1e-3);
}

TEST(LabelLoss, CtcRefuses) {
  const Sequences s;
  EXPECT_ERROR(s.logits.CtcLoss(s.target, s.steps, s.lengths, 4), "CtcLoss", "blank 4");
  EXPECT_ERROR(s.logits.CtcLoss(s.target, s.steps, s.target), "CtcLoss", "their lengths");
  EXPECT_ERROR(s.logits.CtcLoss(s.logits, s.steps, s.lengths), "CtcLoss", "index");
}

}  // namespace
}  // namespace tessera
