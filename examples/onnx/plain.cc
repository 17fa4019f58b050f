// The rules of what is plain.
#include "examples/onnx/plain.h"

#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera::onnx {
namespace {

struct OpReason {
  const char* op;
  const char* reason;
  bool may_run;
};
constexpr OpReason kOps[] = {
    {"If", "control flow (If)", true},
    {"Loop", "control flow (Loop)", true},
    {"Scan", "control flow (Scan)", true},
    {"SequenceMap", "sequences (SequenceMap)", true},
    {"Compress", "output shape follows from data (Compress)", true},
    {"NonZero", "output shape follows from data (NonZero)", true},
    {"NonMaxSuppression", "output shape follows from data (NonMaxSuppression)", true},
    {"Unique", "output shape follows from data (Unique)", true},
    {"ImageDecoder", "output shape follows from data (ImageDecoder)", false},
};

class Rules {
 public:
  explicit Rules(const Model& model) {
    for (const Graph& g : model.graphs) {
      for (const ValueInfo& info : g.inputs) Look(info);
      for (const ValueInfo& info : g.outputs) Look(info);
      for (const TensorData& t : g.initializers) LookElement(t.element);
      for (const Node& node : g.nodes) Look(node);
    }
    for (const Function& f : model.functions) {
      for (const Node& node : f.nodes) Look(node);
    }
  }
  const Plainness& result() const { return result_; }

 private:
  // What cannot run says more than what can.
  void Say(const std::string& reason, bool may_run) {
    if (result_.reason.empty() || (result_.may_run && !may_run)) result_ = {reason, may_run};
  }
  void LookElement(int64_t element) {
    if (element == 0 || (DTypeOfElement(element) && !IsNarrow(element))) return;
    const std::string name = ElementName(element);
    Say(element == kElementString ? "strings" : absl::StrCat("element type ", name),
        IsNarrow(element));
  }
  void Look(const ValueInfo& info) {
    using Kind = ValueInfo::Kind;
    if (info.kind == Kind::kSequence) Say("sequences", true);
    if (info.kind == Kind::kOptional) Say("optionals", true);
    if (info.kind == Kind::kMap) Say("maps", false);
    if (info.kind == Kind::kSparse) Say("sparse tensors", false);
    LookElement(info.element);
  }
  void Look(const Node& node) {
    for (const auto& [name, a] : node.attributes) {
      for (const TensorData& t : a.tensors) LookElement(t.element);
      if (name == "to" || name == "dtype" || name == "output_dtype") LookElement(a.i);
    }
    // Some exporters import every domain that they know: what counts is whose ops there are.
    if (node.domain == "ai.onnx.preview.training") Say("training (" + node.domain + ")", true);
    if (node.domain == "ai.onnx.ml") Say(node.domain, true);
    if (!node.domain.empty()) return;
    for (const OpReason& row : kOps) {
      if (node.op == row.op) Say(row.reason, row.may_run);
    }
    if (absl::StartsWith(node.op, "String") || absl::StartsWith(node.op, "Regex")) {
      Say(absl::StrCat("strings (", node.op, ")"), true);
    }
    if (absl::StartsWith(node.op, "Sequence") || absl::StrContains(node.op, "Sequence")) {
      if (node.op != "ReverseSequence") Say(absl::StrCat("sequences (", node.op, ")"), true);
    }
    if (absl::StartsWith(node.op, "Optional")) {
      Say(absl::StrCat("optionals (", node.op, ")"), true);
    }
  }
  Plainness result_;
};

}  // namespace

Plainness PlainnessOf(const Model& model) { return Rules(model).result(); }

}  // namespace tessera::onnx
