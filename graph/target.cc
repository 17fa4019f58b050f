// Target::Key, and what is known of GPUs by their arch.
#include "graph/target.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "graph/flags.h"

namespace tessera {

std::string Target::Key() const {
  std::string matrices;
  for (const MatrixShape& m : mma) absl::StrAppend(&matrices, m.name, ",");
  return absl::StrCat(matrices, "|", fetches, "|", static_cast<int>(dialect), "|", arch, "|",
                      features, "|", vector_bytes, "|", vector_registers, "|", cores, "|", l1_bytes,
                      "|", l2_bytes, "|", cache_bytes, "|", tile_vectors, "|", stream_ahead, "|",
                      span_limit, "|", max_params, "|", max_nodes, "|", max_lanes, "|", max_unroll,
                      "|", max_grid, "|", max_threads, "|", shared_bytes);
}

void DescribeMatrixUnits(Target& target) {
  int arch = 0;
  absl::string_view digits = target.arch;
  if (!absl::ConsumePrefix(&digits, "sm_") && !absl::ConsumePrefix(&digits, "compute_")) return;
  while (!digits.empty() && !absl::ascii_isdigit(digits.back())) digits.remove_suffix(1);
  if (!absl::SimpleAtoi(digits, &arch) || arch < 80) return;
  target.fetches = true;
  target.mma = {{kFloat16, kFloat32, "rt_mma_f16"},
                {kBFloat16, kFloat32, "rt_mma_bf16"},
                {kInt8, kInt32, "rt_mma_i8"}};
  // These instructions are of this one generation, and of no virtual arch.
  if (arch == 90 && target.arch[0] == 's') {
    target.mma.push_back({kFloat16, kFloat32, "rt_wgmma_f16", 4});
    target.mma.push_back({kBFloat16, kFloat32, "rt_wgmma_bf16", 4});
  }
  if (IntFlag(Flag::kTf32) != 0) target.mma.push_back({kFloat32, kFloat32, "rt_mma_tf32"});
}

}  // namespace tessera
