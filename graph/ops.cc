// The op table as an array.
#include "graph/ops.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/status.h"

namespace tessera {
namespace {

constexpr OpInfo kOps[] = {
#define EW(name, text, arity, type, props, ctext, value, comment)                         \
  {#name, text,  arity,  OpClass::kElementwise, TypeRule::k##type, ArgKind::kNone, props, \
   ctext, "tkp", comment},
#define OP(name, text, arity, cls, type, arg, props, stages, comment) \
  {#name,           text,  arity, OpClass::k##cls, TypeRule::k##type, \
   ArgKind::k##arg, props, "",    stages,          comment},
#include "graph/ops.def"
};

}  // namespace

const OpInfo& Info(Op op) { return kOps[static_cast<int>(op)]; }

Movement MovementOf(Op op) {
  CHECK(IsMovement(op), Info(op).text, " is no movement");
  return static_cast<Movement>(op);
}

absl::StatusOr<Op> ParseOp(absl::string_view text) {
  static const auto& ops = *[] {
    auto* m = new absl::flat_hash_map<std::string, Op>;
    for (int i = 0; i < kOpCount; ++i) m->emplace(kOps[i].text, static_cast<Op>(i));
    return m;
  }();
  if (auto it = ops.find(text); it != ops.end()) return it->second;
  return absl::InvalidArgumentError(absl::StrCat("there is no op '", text, "'"));
}

}  // namespace tessera
