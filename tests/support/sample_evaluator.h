// Scalar expressions evaluated at many points at once, for the tests of rewriting.
#pragma once

#include <vector>

#include "absl/container/node_hash_map.h"
#include "graph/fold.h"
#include "graph/uop.h"

namespace tessera {

// The values of an elementwise expression over leaves (PARAM, VAR, RANGE) at n points. Keeps what
// it has computed, so that several expressions over the same leaves share it.
class SampleEvaluator {
 public:
  explicit SampleEvaluator(int64_t n) : n_(n) {}
  void Set(const UOp& leaf, std::vector<Scalar> values) { values_[leaf] = std::move(values); }
  bool Has(const UOp& u) const { return values_.contains(u); }

  const std::vector<Scalar>& Of(const UOp& root) {
    for (const UOp& u : TopoSort({&root, 1})) {
      if (values_.contains(u)) continue;
      std::vector<Scalar> out(n_);
      if (u.IsConst()) {
        out.assign(n_, u.arg<Scalar>());
      } else {
        ScalarSource srcs[3];
        for (int s = 0; s < u.size(); ++s) srcs[s] = {values_.at(u.src(s)).data(), 1};
        const DType operand = u.src(u.is(Op::kWhere) ? 1 : 0).dtype();
        EvaluateElementwise(u.op(), u.dtype(), operand,
                            absl::MakeConstSpan(srcs, static_cast<size_t>(u.size())),
                            absl::MakeSpan(out));
      }
      values_[u] = std::move(out);
    }
    return values_.at(root);
  }

 private:
  int64_t n_;
  absl::node_hash_map<UOp, std::vector<Scalar>> values_;  // Of() gives references into it
};

}  // namespace tessera
