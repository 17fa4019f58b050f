// Reading config.json and the like, with errors that name the file, the key, the value found and
// the one wanted.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "examples/llm/config.h"
#include "graph/status.h"

namespace tessera::llm {

struct JsonReader {
  Json json;
  const std::string& file;
  std::string within = {};            // the key of the object, for messages
  std::optional<Json> defaults = {};  // of keys that the file has not

  template <typename... Parts>
  absl::Status Bad(const Parts&... parts) const {
    return absl::DataLossError(absl::StrCat(file, ": ", parts...));
  }
  absl::Status Wrong(absl::string_view key, const Json& value, const char* wanted) const {
    return Bad("key '", within, key, "' is ", ShowName(std::string(value.text())), ", not ",
               wanted);
  }
  // Of the object itself.
  absl::string_view object() const { return absl::StripSuffix(within, "."); }
  absl::Status BadHere(absl::string_view wants) const {
    return Bad("key '", object(), "': wants ", wants);
  }
  // Null is nothing, also where there is a default.
  std::optional<Json> Find(absl::string_view key) const {
    std::optional<Json> v = json.Find(key);
    if (!v && defaults) v = defaults->Find(key);
    return v && v->is(Json::Type::kNull) ? std::nullopt : v;
  }
  // Whether models of this family have such a key at all.
  bool Knows(absl::string_view key) const { return defaults && defaults->Find(key).has_value(); }
  // Of several names of one thing the first in the file, or else the family's.
  const char* NameOf(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (json.Find(name)) return name;
    }
    for (const char* name : names) {
      if (Knows(name)) return name;
    }
    return *names.begin();
  }
  KeyNamer namer() const {
    return [r = *this](const ConfigKey& key) {
      const char* name = key.json[0];
      bool there = false;
      for (const char* other : key.json) {
        if (other == nullptr || there) break;
        there = r.json.Find(other).has_value();
        if (there) name = other;
      }
      return absl::StrCat("key '", name, there ? "'" : "' (which is missing)");
    };
  }
  absl::StatusOr<int64_t> Int(absl::string_view key, std::optional<int64_t> otherwise = {}) const {
    const std::optional<Json> v = Find(key);
    if (!v) {
      if (otherwise) return *otherwise;
      return Bad("the key '", within, key, "' is missing");
    }
    const std::optional<int64_t> n = v->Int();
    if (!n) return Wrong(key, *v, "an integer");
    return *n;
  }
  absl::StatusOr<double> Number(absl::string_view key, std::optional<double> otherwise = {}) const {
    const std::optional<Json> v = Find(key);
    if (!v) {
      if (otherwise) return *otherwise;
      return Bad("the key '", within, key, "' is missing");
    }
    const std::optional<double> n = v->Number();
    if (!n) return Wrong(key, *v, "a number");
    return *n;
  }
  // Null is false.
  absl::StatusOr<bool> Bool(absl::string_view key, bool otherwise) const {
    const std::optional<Json> v = Find(key);
    if (!v) return otherwise && !json.Find(key);
    const std::optional<bool> b = v->Bool();
    if (!b) return Wrong(key, *v, "a bool");
    return *b;
  }
  absl::StatusOr<std::string> Text(absl::string_view key,
                                   std::optional<std::string> otherwise = {}) const {
    const std::optional<Json> v = Find(key);
    if (!v) {
      if (otherwise) return *otherwise;
      return Bad("the key '", within, key, "' is missing");
    }
    std::optional<std::string> text = v->String();
    if (!text) return Wrong(key, *v, "a text");
    return *std::move(text);
  }
  absl::StatusOr<JsonReader> Object(absl::string_view key) const {
    ASSIGN_OR_RETURN(const Json v, Typed(key, Json::Type::kObject, "an object"));
    return JsonReader{v, file, absl::StrCat(within, key, ".")};
  }
  absl::StatusOr<Json> Array(absl::string_view key) const {
    return Typed(key, Json::Type::kArray, "an array");
  }
  // The objects of an array.
  absl::StatusOr<std::vector<JsonReader>> Objects(absl::string_view key) const {
    ASSIGN_OR_RETURN(const Json array, Array(key));
    std::vector<JsonReader> out;
    for (const JsonItem item : array.Items()) {
      const std::string name = absl::StrCat(key, "[", out.size(), "]");
      if (!item.value().is(Json::Type::kObject)) return Wrong(name, item.value(), "an object");
      out.push_back({item.value(), file, absl::StrCat(within, name, ".")});
    }
    return out;
  }
  absl::StatusOr<Json> Typed(absl::string_view key, Json::Type type, const char* wanted) const {
    const std::optional<Json> v = Find(key);
    if (!v) return Bad("the key '", within, key, "' is missing");
    if (!v->is(type)) return Wrong(key, *v, wanted);
    return *v;
  }
};

// What config.json of a family means where it has not a key: as its class in transformers fills it
// in, null where nothing is there. Sizes that every file says are not among them.
std::optional<Json> DefaultsOf(absl::string_view model_type);

// The object that says how positions turn: rope_scaling, or as transformers 5 writes it
// rope_parameters; the former counts where both are. Of an architecture whose layers turn in two
// ways the latter may have an object for each kind of layer.
absl::StatusOr<std::optional<JsonReader>> FindRope(const JsonReader& r, const char* kind);
// The base of the frequencies and how much of a head turns; other keys of the object win over those
// outside.
absl::Status ReadRopeBase(const JsonReader& r, const Architecture& known,
                          const std::optional<JsonReader>& rope, ModelConfig* c);
absl::Status ReadRopeScaling(const JsonReader& r, const std::optional<JsonReader>& rope,
                             ModelConfig* c);

}  // namespace tessera::llm
