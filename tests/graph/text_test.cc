// The text form: what it looks like, that it reads back as the same nodes, and that no text,
// however broken or deep, does harm.
#include "graph/text.h"

#include <chrono>
#include <cmath>
#include <random>

#include "graph/buffer.h"
#include "tests/graph/random_graph.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<UOp> MustParse(const std::string& text) {
  auto roots = Parse(text);
  EXPECT_OK(roots) << text;
  return roots.ok() ? *std::move(roots) : std::vector<UOp>();
}

// Every kind of argument once, as Print writes it.
constexpr char kAllArguments[] =
    R"(%0 = PARAM f32 () slot 0 [4, 8] @CPU
%1 = VAR i64 () start_pos 0..4095
%2 = CONST i64 () 1
%3 = ADD i64 (%1, %2)
%4 = PARAM f32 () slot 1 [%3, 8] @CPU
%5 = RESHAPE f32 (%0) [2, 16] : f32[2, 16] on CPU
%6 = PERMUTE f32 (%5) [1, 0] : f32[16, 2] on CPU
%7 = PAD f32 (%6) [(0, 1), (%1, 0)] : f32[17, ?] on CPU
%8 = SHRINK f32 (%4) [(0, %1), (2, 8)] : f32[%1, 6] on CPU
%9 = WINDOW f32 (%0) axes=[1] size=[3] stride=[2] dilation=[1] : f32[4, 3, 3] on CPU
%10 = REDUCE f32 (%9) ADD axes=[2] : f32[4, 3, 1] on CPU
%11 = COPY f32 (%10) @CUDA:1 : f32[4, 3, 1] on CUDA:1
%12 = COPY f32 (%10) @CPU:0-1{S0} : f32[4, 3, 1] on CPU:0-1{S0}
%13 = CONST f32 () -0.0
%14 = CONST bool () true
%15 = IOTA i32 () [%1]
%16 = CONST i64 () 8
%17 = RANGE i64 (%16) r0:loop
%18 = INDEX f32 (%0, %17)
%19 = REDUCE f32 (%18, %17) MAX
%19a = SCRATCH f32 () [(0, 32)]
%19b = INDEX f32 (%19a, %17)
%19c = STORE void (%19b, %18, %17) 0
%20 = STAGE f32 (%19a, %19c) s3:register
%21 = STORE void (%18, %19) 7
%22 = CONST f32x4 () 1.5
%23 = PROGRAM void (%22) "a \"name\"; of\n"
%24 = VAR i64 () "odd name" -3..-1
%25 = EXCHANGE f32 (%0) "CPU<:0..4;:0..8>" "CPU:0-1{M}<0:0..2,2..4;:0..8>" [2, 8] : f32[2, 8] on CPU:0-1{M}
return %23, %7, %8, %11, %12, %13, %14, %15, %20, %21, %24, %5, %25
)";

TEST(Text, PrintsEveryKindOfArgumentAndReadsItBack) {
  const std::vector<UOp> roots = MustParse(kAllArguments);
  EXPECT_EQ(roots.size(), 13u);
  const std::string printed = Print(roots);
  EXPECT_EQ(MustParse(printed), roots) << printed;
  // The numbering is Print's own, so it is a fixed point of printing and parsing.
  EXPECT_EQ(Print(MustParse(printed)), printed);
  for (const char* line :
       {"= VAR i64 () start_pos 0..4095\n", " @CPU:0-1{S0} : f32[4, 3, 1] on CPU:0-1{S0}\n",
        "axes=[1] size=[3] stride=[2] dilation=[1] : f32[4, 3, 3] on CPU\n", ":loop\n",
        " s3:register\n", "\"a \\\"name\\\"; of\\n\"\n", "\"odd name\" -3..-1\n",
        " = CONST f32 () -0.0\n"}) {
    EXPECT_THAT(printed, HasSubstr(line));
  }
}

TEST(Text, IsWhatTheContractShows) {
  const UOp x = UOp::Make(Op::kParam, kFloat32, {}, ParamArg{2, {4, 8}, Device(Place("CPU", 0))});
  const UOp sum = UOp::Make(Op::kReduce, {UOp::Make(Op::kAdd, {x, UOp::Const(kFloat32, 2.0)})},
                            ReduceArg{Op::kAdd, {1}});
  EXPECT_EQ(Print({sum}),
            "%0 = PARAM f32 () slot 2 [4, 8] @CPU\n"
            "%1 = CONST f32 () 2.0\n"
            "%2 = ADD f32 (%0, %1) : f32[4, 8] on CPU\n"
            "%3 = REDUCE f32 (%2) ADD axes=[1] : f32[4, 1] on CPU\n");
}

TEST(Text, RootsAreTheReturnedOrTheUnused) {
  const std::string text =
      "%a = CONST i32 () 1\n%d = CONST i32 () 1\n%b = CONST i32 () 2\n%c = ADD i32 (%a, %b)\n";
  const UOp a = UOp::Const(kInt32, int64_t{1}), b = UOp::Const(kInt32, int64_t{2});
  const UOp c = UOp::Make(Op::kAdd, {a, b});
  EXPECT_THAT(MustParse(text), ElementsAre(c));
  EXPECT_THAT(MustParse(text + "return %b, %c, %b ; again\n"), ElementsAre(b, c, b));
  EXPECT_THAT(MustParse(text + "return"), ElementsAre());
  EXPECT_EQ(MustParse(Print({b, c, b})), (std::vector<UOp>{b, c, b}));
  EXPECT_EQ(Print({}), "");
  EXPECT_THAT(MustParse(" ; nothing\n\n \t \r\n"), ElementsAre());
}

TEST(Text, AnIdThatIsAliveIsThatBuffer) {
  const auto buffer = std::make_shared<Buffer>();
  const UOp alive =
      UOp::Make(Op::kBuffer, kFloat32, {}, BufferArg{buffer, {3}, Device(Place("CPU", 0))});
  EXPECT_EQ(MustParse(Print({alive})), std::vector<UOp>{alive});
}

TEST(Text, AnUnknownIdIsOneFreshBufferWithinAText) {
  // Made-up ids must not meet ids that the text uses for something else.
  const int64_t next = std::make_shared<Buffer>()->id + 1;
  std::string text;
  for (int i = 0; i < 20; ++i) {
    for (const char* which : {"a", "b"}) {
      absl::StrAppend(&text, "%", which, i, " = BUFFER f32 () #", next + 19 - i, " [3] @CPU\n");
    }
  }
  const std::vector<UOp> roots = MustParse(text);
  ASSERT_EQ(roots.size(), 20u);
  std::set<const Node*> distinct;
  for (int i = 0; i < 20; ++i) {
    distinct.insert(roots[i].get());
  }
  EXPECT_EQ(distinct.size(), 20u);
}

TEST(Text, ABufferIsForgottenWhenItDies) {
  auto buffer = std::make_shared<Buffer>();
  const int64_t id = buffer->id;
  EXPECT_EQ(FindBuffer(id), buffer);
  buffer.reset();
  EXPECT_EQ(FindBuffer(id), nullptr);
}

TEST(Text, ValuesKeepTheirBits) {
  std::vector<UOp> roots;
  for (uint64_t bits : std::initializer_list<uint64_t>{0x7FF8000000000000u, 0xFFF8000000000000u,
                                                       0x7FF8000000000001u, 0xFFF0000000000001u,
                                                       0x0000000000000001u, 0x7FEFFFFFFFFFFFFFu}) {
    roots.push_back(UOp::Const(kFloat64, Scalar{bits}));
  }
  for (double v : {0.1, -0.0, 1e300, HUGE_VAL, 3.0}) roots.push_back(UOp::Const(kFloat64, v));
  for (double v : {448.0, 0.001953125}) roots.push_back(UOp::Const(kFloat8E4M3, v));
  roots.push_back(UOp::Const(kUInt64, Scalar{~uint64_t{0}}));
  roots.push_back(UOp::Const(kInt64, INT64_MIN));
  roots.push_back(UOp::Const(kFloat16.WithLanes(8), 0.5));
  EXPECT_EQ(MustParse(Print(roots)), roots) << Print(roots);
}

TEST(Text, MistakesNameTheirLine) {
  const std::string two = "%0 = PARAM f32 () slot 0 [4, 8] @CPU\n";
  const std::pair<const char*, const char*> cases[] = {
      {"%1 = ADDD f32 (%0, %0)", "line 2: there is no op 'ADDD'"},
      {"%1 = ADD f33 (%0, %0)", "there is no dtype 'f33'"},
      {"%1 = ADD f32 (%0, %2)", "%2 is not defined before its use"},
      {"%0 = CONST f32 () 1.0", "%0 is defined twice"},
      {"%1 = ADD i32 (%0, %0)", "gives f32 here, not i32"},
      {"%1 = ADD f32 (%0)", "takes 2 sources, has 1"},
      {"%1 = RESHAPE f32 (%0) [5]", "cannot make [5]"},
      {"%1 = NEG f32 (%0) : f32[4, 9]", "the annotation is wrong: this is f32[4, 8] on CPU"},
      {"%1 = NEG f32 (%0) : f32[4]", "the annotation is wrong"},
      {"%1 = NEG f32 (%0) : i32[4, 8]", "the annotation is wrong"},
      {"%1 = NEG f32 (%0) : f32[4, 8] on CPU:1", "the annotation is wrong"},
      {"%1 = NEG f32 (%0) 3", "expected the end of the argument at '3'"},
      {"%1 = RESHAPE f32 (%0)", "expected '[' at the end"},
      {"%1 = RESHAPE f32 (%0) [%0]", "an extent must be an i64 scalar"},
      {"%1 = CONST i8 () 300", "'300' is no value of i8"},
      {"%1 = BUFFER f32 () #-1000 [99999999999999999999]", "expected an integer of 64 bits"},
      {"%1 = COPY f32 (%0) @GPU", "there is no kind of device 'GPU'"},
      {"%1 = PROGRAM void () \"open", "expected a closing quote"},
      {"ADD", "expected '%name = ...' or 'return' at 'ADD'"},
      {"return %0\nreturn %0", "line 3: a second return"},
  };
  for (const auto& [line, message] : cases) {
    EXPECT_THAT(Parse(two + line), StatusIs(kInvalid, message)) << line;
  }
}

TEST(Text, AMillionNodesAndSixtyFourDoublingsOnASmallStackSlow) {
  OnSmallStack([] {
    UOp x = UOp::Make(Op::kParam, kFloat32, {}, ParamArg{0, {4}, Device(Place("CPU", 0))});
    UOp chain = x, twice = x;
    for (int i = 0; i < 1000000; ++i) chain = UOp::Make(Op::kNeg, {chain});
    for (int i = 0; i < 64; ++i) twice = UOp::Make(Op::kAdd, {twice, twice});
    const std::vector<UOp> roots = {chain, twice};
    const std::string text = Print(roots);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1000065);
    EXPECT_TRUE(MustParse(text) == roots);
  });
}

bool Any(Op) { return true; }

TEST(TextFuzz, RandomGraphsReadBackAsThemselves) {
  for (int seed = 0; seed < 300; ++seed) {
    std::mt19937 rng(seed);
    const std::vector<UOp> roots = RandomGraph(60, rng, Any);
    const std::string text = Print(roots);
    auto back = Parse(text);
    ASSERT_OK(back) << "seed " << seed << "\n" << text;
    ASSERT_EQ(*back, roots) << "seed " << seed << "\n" << text;
  }
}

// Texts with bytes changed, cut out, doubled: an error or a graph, never a crash.
void Mutate(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  const std::string bits = " %=()[],:;.@#\"\\-0123456789abcdefxyzADRSTE\n";
  for (int seed = 0; std::chrono::steady_clock::now() < end; ++seed) {
    std::mt19937 rng(seed);
    std::string text = seed % 2 ? kAllArguments : Print(RandomGraph(20, rng, Any));
    const int changes = 1 + rng() % 4;
    for (int i = 0; i < changes && !text.empty(); ++i) {
      const size_t at = rng() % text.size();
      switch (rng() % 5) {
        case 0:
          text[at] = bits[rng() % bits.size()];
          break;
        case 1:
          text.erase(at, 1 + rng() % 8);
          break;
        case 2:
          text.insert(at, text.substr(rng() % text.size(), rng() % 24));
          break;
        case 3:
          text[at] = static_cast<char>(rng());
          break;
        case 4:
          text.insert(at, std::vector<std::string>{"9223372036854775807", "-1", "%0", "x4096",
                                                   "nan", "-9223372036854775808"}[rng() % 6]);
          break;
      }
    }
    if (auto roots = Parse(text); roots.ok()) {
      auto again = Parse(Print(*roots));
      ASSERT_OK(again) << "seed " << seed << "\n" << text << Print(*roots);
      ASSERT_EQ(Print(*again), Print(*roots)) << "seed " << seed << "\n" << text;
      ASSERT_EQ(*again, *roots) << "seed " << seed << "\n" << text;
    }
  }
}

TEST(TextFuzz, MutatedTexts) { Mutate(std::chrono::seconds(2)); }
TEST(TextFuzz, MutatedTextsLong) { Mutate(std::chrono::seconds(10)); }

}  // namespace
}  // namespace tessera
