// 'decoder' and 'post_processor' of a tokenizer.json: tokens to text, and tokens around texts.
#include "absl/strings/match.h"
#include "examples/llm/tokenizer_json.h"
#include "examples/llm/unicode.h"

namespace tessera::llm {
namespace {

constexpr int kMostDepth = 8;

// What tokens become one by one. What is done to whole texts, after they are fused, is known only
// where it takes spaces from their beginning: tokens are read as they come.
struct DecoderReader {
  std::vector<TextStep>* steps;
  bool fused = false;

  void ReplaceAll(std::string pattern, std::string by) {
    TextStep step = Replace("", std::move(by));
    step.pattern = std::move(pattern);
    steps->push_back(std::move(step));
  }

  absl::Status Read(const JsonReader& in, int depth) {
    ASSIGN_OR_RETURN(const std::string type, in.Text("type"));
    if (type == "Sequence") {
      if (depth == kMostDepth) return in.BadHere("no more sequences in sequences");
      ASSIGN_OR_RETURN(const std::vector<JsonReader> all, in.Objects("decoders"));
      for (const JsonReader& one : all) RETURN_IF_ERROR(Read(one, depth + 1));
      return absl::OkStatus();
    }
    if (type == "Fuse") {
      fused = true;
    } else if (type == "Strip") {
      return Strip(in);
    } else if (fused) {
      return in.Bad("the decoder ", ShowName(type), " after Fuse is not known; Strip is");
    } else if (type == "ByteLevel") {
      steps->push_back(Change(TextStep::Kind::kFromBytes));
    } else if (type == "ByteFallback") {  // tokens of bytes are always that
    } else if (type == "Metaspace") {
      ASSIGN_OR_RETURN(std::string space, in.Text("replacement", kSpace));
      if (space.empty()) return in.BadHere("a replacement of one character");
      steps->push_back(Replace(std::move(space), " "));
    } else if (type == "Replace") {
      ASSIGN_OR_RETURN(JsonPattern pattern, ReadPattern(in));
      ASSIGN_OR_RETURN(std::string by, in.Text("content"));
      ReplaceAll(std::move(pattern.expression), std::move(by));
    } else if (type == "BPEDecoder") {
      ASSIGN_OR_RETURN(std::string suffix, in.Text("suffix", "</w>"));
      if (!suffix.empty()) steps->push_back(Replace(std::move(suffix), " "));
    } else if (type == "WordPiece") {
      return WordPiece(in);
    } else {
      return in.Bad("the decoder ", ShowName(type), " is not known");
    }
    return absl::OkStatus();
  }

  absl::Status Strip(const JsonReader& in) {
    ASSIGN_OR_RETURN(const std::string content, in.Text("content", " "));
    ASSIGN_OR_RETURN(const int64_t start, in.Int("start", 0));
    ASSIGN_OR_RETURN(const int64_t stop, in.Int("stop", 0));
    if (Characters(content).size() != 2) return in.BadHere("a content of one character");
    constexpr int64_t kMost = 100;
    if (start < 0 || stop < 0 || start > kMost || stop > kMost) {
      return in.BadHere(absl::StrCat("'start' and 'stop' of 0 to ", kMost));
    }
    if (fused) {  // the space at a text's beginning stays
      if (content == " " && start <= 1 && stop == 0) return absl::OkStatus();
      return in.BadHere("after Fuse a content of one space, a 'start' of 0 or 1 and no 'stop'");
    }
    if (start > 0) ReplaceAll(absl::StrCat("\\A", Quoted(content), "{1,", start, "}"), "");
    if (stop > 0) ReplaceAll(absl::StrCat(Quoted(content), "{1,", stop, "}\\z"), "");
    return absl::OkStatus();
  }

  absl::Status WordPiece(const JsonReader& in) {
    ASSIGN_OR_RETURN(const std::string mark, in.Text("prefix", "##"));
    ASSIGN_OR_RETURN(const bool cleanup, in.Bool("cleanup", true));
    if (mark.empty()) return in.BadHere("a prefix");
    ReplaceAll(absl::StrCat("\\A(?!", Quoted(mark), ")"), " ");
    ReplaceAll(absl::StrCat("\\A", Quoted(mark)), "");
    if (!cleanup) return absl::OkStatus();
    for (const char* text :
         {" .", " ?", " !", " ,", " ' ", " n't", " 'm", " do not", " 's", " 've", " 're"}) {
      const absl::string_view all = text;
      steps->push_back(Replace(text, all == " ' "       ? "'"
                                     : all == " do not" ? " don't"
                                                        : std::string(all.substr(1))));
    }
    return absl::OkStatus();
  }
};

// Which tokens, if any, go before and after a text.
struct PostReader {
  TokenizerSpec* spec;
  bool ends = false;

  absl::Status Read(const JsonReader& in, int depth) {
    ASSIGN_OR_RETURN(const std::string type, in.Text("type"));
    if (type == "Sequence") {
      if (depth == kMostDepth) return in.BadHere("no more sequences in sequences");
      ASSIGN_OR_RETURN(const std::vector<JsonReader> all, in.Objects("processors"));
      for (const JsonReader& one : all) RETURN_IF_ERROR(Read(one, depth + 1));
      return absl::OkStatus();
    }
    if (type == "ByteLevel") return absl::OkStatus();  // of offsets alone
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      RETURN_IF_ERROR(Pair(in, "cls"));
      return Pair(in, "sep");
    }
    if (type == "TemplateProcessing") return Template(in);
    return in.Bad("the post_processor ", ShowName(type), " is not known");
  }

  absl::Status Pair(const JsonReader& in, absl::string_view key) {
    std::vector<Json> parts;
    if (const std::optional<Json> pair = in.Find(key); pair && pair->is(Json::Type::kArray)) {
      for (const JsonItem item : pair->Items()) parts.push_back(item.value());
    }
    if (parts.size() != 2 || !parts[0].String()) {
      return in.Bad("'", in.within, key, "' is no pair of a token and its id");
    }
    return Surround(in, *parts[0].String(), /*before=*/key == "cls");
  }

  absl::Status Template(const JsonReader& in) {
    ASSIGN_OR_RETURN(const std::vector<JsonReader> single, in.Objects("single"));
    bool before = true;
    for (const JsonReader& piece : single) {
      if (piece.Find("Sequence")) {
        before = false;
        continue;
      }
      ASSIGN_OR_RETURN(const JsonReader special, piece.Object("SpecialToken"));
      ASSIGN_OR_RETURN(const std::string text, special.Text("id"));
      RETURN_IF_ERROR(Surround(special, text, before));
    }
    return absl::OkStatus();
  }

  absl::Status Surround(const JsonReader& in, const std::string& text, bool before) {
    for (size_t i = 0; i < spec->tokens.size(); ++i) {
      if (spec->tokens[i].text != text) continue;
      const auto id = static_cast<int64_t>(i);
      if (before) {
        if (spec->add_bos) spec->before_bos.push_back(spec->bos);
        spec->add_bos = true;
        spec->bos = spec->first = id;
        return absl::OkStatus();
      }
      if (ends) return in.BadHere("no second token after a text");
      ends = spec->add_eos = true;
      spec->eos = spec->last = id;
      return absl::OkStatus();
    }
    return in.Bad("'post_processor' has ", ShowName(text), ", which is no token");
  }
};

}  // namespace

absl::Status ReadDecoder(const JsonReader& root, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::optional<JsonReader> in, ObjectIfThere(root, "decoder"));
  if (!in) return absl::OkStatus();
  RETURN_IF_ERROR(DecoderReader{&spec->decoder}.Read(*in, 0));
  if (spec->decoder.empty()) {  // tokens are written as they are, whatever the model
    TextStep nothing = Change(TextStep::Kind::kTrim);
    nothing.left = nothing.right = false;
    spec->decoder.push_back(nothing);
  }
  return absl::OkStatus();
}

absl::Status ReadPostProcessor(const JsonReader& root, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::optional<JsonReader> in, ObjectIfThere(root, "post_processor"));
  return in ? PostReader{spec}.Read(*in, 0) : absl::OkStatus();
}

}  // namespace tessera::llm
