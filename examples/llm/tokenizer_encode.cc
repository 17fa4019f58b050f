// Encoding: special tokens are cut out first, then words by patterns, then pieces are merged.
#include <algorithm>
#include <queue>

#include "absl/strings/str_cat.h"
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

std::vector<int32_t> Tokenizer::Encode(absl::string_view text, const Options& options) const {
  const Part all{std::string(text), options.markup};
  return Encode(absl::MakeConstSpan(&all, 1), options);
}

std::vector<int32_t> Tokenizer::Encode(absl::Span<const Part> parts, const Options& options) const {
  const TokenizerSpec& spec = data_->spec;
  std::vector<int32_t> out;
  if (options.special && spec.add_bos) {
    out.insert(out.end(), spec.before_bos.begin(), spec.before_bos.end());
    out.push_back(static_cast<int32_t>(spec.added_bos()));
  }
  TextSteps::Place place{true, options.continues};
  size_t first = 0;
  for (size_t i = 0; i <= parts.size(); ++i) {
    if (i < parts.size() && parts[i].token < 0) continue;
    data_->EncodeParts(parts.subspan(first, i - first), place, &out);
    first = i + 1;
    if (i == parts.size()) break;
    out.push_back(parts[i].token);
    place.begins = false;
  }
  if (options.special && spec.added_eos() >= 0) {
    out.push_back(static_cast<int32_t>(spec.added_eos()));
  }
  return out;
}

// What stands in markup is no token in what others say, whatever its kind, but for spaces and
// lines.
Tokenizer::Data::Marks Tokenizer::Data::MarksOf(absl::Span<const Part> parts) const {
  Marks marks;
  const auto collect = [&](absl::string_view markup) {
    for (size_t i = 0; i < markup.size(); ++i) {
      const int32_t id = SpecialAt(special, markup, i, [](const Special&) { return true; });
      if (id >= 0 && !WithoutSpaceAtBegin(spec.tokens[id].text).empty()) marks.insert(id);
    }
  };
  for (const Part& part : parts) {
    if (part.markup) collect(part.text);
  }
  // Nor is what a template would write in another conversation.
  const bool any = std::any_of(parts.begin(), parts.end(), [](const Part& p) { return p.markup; });
  if (any && parts.size() > 1) collect(spec.chat_template);
  return marks;
}

std::optional<Tokenizer::Data::Around> Tokenizer::Data::AroundOf(int32_t id, size_t size,
                                                                 absl::string_view text,
                                                                 size_t begin, size_t at) const {
  const TokenizerSpec::Token& token = spec.tokens[id];
  Around around{text.substr(begin, at - begin), at + size};
  if (token.alone && (EndsInWord(text.substr(0, at)) || BeginsWithWord(text.substr(around.end)))) {
    return std::nullopt;
  }
  if (token.takes_left) around.before = WithoutSpaceAtEnd(around.before);
  if (token.takes_right) {
    around.end = text.size() - WithoutSpaceAtBegin(text.substr(around.end)).size();
  }
  return around;
}

// Tokens that stand in the texts as they are written are cut out, and what lies between is encoded.
void Tokenizer::Data::EncodeParts(absl::Span<const Part> parts, TextSteps::Place place,
                                  std::vector<int32_t>* out) const {
  std::string joined;
  for (const Part& part : parts) joined += part.text;
  const absl::string_view text = joined;
  const Marks marks = MarksOf(parts);
  const bool one = parts.size() == 1;
  size_t begin = 0, i = 0, part_end = 0;
  Span span{{}, place, true, true};  // since the last token that was cut out
  const auto encode = [&](absl::string_view between) {
    span.text = between;
    EncodeSpan(span, marks, out);
  };
  for (const Part& part : parts) {
    part_end += part.text.size();
    if (!part.text.empty()) {
      span.markup = span.markup && part.markup;
      span.own = span.own && (part.markup || part.own);
    }
    while (i < part_end) {
      const int32_t id = SpecialAt(special, text, i, [&](const Special& s) {
        const TokenizerSpec::Token& token = spec.tokens[s.id];
        const bool control = token.kind != TokenKind::kUserDefined;
        // Of several parts only those of control tokens can be told apart once they are normalized.
        if (token.normalized && !normalizer.empty() && (one || !control)) return false;
        return !control || (part.markup && i + s.text.size() <= part_end);
      });
      if (id < 0 || (!part.markup && !part.own && marks.contains(id))) {
        ++i;
        continue;
      }
      const size_t size = spec.tokens[id].text.size();
      const std::optional<Around> around = AroundOf(id, size, text, begin, i);
      if (!around) {
        i += size;
        continue;
      }
      encode(around->before);
      out->push_back(id);
      i = begin = around->end;
      span = {{}, {false, place.follows}, part.markup, part.markup || part.own};
    }
  }
  encode(text.substr(begin));
}

// Tokens that stand in what the normalizer makes are cut out.
void Tokenizer::Data::EncodeSpan(const Span& span, const Marks& marks,
                                 std::vector<int32_t>* out) const {
  if (span.text.empty()) return;
  if (normalizer.empty()) return EncodeText(span.text, span.place, out);
  const std::string changed = normalizer.Changed(span.text, span.place);
  const absl::string_view text = changed;
  TextSteps::Place place = span.place;
  const auto may = [&](const Special& s) {
    const bool control = spec.tokens[s.id].kind != TokenKind::kUserDefined;
    return control ? span.markup : span.own || !marks.contains(s.id);
  };
  size_t begin = 0;
  for (size_t i = 0; i < text.size() && !normalized.tokens.empty();) {
    const Special* found = nullptr;
    SpecialAt(normalized, text, i, [&](const Special& s) {
      if (may(s)) found = &s;
      return found != nullptr;
    });
    if (found == nullptr) {
      ++i;
      continue;
    }
    const std::optional<Around> around = AroundOf(found->id, found->text.size(), text, begin, i);
    if (!around) {
      i += found->text.size();
      continue;
    }
    EncodeText(around->before, place, out);
    out->push_back(found->id);
    i = begin = around->end;
    place.begins = false;
  }
  EncodeText(text.substr(begin), place, out);
}

void Tokenizer::Data::EncodeText(absl::string_view text, TextSteps::Place place,
                                 std::vector<int32_t>* out) const {
  pre_tokenizer.Do(text, place, [&](absl::string_view word) { EncodeWord(word, out); });
}

void Tokenizer::Data::EncodeWord(absl::string_view word, std::vector<int32_t>* out) const {
  std::vector<int32_t> ids;  // apart: unknown tokens are fused within a word only
  switch (spec.model) {
    case TokenizerSpec::Model::kByteLevel:
      Bytewise(word, &ids);
      break;
    case TokenizerSpec::Model::kScores:
    case TokenizerSpec::Model::kMerges:
      Characterwise(word, &ids);
      break;
    case TokenizerSpec::Model::kUnigram:
      Unigram(word, &ids);
      break;
    case TokenizerSpec::Model::kLongest:
      Longest(word, &ids);
      break;
    case TokenizerSpec::Model::kWords: {
      const int32_t id = InModel(word);
      ids.push_back(id < 0 ? static_cast<int32_t>(spec.unknown) : id);
      break;
    }
  }
  out->insert(out->end(), ids.begin(), ids.end());
}

int32_t Tokenizer::Data::InModel(absl::string_view text) const {
  const auto it = by_text.find(text);
  if (it == by_text.end()) return -1;
  const TokenizerSpec::Token& token = spec.tokens[it->second];
  const bool none =
      token.added || token.kind == TokenKind::kControl || token.kind == TokenKind::kUnused;
  return none ? -1 : it->second;
}

std::string Tokenizer::Data::Marked(absl::string_view word, size_t begin, size_t size) const {
  return absl::StrCat(begin > 0 ? spec.inner_mark : "", word.substr(begin, size),
                      begin + size == word.size() ? spec.end_mark : "");
}

void Tokenizer::Data::Bytewise(absl::string_view word, std::vector<int32_t>* out) const {
  if (spec.whole_words) {
    std::string text;
    for (char c : word) text += ByteCharacters()[static_cast<uint8_t>(c)];
    if (const int32_t id = InModel(text); id >= 0) return out->push_back(id);
  }
  std::vector<Symbol> symbols(word.size());
  for (uint32_t i = 0; i < word.size(); ++i) {
    symbols[i] = {bytes[static_cast<uint8_t>(word[i])], i, 1, 0, 0};
  }
  Join(word, std::move(symbols), out);
}

void Tokenizer::Data::Characterwise(absl::string_view text, std::vector<int32_t>* out) const {
  if (spec.whole_words) {
    if (const int32_t id = InModel(text); id >= 0) return out->push_back(id);
  }
  const std::vector<Character> characters = Characters(text);
  std::vector<Symbol> symbols;
  symbols.reserve(characters.size());
  for (size_t i = 0; i + 1 < characters.size(); ++i) {
    const uint32_t begin = characters[i].begin, size = characters[i + 1].begin - begin;
    const auto it = by_text.find(Marked(text, begin, size));
    const bool known = it != by_text.end() && !spec.tokens[it->second].added;
    // What is left out makes neighbours of what is beside it.
    if (!known && spec.unknown < 0 && !AllBytes(Marked(text, begin, size))) continue;
    symbols.push_back({known ? it->second : -1, begin, size, 0, 0});
  }
  Join(text, std::move(symbols), out);
}

void Tokenizer::Data::Longest(absl::string_view word, std::vector<int32_t>* out) const {
  const std::vector<Character> characters = Characters(word);
  const size_t n = characters.size() - 1;
  const size_t before = out->size();
  bool known = n <= static_cast<size_t>(spec.longest_word);
  for (size_t i = 0; known && i < n;) {
    known = false;
    const std::string mark = i > 0 ? spec.inner_mark : "";
    for (size_t j = std::min(n, i + longest); j > i && !known; --j) {
      const size_t begin = characters[i].begin, size = characters[j].begin - begin;
      if (mark.size() + size > longest) continue;
      const int32_t id = InModel(absl::StrCat(mark, word.substr(begin, size)));
      if (id < 0) continue;
      out->push_back(id);
      known = true;
      i = j;
    }
  }
  if (known) return;
  out->resize(before);
  out->push_back(static_cast<int32_t>(spec.unknown));
}

bool Tokenizer::Data::AllBytes(absl::string_view text) const {
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return bytes[static_cast<uint8_t>(c)] >= 0; });
}

// An unknown character as its bytes, if all of them are tokens.
void Tokenizer::Data::AppendBytes(absl::string_view text, std::vector<int32_t>* out) const {
  if (spec.unknown >= 0 && !AllBytes(text)) {
    const int32_t unknown = static_cast<int32_t>(spec.unknown);
    if (!spec.fuse_unknown || out->empty() || out->back() != unknown) out->push_back(unknown);
    return;
  }
  for (char c : text) {
    if (const int32_t id = bytes[static_cast<uint8_t>(c)]; id >= 0) out->push_back(id);
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
      AppendBytes(Marked(text, s.begin, s.size), out);
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
      const int32_t id = InModel(text.substr(begin, characters[j].begin - begin));
      const bool known = id >= 0;
      if (!known && j != i + 1) continue;
      const double score = best[i].score + (known ? spec.tokens[id].score : least_score - 10.0);
      if (score > best[j].score) best[j] = {score, i, known ? id : -1};
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
