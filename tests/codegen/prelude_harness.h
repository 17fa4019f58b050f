// Runs an expression over the CPU prelude on arrays: compiled as a kernel, scalar and in lanes.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/prelude.h"
#include "graph/dtype.h"
#include "runtime/host_target.h"
#include "runtime/jit.h"
#include "tests/testing.h"

namespace tessera {

// One expression over $0, $1, $2 of these dtypes, and the dtype that its value is stored as.
struct PreludeCase {
  std::string expression;
  std::vector<DType> operands;
  DType result;
};

// Raw elements of one dtype.
struct Elements {
  DType dtype;
  std::vector<char> bytes;
  int64_t size() const { return bytes.size() / dtype.bytes(); }
  Scalar at(int64_t i) const { return LoadScalar(bytes.data() + i * dtype.bytes(), dtype); }
  uint64_t raw(int64_t i) const {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * dtype.bytes(), dtype.bytes());
    return bits;
  }
  void Push(uint64_t raw) {
    const char* p = reinterpret_cast<const char*>(&raw);
    bytes.insert(bytes.end(), p, p + dtype.bytes());
  }
};

inline std::string PreludeType(DType t) { return absl::StrCat("rt_", t.Scalar().ToString()); }

// One kernel for many cases, as compiling costs: case i runs where variable 1 is i. Variable 0 is
// the number of elements, a multiple of the lanes.
inline std::string PreludeKernel(const std::vector<PreludeCase>& cases, int lanes) {
  std::string body =
      "RT_KERNEL(test) {\n  const rt_i64 rt_n = rt_vars[0];\n  switch (rt_vars[1]) {\n";
  for (size_t c = 0; c < cases.size(); ++c) {
    std::string loads;
    const std::string to = PreludeType(cases[c].result);
    for (size_t k = 0; k < cases[c].operands.size(); ++k) {
      const std::string from = PreludeType(cases[c].operands[k]);
      const std::string array = absl::StrCat("(const ", from, "*)rt_buffers[", k, "]");
      absl::StrAppend(&loads, "      const ",
                      lanes == 1 ? from : absl::StrCat("rt_vec<", from, ", ", lanes, ">"), " v", k,
                      lanes == 1
                          ? absl::StrCat(" = (", array, ")[i];\n")
                          : absl::StrCat(" = rt_load<", from, ", ", lanes, ">(", array, ", i);\n"));
    }
    const std::string value =
        absl::StrReplaceAll(cases[c].expression, {{"$0", "v0"}, {"$1", "v1"}, {"$2", "v2"}});
    const std::string out = absl::StrCat("(", to, "*)rt_buffers[3]");
    absl::StrAppend(&body, "  case ", c, ":\n    for (rt_i64 i = 0; i < rt_n; i += ", lanes,
                    ") {\n", loads, "      ",
                    lanes == 1 ? absl::StrCat("(", out, ")[i] = ", value)
                               : absl::StrCat("rt_store<", lanes, ">(", out, ", i, ", value, ")"),
                    ";\n    }\n    break;\n");
  }
  absl::StrAppend(&body, "  }\n}\n");
  return absl::StrCat(PreludeFor(body), body);
}

// How a kernel is compiled: with that many lanes, for the host or for what most x86 chips have.
struct PreludeMode {
  int lanes;
  bool avx2 = false;
};
inline Target TargetOf(PreludeMode mode) {
  Target target = HostTarget();
  if (mode.avx2 && absl::StrContains(target.features, "+avx2")) {
    target.arch = "x86-64-v3";
    target.features.clear();
    target.vector_bytes = 32;
  }
  return target;
}

// The results of all cases over their operands, all of as many elements.
inline std::vector<Elements> RunPrelude(const std::vector<PreludeCase>& cases, PreludeMode mode,
                                        const std::vector<std::vector<Elements>>& operands) {
  const int lanes = mode.lanes;
  std::vector<Elements> results;
  auto kernel = GetKernel(PreludeKernel(cases, lanes), "test", TargetOf(mode));
  EXPECT_OK(kernel);
  if (!kernel.ok()) return results;
  for (size_t c = 0; c < cases.size(); ++c) {
    Elements out{cases[c].result, {}};
    const int64_t n = operands[c][0].size();
    EXPECT_EQ(n % lanes, 0);
    out.bytes.resize(n * out.dtype.bytes());
    void* buffers[4] = {nullptr, nullptr, nullptr, out.bytes.data()};
    for (size_t k = 0; k < operands[c].size(); ++k) {
      buffers[k] = const_cast<char*>(operands[c][k].bytes.data());
    }
    const int64_t vars[2] = {n, static_cast<int64_t>(c)};
    (*kernel)->fn(buffers, vars, nullptr, 0, 1);
    results.push_back(std::move(out));
  }
  return results;
}

// How many values of the dtype lie between two results, 0 for two NaNs. A NaN is far from numbers.
inline int64_t Distance(DType t, uint64_t a, uint64_t b) {
  if (a == b) return 0;
  if (!t.IsFloat()) return INT64_MAX;
  const Scalar sa = LoadScalar(&a, t), sb = LoadScalar(&b, t);
  const bool nan_a = sa.AsFloat() != sa.AsFloat(), nan_b = sb.AsFloat() != sb.AsFloat();
  if (nan_a || nan_b) return nan_a && nan_b ? 0 : INT64_MAX;
  const uint64_t sign = uint64_t{1} << (t.bits() - 1);
  if ((a ^ b) & sign) return INT64_MAX;  // +0 and -0 differ
  return a > b ? a - b : b - a;
}

// Expects each result to be within `tolerance` of the wanted one; reports the first few that are
// not.
inline void ExpectNear(const PreludeCase& test, PreludeMode mode,
                       const std::vector<Elements>& operands, const Elements& got,
                       const Elements& want, int64_t tolerance) {
  int64_t failures = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    if (Distance(want.dtype, got.raw(i), want.raw(i)) <= tolerance) continue;
    if (++failures > 3) continue;
    std::string args;
    for (const Elements& x : operands) {
      absl::StrAppend(&args, " ", ScalarToString(x.at(i), x.dtype), " (0x", absl::Hex(x.raw(i)),
                      ")");
    }
    ADD_FAILURE() << test.expression << " of" << args << " as " << test.operands[0].ToString()
                  << ", lanes " << mode.lanes << ": got " << ScalarToString(got.at(i), got.dtype)
                  << " (0x" << std::hex << got.raw(i) << "), want "
                  << ScalarToString(want.at(i), want.dtype) << " (0x" << want.raw(i) << ")";
  }
  EXPECT_EQ(failures, 0) << test.expression << " as " << test.operands[0].ToString();
}

}  // namespace tessera
