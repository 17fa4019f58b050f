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

}  // namespace
}  // namespace tessera::llm
