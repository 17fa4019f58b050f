// Tensors of other libraries, and ours for them, by DLPack: the same memory, without a copy.
//
// The structs are those of DLPack's C header (version 0.x, unversioned), which every exchange of
// "dltensor" capsules uses.
#pragma once

#include <cstdint>

#include "graph/tensor.h"

namespace tessera {

extern "C" {
struct DLDevice {
  int32_t device_type;  // kDLCPU, kDLCUDA
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;  // kDLInt, ...
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major without gaps
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);  // may be null
};
}

inline constexpr int32_t kDLCPU = 1, kDLCUDA = 2;
inline constexpr uint8_t kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6,
                         kDLFloat8E4M3Fn = 10, kDLFloat8E5M2 = 12;

// Computes the tensor, which must be on one CPU or CUDA place, and gives out its memory, which
// stays until the deleter is called. What is assigned to the tensor later is written there.
DLManagedTensor* ToDlpack(const Tensor& tensor, CallSite at = CallSite::Here());

// A tensor over the memory of another library on the CPU; its deleter is called when the last
// handle is gone. Strides may permute the axes or repeat elements (0), and no more. On an Error the
// caller keeps the managed tensor.
Tensor FromDlpack(DLManagedTensor* managed, CallSite at = CallSite::Here());

}  // namespace tessera
