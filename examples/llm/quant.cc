// One function a format. A block is its bytes along the last axis; fields are slices of it.
#include "examples/llm/quant.h"

#include <cstdint>
#include <memory>

#include "graph/status.h"

namespace tessera::llm {
namespace {

// Bytes begin..end of every block.
Tensor Bytes(const Tensor& blocks, int64_t begin, int64_t end) {
  return blocks.SliceAxis(-1, {begin, end});
}

// The two bytes from `at` as a number of half precision, in f32: [..., 1].
Tensor Half(const Tensor& blocks, int64_t at) {
  const Tensor low = Bytes(blocks, at, at + 1).Cast(kUInt16);
  const Tensor high = Bytes(blocks, at + 1, at + 2).Cast(kUInt16);
  return (low | (high << 8)).Bitcast(kFloat16).Cast(kFloat32);
}

Tensor Signed(const Tensor& bytes) { return bytes.Bitcast(kInt8).Cast(kFloat32); }

// Fields of `width` bits: of bytes [..., n] the fields from the lowest, [..., 8 / width, n].
Tensor Fields(const Tensor& bytes, int width) {
  std::vector<Tensor> fields;
  for (int at = 0; at < 8; at += width) fields.push_back((bytes >> at) & ((1 << width) - 1));
  return Stack(fields, -2);
}

// One bit of an element each: bytes [..., n] as [..., 8 n], from the lowest bit of the first byte.
Tensor Bits(const Tensor& bytes) {
  return ((bytes.Unsqueeze(-1) >> Tensor::Arange(8, kUInt8)) & 1).Flatten(-2);
}

// The last axis cut into rows of n, or all of a block's axes made one.
Tensor Cut(const Tensor& t, int64_t rows, int64_t n) { return t.Unflatten(-1, {rows, n}); }

// ---- blocks of 32

Tensor Q8_0(const Tensor& b) { return Signed(Bytes(b, 2, 34)) * Half(b, 0); }

// Nibbles: the low ones are the first half of the block, the high ones the second.
Tensor Nibbles(const Tensor& bytes) { return Fields(bytes, 4).Flatten(-2); }

// Exactly f32(n) - less of the nibbles n. A number of 23 bits below 2^23 is that number's bits in
// 2^23 + n, so neither half of a byte is masked or converted twice: it is what this format's
// products spend most of their time on.
Tensor NibblesLess(const Tensor& bytes, float less) {
  constexpr uint32_t kTwoTo23 = 0x4B000000;
  const Tensor wide = bytes.Cast(kUInt32);
  const Tensor nibbles = Stack({wide & 15, wide >> 4}, -2).Flatten(-2);
  return (nibbles | kTwoTo23).Bitcast(kFloat32) - (8388608.0f + less);
}

Tensor Q4_0(const Tensor& b) { return NibblesLess(Bytes(b, 2, 18), 8) * Half(b, 0); }
Tensor Q4_1(const Tensor& b) {
  return Nibbles(Bytes(b, 4, 20)).Cast(kFloat32) * Half(b, 0) + Half(b, 2);
}
Tensor Q5_0(const Tensor& b) {
  const Tensor q = Nibbles(Bytes(b, 6, 22)) | (Bits(Bytes(b, 2, 6)) << 4);
  return (q.Cast(kFloat32) - 16) * Half(b, 0);
}
Tensor Q5_1(const Tensor& b) {
  const Tensor q = Nibbles(Bytes(b, 8, 24)) | (Bits(Bytes(b, 4, 8)) << 4);
  return q.Cast(kFloat32) * Half(b, 0) + Half(b, 2);
}

// ---- blocks of 256

// Eight scales of six bits and eight minima, in the 12 bytes from 4: [..., 8, 1] each, as f32.
struct ScalesAndMinima {
  Tensor scale, minimum;
};
ScalesAndMinima SixBits(const Tensor& b) {
  const Tensor x = Bytes(b, 4, 8), y = Bytes(b, 8, 12), z = Bytes(b, 12, 16);
  const Tensor scale = Cat({x & 63, (z & 15) | ((x >> 6) << 4)}, -1);
  const Tensor minimum = Cat({y & 63, (z >> 4) | ((y >> 6) << 4)}, -1);
  return {(scale.Cast(kFloat32) * Half(b, 0)).Unsqueeze(-1),
          (minimum.Cast(kFloat32) * Half(b, 2)).Unsqueeze(-1)};
}

// 128 bytes of nibbles as 8 groups of 32: of each 32 bytes the low ones, then the high ones.
Tensor NibbleGroups(const Tensor& bytes) { return Fields(Cut(bytes, 4, 32), 4).Flatten(-3, -2); }

Tensor Q4K(const Tensor& b) {
  const ScalesAndMinima s = SixBits(b);
  return (NibbleGroups(Bytes(b, 16, 144)).Cast(kFloat32) * s.scale - s.minimum).Flatten(-2);
}
Tensor Q5K(const Tensor& b) {
  const ScalesAndMinima s = SixBits(b);
  const Tensor high = Fields(Bytes(b, 16, 48), 1);  // [..., 8, 32]: bit g of byte i, group g
  const Tensor q = NibbleGroups(Bytes(b, 48, 176)) | (high << 4);
  return (q.Cast(kFloat32) * s.scale - s.minimum).Flatten(-2);
}
Tensor Q6K(const Tensor& b) {
  const Tensor low = Fields(Cut(Bytes(b, 0, 128), 2, 64), 4).Flatten(-3);     // [..., 256]
  const Tensor high = Fields(Cut(Bytes(b, 128, 192), 2, 32), 2).Flatten(-3);  // [..., 256]
  const Tensor q = ((low | (high << 4)).Cast(kFloat32) - 32);
  const Tensor scale = (Signed(Bytes(b, 192, 208)) * Half(b, 208)).Unsqueeze(-1);
  return (Cut(q, 16, 16) * scale).Flatten(-2);
}

// ---- the same as integers and scales, where a block has one scale and nothing to be added

IntegerBlocks IntegersOfQ8_0(const Tensor& b) {
  return {Bytes(b, 2, 34).Bitcast(kInt8), Half(b, 0).Squeeze(-1)};
}
IntegerBlocks IntegersOfQ4_0(const Tensor& b) {
  return {Nibbles(Bytes(b, 2, 18)).Cast(kInt8) - 8, Half(b, 0).Squeeze(-1)};
}

struct Format {
  WeightFormat format;
  Tensor (*values)(const Tensor& blocks);
  IntegerBlocks (*integers)(const Tensor& blocks) = nullptr;
};
constexpr Format kBlocks[] = {{WeightFormat::kQ8_0, Q8_0, IntegersOfQ8_0},
                              {WeightFormat::kQ4_0, Q4_0, IntegersOfQ4_0},
                              {WeightFormat::kQ4_1, Q4_1},
                              {WeightFormat::kQ5_0, Q5_0},
                              {WeightFormat::kQ5_1, Q5_1},
                              {WeightFormat::kQ4K, Q4K},
                              {WeightFormat::kQ5K, Q5K},
                              {WeightFormat::kQ6K, Q6K}};
struct Number {
  WeightFormat format;
  DType dtype;
};
const Number kNumbers[] = {{WeightFormat::kF32, kFloat32},
                           {WeightFormat::kF16, kFloat16},
                           {WeightFormat::kBF16, kBFloat16}};

const Format* BlocksOf(WeightFormat format) {
  for (const Format& f : kBlocks) {
    if (f.format == format) return &f;
  }
  return nullptr;
}
const Number* NumberOf(WeightFormat format) {
  for (const Number& n : kNumbers) {
    if (n.format == format) return &n;
  }
  return nullptr;
}

}  // namespace

bool CanCompute(WeightFormat format) {
  return BlocksOf(format) != nullptr || NumberOf(format) != nullptr;
}

std::string ComputableFormats() {
  std::string out;
  for (const Number& n : kNumbers) absl::StrAppend(&out, InfoOf(n.format).name, ", ");
  for (const Format& f : kBlocks) absl::StrAppend(&out, InfoOf(f.format).name, ", ");
  return out.substr(0, out.size() - 2);
}

Tensor Stored(const Weight& w) {
  const Number* number = NumberOf(w.format);
  std::vector<int64_t> shape = w.shape;
  if (number == nullptr) {
    const WeightFormatInfo& info = InfoOf(w.format);
    shape.back() /= info.block_elements;
    shape.push_back(info.block_bytes);
  }
  const DType dtype = number == nullptr ? kUInt8 : number->dtype;
  const bool aligned = reinterpret_cast<uintptr_t>(w.bytes.data()) % dtype.bytes() == 0;
  if (!aligned || w.file == nullptr) return Tensor::FromBytes(w.bytes.data(), shape, dtype, "CPU");
  // Kernels only read it; the mapping lives as long as the tensor.
  return Tensor::FromBlob(
      const_cast<char*>(w.bytes.data()), shape, dtype, [file = w.file](void*) {}, "CPU");
}

Tensor Values(const Tensor& stored, WeightFormat format) {
  if (const Format* f = BlocksOf(format)) return f->values(stored).Flatten(-2);
  return stored.Cast(kFloat32);
}

bool HasIntegers(WeightFormat format) {
  const Format* f = BlocksOf(format);
  return f != nullptr && f->integers != nullptr;
}

IntegerBlocks Integers(const Tensor& stored, WeightFormat format) {
  return BlocksOf(format)->integers(stored);
}

IntegerBlocks Quantise(const Tensor& values) {
  constexpr int64_t kBlock = 32;
  const Tensor blocks = values.Unflatten(-1, {values.size(-1) / kBlock, kBlock});
  const Tensor scales = (blocks.Abs().Max({-1}) / 127).Contiguous();
  // 0 / 0 and what is not finite become some integer: the scale says what they are.
  return {(blocks / scales.Unsqueeze(-1)).Round().Cast(kInt8).Contiguous(), scales};
}

Tensor Product(const IntegerBlocks& rows, const IntegerBlocks& columns) {
  const Tensor sums =
      (rows.integers.Unsqueeze(1).Cast(kInt32) * columns.integers.Unsqueeze(0).Cast(kInt32))
          .Sum({-1});
  return (sums.Cast(kFloat32) * (rows.scales.Unsqueeze(1) * columns.scales)).Sum({-1});
}

}  // namespace tessera::llm
