// Sequences of tensors, and what may be there or not.
#include "examples/onnx/call.h"
#include "examples/onnx/import.h"

namespace tessera::onnx {
namespace {

using Values = std::vector<Value>;

void OutSequence(Call& c, Values values) {
  Value out;
  out.sequence = std::make_shared<const Values>(std::move(values));
  c.Out(out);
}

void Construct(Call& c) {
  Values values;
  for (int i = 0; i < c.inputs(); ++i) values.push_back(c.Input(i));
  OutSequence(c, std::move(values));
}
void Empty(Call& c) { OutSequence(c, {}); }

// A position as it is written, from the end where negative, below `limit`.
int64_t Position(Call& c, int input, int64_t n, int64_t limit) {
  const int64_t given = c.HostInt(input);
  const int64_t at = given < 0 ? given + n : given;
  if (at < 0 || at >= limit) c.Fail("position ", given, " is none of a sequence of ", n);
  return at;
}
void Insert(Call& c) {
  Values values = c.Sequence(0);
  const auto n = static_cast<int64_t>(values.size());
  const int64_t at = c.Has(2) ? Position(c, 2, n, n + 1) : n;
  values.insert(values.begin() + at, c.Input(1));
  OutSequence(c, std::move(values));
}
void Erase(Call& c) {
  Values values = c.Sequence(0);
  const auto n = static_cast<int64_t>(values.size());
  if (n == 0) c.Fail("the sequence is empty");
  values.erase(values.begin() + (c.Has(1) ? Position(c, 1, n, n) : n - 1));
  OutSequence(c, std::move(values));
}
void At(Call& c) {
  const Values& values = c.Sequence(0);
  const auto n = static_cast<int64_t>(values.size());
  c.Out(values[Position(c, 1, n, n)]);
}
void Length(Call& c) {
  const auto n = static_cast<int64_t>(c.Sequence(0).size());
  c.Out(Value{Tensor::From(std::vector<int64_t>{n}, {}, "CPU"), true});
}

void Split(Call& c) {
  const Value& x = c.Input(0);
  const int axis = c.Axis(c.Int("axis", 0), x.tensor.rank());
  const int64_t n = x.tensor.size(axis);
  std::vector<int64_t> sizes = c.Has(1) ? c.HostInts(1) : std::vector<int64_t>{1};
  bool squeeze = false;
  if (!c.Has(1) || c.Input(1).tensor.rank() == 0) {  // of that size each, the last what remains
    const int64_t size = sizes.at(0);
    // The standard's text has keepdims ignored beside an input of sizes. PyTorch writes unbind with
    // both, for ONNX Runtime to go by.
    squeeze = size == 1 && c.Int("keepdims", 1) == 0;
    if (size < 1) c.Fail("parts of ", size);
    if (n / size > kMostNodes) c.Unsupported("more than ", kMostNodes, " parts");
    sizes.assign(n / size, size);
    if (n % size != 0) sizes.push_back(n % size);
  }
  Values values;
  for (const Tensor& part : x.tensor.Split(sizes, axis)) {
    values.push_back({squeeze ? part.Squeeze(Axes({axis})) : part, x.known, x.element});
  }
  OutSequence(c, std::move(values));
}
void Concat(Call& c) {
  const Values& values = c.Sequence(0);
  if (values.empty()) c.Fail("the sequence is empty");
  c.Out(Joined(c, values, static_cast<int>(c.Int("axis")), c.Int("new_axis", 0) != 0));
}

// The body once for each position of the sequences; tensors are the same each time.
void Map(Call& c) {
  const size_t n = c.Sequence(0).size();
  std::vector<Values> results(c.node().outputs.size());
  for (size_t k = 0; k < n; ++k) {
    Values arguments;
    for (int i = 0; i < c.inputs(); ++i) {
      if (!c.Any(i).is_sequence()) {
        arguments.push_back(c.Input(i));
        continue;
      }
      if (c.Sequence(i).size() != n) {
        c.Fail("sequences of ", n, " and ", c.Sequence(i).size(), " elements");
      }
      arguments.push_back(c.Sequence(i)[k]);
    }
    const Values made = c.RunGraph("body", std::move(arguments));
    if (made.size() < results.size()) c.Fail("the body gives too few results");
    for (size_t i = 0; i < results.size(); ++i) {
      if (!made[i].tensor) c.Fail("result ", i, " of the body is no tensor");
      results[i].push_back(made[i]);
    }
  }
  for (Values& r : results) OutSequence(c, std::move(r));
}

// ---- optionals: a value that is there is itself
void Optional(Call& c) { c.Out(c.inputs() > 0 ? c.Any(0) : Value()); }
void HasElement(Call& c) {
  c.Out(Value{Tensor::From(std::vector<bool>{c.HasAny(0)}, {}, "CPU"), true});
}
void GetElement(Call& c) {
  if (!c.HasAny(0)) c.Fail("the optional is empty");
  c.Out(c.Any(0));
}

constexpr OpRow kRows[] = {
    {"ConcatFromSequence", Concat},
    {"Optional", Optional},
    {"OptionalGetElement", GetElement},
    {"OptionalHasElement", HasElement},
    {"SequenceAt", At, HostInput({1})},
    {"SequenceConstruct", Construct},
    {"SequenceEmpty", Empty},
    {"SequenceErase", Erase, HostInput({1})},
    {"SequenceInsert", Insert, HostInput({2})},
    {"SequenceLength", Length},
    {"SequenceMap", Map},
    {"SplitToSequence", Split, HostInput({1})},
};

}  // namespace

absl::Span<const OpRow> SequenceOps() { return kRows; }

}  // namespace tessera::onnx
