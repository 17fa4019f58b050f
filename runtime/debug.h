// What DEBUG prints, to stderr: 2 a table of kernels as they run, 3 the plan, 4 kernel texts, 5
// kernels in index form, 6 programs statement by statement.
#pragma once

#include "codegen/codegen.h"
#include "schedule/plan.h"

namespace tessera {

void DebugPlan(const Plan& plan);
void DebugProgram(const PlanKernel& kernel, const Program& program);
// One line of the table, with rates, and their share of the machine's measured peak.
void DebugLaunch(const PlanKernel& kernel, const PlanStep& step, double seconds, double bytes,
                 double flops);

}  // namespace tessera
