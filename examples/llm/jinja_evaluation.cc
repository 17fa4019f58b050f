// Walks the tree of a template: statements write, expressions give values.
#include "examples/llm/jinja_evaluation.h"

#include <algorithm>
#include <deque>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "examples/llm/jinja_functions.h"
#include "examples/llm/jinja_text.h"

namespace tessera::llm::jinja {
namespace {

// Names, of which those that are further out are seen as well.
struct Scope {
  absl::flat_hash_map<absl::string_view, Value> names;
  Scope* outside = nullptr;
  bool captured = false;  // by a macro that was made in it, or further in
};

}  // namespace

// A macro, or a loop that calls itself, and where it was made.
struct Closure {
  const Node* node;
  Scope* scope;
};

namespace {

class Evaluation {
 public:
  explicit Evaluation(Heap* heap) : heap_(*heap) {}

  void Set(absl::string_view name, const Value& value) {
    const auto [at, is_new] = scope_->names.insert_or_assign(name, value);
    if (is_new) heap_.Charge(2 * sizeof(*at));
  }
  Text Run(const Program& program) {
    Body(program.body);
    return std::move(*out_);
  }
  int line() const { return line_; }

 private:
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
  // A scope while this lives, or as long as what captured it.
  class Inner {
   public:
    Inner(Evaluation* e, Scope* outside) : e_(*e), before_(e->scope_) { Enter(outside); }
    explicit Inner(Evaluation* e) : Inner(e, e->scope_) {}
    ~Inner() {
      Leave();
      e_.scope_ = before_;
    }
    Inner(const Inner&) = delete;
    // Without names again.
    void Renew() {
      if (!own_->captured) return own_->names.clear();
      Scope* const outside = own_->outside;
      Leave();
      Enter(outside);
    }

   private:
    void Enter(Scope* outside) {
      own_ = std::make_unique<Scope>();
      own_->outside = outside;
      e_.scope_ = own_.get();
    }
    void Leave() {
      if (!own_->captured) return;
      e_.heap_.Charge(sizeof(Scope));
      e_.captured_.push_back(std::move(own_));
    }
    Evaluation& e_;
    Scope* const before_;
    std::unique_ptr<Scope> own_;
  };

  Value Lookup(absl::string_view name) {
    for (const Scope* s = scope_; s != nullptr; s = s->outside) {
      const auto found = s->names.find(name);
      if (found != s->names.end()) return found->second;
      if (!heap_.Step()) return {};
    }
    return {};
  }
  Value Captured(const Node& node) {
    for (Scope* s = scope_; s != nullptr && !s->captured; s = s->outside) s->captured = true;
    closures_.push_back({&node, scope_});
    heap_.Charge(sizeof(Closure));
    return Heap::Function(&closures_.back());
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
    return Written([&] { return Body(body); }, what);
  }
  template <typename F>
  Flow Written(F&& run, Value* what) {
    Text own;
    Text* const outside = std::exchange(out_, &own);
    const Flow flow = run();
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
        Assign(*n.of[0], Of(n.of[1]));
        return Flow::kOn;
      case NodeKind::kSetBody: {
        Value v;
        {
          const Inner scope(this);
          if (const Flow flow = Written(n.body, &v); flow != Flow::kOn) return flow;
        }
        Assign(*n.of[0], Piped(n.of[1], v));
        return Flow::kOn;
      }
      case NodeKind::kMacro:
        Set(n.text, Captured(n));
        return Flow::kOn;
      case NodeKind::kCallBlock:
        Write(heap_.Shown(Called(*n.of[0], Captured(n))));
        return Flow::kOn;
      case NodeKind::kFilterBody: {
        const Inner scope(this);
        Value v;
        if (const Flow flow = Written(n.body, &v); flow != Flow::kOn) return flow;
        Write(heap_.Shown(Piped(n.of[0], v)));
        return Flow::kOn;
      }
      case NodeKind::kScope: {
        List values;
        for (size_t i = 1; i < n.of.size(); i += 2) values.push_back(Of(n.of[i]));
        const Inner scope(this);
        for (size_t i = 0; i < values.size(); ++i) Assign(*n.of[2 * i], values[i]);
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

  // To a name, the attribute of a namespace, or several of them.
  void Assign(const Node& to, const Value& value) {
    if (to.kind == NodeKind::kName) return Set(to.text, value);
    if (to.kind == NodeKind::kAttribute) return SetAttribute(to.of[0]->text, to.text, value);
    const Value of = value;
    const List items = ItemsOf(heap_, of);
    if (items.size() != to.of.size()) {
      heap_.Fail(to.of.size(), " names for ", items.size(), " values");
      return;
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(*to.of[i], items[i]);
  }
  void SetAttribute(const std::string& name, const std::string& attribute, const Value& value) {
    const Value space = Lookup(name);
    if (!space.is(Kind::kNamespace)) {
      heap_.Fail("'", name, "' is no namespace");
      return;
    }
    if (Value* old = heap_.Find(*space.dict, attribute)) {
      *old = value;
      return;
    }
    const Value key = heap_.Make(attribute);
    if (heap_.Charge(2 * sizeof(Value))) space.dict->emplace_back(key, value);
  }

  // A target, what it goes through, and perhaps a condition.
  Flow For(const Node& n) { return ForAll(n, ItemsOf(heap_, Of(n.of[1])), 1); }
  Flow ForAll(const Node& n, List items, int64_t depth) {
    const Value itself = n.text.empty() ? Value() : Captured(n);
    Inner scope(this);
    if (n.of.size() > 2) {
      List kept;
      for (const Value& v : items) {
        Assign(*n.of[0], v);
        if (!heap_.Step()) return Flow::kOn;
        if (IsTrue(Of(n.of[2]))) kept.push_back(v);
      }
      items = std::move(kept);
    }
    if (items.empty()) {
      scope.Renew();
      return Body(n.otherwise);
    }
    // What a loop says of itself, in the order of the names.
    constexpr const char* kNames[] = {"index",  "index0",   "revindex", "revindex0",
                                      "first",  "last",     "length",   "depth",
                                      "depth0", "previtem", "nextitem"};
    Dict about;
    for (const char* name : kNames) about.emplace_back(heap_.Make(name), Value());
    about.emplace_back(Value(), itself);
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
                           Heap::Int(depth),
                           Heap::Int(depth - 1),
                           first ? Value() : items[static_cast<size_t>(i - 1)],
                           last ? Value() : items[static_cast<size_t>(i + 1)]};
      for (size_t k = 0; k < std::size(own); ++k) (*loop.dict)[k].second = own[k];
      scope.Renew();
      Set("loop", loop);
      Assign(*n.of[0], items[static_cast<size_t>(i)]);
      if (Body(n.body) == Flow::kBreak) break;
    }
    return Flow::kOn;
  }
  // {{ loop(items) }}: the loop again, one deeper.
  Value Again(const Value& loop, const Arguments& a) {
    const auto itself = std::find_if(loop.dict->begin(), loop.dict->end(), [](const auto& item) {
      return item.first.is(Kind::kUndefined) && item.second.is(Kind::kFunction);
    });
    if (itself == loop.dict->end() || a.plain.size() != 2) {
      return heap_.Fail("a loop is called, of one list, where it is recursive");
    }
    const Value* depth = heap_.Find(*loop.dict, "depth");
    if (depth == nullptr) return {};
    const Closure& own = *itself->second.closure;
    const Inner scope(this, own.scope);
    Value out;
    Written([&] { return ForAll(*own.node, ItemsOf(heap_, a.plain[1]), depth->number + 1); }, &out);
    return out;
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
      case NodeKind::kTuple:
        return heap_.Make(AllOf(n), n.kind == NodeKind::kTuple);
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
        return MemberOf(heap_, Of(n.of[0]), n.text);
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
    for (const auto& [name, value] : n.named) {
      const Value v = Of(value);
      if (name == "*") {
        const List more = ItemsOf(heap_, v);
        a.plain.insert(a.plain.end(), more.begin(), more.end());
      } else if (name != "**") {
        a.named.emplace_back(name, v);
      } else if (!v.is(Kind::kDict)) {
        heap_.Fail("** of ", NameOf(v.kind));
      } else if (heap_.Charge(v.dict->size() * sizeof(a.named[0]))) {
        for (const auto& [key, of] : *v.dict) a.named.emplace_back(key.bytes(), of);
      }
    }
    return a;
  }
  // Through the filters of a body, the innermost of which filters no expression.
  Value Piped(const Node* filter, Value v) {
    if (filter == nullptr) return v;
    v = Piped(filter->of[0], v);
    return CallFilter(heap_, filter->text, ArgumentsOf(*filter, v));
  }

  // With what a block that calls has between its begin and its end, if it is one that calls.
  Value Called(const Node& n, const Value& caller = {}) {
    const Node& callee = *n.of[0];
    const auto arguments = [&](const Value& first) {
      Arguments a = ArgumentsOf(n, first);
      if (!caller.is(Kind::kUndefined)) a.named.emplace_back("caller", caller);
      return a;
    };
    if (callee.kind == NodeKind::kAttribute) {
      const Value of = Of(callee.of[0]);
      const bool has = of.is(Kind::kDict) || of.is(Kind::kNamespace);
      const Value* own = has ? heap_.Find(*of.dict, callee.text) : nullptr;
      if (of.is(Kind::kUndefined)) {
        return heap_.Fail("'", callee.text, "' of what is undefined");
      }
      if (own == nullptr || !own->is(Kind::kFunction)) {
        return CallMethod(heap_, callee.text, arguments(of));
      }
      return Call(Value(*own), arguments(of));
    }
    const Value function = Of(&callee);
    if (function.is(Kind::kNamespace)) return Again(function, arguments({}));
    if (!function.is(Kind::kFunction)) {
      return heap_.Fail("'", callee.text, "' is ", NameOf(function.kind), ", not a function");
    }
    return Call(function, arguments({}));
  }
  // The first of the arguments is whose it is.
  Value Call(const Value& function, Arguments a) {
    a.plain.erase(a.plain.begin());
    if (heap_.failed()) return {};
    if (function.builtin != nullptr) return function.builtin(heap_, a);
    const Closure& closure = *function.closure;
    const Node& macro = *closure.node;
    const Inner scope(this, closure.scope);
    const size_t own = std::min(a.plain.size(), macro.names.size());
    if (!heap_.Read(a.plain.size() * sizeof(Value))) return {};
    List more(a.plain.begin() + static_cast<int64_t>(own), a.plain.end());
    a.plain.resize(own);
    Dict others;
    for (const auto& [name, value] : a.named) {
      if (std::count(macro.names.begin(), macro.names.end(), name) > 0) continue;
      if (name == "caller") {
        Set(name, value);
      } else if (macro.takes_named) {
        heap_.Put(others, heap_.Make(name), value);
      } else {
        return heap_.Fail("'", macro.text, "' takes no argument '", name, "'");
      }
    }
    if (!more.empty() && !macro.takes_more) {
      return heap_.Fail("'", macro.text, "' takes ", macro.names.size(), " arguments");
    }
    if (macro.takes_more) Set("varargs", heap_.Make(std::move(more), /*tuple=*/true));
    if (macro.takes_named) Set("kwargs", heap_.Make(std::move(others)));
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
    return out;
  }

  Heap& heap_;
  Scope outermost_;
  Scope* scope_ = &outermost_;
  std::vector<std::unique_ptr<Scope>> captured_;
  std::deque<Closure> closures_;
  Text written_;
  Text* out_ = &written_;
  int depth_ = 0, line_ = 1;
};

}  // namespace

Text Evaluate(Heap& heap, const Program& program, const Dict& names, int* line) {
  Evaluation evaluation(&heap);
  for (const auto& [name, value] : names) evaluation.Set(name.bytes(), value);
  Text out = evaluation.Run(program);
  *line = evaluation.line();
  return out;
}

}  // namespace tessera::llm::jinja
