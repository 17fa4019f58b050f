// Patterns that cut texts into words: what they match, on hostile texts too, and which are refused.
#include "examples/llm/pattern.h"

#include <random>
#include <regex>

#include "absl/strings/str_cat.h"
#include "examples/llm/pretokenizers.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  // \w has numbers that are letters, and no other but digits, as in Hugging Face's expressions.
  EXPECT_THAT(Words(R"(\w+)", "aⅧ_e\u0301٣⁵1"), ElementsAre("aⅧ_e\u0301٣", "⁵", "1"));
}

TEST(Pattern, CharactersByTheirNumbers) {
  EXPECT_THAT(Words(R"([\x30-\u0039]+|\u4e2d)", "a12中b"), ElementsAre("a", "12", "中", "b"));
  EXPECT_THAT(Words(R"((?i:\x6B))", "aK"), ElementsAre("a", "K"));
  for (const char* wrong : {R"(\x4)", R"(\u123g)", R"([\u12)"}) {
    EXPECT_THAT(Pattern::Compile(wrong).status().message(), HasSubstr("hexadecimal")) << wrong;
  }
  EXPECT_THAT(Pattern::Compile(R"(\ud83d\ude00)").status().message(), HasSubstr("half of a"));
}

std::vector<std::string> Found(const std::string& pattern, const std::string& text) {
  absl::StatusOr<Pattern> p = Pattern::Compile(pattern);
  EXPECT_OK(p);
  if (!p.ok()) return {};
  const std::vector<Character> c = Characters(text);
  std::vector<std::string> out;
  for (const Word& w : p->Matches(c, {0, c.size() - 1})) {
    out.push_back(text.substr(c[w.begin].begin, c[w.end].begin - c[w.begin].begin));
  }
  return out;
}

// What is found is what Hugging Face's tokenizers 0.23 find.
TEST(Pattern, RepeatsInEachWay) {
  EXPECT_THAT(Found("a+?", "aaa"), ElementsAre("a", "a", "a"));
  EXPECT_THAT(Found("(a|b)*?c", "abc"), ElementsAre("abc"));
  EXPECT_THAT(Found("a{1,2}?b?", "aab"), ElementsAre("a", "ab"));
  EXPECT_THAT(Found("a{2}?b", "b aab"), ElementsAre("b", "aab"));  // (a{2})?
  EXPECT_THAT(Found(R"(\p{N}{1,3}+)", "1234567 8"), ElementsAre("1234567", "8"));
  EXPECT_THAT(Found("a{,2}b{1", "ab{1aaab{1"), ElementsAre("ab{1", "aab{1"));
  EXPECT_THAT(Found("a++a|b?+b|c*+", "aabbcc"), ElementsAre("", "", "bb", "cc"));
  EXPECT_THAT(Found("(?>ab?|abc)d|c", "abcdabd"), ElementsAre("c", "abd"));
  EXPECT_THAT(Found("(?>(?:ab)+)b", "ababb"), ElementsAre("ababb"));
}

TEST(Pattern, WhatStandsBeside) {
  EXPECT_THAT(Words("(?<=[a-z])(?=[A-Z])", "camelCaseX"), ElementsAre("camel", "Case", "X"));
  EXPECT_THAT(Words("(?=b)", "abab"), ElementsAre("a", "ba", "b"));
  EXPECT_THAT(Found("(?<=a|bc)d", "adbcdcd"), ElementsAre("d", "d"));
  EXPECT_THAT(Found("(?<!a|bc)d.", "adbcdcd!"), ElementsAre("d!"));
  EXPECT_THAT(Found("^a|a$", "aba\nab\nba"), ElementsAre("a", "a", "a", "a"));
  EXPECT_THAT(Found("\\Aa|a\\z", "aa\na\na"), ElementsAre("a", "a"));
  EXPECT_THAT(Found("a\\Z", "a\na\n"), ElementsAre("a"));
  EXPECT_THAT(Found("\\b\\w|\\w\\B", "ab c\u00b2"), ElementsAre("a", "c"));
}

TEST(Pattern, Classes) {
  EXPECT_THAT(Found("[a-z&&[^b-y]]+|[[:digit:][:^ascii:]]", "azb1\u00e9"),
              ElementsAre("az", "1", "\u00e9"));
  EXPECT_THAT(Found(R"(\p{Han}+|\p{^L}|\P{Lu}|\p{Letter})", "A中文1b"),
              ElementsAre("A", "中文", "1", "b"));
  EXPECT_THAT(Found(R"(\D\H\W\S)", "ag !1a.b"), ElementsAre("ag !"));
  EXPECT_THAT(Found(R"(\h+|\R)", "xfa1\r\n\n"), ElementsAre("fa1", "\r\n", "\n"));
  EXPECT_THAT(Found(R"([\x{4e2d}-\x{6587}]\a?)", "中文\a"), ElementsAre("中", "文\a"));
  // In any case, which a property beside a class is not.
  EXPECT_THAT(Found("(?i:[^b]s\\p{Lu})", "bsA\u212a\u017fAkSa"), ElementsAre("\u212a\u017fA"));
  EXPECT_THAT(Found("x(?i)a|B", "xAb"), ElementsAre("xA"));
  EXPECT_THAT(Found("(?m:a.)(?i-m:B)", "a\nb"), ElementsAre("a\nb"));
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
  // As Python's package regex has it of the published patterns.
  EXPECT_THAT(words("kimi-k2", "HelloWorld's 12345 世界abc文字カナ \u3000〇々x!\n\n y"),
              ElementsAre("Hello", "World's", " ", "123", "45", " ", "世界", "abc", "文字", "カナ",
                          " ", "\u3000", "〇々", "x", "!\n\n", " y"));
  EXPECT_THAT(words("kimi-k2", "A世'll"), ElementsAre("A", "世", "'ll"));
  EXPECT_THAT(
      words("qwen35", "cafe\u0301s it's a\u0301b 12 \u0301!?\n"),
      ElementsAre("cafe\u0301s", " it", "'s", " a\u0301b", " ", "1", "2", " \u0301", "!?\n"));
  EXPECT_THAT(words("bloom", "one, two"), ElementsAre("one", ",", " two"));
  EXPECT_THAT(PreTokenizerNamed("gpt").status().message(), HasSubstr("qwen2"));
  EXPECT_THAT(PreTokenizerNamed("").status().message(), HasSubstr("is not known"));
}

TEST(Pattern, WhatIsNotKnownIsAnError) {
  for (const char* wrong :
       {"(",      ")",       "[",    "[a",    "a{3,1}",  "a{99999}", "*",    "\\",
        "\\q",    "\\p{Xx}", "\\pL", "[z-a]", "[a-\\d]", "[[:b:]]",  "(?<a", "(?x:a)",
        "(a)\\1", "\\G",     "\\X",  "[a",    "[[a]",    "(?>a"}) {
    EXPECT_FALSE(Pattern::Compile(wrong).ok()) << wrong;
  }
  EXPECT_THAT(Pattern::Compile("(?<=a+)b").status().message(), HasSubstr("no fixed length"));
  EXPECT_THAT(Pattern::Compile("((?>a?)b?)*").status().message(), HasSubstr("may match nothing"));
  EXPECT_FALSE(Pattern::Compile(std::string(1000, '(')).ok());
  // Widths of what is looked back for are added up once.
  std::string deep = "aa";
  for (int i = 0; i < 28; ++i) deep = "(?:" + deep + ")";
  EXPECT_OK(Pattern::Compile("(?<=" + deep + "b)"));
  EXPECT_THAT(Pattern::Compile("(a{99}){99}").status().message(), HasSubstr("smaller counts"));
  std::string borders;
  for (int i = 0; i < 32000; ++i) borders += "\\b";
  EXPECT_THAT(Pattern::Compile(borders).status().message(), HasSubstr("too many large sets"));
}

TEST(Pattern, NothingOftenIsNothing) {
  EXPECT_THAT(Found("(?:){9999}{9999}{9999}a", "ba"), ElementsAre("a"));
  EXPECT_THAT(Found("(?:(?:){9999}a{0}){9999}+a", "ba"), ElementsAre("a"));
}

TEST(Pattern, MatchingEndsOnHostileTexts) {
  const std::string many(65536, 'a');
  for (const char* pattern :
       {"(a*)*b", "(a|aa)*(a|aa)*(a|aa)*b", "(a+)+b", "((a?)+)*b", "((a*)*(a?)*)*b", "a*a*a*b",
        "(a|a)*(?=b)c", "a*(?!a)b", "(a*(?=a*b))*c", "(a|a(?=a*b)a)+b", "(a{0,20}){0,20}b",
        "a{3,30}a{3,30}b", "(a(?!a*c)a*)*b", "(a*?)*?b", "(?>(?:aa)+)b", "(?:(?>a+)a?)+b", "a*+b",
        "(?>(?:a|aa)+)(?<=a{9})b", "((?<=a)a|(?<!b)a)+?b"}) {
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
      if (!found) {
        ++at;
        continue;
      }
      word(rest, at);
      rest = at + static_cast<size_t>(m.length());
      if (m.length() == 0) {
        ++at;
        continue;
      }
      word(at, rest);
      at = rest;
      ++matches;
    }
    word(rest, text.size());
    EXPECT_EQ(Words(pattern, text), expected) << pattern << " on " << text;
  }
  EXPECT_GT(matches, 2000);
}

}  // namespace
}  // namespace tessera::llm
