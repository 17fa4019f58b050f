// Reading and writing .npy files as tensors.
#include "runtime/npy.h"

#include <algorithm>

#include "graph/tensor_internal.h"
#include "runtime/file_writer.h"
#include "runtime/mapped_file.h"
#include "runtime/tensor_bytes.h"

namespace tessera {
namespace {

using internal::Call;
using internal::Fail;
using internal::Show;
using internal::ThrowAsCall;

constexpr size_t kAlign = 64;

std::string Header(DType dtype, const Shape& shape) {
  const char* const name = NpyNameOf(dtype);
  if (name == nullptr) {
    Fail(dtype.ToString(), " has no name in .npy files; cast it to f32, or use safetensors");
  }
  std::string extents;
  for (const Extent& e : shape) absl::StrAppend(&extents, e.value(), ", ");
  if (shape.rank() > 1) extents.resize(extents.size() - 2);
  if (shape.rank() == 1) extents.resize(extents.size() - 1);
  std::string text = absl::StrCat("{'descr': '", dtype.bytes() == 1 ? "|" : "<", name,
                                  "', 'fortran_order': False, 'shape': (", extents, "), }");
  constexpr size_t kPreamble = 10;
  const size_t used = kPreamble + text.size() + 1;
  text.append((kAlign - used % kAlign) % kAlign, ' ');
  return text + "\n";
}

}  // namespace

Tensor LoadNpy(const std::string& path, Device device, CallSite at) {
  Call call("LoadNpy", at);
  const auto file = MappedFile::Open(path);
  ThrowAsCall(file.status());
  const absl::StatusOr<NpyArray> parsed = ParseNpy((*file)->bytes(), path);
  ThrowAsCall(parsed.status());
  std::string swapped;
  absl::string_view bytes = parsed->bytes;
  const auto width = static_cast<size_t>(parsed->dtype.bytes());
  if (parsed->big_endian) {
    swapped = std::string(bytes);
    for (size_t i = 0; i < swapped.size(); i += width) {
      std::reverse(swapped.begin() + static_cast<int64_t>(i),
                   swapped.begin() + static_cast<int64_t>(i + width));
    }
    bytes = swapped;
  }
  std::string truths;
  if (parsed->dtype.IsBool()) {  // any byte but 0 is true
    for (char c : bytes) truths += c != 0 ? '\1' : '\0';
    bytes = truths;
  }
  std::vector<int64_t> shape = parsed->shape;
  if (parsed->fortran_order) std::reverse(shape.begin(), shape.end());
  const Tensor t = Tensor::FromBytes(bytes.data(), shape, parsed->dtype, device, at);
  return parsed->fortran_order ? t.T() : t;
}

void SaveNpy(const std::string& path, const Tensor& tensor, CallSite at) {
  Call call("SaveNpy", at, tensor);
  if (!tensor.shape().is_static()) Fail("the shape of ", Show(tensor), " is symbolic");
  const std::string text = Header(tensor.dtype(), tensor.shape());
  const std::vector<uint8_t> bytes = BytesOf(tensor);
  std::string head(kNpyMagic);
  head += '\1';
  head += '\0';
  head += static_cast<char>(text.size() & 255);
  head += static_cast<char>(text.size() >> 8);
  ThrowAsCall(WriteFile(
      path,
      {head + text, absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())}));
}

}  // namespace tessera
