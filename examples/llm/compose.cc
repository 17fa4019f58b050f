// Decomposition, ordering and composition.
#include "examples/llm/compose.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "examples/llm/unicode_properties.h"

namespace tessera::llm {
namespace {

struct Decomposition {
  uint32_t code;  // and kStaysApart
  uint32_t first, second;
};
constexpr uint32_t kStaysApart = 1u << 31;

#include "examples/llm/unicode_compatibility.inc"
#include "examples/llm/unicode_compositions.inc"

// Hangul syllables: a leading consonant, a vowel, and perhaps a trailing consonant.
constexpr uint32_t kSyllables = 0xAC00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11A7;
constexpr uint32_t kNumLeading = 19, kNumVowels = 21, kNumTrailing = 28;
constexpr uint32_t kNumSyllables = kNumLeading * kNumVowels * kNumTrailing;

struct Mark {
  uint32_t code;
  uint8_t combining;  // its class; 0: others begin at it
};

uint8_t ClassOf(uint32_t code) {
  const uint32_t* next =
      std::upper_bound(std::begin(kClasses), std::end(kClasses), code << 8 | 255);
  return static_cast<uint8_t>(next[-1]);
}

// What looks alike, of code points that Unicode says so of.
absl::Span<const uint32_t> AlikeTo(uint32_t code) {
  static const auto* const parts = [] {
    auto* all = new absl::flat_hash_map<uint32_t, absl::Span<const uint32_t>>;
    const absl::Span<const uint32_t> list = kCompatibleParts;
    for (size_t i = 0; i < list.size(); i += 1 + (list[i] & 31)) {
      all->emplace(list[i] >> 5, list.subspan(i + 1, list[i] & 31));
    }
    return all;
  }();
  const auto it = parts->find(code);
  return it == parts->end() ? absl::Span<const uint32_t>() : it->second;
}

void AppendDecomposed(uint32_t code, bool alike, std::vector<Mark>* out) {
  if (alike) {
    const absl::Span<const uint32_t> parts = AlikeTo(code);
    for (const uint32_t part : parts) out->push_back({part, ClassOf(part)});
    if (!parts.empty()) return;
    if (const uint32_t other = Mapped(kCompatibleRuns, code); other != code) {
      out->push_back({other, ClassOf(other)});
      return;
    }
  }
  if (const uint32_t s = code - kSyllables; s < kNumSyllables) {
    out->push_back({kLeading + s / (kNumVowels * kNumTrailing), 0});
    out->push_back({kVowels + s / kNumTrailing % kNumVowels, 0});
    if (s % kNumTrailing != 0) out->push_back({kTrailing + s % kNumTrailing, 0});
    return;
  }
  const auto* it = std::lower_bound(
      std::begin(kDecompositions), std::end(kDecompositions), code,
      [](const Decomposition& d, uint32_t c) { return (d.code & ~kStaysApart) < c; });
  if (it == std::end(kDecompositions) || (it->code & ~kStaysApart) != code) {
    out->push_back({code, ClassOf(code)});
    return;
  }
  AppendDecomposed(it->first, alike, out);
  if (it->second != 0) out->push_back({it->second, ClassOf(it->second)});
}

// What two characters are together, or 0.
uint32_t Pair(uint32_t a, uint32_t b) {
  if (a - kLeading < kNumLeading && b - kVowels < kNumVowels) {
    return kSyllables + ((a - kLeading) * kNumVowels + (b - kVowels)) * kNumTrailing;
  }
  const uint32_t s = a - kSyllables;
  if (s < kNumSyllables && s % kNumTrailing == 0 && b > kTrailing && b - kTrailing < kNumTrailing) {
    return a + (b - kTrailing);
  }
  static const auto* const pairs = [] {
    auto* out = new absl::flat_hash_map<uint64_t, uint32_t>;
    for (const Decomposition& d : kDecompositions) {
      if (d.code & kStaysApart) continue;
      out->emplace(static_cast<uint64_t>(d.first) << 32 | d.second, d.code);
    }
    return out;
  }();
  const auto it = pairs->find(static_cast<uint64_t>(a) << 32 | b);
  return it == pairs->end() ? 0 : it->second;
}

// Marks of different classes may stand in any order; theirs is by class.
void Order(std::vector<Mark>* marks) {
  for (auto it = marks->begin(); it != marks->end();) {
    if (it->combining == 0) {
      ++it;
      continue;
    }
    const auto end = std::find_if(it, marks->end(), [](const Mark& m) { return m.combining == 0; });
    std::stable_sort(it, end,
                     [](const Mark& a, const Mark& b) { return a.combining < b.combining; });
    it = end;
  }
}

// Joins each mark to the last character that others begin at, unless one of its class or above
// stands between.
void Compose(std::vector<Mark>* marks) {
  size_t out = 0;
  int starter = -1;
  for (const Mark m : std::vector<Mark>(*marks)) {
    if (starter >= 0) {
      const bool next_to_it = out == static_cast<size_t>(starter) + 1;
      const Mark& before = (*marks)[out - 1];
      const bool blocked =
          !next_to_it && (before.combining == 0 || before.combining >= m.combining);
      const uint32_t joined = blocked ? 0 : Pair((*marks)[starter].code, m.code);
      if (joined != 0) {
        (*marks)[starter].code = joined;
        continue;
      }
    }
    if (m.combining == 0) starter = static_cast<int>(out);
    (*marks)[out++] = m;
  }
  marks->resize(out);
}

std::string Normalised(absl::string_view text, bool compose, bool alike) {
  // Below these nothing is to be composed, taken apart or looks alike.
  constexpr uint32_t kFirstMark = 0x300, kFirstComposed = 0xC0, kFirstAlike = 0xA0;
  const std::vector<Character> characters = Characters(text);
  const uint32_t plain = alike ? kFirstAlike : compose ? kFirstMark : kFirstComposed;
  if (std::all_of(characters.begin(), characters.end(),
                  [&](const Character& c) { return c.code < plain || c.code == kNoCharacter; })) {
    return std::string(text);
  }
  std::string out;
  std::vector<Mark> marks;
  const auto flush = [&] {
    Order(&marks);
    if (compose) Compose(&marks);
    for (const Mark& m : marks) AppendUtf8(m.code, &out);
    marks.clear();
  };
  for (const Character& c : characters) {
    if (c.code != kNoCharacter) {
      AppendDecomposed(c.code, alike, &marks);
      continue;
    }
    flush();
    if (c.begin < text.size()) out.push_back(text[c.begin]);
  }
  return out;
}

}  // namespace

std::string Composed(absl::string_view text, bool alike) { return Normalised(text, true, alike); }
std::string Decomposed(absl::string_view text, bool alike) {
  return Normalised(text, false, alike);
}

}  // namespace tessera::llm
