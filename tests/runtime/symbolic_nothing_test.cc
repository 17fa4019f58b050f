// Reductions over a symbolic extent that is 0 at the call, beside those over a fixed one.
#include <cmath>
#include <sstream>

#include "runtime/capture.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

std::vector<double> OfLength(const std::function<Tensor(const Tensor&)>& f, int64_t n) {
  const Variable length("nothing_n", 0, 4);
  const Tensor data = Tensor::From({{3.f, 1.f}, {5.f, 9.f}, {4.f, 2.f}, {1.f, 8.f}}).Realize();
  const Tensor part = data.SliceAxis(0, {0, length});
  return Realize({f(part)}, {{"nothing_n", n}})[0].ToVector<double>();
}

TEST(SymbolicNothing, VarAndStdAreNan) {
  for (int correction : {0, 1, 2}) {
    const auto var = [&](const Tensor& x) { return x.Var(0, correction); };
    const auto std = [&](const Tensor& x) { return x.Std(0, correction); };
    const Tensor none = Tensor::Zeros({0, 2});
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(std::isnan(var(none).ToVector<double>()[i]));
      EXPECT_TRUE(std::isnan(OfLength(var, 0)[i])) << correction;
      EXPECT_TRUE(std::isnan(OfLength(std, 0)[i])) << correction;
    }
  }
  EXPECT_NEAR(OfLength([](const Tensor& x) { return x.Var(0, 0); }, 2)[1], 16, 1e-4);
  // Fewer than the correction counts as none, as of a fixed extent.
  EXPECT_TRUE(std::isinf(OfLength([](const Tensor& x) { return x.Var({0, 1}, 3); }, 1)[0]));
}

TEST(SymbolicNothing, PositionsOfNothingAreMinusOne) {
  const auto most = [](const Tensor& x) { return x.ArgMax(0); };
  const auto least = [](const Tensor& x) { return x.ArgMin(0); };
  EXPECT_EQ(OfLength(most, 0), (std::vector<double>{-1, -1}));
  EXPECT_EQ(OfLength(least, 0), (std::vector<double>{-1, -1}));
  EXPECT_EQ(OfLength(most, 3), (std::vector<double>{1, 1}));
  EXPECT_EQ(OfLength(least, 4), (std::vector<double>{3, 0}));
  EXPECT_EQ(OfLength([](const Tensor& x) { return x.ArgMax(); }, 0), std::vector<double>{-1});
}

TEST(SymbolicNothing, ChunksTogetherAreTheWhole) {
  const std::vector<double> of_first = {3, 5, 4, 1};
  for (int64_t n = 0; n <= 4; ++n) {
    size_t of_even = 0, of_equal = 0;
    for (int i = 0; i < 3; ++i) {
      const auto even =
          OfLength([&](const Tensor& x) { return x.Select(1, 0).ArraySplit(3)[i]; }, n);
      EXPECT_EQ(even.size(), static_cast<size_t>((n + 2 - i) / 3)) << n << " " << i;
      for (double v : even) EXPECT_EQ(v, of_first.at(of_even++));
      const auto equal = OfLength([&](const Tensor& x) { return x.Select(1, 0).Chunk(3)[i]; }, n);
      const int64_t each = (n + 2) / 3;
      EXPECT_EQ(equal.size(), static_cast<size_t>(std::clamp<int64_t>(n - i * each, 0, each)));
      for (double v : equal) EXPECT_EQ(v, of_first.at(of_equal++));
    }
    EXPECT_EQ(of_even, static_cast<size_t>(n));
    EXPECT_EQ(of_equal, static_cast<size_t>(n));
  }
  const Tensor x = Tensor::Ones({4}).SliceAxis(0, {0, Variable("nothing_n", 0, 4)});
  EXPECT_ERROR(x.Split(3), "Split", "use Chunk");
}

TEST(SymbolicNothing, CountsThatMayBeLargeAreWide) {
  const Tensor large = Tensor::Zeros({1 << 16, 1 << 16}, kUInt8);
  EXPECT_EQ(large.CountNonzero().dtype(), kInt64);
  EXPECT_EQ(large.CountNonzero(0).dtype(), kInt32);
}

TEST(SymbolicNothing, MessagesShowWhatWasGiven) {
  EXPECT_ERROR(Tensor::Zeros({2, -1}), "Zeros", "the extent -1 of [2, -1] is negative");
  const Tensor a = Tensor::Ones({2, 3}).To("CPU:1"), b = Tensor::Ones({3, 2}).To("CPU:0");
  EXPECT_ERROR(a.MatMul(b), "MatMul", "f32[2, 3] on CPU:1 and f32[3, 2] on CPU");
}

TEST(SymbolicNothing, NanHasNoSignWhenPrinted) {
  std::ostringstream out;
  out << Tensor::From({-std::nan(""), 1.0}, kFloat32);
  EXPECT_EQ(out.str().find("-nan"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("nan"), std::string::npos);
}

}  // namespace
}  // namespace tessera
