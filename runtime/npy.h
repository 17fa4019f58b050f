// NumPy's .npy files: one array with its dtype and shape.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/tensor.h"

namespace tessera {

inline constexpr absl::string_view kNpyMagic("\x93NUMPY", 6);

// A dtype's name in such files, without the byte order; null where it has none.
const char* NpyNameOf(DType dtype);

// What the head of a file says, and the bytes of the elements, which are as many as it needs.
struct NpyArray {
  DType dtype;
  std::vector<int64_t> shape;
  bool fortran_order = false;  // the first axis is contiguous
  bool big_endian = false;
  absl::string_view bytes;
};

// A whole file's bytes. Errors name the file, the place and what was found.
absl::StatusOr<NpyArray> ParseNpy(absl::string_view bytes, const std::string& name);

// The array of a file, copied; an Error where it is none. Booleans, integers and floats of 16, 32
// and 64 bits, of either byte order; nothing that would have to be unpickled.
Tensor LoadNpy(const std::string& path, Device device = {}, CallSite at = CallSite::Here());
// Computes the tensor and writes it. bf16 and fp8 have no name in such files: cast them.
void SaveNpy(const std::string& path, const Tensor& tensor, CallSite at = CallSite::Here());

}  // namespace tessera
