// Sets of characters as patterns name them: ranges, properties, and what is made of those.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "examples/llm/unicode_properties.h"

namespace tessera::llm {

// Of code points and of kNoCharacter, as sorted ranges that do not touch.
class CharSet {
 public:
  CharSet() = default;
  CharSet(uint32_t first, uint32_t last) : ranges_{{first, last}} {}
  explicit CharSet(std::vector<CodeRange> ranges);

  bool Has(uint32_t code) const;
  const std::vector<CodeRange>& ranges() const { return ranges_; }
  CharSet Others() const;

 private:
  std::vector<CodeRange> ranges_;
};
CharSet Both(const CharSet& a, const CharSet& b);    // what is in a and in b
CharSet Either(const CharSet& a, const CharSet& b);  // or

CharSet WithAllCases(const CharSet& set);
CharSet Whitespace();
CharSet WordCharacters();  // \w of expressions: other than Unicode's, without joiners

// A category (Lu, L, Letter), script or property (Alpha, Any, ...).
std::optional<CharSet> SetNamed(absl::string_view name);

}  // namespace tessera::llm
