// JSON schemas as grammars: which values they allow, which schemas are refused, and random texts.
#include "examples/llm/json_schema.h"

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "absl/strings/str_cat.h"
#include "examples/llm/constraint.h"
#include "examples/llm/generate.h"
#include "examples/llm/grammar_matcher.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

using Values = std::vector<std::string>;

std::shared_ptr<const Grammar> OfSchema(const std::string& schema) {
  absl::StatusOr<std::shared_ptr<const Grammar>> g = GrammarOfJsonSchema(schema, "s");
  EXPECT_OK(g) << schema;
  return g.ok() ? *g : nullptr;
}

bool Accepts(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  GrammarMatcher matcher(grammar);
  return matcher.Push(text) && matcher.CanEnd();
}

// The schema accepts the one and rejects the other values.
void Expect(const std::string& schema, const Values& accepted, const Values& rejected) {
  const std::shared_ptr<const Grammar> grammar = OfSchema(schema);
  ASSERT_NE(grammar, nullptr);
  for (const std::string& v : accepted) EXPECT_TRUE(Accepts(grammar, v)) << schema << ": " << v;
  for (const std::string& v : rejected) EXPECT_FALSE(Accepts(grammar, v)) << schema << ": " << v;
}

TEST(JsonSchema, AnyValue) {
  const std::string object = R"({"a": [1, -2.5e10, null, true, "\u00e9\ud83d\ude00\n"], "b": {}})";
  Expect("{}", {"{}", "{ }", object, "{\n  \"a\": {\"b\":[]}\n}"},
         {"", "1", "[]", "{", "{\"a\"}", "{\"a\": 1,}", "{}x", "{   }", R"({"a": "\x"})",
          R"({"a": "\ud800"})", R"({"a": 01})", R"({"a": tru})", "{\"a\": \"\n\"}", "{'a': 1}"});
  Expect("true", {"1", "[]", "null", object, "\"\xC3\xA9\""}, {"", "nul", "1.", "+1", "[1,]"});
  Expect(R"({"title": "only a title"})", {"1", "{}"}, {"x"});
  Expect(R"({"type": ["null", "boolean"]})", {"null", "true", "false"}, {"1", "\"null\""});
}

TEST(JsonSchema, Objects) {
  Expect(R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
             "c": {"type": "null"}}, "required": ["b"]})",
         {R"({"b": ""})", R"({"a": 1, "b": "x"})", R"({"a":1,"b":"","c":null})",
          R"({"b": "", "c": null})"},
         {"{}", R"({"a": 1})", R"({"b": "", "a": 1})", R"({"a": 1, "c": null})", R"({"b": 1})",
          R"({"b": "", "d": 1})", R"({"b": "",})", R"({, "b": ""})"});
  Expect(R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}})",
         {"{}", R"({"a": null})", R"({"b": null})", R"({"a": null, "b": null})"},
         {"[]", R"({"b": null, "a": null})", R"({"c": null})"});
  Expect(
      R"({"properties": {"a": true}, "additionalProperties": {"type": "integer"}})",
      {"{}", R"({"a": "x"})", R"({"b": 1})", R"({"a": [], "ab": 1, "": 2})", R"({"b": 1, "c": 2})"},
      {R"({"b": "x"})", R"({"b": 1, "a": 2})", R"({"\u0061": 1})", R"({"a": 1, "a": 2})"});
  Expect(R"({"properties": {"n\"o": true, "n\n": true, "\u00e9": true}, "required": ["n\n"],
             "additionalProperties": true})",
         {R"({"n\n": 1, "n": 2, "n\"": 3, "e": 4, "n\t": 5})", "{\"n\\n\": 1, \"\xC3\xA9\": 1}"},
         {R"({"n\n": 1, "n\"o": 1})", R"({"n\n": 1, "n\n": 1})", R"({"n\n": 1, "\u00e9": 1})",
          "{\"n\\n\": 1, \"a\": 1, \"\xC3\xA9\": 1}"});
  Expect(R"({"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1,
             "maxProperties": 2})",
         {R"({"x": true})", R"({"x": true, "y": false})"},
         {"{}", R"({"x": 1})", R"({"x": true, "y": true, "z": true})"});
  Expect(R"({"type": "object", "propertyNames": {"type": "string"}, "unevaluatedProperties": true,
             "additionalProperties": {"type": "null"}})",
         {"{}", R"({"a": null})"}, {R"({"a": 1})", "[]"});
  Expect(R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a": 1})"});
  Expect(R"({"required": ["z"], "type": "object"})", {R"({"z": 1})", R"({"z": 1, "y": 2})"},
         {"{}", R"({"y": 2})"});
}

TEST(JsonSchema, Arrays) {
  Expect(R"({"items": {"type": "integer"}})", {"[]", "[1]", "[1, 2,3]"}, {"{}", "[\"a\"]", "[1,]"});
  Expect(R"({"type": "array", "minItems": 2, "maxItems": 3, "items": {"type": "null"}})",
         {"[null, null]", "[null,null,null]"}, {"[]", "[null]", "[null, null, null, null]"});
  Expect(R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"});
  Expect(R"({"type": "array", "items": false})", {"[]"}, {"[1]"});
  Expect(R"({"prefixItems": [{"type": "integer"}, {"type": "string"}]})",
         {"[]", "[1]", "[1, \"a\"]"}, {"[\"a\"]", "[1, \"a\", 2]", "[1, 2]"});
  Expect(R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 1,
             "items": {"type": "null"}, "maxItems": 4})",
         {"[1]", "[1, \"a\"]", "[1, \"a\", null, null]"},
         {"[]", "[1, null]", "[1, \"a\", null, null, null]"});
  Expect(
      R"({"items": [{"const": 1}, {"const": 2}], "additionalItems": {"const": 3}, "minItems": 3})",
      {"[1, 2, 3]", "[1,2,3,3]"}, {"[1, 2]", "[1, 2, 4]"});
  Expect(R"({"prefixItems": [{"const": 1}], "minItems": 2})", {"[1, {}]"}, {"[1]", "[2, 1]"});
}

TEST(JsonSchema, Strings) {
  Expect(
      R"({"minLength": 2, "maxLength": 3})",
      {"\"ab\"", "\"abc\"", "\"\xF0\x9F\x98\x80\xC3\xA9\"", R"("\n\u0041")", R"("\ud83d\ude00x")"},
      {"\"a\"", "\"abcd\"", "ab", R"("\u0041")", R"("\ud83d\ude00")"});
  Expect(R"({"type": "string", "pattern": "^[a-c]+(-\\d{2})?$"})", {"\"a\"", "\"abc-12\""},
         {"\"\"", "\"d\"", "\"a-1\"", "\"a-123\"", "\"xa\""});
  Expect(R"({"pattern": "x[\"\\\\\n]|y"})",
         {R"("x\"")", R"("x\\")", R"("x\n")", "\"y\"", R"("a\tx\"b")"},
         {"\"x\"", "\"\"", "\"xx\""});
  Expect(R"({"pattern": "^[^a\"]\\w\\s.$"})",
         {R"("b_ c")", R"("\\9\tc")", "\"\xC3\xA9z \xC3\xA9\""},
         {R"("a_ c")", R"("\"_ c")", R"("b- c")", R"("b_ \n")"});
  Expect(R"({"pattern": "^\\$\\\\$"})", {R"("$\\")"}, {R"("$")", R"("\\")"});
  Expect(R"({"pattern": "^[\\u4e00-\\u9fff\\x41]\\u0022$"})", {"\"\u4e2d\\\"\"", R"("A\"")"},
         {R"("B\"")"});
  // As zod writes both.
  Expect(R"({"type": "string", "format": "uuid", "pattern": "^[0-9a-f]{2}$"})", {"\"0f\""},
         {"\"123e4567-e89b-12d3-a456-426614174000\""});
  Expect(R"({"pattern": "\\$"})", {R"("a$b")", R"("$")"}, {R"("ab")"});
  Expect(R"({"format": "date"})", {"\"2024-02-29\"", "\"1999-12-31\""},
         {"\"2024-13-01\"", "\"2024-02-30\"", "\"2024-04-31\"", "\"24-01-01\"", "2024-01-01"});
  Expect(R"({"format": "date-time"})",
         {"\"2024-01-31T23:59:59Z\"", "\"2024-01-01T00:00:00.25+05:30\""},
         {"\"2024-01-01\"", "\"2024-01-01T24:00:00Z\"", "\"2024-01-01T00:00:00\""});
  Expect(R"({"format": "time"})", {"\"00:00:00Z\""}, {"\"00:60:00Z\"", "\"00:00Z\""});
  Expect(R"({"format": "uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""},
         {"\"123e4567e89b12d3a456426614174000\"", "\"123e4567-e89b-12d3-a456-42661417400g\""});
  Expect(R"({"type": "string", "format": "email"})", {"\"x\""}, {"1"});
}

TEST(JsonSchema, ValuesAndChoices) {
  Expect(R"({"enum": ["a", 1, null, {"x": [1, "y"]}, "\u00e9\n"]})",
         {"\"a\"", "1", "null", R"({"x": [1, "y"]})", R"({"x":[1,"y"]})", "\"\xC3\xA9\\n\""},
         {"\"b\"", "2", "{}", R"({"x": [1]})"});
  Expect(R"({"const": "x", "type": "string"})", {"\"x\""}, {"\"y\"", "x"});
  Expect(R"({"enum": ["a", 1, 2.5], "type": "integer"})", {"1"}, {"\"a\"", "2.5"});
  Expect(R"({"anyOf": [{"type": "null"}, {"type": "integer"}, {"const": "x"}]})",
         {"null", "12", "\"x\""}, {"\"y\"", "1.5", "[]"});
  Expect(R"({"type": "object", "properties": {"kind": {"enum": ["p", "q"]}}, "required": ["kind"],
             "oneOf": [{"properties": {"x": {"type": "null"}}, "required": ["x"]},
                       {"properties": {"y": {"type": "null"}}}]})",
         {R"({"kind": "p", "x": null})", R"({"kind": "q", "y": null})", R"({"kind": "p"})"},
         {R"({"x": null})", R"({"kind": "p", "x": null, "y": null})", R"({"kind": "r"})"});
  Expect(R"({"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"n": {"maximum": 9}, "m": {}}}],
             "required": ["m"],
             "$defs": {"a": {"properties": {"n": {"type": "integer", "minimum": 5}}}}})",
         {R"({"n": 5, "m": 1})", R"({"n": 9, "m": []})", R"({"m": 0})"},
         {R"({"n": 4, "m": 1})", R"({"n": 10, "m": 1})", R"({"n": 5})"});
  Expect(R"({"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]})", {"2", "3"}, {"1", "4"});
}

TEST(JsonSchema, References) {
  Expect(R"({"type": "object", "properties": {"value": {"type": "integer"},
             "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["value", "next"]})",
         {R"({"value": 1, "next": null})", R"({"value": 1, "next": {"value": 2, "next": null}})"},
         {R"({"value": 1})", R"({"value": 1, "next": {"value": 2}})"});
  Expect(
      R"({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"items": {"$ref": "#/definitions/c%20d/0"}},
             "c d": [{"type": "boolean"}]}})",
      {"[true]", "[]"}, {"[1]"});
}

TEST(JsonSchema, IntegersFollowTheirBounds) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 30; ++round) {
    const int64_t span = int64_t{1} << random() % 12;
    int64_t low = static_cast<int64_t>(random() % (2 * span + 1)) - span;
    int64_t high = low + static_cast<int64_t>(random() % (span + 1));
    const int form = static_cast<int>(random() % 4);
    std::string schema = "{\"type\": \"integer\"";
    if (form != 1) absl::StrAppend(&schema, ", \"minimum\": ", low);
    if (form != 2) absl::StrAppend(&schema, ", \"exclusiveMaximum\": ", high + 1);
    const std::shared_ptr<const Grammar> grammar = OfSchema(schema + "}");
    for (int64_t v = -4200; v < 4200; v += 1 + static_cast<int64_t>(random() % 29)) {
      for (const int64_t at : {v, low - 1, low, high, high + 1}) {
        const bool inside = (form == 1 || at >= low) && (form == 2 || at <= high);
        ASSERT_EQ(Accepts(grammar, absl::StrCat(at)), inside) << schema << " " << at;
      }
    }
    EXPECT_FALSE(Accepts(grammar, "007"));
    EXPECT_FALSE(Accepts(grammar, "-0"));
  }
  Expect(R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})",
         {"-9223372036854775808", "9223372036854775807", "0"},
         {"-9223372036854775809", "9223372036854775808"});
  Expect(R"({"type": "integer", "minimum": 1.5, "exclusiveMaximum": 4.0})", {"2", "3"}, {"1", "4"});
}

TEST(JsonSchema, NumbersFollowWholeBounds) {
  Expect(R"({"type": "number", "minimum": 0})", {"0", "0.5", "12.25", "1234567"}, {"-1", "-0.5"});
  Expect(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})", {"0.001", "1", "1.0"},
         {"0", "0.0", "1.01", "-1", "2"});
  Expect(R"({"type": "number", "minimum": -2, "exclusiveMaximum": 3})",
         {"-2", "-2.0", "-1.99", "0", "-0.5", "2.99", "1"}, {"-2.01", "3", "3.0", "-3", "10"});
  Expect(R"({"type": "number", "maximum": -5})", {"-5", "-5.5", "-10", "-123.4"},
         {"-4.9", "0", "5"});
  Expect(R"({"type": "number"})", {"1e5", "-0.5E-10", "0"}, {".5", "1.", "1e", "--1"});
}

TEST(JsonSchema, ErrorsNameWordAndPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"[1]", "s: #: a schema is an object"},
      {"{", "s: byte 1"},
      {"false", "s: #: false allows nothing"},
      {R"({"type": "float"})", "s: #/type: it is one or several of null"},
      {R"({"properties": {"a/b": {"not": {}}}})", "s: #/properties/a~1b/not: not is not known"},
      {R"({"items": {"multipleOf": 3}})", "s: #/items/multipleOf: multipleOf is not known"},
      {R"({"patternProperties": {"a": {}}})", "patternProperties is not known"},
      {R"({"uniqueItems": true})", "uniqueItems is not known"},
      {R"({"propertyNames": {"type": "string", "pattern": "a"}})", "propertyNames is not known"},
      {R"({"properties": {}, "unevaluatedProperties": false})", "unevaluatedProperties is not"},
      {R"({"if": {"const": 1}, "then": false})", "is not known"},
      {R"({"$ref": "http://x.y/z"})", "s: #/$ref: 'http://x.y/z' is no place of this text"},
      {R"({"$ref": "#/$defs/a"})", "s: #/$ref: there is no '#/$defs/a'"},
      {R"({"$ref": "#"})", "the schema is part of itself"},
      {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "s: as a grammar: line"},
      {R"({"minLength": -1})", "s: #/minLength: it is a number from 0 to a million"},
      {R"({"minItems": 3, "maxItems": 2})", "s: #: minItems is above maxItems"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})",
       "there is no number between the bounds"},
      {R"({"type": "number", "minimum": 0.5})", "only whole bounds are known"},
      {R"({"type": "integer", "minimum": "1"})", "s: #/minimum: it is a number"},
      {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "s: #/allOf/1/type: no type is"},
      {"{\"pattern\": \"a(?=b)\"}", "s: #/pattern: lookaheads are not known"},
      {R"({"pattern": "^a|b$"})", "want a group"},
      {"{\"pattern\": \"(\"}", "s: #/pattern: pattern: byte"},
      {R"({"pattern": "a", "maxLength": 3})", "not known beside minLength"},
      {R"({"enum": []})", "s: #/enum: no value is allowed"},
      {R"({"enum": [1], "minimum": 1})", "values beside words about values"},
      {R"({"anyOf": []})", "s: #/anyOf: it is an array of schemas"},
      {R"({"anyOf": [{}], "oneOf": [{}]})", "anyOf beside oneOf"},
      {R"({"required": ["a"], "additionalProperties": false})", "'a' is required"},
      {R"({"allOf": [{"properties": {"a": {}}}], "additionalProperties": false})", "it forbids"},
      {R"({"properties": {"a": {}}, "minProperties": 1})",
       "minProperties and maxProperties beside"},
  };
  for (const auto& [schema, message] : cases) {
    const auto grammar = GrammarOfJsonSchema(schema, "s");
    EXPECT_FALSE(grammar.ok()) << schema;
    EXPECT_NE(std::string(grammar.status().message()).find(message), std::string::npos)
        << schema << ": " << grammar.status();
  }
}

TEST(JsonSchema, HostileSchemasEndSoon) {
  std::string all = "{\"allOf\": [", definitions = "{\"$ref\": \"#/$defs/d0\", \"$defs\": {";
  for (int i = 0; i < 30; ++i) {
    absl::StrAppend(&all, i > 0 ? "," : "", "{\"anyOf\": [{\"minLength\": ", i,
                    "}, {\"maxLength\": ", 100 + i, "}]}");
  }
  EXPECT_THAT(GrammarOfJsonSchema(all + "]}", "s"),
              StatusIs(absl::StatusCode::kInvalidArgument, "too large a grammar"));
  for (int i = 0; i < 10000; ++i) {
    absl::StrAppend(&definitions, "\"d", i, "\": {\"items\": {\"$ref\": \"#/$defs/d", i + 1,
                    "\"}},");
  }
  EXPECT_OK(GrammarOfJsonSchema(definitions + "\"d10000\": {\"type\": \"null\"}}}", "s"));
}

// ---- random texts

// Whether a value is what the schema says, by other code than ours: the words that the schemas
// below have.
bool Fits(const nlohmann::json& schema, const nlohmann::json& v, const nlohmann::json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  const auto is = [&](const std::string& type) {
    return type == "null"      ? v.is_null()
           : type == "boolean" ? v.is_boolean()
           : type == "integer" ? v.is_number_integer()
           : type == "number"  ? v.is_number()
           : type == "string"  ? v.is_string()
           : type == "array"   ? v.is_array()
                               : v.is_object();
  };
  for (const auto& [word, w] : schema.items()) {
    bool right = true;
    if (word == "type") {
      right = w.is_string() ? is(w) : std::any_of(w.begin(), w.end(), is);
    } else if (word == "$ref") {
      right = Fits(root.at(nlohmann::json::json_pointer(w.get<std::string>().substr(1))), v, root);
    } else if (word == "enum") {
      right = std::find(w.begin(), w.end(), v) != w.end();
    } else if (word == "anyOf" || word == "allOf") {
      const auto fits = [&](const auto& s) { return Fits(s, v, root); };
      right = word == "anyOf" ? std::any_of(w.begin(), w.end(), fits)
                              : std::all_of(w.begin(), w.end(), fits);
    } else if (word == "required") {
      for (const auto& name : w) right = right && v.contains(name.get<std::string>());
    } else if (word == "properties") {
      for (const auto& [name, s] : w.items()) {
        right = right && (!v.contains(name) || Fits(s, v[name], root));
      }
    } else if (word == "additionalProperties") {
      for (const auto& [name, value] : v.items()) {
        right = right && (schema["properties"].contains(name) || Fits(w, value, root));
      }
    } else if (word == "items") {
      for (const auto& value : v) right = right && Fits(w, value, root);
    } else if (word == "minItems" || word == "maxItems") {
      right = word == "minItems" ? v.size() >= w : v.size() <= w;
    } else if (word == "minimum" || word == "maximum") {
      right = !v.is_number() || (word == "minimum" ? v >= w : v <= w);
    } else if (word == "maxLength") {
      const std::string s = v;
      right = std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }) <= w;
    } else if (word == "pattern") {
      right = std::regex_search(v.get<std::string>(), std::regex(w.get<std::string>()));
    } else if (word != "$defs") {
      ADD_FAILURE() << word;
    }
    if (!right) return false;
  }
  return true;
}

const char* const kSchemas[] = {
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": -3, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b\n", 3]}, "minItems": 1, "maxItems": 3}},
        "required": ["age"], "additionalProperties": false})",
    R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties":
        {"v": {"type": ["number", "null"], "minimum": 0, "maximum": 7},
         "of": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}},
        "required": ["v"], "additionalProperties": false}}})",
    R"({"allOf": [{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
        {"anyOf": [{"properties": {"b": {"type": "null"}}, "required": ["b"]},
                   {"properties": {"c": {"type": "string", "pattern": "^x[a-c]{1,3}y?$"}},
                    "required": ["c"]}]}]})",
    R"({"type": "object", "properties": {"k": {"type": "boolean"}},
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}})",
};

TEST(JsonSchema, RandomTokensMakeValuesOfTheSchema) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<const Tokenizer> story, LoadTokenizer(kStory));
  ASSERT_OK_AND_ASSIGN(
      TokenizerSpec spec,
      TokenizerFromHuggingFaceText(
          ByteLevelJson(R"({"type": "ByteLevel", "add_prefix_space": false})", "null"), "t"));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<const Tokenizer> bytes, Tokenizer::Make(spec));
  int ended = 0;
  for (const char* text : kSchemas) {
    const auto schema = nlohmann::json::parse(text);
    const std::shared_ptr<const Grammar> grammar = OfSchema(text);
    for (const Tokenizer* t : {story.get(), bytes.get()}) {
      SamplerOptions options;
      options.temperature = 1;
      Sampler sampler(options, t->size());
      std::vector<float> logits(static_cast<size_t>(t->size()), 0.0f);
      for (const char* quote : {"\"", "]", "}"}) {  // texts that end
        if (t->Find(quote) >= 0) logits[t->Find(quote)] = 4;
      }
      for (int round = 0; round < 40; ++round) {
        Constraint constraint(grammar, *t, -1);
        std::string out;
        for (int i = 0; i < 400 && !constraint.AtEnd(); ++i) {
          ASSERT_OK_AND_ASSIGN(const int32_t token, constraint.Pick(sampler, logits.data(), {}));
          if (token < 0 || t->EndsText(token)) break;
          out += t->Piece(token);
          constraint.Accept(token);
        }
        if (!constraint.IsComplete()) continue;
        ++ended;
        const auto value = nlohmann::json::parse(out, nullptr, false);
        ASSERT_FALSE(value.is_discarded()) << out;
        ASSERT_TRUE(Fits(schema, value, schema)) << text << "\n" << out;
      }
    }
  }
  EXPECT_GT(ended, 200);
}

TEST(JsonSchema, AStoryModelWritesIt) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  Session session(model, {});
  GenerateOptions options;
  options.grammar = OfSchema(
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
          "age": {"type": "integer", "minimum": 1, "maximum": 99},
          "kind": {"enum": ["dog", "cat"]}}, "required": ["name", "age", "kind"]})");
  options.sampler.temperature = 1;
  for (options.sampler.seed = 0; options.sampler.seed < 4; ++options.sampler.seed) {
    session.Rewind(0);
    ASSERT_OK_AND_ASSIGN(const Generated g,
                         Generate(session, model, model.tokenizer->Encode("The friend: ", {}),
                                  options, [](const auto&) {}));
    EXPECT_STREQ(g.reason, "end");
    const auto value = nlohmann::json::parse(g.text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << g.text;
    EXPECT_GE(value["age"], 1);
    EXPECT_TRUE(value["kind"] == "dog" || value["kind"] == "cat");
    EXPECT_TRUE(value["name"].is_string());
  }
}

}  // namespace
}  // namespace tessera::llm
