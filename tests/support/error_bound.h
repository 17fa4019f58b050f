// Reference values of a graph with bounds: how far from them a correct kernel may be.
//
// Data movement, comparisons and the arithmetic that IEEE rounds correctly must agree in every bit.
// Sums may be added in any order (n * eps * sum|x|, nothing where every partial sum is exact), the
// functions of the C library may be off by a few units in the last place, and what depends on such
// values inherits their error through the derivative of each op. Where a result is anybody's guess
// (a comparison closer than the error of its operands) the bound is infinite.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/evaluate.h"

namespace tessera {

struct Bounded {
  HostArray value;
  std::vector<double> error;  // by element; empty where all are 0
  double ErrorAt(int64_t i) const { return error.empty() ? 0 : error[i]; }
};

absl::StatusOr<std::vector<Bounded>> EvaluateWithBounds(absl::Span<const UOp> roots,
                                                        const EvaluateOptions& options = {});

// What was compared, by how strictly.
struct Compared {
  int64_t exact = 0, within = 0, unknown = 0;
};

// "" where `got` agrees with `want`, else the first element that does not.
std::string Difference(const HostArray& got, const Bounded& want, Compared* compared = nullptr);

}  // namespace tessera
