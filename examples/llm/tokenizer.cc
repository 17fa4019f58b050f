// Making a tokenizer from its vocabulary and rules, and what single tokens are.
#include "examples/llm/tokenizer.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "examples/llm/tokenizer_data.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr char kTooLong[] = ": with it what the tokens become may be too long";

// How the vocabularies of a model write text.
std::vector<TextStep> DecoderOf(TokenizerSpec::Model model) {
  if (model == TokenizerSpec::Model::kByteLevel) return {Change(TextStep::Kind::kFromBytes)};
  return {Replace(kSpace, " ")};
}

}  // namespace

absl::Status Tokenizer::Data::FillTokens() {
  bytes.fill(-1);
  if (spec.decoder.empty()) spec.decoder = DecoderOf(spec.model);
  const bool byte_level =
      std::any_of(spec.decoder.begin(), spec.decoder.end(),
                  [](const TextStep& s) { return s.kind == TextStep::Kind::kFromBytes; });
  absl::StatusOr<TextSteps> decoder = TextSteps::Make(spec.decoder);
  if (!decoder.ok()) return Error(std::string(decoder.status().message()));
  by_text.reserve(spec.tokens.size());
  pieces.resize(spec.tokens.size());
  constexpr size_t kLeastBudget = 16 << 20, kGrowth = 64;
  budget = 0;
  for (const TokenizerSpec::Token& t : spec.tokens) budget += t.text.size();
  budget = std::max(kLeastBudget, kGrowth * budget);
  const auto written = [&](int32_t id) {
    std::optional<std::string> piece = decoder->ChangedWithin(&budget, spec.tokens[id].text);
    if (!piece) return Error(absl::StrCat("token ", id, kTooLong));
    pieces[id] = *std::move(piece);
    return absl::OkStatus();
  };
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const TokenizerSpec::Token& t = spec.tokens[i];
    const int32_t id = static_cast<int32_t>(i);
    if (ValidUtf8Prefix(t.text) != t.text.size()) {
      return Error(absl::StrCat("token ", i, " is not UTF-8"));
    }
    // Where words are cut by tokens the time goes with the cube of the longest.
    constexpr size_t kMostOfCuts = 1024;
    const bool cuts = spec.model == TokenizerSpec::Model::kLongest ||
                      spec.model == TokenizerSpec::Model::kUnigram;
    if (cuts && t.text.size() > kMostOfCuts) {
      return Error(absl::StrCat("token ", i, " has ", t.text.size(),
                                " bytes; of such a model at most ", kMostOfCuts, " are known"));
    }
    by_text.emplace(t.text, id);  // of equal texts the first counts
    longest = std::max(longest, t.text.size());
    least_score = std::min(least_score, t.score);
    if (t.kind == TokenKind::kControl || t.kind == TokenKind::kUnknown) {
      if (!t.text.empty()) special.tokens.push_back({t.text, id});
    } else if (t.kind == TokenKind::kUserDefined) {
      // Where bytes are written as characters such a token is written as it is.
      pieces[i] = t.text;
      if (!byte_level) RETURN_IF_ERROR(written(id));
      if (!t.text.empty()) special.tokens.push_back({t.text, id});
    } else if (t.kind == TokenKind::kByte) {
      const bool form = t.text.size() == 6 && absl::StartsWith(t.text, "<0x") && t.text[5] == '>';
      const char* const digits = t.text.data() + 3;
      uint8_t value = 0;
      if (!form || std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) {
        return Error(absl::StrCat("token ", i, ", ", ShowName(t.text), ", is no byte <0xNN>"));
      }
      bytes[value] = id;
      pieces[i] = std::string(1, static_cast<char>(value));
    } else {
      RETURN_IF_ERROR(written(id));
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::FillMerges() {
  merges.reserve(spec.merges.size());
  std::string joined;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const auto& [left, right] = spec.merges[i];
    if (right.size() < spec.inner_mark.size())
      return Error(absl::StrCat("merge ", i, ": too short"));
    joined.assign(left).append(right, spec.inner_mark.size());
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

void Tokenizer::Data::SpecialTokens::Sort() {
  std::stable_sort(tokens.begin(), tokens.end(), [](const Special& a, const Special& b) {
    return a.text.size() > b.text.size();
  });
  for (const Special& token : tokens) starts[static_cast<uint8_t>(token.text[0])] = true;
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
  } else if (spec.unknown < 0 && !spec.drop_unknown) {
    for (int b = 0; b < 256; ++b) {
      if (bytes[b] >= 0) continue;
      return Error(absl::StrFormat("no token for the byte 0x%02x and none for the unknown", b));
    }
  }
  for (const auto& [from, to] :
       {std::pair(&spec.normalizer, &normalizer), std::pair(&spec.pre_tokenizer, &pre_tokenizer)}) {
    absl::StatusOr<TextSteps> steps = TextSteps::Make(*from);
    if (!steps.ok()) return Error(std::string(steps.status().message()));
    *to = *std::move(steps);
  }
  for (const Special& token : special.tokens) {
    if (!spec.tokens[token.id].normalized || normalizer.empty()) continue;
    std::optional<std::string> text = normalizer.ChangedWithin(&budget, token.text);
    if (!text) return Error(absl::StrCat("token ", token.id, kTooLong));
    if (!text->empty()) normalized.tokens.push_back({*std::move(text), token.id});
  }
  special.Sort();
  normalized.Sort();
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
