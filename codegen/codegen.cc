// The list of passes of code generation.
#include "codegen/codegen.h"

#include "codegen/passes.h"
#include "codegen/prelude.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace tessera {

absl::StatusOr<Program> Codegen(const UOp& sink, const std::string& name,
                                const std::vector<std::string>& variables, const Target& target) {
  // First, on the kernel as the scheduler wrote it: what is chosen here shapes all that follows.
  UOp kernel = Optimise(sink, target);
  // Before expansion: one cast for all lanes.
  kernel = Simplify(WidenFloats(kernel));
  kernel = Expand(kernel);
  ASSIGN_OR_RETURN(Lowered lowered, Lower(kernel, name));
  Program out;
  out.statements = lowered.program;
  out.scratch_bytes = lowered.scratch_bytes;
  out.entry = name;
  ASSIGN_OR_RETURN(const std::string body, RenderCpp(lowered.program, variables));
  out.text = PreludeFor(body) + body;
  return out;
}

}  // namespace tessera
