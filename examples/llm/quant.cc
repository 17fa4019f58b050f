// One function a format. A block is its bytes along the last axis; fields are slices of it
// (quant_blocks.h).
#include "examples/llm/quant.h"

#include <array>
#include <cstdint>
#include <memory>

#include "examples/llm/quant_codebooks.h"
#include "examples/llm/quant_fields.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

Tensor Signed(const Tensor& bytes) { return bytes.Bitcast(kInt8).Cast(kFloat32); }

// ---- blocks of 32

Tensor Q8_0(const Blocks& b) { return Signed(Bytes(b, 2, 34)) * Half(b, 0); }

// Nibbles: the low ones are the first half of the block, the high ones the second.
Tensor Nibbles(const Tensor& bytes) { return Fields(bytes, 4).Flatten(-2); }

// Exactly f32(n) - less of the nibbles n. A number of 23 bits below 2^23 is that number's bits in
// 2^23 + n, and 16 times it those in 2^19 + n, so neither half of a byte is shifted or converted:
// it is what this format's products spend most of their time on.
Tensor NibblesLess(const Tensor& bytes, float less) {
  constexpr uint32_t kTwoTo23 = 0x4B000000, kTwoTo19 = 0x49000000;
  const Tensor wide = bytes.Cast(kUInt32);
  const Tensor low = ((wide & 15) | kTwoTo23).Bitcast(kFloat32) - (8388608.0f + less);
  const Tensor high = ((wide & 240) | kTwoTo19).Bitcast(kFloat32) - (524288.0f + less);
  return Stack({low, high}, -2).Flatten(-2);
}

Tensor Q4_0(const Blocks& b) { return NibblesLess(Bytes(b, 2, 18), 8) * Half(b, 0); }
Tensor Q4_1(const Blocks& b) {
  return Nibbles(Bytes(b, 4, 20)).Cast(kFloat32) * Half(b, 0) + Half(b, 2);
}
// Of four bytes the bits as 16 or nothing, [..., 2, 16]: by a test, as bytes are not shifted by
// amounts of their own; each byte is chosen, so that 16 stay one range.
Tensor FifthBits(const Tensor& bytes) {
  const Tensor at = Tensor::Arange(16, kInt64);
  const Tensor bit = Tensor::Full({}, 1, kUInt8) << (at % 8).Cast(kUInt8);
  const Tensor set = (Cut(bytes, 2, 2).IndexSelect(-1, at.FloorDiv(8)) & bit) != 0;
  return Where(set, Tensor::Full({}, 16, kUInt8), Tensor::Full({}, 0, kUInt8));
}
Tensor Q5_0Integers(const Blocks& b) {
  return Fields(Bytes(b, 6, 22), 4) + FifthBits(Bytes(b, 2, 6));
}
Tensor Q5_1Integers(const Blocks& b) {
  return Fields(Bytes(b, 8, 24), 4) + FifthBits(Bytes(b, 4, 8));
}
Tensor Q5_0(const Blocks& b) {
  return (Q5_0Integers(b).Flatten(-2).Cast(kFloat32) - 16) * Half(b, 0);
}
Tensor Q5_1(const Blocks& b) {
  return Q5_1Integers(b).Flatten(-2).Cast(kFloat32) * Half(b, 0) + Half(b, 2);
}

// The numbers that four bits stand for in formats that do not space them evenly.
using Numbers = std::array<int8_t, 16>;
constexpr Numbers kOfIQ4 = {-127, -104, -83, -65, -49, -35, -22, -10,
                            1,    13,   25,  38,  53,  69,  89,  113};
constexpr Numbers kOfFP4 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled

// Chosen bit by bit.
Tensor Uneven(const Tensor& nibbles, const Numbers& numbers) {
  std::vector<Tensor> left;
  for (int8_t n : numbers) left.push_back(Tensor::Full({}, n, kInt8));
  for (int bit = 1; left.size() > 1; bit *= 2) {
    const Tensor set = (nibbles & bit) != 0;
    std::vector<Tensor> half;
    for (size_t i = 0; i < left.size(); i += 2) half.push_back(Where(set, left[i + 1], left[i]));
    left = std::move(half);
  }
  return left[0];
}
Tensor IQ4NL(const Blocks& b) {
  return Uneven(Nibbles(Bytes(b, 2, 18)), kOfIQ4).Cast(kFloat32) * Half(b, 0);
}

// Half of the power of two that a byte stands for, by its bits: the two least are no normal floats.
Tensor MXFP4Scale(const Blocks& b) {
  const Tensor e = b.ByteScales(0, 1).Cast(kUInt32);
  const Tensor tiny = Tensor::Full({}, 1 << 21, kUInt32) << e;
  return Where(e < 2, tiny, (e - 1) << 23).Bitcast(kFloat32);
}
Tensor MXFP4Integers(const Blocks& b) { return Uneven(Nibbles(Bytes(b, 1, 17)), kOfFP4); }
Tensor MXFP4(const Blocks& b) { return MXFP4Integers(b).Cast(kFloat32) * MXFP4Scale(b); }

// ---- blocks of 256

struct BlockScales {
  Tensor scales, offsets;
};
// Eight scales of six bits and eight minima, in the 12 bytes from 4: [..., 8] each, as f32. Each is
// a word shifted, of which lanes for several of them read the same.
BlockScales SixBits(const Blocks& b) {
  const Tensor group = Tensor::Arange(8, kUInt32), by = (group & 3) * 8;
  const auto of_group = [&](uint32_t first_four, uint32_t later) {
    return Where(group < 4, Tensor::Full({}, first_four, kUInt32),
                 Tensor::Full({}, later, kUInt32));
  };
  const auto six = [&](const Tensor& own, const Tensor& low, int low_at) {
    // Of the later four, the two highest bits are those of the bytes of the first four.
    const Tensor of_own = (own >> (by + of_group(0, 2))) & of_group(63, 48);
    return (of_own | ((low >> (by + low_at)) & of_group(0, 15))).Cast(kFloat32);
  };
  const Tensor x = Word(b, 4), y = Word(b, 8), z = Word(b, 12);
  return {six(x, z, 0) * Half(b, 0), -(six(y, z, 4) * Half(b, 2))};
}
Tensor Affine(const Tensor& integers, const BlockScales& s) {
  const Tensor values = integers.Cast(kFloat32) * s.scales.Unsqueeze(-1);
  return (values + s.offsets.Unsqueeze(-1)).Flatten(-2);
}

// 128 bytes of nibbles as 8 groups of 32: of each 32 bytes the low ones, then the high ones.
Tensor NibbleGroups(const Tensor& bytes) { return Fields(Cut(bytes, 4, 32), 4).Flatten(-3, -2); }
// Of group g the bits g of 32 bytes are a fifth bit. Sums, of which more is known than of "or".
Tensor Q5KIntegers(const Blocks& b) {
  const Tensor group = Tensor::Arange(8, kUInt8).Unsqueeze(-1);
  const Tensor high = (Bytes(b, 16, 48).Unsqueeze(-2) >> group) & 1;
  return NibbleGroups(Bytes(b, 48, 176)) + high * 16;
}
// Of each half, 2 x 32 low nibbles, then the high ones, and two bits of 32 bytes for each of these.
Tensor Q6KIntegers(const Blocks& b) {
  const Tensor low = Fields(Cut(Bytes(b, 0, 128), 2, 64), 4).Flatten(-3);     // [..., 256]
  const Tensor high = Fields(Cut(Bytes(b, 128, 192), 2, 32), 2).Flatten(-3);  // [..., 256]
  return low + high * 16;
}
Tensor Q6KScales(const Blocks& b) { return Signed(b.ByteScales(192, 208)) * Half(b, 208); }

Tensor Q4K(const Blocks& b) { return Affine(NibbleGroups(Bytes(b, 16, 144)), SixBits(b)); }
Tensor Q5K(const Blocks& b) { return Affine(Q5KIntegers(b), SixBits(b)); }
Tensor Q6K(const Blocks& b) {
  return (Cut(Q6KIntegers(b).Cast(kFloat32) - 32, 16, 16) * Q6KScales(b).Unsqueeze(-1)).Flatten(-2);
}

// 64 bytes of pairs of bits, [..., 2, 4, 32]: of each 32 bytes the lowest pairs, then the next.
Tensor Pairs(const Tensor& bytes) {
  const Tensor pair = Tensor::Arange(4, kUInt8).Unsqueeze(-1) * 2;
  return (Cut(bytes, 2, 32).Unsqueeze(-2) >> pair) & 3;
}
// Groups of 16 of them, [..., 2, 4, 2, 16], have a byte each: the scale, and above it a minimum.
Tensor Q2KIntegers(const Blocks& b) { return Pairs(Bytes(b, 16, 80)).Unflatten(-1, {2, 16}); }
BlockScales Q2KScales(const Blocks& b) {
  const Tensor both = b.ByteScales(0, 16).Unflatten(-1, {2, 4, 2});
  const auto of = [&b](const Tensor& share, int64_t half) {
    return share.Cast(kFloat32) * Half(b, half).Unsqueeze(-1).Unsqueeze(-1);
  };
  return {of(both & 15, 80), -of(both >> 4, 82)};
}
Tensor Q2K(const Blocks& b) { return Affine(Q2KIntegers(b), Q2KScales(b)).Flatten(-3); }
// Of 32 bytes the lowest bits are the third bits of 32 numbers, and so on; without it 4 is taken
// off.
Tensor Q3KIntegers(const Blocks& b) {
  const Tensor bit = Tensor::Arange(8, kUInt8).Unflatten(0, {2, 4}).Unsqueeze(-1);
  const Tensor third = (Bytes(b, 0, 32).Unsqueeze(-2).Unsqueeze(-2) >> bit) & 1;
  return (Pairs(Bytes(b, 32, 96)) + third * 4).Cast(kInt8).Unflatten(-1, {2, 16}) - 4;
}
// Sixteen of six bits less 32: the four lowest in halves of eight bytes, the others in four more.
Tensor Q3KScales(const Blocks& b) {
  const Tensor group = Tensor::Arange(16, kUInt32), byte = (group & 3) * 8, word = group >> 2;
  const Tensor low = Where((word & 1) == 0, Word(b, 96), Word(b, 100)) >> (byte + (word >> 1) * 4);
  const Tensor high = Word(b, 104) >> (byte + word * 2);
  const Tensor scales = ((low & 15) | ((high & 3) << 4)).Cast(kFloat32) - 32;
  return (scales * Half(b, 108)).Unflatten(-1, {2, 4, 2});
}
Tensor Q3K(const Blocks& b) {
  return (Q3KIntegers(b).Cast(kFloat32) * Q3KScales(b).Unsqueeze(-1)).Flatten(-4);
}

// Eight groups of 32 in 16 bytes each, with scales of six bits less 32: of each byte's halves the
// four lowest bits, of 16 bits the two highest.
Tensor IQ4XSIntegers(const Blocks& b) {
  return Uneven(Fields(Cut(Bytes(b, 8, 136), 8, 16), 4).Flatten(-2), kOfIQ4);
}
Tensor IQ4XSScales(const Blocks& b) {
  const Tensor group = Tensor::Arange(8, kUInt32);
  const Tensor low = (Word(b, 4) >> (group * 4)) & 15;
  const Tensor high = ((Word(b, 0) >> 16) >> (group * 2)) & 3;
  return ((low | (high << 4)).Cast(kFloat32) - 32) * Half(b, 0);
}
Tensor IQ4XS(const Blocks& b) {
  return (IQ4XSIntegers(b).Cast(kFloat32) * IQ4XSScales(b).Unsqueeze(-1)).Flatten(-2);
}

// ---- the same as integers, [..., blocks, axes of a block, n], scales and offsets

IntegerBlocks IntegersOfQ8_0(const Blocks& b) {
  return {Bytes(b, 2, 34).Bitcast(kInt8), Half(b, 0).Squeeze(-1), {}};
}
IntegerBlocks IntegersOfQ4_0(const Blocks& b) {
  return {Nibbles(Bytes(b, 2, 18)).Cast(kInt8) - 8, Half(b, 0).Squeeze(-1), {}};
}
IntegerBlocks IntegersOfQ4_1(const Blocks& b) {
  return {Nibbles(Bytes(b, 4, 20)), Half(b, 0).Squeeze(-1), Half(b, 2).Squeeze(-1)};
}
IntegerBlocks IntegersOfQ5_0(const Blocks& b) {
  return {Q5_0Integers(b).Cast(kInt8) - 16, Half(b, 0).Squeeze(-1), {}};
}
IntegerBlocks IntegersOfQ5_1(const Blocks& b) {
  return {Q5_1Integers(b), Half(b, 0).Squeeze(-1), Half(b, 2).Squeeze(-1)};
}
IntegerBlocks IntegersOfIQ4NL(const Blocks& b) {
  return {Uneven(Nibbles(Bytes(b, 2, 18)), kOfIQ4), Half(b, 0).Squeeze(-1), {}};
}
IntegerBlocks IntegersOfIQ4XS(const Blocks& b) { return {IQ4XSIntegers(b), IQ4XSScales(b), {}}; }
IntegerBlocks IntegersOfMXFP4(const Blocks& b) {
  return {MXFP4Integers(b), MXFP4Scale(b).Squeeze(-1), {}};
}
// Chunks of 32 bytes, each of two groups.
IntegerBlocks ByChunks(const Tensor& groups, const BlockScales& s) {
  return {groups.Unflatten(-2, {4, 2}), Cut(s.scales, 4, 2), Cut(s.offsets, 4, 2)};
}
IntegerBlocks IntegersOfQ4K(const Blocks& b) {
  return ByChunks(NibbleGroups(Bytes(b, 16, 144)), SixBits(b));
}
IntegerBlocks IntegersOfQ5K(const Blocks& b) { return ByChunks(Q5KIntegers(b), SixBits(b)); }
IntegerBlocks IntegersOfQ2K(const Blocks& b) {
  const BlockScales s = Q2KScales(b);
  return {Q2KIntegers(b), s.scales, s.offsets};
}
IntegerBlocks IntegersOfQ3K(const Blocks& b) { return {Q3KIntegers(b), Q3KScales(b), {}}; }
IntegerBlocks IntegersOfQ6K(const Blocks& b) {
  const Dims halves = {2, 2, 2, 2};  // half, nibble, 32 bytes of 64, 16 of these
  return {(Cut(Q6KIntegers(b), 16, 16).Cast(kInt8) - 32).Unflatten(-2, halves),
          Q6KScales(b).Unflatten(-1, halves),
          {}};
}

// ---- numbers of a few levels

// The block's one scale for each of n groups.
Tensor ForGroups(const Tensor& scale, int64_t n) { return scale.RepeatInterleave(n, -1); }

IntegerBlocks IntegersOfQ1_0(const Blocks& b) {
  const Tensor bit = Tensor::Full({}, 1, kUInt8) << Tensor::Arange(8, kUInt8);
  const Tensor set = (Cut(Bytes(b, 2, 18), 4, 4).Unsqueeze(-1) & bit) != 0;
  return {Where(set, Tensor::Full({}, 1, kInt8), Tensor::Full({}, -1, kInt8)),
          ForGroups(Half(b, 0), 4),
          {}};
}
IntegerBlocks IntegersOfQ2_0(const Blocks& b) {
  const Tensor pair = Tensor::Arange(4, kUInt8) * 2;  // of a byte, one by one
  const Tensor pairs = (Bytes(b, 2, 18).Unsqueeze(-1) >> pair) & 3;
  return {pairs.Cast(kInt8).Unflatten(-2, {2, 8}) - 1, ForGroups(Half(b, 0), 2), {}};
}
IntegerBlocks IntegersOfTQ2(const Blocks& b) {
  return {
      Pairs(Bytes(b, 0, 64)).Cast(kInt8) - 1, ForGroups(Half(b, 64), 8).Unflatten(-1, {2, 4}), {}};
}
// Bytes are fractions of 256 in base three, whose digits are what is carried as they are tripled.
// Of 16 groups of 16, two and two are a digit of 32 bytes, five one of 16, the last four of four
// bytes.
IntegerBlocks IntegersOfTQ1(const Blocks& b) {
  const Tensor group = Tensor::Arange(16, kInt32).Unsqueeze(-1), at = Tensor::Arange(16, kInt32);
  const Tensor digit =
      Where(group < 10, group.FloorDiv(2), Where(group < 15, group - 10, at.FloorDiv(4)));
  Tensor power = Tensor::Full({}, 81, kUInt8);
  for (int i = 3, least = 27; i >= 0; --i, least /= 3) {
    power = Where(digit == i, Tensor::Full({}, least, kUInt8), power);
  }
  const Tensor row = Tensor::Arange(16, kInt64);
  const Tensor most = Cut(Bytes(b, 0, 48), 3, 16)
                          .IndexSelect(-2, Where(row < 10, row % 2, Tensor::Full({}, 2, kInt64)));
  const Tensor last = Bytes(b, 48, 52).IndexSelect(-1, Tensor::Arange(16, kInt64) % 4);
  const Tensor bytes = Where(group < 15, most, last.Unsqueeze(-2));
  const Tensor rest = bytes * power.Contiguous();  // of u8: what was carried is gone
  return {((rest.Cast(kUInt16) * 3) >> 8).Cast(kInt8) - 1, ForGroups(Half(b, 52), 16), {}};
}

// Four scales of four bits of exponent and three of mantissa, of which seven ones stand for none;
// halved, as the numbers are doubled.
IntegerBlocks IntegersOfNVFP4(const Blocks& b) {
  const Tensor byte = b.ByteScales(0, 4).Cast(kUInt32), fields = byte & 127;
  const Tensor normal = ((fields << 20) + (119u << 23)).Bitcast(kFloat32);
  const Tensor scale = Where(fields < 8, fields.Cast(kFloat32) * 0x1p-10f, normal);
  return {Uneven(Fields(Cut(Bytes(b, 4, 36), 4, 8), 4), kOfFP4),
          Where(byte == 127, Tensor::Full({}, 0, kFloat32), scale),
          {}};
}

// A scale in f32, then 128 floats of eight bits.
Tensor F8E4M3Scaled(const Blocks& b) {
  return Bytes(b, 4, 132).Bitcast(kFloat8E4M3).Cast(kFloat32) * Word(b, 0).Bitcast(kFloat32);
}

struct Format {
  WeightFormat format;
  Tensor (*values)(const Blocks& blocks);           // or nullptr: integers times scales
  IntegerBlocks (*integers)(const Blocks& blocks);  // or nullptr: products are of the values
  bool panels = false;  // whether products are faster where these lie in panels
};
constexpr Format kBlocks[] = {{WeightFormat::kQ8_0, Q8_0, IntegersOfQ8_0, true},
                              {WeightFormat::kQ4_0, Q4_0, IntegersOfQ4_0, true},
                              {WeightFormat::kQ4_1, Q4_1, IntegersOfQ4_1, true},
                              {WeightFormat::kQ5_0, Q5_0, IntegersOfQ5_0, true},
                              {WeightFormat::kQ5_1, Q5_1, IntegersOfQ5_1, true},
                              {WeightFormat::kQ2K, Q2K, IntegersOfQ2K, true},
                              {WeightFormat::kQ3K, Q3K, IntegersOfQ3K, true},
                              {WeightFormat::kQ4K, Q4K, IntegersOfQ4K, true},
                              {WeightFormat::kQ5K, Q5K, IntegersOfQ5K, true},
                              {WeightFormat::kQ6K, Q6K, IntegersOfQ6K, true},
                              {WeightFormat::kIQ4NL, IQ4NL, IntegersOfIQ4NL, true},
                              {WeightFormat::kIQ4XS, IQ4XS, IntegersOfIQ4XS, true},
                              {WeightFormat::kMXFP4, MXFP4, IntegersOfMXFP4, true},
                              {WeightFormat::kNVFP4, nullptr, IntegersOfNVFP4},
                              {WeightFormat::kQ1_0, nullptr, IntegersOfQ1_0},
                              {WeightFormat::kQ2_0, nullptr, IntegersOfQ2_0},
                              {WeightFormat::kTQ1, nullptr, IntegersOfTQ1},
                              {WeightFormat::kTQ2, nullptr, IntegersOfTQ2},
                              {WeightFormat::kIQ1S, nullptr, IntegersOfIQ1S},
                              {WeightFormat::kIQ1M, nullptr, IntegersOfIQ1M},
                              {WeightFormat::kIQ2XXS, nullptr, IntegersOfIQ2XXS},
                              {WeightFormat::kIQ2XS, nullptr, IntegersOfIQ2XS},
                              {WeightFormat::kIQ2S, nullptr, IntegersOfIQ2S},
                              {WeightFormat::kIQ3XXS, nullptr, IntegersOfIQ3XXS},
                              {WeightFormat::kIQ3S, nullptr, IntegersOfIQ3S},
                              {WeightFormat::kF8E4M3Scaled, F8E4M3Scaled, nullptr}};
struct Number {
  WeightFormat format;
  DType dtype;
};
const Number kNumbers[] = {{WeightFormat::kF32, kFloat32},
                           {WeightFormat::kF16, kFloat16},
                           {WeightFormat::kBF16, kBFloat16},
                           {WeightFormat::kF8E4M3, kFloat8E4M3},
                           {WeightFormat::kF8E5M2, kFloat8E5M2}};

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
  for (const Format& f : kBlocks) {  // but for ours, which no file has
    if (InfoOf(f.format).gguf >= 0) absl::StrAppend(&out, InfoOf(f.format).name, ", ");
  }
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
  const Format* f = BlocksOf(format);
  if (f == nullptr) return stored.Cast(kFloat32);
  if (f->values != nullptr) return f->values(stored).Flatten(-2);
  const IntegerBlocks blocks = f->integers(stored);
  Tensor scales = blocks.scales;
  while (scales.rank() < blocks.integers.rank()) scales = scales.Unsqueeze(-1);
  return (blocks.integers.Cast(kFloat32) * scales).Flatten(stored.rank() - 2);
}

bool HasIntegers(WeightFormat format) {
  const Format* f = BlocksOf(format);
  return f != nullptr && f->integers != nullptr;
}

bool HasPanels(const Tensor& stored, WeightFormat format) {
  const Format* f = BlocksOf(format);
  return f != nullptr && f->panels && stored.rank() == 3 && stored.size(0) % kColumnsOfPanel == 0;
}

Blocks InPanels(const Tensor& stored, WeightFormat format) {
  Blocks out = Blocks::InPanels(stored);
  Integers(out, format);  // which asks for every field
  return out;
}

IntegerBlocks Integers(const Blocks& stored, WeightFormat format) {
  IntegerBlocks blocks = BlocksOf(format)->integers(stored);
  // One loop for the numbers of a block: dot products have lanes along it.
  if (blocks.integers.rank() > blocks.scales.rank() + 1) {
    blocks.integers = blocks.integers.Flatten(blocks.scales.rank());
  }
  return blocks;
}

}  // namespace tessera::llm
