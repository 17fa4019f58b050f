// A program over eight virtual devices beside the same on one: what sharding itself costs, as both
// have the same cores and the same data.
#include "graph/tensor.h"
#include "runtime/runtime.h"
#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {
namespace {

constexpr int64_t kPlaces = 8, kRows = 4096, kWidth = 1024;
constexpr int kRounds = 21;

Tensor Program(const Tensor& x, const Tensor& w, const Tensor& b) {
  return ((x * 2 + 1).Relu().Contiguous().MatMul(w) + b).Tanh();
}

Row Virtual8() {
  std::vector<Place> places;
  for (int i = 0; i < kPlaces; ++i) places.emplace_back("CPU", i);
  const Sharding rows(places, 0), whole(places, std::nullopt);
  const Tensor x = Tensor::Uniform(-1, 1, {kRows, kWidth}).Realize(),
               w = Tensor::Uniform(-1, 1, {kWidth, kWidth}).Realize(),
               b = Tensor::Uniform(-1, 1, {kWidth}).Realize();
  const Tensor xs = x.To(rows).Realize(), ws = w.To(whole).Realize(), bs = b.To(whole).Realize();
  const std::vector<float> one = Program(x, w, b).ToVector<float>();
  CheckClose("virtual_8", Program(xs, ws, bs).ToVector<float>(),
             std::vector<double>(one.begin(), one.end()), 1e-5);
  const int64_t before = GetRuntimeStats().kernels_run;
  Program(xs, ws, bs).Realize();
  Row row;
  row.name = "virtual_8";
  row.kernels = GetRuntimeStats().kernels_run - before;
  row.flops = kRows * kWidth * (2.0 * kWidth + 5);
  row.bytes = 4.0 * (2 * kRows * kWidth + kWidth * kWidth + kWidth);
  row.peer = "the same on one device";
  const std::vector<Times> times = Interleaved(
      {[&] { Program(xs, ws, bs).Realize(); }, [&] { Program(x, w, b).Realize(); }}, kRounds);
  row.ours_ms = times[0].median;
  row.peer_ms = times[1].median;
  row.note = "8 places, rows of 4096x1024; at least 0.87 is wanted";
  return row;
}

}  // namespace

std::vector<Row> ShardedRows(const Wanted& wanted) {
  std::vector<Row> out;
  if (wanted("virtual_8")) out.push_back(Virtual8());
  return out;
}

}  // namespace tessera::benchmarks
