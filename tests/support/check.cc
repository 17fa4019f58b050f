// Realising and comparing.
#include "tests/support/check.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "graph/buffer.h"
#include "graph/rewrite.h"
#include "graph/text.h"
#include "runtime/mesh.h"

namespace tessera {

HostArray ReadBuffer(const UOp& buffer) {
  HostArray out{buffer.dtype(), {}, {}};
  for (const Extent& e : buffer.shape()) out.shape.push_back(e.value());
  const auto& storage = buffer.arg<BufferArg>().buffer->storage;
  out.bytes.resize(buffer.shape().MaxElements() * buffer.dtype().bytes());
  EXPECT_OK(
      ReadTensor(buffer.shape(), buffer.dtype(), buffer.device(), *storage, out.bytes.data()));
  return out;
}

namespace {

// The roots over copies, on the host, of the buffers that only other devices hold: the reference
// reads the host's.
std::vector<UOp> FromHost(const std::vector<UOp>& roots) {
  Substitution copies;
  for (const UOp& u : TopoSort(roots)) {
    if (!u.is(Op::kBuffer) || u.device().places()[0].kind() == "CPU") continue;
    if (u.arg<BufferArg>().buffer->storage == nullptr) continue;
    const HostArray held = ReadBuffer(u);
    const Tensor copy =
        Tensor::FromBytes(held.bytes.data(), Dims(u.shape().ToExtents()), u.dtype(), u.device());
    copies.emplace(u, copy.uop());
  }
  return copies.empty() ? roots : Substitute(roots, copies);
}

std::vector<UOp> RootsOf(const std::vector<Tensor>& tensors) {
  std::vector<UOp> out;
  for (const Tensor& t : tensors) out.push_back(t.uop());
  return out;
}

}  // namespace

std::vector<std::vector<double>> ReferenceValues(const std::vector<Tensor>& tensors) {
  const absl::StatusOr<std::vector<HostArray>> arrays = Evaluate(FromHost(RootsOf(tensors)));
  EXPECT_OK(arrays.status());
  std::vector<std::vector<double>> out;
  for (size_t i = 0; arrays.ok() && i < arrays->size(); ++i) {
    const HostArray& a = (*arrays)[i];
    std::vector<double>& values = out.emplace_back(a.elements());
    for (size_t k = 0; k < values.size(); ++k) values[k] = a.AsDouble(static_cast<int64_t>(k));
  }
  out.resize(tensors.size());
  return out;
}

std::string Mismatch(std::vector<Tensor> tensors, Compared* compared) {
  std::vector<UOp> roots = RootsOf(tensors);
  std::vector<std::string> texts;
  for (const UOp& r : roots) texts.push_back(Print({&r, 1}));
  const auto want = EvaluateWithBounds(FromHost(roots));
  if (!want.ok()) return want.status().ToString();
  roots.clear();
  try {
    Tensor::Realize(absl::MakeSpan(tensors));
  } catch (const Error& error) {
    return absl::StrCat(error.what(), "\n", texts[0]);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string difference = Difference(ReadBuffer(tensors[i].uop()), (*want)[i], compared);
    if (!difference.empty()) return absl::StrCat("result ", i, ": ", difference, "\n", texts[i]);
  }
  return "";
}

}  // namespace tessera
