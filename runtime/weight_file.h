// Tensors as model files hold them: a name, a number format, a shape and bytes in a mapped file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/mapped_file.h"

namespace tessera {

// X(enumerator, name, number in GGUF files, elements of a block, bytes of a block). Plain numbers
// are blocks of one. Formats that no code of ours computes with are here for their size.
#define TESSERA_WEIGHT_FORMATS(X)    \
  X(kF32, "F32", 0, 1, 4)            \
  X(kF16, "F16", 1, 1, 2)            \
  X(kQ4_0, "Q4_0", 2, 32, 18)        \
  X(kQ4_1, "Q4_1", 3, 32, 20)        \
  X(kQ5_0, "Q5_0", 6, 32, 22)        \
  X(kQ5_1, "Q5_1", 7, 32, 24)        \
  X(kQ8_0, "Q8_0", 8, 32, 34)        \
  X(kQ8_1, "Q8_1", 9, 32, 36)        \
  X(kQ2K, "Q2_K", 10, 256, 84)       \
  X(kQ3K, "Q3_K", 11, 256, 110)      \
  X(kQ4K, "Q4_K", 12, 256, 144)      \
  X(kQ5K, "Q5_K", 13, 256, 176)      \
  X(kQ6K, "Q6_K", 14, 256, 210)      \
  X(kQ8K, "Q8_K", 15, 256, 292)      \
  X(kIQ2XXS, "IQ2_XXS", 16, 256, 66) \
  X(kIQ2XS, "IQ2_XS", 17, 256, 74)   \
  X(kIQ3XXS, "IQ3_XXS", 18, 256, 98) \
  X(kIQ1S, "IQ1_S", 19, 256, 50)     \
  X(kIQ4NL, "IQ4_NL", 20, 32, 18)    \
  X(kIQ3S, "IQ3_S", 21, 256, 110)    \
  X(kIQ2S, "IQ2_S", 22, 256, 82)     \
  X(kIQ4XS, "IQ4_XS", 23, 256, 136)  \
  X(kI8, "I8", 24, 1, 1)             \
  X(kI16, "I16", 25, 1, 2)           \
  X(kI32, "I32", 26, 1, 4)           \
  X(kI64, "I64", 27, 1, 8)           \
  X(kF64, "F64", 28, 1, 8)           \
  X(kIQ1M, "IQ1_M", 29, 256, 56)     \
  X(kBF16, "BF16", 30, 1, 2)         \
  X(kTQ1, "TQ1_0", 34, 256, 54)      \
  X(kTQ2, "TQ2_0", 35, 256, 66)      \
  X(kMXFP4, "MXFP4", 39, 32, 17)     \
  X(kNVFP4, "NVFP4", 40, 64, 36)     \
  X(kQ1_0, "Q1_0", 41, 128, 18)      \
  X(kQ2_0, "Q2_0", 42, 64, 18)       \
  X(kU8, "U8", -1, 1, 1)             \
  X(kU16, "U16", -1, 1, 2)           \
  X(kU32, "U32", -1, 1, 4)           \
  X(kU64, "U64", -1, 1, 8)           \
  X(kBool, "BOOL", -1, 1, 1)         \
  X(kF8E4M3, "F8_E4M3", -1, 1, 1)    \
  X(kF8E5M2, "F8_E5M2", -1, 1, 1)    \
  X(kF8E4M3Scaled, "F8_E4M3 scaled", -1, 128, 132)

enum class WeightFormat : uint8_t {
#define TESSERA_WEIGHT_ENUM(id, name, number, elements, bytes) id,
  TESSERA_WEIGHT_FORMATS(TESSERA_WEIGHT_ENUM)
#undef TESSERA_WEIGHT_ENUM
};

struct WeightFormatInfo {
  const char* name;
  int gguf;  // its number in GGUF files, or -1
  int block_elements;
  int block_bytes;
};
const WeightFormatInfo& InfoOf(WeightFormat format);
std::optional<WeightFormat> WeightFormatOfGguf(uint32_t number);
std::optional<WeightFormat> WeightFormatNamed(absl::string_view name);

// A tensor in a file. Its bytes lie in the mapping, are checked to, and stay while `file` is held.
struct Weight {
  std::string name;
  WeightFormat format = WeightFormat::kF32;
  std::vector<int64_t> shape;  // row-major: the last axis is contiguous and made of blocks
  absl::string_view bytes;
  uint64_t offset = 0;  // of the bytes in the file
  std::shared_ptr<const MappedFile> file;
};

// All tensors of one or several files, by name.
class WeightSet {
 public:
  // An error where the name is there already.
  absl::Status Add(Weight weight);
  const Weight* Find(absl::string_view name) const;
  const std::vector<Weight>& all() const { return weights_; }
  uint64_t bytes() const;

 private:
  std::vector<Weight> weights_;
  absl::flat_hash_map<std::string, size_t> index_;
};

// Elements and bytes of a tensor of this shape; an error (without the tensor's name) where they
// overflow or the last extent is no multiple of the block.
struct WeightSize {
  uint64_t elements = 0;
  uint64_t bytes = 0;
};
absl::StatusOr<WeightSize> SizeOf(WeightFormat format, absl::Span<const int64_t> shape);

// [2, 3] as text.
std::string ShowShape(absl::Span<const int64_t> shape);

}  // namespace tessera
