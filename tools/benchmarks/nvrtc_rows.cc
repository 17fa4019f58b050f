// Rows of NVRTC: all kernels of a transformer's decode step compiled, cold and from disk.
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/error.h"
#include "runtime/cuda_compiler.h"
#include "runtime/host_target.h"
#include "runtime/runtime.h"
#include "tools/benchmarks/folder.h"
#include "tools/benchmarks/gpu_texts.h"
#include "tools/benchmarks/row.h"
#include "tools/benchmarks/transformer.h"

namespace tessera::benchmarks {

Target GpuTarget(const std::string& arch) {
  Target out = ValueOrThrow(GetDevice(Place("SIM", 0)))->target();
  out.arch = arch;
  out.cores = 132;
  DescribeMatrixUnits(out);
  return out;
}

std::vector<GpuText> GpuTexts(const std::vector<Tensor>& tensors, const Target& target) {
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
  const Plan plan = ValueOrThrow(PlanOnly(roots, MakePlanKey(roots), &target));
  std::vector<GpuText> out;
  absl::flat_hash_set<std::string> known;
  for (const PlanKernel& k : plan.kernels) {
    Program p = ValueOrThrow(Codegen(k.graph, k.name, k.variables, target));
    if (known.insert(p.text).second) out.push_back({std::move(p), k.bytes.max()});
  }
  return out;
}

std::vector<GpuText> TransformerTexts(int64_t layers, DType dtype, const Target& target) {
  TransformerShape shape;
  shape.layers = layers;
  shape.dtype = dtype;
  Transformer model(shape, "SIM");
  const Variable position("bench_position", 0, shape.context - 1);
  std::vector<Tensor> roots = {model.Step(GivenBuffer({1}, kInt32, "SIM"), position)};
  for (const Tensor& c : model.Caches()) roots.push_back(c);
  return GpuTexts(roots, target);
}

namespace {

constexpr int kRounds = 3;

}  // namespace

std::vector<Row> NvrtcRows(const Wanted& wanted) {
  Row cold, warm;
  cold.name = "nvrtc_step_cold";
  warm.name = "nvrtc_step_warm";
  if (!wanted(cold.name) && !wanted(warm.name)) return {};
  if (const auto nvrtc = cuda::NvrtcFromLibrary(); !nvrtc.ok()) {
    cold.note = warm.note = "skipped: there is no NVRTC";
  } else {
    int major = 0, minor = 0;
    (*nvrtc)->nvrtcVersion(&major, &minor);
    const Target target = GpuTarget("sm_90");
    const std::vector<GpuText> texts = TransformerTexts(16, kFloat32, target);
    std::vector<const Program*> programs;
    for (const GpuText& t : texts) programs.push_back(&t.program);
    const cuda::Compiler compiler = {
        cuda::NvrtcFromLibrary,
        [](const cuda::NvrtcTable&) -> absl::StatusOr<std::string> { return "nvrtc_rows"; }};
    const auto compile = [&] {
      return Milliseconds(
          [&] { ValueOrThrow(cuda::CompileImages(compiler, programs, target, CountCores())); });
    };
    MeasureColdAndWarm(compile, kRounds, cold, warm);
    cold.kernels = warm.kernels = static_cast<int64_t>(programs.size());
    cold.note = absl::StrCat("NVRTC ", major, ".", minor, " for sm_90 on ", CountCores(),
                             " threads: the distinct kernels of a step of 16 layers");
    warm.note = "the same from disk";
  }
  std::vector<Row> out;
  if (wanted(cold.name)) out.push_back(cold);
  if (wanted(warm.name)) out.push_back(warm);
  return out;
}

}  // namespace tessera::benchmarks
