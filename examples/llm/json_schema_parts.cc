// Which schemas hold at a place: what is named stands beside what names it.
#include <algorithm>
#include <charconv>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "examples/llm/json_schema_scalars.h"
#include "examples/llm/json_schema_translator.h"
#include "graph/status.h"
#include "runtime/mapped_file.h"

namespace tessera::llm {
namespace {

using Type = Json::Type;

// Between spaces.
constexpr char kUnknown[] =
    " not if then else dependentRequired dependentSchemas dependencies patternProperties "
    "propertyNames contains minContains maxContains uniqueItems unevaluatedItems "
    "unevaluatedProperties multipleOf $dynamicRef $recursiveRef ";

// The key that a step of a reference names, as a part of an address and of a place.
std::string KeyOf(absl::string_view step) {
  std::string out;
  for (size_t i = 0; i < step.size(); ++i) {
    const char* const c = step.data() + i;
    uint8_t byte = 0;
    if (*c == '%' && i + 2 < step.size() && std::from_chars(c + 1, c + 3, byte, 16).ptr == c + 3) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += step[i];
    }
  }
  return absl::StrReplaceAll(out, {{"~1", "/"}, {"~0", "~"}});
}

// Whether a word that is not known changes nothing by its value.
bool SaysNothing(absl::string_view key, absl::string_view value) {
  if (key == "uniqueItems") return value == "false";
  const bool any = value == "{}" || value == "true";
  if (key == "propertyNames") return any || value == R"({"type":"string"})";
  if (absl::StartsWith(key, "unevaluated")) return any;
  return value == "{}" && (absl::StartsWith(key, "dependen") || key == "patternProperties");
}

}  // namespace

std::string PlaceIn(const std::string& place, absl::string_view key) {
  return absl::StrCat(place, "/", absl::StrReplaceAll(key, {{"~", "~0"}, {"/", "~1"}}));
}

absl::StatusOr<SchemaTranslator::Parts> SchemaTranslator::Spread(Parts parts) {
  std::reverse(parts.begin(), parts.end());
  Parts out;
  absl::flat_hash_set<const char*> seen, named;
  while (!parts.empty()) {
    Part part = std::move(parts.back());
    parts.pop_back();
    const std::optional<bool> whole = part.schema.Bool();
    if (whole == true) continue;
    if (whole == false) return Error(part.place, "false allows nothing");
    if (!part.schema.is(Type::kObject)) {
      return Error(part.place, "a schema is an object, true or false");
    }
    const char* const at = part.schema.text().data();
    if (part.spread) {
      if (seen.insert(at).second) out.push_back(std::move(part));
      continue;
    }
    if (!named.insert(at).second) {
      if (seen.contains(at)) continue;
      return Error(part.place, "the schema is part of itself");
    }
    part.spread = true;
    const Part self = part;
    parts.push_back(std::move(part));
    RETURN_IF_ERROR(CheckWords(self));
    if (const std::optional<Json> all = self.schema.Find("allOf")) {
      const std::string place = PlaceIn(self.place, "allOf");
      if (!all->is(Type::kArray)) return Error(place, "it is an array of schemas");
      Parts of;
      for (const JsonItem i : all->Items()) {
        of.push_back({i.value(), absl::StrCat(place, "/", of.size())});
      }
      parts.insert(parts.end(), of.rbegin(), of.rend());
    }
    if (const std::optional<Json> ref = self.schema.Find("$ref")) {
      ASSIGN_OR_RETURN(Part target, Resolve(*ref, PlaceIn(self.place, "$ref")));
      parts.push_back(std::move(target));
    }
  }
  return out;
}

absl::Status SchemaTranslator::CheckWords(const Part& part) const {
  for (const JsonItem item : part.schema.Items()) {
    const std::string key = item.key();
    const bool unknown = absl::StrContains(kUnknown, absl::StrCat(" ", key, " "));
    if (!unknown) continue;
    if (SaysNothing(key, CompactJson(item.value()))) continue;
    return Error(PlaceIn(part.place, key), absl::StrCat(key, " is not known in grammars"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SchemaTranslator::Part> SchemaTranslator::Resolve(const Json& ref,
                                                                 const std::string& place) {
  const std::optional<std::string> to = ref.String();
  if (!to) return Error(place, "it is a string");
  if (*to != "#" && !absl::StartsWith(*to, "#/")) {
    return Error(place, absl::StrCat(ShowName(*to), " is no place of this text: #/..."));
  }
  std::optional<Json> at = root_;
  if (*to != "#") {
    for (const absl::string_view step : absl::StrSplit(to->substr(2), '/')) {
      const std::string key = KeyOf(step);
      size_t index = 0;
      if (at->is(Type::kObject)) {
        at = FindIn(*at, key);
      } else if (at->is(Type::kArray) && absl::SimpleAtoi(key, &index)) {
        std::optional<Json> found;
        for (const JsonItem i : at->Items()) {
          if (index-- == 0) found = i.value();
        }
        at = found;
      } else {
        at = std::nullopt;
      }
      if (!at) return Error(place, absl::StrCat("there is no ", ShowName(*to)));
    }
  }
  return Part{*at, *to};
}

std::optional<Json> SchemaTranslator::FindIn(const Json& object, const std::string& key) {
  const auto [members, added] = members_.try_emplace(object.text().data());
  if (added) {
    for (const JsonItem i : object.Items()) members->second.emplace(i.key(), i.value());
  }
  const auto found = members->second.find(key);
  return found == members->second.end() ? std::nullopt : std::optional<Json>(found->second);
}

std::vector<SchemaTranslator::Word> SchemaTranslator::Words(const Parts& parts,
                                                            absl::string_view key) const {
  std::vector<Word> out;
  for (const Part& p : parts) {
    if (std::optional<Json> v = p.schema.Find(key)) out.push_back({*v, PlaceIn(p.place, key)});
  }
  return out;
}

SchemaTranslator::Parts SchemaTranslator::PartsOf(absl::Span<const Word> words) {
  Parts out;
  for (const Word& w : words) out.push_back({w.value, w.place});
  return out;
}

}  // namespace tessera::llm
