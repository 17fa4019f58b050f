// Another graph of the same shapes: what a plan or a kernel of the first must not be taken for.
#include <algorithm>
#include <random>

#include "graph/rewrite.h"
#include "tests/fuzz/fuzz_case.h"

namespace tessera {
namespace {

Arg OtherConstant(const UOp& u, bool twice) {
  const Scalar v = u.arg<Scalar>();
  if (u.dtype().IsBool()) return Scalar::Int(v.bits == 0);
  if (u.dtype().IsFloat()) {
    return Convert(Scalar::Float(twice ? -v.AsFloat() : v.AsFloat() + 1), kFloat64, u.dtype());
  }
  const auto next = static_cast<uint64_t>(v.AsInt()) + (twice ? 2 : 1);
  return Convert(Scalar::Int(static_cast<int64_t>(next)), kInt64, u.dtype());
}

// The same count from the other end; of a PAD, the two ends exchanged.
Arg OtherOffsets(const UOp& u) {
  Pairs pairs = u.arg<Pairs>();
  for (size_t i = 0; i < pairs.size(); ++i) {
    auto& [first, second] = pairs[i];
    const Extent& n = u.src(0).shape()[static_cast<int>(i)];
    if (!first.is_int() || !second.is_int() || !n.is_int()) continue;
    if (u.is(Op::kPad)) {
      std::swap(first, second);
    } else {
      const int64_t begin = n.value() - second.value(), end = n.value() - first.value();
      first = begin;
      second = end;
    }
  }
  return pairs;
}

}  // namespace

FuzzCase Changed(const FuzzCase& c) {
  std::mt19937_64 rng(c.seed);
  FuzzCase out = c;
  out.then = FuzzCase::kNothing;
  Substitution done;
  for (const UOp& u : TopoSort(c.roots)) {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(done.at(s));
    const bool change = rng() % 2 != 0, twice = rng() % 2 != 0;
    UOp built = u.WithSrcs(srcs);
    if (change && u.IsConst()) {
      built = UOp::Make(Op::kConst, u.dtype(), {}, OtherConstant(u, twice));
    } else if (change && (u.is(Op::kShrink) || u.is(Op::kPad))) {
      built = UOp::Make(u.op(), u.dtype(), srcs, OtherOffsets(u));
    } else if (change && u.is(Op::kFlip)) {
      const Ints axis = {static_cast<int64_t>(rng() % u.rank())};
      built = UOp::Make(Op::kFlip, u.dtype(), srcs, axis);
    }
    done.emplace(u, built);
  }
  for (UOp& r : out.roots) r = UOp(done.at(r));
  return out;
}

}  // namespace tessera
