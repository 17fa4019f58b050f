// The renderer: C++ text of a program, one statement a line, every name the prelude's.
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "codegen/passes.h"
#include "graph/fault.h"
#include "graph/status.h"

namespace tessera {
namespace {

std::string TypeName(DType t) {
  const std::string scalar = absl::StrCat("rt_", t.Scalar().ToString());
  return t.lanes() == 1 ? scalar : absl::StrCat("rt_vec<", scalar, ", ", t.lanes(), ">");
}

// A literal of a value; narrow floats are given by their bits.
std::string Literal(Scalar v, DType t) {
  if (t.IsBool()) return absl::StrCat("rt_bool(", v.bits != 0, ")");
  if (t.kind() == Kind::kF32 || t.kind() == Kind::kF64) {
    const double d = v.AsFloat();
    const char* suffix = t.kind() == Kind::kF32 ? "f" : "";
    if (std::isnan(d))
      return absl::StrCat(std::signbit(d) ? "-" : "", "__builtin_nan", suffix, "(\"\")");
    if (std::isinf(d)) return absl::StrCat(d < 0 ? "-" : "", "__builtin_inf", suffix, "()");
    if (FaultPlanted(Fault::kShortLiterals)) return absl::StrFormat("%.5e%s", d, suffix);
    return absl::StrCat(ScalarToString(v, t), suffix);
  }
  if (t.IsFloat()) {
    uint16_t bits = 0;
    StoreScalar(&bits, t, v);
    return absl::StrCat("rt_bitcast<", TypeName(t), ">(rt_u", t.bits(), "(", bits, "))");
  }
  if (t.kind() == Kind::kU64) return absl::StrCat("rt_u64(", v.bits, "ull)");
  if (v.AsInt() == INT64_MIN) return "(-9223372036854775807ll - 1)";
  return absl::StrCat(TypeName(t), "(", v.AsInt(), t.bits() == 64 ? "ll" : "", ")");
}

class Renderer {
 public:
  explicit Renderer(const std::vector<std::string>& variables) : variables_(variables) {}

  absl::StatusOr<std::string> Run(const UOp& program) {
    // Parameters first: they are no statements.
    for (const UOp& u : TopoSort({&program, 1})) {
      if (u.is(Op::kParam)) Parameter(u);
      if (u.is(Op::kVar)) RETURN_IF_ERROR(Variable(u));
    }
    for (const UOp& u : program.srcs()) RETURN_IF_ERROR(Statement(u));
    if (streams_) Line("rt_stream_end();");
    return absl::StrCat("RT_KERNEL(", program.arg<std::string>(), ") {\n", text_, "}\n");
  }

 private:
  void Line(const std::string& line) {
    absl::StrAppend(&text_, std::string(2 * indent_, ' '), line, "\n");
  }

  void Parameter(const UOp& u) {
    const int64_t slot = u.arg<ParamArg>().slot;
    const std::string name = absl::StrCat("b", slot);
    if (!names_.emplace(u.get(), name).second) return;
    const std::string type = TypeName(u.dtype());
    Line(absl::StrCat(type, "* RT_RESTRICT ", name, " = (", type, "*)rt_buffers[", slot, "];"));
  }

  absl::Status Variable(const UOp& u) {
    const std::string& var = u.arg<VarArg>().name;
    if (var == "rt_worker" || var == "rt_workers") {
      names_.emplace(u.get(), var);
      return absl::OkStatus();
    }
    for (size_t i = 0; i < variables_.size(); ++i) {
      if (variables_[i] != var) continue;
      const std::string name = absl::StrCat("n", i);
      names_.emplace(u.get(), name);
      Line(absl::StrCat("const ", TypeName(u.dtype()), " ", name, " = (", TypeName(u.dtype()),
                        ")rt_vars[", i, "];"));
      return absl::OkStatus();
    }
    return absl::InternalError(
        absl::StrCat("render: variable ", var, " is not among the kernel's"));
  }

  std::string Use(const UOp& u) {
    if (u.IsConst()) return Literal(u.arg<Scalar>(), u.dtype());
    auto it = names_.find(u.get());
    CHECK(it != names_.end(), "render: ", Info(u.op()).text, " is used before its statement");
    return it->second;
  }

  // An operand of a vector op: a scalar among vectors is spread.
  std::string UseAs(const UOp& u, int lanes) {
    if (lanes == 1 || u.dtype().lanes() == lanes) return Use(u);
    return absl::StrCat("rt_splat<", lanes, ">(", Use(u), ")");
  }

  void Value(const UOp& u, const std::string& expr) {
    if (names_.contains(u.get())) return;
    const std::string name = absl::StrCat("v", next_++);
    Line(absl::StrCat("const ", TypeName(u.dtype()), " ", name, " = ", expr, ";"));
    names_.emplace(u.get(), name);
    scopes_.back().push_back(u.get());
  }

  std::string Elementwise(const UOp& u) {
    const int lanes = u.dtype().lanes();
    const auto use = [&](int i) { return UseAs(u.src(i), lanes); };
    const DType operand = u.src(0).dtype();
    if (u.is(Op::kCast)) return Cast(use(0), operand, u.dtype());
    if (u.is(Op::kBitcast))
      return absl::StrCat("rt_bitcast<", TypeName(u.dtype().Scalar()), ">(", use(0), ")");
    // Division of what is never negative needs no care for signs.
    const bool plain_division = operand.IsInt() && u.size() == 2 && lanes == 1 &&
                                u.src(1).vmin() > 0 &&
                                (u.src(0).vmin() >= 0 || FaultPlanted(Fault::kFloorDivTruncates));
    const char* form = Info(u.op()).ctext;
    if (plain_division && (u.is(Op::kFloorDiv) || u.is(Op::kTruncDiv))) form = "$0 / $1";
    if (plain_division && (u.is(Op::kFloorMod) || u.is(Op::kTruncMod))) form = "$0 % $1";
    std::vector<std::pair<std::string, std::string>> args;
    if (u.is(Op::kMax) && FaultPlanted(Fault::kMaxDropsNan)) {
      form = "rt_where(rt_lt($0, $1), $1, $0)";
    }
    if (u.is(Op::kShr) && !operand.IsUnsigned() && FaultPlanted(Fault::kShiftUnsigned)) {
      form = "rt_bitcast<$t>(rt_shr(rt_bitcast<$u>($0), rt_bitcast<$u>($1)))";
      args = {{"$t", TypeName(operand.Scalar())}, {"$u", absl::StrCat("rt_u", operand.bits())}};
    }
    for (int i = 0; i < u.size(); ++i) args.emplace_back(absl::StrCat("$", i), use(i));
    std::string expr = absl::StrReplaceAll(form, args);
    // C++ computes narrow integers as int.
    if (lanes == 1 && !u.dtype().IsFloat() && u.dtype().bits() < 32) {
      expr = absl::StrCat("(", TypeName(u.dtype()), ")(", expr, ")");
    }
    return expr;
  }

  static std::string Cast(const std::string& value, DType from, DType to) {
    const auto storage_only = [](DType t) {
      return t.kind() == Kind::kBF16 || t.kind() == Kind::kF8E4M3 || t.kind() == Kind::kF8E5M2;
    };
    // Those are cast from and to f32; the cast beyond it may have been merged with this one.
    std::string x = value;
    if (storage_only(from)) {
      x = absl::StrCat("rt_", from.Scalar().ToString(), "_to_f32(", x, ")");
      from = kFloat32.WithLanes(from.lanes());
    }
    if (storage_only(to)) {
      if (from.kind() != Kind::kF32) x = absl::StrCat("rt_cast<rt_f32>(", x, ")");
      return absl::StrCat("rt_f32_to_", to.Scalar().ToString(), "(", x, ")");
    }
    if (from == to) return x;
    if (from.IsFloat() && to.IsInt() && to.lanes() == 1 && FaultPlanted(Fault::kPlainCast)) {
      return absl::StrCat("(", TypeName(to), ")(", x, ")");
    }
    return absl::StrCat("rt_cast<", TypeName(to.Scalar()), ">(", x, ")");
  }

  std::string Load(const UOp& u) {
    if (u.src(0).is(Op::kReg)) return Use(u.src(0));
    const std::string pointer = Use(u.src(0)), offset = Use(u.src(1));
    const std::string type = TypeName(u.dtype().Scalar());
    std::string load = u.dtype().lanes() == 1
                           ? absl::StrCat(pointer, "[", offset, "]")
                           : absl::StrCat("rt_load<", type, ", ", u.dtype().lanes(), ">(", pointer,
                                          ", ", offset, ")");
    if (u.size() < 3) return load;
    return absl::StrCat(Use(u.src(2)), " ? ", load, " : ", TypeName(u.dtype()), "{}");
  }

  void Put(const UOp& u) {
    const std::string pointer = Use(u.src(0)), offset = Use(u.src(1)), value = Use(u.src(2));
    const std::string gate = u.size() == 4 ? absl::StrCat("if (", Use(u.src(3)), ") ") : "";
    const int lanes = u.src(2).dtype().lanes();
    const bool streamed = u.is(Op::kStream);
    streams_ |= streamed;
    if (lanes == 1) {
      Line(absl::StrCat(gate, pointer, "[", offset, "] = ", value, ";"));
    } else {
      Line(absl::StrCat(gate, streamed ? "rt_stream<" : "rt_store<", lanes, ">(", pointer, ", ",
                        offset, ", ", value, ");"));
    }
  }

  void Open(const std::string& line) {
    Line(line);
    ++indent_;
    scopes_.emplace_back();
  }

  // Names of a scope end with it: an equal node after it is computed anew.
  void Close() {
    for (const Node* n : scopes_.back()) names_.erase(n);
    scopes_.pop_back();
    --indent_;
    Line("}");
  }

  absl::Status Statement(const UOp& u) {
    if (IsElementwise(u.op())) {
      Value(u, Elementwise(u));
      return absl::OkStatus();
    }
    const std::string type = TypeName(u.dtype());
    switch (u.op()) {
      case Op::kConst:
      case Op::kVar:
      case Op::kParam:
        break;
      case Op::kScratch: {
        const auto& range = u.arg<Pairs>()[0];
        const std::string name = absl::StrCat("s", next_++);
        Line(absl::StrCat(type, "* RT_RESTRICT ", name, " = (", type, "*)((rt_u8*)rt_scratch + ",
                          range.first.value(), ");"));
        names_.emplace(u.get(), name);
        break;
      }
      case Op::kRange: {
        const std::string name = absl::StrCat("i", u.arg<RangeArg>().id);
        Open(absl::StrCat("for (rt_i64 ", name, " = ", Use(u.src(0)), "; ", name, " < ",
                          Use(u.src(1)), "; ", name, " += ", Use(u.src(2)), ") {"));
        names_.emplace(u.get(), name);
        scopes_.back().push_back(u.get());
        break;
      }
      case Op::kIf:
        Open(absl::StrCat("if (", Use(u.src(0)), ") {"));
        break;
      case Op::kEnd:
        Close();
        break;
      case Op::kReg: {
        const std::string name = absl::StrCat("a", u.arg<int64_t>());
        Line(absl::StrCat(type, " ", name, " = ", UseAs(u.src(0), u.dtype().lanes()), ";"));
        names_.emplace(u.get(), name);
        scopes_.back().push_back(u.get());
        break;
      }
      case Op::kSet:
        Line(absl::StrCat(Use(u.src(0)), " = ", Use(u.src(1)), ";"));
        break;
      case Op::kLoad:
        Value(u, Load(u));
        break;
      case Op::kPut:
      case Op::kStream:
        Put(u);
        break;
      case Op::kPrefetch:
        Line(absl::StrCat("rt_prefetch(", Use(u.src(0)), ", ", Use(u.src(1)), ");"));
        break;
      case Op::kSplat:
        Value(u, absl::StrCat("rt_splat<", u.dtype().lanes(), ">(", Use(u.src(0)), ")"));
        break;
      case Op::kLanes: {
        std::string list;
        for (const UOp& s : u.srcs()) absl::StrAppend(&list, list.empty() ? "" : ", ", Use(s));
        Value(u, absl::StrCat(type, "{", list, "}"));
        break;
      }
      case Op::kLane:
        Value(u, absl::StrCat("rt_lane<", u.arg<int64_t>(), ">(", Use(u.src(0)), ")"));
        break;
      case Op::kRamp:
        Value(u, absl::StrCat("rt_ramp<", TypeName(u.dtype().Scalar()), ", ", u.dtype().lanes(),
                              ">(", Use(u.src(0)), ", ", u.arg<int64_t>(), ")"));
        break;
      case Op::kFold: {
        std::string op = Info(u.arg<ReduceArg>().op).text;
        for (char& c : op) c = static_cast<char>(std::tolower(c));
        Value(u, absl::StrCat("rt_fold_", op, "(", Use(u.src(0)), ")"));
        break;
      }
      default:
        return absl::InternalError(absl::StrCat("render: ", Info(u.op()).text, " is no statement"));
    }
    return absl::OkStatus();
  }

  const std::vector<std::string>& variables_;
  std::string text_;
  int indent_ = 1;
  int64_t next_ = 0;
  bool streams_ = false;
  absl::flat_hash_map<const Node*, std::string> names_;
  std::vector<std::vector<const Node*>> scopes_{1};
};

}  // namespace

absl::StatusOr<std::string> RenderCpp(const UOp& program,
                                      const std::vector<std::string>& variables) {
  return Renderer(variables).Run(program);
}

}  // namespace tessera
