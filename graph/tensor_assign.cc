// Assignment to tensors and to views of them.
#include <algorithm>

#include "graph/box.h"
#include "graph/buffer.h"
#include "graph/constant_results.h"
#include "graph/infer_device.h"
#include "graph/no_grad.h"
#include "graph/sample.h"
#include "graph/shifts.h"
#include "graph/tensor_align.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"
#include "graph/trace.h"

namespace tessera {

using internal::Call;
using internal::Fail;

namespace {

// A view's elements can be written where each shows a different element of the base.
void CheckAssignable(const UOp& u) {
  bool repeats = u.is(Op::kExpand);
  if (u.is(Op::kWindow)) {
    const auto& w = u.arg<WindowArg>();
    for (size_t i = 0; i < w.axes.size(); ++i) {
      repeats |= w.size[i] > 1 && w.stride[i] < w.dilation[i] * (w.size[i] - 1) + 1;
    }
  }
  if (repeats) {
    Fail("the target ", Describe(u), " repeats elements of ", Describe(u.src(0)), " (",
         Info(u.op()).text, "); assign to a copy made with .Contiguous()");
  }
  if (u.is(Op::kMSelect) || u.is(Op::kCopy)) return;
  if (!IsMovement(u.op())) {
    Fail("the target ", Describe(u), " is ", Info(u.op()).text, " of ", Describe(u.src(0)),
         ", and what is written to it would be lost; ",
         u.is(Op::kGather) ? "assign x.PutAt({...}, values) to x" : "assign to the tensor itself");
  }
  if (u.is(Op::kPad)) {
    Fail("the target ", Describe(u), " has padding, which is not stored; assign to the tensor ",
         "before .Pad(...), or to a copy made with .Contiguous()");
  }
}

// ---- views whose elements lie elsewhere than the base's

// A view that deals the pieces out again, a copy that a builder made for a view, or one place's
// part: what is written to it is written to what it shows.
bool LiesElsewhere(const UOp& view) {
  if (view.is(Op::kMSelect) || view.is(Op::kCopy)) return true;
  if (!view.device().is_sharding()) return false;
  if (!ShiftsOf(view).empty()) return true;
  const Sharding s = view.src(0).device().sharding();
  Ints axes;
  if (view.is(Op::kFlip)) axes = view.arg<Ints>();
  if (view.is(Op::kWindow)) axes = view.arg<WindowArg>().axes;
  return std::any_of(axes.begin(), axes.end(),
                     [&s](int64_t a) { return !s.DimsOf(static_cast<int>(a)).empty(); });
}

// A view of a tensor that has come to lie somewhere, or of another version of it.
UOp Placed(const UOp& view, const UOp& of) {
  if (view.src(0).device() == of.device()) return view.WithSrcs({of});
  const absl::StatusOr<UOp> placed = UOp::TryMake(view.op(), view.dtype(), {of}, view.arg());
  if (placed.ok()) return *placed;
  Fail("the target ", Describe(view), " has no device yet and cannot take the value's, ",
       of.device().ToString(), " (", placed.status().message(),
       "); give the tensor that it is a view of a device before with .To(...) or .Shard(...)");
}

// As for every other target.
void CheckPlaces(const UOp& v, const UOp& target) {
  if (!v.device() || !target.device()) return;
  const auto from = v.device().places(), to = target.device().places();
  if (std::is_permutation(from.begin(), from.end(), to.begin(), to.end())) return;
  Fail("the value ", Describe(v), " is on other places than the target ", Describe(target),
       "; move it with .To(...)");
}

// Whether an error has left a version without values: one that is assigned whole gets new ones.
bool IsLost(const UOp& version) {
  if (!version.is(Op::kBuffer)) return false;
  const std::shared_ptr<Storage>& storage = version.arg<BufferArg>().buffer->storage;
  return storage != nullptr && storage->lost != nullptr;
}

// The elements of a movement's view at their places in its source, among zeros.
Tensor Back(const UOp& view, const Tensor& v) {
  const Shape& from = view.src(0).shape();
  switch (MovementOf(view.op())) {
    case Movement::kReshape:
      return v.Reshape(from);
    case Movement::kPermute: {
      Ints order(view.rank());
      for (int i = 0; i < view.rank(); ++i) order[view.arg<Ints>()[i]] = i;
      return v.Permute(order);
    }
    case Movement::kFlip:
      return v.Flip(Axes(view.arg<Ints>()));
    case Movement::kShrink:
      return internal::BeforeShrink(view, v);
    case Movement::kWindow: {  // its elements do not overlap: each is the only one in its sum
      const WindowArg& w = view.arg<WindowArg>();
      Tensor out = v;
      for (size_t i = w.axes.size(); i-- > 0;) {
        const int axis = static_cast<int>(w.axes[i]);
        out = internal::OverlapAdd(out, axis, from[axis], w.stride[i], w.dilation[i]);
      }
      return out;
    }
    case Movement::kExpand:
    case Movement::kPad:
      break;
  }
  CHECK(false, Describe(view), " is no target, see CheckAssignable");
  return {};
}

// One place's part as what it is of the tensor: on all places that have it, and nowhere else. Made
// as it stands, since a builder would deal out what lies on one place.
UOp PartAsSlice(const UOp& select) {
  const UOp& x = select.src(0);
  const Box box = BoxesOf(x.shape(), x.device()).At(static_cast<int>(select.arg<int64_t>()));
  Pairs pairs;
  for (int a = 0; a < x.rank(); ++a) {
    const Extent end = Extent(box[a].begin) + PartBelow(box[a], x.shape()[a]);
    pairs.emplace_back(Extent(box[a].begin), end);
  }
  return UOp::Make(Op::kShrink, {x}, std::move(pairs));
}

// The value of what the view shows, once v is assigned to the view.
Tensor Shown(const UOp& view, const Tensor& v) {
  if (view.is(Op::kMSelect)) {
    const UOp part = PartAsSlice(view);
    return Shown(part, v.To(part.device()));
  }
  const Tensor x(view.src(0));
  if (view.is(Op::kCopy)) return v.To(x.device());
  const bool all = view.is(Op::kReshape) || view.is(Op::kPermute) || view.is(Op::kFlip);
  if (all) return Back(view, v);
  const Tensor written = Back(view, Tensor::Ones(v.shape(), kUInt8)) > 0;
  const auto among = [&](const Tensor& placed) { return Where(written, placed.To(x.device()), x); };
  if (!view.is(Op::kWindow)) return among(Back(view, v));
  // Windows are added up: as bits, so that adding zeros changes nothing.
  if (v.dtype().IsBool()) return among(Back(view, v.Cast(kUInt8)).Cast(kBool));
  const Tensor exact = among(Back(view, v.Bitcast(UnsignedOf(v.dtype()))).Bitcast(v.dtype()));
  if (!v.dtype().IsFloat()) return exact;
  return internal::DerivedBy(exact, [&] { return among(Back(view, v)); });
}

}  // namespace

Tensor internal::AfterAssign(const UOp& base, UOp view, Tensor v) {
  for (; !(view == base); view = UOp(view.src(0))) v = Shown(view, v);
  return v;
}

// Every version that can be written lies in a BUFFER of the tensor's own: a value that has none
// yet, which other tensors may share as a node, is first assigned to a fresh one.
Tensor& Tensor::Assign(const Operand& value) {
  Call call("Assign", value.site(), *this, value);
  const UOp old = uop();
  State& self = Now();
  const std::shared_ptr<State> held = self.base ? self.base : state_;
  Tensor base;
  base.state_ = held;
  State& root = base.Now();
  CheckOwn(root);
  UOp whole = internal::Current(root.value);
  if (internal::IsSharedMemory(whole)) {
    Fail("the memory of ", Describe(whole),
         " is one for all its places, which would each write it; assign to a copy made with ",
         ".Contiguous()");
  }
  std::vector<UOp> chain;
  if (self.base) chain = internal::StepsOf(self.view, self.base_version);
  for (const UOp& u : chain) CheckAssignable(u);
  UOp v = internal::AsNode(value, old.dtype());
  if (!(internal::BroadcastShape(v.shape(), old.shape()) == old.shape())) {
    Fail("cannot make ", Describe(v), " fill the target ", Describe(old));
  }
  v = internal::BroadcastTo(v, old.shape(), /*keep_scalar=*/false);
  const bool renewed = chain.empty() && IsLost(whole);
  const internal::Trace* const trace = internal::Trace::Current();
  const bool shared = trace != nullptr && trace->StandsForAnother(whole, root);
  if (renewed || shared || (!whole.is(Op::kBuffer) && !whole.is(Op::kAssign))) {
    Device device = whole.device() ? whole.device() : v.device();
    if (!device) device = internal::DefaultDevice();
    const UOp fresh = internal::NewBuffer(whole.dtype(), whole.shape().ToExtents(), device);
    whole = chain.empty() ? fresh : internal::Build(Op::kAssign, {fresh, fresh, whole});
  }
  std::vector<UOp> views = {whole};  // each shows the one before
  for (const UOp& u : chain) views.push_back(Placed(u, views.back()));
  const auto first_elsewhere = std::find_if(views.begin() + 1, views.end(), LiesElsewhere);
  const size_t direct = first_elsewhere - views.begin() - 1;
  if (direct < chain.size()) CheckPlaces(v, old);
  for (size_t i = chain.size(); i > direct; --i) v = Shown(views[i], Tensor(v)).uop();
  // Two tensors that hold one version may be assigned equal values, in two threads say.
  whole = internal::Build(Op::kAssign, {whole, views[direct], v}).Unshared();
  internal::ReplaceValue(root.value, whole);
  if (!self.base) return *this;
  Renew(whole);
  for (const std::weak_ptr<State>& other : self.through) {
    Tensor view;
    view.state_ = other.lock();
    if (view) view.Renew(whole);
  }
  return *this;
}

void Tensor::CheckOwn(const State& written) {
  const uint64_t function = internal::FunctionScope::Current();
  if (function == 0 || written.function == function) return;
  Fail(Describe(written.value),
       " was there before the function under Vmap, Jvp or the like, which ",
       "may write into nothing but its own; return the value instead");
}

void Tensor::Renew(const UOp& base_version) const {
  State& self = Now();
  UOp u = base_version;
  for (const UOp& step : internal::StepsOf(self.view, self.base_version)) u = Placed(step, u);
  self.view = u;
  internal::ReplaceValue(self.value, u);
  self.base_version = base_version;
}

// A value that has a history is as good as an expression: who wrote it meant its derivative, too.
Tensor& Tensor::Update(const Tensor& value) {
  const UOp old = uop();
  // A result that the dtype cannot hold, a quotient of integers say, would be cut off unseen.
  if (value.dtype().IsFloat() && !old.dtype().IsFloat()) {
    Fail("gives ", value.dtype().ToString(), ", which ", Describe(old),
         " cannot hold; cast it first, or Assign the result rounded as it should be");
  }
  State& self = Now();
  CheckOwn(self.base ? *self.base : self);
  const bool has_place =
      self.value.is(Op::kAssign) ||
      (self.value.is(Op::kBuffer) && self.value.arg<BufferArg>().buffer->history == nullptr);
  if (self.base || has_place || !(value.shape() == old.shape())) return Assign(value);
  UOp made = value.Cast(old.dtype()).uop();
  // The same parts keep the form in which they were asked for.
  const bool other_form = old.device().is_sharding() && !(made.device() == old.device());
  if (other_form && SamePlacement(old.shape(), made.device(), old.device())) {
    made = internal::ImpliedCopy(made, old.device().sharding(), "the form of its layout");
  }
  internal::ReplaceValue(self.value, NoGrad::Active() ? internal::AsConstant(made) : made);
  self.own = false;
  return *this;
}

void Tensor::CheckHeld() const {
  const State& self = Now();
  const std::shared_ptr<State>& root = self.base ? self.base : state_;
  if (root.use_count() > 1) return;
  const UOp& value = root->value;
  if (value.is(Op::kBuffer) || value.is(Op::kAssign)) return;
  Fail("what is written into ", Describe(value), " would be lost, as nothing holds that; ",
       value.is(Op::kGather) ? "use x = x.PutAt({...}, values), or PutAt to add"
                             : "give it a variable");
}

void Tensor::operator=(const Operand& value) && {
  Call call("=", value.site(), *this, value);
  CheckHeld();
  Assign(value);
}

#define TESSERA_IN_PLACE(op)                           \
  Tensor& Tensor::operator op##=(const Operand& b)& {  \
    Call call(#op "=", b.site(), *this, b);            \
    return Update(*this op b);                         \
  }                                                    \
  Tensor& Tensor::operator op##=(const Operand& b)&& { \
    Call call(#op "=", b.site(), *this, b);            \
    CheckHeld();                                       \
    return Update(*this op b);                         \
  }
TESSERA_IN_PLACE(+)
TESSERA_IN_PLACE(-)
TESSERA_IN_PLACE(*)
TESSERA_IN_PLACE(/)
TESSERA_IN_PLACE(%)
TESSERA_IN_PLACE(&)
TESSERA_IN_PLACE(|)
TESSERA_IN_PLACE(^)
TESSERA_IN_PLACE(<<)
TESSERA_IN_PLACE(>>)
#undef TESSERA_IN_PLACE

}  // namespace tessera
