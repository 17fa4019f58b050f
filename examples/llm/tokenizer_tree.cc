// The tree of a vocabulary, from its sorted texts.
#include "examples/llm/tokenizer_tree.h"

#include <algorithm>

#include "absl/strings/string_view.h"

namespace tessera::llm {

TokenTree::TokenTree(absl::Span<const std::string> texts) : size_(static_cast<int>(texts.size())) {
  constexpr size_t kLongest = 4096;  // no token of use is longer
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty() && texts[i].size() <= kLongest) tokens_.push_back(static_cast<int>(i));
  }
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [&](int32_t a, int32_t b) { return texts[a] < texts[b]; });
  std::vector<uint32_t> open;  // the nodes of the text before, by depth
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  absl::string_view before;
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const absl::string_view text = texts[tokens_[t]];
    const size_t same =
        std::mismatch(before.begin(), before.end(), text.begin(), text.end()).first -
        before.begin();
    close(same);
    for (size_t d = same; d < text.size(); ++d) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {0, static_cast<uint32_t>(t), static_cast<uint16_t>(d), static_cast<uint8_t>(text[d])});
    }
    depth_ = std::max(depth_, static_cast<int>(text.size()));
    before = text;
  }
  close(0);
  nodes_.push_back(
      {static_cast<uint32_t>(nodes_.size()) + 1, static_cast<uint32_t>(tokens_.size()), 0, 0});
}

}  // namespace tessera::llm
