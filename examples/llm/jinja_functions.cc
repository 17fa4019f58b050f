// Tables of functions. Those of texts are in jinja_text.cc.
#include "examples/llm/jinja_functions.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "examples/llm/jinja_numbers.h"
#include "examples/llm/jinja_text.h"

namespace tessera::llm::jinja {
namespace {

// ---- of lists

// What these filters go through: nothing has no elements.
List AnyOf(Heap& heap, const Value& v) { return IsTrue(v) ? ItemsOf(heap, v) : List(); }

Value Map(Heap& heap, const Arguments& a) {
  const Value* attribute = Named(a, "attribute");
  const Value otherwise = ArgumentAt(a, 9, "default");
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
Value KeyOf(Heap& heap, const Value& v, const Value& path, bool any_case) {
  const auto key_by = [&](const Value& to) {
    const bool own = to.is(Kind::kUndefined) || to.is(Kind::kNone);
    const Value key = own ? v : AlongPath(heap, v, to);
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
void SortBy(Heap& heap, List* list, bool any_case, const Value& path, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& v : *list) keyed.emplace_back(KeyOf(heap, v, path, any_case), v);
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
  for (const auto& [key, value] : *a.plain[0].dict) out.push_back(heap.Make(List{key, value}));
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

Value Length(Heap& heap, const Arguments& a) {
  const Value& v = a.plain[0];
  if (v.is(Kind::kText)) return Heap::Int(LengthOf(heap, v.bytes()));
  if (v.IsNumber() || v.is(Kind::kNone)) return heap.Fail(NameOf(v.kind), " has no length");
  return Heap::Int(static_cast<int64_t>(ItemsOf(heap, v).size()));
}

// ---- of anything

Value Default(Heap& heap, const Arguments& a) {
  const bool falsy = IsTrue(ArgumentAt(a, 2, "boolean")) && !IsTrue(a.plain[0]);
  if (!falsy && !a.plain[0].is(Kind::kUndefined)) return a.plain[0];
  const bool given = a.plain.size() > 1 || Named(a, "default_value") != nullptr;
  return given ? ArgumentAt(a, 1, "default_value") : heap.Make("");
}
Value Same(Heap&, const Arguments& a) { return a.plain[0]; }
Value String(Heap& heap, const Arguments& a) { return heap.Make(heap.Shown(a.plain[0])); }
Value ToJson(Heap& heap, const Arguments& a) {
  JsonForm form;
  form.ascii = IsTrue(ArgumentAt(a, 1, "ensure_ascii"));
  form.sorted = IsTrue(ArgumentAt(a, 4, "sort_keys"));
  const Value indent = ArgumentAt(a, 2, "indent"), marks = ArgumentAt(a, 3, "separators");
  constexpr int64_t kMostIndent = 16;
  if (indent.is(Kind::kInt)) {
    form.indent = std::string(std::clamp<int64_t>(indent.number, 0, kMostIndent), ' ');
  } else if (indent.is(Kind::kText)) {
    form.indent = std::string(indent.bytes().substr(0, kMostIndent));
  }
  if (form.indent) form.comma.pop_back();  // lines end in no space
  if (marks.is(Kind::kList)) {
    const List& two = *marks.list;
    if (two.size() != 2 || !two[0].is(Kind::kText) || !two[1].is(Kind::kText)) {
      return heap.Fail("tojson: separators are two texts");
    }
    form.comma = std::string(two[0].bytes());
    form.colon = std::string(two[1].bytes());
  }
  return heap.Make(heap.Json(a.plain[0], form));
}
struct Entry {
  absl::string_view name;
  Builtin function;
};
constexpr Entry kFilters[] = {{"map", Map},
                              {"select", Select},
                              {"reject", Reject},
                              {"selectattr", SelectAttr},
                              {"sort", Sort},
                              {"rejectattr", RejectAttr},
                              {"items", Items},
                              {"dictsort", DictSort},
                              {"list", ToList},
                              {"unique", Unique},
                              {"first", First},
                              {"last", Last},
                              {"reverse", Reverse},
                              {"min", Min},
                              {"max", Max},
                              {"sum", Sum},
                              {"length", Length},
                              {"count", Length},
                              {"default", Default},
                              {"d", Default},
                              {"safe", Same},
                              {"string", String},
                              {"tojson", ToJson},
                              {"int", numbers::ToInt},
                              {"float", numbers::ToFloat},
                              {"abs", numbers::Abs},
                              {"round", numbers::Round},
                              {"trim", texts::Strip},
                              {"lower", texts::Lower},
                              {"upper", texts::Upper},
                              {"capitalize", texts::Capitalize},
                              {"title", texts::Title},
                              {"replace", texts::Replace},
                              {"join", texts::JoinFilter},
                              {"indent", texts::Indent}};
constexpr Entry kDictMethods[] = {
    {"get", Get}, {"items", Items}, {"keys", Keys}, {"values", ValuesOf}};

template <size_t N>
Builtin Find(const Entry (&table)[N], absl::string_view name) {
  for (const Entry& e : table) {
    if (e.name == name) return e.function;
  }
  return nullptr;
}

// ---- functions

Value Range(Heap& heap, const Arguments& a) {
  int64_t n[3] = {0, 0, 1};
  if (a.plain.empty() || a.plain.size() > 3) return heap.Fail("range wants one to three integers");
  for (size_t i = 0; i < a.plain.size(); ++i) {
    if (!a.plain[i].is(Kind::kInt)) return heap.Fail("range wants integers");
    n[a.plain.size() == 1 ? 1 : i] = a.plain[i].number;
  }
  constexpr int64_t kMost = 100'000;
  for (const int64_t x : n) {
    if (std::abs(x / 2) > (int64_t{1} << 60)) return heap.Fail("a range is too long");
  }
  if (n[2] == 0) return heap.Fail("a range in steps of 0");
  List out;
  for (int64_t i = n[0]; n[2] > 0 ? i < n[1] : i > n[1]; i += n[2]) {
    out.push_back(Heap::Int(i));
    if (out.size() > kMost) return heap.Fail("a range is longer than ", kMost);
  }
  return heap.Make(std::move(out));
}
// Of a dictionary or pairs, and then what is named.
Dict EntriesOf(Heap& heap, const Arguments& a) {
  Dict out;
  if (!a.plain.empty() && a.plain[0].is(Kind::kDict)) {
    if (heap.Charge(a.plain[0].dict->size() * 2 * sizeof(Value))) out = *a.plain[0].dict;
  } else if (!a.plain.empty()) {
    for (const Value& pair : ItemsOf(heap, a.plain[0])) {
      const List two = ItemsOf(heap, pair);
      if (two.size() != 2) heap.Fail("a dictionary is made of pairs");
      if (heap.failed()) return out;
      heap.Put(out, two[0], two[1]);
    }
  }
  for (const auto& [name, value] : a.named) heap.Put(out, heap.Make(name), value);
  return out;
}
Value Namespace(Heap& heap, const Arguments& a) {
  return heap.Make(EntriesOf(heap, a), Kind::kNamespace);
}
Value DictOf(Heap& heap, const Arguments& a) { return heap.Make(EntriesOf(heap, a)); }
Value Raise(Heap& heap, const Arguments& a) {
  return heap.Fail("the template says: ",
                   a.plain.empty() ? std::string() : heap.Shown(a.plain[0]).bytes);
}
Value Now(Heap& heap, const Arguments& a) {
  if (a.plain.empty() || !a.plain[0].is(Kind::kText)) return heap.Fail("strftime_now wants a form");
  const std::string form(a.plain[0].bytes());
  char out[256];
  if (form.size() > 64) return heap.Fail("strftime_now: the form is too long");
  return heap.Make(
      absl::string_view(out, std::strftime(out, sizeof(out), form.c_str(), &heap.today)));
}

}  // namespace

const Value* Named(const Arguments& a, absl::string_view name) {
  for (const auto& [n, value] : a.named) {
    if (n == name) return &value;
  }
  return nullptr;
}

Value ArgumentAt(const Arguments& a, size_t at, absl::string_view name) {
  if (at < a.plain.size()) return a.plain[at];
  const Value* v = Named(a, name);
  return v == nullptr ? Value() : *v;
}

Value CallFilter(Heap& heap, absl::string_view name, const Arguments& a) {
  if (!heap.Step()) return {};
  const Builtin f = Find(kFilters, name);
  return f == nullptr ? heap.Fail("the filter '", name, "' is not known") : f(heap, a);
}

Value CallMethod(Heap& heap, absl::string_view name, const Arguments& a) {
  if (!heap.Step()) return {};
  const Kind kind = a.plain[0].kind;
  const Builtin f = kind == Kind::kText   ? texts::Method(name)
                    : kind == Kind::kDict ? Find(kDictMethods, name)
                                          : nullptr;
  if (f == nullptr) return heap.Fail(NameOf(kind), " has no method '", name, "'");
  return f(heap, a);
}

bool CallTest(Heap& heap, absl::string_view name, const Arguments& a) {
  const Value& v = a.plain[0];
  const auto is = [&](std::initializer_list<Kind> kinds) {
    return std::count(kinds.begin(), kinds.end(), v.kind) > 0;
  };
  if (name == "defined") return !is({Kind::kUndefined});
  if (name == "undefined") return is({Kind::kUndefined});
  if (name == "none") return is({Kind::kNone});
  if (name == "string") return is({Kind::kText});
  if (name == "mapping") return is({Kind::kDict});
  if (name == "boolean") return is({Kind::kBool});
  if (name == "integer") return is({Kind::kInt});
  if (name == "float") return is({Kind::kFloat});
  if (name == "number") return v.IsNumber();
  if (name == "callable") return is({Kind::kFunction});
  if (name == "true") return is({Kind::kBool}) && v.number == 1;
  if (name == "false") return is({Kind::kBool}) && v.number == 0;
  if (name == "sequence" || name == "iterable") {
    return is({Kind::kUndefined, Kind::kText, Kind::kList, Kind::kDict});
  }
  if (name == "lower" || name == "upper") {
    const absl::string_view text = v.bytes();
    if (!heap.Read(text.size())) return false;
    const auto other = name == "lower" ? absl::ascii_isupper : absl::ascii_islower;
    return std::none_of(text.begin(), text.end(), other) &&
           std::any_of(text.begin(), text.end(), absl::ascii_isalpha);
  }
  if (name == "odd" || name == "even") {
    if (!is({Kind::kInt})) heap.Fail("odd and even are of integers");
    return (v.number % 2 != 0) == (name == "odd");
  }
  if (a.plain.size() < 2) {
    heap.Fail("the test '", name, "' is not known");
    return false;
  }
  const Value& other = a.plain[1];
  if (name == "equalto" || name == "eq" || name == "==") return heap.Equal(v, other);
  if (name == "ne" || name == "!=") return !heap.Equal(v, other);
  if (name == "sameas") {
    if (is({Kind::kList})) return other.is(Kind::kList) && v.list == other.list;
    if (is({Kind::kDict})) return other.is(Kind::kDict) && v.dict == other.dict;
    return v.kind == other.kind && heap.Equal(v, other);
  }
  if (name == "in") return Contains(heap, other, v);
  if (name == "gt" || name == "greaterthan" || name == ">") return heap.Compare(v, other) > 0;
  if (name == "ge" || name == ">=") return heap.Compare(v, other) >= 0;
  if (name == "lt" || name == "lessthan" || name == "<") return heap.Compare(v, other) < 0;
  if (name == "le" || name == "<=") return heap.Compare(v, other) <= 0;
  if (name == "divisibleby") {
    if (!is({Kind::kInt}) || !other.is(Kind::kInt) || other.number == 0 || other.number == -1) {
      heap.Fail("divisibleby is of integers");
      return false;
    }
    return v.number % other.number == 0;
  }
  heap.Fail("the test '", name, "' is not known");
  return false;
}

Dict Functions(Heap& heap) {
  constexpr Entry kAll[] = {{"range", Range},
                            {"namespace", Namespace},
                            {"dict", DictOf},
                            {"raise_exception", Raise},
                            {"strftime_now", Now}};
  Dict out;
  for (const Entry& e : kAll) out.emplace_back(heap.Make(e.name), Heap::Function(e.function));
  return out;
}

}  // namespace tessera::llm::jinja
