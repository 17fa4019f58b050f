// The dtype table, promotion, and value conversion.
#include "graph/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/status.h"

namespace tessera {
namespace {

struct KindInfo {
  const char* text;
  int bits;
  KindClass cls;
};

constexpr KindInfo kKinds[] = {
#define X(name, text, bits, cls) {text, bits, KindClass::k##cls},
    TESSERA_DTYPES(X)
#undef X
};

const KindInfo& Info(Kind kind) { return kKinds[static_cast<int>(kind)]; }

// A binary float narrower than f64: its exponent and mantissa widths, and whether it has an
// infinity.
struct FloatFormat {
  int exponent_bits, mantissa_bits;
  bool has_inf;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double Largest() const;
};

FloatFormat FormatOf(Kind kind) {
  switch (kind) {
    case Kind::kF8E4M3:
      return {4, 3, false};
    case Kind::kF8E5M2:
      return {5, 2, true};
    case Kind::kF16:
      return {5, 10, true};
    case Kind::kBF16:
      return {8, 7, true};
    default:
      return {8, 23, true};
  }
}

// e4m3 uses its highest exponent for numbers, too, all but the last of which is NaN.
double FloatFormat::Largest() const {
  const double below_two = 2 - std::ldexp(1.0, (has_inf ? 0 : 1) - mantissa_bits);
  return std::ldexp(below_two, has_inf ? bias() : bias() + 1);
}

// Rounds a double to the nearest value of the format, ties to even.
double RoundToFormat(double v, FloatFormat f) {
  if (std::isnan(v) || v == 0) return v;
  const int bias = f.bias();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::copysign(std::numeric_limits<double>::infinity(), v);
  if (std::isinf(v)) return f.has_inf ? v : nan;
  const int exponent = std::max(std::ilogb(v), 1 - bias);
  // Scaling by a power of two is exact; nearbyint rounds to even in the default mode.
  const double scaled = std::nearbyint(std::ldexp(v, f.mantissa_bits - exponent));
  const double rounded = std::copysign(std::ldexp(scaled, exponent - f.mantissa_bits), v);
  if (std::fabs(rounded) > f.Largest()) return f.has_inf ? inf : nan;
  return rounded;
}

uint32_t EncodeNarrow(double v, FloatFormat f) {
  const int bias = f.bias();
  const uint32_t sign = std::signbit(v) ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
  const uint32_t exponent_mask = (1u << f.exponent_bits) - 1;
  if (std::isnan(v)) {
    const uint32_t mantissa = f.has_inf ? 1u << (f.mantissa_bits - 1) : (1u << f.mantissa_bits) - 1;
    return sign | exponent_mask << f.mantissa_bits | mantissa;
  }
  if (std::isinf(v)) return sign | exponent_mask << f.mantissa_bits;
  if (v == 0) return sign;
  const int exponent = std::max(std::ilogb(v), 1 - bias);
  const uint32_t mantissa =
      static_cast<uint32_t>(std::ldexp(std::fabs(v), f.mantissa_bits - exponent));
  const uint32_t implicit = 1u << f.mantissa_bits;
  if (mantissa < implicit) return sign | mantissa;  // subnormal
  return sign | static_cast<uint32_t>(exponent + bias) << f.mantissa_bits | (mantissa - implicit);
}

double DecodeNarrow(uint32_t bits, FloatFormat f) {
  const int bias = f.bias();
  const bool negative = bits >> (f.exponent_bits + f.mantissa_bits) & 1;
  const uint32_t exponent = bits >> f.mantissa_bits & ((1u << f.exponent_bits) - 1);
  const uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const bool top = exponent == (1u << f.exponent_bits) - 1;
  double v;
  if (top && f.has_inf) {
    v = mantissa ? std::numeric_limits<double>::quiet_NaN()
                 : std::numeric_limits<double>::infinity();
  } else if (top && mantissa == (1u << f.mantissa_bits) - 1) {
    v = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    v = std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  } else {
    v = std::ldexp(mantissa | 1u << f.mantissa_bits,
                   static_cast<int>(exponent) - bias - f.mantissa_bits);
  }
  return negative ? -v : v;
}

int64_t WrapInt(uint64_t v, DType to) {
  switch (to.kind()) {
    case Kind::kI8:
      return static_cast<int8_t>(v);
    case Kind::kI16:
      return static_cast<int16_t>(v);
    case Kind::kI32:
      return static_cast<int32_t>(v);
    case Kind::kU8:
      return static_cast<uint8_t>(v);
    case Kind::kU16:
      return static_cast<uint16_t>(v);
    case Kind::kU32:
      return static_cast<uint32_t>(v);
    default:
      return static_cast<int64_t>(v);
  }
}

Scalar FloatToInt(double v, DType to) {
  if (std::isnan(v)) return Scalar::Int(0);
  v = std::trunc(v);
  if (to.kind() == Kind::kU64) {
    if (v <= 0) return Scalar::Int(0);
    if (v >= 18446744073709551616.0) return {~uint64_t{0}};
    return {static_cast<uint64_t>(v)};
  }
  const double low = static_cast<double>(MinInt(to)), high = static_cast<double>(MaxInt(to));
  if (v <= low) return Scalar::Int(MinInt(to));
  if (v >= high) return Scalar::Int(MaxInt(to));
  return Scalar::Int(static_cast<int64_t>(v));
}

}  // namespace

KindClass DType::kind_class() const { return Info(kind_).cls; }
int DType::bits() const { return Info(kind_).bits; }

std::string DType::ToString() const {
  if (lanes_ == 1) return Info(kind_).text;
  return absl::StrCat(Info(kind_).text, "x", lanes_);
}

absl::StatusOr<DType> DType::Parse(absl::string_view text) {
  int lanes = 1;
  absl::string_view name = text;
  if (size_t x = text.rfind('x'); x != absl::string_view::npos && x > 0) {
    if (!absl::SimpleAtoi(text.substr(x + 1), &lanes) || lanes < 2 || lanes > 4096) {
      return absl::InvalidArgumentError(absl::StrCat("dtype: bad number of lanes in '", text, "'"));
    }
    name = text.substr(0, x);
  }
  for (int i = 0; i < static_cast<int>(std::size(kKinds)); ++i) {
    if (name == kKinds[i].text) return DType(static_cast<Kind>(i), lanes);
  }
  std::string known;
  for (const KindInfo& k : kKinds) absl::StrAppend(&known, known.empty() ? "" : ", ", k.text);
  return absl::InvalidArgumentError(
      absl::StrCat("dtype: there is no dtype '", text, "'; known are ", known));
}

DType Promote(DType a, DType b) {
  if (a == b) return a;
  const KindClass ca = a.kind_class(), cb = b.kind_class();
  if (ca == KindClass::kVoid || cb == KindClass::kVoid) return kVoid;
  if (ca < cb && (ca == KindClass::kBool || cb == KindClass::kFloat)) return b;
  if (cb < ca && (cb == KindClass::kBool || ca == KindClass::kFloat)) return a;
  if (ca == KindClass::kFloat) {
    if (a.bits() == b.bits()) return a.bits() == 8 ? kFloat16 : kFloat32;
    return a.bits() > b.bits() ? a : b;
  }
  if (ca == cb) return a.bits() > b.bits() ? a : b;
  const DType s = ca == KindClass::kInt ? a : b, u = ca == KindClass::kInt ? b : a;
  if (s.bits() > u.bits()) return s;
  switch (u.bits()) {
    case 8:
      return kInt16;
    case 16:
      return kInt32;
    case 32:
      return kInt64;
    default:
      return kFloat32;
  }
}

DType PromoteWeak(DType tensor, KindClass cls) {
  const KindClass own = tensor.kind_class();
  if (cls == KindClass::kBool) return tensor;
  if (cls == KindClass::kFloat) return own == KindClass::kFloat ? tensor : kFloat32;
  return own == KindClass::kBool ? kInt32 : tensor;
}

int DigitsOf(DType t) { return t.kind() == Kind::kF64 ? 53 : FormatOf(t.kind()).mantissa_bits + 1; }

double LargestFinite(DType t) {
  if (t.kind() == Kind::kF64) return std::numeric_limits<double>::max();
  return FormatOf(t.kind()).Largest();
}

DType SumType(DType t) {
  if (t.IsBool()) return kInt32;
  if (t.kind_class() == KindClass::kInt && t.bits() < 32) return kInt32;
  if (t.kind_class() == KindClass::kUint && t.bits() < 32) return kUInt32;
  return t;
}

DType AccumulateType(DType t) { return t.IsFloat() && t.bits() < 32 ? kFloat32 : t; }

DType UnsignedOf(DType t) {
  const int bits = t.bits();
  return bits == 8 ? kUInt8 : bits == 16 ? kUInt16 : bits == 32 ? kUInt32 : kUInt64;
}

DType SignedOf(DType t) {
  const int bits = t.bits();
  return bits == 8 ? kInt8 : bits == 16 ? kInt16 : bits == 32 ? kInt32 : kInt64;
}

Scalar Scalar::Float(double v) { return {std::bit_cast<uint64_t>(v)}; }
double Scalar::AsFloat() const { return std::bit_cast<double>(bits); }

Scalar Convert(Scalar v, DType from, DType to) {
  if (to.IsFloat()) {
    double d = from.IsFloat()              ? v.AsFloat()
               : from.kind() == Kind::kU64 ? static_cast<double>(v.bits)
                                           : static_cast<double>(v.AsInt());
    if (to.kind() == Kind::kF64) return Scalar::Float(d);
    // Straight to f32: a 64-bit integer must not be rounded to a double first.
    float f = static_cast<float>(d);
    if (from.kind() == Kind::kU64) f = static_cast<float>(v.bits);
    if (from.kind() == Kind::kI64) f = static_cast<float>(v.AsInt());
    if (to.kind() == Kind::kF32) return Scalar::Float(f);
    return Scalar::Float(RoundToFormat(f, FormatOf(to.kind())));
  }
  if (to.IsBool()) {
    const bool b = from.IsFloat() ? v.AsFloat() != 0 : v.bits != 0;  // NaN is true
    return Scalar::Int(b);
  }
  if (from.IsFloat()) return FloatToInt(v.AsFloat(), to);
  return Scalar::Int(WrapInt(v.bits, to));
}

Scalar LoadScalar(const void* p, DType t) {
  auto read = [p]<typename T>(T) {
    T v;
    std::memcpy(&v, p, sizeof(T));
    return v;
  };
  switch (t.kind()) {
    case Kind::kVoid:
      return {};
    case Kind::kBool:
      return Scalar::Int(read(uint8_t{}) != 0);
    case Kind::kI8:
      return Scalar::Int(read(int8_t{}));
    case Kind::kI16:
      return Scalar::Int(read(int16_t{}));
    case Kind::kI32:
      return Scalar::Int(read(int32_t{}));
    case Kind::kI64:
      return Scalar::Int(read(int64_t{}));
    case Kind::kU8:
      return Scalar::Int(read(uint8_t{}));
    case Kind::kU16:
      return Scalar::Int(read(uint16_t{}));
    case Kind::kU32:
      return Scalar::Int(read(uint32_t{}));
    case Kind::kU64:
      return {read(uint64_t{})};
    case Kind::kF8E4M3:
    case Kind::kF8E5M2:
      return Scalar::Float(DecodeNarrow(read(uint8_t{}), FormatOf(t.kind())));
    case Kind::kF16:
    case Kind::kBF16:
      return Scalar::Float(DecodeNarrow(read(uint16_t{}), FormatOf(t.kind())));
    case Kind::kF32:
      return Scalar::Float(read(float{}));
    case Kind::kF64:
      return Scalar::Float(read(double{}));
  }
  return {};
}

void StoreScalar(void* p, DType t, Scalar v) {
  auto write = [p](auto x) { std::memcpy(p, &x, sizeof(x)); };
  switch (t.kind()) {
    case Kind::kVoid:
      return;
    case Kind::kBool:
      return write(static_cast<uint8_t>(v.bits != 0));
    case Kind::kI8:
    case Kind::kU8:
      return write(static_cast<uint8_t>(v.bits));
    case Kind::kI16:
    case Kind::kU16:
      return write(static_cast<uint16_t>(v.bits));
    case Kind::kI32:
    case Kind::kU32:
      return write(static_cast<uint32_t>(v.bits));
    case Kind::kI64:
    case Kind::kU64:
      return write(v.bits);
    case Kind::kF8E4M3:
    case Kind::kF8E5M2:
      return write(static_cast<uint8_t>(EncodeNarrow(v.AsFloat(), FormatOf(t.kind()))));
    case Kind::kF16:
    case Kind::kBF16:
      return write(static_cast<uint16_t>(EncodeNarrow(v.AsFloat(), FormatOf(t.kind()))));
    case Kind::kF32:
      return write(static_cast<float>(v.AsFloat()));
    case Kind::kF64:
      return write(v.AsFloat());
  }
}

int64_t MinInt(DType t) {
  if (t.kind_class() != KindClass::kInt) return 0;
  return std::numeric_limits<int64_t>::min() >> (64 - t.bits());
}

int64_t MaxInt(DType t) {
  if (t.IsBool()) return 1;
  if (t.kind() == Kind::kU64) return std::numeric_limits<int64_t>::max();
  const int value_bits = t.kind_class() == KindClass::kInt ? t.bits() - 1 : t.bits();
  return static_cast<int64_t>(~uint64_t{0} >> (64 - value_bits));
}

Scalar LowestScalar(DType t) {
  if (t.IsFloat()) {
    return Scalar::Float(t.kind() == Kind::kF8E4M3 ? -448.0
                                                   : -std::numeric_limits<double>::infinity());
  }
  return Scalar::Int(MinInt(t));
}

Scalar HighestScalar(DType t) {
  if (t.IsFloat()) {
    return Scalar::Float(t.kind() == Kind::kF8E4M3 ? 448.0
                                                   : std::numeric_limits<double>::infinity());
  }
  if (t.kind() == Kind::kU64) return {~uint64_t{0}};
  return Scalar::Int(MaxInt(t));
}

std::string ScalarToString(Scalar v, DType t) {
  if (t.IsBool()) return v.bits ? "true" : "false";
  if (t.kind() == Kind::kU64) return absl::StrCat(v.bits);
  if (!t.IsFloat()) return absl::StrCat(v.AsInt());
  const double d = v.AsFloat();
  if (std::isnan(d)) return std::signbit(d) ? "-nan" : "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  for (int digits : {6, 9, 17}) {
    std::string s = absl::StrFormat("%.*g", digits, d);
    if (double back; absl::SimpleAtod(s, &back) && back == d) {
      if (s.find_first_of(".e") == std::string::npos) s += ".0";
      return s;
    }
  }
  return absl::StrFormat("%a", d);
}

absl::StatusOr<Scalar> ParseScalar(absl::string_view text, DType t) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("const: '", text, "' is no value of ", t.ToString()));
  };
  if (t.IsBool()) {
    if (text == "true") return Scalar::Int(1);
    if (text == "false") return Scalar::Int(0);
    return bad();
  }
  if (t.IsFloat()) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    if (text == "nan") return Scalar::Float(nan);
    if (text == "-nan") return Scalar::Float(-nan);
    if (text == "inf" || text == "-inf") {
      const double inf = std::numeric_limits<double>::infinity();
      const Scalar s = Scalar::Float(text[0] == '-' ? -inf : inf);
      return Convert(s, kFloat64, t) == s ? absl::StatusOr<Scalar>(s) : bad();
    }
    // Decimal digits, and a number that there is.
    double d;
    if (text.find_first_not_of("0123456789.eE+-") != absl::string_view::npos ||
        !absl::SimpleAtod(text, &d) || std::isinf(d)) {
      return bad();
    }
    const Scalar s = Scalar::Float(d);
    const Scalar rounded = Convert(s, kFloat64, t);
    if (!(rounded == s)) return bad();
    return s;
  }
  if (t.kind() == Kind::kU64) {
    uint64_t u;
    if (!absl::SimpleAtoi(text, &u)) return bad();
    return Scalar{u};
  }
  int64_t i;
  if (!absl::SimpleAtoi(text, &i) || i < MinInt(t) || i > MaxInt(t)) return bad();
  return Scalar::Int(i);
}

}  // namespace tessera
