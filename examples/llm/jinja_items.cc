// What is in values: elements, slices, and whether something is.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "examples/llm/jinja_functions.h"
#include "examples/llm/jinja_text.h"
#include "examples/llm/unicode.h"

namespace tessera::llm::jinja {

Value MemberOf(Heap& heap, const Value& of, absl::string_view name) {
  if (of.is(Kind::kUndefined)) return heap.Fail("'", name, "' of what is undefined");
  if (of.group && name == "grouper") return (*of.list)[0];
  if (of.group && name == "list") return (*of.list)[1];
  if (!of.is(Kind::kDict) && !of.is(Kind::kNamespace)) return {};
  const Value* found = heap.Find(*of.dict, name);
  return found == nullptr ? Value() : *found;
}

bool Contains(Heap& heap, const Value& all, const Value& one) {
  if (all.is(Kind::kText)) {
    if (!one.is(Kind::kText)) heap.Fail("a text contains texts alone");
    return all.is(Kind::kText) && one.is(Kind::kText) &&
           heap.Search(all.bytes().size(), one.bytes()) &&
           all.bytes().find(one.bytes()) != absl::string_view::npos;
  }
  if (all.is(Kind::kList)) {
    return std::any_of(all.list->begin(), all.list->end(),
                       [&](const Value& v) { return heap.Equal(v, one); });
  }
  if (all.is(Kind::kDict)) {
    return std::any_of(all.dict->begin(), all.dict->end(),
                       [&](const auto& item) { return heap.Equal(item.first, one); });
  }
  if (!all.is(Kind::kUndefined)) heap.Fail(NameOf(all.kind), " contains nothing");
  return false;
}

Value ItemOf(Heap& heap, const Value& of, const Value& key) {
  if (!heap.Step()) return {};
  switch (of.kind) {
    case Kind::kUndefined:
      return heap.Fail("an item of what is undefined");
    case Kind::kDict:
    case Kind::kNamespace:
      for (const auto& [k, v] : *of.dict) {
        if (heap.Equal(k, key)) return v;
      }
      return {};
    case Kind::kText:
    case Kind::kList: {
      if (key.is(Kind::kText)) return of.group ? MemberOf(heap, of, key.bytes()) : Value();
      if (!key.is(Kind::kInt)) return {};
      std::vector<Character> all;
      if (of.is(Kind::kText)) {
        if (!heap.Read(of.text->size())) return {};
        all = Characters(of.bytes());
      }
      const auto size = static_cast<int64_t>(of.is(Kind::kText) ? all.size() - 1 : of.list->size());
      const int64_t at = key.number < 0 ? key.number + size : key.number;
      if (at < 0 || at >= size) return {};
      const auto i = static_cast<size_t>(at);
      return of.is(Kind::kList) ? (*of.list)[i]
                                : heap.Make(of.text->Part(all[i].begin, all[i + 1].begin));
    }
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kFunction:
      return {};
  }
  return {};
}

Value AlongPath(Heap& heap, Value of, const Value& path, const Value& otherwise) {
  if (!path.is(Kind::kText)) {
    of = ItemOf(heap, of, path);
    return of.is(Kind::kUndefined) ? otherwise : of;
  }
  for (absl::string_view rest = path.bytes(); !heap.failed();) {
    const size_t dot = rest.find('.');
    const absl::string_view part = rest.substr(0, dot);
    const bool digits = std::all_of(part.begin(), part.end(), absl::ascii_isdigit);
    int64_t index = 0;
    of = ItemOf(heap, of,
                digits && absl::SimpleAtoi(part, &index) ? Heap::Int(index) : heap.Make(part));
    if (of.is(Kind::kUndefined)) of = otherwise;
    if (dot == rest.npos) break;
    rest.remove_prefix(dot + 1);
  }
  return of;
}

Value SliceOf(Heap& heap, const Value& of, const Value& begin, const Value& end,
              const Value& step) {
  const bool text = of.is(Kind::kText);
  if (!text && !of.is(Kind::kList)) return heap.Fail("a slice of ", NameOf(of.kind));
  std::vector<Character> all;
  if (!heap.Read(of.bytes().size())) return {};
  if (text) all = Characters(of.bytes());
  const auto size = static_cast<int64_t>(text ? all.size() - 1 : of.list->size());
  const int64_t by = step.is(Kind::kInt) ? step.number : 1;
  if (by == 0 || std::abs(by / 2) > (int64_t{1} << 40)) return heap.Fail("a slice in such steps");
  const auto bound = [&](const Value& v, int64_t otherwise) {
    if (!v.is(Kind::kInt)) return otherwise;
    const int64_t at = v.number < 0 ? v.number + size : v.number;
    return by > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
  };
  const int64_t first = bound(begin, by > 0 ? 0 : size - 1), last = bound(end, by > 0 ? size : -1);
  if (text && by == 1) {
    const size_t from = all[static_cast<size_t>(first)].begin;
    return heap.Make(first < last ? of.text->Part(from, all[static_cast<size_t>(last)].begin)
                                  : Text());
  }
  List out;
  Text joined;
  for (int64_t at = first; by > 0 ? at < last : at > last; at += by) {
    const auto i = static_cast<size_t>(at);
    if (!text) {
      out.push_back((*of.list)[i]);
      continue;
    }
    const size_t from = all[i].begin, bytes = all[i + 1].begin - from;
    joined.bytes.append(of.text->bytes, from, bytes);
    joined.said.append(of.text->said, from, bytes);
  }
  return text ? heap.Make(std::move(joined)) : heap.Make(std::move(out), of.tuple);
}

List ItemsOf(Heap& heap, const Value& v) {
  List out;
  switch (v.kind) {
    case Kind::kUndefined:
      return out;
    case Kind::kList:
      return heap.Charge(v.list->size() * sizeof(Value)) ? *v.list : out;
    case Kind::kDict:
      if (!heap.Charge(v.dict->size() * sizeof(Value))) return out;
      for (const auto& item : *v.dict) out.push_back(item.first);
      return out;
    case Kind::kText:
      return CharactersOf(heap, *v.text);
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kFunction:
      heap.Fail(NameOf(v.kind), " has no elements");
  }
  return out;
}

}  // namespace tessera::llm::jinja
