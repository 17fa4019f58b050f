// Running a case against the reference.
#include "tests/fuzz/fuzz_case.h"

#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/buffer.h"
#include "graph/rewrite.h"
#include "graph/text.h"
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
            : ReadBuffer(u);
    params.emplace(u, UOp::Make(Op::kParam, u.dtype(), {},
                                ParamArg{static_cast<int64_t>(out.data.size()),
                                         u.shape().ToExtents(), u.device()}));
    out.data.push_back(content.bytes);
  }
  out.roots = Substitute(roots, params);
  return out;
}

std::string RunCase(const FuzzCase& c, Compared* compared) {
  EvaluateOptions options;
  options.stop_at_realized = false;
  options.contents = [&](const UOp& leaf) { return c.data[leaf.arg<ParamArg>().slot].data(); };
  const auto want = EvaluateWithBounds(c.roots, options);
  if (!want.ok()) return absl::StrCat("reference: ", want.status().ToString());

  std::vector<Memory> memory;
  memory.reserve(c.data.size());
  for (const auto& d : c.data) memory.emplace_back(d);
  Substitution buffers;
  for (const UOp& u : TopoSort(c.roots)) {
    if (!u.is(Op::kParam)) continue;
    const int64_t slot = u.arg<ParamArg>().slot;
    auto buffer = std::make_shared<Buffer>();
    const auto bytes = static_cast<int64_t>(c.data[slot].size());
    const auto device = GetDevice(u.device().place());
    if (!device.ok()) return device.status().ToString();
    if ((*device)->IsHost()) {
      buffer->storage = std::make_shared<Storage>();
      buffer->storage->data = &memory[slot].bytes[kGuard];
      buffer->storage->bytes = bytes;
    } else {
      auto storage = (*device)->Allocate(bytes);
      if (!storage.ok()) return storage.status().ToString();
      const absl::Status copied = (*device)->CopyIn((*storage)->data, c.data[slot].data(), bytes);
      if (!copied.ok()) return copied.ToString();
      buffer->storage = *std::move(storage);
    }
    buffers.emplace(u, UOp::Make(Op::kBuffer, u.dtype(), {},
                                 BufferArg{buffer, u.shape().ToExtents(), u.device()}));
  }
  const std::vector<UOp> roots = Substitute(c.roots, buffers);
  buffers.clear();
  const auto got = RealizeNodes(roots, {});
  if (!got.ok()) return absl::StrCat("realize: ", got.status().ToString());
  for (size_t i = 0; i < roots.size(); ++i) {
    const std::string difference = Difference(ReadBuffer((*got)[i]), (*want)[i], compared);
    if (!difference.empty()) return absl::StrCat("root ", i, ": ", difference);
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!memory[i].intact()) return absl::StrCat("memory beside leaf ", i, " was written");
  }
  return "";
}

std::string ToString(const FuzzCase& c) {
  std::string out = Print(c.roots);
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
