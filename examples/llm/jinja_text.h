// Methods and filters of texts, which count characters, not bytes; each byte keeps whether it was
// said.
#pragma once

#include "absl/strings/string_view.h"
#include "examples/llm/jinja_value.h"

namespace tessera::llm::jinja {

int64_t LengthOf(Heap& heap, absl::string_view t);
List CharactersOf(Heap& heap, const Text& t);

// An argument by its place or its name; undefined where it is not given.
Value ArgumentAt(const Arguments& a, size_t at, absl::string_view name);
const Value* Named(const Arguments& a, absl::string_view name);

namespace texts {

// By their names, or nullptr: those here, and where a text is cut (jinja_text.cc), those of letters
// and lines (jinja_words.cc), and of fields that are filled (jinja_format.cc).
Builtin Method(absl::string_view name);
Builtin MethodOfWords(absl::string_view name);
Builtin MethodOfForms(absl::string_view name);
Builtin Filter(absl::string_view name);
Builtin FilterOfWords(absl::string_view name);
Builtin FilterOfForms(absl::string_view name);

// form % of: of a tuple each element, of a dictionary what a field names, of others the one.
Value Formatted(Heap& heap, const Text& form, const Value& of);

// Whether there are letters, and all are of this case.
bool AllOfCase(Heap& heap, absl::string_view text, bool lower);

// What is filtered, as a text; the same, to be gone through; and an argument that is a text.
const Text& Own(Heap& heap, const Arguments& a);
const Text& Whole(Heap& heap, const Arguments& a);
absl::string_view Word(Heap& heap, const List& all, size_t at);

}  // namespace texts
}  // namespace tessera::llm::jinja
