// Filters of numbers, and those that make them of texts, by their names; or nullptr.
#pragma once

#include "absl/strings/string_view.h"
#include "examples/llm/jinja_value.h"

namespace tessera::llm::jinja::numbers {

Builtin Filter(absl::string_view name);

}  // namespace tessera::llm::jinja::numbers
