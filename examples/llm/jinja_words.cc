// Letters, words and lines of texts.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "examples/llm/jinja_functions.h"
#include "examples/llm/jinja_text.h"
#include "examples/llm/unicode.h"
#include "examples/llm/unicode_properties.h"

namespace tessera::llm::jinja::texts {
namespace {

// ---- what letters are

bool Among(absl::Span<const CodeRange> ranges, uint32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const CodeRange& r) { return r.first <= c && c <= r.last; });
}
bool Is(Category category, uint32_t c) { return c != kNoCharacter && CategoryOf(c) == category; }
bool IsUpper(uint32_t c) { return Is(Category::kLu, c) || Among(OtherUppercase(), c); }
bool IsLower(uint32_t c) { return Is(Category::kLl, c) || Among(OtherLowercase(), c); }
bool IsTitle(uint32_t c) { return Is(Category::kLt, c); }
bool IsLetter(uint32_t c) { return c != kNoCharacter && CategoryOf(c) <= Category::kLo; }
bool IsDecimal(uint32_t c) { return Is(Category::kNd, c); }
bool IsNumeric(uint32_t c) {
  return c != kNoCharacter && CategoryOf(c) >= Category::kNd && CategoryOf(c) <= Category::kNo;
}
// Superscripts, and digits in circles and the like.
bool IsDigit(uint32_t c) {
  if (c == kNoCharacter) return false;
  constexpr std::pair<uint32_t, uint32_t> kOther[] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return IsDecimal(c) || std::any_of(std::begin(kOther), std::end(kOther), [&](const auto& range) {
           return range.first <= c && c <= range.second;
         });
}
bool IsWordLike(uint32_t c) { return IsLetter(c) || IsNumeric(c); }
bool IsAscii(uint32_t c) { return c < 0x80; }
bool IsSpace(uint32_t c) {
  return c != kNoCharacter && (IsWhitespace(c) || (c >= 0x1C && c <= 0x1F));
}

template <bool (*is)(uint32_t), bool of_nothing = false>
Value AllAre(Heap& heap, const Arguments& a) {
  const std::vector<Character> all = Characters(Whole(heap, a).bytes);
  if (all.size() == 1) return Heap::Bool(of_nothing);
  return Heap::Bool(
      std::all_of(all.begin(), all.end() - 1, [](const Character& c) { return is(c.code); }));
}
template <bool lower>
Value AreOfCase(Heap& heap, const Arguments& a) {
  return Heap::Bool(AllOfCase(heap, Own(heap, a).bytes, lower));
}

// ---- case

enum class Case { kLower, kUpper, kTitle };

// Each letter in the case that is wanted of it and what comes before it.
template <typename F>
Value Changed(Heap& heap, const Arguments& a, F&& wanted) {
  const Text& t = Whole(heap, a);
  const std::vector<Character> all = Characters(t.bytes);
  Text out;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const uint32_t code = all[i].code;
    std::string letter;
    if (code == kNoCharacter) {
      letter = t.bytes.substr(all[i].begin, 1);
    } else {
      const Case to = wanted(code, i > 0 ? all[i - 1].code : kNoCharacter, i == 0);
      const auto append = to == Case::kLower   ? AppendLower
                          : to == Case::kUpper ? AppendUpper
                                               : AppendTitle;
      append(code, &letter);
    }
    if (!heap.Charge(2 * letter.size())) return {};
    out.Append(letter, static_cast<Origin>(t.said[all[i].begin]));
  }
  return heap.Make(std::move(out));
}
Value Lower(Heap& heap, const Arguments& a) {
  return Changed(heap, a, [](uint32_t, uint32_t, bool) { return Case::kLower; });
}
Value Upper(Heap& heap, const Arguments& a) {
  return Changed(heap, a, [](uint32_t, uint32_t, bool) { return Case::kUpper; });
}
Value Capitalize(Heap& heap, const Arguments& a) {
  return Changed(
      heap, a, [](uint32_t, uint32_t, bool first) { return first ? Case::kTitle : Case::kLower; });
}
Value SwapCase(Heap& heap, const Arguments& a) {
  return Changed(
      heap, a, [](uint32_t c, uint32_t, bool) { return IsUpper(c) ? Case::kLower : Case::kUpper; });
}
// The method: letters after what is none.
Value TitleOfLetters(Heap& heap, const Arguments& a) {
  return Changed(heap, a, [](uint32_t, uint32_t before, bool) {
    return IsUpper(before) || IsLower(before) || IsTitle(before) ? Case::kLower : Case::kTitle;
  });
}
// The filter: what begins words, which an apostrophe does not.
Value Title(Heap& heap, const Arguments& a) {
  return Changed(heap, a, [](uint32_t, uint32_t before, bool first) {
    const bool mark = before < 0x80 && absl::StrContains("-({[<", static_cast<char>(before));
    return first || mark || IsSpace(before) ? Case::kUpper : Case::kLower;
  });
}

// ---- width

// How many characters are missing to a width.
int64_t Missing(Heap& heap, const Arguments& a, const Text& t, int64_t usual = -1) {
  const Value width = ArgumentAt(a, 1, "width");
  constexpr int64_t kMost = 1'000'000;
  if (!width.is(Kind::kInt) && usual < 0) heap.Fail("wants a width");
  const int64_t to = std::max<int64_t>(width.is(Kind::kInt) ? width.number : usual, 0);
  if (to > kMost) heap.Fail("a width of more than ", kMost);
  return heap.failed() ? 0 : std::max<int64_t>(to - LengthOf(heap, t.bytes), 0);
}
Value Padded(Heap& heap, const Arguments& a, int64_t before, int64_t after) {
  const Value by = ArgumentAt(a, 2, "fillchar");
  const Text fill = by.is(Kind::kText) ? *by.text : Text(" ");
  if (LengthOf(heap, fill.bytes) != 1) return heap.Fail("a text is filled up with one character");
  if (!heap.Charge(2 * fill.size() * static_cast<size_t>(before + after))) return {};
  Text out;
  for (int64_t i = 0; i < before; ++i) out.Append(fill);
  out.Append(Own(heap, a));
  for (int64_t i = 0; i < after; ++i) out.Append(fill);
  return heap.Make(std::move(out));
}
Value ToTheLeft(Heap& heap, const Arguments& a) {
  return Padded(heap, a, 0, Missing(heap, a, Own(heap, a)));
}
Value ToTheRight(Heap& heap, const Arguments& a) {
  return Padded(heap, a, Missing(heap, a, Own(heap, a)), 0);
}
// As Python has it: what is odd goes before where the width is odd.
Value Centered(Heap& heap, const Arguments& a, int64_t usual) {
  const int64_t missing = Missing(heap, a, Own(heap, a), usual);
  const Value width = ArgumentAt(a, 1, "width");
  const int64_t to = width.is(Kind::kInt) ? width.number : usual;
  const int64_t before = missing / 2 + (missing & to & 1);
  return Padded(heap, a, before, missing - before);
}
Value CenterOf(Heap& heap, const Arguments& a) { return Centered(heap, a, -1); }
Value Center(Heap& heap, const Arguments& a) {
  constexpr int64_t kUsual = 80;
  return Centered(heap,
                  {{a.plain.begin(),
                    a.plain.begin() + std::min<int64_t>(2, static_cast<int64_t>(a.plain.size()))},
                   a.named},
                  kUsual);
}
Value ZerosBefore(Heap& heap, const Arguments& a) {
  const Text& t = Own(heap, a);
  const auto zeros = static_cast<size_t>(Missing(heap, a, t));
  const size_t sign = absl::StartsWith(t.bytes, "-") || absl::StartsWith(t.bytes, "+") ? 1 : 0;
  Text out = t.Part(0, sign);
  if (!heap.Charge(2 * zeros)) return {};
  out.Append(std::string(zeros, '0'), kOfTemplate);
  out.Append(t.Part(sign, t.size()));
  return heap.Make(std::move(out));
}

// ---- lines and words

// Lines after the first, or all, begin with spaces; empty ones do not unless asked.
Value Indent(Heap& heap, const Arguments& a) {
  const Text& t = Own(heap, a);
  const Value width = ArgumentAt(a, 1, "width");
  constexpr int64_t kUsual = 4, kMost = 1000;
  const int64_t spaces =
      width.is(Kind::kInt) ? std::clamp<int64_t>(width.number, 0, kMost) : kUsual;
  const Text by =
      width.is(Kind::kText) ? *width.text : Text(std::string(static_cast<size_t>(spaces), ' '));
  const bool first = IsTrue(ArgumentAt(a, 2, "first")), blank = IsTrue(ArgumentAt(a, 3, "blank"));
  Text out;
  for (size_t from = 0; from <= t.size();) {
    const size_t end = std::min(t.view().find('\n', from), t.size());
    const bool wanted = from == 0 ? first : blank || end > from;
    if (!heap.Charge(2 * (end - from + by.size()))) return {};
    if (wanted) out.Append(by);
    out.Append(t.Part(from, std::min(end + 1, t.size())));
    from = end + 1;
  }
  return heap.Make(std::move(out));
}

Value TabsAsSpaces(Heap& heap, const Arguments& a) {
  const Text& t = Whole(heap, a);
  const Value size = ArgumentAt(a, 1, "tabsize");
  constexpr int64_t kUsual = 8, kMost = 1000;
  const int64_t to = size.is(Kind::kInt) ? std::clamp<int64_t>(size.number, 0, kMost) : kUsual;
  Text out;
  int64_t column = 0;
  for (size_t i = 0; i < t.size(); ++i) {
    const char c = t.bytes[i];
    if (c != '\t') {
      out.Append(t.Part(i, i + 1));
      column = c == '\n' || c == '\r' ? 0 : column + ((c & 0xC0) != 0x80);
      continue;
    }
    const int64_t spaces = to == 0 ? 0 : to - column % to;
    if (!heap.Charge(2 * static_cast<size_t>(spaces))) return {};
    out.Append(std::string(static_cast<size_t>(spaces), ' '), static_cast<Origin>(t.said[i]));
    column += spaces;
  }
  return heap.Make(std::move(out));
}

Value WordCount(Heap& heap, const Arguments& a) {
  int64_t count = 0;
  bool within = false;
  for (const Character& c : Characters(Whole(heap, a).bytes)) {
    const bool word = IsWordLike(c.code) || c.code == '_';
    count += word && !within;
    within = word;
  }
  return Heap::Int(count);
}

// No longer than a length, where it is by more than a leeway; cut at a word unless asked.
Value Truncate(Heap& heap, const Arguments& a) {
  const Text& t = Whole(heap, a);
  const auto number = [&](size_t at, absl::string_view name, int64_t usual) {
    const Value v = ArgumentAt(a, at, name);
    constexpr int64_t kMost = int64_t{1} << 40;  // so that sums do not overflow
    return v.is(Kind::kInt) ? std::clamp(v.number, -kMost, kMost) : usual;
  };
  constexpr int64_t kLength = 255, kLeeway = 5;
  const int64_t length = number(1, "length", kLength), leeway = number(4, "leeway", kLeeway);
  const Value given = ArgumentAt(a, 3, "end");
  const Text end = given.is(Kind::kText) ? *given.text : Text("...");
  const int64_t kept = length - LengthOf(heap, end.bytes);
  if (kept < 0 || leeway < 0) return heap.Fail("truncate: the end is longer than the length");
  const std::vector<Character> all = Characters(t.bytes);
  if (static_cast<int64_t>(all.size()) - 1 <= length + leeway) return heap.Make(Text(t));
  size_t to = all[static_cast<size_t>(kept)].begin;
  if (!IsTrue(ArgumentAt(a, 2, "killwords"))) to = std::min(to, t.view().substr(0, to).rfind(' '));
  Text out = t.Part(0, to);
  out.Append(end);
  return heap.Make(std::move(out));
}

// Characters that others are written for.
template <typename F>
Value Escaped(Heap& heap, const Arguments& a, F&& as) {
  const Text& t = Whole(heap, a);
  Text out;
  for (size_t i = 0; i < t.size(); ++i) {
    const std::string written = as(t.bytes[i]);
    if (!heap.Charge(2 * written.size())) return {};
    out.Append(written, static_cast<Origin>(t.said[i]));
  }
  return heap.Make(std::move(out));
}
Value ForHtml(Heap& heap, const Arguments& a) {
  return Escaped(heap, a, [](char c) -> std::string {
    switch (c) {
      case '&':
        return "&amp;";
      case '<':
        return "&lt;";
      case '>':
        return "&gt;";
      case '"':
        return "&#34;";
      case '\'':
        return "&#39;";
      default:
        return {c};
    }
  });
}
Value ForUrls(Heap& heap, const Arguments& a) {
  if (a.plain[0].is(Kind::kList) || a.plain[0].is(Kind::kDict)) {
    return heap.Fail("urlencode of ", NameOf(a.plain[0].kind), " is not known");
  }
  return Escaped(heap, a, [](char c) -> std::string {
    if (absl::ascii_isalnum(c) || absl::StrContains("_.-~/", c)) return {c};
    return absl::StrFormat("%%%02X", static_cast<unsigned char>(c));
  });
}

}  // namespace

bool AllOfCase(Heap& heap, absl::string_view text, bool lower) {
  if (!heap.Read(text.size())) return false;
  bool any = false;
  for (const Character& c : Characters(text)) {
    if (IsTitle(c.code) || (lower ? IsUpper(c.code) : IsLower(c.code))) return false;
    any = any || (lower ? IsLower(c.code) : IsUpper(c.code));
  }
  return any;
}

Builtin MethodOfWords(absl::string_view name) {
  constexpr Entry kAll[] = {{"lower", Lower},
                            {"casefold", Lower},
                            {"upper", Upper},
                            {"capitalize", Capitalize},
                            {"swapcase", SwapCase},
                            {"title", TitleOfLetters},
                            {"isalpha", AllAre<IsLetter>},
                            {"isalnum", AllAre<IsWordLike>},
                            {"isdigit", AllAre<IsDigit>},
                            {"isdecimal", AllAre<IsDecimal>},
                            {"isnumeric", AllAre<IsNumeric>},
                            {"isspace", AllAre<IsSpace>},
                            {"isascii", AllAre<IsAscii, /*of_nothing=*/true>},
                            {"islower", AreOfCase<true>},
                            {"isupper", AreOfCase<false>},
                            {"ljust", ToTheLeft},
                            {"rjust", ToTheRight},
                            {"center", CenterOf},
                            {"zfill", ZerosBefore},
                            {"expandtabs", TabsAsSpaces}};
  return Find(kAll, name);
}

Builtin FilterOfWords(absl::string_view name) {
  constexpr Entry kAll[] = {
      {"lower", Lower},    {"upper", Upper},   {"capitalize", Capitalize}, {"title", Title},
      {"indent", Indent},  {"center", Center}, {"wordcount", WordCount},   {"truncate", Truncate},
      {"escape", ForHtml}, {"e", ForHtml},     {"forceescape", ForHtml},   {"urlencode", ForUrls}};
  return Find(kAll, name);
}

}  // namespace tessera::llm::jinja::texts
