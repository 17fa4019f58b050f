// GoogleTest with matchers and macros for absl::Status and StatusOr, which older abseils lack.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/error.h"
#include "graph/status.h"

namespace tessera {
namespace internal {
inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}
}  // namespace internal

// A folder of this process alone, gone when it ends: tests run beside one another.
inline const std::string& OwnTempDir() {
  struct Folder {
    std::string path = ::testing::TempDir() + "/tessera_test_XXXXXX";
    Folder() {
      if (mkdtemp(path.data()) == nullptr) std::abort();
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

// The message of the Error that fn throws; empty if it throws none.
template <typename Fn>
std::string ErrorOf(Fn fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Whether a Status or StatusOr is OK.
inline testing::AssertionResult Succeeds(const char* text, const absl::Status& status) {
  if (status.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << text << " is " << status;
}
template <typename T>
testing::AssertionResult Succeeds(const char* text, const absl::StatusOr<T>& value) {
  return Succeeds(text, value.status());
}

// Matches an OK StatusOr whose value matches `inner` (a value or a matcher).
MATCHER_P(IsOkAndHolds, inner, "is OK and holds a matching value") {
  if (!arg.ok()) {
    *result_listener << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(inner, *arg, result_listener);
}

// Matches an error of this code whose message contains `part`.
MATCHER_P2(StatusIs, code, part, "is an error with that code and message") {
  const absl::Status& status = internal::StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code && std::string(status.message()).find(part) != std::string::npos;
}
}  // namespace tessera

#define EXPECT_OK(expr) EXPECT_PRED_FORMAT1(::tessera::Succeeds, (expr))
#define ASSERT_OK(expr) ASSERT_PRED_FORMAT1(::tessera::Succeeds, (expr))

// ASSERT_OK_AND_ASSIGN(auto value, StatusOrExpr()): the value, or a fatal failure with the status.
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL(TS_CONCAT(ts_or_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL(tmp, lhs, expr)         \
  auto tmp = (expr);                                      \
  ASSERT_TRUE(tmp.ok()) << #expr << ": " << tmp.status(); \
  lhs = *std::move(tmp)
