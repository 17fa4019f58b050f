// Formats against llama.cpp's gguf-py, by rows that tests/llm/goldens/make_quants.py writes.
#include <bit>
#include <cmath>
#include <utility>

#include "examples/llm/quant.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

struct Golden {
  WeightFormat format;
  std::vector<std::pair<int, int>> plain;  // bytes of a block that make its scale one
  uint64_t hash;
  double sum, weighted, squares;
};
const std::vector<Golden>& Goldens() {
  static const auto& goldens = *new std::vector<Golden>{
      {WeightFormat::kTQ1, {{52, 0}, {53, 60}}, 0xb866d00c234ae325u, 3.0, 444.0, 161.0},
      {WeightFormat::kTQ2, {{64, 0}, {65, 60}}, 0x1d471155b8096325u, 171.0, 20688.0, 417.0},
      {WeightFormat::kNVFP4,
       {{0, 56}, {1, 56}, {2, 56}, {3, 56}},
       0xd6f8d32c8306db25u,
       -2.5,
       -236.5,
       700.75},
      {WeightFormat::kIQ1S, {{0, 0}, {1, 60}}, 0x2d43a144c0786805u, -171.0, -25501.0, 15743.75},
      {WeightFormat::kIQ1M,
       {{49, 0}, {51, 0}, {53, 192}, {55, 48}},
       0xb44ba2edaa093125u,
       -140.0,
       -7241.0,
       11205.5},
      {WeightFormat::kIQ2XXS,
       {{0, 0}, {1, 60}},
       0xb21129a19e994dbdu,
       -1562.0,
       -98130.0,
       984924.40625},
      {WeightFormat::kIQ2XS,
       {{0, 0}, {1, 60}},
       0x93532d321fc59275u,
       775.25,
       128342.5,
       624899.71875},
      {WeightFormat::kIQ2S,
       {{0, 0}, {1, 60}},
       0x5e556f56c391e075u,
       -676.75,
       -81368.5,
       891150.15625},
      {WeightFormat::kIQ3XXS, {{0, 0}, {1, 60}}, 0xf5388aabaa9b96c5u, -424.5, 42668.5, 4484574.75},
      {WeightFormat::kIQ3S, {{0, 0}, {1, 60}}, 0xf366f9bef1828f75u, -4258.0, -426830.0, 4609264.0}};
  return goldens;
}

Tensor StoredBytes(WeightFormat format, int64_t blocks, const std::string& bytes) {
  Weight w;
  w.format = format;
  w.shape = {blocks, InfoOf(format).block_elements};
  w.bytes = bytes;
  return Stored(w);
}

std::string PlainBlock(const Golden& g) {
  std::string bytes(InfoOf(g.format).block_bytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(7 * i * i + 37 * i + 11);
  for (const auto& [at, byte] : g.plain) bytes[at] = static_cast<char>(byte);
  return bytes;
}

TEST(QuantGoldens, SumsOfABlock) {
  for (const Golden& g : Goldens()) {
    SCOPED_TRACE(InfoOf(g.format).name);
    const std::string bytes = PlainBlock(g);
    const std::vector<double> v =
        Values(StoredBytes(g.format, 1, bytes), g.format).ToVector<double>();
    double sum = 0, weighted = 0, squares = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      sum += v[i];
      weighted += v[i] * static_cast<double>(i + 1);
      squares += v[i] * v[i];
    }
    EXPECT_EQ(sum, g.sum);
    EXPECT_EQ(weighted, g.weighted);
    EXPECT_EQ(squares, g.squares);
  }
}

// Any bytes, so that every entry of a codebook is there, and scales that are tiny or NaN.
TEST(QuantGoldens, BitsOfManyBlocks) {
  constexpr int64_t kBlocks = 600;
  for (const Golden& g : Goldens()) {
    SCOPED_TRACE(InfoOf(g.format).name);
    std::string bytes(kBlocks * InfoOf(g.format).block_bytes, '\0');
    uint32_t x = 1;
    for (char& c : bytes) c = static_cast<char>((x = x * 1664525 + 1013904223) >> 24);
    uint64_t hash = 0xCBF29CE484222325;
    for (const float v :
         Values(StoredBytes(g.format, kBlocks, bytes), g.format).ToVector<float>()) {
      const uint32_t bits = std::isnan(v) ? 0x7FC00000 : std::bit_cast<uint32_t>(v);
      hash = (hash ^ bits) * 0x100000001B3;
    }
    EXPECT_EQ(hash, g.hash);
  }
}

// As embeddings are read.
TEST(QuantGoldens, ChosenRows) {
  for (const Golden& g : Goldens()) {
    SCOPED_TRACE(InfoOf(g.format).name);
    const std::string plain = PlainBlock(g), zeros(plain.size(), '\0');
    const Tensor stored = StoredBytes(g.format, 3, zeros + plain + zeros);
    const Tensor rows = stored.Take(Tensor::From(std::vector<int32_t>{1, 0, 1}));
    const std::vector<float> got = Values(rows, g.format).ToVector<float>(),
                             all = Values(stored, g.format).ToVector<float>();
    const size_t n = all.size() / 3;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], all[i / n == 1 ? i - n : n + i % n]) << i;
    }
  }
}

// An infinite scale: what is not 0 is infinite, with its own sign.
TEST(QuantGoldens, InfiniteScales) {
  for (const Golden& g : Goldens()) {
    if (g.format == WeightFormat::kNVFP4) continue;  // has none
    SCOPED_TRACE(InfoOf(g.format).name);
    const std::string plain = PlainBlock(g);
    std::string infinite = plain;  // one is 0x3C00, infinity 0x7C00
    char& exponent = infinite[g.plain.back().first];
    exponent = static_cast<char>(g.format == WeightFormat::kIQ1M ? 0x70 : 0x7C);
    const std::vector<float>
        ones = Values(StoredBytes(g.format, 1, plain), g.format).ToVector<float>(),
        got = Values(StoredBytes(g.format, 1, infinite), g.format).ToVector<float>();
    for (size_t i = 0; i < got.size(); ++i) {
      if (ones[i] == 0) {
        EXPECT_TRUE(std::isnan(got[i])) << i;
      } else {
        EXPECT_EQ(got[i], std::copysign(INFINITY, ones[i])) << i;
      }
    }
  }
}

// All scales there are.
TEST(QuantGoldens, ScalesOfNVFP4) {
  std::string bytes;
  for (int s = 0; s < 256; ++s) bytes += std::string(4, static_cast<char>(s)) + std::string(32, 2);
  const std::vector<float> v =
      Values(StoredBytes(WeightFormat::kNVFP4, 256, bytes), WeightFormat::kNVFP4).ToVector<float>();
  for (int s = 0; s < 256; ++s) {
    const int exponent = s >> 3 & 15, mantissa = s & 7;
    const double want = s == 127        ? 0
                        : exponent == 0 ? std::ldexp(mantissa, -9)
                                        : std::ldexp(8 + mantissa, exponent - 10);
    EXPECT_EQ(v[64 * s], want) << s;
    EXPECT_EQ(v[64 * s + 8], 0) << s;  // the high half of a byte
  }
}

}  // namespace
}  // namespace tessera::llm
