// The parser of patterns.
#include "examples/llm/pattern_tree.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"

namespace tessera::llm {

bool CharSet::Has(uint32_t c) const {
  if (also != nullptr && !also->Has(c)) return false;
  const auto listed = [&] {
    for (const auto& [low, high] : ranges) {
      if (c >= low && c <= high) return true;
    }
    if (space && IsWhitespace(c)) return true;
    if (not_space && !IsWhitespace(c)) return true;
    if (categories == 0 && not_categories == 0) return false;
    const uint32_t bit = 1u << static_cast<int>(CategoryOf(c));
    return (categories & bit) != 0 || (not_categories != 0 && (not_categories & bit) == 0);
  };
  return listed() != negated;
}

namespace {

using Piece = PatternPiece;
using Sequence = PatternSequence;
using Choice = PatternChoice;

constexpr int kMaxGroupDepth = 32;
constexpr size_t kMaxPattern = 65536;

std::optional<uint32_t> CategoryBits(absl::string_view name) {
  static constexpr const char* kNames[] = {
      "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
      "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};
  uint32_t bits = 0;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i] || (name.size() == 1 && name[0] == kNames[i][0])) bits |= 1u << i;
  }
  if (bits == 0) return std::nullopt;
  return bits;
}

struct Parser {
  std::vector<Character> text;
  size_t at = 0;
  bool ignore_case = false;

  size_t end() const { return text.size() - 1; }
  bool Is(char c) const { return at < end() && text[at].code == static_cast<uint32_t>(c); }
  bool Take(absl::string_view s) {
    for (size_t i = 0; i < s.size(); ++i) {
      if (at + i >= end() || text[at + i].code != static_cast<uint8_t>(s[i])) return false;
    }
    at += s.size();
    return true;
  }
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern: byte ", text[std::min(at, end())].begin, ": ", what));
  }

  absl::StatusOr<Choice> ParseChoice(int depth) {
    if (depth > kMaxGroupDepth) return Error("groups nest too deep");
    Choice choice(1);
    while (at < end() && !Is(')')) {
      if (Take("|")) {
        choice.emplace_back();
        continue;
      }
      ASSIGN_OR_RETURN(Piece piece, ParsePiece(depth));
      Sequence& sequence = choice.back();
      // A one-character lookahead and the set after it are one set.
      if (!sequence.empty() && sequence.back().kind == Piece::Kind::kAhead &&
          piece.kind == Piece::Kind::kSet && piece.min == 1 && piece.max == 1) {
        if (const CharSet* only = OnlySet(sequence.back().choice)) {
          piece.set.also = std::make_shared<CharSet>(*only);
          sequence.pop_back();
        }
      }
      sequence.push_back(std::move(piece));
    }
    return choice;
  }

  static const CharSet* OnlySet(const Choice& choice) {
    if (choice.size() != 1 || choice[0].size() != 1) return nullptr;
    const Piece& p = choice[0][0];
    if (p.max != 1 || p.min != 1) return nullptr;
    if (p.kind == Piece::Kind::kGroup) return OnlySet(p.choice);
    return p.kind == Piece::Kind::kSet ? &p.set : nullptr;
  }

  absl::StatusOr<Piece> ParsePiece(int depth) {
    ASSIGN_OR_RETURN(Piece piece, ParseAtom(depth));
    if (piece.kind == Piece::Kind::kGroup) {  // a group of one set is that set
      if (const CharSet* only = OnlySet(piece.choice)) {
        Piece set;
        set.set = *only;
        piece = std::move(set);
      }
    }
    if (Take("?"))
      piece.min = 0;
    else if (Take("*"))
      piece.min = 0, piece.max = kMany;
    else if (Take("+"))
      piece.max = kMany;
    else if (Take("{")) {
      ASSIGN_OR_RETURN(piece.min, ParseCount());
      piece.max = piece.min;
      if (Take(",")) {
        piece.max = kMany;
        if (!Is('}')) {
          ASSIGN_OR_RETURN(piece.max, ParseCount());
        }
      }
      if (!Take("}") || piece.max < piece.min) return Error("a wrong {n,m}");
    } else {
      return piece;
    }
    if (Is('?') || Is('+') || Is('*')) return Error("lazy and possessive repeats are not known");
    return piece;
  }

  absl::StatusOr<int> ParseCount() {
    int n = 0;
    const size_t begin = at;
    while (at < end() && text[at].code >= '0' && text[at].code <= '9' && n < 10000) {
      n = n * 10 + static_cast<int>(text[at++].code - '0');
    }
    if (at == begin || n >= 10000) return Error("a wrong {n,m}");
    return n;
  }

  absl::StatusOr<Piece> ParseAtom(int depth) {
    Piece piece;
    if (Take("(")) {
      const bool case_before = ignore_case;
      piece.kind = Piece::Kind::kGroup;
      if (Take("?:")) {
      } else if (Take("?i:")) {
        ignore_case = true;
      } else if (Take("?=")) {
        piece.kind = Piece::Kind::kAhead;
      } else if (Take("?!")) {
        piece.kind = Piece::Kind::kNotAhead;
      } else if (Is('?')) {
        return Error("this kind of group is not known");
      }
      ASSIGN_OR_RETURN(piece.choice, ParseChoice(depth + 1));
      if (!Take(")")) return Error("a group is not closed");
      ignore_case = case_before;
      return piece;
    }
    if (Take("[")) {
      RETURN_IF_ERROR(ParseClass(&piece.set));
      return piece;
    }
    if (Is('^') || Is('$') || Is('*') || Is('+') || Is('?') || Is('{')) {
      return Error("this character is not known here");
    }
    if (Take(".")) {
      piece.set.ranges = {{'\n', '\n'}};
      piece.set.negated = true;
      return piece;
    }
    if (Is('\\')) {
      RETURN_IF_ERROR(ParseEscape(&piece.set).status());
      return piece;
    }
    AddRange(text[at].code, text[at].code, &piece.set);
    ++at;
    return piece;
  }

  void AddRange(uint32_t low, uint32_t high, CharSet* set) const {
    set->ranges.emplace_back(low, high);
    if (!ignore_case) return;
    for (uint32_t c = std::max<uint32_t>(low, 'A'); c <= std::min<uint32_t>(high, 'z'); ++c) {
      const uint32_t other = c ^ 0x20;
      if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') set->ranges.emplace_back(other, other);
    }
  }

  // Adds an escape to the set; gives the character where it is a single one.
  absl::StatusOr<std::optional<uint32_t>> ParseEscape(CharSet* set) {
    ++at;
    if (at >= end()) return Error("ends in \\");
    const uint32_t c = text[at++].code;
    const auto one = [&](uint32_t code) {
      AddRange(code, code, set);
      return std::optional<uint32_t>(code);
    };
    constexpr uint32_t kLetters = 0x1F, kMarks = 0xE0, kDigits = 1u << 8, kLetterNumbers = 1u << 9,
                       kConnectors = 1u << 11;
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
      case 's':
        set->space = true;
        return std::optional<uint32_t>();
      case 'S':
        set->not_space = true;
        return std::optional<uint32_t>();
      case 'd':
        set->categories |= kDigits;
        return std::optional<uint32_t>();
      case 'w':
        set->categories |= kLetters | kMarks | kDigits | kLetterNumbers | kConnectors;
        return std::optional<uint32_t>();
      case 'x':
      case 'u': {
        ASSIGN_OR_RETURN(const uint32_t code, TakeHex(c == 'x' ? 2 : 4));
        return one(code);
      }
      case 'p':
      case 'P':
        return Property(c == 'P', set);
      default:
        break;
    }
    if (c > 0x7F || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) {
      return Error("this escape is not known");
    }
    return one(c);
  }

  absl::StatusOr<uint32_t> TakeHex(int digits) {
    uint32_t code = 0;
    for (; digits > 0; --digits, ++at) {
      const uint32_t c = at < end() ? text[at].code : kNoCharacter;
      const bool hex = c < 0x80 && absl::ascii_isxdigit(static_cast<uint8_t>(c));
      if (!hex) return Error("this escape wants hexadecimal digits, 2 after \\x and 4 after \\u");
      code = code << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (code >= 0xD800 && code <= 0xDFFF) return Error("this is half of a character");
    return code;
  }

  absl::StatusOr<std::optional<uint32_t>> Property(bool negated, CharSet* set) {
    if (!Take("{")) return Error("\\p wants {category}");
    std::string name;
    while (at < end() && !Is('}') && name.size() < 16) AppendUtf8(text[at++].code, &name);
    const std::optional<uint32_t> bits = CategoryBits(name);
    if (!Take("}") || !bits) return Error("this category is not known");
    if (negated && set->not_categories != 0) return Error("two \\P in one class are not known");
    (negated ? set->not_categories : set->categories) |= *bits;
    return std::optional<uint32_t>();
  }

  absl::Status ParseClass(CharSet* set) {
    set->negated = Take("^");
    bool first = true;
    while (true) {
      if (at >= end()) return Error("a class is not closed");
      if (!first && Take("]")) return absl::OkStatus();
      first = false;
      if (Is('[') || Take("&&")) return Error("classes in classes are not known");
      std::optional<uint32_t> low;
      if (Is('\\')) {
        ASSIGN_OR_RETURN(low, ParseEscape(set));
      } else {
        low = text[at++].code;
        AddRange(*low, *low, set);
      }
      if (!low || !Is('-') || at + 1 >= end() || text[at + 1].code == ']') continue;
      ++at;
      std::optional<uint32_t> high;
      if (Is('\\')) {
        CharSet ignored;
        ASSIGN_OR_RETURN(high, ParseEscape(&ignored));
      } else {
        high = text[at++].code;
      }
      if (!high || *high < *low) return Error("a wrong range");
      AddRange(*low, *high, set);
    }
  }
};

}  // namespace

absl::StatusOr<PatternChoice> ParsePattern(absl::string_view text) {
  if (text.size() > kMaxPattern) return absl::InvalidArgumentError("pattern: too long");
  Parser parser{Characters(text)};
  ASSIGN_OR_RETURN(Choice choice, parser.ParseChoice(0));
  if (parser.at != parser.end()) return parser.Error("a ) without (");
  return choice;
}

}  // namespace tessera::llm
