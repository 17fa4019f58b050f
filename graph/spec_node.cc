// The rules that inference knows, named; and the value that a node of a graph under test gets.
#include "absl/strings/match.h"
#include "graph/infer.h"
#include "graph/spec_graph.h"

namespace tessera {
namespace {

// The rule that a node breaks where inference of its dtype fails.
SpecRule TypeFailure(Op op, absl::Span<const UOp> srcs) {
  bool alike = true;
  for (const UOp& s : srcs) alike &= s.dtype() == srcs[0].dtype();
  switch (Info(op).type) {
    case TypeRule::kDeclared:
      return SpecRule::kDeclaredDtype;
    case TypeRule::kWhere:
      return srcs[0].dtype().IsBool() ? SpecRule::kWhereBranches : SpecRule::kWhereCondition;
    case TypeRule::kRandom:
      return SpecRule::kOperandClass;
    case TypeRule::kVoid:
    case TypeRule::kFirst:
    case TypeRule::kReduce:
    case TypeRule::kCompare:
    case TypeRule::kSame:
    case TypeRule::kNumber:
    case TypeRule::kArith:
    case TypeRule::kFloat:
    case TypeRule::kInt:
    case TypeRule::kBits:
      break;
  }
  return alike ? SpecRule::kOperandClass : SpecRule::kOperandsAlike;
}

// The rule that a node breaks where inference of its shape fails.
SpecRule ShapeFailure(const NodeView& v) {
  switch (v.op) {
#define OP(...)
#define EW(name, ...) case Op::k##name:
#include "graph/ops.def"
    case Op::kStandIn:
      return SpecRule::kShapesAlike;
    case Op::kReshape:
      return SpecRule::kReshapeCount;
    case Op::kPermute:
      return SpecRule::kPermuteOrder;
    case Op::kExpand:
      return SpecRule::kExpandAxes;
    case Op::kPad:
      return SpecRule::kPadBounds;
    case Op::kShrink:
      return SpecRule::kShrinkBounds;
    case Op::kFlip:
      return SpecRule::kFlipAxes;
    case Op::kWindow:
      return SpecRule::kWindowFits;
    case Op::kReduce:
      return SpecRule::kReduceForm;
    case Op::kGather:
    case Op::kScatter:
      return SpecRule::kGatherIndex;
    case Op::kCat:
      return SpecRule::kCatPieces;
    case Op::kAssign:
      return IsWritable(v.srcs[0].op()) ? SpecRule::kAssignValue : SpecRule::kAssignBase;
    case Op::kParam:
    case Op::kItem:
    case Op::kRan:
      return std::get<ParamArg>(v.arg.value).slot < 0 ? SpecRule::kSlotShared
                                                      : SpecRule::kExtentForm;
    case Op::kMStack:
    case Op::kMSelect:
    case Op::kExchange:
      return SpecRule::kMeshParts;
    case Op::kLoop:
    case Op::kResult:
      return SpecRule::kLoopForm;
    case Op::kLocal:
    case Op::kGlobal:
    case Op::kPass:
      return SpecRule::kManualBorder;
    case Op::kStore:
    case Op::kUpdate:
      return v.srcs[0].is(Op::kIndex) && !(v.srcs[0].dtype() == v.srcs[1].dtype())
                 ? SpecRule::kStoreDtype
                 : SpecRule::kStoreForm;
    case Op::kIndex:
      return SpecRule::kIndexForm;
    case Op::kStage:
      return SpecRule::kStageForm;
    case Op::kRunning:
      return SpecRule::kRunningForm;
    case Op::kEarlier:
      return SpecRule::kEarlierForm;
    case Op::kRescale:
      return SpecRule::kRescaleForm;
    case Op::kConst:
    case Op::kVar:
    case Op::kIota:
    case Op::kBuffer:
    case Op::kCopy:
    case Op::kContiguous:
    case Op::kMark:
    case Op::kAllReduce:
    case Op::kSink:
    case Op::kRange:
    case Op::kProgram:
    case Op::kScratch:
    case Op::kReg:
    case Op::kSet:
    case Op::kLoad:
    case Op::kPut:
    case Op::kStream:
    case Op::kPrefetch:
    case Op::kEnd:
    case Op::kIf:
    case Op::kBarrier:
    case Op::kSplat:
    case Op::kLanes:
    case Op::kLane:
    case Op::kShuffle:
    case Op::kTable:
    case Op::kRamp:
    case Op::kFold:
    case Op::kCombine:
    case Op::kPart:
    case Op::kFetch:
    case Op::kCommit:
    case Op::kWait:
    case Op::kFragment:
    case Op::kMma:
      return SpecRule::kExtentForm;
  }
  return SpecRule::kExtentForm;
}

// The rule that a node breaks where inference of its device fails.
SpecRule DeviceFailure(const NodeView& v) {
  if (v.op == Op::kMStack) return SpecRule::kMeshParts;
  if (v.op == Op::kAllReduce) return SpecRule::kMeshReduce;
  const bool stored = v.op == Op::kParam || v.op == Op::kItem || v.op == Op::kRan;
  if (stored || v.op == Op::kBuffer) return SpecRule::kBufferPlace;
  if (v.op == Op::kLocal || v.op == Op::kGlobal || v.op == Op::kPass) {
    return SpecRule::kManualBorder;
  }
  for (const UOp& s : v.srcs) {
    if (!s.device().is_sharding()) continue;
    if (s.device().sharding().Has(Placement::Kind::kPartial)) return SpecRule::kPartialUse;
  }
  return SpecRule::kOneDevice;
}

SpecRule FailedRule(InferStep step, const NodeView& v) {
  switch (step) {
    case InferStep::kArity:
      return SpecRule::kArity;
    case InferStep::kArgument:
      return SpecRule::kArgument;
    case InferStep::kType:
      return TypeFailure(v.op, v.srcs);
    case InferStep::kShape:
      return ShapeFailure(v);
    case InferStep::kDevice:
      return DeviceFailure(v);
  }
  return SpecRule::kArgument;
}

// A node to go on with in place of one that cannot be made: a parameter in a slot of no kernel.
UOp StandIn(DType dtype, int i, const StatedShape& shape) {
  if (dtype.IsVoid()) return UOp::Make(Op::kSink, {});
  ParamArg arg{(int64_t{1} << 40) + i, shape.shape.ToExtents(), shape.device};
  // An annotation may state a shape that nothing can have.
  if (auto made = UOp::TryMake(Op::kParam, dtype, {}, arg); made.ok()) return *std::move(made);
  arg.shape.clear();
  arg.device = Device();
  return UOp::Make(Op::kParam, dtype, {}, std::move(arg));
}

void CompareStored(SpecGraph& g, int i, const UOp& u, const Inferred& inferred) {
  const auto bounds = InferBounds(u.op(), u.dtype(), u.srcs(), u.arg());
  if (inferred.dtype == u.dtype() && inferred.shape == u.shape() && inferred.device == u.device() &&
      bounds == std::pair(u.vmin(), u.vmax())) {
    return;
  }
  g.Report(SpecRule::kInferred, i, "stores ", Describe(u), " in ", u.vmin(), "..", u.vmax(),
           ", but is ", Describe(inferred.dtype, inferred.shape, inferred.device), " in ",
           bounds.first, "..", bounds.second);
}

// Infers the node and checks its form; `shape` receives what it has, unless it is stated.
void InferNode(SpecGraph& g, int i, const NodeView& view, bool vague, const UOp& stated,
               ReportFn report, StatedShape& shape) {
  InferStep step = InferStep::kArity;
  const bool compares = Info(view.op).type == TypeRule::kCompare;
  const absl::StatusOr<Inferred> inferred =
      Infer(view.op, compares ? kVoid : view.dtype, view.srcs, view.arg, &step);
  if (!inferred.ok()) {
    // A shape is not held against a node whose sources have none that is known.
    g.nodes[i].bad = true;
    if (vague && step == InferStep::kShape) return;  // nor a RESULT against what is no LOOP
    return report(FailedRule(step, view), std::string(inferred.status().message()));
  }
  if (!shape.known && !vague) shape = {true, inferred->shape, inferred->device};
  if (!(inferred->dtype == view.dtype)) {
    return report(
        compares && !view.dtype.IsBool() ? SpecRule::kCompareBool : SpecRule::kResultDtype,
        absl::StrCat(Info(view.op).text, ": gives ", inferred->dtype.ToString(), " here, not ",
                     view.dtype.ToString()));
  }
  if (!vague) CheckForm(view, report);
  if (stated && g.Applies(SpecRule::kInferred)) CompareStored(g, i, stated, *inferred);
}

}  // namespace

void CheckNode(SpecGraph& g, int i, const UOp& stated, const StatedShape& annotation) {
  SpecNode& n = g.nodes[i];
  n.value = stated;
  absl::InlinedVector<UOp, 4> srcs;
  absl::InlinedVector<Op, 8> ops;
  bool vague = false;
  for (int s : g.srcs(i)) {
    srcs.push_back(g.nodes[s].value);
    ops.push_back(g.nodes[s].op);
    vague |= g.nodes[s].vague;
  }
  StatedShape shape = annotation;
  const auto report = [&](SpecRule rule, const std::string& message) {
    n.bad = true;
    g.Report(rule, i, message);
  };
  if (!n.bad && !absl::StrContains(Info(n.op).stages, StageName(g.stage).substr(0, 1))) {
    report(SpecRule::kOpStage,
           absl::StrCat(Info(n.op).text, " is no op of ", StageName(g.stage), " graphs"));
  }
  if (!n.bad) {
    const NodeView view{n.op, n.dtype, srcs, ops, *n.arg};
    if (CheckOperands(view, report)) InferNode(g, i, view, vague, stated, report, shape);
  }
  if (stated) return;
  // What is wrong, or made of what is not known, takes the place that its statement gives it.
  const bool has_kind = Info(n.op).cls == OpClass::kKernel || Info(n.op).cls == OpClass::kProgram ||
                        n.op == Op::kLoop;
  n.vague = (vague && !annotation.known) || (n.bad && (!shape.known || has_kind));
  if (!n.bad && !(vague && annotation.known)) {
    if (auto made = UOp::TryMake(n.op, n.dtype, srcs, *n.arg); made.ok()) n.value = *made;
  }
  n.stand_in = !n.value;
  if (n.stand_in) n.value = StandIn(n.dtype, i, shape);
}

absl::Status VerifyNewNode(Op op, DType dtype, absl::Span<const UOp> srcs, const Arg& arg) {
  absl::InlinedVector<Op, 8> ops;
  for (const UOp& s : srcs) ops.push_back(s.op());
  absl::Status status;
  const auto report = [&status](SpecRule rule, const std::string& message) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat(message, " [rule ", Info(rule).name, ", level ", Info(rule).level, "]")));
  };
  const NodeView view{op, dtype, srcs, ops, arg};
  if (CheckOperands(view, report)) CheckForm(view, report);
  return status;
}

}  // namespace tessera
