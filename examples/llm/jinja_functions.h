// What chat templates call: filters, tests, methods of texts and dictionaries, and functions.
#pragma once

#include "absl/strings/string_view.h"
#include "examples/llm/jinja_value.h"

namespace tessera::llm::jinja {

// Of arguments of which the first is what is filtered or tested, or whose method it is. Names that
// are not known fail.
Value CallFilter(Heap& heap, absl::string_view name, const Arguments& a);
bool CallTest(Heap& heap, absl::string_view name, const Arguments& a);
Value CallMethod(Heap& heap, absl::string_view name, const Arguments& a);

// Functions that every template has, but for what the conversation gives.
Dict Functions(Heap& heap);

struct Entry {
  absl::string_view name;
  Builtin function;
};
template <size_t N>
Builtin Find(const Entry (&table)[N], absl::string_view name) {
  for (const Entry& e : table) {
    if (e.name == name) return e.function;
  }
  return nullptr;
}

// Operators as templates write them; of what they are not known for they fail.
Value Arithmetic(Heap& heap, absl::string_view op, const Value& a, const Value& b);
bool Holds(Heap& heap, absl::string_view op, const Value& a, const Value& b);
bool Contains(Heap& heap, const Value& all, const Value& one);

// of.name, undefined where there is none.
Value MemberOf(Heap& heap, const Value& of, absl::string_view name);
// of[key], undefined where there is none; and of[begin:end:step], each none where it is left out.
Value ItemOf(Heap& heap, const Value& of, const Value& key);
// The same along a path, "a.0.b", or by an index; `otherwise` where something on the way is none.
Value AlongPath(Heap& heap, Value of, const Value& path, const Value& otherwise = {});
Value SliceOf(Heap& heap, const Value& of, const Value& begin, const Value& end, const Value& step);
// What a loop goes through: elements, keys, or characters.
List ItemsOf(Heap& heap, const Value& v);

}  // namespace tessera::llm::jinja
