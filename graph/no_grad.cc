// Results made constant at the end of the call that made them, so that a composite stays one
// expression.
#include "graph/no_grad.h"

#include <utility>
#include <vector>

#include "graph/constant_results.h"

namespace tessera {
namespace {

thread_local int scopes = 0;
// Of the calls under way, and how many there were where each of them began.
thread_local std::vector<Tensor> made;
thread_local std::vector<size_t> begins;

// What is read as bits has no derivative.
bool IsConstant(const UOp& u) { return u.is(Op::kBitcast) && u.src(0).dtype().IsInt(); }

}  // namespace

NoGrad::NoGrad() { ++scopes; }
NoGrad::~NoGrad() { --scopes; }
bool NoGrad::Active() { return scopes > 0; }

UOp internal::AsConstant(const UOp& u) {
  // A leaf is the tensor itself; an assignment begins anew.
  if (!u.dtype().IsFloat() || u.size() == 0 || u.is(Op::kAssign) || IsConstant(u)) return u;
  // Laid out once.
  if (u.is(Op::kContiguous)) return u.WithSrcs({AsConstant(u.src(0))});
  return UOp::Make(Op::kBitcast, u.dtype(), {UOp::Make(Op::kBitcast, UnsignedOf(u.dtype()), {u})});
}

void internal::MadeInCall(const Tensor& t) {
  if (NoGrad::Active() && !begins.empty()) made.push_back(t);
}

void internal::CallBegins() { begins.push_back(made.size()); }

void internal::CallEnds() {
  const size_t before = begins.back();
  begins.pop_back();
  while (made.size() > before) {
    const Tensor t = std::move(made.back());
    made.pop_back();
    t.SetUOp(AsConstant(t.uop()));
  }
}

}  // namespace tessera
