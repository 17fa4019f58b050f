// Encoding: special tokens are cut out first, then words by patterns, then pieces are merged.
#include <algorithm>
#include <queue>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "examples/llm/compose.h"
#include "examples/llm/tokenizer_data.h"
#include "examples/llm/unicode.h"

namespace tessera::llm {
namespace {

// Two neighbours that may become one token; the greatest is merged first, then the leftmost.
struct Candidate {
  double priority;
  int left, right;
  uint32_t size;  // of both together, to know a stale entry
  int32_t id;
  bool operator<(const Candidate& o) const {
    return priority != o.priority ? priority < o.priority : left > o.left;
  }
};

}  // namespace

int32_t Tokenizer::Data::SpecialAt(absl::string_view text, size_t at, size_t markup_end) const {
  if (!special_starts[static_cast<uint8_t>(text[at])]) return -1;
  for (int32_t id : special) {
    const TokenizerSpec::Token& t = spec.tokens[id];
    const bool anywhere = t.kind == TokenKind::kUserDefined;
    if (!anywhere && at + t.text.size() > markup_end) continue;
    if (text.substr(at, t.text.size()) == t.text) return id;
  }
  return -1;
}

std::vector<int32_t> Tokenizer::Encode(absl::string_view text, const Options& options) const {
  const Part all{std::string(text), options.markup};
  return Encode(absl::MakeConstSpan(&all, 1), options);
}

std::vector<int32_t> Tokenizer::Encode(absl::Span<const Part> parts, const Options& options) const {
  const TokenizerSpec& spec = data_->spec;
  std::vector<int32_t> out;
  if (options.special && spec.add_bos) {
    out.insert(out.end(), spec.before_bos.begin(), spec.before_bos.end());
    out.push_back(static_cast<int32_t>(spec.bos));
  }
  bool prefixed = spec.prefix != TokenizerSpec::Prefix::kNone && !options.continues;
  size_t first = 0;
  for (size_t i = 0; i <= parts.size(); ++i) {
    if (i < parts.size() && parts[i].token < 0) continue;
    data_->EncodeParts(parts.subspan(first, i - first), prefixed, &out);
    first = i + 1;
    if (i == parts.size()) break;
    out.push_back(parts[i].token);
    prefixed = spec.prefix == TokenizerSpec::Prefix::kEach;
  }
  if (options.special && spec.add_eos && spec.eos >= 0) {
    out.push_back(static_cast<int32_t>(spec.eos));
  }
  return out;
}

// Tokens that stand in the texts as they are written are cut out, and what lies between is encoded.
void Tokenizer::Data::EncodeParts(absl::Span<const Part> parts, bool prefixed,
                                  std::vector<int32_t>* out) const {
  std::string joined;
  for (const Part& part : parts) joined += part.text;
  const absl::string_view text = joined;
  // What stands in markup is no token in what others say, whatever its kind, but for spaces and
  // lines.
  absl::flat_hash_set<int32_t> marks;
  const auto collect = [&](absl::string_view markup) {
    for (size_t i = 0; i < markup.size(); ++i) {
      const int32_t id = SpecialAt(markup, i, markup.size());
      if (id >= 0 && !WithoutSpaceAtBegin(spec.tokens[id].text).empty()) marks.insert(id);
    }
  };
  for (const Part& part : parts) {
    if (part.markup) collect(part.text);
  }
  // Nor is what a template would write in another conversation.
  const bool any = std::any_of(parts.begin(), parts.end(), [](const Part& p) { return p.markup; });
  if (any && parts.size() > 1) collect(spec.chat_template);
  size_t begin = 0, i = 0, part_end = 0;
  for (const Part& part : parts) {
    part_end += part.text.size();
    while (i < part_end) {
      const int32_t id = SpecialAt(text, i, part.markup ? part_end : 0);
      if (id < 0 || (!part.markup && !part.own && marks.contains(id))) {
        ++i;
        continue;
      }
      const TokenizerSpec::Token& token = spec.tokens[id];
      size_t end = i + token.text.size();
      if (token.alone && (EndsInWord(text.substr(0, i)) || BeginsWithWord(text.substr(end)))) {
        i = end;
        continue;
      }
      absl::string_view before = text.substr(begin, i - begin);
      if (token.takes_left) before = WithoutSpaceAtEnd(before);
      if (token.takes_right) end = text.size() - WithoutSpaceAtBegin(text.substr(end)).size();
      EncodeText(before, prefixed, out);
      out->push_back(id);
      i = begin = end;
      prefixed = spec.prefix == TokenizerSpec::Prefix::kEach;
    }
  }
  EncodeText(text.substr(begin), prefixed, out);
}

void Tokenizer::Data::EncodeText(absl::string_view written, bool prefixed,
                                 std::vector<int32_t>* out) const {
  if (written.empty()) return;
  const std::string text = spec.form == TokenizerSpec::Form::kComposed     ? Composed(written)
                           : spec.form == TokenizerSpec::Form::kDecomposed ? Decomposed(written)
                                                                           : std::string(written);
  const auto first = absl::MakeConstSpan(patterns).subspan(0, spec.prefix_after);
  for (absl::string_view piece : WordsOf(text, first)) {
    EncodePiece(piece, prefixed, out);
    prefixed = prefixed && spec.prefix == TokenizerSpec::Prefix::kEach;
  }
}

void Tokenizer::Data::EncodePiece(absl::string_view piece, bool prefixed,
                                  std::vector<int32_t>* out) const {
  const bool byte_level = spec.model == TokenizerSpec::Model::kByteLevel;
  const bool spaced = piece[0] == ' ' || (!byte_level && absl::StartsWith(piece, kSpace));
  std::string text = absl::StrCat(prefixed && !(spec.prefix_once && spaced) ? " " : "", piece);
  if (!byte_level) text = absl::StrReplaceAll(text, {{" ", kSpace}});
  for (absl::string_view word :
       WordsOf(text, absl::MakeConstSpan(patterns).subspan(spec.prefix_after))) {
    if (byte_level) {
      EncodeWord(word, out);
      continue;
    }
    std::vector<int32_t> ids;  // apart: unknown tokens are fused within a word only
    if (spec.model == TokenizerSpec::Model::kUnigram) {
      Unigram(word, &ids);
    } else {
      Characterwise(word, &ids);
    }
    out->insert(out->end(), ids.begin(), ids.end());
  }
}

void Tokenizer::Data::EncodeWord(absl::string_view word, std::vector<int32_t>* out) const {
  if (spec.whole_words) {
    std::string text;
    for (char c : word) text += ByteCharacters()[static_cast<uint8_t>(c)];
    if (const auto it = by_text.find(text); it != by_text.end()) {
      out->push_back(it->second);
      return;
    }
  }
  std::vector<Symbol> symbols(word.size());
  for (uint32_t i = 0; i < word.size(); ++i) {
    symbols[i] = {bytes[static_cast<uint8_t>(word[i])], i, 1, 0, 0};
  }
  Join(word, std::move(symbols), out);
}

void Tokenizer::Data::Characterwise(absl::string_view text, std::vector<int32_t>* out) const {
  if (spec.whole_words) {
    if (const auto it = by_text.find(text); it != by_text.end()) {
      out->push_back(it->second);
      return;
    }
  }
  const std::vector<Character> characters = Characters(text);
  std::vector<Symbol> symbols;
  symbols.reserve(characters.size());
  for (size_t i = 0; i + 1 < characters.size(); ++i) {
    const uint32_t begin = characters[i].begin, size = characters[i + 1].begin - begin;
    const auto it = by_text.find(text.substr(begin, size));
    symbols.push_back({it == by_text.end() ? -1 : it->second, begin, size, 0, 0});
  }
  Join(text, std::move(symbols), out);
}

void Tokenizer::Data::AppendBytes(absl::string_view text, std::vector<int32_t>* out) const {
  for (char c : text) {
    const int32_t byte = bytes[static_cast<uint8_t>(c)];
    if (byte < 0 && spec.unknown < 0) continue;
    if (byte < 0) {
      const int32_t unknown = static_cast<int32_t>(spec.unknown);
      if (!spec.fuse_unknown || out->empty() || out->back() != unknown) out->push_back(unknown);
      return;  // one unknown token for the character
    }
    out->push_back(byte);
  }
}

// Merges neighbours, best pair first, until no pair is a token.
void Tokenizer::Data::Join(absl::string_view text, std::vector<Symbol> symbols,
                           std::vector<int32_t>* out) const {
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int left, int right) {
    if (left < 0 || right < 0) return;
    const Symbol &a = symbols[left], &b = symbols[right];
    if (spec.model == TokenizerSpec::Model::kScores) {
      const auto it = by_text.find(text.substr(a.begin, a.size + b.size));
      if (it == by_text.end()) return;
      queue.push({spec.tokens[it->second].score, left, right, a.size + b.size, it->second});
      return;
    }
    const auto it = merges.find(PairKey(a.id, b.id));
    if (it == merges.end()) return;
    queue.push(
        {-static_cast<double>(it->second.rank), left, right, a.size + b.size, it->second.id});
  };
  const int n = static_cast<int>(symbols.size());
  for (int i = 0; i < n; ++i) {
    symbols[i].before = i - 1;
    symbols[i].after = i + 1 < n ? i + 1 : -1;
  }
  for (int i = 0; i + 1 < n; ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol &a = symbols[best.left], &b = symbols[best.right];
    if (a.size == 0 || b.size == 0 || a.size + b.size != best.size) continue;
    a.id = best.id;
    a.size = best.size;
    b.size = 0;
    a.after = b.after;
    if (a.after >= 0) symbols[a.after].before = best.left;
    consider(a.before, best.left);
    consider(best.left, a.after);
  }
  for (int i = 0; i >= 0 && i < n; i = symbols[i].after) {
    const Symbol& s = symbols[i];
    if (s.id >= 0) {
      out->push_back(s.id);
    } else {
      AppendBytes(text.substr(s.begin, s.size), out);
    }
  }
}

// The split with the greatest sum of scores, by the best way to each character's end.
void Tokenizer::Data::Unigram(absl::string_view text, std::vector<int32_t>* out) const {
  constexpr double kNever = -1e300;
  const std::vector<Character> characters = Characters(text);
  const size_t n = characters.size() - 1;
  struct Step {
    double score = kNever;
    size_t from = 0;
    int32_t id = -1;
  };
  std::vector<Step> best(n + 1);
  best[0].score = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = characters[i].begin;
    for (size_t j = i + 1; j <= n && characters[j].begin - begin <= longest; ++j) {
      const auto it = by_text.find(text.substr(begin, characters[j].begin - begin));
      const bool known = it != by_text.end() &&
                         spec.tokens[it->second].kind != TokenKind::kUnused &&
                         spec.tokens[it->second].kind != TokenKind::kControl;
      if (!known && j != i + 1) continue;
      const double score =
          best[i].score + (known ? spec.tokens[it->second].score : least_score - 10.0);
      if (score > best[j].score) best[j] = {score, i, known ? it->second : -1};
    }
  }
  std::vector<size_t> ends;
  for (size_t j = n; j > 0; j = best[j].from) ends.push_back(j);
  for (size_t k = ends.size(); k-- > 0;) {
    const Step& step = best[ends[k]];
    const size_t begin = characters[step.from].begin;
    if (step.id >= 0) {
      out->push_back(step.id);
    } else {
      AppendBytes(text.substr(begin, characters[ends[k]].begin - begin), out);
    }
  }
}

}  // namespace tessera::llm
