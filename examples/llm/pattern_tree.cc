// The parser of patterns.
#include "examples/llm/pattern_tree.h"

#include <algorithm>
#include <optional>

#include "examples/llm/pattern_classes.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

using Piece = PatternPiece;
using Kind = PatternPiece::Kind;
using Sequence = PatternSequence;
using Choice = PatternChoice;

constexpr int kMaxGroupDepth = 32;
constexpr size_t kMaxPattern = 65536;
constexpr int kMaxCount = 9999;

Piece SetPiece(CharSet set) {
  Piece piece;
  piece.set = std::move(set);
  return piece;
}
Piece ChoicePiece(Kind kind, Choice choice) {
  Piece piece;
  piece.kind = kind;
  piece.choice = std::move(choice);
  return piece;
}
Piece Ahead(CharSet set, bool negated) {
  return ChoicePiece(negated ? Kind::kNotAhead : Kind::kAhead, {{SetPiece(std::move(set))}});
}
Piece Behind(const CharSet& set, bool negated) {
  Piece back;
  back.kind = Kind::kBack;
  return ChoicePiece(negated ? Kind::kNotAhead : Kind::kAhead, {{back, SetPiece(set)}});
}
Piece Group(Choice choice) { return ChoicePiece(Kind::kGroup, std::move(choice)); }

const CharSet& AnyCharacter() {
  static const auto* const all = new CharSet(0, kNoCharacter);
  return *all;
}
// The borders of texts, lines and words, by what is beside them.
Piece TextBegin() { return Behind(AnyCharacter(), true); }
Piece TextEnd() { return Ahead(AnyCharacter(), true); }
Piece LineBegin() {
  return Group({{TextBegin()}, {Behind(CharSet('\n', '\n'), false), Ahead(AnyCharacter(), false)}});
}
Piece LineEnd() { return Ahead(CharSet('\n', '\n').Others(), true); }
Piece LastLineEnd() {
  Piece line = SetPiece(CharSet('\n', '\n'));
  line.min = 0;
  return ChoicePiece(Kind::kAhead, {{line, TextEnd()}});
}
Piece WordBorder(bool inside) {
  const CharSet word = WordCharacters();
  return Group(
      {{Behind(word, false), Ahead(word, !inside)}, {Behind(word, true), Ahead(word, inside)}});
}
Piece LineBreak() {
  const CharSet breaks({{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}});
  return ChoicePiece(Kind::kOnce, {{SetPiece(CharSet('\r', '\r')), SetPiece(CharSet('\n', '\n'))},
                                   {SetPiece(breaks)}});
}

// How many characters it reads, if that is always the same.
std::optional<int> WidthOf(const Sequence& sequence) {
  int width = 0;
  for (const Piece& p : sequence) {
    if (!p.reads()) continue;
    std::optional<int> once = 1;
    if (p.kind != Kind::kSet) {
      once = p.choice.empty() ? 0 : WidthOf(p.choice[0]);
      for (size_t i = 1; i < p.choice.size(); ++i) {
        if (WidthOf(p.choice[i]) != once) return std::nullopt;
      }
    }
    if (!once || p.min != p.max) return std::nullopt;
    if (*once * int64_t{p.min} + width > kMaxCount) return std::nullopt;
    width += *once * p.min;
  }
  return width;
}

const CharSet* OnlySet(const Choice& choice) {
  if (choice.size() != 1 || choice[0].size() != 1) return nullptr;
  const Piece& p = choice[0][0];
  if (p.max != 1 || p.min != 1) return nullptr;
  if (p.kind == Kind::kGroup) return OnlySet(p.choice);
  return p.kind == Kind::kSet ? &p.set : nullptr;
}

size_t RangesOf(const Piece& piece) {
  size_t n = piece.set.ranges().size();
  for (const Sequence& s : piece.choice) {
    for (const Piece& p : s) n += RangesOf(p);
  }
  return n;
}

struct Parser {
  PatternCursor in;

  absl::StatusOr<Choice> ParseChoice(int depth) {
    if (depth > kMaxGroupDepth) return in.Error("groups nest too deep");
    Choice choice(1);
    while (in.at < in.end() && !in.Is(')')) {
      if (in.Take("|")) {
        choice.emplace_back();
        continue;
      }
      ASSIGN_OR_RETURN(Piece piece, ParsePiece(depth));
      Sequence& sequence = choice.back();
      // A one-character lookahead and the set after it are one set.
      if (!sequence.empty() && piece.kind == Kind::kSet && piece.min == 1 && piece.max == 1) {
        const Kind before = sequence.back().kind;
        const CharSet* only = OnlySet(sequence.back().choice);
        if (only != nullptr && (before == Kind::kAhead || before == Kind::kNotAhead)) {
          piece.set = Both(before == Kind::kAhead ? *only : only->Others(), piece.set);
          sequence.pop_back();
        }
      }
      sequence.push_back(std::move(piece));
    }
    return choice;
  }

  absl::StatusOr<Piece> ParsePiece(int depth) {
    ASSIGN_OR_RETURN(Piece piece, ParseAtom(depth));
    if (piece.kind == Kind::kGroup) {  // a group of one set is that set
      if (const CharSet* only = OnlySet(piece.choice)) piece = SetPiece(CharSet(*only));
    }
    for (int repeats = 0;; ++repeats) {
      ASSIGN_OR_RETURN(const bool repeated, ParseRepeat(&piece));
      if (!repeated) return piece;
      if (repeats > kMaxGroupDepth) return in.Error("too many repeats of repeats");
    }
  }

  // Whether there is a repeat, which the piece then has.
  absl::StatusOr<bool> ParseRepeat(Piece* piece) {
    int min = 1, max = 1;
    bool counted = false;
    if (in.Take("?")) {
      min = 0;
    } else if (in.Take("*")) {
      min = 0, max = kMany;
    } else if (in.Take("+")) {
      max = kMany;
    } else {
      ASSIGN_OR_RETURN(counted, ParseCounts(&min, &max));
      if (!counted) return false;
    }
    if (piece->min != 1 || piece->max != 1 || !piece->reads())
      *piece = Group({{std::move(*piece)}});
    piece->min = min;
    piece->max = max;
    if (in.Is('?') && (in.ecma() || !counted || min < max)) {  // a{2}? is (a{2})? elsewhere
      ++in.at;
      piece->lazy = true;
    } else if (in.Is('+') && !counted) {  // a{1,2}+ is (a{1,2})+
      ++in.at;
      *piece = Possessive(std::move(*piece));
    }
    return true;
  }

  static Piece Possessive(Piece piece) {
    if (piece.kind == Kind::kSet && piece.max == kMany) {
      Piece end = Ahead(piece.set, true);
      return Group({{std::move(piece), std::move(end)}});
    }
    if (piece.kind == Kind::kSet) return Group({{SetPiece(piece.set)}, {Ahead(piece.set, true)}});
    return ChoicePiece(Kind::kOnce, {{std::move(piece)}});
  }

  // {n} {n,} {n,m} {,m}; what else begins with a brace is that character.
  absl::StatusOr<bool> ParseCounts(int* min, int* max) {
    const size_t begin = in.at;
    if (!in.Take("{")) return false;
    ASSIGN_OR_RETURN(const std::optional<int> low, ParseCount());
    std::optional<int> high = low;
    const bool range = in.Take(",");
    if (range) {
      ASSIGN_OR_RETURN(high, ParseCount());
    }
    if ((!low && (!high || in.ecma())) || !in.Take("}")) {
      in.at = begin;
      return false;
    }
    *min = low.value_or(0);
    *max = high.value_or(kMany);
    if (*max < *min) return in.Error("a wrong {n,m}");
    return true;
  }

  absl::StatusOr<std::optional<int>> ParseCount() {
    std::optional<int> n;
    while (in.at < in.end() && in.text[in.at].code >= '0' && in.text[in.at].code <= '9') {
      n = n.value_or(0) * 10 + static_cast<int>(in.text[in.at++].code - '0');
      if (*n > kMaxCount) return in.Error("a wrong {n,m}");
    }
    return n;
  }

  absl::StatusOr<Piece> ParseAtom(int depth) {
    if (in.Take("(")) return ParseGroup(depth);
    if (in.Take("[")) {
      ASSIGN_OR_RETURN(CharSet set, ParseClass(&in, 0));
      return SetPiece(std::move(set));
    }
    if (in.Is('*') || in.Is('+') || in.Is('?')) return in.Error("this character is not known here");
    if (in.Take("^")) return LineBegin();
    if (in.Take("$")) return LineEnd();
    if (in.Take(".")) return SetPiece(in.dot_all ? AnyCharacter() : CharSet('\n', '\n').Others());
    if (in.Take("\\")) {
      ASSIGN_OR_RETURN(Piece piece, ParseEscaped());
      RETURN_IF_ERROR(in.Count(RangesOf(piece)));
      return piece;
    }
    return Literal(in.text[in.at++].code);
  }

  absl::StatusOr<Piece> ParseEscaped() {
    if (in.Take("A")) return TextBegin();
    if (in.Take("z")) return TextEnd();
    if (in.Take("Z")) return LastLineEnd();
    if (in.Take("b")) return WordBorder(false);
    if (in.Take("B")) return WordBorder(true);
    if (in.Take("R")) return LineBreak();
    ASSIGN_OR_RETURN(PatternEscape escape, ParseEscape(&in));
    if (!escape.code) return SetPiece(std::move(escape.set));
    return Literal(*escape.code);
  }

  absl::StatusOr<Piece> Literal(uint32_t code) {
    ASSIGN_OR_RETURN(CharSet set, in.Cased(CharSet(code, code)));
    return SetPiece(std::move(set));
  }

  absl::StatusOr<Piece> ParseGroup(int depth) {
    const bool ignored_case = in.ignore_case, dotted_all = in.dot_all;
    Kind kind = Kind::kGroup;
    bool behind = false, to_end = false;
    if (in.Take("?=")) {
      kind = Kind::kAhead;
    } else if (in.Take("?!")) {
      kind = Kind::kNotAhead;
    } else if (in.Take("?<=") || in.Take("?<!")) {
      kind = in.text[in.at - 1].code == '=' ? Kind::kAhead : Kind::kNotAhead;
      behind = true;
    } else if (in.Take("?>")) {
      kind = Kind::kOnce;
    } else if (in.Take("?<")) {  // a name, which nothing calls
      while (in.at < in.end() && !in.Is('>') && !in.Is(')')) ++in.at;
      if (!in.Take(">")) return in.Error("a name of a group is not closed");
    } else if (in.Take("?")) {
      ASSIGN_OR_RETURN(to_end, ParseOptions());
    }
    ASSIGN_OR_RETURN(Choice choice, ParseChoice(depth + 1));
    if (!to_end && !in.Take(")")) return in.Error("a group is not closed");
    in.ignore_case = ignored_case;
    in.dot_all = dotted_all;
    if (behind) RETURN_IF_ERROR(GoBack(&choice));
    return ChoicePiece(kind, std::move(choice));
  }

  // Up to the colon, after which they hold in the group; or, as true, to the bracket, after which
  // they hold to the end of the group that this one is in.
  absl::StatusOr<bool> ParseOptions() {
    bool on = true;
    while (!in.Is(':') && !in.Is(')')) {
      if (in.Take("-")) {
        on = false;
      } else if (in.Take("i")) {
        in.ignore_case = on;
      } else if (in.Take("m")) {
        in.dot_all = on;
      } else {
        return in.Error("this kind of group is not known");
      }
    }
    return !in.Take(":") && in.Take(")");
  }

  absl::Status GoBack(Choice* choice) {
    for (Sequence& s : *choice) {
      const std::optional<int> width = WidthOf(s);
      if (!width) return in.Error("what is looked back for has no fixed length");
      Piece back;
      back.kind = Kind::kBack;
      back.min = back.max = *width;
      s.insert(s.begin(), std::move(back));
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<PatternChoice> ParsePattern(absl::string_view text, PatternDialect dialect) {
  if (text.size() > kMaxPattern) return absl::InvalidArgumentError("pattern: too long");
  Parser parser{{Characters(text), dialect}};
  ASSIGN_OR_RETURN(Choice choice, parser.ParseChoice(0));
  if (parser.in.at != parser.in.end()) return parser.in.Error("a ) without (");
  return choice;
}

}  // namespace tessera::llm
