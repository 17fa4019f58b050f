// The parser of grammars.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "examples/llm/grammar_tree.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"
#include "runtime/mapped_file.h"

namespace tessera::llm {

absl::Status GrammarError(const std::string& name, const GrammarPlace& place,
                          absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": line ", place.line, ", column ", place.column, ": ", what));
}

namespace {

using Piece = GrammarPiece;
using Sequence = GrammarSequence;
using Choice = GrammarChoice;
using Place = GrammarPlace;
using Range = std::pair<uint32_t, uint32_t>;

constexpr size_t kMostBytes = 4 << 20;
constexpr size_t kMostRules = 65536;
constexpr int kMostDepth = 64;
constexpr int kMostRepeats = 1'000'000;
constexpr uint32_t kLastCodePoint = 0x10FFFF;

bool IsSurrogate(uint32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

// Sorted, apart, and without surrogates, which UTF-8 does not have.
std::vector<Range> Tidy(std::vector<Range> ranges, bool negated) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<Range> joined;
  for (const Range& r : ranges) {
    if (!joined.empty() && r.first <= joined.back().second + 1) {
      joined.back().second = std::max(joined.back().second, r.second);
    } else {
      joined.push_back(r);
    }
  }
  if (negated) {
    std::vector<Range> others;
    uint32_t next = 0;
    for (const auto& [low, high] : joined) {
      if (low > next) others.emplace_back(next, low - 1);
      next = high + 1;
    }
    if (next <= kLastCodePoint) others.emplace_back(next, kLastCodePoint);
    joined = std::move(others);
  }
  std::vector<Range> out;
  for (const auto& [low, high] : joined) {
    if (low < 0xD800) out.emplace_back(low, std::min<uint32_t>(high, 0xD7FF));
    if (high > 0xDFFF) out.emplace_back(std::max<uint32_t>(low, 0xE000), high);
  }
  return out;
}

class GrammarParser {
 public:
  GrammarParser(absl::string_view text, const std::string& name)
      : text_(Characters(text)), name_(name) {}

  absl::StatusOr<std::vector<GrammarRule>> Parse() {
    IndexOf("root", here());
    Space(true);
    while (at_ < end()) {
      RETURN_IF_ERROR(ParseRule());
      Space(true);
    }
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i].place.line != 0) continue;
      if (i == 0) {
        return GrammarError(name_, here(), "there is no rule 'root', which texts begin with");
      }
      return GrammarError(name_, first_named_[i],
                          absl::StrCat("there is no rule ", ShowName(rules_[i].name)));
    }
    return std::move(rules_);
  }

 private:
  size_t end() const { return text_.size() - 1; }
  Place here() const { return {line_, static_cast<int>(at_ - line_begin_) + 1}; }
  absl::Status Error(absl::string_view what) const { return GrammarError(name_, here(), what); }
  uint32_t Now(size_t ahead = 0) const {
    return at_ + ahead < end() ? text_[at_ + ahead].code : kNoCharacter;
  }
  bool Is(char c) const { return Now() == static_cast<uint32_t>(c); }
  void Next() {
    if (Is('\n')) {
      ++line_;
      line_begin_ = at_ + 1;
    }
    ++at_;
  }
  bool Take(absl::string_view s) {
    for (size_t i = 0; i < s.size(); ++i) {
      if (Now(i) != static_cast<uint8_t>(s[i])) return false;
    }
    at_ += s.size();
    return true;
  }
  // White space and comments.
  void Space(bool lines) {
    while (at_ < end()) {
      if (Is('#')) {
        while (at_ < end() && !Is('\n')) Next();
      } else if (Is(' ') || Is('\t') || (lines && (Is('\n') || Is('\r')))) {
        Next();
      } else {
        return;
      }
    }
  }
  static bool IsOfName(uint32_t c) {
    return c < 0x80 && (absl::ascii_isalnum(static_cast<uint8_t>(c)) || c == '-' || c == '_');
  }
  std::string TakeName() {
    std::string out;
    for (; IsOfName(Now()); Next()) out += static_cast<char>(Now());
    return out;
  }
  // Whether a name and ::= are next.
  bool AtRule() const {
    size_t i = 0;
    while (IsOfName(Now(i))) ++i;
    if (i == 0) return false;
    while (Now(i) == ' ' || Now(i) == '\t') ++i;
    return Now(i) == ':' && Now(i + 1) == ':' && Now(i + 2) == '=';
  }
  int IndexOf(const std::string& name, const Place& place) {
    const auto [it, added] = by_name_.try_emplace(name, static_cast<int>(rules_.size()));
    if (added) {
      rules_.push_back({name, {}, {}});
      first_named_.push_back(place);
    }
    return it->second;
  }

  absl::Status ParseRule() {
    const Place place = here();
    const std::string name = TakeName();
    if (name.empty()) return Error("a rule begins with its name: letters, digits, - and _");
    Space(false);
    if (!Take("::=")) return Error(absl::StrCat("wants ::= after the name ", ShowName(name)));
    const int index = IndexOf(name, place);
    if (rules_.size() > kMostRules) return Error("there are more than 65536 rules");
    if (const Place& first = rules_[index].place; first.line != 0) {
      return GrammarError(
          name_, place,
          absl::StrCat("there is a rule ", ShowName(name), " in line ", first.line, " already"));
    }
    Space(true);
    ASSIGN_OR_RETURN(Choice choice, ParseChoice(0));
    if (Is(')')) return Error("a ) without its (");
    if (at_ < end() && !Is('\n') && !Is('\r') && !AtRule()) return Error("this begins nothing");
    rules_[index].choice = std::move(choice);
    rules_[index].place = place;
    return absl::OkStatus();
  }

  absl::StatusOr<Choice> ParseChoice(int depth) {
    if (depth > kMostDepth) return Error("groups nest deeper than 64");
    Choice choice(1);
    while (true) {
      Space(depth > 0);
      if (Is('\n') || Is('\r')) {  // the rule goes on where the next line begins with |
        const size_t at = at_, line_begin = line_begin_;
        const int line = line_;
        Space(true);
        if (!Is('|')) {
          at_ = at;
          line_begin_ = line_begin;
          line_ = line;
          return choice;
        }
      }
      if (Take("|")) {
        choice.emplace_back();
        Space(true);
        continue;
      }
      if (at_ == end() || Is(')') || AtRule()) return choice;
      if (!Is('"') && !Is('[') && !Is('(') && !Is('.') && !IsOfName(Now())) {
        return Error(WhatIsWrong());
      }
      ASSIGN_OR_RETURN(Piece piece, ParsePiece(depth));
      choice.back().push_back(std::move(piece));
    }
  }

  absl::string_view WhatIsWrong() const {
    if (Is('*') || Is('+') || Is('?') || Is('{')) return "there is nothing before it to repeat";
    if (Is('<') || Is('!')) return "tokens in grammars are not known; a text in quotes is";
    if (Is(']') || Is('}')) return "it closes nothing";
    if (Is('\'')) return "texts stand in double quotes";
    return "wants a text in quotes, a [class], a rule's name, a group or |";
  }

  absl::StatusOr<Piece> ParsePiece(int depth) {
    Piece piece;
    piece.place = here();
    if (Take("\"")) {
      RETURN_IF_ERROR(ParseQuoted(&piece));
    } else if (Take("[")) {
      piece.kind = Piece::Kind::kClass;
      RETURN_IF_ERROR(ParseClass(&piece));
    } else if (Take(".")) {
      piece.kind = Piece::Kind::kClass;
      piece.ranges = Tidy({}, true);
    } else if (Take("(")) {
      piece.kind = Piece::Kind::kGroup;
      ASSIGN_OR_RETURN(piece.choice, ParseChoice(depth + 1));
      if (!Take(")")) return GrammarError(name_, piece.place, "this group is not closed");
    } else {
      piece.kind = Piece::Kind::kRule;
      piece.rule = IndexOf(TakeName(), piece.place);
    }
    RETURN_IF_ERROR(ParseRepeat(&piece));
    return piece;
  }

  absl::Status ParseRepeat(Piece* piece) {
    const size_t begin = at_;
    if (Take("?")) {
      piece->min = 0;
    } else if (Take("*")) {
      piece->min = 0, piece->max = -1;
    } else if (Take("+")) {
      piece->max = -1;
    } else if (Take("{")) {
      ASSIGN_OR_RETURN(piece->min, ParseCount());
      piece->max = piece->min;
      if (Take(",")) {
        piece->max = -1;
        Space(false);
        if (!Is('}')) {
          ASSIGN_OR_RETURN(piece->max, ParseCount());
        }
      }
      if (!Take("}")) return Error("a repetition is {m}, {m,} or {m,n}");
      if (piece->max >= 0 && piece->max < piece->min) {
        return Error("a repetition's {m,n} has more in m than in n");
      }
    }
    if (at_ != begin && (Is('*') || Is('+') || Is('?') || Is('{'))) {
      return Error("two repetitions side by side; a group in ( ) tells them apart");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int> ParseCount() {
    Space(false);
    const size_t begin = at_;
    int n = 0;
    for (; Now() >= '0' && Now() <= '9'; Next()) {
      n = n * 10 + static_cast<int>(Now() - '0');
      if (n > kMostRepeats) return Error("a repetition counts to a million at most");
    }
    if (at_ == begin) return Error("a repetition is {m}, {m,} or {m,n}");
    Space(false);
    return n;
  }

  absl::Status ParseQuoted(Piece* piece) {
    while (!Take("\"")) {
      if (at_ >= end()) return GrammarError(name_, piece->place, "this text is not closed");
      ASSIGN_OR_RETURN(const uint32_t c, TakeCharacter(false));
      AppendUtf8(c, &piece->text);
    }
    return absl::OkStatus();
  }

  absl::Status ParseClass(Piece* piece) {
    const bool negated = Take("^");
    std::vector<Range> ranges;
    while (!Take("]")) {
      if (at_ >= end()) return GrammarError(name_, piece->place, "this class is not closed");
      ASSIGN_OR_RETURN(const uint32_t low, TakeCharacter(true));
      uint32_t high = low;
      if (Is('-') && Now(1) != ']' && at_ + 1 < end()) {
        Next();
        ASSIGN_OR_RETURN(high, TakeCharacter(true));
        if (high < low) return Error("a range ends before it begins");
      }
      ranges.emplace_back(low, high);
    }
    piece->ranges = Tidy(std::move(ranges), negated);
    if (piece->ranges.empty()) {
      return GrammarError(name_, piece->place, "no character is of this class");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint32_t> TakeCharacter(bool in_class) {
    const uint32_t c = Now();
    if (c != '\\') {
      if (c == kNoCharacter) return Error("this is not UTF-8");
      Next();
      return c;
    }
    const Place place = here();
    Next();
    const uint32_t escaped = Now();
    if (at_ < end()) Next();
    switch (escaped) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return TakeHex(2, place);
      case 'u':
        return TakeHex(4, place);
      case 'U':
        return TakeHex(8, place);
      case '\\':
      case '"':
      case '[':
      case ']':
        return escaped;
      case '-':
      case '^':
        if (in_class) return escaped;
        break;
      default:
        break;
    }
    return GrammarError(name_, place,
                        "this escape is not known; \\n \\r \\t \\\\ \\\" \\[ \\] \\xNN \\uNNNN "
                        "\\UNNNNNNNN are, and \\- \\^ in classes");
  }

  absl::StatusOr<uint32_t> TakeHex(int digits, const Place& place) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, Next()) {
      const uint32_t c = Now();
      if (c > 0x7F || !absl::ascii_isxdigit(static_cast<uint8_t>(c))) {
        return GrammarError(name_, place,
                            absl::StrCat("this escape wants ", digits, " hexadecimal digits"));
      }
      value = value << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value > kLastCodePoint || IsSurrogate(value)) {
      return GrammarError(name_, place, absl::StrFormat("U+%04X is no character", value));
    }
    return value;
  }

  const std::vector<Character> text_;
  const std::string& name_;
  size_t at_ = 0, line_begin_ = 0;
  int line_ = 1;
  std::vector<GrammarRule> rules_;
  std::vector<Place> first_named_;
  absl::flat_hash_map<std::string, int> by_name_;
};

}  // namespace

absl::StatusOr<std::vector<GrammarRule>> ParseGrammarText(absl::string_view text,
                                                          const std::string& name) {
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the grammar is larger than 4 MiB"));
  }
  return GrammarParser(text, name).Parse();
}

}  // namespace tessera::llm
