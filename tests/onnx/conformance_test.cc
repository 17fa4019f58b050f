// ONNX backend node tests: the sample in tests/data, all of ../shared/data where it is, and that
// the runner notices what is wrong.
#include "examples/onnx/conformance.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/onnx/encode.h"
#include "tests/testing.h"
#include "tests/tools/run_tool.h"

namespace tessera::onnx {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kSample[] = "tests/data/onnx-node";
constexpr char kShared[] = "../shared/data/onnx-node";

// Runs all cases of a folder; none may fail, and only for some reasons may one be skipped. Gives
// how many plain ones there are and pass, and how many pass of all.
struct Counts {
  int plain = 0, passed = 0, all_passed = 0, all = 0;
};
Counts RunAll(const std::string& folder, int shard) {
  CaseOptions options;
  options.shard = shard;
  Counts out;
  for (const std::string& path : CaseFolders(folder)) {
    const CaseResult r = RunCase(path, options);
    EXPECT_NE(r.kind, CaseResult::Kind::kFail) << path << ": " << r.why;
    EXPECT_EQ(r.why.empty(), r.kind == CaseResult::Kind::kPass) << path;
    if (r.kind == CaseResult::Kind::kSkip) {
      EXPECT_THAT(r.why, AnyOf(HasSubstr("random"), HasSubstr("ImageDecoder"))) << path;
    }
    ++out.all;
    out.all_passed += r.kind == CaseResult::Kind::kPass;
    out.plain += r.plain;
    out.passed += r.plain && r.kind == CaseResult::Kind::kPass;
  }
  return out;
}

TEST(OnnxConformance, SamplePasses) {
  const Counts n = RunAll(kSample, 0);
  EXPECT_GE(n.plain, 100);
  EXPECT_EQ(n.all_passed, n.all);
}

TEST(OnnxConformance, SamplePassesShardedSlow) {
  const Counts n = RunAll(kSample, 3);
  EXPECT_EQ(n.all_passed, n.all);
}

void RunShared(int shard) {
  if (!fs::exists(kShared)) GTEST_SKIP() << kShared << " is not there";
  const Counts n = RunAll(kShared, shard);
  EXPECT_GE(n.passed, 0.9 * n.plain);
  std::cout << n.passed << " of " << n.plain << " plain cases pass, of " << n.all << "\n";
}
TEST(OnnxConformance, SharedCasesPassSlow) { RunShared(0); }
TEST(OnnxConformance, SharedCasesPassShardedLong) { RunShared(3); }

TensorData Expected(int64_t element, const std::vector<int64_t>& dims, const std::string& bytes) {
  TensorData t;
  t.element = element;
  t.dims = dims;
  t.own = bytes;
  return t;
}

TEST(OnnxConformance, ComparesFloats) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const auto differs = [&](float got, float want, double tolerance = 1e-3) {
    return !Difference(Tensor::From(std::vector<float>{got}),
                       Expected(kElementFloat, {1}, Raw<float>({want})), tolerance)
                .empty();
  };
  EXPECT_FALSE(differs(1.0005f, 1));
  EXPECT_TRUE(differs(1.002f, 1));
  EXPECT_TRUE(differs(1.0005f, 1, 1e-4));
  EXPECT_FALSE(differs(nan, nan));
  EXPECT_TRUE(differs(nan, 1));
  EXPECT_TRUE(differs(1, nan));
  EXPECT_FALSE(differs(inf, inf));
  EXPECT_TRUE(differs(inf, -inf));
  EXPECT_TRUE(differs(1e38f, inf));
  EXPECT_TRUE(differs(inf, 1e38f));
  EXPECT_FALSE(differs(-0.0f, 0.0f));
  EXPECT_TRUE(differs(1e-3f, 0));
}

TEST(OnnxConformance, ComparesIntegersTypesAndShapes) {
  const uint64_t large = ~0ull;
  const auto difference = [&](const Tensor& got, int64_t element, const std::vector<int64_t>& dims,
                              const std::string& bytes) {
    return Difference(got, Expected(element, dims, bytes), 1e-3);
  };
  const Tensor longs = Tensor::From(std::vector<int64_t>{1000000, -1});
  EXPECT_EQ(difference(longs, kElementInt64, {2}, Raw<int64_t>({1000000, -1})), "");
  EXPECT_THAT(difference(longs, kElementInt64, {2}, Raw<int64_t>({1000001, -1})),
              HasSubstr("element 0 of (2) is 1000000, expected 1000001"));
  EXPECT_EQ(difference(Tensor::From(std::vector<uint64_t>{large}), 13, {1}, Raw<uint64_t>({large})),
            "");
  EXPECT_THAT(
      difference(Tensor::From(std::vector<uint64_t>{large}), 13, {1}, Raw<uint64_t>({large - 1})),
      HasSubstr("element 0"));
  EXPECT_THAT(difference(longs, kElementInt64, {1, 2}, Raw<int64_t>({1000000, -1})),
              HasSubstr("is i64(2), expected i64(1, 2)"));
  EXPECT_THAT(difference(longs, kElementFloat, {2}, Raw<float>({1000000, -1})),
              HasSubstr("expected f32(2)"));
  const Tensor bools = Tensor::From(std::vector<bool>{true, false});
  EXPECT_EQ(difference(bools, kElementBool, {2}, std::string("\x05\0", 2)), "");
  EXPECT_NE(difference(bools, kElementBool, {2}, std::string("\0\0", 2)), "");
}

TEST(OnnxConformance, JudgesPlacements) {
  const auto fault = [](const std::string& op, const Tensor& x, const Tensor& y, int64_t moved) {
    const std::string bytes = ModelText(GraphText({NodeText(op, {"x"}, {"y"})}, {"x"}, {"y"}));
    return PlacementFault(ValueOrThrow(ParseModel(bytes, "test")), {x}, {y}, moved);
  };
  const PlaceList places{"CPU:0", "CPU:1", "CPU:2"};
  const Device rows = Sharding(places, 0), whole = Sharding(places);
  const Tensor x = Tensor::Zeros({6, 4}, kFloat32, rows);
  EXPECT_EQ(fault("Neg", x, x, 0), "");
  EXPECT_THAT(fault("Neg", x, x, 8), HasSubstr("8 bytes moved where 0 would do"));
  EXPECT_THAT(fault("Neg", x, x.To(whole), 0), HasSubstr("though its inputs are sharded"));
  EXPECT_THAT(fault("Transpose", x, x.T().To(whole), 0), HasSubstr("though its inputs"));
  EXPECT_EQ(fault("ReduceSum", x, x.Sum({0}, true), 2 * 2 * 4 * 4), "");
  EXPECT_THAT(fault("ReduceSum", x, x.Sum({0}, true), 1000), HasSubstr("1000 bytes moved"));
  EXPECT_EQ(fault("ReduceSum", x, x.Sum({1}, true), 0), "");
  EXPECT_THAT(fault("ReduceSum", x, x.Sum({1}, true), 4), HasSubstr("4 bytes moved"));
  EXPECT_THAT(fault("ReduceSum", x, x.Sum({1}, true).To(whole), 0), HasSubstr("though its inputs"));
  // A result like an input shards as it does, whatever else goes into it.
  const Tensor row = Tensor::Zeros({4}, kFloat32, whole);
  EXPECT_EQ(fault("Add", x, x + row, 0), "");
  EXPECT_THAT(fault("Add", x, (x + row).To(whole), 0), HasSubstr("though its inputs"));
  EXPECT_EQ(fault("Add", x, row + 1, 0), "") << "x does not go into it";
  // Samples stay where they are.
  const Tensor images = Tensor::Zeros({3, 1, 4, 4}, kFloat32, rows);
  EXPECT_EQ(fault("MaxPool", images, images.MaxPool({}), 0), "");
  EXPECT_THAT(fault("MaxPool", images, images.To(whole).MaxPool({}), 384),
              HasSubstr("though its inputs"));
  EXPECT_EQ(fault("Gather", x, x.To(whole), 192), "");
  EXPECT_THAT(fault("Gather", x, x.To(whole), 193),
              HasSubstr("193 bytes moved where 192 would do"));
}

// A folder with one case: a model, its input and its expected output.
std::string MakeCaseOf(const std::string& name, const std::string& graph, const std::string& in,
                       const std::string& out) {
  const std::string folder = OwnTempDir() + "/" + name;
  fs::create_directories(folder + "/test_data_set_0");
  const auto write = [&](const std::string& file, const std::string& bytes) {
    std::ofstream(folder + "/" + file, std::ios::binary) << bytes;
  };
  write("model.onnx", ModelText(graph));
  write("test_data_set_0/input_0.pb", in);
  write("test_data_set_0/output_0.pb", out);
  return folder;
}
std::string MakeCase(const std::string& name, const std::string& node, const std::string& in,
                     const std::string& out) {
  return MakeCaseOf(name, GraphText({node}, {"x"}, {"y"}), in, out);
}

// Older files list initializers as inputs, anywhere among them.
TEST(OnnxConformance, InitializersAreNotGiven) {
  const std::string graph = GraphText({NodeText("Sub", {"x", "w"}, {"y"})}, {"w", "x"}, {"y"},
                                      {Floats("w", {2}, {1, 2})});
  const CaseResult r = RunCase(
      MakeCaseOf("older/listed", graph, Floats("x", {2}, {5, 7}), Floats("y", {2}, {4, 5})), {});
  EXPECT_EQ(r.kind, CaseResult::Kind::kPass) << r.why;
}

TEST(OnnxTestTool, SaysWhatPassesFailsAndIsSkipped) {
  const std::string neg = NodeText("Neg", {"x"}, {"y"}), x = Floats("x", {4}, {1, 2, 3, 4});
  const std::string right = MakeCase("right", neg, x, Floats("y", {4}, {-1, -2, -3, -4}));
  const std::string wrong = MakeCase("wrong", neg, x, Floats("y", {4}, {-1, -2, 3, -4}));
  const std::string strange =
      MakeCase("strange", NodeText("Unheard", {"x"}, {"y"}), x, Floats("y", {4}, {1, 2, 3, 4}));

  Outcome o = RunTool("onnx-test", "--shard 3 " + right);
  EXPECT_EQ(o.exit, 0) << o.out;
  EXPECT_THAT(o.out, HasSubstr("pass right moved bytes: 0 0\n"));
  EXPECT_THAT(o.out, HasSubstr("1 passed, 0 failed, 0 skipped; of 1 plain ones 1 passed\n"));

  o = RunTool("onnx-test", wrong);
  EXPECT_EQ(o.exit, 1);
  EXPECT_THAT(o.out, HasSubstr("fail wrong output 0 ('y'): element 2 of (4) is -3, expected 3"));

  o = RunTool("onnx-test", strange);
  EXPECT_EQ(o.exit, 0);
  EXPECT_THAT(o.out, HasSubstr("skip strange Unheard: there is no such op\n"));

  o = RunTool("onnx-test", OwnTempDir());  // a folder of cases, by name
  EXPECT_EQ(o.exit, 1);
  EXPECT_THAT(o.out, HasSubstr("1 passed, 1 failed, 1 skipped"));

  EXPECT_EQ(RunTool("onnx-test", "").exit, 2);
  EXPECT_EQ(RunTool("onnx-test", "--shard x " + right).exit, 2);
  EXPECT_EQ(RunTool("onnx-test", OwnTempDir() + "/right/test_data_set_0").exit, 1);
}

// Results of random ops are compared in type and shape alone, and not counted as passed.
TEST(OnnxTestTool, SkipsRandomValues) {
  const std::string node = NodeText("Bernoulli", {"x"}, {"y"});
  const std::string x = Floats("x", {2}, {0.5f, 0.5f});
  const std::string folder = MakeCase("random/one", node, x, Floats("y", {2}, {0, 0}));
  const CaseResult good = RunCase(folder, {});
  EXPECT_EQ(good.kind, CaseResult::Kind::kSkip);
  EXPECT_THAT(good.why, HasSubstr("random"));
  const std::string other = MakeCase("random/two", node, x, Floats("y", {1}, {0}));
  EXPECT_EQ(RunCase(other, {}).kind, CaseResult::Kind::kFail);
}

}  // namespace
}  // namespace tessera::onnx
