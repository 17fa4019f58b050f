// A template's tokens, one after the other, and the nodes that the parser makes of them.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/llm/jinja_lexer.h"
#include "examples/llm/jinja_parser.h"

namespace tessera::llm::jinja {

using T = Token::Kind;

class Cursor {
 protected:
  explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  static constexpr int kMostDepth = 120;
  static constexpr size_t kMostArguments = 100;  // of calls, and parameters of macros
  static constexpr size_t kMostOfAName = 100;    // bytes
  struct Deeper {
    explicit Deeper(Cursor* c) : cursor(c) {
      if (++cursor->depth_ > kMostDepth) cursor->Fail("it nests too deep");
    }
    ~Deeper() { --cursor->depth_; }
    Cursor* cursor;
  };

  // Once it fails, all that follows is the end, so that every loop ends.
  void Fail(absl::string_view what) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat("line ", Now().line, ": ", what));
    at_ = tokens_.size() - 1;
  }
  const Token& Now() const { return tokens_[at_]; }
  const Token& After() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take() {
    Token t = Now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return t;
  }
  bool Skip(T kind, absl::string_view text) {
    if (!Now().is(kind, text)) return false;
    Take();
    return true;
  }
  bool SkipOp(absl::string_view text) { return Skip(T::kOperator, text); }
  bool SkipName(absl::string_view text) { return Skip(T::kName, text); }
  void Expect(T kind, absl::string_view text, absl::string_view shown) {
    if (Now().is(kind, text)) {
      Take();
    } else {
      Fail(absl::StrCat("wants ", shown));
    }
  }
  void ExpectOp(absl::string_view text) { Expect(T::kOperator, text, text); }
  // Between the parts of a list, which may end in one more.
  void Comma(absl::string_view end) {
    if (!Now().is(T::kOperator, end)) ExpectOp(",");
  }
  void EndBlock() { Expect(T::kEndBlock, "", "%}"); }
  std::string Name() {
    if (!Now().is(T::kName)) {
      Fail("wants a name");
    } else if (Now().text.size() > kMostOfAName) {
      Fail("a name is too long");
    } else {
      return Take().text;
    }
    return "";
  }

  Node* New(NodeKind kind, std::vector<const Node*> of = {}) {
    Node& n = program_.nodes.emplace_back();
    n.kind = kind;
    n.line = Now().line;
    for (const Node* child : of) Contain(&n, child);
    n.of = std::move(of);
    return &n;
  }
  void Contain(Node* n, const Node* child) {
    if (child != nullptr) n->depth = std::max(n->depth, child->depth + 1);
    if (n->depth > kMostDepth) Fail("it nests too deep");
  }
  Node* Constant(Value value) {
    Node* n = New(NodeKind::kConstant);
    n->constant = value;
    return n;
  }

  absl::Status status_;
  Program program_;

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace tessera::llm::jinja
