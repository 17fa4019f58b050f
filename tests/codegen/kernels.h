// Kernels and programs of expressions, for tests of single passes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "codegen/codegen.h"
#include "graph/tensor.h"
#include "runtime/host_target.h"
#include "runtime/plan_key.h"
#include "schedule/schedule.h"
#include "tests/testing.h"

namespace tessera {

// A chip of round numbers.
inline Target SmallChip() {
  Target t;
  t.vector_bytes = 32;
  t.cores = 2;
  t.l1_bytes = 32 << 10;
  t.l2_bytes = 1 << 20;
  t.cache_bytes = 4 << 20;
  return t;
}

// One that sums products of bf16 in pairs.
inline Target ChipWithPairs() {
  Target t = SmallChip();
  t.vector_bytes = 64;
  t.vector_registers = 32;
  t.features = "+avx512f,+avx512bf16,+avx512vl";
  return t;
}

// One with a matrix unit for bf16 and bytes.
inline Target ChipWithTiles() {
  Target t = ChipWithPairs();
  t.features += ",+amx-tile,+amx-bf16,+amx-int8";
  return t;
}

// This machine, and what it runs of older ones, by name.
inline std::vector<std::pair<std::string, Target>> ChipsOfThisMachine() {
  const Target host = HostTarget();
  std::vector<std::pair<std::string, Target>> out = {{"host", host}};
#if defined(__x86_64__)
  for (const auto& [name, feature] :
       {std::pair("x86-64", ""), {"x86-64-v3", "+avx2"}, {"x86-64-v4", "+avx512bw"}}) {
    if (!absl::StrContains(host.features, feature)) continue;
    out.emplace_back(name, host);
    out.back().second.arch = name;
    out.back().second.features.clear();
  }
#endif
  return out;
}

// What a program is given, of bf16 or what is told.
inline Tensor NarrowInput(const Dims& shape, DType dtype = kBFloat16) {
  return Tensor::Empty(shape, dtype);
}

// The kernels that compute an expression.
inline std::vector<PlanKernel> KernelsOf(const Tensor& tensor, const Target& target) {
  const std::vector<UOp> roots = {tensor.uop()};
  const PlanKey key = MakePlanKey(roots);
  absl::StatusOr<Plan> plan = Schedule(WithParams(roots, key), target, Device(Place("CPU", 0)),
                                       /*on_meshes=*/false);
  EXPECT_OK(plan);
  return plan.ok() ? plan->kernels : std::vector<PlanKernel>();
}

// The statements of a kernel.
inline UOp ProgramOf(const PlanKernel& kernel, const Target& target) {
  absl::StatusOr<Program> program = Codegen(kernel.graph, kernel.name, kernel.variables, target);
  EXPECT_OK(program);
  return program->statements;
}

// Of the one kernel that computes an expression.
inline UOp ProgramOf(const Tensor& tensor, const Target& target) {
  const std::vector<PlanKernel> kernels = KernelsOf(tensor, target);
  EXPECT_EQ(kernels.size(), 1u);
  return ProgramOf(kernels.at(0), target);
}

// How many statements of a program are of this op.
inline int Count(const UOp& program, Op op) {
  int count = 0;
  for (const UOp& s : program.srcs()) count += s.is(op);
  return count;
}

// The lanes of each statement of an op; of stores those of what is stored.
inline std::vector<int> LanesOf(const UOp& program, Op op) {
  std::vector<int> out;
  for (const UOp& s : program.srcs()) {
    const bool variable = s.is(Op::kLoad) && s.size() == 1;
    if (s.is(op) && !variable) out.push_back((op == Op::kPut ? s.src(2) : s).dtype().lanes());
  }
  return out;
}

}  // namespace tessera
