// Reading config.json, with errors that name the file, the key, the value found and the one wanted.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "examples/llm/config.h"
#include "graph/status.h"

namespace tessera::llm {

struct JsonReader {
  Json json;
  const std::string& file;
  std::string within = {};  // the key of the object, for messages

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
  // Null and absent are the same.
  std::optional<Json> Find(absl::string_view key) const {
    const std::optional<Json> v = json.Find(key);
    return v && v->is(Json::Type::kNull) ? std::nullopt : v;
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
  absl::StatusOr<bool> Bool(absl::string_view key, bool otherwise) const {
    const std::optional<Json> v = Find(key);
    if (!v) return otherwise;
    const std::optional<bool> b = v->Bool();
    if (!b) return Wrong(key, *v, "a bool");
    return *b;
  }
};

// The object that says how positions turn: rope_scaling, or as transformers 5 writes it
// rope_parameters; the former counts where both are. Of an architecture whose layers turn in two
// ways the latter may have an object for each kind of layer.
absl::StatusOr<std::optional<JsonReader>> FindRope(const JsonReader& r, const Architecture& known,
                                                   const char* kind);
// The base of the frequencies and how much of a head turns; other keys of the object win over those
// outside.
absl::Status ReadRopeBase(const JsonReader& r, const Architecture& known,
                          const std::optional<JsonReader>& rope, ModelConfig* c);
absl::Status ReadRopeScaling(const JsonReader& r, const std::optional<JsonReader>& rope,
                             ModelConfig* c);

}  // namespace tessera::llm
