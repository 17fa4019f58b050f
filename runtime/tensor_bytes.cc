// The elements of tensors as bytes, and files made of them.
#include "runtime/tensor_bytes.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

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

absl::Status WriteFile(const std::string& path, absl::Span<const absl::string_view> parts) {
  const std::string beside = absl::StrCat(path, ".", getpid(), ".part");
  std::ofstream file(beside, std::ios::binary);
  for (absl::string_view part : parts) file.write(part.data(), static_cast<int64_t>(part.size()));
  file.close();
  if (!file || std::rename(beside.c_str(), path.c_str()) != 0) {
    std::remove(beside.c_str());
    return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  }
  return absl::OkStatus();
}

}  // namespace tessera
