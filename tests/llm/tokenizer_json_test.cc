// The parts of tokenizer.json one by one, against what Hugging Face's tokenizers 0.23 do, and what
// is refused of each.
#include "examples/llm/tokenizer_steps.h"

#include "absl/strings/escaping.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

using ::testing::ElementsAre;

// Of words that are tokens by themselves, with some more keys.
std::string WordsJson(const std::string& more) {
  return absl::StrCat(R"({"model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,"x":1,"cd":2,)"
                      R"("ab":3}})",
                      more.empty() ? "" : ",", more, "}");
}
TokenizerSpec SpecOf(const std::string& json) {
  absl::StatusOr<TokenizerSpec> spec = TokenizerFromHuggingFaceText(json, "f");
  EXPECT_OK(spec);
  return spec.ok() ? *std::move(spec) : TokenizerSpec();
}

std::vector<std::string> WordsBy(const std::string& pre_tokenizer, absl::string_view text) {
  const TokenizerSpec spec = SpecOf(WordsJson("\"pre_tokenizer\":{" + pre_tokenizer + "}"));
  const absl::StatusOr<TextSteps> steps = TextSteps::Make(spec.pre_tokenizer);
  EXPECT_OK(steps);
  std::vector<std::string> out;
  steps->Do(text, {}, [&](absl::string_view word) { out.emplace_back(word); });
  return out;
}
std::string Normalized(const std::string& normalizer, absl::string_view text) {
  const TokenizerSpec spec = SpecOf(WordsJson("\"normalizer\":{" + normalizer + "}"));
  const absl::StatusOr<TextSteps> steps = TextSteps::Make(spec.normalizer);
  EXPECT_OK(steps);
  return steps->Changed(text, {});
}

TEST(TokenizerJson, SplitsByEachBehavior) {
  EXPECT_THAT(WordsBy(R"("type":"Split","pattern":{"String":"--"},"behavior":"Isolated",)"
                      R"("invert":false)",
                      "--a----b"),
              ElementsAre("--", "a", "--", "--", "b"));
  EXPECT_THAT(WordsBy(R"("type":"Split","pattern":{"String":"--"},"behavior":"Removed",)"
                      R"("invert":false)",
                      "--a----b"),
              ElementsAre("a", "b"));
  EXPECT_THAT(WordsBy(R"("type":"Split","pattern":{"String":"--"},)"
                      R"("behavior":"MergedWithPrevious","invert":false)",
                      "--a----b"),
              ElementsAre("--", "a--", "--", "b"));
  EXPECT_THAT(WordsBy(R"("type":"Split","pattern":{"String":"--"},"behavior":"MergedWithNext",)"
                      R"("invert":false)",
                      "--a----b"),
              ElementsAre("--a", "--", "--b"));
  EXPECT_THAT(WordsBy(R"("type":"Split","pattern":{"String":"--"},"behavior":"Contiguous",)"
                      R"("invert":false)",
                      "--a----b"),
              ElementsAre("--", "a", "----", "b"));
  EXPECT_THAT(WordsBy(R"("type":"Split","pattern":{"Regex":"\\d+"},"behavior":"MergedWithNext",)"
                      R"("invert":true)",
                      "ab12c3"),
              ElementsAre("ab12", "c3"));
  EXPECT_THAT(WordsBy(R"("type":"Split","pattern":{"String":"."},"behavior":"Removed",)"
                      R"("invert":false)",
                      "a.b..c"),
              ElementsAre("a", "b", "c"));
}

TEST(TokenizerJson, PreTokenizers) {
  EXPECT_THAT(WordsBy(R"("type":"Digits","individual_digits":true)", "a12\u00b2b"),
              ElementsAre("a", "1", "2", "\u00b2", "b"));
  EXPECT_THAT(WordsBy(R"("type":"Digits","individual_digits":false)", "a12\u00b2b"),
              ElementsAre("a", "12\u00b2", "b"));
  EXPECT_THAT(WordsBy(R"("type":"Punctuation","behavior":"MergedWithPrevious")", "a,,b $c"),
              ElementsAre("a,", ",", "b $", "c"));
  EXPECT_THAT(WordsBy(R"("type":"CharDelimiterSplit","delimiter":"中")", "a\u4e2d\u4e2db"),
              ElementsAre("a", "b"));
  EXPECT_THAT(WordsBy(R"("type":"Whitespace")", "H\u00e9_y  1\u00b2!? \u00b7a"),
              ElementsAre("H\u00e9_y", "1", "\u00b2!?", "\u00b7", "a"));
  EXPECT_THAT(WordsBy(R"("type":"WhitespaceSplit")", " a\u3000b!c\n"), ElementsAre("a", "b!c"));
  EXPECT_THAT(WordsBy(R"("type":"BertPreTokenizer")", "it's $5 ok\u3002"),
              ElementsAre("it", "'", "s", "$", "5", "ok", "\u3002"));
  EXPECT_THAT(WordsBy(R"("type":"UnicodeScripts")",
                      " \u3069\u3053a\u3067 \u30ab\u30ca\u4e00\u30fc \u043e\u043a"),
              ElementsAre("\u3069\u3053", "a", "\u3067 \u30ab\u30ca\u4e00\u30fc ", "\u043e\u043a"));
  EXPECT_THAT(WordsBy(R"("type":"Metaspace","replacement":"_","prepend_scheme":"first",)"
                      R"("split":true)",
                      "a  b"),
              ElementsAre("_a", "_", "_b"));
  EXPECT_THAT(WordsBy(R"("type":"Metaspace","replacement":"▁","prepend_scheme":"always",)"
                      R"("split":false)",
                      "a b"),
              ElementsAre("\u2581a\u2581b"));
  EXPECT_THAT(WordsBy(R"("type":"Sequence","pretokenizers":[{"type":"ByteLevel",)"
                      R"("add_prefix_space":true,"trim_offsets":true,"use_regex":false},)"
                      R"( {"type":"Digits","individual_digits":true}])",
                      "a\u00e93\u00b9"),
              ElementsAre("\u0120a\u00c3\u00a9", "3", "\u00c2", "\u00b9"));
}

TEST(TokenizerJson, Normalizers) {
  EXPECT_EQ(Normalized(R"("type":"NFKC")", "\ufb01\u2460\uff21\u00e9"), "fi1A\u00e9");
  EXPECT_EQ(Normalized(R"("type":"NFKD")", "\u00bd\u00e9"), "1\u20442e\u0301");
  EXPECT_EQ(Normalized(R"("type":"Lowercase")", "\u00c0\u0130\u03a3"), "\u00e0i\u0307\u03c3");
  EXPECT_EQ(Normalized(R"("type":"Strip","strip_left":true,"strip_right":false)", "\u3000 a "),
            "a ");
  EXPECT_EQ(Normalized(R"("type":"StripAccents")", "e\u0301x"), "ex");
  EXPECT_EQ(Normalized(R"("type":"Replace","pattern":{"Regex":"\\s+"},"content":"_")", "a \n b "),
            "a_b_");
  EXPECT_EQ(Normalized(R"("type":"Replace","pattern":{"String":"aa"},"content":"b")", "aaaaa"),
            "bba");
  EXPECT_EQ(Normalized(R"("type":"Prepend","prepend":"xy")", "a"), "xya");
  EXPECT_EQ(Normalized(R"("type":"Prepend","prepend":"xy")", ""), "");
  EXPECT_EQ(Normalized(R"("type":"Nmt")", "a\u200b\tb\001"), "a  b");
  EXPECT_EQ(Normalized(R"("type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
                       R"("strip_accents":null,"lowercase":true)",
                       "\u00c4\t\u4e2db\002"),
            "a  \u4e2d b");
  EXPECT_EQ(Normalized(R"("type":"BertNormalizer","clean_text":false,"handle_chinese_chars":false,)"
                       R"("strip_accents":false,"lowercase":true)",
                       "\u00c4\t\u4e2d"),
            "\u00e4\t\u4e2d");
  EXPECT_EQ(Normalized(R"("type":"ByteLevel")", "\u00e9 "), "\u00c3\u00a9\u0120");
  EXPECT_EQ(Normalized(R"("type":"Sequence","normalizers":[{"type":"NFD"},)"
                       R"( {"type":"StripAccents"}, {"type":"Lowercase"}])",
                       "\u00c9A"),
            "ea");
}

// A trie of "a" that is written as "xy", and "e" with an acute accent, as "z".
std::string SmallCharsmap() {
  std::vector<uint32_t> units(1024, 0);
  const auto child = [&](uint32_t base, uint8_t byte) { return base ^ byte; };
  constexpr uint32_t kRoot = 256, kA = 512, kE = 600, kCc = 700, kAcute = 800, kLeaf = 1 << 8;
  const auto unit = [](uint32_t at, uint32_t to, uint8_t byte) { return (at ^ to) << 10 | byte; };
  units[0] = kRoot << 10;
  const uint32_t a = child(kRoot, 'a'), e = child(kRoot, 'e');
  units[a] = unit(a, kA, 'a') | kLeaf;
  units[kA] = 1u << 31 | 0;
  units[e] = unit(e, kE, 'e');
  const uint32_t cc = child(kE, 0xCC);
  units[cc] = unit(cc, kCc, 0xCC);
  const uint32_t acute = child(kCc, 0x81);
  units[acute] = unit(acute, kAcute, 0x81) | kLeaf;
  units[kAcute] = 1u << 31 | 3;
  std::string bytes;
  const auto word = [&](uint32_t w) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(w >> 8 * i & 255);
  };
  word(static_cast<uint32_t>(units.size() * 4));
  for (const uint32_t w : units) word(w);
  return absl::Base64Escape(bytes + std::string("xy\0z\0", 5));
}

TEST(TokenizerJson, CutsWantAPattern) {
  TokenizerSpec spec = SpecOf(WordsJson(""));
  spec.pre_tokenizer = {CutBy("")};
  EXPECT_THAT(Tokenizer::Make(std::move(spec)),
              StatusIs(absl::StatusCode::kDataLoss, "a cut by no pattern"));
}

TEST(TokenizerJson, TextsMayNotGrowWithoutBounds) {
  const auto made = [](int times, const char* text) {
    std::vector<TextStep> steps(static_cast<size_t>(times), Replace("a", text));
    return Tokenizer::Make([&] {
      TokenizerSpec spec = SpecOf(WordsJson(""));
      spec.normalizer = steps;
      return spec;
    }());
  };
  EXPECT_OK(made(16, "aa"));
  EXPECT_THAT(made(17, "aa"), StatusIs(absl::StatusCode::kDataLoss, "65536 times as long"));
  EXPECT_OK(made(200, "b"));
  EXPECT_THAT(made(300, "b"), StatusIs(absl::StatusCode::kDataLoss, "more than 256 steps"));
}

TEST(TokenizerJson, PiecesMayNotGrowWithoutBounds) {
  const auto made = [](const TextStep& step, bool decodes) {
    TokenizerSpec spec = SpecOf(WordsJson(""));
    for (int i = 0; i < 50; ++i) spec.tokens.push_back({std::string(4000, 'c')});
    for (TokenizerSpec::Token& t : spec.tokens) {
      if (!decodes) t.kind = TokenKind::kUserDefined;
      t.normalized = !decodes;
    }
    (decodes ? spec.decoder : spec.normalizer) = {step};
    return Tokenizer::Make(std::move(spec));
  };
  for (const bool decodes : {false, true}) {
    EXPECT_THAT(made(Replace("c", std::string(65000, 'd')), decodes),
                StatusIs(absl::StatusCode::kDataLoss, "token 4: with it"));
    EXPECT_OK(made(Replace("c", std::string(50, 'd')), decodes));
  }
}

TEST(TokenizerJson, EachIdIsOfOneToken) {
  const auto added = [](const std::string& tokens) {
    return WordsJson("\"added_tokens\":[" + tokens + "]");
  };
  const char kLast[] = R"({"id":6,"content":"t"})";
  EXPECT_THAT(TokenizerFromHuggingFaceText(added(R"({"id":1,"content":"y"})"), "f"),
              StatusIs(absl::StatusCode::kDataLoss, "'x' and 'y' have one id"));
  EXPECT_THAT(
      TokenizerFromHuggingFaceText(added(absl::StrCat(kLast, R"(,{"id":6,"content":"y"})")), "f"),
      StatusIs(absl::StatusCode::kDataLoss, "'t' and 'y' have one id"));
  EXPECT_THAT(IdsOf(added(absl::StrCat(kLast, R"(,{"id":1,"content":"x"})")), "x"), ElementsAre(1));
  // An id without a token is found nowhere.
  EXPECT_THAT(IdsOf(added(kLast), "[unused 4]"), ElementsAre(0));
}

TEST(TokenizerJson, MapsOfCharacters) {
  const auto map = [](const std::string& base64) {
    return absl::StrCat(R"("type":"Precompiled","precompiled_charsmap":")", base64, "\"");
  };
  EXPECT_EQ(Normalized(map(SmallCharsmap()), "bae\u0301e!"), "bxyze!");
  // What is found for the beginning of a character with its marks is all of it.
  EXPECT_EQ(Normalized(map(SmallCharsmap()), "a\u0302 a\u0302\u0302\u0302"),
            "xy xy\u0302\u0302\u0302");
  for (const std::string& wrong :
       {std::string("!"), std::string("AAAA"), std::string("/wAAAAAA")}) {
    EXPECT_THAT(Tokenizer::Make(SpecOf(WordsJson("\"normalizer\":{" + map(wrong) + "}"))),
                StatusIs(absl::StatusCode::kDataLoss, "a map of characters"));
  }
}

TEST(TokenizerJson, WordsOfMarkedParts) {
  const std::string merges =
      R"({"model":{"type":"BPE","continuing_subword_prefix":"##","end_of_word_suffix":"</w>",)"
      R"("vocab":{"a":0,"##b":1,"##c":2,"##c</w>":3,"ab":4,"##cc</w>":5,"abcc</w>":6,"a</w>":7},)"
      R"("merges":["a ##b","##c ##c</w>",["ab","##cc</w>"]]}})";
  EXPECT_THAT(IdsOf(merges, "abcc"), ElementsAre(6));
  EXPECT_THAT(IdsOf(merges, "abc"), ElementsAre(4, 3));
  EXPECT_THAT(IdsOf(merges, "a"), ElementsAre(7));
  EXPECT_THAT(IdsOf(merges, "a!c"), ElementsAre(0, 3));  // what is unknown is left out
  EXPECT_THAT(IdsOf(merges, "ac!c"), ElementsAre(0, 5));
  const std::string pieces =
      R"({"model":{"type":"WordPiece","unk_token":"u","max_input_chars_per_word":5,)"
      R"("vocab":{"u":0,"ab":1,"##c":2,"a":3,"##bc":4,"abcc":5,"##cc":6}}})";
  EXPECT_THAT(IdsOf(pieces, "abccc"), ElementsAre(5, 2));
  EXPECT_THAT(IdsOf(pieces, "abc"), ElementsAre(1, 2));
  EXPECT_THAT(IdsOf(pieces, "abx"), ElementsAre(0));
  EXPECT_THAT(IdsOf(pieces, "abcccc"), ElementsAre(0));
  EXPECT_THAT(IdsOf(WordsJson(""), "ab"), ElementsAre(3));
  EXPECT_THAT(IdsOf(WordsJson(""), "abc"), ElementsAre(0));
}

TEST(TokenizerJson, BytesOfUnigramsOnlyWhereAllAreThere) {
  const auto unigram = [](const char* fallback) {
    return absl::StrCat(R"({"model":{"type":"Unigram","unk_id":0,"byte_fallback":)", fallback,
                        R"(,"vocab":[["u",0],["a",-1],["<0x62>",-9]]}})");
  };
  EXPECT_THAT(IdsOf(unigram("false"), "abb"), ElementsAre(1, 0));
  EXPECT_THAT(IdsOf(unigram("true"), "abb"), ElementsAre(1, 2, 2));
}

TEST(TokenizerJson, AddedTokensInWhatIsNormalized) {
  const auto added = [](int id, const char* content, const char* normalized) {
    return absl::StrCat(R"({"id":)", id, R"(,"content":")", content, R"(","normalized":)",
                        normalized, "}");
  };
  const std::string lower =
      WordsJson(absl::StrCat(R"("normalizer":{"type":"Lowercase"},"added_tokens":[)",
                             added(4, "Ab", "true"), ",", added(5, "Cd", "false"), "]"));
  EXPECT_THAT(IdsOf(lower, "xAB"), ElementsAre(1, 4));
  EXPECT_THAT(IdsOf(lower, "xCd"), ElementsAre(1, 5));
  EXPECT_THAT(IdsOf(lower, "xcD"), ElementsAre(0));
  EXPECT_THAT(IdsOf(lower, "CD"), ElementsAre(2));
  EXPECT_THAT(IdsOf(lower, "abCdAb"), ElementsAre(4, 5, 4));
  // The model finds no added token that is none of its own.
  EXPECT_THAT(IdsOf(WordsJson(R"("added_tokens":[{"id":4,"content":"yy","single_word":true}],)"
                              R"("pre_tokenizer":{"type":"Split","pattern":{"String":"yy"},)"
                              R"("behavior":"Isolated"})"),
                    "xyy yy"),
              ElementsAre(1, 0, 0, 4));
}

TEST(TokenizerJson, Decoders) {
  const auto piece = [](const std::string& decoder, const std::string& token) {
    const std::string json =
        absl::StrCat(R"({"model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,")", token,
                     R"(":1}},"decoder":)", decoder, "}");
    const auto tokenizer = Tokenizer::Make(SpecOf(json));
    EXPECT_OK(tokenizer);
    return (*tokenizer)->Piece(1);
  };
  EXPECT_EQ(piece(R"({"type":"WordPiece"})", "##ab"), "ab");
  EXPECT_EQ(piece(R"({"type":"WordPiece"})", "ab##"), " ab##");
  EXPECT_EQ(piece(R"({"type":"WordPiece"})", "?"), "?");
  EXPECT_EQ(piece(R"({"type":"WordPiece","cleanup":false})", "?"), " ?");
  EXPECT_EQ(piece(R"({"type":"BPEDecoder"})", "ab</w>"), "ab ");
  EXPECT_EQ(piece(R"({"type":"ByteLevel"})", "\u0120\u00c3\u00a9"), " \u00e9");
  EXPECT_EQ(piece(R"({"type":"Metaspace","replacement":"_"})", "_a\u2581"), " a\u2581");
  EXPECT_EQ(piece(R"({"type":"Strip","content":"a","start":2,"stop":1})", "aaabaa"), "aba");
  EXPECT_EQ(piece(R"({"type":"Fuse"})", "\u2581"), "\u2581");
  EXPECT_EQ(piece(R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},)"
                  R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"},)"
                  R"({"type":"Strip","content":" ","start":1,"stop":0}]})",
                  "_a"),
            " a");
}

TEST(TokenizerJson, WrongTypesAreErrorsThatNameTheKey) {
  const std::string bpe = R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[])";
  const auto step = [](const char* key, const std::string& fields) {
    return WordsJson(absl::StrCat("\"", key, "\":{", fields, "}"));
  };
  const struct {
    std::string json, message;
  } kRows[] = {
      {R"({"model":5})", "key 'model' is '5', not an object"},
      {R"({"model":{"type":"BPE","vocab":{"a":"0"},"merges":[]}})", "token 'a': its id is"},
      {R"({"model":{"type":"BPE","vocab":["a"],"merges":[]}})", "'model.vocab' is"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":{}}})", "'model.merges' is"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[["a",1]]}})", "merge 0"},
      {bpe + R"(,"byte_fallback":"yes"}})", "'model.byte_fallback' is '\"yes\"', not a bool"},
      {bpe + R"(,"unk_token":0}})", "'model.unk_token' is '0', not a text"},
      {bpe + R"(,"dropout":0.1}})", "'model.dropout' is 0.1"},
      {bpe + R"(},"added_tokens":{}})", "'added_tokens' is"},
      {bpe + R"(},"added_tokens":[{"id":1,"content":true}]})", "'added_tokens[0].content' is"},
      {bpe + R"(},"added_tokens":[{"id":1,"content":"b","lstrip":1}]})",
       "'added_tokens[0].lstrip' is '1', not a bool"},
      {R"({"model":{"type":"Unigram","vocab":[["a","b"]]}})", "token 0 is not [text, score]"},
      {R"({"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":1}})", "'model.unk_id' is 1"},
      {R"({"model":{"type":"WordPiece","unk_token":"u","vocab":{"a":0}}})", "which is no token"},
      {step("normalizer", R"("type":"Rot13")"), "the normalizer 'Rot13' is not known"},
      {step("normalizer", R"("type":"Sequence","normalizers":[{"type":"NFC"},5])"),
       "'normalizer.normalizers[1]' is '5', not an object"},
      {step("normalizer", R"("type":"Replace","pattern":{"String":""},"content":"")"),
       "'normalizer.pattern': wants"},
      {step("pre_tokenizer", R"("type":"FixedLength","length":5)"), "'FixedLength' is not known"},
      {step("pre_tokenizer", R"("type":"Split","pattern":{"Regex":"a"},"behavior":"Merged")"),
       "'pre_tokenizer.behavior' is 'Merged'"},
      {step("pre_tokenizer", R"("type":"Metaspace","prepend_scheme":"maybe")"), "'maybe'"},
      {step("decoder", R"("type":"CTC")"), "the decoder 'CTC' is not known"},
      {step("decoder", R"("type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteLevel"}])"),
       "'ByteLevel' after Fuse"},
      {step("decoder", R"("type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip",)"
                       R"("content":"a","start":1,"stop":0}])"),
       "after Fuse a content of one space"},
      {step("post_processor", R"("type":"Else")"), "the post_processor 'Else' is not known"},
  };
  for (const auto& [json, message] : kRows) {
    EXPECT_THAT(TokenizerFromHuggingFaceText(json, "f"),
                StatusIs(absl::StatusCode::kDataLoss, message))
        << json;
  }
  std::string deep = R"("type":"NFC")";
  for (int i = 0; i < 10; ++i) deep = R"("type":"Sequence","normalizers":[{)" + deep + "}]";
  EXPECT_THAT(TokenizerFromHuggingFaceText(step("normalizer", deep), "f"),
              StatusIs(absl::StatusCode::kDataLoss, "sequences in sequences"));
}

}  // namespace
}  // namespace tessera::llm
