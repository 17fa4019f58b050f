// Narrow floats: computed in f32, rounded after each op.
#include "codegen/passes.h"
#include "graph/fold.h"
#include "graph/rewrite.h"

namespace tessera {
namespace {

bool IsNarrow(DType t) { return t.IsFloat() && t.bits() < 32; }

UOp CastTo(const UOp& u, DType t) { return u.dtype() == t ? u : UOp::Make(Op::kCast, t, {u}); }

UOp ToF32(const UOp& u) {
  return IsNarrow(u.dtype()) ? CastTo(u, kFloat32.WithLanes(u.dtype().lanes())) : u;
}

// A reduction in f32 of nothing (a part of a symbolic loop) gives its identity there, an infinity
// that some narrow floats lack: it becomes their own.
UOp WithinRange(Op op, const UOp& result, DType narrow) {
  const DType wide = result.dtype().Scalar();
  const Scalar own = Convert(ReduceIdentity(op, narrow.Scalar()), narrow.Scalar(), wide);
  if (own == ReduceIdentity(op, wide)) return result;
  return UOp::Make(op, {result, UOp::Const(wide, own)});
}

UOp Widen(const UOp& u, absl::Span<const UOp> srcs) {
  if (u.size() == 0) return u;
  const bool reduces = u.is(Op::kReduce) || u.is(Op::kRunning);
  const DType operand = srcs[reduces ? 0 : srcs.size() - 1].dtype();
  if (u.is(Op::kCast)) {
    const bool via = (IsNarrow(operand) && u.dtype().kind() != Kind::kF32) ||
                     (IsNarrow(u.dtype()) && operand.kind() != Kind::kF32);
    if (!via) return u.WithSrcs(srcs);
    const UOp wide = CastTo(srcs[0], kFloat32.WithLanes(operand.lanes()));
    return CastTo(wide, u.dtype());
  }
  const bool arithmetic =
      reduces || (IsElementwise(u.op()) && !u.is(Op::kWhere) && !u.is(Op::kBitcast));
  if (!arithmetic || !IsNarrow(operand)) return u.WithSrcs(srcs);
  absl::InlinedVector<UOp, 4> wide;
  for (const UOp& s : srcs) wide.push_back(ToF32(s));
  UOp result = UOp::Make(u.op(), wide, u.arg());
  if (reduces) result = WithinRange(u.arg<ReduceArg>().op, result, u.dtype());
  return IsNarrow(u.dtype()) ? CastTo(result, u.dtype()) : result;
}

}  // namespace

UOp WidenFloats(const UOp& sink) {
  absl::flat_hash_map<UOp, UOp> done;
  for (const UOp& u : TopoSort({&sink, 1})) {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(done.at(s));
    done.emplace(u, Widen(u, srcs));
  }
  return done.at(sink);
}

}  // namespace tessera
