// Reading of one statement of the text form, by a cursor over its line.
#include "graph/statement.h"

#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "graph/box.h"
#include "graph/buffer.h"
#include "graph/infer.h"
#include "graph/status.h"

namespace tessera {
namespace {

constexpr absl::string_view kRangeKinds[] = {"loop",   "grid", "unroll", "vector",
                                             "thread", "row",  "matrix"};
constexpr absl::string_view kSpaces[] = {"global", "shared", "register"};

bool IsNameChar(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '.'; }

class Cursor {
 public:
  explicit Cursor(absl::string_view text) : text_(text) {}

  absl::string_view rest() const { return text_; }
  bool AtEnd() {
    SkipSpace();
    return text_.empty();
  }
  bool Peek(char c) {
    SkipSpace();
    return !text_.empty() && text_[0] == c;
  }
  bool Take(absl::string_view token) {
    SkipSpace();
    if (text_.substr(0, token.size()) != token) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  absl::Status Expect(absl::string_view token) {
    if (Take(token)) return absl::OkStatus();
    return Fail(absl::StrCat("'", token, "'"));
  }
  // A run of characters that are all of a kind.
  template <typename Pred>
  absl::string_view TakeWhile(Pred pred) {
    SkipSpace();
    size_t n = 0;
    while (n < text_.size() && pred(text_[n])) ++n;
    const absl::string_view run = text_.substr(0, n);
    text_.remove_prefix(n);
    return run;
  }
  absl::string_view TakeWord() { return TakeWhile(IsNameChar); }
  absl::StatusOr<absl::string_view> TakeName() {
    SkipSpace();
    size_t n = 1;
    while (n < text_.size() && IsNameChar(text_[n])) ++n;
    if (!Peek('%') || n == 1) return Fail("a name such as %3");
    const absl::string_view name = text_.substr(0, n);
    text_.remove_prefix(n);
    return name;
  }
  absl::StatusOr<int64_t> TakeInt() {
    SkipSpace();
    size_t n = !text_.empty() && text_[0] == '-';
    while (n < text_.size() && absl::ascii_isdigit(text_[n])) ++n;
    int64_t v;
    if (!absl::SimpleAtoi(text_.substr(0, n), &v)) return Fail("an integer of 64 bits");
    text_.remove_prefix(n);
    return v;
  }
  absl::StatusOr<std::string> TakeQuoted() {
    RETURN_IF_ERROR(Expect("\""));
    size_t n = 0;
    while (n < text_.size() && text_[n] != '"') n += text_[n] == '\\' ? 2 : 1;
    if (n >= text_.size()) return Fail("a closing quote");
    std::string out;
    if (!absl::CUnescape(text_.substr(0, n), &out)) return Fail("a quoted string");
    text_.remove_prefix(n + 1);
    return out;
  }
  absl::StatusOr<Device> TakeDevice() {
    SkipSpace();
    size_t n = 0;
    bool braces = false;
    while (n < text_.size() && (braces || (text_[n] != ' ' && text_[n] != '\t'))) {
      if (text_[n] == '{') braces = true;
      if (text_[n] == '}') braces = false;
      ++n;
    }
    ASSIGN_OR_RETURN(Device device, Device::Parse(text_.substr(0, n)));
    text_.remove_prefix(n);
    return device;
  }
  // '[' item ',' item ... ']'
  template <typename Fn>
  absl::Status List(Fn item) {
    RETURN_IF_ERROR(Expect("["));
    if (Take("]")) return absl::OkStatus();
    do {
      RETURN_IF_ERROR(item());
    } while (Take(","));
    return Expect("]");
  }
  absl::Status Fail(absl::string_view expected) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected ", expected,
        text_.empty() ? " at the end" : absl::StrCat(" at '", text_.substr(0, 24), "'")));
  }

 private:
  void SkipSpace() {
    while (!text_.empty() && absl::ascii_isspace(text_[0])) text_.remove_prefix(1);
  }
  absl::string_view text_;
};

absl::StatusOr<Extent> TakeExtent(Cursor& c, FindNode find) {
  if (!c.Peek('%')) {
    ASSIGN_OR_RETURN(int64_t value, c.TakeInt());
    return Extent(value);
  }
  ASSIGN_OR_RETURN(absl::string_view name, c.TakeName());
  ASSIGN_OR_RETURN(UOp node, find(name));
  if (!(node.dtype() == kInt64) || node.rank() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an extent must be an i64 scalar, ", name, " is ", Describe(node)));
  }
  return Extent(node);
}

absl::StatusOr<Extents> TakeExtents(Cursor& c, FindNode find) {
  Extents out;
  RETURN_IF_ERROR(c.List([&]() -> absl::Status {
    ASSIGN_OR_RETURN(Extent e, TakeExtent(c, find));
    out.push_back(std::move(e));
    return absl::OkStatus();
  }));
  return out;
}

absl::StatusOr<Ints> TakeInts(Cursor& c) {
  Ints out;
  RETURN_IF_ERROR(c.List([&]() -> absl::Status {
    ASSIGN_OR_RETURN(int64_t v, c.TakeInt());
    out.push_back(v);
    return absl::OkStatus();
  }));
  return out;
}

absl::StatusOr<Pairs> TakePairs(Cursor& c, FindNode find) {
  Pairs out;
  RETURN_IF_ERROR(c.List([&]() -> absl::Status {
    RETURN_IF_ERROR(c.Expect("("));
    ASSIGN_OR_RETURN(Extent a, TakeExtent(c, find));
    RETURN_IF_ERROR(c.Expect(","));
    ASSIGN_OR_RETURN(Extent b, TakeExtent(c, find));
    RETURN_IF_ERROR(c.Expect(")"));
    out.emplace_back(std::move(a), std::move(b));
    return absl::OkStatus();
  }));
  return out;
}

absl::StatusOr<Device> TakeOptionalDevice(Cursor& c) {
  return c.Take("@") ? c.TakeDevice() : Device();
}

// "nan:HEX" keeps the bits of a NaN that is not the usual one.
absl::StatusOr<Arg> TakeScalar(Cursor& c, DType dtype) {
  const absl::string_view word =
      c.TakeWhile([](char ch) { return IsNameChar(ch) || ch == '-' || ch == '+' || ch == ':'; });
  if (dtype.IsFloat() && word.substr(0, 4) == "nan:") {
    uint64_t bits = 0;
    const char* const end = word.data() + word.size();
    if (word.size() != 20 || std::from_chars(word.data() + 4, end, bits, 16).ptr != end) {
      return c.Fail("16 hexadecimal digits after nan:");
    }
    if (!std::isnan(Scalar{bits}.AsFloat())) return c.Fail("the bits of a NaN after nan:");
    return Arg(Scalar{bits});
  }
  if (dtype.IsVoid()) return c.Fail("no value, since there is none of void");
  ASSIGN_OR_RETURN(Scalar value, ParseScalar(word, dtype.Scalar()));
  return Arg(value);
}

absl::StatusOr<Arg> TakeVar(Cursor& c) {
  VarArg v;
  if (c.Peek('"')) {
    ASSIGN_OR_RETURN(v.name, c.TakeQuoted());
  } else {
    v.name = std::string(c.TakeWhile([](char ch) { return absl::ascii_isalnum(ch) || ch == '_'; }));
    if (v.name.empty()) return c.Fail("the variable's name");
  }
  ASSIGN_OR_RETURN(v.min, c.TakeInt());
  RETURN_IF_ERROR(c.Expect(".."));
  ASSIGN_OR_RETURN(v.max, c.TakeInt());
  return Arg(std::move(v));
}

absl::StatusOr<Arg> TakeBuffer(Cursor& c, FindNode find, TextBuffers& buffers) {
  RETURN_IF_ERROR(c.Expect("#"));
  ASSIGN_OR_RETURN(int64_t id, c.TakeInt());
  BufferArg b;
  ASSIGN_OR_RETURN(b.shape, TakeExtents(c, find));
  ASSIGN_OR_RETURN(b.device, TakeOptionalDevice(c));
  std::shared_ptr<Buffer>& known = buffers.by_id[id];
  if (!known) {
    known = FindBuffer(id);
    // One made for this text may have got an id that the text uses for another one.
    if (!known || buffers.fresh.contains(known.get())) known = std::make_shared<Buffer>();
    if (known->id != id) buffers.fresh.insert(known.get());
  }
  b.buffer = known;
  return Arg(std::move(b));
}

absl::StatusOr<Arg> TakeParam(Cursor& c, FindNode find) {
  RETURN_IF_ERROR(c.Expect("slot"));
  ParamArg p;
  ASSIGN_OR_RETURN(p.slot, c.TakeInt());
  ASSIGN_OR_RETURN(p.shape, TakeExtents(c, find));
  ASSIGN_OR_RETURN(p.device, TakeOptionalDevice(c));
  return Arg(std::move(p));
}

absl::StatusOr<Arg> TakeReduce(Cursor& c) {
  ReduceArg r;
  ASSIGN_OR_RETURN(r.op, ParseOp(c.TakeWord()));
  if (c.Take("axes=")) {
    ASSIGN_OR_RETURN(r.axes, TakeInts(c));
  }
  return Arg(std::move(r));
}

absl::StatusOr<Arg> TakeExchange(Cursor& c, FindNode find) {
  ExchangeArg x;
  for (auto* boxes : {&x.from, &x.to}) {
    ASSIGN_OR_RETURN(const std::string text, c.TakeQuoted());
    ASSIGN_OR_RETURN(Boxes parsed, Boxes::Parse(text));
    *boxes = std::make_shared<const Boxes>(std::move(parsed));
  }
  ASSIGN_OR_RETURN(x.shape, TakeExtents(c, find));
  if (!c.AtEnd() && !c.Peek(':')) {
    ASSIGN_OR_RETURN(const Arg arg, TakeReduce(c));
    x.op = std::get<ReduceArg>(arg.value).op;
    x.over = std::get<ReduceArg>(arg.value).axes;
  }
  return Arg(std::move(x));
}

absl::StatusOr<Arg> TakeWindow(Cursor& c) {
  WindowArg w;
  for (auto [key, list] : {std::pair{"axes=", &w.axes}, std::pair{"size=", &w.size},
                           std::pair{"stride=", &w.stride}, std::pair{"dilation=", &w.dilation}}) {
    RETURN_IF_ERROR(c.Expect(key));
    ASSIGN_OR_RETURN(*list, TakeInts(c));
  }
  return Arg(std::move(w));
}

template <typename Enum, size_t n>
absl::StatusOr<Enum> TakeEnum(Cursor& c, const absl::string_view (&texts)[n]) {
  for (size_t i = 0; i < n; ++i) {
    if (c.Take(texts[i])) return static_cast<Enum>(i);
  }
  std::string known;
  for (absl::string_view t : texts) absl::StrAppend(&known, known.empty() ? "" : ", ", t);
  return c.Fail(absl::StrCat("one of ", known));
}

// The line up to a ';' outside quotes.
absl::string_view WithoutComment(absl::string_view line) {
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ';' && !quoted) return line.substr(0, i);
    if (line[i] == '\\' && quoted)
      ++i;
    else if (line[i] == '"')
      quoted = !quoted;
  }
  return line;
}

}  // namespace

absl::string_view RangeKindText(RangeKind kind) { return kRangeKinds[static_cast<int>(kind)]; }
absl::string_view SpaceText(Space space) { return kSpaces[static_cast<int>(space)]; }

absl::StatusOr<std::optional<Statement>> ParseStatement(absl::string_view line) {
  Statement s;
  s.text = absl::StripAsciiWhitespace(WithoutComment(line));
  if (s.text.empty()) return std::optional<Statement>();
  Cursor c(s.text);
  if (!c.Peek('%')) {
    if (c.TakeWord() != "return") return Cursor(s.text).Fail("'%name = ...' or 'return'");
    if (c.AtEnd()) return std::optional<Statement>(std::move(s));
    do {
      ASSIGN_OR_RETURN(absl::string_view root, c.TakeName());
      s.srcs.push_back(root);
    } while (c.Take(","));
    if (!c.AtEnd()) return c.Fail("',' or the end of the line");
    return std::optional<Statement>(std::move(s));
  }
  ASSIGN_OR_RETURN(s.name, c.TakeName());
  RETURN_IF_ERROR(c.Expect("="));
  ASSIGN_OR_RETURN(s.op, ParseOp(c.TakeWord()));
  ASSIGN_OR_RETURN(s.dtype, DType::Parse(c.TakeWord()));
  RETURN_IF_ERROR(c.Expect("("));
  if (!c.Take(")")) {
    do {
      ASSIGN_OR_RETURN(absl::string_view src, c.TakeName());
      s.srcs.push_back(src);
    } while (c.Take(","));
    RETURN_IF_ERROR(c.Expect(")"));
  }
  s.rest = c.rest();
  return std::optional<Statement>(std::move(s));
}

absl::StatusOr<Arg> ParseArg(Op op, DType dtype, absl::string_view& text, FindNode find,
                             TextBuffers& buffers) {
  Cursor c(text);
  const auto parse = [&]() -> absl::StatusOr<Arg> {
    switch (Info(op).arg) {
      case ArgKind::kNone:
        return Arg();
      case ArgKind::kScalar:
        return TakeScalar(c, dtype);
      case ArgKind::kVar:
        return TakeVar(c);
      case ArgKind::kBuffer:
        return TakeBuffer(c, find, buffers);
      case ArgKind::kParam:
        return TakeParam(c, find);
      case ArgKind::kExtents: {
        ASSIGN_OR_RETURN(Extents e, TakeExtents(c, find));
        return Arg(std::move(e));
      }
      case ArgKind::kInts: {
        ASSIGN_OR_RETURN(Ints i, TakeInts(c));
        return Arg(std::move(i));
      }
      case ArgKind::kPairs: {
        ASSIGN_OR_RETURN(Pairs p, TakePairs(c, find));
        return Arg(std::move(p));
      }
      case ArgKind::kWindow:
        return TakeWindow(c);
      case ArgKind::kReduce:
        return TakeReduce(c);
      case ArgKind::kInt: {
        ASSIGN_OR_RETURN(int64_t i, c.TakeInt());
        return Arg(i);
      }
      case ArgKind::kDevice: {
        RETURN_IF_ERROR(c.Expect("@"));
        ASSIGN_OR_RETURN(Device d, c.TakeDevice());
        return Arg(d);
      }
      case ArgKind::kRange: {
        RangeArg r;
        RETURN_IF_ERROR(c.Expect("r"));
        ASSIGN_OR_RETURN(r.id, c.TakeInt());
        RETURN_IF_ERROR(c.Expect(":"));
        ASSIGN_OR_RETURN(r.kind, TakeEnum<RangeKind>(c, kRangeKinds));
        return Arg(r);
      }
      case ArgKind::kStage: {
        StageArg s;
        RETURN_IF_ERROR(c.Expect("s"));
        ASSIGN_OR_RETURN(s.id, c.TakeInt());
        RETURN_IF_ERROR(c.Expect(":"));
        ASSIGN_OR_RETURN(s.space, TakeEnum<Space>(c, kSpaces));
        if (c.Take("ahead")) {
          ASSIGN_OR_RETURN(s.ahead, c.TakeInt());
        }
        return Arg(s);
      }
      case ArgKind::kExchange:
        return TakeExchange(c, find);
      case ArgKind::kString: {
        ASSIGN_OR_RETURN(std::string s, c.TakeQuoted());
        return Arg(std::move(s));
      }
    }
    return c.Fail("an argument");
  };
  absl::StatusOr<Arg> arg = parse();
  if (!arg.ok()) return arg;
  if (!c.AtEnd() && !c.Peek(':')) return c.Fail("the end of the argument");
  text = c.rest();
  return arg;
}

absl::StatusOr<std::optional<Annotation>> ParseAnnotation(absl::string_view text, FindNode find) {
  Cursor c(text);
  if (c.AtEnd()) return std::optional<Annotation>();
  RETURN_IF_ERROR(c.Expect(":"));
  Annotation a;
  if (!c.Peek('[')) {
    ASSIGN_OR_RETURN(a.dtype, DType::Parse(c.TakeWord()));
    if (a.dtype.IsVoid()) return c.Fail("a dtype of values");
  }
  RETURN_IF_ERROR(c.List([&]() -> absl::Status {
    a.dims.emplace_back();
    if (c.Take("?")) return absl::OkStatus();
    ASSIGN_OR_RETURN(a.dims.back(), TakeExtent(c, find));
    return absl::OkStatus();
  }));
  if (c.Take("on")) {
    ASSIGN_OR_RETURN(a.device, c.TakeDevice());
  }
  if (!c.AtEnd()) return c.Fail("the end of the annotation");
  return std::optional<Annotation>(std::move(a));
}

absl::Status CheckAnnotation(const Annotation& a, DType dtype, const Shape& shape, Device device) {
  bool same = a.dims.size() == static_cast<size_t>(shape.rank());
  for (size_t i = 0; same && i < a.dims.size(); ++i) {
    same = !a.dims[i] || *a.dims[i] == shape[static_cast<int>(i)];
  }
  same &= a.dtype.IsVoid() || a.dtype == dtype;
  same &= !a.device || *a.device == device;
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the annotation is wrong: this is ", Describe(dtype, shape, device)));
}

}  // namespace tessera
