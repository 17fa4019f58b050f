// Rows of the CPU's compiler: a decode step of a model of a billion parameters, from its Tensor
// calls to kernels that can be called, cold and from disk.
#include "absl/strings/str_cat.h"
#include "graph/error.h"
#include "runtime/host_target.h"
#include "runtime/jit.h"
#include "runtime/runtime.h"
#include "tools/benchmarks/folder.h"
#include "tools/benchmarks/row.h"
#include "tools/benchmarks/transformer.h"

namespace tessera::benchmarks {
namespace {

constexpr int kRounds = 5;

// Gives the number of kernels.
int64_t CompileStep(Transformer& model, const Variable& position) {
  std::vector<UOp> roots = {model.Step(GivenBuffer({1}, kInt32, "CPU"), position).uop()};
  for (const Tensor& c : model.Caches()) roots.push_back(c.uop());
  const Plan plan = ValueOrThrow(PlanOnly(roots, MakePlanKey(roots)));
  std::vector<Program> programs;
  for (const PlanKernel& k : plan.kernels) {
    programs.push_back(ValueOrThrow(Codegen(k.graph, k.name, k.variables, HostTarget())));
  }
  std::vector<KernelRequest> requests;
  for (const Program& p : programs) requests.push_back({p.text, p.entry});
  ValueOrThrow(CompileAll(requests, HostTarget()));
  return static_cast<int64_t>(requests.size());
}

}  // namespace

std::vector<Row> CompileRows(const Wanted& wanted) {
  Row cold, warm;
  cold.name = "decode_compile_cold";
  warm.name = "decode_compile_warm";
  if (!wanted(cold.name) && !wanted(warm.name)) return {};
  const TransformerShape shape;
  const Variable position("bench_position", 0, shape.context - 1);
  int64_t kernels = 0;
  const auto compile = [&] {
    ClearPlans();
    ClearKernels();
    Transformer model(shape, "CPU");  // a step leaves its caches written to
    return Milliseconds([&] { kernels = CompileStep(model, position); });
  };
  MeasureColdAndWarm(compile, kRounds, cold, warm);
  cold.kernels = warm.kernels = kernels;
  cold.note = absl::StrCat("a step of ", shape.layers,
                           " layers, built, scheduled, generated and compiled on ", CountCores(),
                           " threads; below 1000 ms is wanted");
  warm.note = "the same with the kernels on disk; below 100 ms is wanted";
  std::vector<Row> out;
  if (wanted(cold.name)) out.push_back(cold);
  if (wanted(warm.name)) out.push_back(warm);
  return out;
}

}  // namespace tessera::benchmarks
