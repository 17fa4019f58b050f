// Realising and comparing.
#include "tests/support/check.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "graph/buffer.h"
#include "graph/text.h"
#include "runtime/device.h"

namespace tessera {

HostArray ReadBuffer(const UOp& buffer) {
  HostArray out{buffer.dtype(), {}, {}};
  for (const Extent& e : buffer.shape()) out.shape.push_back(e.value());
  const auto& storage = buffer.arg<BufferArg>().buffer->storage;
  out.bytes.resize(buffer.shape().MaxElements() * buffer.dtype().bytes());
  const absl::StatusOr<DeviceRuntime*> device = GetDevice(buffer.device().place());
  CHECK(device.ok(), device.status().ToString());
  const absl::Status read =
      (*device)->CopyOut(out.bytes.data(), storage->data, static_cast<int64_t>(out.bytes.size()));
  CHECK(read.ok(), read.ToString());
  return out;
}

std::string Mismatch(std::vector<Tensor> tensors, Compared* compared) {
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
  std::vector<std::string> texts;
  for (const UOp& r : roots) texts.push_back(Print({&r, 1}));
  const auto want = EvaluateWithBounds(roots);
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
