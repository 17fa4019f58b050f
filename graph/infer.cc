// Inference of dtype and device, op by op.
#include "graph/infer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/box.h"
#include "graph/infer_context.h"
#include "graph/infer_device.h"
#include "graph/loop_form.h"
#include "graph/own_extent.h"
#include "graph/status.h"

namespace tessera {
namespace {

using Context = InferContext;

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
      if (c.op == Op::kResult && CheckResult(c).ok()) {  // else its shape is the error
        const DType of =
            LoopForm(c.srcs[0]).DTypeOfResult(static_cast<int>(std::get<int64_t>(c.arg.value)));
        if (!(of == declared)) return c.Fail("is ", of.ToString(), ", not ", declared.ToString());
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

// The device of a node is that of its sources; nodes without one follow those
// that have one.
absl::StatusOr<Device> InferDevice(const Context& c, const Shape& shape) {
  Device device;
  if (c.op == Op::kAllReduce && !c.srcs[0].device().is_sharding()) {
    return c.Fail("takes a value on several places");
  }
  if (c.op == Op::kAllReduce) {
    const ReduceArg& r = std::get<ReduceArg>(c.arg.value);
    RETURN_IF_ERROR(CheckMeshDims(c, r.axes, c.srcs[0].device().sharding().mesh()));
    if (r.op != Op::kWhere) RETURN_IF_ERROR(CheckCombines(c, r.op, c.srcs[0].dtype()));
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

// What a PARAM or BUFFER is said to be on.
absl::Status CheckStored(const Context& c, DType dtype, const Shape& shape, Device device) {
  if (!device.is_sharding()) return absl::OkStatus();
  absl::Status fits = CheckPlacement(shape, device.sharding());
  if (!fits.ok()) return c.Fail(fits.message());
  for (const Placement& p : device.sharding().placements()) {
    if (!p.is(Placement::Kind::kPartial) || p.op == Op::kWhere) continue;
    RETURN_IF_ERROR(CheckCombines(c, p.op, dtype));
  }
  return absl::OkStatus();
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
  const Shape& shape = c.srcs[0].shape();
  if (own && DiffersAlong(shape, -1) &&
      MovedElements(BoxesOf(shape, from), BoxesOf(shape, to)) > 0) {
    return c.Fail("the places' parts differ in size, and do not move inside a per-place program");
  }
  absl::Status fits = CheckPlacement(c.srcs[0].shape(), to.sharding());
  return fits.ok() ? fits : c.Fail(fits.message());
}

// "f32[8/2@dp, 4] on CPU:0-3[dp=2,tp=2]{P:ADD@tp}": each axis with the dims
// that divide it.
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

absl::Status CheckMeshDims(const InferContext& c, const Ints& dims, const Mesh& mesh) {
  if (dims.empty()) return c.Fail("names no dim of ", mesh.ToString(), " to combine over");
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0 || dims[i] >= mesh.ndim()) return c.Fail("the mesh has no dim ", dims[i]);
    if (std::find(dims.begin(), dims.begin() + i, dims[i]) != dims.begin() + i) {
      return c.Fail("mesh dim ", dims[i], " is repeated");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCombines(const InferContext& c, Op op, DType t) {
  switch (op) {
    case Op::kAdd:
    case Op::kMul:
      if (t.IsBool()) return c.Fail("cannot add or multiply bools; cast them to i32");
      return absl::OkStatus();
    case Op::kMax:
    case Op::kMin:
      return absl::OkStatus();
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
      if (t.IsFloat()) return c.Fail("cannot combine the bits of floats");
      return absl::OkStatus();
    default:
      return c.Fail("cannot reduce by ", Info(op).text);
  }
}

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
  const bool needs_two =
      op == Op::kIndex || op == Op::kStore || op == Op::kUpdate || op == Op::kLoop;
  const size_t least = needs_two ? 2 : needs_one ? 1 : 0;
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
    RETURN_IF_ERROR(CheckStored(c, out.dtype, out.shape, out.device));
  } else if (op == Op::kResult) {
    out.device = LoopForm(srcs[0]).DeviceOfResult(static_cast<int>(std::get<int64_t>(arg.value)));
  } else if (op == Op::kParam || op == Op::kItem || op == Op::kRan) {
    out.device = std::get<ParamArg>(arg.value).device;
    RETURN_IF_ERROR(CheckStored(c, out.dtype, out.shape, out.device));
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
  } else if (info.cls != OpClass::kProgram && op != Op::kSink && op != Op::kLoop) {
    ASSIGN_OR_RETURN(out.device, InferDevice(c, out.shape));
  }
  return out;
}

}  // namespace tessera
