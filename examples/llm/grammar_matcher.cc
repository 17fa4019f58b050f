// Grammars as automata that are made as they are used.
#include "examples/llm/grammar_matcher.h"

#include <algorithm>
#include <map>

namespace tessera::llm {
namespace {

using Kind = Grammar::Kind;

constexpr size_t kMostItems = 16384;     // places in a state
constexpr size_t kMostKept = 1'000'000;  // of four bytes or twelve
constexpr size_t kMostMasks = 64;
constexpr int64_t kMostWork = 5'000'000;  // places looked at for a mask

}  // namespace

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), most_kept_(kMostKept) {
  const int32_t bottom = Intern({{kDone, 0, 0}});
  const int32_t begin = Close({{grammar_->root, 0, bottom}});
  now_ = begin == kDead ? Close({}) : begin;
}

int32_t GrammarMatcher::Intern(Set set) {
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  const auto [it, added] = by_set_.try_emplace(std::move(set), static_cast<int32_t>(sets_.size()));
  if (added) {
    sets_.push_back(&it->first);
    row_.push_back(-1);
    kept_ += it->first.size() + 1;
  }
  return it->second;
}

// The state of these places: where they lead without a byte. Calls wait for all that lead to the
// same rule, which then is read once for all of them.
int32_t GrammarMatcher::Close(Set work) {
  Set out;
  std::map<std::pair<int32_t, int32_t>, Set> calls;  // by the callee, first those that call others
  size_t added = 0;
  seen_.clear();
  const auto add = [&](Set* to, const Item& item) {
    if (grammar_->nodes[std::max(item.node, 0)].kind != Kind::kEnd || item.node == kDone) {
      to->push_back(item);
      ++added;
      return;
    }
    const Set& after = *sets_[item.after];  // at its end it is what follows
    to->insert(to->end(), after.begin(), after.end());
    added += after.size();
  };
  const auto call = [&](int32_t callee, const Item& after) {
    add(&calls[{grammar_->order[callee], callee}], after);
  };
  while (true) {
    while (!work.empty()) {
      const Item i = work.back();
      work.pop_back();
      if (!seen_.insert(i).second) continue;
      ++work_;
      if (seen_.size() > kMostItems || added > 8 * kMostItems) {
        overflowed_ = true;
        return kDead;
      }
      if (i.node == kDone) {
        out.push_back(i);
        continue;
      }
      const Grammar::Node& node = grammar_->nodes[i.node];
      switch (node.kind) {
        case Kind::kEnd:
          add(&work, i);
          break;
        case Kind::kBytes:
          out.push_back(i);
          break;
        case Kind::kEither:
          for (int32_t t = 0; t < node.count; ++t) {
            add(&work, {grammar_->targets[node.first + t], 0, i.after});
          }
          break;
        case Kind::kCall:
          call(node.first, {node.next, 0, i.after});
          break;
        case Kind::kRepeat: {
          const Item next = {node.next, 0, i.after};
          if (i.count >= node.min) add(&work, next);
          const int32_t count = node.max < 0 ? std::min(i.count + 1, node.min) : i.count + 1;
          call(node.first, count == node.max ? next : Item{i.node, count, i.after});
          break;
        }
      }
    }
    if (calls.empty()) break;
    auto first = calls.extract(calls.begin());
    add(&work, {first.key().second, 0, Intern(std::move(first.mapped()))});
  }
  const int32_t state = Intern(std::move(out));
  if (row_[state] < 0) {
    row_[state] = static_cast<int32_t>(steps_.size());
    steps_.resize(steps_.size() + static_cast<size_t>(grammar_->classes), kUnknown);
  }
  return state;
}

int32_t GrammarMatcher::Follow(int32_t state, uint8_t byte) {
  Set next;
  for (const Item& i : *sets_[state]) {
    ++work_;
    if (i.node == kDone) continue;
    const Grammar::Node& node = grammar_->nodes[i.node];
    for (int32_t e = node.first; e < node.first + node.count; ++e) {
      const Grammar::Edge& edge = grammar_->edges[e];
      if (byte >= edge.low && byte <= edge.high) next.push_back({edge.to, 0, i.after});
    }
  }
  const int32_t to = next.empty() ? kDead : Close(std::move(next));
  steps_[static_cast<size_t>(row_[state]) + grammar_->class_of[byte]] = to;
  return to;
}

int32_t GrammarMatcher::Run(int32_t state, absl::string_view bytes) {
  for (const char c : bytes) {
    if (state == kDead) break;
    if (IsFull()) Tidy({&state, 1});
    state = Step(state, static_cast<uint8_t>(c));
  }
  return state;
}

// Forgets all that neither the present state nor these need, and renumbers the rest.
void GrammarMatcher::Tidy(absl::Span<int32_t> live) {
  std::vector<bool> needed(sets_.size()), state(sets_.size());
  state[now_] = needed[now_] = true;
  for (int32_t s : live) state[s] = needed[s] = true;
  for (size_t s = sets_.size(); s-- > 0;) {
    if (!needed[s]) continue;
    for (const Item& i : *sets_[s]) needed[i.after] = true;
  }
  const std::vector<const Set*> sets = std::move(sets_);
  const absl::node_hash_map<Set, int32_t> old = std::move(by_set_);
  sets_.clear();
  by_set_.clear();
  row_.clear();
  steps_.clear();
  masks_.clear();
  kept_ = 0;
  std::vector<int32_t> to(sets.size(), 0);
  for (size_t s = 0; s < sets.size(); ++s) {
    if (!needed[s]) continue;
    Set set = *sets[s];
    for (Item& i : set) i.after = to[i.after];
    to[s] = Intern(std::move(set));
    if (!state[s]) continue;
    row_[to[s]] = static_cast<int32_t>(steps_.size());
    steps_.resize(steps_.size() + static_cast<size_t>(grammar_->classes), kUnknown);
  }
  now_ = to[now_];
  for (int32_t& s : live) s = to[s];
  most_kept_ = std::max(kMostKept, 2 * (kept_ + steps_.size()));
}

bool GrammarMatcher::Push(absl::string_view bytes) {
  const int32_t to = Run(now_, bytes);
  if (to == kDead) return false;
  now_ = to;
  return true;
}

bool GrammarMatcher::Allows(absl::string_view bytes) { return Run(now_, bytes) != kDead; }

bool GrammarMatcher::CanEnd() const {
  const Set& now = *sets_[now_];
  return !now.empty() && now.front().node == kDone;
}

bool GrammarMatcher::CanContinue() const {
  return sets_[now_]->size() > static_cast<size_t>(CanEnd() ? 1 : 0);
}

bool GrammarMatcher::Walk(const TokenTree& tokens, std::vector<uint64_t>* mask) {
  std::vector<int32_t> states(static_cast<size_t>(tokens.depth()) + 1, now_);  // before each depth
  const std::vector<TokenTree::Node>& nodes = tokens.nodes();
  const size_t end = nodes.size() - 1;
  for (size_t i = 0; i < end;) {
    const TokenTree::Node& node = nodes[i];
    if (IsFull()) Tidy(absl::MakeSpan(states).subspan(0, node.depth + size_t{1}));
    const int32_t to = Step(states[node.depth], node.byte);
    if (work_ > kMostWork) return false;
    if (to == kDead) {
      i = node.end;
      continue;
    }
    states[node.depth + size_t{1}] = to;
    for (uint32_t t = node.first_token; t < nodes[i + 1].first_token; ++t) {
      const auto id = static_cast<uint32_t>(tokens.tokens()[t]);
      (*mask)[id / 64] |= uint64_t{1} << id % 64;
    }
    ++i;
  }
  return true;
}

absl::StatusOr<absl::Span<const uint64_t>> GrammarMatcher::Mask(const TokenTree& tokens) {
  if (masks_of_ != &tokens || masks_.size() >= kMostMasks) masks_.clear();
  masks_of_ = &tokens;
  if (const auto known = masks_.find(now_); known != masks_.end()) return known->second;
  work_ = 0;
  std::vector<uint64_t> mask((static_cast<size_t>(tokens.size()) + 63) / 64);
  if (!Walk(tokens, &mask)) {
    return absl::ResourceExhaustedError(
        "the grammar is too ambiguous: what may come next takes too long to find");
  }
  return masks_[now_] = std::move(mask);
}

}  // namespace tessera::llm
