// Encoding: special tokens are cut out first, then words by patterns, then pieces are merged.
#include "examples/llm/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "examples/llm/compose.h"
#include "examples/llm/pattern.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr char kSpace[] = "\xE2\x96\x81";  // U+2581, what SentencePiece writes for a space

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

struct Symbol {
  int32_t id;  // -1: no token
  uint32_t begin, size;
  int before, after;
};

uint64_t PairKey(int32_t a, int32_t b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}

}  // namespace

struct Tokenizer::Data {
  struct Merge {
    int32_t rank, id;
  };
  TokenizerSpec spec;
  absl::flat_hash_map<absl::string_view, int32_t> by_text;
  absl::flat_hash_map<uint64_t, Merge> merges;
  std::vector<Pattern> patterns;
  std::vector<std::string> pieces;
  std::array<int32_t, 256> bytes;  // the token of each byte, or -1
  std::vector<int32_t> special;    // tokens cut out of texts, longest first
  std::array<bool, 256> special_starts = {};
  size_t longest = 0;  // token
  float least_score = 0;
  std::once_flag tree_once;
  std::optional<TokenTree> tree;

  absl::Status Error(const std::string& what) const {
    return absl::DataLossError(absl::StrCat(spec.file, ": tokenizer: ", what));
  }
  absl::Status Fill();
  absl::Status FillTokens();
  absl::Status FillMerges();

  void EncodeParts(absl::Span<const Part> parts, bool prefixed, std::vector<int32_t>* out) const;
  void EncodeText(absl::string_view written, bool prefixed, std::vector<int32_t>* out) const;
  void EncodePiece(absl::string_view piece, bool prefixed, std::vector<int32_t>* out) const;
  void EncodeWord(absl::string_view word, std::vector<int32_t>* out) const;
  void Join(absl::string_view text, std::vector<Symbol> symbols, std::vector<int32_t>* out) const;
  void Unigram(absl::string_view text, std::vector<int32_t>* out) const;
  void Characterwise(absl::string_view text, std::vector<int32_t>* out) const;
  void AppendBytes(absl::string_view text, std::vector<int32_t>* out) const;
  // Control tokens by their names only before `markup_end`.
  int32_t SpecialAt(absl::string_view text, size_t at, size_t markup_end) const;
};

// ---- making

namespace {

using ByteOfCharacter = std::array<int16_t, 512>;  // by code point; -1: one that stands for itself

// What UTF-8 stands for where some characters, of at most two bytes each, stand for bytes.
std::string FromByteCharacters(absl::string_view text, const ByteOfCharacter& byte_of) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const bool pair = lead >= 0xC0 && lead < 0xC8 && i + 1 < text.size();
    const int code = pair ? (lead & 31) << 6 | (text[i + 1] & 63) : lead;
    if ((pair || lead < 0x80) && byte_of[code] >= 0) {
      out += static_cast<char>(byte_of[code]);
      i += pair;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

absl::Status Tokenizer::Data::FillTokens() {
  bytes.fill(-1);
  ByteOfCharacter byte_of;
  byte_of.fill(-1);
  for (int b = 0; b < 256; ++b) byte_of[Characters(ByteCharacters()[b])[0].code] = b;
  const bool byte_level = spec.model == TokenizerSpec::Model::kByteLevel;
  by_text.reserve(spec.tokens.size());
  pieces.resize(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const TokenizerSpec::Token& t = spec.tokens[i];
    const int32_t id = static_cast<int32_t>(i);
    if (ValidUtf8Prefix(t.text) != t.text.size()) {
      return Error(absl::StrCat("token ", i, " is not UTF-8"));
    }
    by_text.emplace(t.text, id);  // of equal texts the first counts
    longest = std::max(longest, t.text.size());
    least_score = std::min(least_score, t.score);
    if (t.kind == TokenKind::kControl || t.kind == TokenKind::kUnknown) {
      if (!t.text.empty()) special.push_back(id);
    } else if (t.kind == TokenKind::kUserDefined) {
      pieces[i] = t.text;
      if (!t.text.empty()) special.push_back(id);
    } else if (t.kind == TokenKind::kByte) {
      const bool form = t.text.size() == 6 && absl::StartsWith(t.text, "<0x") &&
                        absl::ascii_isxdigit(t.text[3]) && absl::ascii_isxdigit(t.text[4]) &&
                        t.text[5] == '>';
      unsigned value = 0;
      if (!form || !absl::SimpleHexAtoi(absl::string_view(t.text).substr(3, 2), &value)) {
        return Error(absl::StrCat("token ", i, ", ", ShowName(t.text), ", is no byte <0xNN>"));
      }
      bytes[value] = id;
      pieces[i] = std::string(1, static_cast<char>(value));
    } else if (byte_level) {
      pieces[i] = FromByteCharacters(t.text, byte_of);
    } else {
      pieces[i] = absl::StrReplaceAll(t.text, {{kSpace, " "}});
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::FillMerges() {
  merges.reserve(spec.merges.size());
  std::string joined;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const auto& [left, right] = spec.merges[i];
    joined.assign(left).append(right);
    const auto a = by_text.find(left), b = by_text.find(right), ab = by_text.find(joined);
    if (a == by_text.end() || b == by_text.end() || ab == by_text.end()) {
      const std::string& missing = a == by_text.end() ? left : b == by_text.end() ? right : joined;
      return Error(absl::StrCat("merge ", i, ", ", ShowName(left), " with ", ShowName(right), ": ",
                                ShowName(missing), " is no token"));
    }
    merges.emplace(PairKey(a->second, b->second), Merge{static_cast<int32_t>(i), ab->second});
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::Fill() {
  const int64_t n = static_cast<int64_t>(spec.tokens.size());
  if (n == 0) return Error("no tokens");
  RETURN_IF_ERROR(FillTokens());
  RETURN_IF_ERROR(FillMerges());
  const std::pair<const char*, int64_t> named[] = {
      {"bos", spec.bos}, {"eos", spec.eos}, {"unknown", spec.unknown}};
  for (const auto& [name, id] : named) {
    if (id < -1 || id >= n) {
      return Error(absl::StrCat("the ", name, " token is ", id, ", and there are ", n, " tokens"));
    }
  }
  for (int64_t id : spec.ends) {
    if (id < 0 || id >= n) {
      return Error(absl::StrCat("an end token is ", id, ", and there are ", n, " tokens"));
    }
  }
  if (spec.add_bos && spec.bos < 0) return Error("texts begin with bos, and there is no bos token");
  if (spec.model == TokenizerSpec::Model::kByteLevel) {
    bytes.fill(-1);  // by their characters alone
    for (int b = 0; b < 256; ++b) {
      const auto it = by_text.find(ByteCharacters()[b]);
      if (it != by_text.end()) bytes[b] = it->second;
      // Vocabularies may lack control characters and what UTF-8 never has; a text's are left out.
      const bool text =
          b == '\n' || (b >= ' ' && b < 0x7F) || (b >= 0x80 && b < 0xC0) || (b >= 0xC3 && b < 0xF0);
      if (text && bytes[b] < 0) return Error(absl::StrFormat("no token for the byte 0x%02x", b));
    }
  } else if (spec.unknown < 0) {
    for (int b = 0; b < 256; ++b) {
      if (bytes[b] >= 0) continue;
      return Error(absl::StrFormat("no token for the byte 0x%02x and none for the unknown", b));
    }
  }
  for (const std::string& text : spec.patterns) {
    absl::StatusOr<Pattern> pattern = Pattern::Compile(text);
    if (!pattern.ok()) return Error(std::string(pattern.status().message()));
    patterns.push_back(*std::move(pattern));
  }
  spec.prefix_after = std::min(spec.prefix_after, patterns.size());
  std::stable_sort(special.begin(), special.end(), [&](int32_t a, int32_t b) {
    return spec.tokens[a].text.size() > spec.tokens[b].text.size();
  });
  for (int32_t id : special) special_starts[static_cast<uint8_t>(spec.tokens[id].text[0])] = true;
  spec.merges = {};
  return absl::OkStatus();
}

Tokenizer::Tokenizer(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Make(TokenizerSpec spec) {
  auto data = std::make_unique<Data>();
  data->spec = std::move(spec);
  RETURN_IF_ERROR(data->Fill());
  return std::unique_ptr<const Tokenizer>(new Tokenizer(std::move(data)));
}

// ---- encoding

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
  if (options.special && spec.add_bos) out.push_back(static_cast<int32_t>(spec.bos));
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

// ---- the rest

const std::string& Tokenizer::Piece(int32_t id) const {
  static const std::string* const kNone = new std::string;
  return id < 0 || id >= size() ? *kNone : data_->pieces[id];
}

int32_t Tokenizer::Find(absl::string_view text) const {
  const auto it = data_->by_text.find(text);
  return it == data_->by_text.end() ? -1 : it->second;
}

bool Tokenizer::EndsText(int32_t id) const {
  const TokenizerSpec& s = data_->spec;
  return id == s.eos || std::find(s.ends.begin(), s.ends.end(), id) != s.ends.end();
}

bool Tokenizer::WritesText(int32_t id) const {
  if (id < 0 || id >= size() || EndsText(id)) return false;
  const TokenKind kind = data_->spec.tokens[id].kind;
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined || kind == TokenKind::kByte;
}

const TokenTree& Tokenizer::Tree() const {
  std::call_once(data_->tree_once, [this] {
    std::vector<std::string> texts(static_cast<size_t>(size()));
    for (int32_t id = 0; id < size(); ++id) {
      if (WritesText(id)) texts[id] = Piece(id);
    }
    data_->tree.emplace(texts);
  });
  return *data_->tree;
}

const TokenizerSpec& Tokenizer::spec() const { return data_->spec; }
int Tokenizer::size() const { return static_cast<int>(data_->pieces.size()); }

}  // namespace tessera::llm
