// Elementwise ops on known values, from the value column of the op table.
#include "graph/fold.h"

#include <bit>
#include <cmath>

#include "graph/scalar_math.h"
#include "graph/status.h"

namespace tessera {
namespace {

template <typename T>
T Read(Scalar s) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(s.AsFloat());
  else
    return static_cast<T>(s.bits);
}

template <typename T>
Scalar Write(T v, DType to) {
  if constexpr (std::is_floating_point_v<T>)
    return Convert(Scalar::Float(v), kFloat64, to);
  else
    return Convert(Scalar{static_cast<uint64_t>(v)}, kInt64, to);
}

template <typename T, typename Fn>
void Loop(DType result, absl::Span<const ScalarSource> srcs, absl::Span<Scalar> out, Fn fn) {
  const Scalar zero;
  ScalarSource s[3] = {{&zero, 0}, {&zero, 0}, {&zero, 0}};
  for (size_t i = 0; i < srcs.size(); ++i) s[i] = srcs[i];
  for (size_t i = 0; i < out.size(); ++i) {
    const auto at = [i](const ScalarSource& x) { return Read<T>(x.data[x.step * i]); };
    const T v = fn(at(s[0]), at(s[1]), at(s[2]));
    // A comparison of floats gives 0 or 1 as an integer.
    out[i] = result.IsFloat() ? Write<T>(v, result) : Write(static_cast<uint64_t>(v), result);
  }
}

// T is double, int64_t or uint64_t; float only for FMA, which a double would round twice.
template <typename T>
void Rows(Op op, DType result, int bits, absl::Span<const ScalarSource> srcs,
          absl::Span<Scalar> out) {
  switch (op) {
#define EW(name, text, arity, type, props, ctext, value, comment)                               \
  case Op::k##name:                                                                             \
    return Loop<T>(result, srcs, out,                                                           \
                   [=]([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c) -> T { \
                     return static_cast<T>(value);                                              \
                   });
#define OP(name, text, ...) case Op::k##name:
#include "graph/ops.def"
    break;
  }
  CHECK(false, Info(op).text, " is not elementwise");
}

uint64_t BitsOf(Scalar s, DType t) {
  uint64_t raw = 0;
  StoreScalar(&raw, t, s);
  return raw;
}

}  // namespace

void EvaluateElementwise(Op op, DType result, DType operand, absl::Span<const ScalarSource> srcs,
                         absl::Span<Scalar> out) {
  CHECK(srcs.size() == static_cast<size_t>(Info(op).arity));
  const auto at = [&](int src, size_t i) { return srcs[src].data[srcs[src].step * i]; };
  if (op == Op::kCast) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = Convert(at(0, i), operand, result);
  } else if (op == Op::kBitcast) {
    for (size_t i = 0; i < out.size(); ++i) {
      const uint64_t raw = BitsOf(at(0, i), operand);
      out[i] = LoadScalar(&raw, result);
    }
  } else if (op == Op::kWhere) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = at(0, i).bits ? at(1, i) : at(2, i);
  } else if (op == Op::kFma && operand.bits() < 64) {
    Rows<float>(op, result, operand.bits(), srcs, out);
  } else if (operand.IsFloat()) {
    Rows<double>(op, result, operand.bits(), srcs, out);
  } else if (operand.IsUnsigned()) {
    Rows<uint64_t>(op, result, operand.bits(), srcs, out);
  } else {
    Rows<int64_t>(op, result, operand.bits(), srcs, out);
  }
}

Scalar EvaluateScalarOp(Op op, DType result, DType operand, absl::Span<const Scalar> args) {
  ScalarSource srcs[3];
  for (size_t i = 0; i < args.size(); ++i) srcs[i] = {&args[i], 0};
  Scalar out;
  EvaluateElementwise(op, result, operand, absl::MakeConstSpan(srcs, args.size()),
                      absl::MakeSpan(&out, 1));
  return out;
}

Scalar ReduceIdentity(Op op, DType dtype) {
  switch (op) {
    case Op::kMax:
      return LowestScalar(dtype);
    case Op::kMin:
      return HighestScalar(dtype);
    case Op::kMul:
      return dtype.IsFloat() ? Scalar::Float(1) : Scalar::Int(1);
    case Op::kAnd:
      return Convert(Scalar::Int(-1), kInt64, dtype);
    default:
      return {};  // the bits of zero
  }
}

}  // namespace tessera
