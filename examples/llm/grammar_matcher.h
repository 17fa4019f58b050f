// Where a text stands in its grammar, and which tokens may come next.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "examples/llm/grammar.h"
#include "examples/llm/tokenizer_tree.h"

namespace tessera::llm {

// Reads bytes, so that tokens may end within a character. All ways to read the text so far are
// followed at once: a state is a set of places in rules, each with what is to follow the rule,
// which is such a set again. Equal sets are one, and what a byte leads to is kept, so that states
// that come again cost a look-up.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const Grammar> grammar);

  // False: the grammar has no text that goes on so, and nothing has changed.
  bool Push(absl::string_view bytes);
  bool Allows(absl::string_view bytes);
  bool CanEnd() const;       // the text so far is one of the grammar's
  bool CanContinue() const;  // the grammar has longer texts that begin so
  // Whether somewhere there were more ways to read a text than are followed: those are lost.
  bool overflowed() const { return overflowed_; }

  // A bit a token that may come next, 64 to a word; valid until the next call. An error where the
  // grammar is so ambiguous that this takes too long.
  absl::StatusOr<absl::Span<const uint64_t>> Mask(const TokenTree& tokens);

 private:
  // A place: a node, how often it has been repeated, and the set of places that follow its rule.
  struct Item {
    int32_t node, count, after;
    auto operator<=>(const Item&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Item& i) {
      return H::combine(std::move(h), i.node, i.count, i.after);
    }
  };
  using Set = std::vector<Item>;
  static constexpr int32_t kDone = -1;                 // the node after the root rule
  static constexpr int32_t kDead = -1, kUnknown = -2;  // states

  int32_t Intern(Set set);
  int32_t Close(Set work);
  int32_t Follow(int32_t state, uint8_t byte);
  int32_t Step(int32_t state, uint8_t byte) {
    const int32_t to = steps_[static_cast<size_t>(row_[state]) + grammar_->class_of[byte]];
    return to == kUnknown ? Follow(state, byte) : to;
  }
  int32_t Run(int32_t state, absl::string_view bytes);
  void Tidy(absl::Span<int32_t> live);
  bool IsFull() const { return kept_ + steps_.size() > most_kept_; }
  bool Walk(const TokenTree& tokens, std::vector<uint64_t>* mask);

  const std::shared_ptr<const Grammar> grammar_;
  std::vector<const Set*> sets_;  // a set comes after those that it names
  absl::node_hash_map<Set, int32_t> by_set_;
  std::vector<int32_t> row_;     // of a state: where its steps begin; -1: none are known
  std::vector<int32_t> steps_;   // by class of bytes
  size_t kept_ = 0, most_kept_;  // places and steps
  int32_t now_ = 0;
  bool overflowed_ = false;
  int64_t work_ = 0;
  absl::flat_hash_map<int32_t, std::vector<uint64_t>> masks_;  // of states
  const TokenTree* masks_of_ = nullptr;
  absl::flat_hash_set<Item> seen_;
};

}  // namespace tessera::llm
