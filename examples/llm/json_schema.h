// JSON schemas as grammars: the texts are JSON that the schema allows.
//
// Known: type, enum, const, properties, required, additionalProperties, minProperties and
// maxProperties of objects without properties, items, prefixItems, minItems, maxItems, minLength,
// maxLength, pattern, where there is none format date, time, date-time and uuid, minimum, maximum
// and their exclusive forms (of numbers that are no integers: whole bounds), anyOf, allOf, $ref to
// places of the same text. oneOf is as anyOf. What changes the meaning otherwise is an error that
// names its place; what only annotates, and words that JSON Schema does not have, change nothing.
//
// Narrower than the standard: properties come in the order in which they are written. Where some
// are listed, others need additionalProperties. A schema without `type` is of the types that its
// other words are about. All of {} is any object at the root, and any value within.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "examples/llm/grammar.h"

namespace tessera::llm {

// The errors begin with `name`.
// Rules for a larger grammar, of which `rule` is the schema's; the names of the others begin with
// that. They use kJsonRules (json_schema_scalars.h), which have to stand beside them once.
absl::StatusOr<std::string> RulesOfJsonSchema(absl::string_view schema, const std::string& rule,
                                              const std::string& name);
absl::StatusOr<std::string> GrammarTextOfJsonSchema(absl::string_view schema,
                                                    const std::string& name);
absl::StatusOr<std::shared_ptr<const Grammar>> GrammarOfJsonSchema(absl::string_view schema,
                                                                   const std::string& name);

}  // namespace tessera::llm
