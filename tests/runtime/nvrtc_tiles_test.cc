// What NVRTC makes of the tiles of contractions: instructions, registers, shared memory, and how
// many blocks a multiprocessor then holds.
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "graph/tensor.h"
#include "runtime/cuda_compiler.h"
#include "tests/runtime/nvrtc_testing.h"
#include "tools/benchmarks/gpu_texts.h"

namespace tessera {
namespace {

Tensor Given(const Dims& dims, DType dtype) { return Tensor::Empty(dims, dtype, "SIM"); }

// The number before these words in NVRTC's log.
int64_t NumberBefore(const std::string& log, const std::string& words) {
  const size_t end = log.find(words);
  if (end == std::string::npos) return -1;
  const size_t begin = log.find_last_not_of("0123456789", end - 1) + 1;
  int64_t n = -1;
  return absl::SimpleAtoi(log.substr(begin, end - begin), &n) ? n : -1;
}

// Blocks that share a multiprocessor of 65536 registers, 64 warps and this much shared memory.
int64_t Occupancy(int64_t threads, int64_t registers, int64_t bytes, int64_t shared) {
  const int64_t warps = threads / 32, of_warp = (registers * 32 + 255) / 256 * 256;
  return std::min({65536 / of_warp / warps, 64 / warps, shared / (bytes + 1024)});
}

class NvrtcTiles : public NvrtcTest {
 protected:
  // The one kernel of a tensor has no spills for any arch, these parts in its PTX, and leaves room
  // for a second block on a multiprocessor of sm_90, unless it fills one by itself.
  void ExpectPtx(const char* name, const Tensor& tensor, const std::vector<std::string>& parts,
                 const std::vector<std::string>& of_groups = {}) {
    for (const std::string& arch : archs_) {
      const auto texts = benchmarks::GpuTexts({tensor}, benchmarks::GpuTarget(arch));
      ASSERT_EQ(texts.size(), 1u);
      const Program& p = texts[0].program;
      const bool grouped = arch == "sm_90" && !of_groups.empty();
      Target target;
      target.arch = arch;
      std::vector<std::string> options = cuda::CompileOptions(target);
      options.emplace_back("--ptxas-options=-v");
      const auto c = cuda::CompileText(*nvrtc_, p.text, p.entry, options);
      ASSERT_OK(c);
      EXPECT_NE(c->log.find(" 0 bytes spill stores"), std::string::npos) << c->log;
      for (const std::string& part : grouped ? of_groups : parts) {
        EXPECT_NE(c->ptx.find(part), std::string::npos) << part << " in\n" << c->ptx << p.text;
      }
      const int64_t registers = NumberBefore(c->log, " registers");
      EXPECT_GT(registers, 0) << c->log;
      const int64_t shared = arch == "sm_80" ? 164 << 10 : 228 << 10;
      const int64_t blocks = Occupancy(p.threads, registers, p.scratch_bytes, shared);
      std::printf("%-28s %-7s %4d threads %4d registers %7d bytes shared %2d blocks %3d %% warps\n",
                  name, arch.c_str(), p.threads, static_cast<int>(registers),
                  static_cast<int>(p.scratch_bytes), static_cast<int>(blocks),
                  static_cast<int>(blocks * p.threads * 100 / 2048));
      EXPECT_GE(blocks, arch == "sm_80" || grouped ? 1 : 2) << name;
    }
  }
};

const std::vector<std::string> kPipeline = {"cp.async.cg.shared.global", "cp.async.commit_group",
                                            "cp.async.wait_group", "bar.sync"};

std::vector<std::string> With(std::vector<std::string> more) {
  more.insert(more.end(), kPipeline.begin(), kPipeline.end());
  return more;
}

TEST_F(NvrtcTiles, F32) {
  const Tensor a = Given({4096, 4096}, kFloat32), b = Given({4096, 4096}, kFloat32);
  ExpectPtx("f32", a.MatMul(b), With({"fma.rn.f32", "ld.shared.v4.f32", "st.global.v4.f32"}));
  ExpectPtx("f32, b turned", a.MatMul(b.T()), With({"fma.rn.f32", "ld.shared.v4.f32"}));
  ExpectPtx("f32, a turned", a.T().MatMul(b), With({"fma.rn.f32", "ld.shared.v4.f32"}));
}

TEST_F(NvrtcTiles, MatrixUnitsSlow) {
  for (const DType dtype : {kBFloat16, kFloat16}) {
    const std::string type = dtype.ToString();
    const std::string mma = absl::StrCat("mma.sync.aligned.m16n8k16.row.col.f32.", type, ".", type);
    const Tensor a = Given({4096, 4096}, dtype), b = Given({4096, 4096}, dtype);
    const auto groups = With({absl::StrCat("wgmma.mma_async.sync.aligned.m64n256k16.f32.", type),
                              "fence.proxy.async", "wgmma.wait_group"});
    ExpectPtx(type.c_str(), a.MatMul(b),
              With({mma, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "m8n8.x4.trans.shared.b16"}),
              groups);
    const Tensor bias = Given({4096}, dtype);
    ExpectPtx((type + ", linear, bias").c_str(), a.Linear(b, bias).Relu(),
              With({mma, "ldmatrix.sync.aligned.m8n8.x4.shared.b16"}), groups);
    ExpectPtx((type + ", small").c_str(), Given({512, 512}, dtype).MatMul(Given({512, 512}, dtype)),
              With({mma, "ldmatrix.sync.aligned.m8n8.x4.shared.b16"}));
  }
  const Tensor a = Given({4096, 4096}, kInt8), b = Given({4096, 4096}, kInt8);
  ExpectPtx("i8, b turned", a.MatMul(b.T()),
            With({"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"}));
}

// Attention of 32 heads of 128 keeps no scores in memory, and spills nothing. Of 16 bits the next
// keys and values are fetched meanwhile.
TEST_F(NvrtcTiles, AttentionSlow) {
  for (const DType dtype : {kBFloat16, kFloat16, kFloat32}) {
    const Tensor q = Given({32, 2048, 128}, dtype), k = Given({32, 2048, 128}, dtype);
    const Tensor v = Given({32, 2048, 128}, dtype);
    const std::string type = dtype.ToString(), name = "attention, " + type;
    std::vector<std::string> parts = {"fma.rn.f32", "bar.sync", "ex2.approx"};
    if (dtype.bytes() == 2) {
      parts = With({absl::StrCat("mma.sync.aligned.m16n8k16.row.col.f32.", type, ".", type)});
    }
    ExpectPtx(name.c_str(), q.ScaledDotProductAttention(k, v), parts);
    ExpectPtx((name + ", causal").c_str(),
              q.ScaledDotProductAttention(k, v, AttentionOptions{.causal = true}), parts);
  }
  const Tensor q = Given({32, 2048, 128}, kBFloat16), k = Given({32, 2048, 128}, kBFloat16);
  const Tensor scores = (q.MatMul(k.Transpose()).Cast(kFloat32) * 0.088).Softmax();
  ExpectPtx("attention, bf16 weights", scores.Cast(kBFloat16).MatMul(k),
            {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16", "bar.sync"});
}

// One operand is computed while it is staged, the other fetched.
TEST_F(NvrtcTiles, PrologueAndEpilogueSlow) {
  const Tensor a = Given({4096, 4096}, kBFloat16), b = Given({4096, 4096}, kInt8);
  const Tensor scale = Given({4096, 1}, kFloat32), rest = Given({4096, 4096}, kBFloat16);
  const Tensor w = (b.Cast(kFloat32) * scale).Cast(kBFloat16);
  ExpectPtx("bf16 by dequantised", a.Linear(w).Relu() + rest,
            With({"mma.sync.aligned.m16n8k16", "ld.global.nc.v2"}),
            With({"wgmma.mma_async", "ld.global.nc.v2"}));
}

}  // namespace
}  // namespace tessera
