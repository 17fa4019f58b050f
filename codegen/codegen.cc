// The list of passes of code generation.
#include "codegen/codegen.h"

#include "absl/strings/str_cat.h"
#include "codegen/cpu_tiles.h"
#include "codegen/matrix.h"
#include "codegen/passes.h"
#include "codegen/prelude.h"
#include "graph/panel.h"
#include "graph/pass.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace tessera {

absl::StatusOr<Program> Codegen(const UOp& sink, const std::string& name,
                                const std::vector<std::string>& variables, const Target& target) {
  PassRunner passes("codegen", SpecStage::kKernel, target);
  PassRunner::Roots kernel = {sink};
  const auto on_sink = [](auto pass) {
    return [pass](const PassRunner::Roots& r) { return PassRunner::Roots{pass(r[0])}; };
  };
  // First, on the kernel as the scheduler wrote it: what is chosen here shapes all that follows.
  RETURN_IF_ERROR(passes.RunOptional("optimise", kernel,
                                     on_sink([&](const UOp& k) { return Optimise(k, target); })));
  // Before expansion: one cast for all lanes.
  RETURN_IF_ERROR(
      passes.Run("widen", kernel, on_sink([](const UOp& k) { return Simplify(WidenFloats(k)); })));
  // Before expansion: a tile of sums is one value of each thread until then.
  if (target.dialect == Dialect::kCuda) {
    RETURN_IF_ERROR(passes.RunOptional(
        "matrix", kernel, on_sink([&](const UOp& k) { return UseMatrixUnits(k, target); }),
        /*check=*/false));
  } else {
    RETURN_IF_ERROR(passes.Run("matrix", kernel, on_sink(UseTiles), /*check=*/false));
  }
  // Unchecked: a kernel with lanes is neither a kernel nor a program yet.
  RETURN_IF_ERROR(passes.Run(
      "expand", kernel, on_sink([&](const UOp& k) { return Expand(k, target); }), /*check=*/false));
  if (target.dialect == Dialect::kCpp) {
    RETURN_IF_ERROR(passes.RunOptional("tabulate", kernel,
                                       on_sink([&](const UOp& k) { return Tabulate(k, target); }),
                                       /*check=*/false));
  }
  RETURN_IF_ERROR(
      passes.RunOptional("join_transposed", kernel, on_sink(JoinTransposed), /*check=*/false));
  ASSIGN_OR_RETURN(Lowered lowered, Lower(kernel[0], name, target));
  RETURN_IF_ERROR(
      Verify({&lowered.program, 1}, SpecStage::kProgram, SpecLevel(), "codegen.lower", target));
  Program out;
  out.statements = lowered.program;
  out.scratch_bytes = lowered.scratch_bytes;
  out.entry = name;
  if (target.dialect == Dialect::kCuda) {
    ASSIGN_OR_RETURN(const GpuText gpu, RenderGpu(lowered, variables));
    out.text = absl::StrCat(PreludeFor(gpu.text, PreludeKind::kCuda), kBodyMark, gpu.text);
    out.grid = lowered.grid;
    out.threads = lowered.threads * lowered.rows;
    out.rows = lowered.rows;
    out.buffers = gpu.buffers;
    out.variables = gpu.variables;
    out.names = variables;
    return out;
  }
  const absl::StatusOr<std::string> body = RenderCpp(lowered.program, variables);
  const bool tiles = HasTiles(kBFloat16, target) || HasTiles(kInt8, target);
  if (tiles && absl::IsResourceExhausted(body.status())) {  // it has fewer at once
    return Codegen(sink, name, variables, WithoutTiles(target));
  }
  RETURN_IF_ERROR(body.status());
  out.text = PreludeFor(*body) + *body;
  return out;
}

}  // namespace tessera
