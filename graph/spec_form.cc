// The rules on one node that inference does not know: values and arguments, ranges, lanes, and the
// forms of kernel and program ops.
#include <cmath>

#include "graph/buffer.h"
#include "graph/infer.h"
#include "graph/panel.h"
#include "graph/spec_graph.h"

namespace tessera {
namespace {

struct Form {
  const NodeView& v;
  ReportFn report;

  int size() const { return static_cast<int>(v.srcs.size()); }
  DType dtype(int i) const { return v.srcs[i].dtype(); }
  Op op(int i) const { return v.src_ops[i]; }
  template <typename T>
  const T& arg() const {
    return std::get<T>(v.arg.value);
  }
  template <typename... Parts>
  void Fail(SpecRule rule, const Parts&... parts) const {
    std::string got;
    for (const UOp& s : v.srcs) absl::StrAppend(&got, got.empty() ? "; got " : ", ", Describe(s));
    report(rule, absl::StrCat(Info(v.op).text, ": ", parts..., got));
  }
  bool Count(int least, int most) const {
    if (size() >= least && size() <= most) return true;
    Fail(SpecRule::kArity, "takes ", least, least == most ? "" : absl::StrCat(" to ", most),
         " sources, has ", size());
    return false;
  }
  bool IsScalar(int i) const { return dtype(i).lanes() == 1 && v.srcs[i].rank() == 0; }
  // In a kernel whose loops have become lanes a STAGE stands for its SCRATCH.
  bool IsPointer(int i) const {
    return op(i) == Op::kParam || op(i) == Op::kScratch || op(i) == Op::kStage;
  }

  void Const() const {
    const Scalar s = arg<Scalar>();
    const DType t = v.dtype.Scalar();
    const DType widest = t.IsFloat() ? kFloat64 : t.kind() == Kind::kU64 ? kUInt64 : kInt64;
    if (t.IsFloat() && std::isnan(s.AsFloat())) {
      uint64_t raw = 0;
      StoreScalar(&raw, t, s);
      if (!(LoadScalar(&raw, t) == s)) {
        Fail(SpecRule::kConstValue, "is a NaN whose bits ", t.ToString(), " does not have");
      }
      return;
    }
    if (!(Convert(s, widest, t) == s)) Fail(SpecRule::kConstValue, "is no value of ", t.ToString());
  }
  void Var() const {
    const VarArg& a = arg<VarArg>();
    if (!v.dtype.IsInt() || v.dtype.lanes() != 1) {
      Fail(SpecRule::kVarBounds, a.name, " must be an integer scalar, not ", v.dtype.ToString());
    } else if (a.min > a.max || a.min < MinInt(v.dtype) || a.max > MaxInt(v.dtype)) {
      Fail(SpecRule::kVarBounds, a.name, " has the bounds ", a.min, "..", a.max);
    }
  }
  void Range() const {
    bool same = size() == 1 || size() == 3;
    for (int i = 0; i < size(); ++i) same &= dtype(i) == v.dtype && IsScalar(i);
    if (!same || !v.dtype.IsInt() || v.dtype.lanes() != 1) {
      return Fail(SpecRule::kRangeForm,
                  "takes one extent, or begin, end and step, of its own dtype");
    }
    if (v.srcs[size() == 1 ? 0 : 1].vmax() < 0 && size() == 1) {
      return Fail(SpecRule::kRangeForm, "the extent is negative");
    }
    if (size() == 3 && v.srcs[2].vmin() <= 0) {
      return Fail(SpecRule::kRangeForm, "the step must be positive");
    }
    if (size() == 3 && StepsPastItsDtype()) {
      return Fail(SpecRule::kRangeForm, "what follows the last step does not fit in its dtype");
    }
    NotNegative(SpecRule::kRangeId, arg<RangeArg>().id);
    const RangeKind kind = arg<RangeArg>().kind;
    if (kind != RangeKind::kUnroll && kind != RangeKind::kVector && kind != RangeKind::kMatrix) {
      return;
    }
    for (int i = 0; i < size(); ++i) {
      if (op(i) != Op::kConst) return Fail(SpecRule::kRangeConstant, "must be of constant extent");
    }
  }
  // The loop ends when its index, a step after the last, is not below the end.
  bool StepsPastItsDtype() const {
    if (v.srcs[1].is(Op::kVar) && v.srcs[2].IsConst()) {  // some value of it is its highest
      return v.srcs[1].vmax() - 1 > MaxInt(v.dtype) - v.srcs[2].vmin();
    }
    for (const UOp& s : v.srcs) {
      if (!s.IsConst()) return false;
    }
    const int64_t begin = v.srcs[0].vmin(), end = v.srcs[1].vmin(), step = v.srcs[2].vmin();
    int64_t length = 0, next = 0;
    if (begin >= end || __builtin_sub_overflow(end, begin, &length)) return begin < end;
    const int64_t last = begin + (length - 1) / step * step;
    return __builtin_add_overflow(last, step, &next) || next > MaxInt(v.dtype);
  }
  void Index() const {
    if (!Count(2, 3)) return;
    if (v.srcs[1].rank() != 0) Fail(SpecRule::kIndexForm, "the offset must be a scalar");
    if (size() == 3 && v.srcs[2].rank() != 0) {
      Fail(SpecRule::kIndexForm, "the gate must be a scalar");
    }
  }
  void Store() const {
    if (v.op == Op::kUpdate && !arg<ReduceArg>().axes.empty()) {
      Fail(SpecRule::kStoreForm, "names axes; an element has none");
    }
    if (v.srcs[1].rank() != 0) Fail(SpecRule::kStoreForm, "the value must be a scalar");
  }
  void Stage() const {
    for (int i = 0; i < size(); ++i) {
      if (i > 1 && op(i) == Op::kUpdate) continue;
      if (op(i) != (i == 0 ? Op::kScratch : Op::kStore)) {
        Fail(SpecRule::kStageForm, "takes a SCRATCH, the STOREs that fill it, and UPDATEs");
        return;
      }
    }
  }
  void Scratch() const {
    const Pairs& p = arg<Pairs>();
    if (p.size() != 1 || !p[0].first.is_int() || !p[0].second.is_int() || p[0].first.value() < 0 ||
        p[0].second.value() < 0) {
      return Fail(SpecRule::kScratchForm,
                  "needs one pair, offset and size, of integers not below 0");
    }
    int64_t end = 0;
    if (__builtin_add_overflow(p[0].first.value(), p[0].second.value(), &end)) {
      Fail(SpecRule::kScratchForm, "does not end within 64 bits");
    }
  }
  // LOAD (pointer, offset, gate?) or (REG), PUT and STREAM (pointer, offset, value, gate?),
  // PREFETCH (pointer, offset).
  void Access() const {
    if (v.op == Op::kLoad && size() > 0 && op(0) == Op::kReg) {
      if (!Count(1, 1) || dtype(0) == v.dtype) return;
      return Fail(SpecRule::kAccessForm, "gives another dtype than the REG's");
    }
    const int gate = IsPut(v.op) ? 3 : 2;
    if (v.op != Op::kPrefetch && !Count(gate, gate + 1)) return;
    const DType t = v.op == Op::kPrefetch ? dtype(0) : IsPut(v.op) ? dtype(2) : v.dtype;
    if (!IsPointer(0))
      return Fail(SpecRule::kAccessForm, "the first source must be a PARAM or SCRATCH");
    if (!dtype(1).IsInt() || !IsScalar(1)) {
      return Fail(SpecRule::kAccessForm, "the offset must be an integer scalar");
    }
    if (!(t.Scalar() == dtype(0).Scalar())) {
      return Fail(SpecRule::kAccessForm, "the value's dtype is not the pointer's");
    }
    if (v.op == Op::kPrefetch) {
      const Ints& a = arg<Ints>();
      if (a.size() == 2 && (a[1] == 1 || a[1] == 2)) return;
      return Fail(SpecRule::kAccessForm, "the cache must be 1 or 2");
    }
    if (size() > gate &&
        (!dtype(gate).IsBool() || (dtype(gate).lanes() != 1 && dtype(gate).lanes() != t.lanes()))) {
      Fail(SpecRule::kAccessForm, "the gate must be bool, one for all lanes or one each");
    }
  }
  // An elementwise op works lane by lane.
  void Lanes() const {
    for (int i = 0; i < size(); ++i) {
      if (dtype(i).lanes() == v.dtype.lanes()) continue;
      return Fail(SpecRule::kLanesAlike, "gives ", v.dtype.ToString(),
                  ", in another number of lanes");
    }
  }
  void Lane(bool holds, const char* what) const {
    if (!holds) Fail(SpecRule::kLaneForm, what, "; gives ", v.dtype.ToString());
  }
  bool SameKind(int i) const { return dtype(i).kind() == v.dtype.kind(); }
  bool LanesForm() const {
    bool holds = size() == v.dtype.lanes() && size() > 1;
    for (int i = 0; i < size(); ++i) holds &= dtype(i) == v.dtype.Scalar();
    return holds;
  }
  bool PartForm() const {
    const bool outside = v.srcs[1].vmax() < 0 || v.srcs[1].vmin() >= dtype(0).lanes();
    return SameKind(0) && v.dtype.lanes() == 1 && dtype(0).lanes() > 1 && dtype(1) == kInt64 &&
           !outside;
  }
  // A fragment of 16 bytes: four matrices, of each 4 bytes a thread.
  void Fragment() const {
    if (!Count(2, 3)) return;
    const Ints& a = arg<Ints>();
    if (size() == 3) return TileFragment();
    if (op(0) != Op::kScratch && op(0) != Op::kStage) {
      return Fail(SpecRule::kMatrixForm, "the first source must be a SCRATCH");
    }
    if (!(dtype(1) == kInt64) || !(dtype(0) == v.dtype.Scalar()) ||
        v.dtype.bytes() * v.dtype.lanes() != 16 || a.size() != 2 || a[1] < 0 || a[1] > 3 ||
        (a[1] % 2 == 1 && dtype(0).bytes() != 2)) {
      Fail(SpecRule::kMatrixForm,
           "takes 16 bytes of the SCRATCH's dtype, or where they lie, turned only of two each");
    }
  }
  void TileFragment() const {
    if (op(0) != Op::kScratch && op(0) != Op::kStage && op(0) != Op::kParam) {
      return Fail(SpecRule::kMatrixForm, "the first source must be a SCRATCH or a PARAM");
    }
    const Ints& a = arg<Ints>();
    if (!(dtype(1) == kInt64) || !(dtype(2) == kInt64) || !(dtype(0) == v.dtype.Scalar()) ||
        !IsTile(v.dtype) || a.size() != 2 || (a[1] != 0 && a[1] != 1)) {
      Fail(SpecRule::kMatrixForm, "takes 1024 bytes of the source's dtype, and steps of i64");
    }
  }
  void Mma() const {
    if (!Count(2, 3)) return;
    const auto bytes = [&](int i) {
      return dtype(i).IsInt() && dtype(i).bits() == 8 && dtype(i).lanes() == 4 * v.dtype.lanes();
    };
    const DType sum = v.dtype.Scalar(), operand = dtype(0).Scalar();
    const bool summed = sum == kInt32
                            ? operand.IsInt() && operand.bits() == 8
                            : sum == kFloat32 && operand.IsFloat() && operand.bits() <= 32;
    const bool of_matrices = summed && dtype(0).bytes() * dtype(0).lanes() == 16 &&
                             dtype(0) == dtype(1) && v.dtype.lanes() % 8 == 0 &&
                             v.dtype.lanes() <= 128;
    const bool of_lanes = bytes(0) && bytes(1) && v.dtype.Scalar() == kInt32;
    const bool of_pairs = sum == kFloat32 && operand == kBFloat16 && dtype(0) == dtype(1) &&
                          dtype(0).lanes() == 2 * v.dtype.lanes();
    const auto factors = [&](DType t) {
      return IsTile(t) && (sum == kInt32 ? t.Scalar().IsInt() && t.bits() == 8
                                         : sum == kFloat32 && t.Scalar() == kBFloat16);
    };
    const bool of_tiles = IsTile(v.dtype) && factors(dtype(0)) && factors(dtype(1));
    if (!(of_matrices || of_lanes || of_pairs || of_tiles) ||
        (size() == 3 && !(dtype(2) == v.dtype))) {
      Fail(SpecRule::kMatrixForm,
           "takes two parts of 16 bytes, and 8 sums of its dtype, or up to 128, f32 of floats and "
           "i32 of bytes; or of each four bytes for each lane of i32, or two bf16 for each of f32; "
           "or "
           "tiles of 1024 bytes");
    }
  }
  void Fetch() const {
    if (!Count(4, 5)) return;
    const Ints& a = arg<Ints>();
    const bool few = a.size() == 2 && a[1] >= 1 && a[1] <= 16;
    const int64_t bytes = few ? a[1] * dtype(0).bytes() : 0;
    const bool gated = size() == 5 && !(dtype(4) == kBool);
    if ((op(0) != Op::kScratch && op(0) != Op::kStage) || op(2) != Op::kParam || gated ||
        !(dtype(0) == dtype(2)) || !dtype(1).IsInt() || !dtype(3).IsInt() ||
        (bytes != 4 && bytes != 8 && bytes != 16)) {
      Fail(SpecRule::kFetchForm, "copies 4, 8 or 16 bytes of a PARAM to a SCRATCH of its dtype");
    }
  }
  void NotNegative(SpecRule rule, int64_t id) const {
    if (id < 0) Fail(rule, "the id ", id, " is negative");
  }
  void Wait() const {
    if (!Count(0, 1)) return;
    const Ints& a = arg<Ints>();
    if (a.size() != 2 || a[1] < 0) Fail(SpecRule::kFetchForm, "leaves 0 groups or more under way");
    if (size() == 1 && op(0) != Op::kReg)
      Fail(SpecRule::kFetchForm, "waits for a REG, or for groups");
  }
  bool FoldForm() const { return dtype(0).lanes() > 1 && SameKind(0) && Combines(); }
  // Whether the argument is an op that scalars of the result's dtype are combined by; or lanes.
  bool Combines() const { return v.dtype.lanes() == 1 && CombinesLanes(); }
  bool CombinesLanes() const { return arg<ReduceArg>().axes.empty() && CombinesBy(); }
  bool CombinesFew() const {
    const ReduceArg& r = arg<ReduceArg>();
    return v.dtype.lanes() == 1 && r.axes.size() == 1 && r.axes[0] == 4 && CombinesBy();
  }
  bool CombinesBy() const {
    switch (arg<ReduceArg>().op) {
      case Op::kAdd:
      case Op::kMul:
        return !v.dtype.IsBool();
      case Op::kMax:
      case Op::kMin:
        return true;
      case Op::kAnd:
      case Op::kOr:
      case Op::kXor:
        return !v.dtype.IsFloat();
      default:
        return false;
    }
  }

  void Check() const {
    switch (v.op) {
#define OP(...)
#define EW(name, ...) case Op::k##name:
#include "graph/ops.def"
      return Lanes();
      case Op::kConst:
        return Const();
      case Op::kVar:
        return Var();
      case Op::kIota:
        if (v.dtype.IsBool()) Fail(SpecRule::kDeclaredDtype, "counts in numbers, not bools");
        return;
      case Op::kBuffer:
        if (!arg<BufferArg>().buffer) Fail(SpecRule::kArgument, "has no buffer");
        return;
      case Op::kCopy:
        if (!arg<Device>()) Fail(SpecRule::kCopyDevice, "names no device to copy to");
        return;
      case Op::kRange:
        return Range();
      case Op::kIndex:
        return Index();
      case Op::kStore:
      case Op::kUpdate:
        return Store();
      case Op::kRunning:
        if (op(1) != Op::kRange || !(dtype(0) == v.dtype) || !CombinesLanes() ||
            (v.srcs[1].is(Op::kRange) && v.srcs[1].arg<RangeArg>().kind != RangeKind::kLoop)) {
          Fail(SpecRule::kRunningForm, "combines values of its dtype over a RANGE that is a loop");
        }
        return;
      case Op::kEarlier:
        if (op(0) != Op::kRunning || !(dtype(0) == v.dtype)) {
          Fail(SpecRule::kEarlierForm, "takes a RUNNING of its dtype");
        }
        return;
      case Op::kRescale:
        if (op(2) != Op::kRange || !(dtype(0) == v.dtype) || !(dtype(1) == v.dtype) ||
            !v.dtype.IsFloat()) {
          Fail(SpecRule::kRescaleForm,
               "takes a value and a factor of its dtype, floats, and a RANGE");
        }
        return;
      case Op::kStage:
        Stage();
        return;
      case Op::kScratch:
        return Scratch();
      case Op::kSet:
        if (op(0) != Op::kReg) {
          Fail(SpecRule::kSetForm, "the first source must be a REG");
        } else if (!(dtype(0) == dtype(1))) {
          Fail(SpecRule::kSetForm, "the value's dtype is not the REG's");
        }
        return;
      case Op::kLoad:
      case Op::kPut:
      case Op::kStream:
      case Op::kPrefetch:
        return Access();
      case Op::kEnd:
        if (op(0) != Op::kRange && op(0) != Op::kIf) {
          Fail(SpecRule::kEndForm, "closes a RANGE or an IF, not ", Info(op(0)).text);
        }
        return;
      case Op::kIf:
        if (!(dtype(0) == kBool)) Fail(SpecRule::kIfForm, "the condition must be one bool");
        return;
      case Op::kSplat:
        return Lane(SameKind(0) && dtype(0).lanes() == 1 && v.dtype.lanes() > 1,
                    "makes a vector of a scalar of its dtype");
      case Op::kLanes:
        return Lane(LanesForm(), "takes a scalar of its dtype for each lane");
      case Op::kLane: {
        const int64_t lane = arg<int64_t>();
        return Lane(SameKind(0) && v.dtype.lanes() == 1 && lane >= 0 && lane < dtype(0).lanes(),
                    "takes one of the lanes of a vector of its dtype");
      }
      case Op::kShuffle: {
        const Ints& from = arg<Ints>();
        const bool lanes = std::all_of(from.begin(), from.end(), [&](int64_t lane) {
          return lane >= 0 && lane < 2 * dtype(0).lanes();
        });
        return Lane(SameKind(0) && dtype(0) == dtype(1) && dtype(0).lanes() > 1 && lanes &&
                        static_cast<size_t>(v.dtype.lanes()) == from.size(),
                    "takes a lane of one of two vectors of its dtype for each lane");
      }
      case Op::kTable:
        return Lane(SameKind(0) && dtype(0).lanes() == 16 && v.dtype.lanes() > 1 &&
                        dtype(1).lanes() == v.dtype.lanes() && dtype(1).IsInt() &&
                        dtype(1).IsUnsigned() &&
                        dtype(1).Scalar().bits() == v.dtype.Scalar().bits(),
                    "takes one of 16 lanes of its dtype for each lane of an index, unsigned and of "
                    "as many bits");
      case Op::kRamp:
        return Lane(SameKind(0) && v.dtype.IsInt() && dtype(0).lanes() == 1 && v.dtype.lanes() > 1,
                    "makes a vector of an integer scalar of its dtype");
      case Op::kFold:
        return Lane(FoldForm(), "combines the lanes of a vector to a scalar of its dtype");
      case Op::kCombine:
        return Lane(dtype(0) == v.dtype && (CombinesFew() || Combines()),
                    "combines scalars of its dtype, of all threads or of each four");
      case Op::kPart:
        return Lane(PartForm(), "takes one of the lanes of a vector of its dtype");
      case Op::kFetch:
        return Fetch();
      case Op::kWait:
        return Wait();
      case Op::kFragment:
        return Fragment();
      case Op::kMma:
        return Mma();
      case Op::kReg:
        return NotNegative(SpecRule::kSetForm, arg<int64_t>());
      case Op::kCommit:
      case Op::kParam:
      case Op::kReshape:
      case Op::kPermute:
      case Op::kExpand:
      case Op::kPad:
      case Op::kShrink:
      case Op::kFlip:
      case Op::kWindow:
      case Op::kReduce:
      case Op::kGather:
      case Op::kScatter:
      case Op::kCat:
      case Op::kContiguous:
      case Op::kMark:
      case Op::kStandIn:
      case Op::kAllReduce:
      case Op::kMStack:
      case Op::kMSelect:
      case Op::kLocal:
      case Op::kGlobal:
      case Op::kPass:
      case Op::kExchange:
      case Op::kItem:
      case Op::kLoop:
      case Op::kResult:
      case Op::kRan:
      case Op::kAssign:
      case Op::kSink:
      case Op::kProgram:
      case Op::kBarrier:
        return;
    }
  }
};

}  // namespace

bool CheckOperands(const NodeView& v, ReportFn report) {
  // What has no value has no dtype to check either; only these may hold it.
  if (v.op == Op::kSink || v.op == Op::kStage || v.op == Op::kProgram || v.op == Op::kEnd) {
    return true;
  }
  for (size_t i = 0; i < v.srcs.size(); ++i) {
    if (!v.srcs[i].dtype().IsVoid()) continue;
    const bool store = v.src_ops[i] == Op::kStore || v.src_ops[i] == Op::kUpdate;
    if (store && v.op == Op::kStage) continue;
    const bool loops = v.op == Op::kLoop ? i == 0 && v.src_ops[0] == Op::kSink
                                         : v.op == Op::kResult && v.src_ops[i] == Op::kLoop;
    if (loops) continue;
    report(store ? SpecRule::kStoreOutsideSink : SpecRule::kVoidOperand,
           absl::StrCat(Info(v.op).text, ": uses ", Info(v.src_ops[i]).text,
                        store ? ", which belongs in a SINK" : ", which has no value"));
    return false;
  }
  return true;
}

void CheckForm(const NodeView& v, ReportFn report) { Form{v, report}.Check(); }

}  // namespace tessera
