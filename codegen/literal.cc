// Literals.
#include "codegen/literal.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/fault.h"

namespace tessera {

std::string TypeName(DType t) {
  const std::string scalar = absl::StrCat("rt_", t.Scalar().ToString());
  return t.lanes() == 1 ? scalar : absl::StrCat("rt_vec<", scalar, ", ", t.lanes(), ">");
}

std::string Literal(Scalar v, DType t) {
  if (t.IsBool()) return absl::StrCat("rt_bool(", v.bits != 0, ")");
  if (t.kind() == Kind::kF32 || t.kind() == Kind::kF64) {
    const double d = v.AsFloat();
    const char* suffix = t.kind() == Kind::kF32 ? "f" : "";
    const char* type = t.kind() == Kind::kF32 ? "<rt_f32>()" : "<rt_f64>()";
    if (std::isnan(d)) return absl::StrCat(std::signbit(d) ? "-" : "", "rt_nan", type);
    if (std::isinf(d)) return absl::StrCat(d < 0 ? "-" : "", "rt_inf", type);
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

}  // namespace tessera
