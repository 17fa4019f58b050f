// The rules on graphs of every stage, and on tensor graphs.
#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "graph/buffer.h"
#include "graph/infer.h"
#include "graph/number_var.h"
#include "graph/own_extent.h"
#include "graph/spec_graph.h"
#include "graph/text.h"

namespace tessera {
namespace {

// Extents are integers or expressions over variables and constants.
void CheckExtentForms(SpecGraph& g) {
  std::vector<bool> pure(g.nodes.size());
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const SpecNode& n = g.nodes[i];
    pure[i] = n.op == Op::kConst || n.op == Op::kVar || IsElementwise(n.op);
    for (int s : g.srcs(static_cast<int>(i))) pure[i] = pure[i] && pure[s];
    if (n.arg == nullptr || n.bad) continue;
    // Of tensor graphs in memory the scheduler says it to users.
    const bool stored = n.op == Op::kParam || n.op == Op::kBuffer;
    if (stored && n.sure() && (!g.texts.empty() || g.stage != SpecStage::kTensor)) {
      int64_t bytes = 0;
      if (__builtin_mul_overflow(n.value.shape().MaxElements(), int64_t{n.dtype.bytes()}, &bytes)) {
        g.Report(SpecRule::kExtentForm, static_cast<int>(i), Info(n.op).text,
                 ": the number of bytes does not fit in 64 bits");
      }
    }
    ForEachArgUOp(*n.arg, [&](const UOp& e) {
      const auto it = g.index.find(e.get());
      const bool over_variables = it == g.index.end() || pure[it->second];
      if (!over_variables || !(e.dtype() == kInt64) || e.rank() != 0) {
        return g.Report(SpecRule::kExtentForm, static_cast<int>(i), Info(n.op).text,
                        ": an extent must be an i64 expression over variables");
      }
      if (e.vmin() >= 0 || !g.Applies(SpecRule::kExtentForm)) return;
      SpecPoints points({e}, SpecPoints::Reads::kUnknown, g.budget);
      points.Visit([&] {
        const std::optional<int64_t> at = points.At(0);
        if (!at || *at >= 0) return true;
        g.Report(SpecRule::kExtentForm, static_cast<int>(i), Info(n.op).text, ": an extent is ",
                 *at, " at ", points.Where());
        return false;
      });
    });
  }
}

// The names that passes give variables: what a place has, random numbers, indices that are read,
// numbers of a graph or a step.
bool IsOfPasses(absl::string_view name) {
  const auto numbered = [&name](absl::string_view prefix) {
    return name.size() > prefix.size() && absl::StartsWith(name, prefix) &&
           absl::c_all_of(name.substr(prefix.size()), absl::ascii_isdigit);
  };
  return numbered("@") || numbered(kPlaceVariable) || numbered(kDrawVariable) ||
         numbered("@number") || numbered("@step") || numbered("@turn") ||
         absl::StartsWith(name, "@random_");
}

// Why a variable cannot have its name; nothing if it can.
absl::string_view BadName(const UOp& variable, SpecStage stage) {
  const VarArg& v = variable.arg<VarArg>();
  if (v.name.empty()) return "a variable has a name";
  if (absl::c_any_of(v.name, absl::ascii_iscntrl)) return "a name has no control characters";
  if (absl::StartsWith(v.name, "rt_")) {
    return stage == SpecStage::kProgram ? "" : "names that begin with rt_ are of programs";
  }
  if (v.name[0] != '@' || IsOfPasses(v.name) || OwnSizesOf(variable)) return "";
  return "names that begin with @ are of passes";
}

void CheckNames(SpecGraph& g) {
  absl::flat_hash_map<std::string, int> vars;
  absl::flat_hash_map<int64_t, int> slots;
  absl::flat_hash_map<const Buffer*, int> buffers;
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const SpecNode& n = g.nodes[i];
    if (!n.sure()) continue;
    const auto first = [&](auto& map, const auto& key) {
      const int k = map.emplace(key, i).first->second;
      return g.nodes[k].value == n.value ? -1 : k;
    };
    if (n.op == Op::kVar) {
      const auto& name = std::get<VarArg>(n.arg->value).name;
      if (const absl::string_view why = BadName(n.value, g.stage); !why.empty()) {
        g.Report(SpecRule::kVarName, i, "VAR: ", why);
      }
      const int k = first(vars, name);
      if (k >= 0)
        g.Report(SpecRule::kVarName, i, "the name ", name, " is taken by ", g.NodeText(k));
    } else if (n.op == Op::kParam) {
      const int64_t slot = std::get<ParamArg>(n.arg->value).slot;
      const int k = first(slots, slot);
      if (k >= 0) g.Report(SpecRule::kSlotShared, i, "slot ", slot, " is taken by ", g.NodeText(k));
    } else if (n.op == Op::kBuffer) {
      const BufferArg& b = std::get<BufferArg>(n.arg->value);
      const int k = first(buffers, b.buffer.get());
      const auto alike = [&](const UOp& other) {
        return other.device() == b.device && other.dtype() == n.dtype &&
               other.shape().MaxElements() == n.value.shape().MaxElements();
      };
      if (k >= 0 && !alike(g.nodes[k].value)) {
        g.Report(SpecRule::kBufferPlace, i, "the buffer is another tensor in ", g.NodeText(k));
      } else if (!b.device) {
        g.Report(SpecRule::kBufferPlace, i, "BUFFER: is on no device");
      }
    }
  }
}

void CheckRoots(SpecGraph& g) {
  for (int r : g.roots) {
    const SpecNode& n = g.nodes[r];
    if (n.bad) continue;
    switch (g.stage) {
      case SpecStage::kTensor:
        if (n.dtype.IsVoid() && n.op != Op::kSink) {
          g.Report(SpecRule::kRoot, r, "a root of a tensor graph is a tensor or a SINK");
        }
        break;
      case SpecStage::kKernel:
        if (n.op == Op::kStore || n.op == Op::kUpdate) {
          g.Report(SpecRule::kStoreOutsideSink, r, "a ", Info(n.op).text, " belongs in a SINK");
        } else if (n.op != Op::kSink) {
          g.Report(SpecRule::kRoot, r, "a root of a kernel graph is a SINK of STOREs and UPDATEs");
        }
        break;
      case SpecStage::kProgram:
        if (n.op != Op::kProgram)
          g.Report(SpecRule::kRoot, r, "the root of a program is a PROGRAM");
        break;
    }
  }
  // A SINK holds what its stage stores; a SINK or PROGRAM is held by nothing.
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    if (g.nodes[i].op != Op::kSink && g.nodes[i].op != Op::kProgram) continue;
    for (int s : g.srcs(i)) {
      const SpecNode& n = g.nodes[s];
      if (n.bad) continue;
      if (n.op == Op::kSink || n.op == Op::kProgram) {
        g.Report(SpecRule::kVoidOperand, i, "a ", Info(n.op).text, " cannot be held by another");
      } else if (g.stage == SpecStage::kTensor && n.dtype.IsVoid()) {
        g.Report(SpecRule::kVoidOperand, i, "a SINK of tensors holds ", Info(n.op).text);
      } else if (g.stage == SpecStage::kKernel && n.op != Op::kStore && n.op != Op::kUpdate) {
        g.Report(SpecRule::kRoot, i, "the SINK of a kernel holds STOREs and UPDATEs, not ",
                 Info(n.op).text);
      }
    }
  }
}

// Whether no two windows of an axis share an element: of all pairs of a position and an element of
// its window, only equal ones lie at one place.
bool AreDisjoint(int64_t positions, int64_t size, int64_t stride, int64_t dilation) {
  if (positions <= 1 || size <= 1) return true;
  // i * stride == j * dilation for 0 < i < positions and 0 < j < size begins at the least common
  // multiple.
  const int64_t g = std::gcd(stride, dilation);
  return dilation / g >= positions || stride / g >= size;
}

// Whether each element of the result is another element of the source, and none is made up.
bool IsView(const UOp& u) {
  if (!IsMovement(u.op())) return false;
  if (u.is(Op::kExpand) || u.is(Op::kPad)) return u.shape() == u.src(0).shape();
  if (!u.is(Op::kWindow)) return true;
  const WindowArg& w = u.arg<WindowArg>();
  for (size_t i = 0; i < w.axes.size(); ++i) {
    const int64_t positions = u.shape()[static_cast<int>(w.axes[i])].max();
    if (!AreDisjoint(positions, w.size[i], w.stride[i], w.dilation[i])) return false;
  }
  return true;
}

bool IsPartial(const SpecNode& n) {
  const Device d = n.sure() ? n.value.device() : Device();
  return d.is_sharding() && d.sharding().Has(Placement::Kind::kPartial);
}

// What each place has as its own meets only what is each place's own as well.
void CheckOwn(SpecGraph& g, int i) {
  const auto is_own = [](Device d, int dim) {
    return d.sharding()(dim).is(Placement::Kind::kManual);
  };
  Device first;
  for (int s : g.srcs(i)) {
    const Device d = g.nodes[s].sure() ? g.nodes[s].value.device() : Device();
    if (!d.is_sharding()) continue;
    if (!first) first = d;
    if (!(first.sharding().mesh() == d.sharding().mesh())) return;
    for (int dim = 0; dim < d.sharding().mesh().ndim(); ++dim) {
      if (is_own(first, dim) == is_own(d, dim)) continue;
      return g.Report(SpecRule::kManualBorder, i, Info(g.nodes[i].op).text, ": ", g.NodeText(s),
                      " is on ", d.ToString(), ", another source on ", first.ToString(),
                      "; a LOCAL makes it each place's own");
    }
  }
}

}  // namespace

bool SpecGraph::Applies(SpecRule rule) const {
  return Info(rule).level <= options.level &&
         absl::StrContains(Info(rule).stages, StageName(stage).substr(0, 1));
}

std::string SpecGraph::NodeText(int i) const {
  if (!texts.empty()) return Shown(texts[i]);
  NodeNames names;
  names.emplace(nodes[i].value.get(), i);
  for (int s : srcs(i)) names.emplace(nodes[s].value.get(), s);
  ForEachArgUOp(nodes[i].value.arg(), [&](const UOp& e) {
    if (const auto it = index.find(e.get()); it != index.end()) names.emplace(e.get(), it->second);
  });
  return Shown(PrintNode(nodes[i].value, names));
}

std::string Shown(absl::string_view statement) {
  constexpr size_t kLongest = 400;
  if (statement.size() <= kLongest) return std::string(statement);
  return absl::StrCat(statement.substr(0, kLongest), "...");
}

void SpecGraph::Add(SpecRule rule, int i, std::string message) {
  constexpr int kMostOfANode = 8;
  if (reported.size() < nodes.size()) reported.resize(nodes.size());
  if (++reported[i] > kMostOfANode) return;
  Violation found{NodeText(i), rule, std::move(message), lines.empty() ? 0 : lines[i]};
  // An operand that is used twice is wrong once.
  if (!violations.empty() && violations.back().ToString() == found.ToString() &&
      violations.back().line == found.line) {
    return;
  }
  violations.push_back(std::move(found));
}

void CheckCommon(SpecGraph& g) {
  CheckExtentForms(g);
  CheckNames(g);
  CheckRoots(g);
}

void CheckTensorGraph(SpecGraph& g) {
  CheckLoops(g);
  const auto whole = [&g](int i, int reader) {
    const SpecNode& n = g.nodes[i];
    if (!IsPartial(n)) return;
    g.Report(SpecRule::kPartialUse, reader, Info(n.op).text, ": a root is partial, on ",
             n.value.device().ToString());
  };
  for (int r : g.roots) {
    whole(r, r);
    if (g.nodes[r].op != Op::kSink) continue;
    for (int s : g.srcs(r)) whole(s, r);
  }
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const SpecNode& n = g.nodes[i];
    if (!n.sure()) continue;
    if (n.dtype.lanes() != 1) {
      g.Report(SpecRule::kScalarLanes, i, Info(n.op).text, ": a tensor has one lane");
    }
    if ((n.op == Op::kParam || n.op == Op::kBuffer) && IsPartial(n)) {
      g.Report(SpecRule::kPartialUse, i, Info(n.op).text, ": holds a partial value");
    }
    for (int s : g.srcs(i)) {
      if (n.op == Op::kAllReduce || n.op == Op::kSink || !IsPartial(g.nodes[s])) continue;
      g.Report(SpecRule::kPartialUse, i, Info(n.op).text, ": reads ", g.NodeText(s),
               ", which is partial");
    }
    if (IsElementwise(n.op)) CheckOwn(g, i);
    if (n.op != Op::kAssign || !g.src(i, 0).sure() || !g.src(i, 1).sure()) continue;
    const UOp& base = n.value.src(0);
    const UOp* view = &n.value.src(1);
    while (!(*view == base) && IsView(*view)) view = &view->src(0);
    if (!(*view == base)) {
      g.Report(SpecRule::kAssignView, i, "ASSIGN: ", Info(view->op()).text,
               " does not lead from the view to the base without repeating or adding elements");
    }
  }
}

}  // namespace tessera
