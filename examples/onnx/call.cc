// Inputs and attributes of one node, and the look-up of ops.
#include "examples/onnx/call.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "examples/onnx/import.h"
#include "graph/status.h"
#include "runtime/mapped_file.h"

namespace tessera::onnx {

Call::Call(Importer& importer, const Node& node, int64_t opset, std::vector<Value> inputs)
    : importer_(importer), node_(node), opset_(opset), inputs_(std::move(inputs)) {
  all_known_ = std::all_of(inputs_.begin(), inputs_.end(),
                           [](const Value& v) { return !v.tensor || v.known; });
}

const Value& Call::Input(int i) const {
  if (!Has(i)) Fail("input ", i, HasAny(i) ? " is a sequence" : " is missing");
  return inputs_[i];
}
const Value& Call::Any(int i) const {
  if (i >= inputs()) Fail("input ", i, " is missing");
  return inputs_[i];
}
const std::vector<Value>& Call::Sequence(int i) const {
  if (!HasAny(i) || !inputs_[i].is_sequence()) Fail("input ", i, " is no sequence");
  return *inputs_[i].sequence;
}
Tensor Call::In(int i) {
  const Value& v = Input(i);
  return v.known && !all_known_ ? importer_.Placed(v.tensor) : v.tensor;
}

// All that is not known is computed at once: what several inputs share, and some op reads, is not
// computed for each.
const Tensor& Call::Computed(int i) {
  const Value& v = Input(i);
  if (v.known || computed_inputs_) return v.tensor;
  std::vector<Tensor> unknown;
  for (const Value& x : inputs_) {
    if (x.tensor && !x.known) unknown.push_back(x.tensor);
  }
  importer_.Compute(absl::MakeSpan(unknown));
  auto next = unknown.begin();
  for (Value& x : inputs_) {
    if (x.tensor && !x.known) x.tensor = *next++;
  }
  computed_inputs_ = true;
  return v.tensor;
}
Tensor Call::Read(int i) {
  Computed(i);
  return In(i);
}
std::vector<int64_t> Call::HostInts(int i) { return Computed(i).ToVector<int64_t>(); }
std::vector<double> Call::HostFloats(int i) { return Computed(i).ToVector<double>(); }
int64_t Call::HostInt(int i) {
  const std::vector<int64_t> v = HostInts(i);
  if (v.size() != 1) Fail("input ", i, " has ", v.size(), " elements, not 1");
  return v[0];
}
double Call::HostFloat(int i) {
  const std::vector<double> v = HostFloats(i);
  if (v.size() != 1) Fail("input ", i, " has ", v.size(), " elements, not 1");
  return v[0];
}

const Attribute* Call::Find(const std::string& name) const {
  const auto it = node_.attributes.find(name);
  return it == node_.attributes.end() ? nullptr : &it->second;
}
const Attribute* Call::Typed(const std::string& name, Attribute::Type type) const {
  const Attribute* a = Find(name);
  // Files of the first versions may say no type.
  if (a != nullptr && a->type != type && a->type != Attribute::Type::kNone) {
    Fail("attribute '", name, "' is of another type than its op's");
  }
  return a;
}
int64_t Call::Int(const std::string& name, int64_t other) const {
  const Attribute* a = Typed(name, Attribute::Type::kInt);
  return a == nullptr ? other : a->i;
}
int64_t Call::Int(const std::string& name) const {
  if (Find(name) == nullptr) Fail("attribute '", name, "' is missing");
  return Int(name, 0);
}
double Call::Float(const std::string& name, double other) const {
  const Attribute* a = Typed(name, Attribute::Type::kFloat);
  return a == nullptr ? other : a->f;
}
std::string Call::String(const std::string& name, const std::string& other) const {
  const Attribute* a = Typed(name, Attribute::Type::kString);
  return a == nullptr ? other : std::string(a->s);
}
std::string Call::Choice(const std::string& name,
                         std::initializer_list<absl::string_view> known) const {
  std::string out = String(name, std::string(*known.begin()));
  if (std::find(known.begin(), known.end(), out) != known.end()) return out;
  const absl::Span<const absl::string_view> all = known;
  Fail(name, " is ", ShowName(out), "; ", absl::StrJoin(all.first(all.size() - 1), ", "), " and ",
       all.back(), " are known");
}
std::vector<int64_t> Call::Ints(const std::string& name, std::vector<int64_t> other) const {
  const Attribute* a = Typed(name, Attribute::Type::kInts);
  return a == nullptr ? std::move(other) : a->ints;
}
std::vector<double> Call::Floats(const std::string& name) const {
  const Attribute* a = Typed(name, Attribute::Type::kFloats);
  if (a == nullptr) return {};
  return {a->floats.begin(), a->floats.end()};
}
const TensorData& Call::TensorOf(const std::string& name) const {
  const Attribute* a = Find(name);
  if (a == nullptr || a->tensors.empty()) Fail("attribute '", name, "' is no tensor");
  return a->tensors[0];
}
std::vector<int64_t> Call::IntsFor(const std::string& name, size_t n, int64_t other) const {
  std::vector<int64_t> out = Ints(name, std::vector<int64_t>(n, other));
  if (out.size() != n) Fail("attribute '", name, "' has ", out.size(), " entries, not ", n);
  return out;
}
std::vector<std::string> Call::Strings(const std::string& name) const {
  const Attribute* a = Find(name);
  if (a == nullptr) return {};
  return {a->strings.begin(), a->strings.end()};
}
DType Call::Type(const std::string& name, DType other) const {
  const Attribute* a = Find(name);
  if (a == nullptr) return other;
  const std::optional<DType> t = DTypeOfElement(a->i);
  if (!t || IsNarrow(a->i)) {
    Unsupported("the element type ", ElementName(a->i), " is none of a Tensor");
  }
  return *t;
}
int64_t Call::Element(const std::string& name, int64_t other) const {
  const Attribute* a = Find(name);
  if (a == nullptr || a->i == 0) return other;
  if (!DTypeOfElement(a->i)) {
    Unsupported("the element type ", ElementName(a->i), " is none of a Tensor");
  }
  return a->i;
}
std::optional<std::vector<int64_t>> Call::IntsOf(int input, const std::string& attribute) {
  if (Has(input)) return HostInts(input);
  if (Find(attribute) != nullptr) return Ints(attribute);
  return {};
}

void Call::Out(const Tensor& t) {
  OutOf(t, Has(0) && t.dtype() == inputs_[0].tensor.dtype() ? inputs_[0].element : 0);
}
void Call::OutOf(const Tensor& t, int64_t element) {
  const OpRow* row = FindOp(node_);
  outputs_.push_back(
      {t, all_known_ || (row != nullptr && row->shape_only), IsNarrow(element) ? element : 0});
}
bool Call::Wants(int output) const {
  return output < static_cast<int>(node_.outputs.size()) && !node_.outputs[output].empty();
}

int Call::Axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank) {
    Fail("axis ", axis, " is none of a tensor of rank ", rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<Value> Call::RunGraph(const std::string& attribute, std::vector<Value> arguments) {
  const Attribute* a = Find(attribute);
  if (a == nullptr || a->graph < 0) Fail("the graph '", attribute, "' is missing");
  const Graph& graph = importer_.model().graphs[a->graph];
  if (graph.inputs.size() != arguments.size()) {
    Fail("the graph '", attribute, "' has ", graph.inputs.size(), " inputs; it is run on ",
         arguments.size(), " values");
  }
  return importer_.RunGraph(graph, std::move(arguments));
}

std::vector<absl::Span<const OpRow>> OpTables() {
  return {ArithmeticOps(),
          ActivationOps(),
          ReduceOps(),
          MovementOps(),
          CreationOps(),
          IndexOps(),
          SelectionOps(),
          LinearOps(),
          NormOps(),
          ConvolutionOps(),
          PoolOps(),
          AttentionOps(),
          LinearAttentionOps(),
          RecurrentOps(),
          QuantizeOps(),
          SignalOps(),
          RegionOps(),
          ImageOps(),
          LossOps(),
          TrainingOps(),
          ControlOps(),
          SequenceOps(),
          StringOps(),
          LearningOps(),
          NgramOps(),
          MicrosoftOps(),
          MicrosoftAttentionOps(),
          MicrosoftBlockOps(),
          MicrosoftQuantizedOps()};
}

std::string FullName(const Node& node) {
  return node.domain.empty() ? node.op : absl::StrCat(node.domain, ".", node.op);
}

const OpRow* FindOp(const Node& node) {
  static const auto* const table = [] {
    auto* map = new absl::flat_hash_map<std::string, const OpRow*>();
    for (const absl::Span<const OpRow> rows : OpTables()) {
      for (const OpRow& row : rows) {
        CHECK(map->emplace(row.name, &row).second, row.name, " is in two tables");
      }
    }
    return map;
  }();
  const auto it = table->find(FullName(node));
  return it == table->end() ? nullptr : it->second;
}

Error AtNode(const Error& error, const Node& node) {
  constexpr absl::string_view kMark = "; at node ";
  const absl::Status& status = error.status();
  if (absl::StrContains(status.message(), kMark)) return error;
  return Error(absl::Status(
      status.code(),
      absl::StrCat(status.message(), kMark, ShowName(node.name), ", ", ShowName(node.op))));
}

std::vector<int64_t> Sizes(const Tensor& t) {
  std::vector<int64_t> out;
  for (int i = 0; i < t.rank(); ++i) out.push_back(t.size(i));
  return out;
}
int64_t Product(absl::Span<const int64_t> sizes) {
  int64_t out = 1;
  for (const int64_t n : sizes) {
    if (__builtin_mul_overflow(out, n, &out)) {
      throw Error(absl::InvalidArgumentError("Shape: its elements do not fit 64 bits"));
    }
  }
  return out;
}
Tensor Wrapped(const Tensor& index, int64_t extent) {
  return Where(index < 0, index + extent, index);
}
Value Joined(Call& c, absl::Span<const Value> parts, int axis, bool stack) {
  Value out;
  out.known = true;
  for (const Value& v : parts) {
    if (!v.tensor) c.Fail("joins sequences, not tensors");
    out.known = out.known && v.known;
  }
  std::vector<Tensor> tensors;
  for (const Value& v : parts) {
    tensors.push_back(v.known && !out.known ? c.importer().Placed(v.tensor) : v.tensor);
  }
  axis = c.Axis(axis, tensors[0].rank() + (stack ? 1 : 0));
  out.tensor = stack ? Stack(tensors, axis) : Cat(tensors, axis);
  out.element = parts[0].element;
  return out;
}
int64_t ElementOf(const Value& v) {
  return v.element != 0 ? v.element : ElementOfDType(v.tensor.dtype());
}

}  // namespace tessera::onnx
