// Runs the tree of a template.
#pragma once

#include "examples/llm/jinja_parser.h"
#include "examples/llm/jinja_value.h"

namespace tessera::llm::jinja {

// What it writes where it sees these names; `line` is the last that ran. The heap says whether it
// failed.
Text Evaluate(Heap& heap, const Program& program, const Dict& names, int* line);

}  // namespace tessera::llm::jinja
