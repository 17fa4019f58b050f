// Fields that are filled: '{:>5}'.format(x) and '%5s' % x, as Python has them.
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "examples/llm/jinja_functions.h"
#include "examples/llm/jinja_text.h"
#include "examples/llm/unicode.h"

namespace tessera::llm::jinja::texts {
namespace {

// How one value is written.
struct Spec {
  std::string fill = " ";  // one character
  char align = 0;          // < > ^, = between the sign and the digits
  char sign = '-';         // + or a space where numbers that are not negative have it
  char group = 0;          // between thousands
  char type = 0;
  bool prefix = false;  // 0x and the like
  bool zeros = false;   // before the digits, up to the width
  int64_t width = 0, precision = -1;
};
constexpr int64_t kMostWidth = 10'000, kMostPrecision = 100;

// Digits at the front of a text, as a number; the most there may be where there are too many.
int64_t NumberAt(absl::string_view* text) {
  int64_t n = 0;
  while (!text->empty() && absl::ascii_isdigit(text->front())) {
    n = std::min<int64_t>(n * 10 + (text->front() - '0'), int64_t{1} << 40);
    text->remove_prefix(1);
  }
  return n;
}

// [[fill]align][sign][#][0][width][,][.precision][type]
bool ReadSpec(absl::string_view text, Spec* out) {
  const auto aligns = [](absl::string_view t) {
    return !t.empty() && absl::StrContains("<>^=", t.front());
  };
  const size_t first = text.empty() ? 0 : Characters(text)[1].begin;
  if (aligns(text.substr(first))) {
    out->fill = std::string(text.substr(0, first));
    text.remove_prefix(first);
  }
  const auto one_of = [&](absl::string_view all, char* to) {
    if (text.empty() || !absl::StrContains(all, text.front())) return false;
    *to = text.front();
    text.remove_prefix(1);
    return true;
  };
  char zero = 0, dot = 0, hash = 0;
  one_of("<>^=", &out->align);
  one_of("+- ", &out->sign);
  out->prefix = one_of("#", &hash);
  out->zeros = one_of("0", &zero) && out->align == 0;
  if (out->zeros) out->fill.assign(1, '0');
  out->width = NumberAt(&text);
  one_of(",_", &out->group);
  if (one_of(".", &dot)) {
    if (text.empty() || !absl::ascii_isdigit(text.front())) return false;
    out->precision = NumberAt(&text);
  }
  one_of("sdboxXneEfFgG%", &out->type);
  return text.empty() && out->width <= kMostWidth && out->precision <= kMostPrecision;
}

std::string Grouped(const std::string& digits, char by, size_t each) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < whole && (whole - i) % each == 0) out += by;
    out += digits[i];
  }
  return out;
}

std::string InBase(uint64_t n, uint64_t base) {
  std::string out;
  do {
    out += "0123456789abcdef"[n % base];
    n /= base;
  } while (n > 0);
  std::reverse(out.begin(), out.end());
  return out;
}

// Digits of a number without its sign.
std::string WholeDigits(uint64_t n, const Spec& spec) {
  const char type = absl::ascii_tolower(spec.type);
  const uint64_t base = type == 'x' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string out = InBase(n, base);
  if (spec.group != 0) out = Grouped(out, spec.group, base == 10 ? 3 : 4);
  if (spec.precision > static_cast<int64_t>(out.size())) {
    out.insert(0, static_cast<size_t>(spec.precision) - out.size(), '0');
  }
  return spec.type == 'X' ? absl::AsciiStrToUpper(out) : out;
}
// As g writes it, but with a point or a power: with one as soon as there are as many digits.
std::string SeenAsFloat(double x, int digits) {
  const std::string power = absl::StrFormat("%.*e", digits - 1, x);
  const size_t mark = power.find('e');
  int exponent = 0;
  const bool read = absl::SimpleAtoi(power.substr(mark + 1), &exponent);
  std::string out = absl::StrFormat("%.*g", digits, x);
  if (!read || exponent != digits - 1 || x == 0) {
    return out.find_first_of(".e") == out.npos ? out + ".0" : out;
  }
  out = power.substr(0, mark);
  if (absl::StrContains(out, '.')) {
    out.erase(out.find_last_not_of('0') + 1);
    if (out.back() == '.') out.pop_back();
  }
  return out + power.substr(mark);
}

std::string RealDigits(Heap& heap, double x, const Spec& spec) {
  constexpr int kUsual = 6;
  const char type = spec.type == '%' ? 'f' : spec.type;
  const int digits = spec.precision < 0 ? kUsual : static_cast<int>(spec.precision);
  std::string out;
  if (std::isnan(x) || std::isinf(x)) {
    out = std::isnan(x) ? "nan" : "inf";
    return type == 'F' || type == 'E' || type == 'G' ? absl::AsciiStrToUpper(out) : out;
  }
  if (type == 0 && spec.precision < 0) {
    out = heap.Shown(Heap::Real(x)).bytes;
  } else if (type == 0) {
    out = SeenAsFloat(x, std::max(digits, 1));
  } else {
    const std::string form =
        absl::StrFormat("%%%s.%d%c", spec.prefix ? "#" : "", digits, type == 'n' ? 'g' : type);
    if (!absl::FormatUntyped(&out, absl::UntypedFormatSpec(form),
                             {absl::FormatArg(spec.type == '%' ? x * 100 : x)})) {
      return {};
    }
    if (spec.type == '%') out += '%';
  }
  return spec.group != 0 ? Grouped(out, spec.group, 3) : out;
}

// The sign, and the digits after it.
Text Aligned(Heap& heap, absl::string_view sign, const Text& t, const Spec& spec, char usual) {
  const int64_t missing = std::max<int64_t>(
      spec.width - static_cast<int64_t>(sign.size()) - LengthOf(heap, t.bytes), 0);
  const char align = spec.align != 0 ? spec.align : spec.zeros && usual == '>' ? '=' : usual;
  const int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  if (!heap.Charge(2 * static_cast<size_t>(missing) * spec.fill.size())) return {};
  Text out;
  if (align == '=') out.Append(sign, kOfTemplate);
  for (int64_t i = 0; i < before; ++i) out.Append(spec.fill, kOfTemplate);
  if (align != '=') out.Append(sign, kOfTemplate);
  out.Append(t);
  for (int64_t i = before; i < missing; ++i) out.Append(spec.fill, kOfTemplate);
  return out;
}

Text Number(Heap& heap, const Value& v, const Spec& spec) {
  const bool real = v.is(Kind::kFloat) || absl::StrContains("eEfFgG%", spec.type);
  const bool negative = real ? std::signbit(v.Real()) && !std::isnan(v.Real()) : v.number < 0;
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (real) return Aligned(heap, sign, Text(RealDigits(heap, std::abs(v.Real()), spec)), spec, '>');
  if (spec.prefix && spec.type != 'd' && spec.type != 0) sign += {'0', spec.type};
  const uint64_t size =
      negative ? -static_cast<uint64_t>(v.number) : static_cast<uint64_t>(v.number);
  return Aligned(heap, sign, Text(WholeDigits(size, spec)), spec, '>');
}

Text CutTo(const Text& t, int64_t precision) {
  const std::vector<Character> all = Characters(t.bytes);
  const auto most = static_cast<int64_t>(all.size()) - 1;
  if (precision < 0 || precision >= most) return t;
  return t.Part(0, all[static_cast<size_t>(precision)].begin);
}

// ---- {}

Text Filled(Heap& heap, const Value& v, absl::string_view text) {
  if (text.empty()) return heap.Shown(v);
  Spec spec;
  if (!ReadSpec(text, &spec)) {
    heap.Fail("format: '", text, "' is not known");
    return {};
  }
  const bool as_text = spec.type == 's' || (spec.type == 0 && !v.IsNumber());
  const bool of_number = spec.sign != '-' || spec.group != 0 || spec.prefix || spec.align == '=';
  if (as_text && v.is(Kind::kText) && !of_number) {
    return Aligned(heap, "", CutTo(*v.text, spec.precision), spec, '<');
  }
  const bool of_wholes = absl::StrContains("dboxX", spec.type) && spec.type != 0;
  const bool whole = of_wholes || (spec.type == 0 && !v.is(Kind::kFloat));
  if (as_text || !v.IsNumber() || (of_wholes && v.is(Kind::kFloat)) ||
      (whole && spec.precision >= 0)) {
    heap.Fail("format: '", text, "' is not for ", NameOf(v.kind));
    return {};
  }
  return Number(heap, v, spec);
}

// With {} as the next argument, {0} as one by its place, and {name}, then perhaps .member or
// [item], !r and :spec; {{ is a brace.
class Form {
 public:
  Form(Heap& heap, const Arguments& a) : heap_(heap), a_(a) {}

  Text Fill(const Text& t, int depth) {
    Text out;
    for (size_t i = 0; i < t.size() && heap_.Step();) {
      const char c = t.bytes[i];
      const bool brace = c == '{' || c == '}', twice = i + 1 < t.size() && t.bytes[i + 1] == c;
      if (!brace || twice) {
        out.Append(t.Part(i, i + 1));
        i += brace ? 2 : 1;
        continue;
      }
      const size_t end = EndOf(t.bytes, i);
      if (c == '}' || end == std::string::npos) {
        heap_.Fail("format: a brace stands alone");
        return {};
      }
      const Text field = Field(t.view().substr(i + 1, end - i - 1), depth);
      if (!heap_.Charge(2 * field.size())) return {};
      out.Append(field);
      i = end + 1;
    }
    return out;
  }

 private:
  // The brace that closes the one at `begin`.
  static size_t EndOf(const std::string& t, size_t begin) {
    int open = 0;
    for (size_t i = begin; i < t.size(); ++i) {
      open += (t[i] == '{') - (t[i] == '}');
      if (open == 0) return i;
    }
    return std::string::npos;
  }
  Text Field(absl::string_view field, int depth) {
    const size_t colon = field.find(':');
    absl::string_view name = field.substr(0, colon), form;
    std::string spec;
    if (const size_t mark = name.find('!'); mark != name.npos) {
      form = name.substr(mark + 1);
      name = name.substr(0, mark);
    }
    Value v = Named(name);
    if (heap_.failed()) return {};
    if (colon != field.npos) {
      const absl::string_view rest = field.substr(colon + 1);
      const bool nested = absl::StrContains(rest, '{');
      if (nested && depth > 0) heap_.Fail("format: fields nest too deep");
      spec = nested && depth == 0 ? Fill(Text(rest), depth + 1).bytes : std::string(rest);
    }
    if (form == "r") {
      v = heap_.Make(heap_.Quoted(v));
    } else if (form == "s") {
      v = heap_.Make(heap_.Shown(v));
    } else if (!form.empty()) {
      heap_.Fail("format: '!", form, "' is not known");
    }
    return heap_.failed() ? Text() : Filled(heap_, v, spec);
  }
  Value Named(absl::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    const absl::string_view name = path.substr(0, end);
    size_t at = next_;
    Value v;
    if (name.empty() || absl::SimpleAtoi(name, &at)) {
      (name.empty() ? in_turn_ : by_place_) = true;
      if (in_turn_ && by_place_) return heap_.Fail("format: fields with and without a place");
      if (name.empty()) ++next_;
      if (at >= a_.plain.size() - 1) return heap_.Fail("format wants more arguments");
      v = a_.plain[at + 1];
    } else if (const Value* named = jinja::Named(a_, name)) {
      v = *named;
    } else {
      return heap_.Fail("format: the field '", name, "' is not known");
    }
    for (absl::string_view rest = path.substr(end); !rest.empty() && !heap_.failed();) {
      const bool item = rest.front() == '[';
      const size_t stop =
          std::min(item ? rest.find(']') : rest.find_first_of(".[", 1), rest.size());
      const absl::string_view part = rest.substr(1, stop - 1);
      int64_t index = 0;
      v = !item                            ? MemberOf(heap_, v, part)
          : absl::SimpleAtoi(part, &index) ? ItemOf(heap_, v, Heap::Int(index))
                                           : ItemOf(heap_, v, heap_.Make(part));
      rest.remove_prefix(std::min(stop + item, rest.size()));
    }
    return v;
  }

  Heap& heap_;
  const Arguments& a_;
  size_t next_ = 0;
  bool in_turn_ = false, by_place_ = false;
};

Value Format(Heap& heap, const Arguments& a) {
  return heap.Make(Form(heap, a).Fill(Own(heap, a), 0));
}

// ---- %

// Where a value that is converted comes from: in turn, or by name.
class Operands {
 public:
  Operands(Heap& heap, const Value& of) : heap_(heap), of_(of) {}
  Value Next() {
    if (!of_.tuple) return at_++ == 0 ? of_ : heap_.Fail("%: the form wants more values");
    return at_ < of_.list->size() ? (*of_.list)[at_++]
                                  : heap_.Fail("%: the form wants more values");
  }
  Value Named(absl::string_view name) {
    named_ = true;
    Value* const found = of_.is(Kind::kDict) ? heap_.Find(*of_.dict, name) : nullptr;
    return found != nullptr ? *found : heap_.Fail("%: there is no '", name, "'");
  }
  bool Spent() const {
    if (named_ || of_.is(Kind::kDict) || (of_.is(Kind::kList) && !of_.tuple)) return true;
    return at_ == (of_.tuple ? of_.list->size() : 1);
  }

 private:
  Heap& heap_;
  const Value of_;
  size_t at_ = 0;
  bool named_ = false;
};

Text Converted(Heap& heap, const Value& v, Spec spec) {
  if (spec.type == 's' || spec.type == 'r') {
    return Aligned(heap, "",
                   CutTo(spec.type == 's' ? heap.Shown(v) : heap.Quoted(v), spec.precision), spec,
                   '>');
  }
  if (spec.type == 'c' && v.is(Kind::kInt) && v.number >= 0 && v.number < 0xD800) {
    std::string one;
    AppendUtf8(static_cast<uint32_t>(v.number), &one);
    return Aligned(heap, "", Text(one), spec, '>');
  }
  if (spec.type == 'c' && v.is(Kind::kText) && LengthOf(heap, v.bytes()) == 1) {
    return Aligned(heap, "", *v.text, spec, '>');
  }
  const bool of_wholes = absl::StrContains("dxXo", spec.type);
  if (!v.IsNumber() || spec.type == 'c' || (spec.type != 'd' && of_wholes && v.is(Kind::kFloat)) ||
      (of_wholes && !(std::abs(v.Real()) < 0x1p62))) {
    heap.Fail("%", std::string(1, spec.type), " is not for ", NameOf(v.kind));
    return {};
  }
  if (spec.type != 'd' || !v.is(Kind::kFloat)) return Number(heap, v, spec);
  return Number(heap, Heap::Int(static_cast<int64_t>(v.real)), spec);
}

}  // namespace

// %[(name)][flags][width][.precision]type, where * is a width among the values.
Value Formatted(Heap& heap, const Text& form, const Value& of) {
  Operands operands(heap, of);
  Text out;
  for (size_t i = 0; i < form.size() && heap.Step();) {
    const size_t mark = std::min(form.view().find('%', i), form.size());
    out.Append(form.Part(i, mark));
    if (mark == form.size()) break;
    absl::string_view rest = form.view().substr(mark + 1);
    std::optional<Value> v;
    if (absl::StartsWith(rest, "(")) {
      const size_t end = rest.find(')');
      if (end == rest.npos) return heap.Fail("%: a name does not end");
      v = operands.Named(rest.substr(1, end - 1));
      rest.remove_prefix(end + 1);
    }
    Spec spec;
    for (; !rest.empty() && absl::StrContains("-+ #0", rest.front()); rest.remove_prefix(1)) {
      const char flag = rest.front();
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
      if (flag == '#') spec.prefix = true;
      if (flag == '0') spec.zeros = true;
    }
    const auto number = [&]() -> int64_t {
      if (!absl::StartsWith(rest, "*")) return NumberAt(&rest);
      rest.remove_prefix(1);
      const Value given = operands.Next();
      constexpr int64_t kMost = kMostWidth + 1;
      return given.is(Kind::kInt) ? std::clamp(given.number, -kMost, kMost) : kMost;
    };
    spec.width = number();
    if (spec.width < 0) spec.align = '<';
    spec.width = std::abs(spec.width);
    if (absl::StartsWith(rest, ".")) {
      rest.remove_prefix(1);
      spec.precision = number();
    }
    if (spec.width > kMostWidth || spec.precision > kMostPrecision) {
      return heap.Fail("%: a width or a precision is too large");
    }
    if (rest.empty()) return heap.Fail("%: the form ends too soon");
    spec.type = rest.front() == 'i' || rest.front() == 'u' ? 'd' : rest.front();
    rest.remove_prefix(1);
    i = form.size() - rest.size();
    if (spec.type == '%') {
      out.Append("%", kOfTemplate);
      continue;
    }
    if (!absl::StrContains("srcdxXoeEfFgG", spec.type)) {
      return heap.Fail("%", std::string(1, spec.type), " is not known");
    }
    const bool of_text = absl::StrContains("src", spec.type);
    spec.zeros = spec.zeros && !of_text && spec.align != '<';
    if (spec.zeros) spec.fill.assign(1, '0');
    const Text field = Converted(heap, v ? *v : operands.Next(), spec);
    if (!heap.Charge(2 * field.size())) return {};
    out.Append(field);
  }
  if (!operands.Spent() && !heap.failed()) return heap.Fail("%: the form wants fewer values");
  return heap.Make(std::move(out));
}

namespace {

// '%s %s'|format(x, y)
Value FormatOf(Heap& heap, const Arguments& a) {
  if (!a.named.empty()) {
    Dict names;
    for (const auto& [name, value] : a.named) names.emplace_back(heap.Make(name), value);
    if (a.plain.size() > 1) return heap.Fail("format wants values in turn or by name");
    return Formatted(heap, Own(heap, a), heap.Make(std::move(names)));
  }
  return Formatted(heap, Own(heap, a),
                   heap.Make(List(a.plain.begin() + 1, a.plain.end()), /*tuple=*/true));
}

}  // namespace

Builtin MethodOfForms(absl::string_view name) { return name == "format" ? Format : nullptr; }
Builtin FilterOfForms(absl::string_view name) { return name == "format" ? FormatOf : nullptr; }

}  // namespace tessera::llm::jinja::texts
