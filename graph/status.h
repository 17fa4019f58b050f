// Status macros and the CHECK family: what a user can cause is a Status, what only a bug can cause
// is a CHECK.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define TS_CONCAT_INNER(a, b) a##b
#define TS_CONCAT(a, b) TS_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                                               \
  do {                                                                      \
    if (absl::Status ts_status = (expr); !ts_status.ok()) return ts_status; \
  } while (0)

#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_IMPL(TS_CONCAT(ts_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr)    \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = *std::move(tmp)

namespace tessera::internal {
[[noreturn]] inline void CheckFailed(const char* file, int line, const char* what,
                                     const std::string& detail) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s %s\n", file, line, what, detail.c_str());
  std::abort();
}
}  // namespace tessera::internal

// CHECK(cond, parts...) aborts with the parts joined as text; it is never compiled out.
#define CHECK(cond, ...)         \
  (__builtin_expect(!!(cond), 1) \
       ? (void)0                 \
       : ::tessera::internal::CheckFailed(__FILE__, __LINE__, #cond, absl::StrCat(__VA_ARGS__)))
