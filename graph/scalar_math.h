// The arithmetic of the op table on single values, for the reference evaluator and constant
// folding.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tessera::ev {

// Integers are computed modulo 2^64 and wrapped to the dtype by the caller.
template <typename T>
constexpr bool kIsFloat = std::is_floating_point_v<T>;

template <typename T>
T Add(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a + b;
  else
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <typename T>
T Sub(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a - b;
  else
    return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
template <typename T>
T Mul(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a * b;
  else
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
template <typename T>
T Neg(T a) {
  if constexpr (kIsFloat<T>)
    return -a;
  else
    return Sub<T>(0, a);
}
template <typename T>
T Abs(T a) {
  if constexpr (kIsFloat<T>)
    return std::fabs(a);
  else if constexpr (std::is_signed_v<T>)
    return a < 0 ? Neg(a) : a;
  else
    return a;
}
template <typename T>
T TruncDiv(T a, T b) {
  if constexpr (kIsFloat<T>)
    return std::trunc(a / b);
  else if (b == 0)
    return 0;
  else if (std::is_signed_v<T> && b == static_cast<T>(-1))
    return Neg(a);
  else
    return a / b;
}
template <typename T>
T TruncMod(T a, T b) {
  if constexpr (kIsFloat<T>)
    return std::fmod(a, b);
  else if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1)))
    return 0;
  else
    return a % b;
}
template <typename T>
T FloorDiv(T a, T b) {
  if constexpr (kIsFloat<T>)
    return std::floor(a / b);
  else {
    const T q = TruncDiv(a, b);
    return b != 0 && TruncMod(a, b) != 0 && (a < 0) != (b < 0) ? q - 1 : q;
  }
}
template <typename T>
T FloorMod(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a - std::floor(a / b) * b;
  else {
    const T r = TruncMod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? Add(r, b) : r;
  }
}
template <typename T>
T Max(T a, T b) {
  if constexpr (kIsFloat<T>) {
    if (a != a || b != b) return a + b;
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a > b ? a : b;
}
template <typename T>
T Min(T a, T b) {
  if constexpr (kIsFloat<T>) {
    if (a != a || b != b) return a + b;
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}
template <typename T>
T Pow(T a, T b) {
  if constexpr (kIsFloat<T>)
    return std::pow(a, b);
  else {
    if (std::is_signed_v<T> && b < 0) {  // 1 / a^|b|, truncated
      if (a == 1) return 1;
      if (a == static_cast<T>(-1)) return b % 2 == 0 ? 1 : static_cast<T>(-1);
      return 0;
    }
    T result = 1;
    for (; b != 0; b = static_cast<T>(static_cast<uint64_t>(b) >> 1), a = Mul(a, a)) {
      if (b & 1) result = Mul(result, a);
    }
    return result;
  }
}
template <typename T>
T And(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) & static_cast<uint64_t>(b));
}
template <typename T>
T Or(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) | static_cast<uint64_t>(b));
}
template <typename T>
T Xor(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) ^ static_cast<uint64_t>(b));
}
template <typename T>
T Shl(T a, T b, int bits) {
  const auto count = static_cast<uint64_t>(b);  // a negative count is a large one
  return count >= static_cast<uint64_t>(bits) ? 0
                                              : static_cast<T>(static_cast<uint64_t>(a) << count);
}
template <typename T>
T Shr(T a, T b, int bits) {
  const auto count = static_cast<uint64_t>(b);
  if constexpr (kIsFloat<T>)
    return a;
  else if (count >= static_cast<uint64_t>(bits))
    return a < 0 ? static_cast<T>(-1) : 0;
  else
    return a >> count;
}
template <typename T>
T Where(T a, T b, T c) {
  return a != 0 ? b : c;
}
template <typename T>
T Fma(T a, T b, T c) {
  if constexpr (kIsFloat<T>)
    return std::fma(a, b, c);
  else
    return Add(Mul(a, b), c);
}

// Threefry-2x32 with 20 rounds (Salmon et al., 2011); the low words of counter and key come first.
inline uint64_t Threefry2x32(uint64_t counter, uint64_t key) {
  const auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  const uint32_t keys[3] = {k0, k1, 0x1BD11BDAu ^ k0 ^ k1};
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  uint32_t x0 = static_cast<uint32_t>(counter) + keys[0];
  uint32_t x1 = static_cast<uint32_t>(counter >> 32) + keys[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (int r : kRotations[group % 2]) {
      x0 += x1;
      x1 = (x1 << r | x1 >> (32 - r)) ^ x0;
    }
    x0 += keys[(group + 1) % 3];
    x1 += keys[(group + 2) % 3] + group + 1;
  }
  return static_cast<uint64_t>(x1) << 32 | x0;
}
template <typename T>
T Threefry(T a, T b) {
  return static_cast<T>(Threefry2x32(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
}

}  // namespace tessera::ev
