// The functions outside itself that a kernel may call: the loader knows no others.
#include <cmath>
#include <cstring>

#include "runtime/elf_loader.h"

// The compiler's own helpers, in every libgcc and compiler-rt; declared by name, never called here.
extern "C" {
#if defined(__SIZEOF_INT128__)
__int128 __divti3(__int128, __int128);
__int128 __modti3(__int128, __int128);
unsigned __int128 __udivti3(unsigned __int128, unsigned __int128);
unsigned __int128 __umodti3(unsigned __int128, unsigned __int128);
#endif
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12
#define TESSERA_HALF_HELPERS 1
void __truncdfhf2();  // their types have no name in C++ yet
void __truncsfhf2();
void __extendhfsf2();
#endif
}

namespace tessera {
namespace {

template <typename Fn>
void* Address(Fn* fn) {
  return reinterpret_cast<void*>(fn);
}

using F1 = float(float);
using F2 = float(float, float);
using F3 = float(float, float, float);
using D1 = double(double);
using D2 = double(double, double);
using D3 = double(double, double, double);

struct Row {
  const char* name;
  void* address;
};

// Both widths of a function of one argument, and of two.
#define ROWS1(fn) \
  {#fn "f", Address<F1>(::fn##f)}, { #fn, Address < D1>(::fn) }
#define ROWS2(fn) \
  {#fn "f", Address<F2>(::fn##f)}, { #fn, Address < D2>(::fn) }

const Row kRows[] = {
    ROWS1(exp),
    ROWS1(exp2),
    ROWS1(expm1),
    ROWS1(log),
    ROWS1(log2),
    ROWS1(log10),
    ROWS1(log1p),
    ROWS1(sin),
    ROWS1(cos),
    ROWS1(tan),
    ROWS1(asin),
    ROWS1(acos),
    ROWS1(atan),
    ROWS1(sinh),
    ROWS1(cosh),
    ROWS1(tanh),
    ROWS1(asinh),
    ROWS1(acosh),
    ROWS1(atanh),
    ROWS1(sqrt),
    ROWS1(cbrt),
    ROWS1(erf),
    ROWS1(erfc),
    ROWS1(tgamma),
    ROWS1(lgamma),
    ROWS1(floor),
    ROWS1(ceil),
    ROWS1(trunc),
    ROWS1(round),
    ROWS1(rint),
    ROWS1(nearbyint),
    ROWS1(fabs),
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 25)
    ROWS1(roundeven),
#endif
    ROWS2(pow),
    ROWS2(fmod),
    ROWS2(atan2),
    ROWS2(fmin),
    ROWS2(fmax),
    ROWS2(hypot),
    ROWS2(remainder),
    ROWS2(copysign),
    ROWS2(nextafter),
    {"fmaf", Address<F3>(::fmaf)},
    {"fma", Address<D3>(::fma)},
    {"ldexpf", Address<float(float, int)>(::ldexpf)},
    {"ldexp", Address<double(double, int)>(::ldexp)},
    {"memcpy", Address<void*(void*, const void*, size_t)>(std::memcpy)},
    {"memmove", Address<void*(void*, const void*, size_t)>(std::memmove)},
    {"memset", Address<void*(void*, int, size_t)>(std::memset)},
    {"memcmp", Address<int(const void*, const void*, size_t)>(std::memcmp)},
#if defined(__SIZEOF_INT128__)
    {"__divti3", Address(__divti3)},
    {"__modti3", Address(__modti3)},
    {"__udivti3", Address(__udivti3)},
    {"__umodti3", Address(__umodti3)},
#endif
#if defined(TESSERA_HALF_HELPERS)
    {"__truncdfhf2", Address(__truncdfhf2)},
    {"__truncsfhf2", Address(__truncsfhf2)},
    {"__extendhfsf2", Address(__extendhfsf2)},
#endif
};

#undef ROWS1
#undef ROWS2

}  // namespace

void* FindExternal(absl::string_view name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.address;
  }
  return nullptr;
}

}  // namespace tessera
