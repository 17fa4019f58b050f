// Positions through movement ops.
#include "schedule/position.h"

#include "graph/fault.h"
#include "graph/simplify.h"
#include "schedule/axis_map.h"

namespace tessera {
namespace simplified {

UOp Plus(const UOp& a, const UOp& b) { return Simplify(UOp::Make(Op::kAdd, {a, b})); }
UOp Minus(const UOp& a, const UOp& b) { return Simplify(UOp::Make(Op::kSub, {a, b})); }
UOp Times(const UOp& a, const UOp& b) { return Simplify(UOp::Make(Op::kMul, {a, b})); }
UOp Below(const UOp& a, const UOp& b) { return Simplify(UOp::Make(Op::kCmpLt, {a, b})); }
UOp Both(const UOp& a, const UOp& b) {
  if (!a || a == b) return b;
  if (!b) return a;
  return Simplify(UOp::Make(Op::kAnd, {a, b}));
}
UOp NotBelow(const UOp& a, const UOp& b) { return Below(Minus(b, UOp::Index(1)), a); }

}  // namespace simplified

using namespace simplified;

UOp Flat(const Shape& shape, const Position& at) {
  UOp flat = UOp::Index(0);
  Extent stride = 1;
  for (int a = shape.rank() - 1; a >= 0; --a) {
    flat = UOp::Make(Op::kAdd, {flat, UOp::Make(Op::kMul, {at.index[a], stride.ToUOp()})});
    stride = stride * shape[a];
  }
  return Simplify(flat);
}

Position ThroughMovement(const UOp& u, const Position& at, std::vector<UOp>* conditions) {
  const Shape& in = u.src(0).shape();
  Position out;
  out.gate = at.gate;
  switch (MovementOf(u.op())) {
    case Movement::kPermute: {
      out.index.resize(in.rank());
      const Ints& order = u.arg<Ints>();
      for (int i = 0; i < in.rank(); ++i) out.index[order[i]] = at.index[i];
      if (FaultPlanted(Fault::kPermuteInverted)) {
        for (int i = 0; i < in.rank(); ++i) out.index[i] = at.index[order[i]];
      }
      return out;
    }
    case Movement::kExpand:
      for (int i = 0; i < in.rank(); ++i) {
        out.index.push_back(in[i].is_int(1) ? UOp::Index(0) : at.index[i]);
      }
      return out;
    case Movement::kShrink:
      for (int i = 0; i < in.rank(); ++i) {
        out.index.push_back(Plus(at.index[i], u.arg<Pairs>()[i].first.ToUOp()));
      }
      return out;
    case Movement::kFlip: {
      out.index = at.index;
      for (int64_t a : u.arg<Ints>()) {
        out.index[a] = Minus(Minus(in[a].ToUOp(), UOp::Index(1)), at.index[a]);
        if (FaultPlanted(Fault::kFlipOneAxis)) break;
      }
      return out;
    }
    case Movement::kPad: {
      UOp inside;
      for (int i = 0; i < in.rank(); ++i) {
        const auto& [before, after] = u.arg<Pairs>()[i];
        out.index.push_back(Minus(at.index[i], before.ToUOp()));
        if (!before.is_int(0)) inside = Both(inside, NotBelow(at.index[i], before.ToUOp()));
        if (!after.is_int(0)) inside = Both(inside, Below(out.index[i], in[i].ToUOp()));
      }
      conditions->push_back(inside ? inside : UOp::Const(kBool, int64_t{1}));
      out.gate = Both(at.gate, inside);
      return out;
    }
    case Movement::kWindow: {
      const WindowArg& w = u.arg<WindowArg>();
      out.index.assign(at.index.begin(), at.index.begin() + in.rank());
      for (size_t i = 0; i < w.axes.size(); ++i) {
        UOp& x = out.index[w.axes[i]];
        x = Plus(Times(x, UOp::Index(w.stride[i])),
                 Times(at.index[in.rank() + i],
                       UOp::Index(FaultPlanted(Fault::kDilationIgnored) ? 1 : w.dilation[i])));
      }
      return out;
    }
    case Movement::kReshape: {
      out.index.resize(in.rank(), UOp::Index(0));
      for (const ReshapeGroup& g : ReshapeGroups(in, u.shape())) {
        UOp flat = UOp::Index(0);
        Extent stride = 1;
        for (int o = g.out_end - 1; o >= g.out_begin; --o) {
          flat = Plus(flat, Times(at.index[o], stride.ToUOp()));
          stride = stride * u.shape()[o];
        }
        int first = g.in_begin;  // the outermost real axis needs no modulo
        while (first < g.in_end && in[first].is_int(1)) ++first;
        for (int i = g.in_end - 1; i > first; --i) {
          if (in[i].is_int(1)) continue;
          out.index[i] = Simplify(UOp::Make(Op::kFloorMod, {flat, in[i].ToUOp()}));
          flat = Simplify(UOp::Make(Op::kFloorDiv, {flat, in[i].ToUOp()}));
        }
        if (first < g.in_end) out.index[first] = flat;
      }
      return out;
    }
  }
  return {};
}

Position ThroughTarget(const UOp& target, const Position& at, UOp& param) {
  Position p = at;
  UOp u = target;
  while (!u.is(Op::kParam)) {
    std::vector<UOp> ignored;
    p = ThroughMovement(u, p, &ignored);
    u = UOp(u.src(0));
  }
  param = u;
  return p;
}

}  // namespace tessera
