// Escapes, and classes with their ranges, names, classes within and intersections.
#include "examples/llm/pattern_classes.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr int kMaxClassDepth = 8;
constexpr size_t kMaxRanges = 1 << 20;
constexpr size_t kMaxFolded = 1 << 14;

absl::StatusOr<uint32_t> TakeHex(PatternCursor* in, int digits) {
  const bool braced = digits == 2 && in->Take("{");  // \x{NNNN}
  uint32_t code = 0;
  int taken = 0;
  for (; taken < (braced ? 6 : digits); ++taken, ++in->at) {
    const uint32_t c = in->at < in->end() ? in->text[in->at].code : kNoCharacter;
    if (c >= 0x80 || !absl::ascii_isxdigit(static_cast<uint8_t>(c))) break;
    code = code << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  const bool whole = braced ? taken > 0 && in->Take("}") : taken == digits;
  if (!whole) {
    return in->Error(
        "this escape wants hexadecimal digits, 2 after \\x, or any in {}, and 4 after \\u");
  }
  if (code >= 0xD800 && code <= 0xDFFF) return in->Error("this is half of a character");
  if (code >= kNoCharacter) return in->Error("there is no such character");
  return code;
}

absl::StatusOr<CharSet> Property(PatternCursor* in, bool negated) {
  if (!in->Take("{")) return in->Error("\\p wants {category}");
  if (in->Take("^")) negated = !negated;
  std::string name;
  while (in->at < in->end() && !in->Is('}') && name.size() < 32) {
    AppendUtf8(in->text[in->at++].code, &name);
  }
  std::optional<CharSet> set = SetNamed(name);
  if (!in->Take("}") || !set) return in->Error("this category is not known");
  return negated ? set->Others() : *std::move(set);
}

// [:name:] or [:^name:]
absl::StatusOr<CharSet> Named(PatternCursor* in) {
  const bool negated = in->Take("^");
  std::string name;
  while (in->at < in->end() && !in->Is(':') && name.size() < 32) {
    AppendUtf8(in->text[in->at++].code, &name);
  }
  std::optional<CharSet> set = SetNamed(name);
  if (!in->Take(":]") || !set) return in->Error("this name of a class is not known");
  if (name == "punct") set = Either(*set, *SetNamed("S"));
  return negated ? set->Others() : *std::move(set);
}

CharSet EcmaWords() { return CharSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
// With \x85, which is none of them, taken out of Unicode's.
CharSet EcmaSpaces() {
  return Either(Both(Whitespace(), CharSet(0x85, 0x85).Others()), CharSet(0xFEFF, 0xFEFF));
}

}  // namespace

bool PatternCursor::Take(absl::string_view s) {
  for (size_t i = 0; i < s.size(); ++i) {
    if (at + i >= end() || text[at + i].code != static_cast<uint8_t>(s[i])) return false;
  }
  at += s.size();
  return true;
}

absl::Status PatternCursor::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("pattern: byte ", text[std::min(at, end())].begin, ": ", what));
}

absl::StatusOr<CharSet> PatternCursor::Cased(CharSet set) {
  size_t members = 0;
  if (ignore_case) {
    for (const CodeRange& range : set.ranges()) members += range.last - range.first + 1;
    set = WithAllCases(set);
  }
  RETURN_IF_ERROR(Count(set.ranges().size() + std::min(members, kMaxFolded)));
  return set;
}

absl::Status PatternCursor::Count(size_t more) {
  ranges += more;
  if (ranges > kMaxRanges) return Error("too many large sets of characters");
  return absl::OkStatus();
}

absl::StatusOr<PatternEscape> ParseEscape(PatternCursor* in) {
  if (in->at >= in->end()) return in->Error("ends in \\");
  const uint32_t c = in->text[in->at++].code;
  const auto one = [](uint32_t code) { return PatternEscape{CharSet(code, code), code}; };
  const auto named = [](const CharSet& set, bool others) {
    return PatternEscape{others ? set.Others() : set, std::nullopt};
  };
  switch (c) {
    case 'r':
      return one('\r');
    case 'n':
      return one('\n');
    case 't':
      return one('\t');
    case 'f':
      return one('\f');
    case 'v':
      return one('\v');
    case 'a':
      return one('\a');
    case 'e':
      return one(0x1B);
    case 's':
    case 'S':
      return named(in->ecma() ? EcmaSpaces() : Whitespace(), c == 'S');
    case 'd':
    case 'D':
      return named(in->ecma() ? CharSet('0', '9') : *SetNamed("Nd"), c == 'D');
    case 'h':
    case 'H':
      if (in->ecma()) break;
      return named(*SetNamed("XDigit"), c == 'H');
    case 'w':
    case 'W':
      return named(in->ecma() ? EcmaWords() : WordCharacters(), c == 'W');
    case 'x':
    case 'u': {
      ASSIGN_OR_RETURN(const uint32_t code, TakeHex(in, c == 'x' ? 2 : 4));
      return one(code);
    }
    case 'p':
    case 'P': {
      if (in->ecma()) return in->Error("\\p is not known here");
      ASSIGN_OR_RETURN(const CharSet set, Property(in, c == 'P'));
      return named(set, false);
    }
    default:
      break;
  }
  const bool letter = c < 0x80 && absl::ascii_isalnum(static_cast<uint8_t>(c));
  if (letter) return in->Error("this escape is not known");
  return one(c);
}

absl::StatusOr<CharSet> ParseClass(PatternCursor* in, int depth) {
  if (depth > kMaxClassDepth) return in->Error("classes nest too deep");
  const bool negated = in->Take("^");
  std::optional<CharSet> both;    // what all sides of && before have
  std::vector<CodeRange> ranges;  // of this side
  const auto add = [&](const CharSet& set) {
    ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
  };
  for (bool first = true;; first = false) {
    if (in->at >= in->end()) return in->Error("a class is not closed");
    if (!first && in->Take("]")) break;
    if (ranges.size() > kMaxRanges) return in->Error("too many large sets of characters");
    std::optional<uint32_t> low;
    if (!in->ecma() && in->Take("[:")) {
      ASSIGN_OR_RETURN(const CharSet named, Named(in));
      add(named);
    } else if (!in->ecma() && in->Take("[")) {
      ASSIGN_OR_RETURN(const CharSet inner, ParseClass(in, depth + 1));
      add(inner);
    } else if (!in->ecma() && in->Take("&&")) {
      const CharSet side(std::move(ranges));
      both = both ? Both(*both, side) : side;
      ranges.clear();
    } else if (in->Take("\\")) {
      if (in->Take("b")) {
        low = '\b';
        add(CharSet(*low, *low));
      } else {
        ASSIGN_OR_RETURN(const PatternEscape escape, ParseEscape(in));
        add(escape.set);
        low = escape.code;
      }
    } else {
      low = in->text[in->at++].code;
      add(CharSet(*low, *low));
    }
    const bool range = low && in->Is('-') && in->at + 1 < in->end() &&
                       in->text[in->at + 1].code != ']' &&
                       (in->ecma() || in->text[in->at + 1].code != '[');
    if (!range) continue;
    ++in->at;
    std::optional<uint32_t> high;
    if (in->Take("\\")) {
      ASSIGN_OR_RETURN(const PatternEscape escape, ParseEscape(in));
      high = escape.code;
    } else {
      high = in->text[in->at++].code;
    }
    if (!high || *high < *low) return in->Error("a wrong range");
    add(CharSet(*low, *high));
  }
  CharSet set(std::move(ranges));
  if (both) set = Both(*both, set);
  ASSIGN_OR_RETURN(set, in->Cased(std::move(set)));
  return negated ? set.Others() : set;
}

}  // namespace tessera::llm
