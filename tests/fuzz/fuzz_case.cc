// Running a case against the reference.
#include "tests/fuzz/fuzz_case.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/buffer.h"
#include "graph/error.h"
#include "graph/rewrite.h"
#include "graph/status.h"
#include "graph/tensor.h"
#include "graph/text.h"
#include "runtime/capture.h"
#include "runtime/execute.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

// A buffer of these bytes, with room behind it that must stay as it is.
constexpr size_t kGuard = 64;
constexpr uint8_t kGuardByte = 0xA5;

struct Memory {
  std::vector<uint8_t> bytes;
  explicit Memory(const std::vector<uint8_t>& data) : bytes(data.size() + 2 * kGuard, kGuardByte) {
    if (!data.empty()) std::memcpy(&bytes[kGuard], data.data(), data.size());
  }
  bool intact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (bytes[i] != kGuardByte || bytes[bytes.size() - 1 - i] != kGuardByte) return false;
    }
    return true;
  }
};

// An extent that has stayed symbolic (what was assigned to goes on as it is) has its value here.
absl::StatusOr<HostArray> ReadBack(const UOp& buffer, const Bindings& values) {
  HostArray out{buffer.dtype(), {}, {}};
  int64_t bytes = buffer.dtype().bytes();
  for (const Extent& e : buffer.shape()) {
    ASSIGN_OR_RETURN(const int64_t extent, ExtentValue(e, values));
    out.shape.push_back(extent);
    bytes *= extent;
  }
  out.bytes.resize(bytes);
  const auto& storage = buffer.arg<BufferArg>().buffer->storage;
  ASSIGN_OR_RETURN(DeviceRuntime * device, GetDevice(buffer.device().place()));
  RETURN_IF_ERROR(device->CopyOut(out.bytes.data(), storage->data, bytes));
  return out;
}

}  // namespace

FuzzCase CaseOf(std::vector<UOp> roots) {
  FuzzCase out;
  Substitution params;
  for (const UOp& u : TopoSort(roots)) {
    if (!u.is(Op::kBuffer)) continue;
    const HostArray content =
        u.arg<BufferArg>().buffer->storage == nullptr
            ? HostArray{u.dtype(),
                        {},
                        std::vector<uint8_t>(u.shape().MaxElements() * u.dtype().bytes(), 0xff)}
            : ReadBack(u, {}).value();
    params.emplace(u, UOp::Make(Op::kParam, u.dtype(), {},
                                ParamArg{static_cast<int64_t>(out.data.size()),
                                         u.shape().ToExtents(), u.device()}));
    out.data.push_back(content.bytes);
  }
  out.roots = Substitute(roots, params);
  return out;
}

namespace {

// The buffers of one run, by slot.
struct Buffers {
  std::vector<Memory> memory;
  std::vector<UOp> nodes;  // null for a slot that nothing reads

  explicit Buffers(const FuzzCase& c) : nodes(c.data.size()) {
    memory.reserve(c.data.size());
    for (const auto& d : c.data) memory.emplace_back(d);
    for (const UOp& u : TopoSort(c.roots)) {
      if (!u.is(Op::kParam)) continue;
      const int64_t slot = u.arg<ParamArg>().slot;
      auto buffer = std::make_shared<Buffer>();
      buffer->storage = On(u.device(), memory[slot], c.data[slot]);
      nodes[slot] = UOp::Make(Op::kBuffer, u.dtype(), {},
                              BufferArg{buffer, u.shape().ToExtents(), u.device()});
    }
  }

  // The guarded bytes themselves where the device computes in them, else a copy.
  static std::shared_ptr<Storage> On(Device device, Memory& memory,
                                     const std::vector<uint8_t>& data) {
    const auto bytes = static_cast<int64_t>(data.size());
    DeviceRuntime& runtime = *ValueOrThrow(GetDevice(device.place()));
    if (!runtime.IsHost()) {
      std::shared_ptr<Storage> storage = ValueOrThrow(runtime.Allocate(bytes));
      ThrowIfError(runtime.CopyIn(storage->data, data.data(), bytes));
      return storage;
    }
    auto storage = std::make_shared<Storage>();
    storage->data = &memory.bytes[kGuard];
    storage->bytes = bytes;
    return storage;
  }

  std::string Check() const {
    for (size_t i = 0; i < memory.size(); ++i) {
      if (!memory[i].intact()) return absl::StrCat("memory beside leaf ", i, " was written");
    }
    return "";
  }
};

std::vector<UOp> Over(const FuzzCase& c, absl::Span<const UOp> leaves) {
  Substitution map;
  for (const UOp& u : TopoSort(c.roots)) {
    if (u.is(Op::kParam)) map.emplace(u, leaves[u.arg<ParamArg>().slot]);
  }
  return Substitute(c.roots, map);
}

// Without what no VAR of the graph is named.
Bindings UsedValues(const FuzzCase& c) {
  Bindings out;
  for (const UOp& u : TopoSort(c.roots, /*with_extents=*/true)) {
    if (!u.is(Op::kVar)) continue;
    const auto it = c.values.find(u.arg<VarArg>().name);
    if (it != c.values.end()) out.insert(*it);
  }
  return out;
}

absl::StatusOr<std::vector<Bounded>> Reference(const FuzzCase& c) {
  EvaluateOptions options;
  options.stop_at_realized = false;
  options.vars.insert(c.values.begin(), c.values.end());
  options.contents = [&](const UOp& leaf) { return c.data[leaf.arg<ParamArg>().slot].data(); };
  return EvaluateWithBounds(c.roots, options);
}

std::string Compare(absl::Span<const UOp> got, absl::Span<const Bounded> want,
                    const Bindings& values, Compared* compared) {
  for (size_t i = 0; i < got.size(); ++i) {
    const auto array = ReadBack(got[i], values);
    if (!array.ok()) return absl::StrCat("read: ", array.status().ToString());
    const std::string difference = Difference(*array, want[i], compared);
    if (!difference.empty()) return absl::StrCat("root ", i, ": ", difference);
  }
  return "";
}

std::string RunOnce(const FuzzCase& c, Compared* compared) {
  const auto want = Reference(c);
  if (!want.ok()) return absl::StrCat("reference: ", want.status().ToString());
  const Buffers buffers(c);
  std::vector<UOp> roots = Over(c, buffers.nodes);
  const auto got = RealizeNodes(roots, UsedValues(c));
  if (!got.ok()) return absl::StrCat("realize: ", got.status().ToString());
  const std::string wrong = Compare(*got, *want, c.values, compared);
  return wrong.empty() ? buffers.Check() : wrong;
}

// The same graph over other data and with other values of its variables.
FuzzCase OtherData(const FuzzCase& c) {
  FuzzCase out = c;
  for (const UOp& u : TopoSort(c.roots, /*with_extents=*/true)) {
    if (u.is(Op::kParam)) {
      auto& bytes = out.data[u.arg<ParamArg>().slot];
      if (!bytes.empty()) {
        std::rotate(bytes.begin(), bytes.begin() + u.dtype().bytes(), bytes.end());
      }
    } else if (u.is(Op::kVar)) {
      const VarArg& v = u.arg<VarArg>();
      if (const auto it = out.values.find(v.name); it != out.values.end()) {
        it->second = it->second < v.max ? it->second + 1 : v.min;
      }
    }
  }
  return out;
}

// The graph as a step, captured on one case and replayed on the other.
std::string Replayed(const FuzzCase& c, Compared* compared) {
  std::vector<int> input_of(c.data.size(), -1);
  const FuzzCase cases[] = {c, OtherData(c)};
  const Buffers buffers[] = {Buffers(cases[0]), Buffers(cases[1])};
  int inputs = 0;
  for (size_t slot = 0; slot < c.data.size(); ++slot) {
    if (buffers[0].nodes[slot]) input_of[slot] = inputs++;
  }
  Jit step([&](const std::vector<Tensor>& in) {
    std::vector<UOp> leaves(c.data.size());
    for (size_t slot = 0; slot < leaves.size(); ++slot) {
      if (input_of[slot] >= 0) leaves[slot] = in[input_of[slot]].uop();
    }
    std::vector<Tensor> out;
    for (const UOp& r : Over(c, leaves)) out.emplace_back(r);
    return out;
  });
  for (int i : {0, 1}) {
    const auto want = Reference(cases[i]);
    if (!want.ok()) return absl::StrCat("reference: ", want.status().ToString());
    std::vector<Tensor> in;
    for (const UOp& node : buffers[i].nodes) {
      if (node) in.emplace_back(node);
    }
    std::vector<UOp> got;
    try {
      for (const Tensor& t : step(in, UsedValues(cases[i]))) got.push_back(t.uop());
    } catch (const Error& e) {
      return absl::StrCat("call ", i, ": ", e.what());
    }
    std::string wrong = Compare(got, *want, cases[i].values, compared);
    if (wrong.empty()) wrong = buffers[i].Check();
    if (!wrong.empty()) return absl::StrCat("call ", i, ": ", wrong);
  }
  return "";
}

}  // namespace

std::string RunCase(const FuzzCase& c, Compared* compared) {
  std::string wrong = RunOnce(c, compared);
  if (!wrong.empty()) return wrong;
  switch (c.then) {
    case FuzzCase::kNothing:
      break;
    case FuzzCase::kReplay:
      wrong = Replayed(c, compared);
      if (!wrong.empty()) return absl::StrCat("replay, ", wrong);
      break;
    case FuzzCase::kChange: {
      const FuzzCase other = Changed(c);
      wrong = RunOnce(other, compared);
      if (!wrong.empty()) return absl::StrCat("changed to\n", Print(other.roots), wrong);
      break;
    }
  }
  return "";
}

std::string ToString(const FuzzCase& c) {
  std::string out = Print(c.roots);
  for (const auto& [name, value] : c.values) absl::StrAppend(&out, "; ", name, " = ", value, "\n");
  if (c.then == FuzzCase::kReplay) absl::StrAppend(&out, "; then replayed on other data\n");
  if (c.then == FuzzCase::kChange) absl::StrAppend(&out, "; then changed by ", c.seed, "\n");
  absl::flat_hash_map<int64_t, UOp> leaves;
  for (const UOp& u : TopoSort(c.roots)) {
    if (u.is(Op::kParam)) leaves[u.arg<ParamArg>().slot] = u;
  }
  for (size_t slot = 0; slot < c.data.size(); ++slot) {
    const auto it = leaves.find(static_cast<int64_t>(slot));
    if (it == leaves.end()) continue;
    const DType t = it->second.dtype();
    absl::StrAppend(&out, "; slot ", slot, ":");
    const size_t n = c.data[slot].size() / t.bytes();
    for (size_t i = 0; i < std::min<size_t>(n, 64); ++i) {
      absl::StrAppend(&out, " ", ScalarToString(LoadScalar(&c.data[slot][i * t.bytes()], t), t));
    }
    absl::StrAppend(&out, n > 64 ? " ...\n" : "\n");
  }
  return out;
}

}  // namespace tessera
