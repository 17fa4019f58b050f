// Numbers rounded to those of an element type.
#include <cmath>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

// 2 to the exponent of each number; 0 of what is not normal, infinity or NaN of what is not finite.
Tensor LeadingPower(const Tensor& x) {
  const bool wide = x.dtype() == kFloat64;
  const Tensor bits = x.Bitcast(wide ? kInt64 : kInt32);
  return (bits & (wide ? int64_t{0x7ff} << 52 : int64_t{0xff} << 23)).Bitcast(x.dtype());
}

// To the nearest of the type's numbers, of two the even one.
Tensor Rounded(const Tensor& x, const SmallFloat& to, bool saturate) {
  const Tensor inside = saturate || !to.has_nan ? x.Clip(-to.most, to.most) : x;
  const Tensor unit =
      LeadingPower(inside).Maximum(std::ldexp(1.0, to.lowest)) * std::ldexp(1.0, -to.mantissa);
  Tensor y = (inside / unit).Round() * unit;
  if (!to.has_nan) return Where(x.IsNan(), 0, y);
  if (!saturate) y = Where(y.Abs() > to.most, NAN, y);
  return Where(y == 0, 0, y);  // there is no -0
}

// To a power of two, whatever the sign.
Tensor RoundedToPower(const Tensor& x, const SmallFloat& to, bool saturate,
                      const std::string& mode) {
  const Tensor magnitude = x.Abs();
  const Tensor below = LeadingPower(x).Maximum(std::ldexp(1.0, to.lowest));
  Tensor y = below;
  if (mode == "up") {
    y = Where(magnitude > below, below * 2, below);
  } else if (mode == "nearest") {
    y = Where(magnitude >= below * 1.5, below * 2, below);
  }
  y = saturate ? y.Minimum(to.most) : Where(y > to.most, NAN, y);
  return Where(magnitude < INFINITY, y, NAN);
}

// The low bits of a whole number, as a narrow type of integers has them.
Tensor Wrapped(const Tensor& x, IntRange range) {
  const Tensor low = x.Cast(kInt64) & (range.most - range.least);
  return Where(low > range.most, low - (range.most - range.least + 1), low);
}

}  // namespace

void OutAs(Call& c, const Tensor& x, int64_t element) {
  const std::optional<DType> held = DTypeOfElement(element);
  if (!held) c.Unsupported("the element type ", ElementName(element), " is none of a Tensor");
  const std::optional<SmallFloat> small = SmallFloatOf(element);
  const bool saturate = c.Int("saturate", 1) != 0;
  const std::string mode = c.Choice("round_mode", {"up", "down", "nearest"});
  Tensor y = x;
  if (small && IsNarrow(element)) {
    if (y.dtype() != kFloat64) y = y.Cast(kFloat32);
    y = small->mantissa == 0 ? RoundedToPower(y, *small, saturate, mode)
                             : Rounded(y, *small, saturate);
  } else if (small && saturate && y.dtype() != *held) {
    if (!y.dtype().IsFloat() || y.dtype().bits() <= 8) y = y.Cast(kFloat32);
    y = y.Clip(-small->most, small->most);
  } else if (IsNarrow(element)) {
    y = Wrapped(y, RangeOfElement(element));
  }
  c.OutOf(y.Cast(*held), element);
}

}  // namespace tessera::onnx
