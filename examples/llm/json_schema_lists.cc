// Arrays and objects of JSON schemas as rules.
#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "examples/llm/json_schema_scalars.h"
#include "examples/llm/json_schema_translator.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"
#include "runtime/mapped_file.h"

namespace tessera::llm {

using Type = Json::Type;

absl::StatusOr<std::string> SchemaTranslator::Array(const std::string& name, const Parts& parts) {
  ASSIGN_OR_RETURN(Counts counts, CountsOf(parts, "minItems", "maxItems"));
  std::vector<std::vector<Word>> first;  // by index
  std::vector<Word> rest;
  bool no_rest = false;
  const auto add_rest = [&](const Word& w) {
    no_rest = no_rest || w.value.Bool() == false;
    rest.push_back(w);
  };
  for (const Part& p : parts) {
    const std::optional<Json> items = p.schema.Find("items");
    const bool listed = items && items->is(Type::kArray);  // as older drafts write it
    const char* const word = listed ? "items" : "prefixItems";
    size_t i = 0;
    if (const std::optional<Json> prefix = p.schema.Find(word)) {
      const std::string place = PlaceIn(p.place, word);
      if (!prefix->is(Type::kArray)) return Error(place, "it is an array of schemas");
      for (const JsonItem item : prefix->Items()) {
        if (i == first.size()) first.emplace_back();
        first[i].push_back({item.value(), absl::StrCat(place, "/", i)});
        ++i;
      }
    }
    const char* const others = listed ? "additionalItems" : "items";
    if (const std::optional<Json> r = p.schema.Find(others)) {
      add_rest({*r, PlaceIn(p.place, others)});
    }
  }
  if (!first.empty() && parts.size() > 1 && !rest.empty()) {
    return Error(parts[0].place, "prefixItems beside items of another schema are not known");
  }
  const int64_t n = static_cast<int64_t>(first.size());
  no_rest = no_rest || (n > 0 && rest.empty() && counts.least <= n);
  if (no_rest) counts.most = std::min(counts.most.value_or(n), n);
  if (counts.most && *counts.most < counts.least) {
    return Error(parts[0].place, "there are fewer items than minItems");
  }
  if (counts.most == 0) return std::string("\"[\" ws \"]\"");
  std::string item = "value";
  if (!no_rest && !rest.empty()) {
    ASSIGN_OR_RETURN(item, NameOf(PartsOf(rest)));
  }
  if (n == 0) {
    const std::string some = absl::StrCat(item, " (\",\" ws ", item, ")", counts.Repeated(1));
    return absl::StrCat(
        "\"[\" ws ", counts.least == 0 ? absl::StrCat("(", some, " ws)?") : some + " ws", " \"]\"");
  }
  // Each rule is an item with all that follows it.
  const int64_t listed = std::min(n, counts.most.value_or(n));
  const bool longer = !counts.most || *counts.most > n;
  for (int64_t i = 0; i < listed; ++i) {
    ASSIGN_OR_RETURN(const std::string of, NameOf(PartsOf(first[i])));
    absl::StrAppend(&more_, name, "-", i, " ::= ", i > 0 ? "\",\" ws " : "", of);
    if (i + 1 < listed) {
      absl::StrAppend(&more_, " ", name, "-", i + 1, i + 1 < counts.least ? "" : "?");
    } else if (longer) {
      absl::StrAppend(&more_, " (\",\" ws ", item, ")", counts.Repeated(n));
    }
    more_ += "\n";
  }
  return absl::StrCat("\"[\" ws ", counts.least > 0 ? "" : "(", name, "-0 ws",
                      counts.least > 0 ? "" : ")?", " \"]\"");
}

absl::StatusOr<std::vector<SchemaTranslator::Property>> SchemaTranslator::PropertiesOf(
    const Parts& parts) const {
  std::vector<Property> out;
  absl::flat_hash_map<std::string, size_t> index;
  const auto of = [&](const std::string& name) -> Property& {
    const auto [it, added] = index.try_emplace(name, out.size());
    if (added) out.push_back({name, {}});
    return out[it->second];
  };
  for (const Word& w : Words(parts, "properties")) {
    if (!w.value.is(Type::kObject)) return Error(w.place, "it is an object of schemas");
    for (const JsonItem i : w.value.Items()) {
      of(i.key()).schemas.push_back({i.value(), PlaceIn(w.place, i.key())});
    }
  }
  for (const Word& w : Words(parts, "required")) {
    if (!w.value.is(Type::kArray)) return Error(w.place, "it is an array of names");
    for (const JsonItem i : w.value.Items()) {
      const std::optional<std::string> name = i.value().String();
      if (!name) return Error(w.place, "it is an array of names");
      of(*name).required = true;
    }
  }
  return out;
}

// What properties that are not listed are; none: there are no others.
absl::StatusOr<std::optional<std::string>> SchemaTranslator::OthersOf(
    const Parts& parts, const std::vector<Property>& all) {
  const std::vector<Word> others = Words(parts, "additionalProperties");
  if (others.empty()) {
    const bool listed = !Words(parts, "properties").empty();
    return listed && !all.empty() ? std::nullopt : std::optional<std::string>("value");
  }
  for (const Part& p : parts) {
    const std::optional<Json> here = p.schema.Find("additionalProperties");
    if (!here || here->Bool() == true) continue;
    const std::optional<Json> own = p.schema.Find("properties");
    for (const Property& property : all) {
      if (property.schemas.empty() || (own && FindIn(*own, property.name))) continue;
      return Error(PlaceIn(p.place, "additionalProperties"),
                   absl::StrCat("it forbids or changes ", ShowName(property.name),
                                ", which another schema of the same object lists"));
    }
  }
  const bool none = std::any_of(others.begin(), others.end(),
                                [](const Word& w) { return w.value.Bool() == false; });
  if (none) return std::optional<std::string>();
  ASSIGN_OR_RETURN(std::string rule, NameOf(PartsOf(others)));
  return std::optional<std::string>(std::move(rule));
}

// The rule of keys that are none of these: along a tree of their characters as JSON writes them.
std::string SchemaTranslator::OtherKeys(const std::string& name, const std::vector<Property>& all) {
  struct Node {
    std::map<std::string, size_t> next;
    bool is_key = false;
  };
  std::vector<Node> nodes(1);
  for (const Property& p : all) {
    const std::string quoted = JsonQuoted(p.name);
    const std::vector<Character> characters = Characters(quoted);
    size_t at = 0;
    for (size_t i = 1; i + 2 < characters.size();) {
      const bool escaped = quoted[characters[i].begin] == '\\';
      const size_t n = !escaped ? 1 : quoted[characters[i].begin + 1] == 'u' ? 6 : 2;
      const std::string one =
          quoted.substr(characters[i].begin, characters[i + n].begin - characters[i].begin);
      const auto [it, added] = nodes[at].next.try_emplace(one, nodes.size());
      at = it->second;
      if (added) nodes.emplace_back();
      i += n;
    }
    nodes[at].is_key = true;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::string plain, letters = "\"\\bfnrt";
    std::vector<std::string> of;
    if (!nodes[i].is_key) of.push_back("\"\"");
    for (const auto& [one, to] : nodes[i].next) {
      of.push_back(absl::StrCat(GrammarQuoted(one), " ", name, "-k", to));
      if (one[0] != '\\') {
        absl::StrAppendFormat(&plain, "\\U%08x", Characters(one)[0].code);
      } else if (one.size() == 2) {
        letters.erase(letters.find(one[1]), 1);
      }
    }
    of.push_back(absl::StrCat("[^\"\\\\\\x00-\\x1F", plain, "] key-char*"));
    if (!letters.empty()) {
      letters = absl::StrReplaceAll(letters, {{"\\", "\\\\"}});
      of.push_back(absl::StrCat("\"\\\\\" [", letters, "] key-char*"));
    }
    absl::StrAppend(&more_, name, "-k", i, " ::= ", absl::StrJoin(of, " | "), "\n");
  }
  return name + "-k0";
}

// Properties come in order: rule p is one, r the ones that follow others, and f the first one
// that there is with those that follow it.
absl::StatusOr<std::string> SchemaTranslator::Object(const std::string& name, const Parts& parts) {
  ASSIGN_OR_RETURN(const std::vector<Property> all, PropertiesOf(parts));
  ASSIGN_OR_RETURN(const std::optional<std::string> others, OthersOf(parts, all));
  ASSIGN_OR_RETURN(const Counts counts, CountsOf(parts, "minProperties", "maxProperties"));
  if (all.empty()) {
    if (!others || counts.most == 0) return std::string("\"{\" ws \"}\"");
    const std::string pair = others == "value" ? "pair" : "(string \":\" ws " + *others + ")";
    const std::string some = absl::StrCat(pair, " (\",\" ws ", pair, ")", counts.Repeated(1));
    return absl::StrCat(
        "\"{\" ws ", counts.least == 0 ? absl::StrCat("(", some, " ws)?") : some + " ws", " \"}\"");
  }
  const int64_t needed =
      std::count_if(all.begin(), all.end(), [](const Property& p) { return p.required; });
  if (counts.least > needed || counts.most) {
    return Error(parts[0].place, "minProperties and maxProperties beside properties are not known");
  }
  for (size_t i = 0; i < all.size(); ++i) {
    std::string value = others.value_or("value");
    if (!all[i].schemas.empty()) {
      ASSIGN_OR_RETURN(value, NameOf(PartsOf(all[i].schemas)));
    } else if (!others && !Words(parts, "additionalProperties").empty()) {
      return Error(parts[0].place, absl::StrCat(ShowName(all[i].name),
                                                " is required, and is no property it may have"));
    }
    absl::StrAppend(&more_, name, "-p", i, " ::= ", GrammarQuoted(JsonQuoted(all[i].name) + ":"),
                    " ws ", value, "\n");
  }
  const size_t n = all.size();
  std::string last, other;
  if (others) {
    absl::StrAppend(&more_, name, "-x ::= \"\\\"\" ", OtherKeys(name, all), " \"\\\":\" ws ",
                    *others, "\n");
    other = absl::StrCat(name, "-x");
    last = absl::StrCat("(\",\" ws ", other, ")*");
  }
  const auto rest = [&](size_t i) { return i < n ? absl::StrCat(name, "-r", i) : last; };
  for (size_t i = 1; i < n; ++i) {
    const std::string after = rest(i + 1);
    absl::StrAppend(&more_, rest(i), " ::= \",\" ws ", name, "-p", i, " ", after);
    if (!all[i].required) absl::StrAppend(&more_, " | ", after.empty() ? "\"\"" : after);
    more_ += "\n";
  }
  bool any_required = false;
  for (size_t i = 0; i < n && !any_required; ++i) {
    any_required = all[i].required;
    absl::StrAppend(&more_, name, "-f", i, " ::= ", name, "-p", i, " ", rest(i + 1));
    if (!any_required && i + 1 < n) {
      absl::StrAppend(&more_, " | ", name, "-f", i + 1);
    } else if (!any_required && others) {
      absl::StrAppend(&more_, " | ", other, " ", last);
    }
    more_ += "\n";
  }
  return absl::StrCat("\"{\" ws ", any_required ? "" : "(", name, "-f0 ws",
                      any_required ? "" : ")?", " \"}\"");
}

}  // namespace tessera::llm
