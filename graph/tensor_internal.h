// What the definitions of Tensor's members share: errors that name the public call, nodes, shapes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/error.h"
#include "graph/infer.h"
#include "graph/no_grad.h"
#include "graph/status.h"
#include "graph/tensor.h"

namespace tessera::internal {

// Opened by every public function: nodes made while it lives carry the call site, and errors begin
// with the name and end with the tensors that the function was given. The outermost one of the
// thread counts, so that what a composite calls stays its own.
class Call {
 public:
  template <typename... Given>
  Call(const char* name, CallSite site, const Given&... given) : scope_(site), name_(name) {
    static_assert(sizeof...(given) <= kMostGiven);
    if (current_ != nullptr) return;
    current_ = this;
    (Hold(given), ...);
  }
  ~Call() {
    if (current_ == this) current_ = nullptr;
  }
  Call(const Call&) = delete;

  // The name of the call under way, what is wrong, and what the call was given.
  static std::string Message(absl::string_view wrong);

  // While one lives, the calls of a user's function count as that function's, not as this one's.
  class Pause {
   public:
    Pause() : call_(std::exchange(current_, nullptr)) {}
    ~Pause() { current_ = call_; }
    Pause(const Pause&) = delete;

   private:
    const Call* call_;
    CallPause site_;
  };

 private:
  static constexpr int kMostGiven = 6;

  void Hold(const Tensor& t) { given_[count_++] = {&t, 1}; }
  void Hold(absl::Span<const Tensor> tensors) { given_[count_++] = tensors; }
  void Hold(const Operand& o) {
    if (o.tensor() != nullptr) Hold(*o.tensor());
  }

  static inline thread_local const Call* current_ = nullptr;
  CallScope scope_;
  const char* name_;
  int count_ = 0;
  absl::Span<const Tensor> given_[kMostGiven];
};

// Throws the Error of the call under way, whose parts say what is wrong and what to do.
template <typename... Parts>
[[noreturn]] void Fail(const Parts&... parts) {
  throw Error(absl::InvalidArgumentError(Call::Message(absl::StrCat(parts...))));
}

// Throws a status of the core, if it is none, as the Error of the call under way.
inline void ThrowAsCall(const absl::Status& status) {
  if (status.ok()) return;
  absl::string_view message = status.message();
  const absl::string_view prefix = "realize: ";
  if (message.substr(0, prefix.size()) == prefix) message.remove_prefix(prefix.size());
  throw Error(absl::Status(status.code(), Call::Message(message)));
}

// The buffer in which a version lies if it was computed, perhaps on the way to another result; else
// the version. Keeps chains of assignments from growing.
UOp Current(const UOp& version);

// The movement ops from a view's base to the view, in this order.
std::vector<UOp> StepsOf(UOp view, const UOp& base);

// The node, or an Error that begins with the call's name instead of the op's.
UOp Build(Op op, DType dtype, absl::Span<const UOp> srcs, Arg arg);
UOp BuildStack(absl::Span<const UOp> srcs, const Sharding& to);  // MSTACK
inline UOp Build(Op op, absl::Span<const UOp> srcs, Arg arg = {}) {
  return Build(op, kVoid, srcs, std::move(arg));
}

// "f32[4, 5] on CPU", or the text of a number.
std::string Show(const Tensor& t);
std::string Show(const Operand& o);

// ---- on nodes: each returns its source where there is nothing to do

UOp CastTo(const UOp& u, DType dtype);
UOp ReshapeTo(const UOp& u, const Extents& dims);
UOp PermuteTo(const UOp& u, const Ints& order);
// Axes are aligned at the last; extents of 1 repeat. A rank-0 value stays as it is if `keep_scalar`
// (elementwise ops take it beside any shape).
UOp BroadcastTo(const UOp& u, const Shape& shape, bool keep_scalar);
UOp CopyTo(const UOp& u, Device device);  // to no device: as it is

// The shape that both broadcast to, or an Error.
Shape BroadcastShape(const Shape& a, const Shape& b);

// The dtype in which two operands meet.
DType CommonType(const Operand& a, const Operand& b);
// An operand as a node of the dtype; a number that the dtype cannot hold is an Error.
UOp AsNode(const Operand& o, DType dtype);
UOp NumberAs(const Number& n, DType dtype);
// The operands in the dtype, broadcast to one shape, combined.
Tensor Combine(Op op, DType dtype, const Operand& a, const Operand& b);

// An axis from -rank to rank-1 as one from 0; an Error outside. And many, distinct; none means all.
int NormalAxis(int64_t axis, int rank);
Ints NormalAxes(const Axes& axes, int rank);
// The same for what looks along axes: of rank 0 one may be 0 or -1, which is 0; and many are none.
int AxisAlong(int64_t axis, int rank);
Ints AxesAlong(const Axes& axes, int rank);
// How many elements there are along such an axis.
inline Extent ExtentAlong(const Tensor& t, int axis) { return t.rank() == 0 ? 1 : t.shape()[axis]; }
// What f makes of a tensor of rank 0, given as a vector of its one element: again of rank 0.
inline Tensor AsElement(const Tensor& t) { return t.Reshape({}); }
inline ValuesAndIndices AsElement(const ValuesAndIndices& both) {
  return {AsElement(both.values), AsElement(both.indices)};
}
template <typename F>
auto OfElement(const Tensor& scalar, F f) {
  return AsElement(f(scalar.AtLeast(1)));
}
// The dtype of positions along an axis: i32, or i64 where they do not fit.
inline DType IndexType(const Extent& n) { return n.max() > INT32_MAX ? kInt64 : kInt32; }

// ---- on tensors

// Narrow floats in f32, integers too: what means, norms and losses are computed in; and the dtype
// that these give back.
Tensor WideFloat(const Tensor& t);
DType FloatResult(DType t);
// What a loss gives of the losses of all elements, as floats for such a dtype.
Tensor Ended(const Tensor& each, LossReduction reduction, DType dtype);
// 0, 1, ... n-1 along one axis of a tensor of that rank.
Tensor CountAlong(int axis, int rank, const Extent& n, DType dtype);
// An Error unless the index is of an integer dtype.
void CheckIndex(const Tensor& index);
// A type that holds every index and positions up to n. What u64 holds beyond i64 becomes negative,
// which is outside as well.
DType PositionType(DType index, int64_t n);
// What lies in the windows of one axis, the last axis of g, added up where it came from: n
// elements.
Tensor OverlapAdd(const Tensor& g, int axis, const Extent& n, int64_t stride, int64_t dilation);

// A value with the derivative of what `other` makes, which is not made where nothing has one.
template <typename F>
Tensor DerivedBy(const Tensor& value, F other) {
  return NoGrad::Active() ? value : value.WithDerivativeOf(other());
}

// The p-th powers of magnitudes, and the p-th root of their sum, whose derivatives at 0 are 0.
Tensor PowersOf(const Tensor& x, double p);
Tensor RootOf(const Tensor& sum, double p);

// An Error for a device to which no tensor is put: one with Partial or Manual placements.
void CheckHoldsValues(Device device);
// The device of what is made like a tensor: none beside what is each place's own, so that it
// follows.
Device DeviceLike(const Tensor& t);
// A fresh BUFFER without storage.
UOp NewBuffer(DType dtype, const Extents& dims, Device device);
// How many bytes of the caller's memory such a BUFFER takes; an Error where it has a symbolic shape
// or more elements than any memory holds, and where there is no memory.
int64_t CheckHostBytes(const UOp& buffer, const void* memory);
// Whether all places of a value read the same memory, the caller's: it must not be written, as each
// place would do so.
bool IsSharedMemory(const UOp& buffer);
// Whether others see the memory of a BUFFER: a caller's, or given to another library.
bool IsLent(const UOp& buffer);
// Where tensors without a device of their own are put.
Device DefaultDevice();

// The value that a tensor's state has, put in the place of another, and read: marked tensors are
// looked at by whatever thread realises something, to see of what it should keep the history.
void ReplaceValue(UOp& of_tensor, UOp value);
UOp ValueNow(const Tensor& tensor);

}  // namespace tessera::internal
