// Printing of graphs, and parsing of texts that have no mistakes.
#include "graph/text.h"

#include <climits>
#include <cmath>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/box.h"
#include "graph/buffer.h"
#include "graph/statement.h"
#include "graph/status.h"

namespace tessera {
namespace {

struct Printer {
  std::string& out;
  const NodeNames& names;
  int defined = INT_MAX;  // nodes with lower numbers have been printed

  void Name(const UOp& u) {
    const auto it = names.find(u.get());
    if (it == names.end()) {
      absl::StrAppend(&out, "%?");
    } else {
      absl::StrAppend(&out, "%", it->second);
    }
  }
  template <typename List, typename Fn>
  void Items(const char* open, const List& list, const char* close, Fn item) {
    absl::StrAppend(&out, open);
    const char* separator = "";
    for (const auto& x : list) {
      absl::StrAppend(&out, separator);
      item(x);
      separator = ", ";
    }
    absl::StrAppend(&out, close);
  }
  void operator()(const Extent& e) {
    if (e.is_int()) {
      absl::StrAppend(&out, e.value());
    } else {
      Name(e.expr());
    }
  }
  void On(Device device) {
    if (device) absl::StrAppend(&out, " @", device.ToString());
  }

  void operator()(std::monostate) {}
  void operator()(const VarArg& v) {
    bool plain = !v.name.empty();
    for (char ch : v.name) plain &= absl::ascii_isalnum(ch) || ch == '_';
    absl::StrAppend(&out, plain ? v.name : absl::StrCat("\"", absl::Utf8SafeCEscape(v.name), "\""),
                    " ", v.min, "..", v.max);
  }
  void operator()(const BufferArg& b) {
    absl::StrAppend(&out, "#", b.buffer ? b.buffer->id : -1, " ");
    (*this)(b.shape);
    On(b.device);
  }
  void operator()(const ParamArg& p) {
    absl::StrAppend(&out, "slot ", p.slot, " ");
    (*this)(p.shape);
    On(p.device);
  }
  void operator()(const Extents& list) { Items("[", list, "]", *this); }
  void operator()(const Ints& list) {
    Items("[", list, "]", [this](int64_t i) { absl::StrAppend(&out, i); });
  }
  void operator()(const Pairs& list) {
    Items("[", list, "]", [this](const std::pair<Extent, Extent>& p) {
      absl::StrAppend(&out, "(");
      (*this)(p.first);
      absl::StrAppend(&out, ", ");
      (*this)(p.second);
      absl::StrAppend(&out, ")");
    });
  }
  void operator()(const WindowArg& w) {
    absl::StrAppend(&out, "axes=");
    (*this)(w.axes);
    absl::StrAppend(&out, " size=");
    (*this)(w.size);
    absl::StrAppend(&out, " stride=");
    (*this)(w.stride);
    absl::StrAppend(&out, " dilation=");
    (*this)(w.dilation);
  }
  void operator()(const ReduceArg& r) {
    absl::StrAppend(&out, Info(r.op).text);
    if (r.axes.empty()) return;
    absl::StrAppend(&out, " axes=");
    (*this)(r.axes);
  }
  void operator()(int64_t i) { absl::StrAppend(&out, i); }
  void operator()(Device d) { absl::StrAppend(&out, "@", d.ToString()); }
  void operator()(RangeArg r) { absl::StrAppend(&out, "r", r.id, ":", RangeKindText(r.kind)); }
  void operator()(StageArg s) {
    absl::StrAppend(&out, "s", s.id, ":", SpaceText(s.space));
    if (s.ahead != 0) absl::StrAppend(&out, " ahead ", s.ahead);
  }
  void operator()(const std::string& s) {
    absl::StrAppend(&out, "\"", absl::Utf8SafeCEscape(s), "\"");
  }
  void operator()(const ExchangeArg& x) {
    absl::StrAppend(&out, "\"", x.from->ToString(), "\" \"", x.to->ToString(), "\" ");
    (*this)(x.shape);
    if (x.over.empty()) return;
    out += ' ';
    (*this)(ReduceArg{x.op, x.over});
  }
  void operator()(Scalar) {}  // needs the dtype: see Argument

  void Argument(const UOp& u) {
    const Scalar* s = std::get_if<Scalar>(&u.arg().value);
    if (s == nullptr) return std::visit(*this, u.arg().value);
    const DType t = u.dtype().Scalar();
    const bool nan = t.IsFloat() && std::isnan(s->AsFloat());
    if (nan && (s->bits & ~(uint64_t{1} << 63)) != Scalar::Float(std::nan("")).bits) {
      absl::StrAppend(&out, "nan:", absl::Hex(s->bits, absl::kZeroPad16));
    } else {
      absl::StrAppend(&out, ScalarToString(*s, t));
    }
  }

  // What is inferred, where the argument does not say it already.
  void Annotate(const UOp& u) {
    if (u.rank() == 0 || Info(u.op()).cls == OpClass::kLeaf) return;
    absl::StrAppend(&out, " : ", u.dtype().ToString());
    Items("[", u.shape(), "]", [this](const Extent& e) {
      const auto it = e.is_int() ? names.end() : names.find(e.expr().get());
      if (e.is_int() || (it != names.end() && it->second < defined)) {
        (*this)(e);
      } else {
        absl::StrAppend(&out, "?");
      }
    });
    if (u.device()) absl::StrAppend(&out, " on ", u.device().ToString());
  }

  void Statement(const UOp& u) {
    Name(u);
    absl::StrAppend(&out, " = ", Info(u.op()).text, " ", u.dtype().ToString(), " ");
    Items("(", u.srcs(), ")", [this](const UOp& s) { Name(s); });
    if (Info(u.op()).arg != ArgKind::kNone) absl::StrAppend(&out, " ");
    Argument(u);
    Annotate(u);
  }
};

// A text being read: the nodes so far, by name.
class Reader {
 public:
  absl::Status Line(absl::string_view line) {
    ASSIGN_OR_RETURN(std::optional<Statement> s, ParseStatement(line));
    if (!s) return absl::OkStatus();
    std::vector<UOp> srcs;
    for (absl::string_view name : s->srcs) {
      ASSIGN_OR_RETURN(UOp src, Find(name));
      srcs.push_back(std::move(src));
    }
    if (s->is_return()) {
      if (roots_) return absl::InvalidArgumentError("a second return");
      roots_ = std::move(srcs);
      return absl::OkStatus();
    }
    absl::string_view rest = s->rest;
    const auto find = [this](absl::string_view name) { return Find(name); };
    ASSIGN_OR_RETURN(Arg arg, ParseArg(s->op, s->dtype, rest, find, buffers_));
    ASSIGN_OR_RETURN(UOp u, UOp::TryMake(s->op, s->dtype, srcs, std::move(arg)));
    if (!(u.dtype() == s->dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(
          Info(s->op).text, ": gives ", u.dtype().ToString(), " here, not ", s->dtype.ToString()));
    }
    // An annotation is no use of what it names.
    ASSIGN_OR_RETURN(std::optional<Annotation> annotation,
                     ParseAnnotation(rest, [this](absl::string_view name) -> absl::StatusOr<UOp> {
                       ASSIGN_OR_RETURN(size_t i, Index(name));
                       return nodes_[i];
                     }));
    if (annotation) RETURN_IF_ERROR(CheckAnnotation(*annotation, u.dtype(), u.shape(), u.device()));
    const size_t i = of_node_.emplace(u.get(), nodes_.size()).first->second;
    if (!index_.emplace(s->name, i).second) {
      return absl::InvalidArgumentError(absl::StrCat(s->name, " is defined twice"));
    }
    if (i < nodes_.size()) return absl::OkStatus();  // equal statements are one node
    nodes_.push_back(std::move(u));
    used_.push_back(false);
    return absl::OkStatus();
  }

  std::vector<UOp> Roots() && {
    if (roots_) return *std::move(roots_);
    std::vector<UOp> roots;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!used_[i]) roots.push_back(nodes_[i]);
    }
    return roots;
  }

 private:
  absl::StatusOr<size_t> Index(absl::string_view name) const {
    const auto it = index_.find(name);
    if (it != index_.end()) return it->second;
    return absl::InvalidArgumentError(absl::StrCat(name, " is not defined before its use"));
  }
  absl::StatusOr<UOp> Find(absl::string_view name) {
    ASSIGN_OR_RETURN(size_t i, Index(name));
    used_[i] = true;
    return nodes_[i];
  }

  absl::flat_hash_map<absl::string_view, size_t> index_;
  absl::flat_hash_map<const Node*, size_t> of_node_;
  std::vector<UOp> nodes_;
  std::vector<bool> used_;
  std::optional<std::vector<UOp>> roots_;
  TextBuffers buffers_;
};

}  // namespace

std::string PrintNode(const UOp& u, const NodeNames& names) {
  std::string out;
  Printer{out, names}.Statement(u);
  return out;
}

std::string Print(absl::Span<const UOp> roots) {
  const std::vector<UOp> order = TopoSort(roots, /*with_extents=*/true);
  NodeNames names;
  names.reserve(order.size());
  for (const UOp& u : order) names.emplace(u.get(), static_cast<int>(names.size()));
  std::vector<bool> used(order.size());
  std::string out;
  Printer printer{out, names};
  printer.defined = 0;
  for (const UOp& u : order) {
    for (const UOp& s : u.srcs()) used[names[s.get()]] = true;
    ForEachArgUOp(u.arg(), [&](const UOp& e) { used[names[e.get()]] = true; });
    printer.Statement(u);
    ++printer.defined;
    absl::StrAppend(&out, "\n");
  }
  std::vector<UOp> unused;
  for (size_t i = 0; i < order.size(); ++i) {
    if (!used[i]) unused.push_back(order[i]);
  }
  if (absl::Span<const UOp>(unused) != roots) {
    printer.Items("return ", roots, "\n", [&printer](const UOp& u) { printer.Name(u); });
  }
  return out;
}

absl::StatusOr<std::vector<UOp>> Parse(absl::string_view text) {
  Reader reader;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (absl::Status status = reader.Line(text.substr(0, end)); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("text: line ", line, ": ", status.message()));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(reader).Roots();
}

}  // namespace tessera
