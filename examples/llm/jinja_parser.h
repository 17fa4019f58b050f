// A chat template as a tree: statements, and the expressions in them.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "examples/llm/jinja_value.h"

namespace tessera::llm::jinja {

enum class NodeKind : uint8_t {
  // Statements.
  kText,       // as it is
  kOutput,     // of
  kIf,         // of: body, otherwise
  kFor,        // of[0] in of[1], perhaps of those that of[2] holds for: body, otherwise
  kSet,        // of[0] to of[1]
  kSetBody,    // of[0] to the body, through the filter of[1]
  kMacro,      // text is its name, names are its parameters; those that have defaults named
  kCallBlock,  // of[0] is called; body, names and named are a macro's
  kFilterBody,
  kScope,  // body, where of has names and what they are, in turn
  kBreak,
  kContinue,
  // Expressions.
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,  // keys and values in turn
  kNot,
  kNegative,
  kAnd,
  kOr,
  kArithmetic,  // text is the operator
  kCompare,     // each operator in names
  kChoice,      // of[0] where of[1], else of[2], which may be missing
  kAttribute,
  kItem,
  kSlice,  // of[1] to of[3], null where they are left out
  kCall,
  kFilter,  // of[0] is what is filtered, the others are arguments
  kTest
};

struct Node {
  NodeKind kind;
  int line = 1, depth = 1;
  std::string text;
  Value constant;  // a text of its own is `literal`
  Text literal;
  std::vector<std::string> names;
  std::vector<const Node*> of;
  std::vector<std::pair<std::string, const Node*>> named;
  std::vector<const Node*> body, otherwise;
  bool takes_more = false, takes_named = false;  // a macro that speaks of varargs, of kwargs
};

struct Program {
  std::deque<Node> nodes;
  std::vector<const Node*> body;
};

// An error names the line. No tree is deeper than a bound.
absl::StatusOr<Program> Parse(absl::string_view text);

}  // namespace tessera::llm::jinja
