// Matrix products: shapes, what fuses into them, and how fast they run.
#include <chrono>
#include <cstdio>
#include <iostream>

#include "graph/tensor.h"

using namespace tessera;

int main() {
  Tensor a = Tensor::From({{1, 2, 3}, {4, 5, 6}}, kFloat32);
  Tensor b = Tensor::From({{1, 0}, {0, 1}, {1, 1}}, kFloat32);
  std::cout << "a @ b = " << a.MatMul(b) << "\n";

  // Leading axes are batches and broadcast, as in NumPy: two matrices times one.
  Tensor batch = Stack({a, a * 10});
  std::cout << "shape of a batch: " << batch.MatMul(b).shape().ToString() << "\n";

  // Bias and activation join the product's kernel.
  Tensor layer = (a.MatMul(b) + Tensor::From({-5, 1}, kFloat32)).Relu();
  std::cout << "relu(a @ b + bias) = " << layer << "\n";

  // A mistake is an exception where it is written, not where it would run.
  try {
    a.MatMul(a);
  } catch (const Error& e) {
    std::cout << "a @ a: " << e.what() << "\n";
  }

  // Speed. The first run compiles; the second one finds its plan and its kernel.
  const int64_t n = 512;
  Tensor x = Tensor::Rand({n, n}).Realize(), y = Tensor::Rand({n, n}).Realize();
  for (const char* run : {"first", "second"}) {
    const auto start = std::chrono::steady_clock::now();
    Tensor z = x.MatMul(y);
    z.Realize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%s run of %lld x %lld: %.1f ms, %.1f GFLOP/s\n", run, static_cast<long long>(n),
                static_cast<long long>(n), took.count() * 1e3, 2e-9 * n * n * n / took.count());
  }
  // x @ (y 1) equals (x @ y) 1 up to rounding.
  const Tensor ones = Tensor::Ones({n, 1});
  const double wrong = (x.MatMul(y).MatMul(ones) - x.MatMul(y.MatMul(ones))).Abs().Max().Item();
  std::cout << "associative within 0.1: " << (wrong < 0.1 ? "yes" : "no") << "\n";
}
