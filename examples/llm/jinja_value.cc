// What values are to each other, and how they are written.
#include "examples/llm/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "examples/llm/unicode.h"

namespace tessera::llm::jinja {

Text Text::Part(size_t begin, size_t end) const {
  Text out;
  out.bytes = bytes.substr(begin, end - begin);
  out.said = said.substr(begin, end - begin);
  return out;
}

void Text::Append(const Text& t) {
  bytes += t.bytes;
  said += t.said;
}

bool IsTrue(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.number != 0;
    case Kind::kFloat:
      return v.real != 0;
    case Kind::kText:
      return v.text->size() > 0;
    case Kind::kList:
      return !v.list->empty();
    case Kind::kDict:
      return !v.dict->empty();
    case Kind::kNamespace:
    case Kind::kFunction:
      return true;
  }
  return false;
}

const char* NameOf(Kind kind) {
  constexpr const char* kNames[] = {"undefined",   "none",      "a bool", "an integer",
                                    "a float",     "a text",    "a list", "a dictionary",
                                    "a namespace", "a function"};
  return kNames[static_cast<size_t>(kind)];
}

bool Heap::Step() {
  if (--left_.steps < 0) Fail("the template takes too many steps");
  return !failed();
}

bool Heap::Read(size_t bytes) {
  constexpr size_t kOfAStep = 64;
  left_.steps -= static_cast<int64_t>(bytes / kOfAStep);
  return Step();
}

// A word may begin, and nearly be there, at each byte.
bool Heap::Search(size_t bytes, absl::string_view word) {
  constexpr size_t kAtOnce = 16;
  return Read(word.size() > bytes ? 0 : bytes * (1 + word.size() / kAtOnce));
}

bool Heap::Charge(size_t bytes) {
  left_.bytes -= static_cast<int64_t>(std::min(bytes, size_t{1} << 60));
  if (left_.bytes < 0) Fail("the template makes too much text");
  return !failed();
}

Value* Heap::Find(Dict& dict, absl::string_view key) {
  if (!Read(dict.size() * sizeof(Value))) return nullptr;
  for (auto& [k, v] : dict) {
    if (k.is(Kind::kText) && k.bytes() == key) return &v;
  }
  return nullptr;
}

void Heap::Put(Dict& dict, const Value& key, const Value& value) {
  for (auto& [k, v] : dict) {
    if (!Equal(k, key)) continue;
    v = value;
    return;
  }
  dict.emplace_back(key, value);
}

int Heap::Compare(const Value& a, const Value& b) {
  if (!Step()) return 0;
  if (a.IsNumber() && b.IsNumber()) {
    const bool whole = !a.is(Kind::kFloat) && !b.is(Kind::kFloat);
    if (whole) return a.number < b.number ? -1 : a.number > b.number ? 1 : 0;
    return a.Real() < b.Real() ? -1 : a.Real() > b.Real() ? 1 : 0;
  }
  if (a.is(Kind::kText) && b.is(Kind::kText)) {
    if (!Read(std::min(a.bytes().size(), b.bytes().size()))) return 0;
    return a.bytes().compare(b.bytes());
  }
  if (!a.is(Kind::kList) || !b.is(Kind::kList)) {
    Fail(NameOf(a.kind), " and ", NameOf(b.kind), " cannot be compared");
    return 0;
  }
  const size_t both = std::min(a.list->size(), b.list->size());
  for (size_t i = 0; i < both; ++i) {
    if (const int c = Compare((*a.list)[i], (*b.list)[i]); c != 0 || failed()) return c;
  }
  return a.list->size() < b.list->size() ? -1 : a.list->size() > b.list->size() ? 1 : 0;
}

bool Heap::Equal(const Value& a, const Value& b) {
  if (!Step()) return false;
  if (a.IsNumber() && b.IsNumber()) {
    return !std::isnan(a.Real()) && !std::isnan(b.Real()) && Compare(a, b) == 0;
  }
  if (a.kind != b.kind) return false;
  const auto same = [&](const Value& x, const Value& y) { return Equal(x, y); };
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      if (a.bytes().size() != b.bytes().size()) return false;
      return Read(a.bytes().size()) && a.bytes() == b.bytes();
    case Kind::kList:
      return a.tuple == b.tuple &&
             std::equal(a.list->begin(), a.list->end(), b.list->begin(), b.list->end(), same);
    case Kind::kDict:
      if (a.dict->size() != b.dict->size()) return false;
      return std::all_of(a.dict->begin(), a.dict->end(), [&](const auto& item) {
        return std::any_of(b.dict->begin(), b.dict->end(), [&](const auto& other) {
          return Equal(item.first, other.first) && Equal(item.second, other.second);
        });
      });
    case Kind::kNamespace:
      return a.dict == b.dict;
    case Kind::kFunction:
      return a.closure == b.closure && a.builtin == b.builtin;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      break;
  }
  return false;
}

// Comparing and writing values recurse on this.
uint8_t Heap::DepthOver(uint8_t most) {
  constexpr uint8_t kMost = 64;
  if (most >= kMost) Fail("lists nest deeper than ", kMost);
  return static_cast<uint8_t>(std::min(most, kMost) + 1);
}

Value Heap::OfNumber(Kind kind, int64_t number) {
  Value v;
  v.kind = kind;
  v.number = number;
  return v;
}

Value Heap::Real(double x) {
  Value v;
  v.kind = Kind::kFloat;
  v.real = x;
  return v;
}

Value Heap::Real(double x, absl::string_view written) {
  const Value text = Make(written);
  Value v = Real(x);
  if (!failed()) v.written = text.text;
  return v;
}

Value Heap::Function(const Closure* macro) {
  Value v;
  v.kind = Kind::kFunction;
  v.closure = macro;
  return v;
}

Value Heap::Function(Builtin builtin) {
  Value v = Function(static_cast<const Closure*>(nullptr));
  v.builtin = builtin;
  return v;
}

Value Heap::Make(Text t) {
  if (!Charge(sizeof(Text) + 2 * t.size())) return {};
  Value v;
  v.kind = Kind::kText;
  v.text = &texts_.emplace_back(std::move(t));
  return v;
}

Value Heap::Make(List items, bool tuple) {
  if (!Charge(sizeof(List) + items.size() * sizeof(Value))) return {};
  Value v;
  v.tuple = tuple;
  for (const Value& item : items) v.depth = std::max(v.depth, item.depth);
  v.depth = DepthOver(v.depth);
  v.kind = Kind::kList;
  v.list = &lists_.emplace_back(std::move(items));
  return v;
}

Value Heap::Make(Dict items, Kind kind) {
  if (!Charge(sizeof(Dict) + items.size() * 2 * sizeof(Value))) return {};
  Value v;
  if (kind == Kind::kDict) {  // what namespaces hold changes, and is not looked into
    for (const auto& [key, value] : items) v.depth = std::max({v.depth, key.depth, value.depth});
    v.depth = DepthOver(v.depth);
  }
  v.kind = kind;
  v.dict = &dicts_.emplace_back(std::move(items));
  return v;
}

// \u and the numbers of UTF-16.
static std::string Escaped(uint32_t code) {
  if (code < 0x10000) return absl::StrFormat("\\u%04x", code);
  return absl::StrFormat("\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                         0xDC00 + ((code - 0x10000) & 0x3FF));
}

// What Python's repr writes as it is.
static bool IsSeen(uint32_t code) { return CategoryOf(code) < Category::kZs; }
static std::string EscapedInPython(uint32_t code) {
  return code < 0x100     ? absl::StrFormat("\\x%02x", code)
         : code < 0x10000 ? absl::StrFormat("\\u%04x", code)
                          : absl::StrFormat("\\U%08x", code);
}

// As Python writes them: 1.0, 1e+16; in JSON other names of what is none.
static std::string Digits(double x, bool json) {
  if (std::isnan(x)) return json ? "NaN" : "nan";
  if (std::isinf(x)) return absl::StrCat(x < 0 ? "-" : "", json ? "Infinity" : "inf");
  std::string out;
  for (int digits = 1; digits <= 17; ++digits) {
    out = absl::StrFormat("%.*g", digits, x);
    if (std::strtod(out.c_str(), nullptr) == x) break;
  }
  if (std::abs(x) < 1e16 && std::abs(x) >= 1e-4 && out.find('e') != out.npos) {
    out = absl::StrFormat("%.0f", x);
  }
  return out.find_first_of(".e") == out.npos ? out + ".0" : out;
}

void Heap::WriteQuoted(const Text& t, const JsonForm* form, Text* out) {
  const bool json = form != nullptr;
  const bool doubled =
      json || (t.bytes.find('\'') != t.bytes.npos && t.bytes.find('"') == t.bytes.npos);
  if (!Charge(2 * t.size())) return;
  const char quote = doubled ? '"' : '\'';
  out->Append(std::string(1, quote), kOfTemplate);
  size_t next = 0;
  for (size_t i = 0; i < t.size(); i = next) {
    const char c = t.bytes[i];
    std::string shown;
    next = i + 1;
    if ((!json || form->ascii) && (c & 0x80) != 0) {
      while (next < t.size() && (t.bytes[next] & 0xC0) == 0x80) ++next;
      const uint32_t code = Characters(t.view().substr(i, next - i))[0].code;
      if (code != kNoCharacter && json) shown = Escaped(code);
      if (code != kNoCharacter && !json && !IsSeen(code)) shown = EscapedInPython(code);
    }
    constexpr absl::string_view kPlain = "\n\t\r\b\f", kNames = "ntrbf";
    const size_t at = kPlain.substr(0, json ? 5 : 3).find(c);
    if (c == quote || c == '\\') {
      shown = {'\\', c};
    } else if (at != kPlain.npos) {
      shown = {'\\', kNames[at]};
    } else if (static_cast<unsigned char>(c) < 32 || (c == 127 && !json)) {
      shown = json ? absl::StrFormat("\\u%04x", c) : absl::StrFormat("\\x%02x", c);
    }
    if (shown.empty()) {
      out->bytes.append(t.bytes, i, next - i);
      out->said.append(t.said, i, next - i);
    } else {
      if (!Charge(2 * shown.size())) return;
      out->Append(shown, static_cast<Origin>(t.said[i]));
    }
  }
  out->Append(std::string(1, quote), kOfTemplate);
}

void Heap::Write(const Value& v, const JsonForm* form, int depth, Text* out) {
  const bool json = form != nullptr;
  const auto put = [&](absl::string_view s) {
    if (Charge(2 * s.size())) out->Append(s, kOfTemplate);
  };
  const auto line = [&](int at) {
    if (!json || !form->indent) return;
    put("\n");
    for (int i = 0; i < at; ++i) put(*form->indent);
  };
  const absl::string_view comma = json ? absl::string_view(form->comma) : ", ",
                          colon = json ? absl::string_view(form->colon) : ": ";
  switch (v.kind) {
    case Kind::kUndefined:
      if (json) Fail("what is undefined is no JSON");
      return put("Undefined");
    case Kind::kNone:
      if (!json && v.number != 0) Fail("a content that is null would be written as None");
      return put(json ? "null" : "None");
    case Kind::kBool:
      return put(json ? (v.number != 0 ? "true" : "false") : v.number != 0 ? "True" : "False");
    case Kind::kInt:
      return put(absl::StrCat(v.number));
    case Kind::kFloat:
      return put(v.written != nullptr ? v.written->view() : Digits(v.real, json));
    case Kind::kText:
      return WriteQuoted(*v.text, form, out);
    case Kind::kList: {
      const bool tuple = v.tuple && !json;
      put(tuple ? "(" : "[");
      for (size_t i = 0; i < v.list->size() && Step(); ++i) {
        if (i > 0) put(comma);
        line(depth + 1);
        Write((*v.list)[i], form, depth + 1, out);
      }
      if (!v.list->empty()) line(depth);
      return put(!tuple ? "]" : v.list->size() == 1 ? ",)" : ")");
    }
    case Kind::kDict: {
      std::vector<const Dict::value_type*> items;
      if (!Charge(v.dict->size() * sizeof(items[0]))) return;
      for (const auto& item : *v.dict) items.push_back(&item);
      if (json && form->sorted && Read(items.size() * sizeof(Value))) {
        std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
          return a->first.bytes() < b->first.bytes();
        });
      }
      put("{");
      for (size_t i = 0; i < items.size() && Step(); ++i) {
        if (i > 0) put(comma);
        line(depth + 1);
        const bool quoted = json && !items[i]->first.is(Kind::kText);  // keys are texts
        if (quoted) put("\"");
        Write(items[i]->first, form, depth + 1, out);
        if (quoted) put("\"");
        put(colon);
        Write(items[i]->second, form, depth + 1, out);
      }
      if (!items.empty()) line(depth);
      return put("}");
    }
    case Kind::kNamespace:
    case Kind::kFunction:
      Fail(NameOf(v.kind), " cannot be written");
  }
}

Text Heap::Shown(const Value& v) {
  if (v.is(Kind::kText)) return *v.text;
  return v.is(Kind::kUndefined) ? Text() : Quoted(v);
}

Text Heap::Quoted(const Value& v) {
  Text out;
  Write(v, nullptr, 0, &out);
  return out;
}

Text Heap::Json(const Value& v, const JsonForm& form) {
  Text out;
  Write(v, &form, 0, &out);
  return out;
}

}  // namespace tessera::llm::jinja
