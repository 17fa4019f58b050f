// JSON: what is accepted and read, and what is refused at which byte.
#include "runtime/json.h"

#include "tests/testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

// A Json is a view, so the text is a literal's.
Json Parsed(absl::string_view text) {
  absl::StatusOr<Json> json = Json::Parse(text, "t");
  EXPECT_OK(json);
  return *json;
}

TEST(Json, Values) {
  EXPECT_TRUE(Parsed(" null\n").is(Json::Type::kNull));
  EXPECT_EQ(Parsed("true").Bool(), true);
  EXPECT_EQ(Parsed("false").Bool(), false);
  EXPECT_EQ(Parsed("-12").Int(), -12);
  EXPECT_EQ(Parsed("-12").Number(), -12.0);
  EXPECT_EQ(Parsed("1.5e2").Number(), 150.0);
  EXPECT_EQ(Parsed("1.5e2").Int(), std::nullopt);
  EXPECT_EQ(Parsed("9223372036854775807").Int(), INT64_MAX);
  EXPECT_EQ(Parsed("9223372036854775808").Int(), std::nullopt);
  EXPECT_EQ(Parsed("true").Int(), std::nullopt);
  EXPECT_EQ(Parsed("1").String(), std::nullopt);
  EXPECT_EQ(Parsed(R"("a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00")").String(),
            "a\"\\/\b\f\n\r\t\u00e9\U0001F600");
}

TEST(Json, MembersAndElements) {
  const Json json = Parsed(R"( { "a" : [1, "x,]}" , [], {}] , "\u0062":{"c":2} } )");
  std::vector<std::string> keys, texts;
  for (const JsonItem item : json.Items()) keys.push_back(item.key());
  EXPECT_THAT(keys, ElementsAre("a", "b"));
  for (const JsonItem item : json.Find("a")->Items()) texts.emplace_back(item.value().text());
  EXPECT_THAT(texts, ElementsAre("1", "\"x,]}\"", "[]", "{}"));
  EXPECT_EQ(json.Find("b")->Find("c")->Int(), 2);
  EXPECT_FALSE(json.Find("c"));
  EXPECT_FALSE(json.Find("a")->Find("a"));
  int n = 0;
  for (const char* empty : {"[]", "{ }", "1", "\"[1]\""}) {
    for (const JsonItem item : Parsed(empty).Items()) n += 1 + static_cast<int>(item.key().size());
  }
  EXPECT_EQ(n, 0);
}

TEST(Json, WhatIsRefused) {
  const std::pair<std::string, const char*> rows[] = {
      {"", "t: byte 0: the text ends where a value should be"},
      {"[1,]", "t: byte 3: no JSON value"},
      {"[1 2]", "byte 3: a comma or closing bracket is missing"},
      {"[1", "byte 2: the text ends within"},
      {"{\"a\" 1}", "byte 5: a colon is missing"},
      {"{a:1}", "byte 1: a key is missing"},
      {"{\"a\":1,}", "a key is missing"},
      {"{\"a\":1]", "closing bracket"},
      {"01", "after the end"},
      {"+1", "no JSON value"},
      {"1.", "a wrong number"},
      {"1e", "a wrong number"},
      {"-", "a wrong number"},
      {"nul", "no JSON value"},
      {"NaN", "no JSON value"},
      {"'a'", "no JSON value"},
      {"\"a", "ends within a string"},
      {"\"\n\"", "control character"},
      {"\"\\x\"", "a wrong escape"},
      {"\"\\u12g4\"", "a wrong escape"},
      {"\"\\ud800\"", "surrogate"},
      {"\"\\udc00\"", "surrogate"},
      {"\"\\ud800\\u0041\"", "surrogate"},
      {"\"\xC3\"", "byte 1: not UTF-8"},
      {"\"\xED\xA0\x80\"", "not UTF-8"},
      {"1 1", "byte 2: text after the end"},
      {"{\"a\":1,\"b\":2,\"a\":3}", "byte 13: the key 'a' is there twice"},
      {"{\"a\":1,\"\\u0061\":3}", "is there twice"},
      {std::string(65, '['), "nested deeper than 64"}};
  for (const auto& [text, error] : rows) {
    EXPECT_THAT(Json::Parse(text, "t").status(), StatusIs(absl::StatusCode::kDataLoss, error))
        << text;
  }
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_OK(Json::Parse(deep, "t").status());
}

}  // namespace
}  // namespace tessera
