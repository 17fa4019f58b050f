// Equations of letters, diagonals and small linear algebra, against plain loops.
#include <map>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

// Sums over every letter that the output does not name, one point after another.
std::vector<double> Loops(const std::vector<std::string>& inputs, const std::string& output,
                          const std::map<char, int64_t>& extent,
                          const std::vector<std::vector<double>>& values) {
  std::string letters = output;
  for (const std::string& in : inputs) {
    for (char c : in) {
      if (letters.find(c) == std::string::npos) letters += c;
    }
  }
  int64_t outer = 1, all = 1;
  for (char c : letters) all *= extent.at(c);
  for (char c : output) outer *= extent.at(c);
  std::vector<double> out(outer, 0);
  for (int64_t point = 0; point < all; ++point) {
    std::map<char, int64_t> at;
    int64_t rest = point;
    for (size_t i = letters.size(); i-- > 0;) {
      at[letters[i]] = rest % extent.at(letters[i]);
      rest /= extent.at(letters[i]);
    }
    double product = 1;
    for (size_t k = 0; k < inputs.size(); ++k) {
      int64_t flat = 0;
      for (char c : inputs[k]) flat = flat * extent.at(c) + at[c];
      product *= values[k][flat];
    }
    int64_t flat = 0;
    for (char c : output) flat = flat * extent.at(c) + at[c];
    out[flat] += product;
  }
  return out;
}

TEST(TensorEinsum, AgreesWithLoops) {
  const std::map<char, int64_t> extent = {{'i', 2}, {'j', 3}, {'k', 4}, {'l', 5}, {'b', 2}};
  const struct {
    std::vector<std::string> inputs;
    std::string output;
  } cases[] = {
      {{"ij", "jk"}, "ik"},   {{"ij", "jk"}, "ki"},   {{"bij", "bjk"}, "bik"},
      {{"i", "j"}, "ij"},     {{"ij"}, "ji"},         {{"ij"}, ""},
      {{"ij"}, "j"},          {{"ij", "ij"}, ""},     {{"ij", "jk", "kl"}, "il"},
      {{"ii"}, "i"},          {{"ii"}, ""},           {{"jij"}, "i"},
      {{"jijk"}, "kj"},       {{"ij", "kj"}, "ikj"},  {{"i", "i", "i"}, "i"},
      {{"iji", "jk"}, "ik"},  {{"ij", "kl"}, "lkji"}, {{"j", "jk", "k"}, ""},
      {{"bij", "kj"}, "bki"},
  };
  for (const auto& c : cases) {
    std::string equation;
    std::vector<std::vector<double>> values;
    std::vector<Tensor> tensors;
    for (const std::string& in : c.inputs) {
      std::vector<int64_t> dims;
      int64_t n = 1;
      for (char letter : in) {
        dims.push_back(extent.at(letter));
        n *= dims.back();
      }
      values.push_back(Draw(n, static_cast<uint32_t>(values.size() + 1)));
      tensors.push_back(Tensor::From(values.back(), dims));
      equation += (equation.empty() ? "" : ",") + in;
    }
    SCOPED_TRACE(equation + "->" + c.output);
    ExpectNear(Values(Einsum(equation + "->" + c.output, tensors)),
               Loops(c.inputs, c.output, extent, values), 1e-13);
  }
}

TEST(TensorEinsum, EllipsesAndNoOutput) {
  const Tensor x = Tensor::From(Draw(24, 1), {2, 3, 4}), y = Tensor::From(Draw(20, 2), {4, 5});
  const Tensor batch = Tensor::From(Draw(3 * 4 * 5, 3), {3, 4, 5});
  ExpectNear(Values(Einsum("...j,jk->...k", {x, y})), Values(x.MatMul(y)), 1e-14);
  ExpectNear(Values(Einsum("...ij,...jk->...ik", {x.Unsqueeze(1), batch})),
             Values(x.Unsqueeze(1).MatMul(batch)), 1e-14);
  ExpectNear(Values(Einsum("...jk", {x})), Values(x));
  ExpectNear(Values(Einsum("i...->...", {x})), Values(x.Sum({0})), 1e-14);
  ExpectNear(Values(Einsum("...->...", {x})), Values(x));
  ExpectNear(Values(Einsum("b a", {y})), Values(y.T()));
  ExpectNear(Values(Einsum("kj,ji", {y, Tensor::Ones({5, 2}, kFloat64)})),
             Values(Tensor::Ones({2, 5}, kFloat64).MatMul(y.T())), 1e-14);
  EXPECT_EQ(
      Einsum("i,i->", {Tensor::From({100, 100}).Cast(kInt8), Tensor::From({1, 1}).Cast(kInt8)})
          .dtype(),
      kInt32);
  EXPECT_EQ(Sizes(Einsum("ij,jk->ik", {Tensor::Zeros({2, 0}), Tensor::Zeros({0, 3})})),
            (std::vector<int64_t>{2, 3}));
  EXPECT_THAT(Values(Einsum(",->", {Tensor::Scalar(2.0), Tensor::Scalar(3.0)})), ElementsAre(6));
  EXPECT_ERROR(Einsum("ij,jk->ik", {x, y}), "Einsum", "does not name the 3 axes");
  EXPECT_ERROR(Einsum("ij,jk->ik", {y}), "Einsum", "names 2 operands, and there are 1");
  EXPECT_ERROR(Einsum("i1->i", {y}), "Einsum", "letters and one ...");
  EXPECT_ERROR(Einsum("ij->ijj", {y}), "Einsum", "each once");
  EXPECT_ERROR(Einsum("ij->k", {y}), "Einsum", "axes of the operands");
  EXPECT_ERROR(Einsum("ij,jk->ik", {y, y}), "Einsum", "one letter names axis 1");
  EXPECT_ERROR(Einsum("ii->i", {y}), "Einsum", "have one letter and differ");
}

TEST(TensorLinear, Products) {
  const Tensor a = Tensor::From({{1, 2}, {3, 4}}), b = Tensor::From({{0, 5}, {6, 7}});
  EXPECT_THAT(Values(a.Kron(b)),
              ElementsAre(0, 5, 0, 10, 6, 7, 12, 14, 0, 15, 0, 20, 18, 21, 24, 28));
  EXPECT_THAT(Values(a[0].Outer(b[1])), ElementsAre(6, 7, 12, 14));
  EXPECT_THAT(Values(a.Inner(b)), ElementsAre(10, 20, 20, 46));
  EXPECT_THAT(Values(a.TensorDot(b, 1)), ElementsAre(12, 19, 24, 43));
  EXPECT_THAT(Values(a.TensorDot(b)), ElementsAre(56));
  EXPECT_EQ(Sizes(a.TensorDot(b, 0)), (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_THAT(Values(a.TensorDot(b, Axes(0), Axes(1))), ElementsAre(15, 27, 20, 40));
  EXPECT_THAT(Values(Tensor::From({1, 2, 3}).Cross(Tensor::From({4, 5, 6}))),
              ElementsAre(-3, 6, -3));
  EXPECT_THAT(Values(Tensor::From({1, 2, 3}).Cross(Tensor::From({{4, 5, 6}, {1, 2, 4}}))),
              ElementsAre(-3, 6, -3, 2, -1, 0));
  EXPECT_THAT(Values(a.Trace()), ElementsAre(5));
  ExpectNear(Values(Tensor::From({{0, 0}, {3, 4}}).CDist(Tensor::From({{3, 4}}))), {5, 0});
  ExpectNear(Values(Tensor::From({{0, 0}, {3, 4}}).CDist(Tensor::From({{1, 1}}), 1)), {2, 5});
  EXPECT_ERROR(a.Cross(b), "Cross", "3 elements");
  EXPECT_ERROR(a.TensorDot(Tensor::Zeros({3, 2}), 1), "TensorDot", "differ");
  EXPECT_ERROR(a.TensorDot(b, 3), "TensorDot", "cannot join 3 axes");
}

TEST(TensorLinear, Determinants) {
  ExpectNear(Values(Tensor::From({{0.0, 2.0}, {3.0, 4.0}}, kFloat64).Det()), {-6});
  ExpectNear(Values(Tensor::From({{0.0, 0.0}, {3.0, 4.0}}, kFloat64).Det()), {0});
  EXPECT_THAT(Values(Tensor::Zeros({3, 0, 0}).Det()), ElementsAre(1, 1, 1));
  // By permutations of four columns, with their signs.
  const auto v = Draw(2 * 16, 4);
  std::vector<double> expected;
  for (int64_t batch = 0; batch < 2; ++batch) {
    std::array<int, 4> p = {0, 1, 2, 3};
    double sum = 0;
    do {
      int inversions = 0;
      double product = 1;
      for (int i = 0; i < 4; ++i) {
        product *= v[batch * 16 + i * 4 + p[i]];
        for (int j = i + 1; j < 4; ++j) inversions += p[i] > p[j];
      }
      sum += inversions % 2 == 0 ? product : -product;
    } while (std::next_permutation(p.begin(), p.end()));
    expected.push_back(sum);
  }
  ExpectNear(Values(Tensor::From(v, {2, 4, 4}).Det()), expected, 1e-13);
  EXPECT_ERROR(Tensor::Zeros({2, 3}).Det(), "Det", "square");
}

TEST(TensorArrange, DiagonalsAndTurns) {
  const Tensor x = Tensor::Arange(12).Reshape({3, 4});
  EXPECT_THAT(Values(x.Diagonal()), ElementsAre(0, 5, 10));
  EXPECT_THAT(Values(x.Diagonal(1)), ElementsAre(1, 6, 11));
  EXPECT_THAT(Values(x.Diagonal(3)), ElementsAre(3));
  EXPECT_THAT(Values(x.Diagonal(4)), ElementsAre());
  EXPECT_THAT(Values(x.Diagonal(-2)), ElementsAre(8));
  EXPECT_THAT(Values(x.Diagonal(-3)), ElementsAre());
  EXPECT_THAT(Values(x.T().Diagonal(1, 1, 0)), ElementsAre(1, 6, 11));
  EXPECT_EQ(Sizes(Tensor::Zeros({2, 5, 3}).Diagonal(0, 0, 2)), (std::vector<int64_t>{5, 2}));
  EXPECT_THAT(Values(Tensor::From({1, 2}).Diag(1)), ElementsAre(0, 1, 0, 0, 0, 2, 0, 0, 0));
  EXPECT_THAT(Values(Tensor::From({1, 2}).Diag(-1)), ElementsAre(0, 0, 0, 1, 0, 0, 0, 2, 0));
  EXPECT_THAT(Values(x.Diag()), ElementsAre(0, 5, 10));
  EXPECT_EQ(Sizes(x.DiagEmbed()), (std::vector<int64_t>{3, 4, 4}));
  const Tensor m = Tensor::From({{1, 2}, {3, 4}});
  EXPECT_THAT(Values(m.Rot90()), ElementsAre(2, 4, 1, 3));
  EXPECT_THAT(Values(m.Rot90(2)), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(Values(m.Rot90(-1)), ElementsAre(3, 1, 4, 2));
  EXPECT_EQ(Sizes(Tensor::Zeros({2, 3, 4, 5}).MoveAxis({0, -1}, {-1, 0})),
            (std::vector<int64_t>{5, 3, 4, 2}));
  EXPECT_EQ(Sizes(Tensor::Zeros({2, 3, 4}).MoveAxis(0, 1)), (std::vector<int64_t>{3, 2, 4}));
  EXPECT_THAT(Values(Tensor::Arange(5).Unfold(0, 2, 2)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Values(m.Tile({2})), ElementsAre(1, 2, 1, 2, 3, 4, 3, 4));
  EXPECT_THAT(Values(Tensor::Arange(16).Reshape({4, 2, 2}).PixelShuffle(2)),
              ElementsAre(0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15));
  EXPECT_THAT(Values(Tensor::Arange(16).Reshape({4, 2, 2}).PixelShuffle(2).PixelUnshuffle(2)),
              ::testing::ElementsAreArray(Values(Tensor::Arange(16))));
  EXPECT_ERROR(m.PixelShuffle(2), "PixelShuffle", "[..., C, H, W]");
  EXPECT_ERROR(m.Rot90(1, 0, 0), "Rot90", "from one axis to another");
  EXPECT_ERROR(m.MoveAxis({0}, {0, 1}), "MoveAxis", "2 places");
}

TEST(TensorArrange, OfSeveralAndMadeOfNumbers) {
  const Tensor a = Tensor::From({1, 2}), b = Tensor::From({3, 4});
  EXPECT_THAT(Values(HStack({a, b})), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Values(VStack({a, b})), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(Sizes(VStack({a, b})), (std::vector<int64_t>{2, 2}));
  EXPECT_THAT(Values(HStack({a.Unsqueeze(1), b.Unsqueeze(1)})), ElementsAre(1, 3, 2, 4));
  const auto ij = MeshGrid({a, Tensor::From({5, 6, 7})});
  EXPECT_THAT(Values(ij[0]), ElementsAre(1, 1, 1, 2, 2, 2));
  EXPECT_THAT(Values(ij[1]), ElementsAre(5, 6, 7, 5, 6, 7));
  EXPECT_EQ(Sizes(MeshGrid({a, Tensor::From({5, 6, 7})}, "xy")[0]), (std::vector<int64_t>{3, 2}));
  const auto pieces = Tensor::Arange(6).TensorSplit({2, -1, 9});
  EXPECT_THAT(Values(pieces[0]), ElementsAre(0, 1));
  EXPECT_THAT(Values(pieces[1]), ElementsAre(2, 3, 4));
  EXPECT_THAT(Values(pieces[2]), ElementsAre(5));
  EXPECT_THAT(Values(pieces[3]), ElementsAre());
  ExpectNear(Values(Tensor::Logspace(0, 2, 3)), {1, 10, 100});
  EXPECT_THAT(Values(Tensor::Tri(2, 3, 1)), ElementsAre(1, 1, 0, 1, 1, 1));
  EXPECT_THAT(Values(Tensor::From({2, 3}).Vander(3)), ElementsAre(4, 2, 1, 9, 3, 1));
  EXPECT_THAT(Values(Tensor::From({2, 0}).Vander(3, true)), ElementsAre(1, 2, 4, 1, 0, 0));
  EXPECT_EQ(Sizes(Tensor::From({2, 0}).Vander(0)), (std::vector<int64_t>{2, 0}));
  EXPECT_ERROR(MeshGrid({a}, "yx"), "MeshGrid", "indexing");
}

}  // namespace
}  // namespace tessera
