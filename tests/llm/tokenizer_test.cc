// Tokenizers: the samples of public vocabularies, the story's from both files, streaming, patterns.
#include "examples/llm/tokenizer.h"

#include <fstream>
#include <random>
#include <regex>

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
std::string ByteLevelJson(const std::string& pre_tokenizer, const std::string& normalizer,
                          const std::string& added = "[]") {
  std::string vocabulary;
  for (int b = 0; b < 256; ++b) {
    const std::string& text = ByteCharacters()[b];
    absl::StrAppend(&vocabulary, "\"", text == "\"" || text == "\\" ? "\\" : "", text, "\":", b,
                    ",");
  }
  return absl::StrCat(R"({"model":{"type":"BPE","vocab":{)", vocabulary,
                      "\"--\":256,\"\u0120a\":257,\"\u00c3\u00a9\":258},",
                      "\"merges\":[\"- -\",\"\u0120 a\",\"\u00c3 \u00a9\"]},", R"("normalizer":)",
                      normalizer, R"(,"added_tokens":)", added, R"(,"pre_tokenizer":)",
                      pre_tokenizer, "}");
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

TEST(Tokenizer, MarkedPartsOfWordsAreRefused) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto read = [&](const char* mark) {
      const std::string text = absl::StrCat(
          R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[],")", key, "\":", mark, "}}");
      return TokenizerFromHuggingFaceText(text, "tokenizer.json").status();
    };
    EXPECT_THAT(read("\"##\""), StatusIs(absl::StatusCode::kDataLoss, key));
    EXPECT_OK(read("\"\""));
    EXPECT_OK(read("null"));
  }
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
  for (const Word& w : p->Split(c, {0, c.size() - 1})) {
    out.push_back(text.substr(c[w.begin].begin, c[w.end].begin - c[w.begin].begin));
  }
  return out;
}

TEST(Pattern, WordsNumbersAndSpaces) {
  EXPECT_THAT(Words(kGpt2Pattern, "It's  12a \n\n!"),
              ElementsAre("It", "'s", " ", " 12", "a", " \n", "\n", "!"));
  EXPECT_THAT(Words(R"(\p{N}{1,3})", "1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(Words(R"((?i:'s|'ll)|a(?=b)|[^a-c]{2,})", "'Sab'LLxyz"),
              ElementsAre("'S", "a", "b", "'LL", "xyz"));
  EXPECT_THAT(Words(R"((ab|c)*d)", "ababcd cd d e"),
              ElementsAre("ababcd", " ", "cd", " ", "d", " e"));
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
  EXPECT_THAT(words("bloom", "one, two"), ElementsAre("one", ",", " two"));
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
  EXPECT_THAT(Pattern::Compile("(a{99}){99}").status().message(), HasSubstr("smaller counts"));
}

TEST(Pattern, MatchingEndsOnHostileTexts) {
  const std::string many(65536, 'a');
  for (const char* pattern :
       {"(a*)*b", "(a|aa)*(a|aa)*(a|aa)*b", "(a+)+b", "((a?)+)*b", "((a*)*(a?)*)*b", "a*a*a*b",
        "(a|a)*(?=b)c", "a*(?!a)b", "(a*(?=a*b))*c", "(a|a(?=a*b)a)+b", "(a{0,20}){0,20}b",
        "a{3,30}a{3,30}b", "(a(?!a*c)a*)*b"}) {
    EXPECT_THAT(Words(pattern, many), ElementsAre(many)) << pattern;  // else years
  }
  // A lookahead that sees all the rest from every character.
  EXPECT_EQ(Words("a(?=a*b)", many + "b").size(), many.size() + 1);
  EXPECT_EQ(Words(R"(\s+(?![\s\S]))", std::string(65536, ' ') + "a").size(), 1u);
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

// A pattern over the letters a and b that ECMAScript and ours take alike: a group that repeats
// always reads something.
std::string RandomPattern(std::mt19937& random, int depth) {
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto set = [&] { return std::vector<std::string>{"a", "b", "[ab]", "[^a]"}[pick(4)]; };
  std::string out;
  for (int i = 1 + pick(3); i > 0; --i) {
    const char* const repeats[] = {"", "", "?", "*", "+", "{2}", "{1,2}"};
    const char* const repeat = repeats[pick(7)];
    const int kind = depth > 0 ? pick(7) : 0;
    if (kind < 4) {
      absl::StrAppend(&out, set(), repeat);
      continue;
    }
    const bool ahead = kind == 6, reads = !ahead && repeat[0] != '\0';
    absl::StrAppend(&out, !ahead ? "(?:" : pick(2) == 0 ? "(?=" : "(?!");
    for (int n = 1 + pick(2); n > 0; --n) {
      absl::StrAppend(&out, reads ? set() : "", RandomPattern(random, depth - 1),
                      n > 1 ? "|" : ")");
    }
    if (!ahead) absl::StrAppend(&out, repeat);
  }
  return out;
}

TEST(Pattern, SplitsAsTheStandardLibraryMatches) {
  std::mt19937 random(7);
  int matches = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string pattern = RandomPattern(random, 2);
    std::string text;
    for (int n = static_cast<int>(random() % 30); n >= 0; --n) text += "abc"[random() % 3];
    const std::regex expression(pattern);
    std::vector<std::string> expected;
    size_t rest = 0;
    const auto word = [&](size_t begin, size_t end) {
      if (begin < end) expected.push_back(text.substr(begin, end - begin));
    };
    for (size_t at = 0; at < text.size();) {
      std::smatch m;
      const bool found = std::regex_search(text.cbegin() + static_cast<int64_t>(at), text.cend(), m,
                                           expression, std::regex_constants::match_continuous);
      if (!found || m.length() == 0) {
        ++at;
        continue;
      }
      word(rest, at);
      rest = at + static_cast<size_t>(m.length());
      word(at, rest);
      at = rest;
      ++matches;
    }
    word(rest, text.size());
    EXPECT_EQ(Words(pattern, text), expected) << pattern << " on " << text;
  }
  EXPECT_GT(matches, 2000);
}

// ---- conversations

TEST(Chat, TemplatesAreRecognised) {
  SKIP_WITHOUT_DATA();
  ASSERT_OK_AND_ASSIGN(const auto t,
                       LoadTokenizer(std::string(kData) + "tokenizers/ggml-vocab-llama-bpe.gguf"));
  ASSERT_OK_AND_ASSIGN(const ChatForm form, RecogniseChat(t->spec().chat_template));
  EXPECT_EQ(form, ChatForm::kLlama3);
  const Message messages[] = {{"user", "Hello <|eot_id|>"}};
  const std::vector<int32_t> ids = EncodeChat(*t, form, messages, "26 Jul 2024");
  EXPECT_EQ(ids.front(), 128000);  // <|begin_of_text|>
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 128009), 2) << "what a user types is no mark";
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 128006), 3);
  EXPECT_TRUE(t->EndsText(128009));
  EXPECT_EQ(DecodeAll(*t, ids),
            "system\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
            "user\n\nHello <|eot_id|>assistant\n\n");
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

// The ids of a conversation are those of its whole text: of what the reference's templates write.
TEST(Chat, MarksAndContentsAreOneText) {
  ASSERT_OK_AND_ASSIGN(const auto t, LoadTokenizer(kStory));
  const int32_t bos = static_cast<int32_t>(t->spec().bos);
  const int32_t eos = static_cast<int32_t>(t->spec().eos);
  const auto with = [&](std::vector<int32_t> ids, const std::string& text, int32_t end) {
    Tokenizer::Options plain;
    plain.special = false;
    ids.push_back(bos);
    for (const int32_t id : t->Encode(text, plain)) ids.push_back(id);
    if (end >= 0) ids.push_back(end);
    return ids;
  };
  const Message one[] = {{"user", " Once upon "}};
  EXPECT_EQ(EncodeChat(*t, ChatForm::kMistral, one), with({}, "[INST]  Once upon  [/INST]", -1));
  EXPECT_EQ(EncodeChat(*t, ChatForm::kLlama2, one), with({}, "[INST] Once upon [/INST]", -1));
  const Message three[] = {{"user", "Once"}, {"assistant", " upon "}, {"user", "a time"}};
  EXPECT_EQ(EncodeChat(*t, ChatForm::kLlama2, three),
            with(with({}, "[INST] Once [/INST] upon ", eos), "[INST] a time [/INST]", -1));
  const Message system[] = {{"system", "S "}, {"user", " Once "}};
  EXPECT_EQ(EncodeChat(*t, ChatForm::kLlama2, system),
            with({}, "[INST] <<SYS>>\nS \n<</SYS>>\n\n Once [/INST]", -1));
}

// A template's own system message, and thoughts that it leaves out of what was said.
TEST(Chat, WhatQwensTemplatesAdd) {
  const auto text = [](const std::string& chat_template, absl::Span<const Message> messages) {
    TokenizerSpec spec;
    for (const std::string& b : ByteCharacters()) spec.tokens.push_back({b});
    spec.chat_template = chat_template;
    const auto t = Tokenizer::Make(std::move(spec));
    EXPECT_OK(t.status());
    return t.ok() ? DecodeAll(**t, EncodeChat(**t, ChatForm::kChatMl, messages)) : "";
  };
  const std::string usual =
      "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- else %}"
      "{{- '<|im_start|>system\\nYou are kind.\\nAlways.<|im_end|>\\n' }}";
  const std::string end = "<|im_start|>assistant\n";
  const Message user[] = {{"user", "U"}}, both[] = {{"system", "S"}, {"user", "U"}};
  const std::string said = "<|im_start|>user\nU<|im_end|>\n";
  EXPECT_EQ(text(usual, user),
            "<|im_start|>system\nYou are kind.\nAlways.<|im_end|>\n" + said + end);
  EXPECT_EQ(text(usual, both), "<|im_start|>system\nS<|im_end|>\n" + said + end);
  EXPECT_EQ(text("{{ '<|im_start|>system\\n' + content }}<|im_end|>", user), said + end);
  const Message thought[] = {
      {"user", "U"}, {"assistant", "<think>\nx\n</think>\n\nA"}, {"user", "U"}};
  EXPECT_EQ(text("<|im_start|> content.split('</think>')", thought),
            said + "<|im_start|>assistant\nA<|im_end|>\n" + said + end);
  EXPECT_EQ(text("<|im_start|>", thought),
            said + "<|im_start|>assistant\n<think>\nx\n</think>\n\nA<|im_end|>\n" + said + end);
}

TEST(Chat, TemplatesOfFolders) {
  const std::string folder = OwnTempDir();
  const auto found = [&](const std::string& config, const std::string& jinja) {
    std::ofstream(folder + "/tokenizer.json")
        << ByteLevelJson(R"({"type":"ByteLevel","add_prefix_space":false})", "null");
    std::ofstream(folder + "/tokenizer_config.json") << config;
    if (!jinja.empty()) std::ofstream(folder + "/chat_template.jinja") << jinja;
    const absl::StatusOr<TokenizerSpec> spec = TokenizerFromHuggingFace(folder);
    EXPECT_OK(spec.status());
    return spec.ok() ? spec->chat_template : "";
  };
  EXPECT_EQ(found("{}", ""), "");
  EXPECT_EQ(found(R"({"chat_template":"x"})", ""), "x");
  EXPECT_EQ(found(R"({"chat_template":[{"name":"tool_use","template":"t"},)"
                  R"({"name":"default","template":"d"}]})",
                  ""),
            "d");
  EXPECT_EQ(found(R"({"chat_template":[1,{"name":"default"}]})", ""), "");
  EXPECT_EQ(found("{}", "j\n"), "j\n");
  EXPECT_EQ(found(R"({"chat_template":"x"})", "j"), "j");
}

}  // namespace
}  // namespace tessera::llm
