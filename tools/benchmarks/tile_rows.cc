// Rows of products by the CPU's matrix unit, where it has one: beside a loop of nothing but
// products of tiles, as many as ours need.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/prelude.h"
#include "graph/panel.h"
#include "graph/status.h"
#include "graph/tensor.h"
#include "runtime/core_pool.h"
#include "runtime/host_target.h"
#include "runtime/jit.h"
#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {
namespace {

constexpr int64_t kFlopsOfTile = 2 * 16 * 16 * 32;

// Four sums, so that none waits for the last product that it took up. The tiles are those of a
// product's first numbers: of zeros a Xeon took 0.45 to 0.7 of the time.
constexpr char kText[] = R"(RT_KERNEL(tile_peak) {
  const rt_tiles tiles;
  const rt_bf16* numbers = (const rt_bf16*)rt_buffers[0];
  auto a = rt_tile_load<0>(numbers, 0, 32);
  auto b = rt_tile_load<1>(numbers, 0, 32);
  auto c0 = rt_tile_zero<2, rt_f32>();
  auto c1 = rt_tile_zero<3, rt_f32>();
  auto c2 = rt_tile_zero<4, rt_f32>();
  auto c3 = rt_tile_zero<5, rt_f32>();
  for (rt_i64 i = rt_vars[0] * rt_worker / rt_workers; i < rt_vars[0] * (rt_worker + 1) / rt_workers; ++i) {
    c0 = rt_tile_dot(a, b, c0);
    c1 = rt_tile_dot(a, b, c1);
    c2 = rt_tile_dot(a, b, c2);
    c3 = rt_tile_dot(a, b, c3);
  }
}
)";

// So many products of the tile of these numbers by itself, shared by the cores.
void MultiplyTiles(const CpuKernel& kernel, std::vector<uint16_t>& numbers, int64_t products) {
  struct Call {
    CpuKernelFn fn;
    void* numbers;
    int64_t rounds;
  } call{kernel.fn, numbers.data(), products / 4};
  const CoreFn run = [](void* arg, int64_t worker, int64_t workers) {
    const Call& c = *static_cast<const Call*>(arg);
    c.fn(&c.numbers, &c.rounds, nullptr, worker, workers);
  };
  CorePool::Global().Run(run, &call, CorePool::Global().cores());
}

}  // namespace

Row TileRow(const std::string& name, int64_t n) {
  const auto kernel = GetKernel(absl::StrCat(PreludeFor(kText), kText), "tile_peak", HostTarget());
  CHECK(kernel.ok(), name, ": ", kernel.status().message());
  const Tensor a = Tensor::Rand({n, n}).Cast(kBFloat16).Realize();
  const Tensor b = Tensor::Rand({n, n}).Cast(kBFloat16).Realize();
  std::vector<uint16_t> first = a.Slice({{0, 1}, {0, 512}}).Bitcast(kUInt16).ToVector<uint16_t>();
  const auto size = static_cast<double>(n);
  const double flops = 2 * size * size * size;
  const auto products = static_cast<int64_t>(flops / kFlopsOfTile);
  return Measured(
      name, 6 * size * size, flops, [&] { return a.MatMul(b); }, "tile products alone",
      [&] { MultiplyTiles(**kernel, first, products); });
}

std::vector<Row> TileRows(const Wanted& wanted) {
  std::vector<Row> out;
  if (!HasTiles(kBFloat16, HostTarget())) return out;
  for (const int64_t n : {512, 1024, 2048}) {
    const std::string name = absl::StrCat("matmul_tiles_", n);
    if (wanted(name)) out.push_back(TileRow(name, n));
  }
  return out;
}

}  // namespace tessera::benchmarks
