// What is done with texts; each byte keeps whether it was said.
#include "examples/llm/jinja_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "examples/llm/jinja_functions.h"
#include "examples/llm/unicode.h"

namespace tessera::llm::jinja {

int64_t LengthOf(Heap& heap, absl::string_view t) {
  return heap.Read(t.size()) ? static_cast<int64_t>(Characters(t).size()) - 1 : 0;
}

List CharactersOf(Heap& heap, const Text& t) {
  List out;
  if (!heap.Read(t.size())) return out;
  const std::vector<Character> all = Characters(t.bytes);
  for (size_t i = 0; i + 1 < all.size() && heap.Step(); ++i) {
    out.push_back(heap.Make(t.Part(all[i].begin, all[i + 1].begin)));
  }
  return heap.failed() ? List() : out;
}

namespace texts {
namespace {

// What is filtered, as a text, and arguments that are texts.
const Text& Own(Heap& heap, const Arguments& a) {
  static const Text* const none = new Text;
  if (a.plain[0].is(Kind::kText)) return *a.plain[0].text;
  const Value shown = heap.Make(heap.Shown(a.plain[0]));
  return shown.is(Kind::kText) ? *shown.text : *none;
}
// The same, to be gone through.
const Text& Whole(Heap& heap, const Arguments& a) {
  static const Text* const none = new Text;
  const Text& t = Own(heap, a);
  return heap.Read(t.size()) ? t : *none;
}
absl::string_view Word(Heap& heap, const List& all, size_t at) {
  if (at >= all.size() || !all[at].is(Kind::kText)) heap.Fail("a method of texts wants a text");
  return !heap.failed() && heap.Read(all[at].bytes().size()) ? all[at].bytes() : "";
}

Value Stripped(Heap& heap, const Arguments& a, bool begin, bool end) {
  const Text& t = Whole(heap, a);
  const Value chars = ArgumentAt(a, 1, "chars");
  absl::string_view left = t.bytes;
  size_t from = 0;
  if (!chars.is(Kind::kText)) {
    if (begin) left = WithoutSpaceAtBegin(left);
    from = t.size() - left.size();
    if (end) left = WithoutSpaceAtEnd(left);
    return heap.Make(t.Part(from, from + left.size()));
  }
  if (!heap.Read((t.size() + 1) * (chars.bytes().size() + 1))) return {};
  const std::vector<Character> all = Characters(t.bytes), taken = Characters(chars.bytes());
  const auto among = [&](const Character& c) {
    return std::any_of(taken.begin(), taken.end() - 1,
                       [&](const Character& other) { return other.code == c.code; });
  };
  size_t first = 0, last = all.size() - 1;
  while (begin && first < last && among(all[first])) ++first;
  while (end && last > first && among(all[last - 1])) --last;
  return heap.Make(t.Part(all[first].begin, all[last].begin));
}
Value StripBegin(Heap& heap, const Arguments& a) { return Stripped(heap, a, true, false); }
Value StripEnd(Heap& heap, const Arguments& a) { return Stripped(heap, a, false, true); }

// Whether it has the word that is asked for, or one of a list, at an end.
template <typename F>
Value AtEnd(Heap& heap, const Arguments& a, F&& has) {
  const Text& t = Own(heap, a);
  const bool many = a.plain.size() > 1 && a.plain[1].is(Kind::kList);
  const List& words = many ? *a.plain[1].list : a.plain;
  bool any = false;
  for (size_t i = many ? 0 : 1; i < (many ? words.size() : 2) && !any; ++i) {
    any = has(t.bytes, Word(heap, words, i));
  }
  return Heap::Bool(any);
}
Value Begins(Heap& heap, const Arguments& a) { return AtEnd(heap, a, absl::StartsWith); }
Value Ends(Heap& heap, const Arguments& a) { return AtEnd(heap, a, absl::EndsWith); }
Value WithoutBegin(Heap& heap, const Arguments& a) {
  const Text& t = Own(heap, a);
  const absl::string_view word = Word(heap, a.plain, 1);
  return heap.Make(t.Part(absl::StartsWith(t.bytes, word) ? word.size() : 0, t.size()));
}
Value WithoutEnd(Heap& heap, const Arguments& a) {
  const Text& t = Own(heap, a);
  const absl::string_view word = Word(heap, a.plain, 1);
  return heap.Make(t.Part(0, t.size() - (absl::EndsWith(t.bytes, word) ? word.size() : 0)));
}

// By white space, or by a word, at most so many times; from the end, or the begin.
Value SplitBy(Heap& heap, const Arguments& a, bool from_end) {
  const Text& t = Own(heap, a);
  const Value by = ArgumentAt(a, 1, "sep"), times = ArgumentAt(a, 2, "maxsplit");
  int64_t left = times.is(Kind::kInt) && times.number >= 0 ? times.number : INT64_MAX;
  std::vector<std::pair<size_t, size_t>> gaps;
  if (by.is(Kind::kText)) {
    const size_t size = by.bytes().size();
    if (size == 0) return heap.Fail("a text cannot be split by nothing");
    if (!heap.Search(t, by.bytes())) return {};
    size_t at = from_end ? t.view().rfind(by.bytes()) : t.view().find(by.bytes());
    for (; at != t.bytes.npos && left-- > 0 && heap.Step();) {
      gaps.emplace_back(at, at + size);
      if (from_end && at < size) break;
      at = from_end ? t.view().rfind(by.bytes(), at - size) : t.view().find(by.bytes(), at + size);
    }
    if (from_end) std::reverse(gaps.begin(), gaps.end());
  } else {
    if (from_end || left != INT64_MAX) return heap.Fail("such splits by white space are not known");
    if (!heap.Read(t.size())) return {};
    const std::vector<Character> all = Characters(t.bytes);
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      if (!IsWhitespace(all[i].code)) continue;
      if (!heap.Step()) return {};
      if (gaps.empty() || gaps.back().second != all[i].begin) {
        gaps.emplace_back(all[i].begin, all[i].begin);
      }
      gaps.back().second = all[i + 1].begin;
    }
  }
  List out;
  size_t from = 0;
  const auto add = [&](size_t to) {
    if (by.is(Kind::kText) || to > from) out.push_back(heap.Make(t.Part(from, to)));
  };
  for (const auto& [begin, end] : gaps) {
    add(begin);
    from = end;
  }
  add(t.size());
  return heap.Make(std::move(out));
}
Value Split(Heap& heap, const Arguments& a) { return SplitBy(heap, a, false); }
Value SplitFromEnd(Heap& heap, const Arguments& a) { return SplitBy(heap, a, true); }
// A line ends as in Python, at \n, \r, both, and what else Unicode has for that.
Value Lines(Heap& heap, const Arguments& a) {
  const Text& t = Whole(heap, a);
  const bool with_ends = IsTrue(ArgumentAt(a, 1, "keepends"));
  const std::vector<Character> all = Characters(t.bytes);
  List out;
  size_t from = 0;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const uint32_t c = all[i].code;
    const bool ends = (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (!heap.Step()) return {};
    const size_t end = all[i].begin;
    if (c == '\r' && all[i + 1].code == '\n') ++i;
    out.push_back(heap.Make(t.Part(from, with_ends ? all[i + 1].begin : end)));
    from = all[i + 1].begin;
  }
  if (from < t.size()) out.push_back(heap.Make(t.Part(from, t.size())));
  return heap.Make(std::move(out));
}

Value Found(Heap& heap, const Arguments& a, bool last) {
  const Text& t = Own(heap, a);
  const absl::string_view word = Word(heap, a.plain, 1);
  if (!heap.Search(t, word)) return {};
  const size_t at = last ? t.view().rfind(word) : t.view().find(word);
  return Heap::Int(at == t.bytes.npos ? -1 : LengthOf(heap, t.view().substr(0, at)));
}
Value Find(Heap& heap, const Arguments& a) { return Found(heap, a, false); }
Value FindLast(Heap& heap, const Arguments& a) { return Found(heap, a, true); }
Value Index(Heap& heap, const Arguments& a) {
  const Value at = Found(heap, a, false);
  return at.number < 0 ? heap.Fail("index: the text is not found") : at;
}
Value Count(Heap& heap, const Arguments& a) {
  const Value parts = Split(heap, a);
  return parts.is(Kind::kList) ? Heap::Int(static_cast<int64_t>(parts.list->size()) - 1) : Value();
}
Value IsDigits(Heap& heap, const Arguments& a) {
  const std::string& t = Whole(heap, a).bytes;
  return Heap::Bool(!t.empty() && std::all_of(t.begin(), t.end(), absl::ascii_isdigit));
}

// With {} as the next argument, {0} as one by its place, and {name}; {{ is a brace.
Value Format(Heap& heap, const Arguments& a) {
  const Text& t = Own(heap, a);
  Text out;
  size_t next = 0;
  for (size_t i = 0; i < t.size() && heap.Step();) {
    const char c = t.bytes[i];
    const bool brace = c == '{' || c == '}', twice = i + 1 < t.size() && t.bytes[i + 1] == c;
    if (!brace || twice) {
      out.Append(t.Part(i, i + 1));
      i += brace ? 2 : 1;
      continue;
    }
    const size_t end = t.view().find('}', i);
    if (c == '}' || end == t.view().npos) return heap.Fail("format: a brace stands alone");
    const absl::string_view field = t.view().substr(i + 1, end - i - 1);
    size_t at = next;
    Value v;
    if (field.empty() || absl::SimpleAtoi(field, &at)) {
      if (field.empty()) ++next;
      if (at + 1 >= a.plain.size()) return heap.Fail("format wants more arguments");
      v = a.plain[at + 1];
    } else if (const Value* named = Named(a, field)) {
      v = *named;
    } else {
      return heap.Fail("format: the field '", field, "' is not known");
    }
    const Text shown = heap.Shown(v);
    if (!heap.Charge(2 * shown.size())) return {};
    out.Append(shown);
    i = end + 1;
  }
  return heap.Make(std::move(out));
}

Text JoinedBy(Heap& heap, const List& items, const Text& by) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    const Text shown = heap.Shown(items[i]);
    if (!heap.Charge(2 * (shown.size() + by.size()))) return {};
    if (i > 0) out.Append(by);
    out.Append(shown);
  }
  return out;
}
Value Join(Heap& heap, const Arguments& a) {
  if (a.plain.size() < 2) return heap.Fail("join wants a list");
  return heap.Make(JoinedBy(heap, ItemsOf(heap, a.plain[1]), Own(heap, a)));
}

// Of letters that ASCII has; others stay.
template <typename F>
Value Changed(Heap& heap, const Arguments& a, F&& change) {
  Text t = Whole(heap, a);
  for (size_t i = 0; i < t.size(); ++i) t.bytes[i] = change(t.bytes, i);
  return heap.Make(std::move(t));
}

}  // namespace

Value Strip(Heap& heap, const Arguments& a) { return Stripped(heap, a, true, true); }
Value Lower(Heap& heap, const Arguments& a) {
  return Changed(heap, a, [](const std::string& t, size_t i) { return absl::ascii_tolower(t[i]); });
}
Value Upper(Heap& heap, const Arguments& a) {
  return Changed(heap, a, [](const std::string& t, size_t i) { return absl::ascii_toupper(t[i]); });
}
Value Capitalize(Heap& heap, const Arguments& a) {
  return Changed(heap, a, [](const std::string& t, size_t i) {
    return i == 0 ? absl::ascii_toupper(t[i]) : absl::ascii_tolower(t[i]);
  });
}
// The method: letters after what is none.
Value TitleOfLetters(Heap& heap, const Arguments& a) {
  return Changed(heap, a, [](const std::string& t, size_t i) {
    const bool within = i > 0 && absl::ascii_isalpha(t[i - 1]);
    return within ? absl::ascii_tolower(t[i]) : absl::ascii_toupper(t[i]);
  });
}
// The filter: what begins words, which an apostrophe does not.
Value Title(Heap& heap, const Arguments& a) {
  return Changed(heap, a, [](const std::string& t, size_t i) {
    const bool first = i == 0 || absl::ascii_isspace(t[i - 1]) ||
                       absl::StrContains("-({[<", absl::string_view(t).substr(i - 1, 1));
    return first ? absl::ascii_toupper(t[i]) : absl::ascii_tolower(t[i]);
  });
}

Value Replace(Heap& heap, const Arguments& a) {
  const Text& t = Own(heap, a);
  const Value with = ArgumentAt(a, 2, "new"), times = ArgumentAt(a, 3, "count");
  const absl::string_view word = Word(heap, a.plain, 1);
  if (!with.is(Kind::kText)) return heap.Fail("replace wants two texts");
  if (word.empty()) return heap.Fail("nothing cannot be replaced");
  if (!heap.Search(t, word)) return {};
  int64_t left = times.is(Kind::kInt) && times.number >= 0 ? times.number : INT64_MAX;
  Text out;
  size_t from = 0;
  for (size_t at; left-- > 0 && (at = t.view().find(word, from)) != t.bytes.npos;) {
    if (!heap.Charge(2 * (at - from + with.text->size())) || !heap.Step()) return {};
    out.Append(t.Part(from, at));
    out.Append(*with.text);
    from = at + word.size();
  }
  out.Append(t.Part(from, t.size()));
  return heap.Make(std::move(out));
}

Value JoinFilter(Heap& heap, const Arguments& a) {
  List items = ItemsOf(heap, a.plain[0]);
  const Value attribute = ArgumentAt(a, 2, "attribute");
  if (!attribute.is(Kind::kUndefined)) {
    for (Value& v : items) v = AlongPath(heap, v, attribute);
  }
  const Value by = ArgumentAt(a, 1, "d");
  return heap.Make(JoinedBy(heap, items, by.is(Kind::kText) ? *by.text : Text()));
}

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

Builtin Method(absl::string_view name) {
  constexpr std::pair<absl::string_view, Builtin> kAll[] = {{"strip", Strip},
                                                            {"lstrip", StripBegin},
                                                            {"rstrip", StripEnd},
                                                            {"split", Split},
                                                            {"rsplit", SplitFromEnd},
                                                            {"splitlines", Lines},
                                                            {"startswith", Begins},
                                                            {"endswith", Ends},
                                                            {"lower", Lower},
                                                            {"upper", Upper},
                                                            {"capitalize", Capitalize},
                                                            {"title", TitleOfLetters},
                                                            {"replace", Replace},
                                                            {"join", Join},
                                                            {"find", Find},
                                                            {"rfind", FindLast},
                                                            {"index", Index},
                                                            {"count", Count},
                                                            {"format", Format},
                                                            {"isdigit", IsDigits},
                                                            {"removeprefix", WithoutBegin},
                                                            {"removesuffix", WithoutEnd}};
  for (const auto& [known, function] : kAll) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace texts
}  // namespace tessera::llm::jinja
