// Bounds of integer nodes: interval arithmetic that gives up at overflow.
#include <algorithm>
#include <bit>

#include "graph/fault.h"
#include "graph/infer.h"
#include "graph/loop_form.h"

namespace tessera {
namespace {

using Bounds = std::pair<int64_t, int64_t>;

// The interval of a product or quotient is spanned by its corners.
template <typename Fn>
bool Corners(Bounds a, Bounds b, Fn fn, Bounds& out) {
  out = {INT64_MAX, INT64_MIN};
  for (int64_t x : {a.first, a.second}) {
    for (int64_t y : {b.first, b.second}) {
      int64_t v;
      if (!fn(x, y, v)) return false;
      out = {std::min(out.first, v), std::max(out.second, v)};
    }
  }
  return true;
}

bool AddOk(int64_t x, int64_t y, int64_t& v) { return !__builtin_add_overflow(x, y, &v); }
bool SubOk(int64_t x, int64_t y, int64_t& v) { return !__builtin_sub_overflow(x, y, &v); }
bool MulOk(int64_t x, int64_t y, int64_t& v) { return !__builtin_mul_overflow(x, y, &v); }
bool DivOk(int64_t x, int64_t y, int64_t& v) {
  if (y == 0 || (x == INT64_MIN && y == -1)) return false;
  v = x / y - (x % y != 0 && (x < 0) != (y < 0));
  return true;
}

}  // namespace

Bounds InferBounds(Op op, DType dtype, absl::Span<const UOp> srcs, const Arg& arg) {
  if (dtype.IsFloat() || dtype.IsVoid()) return {INT64_MIN, INT64_MAX};
  const Bounds all{MinInt(dtype), MaxInt(dtype)};
  const auto of = [&](size_t i) { return Bounds{srcs[i].vmin(), srcs[i].vmax()}; };
  // A result outside the dtype wraps, so nothing is known of it.
  const auto within = [&](Bounds b) {
    return b.first >= all.first && b.second <= all.second ? b : all;
  };
  // A u64 of which the highest bound is that of i64 may lie anywhere above it.
  const auto open = [&](size_t i) {
    return srcs[i].dtype().kind() == Kind::kU64 && srcs[i].vmax() == INT64_MAX;
  };
  const bool unknown = srcs.size() == 2 && (open(0) || open(1));
  Bounds out = all;
  switch (op) {
    case Op::kConst: {
      const int64_t v = std::get<Scalar>(arg.value).AsInt();
      return v < all.first ? all : Bounds{v, v};
    }
    case Op::kVar: {
      const auto& v = std::get<VarArg>(arg.value);
      return within({v.min, v.max});
    }
    case Op::kIota:
      return within({0, std::max<int64_t>(0, std::get<Extents>(arg.value)[0].max() - 1)});
    case Op::kRange:
      if (srcs.size() == 1) return within({0, std::max<int64_t>(1, srcs[0].vmax()) - 1});
      if (srcs.size() == 3) {
        const int64_t begin = srcs[0].vmin(), end = srcs[1].vmax();
        return within({begin, end > begin ? end - 1 : begin});
      }
      return all;
    case Op::kAdd:
      return !unknown && Corners(of(0), of(1), AddOk, out) ? within(out) : all;
    case Op::kSub:
      return !unknown && Corners(of(0), of(1), SubOk, out) ? within(out) : all;
    case Op::kMul:
      return !unknown && Corners(of(0), of(1), MulOk, out) ? within(out) : all;
    case Op::kFloorDiv: {
      const Bounds b = of(1);
      if (unknown || (b.first <= 0 && b.second >= 0)) return all;
      return Corners(of(0), b, DivOk, out) ? within(out) : all;
    }
    case Op::kTruncDiv:
      if (unknown || srcs[0].vmin() < 0 || srcs[1].vmin() <= 0) return all;
      return Corners(of(0), of(1), DivOk, out) ? within(out) : all;
    case Op::kFloorMod:
      if (open(1) || srcs[1].vmin() <= 0) return all;
      if (srcs[0].vmin() >= 0) return {0, std::min(srcs[0].vmax(), srcs[1].vmax() - 1)};
      return {0, srcs[1].vmax() - 1};
    case Op::kTruncMod:
      if (open(1) || srcs[1].vmin() <= 0 || srcs[0].vmin() < 0) return all;
      return {0, std::min(srcs[0].vmax(), srcs[1].vmax() - 1)};
    case Op::kMax:
      return {std::max(srcs[0].vmin(), srcs[1].vmin()), std::max(srcs[0].vmax(), srcs[1].vmax())};
    case Op::kMin:
      return {std::min(srcs[0].vmin(), srcs[1].vmin()), std::min(srcs[0].vmax(), srcs[1].vmax())};
    case Op::kWhere:
      if (FaultPlanted(Fault::kWhereBounds)) return of(1);
      return {std::min(srcs[1].vmin(), srcs[2].vmin()), std::max(srcs[1].vmax(), srcs[2].vmax())};
    case Op::kAnd:
      if (srcs[0].vmin() < 0 || srcs[1].vmin() < 0) return all;
      return {0, std::min(srcs[0].vmax(), srcs[1].vmax())};
    case Op::kOr:
    case Op::kXor: {  // of what is not negative: no bit above the highest of both
      if (open(0) || open(1) || srcs[0].vmin() < 0 || srcs[1].vmin() < 0) return all;
      const auto most = static_cast<uint64_t>(std::max(srcs[0].vmax(), srcs[1].vmax()));
      return within({0, static_cast<int64_t>((uint64_t{1} << std::bit_width(most)) - 1)});
    }
    case Op::kShr: {
      // What is not negative is filled with zeros, whatever the count.
      if (open(0) || srcs[0].vmin() < 0) return all;
      const int64_t least = std::clamp<int64_t>(srcs[1].vmin(), 0, dtype.bits() - 1);
      return {0, open(1) || srcs[1].vmin() < 0 ? srcs[0].vmax() : srcs[0].vmax() >> least};
    }
    case Op::kCmpLt:
      if (srcs[0].dtype().IsFloat()) return all;
      if (srcs[0].vmax() < srcs[1].vmin()) return {1, 1};
      if (srcs[0].vmin() >= srcs[1].vmax() && srcs[0].dtype().kind() != Kind::kU64) return {0, 0};
      return all;
    case Op::kCast:
      if (srcs[0].dtype().IsFloat() || srcs[0].dtype().kind() == Kind::kU64) return all;
      if (FaultPlanted(Fault::kCastBounds)) {
        return {std::clamp(srcs[0].vmin(), all.first, all.second),
                std::clamp(srcs[0].vmax(), all.first, all.second)};
      }
      return dtype.IsBool() ? all : within(of(0));
    case Op::kReshape:
    case Op::kPermute:
    case Op::kExpand:
    case Op::kShrink:
    case Op::kFlip:
    case Op::kWindow:
    case Op::kContiguous:
    case Op::kMark:
    case Op::kStandIn:
    case Op::kCopy:
    case Op::kStage:
    case Op::kSplat:
    case Op::kLane:
      return of(0);
    case Op::kResult: {  // what a turn gives, and what the first one takes
      const LoopForm loop(srcs[0]);
      const auto i = std::get<int64_t>(arg.value);
      const auto carried = static_cast<int64_t>(loop.carried.size());
      if (i >= carried && i < loop.body.size()) {
        const UOp& each = loop.body.src(static_cast<int>(i));
        return {each.vmin(), each.vmax()};
      }
      const auto c = static_cast<int>(i < carried ? i : i - loop.body.size());
      const UOp &first = loop.carried[c], &each = loop.body.src(c);
      return {std::min(first.vmin(), each.vmin()), std::max(first.vmax(), each.vmax())};
    }
    case Op::kPad:
      return {std::min<int64_t>(0, srcs[0].vmin()), std::max<int64_t>(0, srcs[0].vmax())};
    case Op::kReduce:
      if (std::get<ReduceArg>(arg.value).op == Op::kMax ||
          std::get<ReduceArg>(arg.value).op == Op::kMin) {
        // An empty reduction gives the identity, which lies outside the source's bounds.
        return srcs.size() == 1 ? of(0) : all;
      }
      return all;
    default:  // true of any op
      return all;
  }
}

}  // namespace tessera
