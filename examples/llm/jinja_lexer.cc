// One pass over the text: what lies between marks, and the tokens within them.
#include "examples/llm/jinja_lexer.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"

namespace tessera::llm::jinja {
namespace {

constexpr absl::string_view kSpace = " \t\n\r\v\f";
constexpr absl::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
constexpr absl::string_view kShort = "+-*/%~()[]{}|.,:=<>";

class Lexer {
 public:
  explicit Lexer(absl::string_view text)
      : text_(absl::StrReplaceAll(text, {{"\r\n", "\n"}, {"\r", "\n"}})) {
    if (absl::EndsWith(text_, "\n")) text_.pop_back();
  }

  absl::StatusOr<std::vector<Token>> All() {
    while (at_ < text_.size()) RETURN_IF_ERROR(Next());
    Add(Token::Kind::kEnd, "");
    return std::move(out_);
  }

 private:
  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
  }
  void Add(Token::Kind kind, absl::string_view text) {
    out_.push_back({kind, std::string(text), line_});
  }
  absl::string_view Rest() const { return absl::string_view(text_).substr(at_); }
  void Move(size_t bytes) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<int64_t>(at_),
                                         text_.begin() + static_cast<int64_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }

  // Text up to the next mark, and what is between it and its end.
  absl::Status Next() {
    const absl::string_view rest = Rest();
    size_t begin = rest.find('{');
    while (begin != rest.npos &&
           (begin + 1 >= rest.size() || !absl::StrContains("{%#", rest.substr(begin + 1, 1)))) {
      begin = rest.find('{', begin + 1);
    }
    absl::string_view before = rest.substr(0, begin);
    if (begin == rest.npos) {
      Add(Token::Kind::kText, before);
      at_ = text_.size();
      return absl::OkStatus();
    }
    const char mark = rest[begin + 1], sign = begin + 2 < rest.size() ? rest[begin + 2] : ' ';
    before = Before(before, sign, mark != '{');
    if (!before.empty()) Add(Token::Kind::kText, before);
    Move(begin + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (mark == '#') return Comment();
    if (const size_t size = SizeOfBlock("raw"); mark == '%' && size > 0) return Raw(size);
    Add(mark == '{' ? Token::Kind::kBeginOutput : Token::Kind::kBeginBlock, "");
    return Within(mark == '{');
  }

  // The text before a mark that begins with this sign, without the space that goes with it.
  absl::string_view Before(absl::string_view text, char sign, bool block) const {
    if (sign == '-') return WithoutSpaceAtEnd(text);
    if (sign == '+' || !block) return text;
    const size_t line = text.rfind('\n') + 1;  // 0 where there is none
    const bool first = line > 0 || at_line_begin_;
    return first && WithoutSpaceAtEnd(text.substr(line)).empty() ? text.substr(0, line) : text;
  }

  // Of what is between {% and the end of %}, if that is this name; or 0.
  size_t SizeOfBlock(absl::string_view name) const {
    absl::string_view rest = WithoutSpaceAtBegin(Rest());
    if (!absl::ConsumePrefix(&rest, name)) return 0;
    rest = WithoutSpaceAtBegin(rest);
    if (!absl::StartsWith(rest, "%}"))
      rest.remove_prefix(absl::StartsWith(rest, "-%}") || absl::StartsWith(rest, "+%}"));
    return absl::ConsumePrefix(&rest, "%}") ? Rest().size() - rest.size() : 0;
  }
  // What is text as it is, up to {% endraw %}.
  absl::Status Raw(size_t size) {
    const char after = Rest()[size - 3];
    Move(size);
    if (after == '-') End(after, /*block=*/true);
    at_line_begin_ = at_ > 0 && text_[at_ - 1] == '\n';
    const absl::string_view rest = Rest();
    for (size_t end = rest.find("{%"); end != rest.npos; end = rest.find("{%", end + 2)) {
      const char sign = end + 2 < rest.size() ? rest[end + 2] : ' ';
      const size_t begin = end + 2 + (sign == '-' || sign == '+' ? 1 : 0), from = at_;
      at_ += begin;
      const size_t last = SizeOfBlock("endraw");
      at_ = from;
      if (last == 0) continue;
      const absl::string_view before = Before(rest.substr(0, end), sign, /*block=*/true);
      if (!before.empty()) Add(Token::Kind::kText, before);
      Move(begin + last);
      End(text_[at_ - 3], /*block=*/true);
      return absl::OkStatus();
    }
    return Bad("{% raw %} does not end");
  }

  absl::Status Comment() {
    const size_t end = Rest().find("#}");
    if (end == absl::string_view::npos) return Bad("a comment does not end");
    const char sign = end > 0 ? Rest()[end - 1] : ' ';
    Move(end + 2);
    End(sign, /*block=*/true);
    return absl::OkStatus();
  }

  // Takes the space that goes with a mark's end.
  void End(char sign, bool block) {
    const size_t from = at_;
    if (sign == '-') {
      Move(Rest().size() - WithoutSpaceAtBegin(Rest()).size());
    } else if (block && sign != '+' && absl::StartsWith(Rest(), "\n")) {
      Move(1);
    }
    at_line_begin_ = at_ > from && text_[at_ - 1] == '\n';
  }

  // Whether the mark ends here.
  bool Ends(bool output) {
    const absl::string_view end = output ? "}}" : "%}";
    const char first = Rest()[0], sign = first == '-' || (first == '+' && !output) ? first : ' ';
    if (Rest().substr(sign == ' ' ? 0 : 1, 2) != end) return false;
    Add(output ? Token::Kind::kEndOutput : Token::Kind::kEndBlock, "");
    Move(sign == ' ' ? 2 : 3);
    End(sign, !output);
    return true;
  }

  absl::Status Within(bool output) {
    std::string open;  // brackets
    while (true) {
      Move(std::min(Rest().find_first_not_of(kSpace), Rest().size()));
      if (Rest().empty()) return Bad(output ? "{{ does not end" : "{% does not end");
      if (open.empty() && Ends(output)) return absl::OkStatus();
      RETURN_IF_ERROR(One());
      const Token& last = out_.back();
      if (!last.is(Token::Kind::kOperator)) continue;
      if (absl::StrContains("([{", last.text)) open += last.text;
      if (!absl::StrContains(")]}", last.text)) continue;
      if (open.empty()) return Bad(absl::StrCat("'", last.text, "' closes nothing"));
      open.pop_back();  // whether it is the right one is the parser's to say
    }
  }

  absl::Status One() {
    const absl::string_view rest = Rest();
    const auto name = [](char c) { return absl::ascii_isalnum(c) || c == '_'; };
    const auto digits = [&](size_t from) {
      while (from < rest.size() && (absl::ascii_isdigit(rest[from]) || rest[from] == '_')) ++from;
      return from;
    };
    if (absl::ascii_isdigit(rest[0])) return Number(digits(0));
    if (name(rest[0])) {
      size_t n = 1;
      while (n < rest.size() && name(rest[n])) ++n;
      return Take(Token::Kind::kName, n);
    }
    if (rest[0] == '\'' || rest[0] == '"') return String();
    for (const absl::string_view op : kLong) {
      if (absl::StartsWith(rest, op)) return Take(Token::Kind::kOperator, op.size());
    }
    if (absl::StrContains(kShort, rest.substr(0, 1))) return Take(Token::Kind::kOperator, 1);
    const size_t size = Characters(rest.substr(0, 4))[1].begin;
    return Bad(absl::StrCat("'", rest.substr(0, size), "' is no part of an expression"));
  }

  absl::Status Take(Token::Kind kind, size_t size) {
    Add(kind, Rest().substr(0, size));
    Move(size);
    return absl::OkStatus();
  }

  absl::Status Number(size_t size) {
    const absl::string_view rest = Rest();
    const auto digit = [&](size_t i) { return i < rest.size() && absl::ascii_isdigit(rest[i]); };
    Token::Kind kind = Token::Kind::kInt;
    constexpr absl::string_view kBases = "xob";
    const size_t letter = size == 1 && rest[0] == '0' && rest.size() > 2
                              ? kBases.find(absl::ascii_tolower(rest[1]))
                              : kBases.npos;
    if (letter != kBases.npos) {
      constexpr int kBase[] = {16, 8, 2};
      for (size = 2;
           size < rest.size() && (absl::ascii_isxdigit(rest[size]) || rest[size] == '_');) {
        ++size;
      }
      const std::string digits = absl::StrReplaceAll(rest.substr(2, size - 2), {{"_", ""}});
      int64_t n = 0;
      const char* const end = digits.data() + digits.size();
      const auto read = std::from_chars(digits.data(), end, n, kBase[letter]);
      if (read.ec != std::errc() || read.ptr != end) return Bad("a number is not known");
      Add(kind, absl::StrCat(n));
      Move(size);
      return absl::OkStatus();
    }
    if (size < rest.size() && rest[size] == '.' && digit(size + 1)) {
      kind = Token::Kind::kFloat;
      for (++size; digit(size);) ++size;
    }
    const size_t e = size + 1, sign = e < rest.size() && absl::StrContains("+-", rest.substr(e, 1));
    if (size < rest.size() && absl::ascii_tolower(rest[size]) == 'e' && digit(e + sign)) {
      kind = Token::Kind::kFloat;
      for (size = e + sign; digit(size);) ++size;
    }
    Add(kind, absl::StrReplaceAll(rest.substr(0, size), {{"_", ""}}));
    Move(size);
    return absl::OkStatus();
  }

  absl::Status String() {
    const absl::string_view rest = Rest();
    std::string text;
    size_t i = 1;
    while (i < rest.size() && rest[i] != rest[0]) {
      if (rest[i] != '\\') {
        text += rest[i++];
      } else if (!Escape(rest, &i, &text)) {
        return Bad("an escape in a string is not known");
      }
    }
    if (i >= rest.size()) return Bad("a string does not end");
    Add(Token::Kind::kString, text);
    Move(i + 1);
    return absl::OkStatus();
  }

  // As in Python's strings; what is no escape stays as it is.
  static bool Escape(absl::string_view rest, size_t* i, std::string* text) {
    constexpr absl::string_view kNames = "ntrbfav\\'\"", kValues = "\n\t\r\b\f\a\v\\'\"";
    const char c = *i + 1 < rest.size() ? rest[*i + 1] : ' ';
    const size_t simple = kNames.find(c);
    if (simple != kNames.npos || c == '\n') {
      if (c != '\n') *text += kValues[simple];
      *i += 2;
      return true;
    }
    const auto octal = [](char d) { return '0' <= d && d <= '7'; };
    size_t from = *i + 2, digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (octal(c)) {
      for (from = *i + 1; digits < 3 && from + digits < rest.size() && octal(rest[from + digits]);
           ++digits) {
        code = code * 8 + static_cast<uint32_t>(rest[from + digits] - '0');
      }
    } else if (digits == 0) {
      *text += '\\';
      *i += 1;
      return c != 'N';
    } else {
      const std::string hex(rest.substr(from, digits));
      if (hex.size() < digits || hex.find_first_not_of("0123456789abcdefABCDEF") != hex.npos) {
        return false;
      }
      code = static_cast<uint32_t>(std::stoul(hex, nullptr, 16));
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    AppendUtf8(code, text);
    *i = from + digits;
    return true;
  }

  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_begin_ = true;
  std::vector<Token> out_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Lex(absl::string_view text) { return Lexer(text).All(); }

}  // namespace tessera::llm::jinja
