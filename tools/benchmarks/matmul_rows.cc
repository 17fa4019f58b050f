// Rows of f32 matrix products: ours beside OpenBLAS, where the machine has it.
#include <dlfcn.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/flags.h"
#include "graph/tensor.h"
#include "runtime/capture.h"
#include "runtime/core_pool.h"
#include "runtime/runtime.h"
#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {
namespace {

struct Size {
  int64_t m, k, n;
  int rounds;
  std::string name() const {
    return m == n && n == k ? absl::StrCat("matmul_f32_", n)
                            : absl::StrCat("matmul_f32_", m, "x", k, "x", n);
  }
};
constexpr Size kSizes[] = {{512, 512, 512, 25},   {1024, 1024, 1024, 15}, {2048, 2048, 2048, 9},
                           {4096, 4096, 4096, 5}, {1000, 1017, 999, 15},  {512, 16384, 512, 9}};

// Of captured steps, whose right operands are weights.
constexpr Size kSteps[] = {{4, 2048, 8192, 15},  {8, 2048, 8192, 15},   {16, 2048, 8192, 15},
                           {32, 2048, 8192, 15}, {128, 2048, 8192, 15}, {1024, 1024, 1024, 15},
                           {128, 14336, 4096, 9}};

// The few functions of OpenBLAS that are used, by its C interface.
struct OpenBlas {
  void (*sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                const float* a, int lda, const float* b, int ldb, float beta, float* c,
                int ldc) = nullptr;
  void (*set_num_threads)(int) = nullptr;
  char* (*corename)() = nullptr;
  explicit operator bool() const { return sgemm != nullptr; }
};

OpenBlas LoadOpenBlas() {
  OpenBlas out;
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return out;
  out.set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  out.corename = reinterpret_cast<char* (*)()>(dlsym(library, "openblas_get_corename"));
  out.sgemm = reinterpret_cast<decltype(out.sgemm)>(dlsym(library, "cblas_sgemm"));
  return out;
}

void Multiply(const OpenBlas& blas, const Tensor& a, const Tensor& b, float* c) {
  constexpr int kRowMajor = 101, kNoTranspose = 111;
  const int m = static_cast<int>(a.size(0)), k = static_cast<int>(a.size(1)),
            n = static_cast<int>(b.size(1));
  blas.sgemm(kRowMajor, kNoTranspose, kNoTranspose, m, n, k, 1, a.Data<float>(), k, b.Data<float>(),
             n, 0, c, n);
}

Tensor Random(int64_t rows, int64_t columns) {
  return Tensor::Uniform(-1, 1, {rows, columns}).Realize();
}

void Check(const OpenBlas& blas, int64_t m, int64_t n, int64_t k) {
  const Tensor a = Random(m, k), b = Random(k, n);
  const std::vector<float> x = a.ToVector<float>(), y = b.ToVector<float>();
  std::vector<double> want(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; ++j) {
        want[i * n + j] += static_cast<double>(x[i * k + l]) * y[l * n + j];
      }
    }
  }
  CheckClose("matmul", a.MatMul(b).ToVector<float>(), want, 1e-4);
  if (!blas) return;
  std::vector<float> c(m * n);
  Multiply(blas, a, b, c.data());
  CheckClose("matmul by OpenBLAS", c, want, 1e-4);
}

Row Measure(const OpenBlas& blas, const Size& size) {
  const Tensor a = Random(size.m, size.k), b = Random(size.k, size.n);
  Tensor c = Tensor::Zeros({size.m, size.n}).Contiguous().Realize();
  float* room = const_cast<float*>(c.Data<float>());
  const int64_t before = GetRuntimeStats().kernels_run;
  int64_t runs = 0;
  const auto ours = [&] {
    ++runs;
    Tensor y = a.MatMul(b);
    y.Realize();
  };
  std::function<void()> peer;
  if (blas) peer = [&] { Multiply(blas, a, b, room); };
  const std::vector<Times> ms = Interleaved({ours, peer}, size.rounds, /*settled=*/true);
  Row row;
  row.name = size.name();
  row.ours_ms = ms[0].median;
  const auto product = [](int64_t x, int64_t y) { return static_cast<double>(x * y); };
  row.bytes = 4 * (product(size.m, size.k) + product(size.k, size.n) + product(size.m, size.n));
  row.flops = 2 * product(size.m, size.k) * static_cast<double>(size.n);
  row.kernels = (GetRuntimeStats().kernels_run - before) / runs;
  if (blas) {
    row.peer = absl::StrCat("OpenBLAS, ", blas.corename != nullptr ? blas.corename() : "");
    row.peer_ms = ms[1].median;
  } else {
    row.peer = "OpenBLAS, not installed";
    row.note =
        "recorded elsewhere (2 cores, Sapphire Rapids): 177 GFLOP/s at 1024, 218 at 2048; to "
        "measure it here: apt-get install libopenblas0";
  }
  return row;
}

std::string StepName(const Size& size) {
  return absl::StrCat("matmul_step_", size.m, "x", size.k, "x", size.n);
}

// A step that multiplies by a weight, which it keeps in panels, beside the same that lays them out
// at each call.
Row MeasureStep(const OpenBlas& blas, const Size& size) {
  const Tensor a = Random(size.m, size.k), b = Random(size.k, size.n);
  const auto product = [b](const Tensor& x) { return x.MatMul(b); };
  Jit kept(product), anew(product);
  CheckClose("matmul in a step", kept.One({a}).ToVector<float>(), a.MatMul(b).ToVector<double>(),
             1e-4);
  {
    SetFlagForTest none(Flag::kKeepMib, "0");
    anew({a});
  }
  Tensor c = Tensor::Zeros({size.m, size.n}).Contiguous().Realize();
  float* room = const_cast<float*>(c.Data<float>());
  std::function<void()> peer;
  if (blas) peer = [&] { Multiply(blas, a, b, room); };
  const std::vector<Times> ms =
      Interleaved({[&] { kept({a}); }, [&] { anew({a}); }, peer}, size.rounds, /*settled=*/true);
  Row row;
  row.name = StepName(size);
  row.ours_ms = ms[0].median;
  row.bytes = 4.0 * static_cast<double>(size.m * size.k + size.k * size.n + size.m * size.n);
  row.flops = 2.0 * static_cast<double>(size.m) * static_cast<double>(size.k * size.n);
  row.kernels = 1;
  if (blas) {
    row.peer = absl::StrCat("OpenBLAS, ", blas.corename != nullptr ? blas.corename() : "");
    row.peer_ms = ms[2].median;
  } else {
    row.peer = "OpenBLAS, not installed";
  }
  row.note = absl::StrFormat("panels laid out at each call: %.2f ms, %.2f of that", ms[1].median,
                             ms[0].median / ms[1].median);
  return row;
}

}  // namespace

std::vector<Row> MatMulRows(const Wanted& wanted) {
  std::vector<Row> out;
  OpenBlas blas;
  const auto load = [&] {
    if (!out.empty()) return;
    blas = LoadOpenBlas();
    if (blas.set_num_threads != nullptr) blas.set_num_threads(CorePool::Global().cores());
    Check(blas, 37, 65, 129);
    Check(blas, 128, 96, 256);
  };
  for (const Size& size : kSizes) {
    if (!wanted(size.name())) continue;
    load();
    out.push_back(Measure(blas, size));
  }
  for (const Size& size : kSteps) {
    if (!wanted(StepName(size))) continue;
    load();
    out.push_back(MeasureStep(blas, size));
  }
  return out;
}

}  // namespace tessera::benchmarks
