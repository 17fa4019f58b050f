// The parts of a tokenizer.json, each into what a tokenizer is made from. Errors name the key.
#pragma once

#include "examples/llm/config_json.h"
#include "examples/llm/tokenizer.h"

namespace tessera::llm {

absl::Status ReadVocabulary(const JsonReader& root, TokenizerSpec* spec);  // with added tokens
absl::Status ReadNormalizer(const JsonReader& root, TokenizerSpec* spec);
absl::Status ReadPreTokenizer(const JsonReader& root, TokenizerSpec* spec);  // after the vocabulary
absl::Status ReadDecoder(const JsonReader& root, TokenizerSpec* spec);
absl::Status ReadPostProcessor(const JsonReader& root, TokenizerSpec* spec);

// An object by its key, or nothing where that is missing or null.
absl::StatusOr<std::optional<JsonReader>> ObjectIfThere(const JsonReader& in,
                                                        absl::string_view key);
// {"String": "..."} or {"Regex": "..."} at 'pattern', as an expression; never empty.
struct JsonPattern {
  std::string expression;
  std::string text;  // of a String
};
absl::StatusOr<JsonPattern> ReadPattern(const JsonReader& in);
// An expression that matches a text alone.
std::string Quoted(absl::string_view text);

}  // namespace tessera::llm
