// Densities, shares, moments and divergences of distributions: PyTorch's values and SciPy's; draws
// against both moments and shares.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "graph/distributions.h"
#include "graph/grad.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

Tensor Of(const Values& v) { return Tensor::From(v); }
Values Computed(const Tensor& t) { return t.Cast(kFloat64).ToVector<double>(); }

Tensor A() { return Of({0.5, 1.25, 3}); }
Tensor B() { return Of({0.75, 2, 1.5}); }
Tensor C() { return Of({-0.5, 0.25, 1}); }

struct Case {
  Distribution p;
  std::optional<Distribution> q;
  Values x;
  Values log_prob, cdf, mean, variance, entropy, kl;  // none: no closed form
};

// With T = lambda *a: torch.tensor(a, dtype=torch.float64) and from torch.distributions import *,
// p.log_prob(x), p.cdf(x), p.mean, p.variance, p.entropy() and kl_divergence(p, q); shares that
// torch lacks, and the logistic distribution, are scipy.stats'.
std::vector<Case> Cases() {
  const Tensor a = A(), b = B(), c = C(), whole = Of({3, 5, 7});
  const Tensor l = Tensor::From({{1., 0., 0.}, {0.5, 0.75, 0.}, {-0.25, 0.5, 1.25}}).Cast(kFloat64),
               m = Tensor::From({{0.5, 0., 0.}, {0.25, 1.5, 0.}, {1., -0.5, 0.75}}).Cast(kFloat64);
  const Values reals = {-1, 0.5, 2}, positive = {0.25, 0.5, 2}, counts = {0, 2, 5};
  return {
      {NormalDistribution{c, a},
       NormalDistribution{a, b},
       reals,
       {-0.7257913526447274, -1.1620820845188824, -2.073106377428338},
       {0.15865525393145707, 0.579259709439103, 0.6305586598182363},
       {-0.5, 0.25, 1.0},
       {0.25, 1.5625, 9.0},
       {0.7257913526447274, 1.6420820845188824, 2.5175508218727822},
       {1.0165762192192755, 0.2903161292457356, 1.6957417083289434}},
      {LogNormalDistribution{c, a},
       LogNormalDistribution{a, b},
       positive,
       {-0.41053238063066666, -0.7335834173023529, -2.7159290386993007},
       {0.03814844092232539, 0.22526919726210826, 0.4592655190218048},
       {0.6872892787909722, 2.8045693562372267, 244.69193226422038},
       {0.13416410697161874, 29.659113885656108, 485105321.26807505},
       {0.22579135264472738, 1.8920820845188824, 3.5175508218727822},
       {1.0165762192192755, 0.2903161292457356, 1.6957417083289434}},
      {HalfNormalDistribution{a},
       HalfNormalDistribution{b},
       positive,
       {0.3423558279152179, -0.5289349039589372, -1.5466258635350592},
       {0.38292492254802624, 0.31084348322064836, 0.4950149249061542},
       {0.3989422804014327, 0.9973557010035817, 2.3936536824085963},
       {0.09084505690810465, 0.567781605675654, 3.2704220486917674},
       {0.0326441720847821, 0.9489349039589371, 1.8244036413128368},
       {0.1276873303303866, 0.16531612924573558, 0.8068528194400547}},
      {LaplaceDistribution{c, a},
       LaplaceDistribution{a, b},
       reals,
       {-1.0, -1.116290731874155, -2.1250928025613884},
       {0.18393972058572117, 0.590634623461009, 0.6417343447131054},
       {-0.5, 0.25, 1.0},
       {0.5, 3.125, 18.0},
       {1.0, 1.916290731874155, 2.791759469228055},
       {0.8290219635992395, 0.2508342318189991, 0.6670203908385721}},
      {CauchyDistribution{c, a},
       CauchyDistribution{a, b},
       reals,
       {-1.1447298858494002, -1.4070941503168912, -2.3487026901753363},
       {0.25, 0.5628329581890013, 0.6024163823495667},
       {kNan, kNan, kNan},
       {kInf, kInf, kInf},
       {1.8378770664093453, 2.7541677982835004, 3.6296365356374007},
       {0.5355182363563622, 0.1451820098444978, 0.2980448594873275}},
      {GumbelDistribution{c, a},
       GumbelDistribution{a, b},
       reals,
       {-1.0251346478990997, -1.2418743043921916, -2.1484769325752326},
       {0.06598803584531254, 0.4409910259429828, 0.488443580006516},
       {-0.21139216754923357, 0.971519581126916, 2.7316469947045987},
       {0.4112335167120566, 2.570209479450354, 14.804406601634037},
       {0.8840684843415875, 1.8003592162157425, 2.6758279535696428},
       {1.3044423880853033, 0.23174884119962758, 5.138070940374612}},
      {StudentTDistribution{a * 2, c, b},
       {},
       reals,
       {-1.2247725935229365, -1.7206902360840084, -1.6159897377972703},
       {0.31283295818900125, 0.5450620491957248, 0.7351142385049164},
       {kNan, 0.25, 1.0},
       {kNan, 20.0, 3.375},
       {2.2433421745175095, 2.5409072511358666, 1.9971864332734797},
       {}},
      {UniformDistribution{c, c + a},
       UniformDistribution{c - b, c + a + b},
       {-0.25, 0.5, 2},
       {0.6931471805599453, -0.22314355131420976, -1.0986122886681098},
       {0.5, 0.2, 0.3333333333333333},
       {-0.25, 0.875, 2.5},
       {0.020833333333333332, 0.13020833333333334, 0.75},
       {-0.6931471805599453, 0.22314355131420976, 1.0986122886681098},
       {1.3862943611198906, 1.4350845252893227, 0.6931471805599453}},
      {ExponentialDistribution{a},
       ExponentialDistribution{b},
       positive,
       {-0.8181471805599453, -0.40185644868579024, -4.90138771133189},
       {0.11750309741540454, 0.4647385714810097, 0.9975212478233336},
       {2.0, 0.8, 0.3333333333333333},
       {4.0, 0.64, 0.1111111111111111},
       {1.6931471805599454, 0.7768564486857903, -0.09861228866810978},
       {0.09453489189183562, 0.1299963707542644, 0.1931471805599454}},
      {GammaDistribution{a, b},
       GammaDistribution{b, a},
       positive,
       {-0.2105587985906453, -0.20858098301824157, -1.0904574951155617},
       {0.4597086253925802, 0.5262112203566578, 0.5768099188731566},
       {0.6666666666666666, 0.625, 2.0},
       {0.8888888888888888, 0.3125, 1.3333333333333333},
       {0.37829200236576954, 0.515444366362308, 1.4421134022548467},
       {0.2592256794264076, 0.7401192449454836, 2.530526313612592}},
      {InverseGammaDistribution{a, b},
       InverseGammaDistribution{b, a},
       positive,
       {-1.6367644374707546, -1.4757130316183782, -2.999340578475233},
       {0.014305878435429631, 0.030119639536960507, 0.9594945602551861},
       {kInf, 8.0, 0.75},
       {kInf, kInf, 0.5625},
       {3.7299479095050536, 2.35664579423473, 0.4074749482742419},
       {0.2592256794264076, 0.7401192449454836, 2.530526313612592}},
      {BetaDistribution{a, b},
       BetaDistribution{b, a},
       {0.25, 0.5, 0.75},
       {-0.10885003210491806, 0.16763979183060684, 0.6128603024542353},
       {0.42695260991120076, 0.6832283373936432, 0.6025390625},
       {0.4, 0.38461538461538464, 0.6666666666666666},
       {0.10666666666666667, 0.055690915419422206, 0.04040404040404041},
       {-0.20871235214732176, -0.12875608044971543, -0.2730079692051428},
       {0.21941228655873773, 0.48767840135604945, 1.3294415416798362}},
      {WeibullDistribution{a, b},
       WeibullDistribution{b, a},
       positive,
       {-0.4335092329637352, -0.993353914822345, -1.1018590449068628},
       {0.43861608620107184, 0.16203311442124424, 0.9065538898023746},
       {1.5, 1.8627675419604854, 1.339469267353874},
       {11.250000000000002, 2.2485953200597093, 0.23699899095407706},
       {0.8282494432066315, 1.5854467622260422, 0.6916632627077433},
       {0.38083585061807057, 1.5961573818870904, 0.7575886532694237}},
      {ParetoDistribution{a, b},
       ParetoDistribution{b, b / 2},
       {1, 2.5, 2},
       {-0.8369882167858356, -0.9720766197027075, -0.457581109247178},
       {0.1339745962155613, 0.2434067127974594, 0.578125},
       {kInf, 10.0, 2.25},
       {kInf, kInf, 1.6875},
       {3.4054651081081646, 2.2700036292457355, 0.640186152773388},
       {0.6143952773117944, 1.5162907318741548, 1.232867951399863}},
      {VonMisesDistribution{c, a},
       VonMisesDistribution{a, b},
       reals,
       {-1.4606355046496402, -0.9847387044671366, -1.8022777706183468},
       {},
       {-0.5, 0.25, 1.0},
       {0.757500387419198, 0.47200423960084126, 0.19001470604349546},
       {1.7781769793044258, 1.5358845311064944, 0.9932288063532524},
       {0.0974021113981807, 0.5554314231212727, 1.849044854366269}},
      {BernoulliDistribution{c},
       BernoulliDistribution{b},
       {0, 1, 1},
       {-0.4740769841801067, -0.5759394198788436, -0.31326168751822286},
       {0.6224593312018546, 1, 1},
       {0.3775406687981454, 0.5621765008857981, 0.7310585786300049},
       {0.2350037122015945, 0.24613408273759835, 0.19661193324148185},
       {0.6628473185791794, 0.685395294657394, 0.582203108888218},
       {0.19086818593711147, 0.3171797146139823, 0.022622301149527124}},
      {BinomialDistribution{whole, c},
       BinomialDistribution{whole, b},
       counts,
       {-1.42223095254032, -1.327112006400172, -1.1483093749041364},
       {0.2411753654733025, 0.3846153313947539, 0.6010116164395649},
       {1.132622006394436, 2.8108825044289905, 5.117410050410034},
       {0.7050111366047834, 1.2306704136879918, 1.3762835326903728},
       {},
       {0.5726045578113346, 1.585898573069906, 0.15835610804669065}},
      {GeometricDistribution{c},
       GeometricDistribution{b},
       counts,
       {-0.9740769841801068, -2.2278182596365306, -6.879570125109336},
       {0.3775406687981454, 0.9160738689788361, 0.9996216043153712},
       {1.6487212707001282, 0.778800783071405, 0.36787944117144233},
       {4.367003099159174, 1.3853314427840386, 0.503214724408055},
       {1.755697791947217, 1.219181686850029, 0.796383663234292},
       {0.5055566239915741, 0.5641995247297142, 0.030944580654427067}},
      {NegativeBinomialDistribution{a, c},
       {},
       counts,
       {-0.23703849209005334, -1.8433765276356486, -2.461571062422359},
       {0.7889609186783935, 0.7646933035266954, 0.3691399129370776},
       {0.3032653298563167, 1.6050317708596769, 8.154845485377136},
       {0.4872050504420378, 3.665933359234837, 30.322013782169087},
       {},
       {}},
      {PoissonDistribution{a},
       PoissonDistribution{b},
       counts,
       {-0.5, -1.4968600779315258, -2.2944302994414967},
       {0.6065306597126334, 0.8684676654824512, 0.9160820579686966},
       {0.5, 1.25, 3.0},
       {0.5, 1.25, 3.0},
       {},
       {0.04726744594591781, 0.1624954634428306, 0.5794415416798362}},
      {CategoricalDistribution{c},
       CategoricalDistribution{b},
       {2},
       {-0.5279757438553099},
       {},
       {},
       {},
       {0.9343287314728861},
       {0.16325376170164776}},
      {MultinomialDistribution{c}, {}, {1, 4, 2}, {-3.541869856829644}, {}, {}, {}, {}, {}},
      {DirichletDistribution{a},
       DirichletDistribution{b},
       {0.25, 0.5, 0.25},
       {-0.6113972053069179},
       {},
       {0.10526315789473684, 0.2631578947368421, 0.631578947368421},
       {0.016379621823437312, 0.03372275081295917, 0.040467300975551006},
       {-1.8756843346391738},
       {0.9304150494046073}},
      {MultivariateNormalDistribution{c, l},
       MultivariateNormalDistribution{a, m},
       reals,
       {-3.133388189587558},
       {},
       {-0.5, 0.25, 1.0},
       {1.0, 0.8125, 1.875},
       {4.192277078476447},
       {8.583310178703146}},
      {LogisticDistribution{c, a},
       {},
       reals,
       {-0.9333761944765003, -1.6194212900773932, -2.51255677138026},
       {0.2689414213699951, 0.549833997312478, 0.5825702064623147},
       {-0.5, 0.25, 1},
       {0.8224670334241132, 5.140418958900708, 29.608813203268074},
       {1.3068528194400546, 2.2231435513142097, 3.09861228866811},
       {}},

  };
}

void ExpectOrError(const std::function<Tensor()>& f, const Values& want, const char* what) {
  SCOPED_TRACE(what);
  if (want.empty()) {
    EXPECT_THROW(f(), Error);
  } else {
    ExpectNear(Computed(f()), want, 1e-11);
  }
}

TEST(DistributionFunctions, ValuesOfOthersSlow) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.p.index());
    const Tensor x = Of(c.x);
    ExpectOrError([&] { return LogProb(c.p, x); }, c.log_prob, "LogProb");
    ExpectOrError([&] { return Cdf(c.p, x); }, c.cdf, "Cdf");
    ExpectOrError([&] { return Mean(c.p); }, c.mean, "Mean");
    ExpectOrError([&] { return Variance(c.p); }, c.variance, "Variance");
    ExpectOrError([&] { return Entropy(c.p); }, c.entropy, "Entropy");
    if (c.q) ExpectOrError([&] { return KlDivergence(c.p, *c.q); }, c.kl, "KlDivergence");
  }
}

TEST(DistributionFunctions, DivergencesOfTwoKinds) {
  const Tensor a = A(), b = B(), c = C();
  ExpectNear(Computed(KlDivergence(LaplaceDistribution{c, a}, NormalDistribution{a, b})),
             {0.9645897940862251, 0.21141998189046296, 3.4215330609736707}, 1e-12);
  ExpectNear(Computed(KlDivergence(UniformDistribution{c, c + a}, NormalDistribution{a, b})),
             {1.8429221598313557, 1.4227963291170749, 0.44801357486694954}, 1e-12);
  ExpectNear(Computed(KlDivergence(ExponentialDistribution{a}, GammaDistribution{a, b})),
             {0.5810245564198513, 0.05852754324640097, 3.427020052042847}, 1e-12);
  ExpectNear(Computed(KlDivergence(GammaDistribution{a, b}, ExponentialDistribution{a})),
             {0.648188511527509, 0.04266208232348223, 3.4592743090770437}, 1e-12);
  // What one gives and the other cannot.
  EXPECT_EQ(
      Computed(KlDivergence(UniformDistribution{c, c + b}, UniformDistribution{c, c + b / 2})),
      (Values{kInf, kInf, kInf}));
  EXPECT_EQ(Computed(KlDivergence(ParetoDistribution{b, a}, ParetoDistribution{b, a * 2})),
            (Values{kInf, kInf, kInf}));
  const Tensor three = Of({3}), four = Of({4}), even = Of({0});
  EXPECT_EQ(
      Computed(KlDivergence(BinomialDistribution{four, even}, BinomialDistribution{three, even})),
      Values{kInf});
}

TEST(DistributionFunctions, OutsideOfTheirSupport) {
  const Tensor one = Of({1}), two = Of({2}), x = Of({-1, 0.5, 7, kNan});
  const auto outside = [&](const Distribution& d, std::vector<bool> in) {
    const Values log = Computed(LogProb(d, x));
    for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(log[i] > -kInf, in[i]) << i;
    EXPECT_TRUE(std::isnan(log[3]));
  };
  outside(GammaDistribution{one, two}, {false, true, true});
  outside(BetaDistribution{one, two}, {false, true, false});
  outside(UniformDistribution{one * 0, one}, {false, true, false});
  outside(ParetoDistribution{one, one}, {false, false, true});
  outside(PoissonDistribution{one}, {false, false, true});
  outside(BinomialDistribution{two, one}, {false, false, false});
  const CategoricalDistribution classes{Tensor::From({{0., 1., 2.}, {5., 5., 5.}})};
  ExpectNear(Computed(LogProb(classes, Tensor::From({3, 2}))), {-kInf, -std::log(3.)}, 1e-6);
  // Its derivative is that of what lies within.
  const Tensor rate = Of({0.5, 2});
  const Tensor log = LogProb(ExponentialDistribution{rate}, Of({-1, 3}));
  ExpectNear(Computed(Grad(Where(log > -kInf, log, 0).Sum(), {rate})[0]), {0, 0.5 - 3}, 1e-14);
}

TEST(DistributionFunctions, AtInfinity) {
  const Tensor one = Of({1}), two = Of({2}), x = Of({kInf, -kInf});
  for (const Distribution& d : std::vector<Distribution>{NormalDistribution{one, two},
                                                         LogNormalDistribution{one, two},
                                                         HalfNormalDistribution{two},
                                                         LaplaceDistribution{one, two},
                                                         CauchyDistribution{one, two},
                                                         LogisticDistribution{one, two},
                                                         GumbelDistribution{one, two},
                                                         StudentTDistribution{two, one, two},
                                                         UniformDistribution{one, two},
                                                         ExponentialDistribution{two},
                                                         GammaDistribution{two, one},
                                                         InverseGammaDistribution{two, one},
                                                         BetaDistribution{two, one},
                                                         WeibullDistribution{two, one},
                                                         ParetoDistribution{two, one},
                                                         BernoulliDistribution{one},
                                                         BinomialDistribution{two, one},
                                                         GeometricDistribution{one},
                                                         NegativeBinomialDistribution{two, one},
                                                         PoissonDistribution{two}}) {
    SCOPED_TRACE(d.index());
    ExpectNear(Computed(LogProb(d, x)), {-kInf, -kInf});
    ExpectNear(Computed(Cdf(d, x)), {1, 0});
  }
  const Tensor deviation = Of({2, kInf});
  EXPECT_EQ(Computed(Mean(NormalDistribution{one, deviation})), (Values{1, 1}));
  EXPECT_EQ(Computed(Variance(CauchyDistribution{one, deviation})), (Values{kInf, kInf}));
}

TEST(DistributionFunctions, OfWhatIsCertain) {
  const Tensor l = Of({-kInf, kInf}), zero = Of({0}), one = Of({1}), five = Of({5});
  const auto expect = [&](const Distribution& d, const Tensor& x, const Values& want) {
    SCOPED_TRACE(d.index());
    ExpectNear(Computed(LogProb(d, x)), want);
  };
  expect(BernoulliDistribution{l}, zero, {0, -kInf});
  expect(BernoulliDistribution{l}, one, {-kInf, 0});
  expect(BinomialDistribution{five, l}, zero, {0, -kInf});
  expect(BinomialDistribution{five, l}, one, {-kInf, -kInf});
  expect(BinomialDistribution{five, l}, five, {-kInf, 0});
  expect(GeometricDistribution{l}, zero, {-kInf, 0});
  expect(GeometricDistribution{l}, one, {-kInf, -kInf});
  expect(NegativeBinomialDistribution{five, l}, zero, {0, -kInf});
  ExpectNear(Computed(Entropy(BernoulliDistribution{l})), {0, 0});
  const BernoulliDistribution never{Of({-kInf})}, even{zero};
  ExpectNear(Computed(KlDivergence(BernoulliDistribution{l}, never)), {0, kInf});
  ExpectNear(Computed(KlDivergence(BernoulliDistribution{l}, even)), Values(2, std::log(2.)));
  // Derivatives are those of the logarithms that count.
  const Tensor logits = Of({-kInf, 0.5});
  const Tensor log = LogProb(BernoulliDistribution{logits}, zero);
  ExpectNear(Computed(Grad(log.Sum(), {logits})[0]), {0, -1 / (1 + std::exp(-0.5))}, 1e-14);
  // And of x as between whole numbers.
  const Tensor share = Of({0, 1});
  const Tensor of_share = LogProb(BernoulliDistribution{Of({0.5})}, share);
  ExpectNear(Computed(Grad(of_share.Sum(), {share})[0]), {0.5, 0.5}, 1e-14);
}

TEST(DistributionFunctions, OfBatches) {
  // A classifier's: many points under one row of logits, and the other way round.
  const Tensor logits = Tensor::From({{0., 1., 2.}, {3., 1., 0.}});
  const CategoricalDistribution d{logits};
  EXPECT_EQ(LogProb(d, Tensor::From({{0, 1}, {2, 2}, {1, 0}})).shape(), Shape({3, 2}));
  const Tensor log = logits.LogSoftmax();
  ExpectNear(Computed(LogProb(d, Tensor::From({2, 0}))),
             Computed(Stack({log[{0, 2}], log[{1, 0}]})), 1e-6);
  EXPECT_EQ(Draw(d, {5}).shape(), Shape({5, 2}));
  EXPECT_EQ(Draw(d).dtype(), kInt32);
  const MultivariateNormalDistribution normal{Tensor::Zeros({4, 1, 2}), Tensor::Eye(2)};
  EXPECT_EQ(LogProb(normal, Tensor::Ones({3, 2})).shape(), Shape({4, 3}));
  EXPECT_EQ(Draw(normal, {5}).shape(), Shape({5, 4, 1, 2}));
  // Of no draws, of narrow floats, of an extent that varies.
  EXPECT_EQ(Draw(NormalDistribution{A(), B()}, {0}).shape(), Shape({0, 3}));
  const Tensor narrow = Tensor::From({1.5, 2.5}).Cast(kBFloat16);
  EXPECT_EQ(LogProb(GammaDistribution{narrow, narrow}, narrow).dtype(), kBFloat16);
  EXPECT_EQ(Draw(PoissonDistribution{narrow}).dtype(), kBFloat16);
  const Tensor whole = Tensor::From({1, 2});
  EXPECT_EQ(Mean(BetaDistribution{whole, whole}).dtype(), kFloat32);
}

// The share of many draws that is no more than x, and their moments.
TEST(DistributionFunctions, Draws) {
  Tensor::ManualSeed(7);
  constexpr int64_t kDraws = 20000;
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.p.index());
    const bool von_mises = std::holds_alternative<VonMisesDistribution>(c.p);
    if (von_mises || std::holds_alternative<MultinomialDistribution>(c.p)) {
      EXPECT_ERROR(Draw(c.p), "Draw", "Distribution cannot be drawn from");
      continue;
    }
    const Tensor drawn = Draw(c.p, {kDraws}).Realize(), x = Of(c.x);
    if (!c.cdf.empty()) {
      const Values share = Computed((drawn <= x).Cast(kFloat64).Mean(0));
      for (size_t i = 0; i < share.size(); ++i) {
        const double p = c.cdf[i], spread = std::sqrt(p * (1 - p) / kDraws);
        EXPECT_NEAR(share[i], p, 4.5 * spread + 1e-9) << i;
      }
    }
    if (c.mean.empty()) continue;
    const Values mean = Computed(drawn.Cast(kFloat64).Mean(0));
    for (size_t i = 0; i < mean.size(); ++i) {
      if (!(c.variance[i] < 1e3)) continue;  // NaN, or of few that count
      EXPECT_NEAR(mean[i], c.mean[i], 4.5 * std::sqrt(c.variance[i] / kDraws)) << i;
    }
  }
  const CategoricalDistribution classes{C()};
  const Values share = Computed(Draw(classes, {kDraws}).OneHot(3).Mean(0));
  ExpectNear(share, Computed(C().Softmax()), 0.02);
}

TEST(DistributionFunctions, DrawsHaveDerivatives) {
  const Tensor mean = Of({0.5, 2}), scale = Of({1, 3});
  for (const Distribution& d : std::vector<Distribution>{
           NormalDistribution{mean, scale}, LaplaceDistribution{mean, scale},
           GumbelDistribution{mean, scale}, LogisticDistribution{mean, scale}}) {
    const Tensor drawn = Draw(d, {3});
    const auto grads = Grad(drawn.Sum(), {mean, scale});
    EXPECT_EQ(Computed(grads[0]), (Values{3, 3}));
    ExpectNear(Computed(grads[1]), Computed(((drawn - mean) / scale).Sum(0)), 1e-12);
  }
}

TEST(DistributionFunctions, Refuse) {
  const Tensor a = A();
  EXPECT_ERROR(LogProb(NormalDistribution{a, {}}, a), "LogProb",
               "parameter 1 of a NormalDistribution is empty");
  EXPECT_ERROR(Cdf(VonMisesDistribution{a, a}, a), "Cdf",
               "a VonMisesDistribution has no closed form of the share up to x");
  EXPECT_ERROR(Entropy(PoissonDistribution{a}), "Entropy", "no closed form");
  EXPECT_ERROR(KlDivergence(NormalDistribution{a, a}, PoissonDistribution{a}), "KlDivergence",
               "a NormalDistribution and a PoissonDistribution");
  EXPECT_ERROR(LogProb(NormalDistribution{a, Of({1, 2})}, a), "LogProb", "f64[3]");
}

}  // namespace
}  // namespace tessera
