// Grammars that texts of a model keep to, in GBNF, the notation of llama.cpp.
//
// Known: rules `name ::= ...` with "root" as the beginning, texts in quotes, [classes] with ranges
// and ^, `.` for any character, sequences, |, groups ( ), * + ? {m} {m,} {m,n}, # comments, and the
// escapes \n \r \t \\ \" \[ \] \xNN \uNNNN \UNNNNNNNN. All else is an error that names its line and
// column, and so are rules that begin with themselves (left recursion) and rules that never end.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::llm {

// A grammar as a network over bytes: each rule is a part that ends at kEnd, and goes back to where
// it was called. Read by GrammarMatcher.
struct Grammar {
  enum class Kind : uint8_t {
    kEnd,     // of a rule
    kBytes,   // one byte: edges[first .. first + count)
    kEither,  // any of targets[first .. first + count)
    kCall,    // the rule that begins at `first`, then `next`
    kRepeat   // the same, from `min` to `max` times (-1: without end)
  };
  struct Node {
    Kind kind = Kind::kEnd;
    int32_t first = 0, count = 0, next = 0, min = 1, max = 1;
  };
  struct Edge {
    uint8_t low, high;
    int32_t to;
  };
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<int32_t> targets;
  int32_t root = 0;
  std::vector<int32_t> order;           // of nodes: where a rule is called comes before it
  std::array<uint8_t, 256> class_of{};  // bytes of one class are alike to all edges
  int classes = 0;
};

// Errors begin with `name`.
absl::StatusOr<std::shared_ptr<const Grammar>> ParseGrammar(absl::string_view text,
                                                            const std::string& name);

}  // namespace tessera::llm
