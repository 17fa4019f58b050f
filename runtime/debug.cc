// Debug output.
#include "runtime/debug.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"
#include "graph/flags.h"
#include "graph/text.h"

namespace tessera {

void DebugPlan(const Plan& plan) {
  if (IntFlag(Flag::kDebug) < 3) return;
  std::fprintf(stderr, "%s", plan.ToString().c_str());
}

void DebugProgram(const PlanKernel& kernel, const Program& program) {
  const int64_t level = IntFlag(Flag::kDebug);
  if (level >= 5) {
    std::fprintf(stderr, "// %s, index form\n%s", kernel.name.c_str(),
                 Print({&kernel.graph, 1}).c_str());
  }
  if (level >= 6) {
    std::fprintf(stderr, "// %s, program\n%s", kernel.name.c_str(),
                 Print({&program.statements, 1}).c_str());
  }
  if (level >= 4) {
    const size_t body = program.text.find("RT_KERNEL(" + kernel.name);
    std::fprintf(stderr, "%s\n", program.text.substr(body == std::string::npos ? 0 : body).c_str());
  }
}

void DebugLaunch(const PlanKernel& kernel, const PlanStep& step, double seconds, double bytes,
                 double flops) {
  std::fprintf(stderr, "%s",
               absl::StrFormat("%-32s %2d core%s %9.1f us %8.2f GB/s %8.2f GFLOP/s  %s\n",
                               kernel.name, kernel.workers, kernel.workers == 1 ? " " : "s",
                               seconds * 1e6, bytes / seconds * 1e-9, flops / seconds * 1e-9,
                               step.site ? step.site->ToString() : "")
                   .c_str());
}

}  // namespace tessera
