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

}  // namespace

std::string Mismatch(std::vector<Tensor> tensors, Compared* compared) {
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
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
