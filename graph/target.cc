// Target::Key.
#include "graph/target.h"

#include "absl/strings/str_cat.h"

namespace tessera {

std::string Target::Key() const {
  return absl::StrCat(static_cast<int>(dialect), "|", arch, "|", features, "|", vector_bytes, "|",
                      vector_registers, "|", cores, "|", l1_bytes, "|", l2_bytes, "|", cache_bytes,
                      "|", span_limit, "|", max_params, "|", max_nodes, "|", max_lanes, "|",
                      max_unroll, "|", max_grid, "|", max_threads, "|", shared_bytes);
}

}  // namespace tessera
