// Filters and methods of lists, dictionaries and loops, by their names; or nullptr.
#pragma once

#include "absl/strings/string_view.h"
#include "examples/llm/jinja_value.h"

namespace tessera::llm::jinja::lists {

Builtin Filter(absl::string_view name);
Builtin Method(Kind kind, absl::string_view name);  // of namespaces, those of loops

}  // namespace tessera::llm::jinja::lists
