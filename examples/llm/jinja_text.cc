// Where texts are cut, searched and put together.
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

const Text& Own(Heap& heap, const Arguments& a) {
  static const Text* const none = new Text;
  if (a.plain[0].is(Kind::kText)) return *a.plain[0].text;
  const Value shown = heap.Make(heap.Shown(a.plain[0]));
  return shown.is(Kind::kText) ? *shown.text : *none;
}
const Text& Whole(Heap& heap, const Arguments& a) {
  static const Text* const none = new Text;
  const Text& t = Own(heap, a);
  return heap.Read(t.size()) ? t : *none;
}
absl::string_view Word(Heap& heap, const List& all, size_t at) {
  if (at >= all.size() || !all[at].is(Kind::kText)) heap.Fail("a method of texts wants a text");
  return !heap.failed() && heap.Read(all[at].bytes().size()) ? all[at].bytes() : "";
}

namespace {

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
Value Strip(Heap& heap, const Arguments& a) { return Stripped(heap, a, true, true); }
Value StripBegin(Heap& heap, const Arguments& a) { return Stripped(heap, a, true, false); }
Value StripEnd(Heap& heap, const Arguments& a) { return Stripped(heap, a, false, true); }

// The part of a text between two arguments, which may be left out, and where it begins.
struct Window {
  absl::string_view bytes;
  int64_t begin = 0;
  bool empty = false;  // it begins behind the end: not even nothing is in it
};
Window WindowOf(Heap& heap, const Arguments& a) {
  const Text& t = Own(heap, a);
  Window out = {t.view()};
  if (a.plain.size() < 3 || !heap.Read(t.size())) return out;
  const std::vector<Character> all = Characters(t.bytes);
  const auto size = static_cast<int64_t>(all.size()) - 1;
  const auto bound = [&](size_t at, int64_t otherwise) {
    if (at >= a.plain.size() || !a.plain[at].is(Kind::kInt)) return otherwise;
    const int64_t n = a.plain[at].number;
    return n < 0 ? std::max<int64_t>(n + size, 0) : n;
  };
  out.begin = bound(2, 0);
  const int64_t end = std::min(bound(3, size), size);
  out.empty = out.begin > size;
  if (out.begin > end) {
    out.bytes = {};
    out.empty = true;
    return out;
  }
  const size_t from = all[static_cast<size_t>(out.begin)].begin;
  out.bytes = out.bytes.substr(from, all[static_cast<size_t>(end)].begin - from);
  return out;
}

// Whether it has the word that is asked for, or one of a list, at an end.
template <typename F>
Value AtEnd(Heap& heap, const Arguments& a, F&& has) {
  const Window in = WindowOf(heap, a);
  const bool many = a.plain.size() > 1 && a.plain[1].is(Kind::kList);
  const List& words = many ? *a.plain[1].list : a.plain;
  bool any = false;
  for (size_t i = many ? 0 : 1; i < (many ? words.size() : 2) && !any; ++i) {
    any = has(in.bytes, Word(heap, words, i)) && !in.empty;
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

// The words between white space; after so many splits the rest is as it is.
Value SplitBySpace(Heap& heap, const Text& t, int64_t left, bool from_end) {
  if (!heap.Read(t.size())) return {};
  const std::vector<Character> all = Characters(t.bytes);
  const size_t size = all.size() - 1;
  const auto space = [&](size_t i) { return IsWhitespace(all[from_end ? size - 1 - i : i].code); };
  const auto part = [&](size_t from, size_t to) {  // of characters, counted from where it begins
    return heap.Make(from_end ? t.Part(all[size - to].begin, all[size - from].begin)
                              : t.Part(all[from].begin, all[to].begin));
  };
  List out;
  for (size_t i = 0; i < size && heap.Step();) {
    if (space(i)) {
      ++i;
      continue;
    }
    size_t end = left-- > 0 ? i : size;
    while (end < size && !space(end)) ++end;
    out.push_back(part(i, end));
    i = end;
  }
  if (from_end) std::reverse(out.begin(), out.end());
  return heap.Make(std::move(out));
}

// By white space, or by a word, at most so many times; from the end, or the begin.
Value SplitBy(Heap& heap, const Arguments& a, bool from_end) {
  const Text& t = Own(heap, a);
  const Value by = ArgumentAt(a, 1, "sep"), times = ArgumentAt(a, 2, "maxsplit");
  int64_t left = times.is(Kind::kInt) && times.number >= 0 ? times.number : INT64_MAX;
  if (!by.is(Kind::kText)) return SplitBySpace(heap, t, left, from_end);
  const absl::string_view word = by.bytes();
  if (word.empty()) return heap.Fail("a text cannot be split by nothing");
  if (!heap.Search(t.size(), word)) return {};
  List out;
  size_t begin = 0, end = t.size();  // of what is left
  while (left-- > 0 && heap.Step()) {
    const size_t at = from_end ? t.view().substr(0, end).rfind(word) : t.view().find(word, begin);
    if (at == t.bytes.npos) break;
    out.push_back(heap.Make(from_end ? t.Part(at + word.size(), end) : t.Part(begin, at)));
    (from_end ? end : begin) = from_end ? at : at + word.size();
  }
  out.push_back(heap.Make(t.Part(begin, end)));
  if (from_end) std::reverse(out.begin(), out.end());
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
  const Window in = WindowOf(heap, a);
  const absl::string_view word = Word(heap, a.plain, 1);
  if (!heap.Search(in.bytes.size(), word)) return {};
  const size_t at = in.empty ? in.bytes.npos : last ? in.bytes.rfind(word) : in.bytes.find(word);
  return Heap::Int(at == in.bytes.npos ? -1 : in.begin + LengthOf(heap, in.bytes.substr(0, at)));
}
Value Find(Heap& heap, const Arguments& a) { return Found(heap, a, false); }
Value FindLast(Heap& heap, const Arguments& a) { return Found(heap, a, true); }
Value Surely(Heap& heap, const Value& at) {
  return at.number < 0 ? heap.Fail("index: the text is not found") : at;
}
Value Index(Heap& heap, const Arguments& a) { return Surely(heap, Found(heap, a, false)); }
Value IndexLast(Heap& heap, const Arguments& a) { return Surely(heap, Found(heap, a, true)); }
Value Count(Heap& heap, const Arguments& a) {
  const Window in = WindowOf(heap, a);
  const absl::string_view word = Word(heap, a.plain, 1);
  if (!heap.Search(in.bytes.size(), word) || in.empty) return Heap::Int(0);
  if (word.empty()) return Heap::Int(LengthOf(heap, in.bytes) + 1);
  int64_t count = 0;
  for (size_t at = in.bytes.find(word); at != in.bytes.npos && heap.Step();
       at = in.bytes.find(word, at + word.size())) {
    ++count;
  }
  return Heap::Int(count);
}
// Before a word, the word, and after it.
Value Partitioned(Heap& heap, const Arguments& a, bool last) {
  const Text& t = Own(heap, a);
  const absl::string_view word = Word(heap, a.plain, 1);
  if (word.empty()) return heap.Fail("a text cannot be split by nothing");
  if (!heap.Search(t.size(), word)) return {};
  size_t at = last ? t.view().rfind(word) : t.view().find(word), size = word.size();
  if (at == t.bytes.npos) {
    at = last ? 0 : t.size();
    size = 0;
  }
  return heap.Make(List{heap.Make(t.Part(0, at)), heap.Make(t.Part(at, at + size)),
                        heap.Make(t.Part(at + size, t.size()))},
                   /*tuple=*/true);
}
Value Partition(Heap& heap, const Arguments& a) { return Partitioned(heap, a, false); }
Value PartitionLast(Heap& heap, const Arguments& a) { return Partitioned(heap, a, true); }

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

Value Replace(Heap& heap, const Arguments& a) {
  const Text& t = Own(heap, a);
  const Value with = ArgumentAt(a, 2, "new"), times = ArgumentAt(a, 3, "count");
  const absl::string_view word = Word(heap, a.plain, 1);
  if (!with.is(Kind::kText)) return heap.Fail("replace wants two texts");
  if (!heap.Search(t.size(), word)) return {};
  int64_t left = times.is(Kind::kInt) && times.number >= 0 ? times.number : INT64_MAX;
  // Nothing is before each character, and at the end.
  const auto next = [&](size_t from, bool first) {
    if (!word.empty()) return t.view().find(word, from);
    size_t at = from + (first ? 0 : 1);
    while (at < t.size() && (t.bytes[at] & 0xC0) == 0x80) ++at;
    return at <= t.size() ? at : t.bytes.npos;
  };
  Text out;
  size_t from = 0;
  bool first = true;
  for (size_t at; left-- > 0 && (at = next(from, first)) != t.bytes.npos; first = false) {
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

}  // namespace

Builtin Method(absl::string_view name) {
  constexpr Entry kAll[] = {{"strip", Strip},
                            {"lstrip", StripBegin},
                            {"rstrip", StripEnd},
                            {"split", Split},
                            {"rsplit", SplitFromEnd},
                            {"splitlines", Lines},
                            {"startswith", Begins},
                            {"endswith", Ends},
                            {"replace", Replace},
                            {"join", Join},
                            {"find", Find},
                            {"rfind", FindLast},
                            {"index", Index},
                            {"rindex", IndexLast},
                            {"count", Count},
                            {"partition", Partition},
                            {"rpartition", PartitionLast},
                            {"removeprefix", WithoutBegin},
                            {"removesuffix", WithoutEnd}};
  for (const auto more : {MethodOfWords, MethodOfForms}) {
    if (const Builtin f = more(name)) return f;
  }
  return jinja::Find(kAll, name);
}

Builtin Filter(absl::string_view name) {
  constexpr Entry kAll[] = {{"trim", Strip}, {"replace", Replace}, {"join", JoinFilter}};
  for (const auto more : {FilterOfWords, FilterOfForms}) {
    if (const Builtin f = more(name)) return f;
  }
  return jinja::Find(kAll, name);
}

}  // namespace texts
}  // namespace tessera::llm::jinja
