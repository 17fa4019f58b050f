// Explain: what would run, without running it.
#include "graph/tensor.h"
#include "runtime/runtime.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Explain, ShowsKernelsBuffersAndWhereTheyWereWritten) {
  const Tensor x = Tensor::From({{1, 2}, {3, 4}}, kFloat32);
  const std::string text = Explain((x * 2).Exp());
  const int line = __LINE__ - 1;
  EXPECT_THAT(text, HasSubstr("plan of f32[2, 2] on CPU: 1 kernel, 0 copies"));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("explain_test.cc:", line)));
  EXPECT_THAT(text, HasSubstr("32 B"));  // 16 read, 16 written
  EXPECT_THAT(text, HasSubstr("result        16 B  f32[2, 2] on CPU"));
}

TEST(Explain, RunsNothing) {
  const Tensor x = Tensor::From({1, 2}, kFloat32);
  const Tensor y = x + 1;
  const RuntimeStats before = GetRuntimeStats();
  Explain(y);
  EXPECT_EQ(GetRuntimeStats().kernels_run, before.kernels_run);
  EXPECT_EQ(GetRuntimeStats().plans_made, before.plans_made);
  EXPECT_FALSE(y.uop().realized());
}

TEST(Explain, CopiesHaveBytesReasonAndCallSite) {
  const Tensor x = Tensor::From({1, 2, 3}, kFloat32);
  const Tensor y = (x * 2).To("CPU:1");
  const int line = __LINE__ - 1;
  const std::string text = Explain(y + 1);
  EXPECT_THAT(text, HasSubstr("2 kernels, 1 copy of 12 B"));
  EXPECT_THAT(text, HasSubstr("copy CPU -> CPU:1 (as written: To)"));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("explain_test.cc:", line)));
  EXPECT_THAT(text, HasSubstr("temps of"));
}

TEST(Explain, CountsDistinctKernels) {
  Tensor x = Tensor::From({{1, 2}, {3, 4}}, kFloat32);
  for (int i = 0; i < 3; ++i) x = (x + 1).Contiguous();
  EXPECT_THAT(Explain(x), HasSubstr("3 kernels (1 distinct)"));
}

TEST(Explain, MarksKernelsThatOnlyMoveData) {
  const Tensor x = Tensor::From({{1, 2}, {3, 4}}, kFloat32);
  EXPECT_THAT(Explain(x.T().Contiguous()), HasSubstr("(moves data)"));
  EXPECT_THAT(Explain(x.T() + 1), Not(HasSubstr("(moves data)")));
}

TEST(Explain, GivesTheHighestOfWhatDependsOnVariables) {
  const Variable n("explain_n", 1, 100);
  const Tensor x = Tensor::Zeros({100}).Contiguous().Realize();
  EXPECT_THAT(Explain(x.Slice({{0, n}}) + 1), HasSubstr("<= 800 B"));
}

// A simulated GPU has four multiprocessors; each row is a block here.
TEST(Explain, SaysHowManyMultiprocessorsAreBusy) {
  const auto rows = [](int64_t n) {
    return Explain(Tensor::Empty({n, 4096}, kFloat32, "SIM").Sum({1}));
  };
  EXPECT_THAT(rows(3), HasSubstr(" 3 75% "));
  EXPECT_THAT(rows(6), HasSubstr(" 4 75% "));
}

TEST(Explain, OfNothingToDo) {
  Tensor x = Tensor::From({1, 2}, kFloat32);
  EXPECT_THAT(Explain(x), HasSubstr("0 kernels, 0 copies"));
  EXPECT_THAT([] { Explain(Tensor()); }, testing::Throws<Error>());
}

}  // namespace
}  // namespace tessera
