// What config.json leaves out, of each family.
#include "examples/llm/config_json.h"

namespace tessera::llm {
namespace {

constexpr struct {
  const char *model_type, *keys;
} kDefaults[] = {
#include "examples/llm/family_defaults.inc"
};

}  // namespace

std::optional<Json> DefaultsOf(absl::string_view model_type) {
  for (const auto& row : kDefaults) {
    if (model_type != row.model_type) continue;
    const absl::StatusOr<Json> keys = Json::Parse(row.keys, row.model_type);
    return keys.ok() ? std::optional<Json>(*keys) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tessera::llm
