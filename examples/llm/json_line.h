// JSON objects on a line, written key by key.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera::llm {

// "text" as a JSON string; bytes that are no UTF-8 as U+FFFD.
std::string JsonString(absl::string_view text);

class JsonLine {
 public:
  JsonLine& Text(const char* key, absl::string_view value);
  JsonLine& Count(const char* key, int64_t value);
  JsonLine& Flag(const char* key, bool value);
  // With so many digits after the point; null where it is not finite, which JSON has no word for.
  JsonLine& Number(const char* key, double value, int digits = 2);
  JsonLine& Ids(const char* key, absl::Span<const int32_t> values);
  // What is JSON already: an object within, a list, null.
  JsonLine& Raw(const char* key, absl::string_view json) { return Add(key, json); }
  std::string str() const;  // {...}
  // Writes {...} and a line's end to stdout.
  void Print() const;

 private:
  JsonLine& Add(const char* key, absl::string_view value);
  std::string text_;
};

// [...] of what is JSON already.
std::string JsonList(absl::Span<const std::string> values);

}  // namespace tessera::llm
