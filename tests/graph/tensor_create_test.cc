// Creation of tensors: from numbers, host data, counting and random bits.
#include <algorithm>
#include <numeric>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(TensorCreate, Filled) {
  EXPECT_THAT(Values(Tensor::Zeros({2, 2})), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Values(Tensor::Ones({3}, kInt8)), ElementsAre(1, 1, 1));
  EXPECT_THAT(Values(Tensor::Full({2}, 1.5)), ElementsAre(1.5, 1.5));
  EXPECT_EQ(Tensor::Full({2}, 1.5).dtype(), kFloat32);
  EXPECT_EQ(Tensor::Full({2}, 3).dtype(), kInt32);
  EXPECT_EQ(Tensor::Full({2}, int64_t{1} << 40).dtype(), kInt64);
  EXPECT_EQ(Tensor::Full({2}, true).dtype(), kBool);
  EXPECT_EQ(Tensor::Full({2}, 3, kFloat16).dtype(), kFloat16);
  EXPECT_EQ(Tensor::Zeros({}).rank(), 0);
  EXPECT_THAT(Values(Tensor::Scalar(7)), ElementsAre(7));
  EXPECT_THAT(Values(Tensor::Zeros({3, 0})), ElementsAre());
  EXPECT_FALSE(Tensor::Zeros({2}).device());
  EXPECT_EQ(Tensor::Zeros({2}, kFloat32, "CPU:1").device().ToString(), "CPU:1");
  EXPECT_THAT(Values(Tensor::Full({1}, ~uint64_t{0})), ElementsAre(std::ldexp(1, 64)));
  EXPECT_ERROR(Tensor::Full({2}, 300, kUInt8), "Full", "300 does not fit u8");
  EXPECT_ERROR(Tensor::Zeros({-1}), "Zeros", "negative");
  EXPECT_ERROR(Tensor::Zeros({int64_t{1} << 40, int64_t{1} << 40}), "Zeros",
               "[1099511627776, 1099511627776] does not fit in 64 bits");
  EXPECT_ERROR(Tensor::Zeros({2}, kFloat32, "TPU"), "device", "TPU");
}

TEST(TensorCreate, FromLists) {
  const Tensor t = Tensor::From({{1, 2, 3}, {4, 5, 6}});
  EXPECT_THAT(Sizes(t), ElementsAre(2, 3));
  EXPECT_EQ(t.dtype(), kInt32);
  EXPECT_THAT(Values(t), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(Tensor::From({1, 2.5}).dtype(), kFloat32);
  EXPECT_EQ(Tensor::From({true, false}).dtype(), kBool);
  EXPECT_EQ(Tensor::From({1, 2}, kFloat16).dtype(), kFloat16);
  EXPECT_THAT(Sizes(Tensor::From({{{1}}, {{2}}})), ElementsAre(2, 1, 1));
  EXPECT_THAT(Sizes(Tensor::From({})), ElementsAre(0));
  EXPECT_EQ(Tensor::From(5).rank(), 0);
  EXPECT_ERROR(Tensor::From({{1, 2}, {3}}), "From", "1 entries where another has 2");
  EXPECT_ERROR(Tensor::From({{1, 2}, 3}), "From", "nested unevenly");
  EXPECT_ERROR(Tensor::From({1, {2, 3}}), "From", "nested unevenly");
  EXPECT_ERROR(Tensor::From({1, 1000}, kInt8), "From", "1000 does not fit i8");
}

TEST(TensorCreate, ListsOfNumbersThatOnlyU64Holds) {
  const Tensor x = Tensor::From({UINT64_MAX, uint64_t{1}});
  EXPECT_EQ(x.dtype(), kUInt64);
  EXPECT_EQ(x.ToVector<uint64_t>(), (std::vector<uint64_t>{UINT64_MAX, 1}));
}

TEST(TensorCreate, FromVectorsIsACopy) {
  std::vector<double> data = {1, 2, 3, 4};
  const Tensor t = Tensor::From(data, {2, 2});
  data[0] = 9;
  EXPECT_EQ(t.dtype(), kFloat64);
  EXPECT_THAT(Values(t), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(t.device().ToString(), "CPU");
  EXPECT_THAT(Values(Tensor::From(std::vector<bool>{true, false})), ElementsAre(1, 0));
  EXPECT_EQ(Tensor::From(std::vector<uint16_t>{1}).dtype(), kUInt16);
  EXPECT_EQ(Tensor::From(std::vector<float>{}).size(0), 0);
  EXPECT_ERROR(Tensor::From(data, {3}), "From", "4 values do not fill the shape [3]");
  // Equal contents are distinct storage.
  EXPECT_FALSE(Tensor::From(data).uop() == Tensor::From(data).uop());
}

// Whether From takes a vector of these.
template <typename E>
constexpr bool FromTakes() {
  return requires(std::vector<E> v) { Tensor::From(v); };
}

TEST(TensorCreate, FromTakesWhatADtypeHolds) {
  EXPECT_TRUE(FromTakes<double>() && FromTakes<bool>() && FromTakes<char>());
  EXPECT_FALSE(FromTakes<__int128>());
  if (sizeof(long double) > 8) {
    EXPECT_FALSE(FromTakes<long double>());
  }
  EXPECT_THAT(Values(Tensor::Full({1}, 1.5L)), ElementsAre(1.5));  // a number is converted
}

TEST(TensorCreate, MemoryOfTheCaller) {
  constexpr int64_t kMany = int64_t{1} << 62;
  float one = 1;
  int deleted = 0;
  const auto count = [&](void*) { ++deleted; };
  EXPECT_ERROR(Tensor::FromBytes(&one, {kMany}, kFloat32), "From", "than any memory holds");
  EXPECT_ERROR(Tensor::FromBlob(&one, {kMany}, kFloat32, count), "FromBlob",
               "than any memory holds");
  EXPECT_ERROR(Tensor::FromBytes(nullptr, {4}, kFloat32), "From", "the pointer is null");
  EXPECT_ERROR(Tensor::FromBlob(nullptr, {4}, kFloat32, count), "FromBlob", "the pointer is null");
  const Variable n("caller_n", 1, 8);
  EXPECT_ERROR(Tensor::FromBytes(&one, {n}, kFloat32), "From", "is symbolic");
  EXPECT_ERROR(Tensor::FromBlob(&one, {n}, kFloat32, count), "FromBlob", "is symbolic");
  EXPECT_EQ(deleted, 0);
}

TEST(TensorCreate, EmptyWasNeverGivenData) {
  const Tensor t = Tensor::Empty({4});
  EXPECT_FALSE(Evaluate({t.uop()}).ok());
  EXPECT_FALSE(t.uop() == Tensor::Empty({4}).uop());
  EXPECT_EQ(Tensor::Empty({2}, kInt8, "NULL").device().ToString(), "NULL");
}

TEST(TensorCreate, Arange) {
  EXPECT_THAT(Values(Tensor::Arange(4)), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(Tensor::Arange(4).dtype(), kInt32);
  EXPECT_EQ(Tensor::Arange(4, kInt64).dtype(), kInt64);
  EXPECT_THAT(Values(Tensor::Arange(2, 9, 3)), ElementsAre(2, 5, 8));
  EXPECT_THAT(Values(Tensor::Arange(5, 0, -2)), ElementsAre(5, 3, 1));
  EXPECT_THAT(Values(Tensor::Arange(3, 3)), ElementsAre());
  EXPECT_THAT(Values(Tensor::Arange(3, 0)), ElementsAre());
  EXPECT_THAT(Values(Tensor::Arange(0, 1, 0.25)), ElementsAre(0, 0.25, 0.5, 0.75));
  EXPECT_EQ(Tensor::Arange(0.0, 1).dtype(), kFloat32);
  // The first number must fit, as that of Full; those after it wrap round, as sums do.
  EXPECT_THAT(Values(Tensor::Arange(3, 0, -1, kUInt8)), ElementsAre(3, 2, 1));
  EXPECT_THAT(Values(Tensor::Arange(1, -3, -1, kUInt8)), ElementsAre(1, 0, 255, 254));
  EXPECT_THAT(Values(Tensor::Arange(254, 258, 1, kUInt8)), ElementsAre(254, 255, 0, 1));
  EXPECT_THAT(Values(Tensor::Arange(0, 900, 300, kInt8)), ElementsAre(0, 44, 88));
  EXPECT_ERROR(Tensor::Arange(-1, 3, 1, kUInt8), "Arange", "-1 does not fit u8");
  EXPECT_ERROR(Tensor::Arange(128, 200, 1, kInt8), "Arange", "128 does not fit i8");
  EXPECT_ERROR(Tensor::Arange(2, kBool), "Arange", "not bools");
  EXPECT_ERROR(Tensor::Arange(0, 2, 1, kBool), "Arange", "not bools");
  EXPECT_EQ(Tensor::Arange(int64_t{1} << 31).size(0), int64_t{1} << 31);  // the last one fits
  EXPECT_ERROR(Tensor::Arange((int64_t{1} << 31) + 1), "Arange", "2147483648 does not fit i32");
  EXPECT_ERROR(Tensor::Arange(0, 1, 0), "Arange", "by 0");
  EXPECT_ERROR(Tensor::Arange(-1), "Arange", "-1");
  // i64 counts beyond what an i32 index could hold.
  const auto v = Values(Tensor::Arange(11, kInt64) * int64_t{1000000000});
  EXPECT_EQ(v.back(), 1e10);
  const Variable n("n", 0, 9);
  EvaluateOptions options;
  options.vars["n"] = 3;
  EXPECT_THAT(Values(Tensor::Arange(n) + n, options), ElementsAre(3, 4, 5));
}

TEST(TensorCreate, LinspaceEyeAndLike) {
  EXPECT_THAT(Values(Tensor::Linspace(0, 1, 5)), ElementsAre(0, 0.25, 0.5, 0.75, 1));
  EXPECT_EQ(Values(Tensor::Linspace(0.1, 0.7, 7, kFloat64)).back(), 0.7);
  EXPECT_THAT(Values(Tensor::Linspace(2, 3, 1)), ElementsAre(2));
  EXPECT_THAT(Values(Tensor::Linspace(2, 3, 0)), ElementsAre());
  EXPECT_THAT(Values(Tensor::Eye(2, 3)), ElementsAre(1, 0, 0, 0, 1, 0));
  const Tensor x = Tensor::Empty({2}, kInt16, "CPU:1");
  for (const Tensor& t : {x.EmptyLike(), x.ZerosLike(), x.OnesLike(), x.FullLike(3)}) {
    EXPECT_EQ(t.dtype(), kInt16);
    EXPECT_EQ(t.device(), x.device());
    EXPECT_THAT(Sizes(t), ElementsAre(2));
  }
  EXPECT_EQ(x.ZerosLike(kFloat32).dtype(), kFloat32);
}

TEST(TensorRandom, SeedsReproduce) {
  Tensor::ManualSeed(7);
  const auto a = Values(Tensor::Rand({10})), b = Values(Tensor::Rand({10}));
  Tensor::ManualSeed(7);
  EXPECT_EQ(Values(Tensor::Rand({10})), a);
  EXPECT_NE(a, b);
  // Bits depend on the global index alone: one draw of 20 holds both draws of 10.
  Tensor::ManualSeed(7);
  auto both = a;
  both.insert(both.end(), b.begin(), b.end());
  EXPECT_EQ(Values(Tensor::Rand({4, 5})), both);
  Tensor::ManualSeed(8);
  EXPECT_NE(Values(Tensor::Rand({10})), a);
}

TEST(TensorRandom, FormulaIsThatOfTheHeader) {
  Tensor::ManualSeed(5);
  Tensor::Rand({3});
  const auto v = Values(Tensor::Rand({2}));
  for (uint64_t i = 0; i < 2; ++i) {
    const UOp bits = UOp::Make(
        Op::kThreefry, {UOp::Const(kUInt64, Scalar{3 + i}), UOp::Const(kUInt64, Scalar{5})});
    ASSERT_OK_AND_ASSIGN(auto out, Evaluate({bits}));
    EXPECT_EQ(v[i], std::ldexp(static_cast<double>(out[0].At(0).bits >> 40), -24));
  }
}

TEST(TensorRandom, Distributions) {
  Tensor::ManualSeed(1);
  for (DType t : {kFloat16, kBFloat16, kFloat32, kFloat64, kFloat8E4M3, kFloat8E5M2}) {
    const auto v = Values(Tensor::Rand({5000}, t));
    EXPECT_GE(*std::min_element(v.begin(), v.end()), 0);
    EXPECT_LT(*std::max_element(v.begin(), v.end()), 1) << t.ToString();
    double sum = 0;
    for (double x : v) sum += x;
    // Truncation to few digits takes half a step off the mean.
    EXPECT_NEAR(sum / 5000, 0.5, t.bits() == 8 ? 0.08 : 0.02) << t.ToString();
  }
  for (DType t : {kFloat32, kFloat64}) {
    const auto v = Values(Tensor::RandN({20000}, t));
    double mean = 0, square = 0, fourth = 0;
    for (double x : v) mean += x / 20000, square += x * x / 20000, fourth += x * x * x * x / 20000;
    EXPECT_NEAR(mean, 0, 0.03);
    EXPECT_NEAR(square, 1, 0.05);
    EXPECT_NEAR(fourth, 3, 0.3);
  }
  const auto u = Values(Tensor::Uniform(-2, 6, {5000}));
  EXPECT_GE(*std::min_element(u.begin(), u.end()), -2);
  EXPECT_LT(*std::max_element(u.begin(), u.end()), 6);
  for (DType type : {kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2}) {
    for (const auto& [low, high] : {std::pair{0.0, 1.0}, {-2.0, -1.0}, {1.0, 1.9}, {-1.0, 0.0}}) {
      const auto some = Values(Tensor::Uniform(low, high, {3000}, type));
      EXPECT_LT(*std::max_element(some.begin(), some.end()), high) << type.ToString();
      EXPECT_NEAR(std::accumulate(some.begin(), some.end(), 0.0) / 3000, (low + high) / 2, 0.15);
    }
  }
  EXPECT_EQ(Values(Tensor::Uniform(2, 2, {1}))[0], 2);
  std::vector<int> counts(5);
  for (double x : Values(Tensor::RandInt(-2, 3, {5000}))) ++counts.at(static_cast<int>(x) + 2);
  for (int c : counts) EXPECT_NEAR(c, 1000, 150);
  const auto wide = Values(Tensor::RandInt(INT64_MIN, INT64_MAX, {100}, kInt64));
  EXPECT_LT(*std::min_element(wide.begin(), wide.end()), -1e18);
  EXPECT_GT(*std::max_element(wide.begin(), wide.end()), 1e18);
}

TEST(TensorRandom, OddSizesAndErrors) {
  for (int64_t n = 0; n < 10; ++n) EXPECT_EQ(Values(Tensor::Rand({n}, kFloat8E5M2)).size(), n);
  EXPECT_EQ(Values(Tensor::Rand({})).size(), 1u);
  EXPECT_EQ(Tensor::Rand({int64_t{1} << 34}).elements(), int64_t{1} << 34);
  EXPECT_ERROR(Tensor::Rand({2}, kInt32), "Rand", "use RandInt");
  EXPECT_ERROR(Tensor::RandInt(3, 3, {1}), "RandInt", "from 3 below 3");
  EXPECT_ERROR(Tensor::RandInt(0, 1000, {1}, kInt8), "RandInt", "does not fit i8");
}

TEST(Tensor, EmptyHandlesAreRefused) {
  Tensor none;
  EXPECT_FALSE(none);
  EXPECT_TRUE(Tensor::Zeros({1}));
  EXPECT_ERROR(none.Exp(), "Exp", "empty");
  EXPECT_ERROR(none + 1, "Add", "empty");
  EXPECT_ERROR(none.shape(), "Tensor", "empty");
  EXPECT_ERROR(none += 1, "+=", "empty");
  EXPECT_ERROR(Tensor(none) += 1, "+=", "empty");
  EXPECT_ERROR(Tensor(none).operator=(1), "=", "empty");
  EXPECT_ERROR(none.Assign(1), "Assign", "empty");
  EXPECT_TRUE(none.StandAlone());
}

TEST(Tensor, CallSitesAreTheUsers) {
  const Tensor x = Tensor::Empty({3});
  const Tensor y = x + 17.25;
  const int line = __LINE__ - 1;
  ASSERT_NE(y.uop().call_site(), nullptr);
  EXPECT_EQ(y.uop().call_site()->line, line);
  EXPECT_THAT(std::string(y.uop().call_site()->file), ::testing::EndsWith("tensor_create_test.cc"));
  const Tensor z = x.Softmax();
  EXPECT_EQ(z.uop().call_site()->line, __LINE__ - 1);
  EXPECT_EQ(z.uop().src(0).call_site()->line, __LINE__ - 2);
  const Tensor w = x[{Slice{1, 2}}];
  EXPECT_EQ(w.uop().call_site()->line, __LINE__ - 1);
}

}  // namespace
}  // namespace tessera
