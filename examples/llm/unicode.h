// Code points: from and to UTF-8, and their general category.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tessera::llm {

// In the order of tools/make-unicode-table.
enum class Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
  kCn
};
Category CategoryOf(uint32_t code_point);

struct CategoryRange {
  uint32_t first, last;
  Category category;
};
std::vector<CategoryRange> CategoryRanges();  // of all code points, in their order

bool IsWhitespace(uint32_t code_point);     // the property White_Space
bool IsWordCharacter(uint32_t code_point);  // \w of Unicode's regular expressions

// A character of a text: a code point, or a byte that belongs to none (then `code` is
// kNoCharacter).
struct Character {
  uint32_t code;
  uint32_t begin;  // byte of the text
};
inline constexpr uint32_t kNoCharacter = 0x110000;

// The characters, and one more that begins at the text's end.
std::vector<Character> Characters(absl::string_view text);

bool BeginsWithWord(absl::string_view text);  // a character of one
bool EndsInWord(absl::string_view text);
absl::string_view WithoutSpaceAtBegin(absl::string_view text);
absl::string_view WithoutSpaceAtEnd(absl::string_view text);

void AppendUtf8(uint32_t code_point, std::string* out);

}  // namespace tessera::llm
