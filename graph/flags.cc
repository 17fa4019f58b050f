// Reading of the environment flags, the only place that calls getenv.
#include "graph/flags.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "graph/status.h"

namespace tessera {
namespace {

enum class FlagKind : uint8_t { kInt, kText };

struct Row {
  const char* name;
  FlagKind kind;
  const char* default_text;
  const char* meaning;
};

constexpr Row kRows[] = {
#define TESSERA_FLAG_ROW(id, name, kind, default_text, meaning) \
  {name, FlagKind::kind, default_text, meaning},
    TESSERA_FLAGS(TESSERA_FLAG_ROW)
#undef TESSERA_FLAG_ROW
};
constexpr int kCount = sizeof(kRows) / sizeof(kRows[0]);

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Values {
  std::mutex mutex;          // an absl::Mutex hides from the race detector
  std::string text[kCount];  // guarded by mutex
  std::atomic<int64_t> number[kCount];

  Values() {
    for (int i = 0; i < kCount; ++i) Set(i, Env(kRows[i].name));
  }

  // With the mutex held.
  void Set(int i, const std::string& value) {
    const Row& row = kRows[i];
    text[i] = value.empty() ? row.default_text : value;
    int64_t parsed = 0;
    const char* wrong = nullptr;
    if (row.kind == FlagKind::kInt) {
      if (!absl::SimpleAtoi(text[i], &parsed)) wrong = "is not an integer";
      if (parsed < 0 && text[i] != row.default_text) wrong = "is below 0";
    }
    if (wrong != nullptr) {
      std::fprintf(stderr, "tessera: %s=%s %s; taking %s\n", row.name, text[i].c_str(), wrong,
                   row.default_text);
      text[i] = row.default_text;
      CHECK(absl::SimpleAtoi(text[i], &parsed), row.name);
    }
    if (row.kind == FlagKind::kText && text[i] == "0") text[i].clear();
    number[i].store(parsed, std::memory_order_relaxed);
  }
};

// Leaked: other threads may ask while the process exits.
Values& GetValues() {
  static Values* const values = new Values;
  return *values;
}

}  // namespace

int64_t IntFlag(Flag flag) {
  const int i = static_cast<int>(flag);
  CHECK(kRows[i].kind == FlagKind::kInt, kRows[i].name);
  return GetValues().number[i].load(std::memory_order_relaxed);
}

std::string TextFlag(Flag flag) {
  const int i = static_cast<int>(flag);
  CHECK(kRows[i].kind == FlagKind::kText, kRows[i].name);
  Values& values = GetValues();
  std::lock_guard<std::mutex> lock(values.mutex);
  return values.text[i];
}

std::string CacheRoot() {
  std::string dir = TextFlag(Flag::kCacheDir);
  if (!dir.empty()) return dir;
  if (dir = Env("XDG_CACHE_HOME"); !dir.empty()) return dir + "/tessera";
  if (dir = Env("HOME"); !dir.empty()) return dir + "/.cache/tessera";
  return "";
}

std::string SearchPath() { return Env("PATH"); }

std::string FlagHelp() {
  std::string out;
  for (const Row& row : kRows) {
    std::string value = absl::StrCat(row.name, "=", row.default_text);
    value.resize(std::max<size_t>(value.size(), 14), ' ');
    absl::StrAppend(&out, "  ", value, " ", row.meaning, "\n");
  }
  return out;
}

SetFlagForTest::SetFlagForTest(Flag flag, const std::string& value) : flag_(flag) {
  Values& values = GetValues();
  std::lock_guard<std::mutex> lock(values.mutex);
  before_ = values.text[static_cast<int>(flag)];
  values.Set(static_cast<int>(flag), value);
}

SetFlagForTest::~SetFlagForTest() {
  Values& values = GetValues();
  std::lock_guard<std::mutex> lock(values.mutex);
  values.Set(static_cast<int>(flag_), before_);
}

}  // namespace tessera
