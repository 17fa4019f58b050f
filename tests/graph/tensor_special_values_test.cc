// Special functions against values computed with 40 digits (mpmath), and what they give at the
// edges.
#include <cmath>
#include <functional>

#include "graph/grad.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsNan;

using Rows = std::vector<std::vector<double>>;  // what is given, then what is wanted

std::vector<double> Column(const Rows& rows, size_t i) {
  std::vector<double> out;
  for (const auto& row : rows) out.push_back(row[i]);
  return out;
}

// Each relative to the value, or to 1 where that is said to be what counts.
void ExpectValues(const std::vector<double>& got, const Rows& rows, size_t column, double relative,
                  double absolute = 0) {
  ASSERT_EQ(got.size(), rows.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double want = rows[i][column];
    SCOPED_TRACE(testing::Message() << rows[i][0] << ", " << rows[i][1]);
    if (std::isinf(want)) {
      EXPECT_EQ(got[i], want);
    } else {
      EXPECT_NEAR(got[i], want, relative * std::fabs(want) + absolute);
    }
  }
}

// In f64, and in f32, where the argument is rounded and so the value is off by as much as it moves.
void Check(const std::function<Tensor(const Tensor&)>& f, const Rows& rows,
           double relative = 4e-15) {
  const Tensor x = Tensor::From(Column(rows, 0));
  ExpectValues(Values(f(x)), rows, 1, relative);
  const Tensor narrow = x.Cast(kFloat32);
  EXPECT_EQ(f(narrow).dtype(), kFloat32);
  const auto wide = Values(f(narrow.Cast(kFloat64)).Cast(kFloat32)), own = Values(f(narrow));
  EXPECT_EQ(wide.size(), own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    if (std::isnan(wide[i])) continue;
    EXPECT_EQ(own[i], wide[i]) << rows[i][0];
  }
}

void CheckPairs(const std::function<Tensor(const Tensor&, const Tensor&)>& f, const Rows& rows,
                double relative, double absolute = 0, size_t column = 2) {
  const Tensor a = Tensor::From(Column(rows, 0)), b = Tensor::From(Column(rows, 1));
  ExpectValues(Values(f(a, b)), rows, column, relative, absolute);
}

TEST(TensorSpecialValues, OfTheErrorFunction) {
  Check([](const Tensor& x) { return x.Erfcx(); },
        {{-12.5, 1.4439188732966437e+68}, {-6.0, 8622463094230390.0},
         {-2.0, 108.94090438997797},      {-1.0, 5.008980080762283},
         {-0.3, 1.4537492328427655},      {0.0, 1.0},
         {1e-09, 0.9999999988716208},     {0.3, 0.7345993345676551},
         {1.0, 0.427583576155807},        {1.9, 0.26650937366167265},
         {2.0, 0.25539567631050575},      {2.1, 0.24511912334517233},
         {5.0, 0.11070463773306863},      {11.9, 0.04724523248408767},
         {12.0, 0.04685422101489376},     {12.5, 0.04499209900102792},
         {30.0, 0.01879588886141675},     {100.0, 0.005641613782989433},
         {700.0, 0.0008059842969226599},  {10000000000.0, 5.641895835477563e-11}});
  Check([](const Tensor& x) { return x.Ndtr(); },
        {{-37.0, 5.725571222524577e-300},
         {-12.5, 3.732564298877713e-36},
         {-6.0, 9.86587645037698e-10},
         {-1.0, 0.15865525393145705},
         {0.0, 0.5},
         {0.3, 0.6179114221889527},
         {2.0, 0.9772498680518208},
         {8.0, 0.9999999999999993}},
        4e-13);
  Check([](const Tensor& x) { return x.LogNdtr(); },
        {{-100000.0, -5000000012.431864},
         {-100.0, -5005.524208694205},
         {-37.0, -689.0305855768906},
         {-12.5, -81.57596787074388},
         {-6.0, -20.736768949974707},
         {-1.0001, -1.8411741625414106},
         {-1.0, -1.8410216450092636},
         {-0.999, -1.839496910164778},
         {0.0, -0.6931471805599453},
         {0.3, -0.4814101615884812},
         {2.0, -0.02301290932896349},
         {8.0, -6.220960574271784e-16},
         {20.0, -2.7536241186062337e-89}},
        1e-13);
  Check([](const Tensor& x) { return x.Ndtri(); }, {{1e-300, -37.0470962993612},
                                                    {1e-20, -9.262340089798407},
                                                    {1e-05, -4.264890793922825},
                                                    {0.01, -2.326347874040841},
                                                    {0.2, -0.8416212335729142},
                                                    {0.5, 0.0},
                                                    {0.7, 0.5244005127080407},
                                                    {0.99, 2.3263478740408408},
                                                    {0.9999999999, 6.361340889697422}});
  const Tensor edges = Tensor::From({-kInf, kInf, kNan});
  EXPECT_THAT(Values(edges.Erfcx()), ElementsAre(kInf, 0, IsNan()));
  EXPECT_THAT(Values(edges.Ndtr()), ElementsAre(0, 1, IsNan()));
  EXPECT_THAT(Values(edges.LogNdtr()), ElementsAre(-kInf, 0, IsNan()));
  EXPECT_THAT(Values(Tensor::From({0.0, 1.0, -0.1, 1.1, kNan}).Ndtri()),
              ElementsAre(-kInf, kInf, IsNan(), IsNan(), IsNan()));
  const Tensor steep = Tensor::From({-10.0, -26.9, -27.1, -30.0}).Cast(kFloat64);
  EXPECT_EQ(Values(steep.Erfcx())[3], kInf);
  EXPECT_THAT(Values(Grad(steep.Cast(kFloat32).Erfcx().Sum(), {steep})[0]), Each(-kInf));
  const Tensor slope = Grad(steep.Erfcx().Sum(), {steep})[0];
  EXPECT_LT(Values(slope)[0], -1e43);
  EXPECT_THAT(Values(slope.SliceAxis(0, {1, 4})), Each(-kInf));
}

TEST(TensorSpecialValues, OfBessel) {
  Check([](const Tensor& x) { return x.BesselI0(); }, {{-30.0, 781672297823.9775},
                                                       {-12.5, 30596.335155785153},
                                                       {-6.0, 67.23440697647797},
                                                       {-2.0, 2.2795853023360673},
                                                       {-1.0, 1.2660658777520084},
                                                       {-0.3, 1.022626879351597},
                                                       {0.0, 1.0},
                                                       {1e-09, 1.0},
                                                       {0.3, 1.022626879351597},
                                                       {1.0, 1.2660658777520084},
                                                       {1.9, 2.127740194053888},
                                                       {2.0, 2.2795853023360673},
                                                       {2.1, 2.4462831294361824},
                                                       {5.0, 27.239871823604446},
                                                       {11.9, 17219.24027626803},
                                                       {12.0, 18948.925349296307},
                                                       {12.5, 30596.335155785153},
                                                       {30.0, 781672297823.9775},
                                                       {100.0, 1.0737517071310738e+42},
                                                       {700.0, 1.5295933476718737e+302}});
  Check([](const Tensor& x) { return x.BesselI1(); }, {{-30.0, -768532038938.957},
                                                       {-12.5, -29345.74964207113},
                                                       {-6.0, -61.341936777640235},
                                                       {-2.0, -1.590636854637329},
                                                       {-1.0, -0.565159103992485},
                                                       {-0.3, -0.15169384000359276},
                                                       {0.0, 0.0},
                                                       {1e-09, 5e-10},
                                                       {0.3, 0.15169384000359276},
                                                       {1.0, 0.565159103992485},
                                                       {1.9, 1.4482443730548888},
                                                       {2.0, 1.590636854637329},
                                                       {2.1, 1.7454998088361062},
                                                       {5.0, 24.335642142450528},
                                                       {11.9, 16479.060192397505},
                                                       {12.0, 18141.348781638833},
                                                       {12.5, 29345.74964207113},
                                                       {30.0, 768532038938.957},
                                                       {100.0, 1.0683693903381625e+42},
                                                       {700.0, 1.5285003902339006e+302}});
  Check([](const Tensor& x) { return x.BesselI0e(); }, {{-30.0, 0.0731459464822373},
                                                        {-12.5, 0.1140219294622889},
                                                        {-6.0, 0.16665743263981658},
                                                        {-2.0, 0.30850832255367105},
                                                        {-1.0, 0.46575960759364043},
                                                        {-0.3, 0.7575806251825479},
                                                        {0.0, 1.0},
                                                        {1e-09, 0.999999999},
                                                        {0.3, 0.7575806251825479},
                                                        {1.0, 0.46575960759364043},
                                                        {1.9, 0.31824316288914156},
                                                        {2.0, 0.30850832255367105},
                                                        {2.1, 0.2995630945262819},
                                                        {5.0, 0.18354081260932836},
                                                        {11.9, 0.11692561195139262},
                                                        {12.0, 0.11642622121344044},
                                                        {12.5, 0.1140219294622889},
                                                        {30.0, 0.0731459464822373},
                                                        {100.0, 0.03994437929909668},
                                                        {700.0, 0.015081295651531358},
                                                        {1000000.0, 0.00039894233026924577},
                                                        {-10000000000.0, 3.9894228040641945e-06}});
  Check([](const Tensor& x) { return x.BesselI1e(); }, {{-30.0, -0.07191633059864755},
                                                        {-12.5, -0.10936143099065089},
                                                        {-6.0, -0.1520514593085059},
                                                        {-2.0, -0.21526928924893765},
                                                        {-1.0, -0.20791041534970844},
                                                        {-0.3, -0.1123775606398388},
                                                        {0.0, 0.0},
                                                        {1e-09, 4.999999995000001e-10},
                                                        {0.3, 0.1123775606398388},
                                                        {1.0, 0.20791041534970844},
                                                        {1.9, 0.21661191117477052},
                                                        {2.0, 0.21526928924893765},
                                                        {2.1, 0.21374767210633228},
                                                        {5.0, 0.16397226694454237},
                                                        {11.9, 0.11189948955155167},
                                                        {12.0, 0.11146429929018098},
                                                        {12.5, 0.10936143099065089},
                                                        {30.0, 0.07191633059864755},
                                                        {100.0, 0.03974415302513025},
                                                        {700.0, 0.015070519444716848},
                                                        {1000000.0, 0.0003989421307980308},
                                                        {-10000000000.0, -3.989422803864723e-06}});
  const Tensor edges = Tensor::From({-kInf, kInf, kNan, 1e300});
  EXPECT_THAT(Values(edges.BesselI0()), ElementsAre(kInf, kInf, IsNan(), kInf));
  EXPECT_THAT(Values(edges.BesselI1()), ElementsAre(-kInf, kInf, IsNan(), kInf));
  EXPECT_THAT(Values(edges.BesselI0e().SliceAxis(0, {0, 3})), ElementsAre(0, 0, IsNan()));
  EXPECT_TRUE(std::signbit(Values(Tensor::From({-0.0}).BesselI1())[0]));
}

TEST(TensorSpecialValues, DerivativesOfDigamma) {
  Check([](const Tensor& x) { return x.Polygamma(1); },
        {{-20.3, 15.03134603262623},
         {-3.5, 9.620879298050347},
         {-0.7, 14.28618087263834},
         {-0.001, 1000001.6473414317},
         {0.001, 1000001.6425331958},
         {0.2, 26.267377205423777},
         {0.5, 4.934802200544679},
         {1.0, 1.6449340668482264},
         {1.5, 0.9348022005446793},
         {4.0, 0.2838229557371153},
         {9.9, 0.1062830416287406},
         {10.1, 0.10407283129749605},
         {55.0, 0.018348109124868422},
         {100000.0, 1.0000050000166667e-05}},
        2e-14);
  Check([](const Tensor& x) { return x.Polygamma(2); },
        {{-20.3, 68.8352336578373},
         {-3.5, -0.061556821321027695},
         {-0.7, -69.44163279863854},
         {-0.001, 1999999997.5893795},
         {0.001, -2000000002.3976321},
         {0.2, -251.4780361144359},
         {0.5, -16.82879664423432},
         {1.0, -2.4041138063191885},
         {1.5, -0.82879664423432},
         {4.0, -0.0800397322451145},
         {9.9, -0.011285526423707164},
         {10.1, -0.010821444164374196},
         {55.0, -0.00033664366586127006},
         {100000.0, -1.00001000005e-10}},
        1e-12);
  Check([](const Tensor& x) { return x.Polygamma(3); },
        {{-20.3, 769.0206923407153},
         {-3.5, 194.7878595594625},
         {-0.7, 768.1313523268526},
         {-0.001, 6000000000006.519},
         {0.001, 6000000000006.469},
         {0.2, 3753.244994864725},
         {0.5, 97.40909103400244},
         {1.0, 6.493939402266829},
         {1.5, 1.4090910340024372},
         {4.0, 0.04486532819275507},
         {9.9, 0.00239445126374616},
         {10.1, 0.0022484116342180354},
         {55.0, 1.2352856512914968e-05},
         {100000.0, 2.0000300002e-15}},
        1e-13);
  Check([](const Tensor& x) { return x.Polygamma(7); },
        {{-20.3, 76905684.33321284},
         {-3.5, 2580880.3979626936},
         {-0.7, 76905610.12737405},
         {-0.001, 5.04e+27},
         {0.001, 5.04e+27},
         {0.2, 1968751181.8505843},
         {0.5, 1290440.218185598},
         {1.0, 5060.54987523764},
         {1.5, 200.21818559806496},
         {4.0, 0.09419965464907266},
         {9.9, 0.00010818115778877749},
         {10.1, 9.345581739388132e-05},
         {55.0, 5.037510680866571e-10},
         {100000.0, 7.20025200336e-33}},
        1e-12);
  const Tensor poles = Tensor::From({0.0, -0.0, -3.0, kInf, -kInf, kNan});
  EXPECT_THAT(Values(poles.Polygamma(1)), ElementsAre(kInf, kInf, kInf, 0, IsNan(), IsNan()));
  EXPECT_THAT(Values(poles.Polygamma(2)), ElementsAre(-kInf, kInf, IsNan(), 0, IsNan(), IsNan()));
  const Tensor x = Tensor::From({0.3, 2.0});
  EXPECT_EQ(Values(x.Polygamma(0)), Values(x.Digamma()));
  EXPECT_ERROR(x.Polygamma(-1), "Polygamma", "order");
}

TEST(TensorSpecialValues, Zeta) {
  CheckPairs([](const Tensor& s, const Tensor& q) { return s.Zeta(q); },
             {{1.0001, 1.0, 10000.577222947539},
              {1.5, 0.1, 34.0529755150756},
              {2.0, 1.0, 1.6449340668482264},
              {2.0, 0.01, 10001.621213528313},
              {3.7, 25.0, 6.57032615447507e-05},
              {10.0, 2.0, 0.0009945751278180853},
              {30.0, 0.5, 1073741824.0000052},
              {100.0, 1.5, 2.4596544265798292e-18},
              {4.0, 10000.0, 3.3338333666666667e-13}},
             2e-15);
  EXPECT_THAT(Values(Tensor::From({1.0, 0.5, 2.0, 2.0, 2.0, kNan})
                         .Zeta(Tensor::From({2.0, 2.0, 0.0, -1.0, -0.5, 1.0}))),
              ElementsAre(kInf, IsNan(), kInf, kInf, IsNan(), IsNan()));
}

TEST(TensorSpecialValues, LogarithmOfBeta) {
  CheckPairs([](const Tensor& a, const Tensor& b) { return a.BetaLn(b); },
             {{0.5, 0.5, 1.1447298858494002},
              {1.0, 1.0, 0.0},
              {1e-05, 3.0, 11.512910465032729},
              {2.5, 9.9, -5.624382758475257},
              {2.5, 10.1, -5.671072743456734},
              {12.0, 15.0, -18.568172732389435},
              {1.0, 1000000.0, -13.815510557964274},
              {1000000.0, 1000000.0, -1386300.003362921},
              {0.1, 10000000000.0, -0.04987244125533991},
              {300.0, 2.0, -11.410892739405076}},
             2e-14, 4e-15);
  Check([](const Tensor& x) { return x.MvLgamma(3); },
        {{1.1, 4.3181688973177}, {2.0, 1.596312591138855}, {7.5, 21.493272337400075}}, 1e-14);
  EXPECT_THAT(Values(Tensor::From({0.0, -1.0, kInf, kNan}).BetaLn(2.0)),
              ElementsAre(kInf, IsNan(), -kInf, IsNan()));
  EXPECT_THAT(Values(Tensor::From({1.0, 0.9}).MvLgamma(3)), ElementsAre(IsNan(), IsNan()));
  EXPECT_ERROR(Tensor::From({1.0}).MvLgamma(0), "MvLgamma", "not 0");
  EXPECT_THAT(Values(Tensor::From({0.0, 1.0, -1.0, kNan}).Entr()),
              ElementsAre(0, 0, -kInf, IsNan()));
  ExpectNear(Values(Tensor::From({0.5}, kFloat64).Entr()), {0.5 * std::log(2.0)}, 1e-15);
}

TEST(TensorSpecialValues, IncompleteGamma) {
  const Rows rows = {{1e-05, 0.001, 0.9999366865285947, 6.331347140529355e-05},
                     {0.1, 0.01, 0.6626212599544798, 0.3373787400455202},
                     {0.1, 1.4, 0.9868889124634398, 0.013111087536560258},
                     {0.1, 1.6, 0.990161634314574, 0.009838365685425976},
                     {0.5, 0.5, 0.6826894921370859, 0.3173105078629141},
                     {1.0, 1.0, 0.6321205588285577, 0.36787944117144233},
                     {1.0, 5.0, 0.9932620530009145, 0.006737946999085467},
                     {3.3, 2.0, 0.25833946996562784, 0.7416605300343722},
                     {3.3, 20.0, 0.9999991527598284, 8.472401715630016e-07},
                     {10.0, 9.0, 0.4125917556680586, 0.5874082443319414},
                     {10.0, 30.0, 0.9999928782491372, 7.121750862815577e-06},
                     {24.9, 25.0, 0.5346065668811517, 0.46539343311884823},
                     {24.9, 40.0, 0.995754850959286, 0.004245149040714042},
                     {25.1, 14.0, 0.004709057191198073, 0.9952909428088019},
                     {25.1, 16.0, 0.021193173850441765, 0.9788068261495583},
                     {25.1, 25.1, 0.5265484681845088, 0.47345153181549116},
                     {25.1, 42.0, 0.9980384901165783, 0.001961509883421712},
                     {25.1, 44.0, 0.9992247162454617, 0.0007752837545382952},
                     {100.0, 70.0, 0.00043037259497989087, 0.9995696274050201},
                     {100.0, 100.0, 0.5132987982791487, 0.48670120172085135},
                     {100.0, 130.0, 0.9972495916326934, 0.002750408367306526},
                     {1000.0, 900.0, 0.0005499022657117829, 0.9994500977342882},
                     {10000.0, 10000.0, 0.5013298083399552, 0.4986701916600448},
                     {100000.0, 101000.0, 0.9991915784870744, 0.0008084215129255907},
                     {300.0, 100.0, 1.818721816730848e-58, 1.0},
                     {300.0, 600.0, 1.0, 2.398972311336745e-42},
                     {1000000.0, 1000000.0, 0.5001329807608725, 0.4998670192391274}};
  CheckPairs([](const Tensor& a, const Tensor& x) { return a.GammaInc(x); }, rows, 1e-13, 1e-15);
  CheckPairs([](const Tensor& a, const Tensor& x) { return a.GammaIncC(x); }, rows, 1e-13, 1e-15,
             3);
  const Tensor a = Tensor::From({0.0, 0.0, 2.0, 2.0, kInf, -1.0, 2.0, kNan}),
               x = Tensor::From({0.0, 1.0, 0.0, kInf, 2.0, 1.0, -1.0, 1.0});
  EXPECT_THAT(Values(a.GammaInc(x)), ElementsAre(IsNan(), 1, 0, 1, 0, IsNan(), IsNan(), IsNan()));
  EXPECT_THAT(Values(a.GammaIncC(x)), ElementsAre(IsNan(), 0, 1, 0, 1, IsNan(), IsNan(), IsNan()));
  EXPECT_EQ(Tensor::From({1, 2}).GammaInc(1).dtype(), kFloat32);
}

TEST(TensorSpecialValues, DerivativesNearJoins) {
  // On both sides of where one formula takes over from another, against differences.
  const auto check = [](const std::function<Tensor(const Tensor&)>& f, double at, double scale) {
    for (const double to : {at * (1 - 1e-4), at, at * (1 + 1e-4)}) {
      SCOPED_TRACE(to);
      Tensor x = Tensor::From({to}, kFloat64).Realize();
      const double h = 1e-5 * std::fabs(to);
      const auto value = [&](double v) { return Values(f(Tensor::From({v}, kFloat64)))[0]; };
      const double difference = (value(to + h) - value(to - h)) / (2 * h);
      EXPECT_NEAR(Values(Grad(f(x).Sum(), {x})[0])[0], difference, 2e-6 * scale);
    }
  };
  check([](const Tensor& x) { return x.Erfcx(); }, 2, 1);
  check([](const Tensor& x) { return x.LogNdtr(); }, -1, 1);
  check([](const Tensor& x) { return x.BesselI0e(); }, 12, 1);
  check([](const Tensor& x) { return x.BesselI1e(); }, -12, 1);
  check([](const Tensor& x) { return x.BesselI0(); }, 12, 2e4);
  check([](const Tensor& x) { return Tensor::From({3.0}, kFloat64).GammaInc(x); }, 4, 1);
  check([](const Tensor& x) { return Tensor::From({40.0}, kFloat64).GammaInc(x); }, 24, 1);
  check([](const Tensor& x) { return Tensor::From({40.0}, kFloat64).GammaInc(x); }, 40, 1);
  check([](const Tensor& x) { return Tensor::From({40.0}, kFloat64).GammaIncC(x); }, 68, 1);
  check([](const Tensor& a) { return a.GammaInc(20); }, 25, 1);
  check([](const Tensor& x) { return x.BetaLn(3.0); }, 10, 1);
  check([](const Tensor& x) { return x.Ndtri(); }, 0.925, 10);
}

}  // namespace
}  // namespace tessera
