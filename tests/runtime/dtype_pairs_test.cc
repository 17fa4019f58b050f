// Every function with every dtype: the values of plain loops, or an Error where it is written.
#include <cmath>

#include "tests/graph/tensor_testing.h"
#include "tests/support/dtype_rows.h"

namespace tessera {
namespace {

Tensor Input(DType t, int which) {
  return Tensor::From(DTypeInput(t, which), {2, 4}).Cast(t).To("CPU").Realize();
}

// The loops' number as the dtype holds it.
double Held(double v, DType t) {
  if (t.IsFloat()) return Convert(Scalar::Float(v), kFloat64, t).AsFloat();
  const Scalar held = Convert(Scalar::Int(static_cast<int64_t>(v)), kInt64, t);
  return t.IsUnsigned() ? static_cast<double>(held.bits) : static_cast<double>(held.AsInt());
}

// Within one unit of the last place of a narrow float, which is rounded once; and of f32 and f64
// within some of 1, below which differences of larger numbers are.
bool IsNear(double got, double want, DType t) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (got == want || !t.IsFloat()) return got == want;
  const bool narrow = t.bits() < 32;
  const double size = std::max(std::fabs(want), narrow ? 0x1p-6 : 1);
  return std::fabs(got - want) <= std::ldexp(narrow ? size : 16 * size, 1 - DigitsOf(t));
}

void ExpectRow(const DTypeRow& row, DType t, const Tensor& y, const std::vector<double>& got) {
  SCOPED_TRACE(row.name + " of " + t.ToString());
  const DType gives = row.gives(t);
  EXPECT_EQ(y.dtype(), gives);
  const Numbers want = row.loop(DTypeInput(t, 0), DTypeInput(t, 1));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(IsNear(got[i], Held(want[i], gives), gives))
        << "element " << i << ": " << got[i] << " is not " << want[i];
  }
}

// What a row makes of a dtype, or nothing where it is refused as it should be.
Tensor Written(const DTypeRow& row, DType t) {
  const Tensor x = Input(t, 0), y = Input(t, 1);
  Tensor out;
  const std::string message = ErrorOf([&] { out = row.fn(x, y); });
  if (IsTaken(row.takes, t)) {
    EXPECT_EQ(message, "") << row.name << " of " << t.ToString();
    return out;
  }
  EXPECT_THAT(message, ::testing::ContainsRegex("^" + row.name + ": .*" + t.ToString()))
      << row.name << " must be refused " << t.ToString();
  return Tensor();
}

TEST(DTypePairs, TheReferenceIsWhatLoopsGive) {
  for (const DTypeRow& row : DTypeRows()) {
    for (DType t : AllDTypes()) {
      if (const Tensor y = Written(row, t)) ExpectRow(row, t, y, Values(y));
    }
  }
}

// A third of the functions for each dtype, another third for the next one; all at once, so that few
// kernels are compiled.
TEST(DTypePairs, CompiledTooSlow) {
  const std::vector<DTypeRow> rows = DTypeRows();
  const std::vector<DType> dtypes = AllDTypes();
  for (size_t d = 0; d < dtypes.size(); ++d) {
    std::vector<Tensor> all;
    std::vector<size_t> of;
    for (size_t i = d % 3; i < rows.size(); i += 3) {
      if (!IsTaken(rows[i].takes, dtypes[d])) continue;
      all.push_back(Written(rows[i], dtypes[d]));
      of.push_back(i);
    }
    Tensor::Realize(absl::MakeSpan(all));
    for (size_t k = 0; k < all.size(); ++k) {
      ExpectRow(rows[of[k]], dtypes[d], all[k], all[k].ToVector<double>());
    }
  }
}

// Two dtypes meet in the same one whatever joins them.
TEST(DTypePairs, OfTwoTheyMeet) {
  for (DType s : AllDTypes()) {
    for (DType t : AllDTypes()) {
      SCOPED_TRACE(s.ToString() + " with " + t.ToString());
      const Tensor x = Input(s, 1), y = Input(t, 1);
      const DType meet = Promote(s, t);
      const Tensor sum = x + y, both = Cat({x, y}), most = x.Maximum(y),
                   chosen = Where(x == y, x, y);
      for (const Tensor& made : {sum, both, most, chosen}) EXPECT_EQ(made.dtype(), meet);
      EXPECT_EQ(x.MatMul(y.T()).dtype(), SumType(meet));
      const Numbers a = DTypeInput(s, 1), b = DTypeInput(t, 1);
      Numbers added, larger;
      for (size_t i = 0; i < a.size(); ++i) {
        added.push_back(Held(a[i] + b[i], meet));
        larger.push_back(std::fmax(a[i], b[i]));
      }
      EXPECT_EQ(Values(sum), added);
      EXPECT_EQ(Values(most), larger);
    }
  }
}

}  // namespace
}  // namespace tessera
