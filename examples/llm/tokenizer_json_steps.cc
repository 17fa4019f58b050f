// 'normalizer' and 'pre_tokenizer' of a tokenizer.json, as steps on texts.
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "examples/llm/pretokenizers.h"
#include "examples/llm/tokenizer_json.h"
#include "examples/llm/unicode.h"

namespace tessera::llm {
namespace {

using Kind = TextStep::Kind;
using Matches = TextStep::Matches;

constexpr int kMostDepth = 8;
constexpr char kPunctuation[] = R"([\p{P}$+<=>\^`|~])";
constexpr char kSpaces[] = R"(\s)";
// Joiners are part of words here, and numbers that are no digits are not.
constexpr char kRustWord[] = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d)";

struct StepsReader {
  std::vector<TextStep>* steps;

  void Add(TextStep step) const { steps->push_back(std::move(step)); }

  absl::Status Normalizer(const JsonReader& in, int depth) const {
    ASSIGN_OR_RETURN(const std::string type, in.Text("type"));
    if (type == "Sequence") {
      if (depth == kMostDepth) return in.BadHere("no more sequences in sequences");
      ASSIGN_OR_RETURN(const std::vector<JsonReader> all, in.Objects("normalizers"));
      for (const JsonReader& one : all) RETURN_IF_ERROR(Normalizer(one, depth + 1));
      return absl::OkStatus();
    }
    if (type == "NFC" || type == "NFKC" || type == "NFD" || type == "NFKD") {
      TextStep step = Change(type.back() == 'C' ? Kind::kCompose : Kind::kDecompose);
      step.alike = type[2] == 'K';
      Add(std::move(step));
    } else if (type == "Lowercase") {
      Add(Change(Kind::kLower));
    } else if (type == "StripAccents") {
      Add(Change(Kind::kWithoutMarks));
    } else if (type == "Nmt") {
      Add(Change(Kind::kNmt));
    } else if (type == "ByteLevel") {
      Add(Change(Kind::kBytes));
    } else if (type == "Strip") {
      TextStep step = Change(Kind::kTrim);
      ASSIGN_OR_RETURN(step.left, in.Bool("strip_left", true));
      ASSIGN_OR_RETURN(step.right, in.Bool("strip_right", true));
      Add(std::move(step));
    } else if (type == "Prepend") {
      ASSIGN_OR_RETURN(std::string text, in.Text("prepend"));
      Add(Prefix(std::move(text)));
    } else if (type == "Replace") {
      ASSIGN_OR_RETURN(JsonPattern pattern, ReadPattern(in));
      ASSIGN_OR_RETURN(std::string by, in.Text("content"));
      TextStep step = Replace(std::move(pattern.text), std::move(by));
      if (step.from.empty()) step.pattern = std::move(pattern.expression);
      Add(std::move(step));
    } else if (type == "Precompiled") {
      TextStep step = Change(Kind::kCharsmap);
      ASSIGN_OR_RETURN(step.text, in.Text("precompiled_charsmap"));
      Add(std::move(step));
    } else if (type == "BertNormalizer") {
      return BertNormalizer(in);
    } else {
      return in.Bad("the normalizer ", ShowName(type), " is not known");
    }
    return absl::OkStatus();
  }

  absl::Status BertNormalizer(const JsonReader& in) const {
    ASSIGN_OR_RETURN(const bool clean, in.Bool("clean_text", true));
    ASSIGN_OR_RETURN(const bool apart, in.Bool("handle_chinese_chars", true));
    ASSIGN_OR_RETURN(const bool lower, in.Bool("lowercase", true));
    bool strip = lower;
    if (in.Find("strip_accents")) {
      ASSIGN_OR_RETURN(strip, in.Bool("strip_accents", lower));
    }
    if (clean) Add(Change(Kind::kClean));
    if (apart) Add(Change(Kind::kIdeographsApart));
    if (strip) Add(Change(Kind::kWithoutAccents));
    if (lower) Add(Change(Kind::kLower));
    return absl::OkStatus();
  }

  static absl::StatusOr<Matches> Behavior(const JsonReader& in,
                                          std::optional<std::string> otherwise) {
    ASSIGN_OR_RETURN(const std::string name, in.Text("behavior", std::move(otherwise)));
    if (name == "Isolated") return Matches::kAlone;
    if (name == "Removed") return Matches::kRemoved;
    if (name == "MergedWithPrevious") return Matches::kWithPrevious;
    if (name == "MergedWithNext") return Matches::kWithNext;
    if (name == "Contiguous") return Matches::kTogether;
    return in.Bad(
        "'", in.within, "behavior' is ", ShowName(name),
        "; Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous are known");
  }

  absl::Status PreTokenizer(const JsonReader& in, int depth) const {
    ASSIGN_OR_RETURN(const std::string type, in.Text("type"));
    if (type == "Sequence") {
      if (depth == kMostDepth) return in.BadHere("no more sequences in sequences");
      ASSIGN_OR_RETURN(const std::vector<JsonReader> all, in.Objects("pretokenizers"));
      for (const JsonReader& one : all) RETURN_IF_ERROR(PreTokenizer(one, depth + 1));
      return absl::OkStatus();
    }
    if (type == "ByteLevel") {
      ASSIGN_OR_RETURN(const bool prefix, in.Bool("add_prefix_space", false));
      ASSIGN_OR_RETURN(const bool regex, in.Bool("use_regex", true));
      if (prefix) Add(Prefix(" ", /*once=*/true));
      if (regex) Add(CutBy(kGpt2Pattern));
      Add(Change(Kind::kBytes));
    } else if (type == "Split") {
      ASSIGN_OR_RETURN(JsonPattern pattern, ReadPattern(in));
      ASSIGN_OR_RETURN(const Matches matches, Behavior(in, std::nullopt));
      ASSIGN_OR_RETURN(const bool invert, in.Bool("invert", false));
      Add(CutBy(std::move(pattern.expression), matches, invert));
    } else if (type == "Digits") {
      ASSIGN_OR_RETURN(const bool each, in.Bool("individual_digits", false));
      Add(CutBy(R"(\p{N})", each ? Matches::kAlone : Matches::kTogether));
    } else if (type == "Punctuation") {
      ASSIGN_OR_RETURN(const Matches matches, Behavior(in, "Isolated"));
      Add(CutBy(kPunctuation, matches));
    } else if (type == "CharDelimiterSplit") {
      ASSIGN_OR_RETURN(const std::string delimiter, in.Text("delimiter"));
      if (Characters(delimiter).size() != 2) return in.BadHere("a delimiter of one character");
      Add(CutBy(Quoted(delimiter), Matches::kRemoved));
    } else if (type == "Whitespace") {
      Add(CutBy(absl::StrCat("[", kRustWord, "]+|[^\\s", kRustWord, "]+"), Matches::kRemoved,
                true));
    } else if (type == "WhitespaceSplit") {
      Add(CutBy(kSpaces, Matches::kRemoved));
    } else if (type == "BertPreTokenizer") {
      Add(CutBy(kSpaces, Matches::kRemoved));
      Add(CutBy(kPunctuation));
    } else if (type == "UnicodeScripts") {
      Add(Change(Kind::kScripts));
    } else if (type == "Metaspace") {
      return Metaspace(in);
    } else {
      return in.Bad("the pre_tokenizer ", ShowName(type), " is not known");
    }
    return absl::OkStatus();
  }

  absl::Status Metaspace(const JsonReader& in) const {
    ASSIGN_OR_RETURN(const std::string space, in.Text("replacement", kSpace));
    if (Characters(space).size() != 2) return in.BadHere("a replacement of one character");
    // Older files have a flag in place of a scheme.
    ASSIGN_OR_RETURN(const bool flag, in.Bool("add_prefix_space", true));
    ASSIGN_OR_RETURN(const std::string scheme,
                     in.Text("prepend_scheme", flag ? "always" : "never"));
    ASSIGN_OR_RETURN(const bool split, in.Bool("split", true));
    Add(Replace(" ", space));
    if (scheme == "always" || scheme == "first") {
      Add(Prefix(space, /*once=*/true, /*begin_only=*/scheme == "first"));
    } else if (scheme != "never") {
      return in.Bad("'", in.within, "prepend_scheme' is ", ShowName(scheme),
                    "; always, first and never are known");
    }
    if (split) Add(CutBy(Quoted(space), Matches::kWithNext));
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::optional<JsonReader>> ObjectIfThere(const JsonReader& in,
                                                        absl::string_view key) {
  if (!in.Find(key)) return std::optional<JsonReader>();
  ASSIGN_OR_RETURN(JsonReader object, in.Object(key));
  return std::optional<JsonReader>(std::move(object));
}

std::string Quoted(absl::string_view text) {
  std::string out;
  for (const Character& c : Characters(text)) {
    if (c.begin < text.size()) absl::StrAppendFormat(&out, "\\x{%x}", c.code);
  }
  return out;
}

absl::StatusOr<JsonPattern> ReadPattern(const JsonReader& in) {
  ASSIGN_OR_RETURN(const JsonReader pattern, in.Object("pattern"));
  JsonPattern out;
  if (pattern.Find("String")) {
    ASSIGN_OR_RETURN(out.text, pattern.Text("String"));
    out.expression = Quoted(out.text);
  } else {
    ASSIGN_OR_RETURN(out.expression, pattern.Text("Regex"));
  }
  if (out.expression.empty()) return pattern.BadHere("a String or a Regex that is not empty");
  return out;
}

absl::Status ReadNormalizer(const JsonReader& root, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::optional<JsonReader> in, ObjectIfThere(root, "normalizer"));
  return in ? StepsReader{&spec->normalizer}.Normalizer(*in, 0) : absl::OkStatus();
}

absl::Status ReadPreTokenizer(const JsonReader& root, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::optional<JsonReader> in, ObjectIfThere(root, "pre_tokenizer"));
  if (!in) return absl::OkStatus();
  std::vector<TextStep>& steps = spec->pre_tokenizer;
  RETURN_IF_ERROR(StepsReader{&steps}.PreTokenizer(*in, 0));
  // Bytes are merged as they are where nothing else is done to their characters.
  const bool merges = spec->model == TokenizerSpec::Model::kMerges && spec->inner_mark.empty() &&
                      spec->end_mark.empty();
  if (merges && !steps.empty() && steps.back().kind == Kind::kBytes) {
    steps.pop_back();
    spec->model = TokenizerSpec::Model::kByteLevel;
  }
  return absl::OkStatus();
}

}  // namespace tessera::llm
