// Writing in the shape in which a value is computed.
#include "graph/rewrite.h"
#include "schedule/passes.h"

namespace tessera {

std::vector<UOp> SinkReshapes(absl::Span<const UOp> roots) {
  return Rebuild(roots, [](const UOp& u, const UOp&) {
    if (!u.is(Op::kAssign) || !u.src(2).is(Op::kReshape)) return UOp();
    UOp value = u.src(2);
    while (value.is(Op::kReshape)) value = UOp(value.src(0));
    UOp target = u.src(1);
    if (!(value.shape() == target.shape())) {
      target = UOp::Make(Op::kReshape, {target}, value.shape().ToExtents());
    }
    std::vector<UOp> srcs(u.srcs().begin(), u.srcs().end());
    srcs[1] = target;
    srcs[2] = value;
    return u.WithSrcs(srcs);
  });
}

}  // namespace tessera
