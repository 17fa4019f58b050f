// What tools/bench runs as a process of its own: the first result, timed from the start; or, asked
// for "rates", what its cores reach (see CoreRows).
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "graph/tensor.h"
#include "runtime/peak.h"

namespace {

void PrintRates() {
  constexpr int64_t kSide = 1024;
  const tessera::Tensor a = tessera::Tensor::Uniform(-1, 1, {kSide, kSide}).Realize(),
                        b = tessera::Tensor::Uniform(-1, 1, {kSide, kSide}).Realize();
  double best = 0;  // seconds; the loop's rate is that of its fastest run, too
  for (int i = 0; i < 12; ++i) {
    const auto start = std::chrono::steady_clock::now();
    a.MatMul(b).Realize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = i == 0 ? took.count() : std::min(best, took.count());
  }
  std::printf("%.9g %.9g\n", 2.0 * kSide * kSide * kSide / best, tessera::MeasuredPeak().flops);
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) {
    PrintRates();
  } else {
    std::printf("%.6f\n", tessera::Tensor::Rand({4}).Sum().Item());
  }
}
