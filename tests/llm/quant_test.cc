// Every number format against plain loops over its blocks, written from the format's description.
#include "examples/llm/quant.h"

#include <cmath>
#include <random>

#include "absl/strings/match.h"
#include "graph/fold.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

double Half(const uint8_t* p) { return LoadScalar(p, kFloat16).AsFloat(); }

// What four bits stand for in IQ4_NL and IQ4_XS.
constexpr int kUneven[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                           1,    13,   25,  38,  53,  69,  89,  113};

// Floats of two bits of exponent and one of mantissa.
constexpr double kFP4[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};

// The 256 or 32 values of the block at p.
std::vector<double> Block(WeightFormat format, const uint8_t* p) {
  std::vector<double> y(InfoOf(format).block_elements);
  const auto nibble = [](const uint8_t* q, int i, int half) {
    return i < half ? q[i] & 15 : q[i - half] >> 4;
  };
  const auto bit = [](const uint8_t* q, int i) { return q[i / 8] >> (i % 8) & 1; };
  for (int i = 0; i < static_cast<int>(y.size()); ++i) {
    switch (format) {
      case WeightFormat::kQ8_0:
        y[i] = Half(p) * static_cast<int8_t>(p[2 + i]);
        break;
      case WeightFormat::kQ4_0:
        y[i] = Half(p) * (nibble(p + 2, i, 16) - 8);
        break;
      case WeightFormat::kQ4_1:
        y[i] = Half(p) * nibble(p + 4, i, 16) + Half(p + 2);
        break;
      case WeightFormat::kQ5_0:
        y[i] = Half(p) * ((nibble(p + 6, i, 16) | bit(p + 2, i) << 4) - 16);
        break;
      case WeightFormat::kQ5_1:
        y[i] = Half(p) * (nibble(p + 8, i, 16) | bit(p + 4, i) << 4) + Half(p + 2);
        break;
      case WeightFormat::kQ4K:
      case WeightFormat::kQ5K: {
        const int g = i / 32;  // the group, with a scale and a minimum of six bits
        const uint8_t* s = p + 4;
        const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        const int minimum = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
        const uint8_t* quants = p + (format == WeightFormat::kQ4K ? 16 : 48) + g / 2 * 32;
        int q = g % 2 == 0 ? quants[i % 32] & 15 : quants[i % 32] >> 4;
        if (format == WeightFormat::kQ5K) q |= (p[16 + i % 32] >> g & 1) << 4;
        y[i] = Half(p) * scale * q - Half(p + 2) * minimum;
        break;
      }
      case WeightFormat::kQ6K: {
        const int n = i / 128, t = i % 128, l = t % 32, part = t / 32;
        const uint8_t low = p[n * 64 + l + (part % 2) * 32];
        const uint8_t high = p[128 + n * 32 + l];
        const int q = ((part < 2 ? low & 15 : low >> 4) | (high >> (2 * part) & 3) << 4) - 32;
        y[i] = Half(p + 208) * static_cast<int8_t>(p[192 + n * 8 + t / 16]) * q;
        break;
      }
      case WeightFormat::kIQ4NL:
        y[i] = Half(p) * kUneven[nibble(p + 2, i, 16)];
        break;
      case WeightFormat::kIQ4XS: {
        const int g = i / 32, high = p[2] | p[3] << 8;
        const int scale = (p[4 + g / 2] >> 4 * (g % 2) & 15) | (high >> 2 * g & 3) << 4;
        y[i] = Half(p) * (scale - 32) * kUneven[nibble(p + 8 + 16 * g, i % 32, 16)];
        break;
      }
      case WeightFormat::kQ2K: {
        const uint8_t s = p[i / 16];
        const int q = p[16 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
        y[i] = Half(p + 80) * (s & 15) * q - Half(p + 82) * (s >> 4);
        break;
      }
      case WeightFormat::kQ3K: {
        const int g = i / 16, low = p[96 + g % 8] >> (g < 8 ? 0 : 4) & 15;
        const int scale = (low | (p[104 + g % 4] >> (2 * (g / 4)) & 3) << 4) - 32;
        const int q = p[32 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
        y[i] = Half(p + 108) * scale * (q - (p[i % 32] >> (i / 32) & 1 ? 0 : 4));
        break;
      }
      case WeightFormat::kMXFP4:
        y[i] = std::ldexp(kFP4[nibble(p + 1, i, 16)], p[0] - 127);
        break;
      case WeightFormat::kNVFP4: {
        const int s = p[i / 16];  // seven bits of a float without sign
        const double scale = s >> 3 == 0 ? s * 0x1p-9 : std::ldexp(8 + (s & 7), (s >> 3) - 10);
        y[i] = scale * kFP4[nibble(p + 4 + i / 16 * 8, i % 16, 8)];
        break;
      }
      case WeightFormat::kQ1_0:
        y[i] = bit(p + 2, i) ? Half(p) : -Half(p);
        break;
      case WeightFormat::kQ2_0:
        y[i] = Half(p) * ((p[2 + i / 4] >> 2 * (i % 4) & 3) - 1);
        break;
      case WeightFormat::kTQ1: {  // digits in base three, the first of 32, 16 or 4 bytes
        const int at = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
        const int digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
        constexpr int kPowers[] = {1, 3, 9, 27, 81};
        y[i] = Half(p + 52) * ((p[at] * kPowers[digit] % 256 * 3 >> 8) - 1);
        break;
      }
      case WeightFormat::kTQ2:
        y[i] = Half(p + 64) * ((p[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3) - 1);
        break;
      default:  // quant_goldens_test.cc has those of codebooks
        ADD_FAILURE();
    }
  }
  return y;
}

// Random blocks whose halves are small finite numbers.
std::string RandomBlocks(WeightFormat format, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(format));
  const WeightFormatInfo& info = InfoOf(format);
  std::string bytes(count * info.block_bytes, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  for (int64_t b = 0; b < count; ++b) {
    for (int at : HalvesOf(format)) {
      const uint16_t half = static_cast<uint16_t>((random() & 0x83FF) | (10 + random() % 8) << 10);
      std::memcpy(&bytes[b * info.block_bytes + at], &half, 2);
    }
    char* const block = &bytes[b * info.block_bytes];
    if (format == WeightFormat::kMXFP4) block[0] = static_cast<char>(120 + b % 12);  // an exponent
    if (format == WeightFormat::kNVFP4) {
      for (int i = 0; i < 4; ++i) block[i] &= 0x77;  // finite, and of no sign
    }
  }
  return bytes;
}

constexpr WeightFormat kBlockFormats[] = {
    WeightFormat::kQ8_0,   WeightFormat::kQ4_0,  WeightFormat::kQ4_1, WeightFormat::kQ5_0,
    WeightFormat::kQ5_1,   WeightFormat::kQ4K,   WeightFormat::kQ5K,  WeightFormat::kQ6K,
    WeightFormat::kIQ4NL,  WeightFormat::kIQ4XS, WeightFormat::kQ2K,  WeightFormat::kQ3K,
    WeightFormat::kMXFP4,  WeightFormat::kNVFP4, WeightFormat::kQ1_0, WeightFormat::kQ2_0,
    WeightFormat::kTQ1,    WeightFormat::kTQ2,   WeightFormat::kIQ1S, WeightFormat::kIQ1M,
    WeightFormat::kIQ2XXS, WeightFormat::kIQ2XS, WeightFormat::kIQ2S, WeightFormat::kIQ3XXS,
    WeightFormat::kIQ3S};

bool HasCodebook(WeightFormat format) {
  return absl::StartsWith(InfoOf(format).name, "IQ") &&
         !absl::StartsWith(InfoOf(format).name, "IQ4");
}

TEST(Quant, ValuesAreThoseOfPlainLoops) {
  constexpr int64_t kRows = 3, kBlocks = 2;
  for (WeightFormat format : kBlockFormats) {
    if (HasCodebook(format)) continue;
    SCOPED_TRACE(InfoOf(format).name);
    const int64_t columns = kBlocks * InfoOf(format).block_elements;
    const std::string bytes = RandomBlocks(format, kRows * kBlocks);
    Weight w;
    w.format = format;
    w.shape = {kRows, columns};
    w.bytes = bytes;
    const Tensor values = Values(Stored(w), format);
    EXPECT_EQ(values.dtype(), kFloat32);
    ASSERT_EQ(values.elements(), kRows * columns);
    std::vector<double> expected;
    for (int64_t b = 0; b < kRows * kBlocks; ++b) {
      const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
      for (double v : Block(format, p + b * InfoOf(format).block_bytes)) expected.push_back(v);
    }
    const std::vector<double> got = values.ToVector<double>();
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 1e-5 * std::max(1.0, std::fabs(expected[i]))) << i;
    }
    // Inside a product, and of chosen rows.
    const Tensor x = Tensor::Arange(columns, kFloat32).Reshape({1, columns}) * 0.01 - 1;
    const std::vector<double> product = x.Linear(values).ToVector<double>();
    const Tensor rows = Values(Stored(w).Take(Tensor::From(std::vector<int32_t>{2, 0})), format);
    const std::vector<double> taken = rows.ToVector<double>();
    for (int64_t r = 0; r < kRows; ++r) {
      double want = 0, size = 0;
      for (int64_t k = 0; k < columns; ++k) {
        want += (k * 0.01 - 1) * expected[r * columns + k];
        size += std::fabs((k * 0.01 - 1) * expected[r * columns + k]);
      }
      EXPECT_NEAR(product[r], want, 1e-5 * size) << r;
    }
    for (int64_t k = 0; k < columns; ++k) {
      ASSERT_EQ(taken[k], got[2 * columns + k]);
      ASSERT_EQ(taken[columns + k], got[k]);
    }
  }
}

// Of blocks whose byte i is 7 i i + 37 i + 11, times one, what gguf 0.19.0 (llama.cpp's gguf-py)
// gives by gguf.quants.dequantize.
TEST(Quant, UnevenFormatsAreThoseOfGgufPy) {
  const std::vector<float> of_nl = {-104, 13, 113, -65, -35, -35, -65, 113,  13,  -104, -10,
                                    38,   69, 69,  38,  -10, -10, 38,  -127, -10, 89,   -22,
                                    113,  1,  -65, 113, 38,  1,   -22, -35,  -35, -22};
  const std::vector<float> of_xs = {
      65,    -113,  -13,   104,   10,    -38,   -69,   -69,   -38,   10,    104,   -13,   -113,
      65,    35,    35,    -113,  -1,    65,    -113,  -38,   -1,    22,    35,    35,    22,
      -1,    -25,   -69,   83,    10,    -69,   2080,  -3616, -416,  3328,  320,   -1216, -2208,
      -2208, -1216, 320,   3328,  -416,  -3616, 2080,  1120,  1120,  1568,  -1216, 1568,  -2848,
      -32,   2080,  -3616, -1696, -800,  -416,  -416,  -416,  -800,  -2208, 4064,  1568,  -1235,
      2147,  247,   -1976, -190,  722,   1311,  1311,  722,   -190,  -1976, 247,   2147,  -1235,
      -665,  -665,  247,   1691,  -665,  1311,  -665,  1691,  19,    -1235, 2147,  1007,  475,
      19,    -190,  19,    247,   722,   585,   -1017, -117,  936,   90,    -342,  -621,  -621,
      -342,  90,    936,   -117,  -1017, 585,   315,   315,   -801,  936,   198,   -477,  747,
      -117,  936,   -225,  441,   -1017, -342,  90,    441,   585,   747,   747,   715,   -1243,
      -143,  1144,  110,   -418,  -759,  -759,  -418,  110,   1144,  -143,  -1243, 715,   385,
      385,   715,   539,   110,   -418,  -1243, 539,   -275,  1144,  -143,  913,   -583,  242,
      1144,  -979,  -418,  -143,  -910,  1582,  182,   -1456, -140,  532,   966,   966,   532,
      -140,  -1456, 182,   1582,  -910,  -490,  -490,  14,    -140,  14,    350,   742,   1582,
      -910,  14,    1246,  -490,  966,   -490,  1246,  182,   -686,  -1778, -1365, 2373,  273,
      -2184, -210,  798,   1449,  1449,  798,   -210,  -2184, 273,   2373,  -1365, -735,  -735,
      1449,  525,   273,   273,   273,   525,   1113,  2373,  -1365, 21,    1869,  -1029, 798,
      -1029, 1449,  -210,  -390,  678,   78,    -624,  -60,   228,   414,   414,   228,   -60,
      -624,  78,    678,   -390,  -210,  -210,  -498,  414,   150,   6,     -132,  -210,  -210,
      -132,  6,     228,   678,   -390,  6,     678,   -132,  534};
  for (const auto& [format, want] :
       {std::pair(WeightFormat::kIQ4NL, of_nl), std::pair(WeightFormat::kIQ4XS, of_xs)}) {
    std::string bytes(InfoOf(format).block_bytes, '\0');
    for (size_t i = 2; i < bytes.size(); ++i) bytes[i] = static_cast<char>(7 * i * i + 37 * i + 11);
    bytes[1] = 0x3C;  // the scale is one
    Weight w;
    w.format = format;
    w.shape = {1, static_cast<int64_t>(want.size())};
    w.bytes = bytes;
    EXPECT_EQ(Values(Stored(w), format).ToVector<float>(), want) << InfoOf(format).name;
  }
}

// Of such blocks, sums of what it gives: plain, times 1, 2, ..., and of squares.
TEST(Quant, SumsOfOtherFormatsAreThoseOfGgufPy) {
  struct Case {
    WeightFormat format;
    double sum, weighted, squares;
  };
  for (const Case& c :
       {Case{WeightFormat::kQ2K, 1515, 188888, 66015},
        Case{WeightFormat::kQ3K, 1856, 31064, 354332}, Case{WeightFormat::kMXFP4, 10, 163, 409}}) {
    SCOPED_TRACE(InfoOf(c.format).name);
    std::string bytes(InfoOf(c.format).block_bytes, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(7 * i * i + 37 * i + 11);
    for (const int at : HalvesOf(c.format)) bytes[at] = 0, bytes[at + 1] = 0x3C;
    if (c.format == WeightFormat::kMXFP4) bytes[0] = 127;
    Weight w;
    w.format = c.format;
    w.shape = {1, InfoOf(c.format).block_elements};
    w.bytes = bytes;
    const std::vector<double> v = Values(Stored(w), c.format).ToVector<double>();
    double sum = 0, weighted = 0, squares = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      sum += v[i];
      weighted += v[i] * static_cast<double>(i + 1);
      squares += v[i] * v[i];
    }
    EXPECT_EQ(sum, c.sum);
    EXPECT_EQ(weighted, c.weighted);
    EXPECT_EQ(squares, c.squares);
  }
}

// Each exponent there is, by the bits.
TEST(Quant, ExponentsOfMXFP4) {
  std::string bytes;
  for (int e = 0; e < 256; ++e) bytes += static_cast<char>(e) + std::string(16, 1);  // 0.5 and 0
  Weight w;
  w.format = WeightFormat::kMXFP4;
  w.shape = {256, 32};
  w.bytes = bytes;
  const std::vector<float> v = Values(Stored(w), w.format).ToVector<float>();
  for (int e = 0; e < 256; ++e) EXPECT_EQ(v[32 * e], std::ldexp(1.0f, e - 128)) << e;
}

TEST(Quant, EveryFormatIsTestedAndNamed) {
  EXPECT_EQ(ComputableFormats(),
            "F32, F16, BF16, F8_E4M3, F8_E5M2, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, "
            "Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q1_0, Q2_0, TQ1_0, TQ2_0, IQ1_S, IQ1_M, "
            "IQ2_XXS, IQ2_XS, "
            "IQ2_S, IQ3_XXS, IQ3_S");
  for (WeightFormat format : kBlockFormats) EXPECT_TRUE(CanCompute(format));
  EXPECT_FALSE(CanCompute(WeightFormat::kQ8K));
}

TEST(Quant, HalfAndBrainNumbersAreReadAsTheyLie) {
  const uint16_t halves[] = {0x3C00, 0xC000, 0x3555}, brains[] = {0x3F80, 0xC000, 0x3EAB};
  for (const auto& [format, bits] :
       {std::pair(WeightFormat::kF16, halves), std::pair(WeightFormat::kBF16, brains)}) {
    Weight w;
    w.format = format;
    w.shape = {3};
    w.bytes = {reinterpret_cast<const char*>(bits), 6};
    const std::vector<double> v = Values(Stored(w), format).ToVector<double>();
    EXPECT_EQ(v[0], 1);
    EXPECT_EQ(v[1], -2);
    EXPECT_NEAR(v[2], 1.0 / 3, 0.002);
  }
}

// Blocks of random bytes whose halves, of which the second byte has the exponent, are numbers.
Tensor RandomBlocks(int64_t rows, int64_t blocks, WeightFormat format) {
  const int64_t bytes = InfoOf(format).block_bytes;
  const Tensor at = Tensor::Arange(bytes);
  const Tensor any = Tensor::RandInt(0, 256, {rows, blocks, bytes});
  if (format == WeightFormat::kMXFP4) {
    return Where(at == 0, any % 8 + 120, any).Cast(kUInt8).Realize();
  }
  if (format == WeightFormat::kNVFP4) {
    return Where(at < 4, any % 64 + 32, any).Cast(kUInt8).Realize();
  }
  if (format == WeightFormat::kIQ1M) {  // four bits at a time, of which the last are an exponent
    return Where(at == 55, any % 16 + 32, any).Cast(kUInt8).Realize();
  }
  Tensor exponent = Tensor::Zeros({}, kBool);
  for (int half : HalvesOf(format)) exponent = exponent | (at == half + 1);
  return Where(exponent, any % 8 + 0x20, any).Cast(kUInt8).Realize();
}

TEST(QuantProducts, IntegersTimesScalesAreTheValues) {
  for (const WeightFormat format : kBlockFormats) {
    SCOPED_TRACE(InfoOf(format).name);
    ASSERT_TRUE(HasIntegers(format));
    const Tensor stored = RandomBlocks(3, 2, format);
    const IntegerBlocks b = Integers(stored, format);
    ASSERT_EQ(b.integers.dtype().bits(), 8);
    const int axes = b.scales.rank();
    Tensor values = b.integers.Flatten(axes).Cast(kFloat32) * b.scales.Unsqueeze(-1);
    if (b.offsets) values = values + b.offsets.Unsqueeze(-1);
    const std::vector<float> got = values.ToVector<float>(),
                             want = Values(stored, format).ToVector<float>();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-6 * std::fabs(want[i]) + 1e-6) << i;
    }
  }
  EXPECT_FALSE(HasIntegers(WeightFormat::kF16));
}

TEST(QuantProducts, PanelsHaveTheSameNumbers) {
  int formats = 0;
  for (const WeightFormat format : kBlockFormats) {
    SCOPED_TRACE(InfoOf(format).name);
    const Tensor stored = RandomBlocks(32, 2, format);
    if (!HasPanels(stored, format)) continue;
    ++formats;
    const Blocks panels = InPanels(stored, format);
    const IntegerBlocks want = Integers(stored, format), got = Integers(panels, format);
    EXPECT_EQ(got.integers.ToVector<int32_t>(), want.integers.ToVector<int32_t>());
    EXPECT_EQ(got.scales.ToVector<float>(), want.scales.ToVector<float>());
    if (want.offsets) {
      EXPECT_EQ(got.offsets.ToVector<float>(), want.offsets.ToVector<float>());
    }
  }
  EXPECT_GE(formats, 13);
  const Tensor odd = RandomBlocks(33, 2, WeightFormat::kQ8_0);
  EXPECT_FALSE(HasPanels(odd, WeightFormat::kQ8_0)) << "a column would have no panel";
  EXPECT_FALSE(HasPanels(odd.Unsqueeze(0), WeightFormat::kQ8_0));
}

TEST(QuantProducts, ActivationsAreTheNearestIntegers) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x(6 * 32);
  std::mt19937 rng(3);
  for (float& v : x) v = static_cast<float>(rng() % 2001) / 1000 - 1;
  std::fill(x.begin() + 32, x.begin() + 64, 0.0f);
  x[64] = inf;
  x[96] = std::nanf("");
  for (int i = 128; i < 160; ++i) x[i] *= 1e-42f;  // the scale is 0
  x[160] = -3;                                     // a greatest that is negative
  const RoundedRows b = Quantise(Tensor::From(x, {2, 96}));
  const std::vector<int> q = b.integers.ToVector<int>();
  const std::vector<float> s = b.scales.ToVector<float>();
  const Tensor ones = Tensor::Ones({1, 96}, kFloat32, "CPU");
  for (const int block : {0, 1, 4, 5}) {
    double greatest = 0;
    for (int i = 32 * block; i < 32 * block + 32; ++i) {
      greatest = std::max<double>(greatest, std::fabs(x[i]));
    }
    const double of_f16 = std::max(greatest / 127 * 0x1p-11, 0x1p-25) * 1.001;
    EXPECT_NEAR(s[block], greatest / 127, of_f16);
    for (int i = 32 * block; i < 32 * block + 32; ++i) {
      EXPECT_LE(std::fabs(q[i] * static_cast<double>(s[block]) - x[i]),
                greatest / 127 * 0.501 + 127 * of_f16);
      EXPECT_LE(std::abs(q[i]), 127);
    }
  }
  EXPECT_EQ(q[160], -127);
  EXPECT_EQ(std::vector<int>(q.begin() + 32, q.begin() + 64), std::vector<int>(32, 0));
  for (const int block : {0, 1, 4, 5}) {
    double sum = 0;
    for (int i = 32 * block; i < 32 * block + 32; ++i) sum += q[i] * static_cast<double>(s[block]);
    EXPECT_NEAR(b.sums.ToVector<double>()[block], sum, 1e-6 * std::fabs(sum) + 1e-44);
  }
  const RoundedRows columns = Quantise(ones);
  const std::vector<float> sums =
      Product(b, {columns.integers, columns.scales, {}}).ToVector<float>();
  EXPECT_FALSE(std::isfinite(sums[0]));
  EXPECT_TRUE(std::isnan(sums[1]));
}

// Rows and unpacked weights in bf16, as prompts are multiplied on CPUs with a matrix unit for it:
// panels of columns are filled by blocks, of which some end past the last column.
TEST(QuantProducts, InBf16AreSumsOfTheRoundedValuesSlow) {
  for (const WeightFormat format : kBlockFormats) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{16, 32}, {37, 49}}) {
      if (columns == 32 && format != kBlockFormats[0]) continue;  // 37 x 49 has whole tiles, too
      SCOPED_TRACE(absl::StrCat(InfoOf(format).name, ", ", rows, " x ", columns));
      constexpr int64_t kSteps = 512;
      const Tensor x = Tensor::Uniform(-1, 1, {rows, kSteps}).Cast(kBFloat16).Realize();
      const Tensor stored = RandomBlocks(columns, kSteps / InfoOf(format).block_elements, format);
      const Tensor w = Values(stored, format).Cast(kBFloat16);
      const std::vector<float> got = x.Cast(kFloat32).Linear(w.Cast(kFloat32)).ToVector<float>();
      const std::vector<double> a = x.ToVector<double>(),
                                b = w.Contiguous().Realize().ToVector<double>();
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          double sum = 0, size = 0;
          for (int64_t k = 0; k < kSteps; ++k) {
            const double product = a[i * kSteps + k] * b[j * kSteps + k];
            sum += product;
            size += std::fabs(product);
          }
          ASSERT_NEAR(got[i * columns + j], sum, 1e-6 * size) << i << ", " << j;
        }
      }
    }
  }
}

// On each kind of device, for a step's one row and for many, as stored and in panels.
TEST(QuantProducts, AreSumsOverBlocksSlow) {
  for (const char* device : {"CPU", "SIM:0"}) {
    for (const WeightFormat format : kBlockFormats) {
      SCOPED_TRACE(InfoOf(format).name);
      const int64_t several = static_cast<int>(format) % 2 == 0 ? 3 : 20;
      for (const int64_t rows : {int64_t{1}, several}) {
        const int64_t columns = 48, elements = InfoOf(format).block_elements,
                      blocks = std::max<int64_t>(4, 2 * elements / 32);
        const Tensor x = Tensor::Uniform(-1, 1, {rows, blocks * 32}).Realize();
        const Tensor stored = RandomBlocks(columns, blocks * 32 / elements, format);
        const RoundedRows a = Quantise(x);
        const std::vector<double> q = a.integers.ToVector<double>(),
                                  s = a.scales.ToVector<double>(),
                                  w = Values(stored, format).ToVector<double>();
        std::vector<Blocks> ways = {stored.To(device)};
        if (HasPanels(ways[0].stored(), format)) ways.push_back(InPanels(ways[0].stored(), format));
        for (const Blocks& way : ways) {
          const std::vector<float> got =
              Product(Quantise(x.To(device)), Integers(way, format)).ToVector<float>();
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < columns; ++j) {
              double want = 0, size = 0;
              for (int64_t k = 0; k < blocks * 32; ++k) {
                const double term =
                    q[i * blocks * 32 + k] * s[i * blocks + k / 32] * w[j * blocks * 32 + k];
                want += term;
                size += std::fabs(term);
              }
              ASSERT_NEAR(got[i * columns + j], want, 2e-6 * size)
                  << device << ", way " << &way - ways.data() << ": " << i << "," << j;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::llm
