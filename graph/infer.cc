// Inference of dtype, shape and device, op by op.
#include "graph/infer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/box.h"
#include "graph/infer_device.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace tessera {
namespace {

// What the rules below share: the node to be made, and how its errors read.
struct Context {
  Op op;
  absl::Span<const UOp> srcs;
  const Arg& arg;

  template <typename... Parts>
  absl::Status Fail(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat(
        Info(op).text, ": ", parts..., srcs.empty() ? "" : "; got ",
        absl::StrJoin(srcs, ", ",
                      [](std::string* out, const UOp& u) { absl::StrAppend(out, Describe(u)); })));
  }
};

template <typename T>
absl::StatusOr<const T*> ArgOf(const Context& c) {
  if (const T* v = std::get_if<T>(&c.arg.value)) return v;
  return c.Fail("the argument is of the wrong kind");
}

absl::Status CheckAlike(const Context& c, size_t first = 0) {
  for (size_t i = first + 1; i < c.srcs.size(); ++i) {
    if (!(c.srcs[i].dtype() == c.srcs[first].dtype())) {
      return c.Fail("the operands differ in dtype; cast one of them");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DType> InferType(const Context& c, DType declared) {
  const TypeRule rule = Info(c.op).type;
  const DType first = c.srcs.empty() ? kVoid : c.srcs[0].dtype();
  switch (rule) {
    case TypeRule::kDeclared:
      if (declared.IsVoid()) return c.Fail("needs a dtype");
      if (c.op == Op::kBitcast && declared.bits() != first.bits()) {
        return c.Fail("cannot reinterpret as ", declared.ToString(), ", which has another width");
      }
      return declared;
    case TypeRule::kVoid:
      return kVoid;
    case TypeRule::kFirst:
      return first;
    case TypeRule::kSame:
    case TypeRule::kReduce: {
      if (rule == TypeRule::kSame) RETURN_IF_ERROR(CheckAlike(c));
      return first;
    }
    case TypeRule::kNumber:
    case TypeRule::kArith:
    case TypeRule::kFloat:
    case TypeRule::kInt:
    case TypeRule::kBits: {
      RETURN_IF_ERROR(CheckAlike(c));
      if (rule == TypeRule::kArith && first.IsBool()) {
        return c.Fail("takes numbers; cast the bools, or use the logical ops");
      }
      if (rule == TypeRule::kFloat && !first.IsFloat()) {
        return c.Fail("takes floating-point operands; cast to f32 first");
      }
      if (rule == TypeRule::kInt && !first.IsInt()) {
        return c.Fail("takes integers; cast to an integer dtype first");
      }
      if (rule == TypeRule::kBits && first.IsFloat()) {
        return c.Fail("takes integers or bools; bitcast to an integer dtype first");
      }
      return first;
    }
    case TypeRule::kCompare: {
      RETURN_IF_ERROR(CheckAlike(c));
      const DType result = kBool.WithLanes(first.lanes());
      if (!declared.IsVoid() && !(declared == result)) return c.Fail("gives bool");
      return result;
    }
    case TypeRule::kWhere:
      if (!first.IsBool()) return c.Fail("the condition must be bool; compare it with 0");
      if (!(c.srcs[1].dtype() == c.srcs[2].dtype())) {
        return c.Fail("the branches differ in dtype; cast one of them");
      }
      return c.srcs[1].dtype();
    case TypeRule::kRandom:
      for (const UOp& s : c.srcs) {
        if (s.dtype().kind() != Kind::kU64) return c.Fail("takes u64 counters and keys");
      }
      return first;
  }
  return c.Fail("has no type rule");
}

// The device of a node is that of its sources; nodes without one follow those that have one.
absl::StatusOr<Device> InferDevice(const Context& c, const Shape& shape) {
  Device device;
  if (c.op == Op::kAllReduce && !c.srcs[0].device().is_sharding()) {
    return c.Fail("takes a value on several places");
  }
  for (const UOp& s : c.srcs) {
    if (!s.device().is_sharding()) continue;
    const bool alike = std::all_of(c.srcs.begin(), c.srcs.end(), [&s](const UOp& o) {
      return !o.device() || o.device() == s.device();
    });
    if (alike && (s.device().is_manual() || Info(c.op).cls == OpClass::kKernel)) return s.device();
    absl::StatusOr<Device> out = InferSharded(c.op, c.srcs, c.arg, shape);
    if (!out.ok()) return c.Fail(out.status().message());
    return out;
  }
  for (const UOp& s : c.srcs) {
    if (!s.device() || s.device() == device) continue;
    if (device) {
      return c.Fail("the operands are on different devices, ", device.ToString(), " and ",
                    s.device().ToString(), "; move one of them with .To(...)");
    }
    device = s.device();
  }
  return device;
}

absl::Status CheckCopy(const Context& c, Device to) {
  using Kind = Placement::Kind;
  // What is each place's own stays so on the same dims.
  const Device from = c.srcs[0].device();
  const bool own = from.is_sharding() && to.is_sharding() && SameManualDims(from, to);
  const auto whole = [own](const Sharding& s) {
    return !s.Has(Kind::kPartial) && (own || !s.Has(Kind::kManual));
  };
  if (from.is_sharding() && !whole(from.sharding())) {
    return c.Fail("cannot copy what is partial or each place's own");
  }
  if (!to.is_sharding()) return absl::OkStatus();
  // After localise: what each place computes for itself is put there.
  if (to.is_manual() && !c.srcs[0].device()) return absl::OkStatus();
  if (!whole(to.sharding())) return c.Fail("nothing is copied to ", to.ToString());
  for (int a = 0; a < c.srcs[0].rank(); ++a) {
    if (c.srcs[0].shape()[a].is_int() || to.sharding().DimsOf(a).empty()) continue;
    return c.Fail("axis ", a, " has a symbolic extent and cannot be sharded");
  }
  absl::Status fits = CheckPlacement(c.srcs[0].shape(), to.sharding());
  return fits.ok() ? fits : c.Fail(fits.message());
}

absl::StatusOr<Shape> InferElementwise(const Context& c) {
  const Shape* shape = nullptr;
  for (const UOp& s : c.srcs) {
    if (s.rank() == 0) continue;
    if (shape != nullptr && !(*shape == s.shape())) {
      return c.Fail("the shapes do not match; expand them to one shape");
    }
    shape = &s.shape();
  }
  return shape == nullptr ? Shape() : *shape;
}

absl::Status CheckExtents(const Context& c, absl::Span<const Extent> dims) {
  int64_t n = 1;
  for (const Extent& e : dims) {
    if (e.max() < 0) return c.Fail("an extent of ", e.ToString(), " is negative");
    if (e.max() != 0 && __builtin_mul_overflow(n, e.max(), &n)) {
      return c.Fail("the number of elements does not fit in 64 bits");
    }
  }
  return absl::OkStatus();
}

// A product taken apart: its integer, and the rest in order.
struct Factors {
  int64_t number = 1;
  bool overflow = false;
  absl::InlinedVector<const Node*, 4> rest;

  void Add(const Extent& e) {
    if (e.is_int()) {
      overflow |= __builtin_mul_overflow(number, e.value(), &number);
      return;
    }
    std::vector<UOp> stack = {e.expr()};
    while (!stack.empty()) {
      const UOp u = std::move(stack.back());
      stack.pop_back();
      if (u.is(Op::kMul)) {
        for (const UOp& s : u.srcs()) stack.push_back(s);
      } else if (u.IsConst()) {
        overflow |= __builtin_mul_overflow(number, u.arg<Scalar>().AsInt(), &number);
      } else {
        rest.push_back(u.get());
      }
    }
  }
};

// Whether two shapes surely have as many elements: their products are the same, factor by factor.
bool SurelyAsMany(const Shape& a, const Shape& b) {
  Factors left, right;
  for (const Extent& e : a) left.Add(e);
  for (const Extent& e : b) right.Add(e);
  std::sort(left.rest.begin(), left.rest.end());
  std::sort(right.rest.begin(), right.rest.end());
  return !left.overflow && !right.overflow && left.number == right.number &&
         left.rest == right.rest;
}

absl::StatusOr<Shape> InferReshape(const Context& c) {
  ASSIGN_OR_RETURN(const Extents* to, ArgOf<Extents>(c));
  RETURN_IF_ERROR(CheckExtents(c, *to));
  const Shape result(*to);
  const Shape& from = c.srcs[0].shape();
  if (!SurelyAsMany(from, result) && !(from.Elements() == result.Elements())) {
    return c.Fail("cannot make ", result.ToString(), " of ", from.Elements().ToString(),
                  " elements");
  }
  return result;
}

absl::Status CheckAxis(const Context& c, int64_t axis) {
  const int rank = c.srcs[0].rank();
  if (axis >= 0 && axis < rank) return absl::OkStatus();
  return c.Fail("there is no axis ", axis, " in rank ", rank);
}

absl::Status CheckAxes(const Context& c, const Ints& axes) {
  for (size_t i = 0; i < axes.size(); ++i) {
    RETURN_IF_ERROR(CheckAxis(c, axes[i]));
    if (std::find(axes.begin(), axes.begin() + i, axes[i]) != axes.begin() + i) {
      return c.Fail("axis ", axes[i], " is repeated");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> InferPermute(const Context& c) {
  ASSIGN_OR_RETURN(const Ints* order, ArgOf<Ints>(c));
  if (static_cast<int>(order->size()) != c.srcs[0].rank()) {
    return c.Fail("the order names ", order->size(), " axes");
  }
  RETURN_IF_ERROR(CheckAxes(c, *order));
  Extents dims;
  for (int64_t axis : *order) dims.push_back(c.srcs[0].shape()[static_cast<int>(axis)]);
  return Shape(std::move(dims));
}

absl::StatusOr<Shape> InferExpand(const Context& c) {
  ASSIGN_OR_RETURN(const Extents* to, ArgOf<Extents>(c));
  RETURN_IF_ERROR(CheckExtents(c, *to));
  const Shape& from = c.srcs[0].shape();
  if (static_cast<int>(to->size()) != from.rank()) {
    return c.Fail("cannot expand to ", Shape(*to).ToString(), ", which has another rank");
  }
  for (int i = 0; i < from.rank(); ++i) {
    if (!((*to)[i] == from[i]) && !from[i].is_int(1)) {
      return c.Fail("cannot expand axis ", i, " of extent ", from[i].ToString(), " to ",
                    (*to)[i].ToString());
    }
  }
  return Shape(*to);
}

// What localise makes lies within its source, though bounds of its variables, each by itself, do
// not show it.
bool MentionsPlace(const Extent& e) {
  if (e.is_int()) return false;
  const UOp expr = e.expr();
  for (const UOp& u : TopoSort({&expr, 1})) {
    if (u.is(Op::kVar) && u.arg<VarArg>().name.substr(0, 2) == kPlaceVariable) return true;
  }
  return false;
}

absl::StatusOr<Shape> InferPadShrink(const Context& c) {
  ASSIGN_OR_RETURN(const Pairs* pairs, ArgOf<Pairs>(c));
  const Shape& from = c.srcs[0].shape();
  if (static_cast<int>(pairs->size()) != from.rank()) {
    return c.Fail("needs a pair for each axis, has ", pairs->size());
  }
  Extents dims;
  for (int i = 0; i < from.rank(); ++i) {
    const auto& [a, b] = (*pairs)[i];
    if (a.max() < 0 || b.max() < 0) {
      return c.Fail("axis ", i, " has a negative bound (", a.ToString(), ", ", b.ToString(), ")");
    }
    if (c.op == Op::kPad) {
      dims.push_back(a + from[i] + b);
      continue;
    }
    const bool known = a.is_int() && b.is_int();
    if (known && a.value() > b.value()) {
      return c.Fail("axis ", i, " begins at ", a.value(), " after its end ", b.value());
    }
    if (MentionsPlace(a) || MentionsPlace(b)) {
      dims.push_back(b - a);
      continue;
    }
    if (b.max() > from[i].max() ||
        (b.is_int() && from[i].is_int() && b.value() > from[i].value())) {
      return c.Fail("axis ", i, " ends at ", b.ToString(), ", past its extent ",
                    from[i].ToString());
    }
    dims.push_back(b - a);
  }
  RETURN_IF_ERROR(CheckExtents(c, dims));
  return Shape(std::move(dims));
}

absl::StatusOr<Shape> InferWindow(const Context& c) {
  ASSIGN_OR_RETURN(const WindowArg* w, ArgOf<WindowArg>(c));
  RETURN_IF_ERROR(CheckAxes(c, w->axes));
  const size_t n = w->axes.size();
  if (w->size.size() != n || w->stride.size() != n || w->dilation.size() != n) {
    return c.Fail("needs a size, a stride and a dilation for each windowed axis");
  }
  Extents dims = c.srcs[0].shape().ToExtents();
  for (size_t i = 0; i < n; ++i) {
    if (w->size[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1) {
      return c.Fail("size, stride and dilation must be at least 1");
    }
    Extent& d = dims[w->axes[i]];
    if (!d.is_int() && !MentionsPlace(d)) {
      return c.Fail("axis ", w->axes[i], " has a symbolic extent");
    }
    int64_t reach;
    if (__builtin_mul_overflow(w->dilation[i], w->size[i] - 1, &reach) ||
        (d.is_int() && reach >= d.value())) {
      return c.Fail("a window of ", w->size[i], " with dilation ", w->dilation[i],
                    " does not fit axis ", w->axes[i]);
    }
    ++reach;
    if (d.is_int()) {
      d = (d.value() - reach) / w->stride[i] + 1;
    } else {
      const UOp rest = (d - Extent(reach)).ToUOp();
      d = Extent(Simplify(UOp::Make(Op::kFloorDiv, {rest, UOp::Index(w->stride[i])}))) + Extent(1);
    }
  }
  for (int64_t s : w->size) dims.push_back(s);
  return Shape(std::move(dims));
}

absl::StatusOr<Shape> InferReduce(const Context& c) {
  ASSIGN_OR_RETURN(const ReduceArg* r, ArgOf<ReduceArg>(c));
  const DType t = c.srcs[0].dtype();
  switch (r->op) {
    case Op::kAdd:
    case Op::kMul:
      if (t.IsBool()) return c.Fail("cannot add or multiply bools; cast them to i32");
      break;
    case Op::kMax:
    case Op::kMin:
      break;
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
      if (t.IsFloat()) return c.Fail("cannot combine the bits of floats");
      break;
    default:
      return c.Fail("cannot reduce by ", Info(r->op).text);
  }
  if (c.srcs.size() > 1) {  // in a kernel
    if (!r->axes.empty()) return c.Fail("takes axes or RANGEs, not both");
    for (const UOp& s : c.srcs.subspan(1)) {
      if (!s.is(Op::kRange)) return c.Fail("everything after the value must be a RANGE");
    }
    return Shape();
  }
  RETURN_IF_ERROR(CheckAxes(c, r->axes));
  Extents dims = c.srcs[0].shape().ToExtents();
  const bool has_identity = (r->op != Op::kMax && r->op != Op::kMin) || t.IsBool();
  for (int64_t axis : r->axes) {
    if (!has_identity && dims[axis].is_int(0)) {
      return c.Fail("axis ", axis, " is empty, and ", Info(r->op).text, " of nothing has no value");
    }
    dims[axis] = 1;
  }
  return Shape(std::move(dims));
}

absl::StatusOr<Shape> InferGather(const Context& c) {
  ASSIGN_OR_RETURN(const int64_t* axis, ArgOf<int64_t>(c));
  RETURN_IF_ERROR(CheckAxis(c, *axis));
  if (!c.srcs[1].dtype().IsInt()) return c.Fail("the index must be of an integer dtype");
  Extents dims;
  for (int i = 0; i < c.srcs[0].rank(); ++i) {
    if (i != *axis) {
      dims.push_back(c.srcs[0].shape()[i]);
    } else {
      dims.insert(dims.end(), c.srcs[1].shape().begin(), c.srcs[1].shape().end());
    }
  }
  RETURN_IF_ERROR(CheckExtents(c, dims));
  return Shape(std::move(dims));
}

absl::StatusOr<Shape> InferCat(const Context& c) {
  ASSIGN_OR_RETURN(const int64_t* axis, ArgOf<int64_t>(c));
  RETURN_IF_ERROR(CheckAxis(c, *axis));
  Extents dims = c.srcs[0].shape().ToExtents();
  for (const UOp& s : c.srcs.subspan(1)) {
    if (s.rank() != static_cast<int>(dims.size())) return c.Fail("the ranks differ");
    for (int i = 0; i < s.rank(); ++i) {
      if (i == *axis) {
        dims[i] = dims[i] + s.shape()[i];
      } else if (!(s.shape()[i] == dims[i])) {
        return c.Fail("the pieces may differ only on axis ", *axis);
      }
    }
  }
  RETURN_IF_ERROR(CheckExtents(c, dims));
  return Shape(std::move(dims));
}

absl::StatusOr<Shape> InferAssign(const Context& c) {
  if (!(c.srcs[1].shape() == c.srcs[2].shape())) {
    return c.Fail("the value must have the shape of the target");
  }
  if (!(c.srcs[1].dtype() == c.srcs[0].dtype()) || !(c.srcs[2].dtype() == c.srcs[0].dtype())) {
    return c.Fail("the value must have the dtype of the target; cast it");
  }
  return c.srcs[0].shape();
}

absl::Status CheckStore(const Context& c) {
  if (!c.srcs[0].is(Op::kIndex)) return c.Fail("the first source must be an INDEX");
  if (!(c.srcs[0].dtype().Scalar() == c.srcs[1].dtype().Scalar())) {
    return c.Fail("the value's dtype is not the element's");
  }
  for (const UOp& s : c.srcs.subspan(2)) {
    if (!s.is(Op::kRange)) return c.Fail("everything after the value must be a RANGE");
  }
  return absl::OkStatus();
}

absl::Status CheckIndex(const Context& c) {
  if (!c.srcs[0].is(Op::kParam) && !c.srcs[0].is(Op::kScratch) && !c.srcs[0].is(Op::kStage)) {
    return c.Fail("the first source must be a PARAM or a STAGE");
  }
  if (!(c.srcs[1].dtype() == kInt64)) return c.Fail("the offset must be i64");
  if (c.srcs.size() == 3 && !c.srcs[2].dtype().IsBool()) return c.Fail("the gate must be bool");
  return absl::OkStatus();
}

// The parts' extents along the places that divide an axis add up; along others they agree.
absl::StatusOr<Shape> InferStack(const Context& c) {
  ASSIGN_OR_RETURN(const Device* to, ArgOf<Device>(c));
  if (!to->is_sharding() || static_cast<int>(c.srcs.size()) != to->sharding().size()) {
    return c.Fail("needs a part for each place of ", to->ToString());
  }
  const Sharding s = to->sharding();
  Extents dims = c.srcs[0].shape().ToExtents();
  for (int a = 0; a < c.srcs[0].rank(); ++a) {
    const std::vector<int> over = s.DimsOf(a);
    if (over.empty()) continue;
    dims[a] = 0;
    const std::vector<std::vector<int>> groups = s.mesh().Groups(over);
    for (int i : groups[0]) {
      if (c.srcs[i].rank() <= a) return c.Fail("the parts differ in rank");
      dims[a] = dims[a] + c.srcs[i].shape()[a];
    }
  }
  RETURN_IF_ERROR(CheckExtents(c, dims));
  return Shape(std::move(dims));
}

absl::StatusOr<Shape> InferSelect(const Context& c) {
  ASSIGN_OR_RETURN(const int64_t* i, ArgOf<int64_t>(c));
  const Device from = c.srcs[0].device();
  if (!from.is_sharding()) return c.Fail("takes a tensor on a Sharding");
  if (*i < 0 || *i >= from.sharding().size()) return c.Fail("there is no shard ", *i);
  if (!c.srcs[0].shape().is_static()) return c.Fail("the shape is symbolic");
  Extents dims;
  for (const Interval& part : BoxesOf(c.srcs[0].shape(), from).At(static_cast<int>(*i))) {
    dims.push_back(part.size());
  }
  return Shape(std::move(dims));
}

absl::StatusOr<Shape> InferShape(const Context& c) {
  switch (Info(c.op).cls) {
    case OpClass::kElementwise:
      return InferElementwise(c);
    case OpClass::kKernel:
    case OpClass::kProgram:
      if (c.op == Op::kStore) RETURN_IF_ERROR(CheckStore(c));
      if (c.op == Op::kIndex) RETURN_IF_ERROR(CheckIndex(c));
      return Shape();
    default:
      break;
  }
  switch (c.op) {
    case Op::kReshape:
      return InferReshape(c);
    case Op::kPermute:
      return InferPermute(c);
    case Op::kExpand:
      return InferExpand(c);
    case Op::kPad:
    case Op::kShrink:
      return InferPadShrink(c);
    case Op::kFlip: {
      ASSIGN_OR_RETURN(const Ints* axes, ArgOf<Ints>(c));
      RETURN_IF_ERROR(CheckAxes(c, *axes));
      return c.srcs[0].shape();
    }
    case Op::kWindow:
      return InferWindow(c);
    case Op::kReduce:
      return InferReduce(c);
    case Op::kGather:
      return InferGather(c);
    case Op::kCat:
      return InferCat(c);
    case Op::kAssign:
      return InferAssign(c);
    case Op::kMStack:
      return InferStack(c);
    case Op::kMSelect:
      return InferSelect(c);
    case Op::kLocal:
    case Op::kGlobal: {
      ASSIGN_OR_RETURN(const Device* to, ArgOf<Device>(c));
      absl::StatusOr<Shape> shape = ManualShape(c.op, c.srcs[0], *to);
      return shape.ok() ? std::move(shape) : c.Fail(shape.status().message());
    }
    case Op::kPass: {
      ASSIGN_OR_RETURN(const Ints* sources, ArgOf<Ints>(c));
      const absl::Status fits = CheckPass(c.srcs[0], *sources);
      if (!fits.ok()) return c.Fail(fits.message());
      return c.srcs[0].shape();
    }
    case Op::kExchange: {
      ASSIGN_OR_RETURN(const ExchangeArg* x, ArgOf<ExchangeArg>(c));
      RETURN_IF_ERROR(CheckExtents(c, x->shape));
      return Shape(x->shape);
    }
    case Op::kIota: {
      ASSIGN_OR_RETURN(const Extents* n, ArgOf<Extents>(c));
      if (n->size() != 1) return c.Fail("takes one extent");
      RETURN_IF_ERROR(CheckExtents(c, *n));
      return Shape(*n);
    }
    case Op::kBuffer: {
      ASSIGN_OR_RETURN(const BufferArg* b, ArgOf<BufferArg>(c));
      RETURN_IF_ERROR(CheckExtents(c, b->shape));
      return Shape(b->shape);
    }
    case Op::kParam: {
      ASSIGN_OR_RETURN(const ParamArg* p, ArgOf<ParamArg>(c));
      if (p->slot < 0) return c.Fail("the slot ", p->slot, " is negative");
      RETURN_IF_ERROR(CheckExtents(c, p->shape));
      return Shape(p->shape);
    }
    case Op::kConst:
    case Op::kVar:
      return Shape();
    default:
      return c.srcs[0].shape();  // COPY, CONTIGUOUS
  }
}

}  // namespace

namespace {
// "f32[8/2@dp, 4] on CPU:0-3[dp=2,tp=2]{P:ADD@tp}": each axis with the dims that divide it.
std::string DescribeSharded(DType dtype, const Shape& shape, const Sharding& s) {
  const Mesh mesh = s.mesh();
  const auto at = [&mesh](int d) {
    const bool plain = mesh.ndim() == 1 && mesh.dims()[d].name.empty();
    return plain ? "" : absl::StrCat("@", mesh.DimName(d));
  };
  std::string out = absl::StrCat(dtype.ToString(), "[");
  for (int a = 0; a < shape.rank(); ++a) {
    absl::StrAppend(&out, a > 0 ? ", " : "", shape[a].ToString());
    for (int d : s.DimsOf(a)) {
      absl::StrAppend(&out, "/", mesh.dims()[d].size, at(d));
      if (!(s(d).layout == Layout())) absl::StrAppend(&out, ":", s(d).layout.ToString());
    }
  }
  absl::StrAppend(&out, "] on ", mesh.ToString());
  std::string rest;
  for (int d = 0; d < mesh.ndim(); ++d) {
    if (s(d).is(Placement::Kind::kReplicate) || s(d).is(Placement::Kind::kShard)) continue;
    absl::StrAppend(&rest, rest.empty() ? "" : ",", s(d).ToString(), at(d));
  }
  return rest.empty() ? out : absl::StrCat(out, "{", rest, "}");
}
}  // namespace

std::string Describe(DType dtype, const Shape& shape, Device device) {
  if (device.is_sharding()) return DescribeSharded(dtype, shape, device.sharding());
  return absl::StrCat(dtype.ToString(), shape.ToString(), device ? " on " : "",
                      device ? device.ToString() : "");
}

std::string Describe(const UOp& u) { return Describe(u.dtype(), u.shape(), u.device()); }

absl::StatusOr<Inferred> Infer(Op op, DType declared, absl::Span<const UOp> srcs, const Arg& arg,
                               InferStep* failed) {
  const Context c{op, srcs, arg};
  const OpInfo& info = Info(op);
  InferStep unused;
  InferStep& step = failed != nullptr ? *failed : unused;
  step = InferStep::kArity;
  if (info.arity >= 0 && srcs.size() != static_cast<size_t>(info.arity)) {
    return c.Fail("takes ", info.arity, " sources, has ", srcs.size());
  }
  const bool needs_one = op == Op::kReduce || op == Op::kCat || op == Op::kRange ||
                         op == Op::kStage || op == Op::kMStack || op == Op::kExchange;
  const size_t least = op == Op::kIndex || op == Op::kStore ? 2 : needs_one ? 1 : 0;
  if (srcs.size() < least) return c.Fail("takes at least ", least, " sources");
  step = InferStep::kArgument;
  if (arg.value.index() != static_cast<size_t>(info.arg)) {
    return c.Fail("the argument is not of the op's kind");
  }
  Inferred out;
  step = InferStep::kType;
  ASSIGN_OR_RETURN(out.dtype, InferType(c, declared));
  step = InferStep::kShape;
  ASSIGN_OR_RETURN(out.shape, InferShape(c));
  if (out.shape.rank() > kMaxRank) {
    return c.Fail("gives ", out.shape.rank(), " axes; a tensor has at most ", kMaxRank);
  }
  step = InferStep::kDevice;
  if (op == Op::kCopy) {
    ASSIGN_OR_RETURN(const Device* to, ArgOf<Device>(c));
    RETURN_IF_ERROR(CheckCopy(c, *to));
    out.device = *to;
  } else if (op == Op::kBuffer) {
    out.device = std::get<BufferArg>(arg.value).device;
  } else if (op == Op::kParam) {
    out.device = std::get<ParamArg>(arg.value).device;
  } else if (op == Op::kLocal || op == Op::kGlobal) {
    ASSIGN_OR_RETURN(const Device* to, ArgOf<Device>(c));
    const absl::Status border = CheckBorder(op, srcs[0], *to);
    if (!border.ok()) return c.Fail(border.message());
    out.device = *to;
  } else if (op == Op::kExchange) {
    out.device = std::get<ExchangeArg>(arg.value).to->device;
  } else if (op == Op::kMStack) {
    absl::StatusOr<Device> device = InferSharded(op, srcs, arg, out.shape);
    if (!device.ok()) return c.Fail(device.status().message());
    out.device = *device;
  } else if (info.cls != OpClass::kProgram && op != Op::kSink) {
    ASSIGN_OR_RETURN(out.device, InferDevice(c, out.shape));
  }
  return out;
}

}  // namespace tessera
