// Tensors as handles: state, views and assignment, and the helpers that all members share.
#include "graph/tensor.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "graph/buffer.h"
#include "graph/constant_results.h"
#include "graph/flags.h"
#include "graph/infer.h"
#include "graph/infer_device.h"
#include "graph/sample.h"
#include "graph/tensor_align.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_moved.h"
#include "graph/trace.h"

namespace tessera {
namespace internal {

UOp Current(const UOp& version) {
  if (version.is(Op::kAssign)) {
    if (UOp computed = version.realized()) return computed;
  }
  return version;
}

std::vector<UOp> StepsOf(UOp view, const UOp& base) {
  std::vector<UOp> steps;
  for (; !(view == base); view = view.src(0)) steps.push_back(view);
  std::reverse(steps.begin(), steps.end());
  return steps;
}

UOp Build(Op op, DType dtype, absl::Span<const UOp> srcs, Arg arg) {
  absl::InlinedVector<UOp, 4> current;
  bool sharded = false;
  for (const UOp& s : srcs) {
    current.push_back(Current(s));
    sharded |= s.device().is_sharding();
  }
  if (sharded) return BuildSharded(op, dtype, current, std::move(arg));
  absl::StatusOr<UOp> made = UOp::TryMake(op, dtype, current, std::move(arg));
  if (made.ok()) return *std::move(made);
  // "PERMUTE: axis 1 is repeated" reads "Permute: axis 1 is repeated".
  absl::string_view message = made.status().message();
  const std::string prefix = absl::StrCat(Info(op).text, ": ");
  if (message.substr(0, prefix.size()) == prefix) message.remove_prefix(prefix.size());
  Fail(message);
}

std::string Show(const Tensor& t) { return Describe(t.uop()); }

std::string Call::Message(absl::string_view wrong) {
  std::string out = absl::StrCat(current_ == nullptr ? "Tensor" : current_->name_, ": ", wrong);
  if (current_ == nullptr || absl::StrContains(wrong, "; got ")) return out;
  constexpr int kMostShown = 8;
  int shown = 0;
  for (const absl::Span<const Tensor> some : absl::MakeSpan(current_->given_, current_->count_)) {
    for (const Tensor& t : some) {
      if (!t) continue;
      const std::string text = Show(t);
      if (absl::StrContains(wrong, text)) continue;
      if (++shown > kMostShown) return out + ", ...";
      absl::StrAppend(&out, shown == 1 ? "; got " : ", ", text);
    }
  }
  return out;
}

std::string Show(const Operand& o) {
  if (o.tensor() != nullptr) return Show(*o.tensor());
  return o.extent() ? Extent(o.extent()).ToString() : o.number().ToString();
}

UOp CastTo(const UOp& u, DType dtype) {
  return u.dtype() == dtype ? u : Build(Op::kCast, dtype, {u}, {});
}

UOp ReshapeTo(const UOp& u, const Extents& dims) {
  if (u.shape().dims() == absl::MakeConstSpan(dims)) return u;
  return Build(Op::kReshape, {u}, dims);
}

UOp PermuteTo(const UOp& u, const Ints& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int64_t>(i)) return Build(Op::kPermute, {u}, order);
  }
  return u;
}

UOp BroadcastTo(const UOp& u, const Shape& shape, bool keep_scalar) {
  if (u.shape() == shape || (keep_scalar && u.rank() == 0)) return u;
  const int extra = shape.rank() - u.rank();
  UOp v = u;
  if (extra > 0) {
    Extents dims(extra, Extent(1));
    dims.insert(dims.end(), u.shape().begin(), u.shape().end());
    v = ReshapeTo(u, dims);
  }
  return v.shape() == shape ? v : Build(Op::kExpand, {v}, shape.ToExtents());
}

UOp CopyTo(const UOp& u, Device device) {
  if (!device || SamePlacement(u.shape(), u.device(), device)) return u;
  return Build(Op::kCopy, {u}, device);
}

Shape BroadcastShape(const Shape& a, const Shape& b) {
  if (a == b || b.rank() == 0) return a;
  if (a.rank() == 0) return b;
  const int rank = std::max(a.rank(), b.rank());
  Extents dims;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - rank + a.rank(), ib = i - rank + b.rank();
    const Extent one = 1;
    const Extent &x = ia < 0 ? one : a[ia], &y = ib < 0 ? one : b[ib];
    if (!(x == y) && !x.is_int(1) && !y.is_int(1)) {
      Fail("the shapes ", a.ToString(), " and ", b.ToString(),
           " do not broadcast: counted from the last axis, extents must be equal or 1, and axis ",
           i - rank, " has ", x.ToString(), " and ", y.ToString());
    }
    dims.push_back(x.is_int(1) ? y : x);
  }
  return Shape(std::move(dims));
}

DType CommonType(const Operand& a, const Operand& b) {
  const auto cls = [](const Operand& o) { return o.extent() ? KindClass::kInt : o.number().cls; };
  if (a.tensor() != nullptr && b.tensor() != nullptr) {
    return Promote(a.tensor()->dtype(), b.tensor()->dtype());
  }
  if (a.tensor() != nullptr) return PromoteWeak(a.tensor()->dtype(), cls(b));
  if (b.tensor() != nullptr) return PromoteWeak(b.tensor()->dtype(), cls(a));
  return Promote(a.extent() ? kInt32 : a.number().DefaultType(),
                 b.extent() ? kInt32 : b.number().DefaultType());
}

UOp NumberAs(const Number& n, DType dtype) {
  if (dtype.IsVoid() || dtype.lanes() != 1) {
    Fail("elements cannot be ", dtype.ToString(), "; give a dtype such as kFloat32");
  }
  const DType from = n.cls == KindClass::kFloat  ? kFloat64
                     : n.cls == KindClass::kUint ? kUInt64
                                                 : kInt64;
  const Scalar value = Convert(n.value, from, dtype);
  if (dtype.IsInt()) {
    // It fits if it comes back the same, and not by wrapping.
    const Scalar again = Convert(value, dtype, from);
    const bool back = from.IsFloat() ? again.AsFloat() == n.value.AsFloat() : again == n.value;
    const bool wraps = n.cls == KindClass::kUint ? dtype.kind() != Kind::kU64
                                                 : dtype.IsUnsigned() && n.AsDouble() < 0;
    if (!back || wraps) {
      Fail(n.ToString(), " does not fit ", dtype.ToString(), "; use a dtype that holds it");
    }
  }
  return UOp::Const(dtype, value);
}

UOp AsNode(const Operand& o, DType dtype) {
  if (o.tensor() != nullptr) return CastTo(o.tensor()->uop(), dtype);
  return o.extent() ? CastTo(o.extent(), dtype) : NumberAs(o.number(), dtype);
}

Tensor Combine(Op op, DType dtype, const Operand& a, const Operand& b) {
  UOp x = AsNode(a, dtype), y = AsNode(b, dtype);
  if (!(x.shape() == y.shape())) {
    const Shape shape = BroadcastShape(x.shape(), y.shape());
    x = BroadcastTo(x, shape, /*keep_scalar=*/true);
    y = BroadcastTo(y, shape, /*keep_scalar=*/true);
  }
  return Tensor(Build(op, {x, y}));
}

int NormalAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    Fail("there is no axis ", axis, " in a tensor of rank ", rank,
         rank == 0 ? "" : absl::StrCat("; it has axes ", -rank, " to ", rank - 1));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

int AxisAlong(int64_t axis, int rank) {
  if (rank > 0) return NormalAxis(axis, rank);
  if (axis != 0 && axis != -1) {
    Fail("there is no axis ", axis,
         " in a tensor of rank 0; it is one element along the axes 0 and -1");
  }
  return 0;
}

Ints AxesAlong(const Axes& axes, int rank) {
  if (rank > 0) return NormalAxes(axes, rank);
  for (int64_t a : axes.axes()) AxisAlong(a, rank);
  return {};
}

Ints NormalAxes(const Axes& axes, int rank) {
  Ints out;
  if (axes.axes().empty()) {
    for (int i = 0; i < rank; ++i) out.push_back(i);
  }
  for (int64_t a : axes.axes()) {
    const int64_t axis = NormalAxis(a, rank);
    if (std::find(out.begin(), out.end(), axis) != out.end()) Fail("axis ", a, " is given twice");
    out.push_back(axis);
  }
  return out;
}

void CheckHoldsValues(Device device) {
  if (!device.is_sharding()) return;
  const Sharding s = device.sharding();
  if (s.Has(Placement::Kind::kPartial)) {
    Fail(device.ToString(), " is partial, as only a reduction is before its ALLREDUCE; give a ",
         "Sharding of Replicate and Shard placements");
  }
  if (s.Has(Placement::Kind::kManual)) {
    Fail(device.ToString(), " is each place's own, as tensors are only inside a ShardMap: pass ",
         "the tensor to it as an argument, or create it there without a device");
  }
}

Device DeviceLike(const Tensor& t) {
  const Device d = t.device();
  return d.is_sharding() && d.sharding().Has(Placement::Kind::kManual) ? Device() : d;
}

UOp NewBuffer(DType dtype, const Extents& dims, Device device) {
  return Build(Op::kBuffer, dtype, {}, BufferArg{std::make_shared<Buffer>(), dims, device});
}

int64_t CheckHostBytes(const UOp& buffer, const void* memory) {
  const Shape& shape = buffer.shape();
  if (!shape.is_static()) Fail("the shape ", shape.ToString(), " is symbolic");
  const int64_t elements = shape.MaxElements();
  if (elements > kMostElements) {
    Fail("the shape ", shape.ToString(), " has more elements than any memory holds");
  }
  if (memory == nullptr && elements > 0) {
    Fail("the pointer is null, and the shape ", shape.ToString(), " needs ", elements, " elements");
  }
  return elements * buffer.dtype().bytes();
}

Device DefaultDevice() {
  static const Device device(TextFlag(Flag::kDevice));
  return device;
}

}  // namespace internal

using internal::Call;
using internal::Fail;

double Number::AsDouble() const {
  if (cls == KindClass::kFloat) return value.AsFloat();
  return Convert(value, cls == KindClass::kUint ? kUInt64 : kInt64, kFloat64).AsFloat();
}

DType Number::DefaultType() const {
  switch (cls) {
    case KindClass::kBool:
      return kBool;
    case KindClass::kFloat:
      return kFloat32;
    case KindClass::kUint:
      return kUInt64;
    default:
      return value.AsInt() == static_cast<int32_t>(value.AsInt()) ? kInt32 : kInt64;
  }
}

std::string Number::ToString() const {
  switch (cls) {
    case KindClass::kBool:
      return ScalarToString(value, kBool);
    case KindClass::kFloat:
      return ScalarToString(value, kFloat64);
    case KindClass::kUint:
      return ScalarToString(value, kUInt64);
    default:
      return ScalarToString(value, kInt64);
  }
}

namespace {
UOp MakeVariable(const std::string& name, int64_t min, int64_t max, CallSite at) {
  Call call("Variable", at);
  if (name.empty()) Fail("needs a name");
  if (std::any_of(name.begin(), name.end(), absl::ascii_iscntrl)) {
    Fail("the name '", absl::CEscape(name), "' has control characters; take one without");
  }
  if (name[0] == '@' || absl::StartsWith(name, "rt_")) {
    Fail("the name '", name,
         "' is one that generated code uses; take one that does not begin with ", "'@' or 'rt_'");
  }
  if (min > max) Fail(name, " has a lowest value of ", min, " above its highest of ", max);
  return internal::Build(Op::kVar, kInt64, {}, VarArg{name, min, max});
}
}  // namespace

Variable::Variable(const std::string& name, int64_t min, int64_t max, CallSite at)
    : Extent(MakeVariable(name, min, max, at)) {}

Tensor::Tensor(UOp value) : state_(std::make_shared<State>()) {
  state_->value = std::move(value);
  state_->function = internal::FunctionScope::Current();
  if (internal::Trace* trace = internal::Trace::Current()) trace->Born(state_);
  internal::MadeInCall(*this);
}

Tensor::Tensor(const Tensor&) = default;
Tensor& Tensor::operator=(const Tensor&) & = default;
Tensor& Tensor::operator=(Tensor&&) & noexcept = default;
Tensor::~Tensor() = default;

Tensor::State& Tensor::Now() const {
  if (state_ == nullptr) {
    Fail("the tensor is empty: it was default-constructed and given no value");
  }
  internal::Trace* trace = internal::Trace::Current();
  return trace == nullptr ? *state_ : trace->See(state_);
}

const UOp& Tensor::uop() const { return Now().value; }

bool Tensor::StandAlone() const {
  if (state_ == nullptr) return true;
  State& s = *state_;
  if (s.base && s.base.use_count() > 1) return false;
  s.base = nullptr;
  s.base_version = s.view = UOp();
  s.through.clear();
  return true;
}

void Tensor::SetUOp(const UOp& value) const {
  CHECK(value.dtype() == dtype() && value.shape() == shape());
  internal::ReplaceValue(state_->value, value);
}

int64_t Tensor::size(int axis) const {
  if (axis < -rank() || axis >= rank()) {
    Call call("size", CallSite::Here(), *this);
    internal::NormalAxis(axis, rank());
  }
  const Extent& e = shape()[internal::NormalAxis(axis, rank())];
  if (!e.is_int())
    Fail("axis ", axis, " has the symbolic extent ", e.ToString(), ", and must have a known one");
  return e.value();
}

int64_t Tensor::elements() const {
  const Extent n = shape().Elements();
  if (!n.is_int()) Fail("the shape ", shape().ToString(), " is symbolic, and must be known");
  return n.value();
}

// Only ShardMap makes what is each place's own; there, tensors that are it already may move.
static void CheckMayMove(const Tensor& x, Device to) {
  const bool own = x.device().is_sharding() && to.is_sharding() && SameManualDims(x.device(), to);
  if (own && !to.sharding().Has(Placement::Kind::kPartial)) return;
  internal::CheckHoldsValues(to);
}

Tensor Tensor::To(Device to, CallSite at) const {
  Call call("To", at, *this);
  if (!to || device() == to) return Tensor(uop());
  CheckMayMove(*this, to);
  return Tensor(internal::CopyTo(uop(), to));
}

Tensor Tensor::Shard(const Sharding& to, CallSite at) const {
  Call call("Shard", at, *this);
  CheckMayMove(*this, to);
  return Tensor(internal::CopyTo(uop(), to));
}

Tensor Tensor::Shard(const PlaceList& places, int axis, CallSite at) const {
  Call call("Shard", at, *this);
  return Shard(Sharding(places, internal::NormalAxis(axis, rank())), at);
}

Tensor Tensor::FromShards(absl::Span<const Tensor> shards, const Sharding& to, CallSite at) {
  Call call("FromShards", at, shards);
  internal::CheckHoldsValues(to);
  std::vector<UOp> srcs;
  bool selected = !shards.empty();
  for (size_t i = 0; i < shards.size(); ++i) {
    const UOp u = internal::Current(shards[i].uop());
    srcs.push_back(u);
    // The shards of a tensor, put together again, are the tensor.
    selected = selected && u.is(Op::kMSelect) && u.arg<int64_t>() == static_cast<int64_t>(i) &&
               u.src(0) == srcs[0].src(0) && u.src(0).device() == Device(to);
  }
  if (selected && static_cast<int>(shards.size()) == to.size()) return Tensor(UOp(srcs[0].src(0)));
  return Tensor(internal::BuildStack(srcs, to));
}

Tensor Tensor::ShardAt(int index, CallSite at) const {
  Call call("ShardAt", at, *this);
  if (!device().is_sharding()) Fail(internal::Show(*this), " is not on a Sharding");
  const Sharding s = device().sharding();
  if (index < 0 || index >= s.size()) {
    Fail("there is no shard ", index, "; ", s.ToString(), " has ", s.size(), " places");
  }
  if (s.Has(Placement::Kind::kManual)) {
    Fail(internal::Show(*this), " is each place's own: one place's part of it is seen outside, ",
         "of what ShardMap returns");
  }
  const auto part = [&](const UOp& u) {
    return internal::Build(Op::kMSelect, {u}, int64_t{index});
  };
  const UOp u = internal::Current(uop());
  Tensor out = Moved(part);
  // What was put together is read as it was; what is written goes to the whole.
  if (u.is(Op::kMStack)) out.state_->value = UOp(u.src(index));
  return out;
}

Tensor Tensor::Contiguous(CallSite at) const {
  Call call("Contiguous", at, *this);
  const UOp& u = uop();
  // Memory that others see is not its own.
  const bool own = u.is(Op::kContiguous) || (u.is(Op::kBuffer) && !internal::IsLent(u));
  return own ? Tensor(u) : Tensor(internal::Build(Op::kContiguous, {u}));
}

bool internal::IsLent(const UOp& buffer) {
  const std::shared_ptr<Storage>& storage = buffer.arg<BufferArg>().buffer->storage;
  return storage != nullptr && MayChangeUnseen(*storage);
}

bool internal::IsSharedMemory(const UOp& buffer) {
  if (!buffer.is(Op::kBuffer)) return false;
  const std::shared_ptr<Storage>& storage = buffer.arg<BufferArg>().buffer->storage;
  return storage != nullptr && storage->data != nullptr && !storage->parts.empty();
}

}  // namespace tessera
