// NVRTC, where it is installed: what it makes of our texts, and what it says of wrong ones.
#include <string>

#include "absl/strings/numbers.h"
#include "examples/llm/quant.h"
#include "graph/tensor.h"
#include "runtime/cuda_compiler.h"
#include "runtime/plan_key.h"
#include "runtime/runtime.h"
#include "tests/runtime/nvrtc_testing.h"
#include "tests/support/raw_kernel.h"
#include "tools/benchmarks/gpu_texts.h"

namespace tessera {
namespace {

class Nvrtc : public NvrtcTest {
 protected:
  // The texts of all kernels that compute the tensors.
  static std::vector<Program> Programs(const std::vector<Tensor>& tensors) {
    std::vector<UOp> roots;
    for (const Tensor& t : tensors) roots.push_back(t.uop());
    const auto plan = PreparePlan(roots, MakePlanKey(roots));
    EXPECT_OK(plan);
    return plan.ok() ? (*plan)->programs : std::vector<Program>();
  }

  cuda::Compiled Compile(const Program& program, const std::string& arch) {
    Target target;
    target.arch = arch;
    std::vector<std::string> options = cuda::CompileOptions(target);
    options.emplace_back("--ptxas-options=-v");
    const auto compiled = cuda::CompileText(*nvrtc_, program.text, program.entry, options);
    EXPECT_OK(compiled);
    return compiled.ok() ? *compiled : cuda::Compiled();
  }

  // Of every kernel, for every arch: no spills, and these in the PTX.
  void ExpectPtx(const std::vector<Tensor>& tensors, const std::vector<std::string>& parts) {
    for (const std::string& arch : archs_) {
      for (const Program& p : Programs(tensors)) {
        ExpectParts(Compile(p, arch), p, parts);
      }
    }
  }
  static void ExpectParts(const cuda::Compiled& c, const Program& p,
                          const std::vector<std::string>& parts) {
    EXPECT_NE(c.log.find(" 0 bytes spill stores"), std::string::npos) << c.log;
    for (const std::string& part : parts) {
      EXPECT_NE(c.ptx.find(part), std::string::npos) << part << " in\n" << c.ptx << p.text;
    }
  }
  void ExpectTexts(const Tensor& tensor, size_t count, const std::vector<std::string>& parts);
};

Tensor Given(const Dims& dims, DType dtype = kFloat32) { return Tensor::Empty(dims, dtype, "SIM"); }

// ptxas takes these for ones that never wrap.
TEST_F(Nvrtc, ShortsAreNegatedInWords) {
  const Tensor x = Given({300}, kInt16), zero = Tensor::Zeros({300}, kInt16, "SIM");
  for (const Tensor& t : {-x % 9, x.Abs() % 9, x * -1 % 9, (zero - x) % 9}) {
    for (const Program& p : Programs({t})) {
      const std::string ptx = Compile(p, archs_[0]).ptx;
      EXPECT_EQ(ptx.find("neg.s16"), std::string::npos) << ptx;
      EXPECT_EQ(ptx.find("abs.s16"), std::string::npos) << ptx;
    }
  }
}

// What tests of faults run on a GPU.
TEST_F(Nvrtc, KernelsWrittenByHandCompile) {
  const Program p = RawProgram("wild", "b0[rt_block() * 32 + rt_thread()] = 1.0f;");
  for (const std::string& arch : archs_) EXPECT_FALSE(Compile(p, arch).image.empty());
}

TEST_F(Nvrtc, ElementwiseLoadsAndStoresVectors) {
  ExpectPtx({Given({1024, 1024}) * 2 + Given({1024, 1024})},
            {"ld.global.nc.v4.f32", "st.global.v4.f32"});
}

TEST_F(Nvrtc, ReductionsLoadVectorsAndShuffle) {
  ExpectPtx({Given({512, 4096}).Sum({1})}, {"ld.global.nc.v4.f32", "shfl.sync.bfly", "bar.sync"});
  ExpectPtx({Given({4096, 256}).Max({1})}, {"ld.global.nc.v4.f32", "shfl.sync.bfly"});
}

TEST_F(Nvrtc, SoftmaxIsOneKernelOfVectors) {
  const std::vector<Tensor> softmax = {Given({512, 4096}).Softmax()};
  EXPECT_EQ(Programs(softmax).size(), 1u);
  ExpectPtx(softmax, {"ld.global.nc.v4.f32", "st.global.v4.f32", "shfl.sync.bfly"});
}

// Of a chip with many multiprocessors, every kernel: in this many, without spills, with these in
// the PTX.
void Nvrtc::ExpectTexts(const Tensor& tensor, size_t count, const std::vector<std::string>& parts) {
  for (const std::string& arch : archs_) {
    const auto texts = benchmarks::GpuTexts({tensor}, benchmarks::GpuTarget(arch));
    EXPECT_EQ(texts.size(), count);
    for (const benchmarks::GpuText& t : texts)
      ExpectParts(Compile(t.program, arch), t.program, parts);
  }
}

TEST_F(Nvrtc, TransposesTurnInSharedMemory) {
  ExpectTexts(Given({8192, 8192}).T() + 1, 1, {"st.shared.f32", "ld.shared.f32", "bar.sync"});
  ExpectTexts(Given({64, 56, 56, 64}, kBFloat16).Permute({0, 3, 1, 2}).Contiguous(), 1,
              {"st.shared.u16", "ld.shared.u16", "bar.sync"});
}

// As many loads as one of 16 bytes would be, before the first store.
TEST_F(Nvrtc, MapsWithoutVectorsLoadSomeAtOnce) {
  for (const Tensor& t :
       {Given({8191, 8191}) * 2, Given({8192, 8192}).Slice({{}, {3, 8190}}) + 1}) {
    const auto texts = benchmarks::GpuTexts({t}, benchmarks::GpuTarget("sm_90"));
    ASSERT_EQ(texts.size(), 1u);
    const std::string body = texts[0].program.text.substr(texts[0].program.text.find("//@ kernel"));
    int loads = 0;
    for (size_t at = 0; (at = body.find(" = b1[", at + 1)) < body.find("b0[", body.find('{'));)
      ++loads;
    EXPECT_EQ(loads, 4) << body;
  }
}

// Of columns and of vectors by matrices in rows: all warps of a block read whole vectors, or at
// least neighbours, and combine.
TEST_F(Nvrtc, FewColumnsAreSharedByWarps) {
  ExpectTexts(Given({1, 4096}, kBFloat16).MatMul(Given({4096, 4096}, kBFloat16)), 1,
              {"bar.sync", "ld.shared"});
  ExpectTexts(Given({120, 16384}).Sum({0}), 1, {"ld.global.nc.v2.f32", "bar.sync"});
  const auto texts =
      benchmarks::GpuTexts({Given({1, 4096}, kBFloat16).MatMul(Given({4096, 4096}, kBFloat16))},
                           benchmarks::GpuTarget("sm_90"));
  EXPECT_GE(texts[0].program.grid.vmin(), 128);  // of 132 multiprocessors
  EXPECT_EQ(texts[0].program.threads, 1024);
}

// Scores of a query: warps read keys of 128 in vectors.
TEST_F(Nvrtc, ShortRowsAreReadByWarps) {
  ExpectTexts(Given({32, 32768, 128}, kBFloat16).MatMul(Given({32, 128, 1}, kBFloat16)), 1,
              {"ld.global.nc.v", "shfl.sync.bfly"});
}

// The text of a kernel, between the mark and its end, has a part so many times.
int Times(const Program& p, const std::string& part) {
  const std::string body = p.text.substr(p.text.find("//@ kernel"));
  int n = 0;
  for (size_t at = 0; (at = body.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

// Of rows of blocks a thread reads what it multiplies in vectors, and each scale as one number for
// all of its block that it has: here eight numbers for each of four rows, two steps at once.
TEST_F(Nvrtc, RowsOfBlocksAreReadInVectors) {
  const Tensor weights = Given({8192, 64, 18}, kUInt8), row = Given({1, 2048});
  const Tensor product = row.Linear(llm::Values(weights, WeightFormat::kQ4_0));
  ExpectTexts(product, 1, {"ld.global.nc.v4.f32", "ld.global.nc.v2.u8", "lop3", "shfl.sync.bfly"});
  const auto texts = benchmarks::GpuTexts({product}, benchmarks::GpuTarget("sm_90"));
  EXPECT_EQ(Times(texts[0].program, "rt_load<rt_f32, 4>"), 2 * 2);
  EXPECT_EQ(Times(texts[0].program, "rt_load<rt_u8, 2>"), 2 * 4 * (2 + 1));
  EXPECT_EQ(Times(texts[0].program, " ? "), 0);  // gates
  EXPECT_EQ(Times(texts[0].program, " = rt_fma("), 2 * 4 * (8 + 1));
  for (const WeightFormat format : {WeightFormat::kQ8_0, WeightFormat::kQ4K, WeightFormat::kQ6K}) {
    const WeightFormatInfo& info = InfoOf(format);
    const Tensor blocks = Given({8192, 2048 / info.block_elements, info.block_bytes}, kUInt8);
    ExpectTexts(row.Linear(llm::Values(blocks, format)), 1, {"ld.global.nc.v4.f32"});
  }
  ExpectTexts(row.Linear(Given({8192, 2048}, kBFloat16)), 1, {"ld.global.nc.v4.f32"});
}

TEST_F(Nvrtc, RowsOfIntegersAreDotProductsOfFourSlow) {
  const llm::RoundedRows row = {Given({1, 64, 32}, kInt8), Given({1, 64}), Given({1, 64})};
  for (const WeightFormat format : {WeightFormat::kQ4_0, WeightFormat::kQ8_0, WeightFormat::kQ4_1,
                                    WeightFormat::kQ4K, WeightFormat::kQ6K}) {
    const WeightFormatInfo& info = InfoOf(format);
    const Tensor blocks = Given({8192, 2048 / info.block_elements, info.block_bytes}, kUInt8);
    ExpectTexts(llm::Product(row, llm::Integers(blocks, format)), 1, {"dp4a.", "shfl.sync.bfly"});
  }
}

TEST_F(Nvrtc, ConvolutionsSpillNothingSlow) {
  for (const DType dtype : {kFloat32, kBFloat16}) {
    ExpectTexts(Given({16, 64, 56, 56}, dtype).Conv2d(Given({64, 64, 3, 3}, dtype)), 1,
                {dtype == kBFloat16 ? "mma.sync" : "fma.rn.f32", "bar.sync"});
  }
}

// Every kernel of a decode step, for every chip: none spills, and those that read weights do so in
// vectors. (Those over the cache, of an extent that varies, do not yet.)
TEST_F(Nvrtc, ATransformerStepSlow) {
  for (const DType dtype : {kFloat32, kBFloat16}) {
    for (const std::string& arch : archs_) {
      const auto texts = benchmarks::TransformerTexts(1, dtype, benchmarks::GpuTarget(arch));
      EXPECT_GE(texts.size(), 8u);
      int large = 0;
      for (const benchmarks::GpuText& t : texts) {
        const cuda::Compiled c = Compile(t.program, arch);
        EXPECT_NE(c.log.find(" 0 bytes spill stores"), std::string::npos) << c.log;
        if (t.bytes < (1 << 20) || !t.program.names.empty()) continue;
        ++large;
        EXPECT_NE(c.ptx.find("ld.global.nc.v"), std::string::npos)
            << t.program.entry << " for " << arch << "\n"
            << t.program.text;
      }
      EXPECT_GE(large, 5);
    }
  }
}

TEST_F(Nvrtc, IndicesAreNarrowWhereTheyFit) {
  const Program small = Programs({Given({1 << 20}) + 1})[0];
  EXPECT_EQ(small.text.find("rt_i64", small.text.find("//@ kernel")), std::string::npos)
      << small.text;
  const Program large = Programs({Given({int64_t{3} << 30}, kInt8) + 1})[0];
  EXPECT_NE(large.text.find("rt_i64", large.text.find("//@ kernel")), std::string::npos)
      << large.text;
}

TEST_F(Nvrtc, AWrongTextGivesLogAndNumberedText) {
  const auto result = cuda::CompileText(*nvrtc_, "int x;\nnonsense;\n", "f", {});
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument, "f.cu(2): error"));
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument, "2: nonsense;"));
}

TEST_F(Nvrtc, AnArchThatItDoesNotKnow) {
  const auto result = cuda::CompileText(*nvrtc_, "int x;", "f", {"--gpu-architecture=sm_999"});
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kFailedPrecondition, "CUDA_ARCH"));
}

// The driver compiles it for a chip that this NVRTC may not know.
TEST_F(Nvrtc, AVirtualArchGivesPtx) {
  Target target;
  target.arch = "compute_90";
  DescribeMatrixUnits(target);
  EXPECT_TRUE(target.fetches);
  const auto result = cuda::CompileText(*nvrtc_, "extern \"C\" __global__ void f() {}", "f",
                                        cuda::CompileOptions(target));
  ASSERT_OK(result);
  EXPECT_NE(result->image.find(".target sm_90"), std::string::npos) << result->image;
}

}  // namespace
}  // namespace tessera
