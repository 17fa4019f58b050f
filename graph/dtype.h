// Element types: their table, promotion, and exact conversion of single values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// One row a type: X(enumerator, text, bits, class). The classes order promotion.
#define TESSERA_DTYPES(X)       \
  X(Void, "void", 0, Void)      \
  X(Bool, "bool", 8, Bool)      \
  X(I8, "i8", 8, Int)           \
  X(I16, "i16", 16, Int)        \
  X(I32, "i32", 32, Int)        \
  X(I64, "i64", 64, Int)        \
  X(U8, "u8", 8, Uint)          \
  X(U16, "u16", 16, Uint)       \
  X(U32, "u32", 32, Uint)       \
  X(U64, "u64", 64, Uint)       \
  X(F8E4M3, "f8e4m3", 8, Float) \
  X(F8E5M2, "f8e5m2", 8, Float) \
  X(F16, "f16", 16, Float)      \
  X(BF16, "bf16", 16, Float)    \
  X(F32, "f32", 32, Float)      \
  X(F64, "f64", 64, Float)

enum class Kind : uint8_t {
#define X(name, text, bits, cls) k##name,
  TESSERA_DTYPES(X)
#undef X
};

enum class KindClass : uint8_t { kVoid, kBool, kInt, kUint, kFloat };

// An element type, with a number of lanes: 1 in tensors and kernel graphs, more in programs.
class DType {
 public:
  constexpr DType() = default;
  constexpr DType(Kind kind, int lanes = 1) : kind_(kind), lanes_(static_cast<uint16_t>(lanes)) {}

  constexpr Kind kind() const { return kind_; }
  constexpr int lanes() const { return lanes_; }
  constexpr DType Scalar() const { return DType(kind_); }
  constexpr DType WithLanes(int lanes) const { return DType(kind_, lanes); }
  KindClass kind_class() const;
  int bits() const;                         // of one lane
  int bytes() const { return bits() / 8; }  // of one lane
  bool IsFloat() const { return kind_class() == KindClass::kFloat; }
  bool IsInt() const { return kind_class() == KindClass::kInt || kind_class() == KindClass::kUint; }
  bool IsUnsigned() const { return kind_class() == KindClass::kUint; }
  bool IsBool() const { return kind_ == Kind::kBool; }
  bool IsVoid() const { return kind_ == Kind::kVoid; }

  // "f32", or "f32x16" with lanes.
  std::string ToString() const;
  static absl::StatusOr<DType> Parse(absl::string_view text);

  friend constexpr bool operator==(DType a, DType b) {
    return a.kind_ == b.kind_ && a.lanes_ == b.lanes_;
  }
  template <typename H>
  friend H AbslHashValue(H h, DType d) {
    return H::combine(std::move(h), d.kind_, d.lanes_);
  }

 private:
  Kind kind_ = Kind::kVoid;
  uint16_t lanes_ = 1;
};

inline constexpr DType kVoid{Kind::kVoid}, kBool{Kind::kBool};
inline constexpr DType kInt8{Kind::kI8}, kInt16{Kind::kI16}, kInt32{Kind::kI32}, kInt64{Kind::kI64};
inline constexpr DType kUInt8{Kind::kU8}, kUInt16{Kind::kU16}, kUInt32{Kind::kU32},
    kUInt64{Kind::kU64};
inline constexpr DType kFloat8E4M3{Kind::kF8E4M3}, kFloat8E5M2{Kind::kF8E5M2};
inline constexpr DType kFloat16{Kind::kF16}, kBFloat16{Kind::kBF16}, kFloat32{Kind::kF32},
    kFloat64{Kind::kF64};

// The type both operands of a binary op are cast to. bool < integers < floats; a signed and an
// unsigned integer meet in the next wider signed one (i64 with u64 in f32, as JAX has it); the two
// fp8 kinds meet in f16, f16 and bf16 in f32.
DType Promote(DType a, DType b);

// The type of a weak scalar (a C++ literal) of class `cls` beside a tensor of type `tensor`: the
// tensor's own where its class holds the scalar, else i32 or f32.
DType PromoteWeak(DType tensor, KindClass cls);

// The type sums and products of `t` are accumulated and returned in: bool and narrow integers in
// i32 or u32, floats in their own type (kernels accumulate f16, bf16 and fp8 in f32).
DType SumType(DType t);
// The type kernels accumulate in.
DType AccumulateType(DType t);
// The integer types of the same width.
DType UnsignedOf(DType t);
DType SignedOf(DType t);

// One value of any type, as bits: integers and bools sign- or zero-extended to 64 bits, floats as
// the bits of a double (every narrower float is exact in it).
struct Scalar {
  uint64_t bits = 0;
  static Scalar Int(int64_t v) { return {static_cast<uint64_t>(v)}; }
  static Scalar Float(double v);
  int64_t AsInt() const { return static_cast<int64_t>(bits); }
  double AsFloat() const;
  friend bool operator==(Scalar a, Scalar b) { return a.bits == b.bits; }
};

// Converts as a CAST op does: to bool by != 0; float to integer truncates, saturates and maps NaN
// to 0; integers wrap; floats round to nearest even, to types narrower than f32 by way of f32 (fp8
// e4m3 overflow gives NaN, as it has no infinity; e5m2, f16 and bf16 overflow to infinity).
Scalar Convert(Scalar v, DType from, DType to);

// Reads and writes one element in memory.
Scalar LoadScalar(const void* p, DType t);
void StoreScalar(void* p, DType t, Scalar v);

// Lowest and highest value of an integer or bool type, as i64 (u64's highest saturates).
int64_t MinInt(DType t);
int64_t MaxInt(DType t);
// Of a float type: its digits in base 2, the leading one included, and its largest finite number.
int DigitsOf(DType t);
double LargestFinite(DType t);
// The identity of max and of min: -inf and inf for floats, the limits for integers.
Scalar LowestScalar(DType t);
Scalar HighestScalar(DType t);

// Text of a value of type t that parses back to the same bits ("nan", "-inf", "1.5", "true").
std::string ScalarToString(Scalar v, DType t);
absl::StatusOr<Scalar> ParseScalar(absl::string_view text, DType t);

}  // namespace tessera
