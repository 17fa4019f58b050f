// The elements of tensors as bytes.
#include "runtime/tensor_bytes.h"

#include <cstring>

namespace tessera {
namespace {

template <typename E>
std::vector<uint8_t> AsBytes(const std::vector<E>& v) {
  std::vector<uint8_t> out(v.size() * sizeof(E));
  if (!v.empty()) std::memcpy(out.data(), v.data(), out.size());
  return out;
}

}  // namespace

std::vector<uint8_t> BytesOf(const Tensor& t) {
  if (t.dtype().IsBool()) return t.ToVector<uint8_t>();
  switch (t.dtype().bytes()) {
    case 1:
      return t.Bitcast(kUInt8).ToVector<uint8_t>();
    case 2:
      return AsBytes(t.Bitcast(kUInt16).ToVector<uint16_t>());
    case 4:
      return AsBytes(t.Bitcast(kUInt32).ToVector<uint32_t>());
    default:
      return AsBytes(t.Bitcast(kUInt64).ToVector<uint64_t>());
  }
}

}  // namespace tessera
