// Optimisers: PyTorch's values, steps that are captured, spread or in narrow floats, and errors.
#include "runtime/optimizer.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "runtime/capture.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

const std::vector<double> kStart = {0.5, -1, 2, 0.25, -0.125, 1.5};

Tensor Start(DType dtype = kFloat64) { return Tensor::From(kStart, {2, 3}).Cast(dtype).Realize(); }

// Whose gradient is 2 n (w - c), n from 1 to 6.
Tensor LossOf(const Tensor& w) {
  const Tensor c = Tensor::From({{1., 2., -1.}, {0.5, 0., 3.}}).To(w.device());
  const Tensor n = Tensor::Arange(1, 7).Reshape({2, 3});
  return ((w - c).Square() * n).Sum();
}

// Steps, the latter half of half the rate.
template <typename Options>
std::vector<double> Steps(Tensor w, const Options& options, bool captured, int n = 4) {
  Optimizer optimizer({w}, options);
  Jit step([&](const std::vector<Tensor>&) {
    LossOf(w).Backward();
    optimizer.Step();
  });
  for (int i = 0; i < n; ++i) {
    if (2 * i == n) optimizer.SetRate(options.rate / 2);
    if (captured) {
      step({});
    } else {
      LossOf(w).Backward();
      optimizer.Step();
    }
    EXPECT_FALSE(w.grad());
  }
  return w.Cast(kFloat64).ToVector<double>();
}

// torch.optim gave these for the same steps in f64: of w = torch.tensor(...).requires_grad_(), four
// times (((w - c) ** 2) * n).sum().backward(), step() and zero_grad(), with 'lr' halved after two.
template <typename Options>
void ExpectSteps(const Options& options, const std::vector<double>& torch) {
  for (const bool captured : {false, true}) {
    SCOPED_TRACE(captured);
    ExpectNear(Steps(Start(), options, captured), torch, 1e-13);
    ExpectNear(Steps(Start(kFloat32), options, captured), torch, 1e-6);
    ExpectNear(Steps(Start(kBFloat16), options, captured), torch, 2e-2);
  }
}

TEST(Optimizer, Sgd) {
  ExpectSteps(SgdOptions{.rate = 0.02},
              {0.55744768, -0.34012672, 1.05277952, 0.35069504, -0.0648, 2.32905984});
}

TEST(Optimizer, SgdWithMomentumAndDecay) {
  SgdOptions options{.rate = 0.02, .momentum = 0.9, .weight_decay = 0.1};
  ExpectSteps(options, {0.608219061482, 0.31600199143599994, 0.11164347976799986, 0.445325434861,
                        -0.006087801550500004, 3.099729665646});
  options.nesterov = true;
  ExpectSteps(options, {0.6457715605210322, 0.7043822602045756, -0.3490128517200071,
                        0.4831379522755681, 0.011055451404163957, 3.2530146336176164});
}

TEST(Optimizer, Adam) {
  ExpectSteps(AdamOptions{.rate = 0.02, .weight_decay = 0.1, .coupled = true},
              {0.5598703936175558, -0.9400162808172838, 1.9400160975681082, 0.309709228153988,
               -0.06581751897538397, 1.5599662016475695});
  ExpectSteps(
      AdamOptions{.rate = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1},
      {0.5567120626515399, -0.9341711207808102, 1.9281867543695963, 0.30798072259681686,
       -0.06549627377956467, 1.550845273652659});
}

TEST(Optimizer, AmsGrad) {
  ExpectSteps(AdamOptions{.rate = 0.02, .beta2 = 0.5, .amsgrad = true},
              {0.5604790406952772, -0.9399226335314486, 1.9399226335146496, 0.3107954378511413,
               -0.06511679214180048, 1.5601557060719873});
}

TEST(Optimizer, Nadam) {
  ExpectSteps(NadamOptions{.rate = 0.02},
              {0.5506766732739469, -0.9486866507148876, 1.9486866507006222, 0.2998518084509204,
               -0.07701327379236361, 1.5511895588055036});
  ExpectSteps(NadamOptions{.rate = 0.02,
                           .beta1 = 0.8,
                           .beta2 = 0.95,
                           .eps = 1e-6,
                           .weight_decay = 0.1,
                           .decoupled = true,
                           .momentum_decay = 0.1},
              {0.552304805616954, -0.9380661025914088, 1.932092945378364, 0.3028797511215463,
               -0.07212202803809042, 1.5468852604952739});
}

TEST(Optimizer, Adamax) {
  ExpectSteps(AdamaxOptions{.rate = 0.02, .weight_decay = 0.1},
              {0.5584833314664145, -0.9401747488469527, 1.9401720940564273, 0.3071459439006748,
               -0.0705544359490537, 1.5595808490906575});
}

TEST(Optimizer, RmsProp) {
  ExpectSteps(RmsPropOptions{.rate = 0.02},
              {0.861633453839382, -0.561004346077837, 1.5610043451077151, 0.49614673502239676,
               -0.0028926214678888073, 1.9264318916948708});
  ExpectSteps(RmsPropOptions{.rate = 0.02,
                             .alpha = 0.9,
                             .eps = 1e-6,
                             .weight_decay = 0.1,
                             .momentum = 0.5,
                             .centered = true},
              {0.7198298581279287, -0.7648491755764955, 1.7648239690770433, 0.4488534621112494,
               0.02178295436840413, 1.73275234738216});
}

TEST(Optimizer, Adagrad) {
  ExpectSteps(AdagradOptions{.rate = 0.02},
              {0.5442599341323084, -0.955190440460695, 1.9551904404605958, 0.2935565049852434,
               -0.08300240775009499, 1.544702215134883});
  ExpectSteps(AdagradOptions{.rate = 0.02, .rate_decay = 0.1, .weight_decay = 0.1, .initial = 0.5},
              {0.5349167683516298, -0.9586239747560015, 1.9585954986942657, 0.28868173888910914,
               -0.08949124468971535, 1.5413130834202249});
}

TEST(Optimizer, Adadelta) {
  ExpectSteps(AdadeltaOptions{}, {0.5096921975241214, -0.9902767730873554, 1.9902767728953406,
                                  0.2596546971837455, -0.11542158533672221, 1.5097170529265707});
  ExpectSteps(AdadeltaOptions{.rho = 0.8, .eps = 1e-3, .weight_decay = 0.1},
              {0.6996965633486464, -0.779602892987087, 1.7795655791053568, 0.4255010724045539,
               -0.002906048425031699, 1.7170894809674235});
}

// By its definition; torch has none.
TEST(Optimizer, Lion) {
  ExpectSteps(LionOptions{.rate = 0.02}, {0.56, -0.94, 1.94, 0.31, -0.065, 1.56});
  const LionOptions options{.rate = 0.7, .beta1 = 0.5, .beta2 = 0.6, .weight_decay = 0.1};
  ExpectNear(
      Steps(Start(), options, true),
      {0.97304322625, 1.1404184725, -0.33500197, 0.843474100625, -0.1340570878125, 3.15395972875},
      1e-13);
}

TEST(Optimizer, Radam) {
  ExpectSteps(RadamOptions{.rate = 0.02},
              {0.5585667754591566, -0.3141527076996179, 0.9962950111679229, 0.35877801752046073,
               -0.058704132411000115, 2.4306780438992464});
  ExpectSteps(RadamOptions{.rate = 0.02,
                           .beta1 = 0.8,
                           .beta2 = 0.95,
                           .eps = 1e-6,
                           .weight_decay = 0.1,
                           .decoupled = true},
              {0.5554220078099512, -0.31233314852553995, 0.9926478598141611, 0.3564326512231191,
               -0.05877604604772208, 2.4111152584019804});
  // After the fifth step the spread is known.
  ExpectNear(Steps(Start(), RadamOptions{.rate = 0.02, .weight_decay = 0.1}, true, 8),
             {0.5830458690112701, 0.006239758616543763, 0.5459385557234312, 0.40231351603630855,
              -0.031267604879044314, 2.761653490728733},
             1e-13);
}

TEST(Optimizer, Adafactor) {
  ExpectSteps(AdafactorOptions{.rate = 0.02},
              {0.5406643668046265, -0.9134081073193615, 1.9381800747056745, 0.3368286514167508,
               -0.11439646788820926, 1.5734509643452754});
  ExpectSteps(
      AdafactorOptions{.rate = 0.3, .decay = -0.5, .eps1 = 1e-6, .eps2 = 1e-2, .weight_decay = 0.1},
      {0.8584959188311109, 0.23329711727594224, 0.9709464136358622, 0.49144336917580594,
       -0.014649113198101237, 2.3356082582554185});
  // What it remembers of a matrix is its rows and columns; of a vector, each element.
  const Optimizer of_matrix({Start()}, AdafactorOptions{});
  ASSERT_EQ(of_matrix.State().size(), 3u);
  EXPECT_EQ(of_matrix.State()[0].shape(), Shape({2, 1}));
  EXPECT_EQ(of_matrix.State()[1].shape(), Shape({1, 3}));
  Tensor vector = Start().Reshape({6}).Contiguous();
  Optimizer of_vector({vector}, AdafactorOptions{.rate = 0.02});
  for (int i = 0; i < 4; ++i) {
    if (i == 2) of_vector.SetRate(0.01);
    LossOf(vector.Reshape({2, 3})).Backward();
    of_vector.Step();
  }
  ExpectNear(vector.ToVector<double>(),
             {0.5658966940446677, -0.9329513978704403, 1.93295139787044, 0.31436748964029504,
              -0.06422715716849657, 1.566826627635715},
             1e-13);
}

// By optax's definition.
TEST(Optimizer, Lamb) {
  ExpectSteps(LambOptions{.rate = 0.02},
              {0.5674060839483599, -0.9324648448988131, 1.9324648430154594, 0.3171814233202899,
               -0.05857835481580643, 1.567513048021792});
  ExpectSteps(
      LambOptions{.rate = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1},
      {0.5625577969438391, -0.9272905968851505, 1.920678413158776, 0.3139537107995938,
       -0.05954187504322208, 1.5561574473204036});
  // From nothing on, where there is no norm to go by.
  Tensor w = Tensor::Zeros({2}, kFloat64).Realize();
  Optimizer optimizer({w}, LambOptions{.rate = 0.5, .eps = 0});
  w.Sum().Backward();
  optimizer.Step();
  ExpectNear(w.ToVector<double>(), {-0.5, -0.5}, 1e-15);
}

TEST(Optimizer, Rprop) {
  ExpectSteps(RpropOptions{.rate = 0.02}, {0.60736, -0.89264, 1.89264, 0.35736, -0.01764, 1.60736});
  ExpectSteps(RpropOptions{.rate = 0.3, .less = 0.4, .more = 1.5, .least = 0.01, .most = 0.5},
              {1.07, 0.75, 0.25, 0.43, -0.125, 3.25});
}

// PyTorch's with _zeropower_via_newtonschulz in f64, not bf16.
TEST(Optimizer, Muon) {
  ExpectSteps(MuonOptions{.rate = 0.02},
              {0.5065047001734775, -0.9437413049792965, 1.9678073587448868, 0.2616566087231728,
               -0.0845569091167385, 1.5340494383216334});
  Tensor w = Start().T().Contiguous();  // more rows than columns
  Optimizer optimizer(
      {w}, MuonOptions{.rate = 0.02, .momentum = 0.8, .nesterov = false, .weight_decay = 0.3});
  for (int i = 0; i < 4; ++i) {
    if (i == 2) optimizer.SetRate(0.01);
    LossOf(w.T()).Backward();
    optimizer.Step();
  }
  ExpectNear(w.ToVector<double>(),
             {0.5026822486216325, 0.26156954164253604, -0.9207367497993798, -0.07445470439217987,
              1.9396369699303615, 1.5256565413191423},
             1e-13);
  EXPECT_ERROR(Optimizer({Start().Reshape({6}).Contiguous()}, MuonOptions{}), "Optimizer",
               "Muon takes matrices, not f64[6]");
}

// Each rule on parameters that lie spread, its memory where they lie.
TEST(Optimizer, EveryRuleOnSpreadParameters) {
  const PlaceList places(std::vector<Place>{Place("CPU", 0), Place("CPU", 1)});
  const std::vector<OptimizerOptions> rules = {SgdOptions{.momentum = 0.9},
                                               AdamOptions{.amsgrad = true},
                                               NadamOptions{},
                                               AdamaxOptions{},
                                               RmsPropOptions{.momentum = 0.5, .centered = true},
                                               AdagradOptions{},
                                               AdadeltaOptions{},
                                               LionOptions{},
                                               RadamOptions{},
                                               LambOptions{},
                                               RpropOptions{},
                                               AdafactorOptions{},
                                               MuonOptions{}};
  for (const OptimizerOptions& rule : rules) {
    SCOPED_TRACE(rule.index());
    const auto alone = std::visit([](const auto& o) { return Steps(Start(), o, false); }, rule);
    const Tensor spread = Start().Shard(places, 1).Realize();
    ExpectNear(std::visit([&](const auto& o) { return Steps(spread, o, true); }, rule), alone,
               1e-13);
    Optimizer optimizer({spread}, rule);
    LossOf(spread).Backward();
    optimizer.Step();
    for (const Tensor& t : optimizer.State()) {
      EXPECT_EQ(t.device().places().size(), 2u);
      if (t.rank() == 0 || t.shape() == spread.shape()) {
        EXPECT_EQ(t.rank() == 2, t.device() == spread.device());
      }
    }
  }
}

TEST(Optimizer, ParametersStayWhereTheyAre) {
  const AdamOptions options{.rate = 0.02};
  const std::vector<double> alone = Steps(Start(), options, false);
  const PlaceList places(std::vector<Place>{Place("CPU", 0), Place("CPU", 1)});
  for (const int axis : {0, 1}) {  // of which 3 are uneven
    const Tensor spread = Start().Shard(places, axis).Realize();
    const Device device = spread.device();
    ExpectNear(Steps(spread, options, true), alone, 1e-13);
    EXPECT_EQ(spread.device(), device);
  }
  // A device each.
  Tensor a = Start(), b = Start().To(Place("CPU", 1)).Realize();
  Optimizer optimizer({a, b}, options);
  (LossOf(a) + LossOf(b).To(Place("CPU", 0))).Backward();
  optimizer.Step();
  ExpectNear(b.ToVector<double>(), a.ToVector<double>(), 1e-15);
}

TEST(Optimizer, GradientsAddUpAndMissingOnesChangeNothing) {
  Tensor once = Start(), twice = Start(), idle = Start();
  Optimizer of_once({once}, SgdOptions{.rate = 0.02}),
      of_twice({twice, idle}, SgdOptions{.rate = 0.01});
  LossOf(once).Backward();
  of_once.Step();
  LossOf(twice).Backward();
  LossOf(twice).Backward();
  of_twice.Step();
  ExpectNear(twice.ToVector<double>(), once.ToVector<double>(), 1e-14);
  EXPECT_EQ(idle.ToVector<double>(), kStart);
}

// Adam's means have begun at 0 when a parameter first had a gradient, not with the first step.
TEST(Optimizer, EachParameterCountsItsOwnSteps) {
  Tensor w = Tensor::Ones({1}).Realize(), late = Tensor::Ones({1}).Realize();
  Optimizer optimizer({w, late}, AdamOptions{.rate = 0.1});
  for (int i = 0; i < 20; ++i) {
    w.Sum().Backward();
    optimizer.Step();
  }
  (w.Sum() + late.Sum()).Backward();
  optimizer.Step();
  EXPECT_NEAR(late.Item<float>(), 0.9, 1e-6);
}

TEST(Optimizer, GoesOnFromWhatItRemembered) {
  const AdamOptions options{.rate = 0.02};
  Tensor w = Start();
  Optimizer first({w}, options);
  const auto step = [&](Optimizer& by, const Tensor& of) {
    LossOf(of).Backward();
    by.Step();
  };
  step(first, w);
  Tensor copy = Tensor::From(w.ToVector<double>(), {2, 3}).Realize();
  Optimizer second({copy}, options);
  std::vector<Tensor> from = first.State(), to = second.State();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) to[i].Assign(from[i]).Realize();
  step(first, w);
  step(second, copy);
  EXPECT_EQ(copy.ToVector<double>(), w.ToVector<double>());
}

// A step that is replayed schedules nothing, and what it remembers is no history that grows.
TEST(Optimizer, KeepsNoHistory) {
  Tensor w = Start();
  Optimizer optimizer({w}, AdamOptions{});
  for (int i = 0; i < 3; ++i) {
    LossOf(w).Backward();
    optimizer.Step();
    EXPECT_TRUE(w.uop().is(Op::kBuffer));
    for (const Tensor& t : optimizer.State()) EXPECT_TRUE(t.uop().is(Op::kBuffer));
  }
}

// Whatever is realised looks at all marked tensors; tools/sanitize --thread sees whether it may.
TEST(Optimizer, ThreadsTrainTheirOwn) {
  const AdamOptions options{.rate = 0.02};
  const std::vector<double> alone = Steps(Start(), options, false);
  std::vector<std::vector<double>> by(3);
  std::vector<std::thread> threads;
  for (auto& values : by) {
    threads.emplace_back([&] { values = Steps(Start(), options, false); });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& values : by) EXPECT_EQ(values, alone);
}

TEST(Optimizer, Refuses) {
  const Tensor w = Start();
  EXPECT_ERROR(Optimizer({w, w}, SgdOptions{}), "Optimizer", "is given twice");
  EXPECT_ERROR(Optimizer({Tensor()}, SgdOptions{}), "Optimizer", "parameter 0 is empty");
  EXPECT_ERROR(Optimizer({Tensor::Arange(3)}, SgdOptions{}), "Optimizer", "not of a float dtype");
  EXPECT_ERROR(Optimizer({w}, SgdOptions{.rate = -1}), "Optimizer", "rate must be 0 or more");
  EXPECT_ERROR(Optimizer({w}, SgdOptions{.momentum = 1}), "Optimizer", "less than 1, not 1");
  EXPECT_ERROR(Optimizer({w}, SgdOptions{.nesterov = true}), "Optimizer", "needs a momentum");
  EXPECT_ERROR(Optimizer({w}, AdamOptions{.beta2 = kNan}), "Optimizer", "beta2 must be");
  EXPECT_ERROR(Optimizer({}, SgdOptions{}), "Optimizer", "no parameters");
  EXPECT_ERROR(Optimizer({w}, LionOptions{.beta1 = 1}), "Optimizer", "beta1 must be");
  EXPECT_ERROR(Optimizer({w}, AdagradOptions{.initial = -1}), "Optimizer", "initial must be");
  EXPECT_ERROR(Optimizer({w}, RmsPropOptions{.alpha = 2}), "Optimizer", "alpha must be");
  EXPECT_ERROR(Optimizer({w}, RpropOptions{.more = 1}), "Optimizer", "more must be above 1");
  EXPECT_ERROR(Optimizer({w}, AdafactorOptions{.limit = 0}), "Optimizer", "limit must be above 0");
  Optimizer optimizer({w}, SgdOptions{});
  EXPECT_ERROR(optimizer.Step(), "Step", "none of the 1 parameters has a gradient");
  EXPECT_ERROR(optimizer.SetRate(kInf), "SetRate", "finite");
  EXPECT_ERROR(optimizer.SetRate(RateSchedule()), "SetRate", "empty");
  Jit step([&](const std::vector<Tensor>&) { optimizer.SetRate(0.5); });
  EXPECT_ERROR(step({}), "SetRate", "captured step cannot set the rate");
  EXPECT_EQ(optimizer.rate(), 1e-2);
}

}  // namespace
}  // namespace tessera
