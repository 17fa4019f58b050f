// The renderer: C++ text of a program, one statement a line, every name the prelude's.
#include <algorithm>
#include <bit>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "codegen/byte_dots.h"
#include "codegen/gpu_numbers.h"
#include "codegen/index_widths.h"
#include "codegen/lanes.h"
#include "codegen/literal.h"
#include "codegen/matrix.h"
#include "codegen/passes.h"
#include "codegen/program_text.h"
#include "codegen/tile_numbers.h"
#include "graph/fault.h"
#include "graph/panel.h"
#include "graph/status.h"

namespace tessera {
namespace {

// Of shared memory, what no chip has three times, and what none has twice.
constexpr int64_t kBytesOfTwo = 76 << 10, kBytesOfOne = 114 << 10;

class Renderer {
 public:
  explicit Renderer(const std::vector<std::string>& variables) : variables_(variables) {}

  // For GPUs: parameters of the function itself, and integers no wider than their bounds ask for.
  absl::StatusOr<GpuText> RunGpu(const Lowered& lowered) {
    gpu_ = true;
    widths_ = IndexWidths(/*may_narrow=*/true);
    const UOp& program = lowered.program;
    const auto written = WrittenBuffers(program);
    GpuText out;
    std::map<int64_t, UOp> params;
    for (const UOp& u : TopoSort({&program, 1})) {
      if (u.is(Op::kParam)) params.emplace(u.arg<ParamArg>().slot, u);
      if (u.is(Op::kVar)) RETURN_IF_ERROR(GpuVariable(u, out));
    }
    std::string list;
    for (const auto& [slot, u] : params) {
      const std::string name = absl::StrCat("b", slot);
      absl::StrAppend(&list, list.empty() ? "" : ", ", written.contains(u.get()) ? "" : "const ",
                      TypeName(u.dtype()), "* RT_RESTRICT ", name);
      names_.emplace(u.get(), name);
      out.buffers.push_back(static_cast<int>(slot));
    }
    for (int v : out.variables) absl::StrAppend(&list, ", rt_i64 p", v);
    threads_ = lowered.threads;
    unrolled_ = LoopsToUnroll(program);
    in_place_ = absl::c_any_of(program.srcs(), ReadInPlace);
    for (const UOp& u : program.srcs()) RETURN_IF_ERROR(Statement(u));
    const std::string& name = program.arg<std::string>();
    // What fetches keeps busy while it waits if two blocks share a multiprocessor's registers.
    // Where shared memory is for two at most, registers need not be saved for a third.
    const absl::Span<const UOp> statements = program.srcs();
    const bool twice = lowered.scratch_bytes <= kBytesOfOne &&
                       (lowered.scratch_bytes > kBytesOfTwo ||
                        std::any_of(statements.begin(), statements.end(),
                                    [](const UOp& u) { return u.is(Op::kFetch); }));
    out.text = absl::StrCat(twice ? "RT_GLOBAL_TWICE(" : "RT_GLOBAL(", name, ", ",
                            lowered.threads * lowered.rows, ")(RT_THREAD ", list, ") {\n", text_,
                            "}\nRT_ENTRY(", name, ")\n");
    return out;
  }

  absl::StatusOr<std::string> Run(const UOp& program) {
    // Parameters first: they are no statements.
    for (const UOp& u : TopoSort({&program, 1})) {
      if (u.is(Op::kParam)) Parameter(u);
      if (u.is(Op::kVar)) RETURN_IF_ERROR(Variable(u));
    }
    ASSIGN_OR_RETURN(tiles_, NumberTiles(program));
    if (!tiles_.empty()) Line("const rt_tiles tiles;");
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

  // What the launch gives, by functions of the prelude; the caller's values, as parameters.
  absl::Status GpuVariable(const UOp& u, GpuText& out) {
    const std::string& var = u.arg<VarArg>().name;
    std::string from;
    for (const char* own : {"rt_block", "rt_blocks", "rt_thread", "rt_row"}) {
      if (var == own) from = absl::StrCat(own, "()");
    }
    for (size_t i = 0; i < variables_.size(); ++i) {
      if (variables_[i] != var) continue;
      from = absl::StrCat("p", i);
      out.variables.push_back(static_cast<int>(i));
    }
    if (from.empty()) {
      return absl::InternalError(
          absl::StrCat("render: variable ", var, " is not among the kernel's"));
    }
    const std::string type = TypeName(widths_.Of(u)), name = absl::StrCat("n", next_++);
    names_.emplace(u.get(), name);
    Line(absl::StrCat("const ", type, " ", name, " = (", type, ")", from, ";"));
    return absl::OkStatus();
  }

  // An i64 operand in the dtype in which its user computes.
  std::string UseHeld(const UOp& u, DType as) {
    if (u.IsConst()) return Literal(u.arg<Scalar>(), as);
    return widths_.Of(u) == as ? Use(u) : absl::StrCat("(", TypeName(as), ")", Use(u));
  }

  std::string Use(const UOp& u) {
    if (u.IsConst()) return Literal(u.arg<Scalar>(), widths_.Of(u));
    auto it = names_.find(u.get());
    CHECK(it != names_.end(), "render: ", Info(u.op()).text, " is used before its statement");
    return it->second;
  }

  // An operand of a vector op: a scalar among vectors is spread.
  std::string UseAs(const UOp& u, int lanes, DType index = kInt64) {
    if (lanes == 1) return u.dtype() == kInt64 ? UseHeld(u, index) : Use(u);
    if (u.dtype().lanes() == lanes) return Use(u);
    return absl::StrCat("rt_splat<", lanes, ">(", UseAs(u, 1), ")");
  }

  void Value(const UOp& u, const std::string& expr) {
    if (names_.contains(u.get())) return;
    const std::string name = absl::StrCat("v", next_++);
    const std::string type = IsTile(u.dtype()) || ReadInPlace(u) ? "auto" : TypeName(widths_.Of(u));
    Line(absl::StrCat("const ", type, " ", name, " = ", expr, ";"));
    names_.emplace(u.get(), name);
    scopes_.back().push_back(u.get());
  }

  // Tiles are made by functions that their number and their elements tell apart.
  std::string NewTile(const UOp& u, const char* how) {
    return absl::StrCat("rt_tile_", how, "<", tiles_.at(u.get()), ", ",
                        TypeName(u.dtype().Scalar()), ">");
  }
  std::string LoadTile(const UOp& u, const std::string& stride, bool once) {
    return absl::StrCat(NewTile(u, once ? "load_once" : "load"), "(", Use(u.src(0)), ", ",
                        Use(u.src(1)), ", ", stride, ")");
  }
  std::string Zeros(const UOp& u) {
    if (IsTile(u.dtype())) return NewTile(u, "zero") + "()";
    return absl::StrCat("rt_splat<", u.dtype().lanes(), ">(", TypeName(u.dtype().Scalar()), "{})");
  }

  std::string Elementwise(const UOp& u) {
    const int lanes = u.dtype().lanes();
    const DType index = widths_.OfOperands(u);
    const auto use = [&](int i) { return UseAs(u.src(i), lanes, index); };
    const DType operand = u.src(0).dtype();
    if (u.is(Op::kCast)) {
      return CastText(use(0), operand == kInt64 ? index : operand, widths_.Of(u));
    }
    if (u.is(Op::kBitcast))
      return absl::StrCat("rt_bitcast<", TypeName(u.dtype().Scalar()), ">(", use(0), ")");
    // Division of what is never negative needs no care for signs.
    const bool plain_division = operand.IsInt() && u.size() == 2 && lanes == 1 &&
                                u.src(1).vmin() > 0 &&
                                (u.src(0).vmin() >= 0 || FaultPlanted(Fault::kFloorDivTruncates));
    const char* form = Info(u.op()).ctext;
    // Where C++ leaves overflow open, a function of the prelude wraps.
    if (gpu_ && lanes == 1 && u.dtype().IsInt() && widths_.Of(u) == u.dtype()) {
      if (u.is(Op::kAdd)) form = "rt_add($0, $1)";
      if (u.is(Op::kSub)) form = "rt_sub($0, $1)";
      if (u.is(Op::kMul)) form = "rt_mul($0, $1)";
      if (u.is(Op::kNeg)) form = "rt_neg($0)";
    }
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
    if (const std::string shift = ShiftOfBytes(u); gpu_ && !shift.empty()) return shift;
    if (const UOp& bits = u.src(0); gpu_ && lanes == 1 && u.is(Op::kOr) && u.dtype() == kUInt32 &&
                                    bits.is(Op::kAnd) && bits.src(1).IsConst() &&
                                    u.src(1).IsConst()) {
      expr =
          absl::StrCat("rt_and_or(", Use(bits.src(0)), ", ", Use(bits.src(1)), ", ", use(1), ")");
    }
    // C++ computes narrow integers as int.
    if (lanes == 1 && !u.dtype().IsFloat() && u.dtype().bits() < 32) {
      expr = absl::StrCat("(", TypeName(u.dtype()), ")(", expr, ")");
    }
    return expr;
  }

  // Bytes of a GPU that are all shifted by as much, four at once; or "".
  std::string ShiftOfBytes(const UOp& u) {
    const bool bytes = u.dtype().Scalar() == kUInt8 && u.dtype().lanes() % 4 == 0;
    const bool alike = bytes && u.size() == 2 && u.src(1).is(Op::kSplat);
    if (!alike || !(u.is(Op::kShl) || u.is(Op::kShr) || u.is(Op::kMul))) return "";
    std::string by = UseAs(u.src(1).src(0), 1);
    if (u.is(Op::kMul)) {
      const UOp& factor = u.src(1).src(0);
      if (!factor.IsConst() || !std::has_single_bit(static_cast<uint64_t>(factor.vmin())))
        return "";
      by = absl::StrCat("rt_u8(", std::countr_zero(static_cast<uint64_t>(factor.vmin())), ")");
    }
    return absl::StrCat(u.is(Op::kShr) ? "rt_shr" : "rt_shl", "_bytes(", Use(u.src(0)), ", ", by,
                        ")");
  }

  std::string Load(const UOp& u) {
    if (u.src(0).is(Op::kReg)) return Use(u.src(0));
    const std::string pointer = Use(u.src(0)), offset = Use(u.src(1));
    const std::string type = TypeName(u.dtype().Scalar());
    if (IsTile(u.dtype())) {  // sums, taken up from where another part of theirs left them
      return LoadTile(u, absl::StrCat(kBytesOfTileRow / u.dtype().bytes()), /*once=*/true);
    }
    const int lanes = u.dtype().lanes();
    std::string load = absl::StrCat(pointer, "[", offset, "]");
    if (lanes > 1) {
      // Of bytes a GPU loads no more at once than are known to be aligned.
      const int64_t whole = std::min<int64_t>(lanes, kVectorBytes);
      const int64_t by = gpu_ && u.dtype().bytes() == 1 ? AlignmentOf(u.src(1), whole) : whole;
      load =
          absl::StrCat(by < whole ? "rt_load_by<" : "rt_load<", type, ", ", lanes,
                       by < whole ? absl::StrCat(", ", by) : "", ">(", pointer, ", ", offset, ")");
    }
    if (u.size() < 3) return load;
    if (u.src(2).dtype().lanes() > 1) {
      return absl::StrCat("rt_load_where<", type, ", ", u.dtype().lanes(), ">(", pointer, ", ",
                          offset, ", ", Use(u.src(2)), ")");
    }
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
    } else if (IsTile(u.src(2).dtype())) {
      Line(absl::StrCat("rt_tile_store(", pointer, ", ", offset, ", ", value, ");"));
    } else if (u.size() == 4 && u.src(3).dtype().lanes() > 1) {
      Line(absl::StrCat("rt_store_where<", lanes, ">(", pointer, ", ", offset, ", ", value, ", ",
                        Use(u.src(3)), ");"));
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

  // What a FOLD or COMBINE combines by, as the prelude spells it.
  static std::string Lower(const UOp& u) {
    return absl::AsciiStrToLower(Info(u.arg<ReduceArg>().op).text);
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
        if (gpu_) {
          Line(absl::StrCat("RT_SHARED(", type, ", ", name, ", ", range.first.value(), ");"));
        } else {
          Line(absl::StrCat(type, "* RT_RESTRICT ", name, " = (", type, "*)((rt_u8*)rt_scratch + ",
                            range.first.value(), ");"));
        }
        names_.emplace(u.get(), name);
        break;
      }
      case Op::kRange: {
        const std::string name = absl::StrCat("i", u.arg<RangeArg>().id);
        if (unrolled_.contains(u.get())) Line(absl::StrCat("RT_UNROLL_BY(", kCopiesOfLoop, ")"));
        std::string more = absl::StrCat(name, " < ", Use(u.src(1)));
        // So that registers go to the loops that run most, and not to those that are nested
        // deepest.
        if (const int64_t n = gpu_ ? 0 : LoopCount(u); n > 1) {
          more = absl::StrCat("RT_TIMES(", more, ", ", n, ")");
        }
        Open(absl::StrCat("for (", TypeName(widths_.Of(u)), " ", name, " = ", Use(u.src(0)), "; ",
                          more, "; ", name, " += ", Use(u.src(2)), ") {"));
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
        const bool zeros = tiles_.contains(u.get());  // as all tiles that are not loaded start
        Line(absl::StrCat(IsTile(u.dtype()) ? "auto" : type, " ", name, " = ",
                          zeros ? Zeros(u) : UseAs(u.src(0), u.dtype().lanes()), ";"));
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
        Line(absl::StrCat("rt_prefetch<", u.arg<Ints>()[1], ">(", Use(u.src(0)), ", ",
                          Use(u.src(1)), ");"));
        break;
      case Op::kSplat:
        if (IsTile(u.dtype())) break;  // zero, as a tile is made
        Value(u, UseAs(u.src(0), u.dtype().lanes()));
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
      case Op::kShuffle:
        Value(u, absl::StrCat("rt_shuffle<", absl::StrJoin(u.arg<Ints>(), ", "), ">(",
                              Use(u.src(0)), ", ", Use(u.src(1)), ")"));
        break;
      case Op::kTable:
        Value(u, absl::StrCat("rt_table(", Use(u.src(0)), ", ", Use(u.src(1)), ")"));
        break;
      case Op::kRamp:
        Value(u, absl::StrCat("rt_ramp<", TypeName(u.dtype().Scalar()), ", ", u.dtype().lanes(),
                              ">(", UseAs(u.src(0), 1), ", ", u.arg<int64_t>(), ")"));
        break;
      case Op::kBarrier:
        Line(in_place_ ? "rt_barrier_of_units();" : "rt_barrier();");
        break;
      case Op::kCombine: {
        const ReduceArg& arg = u.arg<ReduceArg>();
        const int threads = arg.axes.empty() ? threads_ : static_cast<int>(arg.axes[0]);
        Value(u, absl::StrCat("rt_", threads > 32 ? "block" : "warp", "_", Lower(u), "(RT_SELF ",
                              threads, ", ", UseAs(u.src(0), 1), ")"));
        break;
      }
      case Op::kFetch: {
        const std::string gate = u.size() == 5 ? absl::StrCat(", ", Use(u.src(4))) : "";
        Line(absl::StrCat("rt_fetch", gate.empty() ? "" : "_where", "<", u.arg<Ints>()[1],
                          ">(RT_SELF ", Use(u.src(0)), ", ", Use(u.src(1)), ", ", Use(u.src(2)),
                          ", ", Use(u.src(3)), gate, ");"));
        break;
      }
      case Op::kCommit:
        Line("rt_commit();");
        break;
      case Op::kWait:
        if (u.size() == 1) {
          Line(absl::StrCat("rt_wait_for_units(", Use(u.src(0)), ");"));
          break;
        }
        Line(absl::StrCat("rt_wait(", u.arg<Ints>()[1], ");"));
        break;
      case Op::kFragment:
        if (u.size() == 3) {
          Value(u, LoadTile(u, Use(u.src(2)), u.arg<Ints>()[1] != 0));
          break;
        }
        Value(u, absl::StrCat("rt_", ReadInPlace(u) ? "rows" : "fragment",
                              u.arg<Ints>()[1] % 2 != 0 ? "_turned" : "", "(RT_SELF ",
                              Use(u.src(0)), ", ", Use(u.src(1)), ")"));
        break;
      case Op::kMma: {
        const std::string sum = u.size() == 3 ? Use(u.src(2)) : Zeros(u);
        const bool self = gpu_ && !IsByteDot(u);  // what all of a warp do
        Value(u, absl::StrCat(u.arg<std::string>(), self ? "(RT_SELF " : "(", Use(u.src(0)), ", ",
                              Use(u.src(1)), ", ", sum, ")"));
        break;
      }
      case Op::kFold:
        Value(u, absl::StrCat("rt_fold_", Lower(u), "(", Use(u.src(0)), ")"));
        break;
      default:
        return absl::InternalError(absl::StrCat("render: ", Info(u.op()).text, " is no statement"));
    }
    return absl::OkStatus();
  }

  const std::vector<std::string>& variables_;
  bool gpu_ = false, in_place_ = false;
  IndexWidths widths_;
  int threads_ = 1;
  absl::flat_hash_set<const Node*> unrolled_;
  std::string text_;
  int indent_ = 1;
  int64_t next_ = 0;
  bool streams_ = false;
  TileNumbers tiles_;
  absl::flat_hash_map<const Node*, std::string> names_;
  std::vector<std::vector<const Node*>> scopes_{1};
};

}  // namespace

absl::StatusOr<GpuText> RenderGpu(const Lowered& lowered,
                                  const std::vector<std::string>& variables) {
  return Renderer(variables).RunGpu(lowered);
}

absl::StatusOr<std::string> RenderCpp(const UOp& program,
                                      const std::vector<std::string>& variables) {
  return Renderer(variables).Run(program);
}

}  // namespace tessera
