// Filters and methods of lists and dictionaries.
#include "examples/llm/jinja_lists.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "examples/llm/jinja_functions.h"
#include "examples/llm/jinja_text.h"

namespace tessera::llm::jinja::lists {
namespace {

// What these filters go through: nothing has no elements.
List AnyOf(Heap& heap, const Value& v) { return IsTrue(v) ? ItemsOf(heap, v) : List(); }

Value Map(Heap& heap, const Arguments& a) {
  const Value* attribute = Named(a, "attribute");
  const Value* given = Named(a, "default");
  const Value otherwise = given != nullptr ? *given : Value();
  size_t copied = a.plain.size() * sizeof(Value);
  for (const auto& [name, value] : a.named) copied += name.size() + sizeof(value);
  List out;
  for (const Value& v : AnyOf(heap, a.plain[0])) {
    if (attribute != nullptr) {
      out.push_back(AlongPath(heap, v, *attribute, otherwise));
    } else if (a.plain.size() > 1) {
      Arguments own = {{v}, a.named};
      own.plain.insert(own.plain.end(), a.plain.begin() + 2, a.plain.end());
      out.push_back(CallFilter(heap, a.plain[1].bytes(), own));
    } else {
      return heap.Fail("map wants an attribute or a filter");
    }
    if (!heap.Read(copied)) return {};
  }
  return heap.Make(std::move(out));
}

Value Selected(Heap& heap, const Arguments& a, bool by_attribute, bool wanted) {
  const size_t test = by_attribute ? 2 : 1;
  if (by_attribute && a.plain.size() < 2) return heap.Fail("wants an attribute");
  List out;
  for (const Value& v : AnyOf(heap, a.plain[0])) {
    Arguments own = {{by_attribute ? AlongPath(heap, v, a.plain[1]) : v}, {}};
    bool holds = IsTrue(own.plain[0]);
    if (a.plain.size() > test) {
      own.plain.insert(own.plain.end(), a.plain.begin() + static_cast<int64_t>(test) + 1,
                       a.plain.end());
      holds = CallTest(heap, a.plain[test].bytes(), own);
    }
    if (!heap.Read(a.plain.size() * sizeof(Value))) return {};
    if (holds == wanted) out.push_back(v);
  }
  return heap.Make(std::move(out));
}
Value Select(Heap& heap, const Arguments& a) { return Selected(heap, a, false, true); }
Value Reject(Heap& heap, const Arguments& a) { return Selected(heap, a, false, false); }
Value SelectAttr(Heap& heap, const Arguments& a) { return Selected(heap, a, true, true); }
Value RejectAttr(Heap& heap, const Arguments& a) { return Selected(heap, a, true, false); }

// What a value is compared by: itself, or what a path leads to, or several, "a,b"; texts in any
// case where that is asked for.
Value KeyOf(Heap& heap, const Value& v, const Value& path, bool any_case,
            const Value& otherwise = {}) {
  const auto key_by = [&](const Value& to) {
    const bool own = to.is(Kind::kUndefined) || to.is(Kind::kNone);
    const Value key = own ? v : AlongPath(heap, v, to, otherwise);
    return any_case && key.is(Kind::kText) ? heap.Make(absl::AsciiStrToLower(key.bytes())) : key;
  };
  if (!absl::StrContains(path.bytes(), ',')) return key_by(path);
  List all;
  for (const absl::string_view part : absl::StrSplit(path.bytes(), ',')) {
    if (heap.failed()) return {};
    all.push_back(key_by(heap.Make(part)));
  }
  return heap.Make(std::move(all));
}

// Merge sort, as a comparison that fails is no order; what is equal stays in order either way.
void SortBy(Heap& heap, List* list, bool any_case, const Value& path, bool reverse,
            const Value& otherwise = {}) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& v : *list) {
    keyed.emplace_back(KeyOf(heap, v, path, any_case, otherwise), v);
  }
  const int sign = reverse ? -1 : 1;
  for (size_t width = 1; width < keyed.size() && !heap.failed(); width *= 2) {
    std::vector<std::pair<Value, Value>> next;
    for (size_t begin = 0; begin < keyed.size(); begin += 2 * width) {
      size_t i = begin, j = std::min(begin + width, keyed.size());
      const size_t middle = j, end = std::min(j + width, keyed.size());
      while (i < middle || j < end) {
        const bool second =
            i == middle || (j < end && heap.Compare(keyed[j].first, keyed[i].first) * sign < 0);
        next.push_back(keyed[second ? j++ : i++]);
      }
    }
    keyed = std::move(next);
  }
  for (size_t i = 0; i < keyed.size(); ++i) (*list)[i] = keyed[i].second;
}

Value Sort(Heap& heap, const Arguments& a) {
  List out = ItemsOf(heap, a.plain[0]);
  SortBy(heap, &out, !IsTrue(ArgumentAt(a, 2, "case_sensitive")), ArgumentAt(a, 3, "attribute"),
         IsTrue(ArgumentAt(a, 1, "reverse")));
  return heap.Make(std::move(out));
}

Value Items(Heap& heap, const Arguments& a) {
  List out;
  if (a.plain[0].is(Kind::kUndefined)) return heap.Make(std::move(out));
  if (!a.plain[0].is(Kind::kDict)) return heap.Fail("items of ", NameOf(a.plain[0].kind));
  for (const auto& [key, value] : *a.plain[0].dict) {
    out.push_back(heap.Make(List{key, value}, /*tuple=*/true));
  }
  return heap.Make(std::move(out));
}

Value DictSort(Heap& heap, const Arguments& a) {
  const Value pairs = Items(heap, a);
  if (heap.failed()) return {};
  List out = *pairs.list;
  const bool by_value = ArgumentAt(a, 2, "by").bytes() == "value";
  SortBy(heap, &out, !IsTrue(ArgumentAt(a, 1, "case_sensitive")), Heap::Int(by_value ? 1 : 0),
         IsTrue(ArgumentAt(a, 3, "reverse")));
  return heap.Make(std::move(out));
}

Value ToList(Heap& heap, const Arguments& a) { return heap.Make(ItemsOf(heap, a.plain[0])); }
Value Keys(Heap& heap, const Arguments& a) {
  return a.plain[0].is(Kind::kDict) ? ToList(heap, a) : heap.Fail("keys of no dictionary");
}
Value ValuesOf(Heap& heap, const Arguments& a) {
  if (!a.plain[0].is(Kind::kDict)) return heap.Fail("values of no dictionary");
  List out;
  for (const auto& item : *a.plain[0].dict) out.push_back(item.second);
  return heap.Make(std::move(out));
}
Value Get(Heap& heap, const Arguments& a) {
  if (!a.plain[0].is(Kind::kDict) || a.plain.size() < 2) return heap.Fail("get of no dictionary");
  const Value found = ItemOf(heap, a.plain[0], a.plain[1]);
  if (!found.is(Kind::kUndefined)) return found;
  return a.plain.size() > 2 ? a.plain[2] : Heap::None();
}

Value Unique(Heap& heap, const Arguments& a) {
  const bool any_case = !IsTrue(ArgumentAt(a, 1, "case_sensitive"));
  List out, keys;
  for (const Value& v : ItemsOf(heap, a.plain[0])) {
    const Value key = KeyOf(heap, v, ArgumentAt(a, 2, "attribute"), any_case);
    const bool known = std::any_of(keys.begin(), keys.end(),
                                   [&](const Value& other) { return heap.Equal(key, other); });
    if (heap.failed()) return {};
    if (known) continue;
    keys.push_back(key);
    out.push_back(v);
  }
  return heap.Make(std::move(out));
}

// Of what has an order; of what is undefined nothing.
Value AtEnd(Heap& heap, const Value& v, bool last) {
  const Value of = v.is(Kind::kText) || v.is(Kind::kList) ? v : heap.Make(ItemsOf(heap, v));
  return heap.failed() ? Value() : ItemOf(heap, of, Heap::Int(last ? -1 : 0));
}
Value First(Heap& heap, const Arguments& a) { return AtEnd(heap, a.plain[0], false); }
Value Last(Heap& heap, const Arguments& a) { return AtEnd(heap, a.plain[0], true); }
Value Reverse(Heap& heap, const Arguments& a) {
  return SliceOf(heap, a.plain[0].is(Kind::kText) ? a.plain[0] : ToList(heap, a), Heap::None(),
                 Heap::None(), Heap::Int(-1));
}

Value Extreme(Heap& heap, const Arguments& a, int sign) {
  const bool any_case = !IsTrue(ArgumentAt(a, 1, "case_sensitive"));
  Value best, most;
  bool first = true;
  for (const Value& v : ItemsOf(heap, a.plain[0])) {
    const Value key = KeyOf(heap, v, ArgumentAt(a, 2, "attribute"), any_case);
    if (first || heap.Compare(key, most) * sign > 0) {
      best = v;
      most = key;
    }
    first = false;
  }
  return best;
}
Value Min(Heap& heap, const Arguments& a) { return Extreme(heap, a, -1); }
Value Max(Heap& heap, const Arguments& a) { return Extreme(heap, a, 1); }

Value Sum(Heap& heap, const Arguments& a) {
  const Value attribute = ArgumentAt(a, 1, "attribute"), start = ArgumentAt(a, 2, "start");
  Value sum = start.is(Kind::kUndefined) ? Heap::Int(0) : start;
  for (const Value& v : ItemsOf(heap, a.plain[0])) {
    sum = Arithmetic(heap, "+", sum, KeyOf(heap, v, attribute, false));
  }
  return sum;
}

// {key, those that have it}, in the order of keys.
Value GroupBy(Heap& heap, const Arguments& a) {
  const Value path = ArgumentAt(a, 1, "attribute"), otherwise = ArgumentAt(a, 2, "default");
  if (path.is(Kind::kUndefined)) return heap.Fail("groupby wants an attribute");
  const bool any_case = !IsTrue(ArgumentAt(a, 3, "case_sensitive"));
  List sorted = ItemsOf(heap, a.plain[0]), out, group;
  SortBy(heap, &sorted, any_case, path, /*reverse=*/false, otherwise);
  for (size_t i = 0; i < sorted.size() && !heap.failed(); ++i) {
    group.push_back(sorted[i]);
    const Value key = KeyOf(heap, sorted[i], path, any_case, otherwise);
    const bool ends = i + 1 == sorted.size() ||
                      !heap.Equal(key, KeyOf(heap, sorted[i + 1], path, any_case, otherwise));
    if (!ends) continue;
    const Value shown = KeyOf(heap, group[0], path, /*any_case=*/false, otherwise);
    Value pair = heap.Make(List{shown, heap.Make(std::exchange(group, {}))}, /*tuple=*/true);
    pair.group = true;
    out.push_back(pair);
  }
  return heap.Make(std::move(out));
}

// A count from 1 on, the first argument; or 0, and it fails.
size_t CountOf(Heap& heap, const Arguments& a, absl::string_view name, int64_t most,
               absl::string_view wanted) {
  const Value count = ArgumentAt(a, 1, name);
  if (count.is(Kind::kInt) && count.number >= 1 && count.number <= most) {
    return static_cast<size_t>(count.number);
  }
  heap.Fail(wanted);
  return 0;
}
bool IsGiven(const Value& fill) { return !fill.is(Kind::kUndefined) && !fill.is(Kind::kNone); }

// In rows of so many, the last filled up where that is asked for.
Value Batch(Heap& heap, const Arguments& a) {
  const Value fill = ArgumentAt(a, 2, "fill_with");
  constexpr int64_t kLongest = 1'000'000;
  const size_t most = CountOf(heap, a, "linecount", kLongest, "batch wants a length");
  if (heap.failed()) return {};
  List out, row;
  for (const Value& v : ItemsOf(heap, a.plain[0])) {
    row.push_back(v);
    if (row.size() == most) out.push_back(heap.Make(std::exchange(row, {})));
  }
  if (row.empty()) return heap.Make(std::move(out));
  if (IsGiven(fill)) {
    if (!heap.Charge((most - row.size()) * sizeof(Value))) return {};
    row.resize(most, fill);
  }
  out.push_back(heap.Make(std::move(row)));
  return heap.Make(std::move(out));
}

// In so many parts, the first of which are longer by one where it cannot be even.
Value Slices(Heap& heap, const Arguments& a) {
  const Value fill = ArgumentAt(a, 2, "fill_with");
  constexpr int64_t kMost = 100'000;
  const size_t parts = CountOf(heap, a, "slices", kMost, "slice wants a number of parts");
  const List all = ItemsOf(heap, a.plain[0]);
  if (heap.failed()) return {};
  List out;
  for (size_t i = 0, begin = 0; i < parts; ++i) {
    const bool longer = i < all.size() % parts;
    const size_t size = all.size() / parts + longer;
    List part(all.begin() + static_cast<int64_t>(begin),
              all.begin() + static_cast<int64_t>(begin + size));
    if (IsGiven(fill) && !longer) part.push_back(fill);
    out.push_back(heap.Make(std::move(part)));
    begin += size;
  }
  return heap.Make(std::move(out));
}

// ---- methods

Value Count(Heap& heap, const Arguments& a) {
  const List& all = *a.plain[0].list;
  if (a.plain.size() < 2) return heap.Fail("count wants a value");
  return Heap::Int(std::count_if(all.begin(), all.end(),
                                 [&](const Value& v) { return heap.Equal(v, a.plain[1]); }));
}
Value Index(Heap& heap, const Arguments& a) {
  const List& all = *a.plain[0].list;
  if (a.plain.size() < 2) return heap.Fail("index wants a value");
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Value& v) { return heap.Equal(v, a.plain[1]); });
  return found == all.end() ? heap.Fail("index: the value is not found")
                            : Heap::Int(found - all.begin());
}
Value Same(Heap&, const Arguments& a) { return a.plain[0]; }  // nothing changes it

Value AboutLoop(Heap& heap, const Arguments& a, absl::string_view name) {
  const Value* about = heap.Find(*a.plain[0].dict, name);
  return about != nullptr ? *about : heap.Fail("a namespace has no such method");
}
// One of them after the other.
Value Cycle(Heap& heap, const Arguments& a) {
  const Value at = AboutLoop(heap, a, "index0");
  if (a.plain.size() < 2) return heap.Fail("cycle wants values");
  return heap.failed() ? at : a.plain[1 + static_cast<size_t>(at.number) % (a.plain.size() - 1)];
}
// Whether they are others than the last time.
Value Changed(Heap& heap, const Arguments& a) {
  AboutLoop(heap, a, "index0");
  if (heap.failed()) return {};
  const Value now = heap.Make(List(a.plain.begin() + 1, a.plain.end()));
  Value& before = a.plain[0].dict->back().second;
  const bool same = before.is(Kind::kList) && heap.Equal(before, now);
  before = now;
  return Heap::Bool(!same);
}

}  // namespace

Builtin Filter(absl::string_view name) {
  constexpr Entry kAll[] = {{"map", Map},         {"select", Select},
                            {"reject", Reject},   {"selectattr", SelectAttr},
                            {"sort", Sort},       {"rejectattr", RejectAttr},
                            {"items", Items},     {"dictsort", DictSort},
                            {"list", ToList},     {"unique", Unique},
                            {"first", First},     {"last", Last},
                            {"reverse", Reverse}, {"min", Min},
                            {"max", Max},         {"sum", Sum},
                            {"groupby", GroupBy}, {"batch", Batch},
                            {"slice", Slices}};
  return Find(kAll, name);
}

Builtin Method(Kind kind, absl::string_view name) {
  constexpr Entry kOfDicts[] = {
      {"get", Get}, {"items", Items}, {"keys", Keys}, {"values", ValuesOf}, {"copy", Same}};
  constexpr Entry kOfLists[] = {{"count", Count}, {"index", Index}, {"copy", Same}};
  constexpr Entry kOfLoops[] = {{"cycle", Cycle}, {"changed", Changed}};
  return kind == Kind::kDict        ? Find(kOfDicts, name)
         : kind == Kind::kList      ? Find(kOfLists, name)
         : kind == Kind::kNamespace ? Find(kOfLoops, name)
                                    : nullptr;
}

}  // namespace tessera::llm::jinja::lists
