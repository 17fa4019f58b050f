// All of a vocabulary's texts as a tree of bytes, so that what they have in common is looked at
// once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace tessera::llm {

class TokenTree {
 public:
  // Tokens by id; those of no bytes are not in it.
  explicit TokenTree(absl::Span<const std::string> texts);

  // In the order of texts: after a node come those below it, which end before node `end`.
  struct Node {
    uint32_t end;
    uint32_t first_token;  // of those at this node and below, in `tokens()`
    uint16_t depth;        // of the first byte: 0
    uint8_t byte;
  };
  // One more node than there are bytes, whose first token is the number of tokens.
  const std::vector<Node>& nodes() const { return nodes_; }
  // Those of node i alone: tokens()[nodes()[i].first_token .. nodes()[i + 1].first_token).
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int size() const { return size_; }  // of the vocabulary
  int depth() const { return depth_; }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  int size_, depth_ = 0;
};

}  // namespace tessera::llm
