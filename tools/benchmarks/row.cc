// Timing and checking.
#include "tools/benchmarks/row.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "graph/tensor.h"
#include "runtime/core_pool.h"
#include "runtime/runtime.h"

namespace tessera::benchmarks {

double Milliseconds(const std::function<void()>& fn) {
  const auto start = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  return values[middle];
}

std::vector<Times> Interleaved(const std::vector<std::function<void()>>& fns, int rounds,
                               bool settled) {
  constexpr auto kRest = std::chrono::milliseconds(15);
  constexpr double kWarmMs = 15;  // after a rest a core needs about 10 ms to be as fast as before
  constexpr int kLeastRounds = 3;
  constexpr double kEnoughMs = 60e3;  // some peers take minutes for what their chip has no unit for
  std::vector<std::vector<double>> times(fns.size());
  double all = 0;
  for (int round = 0; round <= rounds && (round <= kLeastRounds || all < kEnoughMs); ++round) {
    for (size_t i = 0; i < fns.size(); ++i) {
      if (!fns[i]) continue;
      if (settled) {
        std::this_thread::sleep_for(kRest);
        double warm = 0;
        while (warm < kWarmMs) warm += Milliseconds(fns[i]);
        all += warm;
      }
      const double ms = Milliseconds(fns[i]);
      all += ms;
      if (round > 0) times[i].push_back(ms);
    }
  }
  std::vector<Times> out;
  for (std::vector<double>& t : times) {
    const double least = t.empty() ? 0 : *std::min_element(t.begin(), t.end());
    out.push_back({Median(std::move(t)), least});
  }
  return out;
}

float OnCores(int64_t n, const std::function<float(int64_t begin, int64_t end)>& loop) {
  struct Call {
    int64_t n;
    const std::function<float(int64_t, int64_t)>& loop;
    std::vector<float> results;
  };
  CorePool& pool = CorePool::Global();
  const PlanScope scope;
  Call call{n, loop, std::vector<float>(pool.cores())};
  const CoreFn run = [](void* arg, int64_t worker, int64_t workers) {
    Call& c = *static_cast<Call*>(arg);
    c.results[worker] = c.loop(c.n * worker / workers, c.n * (worker + 1) / workers);
  };
  pool.Run(run, &call, pool.cores());
  return std::accumulate(call.results.begin(), call.results.end(), 0.0f);
}

void CheckClose(const std::string& what, const std::vector<float>& got,
                const std::vector<double>& want, double tolerance) {
  bool good = got.size() == want.size();
  for (size_t i = 0; good && i < got.size(); ++i) {
    good = std::abs(got[i] - want[i]) <= tolerance * (1 + std::abs(want[i]));
    if (!good) std::fprintf(stderr, "element %zu is %g, not %g\n", i, got[i], want[i]);
  }
  if (good) return;
  std::fprintf(stderr, "tools/bench: %s gives wrong values; its times would mean nothing\n",
               what.c_str());
  std::exit(1);
}

constexpr int kRoundsOfRow = 9;

Row Measured(const std::string& name, double bytes, double flops,
             const std::function<Tensor()>& ours, const std::string& peer,
             const std::function<void()>& step, bool settled) {
  const int64_t before = GetRuntimeStats().kernels_run;
  int64_t runs = 0;
  const std::vector<Times> ms = Interleaved({[&] {
                                               ++runs;
                                               Tensor y = ours();
                                               y.Realize();
                                             },
                                             step},
                                            kRoundsOfRow, settled);
  Row row;
  row.name = name;
  row.ours_ms = ms[0].median;
  row.peer = peer;
  if (step) row.peer_ms = ms[1].median;
  row.bytes = bytes;
  row.flops = flops;
  row.kernels = (GetRuntimeStats().kernels_run - before) / runs;
  return row;
}

}  // namespace tessera::benchmarks
