// JSON schemas as rules, and their single values.
#include "examples/llm/json_schema.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "examples/llm/json_schema_scalars.h"
#include "examples/llm/json_schema_translator.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

using Type = Json::Type;

constexpr size_t kMostSchema = 1 << 20, kMostRules = 20000, kMostBytes = 4 << 20;
constexpr int64_t kMostCount = 1'000'000;

// The types of values, as bits.
enum : uint32_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,
  kText = 16,
  kList = 32,
  kRecord = 64,
  kAnything = 127
};
constexpr std::pair<const char*, uint32_t> kTypes[] = {
    {"null", kNull},       {"boolean", kBoolean},
    {"integer", kInteger}, {"number", kInteger | kFraction},
    {"string", kText},     {"array", kList},
    {"object", kRecord}};
constexpr std::pair<const char*, uint32_t> kWordsOfTypes[] = {
    {"properties", kRecord},
    {"required", kRecord},
    {"additionalProperties", kRecord},
    {"minProperties", kRecord},
    {"maxProperties", kRecord},
    {"items", kList},
    {"prefixItems", kList},
    {"minItems", kList},
    {"maxItems", kList},
    {"minLength", kText},
    {"maxLength", kText},
    {"pattern", kText},
    {"format", kText},
    {"minimum", kInteger | kFraction},
    {"maximum", kInteger | kFraction},
    {"exclusiveMinimum", kInteger | kFraction},
    {"exclusiveMaximum", kInteger | kFraction}};
uint32_t TypeOf(const Json& v) {
  switch (v.type()) {
    case Type::kNull:
      return kNull;
    case Type::kBool:
      return kBoolean;
    case Type::kNumber:
      return v.text().find_first_of(".eE") == absl::string_view::npos ? kInteger : kFraction;
    case Type::kString:
      return kText;
    case Type::kArray:
      return kList;
    case Type::kObject:
      return kRecord;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::string> SchemaTranslator::Translate() {
  const Json::Range all = root_.Items();
  if (root_.is(Type::kObject) && !(all.begin() != all.end())) {
    return absl::StrCat(rule_, " ::= object\n");
  }
  ASSIGN_OR_RETURN(const std::string root, NameOf({{root_, "#"}}));
  std::string out = absl::StrCat(rule_, " ::= ", root, "\n");
  while (!waiting_.empty()) {
    const auto [name, parts] = std::move(waiting_.front());
    waiting_.pop_front();
    ASSIGN_OR_RETURN(const std::string body, BodyOf(name, parts));
    absl::StrAppend(&out, name, " ::= ", body, "\n", more_);
    more_.clear();
    if (rules_.size() > kMostRules || out.size() > kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ": the schema becomes too large a grammar"));
    }
  }
  return out;
}

absl::Status SchemaTranslator::Error(const std::string& place, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(name_, ": ", place, ": ", what));
}

absl::StatusOr<std::string> SchemaTranslator::NameOf(Parts parts) {
  ASSIGN_OR_RETURN(const Parts flat, Spread(std::move(parts)));
  if (flat.empty()) return std::string("value");
  std::string key;
  for (const Part& p : flat) {
    const auto at = reinterpret_cast<uintptr_t>(p.schema.text().data());
    absl::StrAppend(&key, at, p.without_any ? "a," : ",");
  }
  const auto [it, added] = rules_.try_emplace(key, absl::StrCat(rule_, "-", rules_.size()));
  if (added) waiting_.emplace_back(it->second, flat);
  return it->second;
}

absl::StatusOr<std::string> SchemaTranslator::BodyOf(const std::string& name, const Parts& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].without_any) continue;
    const std::optional<Json> any = parts[i].schema.Find("anyOf"),
                              one = parts[i].schema.Find("oneOf");
    if (any && one) return Error(parts[i].place, "anyOf beside oneOf is not known");
    if (any || one) return AnyOf(parts, i, any ? *any : *one, any ? "anyOf" : "oneOf");
  }
  ASSIGN_OR_RETURN(const uint32_t types, TypesOf(parts));
  std::vector<Word> values = Words(parts, "enum");
  const std::vector<Word> constants = Words(parts, "const");
  if (!values.empty() || !constants.empty()) return Values(parts, types, values, constants);
  if (types == kAnything && !HasWords(parts, kAnything)) return std::string("value");
  std::vector<std::string> of;
  const auto add = [&](absl::StatusOr<std::string> text) -> absl::Status {
    RETURN_IF_ERROR(text.status());
    of.push_back(*std::move(text));
    return absl::OkStatus();
  };
  if (types & kRecord) RETURN_IF_ERROR(add(Object(name, parts)));
  if (types & kList) RETURN_IF_ERROR(add(Array(name, parts)));
  if (types & kText) RETURN_IF_ERROR(add(String(parts)));
  if (types & kInteger) RETURN_IF_ERROR(add(Number(parts, (types & kFraction) == 0)));
  if (types & kBoolean) of.push_back("boolean");
  if (types & kNull) of.push_back("null");
  return absl::StrJoin(of, " | ");
}

absl::StatusOr<std::string> SchemaTranslator::AnyOf(const Parts& parts, size_t which,
                                                    const Json& branches, const char* word) {
  const std::string place = PlaceIn(parts[which].place, word);
  if (!branches.is(Type::kArray) || branches.text() == "[]") {
    return Error(place, "it is an array of schemas");
  }
  std::vector<std::string> of;
  for (const JsonItem i : branches.Items()) {
    Parts with = parts;
    with[which].without_any = true;
    with.push_back({i.value(), absl::StrCat(place, "/", of.size())});
    ASSIGN_OR_RETURN(std::string rule, NameOf(std::move(with)));
    of.push_back(std::move(rule));
  }
  return absl::StrJoin(of, " | ");
}

bool SchemaTranslator::HasWords(const Parts& parts, uint32_t of_types) {
  for (const auto& [word, types] : kWordsOfTypes) {
    if ((types & of_types) == 0) continue;
    for (const Part& p : parts) {
      if (p.schema.Find(word)) return true;
    }
  }
  return false;
}

absl::StatusOr<uint32_t> SchemaTranslator::TypesOf(const Parts& parts) const {
  uint32_t out = kAnything;
  const std::vector<Word> named = Words(parts, "type");
  for (const Word& w : named) {
    uint32_t these = 0;
    std::vector<std::optional<std::string>> names = {w.value.String()};
    if (w.value.is(Type::kArray)) {
      names.clear();
      for (const JsonItem i : w.value.Items()) names.push_back(i.value().String());
    }
    for (const std::optional<std::string>& n : names) {
      const auto known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                      [&](const auto& t) { return n == t.first; });
      if (known == std::end(kTypes)) {
        return Error(w.place,
                     "it is one or several of null, boolean, integer, number, string, array and "
                     "object");
      }
      these |= known->second;
    }
    out &= these;
  }
  if (out == 0) return Error(named.back().place, "no type is one of all that are asked for");
  if (named.empty()) {
    uint32_t told = 0;
    for (const auto& [word, types] : kWordsOfTypes) {
      if (!Words(parts, word).empty()) told |= types;
    }
    if (told != 0) out = told;
  }
  return out;
}

absl::StatusOr<std::string> SchemaTranslator::Values(const Parts& parts, uint32_t types,
                                                     std::vector<Word> lists,
                                                     const std::vector<Word>& constants) const {
  const std::string place = lists.empty() ? constants[0].place : lists[0].place;
  const bool typed = !Words(parts, "type").empty();
  if (HasWords(parts, kAnything)) {
    return Error(place, "values beside words about values, but for type, are not known");
  }
  std::vector<std::vector<Json>> all;
  for (const Word& w : lists) {
    if (!w.value.is(Type::kArray)) return Error(w.place, "it is an array of values");
    std::vector<Json>& values = all.emplace_back();
    for (const JsonItem i : w.value.Items()) values.push_back(i.value());
  }
  for (const Word& w : constants) all.push_back({w.value});
  std::vector<absl::flat_hash_set<std::string>> others;
  for (size_t i = 1; i < all.size(); ++i) {
    for (auto& set = others.emplace_back(); const Json& v : all[i]) set.insert(CompactJson(v));
  }
  std::vector<std::string> of;
  absl::flat_hash_set<std::string> written;
  for (const Json& v : all[0]) {
    const std::string text = CompactJson(v);
    const bool in_all = std::all_of(others.begin(), others.end(),
                                    [&](const auto& set) { return set.contains(text); });
    if (!in_all || (typed && (TypeOf(v) & types) == 0)) continue;
    if (written.insert(text).second) of.push_back(GrammarOfJson(v));
  }
  if (of.empty()) return Error(place, "no value is allowed by all that is asked for");
  return absl::StrJoin(of, " | ");
}

// The greatest of several least counts, or the least of greatest.
absl::StatusOr<std::optional<int64_t>> SchemaTranslator::Count(const Parts& parts, const char* word,
                                                               bool greatest) const {
  std::optional<int64_t> out;
  for (const Word& w : Words(parts, word)) {
    const std::optional<int64_t> n = w.value.Int();
    if (!n || *n < 0 || *n > kMostCount) {
      return Error(w.place, "it is a number from 0 to a million");
    }
    out = !out ? *n : greatest ? std::max(*out, *n) : std::min(*out, *n);
  }
  return out;
}

std::string SchemaTranslator::Counts::Repeated(int64_t before) const {
  const int64_t low = std::max<int64_t>(least - before, 0);
  return absl::StrCat("{", low, ",", most ? absl::StrCat(*most - before) : "", "}");
}

absl::StatusOr<SchemaTranslator::Counts> SchemaTranslator::CountsOf(const Parts& parts,
                                                                    const char* least,
                                                                    const char* most) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> low, Count(parts, least, true));
  ASSIGN_OR_RETURN(const std::optional<int64_t> high, Count(parts, most, false));
  if (low && high && *low > *high) {
    return Error(parts[0].place, absl::StrCat(least, " is above ", most));
  }
  return Counts{low.value_or(0), high};
}

absl::StatusOr<std::string> SchemaTranslator::String(const Parts& parts) const {
  ASSIGN_OR_RETURN(const Counts counts, CountsOf(parts, "minLength", "maxLength"));
  const bool counted = counts.least > 0 || counts.most;
  std::vector<std::pair<std::string, std::string>> forms;  // place and grammar
  for (const Word& w : Words(parts, "pattern")) {
    if (!w.value.is(Type::kString)) return Error(w.place, "it is a string");
    absl::StatusOr<std::string> text = GrammarOfPattern(*w.value.String());
    if (!text.ok()) return Error(w.place, text.status().message());
    forms.emplace_back(w.place, *std::move(text));
  }
  const bool by_pattern = !forms.empty();
  for (const Word& w : Words(parts, "format")) {
    const std::optional<std::string> format = w.value.String();
    if (!format) return Error(w.place, "it is a string");
    if (by_pattern) continue;  // a format only says what the pattern is for
    if (std::optional<std::string> text = GrammarOfFormat(*format)) {
      forms.emplace_back(w.place, *std::move(text));
    }
  }
  for (size_t i = 1; i < forms.size(); ++i) {
    if (forms[i].second == forms[0].second) continue;
    return Error(forms[i].first, "two patterns or formats of one string are not known");
  }
  if (!forms.empty() && counted) {
    return Error(forms[0].first, "it is not known beside minLength and maxLength");
  }
  if (!forms.empty()) return forms[0].second;
  if (!counted) return std::string("string");
  return absl::StrCat("\"\\\"\" char", counts.Repeated(0), " \"\\\"\"");
}

absl::StatusOr<std::string> SchemaTranslator::Number(const Parts& parts, bool integer) const {
  NumberBounds bounds;
  std::string place = parts[0].place;
  for (const char* word : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    for (const Word& w : Words(parts, word)) {
      place = w.place;
      const bool excluded = word[0] == 'e', upper = absl::EndsWithIgnoreCase(word, "maximum");
      std::optional<int64_t> n = w.value.Int();
      bool apart = excluded;  // from the bound
      if (const std::optional<double> v = w.value.Number(); !n && v) {
        const double whole = upper ? std::floor(*v) : std::ceil(*v);
        if (!(std::abs(whole) < 9e15)) return Error(w.place, "the bound is too great");
        if (whole != *v && !integer) {
          return Error(w.place, "of numbers that are no integers only whole bounds are known");
        }
        apart = excluded && whole == *v;
        n = static_cast<int64_t>(whole);
      }
      if (!n) return Error(w.place, "it is a number of at most 64 bits");
      std::optional<int64_t>& bound = upper ? bounds.most : bounds.least;
      bool& bound_apart = upper ? bounds.below_most : bounds.above_least;
      if (bound == n) {
        bound_apart = bound_apart || apart;
      } else if (!bound || (upper ? *n < *bound : *n > *bound)) {
        bound = n;
        bound_apart = apart;
      }
    }
  }
  absl::StatusOr<std::string> out = integer ? GrammarOfIntegers(bounds) : GrammarOfNumbers(bounds);
  return out.ok() ? out : Error(place, out.status().message());
}

absl::StatusOr<std::string> RulesOfJsonSchema(absl::string_view schema, const std::string& rule,
                                              const std::string& name) {
  if (schema.size() > kMostSchema) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the schema is larger than 1 MiB"));
  }
  ASSIGN_OR_RETURN(const Json json, Json::Parse(schema, name));
  return SchemaTranslator(json, rule, name).Translate();
}

absl::StatusOr<std::string> GrammarTextOfJsonSchema(absl::string_view schema,
                                                    const std::string& name) {
  ASSIGN_OR_RETURN(const std::string rules, RulesOfJsonSchema(schema, "root", name));
  return absl::StrCat(rules, kJsonRules);
}

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarOfJsonSchema(absl::string_view schema,
                                                                   const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, GrammarTextOfJsonSchema(schema, name));
  return ParseGrammar(text, absl::StrCat(name, ": as a grammar"));
}

}  // namespace tessera::llm
