// Tables of functions. Those of texts are in jinja_text.cc.
#include "examples/llm/jinja_functions.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "examples/llm/jinja_text.h"

namespace tessera::llm::jinja {
namespace {

// ---- of lists

// The attribute, "a.b" of a within b, or the index, that several filters go by.
Value Attribute(Heap& heap, Value v, const Value& path) {
  if (!path.is(Kind::kText)) return ItemOf(heap, v, path);
  for (absl::string_view rest = path.bytes(); !heap.failed();) {
    const size_t dot = rest.find('.');
    v = ItemOf(heap, v, heap.Make(rest.substr(0, dot)));
    if (dot == rest.npos) break;
    rest.remove_prefix(dot + 1);
  }
  return v;
}

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
      out.push_back(Attribute(heap, v, *attribute));
      if (out.back().is(Kind::kUndefined)) out.back() = otherwise;
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
    Arguments own = {{by_attribute ? Attribute(heap, v, a.plain[1]) : v}, {}};
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

// Merge sort, as a comparison that fails is no order.
void SortBy(Heap& heap, List* list, bool any_case, const Value& path) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& v : *list) {
    Value key = path.is(Kind::kUndefined) ? v : Attribute(heap, v, path);
    if (any_case && key.is(Kind::kText)) key = heap.Make(absl::AsciiStrToLower(key.bytes()));
    keyed.emplace_back(key, v);
  }
  for (size_t width = 1; width < keyed.size() && !heap.failed(); width *= 2) {
    std::vector<std::pair<Value, Value>> next;
    for (size_t begin = 0; begin < keyed.size(); begin += 2 * width) {
      size_t i = begin, j = std::min(begin + width, keyed.size());
      const size_t middle = j, end = std::min(j + width, keyed.size());
      while (i < middle || j < end) {
        const bool second =
            i == middle || (j < end && heap.Compare(keyed[j].first, keyed[i].first) < 0);
        next.push_back(keyed[second ? j++ : i++]);
      }
    }
    keyed = std::move(next);
  }
  for (size_t i = 0; i < keyed.size(); ++i) (*list)[i] = keyed[i].second;
}

Value Sort(Heap& heap, const Arguments& a) {
  List out = ItemsOf(heap, a.plain[0]);
  SortBy(heap, &out, !IsTrue(ArgumentAt(a, 2, "case_sensitive")), ArgumentAt(a, 3, "attribute"));
  if (IsTrue(ArgumentAt(a, 1, "reverse"))) std::reverse(out.begin(), out.end());
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
  SortBy(heap, &out, !IsTrue(ArgumentAt(a, 1, "case_sensitive")), Heap::Int(by_value ? 1 : 0));
  if (IsTrue(ArgumentAt(a, 3, "reverse"))) std::reverse(out.begin(), out.end());
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
  List out;
  for (const Value& v : ItemsOf(heap, a.plain[0])) {
    const bool known = std::any_of(out.begin(), out.end(),
                                   [&](const Value& other) { return heap.Equal(v, other); });
    if (!known) out.push_back(v);
    if (heap.failed()) return {};
  }
  return heap.Make(std::move(out));
}

Value First(Heap& heap, const Arguments& a) { return ItemOf(heap, a.plain[0], Heap::Int(0)); }
Value Last(Heap& heap, const Arguments& a) { return ItemOf(heap, a.plain[0], Heap::Int(-1)); }
Value Reverse(Heap& heap, const Arguments& a) {
  return SliceOf(heap, a.plain[0].is(Kind::kText) ? a.plain[0] : ToList(heap, a), Heap::None(),
                 Heap::None(), Heap::Int(-1));
}

Value Extreme(Heap& heap, const Arguments& a, int sign) {
  Value best;
  bool first = true;
  for (const Value& v : ItemsOf(heap, a.plain[0])) {
    if (first || heap.Compare(v, best) * sign > 0) best = v;
    first = false;
  }
  return best;
}
Value Min(Heap& heap, const Arguments& a) { return Extreme(heap, a, -1); }
Value Max(Heap& heap, const Arguments& a) { return Extreme(heap, a, 1); }

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
  const bool ascii = IsTrue(ArgumentAt(a, 1, "ensure_ascii"));
  const Value indent = ArgumentAt(a, 2, "indent");
  const bool lines = indent.is(Kind::kInt) && indent.number >= 0;
  return heap.Make(heap.Json(
      a.plain[0], lines ? static_cast<int>(std::min<int64_t>(indent.number, 16)) : -1, ascii));
}
Value ToInt(Heap& heap, const Arguments& a) {
  const Value& v = a.plain[0];
  if (!heap.Read(v.bytes().size())) return {};
  if (v.is(Kind::kInt) || v.is(Kind::kBool)) return Heap::Int(v.number);
  int64_t whole = 0;
  double real = v.is(Kind::kFloat) ? v.real : 0;
  if (v.is(Kind::kText) && absl::SimpleAtoi(v.bytes(), &whole)) return Heap::Int(whole);
  if (v.is(Kind::kText) && !absl::SimpleAtod(v.bytes(), &real)) real = 0;
  if (std::abs(real) < 0x1p62) return Heap::Int(static_cast<int64_t>(real));  // of nan: not
  const Value otherwise = ArgumentAt(a, 1, "default");
  return otherwise.is(Kind::kUndefined) ? Heap::Int(0) : otherwise;
}
Value ToFloat(Heap& heap, const Arguments& a) {
  if (!heap.Read(a.plain[0].bytes().size())) return {};
  double real = a.plain[0].IsNumber() ? a.plain[0].Real() : 0;
  if (a.plain[0].is(Kind::kText) && !absl::SimpleAtod(a.plain[0].bytes(), &real)) real = 0;
  return Heap::Real(real);
}
Value Abs(Heap& heap, const Arguments& a) {
  const Value& v = a.plain[0];
  if (v.is(Kind::kFloat)) return Heap::Real(std::abs(v.real));
  if (!v.IsNumber() || v.number == INT64_MIN) return heap.Fail("abs of ", NameOf(v.kind));
  return Heap::Int(std::abs(v.number));
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
                              {"length", Length},
                              {"count", Length},
                              {"default", Default},
                              {"d", Default},
                              {"safe", Same},
                              {"string", String},
                              {"tojson", ToJson},
                              {"int", ToInt},
                              {"float", ToFloat},
                              {"abs", Abs},
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
Value Namespace(Heap& heap, const Arguments& a) {
  Dict out;
  if (!a.plain.empty() && a.plain[0].is(Kind::kDict)) out = *a.plain[0].dict;
  for (const auto& [name, value] : a.named) out.emplace_back(heap.Make(name), value);
  return heap.Make(std::move(out), Kind::kNamespace);
}
Value DictOf(Heap& heap, const Arguments& a) {
  Dict out;
  for (const auto& [name, value] : a.named) out.emplace_back(heap.Make(name), value);
  return heap.Make(std::move(out));
}
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
    const bool undefined = name == "iterable" && is({Kind::kUndefined});
    return undefined || is({Kind::kText, Kind::kList, Kind::kDict});
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
  if (name == "sameas") return v.kind == other.kind && heap.Equal(v, other);
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
