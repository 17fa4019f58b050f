// One node of a model while it is imported: its inputs, attributes and outputs, and the table row
// that says how it becomes Tensor functions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "examples/onnx/proto.h"
#include "graph/tensor.h"

namespace tessera::onnx {

// What a name in a graph stands for: a tensor, a sequence, or nothing (what was left out, an empty
// optional).
struct Value {
  Tensor tensor;
  // It follows from shapes, constants and inputs that set shapes or attributes alone: it lies on
  // the host's CPU or has no device, and costs little to read while the graph is built.
  bool known = false;
  int64_t element = 0;  // the narrow type (element_types.h) whose values these are; 0: none
  std::shared_ptr<const std::vector<Value>> sequence = nullptr;

  bool is_sequence() const { return sequence != nullptr; }
  bool empty() const { return !tensor && !sequence; }
};

class Importer;

class Call {
 public:
  Call(Importer& importer, const Node& node, int64_t opset, std::vector<Value> inputs);

  const Node& node() const { return node_; }
  const std::string& op() const { return node_.op; }
  int64_t opset() const { return opset_; }  // the version of the node's domain

  // ---- inputs
  int inputs() const { return static_cast<int>(inputs_.size()); }
  bool Has(int i) const { return i < inputs() && inputs_[i].tensor; }
  bool HasAny(int i) const { return i < inputs() && !inputs_[i].empty(); }
  const Value& Input(int i) const;  // an Error where it is no tensor, as in all that follow
  const Value& Any(int i) const;    // whatever it is, if it is named at all
  const std::vector<Value>& Sequence(int i) const;
  // As data, where the other data lies.
  Tensor In(int i);
  Tensor InOr(int i, const Tensor& other = {}) { return Has(i) ? In(i) : other; }
  // The same, computed now where it is not known, for a shape or a course that follows from it.
  Tensor Read(int i);
  // Read on the host.
  std::vector<int64_t> HostInts(int i);
  std::vector<double> HostFloats(int i);
  int64_t HostInt(int i);  // of one element
  double HostFloat(int i);
  int64_t HostIntOr(int i, int64_t other) { return Has(i) ? HostInt(i) : other; }

  // ---- attributes
  // Null where it is absent; a case that gives it another type fails.
  const Attribute* Typed(const std::string& name, Attribute::Type type) const;
  const Attribute* Find(const std::string& name) const;
  int64_t Int(const std::string& name, int64_t other) const;
  int64_t Int(const std::string& name) const;  // an Error where it is missing
  double Float(const std::string& name, double other) const;
  std::string String(const std::string& name, const std::string& other) const;
  // One of these, of which the first is the default.
  std::string Choice(const std::string& name, std::initializer_list<absl::string_view> known) const;
  std::vector<int64_t> Ints(const std::string& name, std::vector<int64_t> other = {}) const;
  std::vector<double> Floats(const std::string& name) const;
  const TensorData& TensorOf(const std::string& name) const;
  std::vector<std::string> Strings(const std::string& name) const;
  // A list with an entry for each of n things, all `other` where it is missing.
  std::vector<int64_t> IntsFor(const std::string& name, size_t n, int64_t other) const;
  // An element type given as an integer attribute: its dtype where it is not narrow, or its number.
  DType Type(const std::string& name, DType other) const;
  int64_t Element(const std::string& name, int64_t other) const;
  // What moved from an attribute to an input: the input where there is one. Absent: none.
  std::optional<std::vector<int64_t>> IntsOf(int input, const std::string& attribute);

  // ---- outputs, in order
  // Known where the inputs are; of the narrow type of input 0, where that is its dtype: ops that
  // take such types move elements, but for those that say the type themselves.
  void Out(const Tensor& t);
  void OutOf(const Tensor& t, int64_t element);
  void Out(const Value& v) { outputs_.push_back(v); }
  bool Wants(int output) const;  // whether anyone named it
  std::vector<Value>& outputs() { return outputs_; }
  bool computed_inputs() const { return computed_inputs_; }  // some input was not known, and read
  bool all_known() const { return all_known_; }

  // An axis as it is written, -rank to rank - 1, as 0 to rank - 1.
  int Axis(int64_t axis, int rank) const;
  // "OP: parts"; Unsupported is what a model may ask for and this importer does not have.
  template <typename... Parts>
  [[noreturn]] void Fail(const Parts&... parts) const {
    throw Error(absl::InvalidArgumentError(absl::StrCat(op(), ": ", parts...)));
  }
  template <typename... Parts>
  [[noreturn]] void Unsupported(const Parts&... parts) const {
    throw Error(absl::UnimplementedError(absl::StrCat(op(), ": ", parts...)));
  }

  // Runs a graph attribute on values for its inputs; it sees the names around this node.
  std::vector<Value> RunGraph(const std::string& attribute, std::vector<Value> arguments);
  Importer& importer() { return importer_; }

 private:
  const Tensor& Computed(int i);
  Importer& importer_;
  const Node& node_;
  int64_t opset_;
  std::vector<Value> inputs_;
  std::vector<Value> outputs_;
  bool all_known_;
  bool computed_inputs_ = false;
};

// How an op's data moves, as far as sharded runs are checked for it.
enum class Flow : uint8_t {
  kAny,
  kElementwise,  // each element of the result is made of those at its own position
  kPermute,      // the axes of one input in another order
  kReduce,       // sums and the like over axes of one input
  kBatch,        // each element along the first axis of the first input by itself
};

// One op of ONNX.
struct OpRow {
  const char* name;  // after its domain and a dot, where that is not ai.onnx
  void (*import)(Call&);
  uint32_t host_inputs = 0;  // a bit for each input that sets shapes or attributes
  Flow flow = Flow::kAny;
  bool shape_only = false;  // the result follows from the shapes of the inputs
};
constexpr uint32_t HostInput(std::initializer_list<int> inputs) {
  uint32_t out = 0;
  for (int i : inputs) out |= 1u << i;
  return out;
}
inline constexpr uint32_t kAllHost = ~0u;

// The tables, one for each subject.
absl::Span<const OpRow> ArithmeticOps();
absl::Span<const OpRow> ActivationOps();
absl::Span<const OpRow> ReduceOps();
absl::Span<const OpRow> MovementOps();
absl::Span<const OpRow> CreationOps();
absl::Span<const OpRow> IndexOps();
absl::Span<const OpRow> LinearOps();
absl::Span<const OpRow> NormOps();
absl::Span<const OpRow> ConvolutionOps();
absl::Span<const OpRow> PoolOps();
absl::Span<const OpRow> AttentionOps();
absl::Span<const OpRow> LinearAttentionOps();
absl::Span<const OpRow> RecurrentOps();
absl::Span<const OpRow> QuantizeOps();
absl::Span<const OpRow> SignalOps();
absl::Span<const OpRow> RegionOps();
absl::Span<const OpRow> ImageOps();
absl::Span<const OpRow> LossOps();
absl::Span<const OpRow> ControlOps();
absl::Span<const OpRow> NgramOps();
absl::Span<const OpRow> SelectionOps();
absl::Span<const OpRow> TrainingOps();
absl::Span<const OpRow> SequenceOps();
absl::Span<const OpRow> StringOps();
absl::Span<const OpRow> LearningOps();
absl::Span<const OpRow> MicrosoftOps();
absl::Span<const OpRow> MicrosoftAttentionOps();
absl::Span<const OpRow> MicrosoftBlockOps();
absl::Span<const OpRow> MicrosoftQuantizedOps();

std::vector<absl::Span<const OpRow>> OpTables();  // all of these

// A node's op after its domain and a dot, as in OpRow, and the row of that name, or null.
std::string FullName(const Node& node);
const OpRow* FindOp(const Node& node);

// An error, and which node it is of: the innermost, as its op may be one of many alike.
Error AtNode(const Error& error, const Node& node);

// ---- what several subjects use
std::vector<int64_t> Sizes(const Tensor& t);  // the extents of its shape
int64_t Product(absl::Span<const int64_t> sizes);
// Negative indices of an axis counted from its end.
Tensor Wrapped(const Tensor& index, int64_t extent);
// Tensors side by side along an axis, a new one where `stack` says so.
Value Joined(Call& c, absl::Span<const Value> parts, int axis, bool stack);
// An output: x in an element type, by the attributes `saturate` and `round_mode`, as Cast rounds.
void OutAs(Call& c, const Tensor& x, int64_t element);
int64_t ElementOf(const Value& v);

}  // namespace tessera::onnx
