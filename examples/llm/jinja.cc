// Walks the tree of a template: statements write, expressions give values.
#include "examples/llm/jinja.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "examples/llm/chat.h"
#include "examples/llm/jinja_functions.h"
#include "examples/llm/jinja_parser.h"
#include "examples/llm/jinja_text.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"
#include "runtime/json.h"

namespace tessera::llm::jinja {
namespace {

class Evaluation {
 public:
  explicit Evaluation(Heap* heap) : heap_(*heap) { scopes_.emplace_back(); }

  void Set(absl::string_view name, const Value& value) {
    const auto [at, is_new] = scopes_.back().insert_or_assign(name, value);
    if (is_new) heap_.Charge(2 * sizeof(*at));
  }
  Text Run(const Program& program) {
    Body(program.body);
    return std::move(*out_);
  }
  int line() const { return line_; }

 private:
  using Names = absl::flat_hash_map<absl::string_view, Value>;
  using Nodes = std::vector<const Node*>;
  enum class Flow { kOn, kBreak, kContinue };
  // Macros may call each other.
  struct Deeper {
    explicit Deeper(Evaluation* e) : depth(e->depth_) {
      constexpr int kMost = 600;
      if (++depth > kMost) e->heap_.Fail("calls nest too deep");
    }
    ~Deeper() { --depth; }
    int& depth;
  };
  struct Scope {
    explicit Scope(Evaluation* e) : scopes(e->scopes_) { scopes.emplace_back(); }
    ~Scope() { scopes.pop_back(); }
    std::vector<Names>& scopes;
  };

  Value Lookup(absl::string_view name) {
    for (size_t i = scopes_.size(); i > 0; --i) {
      if (i <= macro_base_ && i > 1) i = 1;  // a macro sees its own and the outermost
      const auto found = scopes_[i - 1].find(name);
      if (found != scopes_[i - 1].end()) return found->second;
      if (!heap_.Step()) return {};
    }
    return {};
  }
  void Write(const Text& t) {
    if (heap_.Charge(2 * t.size())) out_->Append(t);
  }

  // ---- statements

  Flow Body(const Nodes& body) {
    const Deeper deeper(this);
    for (const Node* n : body) {
      if (!heap_.Step()) return Flow::kOn;
      line_ = n->line;
      if (const Flow flow = Run(*n); flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }
  // Gives what it writes.
  Flow Written(const Nodes& body, Value* what) {
    Text own;
    Text* const outside = std::exchange(out_, &own);
    const Flow flow = Body(body);
    out_ = outside;
    *what = heap_.Make(std::move(own));
    return flow;
  }

  Flow Run(const Node& n) {
    switch (n.kind) {
      case NodeKind::kText:
        Write(n.literal);
        return Flow::kOn;
      case NodeKind::kOutput:
        Write(heap_.Shown(Of(n.of[0])));
        return Flow::kOn;
      case NodeKind::kIf:
        return If(&n);
      case NodeKind::kFor:
        return For(n);
      case NodeKind::kSet:
        Assign(n, Of(n.of[0]));
        return Flow::kOn;
      case NodeKind::kSetBody: {
        Value v;
        {
          const Scope scope(this);
          if (const Flow flow = Written(n.body, &v); flow != Flow::kOn) return flow;
        }
        Assign(n, Piped(n.of[0], v));
        return Flow::kOn;
      }
      case NodeKind::kMacro:
        Set(n.text, Heap::Function(&n));
        return Flow::kOn;
      case NodeKind::kFilterBody: {
        const Scope scope(this);
        Value v;
        if (const Flow flow = Written(n.body, &v); flow != Flow::kOn) return flow;
        Write(heap_.Shown(Piped(n.of[0], v)));
        return Flow::kOn;
      }
      case NodeKind::kScope: {
        const Scope scope(this);
        return Body(n.body);
      }
      case NodeKind::kBreak:
        return Flow::kBreak;
      case NodeKind::kContinue:
        return Flow::kContinue;
      default:  // expressions
        return Flow::kOn;
    }
  }

  Flow If(const Node* n) {
    while (true) {
      if (IsTrue(Of(n->of[0]))) return Body(n->body);
      const bool chain = n->otherwise.size() == 1 && n->otherwise[0]->kind == NodeKind::kIf;
      if (!chain || !heap_.Step()) return Body(n->otherwise);
      n = n->otherwise[0];
    }
  }

  void Assign(const Node& n, const Value& value) {
    if (!n.text.empty()) {
      const Value space = Lookup(n.text);
      if (!space.is(Kind::kNamespace)) {
        heap_.Fail("'", n.text, "' is no namespace");
        return;
      }
      if (Value* old = heap_.Find(*space.dict, n.names[0])) {
        *old = value;
        return;
      }
      const Value key = heap_.Make(n.names[0]);
      if (heap_.Charge(2 * sizeof(Value))) space.dict->emplace_back(key, value);
      return;
    }
    SetAll(n.names, value);
  }
  void SetAll(const std::vector<std::string>& names, const Value& value) {
    if (names.size() == 1) return Set(names[0], value);
    const List items = ItemsOf(heap_, value);
    if (items.size() != names.size()) {
      heap_.Fail(names.size(), " names for ", items.size(), " values");
      return;
    }
    for (size_t i = 0; i < names.size(); ++i) Set(names[i], items[i]);
  }

  Flow For(const Node& n) {
    List items = ItemsOf(heap_, Of(n.of[0]));
    const Scope scope(this);
    if (n.of.size() > 1) {
      List kept;
      for (const Value& v : items) {
        SetAll(n.names, v);
        if (!heap_.Step()) return Flow::kOn;
        if (IsTrue(Of(n.of[1]))) kept.push_back(v);
      }
      items = std::move(kept);
    }
    if (items.empty()) return Body(n.otherwise);
    // What a loop says of itself, in the order of the names.
    constexpr const char* kNames[] = {"index",  "index0",   "revindex", "revindex0",
                                      "first",  "last",     "length",   "depth",
                                      "depth0", "previtem", "nextitem"};
    Dict about;
    for (const char* name : kNames) about.emplace_back(heap_.Make(name), Value());
    // As what changes, it is not looked into: it may come to hold itself.
    const Value loop = heap_.Make(std::move(about), Kind::kNamespace);
    const auto size = static_cast<int64_t>(items.size());
    for (int64_t i = 0; i < size && heap_.Step(); ++i) {
      const bool first = i == 0, last = i == size - 1;
      const Value own[] = {Heap::Int(i + 1),
                           Heap::Int(i),
                           Heap::Int(size - i),
                           Heap::Int(size - i - 1),
                           Heap::Bool(first),
                           Heap::Bool(last),
                           Heap::Int(size),
                           Heap::Int(1),
                           Heap::Int(0),
                           first ? Value() : items[static_cast<size_t>(i - 1)],
                           last ? Value() : items[static_cast<size_t>(i + 1)]};
      for (size_t k = 0; k < std::size(own); ++k) (*loop.dict)[k].second = own[k];
      scopes_.back().clear();
      Set("loop", loop);
      SetAll(n.names, items[static_cast<size_t>(i)]);
      if (Body(n.body) == Flow::kBreak) break;
    }
    return Flow::kOn;
  }

  // ---- expressions

  Value Of(const Node* n) {
    const Deeper deeper(this);
    if (n == nullptr || !heap_.Step()) return {};
    return Evaluated(*n);
  }
  Value Evaluated(const Node& n) {
    switch (n.kind) {
      case NodeKind::kConstant:
        return n.constant;
      case NodeKind::kName:
        return Lookup(n.text);
      case NodeKind::kList:
        return heap_.Make(AllOf(n));
      case NodeKind::kDict:
        return DictOf(n);
      case NodeKind::kNot:
        return Heap::Bool(!IsTrue(Of(n.of[0])));
      case NodeKind::kNegative:
        return Arithmetic(heap_, "-", Heap::Int(0), Of(n.of[0]));
      case NodeKind::kAnd:
      case NodeKind::kOr: {
        const Value first = Of(n.of[0]);
        return IsTrue(first) == (n.kind == NodeKind::kAnd) ? Of(n.of[1]) : first;
      }
      case NodeKind::kArithmetic: {
        const Value a = Of(n.of[0]);
        return Arithmetic(heap_, n.text, a, Of(n.of[1]));
      }
      case NodeKind::kCompare:
        return Compared(n);
      case NodeKind::kChoice:
        return Of(IsTrue(Of(n.of[1])) ? n.of[0] : n.of[2]);
      case NodeKind::kAttribute:
        return AttributeOf(n);
      case NodeKind::kItem: {
        const Value of = Of(n.of[0]);
        return ItemOf(heap_, of, Of(n.of[1]));
      }
      case NodeKind::kSlice: {
        Value part[4];
        for (size_t i = 0; i < n.of.size(); ++i) part[i] = Of(n.of[i]);
        return SliceOf(heap_, part[0], part[1], part[2], part[3]);
      }
      case NodeKind::kCall:
        return Called(n);
      case NodeKind::kFilter:
        return CallFilter(heap_, n.text, ArgumentsOf(n, Of(n.of[0])));
      case NodeKind::kTest:
        return Heap::Bool(CallTest(heap_, n.text, ArgumentsOf(n, Of(n.of[0]))));
      default:  // statements
        return {};
    }
  }

  List AllOf(const Node& n) {
    List out;
    for (const Node* child : n.of) out.push_back(Of(child));
    return out;
  }
  Value DictOf(const Node& n) {
    Dict out;
    for (size_t i = 0; i + 1 < n.of.size(); i += 2) {
      const Value key = Of(n.of[i]);
      const Value value = Of(n.of[i + 1]);
      heap_.Put(out, key, value);
    }
    return heap_.Make(std::move(out));
  }

  Value AttributeOf(const Node& n) {
    const Value of = Of(n.of[0]);
    if (of.is(Kind::kUndefined)) {
      return heap_.Fail("'", n.text, "' of what is undefined");
    }
    if (!of.is(Kind::kDict) && !of.is(Kind::kNamespace)) return {};
    const Value* found = heap_.Find(*of.dict, n.text);
    return found == nullptr ? Value() : *found;
  }

  Value Compared(const Node& n) {
    Value left = Of(n.of[0]);
    for (size_t i = 0; i < n.names.size(); ++i) {
      const Value right = Of(n.of[i + 1]);
      if (heap_.failed() || !Holds(heap_, n.names[i], left, right)) return Heap::Bool(false);
      left = right;
    }
    return Heap::Bool(true);
  }
  Arguments ArgumentsOf(const Node& n, const Value& first) {
    Arguments a;
    a.plain.push_back(first);
    for (size_t i = 1; i < n.of.size(); ++i) a.plain.push_back(Of(n.of[i]));
    for (const auto& [name, value] : n.named) a.named.emplace_back(name, Of(value));
    return a;
  }
  // Through the filters of a body, the innermost of which filters no expression.
  Value Piped(const Node* filter, Value v) {
    if (filter == nullptr) return v;
    v = Piped(filter->of[0], v);
    return CallFilter(heap_, filter->text, ArgumentsOf(*filter, v));
  }

  Value Called(const Node& n) {
    const Node& callee = *n.of[0];
    if (callee.kind == NodeKind::kAttribute) {
      const Value of = Of(callee.of[0]);
      const bool has = of.is(Kind::kDict) || of.is(Kind::kNamespace);
      const Value* own = has ? heap_.Find(*of.dict, callee.text) : nullptr;
      if (of.is(Kind::kUndefined)) {
        return heap_.Fail("'", callee.text, "' of what is undefined");
      }
      if (own == nullptr || !own->is(Kind::kFunction)) {
        return CallMethod(heap_, callee.text, ArgumentsOf(n, of));
      }
      return Call(*own, ArgumentsOf(n, of));
    }
    const Value function = Of(&callee);
    if (!function.is(Kind::kFunction)) {
      return heap_.Fail("'", callee.text, "' is ", NameOf(function.kind), ", not a function");
    }
    return Call(function, ArgumentsOf(n, {}));
  }
  // The first of the arguments is whose it is.
  Value Call(const Value& function, Arguments a) {
    a.plain.erase(a.plain.begin());
    if (heap_.failed()) return {};
    if (function.builtin != nullptr) return function.builtin(heap_, a);
    const Node& macro = *function.macro;
    if (a.plain.size() > macro.names.size()) {
      return heap_.Fail("'", macro.text, "' takes ", macro.names.size(), " arguments");
    }
    for (const auto& [name, value] : a.named) {
      if (std::count(macro.names.begin(), macro.names.end(), name) > 0) continue;
      return heap_.Fail("'", macro.text, "' takes no argument '", name, "'");
    }
    const size_t outside = std::exchange(macro_base_, scopes_.size());
    const Scope scope(this);
    for (size_t i = 0; i < macro.names.size(); ++i) {
      const std::string& name = macro.names[i];
      const Value* named = Named(a, name);
      const auto usual = std::find_if(macro.named.begin(), macro.named.end(),
                                      [&](const auto& item) { return item.first == name; });
      Set(name, i < a.plain.size()           ? a.plain[i]
                : named != nullptr           ? *named
                : usual != macro.named.end() ? Of(usual->second)
                                             : Value());
    }
    Value out;
    Written(macro.body, &out);
    macro_base_ = outside;
    return out;
  }

  Heap& heap_;
  std::vector<Names> scopes_;
  size_t macro_base_ = 0;  // of the macro that runs, its first scope
  Text written_;
  Text* out_ = &written_;
  int depth_ = 0, line_ = 1;
};

// A value of JSON that was parsed, whose texts are of that origin.
Value ValueOf(Heap& heap, const Json& json, Origin of) {
  switch (json.type()) {
    case Json::Type::kNull:
      return Heap::None();
    case Json::Type::kBool:
      return Heap::Bool(*json.Bool());
    case Json::Type::kNumber: {
      const std::optional<int64_t> whole = json.Int();
      return whole ? Heap::Int(*whole) : Heap::Real(json.Number().value_or(0));
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
  Evaluation evaluation(&heap);
  const Dict functions = Functions(heap);
  for (const auto& [name, function] : functions) evaluation.Set(name.bytes(), function);
  evaluation.Set("messages", MessagesOf(heap, inputs));
  evaluation.Set("add_generation_prompt", Heap::Bool(inputs.to_answer));
  evaluation.Set("bos_token", heap.Make(inputs.bos));
  evaluation.Set("eos_token", heap.Make(inputs.eos));
  evaluation.Set(
      "tools", inputs.tools.empty() ? Heap::None() : ValueOfText(heap, inputs.tools, "the tools"));
  evaluation.Set("documents", Heap::None());
  Text out = evaluation.Run(*program_);
  if (!heap.failed()) return out;
  return absl::InvalidArgumentError(
      absl::StrCat("line ", evaluation.line(), ": ", heap.status().message()));
}

}  // namespace tessera::llm::jinja
