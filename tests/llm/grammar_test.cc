// Grammars: which texts are theirs, which texts are none, which tokens may come next.
#include "examples/llm/grammar.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "examples/llm/constraint.h"
#include "examples/llm/generate.h"
#include "examples/llm/grammar_matcher.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Grammar> Parse(const std::string& text) {
  absl::StatusOr<std::shared_ptr<const Grammar>> g = ParseGrammar(text, "g");
  EXPECT_OK(g);
  return g.ok() ? *g : nullptr;
}

// Whether a text is of the grammar: at once, and byte by byte.
bool Accepts(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  GrammarMatcher at_once(grammar), bytes(grammar);
  bool all = true;
  for (const char c : text) all = all && bytes.Push({&c, 1});
  const bool is = at_once.Allows(text) && at_once.Push(text) && at_once.CanEnd();
  EXPECT_EQ(is, all && bytes.CanEnd()) << text;
  return is;
}

struct Case {
  const char* grammar;
  std::vector<std::string> accepted, rejected;
};

TEST(Grammar, AcceptsItsTextsAlone) {
  const Case cases[] = {
      {"root ::= \"a\" \"bc\"", {"abc"}, {"", "ab", "abcd", "bc"}},
      {"root ::= \"\"", {""}, {"a"}},
      {"root ::= \"a\" | \"ab\" | \"b\"*", {"a", "ab", "", "b", "bbb"}, {"aab", "ba", "abb"}},
      {"root ::= (\"a\" | \"b\")+ \"c\"?", {"a", "ab", "bac"}, {"", "c", "acc"}},
      {"root ::= \"a\"{3}", {"aaa"}, {"aa", "aaaa"}},
      {"root ::= \"ab\"{2,}", {"abab", "ababab"}, {"ab", "aba"}},
      {"root ::= [0-9]{2,4}", {"12", "123", "1234"}, {"1", "12345", "1a"}},
      {"root ::= \"a\"{0,2} \"a\"{0}", {"", "a", "aa"}, {"aaa"}},
      {"root ::= (\"a\"?){2,3}", {"", "a", "aa", "aaa"}, {"aaaa"}},
      {"root ::= ((\"a\"{2} | \"b\"){2,3} \",\"){1,2}",
       {"aab,", "bb,", "bbb,aaaaaa,"},
       {"b,", "ab,", "bbbb,", "bb,bb,bb,"}},
      {"root ::= (\"a\"*)*", {"", "aaa"}, {"b"}},
      {"root ::= ((\"a\" | \"\")* \"b\"?)+", {"", "ab", "bab"}, {"c"}},
      {"root ::= x x\nx ::= \"a\"? # empty too", {"", "a", "aa"}, {"aaa"}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())", ")("}},
      {"root ::= \"(\" root \")\" | \"(\" root \"]\" | \"x\"",
       {"x", "((x)]", "((((((((((((((((((((((((((((x])])])])])])])])])])])])])])"},
       {"(x", "(x)]"}},
      {"root ::= \"a\" root | \"b\"", {"b", "aab"}, {"a", "aaba"}},
      {"root ::= [a-c\\]x-]", {"a", "c", "]", "x", "-"}, {"d", "\\", "ab"}},
      {"root ::= [\\-\\^a]+", {"-^a"}, {"b", "\\"}},
      {"root ::= [^a-z\\n]", {"A", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}, {"a", "\n"}},
      {"root ::= .",
       {"a", "\n", "\x7F", "\xC2\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"},
       {"", "\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
        "\xF5"}},
      {"root ::= [\xC3\xA0-\xD1\xBF]",
       {"\xC3\xA0", "\xC4\x80", "\xD1\xBF"},
       {"\xC3\x9F", "\xD2\x80", "a"}},
      {"root ::= [\\u0900-\\u3fff\\U0001F600]",
       {"\xE0\xA4\x80", "\xE3\xBF\xBF", "\xE1\x80\x80", "\xF0\x9F\x98\x80"},
       {"\xE0\xA3\xBF", "\xE4\x80\x80", "\xF0\x9F\x98\x81"}},
      {"root ::= \"\\x41\\u00e9\\U0001f600\\\"\\\\\\n\\t\\r\\[\\]\"",
       {"A\xC3\xA9\xF0\x9F\x98\x80\"\\\n\t\r[]"},
       {"A"}},
      {"root ::= a-b _c\na-b::=\"1\"\n\n  _c ::= # here\n \"2\" |\n \"3\"\n  | (\n\"4\"\n)\n",
       {"12", "13", "14"},
       {"1", "15"}},
      {"root ::= \"a\" | # nothing\nb ::= \"b\"", {"a", ""}, {"b"}},
  };
  for (const Case& c : cases) {
    const std::shared_ptr<const Grammar> grammar = Parse(c.grammar);
    ASSERT_NE(grammar, nullptr) << c.grammar;
    for (const std::string& text : c.accepted) {
      EXPECT_TRUE(Accepts(grammar, text)) << c.grammar << ": " << text;
    }
    for (const std::string& text : c.rejected) {
      EXPECT_FALSE(Accepts(grammar, text)) << c.grammar << ": " << text;
    }
  }
}

TEST(Grammar, ErrorsNameTheirPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "g: line 1, column 1: there is no rule 'root'"},
      {"a ::= \"b\"", "there is no rule 'root'"},
      {"root ::= \"a\" b\nc ::= d", "g: line 1, column 14: there is no rule 'b'"},
      {"root ::= root \"a\" | \"b\"", "g: line 1, column 1: the rule 'root' begins with itself"},
      {"root ::= a\na ::= \"x\"? b* \"c\"\nb ::= (a | \"d\") \"e\"", "begins with itself (left"},
      {"root ::= \"x\"{0,3} root | \"y\"", "the rule 'root' begins with itself"},
      {"root ::= a \"b\"\na ::= a", "the rule 'a' begins with itself"},
      {"root ::= \"a\" b\nb ::= \"c\" root", "g: line 1, column 1: the rule 'root' never ends"},
      {"root ::= \"a\\q\"", "g: line 1, column 12: this escape is not known"},
      {"root ::= \"\\x4\"", "column 11: this escape wants 2 hexadecimal digits"},
      {"root ::= \"\\ud800\"", "U+D800 is no character"},
      {"root ::= [\\U00110000]", "U+110000 is no character"},
      {"root ::= (\"a\" (\"b\")", "g: line 1, column 10: this group is not closed"},
      {"root ::= \"a\")", "column 13: a ) without its ("},
      {"root ::= \"a", "g: line 1, column 10: this text is not closed"},
      {"root ::= [ab", "g: line 1, column 10: this class is not closed"},
      {"root ::= [b-a]", "column 14: a range ends before it begins"},
      {"root ::= []", "no character is of this class"},
      {"root ::= [^\\x00-\\U0010FFFF]", "no character is of this class"},
      {"root ::= \"a\"{3,2}", "more in m than in n"},
      {"root ::= \"a\"{}", "a repetition is {m}, {m,} or {m,n}"},
      {"root ::= \"a\"{1,2", "a repetition is {m}, {m,} or {m,n}"},
      {"root ::= \"a\"{99999999999999999999}", "counts to a million at most"},
      {"root ::= (\"a\"?){1000}", "column 10: what is repeated may be empty"},
      {"root ::= ((((\"a\"?){256}){256}){256}){256}", "too many ways for a text to begin"},
      {"root ::= \"a\"**", "two repetitions side by side"},
      {"root ::= | * \"a\"", "column 12: there is nothing before it to repeat"},
      {"root ::= 'a'", "texts stand in double quotes"},
      {"root ::= <think>", "tokens in grammars are not known"},
      {"root ::= \"a\"\n\nroot ::= \"b\"", "g: line 3, column 1: there is a rule 'root' in line 1"},
      {"root = \"a\"", "wants ::= after the name 'root'"},
      {"root ::= \"a\"\n\"b\"", "g: line 2, column 1: a rule begins with its name"},
      {"root ::= \"\xFF\"", "this is not UTF-8"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseGrammar(text, "g"), StatusIs(absl::StatusCode::kInvalidArgument, message))
        << text;
  }
}

TEST(Grammar, HostileTextsEndSoon) {
  const auto repeated = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  for (const std::string& text :
       {"root ::= " + repeated("(", 100000), "root ::= " + repeated("\"a\" ", 1200000),
        std::string(5 << 20, 'a'), "root ::= [" + repeated("\\u4e00-\\u4e01\\u4e05", 100000)}) {
    EXPECT_FALSE(ParseGrammar(text, "g").ok());
  }
  EXPECT_TRUE(Accepts(Parse("root ::= (" + repeated("|", 1000) + ") (\"a\" | \"\")"), "a"));
  std::string chain = "root ::= r0\n", many = "root ::= \"a\"\n";
  for (int i = 0; i < 20000; ++i) {
    absl::StrAppend(&chain, "r", i, " ::= r", i + 1, " | \"a\"\n");
  }
  EXPECT_THAT(ParseGrammar(chain + "r20000 ::= \"b\"", "g"),
              StatusIs(absl::StatusCode::kInvalidArgument, "too many ways"));
  for (int i = 0; i < 70000; ++i) absl::StrAppend(&many, "r", i, " ::= \"a\"\n");
  EXPECT_THAT(ParseGrammar(many, "g"),
              StatusIs(absl::StatusCode::kInvalidArgument, "more than 65536 rules"));
}

// Every ending of every text so far is another state, and the ways to read it are many.
TEST(Grammar, AmbiguityIsBounded) {
  std::vector<std::string> words;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string& word = words.emplace_back();
    for (int k = 0; k < 24; ++k) word += static_cast<char>('a' + random() % 26);
  }
  GrammarMatcher matcher(Parse("root ::= [a-z]* [a-m] [a-z]{400}"));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(matcher.Push(words[i]));
  EXPECT_THAT(matcher.Mask(TokenTree(words)),
              StatusIs(absl::StatusCode::kResourceExhausted, "too ambiguous"));
  GrammarMatcher lost(Parse("root ::= ([a-z]{1,300} [a-z]{1,300}){1,300} \"!\""));
  bool all = true;
  for (int i = 0; i < 2000 && all; ++i) all = lost.Push("a");
  EXPECT_FALSE(all);
  EXPECT_TRUE(lost.overflowed());
}

TEST(Grammar, CountsAndDepthsTakeLittleMemory) {
  const std::shared_ptr<const Grammar> grammar =
      Parse("root ::= \"[\" root \"]\" | [a-z]{3,1000000} \".\"");
  GrammarMatcher matcher(grammar);
  constexpr int kDeep = 20000;
  for (int i = 0; i < kDeep; ++i) ASSERT_TRUE(matcher.Push("["));
  for (int i = 0; i < 300000; ++i) ASSERT_TRUE(matcher.Push("x"));
  ASSERT_TRUE(matcher.Push("."));
  EXPECT_FALSE(matcher.CanEnd());
  for (int i = 0; i < kDeep; ++i) ASSERT_TRUE(matcher.Push("]"));
  EXPECT_TRUE(matcher.CanEnd());
  EXPECT_FALSE(matcher.CanContinue());
  EXPECT_FALSE(matcher.Push("]"));
}

// ---- tokens

std::vector<bool> Bits(absl::Span<const uint64_t> mask, int n) {
  std::vector<bool> out(n);
  for (int i = 0; i < n; ++i) out[i] = (mask[i / 64] >> i % 64 & 1) != 0;
  return out;
}

TEST(TokenTree, ALookAtAllTokensIsALookAtEach) {
  std::vector<std::string> texts = {"",     "a",    "ab",        "abc",  "b", "ab",
                                    "\xC3", "\xA9", "\xC3\xA9z", "\xFF", "bb"};
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string& text = texts.emplace_back();
    for (size_t k = 1 + random() % 5; k > 0; --k) text += "ab\xC3\xA9\""[random() % 5];
  }
  const TokenTree tree(texts);
  GrammarMatcher matcher(Parse("root ::= (\"a\" [^\"]? | \"b\"{2} | \"\\\"\" root \"\\\"\")*"));
  int allowed = 0;
  for (int step = 0; step < 200; ++step) {
    ASSERT_OK_AND_ASSIGN(const absl::Span<const uint64_t> mask, matcher.Mask(tree));
    const std::vector<bool> bits = Bits(mask, static_cast<int>(texts.size()));
    std::vector<int> next;
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_EQ(bits[i], !texts[i].empty() && matcher.Allows(texts[i])) << texts[i];
      if (bits[i]) next.push_back(static_cast<int>(i));
    }
    ASSERT_FALSE(next.empty());
    allowed += static_cast<int>(next.size());
    ASSERT_TRUE(matcher.Push(texts[next[random() % next.size()]]));
  }
  EXPECT_LT(allowed, 200 * static_cast<int>(texts.size()) / 2);
}

// Draws tokens among those allowed until the end.
std::string RandomText(const std::shared_ptr<const Grammar>& grammar, const Tokenizer& tokenizer,
                       uint64_t seed, int most) {
  Constraint constraint(grammar, tokenizer, -1);
  SamplerOptions options;
  options.temperature = 1;
  options.seed = seed;
  Sampler sampler(options, tokenizer.size());
  const std::vector<float> logits(static_cast<size_t>(tokenizer.size()), 0.0f);
  std::string out;
  for (int i = 0; i < most; ++i) {
    const absl::StatusOr<int32_t> token = constraint.Pick(sampler, logits.data(), {});
    EXPECT_OK(token);
    if (!token.ok()) return out;
    if (*token < 0 || tokenizer.EndsText(*token)) {
      EXPECT_TRUE(Accepts(grammar, out)) << out;
      return out;
    }
    EXPECT_NE(tokenizer.Piece(*token), "");
    out += tokenizer.Piece(*token);
    constraint.Accept(*token);
  }
  ADD_FAILURE() << "no end: " << out;
  return out;
}

std::unique_ptr<const Tokenizer> StoryTokenizer() {
  absl::StatusOr<std::unique_ptr<const Tokenizer>> t = LoadTokenizer(kStory);
  EXPECT_OK(t);
  return *std::move(t);
}
std::unique_ptr<const Tokenizer> ByteTokenizer() {
  absl::StatusOr<TokenizerSpec> spec = TokenizerFromHuggingFaceText(
      ByteLevelJson("{\"type\": \"ByteLevel\", \"add_prefix_space\": false}", "null"), "t");
  EXPECT_OK(spec);
  auto t = Tokenizer::Make(*std::move(spec));
  EXPECT_OK(t);
  return *std::move(t);
}

TEST(Constraint, RandomTokensMakeTextsOfTheGrammar) {
  const std::shared_ptr<const Grammar> grammars[] = {
      Parse("root ::= [a-z\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80]{5,9} (\", \" [^ -~]){2,3}"),
      Parse("root ::= (\"once\" | \" upon\" | \" a time\" | \".\"){3,8} \"!\""),
  };
  for (const auto& tokenizer : {StoryTokenizer(), ByteTokenizer()}) {
    for (const auto& grammar : grammars) {
      for (uint64_t seed = 0; seed < 30; ++seed) RandomText(grammar, *tokenizer, seed, 200);
    }
  }
}

TEST(Constraint, TheBestAllowedTokenIsTaken) {
  const std::unique_ptr<const Tokenizer> tokenizer = StoryTokenizer();
  const int n = tokenizer->size();
  Sampler greedy({}, n);
  std::vector<float> logits(static_cast<size_t>(n), 0.0f);
  const int32_t a = tokenizer->Find("a"), b = tokenizer->Find("b"), c = tokenizer->Find("c");
  const int32_t eos = static_cast<int32_t>(tokenizer->spec().eos);
  logits[eos] = 9, logits[1] = 8, logits[a] = 7, logits[b] = 6, logits[c] = 5;
  Constraint constraint(Parse("root ::= \"b\" [ac]?"), *tokenizer, -1);
  const auto pick = [&] { return constraint.Pick(greedy, logits.data(), {}); };
  EXPECT_THAT(pick(), IsOkAndHolds(b));  // neither the end nor <s> nor a
  constraint.Accept(b);
  EXPECT_TRUE(constraint.IsComplete());
  EXPECT_THAT(pick(), IsOkAndHolds(eos));
  logits[eos] = 1;
  EXPECT_THAT(pick(), IsOkAndHolds(a));
  constraint.Accept(a);
  EXPECT_TRUE(constraint.AtEnd());
  EXPECT_THAT(pick(), IsOkAndHolds(-1));
}

TEST(Constraint, ATokenThatEndsATurnIsNoText) {
  const std::unique_ptr<const Tokenizer> tokenizer = StoryTokenizer();
  std::vector<float> logits(static_cast<size_t>(tokenizer->size()), 0.0f);
  const int32_t a = tokenizer->Find("a"), b = tokenizer->Find("b");
  logits[a] = 2, logits[b] = 1;
  Sampler greedy({}, tokenizer->size());
  Constraint constraint(Parse("root ::= [ab] \"b\"*"), *tokenizer, a);
  EXPECT_THAT(constraint.Pick(greedy, logits.data(), {}), IsOkAndHolds(b));
  constraint.Accept(b);
  EXPECT_THAT(constraint.Pick(greedy, logits.data(), {}), IsOkAndHolds(a));
}

TEST(Constraint, AVocabularyThatCannotWriteItIsAnError) {
  TokenizerSpec spec = StoryTokenizer()->spec();
  for (TokenizerSpec::Token& t : spec.tokens) {
    if (t.kind == TokenKind::kByte) t.kind = TokenKind::kUnused;
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<const Tokenizer> tokenizer, Tokenizer::Make(spec));
  Constraint constraint(Parse("root ::= \"\xE4\xB8\x80\""), *tokenizer, -1);
  Sampler greedy({}, tokenizer->size());
  const std::vector<float> logits(static_cast<size_t>(tokenizer->size()), 0.0f);
  EXPECT_THAT(constraint.Pick(greedy, logits.data(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "no token of the model's vocabulary"));
}

// ---- with a model

TEST(Constraint, AStoryKeepsToItsGrammar) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  Session session(model, {});
  const std::vector<int32_t> prompt = model.tokenizer->Encode("Once upon a time", {});
  GenerateOptions options;
  options.grammar = Parse(
      "root ::= (\" \" [a-z]{1,8}){3,5} \". The \" (\"dog\" | \"cat\") \" said: \\\"\" "
      "[a-zA-Z ,!]{1,30} \"\\\"\"");
  const auto generate = [&](double temperature, uint64_t seed) {
    options.sampler.temperature = temperature;
    options.sampler.seed = seed;
    session.Rewind(0);
    absl::StatusOr<Generated> g = Generate(session, model, prompt, options, [](const auto&) {});
    EXPECT_OK(g);
    EXPECT_STREQ(g->reason, "end");
    EXPECT_TRUE(Accepts(options.grammar, g->text)) << g->text;
    return g->text;
  };
  const std::string greedy = generate(0, 0);
  EXPECT_EQ(generate(0, 1), greedy);
  const std::string drawn = generate(1, 7);
  EXPECT_EQ(generate(1, 7), drawn);
  EXPECT_NE(generate(1, 8), drawn);
  options.grammar = Parse("root ::= .*");
  options.max_tokens = 40;
  options.sampler = {};
  session.Rewind(0);
  ASSERT_OK_AND_ASSIGN(const Generated free,
                       Generate(session, model, prompt, options, [](const auto&) {}));
  EXPECT_EQ(ReadFile(kStoryText).find("Once upon a time" + free.text), 0u);
}

}  // namespace
}  // namespace tessera::llm
