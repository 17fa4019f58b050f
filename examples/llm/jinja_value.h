// Values of chat templates, and the heap of one rendering that holds them.
//
// Each byte of a text knows whether it was said in the conversation, and whether by the assistant,
// or is the template's, through all that is done with it: what was said never becomes a control
// token.
#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera::llm::jinja {

enum Origin : char { kOfTemplate = 0, kSaid = 1, kOfAssistant = 2 };

struct Text {
  std::string bytes;  // UTF-8
  std::string said;   // as many: the Origin of each

  Text() = default;
  explicit Text(absl::string_view b, Origin of = kOfTemplate) : bytes(b), said(b.size(), of) {}
  size_t size() const { return bytes.size(); }
  absl::string_view view() const { return bytes; }
  Text Part(size_t begin, size_t end) const;
  void Append(const Text& t);
  void Append(absl::string_view b, Origin of) { Append(Text(b, of)); }
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,
  kDict,
  kNamespace,
  kFunction
};

struct Value;
struct Closure;
class Heap;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<Value, Value>>;  // in order; keys are texts or numbers
struct Arguments {
  List plain;
  std::vector<std::pair<std::string, Value>> named;
};
using Builtin = Value (*)(Heap& heap, const Arguments& a);

// A view: the heap has what it points to.
struct Value {
  Kind kind = Kind::kUndefined;
  uint8_t depth = 0;   // of lists and dictionaries within each other
  bool tuple = false;  // of lists
  bool group = false;  // a tuple of which the elements have names: grouper and list
  union {
    int64_t number = 0;  // of bools too
    double real;
    const Text* text;
    const List* list;
    Dict* dict;              // of namespaces too
    const Closure* closure;  // of functions: a macro,
  };
  union {
    Builtin builtin = nullptr;  // or this
    const Text* written;        // of floats: an integer of more digits than a float has
  };

  bool is(Kind k) const { return kind == k; }
  bool IsNumber() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }
  double Real() const { return is(Kind::kFloat) ? real : static_cast<double>(number); }
  absl::string_view bytes() const { return is(Kind::kText) ? text->bytes : absl::string_view(); }
};

bool IsTrue(const Value& v);
const char* NameOf(Kind kind);

// How JSON is written: in lines, each with so much of `indent` as it is deep, where that is given.
struct JsonForm {
  std::optional<std::string> indent;
  std::string comma = ", ", colon = ": ";
  bool ascii = false, sorted = false;  // escapes in place of what is not ASCII; keys in order
};

// Makes values, within bounds: what a template does costs steps, of which going through texts takes
// as many as it is long, and bytes. Once it fails, all that is made is undefined.
class Heap {
 public:
  struct Limits {
    int64_t steps = 2'000'000, bytes = int64_t{256} << 20;
  };
  explicit Heap(const Limits& limits) : left_(limits) {}
  std::tm today = {};

  const absl::Status& status() const { return status_; }
  bool failed() const { return !status_.ok(); }
  template <typename... Parts>
  Value Fail(const Parts&... parts) {
    if (!failed()) status_ = absl::InvalidArgumentError(absl::StrCat(parts...));
    return {};
  }
  bool Step();              // false where there was one too many
  bool Read(size_t bytes);  // goes through so many, which takes a step or more
  bool Search(size_t bytes, absl::string_view word);  // goes through so many for a word
  bool Charge(size_t bytes);

  bool Equal(const Value& a, const Value& b);
  // The value of a key that is a text, or nullptr.
  Value* Find(Dict& dict, absl::string_view key);
  // In place of the value that an equal key has, or as the last.
  void Put(Dict& dict, const Value& key, const Value& value);
  // Of two numbers, texts or lists, as their difference; fails for others.
  int Compare(const Value& a, const Value& b);

  static Value None(bool can_be_shown = true) {
    return OfNumber(Kind::kNone, can_be_shown ? 0 : 1);
  }
  static Value Bool(bool b) { return OfNumber(Kind::kBool, b ? 1 : 0); }
  static Value Int(int64_t n) { return OfNumber(Kind::kInt, n); }
  static Value Real(double x);
  Value Real(double x, absl::string_view written);
  static Value Function(const Closure* macro);
  static Value Function(Builtin builtin);
  Value Make(Text t);
  Value Make(absl::string_view bytes, Origin of = kOfTemplate) { return Make(Text(bytes, of)); }
  Value Make(List items, bool tuple = false);
  Value Make(Dict items, Kind kind = Kind::kDict);

  // As {{ }} writes it, the same with texts in quotes, or as JSON.
  Text Shown(const Value& v);
  Text Quoted(const Value& v);
  Text Json(const Value& v, const JsonForm& form);

 private:
  static Value OfNumber(Kind kind, int64_t number);
  uint8_t DepthOver(uint8_t most);
  // Without a form as {{ }} does.
  void Write(const Value& v, const JsonForm* form, int depth, Text* out);
  void WriteQuoted(const Text& t, const JsonForm* form, Text* out);

  Limits left_;
  absl::Status status_;
  std::deque<Text> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
};

}  // namespace tessera::llm::jinja
