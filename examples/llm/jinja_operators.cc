// Operators of two values.
#include <cmath>

#include "examples/llm/jinja_functions.h"
#include "examples/llm/jinja_text.h"

namespace tessera::llm::jinja {
namespace {

Value OfReals(Heap& heap, absl::string_view op, double a, double b) {
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides ? b == 0 : op == "**" && a == 0 && b < 0) return heap.Fail("a division by 0");
  if (op == "+") return Heap::Real(a + b);
  if (op == "-") return Heap::Real(a - b);
  if (op == "*") return Heap::Real(a * b);
  if (op == "/") return Heap::Real(a / b);
  if (op == "//") return Heap::Real(std::floor(a / b));
  if (op == "%") return Heap::Real(a - b * std::floor(a / b));
  return Heap::Real(std::pow(a, b));
}

Value OfWholes(Heap& heap, absl::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool over = false;
  if (op == "+") {
    over = __builtin_add_overflow(a, b, &out);
  } else if (op == "-") {
    over = __builtin_sub_overflow(a, b, &out);
  } else if (op == "*") {
    over = __builtin_mul_overflow(a, b, &out);
  } else if (op == "**") {
    constexpr int64_t kMost = 64;
    if (b < 0) return OfReals(heap, op, static_cast<double>(a), static_cast<double>(b));
    if (b > kMost) return heap.Fail("such powers are not known");
    for (out = 1; b > 0; --b) over = __builtin_mul_overflow(out, a, &out) || over;
  } else {
    if (b == 0) return heap.Fail("a division by 0");
    if (b == -1) return op == "//" ? OfWholes(heap, "-", 0, a) : Heap::Int(0);
    const bool rounds = a % b != 0 && (a < 0) != (b < 0);  // towards less
    out = op == "//" ? a / b - rounds : a % b + (rounds ? b : 0);
  }
  return over ? heap.Fail("an integer is too large") : Heap::Int(out);
}

}  // namespace

bool Holds(Heap& heap, absl::string_view op, const Value& a, const Value& b) {
  if (op == "==") return heap.Equal(a, b);
  if (op == "!=") return !heap.Equal(a, b);
  if (op == "in") return Contains(heap, b, a);
  if (op == "not in") return !Contains(heap, b, a);
  const int order = heap.Compare(a, b);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

Value Arithmetic(Heap& heap, absl::string_view op, const Value& a, const Value& b) {
  if (op == "~") {
    Text both = heap.Shown(a);
    both.Append(heap.Shown(b));
    return heap.Make(std::move(both));
  }
  if (a.IsNumber() && b.IsNumber()) {
    return a.is(Kind::kFloat) || b.is(Kind::kFloat) || op == "/"
               ? OfReals(heap, op, a.Real(), b.Real())
               : OfWholes(heap, op, a.number, b.number);
  }
  if (op == "+" && a.is(Kind::kText) && b.is(Kind::kText)) {
    Text both = *a.text;
    both.Append(*b.text);
    return heap.Make(std::move(both));
  }
  if (op == "+" && a.is(Kind::kList) && b.is(Kind::kList)) {
    List both = ItemsOf(heap, a);
    const List more = ItemsOf(heap, b);
    both.insert(both.end(), more.begin(), more.end());
    return heap.Make(std::move(both), a.tuple && b.tuple);
  }
  if (op == "%" && a.is(Kind::kText)) return texts::Formatted(heap, *a.text, b);
  if (op == "*" && a.is(Kind::kList) && b.is(Kind::kInt)) {
    List all;
    for (int64_t i = 0; i < b.number && heap.Charge(a.list->size() * sizeof(Value)) && heap.Step();
         ++i) {
      all.insert(all.end(), a.list->begin(), a.list->end());
    }
    return heap.Make(std::move(all), a.tuple);
  }
  if (op == "*" && a.is(Kind::kText) && b.is(Kind::kInt)) {
    Text all;
    for (int64_t i = 0; i < b.number && heap.Step() && heap.Charge(2 * a.text->size()); ++i) {
      all.Append(*a.text);
    }
    return heap.Make(std::move(all));
  }
  if (op == "*" && a.is(Kind::kInt) && (b.is(Kind::kText) || b.is(Kind::kList))) {
    return Arithmetic(heap, op, b, a);
  }
  return heap.Fail(NameOf(a.kind), " ", op, " ", NameOf(b.kind), " is not known");
}

}  // namespace tessera::llm::jinja
