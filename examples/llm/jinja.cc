// What a template sees: the conversation as values.
#include "examples/llm/jinja.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "examples/llm/chat.h"
#include "examples/llm/jinja_evaluation.h"
#include "examples/llm/jinja_functions.h"
#include "examples/llm/jinja_parser.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"
#include "runtime/json.h"

namespace tessera::llm::jinja {
namespace {

// A value of JSON that was parsed, whose texts are of that origin.
Value ValueOf(Heap& heap, const Json& json, Origin of) {
  switch (json.type()) {
    case Json::Type::kNull:
      return Heap::None();
    case Json::Type::kBool:
      return Heap::Bool(*json.Bool());
    case Json::Type::kNumber: {
      const std::optional<int64_t> whole = json.Int();
      if (whole) return Heap::Int(*whole);
      const bool fraction = json.text().find_first_of(".eE") != json.text().npos;
      const double real = json.Number().value_or(json.text().front() == '-' ? -HUGE_VAL : HUGE_VAL);
      return fraction ? Heap::Real(real) : heap.Real(real, json.text());
    }
    case Json::Type::kString:
      return heap.Make(*json.String(), of);
    case Json::Type::kArray: {
      List out;
      for (const JsonItem item : json.Items()) out.push_back(ValueOf(heap, item.value(), of));
      return heap.Make(std::move(out));
    }
    case Json::Type::kObject: {
      Dict out;
      for (const JsonItem item : json.Items()) {
        out.emplace_back(heap.Make(item.key(), of), ValueOf(heap, item.value(), of));
      }
      return heap.Make(std::move(out));
    }
  }
  return {};
}

Value ValueOfText(Heap& heap, const std::string& text, const char* what, Origin of = kSaid) {
  const absl::StatusOr<Json> json = Json::Parse(text, what);
  return json.ok() ? ValueOf(heap, *json, of) : heap.Fail(json.status().message());
}

// A content as a list of one text.
Value InParts(Heap& heap, const Value& content) {
  return heap.Make(
      List{heap.Make(Dict{{heap.Make("type"), heap.Make("text")}, {heap.Make("text"), content}})});
}

// The messages as a template sees them.
Value MessagesOf(Heap& heap, const Template::Inputs& in) {
  List out;
  for (const Message& m : in.messages) {
    const Origin of = m.role == "assistant" ? kOfAssistant : kSaid;
    if (!m.whole.empty()) {
      Value whole = ValueOfText(heap, m.whole, "a message", of);
      // Marks are made of roles, which are names.
      if (whole.is(Kind::kDict)) {
        if (Value* role = heap.Find(*whole.dict, "role")) *role = heap.Make(m.role);
        Value* content = heap.Find(*whole.dict, "content");
        if (content && content->is(Kind::kNone)) *content = Heap::None(!in.refuse_none);
        if (content && content->is(Kind::kText) && in.in_parts) *content = InParts(heap, *content);
      }
      out.push_back(whole);
      continue;
    }
    Value content = heap.Make(m.content, of);
    if (in.in_parts) content = InParts(heap, content);
    out.push_back(
        heap.Make(Dict{{heap.Make("role"), heap.Make(m.role)}, {heap.Make("content"), content}}));
  }
  return heap.Make(std::move(out));
}

}  // namespace

Template::Template(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

absl::StatusOr<Template> Template::Parse(absl::string_view text) {
  for (const Character& c : Characters(text)) {
    if (c.code == kNoCharacter && c.begin < text.size()) {
      return absl::InvalidArgumentError(absl::StrCat("byte ", c.begin, " is no UTF-8"));
    }
  }
  ASSIGN_OR_RETURN(Program program, jinja::Parse(text));
  return Template(std::make_unique<const Program>(std::move(program)));
}

absl::StatusOr<Text> Template::Render(const Inputs& inputs, const Heap::Limits& limits) const {
  Heap heap(limits);
  heap.today = inputs.today;
  Dict names = Functions(heap);
  const auto name = [&](absl::string_view n, Value v) { names.emplace_back(heap.Make(n), v); };
  name("messages", MessagesOf(heap, inputs));
  name("add_generation_prompt", Heap::Bool(inputs.to_answer));
  name("bos_token", heap.Make(inputs.bos));
  name("eos_token", heap.Make(inputs.eos));
  name("tools", inputs.tools.empty() ? Heap::None() : ValueOfText(heap, inputs.tools, "the tools"));
  name("documents", Heap::None());
  int line = 1;
  Text out = Evaluate(heap, *program_, names, &line);
  if (!heap.failed()) return out;
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", heap.status().message()));
}

}  // namespace tessera::llm::jinja
