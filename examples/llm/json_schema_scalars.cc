// Texts, numbers and regular expressions as GBNF.
#include "examples/llm/json_schema_scalars.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "examples/llm/pattern_tree.h"
#include "graph/status.h"

namespace tessera::llm {

const char kJsonRules[] = R"(value ::= object | array | string | number | boolean | null
object ::= "{" ws (pair ("," ws pair)* ws)? "}"
pair ::= string ":" ws value
array ::= "[" ws (value ("," ws value)* ws)? "]"
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" unit)
unit ::= [0-9abcefABCEF] hex{3} | [dD] ([0-7] hex{2} | [89abAB] hex{2} "\\u" [dD] [c-fC-F] hex{2})
hex ::= [0-9a-fA-F]
key-char ::= [^"\\\x00-\x1F] | "\\" ["\\bfnrt]
number ::= integer fraction? ([eE] [-+]? [0-9]{1,2})?
integer ::= "-"? ("0" | [1-9] [0-9]{0,15})
fraction ::= "." [0-9]{1,16}
boolean ::= "true" | "false"
null ::= "null"
ws ::= (" " | "\n" [ \t]{0,20})?
)";

std::string GrammarQuoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string JsonQuoted(absl::string_view text) {
  constexpr absl::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  std::string out = "\"";
  for (const char c : text) {
    if (const size_t at = kEscaped.find(c); at != absl::string_view::npos) {
      out += {'\\', kLetters[at]};
    } else if (static_cast<uint8_t>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint8_t>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

namespace {

// A value's parts with what stands between them; JSON nests at most 64 deep.
template <typename Leaf>
std::string Joined(const Json& value, const Leaf& leaf, absl::string_view space) {
  const bool object = value.is(Json::Type::kObject);
  if (value.is(Json::Type::kString)) return leaf(JsonQuoted(*value.String()));
  if (!object && !value.is(Json::Type::kArray)) return leaf(value.text());
  std::string out = leaf(object ? "{" : "[");
  absl::StrAppend(&out, space);
  bool first = true;
  for (const JsonItem item : value.Items()) {
    if (!first) absl::StrAppend(&out, leaf(","), space);
    first = false;
    if (object) absl::StrAppend(&out, leaf(JsonQuoted(item.key()) + ":"), space);
    out += Joined(item.value(), leaf, space);
  }
  if (!first) absl::StrAppend(&out, space);
  return out + leaf(object ? "}" : "]");
}

}  // namespace

std::string GrammarOfJson(const Json& value) { return Joined(value, GrammarQuoted, " ws "); }
std::string CompactJson(const Json& value) {
  return Joined(
      value, [](absl::string_view s) { return std::string(s); }, "");
}

// ---- numbers

namespace {

constexpr size_t kMostDigits = 16;  // of numbers without end

bool All(absl::string_view s, char c) {
  return std::all_of(s.begin(), s.end(), [c](char d) { return d == c; });
}
std::string Digits(size_t n) {
  return n == 0 ? "" : n == 1 ? " [0-9]" : absl::StrCat(" [0-9]{", n, "}");
}

// From one number to another of as many digits.
std::string OfEqualLength(absl::string_view low, absl::string_view high) {
  if (low.empty()) return "";
  if (All(low, '0') && All(high, '9')) return Digits(low.size());
  const absl::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) {
    return absl::StrCat(" \"", low.substr(0, 1), "\"", OfEqualLength(low_rest, high_rest));
  }
  std::vector<std::string> of;
  char from = low[0], to = high[0];
  if (!All(low_rest, '0')) {
    const std::string nines(low_rest.size(), '9');
    of.push_back(absl::StrCat("\"", low.substr(0, 1), "\"", OfEqualLength(low_rest, nines)));
    ++from;
  }
  const bool part = !All(high_rest, '9');
  if (part) --to;
  if (from <= to) {
    of.push_back(absl::StrCat("[", std::string(1, from), "-", std::string(1, to), "]",
                              Digits(low_rest.size())));
  }
  if (part) {
    const std::string zeros(high_rest.size(), '0');
    of.push_back(absl::StrCat("\"", high.substr(0, 1), "\"", OfEqualLength(zeros, high_rest)));
  }
  return absl::StrCat(" (", absl::StrJoin(of, " | "), ")");
}

// Whole numbers that are not negative; empty: none.
std::string WholeNumbers(uint64_t low, std::optional<uint64_t> high) {
  if (high && *high < low) return "";
  const std::string first = absl::StrCat(low);
  std::vector<std::string> of;
  const size_t longest = high ? absl::StrCat(*high).size() : std::max(kMostDigits, first.size());
  for (size_t n = first.size(); n <= longest; ++n) {
    std::string least = first;
    if (n > first.size()) least.assign(n, '0'), least[0] = '1';
    const bool last = high && n == longest;
    of.push_back(OfEqualLength(least, last ? absl::StrCat(*high) : std::string(n, '9')));
  }
  return absl::StrCat("(", absl::StrJoin(of, " | "), ")");
}

struct Magnitudes {
  uint64_t low = 0;
  std::optional<uint64_t> high;
  bool above_low = false, below_high = false;
};

void AddReals(const Magnitudes& m, absl::string_view sign, std::vector<std::string>* of) {
  constexpr char kNotZero[] = " \".\" [0-9]{0,15} [1-9]", kZero[] = " (\".\" \"0\"{1,16})?";
  const auto add = [&](const auto&... parts) { of->push_back(absl::StrCat(sign, parts...)); };
  if (!m.high || m.low < *m.high) {
    add("\"", m.low, "\"", m.above_low ? kNotZero : " fraction?");
    const std::string between = m.high ? (*m.high == 0 ? "" : WholeNumbers(m.low + 1, *m.high - 1))
                                       : WholeNumbers(m.low + 1, std::nullopt);
    if (!between.empty()) add(between, " fraction?");
  }
  if (m.high && !m.below_high && (m.low < *m.high || (m.low == *m.high && !m.above_low))) {
    add("\"", *m.high, "\"", kZero);
  }
}

uint64_t Magnitude(int64_t v) {
  return v < 0 ? uint64_t{0} - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}

absl::Status NoNumber() {
  return absl::InvalidArgumentError("there is no number between the bounds");
}

}  // namespace

absl::StatusOr<std::string> GrammarOfIntegers(const NumberBounds& b) {
  if (!b.least && !b.most) return std::string("integer");
  NumberBounds within = b;  // both inclusive
  if (b.above_least && b.least) {
    if (*b.least == INT64_MAX) return NoNumber();
    ++*within.least;
  }
  if (b.below_most && b.most) {
    if (*b.most == INT64_MIN) return NoNumber();
    --*within.most;
  }
  const auto& [least, most, a, z] = within;
  std::vector<std::string> of;
  if (!most || *most >= 0) {
    const uint64_t low = least && *least > 0 ? Magnitude(*least) : 0;
    const std::string whole =
        WholeNumbers(low, most ? std::optional(Magnitude(*most)) : std::nullopt);
    if (!whole.empty()) of.push_back(whole);
  }
  if (!least || *least < 0) {
    const uint64_t low = most && *most < 0 ? Magnitude(*most) : 1;
    const std::string whole =
        WholeNumbers(low, least ? std::optional(Magnitude(*least)) : std::nullopt);
    if (!whole.empty()) of.push_back("\"-\" " + whole);
  }
  if (of.empty()) return NoNumber();
  return absl::StrJoin(of, " | ");
}

absl::StatusOr<std::string> GrammarOfNumbers(const NumberBounds& b) {
  if (!b.least && !b.most) return std::string("number");
  std::vector<std::string> of;
  if (!b.most || *b.most >= 0) {
    Magnitudes m;
    if (b.least && *b.least >= 0) {
      m.low = Magnitude(*b.least);
      m.above_low = b.above_least;
    }
    if (b.most) {
      m.high = Magnitude(*b.most);
      m.below_high = b.below_most;
    }
    AddReals(m, "", &of);
  }
  if (!b.least || *b.least < 0) {
    Magnitudes m;
    m.above_low = true;  // no -0
    if (b.most && *b.most < 0) {
      m.low = Magnitude(*b.most);
      m.above_low = b.below_most;
    }
    if (b.least) {
      m.high = Magnitude(*b.least);
      m.below_high = b.above_least;
    }
    AddReals(m, "\"-\" ", &of);
  }
  if (of.empty()) return NoNumber();
  return absl::StrJoin(of, " | ");
}

// ---- strings

namespace {

using Range = std::pair<uint32_t, uint32_t>;
constexpr uint32_t kLast = 0x10FFFF;

std::string OfClass(uint32_t c) {
  if (c < 0x80 && absl::ascii_isalnum(static_cast<uint8_t>(c))) return {static_cast<char>(c)};
  return absl::StrFormat("\\U%08x", c);
}

// Characters as JSON strings have them: some are escaped.
absl::StatusOr<std::string> GrammarOfSet(const CharSet& set) {
  std::vector<std::string> of;
  for (uint32_t c = 0; c < 0x80; ++c) {
    if ((c < 0x20 || c == '"' || c == '\\') && set.Has(c)) {
      const std::string quoted = JsonQuoted(std::string(1, static_cast<char>(c)));
      of.push_back(GrammarQuoted(absl::string_view(quoted).substr(1, quoted.size() - 2)));
    }
  }
  // Those that are written as they are: all others.
  std::string plain;
  const auto add = [&](uint32_t low, uint32_t high) {
    for (const Range& part : {Range(0x20, '"' - 1), Range('"' + 1, '\\' - 1),
                              Range('\\' + 1, 0xD7FF), Range(0xE000, kLast)}) {
      const uint32_t from = std::max(low, part.first), to = std::min(high, part.second);
      if (from <= to) absl::StrAppend(&plain, OfClass(from), "-", OfClass(to));
    }
  };
  for (const auto& [low, high] : set.ranges()) add(low, high);
  if (!plain.empty()) of.push_back(absl::StrCat("[", plain, "]"));
  if (of.empty()) return absl::InvalidArgumentError("no character is of one of its classes");
  return of.size() == 1 ? of[0] : absl::StrCat("(", absl::StrJoin(of, " | "), ")");
}

absl::StatusOr<std::string> GrammarOfChoice(const PatternChoice& choice) {
  std::vector<std::string> of;
  for (const PatternSequence& sequence : choice) {
    std::vector<std::string> pieces;
    for (const PatternPiece& p : sequence) {
      std::string piece;
      if (p.kind == PatternPiece::Kind::kSet) {
        ASSIGN_OR_RETURN(piece, GrammarOfSet(p.set));
      } else if (p.kind == PatternPiece::Kind::kGroup) {
        ASSIGN_OR_RETURN(piece, GrammarOfChoice(p.choice));
      } else {
        return absl::InvalidArgumentError("lookaheads are not known here");
      }
      if (p.max == kMany) {
        absl::StrAppend(&piece, "{", p.min, ",}");
      } else if (p.min != 1 || p.max != 1) {
        absl::StrAppend(&piece, "{", p.min, ",", p.max, "}");
      }
      pieces.push_back(std::move(piece));
    }
    of.push_back(pieces.empty() ? "\"\"" : absl::StrJoin(pieces, " "));
  }
  return absl::StrCat("(", absl::StrJoin(of, " | "), ")");
}

}  // namespace

absl::StatusOr<std::string> GrammarOfPattern(absl::string_view pattern) {
  absl::string_view inner = pattern;
  const bool from_begin = absl::ConsumePrefix(&inner, "^");
  bool to_end = absl::EndsWith(inner, "$"), escaped = false;
  for (size_t i = inner.size(); to_end && i >= 2 && inner.substr(0, i - 1).back() == '\\'; --i) {
    escaped = !escaped;
  }
  to_end = to_end && !escaped;
  if (to_end) inner.remove_suffix(1);
  ASSIGN_OR_RETURN(const PatternChoice choice, ParsePattern(inner, PatternDialect::kEcmaScript));
  if (choice.size() > 1 && (from_begin || to_end)) {
    return absl::InvalidArgumentError("^ and $ beside | want a group: ^(...|...)$");
  }
  ASSIGN_OR_RETURN(const std::string text, GrammarOfChoice(choice));
  return absl::StrCat("\"\\\"\" ", from_begin ? "" : "char* ", text, to_end ? "" : " char*",
                      " \"\\\"\"");
}

std::optional<std::string> GrammarOfFormat(absl::string_view format) {
  const std::string date =
      R"([0-9]{4} "-" ("02" "-" ("0" [1-9] | "1" [0-9] | "2" [0-9]))"
      R"( | ("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] | "30"))"
      R"( | ("0" [13578] | "1" [02]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])))";
  const std::string time =
      R"(([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,9})?)"
      R"( ("Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]))";
  const auto quoted = [](const std::string& s) {
    return absl::StrCat("\"\\\"\" ", s, " \"\\\"\"");
  };
  if (format == "date") return quoted(date);
  if (format == "time") return quoted(time);
  if (format == "date-time") return quoted(absl::StrCat(date, " \"T\" ", time));
  if (format == "uuid") return quoted("hex{8} (\"-\" hex{4}){3} \"-\" hex{12}");
  return std::nullopt;
}

}  // namespace tessera::llm
