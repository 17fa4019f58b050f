// What the fuzzer has found, made small and named after its seed (of the generator at that time).
#include "absl/strings/str_cat.h"
#include "graph/text.h"
#include "tests/fuzz/fuzz_case.h"
#include "tests/testing.h"

namespace tessera {
namespace {

// Runs the last node of a graph in text form; small numbers fill its parameters.
std::string Try(const std::string& text, const Bindings& values = {}) {
  const auto parsed = Parse(text);
  if (!parsed.ok()) return parsed.status().ToString();
  FuzzCase c;
  c.roots = *parsed;
  c.values = values;
  for (const UOp& u : TopoSort(c.roots)) {
    if (!u.is(Op::kParam)) continue;
    const auto slot = static_cast<size_t>(u.arg<ParamArg>().slot);
    if (c.data.size() <= slot) c.data.resize(slot + 1);
    const int64_t n = u.shape().MaxElements();
    c.data[slot].resize(n * u.dtype().bytes());
    for (int64_t i = 0; i < n; ++i) {
      const double v = u.dtype().IsFloat() ? static_cast<double>(i * 7 % 11 - 5) / 4 : i % 3;
      StoreScalar(&c.data[slot][i * u.dtype().bytes()], u.dtype(),
                  Convert(Scalar::Float(v), kFloat64, u.dtype()));
    }
  }
  return RunCase(c);
}

// Lanes of a loop that has one tile at most, symbolically: a reduction that ran over it twice.
TEST(Seeds, N1125) {
  for (int64_t n : {1, 3, 4, 5}) {
    EXPECT_EQ(Try(R"(
%0 = VAR i64 () n 1..5
%1 = PARAM f32 () slot 0 [5] @CPU
%2 = SHRINK f32 (%1) [(0, %0)] : f32[%0] on CPU
%3 = REDUCE f32 (%2) MIN axes=[0] : f32[1] on CPU
%4 = EXPAND f32 (%3) [%0] : f32[%0] on CPU
%5 = CMPEQ bool (%2, %4) : bool[%0] on CPU
%6 = IOTA i32 () [%0]
%7 = CONST i32 () 2147483647
%8 = WHERE i32 (%5, %6, %7) : i32[%0] on CPU
%9 = REDUCE i32 (%8) MIN axes=[0] : i32[1] on CPU
)",
                  {{"n", n}}),
              "");
  }
}

// The maximum over no tiles is -inf in f32, which f8e4m3 has not.
TEST(Seeds, N1230) {
  for (const char* type : {"f8e4m3", "f8e5m2", "bf16", "f16"}) {
    for (const char* op : {"MAX", "MIN"}) {
      for (int64_t n : {1, 4, 8, 19}) {
        EXPECT_EQ(Try(absl::StrCat(
                          "%0 = VAR i64 () n 1..20\n%1 = PARAM ", type, R"( () slot 0 [20] @CPU
%2 = SHRINK )",
                          type, " (%1) [(0, %0)]\n%3 = REDUCE ", type, " (%2) ", op, " axes=[0]\n"),
                      {{"n", n}}),
                  "")
            << type << " " << op << " " << n;
      }
    }
  }
}

// Scratch that two loops fill, each for itself.
TEST(Seeds, N2579) {
  EXPECT_EQ(Try(R"(
%0 = PARAM f32 () slot 0 [9, 9, 4] @CPU
%1 = ERF f32 (%0) : f32[9, 9, 4] on CPU
%2 = PARAM i32 () slot 1 [9, 9, 4] @CPU
%3 = GATHER f32 (%1, %2) [0, 0, 0] : f32[9, 9, 4, 9, 4] on CPU
%4 = REDUCE f32 (%3) ADD axes=[4, 2] : f32[9, 9, 1, 9, 1] on CPU
%5 = EXPAND f32 (%4) [9, 9, 4, 9, 4] : f32[9, 9, 4, 9, 4] on CPU
%6 = SUB f32 (%3, %5) : f32[9, 9, 4, 9, 4] on CPU
%7 = REDUCE f32 (%6) ADD axes=[4, 2] : f32[9, 9, 1, 9, 1] on CPU
)"),
            "");
}

TEST(Seeds, N2665) {
  for (int64_t n : {1, 3, 5}) {
    EXPECT_EQ(Try(R"(
%0 = VAR i64 () n 1..5
%1 = PARAM f32 () slot 0 [5, 5] @CPU
%2 = SHRINK f32 (%1) [(0, %0), (0, 5)] : f32[%0, 5] on CPU
%3 = TANH f32 (%2) : f32[%0, 5] on CPU
%4 = CAST bool (%3) : bool[%0, 5] on CPU
%5 = REDUCE bool (%4) AND axes=[0, 1] : bool[1, 1] on CPU
%6 = RESHAPE bool (%5) []
%7 = CAST f32 (%6)
%8 = MAX f32 (%3, %7) : f32[%0, 5] on CPU
)",
                  {{"n", n}}),
              "");
  }
}

// What is looked up where products say, which are staged for all columns at once: a column of the
// lookup is no column of the stage.
TEST(Seeds, N233041368001337) {
  EXPECT_EQ(Try(R"(
%0 = PARAM f8e4m3 () slot 0 [37, 1, 1] @CPU
%1 = PARAM u64 () slot 1 [1, 9] @CPU
%2 = GATHER f8e4m3 (%0, %1) [2, 0, 0] : f8e4m3[37, 1, 1, 9] on CPU
%3 = RESHAPE f8e4m3 (%2) [37, 1, 1, 1, 9] : f8e4m3[37, 1, 1, 1, 9] on CPU
%4 = CMPEQ bool (%2, %2) : bool[37, 1, 1, 9] on CPU
%5 = RESHAPE bool (%4) [37, 1, 1, 1, 9] : bool[37, 1, 1, 1, 9] on CPU
%6 = CAST f8e4m3 (%5) : f8e4m3[37, 1, 1, 1, 9] on CPU
%7 = CAT f8e4m3 (%3, %6) 3 : f8e4m3[37, 1, 1, 2, 9] on CPU
%8 = CAST f32 (%2) : f32[37, 1, 1, 9] on CPU
%9 = REDUCE f32 (%8) MUL axes=[0] : f32[1, 1, 1, 9] on CPU
%10 = RESHAPE f32 (%9) [1, 1, 9] : f32[1, 1, 9] on CPU
%11 = CAST f8e4m3 (%10) : f8e4m3[1, 1, 9] on CPU
%12 = CAST i32 (%11) : i32[1, 1, 9] on CPU
%13 = ABS i32 (%12) : i32[1, 1, 9] on CPU
%14 = CONST i32 () 9
%15 = FLOORMOD i32 (%13, %14) : i32[1, 1, 9] on CPU
%16 = GATHER f8e4m3 (%7, %15) [4, 0, 0] : f8e4m3[37, 1, 1, 2, 1, 1, 9] on CPU
)"),
            "");
}

}  // namespace
}  // namespace tessera
