// Rows of layers: a convolution and attention beside PyTorch, and operations by index beside
// hand-written loops.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "graph/grad.h"
#include "graph/tensor.h"
#include "runtime/core_pool.h"
#include "runtime/runtime.h"
#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {
namespace {

Tensor Random(const Dims& shape) { return Tensor::Uniform(-1, 1, shape).Realize(); }

// ---- what is compared, and checked at small sizes

Tensor Convolution(const Tensor& x, const Tensor& w) {
  ConvOptions options;
  options.padding = {1, 1};
  return x.Conv2d(w, options);
}

void CheckConvolution(DType dtype) {
  constexpr int64_t kIn = 5, kOut = 17, kSize = 14;
  const Tensor x = Random({2, kIn, kSize, kSize}).Cast(dtype).Realize();
  const Tensor w = Random({kOut, kIn, 3, 3}).Cast(dtype).Realize();
  const std::vector<float> a = x.ToVector<float>(), b = w.ToVector<float>();
  std::vector<double> want;
  for (int64_t i = 0; i < 2 * kOut * kSize * kSize; ++i) {
    const int64_t n = i / (kOut * kSize * kSize), o = i / (kSize * kSize) % kOut;
    double sum = 0;
    for (int64_t t = 0; t < kIn * 9; ++t) {
      const int64_t row = i / kSize % kSize + t / 3 % 3 - 1, column = i % kSize + t % 3 - 1;
      if (row < 0 || row >= kSize || column < 0 || column >= kSize) continue;
      sum += a[((n * kIn + t / 9) * kSize + row) * kSize + column] * b[o * kIn * 9 + t];
    }
    want.push_back(sum);
  }
  const double tolerance = dtype == kFloat32 ? 1e-4 : 1e-2;
  CheckClose("conv2d", Convolution(x, w).ToVector<float>(), want, tolerance);
}

// Attention with scores, and what Softmax makes of them, in memory; of causal attention by a mask
// that is there already.
Tensor StepByStep(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask = {}) {
  const double width = std::sqrt(static_cast<double>(q.size(-1)));
  Tensor scores = q.MatMul(k.Transpose()) / width;
  if (mask) scores = Where(mask, scores, -INFINITY);
  const Tensor shares = scores.Realize().Softmax().Realize();
  return shares.MatMul(v);
}

void CheckAttention(DType dtype) {
  constexpr int64_t kHeads = 2, kTokens = 96, kWide = 32;
  const auto one = [&] { return Random({kHeads, kTokens, kWide}).Cast(dtype).Realize(); };
  const Tensor q = one(), k = one(), v = one();
  const std::vector<float> a = q.ToVector<float>(), b = k.ToVector<float>(),
                           c = v.ToVector<float>();
  std::vector<double> want;
  for (int64_t row = 0; row < kHeads * kTokens; ++row) {
    const int64_t first = row / kTokens * kTokens;
    std::vector<double> score(kTokens), out(kWide);
    double total = 0;
    for (int64_t s = 0; s < kTokens; ++s) {
      for (int64_t d = 0; d < kWide; ++d)
        score[s] += a[row * kWide + d] * b[(first + s) * kWide + d];
      total += score[s] = std::exp(score[s] / std::sqrt(static_cast<double>(kWide)));
    }
    for (int64_t s = 0; s < kTokens; ++s) {
      for (int64_t d = 0; d < kWide; ++d) out[d] += score[s] / total * c[(first + s) * kWide + d];
    }
    want.insert(want.end(), out.begin(), out.end());
  }
  const double tolerance = dtype == kFloat32 ? 1e-4 : 1e-2;
  CheckClose("attention", q.ScaledDotProductAttention(k, v).ToVector<float>(), want, tolerance);
  CheckClose("attention step by step", StepByStep(q, k, v).ToVector<float>(), want, tolerance);
}

// ---- rows

std::vector<double> Doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

Row CumSumRow() {
  constexpr int64_t kLines = 4096;
  Tensor out = Tensor::Zeros({kLines, kLines}).Contiguous().Realize();
  const Tensor x = Random({kLines, kLines});
  float* room = const_cast<float*>(out.Data<float>());
  const auto loop = [&] {
    OnCores(kLines, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* from = x.Data<float>() + r * kLines;
        float sum = 0;
        for (int64_t i = 0; i < kLines; ++i) room[r * kLines + i] = sum += from[i];
      }
      return 0.0f;
    });
  };
  loop();
  CheckClose("cumsum", x.CumSum(1).ToVector<float>(), Doubles(out.ToVector<float>()), 1e-3);
  return Measured(
      "cumsum", 8.0 * kLines * kLines, 1.0 * kLines * kLines, [&] { return x.CumSum(1); },
      "hand loop", loop);
}

Row SortRow() {
  constexpr int64_t kElements = 1 << 20;
  const Tensor x = Random({kElements});
  std::vector<float> sorted(kElements);
  const auto loop = [&] {
    std::memcpy(sorted.data(), x.Data<float>(), kElements * sizeof(float));
    std::sort(sorted.begin(), sorted.end());
  };
  loop();
  CheckClose("sort", x.Sort().values.ToVector<float>(), Doubles(sorted), 0);
  return Measured(
      "sort_1m", 8.0 * kElements, 0, [&] { return x.Sort().values; },
      "std::sort, one core, values alone", loop);
}

Row GatherRow() {
  constexpr int64_t kLines = 65536, kColumns = 1024;
  const Tensor table = Random({kLines, kColumns});
  const Tensor index = Tensor::RandInt(0, kLines, {kLines}).Realize();
  Tensor out = Tensor::Zeros({kLines, kColumns}).Contiguous().Realize();
  float* room = const_cast<float*>(out.Data<float>());
  const auto loop = [&] {
    OnCores(kLines, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        std::memcpy(room + r * kColumns, table.Data<float>() + index.Data<int32_t>()[r] * kColumns,
                    kColumns * sizeof(float));
      }
      return 0.0f;
    });
  };
  loop();
  const double unlike = (table.Take(index) != out).Any().Item();
  CheckClose("gather", {static_cast<float>(unlike)}, {0}, 0);
  return Measured(
      "gather_rows", 8.0 * kLines * kColumns, 0, [&] { return table.Take(index); },
      "memcpy of each row", loop);
}

// What a hand writes: the base, or zeros, then one row after another; cores share the columns.
void AddRows(const float* base, const int32_t* index, const float* updates, int64_t rows,
             int64_t lines, int64_t columns, float* out) {
  OnCores(columns / 64, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * 64, width = (end - begin) * 64;
    for (int64_t r = 0; r < rows; ++r) {
      float* to = out + r * columns + from;
      if (base == nullptr) {
        std::memset(to, 0, width * sizeof(float));
      } else {
        std::memcpy(to, base + r * columns + from, width * sizeof(float));
      }
    }
    for (int64_t j = 0; j < lines; ++j) {
      float* to = out + index[j] * columns + from;
      const float* u = updates + j * columns + from;
      for (int64_t k = 0; k < width; ++k) to[k] += u[k];
    }
    return 0.0f;
  });
}

// Rows added to a table, and the adjoint of looking rows up in one, which adds to zeros.
Row ScatterRow(bool adjoint) {
  constexpr int64_t kRows = 32768, kLines = 16384, kColumns = 512;
  const Tensor table = Random({kRows, kColumns}), updates = Random({kLines, kColumns});
  const Tensor index = Tensor::RandInt(0, kRows, {kLines}).Realize();
  Tensor out = Tensor::Zeros({kRows, kColumns}).Contiguous().Realize();
  float* room = const_cast<float*>(out.Data<float>());
  const auto loop = [&] {
    AddRows(adjoint ? nullptr : table.Data<float>(), index.Data<int32_t>(), updates.Data<float>(),
            kRows, kLines, kColumns, room);
  };
  const auto ours = [&] {
    if (!adjoint) return table.IndexAdd(0, index, updates);
    return Grad((table.Take(index) * updates).Sum(), {table})[0];
  };
  loop();
  const double unlike = (ours() != out).Any().Item();
  CheckClose("scatter", {static_cast<float>(unlike)}, {0}, 0);
  const double table_bytes = 4.0 * kRows * kColumns, update_bytes = 12.0 * kLines * kColumns;
  return Measured(adjoint ? "embedding_backward" : "scatter_add",
                  (adjoint ? 1 : 2) * table_bytes + update_bytes, 1.0 * kLines * kColumns, ours,
                  "hand loop, columns over cores", loop);
}

// Single numbers at random: nothing is side by side.
Row HistogramRow() {
  constexpr int64_t kBins = 1 << 16, kCounts = 1 << 22;
  const Tensor index = Tensor::RandInt(0, kBins, {kCounts}).Realize();
  std::vector<int32_t> bins(kBins);
  const int32_t* positions = index.Data<int32_t>();
  const auto loop = [&] {
    std::fill(bins.begin(), bins.end(), 0);
    for (int64_t i = 0; i < kCounts; ++i) ++bins[positions[i]];
  };
  loop();
  if (index.BinCount(kBins).ToVector<int32_t>() != bins) CheckClose("histogram", {1}, {0}, 0);
  return Measured(
      "histogram", 4.0 * (kBins + kCounts), 0, [&] { return index.BinCount(kBins); },
      "hand loop, one core", loop);
}

// Queries, keys and values of 32 heads, 2,048 tokens and 128 columns.
struct Heads {
  Tensor q, k, v;
  double bytes = 0;
  static constexpr double kFlops = 4.0 * 32 * 2048 * 2048 * 128;
  explicit Heads(DType dtype) : bytes(4.0 * 32 * 2048 * 128 * dtype.bytes()) {
    for (Tensor* t : {&q, &k, &v}) *t = Random({32, 2048, 128}).Cast(dtype).Realize();
  }
};

// Beside PyTorch's own, by steps of its, and beside ours step by step.
void AttentionRows(const Wanted& wanted, const std::string& python, DType dtype,
                   std::vector<Row>& out) {
  const bool wide = dtype == kFloat32;
  const auto name = [&](const char* of) { return absl::StrCat(of, wide ? "" : "_bf16"); };
  const auto add = [&](const std::string& row, absl::FunctionRef<Row(const Heads&)> measure) {
    if (!wanted(row)) return;
    CheckAttention(dtype);
    out.push_back(measure(Heads(dtype)));
  };
  constexpr char kFused[] = "torch.nn.functional.scaled_dot_product_attention(q, k, v";
  const std::tuple<const char*, std::string, bool> beside[] = {
      {"attention_prefill", absl::StrCat(kFused, ")"), false},
      {"attention_causal", absl::StrCat(kFused, ", is_causal=True)"), true},
      {"attention_eager", "(q @ k.transpose(-1, -2) / 128 ** 0.5).softmax(-1) @ v", false}};
  for (const auto& [of, step, causal] : beside) {
    add(name(of), [&](const Heads& h) {
      const std::string text =
          absl::StrCat("q, k, v = (torch.rand(1, 32, 2048, 128)", wide ? "" : ".bfloat16()",
                       " for _ in range(3))\ndef step():\n    ", step, "\n");
      AttentionOptions options;
      options.causal = causal;
      return BesideTorch(name(of), python, text, h.bytes, Heads::kFlops / (causal ? 2 : 1),
                         [&] { return h.q.ScaledDotProductAttention(h.k, h.v, options); });
    });
  }
  for (const bool causal : {false, true}) {
    const std::string composed = name(causal ? "attention_causal_composed" : "attention_composed");
    AttentionOptions options;
    options.causal = causal;
    add(composed, [&](const Heads& h) {
      const int64_t tokens = h.q.size(1);
      Tensor mask;
      if (causal) mask = (Tensor::Arange(tokens) <= Tensor::Arange(tokens).Unsqueeze(1)).Realize();
      return Measured(
          composed, h.bytes, Heads::kFlops / (causal ? 2 : 1),
          [&] { return h.q.ScaledDotProductAttention(h.k, h.v, options); },
          "the same, step by step", [&] { StepByStep(h.q, h.k, h.v, mask).Realize(); });
    });
  }
}

}  // namespace

// Products of bf16, which chips with an instruction for them do in pairs of steps.
Row NarrowMatMulRow(const std::string& name, const std::string& python, int64_t n) {
  const Tensor a = Random({n, n}).Cast(kBFloat16).Realize();
  const Tensor b = Random({n, n}).Cast(kBFloat16).Realize();
  const auto wide = [](const Tensor& x) { return x.Slice({{0, 64}}).Cast(kFloat64); };
  CheckClose(name, wide(a).MatMul(b.Cast(kFloat64)).ToVector<float>(),
             a.MatMul(b).Slice({{0, 64}}).ToVector<double>(), 1e-2);
  const auto size = static_cast<double>(n);
  return BesideTorch(name, python,
                     absl::StrCat("a, b = (torch.rand(", n, ", ", n,
                                  ").bfloat16() for _ in range(2))\n"
                                  "def step():\n    torch.mm(a, b)\n"),
                     6 * size * size, 2 * size * size * size, [&] { return a.MatMul(b); });
}

Row ConvolutionRow(const std::string& name, const std::string& python, DType dtype) {
  CheckConvolution(dtype);
  const Tensor x = Random({8, 64, 56, 56}).Cast(dtype).Realize();
  const Tensor w = Random({64, 64, 3, 3}).Cast(dtype).Realize();
  const char* narrow = dtype == kFloat32 ? "" : ".bfloat16()";
  return BesideTorch(
      name, python,
      absl::StrCat("x = torch.rand(8, 64, 56, 56)", narrow, "\nw = torch.rand(64, 64, 3, 3)",
                   narrow, "\ndef step():\n    torch.nn.functional.conv2d(x, w, padding=1)\n"),
      static_cast<double>(dtype.bytes()) * (2 * 8 * 64 * 56 * 56 + 64 * 64 * 9),
      2.0 * 8 * 64 * 64 * 56 * 56 * 9, [&] { return Convolution(x, w); });
}

std::vector<Row> NetworkRows(const Wanted& wanted, const std::string& python) {
  std::vector<Row> out;
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const std::string name = dtype == kFloat32 ? "conv2d_3x3" : "conv2d_3x3_bf16";
    if (wanted(name)) out.push_back(ConvolutionRow(name, python, dtype));
  }
  for (const int64_t n : {512, 1024, 2048}) {
    const std::string name = absl::StrCat("matmul_bf16_", n);
    if (wanted(name)) out.push_back(NarrowMatMulRow(name, python, n));
  }
  for (const DType dtype : {kFloat32, kBFloat16}) AttentionRows(wanted, python, dtype, out);
  if (wanted("cumsum")) out.push_back(CumSumRow());
  if (wanted("sort_1m")) out.push_back(SortRow());
  if (wanted("gather_rows")) out.push_back(GatherRow());
  if (wanted("scatter_add")) out.push_back(ScatterRow(/*adjoint=*/false));
  if (wanted("embedding_backward")) out.push_back(ScatterRow(/*adjoint=*/true));
  if (wanted("histogram")) out.push_back(HistogramRow());
  return out;
}

}  // namespace tessera::benchmarks
