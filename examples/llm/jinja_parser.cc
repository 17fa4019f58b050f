// Recursive descent: a function a level of precedence, and one a statement.
#include "examples/llm/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "examples/llm/jinja_cursor.h"
#include "graph/status.h"

namespace tessera::llm::jinja {
namespace {

using Nodes = std::vector<const Node*>;

bool IsLiteral(const Token& t) { return t.is(T::kInt) || t.is(T::kFloat) || t.is(T::kString); }

class Parser : Cursor {
 public:
  explicit Parser(std::vector<Token> tokens) : Cursor(std::move(tokens)) {}

  absl::StatusOr<Program> All() {
    program_.body = Statements({});
    if (!Now().is(T::kEnd)) Fail("a statement ends that has not begun");
    RETURN_IF_ERROR(status_);
    return std::move(program_);
  }

 private:
  // ---- statements

  // Up to a block that begins with one of these names, which is left where it is, or to the end.
  Nodes Statements(std::initializer_list<absl::string_view> ends) {
    const Deeper deeper(this);
    Nodes out;
    while (!Now().is(T::kEnd)) {
      if (Now().is(T::kText)) {
        Node* n = New(NodeKind::kText);
        n->literal = Text(Take().text);
        out.push_back(n);
      } else if (Now().is(T::kBeginOutput)) {
        Take();
        out.push_back(New(NodeKind::kOutput, {Tuple()}));
        Expect(T::kEndOutput, "", "}}");
      } else if (std::count(ends.begin(), ends.end(), After().text) > 0) {
        break;
      } else {
        Take();
        if (const Node* n = Statement()) out.push_back(n);
      }
    }
    return out;
  }
  // What is inside of a statement, and the block that ends it.
  void Body(Nodes* to, Node* owner, std::initializer_list<absl::string_view> ends) {
    *to = Statements(ends);
    for (const Node* n : *to) Contain(owner, n);
    if (Now().is(T::kEnd)) Fail(absl::StrCat("a statement does not end: wants ", *ends.begin()));
    Take();  // {%
  }
  void WholeBody(Node* owner, absl::string_view end) {
    EndBlock();
    Body(&owner->body, owner, {end});
    Take();
    if (Now().is(T::kName)) Take();  // a macro's end may name it
    EndBlock();
  }

  const Node* Statement() {
    const Token t = Take();
    if (t.is(T::kName, "if")) return If();
    if (t.is(T::kName, "for")) return For();
    if (t.is(T::kName, "set")) return Set();
    if (t.is(T::kName, "macro")) return Macro();
    if (t.is(T::kName, "call")) return CallBlock();
    if (t.is(T::kName, "with")) return With();
    if (t.is(T::kName, "filter")) {
      Node* n = New(NodeKind::kFilterBody);
      n->of = {FilterNamed(nullptr)};
      while (SkipOp("|")) n->of = {FilterNamed(n->of[0])};
      WholeBody(n, "endfilter");
      return n;
    }
    if (t.is(T::kName, "generation") || t.is(T::kName, "block")) {
      Node* n = New(NodeKind::kScope);
      if (t.text == "block") Name();
      WholeBody(n, absl::StrCat("end", t.text));
      return n;
    }
    if (t.is(T::kName, "break") || t.is(T::kName, "continue")) {
      if (loops_ == 0) Fail("a loop is left where there is none");
      EndBlock();
      return New(t.text == "break" ? NodeKind::kBreak : NodeKind::kContinue);
    }
    Fail(absl::StrCat("the statement '", t.text, "' is not known"));
    return nullptr;
  }

  const Node* If() {
    Node* const first = New(NodeKind::kIf, {Tuple()});
    Node* n = first;
    while (status_.ok()) {
      EndBlock();
      Body(&n->body, n, {"endif", "elif", "else"});
      const std::string end = Take().text;
      if (end == "elif") {  // a chain of them, which is not deeper for it
        Node* next = New(NodeKind::kIf, {Tuple()});
        n->otherwise = {next};
        n = next;
        continue;
      }
      if (end == "else") {
        EndBlock();
        Body(&n->otherwise, n, {"endif"});
        Take();
      }
      EndBlock();
      break;
    }
    return first;
  }

  // What is assigned to: a name, several, also within brackets, or attributes of namespaces.
  const Node* Targets(bool with_attributes) {
    const Deeper deeper(this);
    Nodes all;
    bool several = false;
    do {
      if (several && !Now().is(T::kName) && !Now().is(T::kOperator, "(")) break;
      all.push_back(Target(with_attributes));
      several = several || Now().is(T::kOperator, ",");
    } while (SkipOp(","));
    return several ? New(NodeKind::kTuple, std::move(all)) : all[0];
  }
  const Node* Target(bool with_attributes) {
    if (SkipOp("(")) {
      const Node* within = Targets(with_attributes);
      ExpectOp(")");
      return within;
    }
    Node* n = New(NodeKind::kName);
    n->text = Name();
    constexpr absl::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
    if (std::count(std::begin(kConstants), std::end(kConstants), n->text) > 0) {
      Fail(absl::StrCat("'", n->text, "' cannot be set"));
    }
    if (!with_attributes || !SkipOp(".")) return n;
    Node* attribute = New(NodeKind::kAttribute, {n});
    attribute->text = Name();
    return attribute;
  }

  const Node* For() {
    Node* n = New(NodeKind::kFor);
    n->of.push_back(Targets(false));
    Expect(T::kName, "in", "in");
    n->of.push_back(Tuple(&Parser::Or));
    if (SkipName("if")) n->of.push_back(Expression());
    if (SkipName("recursive")) n->text = "recursive";
    for (const Node* child : n->of) Contain(n, child);
    EndBlock();
    ++loops_;
    Body(&n->body, n, {"endfor", "else"});
    --loops_;
    if (Take().text == "else") {
      EndBlock();
      Body(&n->otherwise, n, {"endfor"});
      Take();
    }
    EndBlock();
    return n;
  }

  const Node* Set() {
    const Node* to = Targets(true);
    if (SkipOp("=")) {
      const Node* n = New(NodeKind::kSet, {to, Tuple()});
      EndBlock();
      return n;
    }
    const Node* filters = nullptr;
    while (SkipOp("|")) filters = FilterNamed(filters);
    Node* n = New(NodeKind::kSetBody, {to, filters});
    WholeBody(n, "endset");
    return n;
  }

  const Node* With() {
    Node* n = New(NodeKind::kScope);
    while (!Now().is(T::kEndBlock) && status_.ok()) {
      n->of.push_back(Target(false));
      ExpectOp("=");
      n->of.push_back(Expression());
      if (!Now().is(T::kEndBlock)) ExpectOp(",");
    }
    for (const Node* child : n->of) Contain(n, child);
    WholeBody(n, "endwith");
    return n;
  }

  const Node* Macro() {
    Node* n = New(NodeKind::kMacro);
    n->text = Name();
    ExpectOp("(");
    Parameters(n);
    BodyOfMacro(n, "endmacro");
    return n;
  }
  const Node* CallBlock() {
    Node* n = New(NodeKind::kCallBlock);
    n->text = "caller";
    if (SkipOp("(")) Parameters(n);
    const Node* call = Postfixed(Primary());
    if (call->kind != NodeKind::kCall) Fail("wants a call");
    n->of = {call};
    Contain(n, call);
    BodyOfMacro(n, "endcall");
    return n;
  }
  // Up to the bracket that closes them.
  void Parameters(Node* n) {
    while (!SkipOp(")") && status_.ok()) {
      n->names.push_back(Name());
      if (n->names.size() > kMostArguments) Fail("a macro has too many parameters");
      if (SkipOp("=")) {
        n->named.emplace_back(n->names.back(), Expression());
        Contain(n, n->named.back().second);
      }
      Comma(")");
    }
  }
  void BodyOfMacro(Node* n, absl::string_view end) {
    const int outside = std::exchange(loops_, 0);
    Node* const around = std::exchange(macro_, n);
    WholeBody(n, end);
    macro_ = around;
    loops_ = outside;
  }

  // ---- expressions

  const Node* Tuple() { return Tuple(&Parser::Expression); }
  const Node* Tuple(const Node* (Parser::*one)()) {
    const Node* first = (this->*one)();
    if (!Now().is(T::kOperator, ",")) return first;
    Nodes all = {first};
    while (SkipOp(",") && BeginsExpression()) all.push_back((this->*one)());
    return New(NodeKind::kTuple, std::move(all));
  }
  bool BeginsExpression() const {
    if (Now().is(T::kOperator)) return absl::StrContains("([{-+", Now().text);
    constexpr absl::string_view kAfter[] = {"in", "if", "recursive"};  // of a loop's list
    if (!Now().is(T::kName)) return IsLiteral(Now());
    return std::count(std::begin(kAfter), std::end(kAfter), Now().text) == 0;
  }

  const Node* Expression() {
    const Deeper deeper(this);
    const Node* n = Or();
    while (SkipName("if")) {
      const Node* condition = Or();
      n = New(NodeKind::kChoice, {n, condition, SkipName("else") ? Expression() : nullptr});
    }
    return n;
  }
  const Node* Or() {
    const Node* n = And();
    while (SkipName("or")) n = New(NodeKind::kOr, {n, And()});
    return n;
  }
  const Node* And() {
    const Node* n = Not();
    while (SkipName("and")) n = New(NodeKind::kAnd, {n, Not()});
    return n;
  }
  const Node* Not() {
    const Deeper deeper(this);
    return SkipName("not") ? New(NodeKind::kNot, {Not()}) : Compared();
  }
  std::string Comparison() {
    for (const char* op : {"==", "!=", "<", "<=", ">", ">="}) {
      if (SkipOp(op)) return op;
    }
    if (SkipName("in")) return "in";
    if (Now().is(T::kName, "not") && After().is(T::kName, "in")) {
      Take();
      Take();
      return "not in";
    }
    return "";
  }
  const Node* Compared() {
    const Node* first = Sum();
    Nodes all = {first};
    std::vector<std::string> operators;
    for (std::string op = Comparison(); !op.empty(); op = Comparison()) {
      operators.push_back(op);
      all.push_back(Sum());
    }
    if (operators.empty()) return first;
    Node* n = New(NodeKind::kCompare, std::move(all));
    n->names = std::move(operators);
    return n;
  }
  // Those of one level, from the left.
  const Node* Level(std::initializer_list<absl::string_view> operators,
                    const Node* (Parser::*next)()) {
    const Node* n = (this->*next)();
    while (Now().is(T::kOperator) &&
           std::count(operators.begin(), operators.end(), Now().text) > 0) {
      const std::string op = Take().text;
      Node* both = New(NodeKind::kArithmetic, {n, (this->*next)()});
      both->text = op;
      n = both;
    }
    return n;
  }
  const Node* Sum() { return Level({"+", "-"}, &Parser::Joined); }
  const Node* Joined() { return Level({"~"}, &Parser::Product); }
  const Node* Product() { return Level({"*", "/", "//", "%"}, &Parser::Power); }
  const Node* Power() { return Level({"**"}, &Parser::Unary); }
  const Node* Unary() { return Filtered(UnaryAlone()); }
  const Node* UnaryAlone() {
    const Deeper deeper(this);
    if (SkipOp("-")) return New(NodeKind::kNegative, {UnaryAlone()});
    if (SkipOp("+")) return UnaryAlone();
    return Postfixed(Primary());
  }

  const Node* Primary() {
    const Token t = Take();
    if (t.is(T::kOperator, "(")) {
      if (SkipOp(")")) return New(NodeKind::kTuple);
      const Node* n = Tuple();
      ExpectOp(")");
      return n;
    }
    if (t.is(T::kOperator, "[")) return ListOf(NodeKind::kList, "]");
    if (t.is(T::kOperator, "{")) return ListOf(NodeKind::kDict, "}");
    if (t.is(T::kName)) {
      if (t.text == "true" || t.text == "True") return Constant(Heap::Bool(true));
      if (t.text == "false" || t.text == "False") return Constant(Heap::Bool(false));
      if (t.text == "none" || t.text == "None") return Constant(Heap::None());
      if (t.text.size() > kMostOfAName) Fail("a name is too long");
      Node* n = New(NodeKind::kName);
      n->text = t.text;
      if (macro_ != nullptr && t.text == "varargs") macro_->takes_more = true;
      if (macro_ != nullptr && t.text == "kwargs") macro_->takes_named = true;
      return n;
    }
    if (t.is(T::kInt) || t.is(T::kFloat)) {
      int64_t whole = 0;
      double real = 0;
      if (t.is(T::kInt) && absl::SimpleAtoi(t.text, &whole)) return Constant(Heap::Int(whole));
      if (t.is(T::kFloat) && absl::SimpleAtod(t.text, &real)) return Constant(Heap::Real(real));
      Fail(absl::StrCat("the number ", t.text, " is too large"));
      return Constant({});
    }
    if (t.is(T::kString)) {
      std::string all = t.text;
      while (Now().is(T::kString)) all += Take().text;
      Node* n = New(NodeKind::kConstant);
      n->literal = Text(all);
      n->constant.kind = Kind::kText;
      n->constant.text = &n->literal;
      return n;
    }
    Fail(t.text.empty() ? "an expression is missing"
                        : absl::StrCat("'", t.text, "' begins no expression"));
    return Constant({});
  }

  const Node* ListOf(NodeKind kind, absl::string_view end) {
    Nodes all;
    while (!SkipOp(end) && status_.ok()) {
      all.push_back(Expression());
      if (kind == NodeKind::kDict) {
        ExpectOp(":");
        all.push_back(Expression());
      }
      Comma(end);
    }
    return New(kind, std::move(all));
  }

  const Node* Postfixed(const Node* n) {
    while (true) {
      if (SkipOp(".")) {
        Node* next = New(Now().is(T::kInt) ? NodeKind::kItem : NodeKind::kAttribute, {n});
        if (Now().is(T::kInt)) {
          next->of.push_back(Primary());
        } else {
          next->text = Name();
        }
        n = next;
      } else if (SkipOp("[")) {
        n = Subscript(n);
      } else if (Now().is(T::kOperator, "(")) {
        n = Arguments(New(NodeKind::kCall, {n}));
      } else {
        return n;
      }
    }
  }
  const Node* Subscript(const Node* n) {
    Nodes all = {n};
    bool slice = false;
    while (!SkipOp("]") && status_.ok()) {
      if (SkipOp(":")) {
        slice = true;
        while (all.size() < 2) all.push_back(nullptr);
        const bool none = Now().is(T::kOperator, ":") || Now().is(T::kOperator, "]");
        all.push_back(none ? nullptr : Expression());
      } else {
        all.push_back(Expression());
        if (!Now().is(T::kOperator, ":") && !Now().is(T::kOperator, "]")) ExpectOp("]");
      }
    }
    if (all.size() < 2 || all.size() > 4 || (!slice && all.size() > 2)) {
      Fail("wants an index or a slice");
    }
    return New(slice ? NodeKind::kSlice : NodeKind::kItem, std::move(all));
  }
  // Adds them to a node, where there are any.
  const Node* Arguments(Node* n) {
    if (!SkipOp("(")) return n;
    while (!SkipOp(")") && status_.ok()) {
      const bool named = Now().is(T::kName) && After().is(T::kOperator, "=");
      const bool spread = Now().is(T::kOperator, "*") || Now().is(T::kOperator, "**");
      if (named || spread) {
        const std::string name = spread ? Take().text : Name();
        if (named) Take();
        n->named.emplace_back(name, Expression());
        Contain(n, n->named.back().second);
      } else {
        n->of.push_back(Expression());
        Contain(n, n->of.back());
      }
      if (n->of.size() + n->named.size() > kMostArguments) Fail("a call has too many arguments");
      Comma(")");
    }
    return n;
  }
  const Node* FilterNamed(const Node* of) {
    Node* n = New(NodeKind::kFilter, {of});
    n->text = Name();
    return Arguments(n);
  }

  const Node* Filtered(const Node* n) {
    while (true) {
      if (SkipOp("|")) {
        n = FilterNamed(n);
      } else if (SkipName("is")) {
        const bool negated = SkipName("not");
        Node* test = New(NodeKind::kTest, {n});
        test->text = Name();
        if (Now().is(T::kOperator, "(")) {
          Arguments(test);
        } else if (TakesArgument()) {
          test->of.push_back(Postfixed(Primary()));
          Contain(test, test->of.back());
        }
        n = negated ? New(NodeKind::kNot, {test}) : test;
      } else if (Now().is(T::kOperator, "(")) {
        n = Arguments(New(NodeKind::kCall, {n}));
      } else {
        return n;
      }
    }
  }
  // Whether a test's argument without brackets follows.
  bool TakesArgument() const {
    const Token& t = Now();
    if (t.is(T::kOperator)) return t.text == "[" || t.text == "{";
    if (IsLiteral(t)) return true;
    constexpr absl::string_view kWords[] = {"else", "or", "and", "if", "is", "in", "not"};
    return t.is(T::kName) && std::count(std::begin(kWords), std::end(kWords), t.text) == 0;
  }

  // Around what is parsed:
  int loops_ = 0;
  Node* macro_ = nullptr;
};

}  // namespace

absl::StatusOr<Program> Parse(absl::string_view text) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(text));
  return Parser(std::move(tokens)).All();
}

}  // namespace tessera::llm::jinja
