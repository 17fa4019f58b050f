// Grammars of single values that a JSON schema asks for, as GBNF, and what any JSON value is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/json.h"

namespace tessera::llm {

// The rules value, object, array, string, char, number, integer, boolean, null and ws, and key-char
// of keys whose form is the only one. White space is a space, or a line's end and what begins the
// next.
extern const char kJsonRules[];

// A text in quotes of a grammar.
std::string GrammarQuoted(absl::string_view text);
// A JSON string in the one form that our own rules write.
std::string JsonQuoted(absl::string_view text);
// A value as that alone, and the same without spaces, to compare.
std::string GrammarOfJson(const Json& value);
std::string CompactJson(const Json& value);

// Numbers from one bound to the other, which are whole; none: without end.
struct NumberBounds {
  std::optional<int64_t> least, most;
  bool above_least = false, below_most = false;  // not the bound itself
};
// An error where there is no such number.
absl::StatusOr<std::string> GrammarOfIntegers(const NumberBounds& bounds);
absl::StatusOr<std::string> GrammarOfNumbers(const NumberBounds& bounds);

// Strings that a regular expression matches anywhere, or from ^ and to $.
absl::StatusOr<std::string> GrammarOfPattern(absl::string_view pattern);

// Of a known format: its strings; none: another.
std::optional<std::string> GrammarOfFormat(absl::string_view format);

}  // namespace tessera::llm
