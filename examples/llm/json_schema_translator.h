// The translator of JSON schemas to grammars.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/json.h"

namespace tessera::llm {

// The place of a key in an object that has a place: #/properties/a.
std::string PlaceIn(const std::string& place, absl::string_view key);

// Writes rules: each schema that has to hold, alone or with others at the same place, is one.
class SchemaTranslator {
 public:
  // The first rule is `rule`, and the names of the others begin with that. Errors begin with
  // `name`.
  SchemaTranslator(const Json& root, const std::string& rule, const std::string& name)
      : root_(root), rule_(rule), name_(name) {}

  // The rules, beside which kJsonRules have to stand.
  absl::StatusOr<std::string> Translate();

 private:
  // A schema that has to hold, and its place in the text.
  struct Part {
    Json schema;
    std::string place;
    bool spread = false;       // what it names by $ref and allOf stands beside it
    bool without_any = false;  // one of its anyOf does
  };
  using Parts = std::vector<Part>;
  // What a schema has for a word.
  struct Word {
    Json value;
    std::string place;
  };
  struct Counts {
    int64_t least;
    std::optional<int64_t> most;
    std::string Repeated(int64_t before) const;  // after the first so many
  };
  struct Property {
    std::string name;
    std::vector<Word> schemas;
    bool required = false;
  };

  absl::Status Error(const std::string& place, absl::string_view what) const;

  // Which schemas hold: json_schema_parts.cc.
  // All that has to hold: what a schema names stands before it.
  absl::StatusOr<Parts> Spread(Parts parts);
  absl::Status CheckWords(const Part& part) const;
  absl::StatusOr<Part> Resolve(const Json& ref, const std::string& place);
  // The same as Find, of objects that are asked for many keys.
  std::optional<Json> FindIn(const Json& object, const std::string& key);
  std::vector<Word> Words(const Parts& parts, absl::string_view key) const;
  static Parts PartsOf(absl::Span<const Word> words);

  // What rules they are: json_schema.cc.
  // The rule of what all of these allow, which is written later.
  absl::StatusOr<std::string> NameOf(Parts parts);
  absl::StatusOr<std::string> BodyOf(const std::string& name, const Parts& parts);
  absl::StatusOr<std::string> AnyOf(const Parts& parts, size_t which, const Json& branches,
                                    const char* word);
  static bool HasWords(const Parts& parts, uint32_t of_types);
  absl::StatusOr<uint32_t> TypesOf(const Parts& parts) const;
  absl::StatusOr<std::string> Values(const Parts& parts, uint32_t types, std::vector<Word> lists,
                                     const std::vector<Word>& constants) const;
  absl::StatusOr<std::optional<int64_t>> Count(const Parts& parts, const char* word,
                                               bool greatest) const;
  absl::StatusOr<Counts> CountsOf(const Parts& parts, const char* least, const char* most) const;
  absl::StatusOr<std::string> String(const Parts& parts) const;
  absl::StatusOr<std::string> Number(const Parts& parts, bool integer) const;

  // json_schema_lists.cc
  absl::StatusOr<std::string> Array(const std::string& name, const Parts& parts);
  absl::StatusOr<std::vector<Property>> PropertiesOf(const Parts& parts) const;
  absl::StatusOr<std::optional<std::string>> OthersOf(const Parts& parts,
                                                      const std::vector<Property>& all);
  std::string OtherKeys(const std::string& name, const std::vector<Property>& all);
  absl::StatusOr<std::string> Object(const std::string& name, const Parts& parts);

  const Json root_;
  const std::string &rule_, &name_;
  absl::flat_hash_map<std::string, std::string> rules_;  // by the schemas that hold
  std::deque<std::pair<std::string, Parts>> waiting_;
  absl::flat_hash_map<const char*, absl::flat_hash_map<std::string, Json>> members_;  // of objects
  std::string more_;  // rules of the one that is being written
};

}  // namespace tessera::llm
