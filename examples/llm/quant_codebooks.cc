// Blocks of 256 numbers, of which 8 or 4 beside each other are named by one index.
#include "examples/llm/quant_codebooks.h"

#include <array>
#include <bit>

#include "examples/llm/quant_fields.h"

namespace tessera::llm {
namespace {

// An entry is so many numbers, each the level that its bits say, the lowest first.
template <int kEntries, int kNumbers, int kLevels>
struct Codebook {
  std::array<int8_t, kLevels> levels;
  std::array<uint16_t, kEntries> entries;
};
#include "examples/llm/codebooks.inc"

// The table [entries, numbers] in memory, as kernels read it: as text it would be long.
template <int kEntries, int kNumbers, int kLevels>
Tensor TableOf(const Codebook<kEntries, kNumbers, kLevels>& book, int times) {
  constexpr int kBits = 16 / kNumbers;
  std::vector<int8_t> table;
  for (const uint16_t entry : book.entries) {
    for (int i = 0; i < kNumbers; ++i) {
      const int level = book.levels[entry >> (kBits * i) & ((1 << kBits) - 1)];
      table.push_back(static_cast<int8_t>(level * times));
    }
  }
  return Tensor::From(table, {kEntries, kNumbers}, "CPU");
}

// One for each book, made when it is first asked for.
template <const auto& kBook, int kTimes = 1>
Tensor Entries(const Tensor& index) {
  static const auto& kept = *new UOp(TableOf(kBook, kTimes).uop());  // no step's own tensor
  const Tensor table(kept);
  const Device at = index.device();
  if (!at) return table.Take(index);
  return table.To(at.is_sharding() ? Device(Sharding(at.sharding().mesh())) : at).Take(index);
}

// Bits 0 to 7 of each, [..., 8], as -1 where they are set and else 0.
Tensor Minus(const Tensor& bytes) {
  const Tensor bit = Tensor::Full({}, 1, kUInt8) << Tensor::Arange(8, kUInt8);
  const Tensor set = (bytes.Unsqueeze(-1) & bit) != 0;
  return Where(set, Tensor::Full({}, -1, kInt8), Tensor::Full({}, 0, kInt8));
}
// The same of seven bits, and of one more with which the bits that are set are an even number.
constexpr auto kMinusOfEven = [] {
  Codebook<128, 8, 2> book = {{0, -1}, {}};
  for (int i = 0; i < 128; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      const int set = bit < 7 ? i >> bit & 1 : std::popcount(static_cast<unsigned>(i)) & 1;
      book.entries[i] = static_cast<uint16_t>(book.entries[i] | set << 2 * bit);
    }
  }
  return book;
}();
Tensor MinusOfEven(const Tensor& bits) { return Entries<kMinusOfEven>(bits); }

// Numbers with signs, as such masks say.
Tensor Signed(const Tensor& numbers, const Tensor& minus) { return (numbers ^ minus) - minus; }

// Numbers of `size` bytes, of which one begins every `step` bytes from the first.
Tensor Words(const Blocks& b, int64_t begin, int64_t end, int size, int64_t step) {
  const auto byte = [&](int64_t i) {
    return b.stored().SliceAxis(-1, {begin + i, end, step}).Cast(kUInt32) << (8 * i);
  };
  Tensor words = byte(0);
  for (int i = 1; i < size; ++i) words = words | byte(i);
  return words;
}

// Of each number n fields of so many bits, one every `step`, from the lowest: [..., n].
Tensor InOrder(const Tensor& numbers, int64_t n, int bits, int step) {
  const Tensor at = (Tensor::Arange(n) * step).Cast(numbers.dtype());
  return (numbers.Unsqueeze(-1) >> at) & ((1 << bits) - 1);
}
Tensor NibblesInOrder(const Tensor& bytes) { return InOrder(bytes, 2, 4, 4).Flatten(-2); }

// Bytes with bits above them. A sum, of which it shows that it is within the table.
Tensor Above(const Tensor& bytes, const Tensor& high) {
  return bytes.Cast(kInt32) + high.Cast(kInt32) * 256;
}

// The numbers of eight groups of 32: a word has four times seven signs and a scale of four bits.
IntegerBlocks SignedByWords(const Tensor& entries, const Tensor& words, const Tensor& unit) {
  return {Signed(entries, MinusOfEven(InOrder(words, 4, 7, 7))),
          ((words >> 28).Cast(kFloat32) + 0.5f) * unit,
          {}};
}
// Of 32 entries, two to each of 16 scales, which are nibbles.
IntegerBlocks SignedByBytes(const Tensor& entries, const Tensor& minus, const Tensor& steps,
                            const Tensor& unit) {
  return {Signed(entries, minus).Unflatten(-2, {16, 2}),
          (NibblesInOrder(steps).Cast(kFloat32) + 0.5f) * unit,
          {}};
}

// Numbers that are a step of one above or below eight times -1, 0 or 1.
Tensor Stepped(const Tensor& entries, const Tensor& below) {
  return entries + Where(below, Tensor::Full({}, -1, kInt8), Tensor::Full({}, 1, kInt8));
}
Tensor OddScales(const Tensor& steps, const Tensor& unit) {
  return (steps.Cast(kFloat32) * 2 + 1) * unit;
}

}  // namespace

IntegerBlocks IntegersOfIQ2XXS(const Blocks& b) {
  const Tensor index = Bytes(Cut(Bytes(b, 2, 66), 8, 8), 0, 4);
  return SignedByWords(Entries<kOfIQ2XXS>(index), Words(b, 6, 66, 4, 8), Half(b, 0) * 0.25f);
}

IntegerBlocks IntegersOfIQ2XS(const Blocks& b) {
  const Tensor words = Words(b, 2, 66, 2, 2);
  return SignedByBytes(Entries<kOfIQ2XS>(words & 511), MinusOfEven((words >> 9) & 127),
                       Bytes(b, 66, 74), Half(b, 0) * 0.25f);
}

IntegerBlocks IntegersOfIQ2S(const Blocks& b) {
  const Tensor index = Above(Bytes(b, 2, 34), InOrder(Bytes(b, 66, 74), 4, 2, 2).Flatten(-2));
  return SignedByBytes(Entries<kOfIQ2S>(index), Minus(Bytes(b, 34, 66)), Bytes(b, 74, 82),
                       Half(b, 0) * 0.25f);
}

IntegerBlocks IntegersOfIQ3XXS(const Blocks& b) {
  const Tensor entries = Entries<kOfIQ3XXS>(Bytes(b, 2, 66)).Flatten(-2).Unflatten(-1, {8, 4, 8});
  return SignedByWords(entries, Words(b, 66, 98, 4, 4), Half(b, 0) * 0.5f);
}

IntegerBlocks IntegersOfIQ3S(const Blocks& b) {
  const Tensor index = Above(Bytes(b, 2, 66), InOrder(Bytes(b, 66, 74), 8, 1, 1).Flatten(-2));
  const Tensor entries = Entries<kOfIQ3S>(index).Flatten(-2).Unflatten(-1, {8, 4, 8});
  return {Signed(entries, Minus(Cut(Bytes(b, 74, 106), 8, 4))),
          OddScales(NibblesInOrder(Bytes(b, 106, 110)), Half(b, 0)),
          {}};
}

IntegerBlocks IntegersOfIQ1S(const Blocks& b) {
  const Tensor high = Words(b, 34, 50, 2, 2);
  const Tensor index = Above(Cut(Bytes(b, 2, 34), 8, 4), InOrder(high, 4, 3, 3));
  const Tensor below = ((high >> 15) != 0).Unsqueeze(-1).Unsqueeze(-1);
  return {Stepped(Entries<kOfIQ1, 8>(index), below),
          OddScales((high >> 12) & 7, Half(b, 0) * 0.125f),
          {}};
}

// Its scale of half precision is four bits of each of four words.
IntegerBlocks IntegersOfIQ1M(const Blocks& b) {
  const Tensor high = NibblesInOrder(Bytes(b, 32, 48));
  const Tensor entries = Entries<kOfIQ1, 8>(Above(Bytes(b, 0, 32), high & 7));
  Tensor bits = Bytes(b, 49, 50).Cast(kUInt16) >> 4;
  for (int i = 1; i < 4; ++i) {
    bits = bits | ((Bytes(b, 49 + 2 * i, 50 + 2 * i).Cast(kUInt16) >> 4) << (4 * i));
  }
  const Tensor steps = InOrder(Words(b, 48, 56, 2, 2), 4, 3, 3).Flatten(-2);
  return {Stepped(entries, ((high & 8) != 0).Unsqueeze(-1)).Unflatten(-2, {16, 2}),
          OddScales(steps, bits.Bitcast(kFloat16).Cast(kFloat32) * 0.125f),
          {}};
}

}  // namespace tessera::llm
