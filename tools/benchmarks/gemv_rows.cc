// Rows of a vector times a large matrix in the number formats of model files, beside the time that
// reading as many bytes takes.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "examples/llm/quant.h"
#include "graph/tensor.h"
#include "runtime/runtime.h"
#include "tools/benchmarks/peers.h"
#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {
namespace {

constexpr int64_t kIn = 4096, kOut = 49152;
constexpr int kRounds = 15;

struct Format {
  std::string name;
  WeightFormat format;
  int64_t block, bytes;               // elements of a block, and its bytes
  bool integers = false;              // whether the vector is rounded to integers of eight bits
  int64_t halves = 1, halves_at = 0;  // the numbers of half precision of a block, and their bytes
};
const Format kFormats[] = {{"gemv_f16", WeightFormat::kF16, 1, 2},
                           {"gemv_q8_0", WeightFormat::kQ8_0, 32, 34},
                           {"gemv_q4_0", WeightFormat::kQ4_0, 32, 18},
                           {"gemv_iq4_nl", WeightFormat::kIQ4NL, 32, 18},
                           {"gemv_q6_k", WeightFormat::kQ6K, 256, 210, false, 1, 208},
                           {"gemv_q8_0_int8", WeightFormat::kQ8_0, 32, 34, true},
                           {"gemv_q4_0_int8", WeightFormat::kQ4_0, 32, 18, true},
                           {"gemv_iq4_nl_int8", WeightFormat::kIQ4NL, 32, 18, true},
                           {"gemv_q4_k_int8", WeightFormat::kQ4K, 256, 144, true, 2},
                           {"gemv_q6_k_int8", WeightFormat::kQ6K, 256, 210, true, 1, 208}};

// A matrix as a file holds it: random bytes whose scales are small finite numbers.
Tensor Weights(const Format& f, int64_t rows, int64_t columns) {
  if (f.block == 1) return Tensor::Uniform(-1, 1, {rows, columns}).Cast(kFloat16).Realize();
  const auto bytes = [&](int64_t n, int64_t from = 0, int64_t to = 256) {
    return Tensor::RandInt(from, to, {rows, columns / f.block, n}).Cast(kUInt8);
  };
  std::vector<Tensor> parts;
  if (f.halves_at > 0) parts.push_back(bytes(f.halves_at));
  for (int64_t i = 0; i < f.halves; ++i) {
    parts.push_back(bytes(1));
    parts.push_back(bytes(1, 0x20, 0x28));  // 2^-7 to 2^-5
  }
  const int64_t rest = f.bytes - f.halves_at - 2 * f.halves;
  if (rest > 0) parts.push_back(bytes(rest));
  return Cat(parts, -1).Realize();
}

Tensor Product(const Format& f, const Tensor& x, const Tensor& weights, int64_t columns) {
  if (f.integers) return llm::Product(llm::Quantise(x), llm::Integers(weights, f.format));
  const Tensor values = llm::Values(weights, f.format);
  return x.Linear(values.Reshape({values.size(0), columns}));
}

// Against sums of the values one by one; tests have these from the formats' descriptions.
void Check(const Format& f) {
  constexpr int64_t kRows = 12, kColumns = 256, kRounded = 32;
  const Tensor x = Tensor::Uniform(-1, 1, {1, kColumns}).Realize(), w = Weights(f, kRows, kColumns);
  std::vector<float> a = x.ToVector<float>();
  for (int64_t i = 0; f.integers && i < kColumns; i += kRounded) {
    float most = 0;
    for (int64_t j = i; j < i + kRounded; ++j) most = std::max(most, std::fabs(a[j]));
    const float scale = most / 127;
    const double kept = Convert(Scalar::Float(scale), kFloat32, kFloat16).AsFloat();
    for (int64_t j = i; j < i + kRounded; ++j) a[j] = kept * std::nearbyint(a[j] / scale);
  }
  const std::vector<double> b = llm::Values(w, f.format).ToVector<double>();
  std::vector<double> want(kRows);
  for (int64_t i = 0; i < kRows * kColumns; ++i) want[i / kColumns] += b[i] * a[i % kColumns];
  CheckClose(f.name, Product(f, x, w, kColumns).ToVector<float>(), want, 1e-4);
}

// Reads n floats by all cores, in this form; what it gives keeps the reading from being left out.
float Read(const float* from, int64_t n, Form form) {
  constexpr int64_t kUnit = 1024;
  return OnCores(n / kUnit, [&](int64_t begin, int64_t end) {
    return HostPeers().sum(from + begin * kUnit, (end - begin) * kUnit, form);
  });
}

Row Measure(const Format& f) {
  const Tensor x = Tensor::Uniform(-1, 1, {1, kIn}).Realize(), w = Weights(f, kOut, kIn);
  const int64_t bytes = kOut * kIn / f.block * f.bytes;
  const Tensor plain = Tensor::Zeros({bytes / 4}).Contiguous().Realize();
  const int64_t before = GetRuntimeStats().kernels_run;
  int64_t runs = 0;
  const auto read = [&](bool many) {
    if (Read(plain.Data<float>(), bytes / 4, {many, false}) != 0) std::abort();
  };
  const std::vector<Times> ms = Interleaved({[&] {
                                               ++runs;
                                               Tensor y = Product(f, x, w, kIn);
                                               y.Realize();
                                             },
                                             [&] { read(false); }, [&] { read(true); }},
                                            kRounds);
  Row row;
  row.name = f.name;
  row.ours_ms = ms[0].median;
  row.peer = "reading as many bytes";
  row.peer_ms = std::min(ms[1].median, ms[2].median);
  row.bytes = static_cast<double>(bytes);
  row.flops = 2.0 * kIn * kOut;
  row.kernels = (GetRuntimeStats().kernels_run - before) / runs;
  return row;
}

}  // namespace

std::vector<Row> GemvRows(const Wanted& wanted) {
  std::vector<Row> out;
  for (const Format& f : kFormats) {
    if (!wanted(f.name)) continue;
    Check(f);
    out.push_back(Measure(f));
  }
  return out;
}

}  // namespace tessera::benchmarks
