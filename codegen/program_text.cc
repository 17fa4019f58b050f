// Facts about programs that their text is made by.
#include "codegen/program_text.h"

#include "absl/strings/str_cat.h"
#include "codegen/literal.h"
#include "graph/fault.h"

namespace tessera {

absl::flat_hash_set<const Node*> WrittenBuffers(const UOp& program) {
  absl::flat_hash_set<const Node*> written;
  for (const UOp& u : program.srcs()) {
    if (u.is(Op::kPut)) written.insert(u.src(0).get());
  }
  return written;
}

absl::flat_hash_set<const Node*> LoopsToUnroll(const UOp& program) {
  absl::flat_hash_set<const Node*> out;
  const Node* innermost = nullptr;
  bool reads = false;
  for (const UOp& u : program.srcs()) {
    if (u.is(Op::kRange) || u.is(Op::kIf)) {
      const bool fixed = u.is(Op::kRange) && u.src(0).IsConst(0) && u.src(1).IsConst() &&
                         u.src(1).vmax() % kCopiesOfLoop == 0;
      innermost = fixed ? u.get() : nullptr;
      reads = false;
    } else if (u.is(Op::kEnd)) {
      if (innermost == u.src(0).get() && reads) out.insert(innermost);
      innermost = nullptr;
    } else if (u.is(Op::kFragment) || u.is(Op::kLoad)) {
      reads |= u.src(0).is(Op::kScratch);
    }
  }
  return out;
}

int64_t LoopCount(const UOp& loop) {
  const UOp &begin = loop.src(0), &step = loop.src(2);
  const UOp& end = loop.src(1).is(Op::kMin) ? loop.src(1).src(0) : loop.src(1);
  const bool block = end.is(Op::kAdd) && end.src(0) == begin;  // of so many points, or fewer
  if (block && end.src(1).IsConst() && step.IsConst(1)) return end.src(1).vmax();
  if (!begin.IsConst() || !end.IsConst() || !step.IsConst() || step.vmin() < 1) return 0;
  return (end.vmax() - begin.vmin() + step.vmin() - 1) / step.vmin();
}

std::string CastText(const std::string& value, DType from, DType to) {
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

}  // namespace tessera
