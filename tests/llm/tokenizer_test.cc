// Tokenizers: the samples of public vocabularies, the story's from both files, streaming.
#include "examples/llm/tokenizer.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_split.h"
#include "examples/llm/pretokenizers.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Ids(const std::string& line) {
  std::vector<int32_t> out;
  for (absl::string_view s : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    out.push_back(std::stoi(std::string(s)));
  }
  return out;
}

void ExpectSamples(const Tokenizer& tokenizer, const std::string& name, bool space_prefix) {
  const std::string base = std::string(kData) + "tokenizers/ggml-vocab-" + name + ".gguf";
  const std::string in = ReadFile(base + ".inp"), out = ReadFile(base + ".out");
  const std::vector<std::string> texts = absl::StrSplit(in, "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = absl::StrSplit(out, '\n');
  ASSERT_EQ(texts.size(), lines.size());
  ASSERT_GT(texts.size(), 40u);
  Tokenizer::Options options;
  options.special = false;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int32_t> ids = tokenizer.Encode(texts[i], options);
    EXPECT_EQ(ids, Ids(lines[i])) << name << ": " << texts[i];
    const std::string begin = space_prefix && !texts[i].empty() ? " " : "";
    EXPECT_EQ(DecodeAll(tokenizer, ids), begin + texts[i]) << name;
  }
}

TEST(Tokenizer, SamplesOfPublicVocabularies) {
  SKIP_WITHOUT_DATA();
  for (const char* name : {"gpt-2", "llama-bpe", "falcon", "llama-spm", "phi-3"}) {
    const std::string path = std::string(kData) + "tokenizers/ggml-vocab-" + name + ".gguf";
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadTokenizer(path));
    ExpectSamples(*tokenizer, name,
                  std::string(name) == "llama-spm" || std::string(name) == "phi-3");
  }
}

TEST(Tokenizer, PhiThreesMarksTakeTheSpaceAfterThem) {
  SKIP_WITHOUT_DATA();
  ASSERT_OK_AND_ASSIGN(const auto t,
                       LoadTokenizer(std::string(kData) + "tokenizers/ggml-vocab-phi-3.gguf"));
  Tokenizer::Options markup;
  markup.markup = true;
  EXPECT_EQ(t->Encode("a<|end|>\n \nb", markup), t->Encode("a<|end|>b", markup));
  EXPECT_NE(t->Encode("a<s>\n \nb", markup), t->Encode("a<s>b", markup));
}

TEST(Tokenizer, SamplesFromTokenizerJson) {
  SKIP_WITHOUT_DATA();
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       LoadTokenizer(std::string(kData) + "tokenizers/gpt2-tokenizer.json"));
  ExpectSamples(*tokenizer, "gpt-2", false);
  Tokenizer::Options markup;
  markup.markup = true;
  EXPECT_THAT(tokenizer->Encode("a<|endoftext|>", markup), ElementsAre(64, 50256));
  EXPECT_GT(tokenizer->Encode("a<|endoftext|>", {}).size(), 2u);
}

TEST(Tokenizer, TheStorysVocabularyIsTheSameFromBothFiles) {
  SKIP_WITHOUT_DATA();
  ASSERT_OK_AND_ASSIGN(const auto a, LoadTokenizer(kStory));
  ASSERT_OK_AND_ASSIGN(const auto b, LoadTokenizer(std::string(kData) + "models/stories260K/hf"));
  for (const char* text : {"Once upon a time", "", " ", "Lily's mom said, \"no\"\n\n",
                           "\u00e9\U0001F600", "  two  spaces  "}) {
    EXPECT_EQ(a->Encode(text, {}), b->Encode(text, {})) << text;
    EXPECT_EQ(a->Encode(text, {})[0], 1);
  }
}

TEST(Tokenizer, BytesStandForUnknownCharacters) {
  ASSERT_OK_AND_ASSIGN(const auto t, LoadTokenizer(kStory));
  const std::string text = "caf\xC3\xA9 \xF0\x9F\x98\x80";
  const std::vector<int32_t> ids = t->Encode(text, {});
  EXPECT_EQ(DecodeAll(*t, ids), " " + text);
  EXPECT_EQ(t->Piece(-1), "");
  EXPECT_EQ(t->Piece(1 << 20), "");
  EXPECT_EQ(t->Piece(1), "");  // <s> is no text
}

TEST(Tokenizer, UnigramTakesTheLikeliestSplit) {
  TokenizerSpec spec;
  spec.model = TokenizerSpec::Model::kUnigram;
  const std::pair<const char*, float> tokens[] = {{"<unk>", 0}, {"a", -1},   {"b", -1},
                                                  {"ab", -1.5}, {"abb", -4}, {"bb", -1.7}};
  for (const auto& [text, score] : tokens) spec.tokens.push_back({text, score, TokenKind::kNormal});
  spec.tokens[0].kind = TokenKind::kUnknown;
  spec.unknown = 0;
  ASSERT_OK_AND_ASSIGN(const auto t, Tokenizer::Make(std::move(spec)));
  EXPECT_THAT(t->Encode("abb", {}), ElementsAre(3, 2));   // ab b: -2.5; a bb: -2.7; abb: -4
  EXPECT_THAT(t->Encode("abbb", {}), ElementsAre(3, 5));  // ab bb
  EXPECT_THAT(t->Encode("axb", {}), ElementsAre(1, 0, 2));
  TokenizerSpec longer;
  longer.model = TokenizerSpec::Model::kUnigram;
  longer.tokens = {{std::string(1024, 'a')}, {std::string(1025, 'a')}};
  EXPECT_THAT(Tokenizer::Make(std::move(longer)).status(),
              StatusIs(absl::StatusCode::kDataLoss, "token 1 has 1025 bytes"));
}

// The ids are those of Hugging Face's tokenizers 0.23.
TEST(Tokenizer, OptionsOfTokenizerJson) {
  const auto punctuation = [](const char* behavior) {
    return absl::StrCat(R"({"type":"Sequence","pretokenizers":[{"type":"Punctuation","behavior":")",
                        behavior, R"("},{"type":"ByteLevel","use_regex":false}]})");
  };
  EXPECT_THAT(IdsOf(ByteLevelJson(punctuation("Isolated"), "null"), "a--b"),
              ElementsAre(97, 45, 45, 98));
  EXPECT_THAT(IdsOf(ByteLevelJson(punctuation("Contiguous"), "null"), "a--b"),
              ElementsAre(97, 256, 98));
  EXPECT_THAT(IdsOf(ByteLevelJson(punctuation("Contiguous"), "null"), "---"), ElementsAre(256, 45));
  const std::string spaced =
      ByteLevelJson(R"({"type":"ByteLevel","add_prefix_space":true})", "null");
  EXPECT_THAT(IdsOf(spaced, "a"), ElementsAre(257));
  EXPECT_THAT(IdsOf(spaced, " a"), ElementsAre(257));
  EXPECT_THAT(IdsOf(spaced, ""), ElementsAre());
  const std::string plain = R"({"type":"ByteLevel","add_prefix_space":false})";
  EXPECT_THAT(IdsOf(ByteLevelJson(plain, "null"), "a"), ElementsAre(97));
  EXPECT_THAT(IdsOf(ByteLevelJson(plain, R"({"type":"NFC"})"), "e\u0301"), ElementsAre(258));
}

// Also these ids.
TEST(Tokenizer, AddedTokensTakeSpaceBesideThem) {
  const auto ids = [](const std::string& options, const std::string& text) {
    return IdsOf(ByteLevelJson(R"({"type":"ByteLevel","add_prefix_space":false})", "null",
                               absl::StrCat(R"([{"id":259,"content":"<t>")", options, "}]")),
                 text);
  };
  const std::string left = R"(,"lstrip":true)", right = R"(,"rstrip":true)";
  EXPECT_THAT(ids("", "b <t> a"), ElementsAre(98, 32, 259, 257));
  EXPECT_THAT(ids(left, "b <t> a"), ElementsAre(98, 259, 257));
  EXPECT_THAT(ids(left, " \u2003<t>\t\n"), ElementsAre(259, 9, 10));
  EXPECT_THAT(ids(left, "  <t> <t>  "), ElementsAre(259, 259, 32, 32));
  EXPECT_THAT(ids(right, "b <t> a"), ElementsAre(98, 32, 259, 97));
  EXPECT_THAT(ids(right, " \u2003<t>\t\n"), ElementsAre(32, 226, 128, 131, 259));
  EXPECT_THAT(ids(right, "<t>"), ElementsAre(259));
  EXPECT_THAT(ids(left + right, "b <t> <t> a"), ElementsAre(98, 259, 259, 97));
  const std::string alone = R"(,"single_word":true)";
  EXPECT_THAT(ids(alone, "b <t> a"), ElementsAre(98, 32, 259, 257));
  EXPECT_THAT(ids(alone, "b<t>a"), ElementsAre(98, 60, 116, 62, 97));
  EXPECT_THAT(ids(alone, "\u00e9<t>"), ElementsAre(258, 60, 116, 62));
  EXPECT_THAT(ids(alone, "<t>1"), ElementsAre(60, 116, 62, 49));
  EXPECT_THAT(ids(alone, "-<t>-"), ElementsAre(45, 259, 45));
}

TEST(Tokenizer, SpacesGoBeforeThePiecesThatAreThere) {
  const std::string digits = R"({"type":"Digits","individual_digits":true})";
  const auto sequence = [](const std::string& a, const std::string& b) {
    return absl::StrCat(R"({"type":"Sequence","pretokenizers":[)", a, ",", b, "]}");
  };
  const std::string bytes = R"({"type":"ByteLevel","add_prefix_space":true})";
  const std::string each = ByteLevelJson(sequence(digits, bytes), "null");
  EXPECT_THAT(IdsOf(each, "12"), ElementsAre(32, 49, 32, 50));
  EXPECT_THAT(IdsOf(each, "a1a"), ElementsAre(257, 32, 49, 257));
  EXPECT_THAT(IdsOf(each, " 1 a"), ElementsAre(32, 32, 49, 257));
  const std::string once = ByteLevelJson(sequence(bytes, digits), "null");
  EXPECT_THAT(IdsOf(once, "12"), ElementsAre(32, 49, 50));

  const auto unigram = [](const std::string& pre_tokenizer) {
    return absl::StrCat(
        R"({"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["\u2581",-1],["a",-2],)"
        R"(["\u2581a",-2.5],["a\u2581a",-1],["1",-1]]},"pre_tokenizer":)",
        pre_tokenizer, "}");
  };
  const auto spaces = [](const char* scheme, const char* split) {
    return absl::StrCat(R"({"type":"Metaspace","prepend_scheme":")", scheme, R"(","split":)", split,
                        "}");
  };
  // What is written as a space already gets no other.
  EXPECT_THAT(IdsOf(unigram(spaces("always", "true")), "\u2581a"), ElementsAre(3));
  EXPECT_THAT(IdsOf(unigram(spaces("first", "true")), "\u2581 a"), ElementsAre(1, 3));
  EXPECT_THAT(IdsOf(unigram(spaces("never", "true")), "a a"), ElementsAre(2, 3));
  EXPECT_THAT(IdsOf(unigram(spaces("never", "false")), "a a"), ElementsAre(4));
  EXPECT_THAT(IdsOf(unigram(sequence(digits, spaces("always", "true"))), "a1a"),
              ElementsAre(3, 1, 5, 3));
  EXPECT_THAT(IdsOf(unigram(sequence(digits, spaces("first", "true"))), "a1a"),
              ElementsAre(3, 5, 2));
}

// Merges and words reach over the borders of parts; names of control tokens count in markup alone.
TEST(Tokenizer, PartsAreOneText) {
  const std::string json =
      ByteLevelJson(R"({"type":"ByteLevel","add_prefix_space":false})", "null",
                    R"([{"id":259,"content":"<c>","special":true},{"id":260,"content":"<u>"}])");
  ASSERT_OK_AND_ASSIGN(TokenizerSpec spec, TokenizerFromHuggingFaceText(json, "tokenizer.json"));
  ASSERT_OK_AND_ASSIGN(const auto t, Tokenizer::Make(std::move(spec)));
  const auto ids = [&](const std::vector<Tokenizer::Part>& parts) { return t->Encode(parts, {}); };
  EXPECT_THAT(ids({{"b ", true}, {"a", false}}), ElementsAre(98, 257));
  EXPECT_THAT(ids({{"<c>", true}, {"<c>", false}}), ElementsAre(259, 60, 99, 62));
  EXPECT_THAT(ids({{"<", true}, {"c>", false}}), ElementsAre(60, 99, 62));
  EXPECT_THAT(ids({{"<", false}, {"c>", true}}), ElementsAre(60, 99, 62));
  EXPECT_THAT(ids({{"<u", true}, {">", false}}), ElementsAre(260));
  EXPECT_THAT(ids({{"<u", false}, {"", false, 259}, {">", false}}), ElementsAre(60, 117, 259, 62));
  EXPECT_THAT(ids({{" ", false}, {"", false, 259}, {"a", false}}), ElementsAre(32, 259, 97));
  EXPECT_THAT(ids({}), ElementsAre());
}

TEST(Tokenizer, SpacesAndUnknownsOfTokenizerJson) {
  const auto unigram = [](const char* scheme) {
    return absl::StrCat(
        R"({"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["\u2581",-1],["a",-2],)"
        R"(["\u2581a",-2.5]]},"added_tokens":[{"id":0,"content":"<unk>","special":true}],)"
        R"("pre_tokenizer":{"type":"Metaspace","prepend_scheme":")",
        scheme, "\"}}");
  };
  EXPECT_THAT(IdsOf(unigram("always"), " a"), ElementsAre(3));
  EXPECT_THAT(IdsOf(unigram("always"), "xyza"), ElementsAre(1, 0, 2));
  EXPECT_THAT(IdsOf(unigram("always"), "xy<unk>a"), ElementsAre(1, 0, 0, 3));
  EXPECT_THAT(IdsOf(unigram("first"), "xy<unk>a"), ElementsAre(1, 0, 0, 2));
  EXPECT_THAT(IdsOf(unigram("first"), "a"), ElementsAre(3));
  EXPECT_THAT(IdsOf(unigram("never"), "xyza"), ElementsAre(0, 2));
  EXPECT_THAT(IdsOf(unigram("never"), " a"), ElementsAre(3));
  const auto merges = [](const char* fuse) {
    return absl::StrCat(
        R"({"model":{"type":"BPE","unk_token":"<unk>","byte_fallback":true,"fuse_unk":)", fuse,
        R"(,"vocab":{"<unk>":0,"a":1,"\u2581":2,"\u2581a":3},"merges":["\u2581 a"]},)"
        R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},)"
        R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]}})");
  };
  EXPECT_THAT(IdsOf(merges("true"), "xya"), ElementsAre(2, 0, 1));
  EXPECT_THAT(IdsOf(merges("false"), "xya"), ElementsAre(2, 0, 0, 1));
  EXPECT_THAT(IdsOf(merges("true"), " a"), ElementsAre(2, 3));
}

// {"<s>": 0, "a": 1, "<x>": 2, "\u2581": 3, "\u2581a": 4} and what is added to that.
std::string SmallJson(const std::string& more) {
  return absl::StrCat(
      R"({"model":{"type":"BPE","unk_token":"<s>","byte_fallback":true,"vocab":{"<s>":0,"a":1,)"
      R"("<x>":2,"\u2581":3,"\u2581a":4},"merges":["\u2581 a"]},)",
      more, "}");
}

TEST(Tokenizer, SplitsThatFindNothing) {
  const std::string
      spaces = R"("normalizer":{"type":"Replace","pattern":{"String":" "},"content":"\u2581"})",
      split = R"("pre_tokenizer":{"type":"Split","pattern":{"String":" "},)"
              R"("behavior":"MergedWithPrevious","invert":false})";
  EXPECT_THAT(IdsOf(SmallJson(spaces + "," + split), "a a"), ElementsAre(1, 4));  // Gemma's
  EXPECT_THAT(IdsOf(SmallJson(split), "a a"), ElementsAre(1, 0, 1));
}

TEST(Tokenizer, InvertedSplitsKeepWhatMatches) {
  const auto words = [](const char* how) {
    return absl::StrCat(R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
                        R"({"Regex":"\\p{L}+|[^\\p{L}]+"},)",
                        how, R"(},{"type":"ByteLevel","use_regex":false}]})");
  };
  const std::string kept = words(R"("behavior":"Isolated","invert":false)"),
                    inverted = words(R"("behavior":"Removed","invert":true)");
  for (const char* text : {"a--b", " a", "---"}) {
    EXPECT_EQ(IdsOf(ByteLevelJson(inverted, "null"), text),
              IdsOf(ByteLevelJson(kept, "null"), text));
  }
  EXPECT_EQ(IdsOf(ByteLevelJson(words(R"("behavior":"Isolated","invert":true)"), "null"), "a--b"),
            IdsOf(ByteLevelJson(kept, "null"), "a--b"));
}

TEST(Tokenizer, TokensAroundTexts) {
  const auto around = [](const std::string& post) {
    return SmallJson(R"("post_processor":)" + post);
  };
  const auto special = [](const char* id) {
    return absl::StrCat(R"({"SpecialToken":{"id":")", id, R"(","type_id":0}})");
  };
  const std::string text = R"({"Sequence":{"id":"A","type_id":0}})";
  EXPECT_THAT(IdsOf(around(absl::StrCat(R"({"type":"TemplateProcessing","single":[)",
                                        special("<s>"), ",", special("<x>"), ",", text, "]}")),
                    "a"),
              ElementsAre(0, 2, 1));  // GLM's
  EXPECT_THAT(IdsOf(around(R"({"type":"RobertaProcessing","cls":["<s>",0],"sep":["<x>",2]})"), "a"),
              ElementsAre(0, 1, 2));
  for (const char* cls : {"[]", "5", R"({"a":0,"b":1})", R"(["<s>"])"}) {
    const std::string post =
        absl::StrCat(R"({"type":"BertProcessing","sep":["<x>",2],"cls":)", cls, "}");
    EXPECT_THAT(TokenizerFromHuggingFaceText(around(post), "f"),
                StatusIs(absl::StatusCode::kDataLoss, "'post_processor.cls' is no pair"));
  }
  EXPECT_THAT(
      TokenizerFromHuggingFaceText(around(absl::StrCat(R"({"type":"TemplateProcessing","single":[)",
                                                       special("<y>"), ",", text, "]}")),
                                   "f"),
      StatusIs(absl::StatusCode::kDataLoss, "'<y>', which is no token"));
}

// generation_config.json says what ends a text; else config.json does.
TEST(Tokenizer, EndsOfFolders) {
  const std::string folder = OwnTempDir() + "/ends";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder + "/" + name) << text;
  };
  write("tokenizer.json", SmallJson(R"("normalizer":null)"));
  const auto ends = [&]() -> std::vector<int64_t> {
    const absl::StatusOr<TokenizerSpec> spec = TokenizerFromHuggingFace(folder);
    EXPECT_OK(spec);
    return spec.ok() ? spec->ends : std::vector<int64_t>();
  };
  EXPECT_THAT(ends(), ElementsAre());
  write("config.json", R"({"eos_token_id": 2})");
  EXPECT_THAT(ends(), ElementsAre(2));
  write("config.json", R"({"text_config": {"eos_token_id": [1, 2]}})");
  EXPECT_THAT(ends(), ElementsAre(1, 2));
  write("generation_config.json", R"({"eos_token_id": 1})");
  EXPECT_THAT(ends(), ElementsAre(1));
  for (const char* wrong : {"5", "-1", "\"x\"", "[1, \"a\"]", "1099511627776"}) {
    write("generation_config.json", absl::StrCat(R"({"eos_token_id": )", wrong, "}"));
    EXPECT_THAT(TokenizerFromHuggingFace(folder),
                StatusIs(absl::StatusCode::kDataLoss, "'eos_token_id' has"));
  }
}

TEST(Tokenizer, WrongTypesInConfigsOfFolders) {
  const std::string folder = OwnTempDir() + "/types";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/tokenizer.json") << SmallJson(R"("normalizer":null)");
  for (const auto& [config, key] :
       {std::pair(R"({"bos_token": 5})", "'bos_token' is '5'"),
        std::pair(R"({"eos_token": {"content": []}})", "'eos_token.content' is"),
        std::pair(R"({"add_bos_token": "yes"})", "'add_bos_token' is"),
        std::pair(R"({"chat_template": 1})", "'chat_template' is '1'"),
        std::pair(R"({"chat_template": [{"name": "default"}]})", "'chat_template[0].template'")}) {
    std::ofstream(folder + "/tokenizer_config.json") << config;
    EXPECT_THAT(TokenizerFromHuggingFace(folder), StatusIs(absl::StatusCode::kDataLoss, key));
  }
  std::ofstream(folder + "/tokenizer_config.json")
      << R"({"bos_token": {"content": "<x>"}, "eos_token": null, "add_bos_token": true})";
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, TokenizerFromHuggingFace(folder));
  EXPECT_EQ(spec.bos, 2);
  EXPECT_TRUE(spec.add_bos);
}

TEST(Tokenizer, WhatGoesAroundTextsIsNotWhatConfigsCallBosAndEos) {
  const std::string folder = OwnTempDir() + "/around";
  std::filesystem::create_directories(folder);
  const auto ids = [&](const std::string& post, const std::string& config) {
    std::ofstream(folder + "/tokenizer.json") << SmallJson("\"post_processor\":" + post);
    std::ofstream(folder + "/tokenizer_config.json") << config;
    absl::StatusOr<TokenizerSpec> spec = TokenizerFromHuggingFace(folder);
    EXPECT_OK(spec);
    EXPECT_EQ(spec->bos, 2);
    EXPECT_EQ(spec->eos, 4);
    return (*Tokenizer::Make(*std::move(spec)))->Encode("a", {});
  };
  const std::string around = R"({"type":"BertProcessing","cls":["<s>",0],"sep":["\u2581",3]})";
  const std::string names = R"({"bos_token":"<x>","eos_token":"\u2581a")";
  EXPECT_THAT(ids(around, names + "}"), ElementsAre(0, 1, 3));
  EXPECT_THAT(ids(around, names + R"(,"add_bos_token":true,"add_eos_token":false})"),
              ElementsAre(0, 1));
  EXPECT_THAT(ids("null", names + R"(,"add_bos_token":true,"add_eos_token":true})"),
              ElementsAre(2, 1, 4));
}

TEST(Tokenizer, CharactersAreStreamedWhole) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.Push("\x98"), "");
  EXPECT_EQ(stream.Push("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.Push("\xC3"), "");
  EXPECT_EQ(stream.Push("x"), "\xEF\xBF\xBDx");  // the character never came
  EXPECT_EQ(stream.Push("\xFFy"), "\xEF\xBF\xBDy");
  // One for each beginning of a character, as Unicode recommends.
  EXPECT_EQ(stream.Push("\xE0\xA5\xE0z"), "\xEF\xBF\xBD\xEF\xBF\xBDz");
  EXPECT_EQ(stream.Push("\xF0\x9F\x98\xC3\xA9"), "\xEF\xBF\xBD\u00e9");
  EXPECT_EQ(stream.Push("\xE0\x80\xED\xA0z"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz");
  EXPECT_EQ(stream.Push("\xE2\x82"), "");
  EXPECT_EQ(stream.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(Tokenizer, CharactersAreComposedWhereTheVocabularyHasThemSo) {
  TokenizerSpec spec;
  for (const std::string& b : ByteCharacters()) spec.tokens.push_back({b});
  spec.pre_tokenizer = {CutBy(kGpt2Pattern)};
  const auto written = [&](std::vector<TextStep> steps, absl::string_view text) {
    TokenizerSpec with = spec;
    with.normalizer = std::move(steps);
    const auto tokenizer = Tokenizer::Make(std::move(with));
    EXPECT_OK(tokenizer);
    return DecodeAll(**tokenizer, (*tokenizer)->Encode(text, {}));
  };
  const TextStep compose = Change(TextStep::Kind::kCompose);
  EXPECT_EQ(written({}, "e\u0301\u00e9"), "e\u0301\u00e9");
  EXPECT_EQ(written({compose}, "e\u0301\u00e9"), "\u00e9\u00e9");
  EXPECT_EQ(written({Change(TextStep::Kind::kDecompose)}, "e\u0301\u00e9"), "e\u0301e\u0301");
}

}  // namespace
}  // namespace tessera::llm
