// What is for any value, and where the functions of one kind are looked for.
#include "examples/llm/jinja_functions.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "examples/llm/jinja_lists.h"
#include "examples/llm/jinja_numbers.h"
#include "examples/llm/jinja_text.h"

namespace tessera::llm::jinja {
namespace {

Value Length(Heap& heap, const Arguments& a) {
  const Value& v = a.plain[0];
  if (v.is(Kind::kText)) return Heap::Int(LengthOf(heap, v.bytes()));
  if (v.is(Kind::kList)) return Heap::Int(static_cast<int64_t>(v.list->size()));
  if (v.is(Kind::kDict)) return Heap::Int(static_cast<int64_t>(v.dict->size()));
  return v.is(Kind::kUndefined) ? Heap::Int(0) : heap.Fail(NameOf(v.kind), " has no length");
}

Value Default(Heap& heap, const Arguments& a) {
  const bool falsy = IsTrue(ArgumentAt(a, 2, "boolean")) && !IsTrue(a.plain[0]);
  if (!falsy && !a.plain[0].is(Kind::kUndefined)) return a.plain[0];
  const bool given = a.plain.size() > 1 || Named(a, "default_value") != nullptr;
  return given ? ArgumentAt(a, 1, "default_value") : heap.Make("");
}
Value Same(Heap&, const Arguments& a) { return a.plain[0]; }
Value String(Heap& heap, const Arguments& a) { return heap.Make(heap.Shown(a.plain[0])); }
Value Quoted(Heap& heap, const Arguments& a) { return heap.Make(heap.Quoted(a.plain[0])); }
Value Attribute(Heap& heap, const Arguments& a) {
  const Value& of = a.plain[0];  // a dictionary has items, no attributes
  return of.is(Kind::kDict) ? Value() : MemberOf(heap, of, ArgumentAt(a, 1, "name").bytes());
}
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
constexpr Entry kFilters[] = {{"length", Length}, {"count", Length},   {"default", Default},
                              {"d", Default},     {"attr", Attribute}, {"safe", Same},
                              {"string", String}, {"pprint", Quoted},  {"tojson", ToJson}};
Builtin Filter(absl::string_view name) {
  Builtin f = Find(kFilters, name);
  for (const auto table : {lists::Filter, texts::Filter, numbers::Filter}) {
    if (f == nullptr) f = table(name);
  }
  return f;
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
  const Builtin f = Filter(name);
  return f == nullptr ? heap.Fail("the filter '", name, "' is not known") : f(heap, a);
}

Value CallMethod(Heap& heap, absl::string_view name, const Arguments& a) {
  if (!heap.Step()) return {};
  const Kind kind = a.plain[0].kind;
  const Builtin f = kind == Kind::kText ? texts::Method(name) : lists::Method(kind, name);
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
  if (name == "filter") return Filter(v.bytes()) != nullptr;
  if (name == "callable") return is({Kind::kFunction});
  if (name == "true") return is({Kind::kBool}) && v.number == 1;
  if (name == "false") return is({Kind::kBool}) && v.number == 0;
  if (name == "sequence" || name == "iterable") {
    return is({Kind::kUndefined, Kind::kText, Kind::kList, Kind::kDict});
  }
  if (name == "lower" || name == "upper") {
    return texts::AllOfCase(heap, v.bytes(), name == "lower");
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
