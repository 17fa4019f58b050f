// The category table is searched by halving; decoding takes what is not UTF-8 byte by byte.
#include "examples/llm/unicode.h"

#include <algorithm>
#include <iterator>

namespace tessera::llm {
namespace {

constexpr uint32_t kRanges[] = {
#include "examples/llm/unicode_table.inc"
};

}  // namespace

Category CategoryOf(uint32_t code_point) {
  if (code_point >= kNoCharacter) return Category::kCn;
  const uint32_t* next =
      std::upper_bound(std::begin(kRanges), std::end(kRanges), code_point << 5 | 31);
  return static_cast<Category>(next[-1] & 31);
}

std::vector<CategoryRange> CategoryRanges() {
  std::vector<CategoryRange> out;
  for (const uint32_t range : kRanges) {
    if (!out.empty()) out.back().last = (range >> 5) - 1;
    out.push_back({range >> 5, kNoCharacter - 1, static_cast<Category>(range & 31)});
  }
  return out;
}

bool IsWhitespace(uint32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordCharacter(uint32_t c) {
  constexpr auto bit = [](Category category) { return 1u << static_cast<int>(category); };
  constexpr uint32_t kWords = bit(Category::kLu) | bit(Category::kLl) | bit(Category::kLt) |
                              bit(Category::kLm) | bit(Category::kLo) | bit(Category::kMn) |
                              bit(Category::kMc) | bit(Category::kMe) | bit(Category::kNd) |
                              bit(Category::kNl) | bit(Category::kPc);
  // Letters in circles and squares are symbols; two characters say whether their neighbours join.
  const bool circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                       (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return (kWords >> static_cast<int>(CategoryOf(c)) & 1) != 0 || circled || c == 0x200C ||
         c == 0x200D;
}

std::vector<Character> Characters(absl::string_view text) {
  std::vector<Character> out;
  out.reserve(text.size() + 1);
  size_t i = 0;
  while (i < text.size()) {
    const uint8_t b = static_cast<uint8_t>(text[i]);
    const size_t n = b < 0x80 ? 1 : b >> 5 == 6 ? 2 : b >> 4 == 14 ? 3 : b >> 3 == 30 ? 4 : 0;
    uint32_t code = n == 1 ? b : b & (0x7F >> n);
    bool whole = n > 0 && i + n <= text.size();
    for (size_t k = 1; whole && k < n; ++k) {
      const uint8_t c = static_cast<uint8_t>(text[i + k]);
      whole = c >> 6 == 2;
      code = code << 6 | (c & 0x3F);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    whole = whole && code >= kLeast[n] && code < kNoCharacter && (code < 0xD800 || code > 0xDFFF);
    out.push_back({whole ? code : kNoCharacter, static_cast<uint32_t>(i)});
    i += whole ? n : 1;
  }
  out.push_back({kNoCharacter, static_cast<uint32_t>(text.size())});
  return out;
}

namespace {

constexpr size_t kLongest = 4;  // bytes of a character

// Where the last character of a text begins, which has one.
size_t LastBegin(absl::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < kLongest && static_cast<uint8_t>(text[at]) >> 6 == 2) --at;
  return at;
}
struct Whole {
  uint32_t code;
  size_t size;  // in bytes
};
Whole First(absl::string_view text) {
  if (const auto ascii = static_cast<uint8_t>(text[0]); ascii < 0x80) return {ascii, 1};
  const std::vector<Character> all = Characters(text.substr(0, kLongest));
  return {all[0].code, all[1].begin};
}

}  // namespace

bool BeginsWithWord(absl::string_view text) {
  return !text.empty() && IsWordCharacter(First(text).code);
}
bool EndsInWord(absl::string_view text) {
  return !text.empty() && IsWordCharacter(First(text.substr(LastBegin(text))).code);
}

absl::string_view WithoutSpaceAtBegin(absl::string_view text) {
  while (!text.empty() && IsWhitespace(First(text).code)) text.remove_prefix(First(text).size);
  return text;
}
absl::string_view WithoutSpaceAtEnd(absl::string_view text) {
  while (!text.empty() && IsWhitespace(First(text.substr(LastBegin(text))).code)) {
    text = text.substr(0, LastBegin(text));
  }
  return text;
}

void AppendUtf8(uint32_t c, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | (c >> shift & 0x3F)));
  };
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace tessera::llm
