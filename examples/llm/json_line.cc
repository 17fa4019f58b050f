// JSON as text.
#include "examples/llm/json_line.h"

#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "examples/llm/tokenizer.h"

namespace tessera::llm {

std::string JsonString(absl::string_view text) {
  Utf8Stream stream;
  std::string characters = stream.Push(text), out = "\"";
  characters += stream.Finish();
  for (char c : characters) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint8_t>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

JsonLine& JsonLine::Add(const char* key, absl::string_view value) {
  absl::StrAppend(&text_, text_.empty() ? "" : ",", "\"", key, "\":", value);
  return *this;
}

JsonLine& JsonLine::Text(const char* key, absl::string_view value) {
  return Add(key, JsonString(value));
}
JsonLine& JsonLine::Count(const char* key, int64_t value) { return Add(key, absl::StrCat(value)); }
JsonLine& JsonLine::Flag(const char* key, bool value) { return Add(key, value ? "true" : "false"); }
JsonLine& JsonLine::Number(const char* key, double value, int digits) {
  return Add(key, std::isfinite(value) ? absl::StrFormat("%.*f", digits, value) : "null");
}
JsonLine& JsonLine::Ids(const char* key, absl::Span<const int32_t> values) {
  return Add(key, absl::StrCat("[", absl::StrJoin(values, ","), "]"));
}

std::string JsonLine::str() const { return absl::StrCat("{", text_, "}"); }

void JsonLine::Print() const {
  std::printf("{%s}\n", text_.c_str());
  std::fflush(stdout);
}

std::string JsonList(absl::Span<const std::string> values) {
  return absl::StrCat("[", absl::StrJoin(values, ","), "]");
}

}  // namespace tessera::llm
