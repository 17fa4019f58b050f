// Writing in the shape in which a value is computed.
#include "absl/container/flat_hash_map.h"
#include "schedule/passes.h"

namespace tessera {

std::vector<UOp> SinkReshapes(absl::Span<const UOp> roots) {
  absl::flat_hash_map<UOp, UOp> done;
  for (const UOp& u : TopoSort(roots)) {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(done.at(s));
    if (u.is(Op::kAssign)) {
      UOp value = srcs[2];
      while (value.is(Op::kReshape)) value = UOp(value.src(0));
      if (!(value == srcs[2]) && !(value.shape() == srcs[1].shape())) {
        srcs[1] = UOp::Make(Op::kReshape, {srcs[1]}, value.shape().ToExtents());
      }
      srcs[2] = value;
    }
    done.emplace(u, u.WithSrcs(srcs));
  }
  std::vector<UOp> out;
  for (const UOp& r : roots) out.push_back(done.at(r));
  return out;
}

}  // namespace tessera
