// Measuring the peak: loops compiled by our JIT for this very CPU, on the core pool.
#include "runtime/peak.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/strings/str_cat.h"
#include "runtime/core_pool.h"
#include "runtime/device.h"
#include "runtime/host_target.h"
#include "runtime/jit.h"

namespace tessera {
namespace {

// Past the caches of any one socket's share of a machine.
constexpr int64_t kBytes = int64_t{256} << 20;
constexpr int64_t kFmaRounds = 200000;

// One stream a core, or eight, which some memory systems need to be full. vars[0] is a number of
// vectors, a multiple of 64 times the workers.
constexpr char kText[] = R"(
typedef long i64;
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
#define ENTRY(name) extern "C" void name(void* const* buffers, const i64* vars, void*, i64 worker, i64 workers)
ENTRY(peak_read_one) {
  const i64 n = vars[0] / workers;
  const vec* a = (const vec*)buffers[0] + worker * n;
  vec x0 = {}, x1 = {}, x2 = {}, x3 = {};
  for (i64 i = 0; i < n; i += 4) x0 += a[i], x1 += a[i + 1], x2 += a[i + 2], x3 += a[i + 3];
  ((vec*)buffers[2])[worker] = x0 + x1 + x2 + x3;
}
ENTRY(peak_read) {
  const i64 n = vars[0] / workers, s = n / 8;
  const vec* a = (const vec*)buffers[0] + worker * n;
  vec x0 = {}, x1 = {}, x2 = {}, x3 = {}, x4 = {}, x5 = {}, x6 = {}, x7 = {};
  for (i64 i = 0; i < s; ++i) {
    x0 += a[i], x1 += a[i + s], x2 += a[i + 2 * s], x3 += a[i + 3 * s];
    x4 += a[i + 4 * s], x5 += a[i + 5 * s], x6 += a[i + 6 * s], x7 += a[i + 7 * s];
  }
  ((vec*)buffers[2])[worker] = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7;
}
ENTRY(peak_fill) {
  const i64 n = vars[0] / workers;
  vec* a = (vec*)buffers[0] + worker * n;
  for (i64 i = 0; i < n; ++i) a[i] = (vec){} + 1.0f;
}
ENTRY(peak_copy) {
  const i64 n = vars[0] / 2 / workers, s = n / 4;
  const vec* a = (const vec*)buffers[0] + worker * n;
  vec* b = (vec*)buffers[0] + vars[0] / 2 + worker * n;
  for (i64 i = 0; i < s; ++i) {
    __builtin_nontemporal_store(a[i], b + i);
    __builtin_nontemporal_store(a[i + s], b + i + s);
    __builtin_nontemporal_store(a[i + 2 * s], b + i + 2 * s);
    __builtin_nontemporal_store(a[i + 3 * s], b + i + 3 * s);
  }
}
ENTRY(peak_fma) {
#pragma clang fp contract(fast)
  const float* f = (const float*)buffers[1];
  const vec m = (vec){} + f[0], c = (vec){} + f[1];
  vec x0 = c, x1 = c, x2 = c, x3 = c, x4 = c, x5 = c, x6 = c, x7 = c, x8 = c, x9 = c, xa = c, xb = c;
  for (i64 i = 0; i < vars[0]; ++i) {
    x0 = x0 * m + c, x1 = x1 * m + c, x2 = x2 * m + c, x3 = x3 * m + c;
    x4 = x4 * m + c, x5 = x5 * m + c, x6 = x6 * m + c, x7 = x7 * m + c;
    x8 = x8 * m + c, x9 = x9 * m + c, xa = xa * m + c, xb = xb * m + c;
  }
  ((vec*)buffers[2])[worker] = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9 + xa + xb;
}
)";

// Seconds of the fastest of several runs.
double Fastest(const CpuKernel& kernel, void* const* buffers, int64_t variable, int runs) {
  struct Call {
    CpuKernelFn fn;
    void* const* buffers;
    int64_t variable;
  } call{kernel.fn, buffers, variable};
  const CoreFn run = [](void* arg, int64_t worker, int64_t workers) {
    const Call& c = *static_cast<const Call*>(arg);
    c.fn(c.buffers, &c.variable, nullptr, worker, workers);
  };
  CorePool& pool = CorePool::Global();
  const PlanScope scope;
  double best = 0;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pool.Run(run, &call, pool.cores());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = i == 0 ? took.count() : std::min(best, took.count());
  }
  return best;
}

Peak Measure() {
  const Target& target = HostTarget();
  const int width = target.vector_bytes;
  const std::string text = absl::StrCat("#define VECTOR_BYTES ", width, "\n", kText);
  const KernelRequest requests[] = {{text, "peak_fill"},
                                    {text, "peak_read_one"},
                                    {text, "peak_read"},
                                    {text, "peak_copy"},
                                    {text, "peak_fma"}};
  const auto kernels = CompileAll(requests, target);
  if (!kernels.ok()) return {};
  void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return {};
  madvise(data, kBytes, MADV_HUGEPAGE);
  const int64_t cores = CorePool::Global().cores();
  const float factors[] = {0.5f, 0.25f};
  std::vector<float> sums((cores + 1) * width);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(sums.data()) + width - 1) /
                                          width * width);
  void* buffers[] = {data, const_cast<float*>(factors), aligned};
  const int64_t vectors = kBytes / width / (64 * cores) * (64 * cores);
  const double moved = static_cast<double>(vectors * width);
  const auto seconds = [&](int kernel, int64_t variable, int runs) {
    return Fastest(*(*kernels)[kernel], buffers, variable, runs);
  };
  seconds(0, vectors, 1);  // pages that were never written would all be one page of zeros
  Peak peak;
  peak.read = moved / std::min(seconds(1, vectors, 4), seconds(2, vectors, 4));
  peak.copy = moved / seconds(3, vectors, 4);
  peak.flops =
      static_cast<double>(kFmaRounds * 12 * 2 * (width / 4) * cores) / seconds(4, kFmaRounds, 6);
  munmap(data, kBytes);
  return peak;
}

// By copies past the place's own caches.
Peak MeasureCopies(const Place& place) {
  constexpr int kCopies = 8, kRounds = 3;
  constexpr int64_t kCopied = kBytes / 2;
  const auto device = GetDevice(place);
  if (!device.ok() || !(*device)->Computes()) return {};
  auto from = (*device)->Allocate(kCopied), to = (*device)->Allocate(kCopied);
  if (!from.ok() || !to.ok()) return {};
  Peak peak;
  for (int round = 0; round < kRounds; ++round) {
    if (!(*device)->Wait().ok()) return {};
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCopies; ++i) {
      if (!(*device)->CopyWithin((*to)->data, (*from)->data, kCopied).ok()) return {};
    }
    if (!(*device)->Wait().ok()) return {};
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    peak.copy = std::max(peak.copy, 2.0 * kCopies * static_cast<double>(kCopied) / took.count());
  }
  from = to = nullptr;
  (*device)->Trim();
  return peak;
}

}  // namespace

const Peak& MeasuredPeak() {
  static const Peak peak = Measure();
  return peak;
}

const Peak& MeasuredPeak(const Place& place) {
  if (place.kind() == "CPU") return MeasuredPeak();
  static std::mutex mutex;
  static auto& peaks = *new absl::node_hash_map<Place, Peak>;
  const std::lock_guard lock(mutex);
  const auto [it, fresh] = peaks.try_emplace(place);
  if (fresh) it->second = MeasureCopies(place);
  return it->second;
}

PeakShare ShareOfPeak(const Peak& peak, double bytes_per_second, double flops_per_second) {
  const double memory = peak.bandwidth() > 0 ? bytes_per_second / peak.bandwidth() : 0;
  const double fma = peak.flops > 0 ? flops_per_second / peak.flops : 0;
  return {std::max(memory, fma), memory >= fma};
}

}  // namespace tessera
