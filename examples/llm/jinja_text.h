// Methods and filters of texts, which count characters, not bytes.
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

// A method by its name, or nullptr.
Builtin Method(absl::string_view name);

Value Strip(Heap& heap, const Arguments& a);
Value Lower(Heap& heap, const Arguments& a);
Value Upper(Heap& heap, const Arguments& a);
Value Capitalize(Heap& heap, const Arguments& a);
Value Title(Heap& heap, const Arguments& a);
Value Replace(Heap& heap, const Arguments& a);
Value JoinFilter(Heap& heap, const Arguments& a);  // of a list, by a text
Value Indent(Heap& heap, const Arguments& a);

}  // namespace texts
}  // namespace tessera::llm::jinja
