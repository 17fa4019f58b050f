// Inference of shapes, op by op.
#include <algorithm>
#include <optional>

#include "graph/infer_context.h"
#include "graph/infer_device.h"
#include "graph/lookup.h"
#include "graph/own_extent.h"
#include "graph/simplify.h"
#include "graph/spec_points.h"
#include "graph/status.h"
#include "graph/walk.h"

namespace tessera {
namespace {

using Context = InferContext;

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

// What an extent that is no extent is, as "-1 at n = -1"; of passes' variables it is what they say.
std::optional<std::string> Negative(const Extent& e) {
  if (e.min() >= 0) return std::nullopt;
  if (e.is_int()) return e.ToString();
  int64_t budget = 1 << 12;
  SpecPoints points({e.expr()}, SpecPoints::Reads::kUnknown, budget);
  std::optional<std::string> found;
  points.Visit([&] {
    const int64_t at = points.At(0).value_or(0);
    if (at < 0) found = absl::StrCat(at, " at ", points.Where());
    return at >= 0;
  });
  return found;
}

absl::Status CheckNotNegative(const Context& c, absl::Span<const Extent> dims) {
  for (const Extent& e : dims) {
    if (e.is_int()) continue;  // CheckExtents
    const std::optional<std::string> negative = Negative(e);
    if (!negative) continue;
    return c.Fail("an extent of ", e.ToString(), " is ", *negative,
                  "; give the variables bounds that are not negative");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckExtents(const Context& c, absl::Span<const Extent> dims) {
  int64_t n = 1;
  for (const Extent& e : dims) {
    if (e.max() < 0) return c.Fail("an extent of ", e.ToString(), " is negative");
    if (e.max() != 0 && __builtin_mul_overflow(n, e.max(), &n)) {
      return c.Fail("the number of elements of ",
                    Shape(Extents(dims.begin(), dims.end())).ToString(),
                    " does not fit in 64 bits");
    }
  }
  return absl::OkStatus();
}

namespace {

// Whether the numbers of elements add up to one of 64 bits.
bool AddUp(std::initializer_list<int64_t> parts) {
  int64_t sum = 0;
  for (int64_t n : parts) {
    if (__builtin_add_overflow(sum, std::max<int64_t>(0, n), &sum)) return false;
  }
  return true;
}

absl::StatusOr<Shape> InferReshape(const Context& c) {
  ASSIGN_OR_RETURN(const Extents* to, ArgOf<Extents>(c));
  RETURN_IF_ERROR(CheckExtents(c, *to));
  RETURN_IF_ERROR(CheckNotNegative(c, *to));
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
  RETURN_IF_ERROR(CheckNotNegative(c, *to));
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

// What localise makes lies within its source, though bounds of its variables,
// each by itself, do not show it.
bool MentionsPlace(const Extent& e) {
  if (e.is_int()) return false;
  const auto is_of_place = [](const UOp& u) {
    return u.is(Op::kVar) && u.arg<VarArg>().name.compare(0, 2, kPlaceVariable) == 0;
  };
  return FindBelow({&e.expr(), 1}, is_of_place) != nullptr;
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
      if (Negative(a) || Negative(b)) {
        return c.Fail("axis ", i, " may have a negative bound (", a.ToString(), ", ", b.ToString(),
                      ")");
      }
      if (!AddUp({a.max(), from[i].max(), b.max()})) {
        return c.Fail("axis ", i, " with ", a.ToString(), " and ", b.ToString(),
                      " elements more does not fit in 64 bits");
      }
      dims.push_back(a + from[i] + b);
      continue;
    }
    const bool known = a.is_int() && b.is_int();
    if (known && a.value() > b.value()) {
      return c.Fail("axis ", i, " begins at ", a.value(), " after its end ", b.value());
    }
    if (MentionsPlace(a) || MentionsPlace(b)) {
      // The bounds of one variable alone are what some places have; one that has no elements along
      // another axis wants none of this.
      bool some = true;
      for (int o = 0; o < from.rank(); ++o) some &= o == i || from[o].min() > 0;
      if (some && ToSum(b.ToUOp()).terms.size() < 2 && b.max() > from[i].max()) {
        return c.Fail("axis ", i, " ends at ", b.max(), " on some place, past its extent ",
                      from[i].ToString());
      }
      dims.push_back(b - a);
      continue;
    }
    if (b.max() > from[i].min() && OwnSizesOf(from[i])) {
      return c.Fail("axis ", i, " ends at ", b.ToString(), ", past what some place has of ",
                    from.ToString());
    }
    const Extent left = from[i] - b;
    if (const std::optional<std::string> negative = Negative(left)) {
      return c.Fail("axis ", i, " ends at ", b.ToString(), ", past its extent ", from[i].ToString(),
                    left.is_int() ? "" : absl::StrCat(": ", left.ToString(), " is ", *negative));
    }
    if (!known && Negative(a)) {
      return c.Fail("axis ", i, " may begin at ", a.ToString(), ", before its first element");
    }
    if (!known && Negative(b - a)) {
      return c.Fail("axis ", i, " may begin at ", a.ToString(), " after its end ", b.ToString());
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
  bool on_places = false;
  for (size_t i = 0; i < n; ++i) {
    if (w->size[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1) {
      return c.Fail("size, stride and dilation must be at least 1");
    }
    Extent& d = dims[w->axes[i]];
    int64_t reach;
    on_places = on_places || MentionsPlace(d);
    // A part on one place may be empty; then it is not computed.
    if (__builtin_mul_overflow(w->dilation[i], w->size[i] - 1, &reach) ||
        (!MentionsPlace(d) && reach >= d.min())) {
      return c.Fail("a window of ", w->size[i], " with dilation ", w->dilation[i],
                    " does not fit axis ", w->axes[i]);
    }
    ++reach;
    d = FloorDiv(d - Extent(reach), w->stride[i]) + Extent(1);
  }
  for (int64_t s : w->size) dims.push_back(s);
  if (!on_places) RETURN_IF_ERROR(CheckExtents(c, dims));
  return Shape(std::move(dims));
}

// One update after another: in a dtype in which each is rounded as little as can be.
absl::Status CheckUpdates(const Context& c, Op op, DType t) {
  if (op == Op::kAssign) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCombines(c, op, t));
  if (t.IsFloat() && t.Scalar().bytes() < 4) return c.Fail("combines floats in f32 or f64; cast");
  return absl::OkStatus();
}

absl::StatusOr<Shape> InferReduce(const Context& c) {
  ASSIGN_OR_RETURN(const ReduceArg* r, ArgOf<ReduceArg>(c));
  const DType t = c.srcs[0].dtype();
  RETURN_IF_ERROR(CheckCombines(c, r->op, t));
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
    if (!has_identity && dims[axis].max() == 0) {
      return c.Fail("axis ", axis, " is empty, and ", Info(r->op).text, " of nothing has no value");
    }
    dims[axis] = 1;
  }
  return Shape(std::move(dims));
}

// What an index reads or writes: the axes that it shares with the table agree.
absl::StatusOr<Extents> LookedUp(const Context& c) {
  if (!c.srcs[1].dtype().IsInt()) return c.Fail("the index must be of an integer dtype");
  const absl::StatusOr<Lookup> l = Lookup::Of(c.op, c.srcs, c.arg);
  if (!l.ok()) return c.Fail(l.status().message());
  const Shape &table = c.srcs[0].shape(), &index = c.srcs[1].shape();
  for (int a = 0; a < index.rank(); ++a) {
    const int t = l->ToTable(l->FromIndex(a));
    if (t == Lookup::kNone || table[t] == index[a]) continue;
    if (MentionsPlace(table[t]) || MentionsPlace(index[a])) continue;
    return c.Fail("axis ", a, " of the index is not as long as axis ", t, " of the table");
  }
  Extents dims = l->Elements(table, index);
  RETURN_IF_ERROR(CheckExtents(c, dims));
  return dims;
}

absl::StatusOr<Shape> InferGather(const Context& c) {
  RETURN_IF_ERROR(ArgOf<Ints>(c).status());
  ASSIGN_OR_RETURN(Extents dims, LookedUp(c));
  return Shape(std::move(dims));
}

absl::StatusOr<Shape> InferScatter(const Context& c) {
  ASSIGN_OR_RETURN(const ReduceArg* r, ArgOf<ReduceArg>(c));
  ASSIGN_OR_RETURN(const Extents dims, LookedUp(c));
  const Shape& updates = c.srcs[2].shape();
  bool fits = updates.rank() == static_cast<int>(dims.size());
  for (int a = 0; fits && a < updates.rank(); ++a) {
    fits = updates[a] == dims[a] || MentionsPlace(updates[a]) || MentionsPlace(dims[a]);
  }
  if (!fits) return c.Fail("the updates must have the shape ", Shape(dims).ToString());
  if (!(c.srcs[2].dtype() == c.srcs[0].dtype())) {
    return c.Fail("the updates must have the dtype of the base; cast them");
  }
  RETURN_IF_ERROR(CheckUpdates(c, r->op, c.srcs[0].dtype()));
  return c.srcs[0].shape();
}

absl::StatusOr<Shape> InferCat(const Context& c) {
  ASSIGN_OR_RETURN(const int64_t* axis, ArgOf<int64_t>(c));
  RETURN_IF_ERROR(CheckAxis(c, *axis));
  Extents dims = c.srcs[0].shape().ToExtents();
  for (const UOp& s : c.srcs.subspan(1)) {
    if (s.rank() != static_cast<int>(dims.size())) return c.Fail("the ranks differ");
    for (int i = 0; i < s.rank(); ++i) {
      if (i == *axis) {
        if (!AddUp({dims[i].max(), s.shape()[i].max()})) {
          return c.Fail("axis ", *axis, " of the result does not fit in 64 bits");
        }
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
  if (const Op base = c.srcs[0].op(); !IsWritable(base)) {
    return c.Fail("the base is a ", Info(base).text,
                  ", which has no buffer of its own, so what is ",
                  "written to it would be lost; ASSIGN its value to a BUFFER, and write to that");
  }
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
  if (c.op != Op::kUpdate) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ReduceArg* r, ArgOf<ReduceArg>(c));
  return CheckUpdates(c, r->op, c.srcs[1].dtype());
}

absl::Status CheckRunning(const Context& c) {
  if (!c.srcs[1].is(Op::kRange)) return c.Fail("the second source must be a RANGE");
  ASSIGN_OR_RETURN(const ReduceArg* r, ArgOf<ReduceArg>(c));
  return CheckCombines(c, r->op, c.srcs[0].dtype());
}

absl::Status CheckEarlier(const Context& c) {
  return c.srcs[0].is(Op::kRunning) ? absl::OkStatus() : c.Fail("the source must be a RUNNING");
}

absl::Status CheckRescale(const Context& c) {
  if (!c.srcs[2].is(Op::kRange)) return c.Fail("the third source must be a RANGE");
  if (!(c.srcs[0].dtype() == c.srcs[1].dtype())) return c.Fail("the factor's dtype is another");
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

absl::StatusOr<Shape> InferMovement(const Context& c) {
  switch (MovementOf(c.op)) {
    case Movement::kReshape:
      return InferReshape(c);
    case Movement::kPermute:
      return InferPermute(c);
    case Movement::kExpand:
      return InferExpand(c);
    case Movement::kPad:
    case Movement::kShrink:
      return InferPadShrink(c);
    case Movement::kFlip: {
      ASSIGN_OR_RETURN(const Ints* axes, ArgOf<Ints>(c));
      RETURN_IF_ERROR(CheckAxes(c, *axes));
      return c.srcs[0].shape();
    }
    case Movement::kWindow:
      return InferWindow(c);
  }
  return Shape();
}

}  // namespace

absl::StatusOr<Shape> InferShape(const InferContext& c) {
  switch (Info(c.op).cls) {
    case OpClass::kElementwise:
      return InferElementwise(c);
    case OpClass::kMovement:
      return InferMovement(c);
    case OpClass::kReduce:
      return InferReduce(c);
    case OpClass::kKernel:
    case OpClass::kProgram:
      if (c.op == Op::kStore || c.op == Op::kUpdate) RETURN_IF_ERROR(CheckStore(c));
      if (c.op == Op::kIndex) RETURN_IF_ERROR(CheckIndex(c));
      if (c.op == Op::kRunning) RETURN_IF_ERROR(CheckRunning(c));
      if (c.op == Op::kEarlier) RETURN_IF_ERROR(CheckEarlier(c));
      if (c.op == Op::kRescale) RETURN_IF_ERROR(CheckRescale(c));
      return Shape();
    case OpClass::kLeaf:
    case OpClass::kData:
      break;
  }
  switch (c.op) {
    case Op::kGather:
      return InferGather(c);
    case Op::kScatter:
      return InferScatter(c);
    case Op::kCat:
      return InferCat(c);
    case Op::kAssign:
      return InferAssign(c);
    case Op::kStandIn:
      if (c.srcs[1].shape() == c.srcs[0].shape()) return c.srcs[0].shape();
      return c.Fail("the value and what has its derivative differ in shape");
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
    case Op::kExchange:
      return InferExchange(c);
    case Op::kLoop:
      return InferLoop(c);
    case Op::kResult:
      return InferResult(c);
    case Op::kIota: {
      ASSIGN_OR_RETURN(const Extents* n, ArgOf<Extents>(c));
      if (n->size() != 1) return c.Fail("takes one extent");
      RETURN_IF_ERROR(CheckNotNegative(c, *n));
      RETURN_IF_ERROR(CheckExtents(c, *n));
      return Shape(*n);
    }
    case Op::kBuffer: {
      ASSIGN_OR_RETURN(const BufferArg* b, ArgOf<BufferArg>(c));
      RETURN_IF_ERROR(CheckNotNegative(c, b->shape));
      RETURN_IF_ERROR(CheckExtents(c, b->shape));
      return Shape(b->shape);
    }
    case Op::kParam:
    case Op::kItem:
    case Op::kRan: {
      ASSIGN_OR_RETURN(const ParamArg* p, ArgOf<ParamArg>(c));
      if (p->slot < 0) return c.Fail("the slot ", p->slot, " is negative");
      RETURN_IF_ERROR(CheckNotNegative(c, p->shape));
      RETURN_IF_ERROR(CheckExtents(c, p->shape));
      return Shape(p->shape);
    }
    case Op::kConst:
    case Op::kVar:
      return Shape();
    default:
      return c.srcs[0].shape();  // COPY, CONTIGUOUS, MARK, ALLREDUCE
  }
}

}  // namespace tessera
