// Sets by the tables of Unicode.
#include "examples/llm/pattern_set.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/string_view.h"
#include "examples/llm/unicode.h"

namespace tessera::llm {
namespace {

constexpr uint32_t kCategories = static_cast<uint32_t>(Category::kCn) + 1;

uint32_t Bit(Category category) { return 1u << static_cast<uint32_t>(category); }

// Several categories as bits.
CharSet OfCategories(uint32_t bits) {
  std::vector<CodeRange> out;
  const auto has = [&](Category category) { return (bits & Bit(category)) != 0; };
  for (const CategoryRange& range : CategoryRanges()) {
    if (has(range.category)) out.push_back({range.first, range.last});
  }
  if (has(Category::kCn)) out.push_back({kNoCharacter, kNoCharacter});
  return CharSet(std::move(out));
}

// By its short or long name; 0: there is none.
uint32_t CategoryBits(absl::string_view plain) {
  static constexpr struct {
    const char *name, *long_name;
  } kNames[kCategories] = {
      {"lu", "uppercaseletter"},    {"ll", "lowercaseletter"},  {"lt", "titlecaseletter"},
      {"lm", "modifierletter"},     {"lo", "otherletter"},      {"mn", "nonspacingmark"},
      {"mc", "spacingmark"},        {"me", "enclosingmark"},    {"nd", "decimalnumber"},
      {"nl", "letternumber"},       {"no", "othernumber"},      {"pc", "connectorpunctuation"},
      {"pd", "dashpunctuation"},    {"ps", "openpunctuation"},  {"pe", "closepunctuation"},
      {"pi", "initialpunctuation"}, {"pf", "finalpunctuation"}, {"po", "otherpunctuation"},
      {"sm", "mathsymbol"},         {"sc", "currencysymbol"},   {"sk", "modifiersymbol"},
      {"so", "othersymbol"},        {"zs", "spaceseparator"},   {"zl", "lineseparator"},
      {"zp", "paragraphseparator"}, {"cc", "control"},          {"cf", "format"},
      {"cs", "surrogate"},          {"co", "privateuse"},       {"cn", "unassigned"}};
  static constexpr struct {
    const char* name;
    char first;  // letter of its categories
  } kGroups[] = {{"letter", 'l'}, {"mark", 'm'},      {"number", 'n'}, {"punctuation", 'p'},
                 {"symbol", 's'}, {"separator", 'z'}, {"other", 'c'}};
  char first = plain.size() == 1 ? plain[0] : 0;
  for (const auto& group : kGroups) {
    if (plain == group.name) first = group.first;
  }
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kCategories; ++i) {
    const auto& [name, long_name] = kNames[i];
    if (plain == name || plain == long_name || name[0] == first) bits |= 1u << i;
  }
  return bits;
}

CharSet OfCategories(absl::string_view name, absl::Span<const CodeRange> others) {
  return Either(OfCategories(CategoryBits(name)), CharSet({others.begin(), others.end()}));
}
CharSet Alphabetic() {
  return Either(OfCategories("l", OtherAlphabetic()), OfCategories("nl", {}));
}
// What leaves a mark on paper.
CharSet Graphic() {
  const CharSet none = Either(
      OfCategories(CategoryBits("cc") | CategoryBits("cn") | CategoryBits("cs")), Whitespace());
  return none.Others();
}

}  // namespace

CharSet::CharSet(std::vector<CodeRange> ranges) : ranges_(std::move(ranges)) {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  size_t n = 0;
  for (const CodeRange range : ranges_) {
    if (n > 0 && range.first <= ranges_[n - 1].last + 1) {
      ranges_[n - 1].last = std::max(ranges_[n - 1].last, range.last);
    } else {
      ranges_[n++] = range;
    }
  }
  ranges_.resize(n);
}

bool CharSet::Has(uint32_t code) const {
  const auto next =
      std::upper_bound(ranges_.begin(), ranges_.end(), code,
                       [](uint32_t c, const CodeRange& range) { return c < range.first; });
  return next != ranges_.begin() && code <= next[-1].last;
}

CharSet CharSet::Others() const {
  CharSet out;
  uint32_t begin = 0;
  for (const CodeRange& range : ranges_) {
    if (begin < range.first) out.ranges_.push_back({begin, range.first - 1});
    begin = range.last + 1;
  }
  if (begin <= kNoCharacter) out.ranges_.push_back({begin, kNoCharacter});
  return out;
}

CharSet Either(const CharSet& a, const CharSet& b) {
  std::vector<CodeRange> all = a.ranges();
  all.insert(all.end(), b.ranges().begin(), b.ranges().end());
  return CharSet(std::move(all));
}
CharSet Both(const CharSet& a, const CharSet& b) { return Either(a.Others(), b.Others()).Others(); }

CharSet WithAllCases(const CharSet& set) {
  std::vector<CodeRange> all = set.ranges();
  for (const CodeRange& range : set.ranges()) {
    constexpr uint32_t kLastCased = 0x1E943;
    for (uint32_t c = range.first; c <= std::min(range.last, kLastCased); ++c) {
      for (const uint32_t other : CasesOf(c)) {
        if (other != c) all.push_back({other, other});
      }
    }
  }
  return CharSet(std::move(all));
}

CharSet Whitespace() {
  static const auto* const all = [] {
    std::vector<CodeRange> out;
    constexpr uint32_t kLast = 0x3000;
    for (uint32_t c = 0; c <= kLast; ++c) {
      if (IsWhitespace(c)) out.push_back({c, c});
    }
    return new CharSet(std::move(out));
  }();
  return *all;
}

CharSet WordCharacters() {
  // Superscripts and fractions of Latin-1, and no others.
  const CharSet latin({{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}});
  static const auto* const all = new CharSet(
      Either(Either(Alphabetic(), latin),
             OfCategories(CategoryBits("m") | CategoryBits("nd") | CategoryBits("pc"))));
  return *all;
}

std::optional<CharSet> SetNamed(absl::string_view name) {
  const std::string plain = PlainName(name);
  if (const uint32_t bits = CategoryBits(plain)) return OfCategories(bits);
  if (const auto script = ScriptNamed(name)) return CharSet(CodesOfScript(*script));
  if (plain == "any") return CharSet(0, kNoCharacter);
  if (plain == "ascii") return CharSet(0, 0x7F);
  if (plain == "assigned") return OfCategories(CategoryBits("cn")).Others();
  if (plain == "alpha" || plain == "alphabetic") return Alphabetic();
  if (plain == "alnum") return Either(Alphabetic(), OfCategories(CategoryBits("nd")));
  if (plain == "digit") return OfCategories(CategoryBits("nd"));
  if (plain == "upper" || plain == "uppercase") return OfCategories("lu", OtherUppercase());
  if (plain == "lower" || plain == "lowercase") return OfCategories("ll", OtherLowercase());
  if (plain == "space" || plain == "whitespace") return Whitespace();
  if (plain == "word") return WordCharacters();
  if (plain == "blank") return Either(OfCategories("zs", {}), CharSet('\t', '\t'));
  if (plain == "cntrl") return OfCategories(CategoryBits("cc"));
  if (plain == "punct") return OfCategories(CategoryBits("p"));
  if (plain == "xdigit") return CharSet({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  if (plain == "graph") return Graphic();
  if (plain == "print") return Either(Graphic(), OfCategories("zs", {}));
  return std::nullopt;
}

}  // namespace tessera::llm
