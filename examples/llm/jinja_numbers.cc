// Numbers as Python reads and rounds them.
#include "examples/llm/jinja_numbers.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "examples/llm/jinja_functions.h"
#include "examples/llm/jinja_text.h"

namespace tessera::llm::jinja::numbers {
namespace {

// As Python reads integers: with a sign, _ between digits, and 0x, 0o or 0b in their bases.
std::optional<int64_t> WholeOf(absl::string_view text, int64_t base) {
  text = absl::StripAsciiWhitespace(text);
  const bool negative = absl::ConsumePrefix(&text, "-");
  if (!negative) absl::ConsumePrefix(&text, "+");
  constexpr std::pair<char, int> kPrefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
  for (const auto& [letter, of] : kPrefixes) {
    const bool there = text.size() > 2 && text[0] == '0' && absl::ascii_tolower(text[1]) == letter;
    if (!there || (base != 0 && base != of)) continue;
    text.remove_prefix(2);
    base = of;
  }
  std::string digits = negative ? "-" : "";
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') digits += text[i];
    if (!absl::ascii_isalnum(text[i]) && (i == 0 || !absl::ascii_isalnum(text[i - 1]))) return {};
  }
  int64_t out = 0;
  const char* const end = digits.data() + digits.size();
  const auto read =
      std::from_chars(digits.data(), end, out, base == 0 ? 10 : static_cast<int>(base));
  const bool whole = read.ec == std::errc() && read.ptr == end && !absl::EndsWith(text, "_");
  return whole ? std::optional(out) : std::nullopt;
}
// A number, or what a text says; none: neither.
std::optional<double> RealOf(const Value& v) {
  double out = 0;
  if (v.IsNumber()) return v.Real();
  return v.is(Kind::kText) && absl::SimpleAtod(v.bytes(), &out) ? std::optional(out) : std::nullopt;
}

Value ToInt(Heap& heap, const Arguments& a) {
  const Value &v = a.plain[0], base = ArgumentAt(a, 2, "base");
  if (!heap.Read(v.bytes().size())) return {};
  if (v.is(Kind::kInt) || v.is(Kind::kBool)) return Heap::Int(v.number);
  const int64_t of = base.is(Kind::kInt) ? base.number : 10;
  if (of < 0 || of == 1 || of > 36) return heap.Fail("int: the base is 0, or 2 to 36");
  if (v.is(Kind::kText)) {
    if (const std::optional<int64_t> whole = WholeOf(v.bytes(), of)) return Heap::Int(*whole);
  }
  const std::optional<double> real = RealOf(v);
  if (real && std::abs(*real) < 0x1p62) return Heap::Int(static_cast<int64_t>(*real));
  const Value otherwise = ArgumentAt(a, 1, "default");
  return otherwise.is(Kind::kUndefined) ? Heap::Int(0) : otherwise;
}
Value ToFloat(Heap& heap, const Arguments& a) {
  if (!heap.Read(a.plain[0].bytes().size())) return {};
  if (const std::optional<double> real = RealOf(a.plain[0])) return Heap::Real(*real);
  const Value otherwise = ArgumentAt(a, 1, "default");
  return otherwise.is(Kind::kUndefined) ? Heap::Real(0) : otherwise;
}
// To so many digits, to the even one between two.
Value Round(Heap& heap, const Arguments& a) {
  const Value &v = a.plain[0], digits = ArgumentAt(a, 1, "precision"),
              method = ArgumentAt(a, 2, "method");
  if (!v.IsNumber()) return heap.Fail("round of ", NameOf(v.kind));
  const int64_t n = digits.is(Kind::kInt) ? digits.number : 0;
  if (n < 0 || n > 15) return heap.Fail("round: 0 to 15 digits are known");
  const double by = std::pow(10.0, static_cast<double>(n));
  if (method.bytes() == "ceil") return Heap::Real(std::ceil(v.Real() * by) / by);
  if (method.bytes() == "floor") return Heap::Real(std::floor(v.Real() * by) / by);
  if (!v.is(Kind::kFloat)) return Heap::Int(v.number);
  return Heap::Real(std::stod(absl::StrFormat("%.*f", static_cast<int>(n), v.real)));
}
Value Abs(Heap& heap, const Arguments& a) {
  const Value& v = a.plain[0];
  if (v.is(Kind::kFloat)) return Heap::Real(std::abs(v.real));
  if (!v.IsNumber() || v.number == INT64_MIN) return heap.Fail("abs of ", NameOf(v.kind));
  return Heap::Int(std::abs(v.number));
}

}  // namespace

Builtin Filter(absl::string_view name) {
  constexpr Entry kAll[] = {{"int", ToInt}, {"float", ToFloat}, {"abs", Abs}, {"round", Round}};
  return Find(kAll, name);
}

}  // namespace tessera::llm::jinja::numbers
