// Tokenizers: the samples of public vocabularies, the story's from both files, streaming, patterns.
#include "examples/llm/tokenizer.h"

#include "absl/strings/str_split.h"
#include "examples/llm/chat.h"
#include "examples/llm/pattern.h"
#include "examples/llm/pretokenizers.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string DecodeAll(const Tokenizer& t, const std::vector<int32_t>& ids) {
  std::string out;
  for (int32_t id : ids) out += t.Piece(id);
  return out;
}

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

TEST(Tokenizer, SamplesFromTokenizerJson) {
  SKIP_WITHOUT_DATA();
  const std::string path = std::string(kData) + "tokenizers/gpt2-tokenizer.json";
  const std::string text = ReadFile(path);
  ASSERT_OK_AND_ASSIGN(TokenizerSpec spec, TokenizerFromHuggingFaceText(text, path));
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Make(std::move(spec)));
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
}

std::vector<int32_t> IdsOf(const std::string& json, const std::string& text) {
  absl::StatusOr<TokenizerSpec> spec = TokenizerFromHuggingFaceText(json, "tokenizer.json");
  EXPECT_OK(spec);
  if (!spec.ok()) return {};
  auto tokenizer = Tokenizer::Make(*std::move(spec));
  EXPECT_OK(tokenizer);
  Tokenizer::Options options;
  options.markup = true;
  return tokenizer.ok() ? (*tokenizer)->Encode(text, options) : std::vector<int32_t>();
}

// All bytes by their number, then a few tokens of two.
std::string ByteLevelJson(const std::string& pre_tokenizer, const std::string& normalizer) {
  std::string vocabulary;
  for (int b = 0; b < 256; ++b) {
    const std::string& text = ByteCharacters()[b];
    absl::StrAppend(&vocabulary, "\"", text == "\"" || text == "\\" ? "\\" : "", text, "\":", b,
                    ",");
  }
  return absl::StrCat(R"({"model":{"type":"BPE","vocab":{)", vocabulary,
                      "\"--\":256,\"\u0120a\":257,\"\u00c3\u00a9\":258},",
                      "\"merges\":[\"- -\",\"\u0120 a\",\"\u00c3 \u00a9\"]},", R"("normalizer":)",
                      normalizer, R"(,"pre_tokenizer":)", pre_tokenizer, "}");
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

TEST(Tokenizer, CharactersAreStreamedWhole) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.Push("\x98"), "");
  EXPECT_EQ(stream.Push("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.Push("\xC3"), "");
  EXPECT_EQ(stream.Push("x"), "\xEF\xBF\xBDx");  // the character never came
  EXPECT_EQ(stream.Push("\xFFy"), "\xEF\xBF\xBDy");
  EXPECT_EQ(stream.Push("\xE2\x82"), "");
  EXPECT_EQ(stream.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.Finish(), "");
}

std::vector<std::string> Words(const std::string& pattern, const std::string& text) {
  absl::StatusOr<Pattern> p = Pattern::Compile(pattern);
  EXPECT_OK(p);
  const std::vector<Character> c = Characters(text);
  std::vector<std::string> out;
  for (size_t at = 0; at + 1 < c.size();) {
    const int64_t to = p->Match(c, at, c.size() - 1);
    if (to <= static_cast<int64_t>(at)) {
      ++at;
      continue;
    }
    out.push_back(text.substr(c[at].begin, c[to].begin - c[at].begin));
    at = to;
  }
  return out;
}

TEST(Pattern, WordsNumbersAndSpaces) {
  EXPECT_THAT(Words(kGpt2Pattern, "It's  12a \n\n!"),
              ElementsAre("It", "'s", " ", " 12", "a", " \n", "\n", "!"));
  EXPECT_THAT(Words(R"(\p{N}{1,3})", "1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(Words(R"((?i:'s|'ll)|a(?=b)|[^a-c]{2,})", "'Sab'LLxyz"),
              ElementsAre("'S", "a", "'LL", "xyz"));
  EXPECT_THAT(Words(R"((ab|c)*d)", "ababcd cd d e"), ElementsAre("ababcd", "cd", "d"));
}

TEST(Pattern, WordsOfNamedVocabularies) {
  const auto words = [](const char* name, const std::string& text) {
    absl::StatusOr<const PreTokenizer*> named = PreTokenizerNamed(name);
    EXPECT_OK(named);
    return named.ok() ? Words((*named)->patterns.back(), text) : std::vector<std::string>();
  };
  EXPECT_THAT(words("gpt-4o", "HelloWorld I'LLs 12345!/"),
              ElementsAre("Hello", "World", " I'LL", "s", " ", "123", "45", "!/"));
  EXPECT_THAT(words("tekken", "HelloWorld's 12"),
              ElementsAre("Hello", "World", "'s", " ", "1", "2"));
  EXPECT_THAT(words("deepseek-v3", "x_y (ab+\n"), ElementsAre("x", "_y", " (", "ab", "+\n"));
  EXPECT_THAT(words("bloom", "one, two"), ElementsAre("one", " two"));
  EXPECT_THAT(PreTokenizerNamed("gpt").status().message(), HasSubstr("qwen2"));
  EXPECT_THAT(PreTokenizerNamed("").status().message(), HasSubstr("is not known"));
}

TEST(Tokenizer, CharactersAreComposedWhereTheVocabularyHasThemSo) {
  TokenizerSpec spec;
  for (const std::string& b : ByteCharacters()) spec.tokens.push_back({b});
  spec.patterns = {kGpt2Pattern};
  for (const auto form : {TokenizerSpec::Form::kAsWritten, TokenizerSpec::Form::kComposed,
                          TokenizerSpec::Form::kDecomposed}) {
    spec.form = form;
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Make(spec));
    const bool composed = form == TokenizerSpec::Form::kComposed;
    EXPECT_EQ(DecodeAll(*tokenizer, tokenizer->Encode("e\u0301", {})),
              composed ? "\u00e9" : "e\u0301");
    const bool apart = form == TokenizerSpec::Form::kDecomposed;
    EXPECT_EQ(DecodeAll(*tokenizer, tokenizer->Encode("\u00e9", {})), apart ? "e\u0301" : "\u00e9");
  }
}

TEST(Pattern, WhatIsNotKnownIsAnError) {
  for (const char* wrong : {"(", ")", "[", "[a", "a{", "a{3,1}", "*", "a**", "\\", "\\q", "\\p{Xx}",
                            "\\pL", "(?<a>b)", "a+?", "[z-a]", "^a"}) {
    EXPECT_FALSE(Pattern::Compile(wrong).ok()) << wrong;
  }
  EXPECT_FALSE(Pattern::Compile(std::string(1000, '(')).ok());
}

TEST(Pattern, MatchingEndsOnHostileTexts) {
  EXPECT_EQ(Words("(a|aa)*(a|aa)*(a|aa)*b", std::string(300, 'a')).size(), 0u);
  EXPECT_EQ(Words(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", std::string(20000, ' ')).size(), 1u);
  EXPECT_EQ(Words(R"(\p{L}+)", std::string(20000, 'x')).size(), 1u);
  // What one alternative spends on its tries is not missing from the next.
  EXPECT_THAT(Words("(a|aa)*(a|aa)*b|a+", std::string(300, 'a')),
              ElementsAre(std::string(300, 'a')));
  // Runs far longer than the number of tries, in one match each.
  const std::string blanks(3 << 20, ' ');
  EXPECT_THAT(Words(R"(\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+)", blanks + "a"),
              ElementsAre(blanks.substr(1), " ", "a"));
  EXPECT_THAT(Words(R"(\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+)", "\n" + blanks + "a"),
              ElementsAre("\n", blanks.substr(1), " ", "a"));
}

// ---- conversations

TEST(Chat, TemplatesAreRecognised) {
  SKIP_WITHOUT_DATA();
  ASSERT_OK_AND_ASSIGN(const auto t,
                       LoadTokenizer(std::string(kData) + "tokenizers/ggml-vocab-llama-bpe.gguf"));
  ASSERT_OK_AND_ASSIGN(const ChatForm form, RecogniseChat(t->spec().chat_template));
  EXPECT_EQ(form, ChatForm::kLlama3);
  const Message messages[] = {{"user", "Hello <|eot_id|>"}};
  const std::vector<int32_t> ids = EncodeChat(*t, form, messages);
  EXPECT_EQ(ids.front(), 128000);  // <|begin_of_text|>
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 128009), 1) << "what a user types is no mark";
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 128006), 2);
  EXPECT_TRUE(t->EndsText(128009));
  EXPECT_EQ(DecodeAll(*t, ids), "user\n\nHello <|eot_id|>assistant\n\n");
}

TEST(Chat, FormsByTheirMarks) {
  EXPECT_THAT(RecogniseChat("x<|im_start|>y"), IsOkAndHolds(ChatForm::kChatMl));
  EXPECT_THAT(RecogniseChat("[INST] <<SYS>>"), IsOkAndHolds(ChatForm::kLlama2));
  EXPECT_THAT(RecogniseChat("[INST]"), IsOkAndHolds(ChatForm::kMistral));
  EXPECT_THAT(RecogniseChat("{{'<|user|>' + eos_token}}"), IsOkAndHolds(ChatForm::kZephyr));
  EXPECT_THAT(RecogniseChat(""), StatusIs(absl::StatusCode::kInvalidArgument, "no chat template"));
  EXPECT_THAT(RecogniseChat("{{ x }}"), StatusIs(absl::StatusCode::kInvalidArgument, "not known"));
}

TEST(Chat, EveryFormWritesItsMarksInOrder) {
  ASSERT_OK_AND_ASSIGN(const auto t, LoadTokenizer(kStory));
  const Message messages[] = {{"system", "S"}, {"user", "U"}, {"assistant", "A"}, {"user", "V"}};
  const auto text = [&](ChatForm form) { return DecodeAll(*t, EncodeChat(*t, form, messages)); };
  EXPECT_THAT(text(ChatForm::kChatMl),
              HasSubstr("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"));
  EXPECT_THAT(text(ChatForm::kLlama2), HasSubstr("[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A "));
  EXPECT_THAT(text(ChatForm::kMistral), HasSubstr("[INST] S\n\nU [/INST]A"));
  EXPECT_THAT(text(ChatForm::kZephyr), HasSubstr("<|user|>\nU"));
  EXPECT_THAT(text(ChatForm::kZephyr), ::testing::EndsWith("<|assistant|>\n"));
}

}  // namespace
}  // namespace tessera::llm
