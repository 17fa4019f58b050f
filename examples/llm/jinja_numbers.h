// Filters of numbers, and those that make them of texts.
#pragma once

#include "examples/llm/jinja_value.h"

namespace tessera::llm::jinja::numbers {

Value ToInt(Heap& heap, const Arguments& a);
Value ToFloat(Heap& heap, const Arguments& a);
Value Abs(Heap& heap, const Arguments& a);
Value Round(Heap& heap, const Arguments& a);

}  // namespace tessera::llm::jinja::numbers
