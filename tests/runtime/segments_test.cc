// Networks of equal layers, planned in segments: the plans and the values are those of the whole.
#include "runtime/segments.h"

#include <algorithm>
#include <random>

#include "graph/tensor_internal.h"
#include "runtime/runtime.h"
#include "schedule/schedule.h"
#include "tests/graph/tensor_testing.h"
#include "tools/benchmarks/transformer.h"

namespace tessera {
namespace {

using benchmarks::GivenBuffer;
using benchmarks::Transformer;
using benchmarks::TransformerShape;

Device Cpu() { return Device(Place("CPU", 0)); }
Targets TwoCores() {
  Target target;
  target.cores = 2;
  target.cache_bytes = 8 << 20;
  return Targets(Cpu(), target);
}

std::vector<UOp> NodesOf(const std::vector<Tensor>& tensors) {
  std::vector<UOp> out;
  for (const Tensor& t : tensors) out.push_back(t.uop());
  return out;
}

// How many segments there are, and how many of them are equal to an earlier one.
std::pair<int, int> Segments(const std::vector<Tensor>& tensors) {
  const std::vector<UOp> roots = NodesOf(tensors);
  const std::vector<Segment> found = FindSegments(MakePlanKey(roots));
  const auto repeats = [](const Segment& s) { return s.like >= 0; };
  return {static_cast<int>(found.size()),
          static_cast<int>(std::count_if(found.begin(), found.end(), repeats))};
}

Tensor Weight(int64_t rows, int64_t columns, uint32_t seed) {
  return Tensor::From(Draw(rows * columns, seed), {rows, columns}).Cast(kFloat32).Realize();
}

// The values after realising all of them at once are those of the reference evaluator.
void ExpectValues(std::vector<Tensor> tensors) {
  std::vector<std::vector<double>> expected;
  for (const Tensor& t : tensors) expected.push_back(Values(t));
  Tensor::Realize(absl::MakeSpan(tensors));
  for (size_t i = 0; i < tensors.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectNear(tensors[i].Cast(kFloat64).ToVector<double>(), expected[i], 2e-5);
  }
}

TEST(Segments, PlanIsThatOfTheWhole) {
  const TransformerShape shape{
      .dim = 64, .layers = 9, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 320, .context = 64};
  Transformer model(shape, Cpu());
  const Tensor token = GivenBuffer({1}, kInt32, Cpu());
  std::vector<Tensor> tensors = {model.Step(token, Variable("position", 0, 63))};
  for (const Tensor& cache : model.Caches()) tensors.push_back(cache);
  const auto [segments, repeated] = Segments(tensors);
  EXPECT_GE(repeated, 12);  // both halves of most layers
  EXPECT_LE(segments - repeated, 5);

  const std::vector<UOp> roots = NodesOf(tensors);
  const PlanKey key = MakePlanKey(roots);
  const Targets targets = TwoCores();
  IndexForms forms;
  ASSERT_OK_AND_ASSIGN(Plan whole,
                       ScheduleKernels(WithParams(roots, key), targets, Cpu(), false, {}, forms));
  ASSERT_OK_AND_ASSIGN(Plan joined, ScheduleSegments(key, FindSegments(key), targets, Cpu()));
  std::vector<std::string> names[2];
  int p = 0;
  for (Plan* plan : {&whole, &joined}) {
    ASSERT_OK(FinishPlan(*plan, targets, {}));
    for (const PlanStep& s : plan->steps) names[p].push_back(plan->kernels[s.kernel].name);
    std::sort(names[p].begin(), names[p].end());
    ++p;
  }
  EXPECT_EQ(names[0], names[1]);
  EXPECT_EQ(whole.kernels.size(), joined.kernels.size());
  ASSERT_EQ(joined.arenas.size(), 1u);
  EXPECT_LE(joined.arenas[0].second, whole.arenas[0].second * 1.05);
  ASSERT_EQ(whole.roots.size(), joined.roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const PlanBuffer& a = whole.buffers[whole.roots[i]];
    const PlanBuffer& b = joined.buffers[joined.roots[i]];
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.slot, b.slot);
    EXPECT_EQ(a.bytes, b.bytes);
  }
}

constexpr int64_t kRows = 3, kWidth = 8;

// Layers of a residual network, with what `extra` adds to each.
template <typename Extra>
Tensor Network(Tensor x, int layers, Extra extra) {
  const auto weight = [&](uint32_t seed) {
    const Tensor w = Weight(kWidth, kWidth, seed);
    return x.device().is_sharding() ? w.Shard({"CPU:0", "CPU:1"}, 0) : w;
  };
  for (int l = 0; l < layers; ++l) {
    const Tensor w = weight(10 + l), v = weight(50 + l);
    const Tensor norm = x / ((x * x).Mean({1}, true) + 1e-3).Sqrt();
    const Tensor inner = norm.MatMul(w).Tanh() + extra(l, norm);
    x = x + inner.MatMul(v) * 0.5;
  }
  return x;
}
Tensor NoExtra(int, const Tensor&) { return Tensor::Zeros({kRows, kWidth}); }

TEST(Segments, LayersWithSharedTables) {
  const Tensor x = Weight(kRows, kWidth, 1);
  const Tensor table = (Tensor::Arange(kWidth).Cast(kFloat32) * 0.3).Cos();
  const auto extra = [&](int, const Tensor& n) { return n * table + n.Flip({1}) * table.Exp(); };
  const Tensor out = Network(x, 12, extra);
  EXPECT_GE(Segments({out}).second, 8);
  ExpectValues({out});
}

TEST(Segments, RootsAnywhere) {
  const Tensor x = Weight(kRows, kWidth, 1);
  std::vector<Tensor> tensors = {x};
  const auto extra = [&](int l, const Tensor& n) {
    if (l % 5 == 2) tensors.push_back(n.Sum({0}));
    if (l == 4) tensors.push_back(n.Transpose());
    return n;
  };
  const Tensor out = Network(x, 12, extra);
  tensors.push_back(out);
  tensors.push_back(out.Transpose());
  tensors.push_back(tensors[1]);
  EXPECT_GE(Segments(tensors).second, 3);
  ExpectValues(tensors);
}

// What a layer writes is read by that layer alone: cut. Where a later one reads it, or what it
// overwrote, the scheduler sees both.
TEST(Segments, CachesThatLayersWrite) {
  enum Late { kNothing, kNew, kOld };
  for (Late late : {kNothing, kNew, kOld}) {
    SCOPED_TRACE(late);
    const Tensor x = Weight(kRows, kWidth, 1);
    std::vector<Tensor> caches;
    for (int l = 0; l < 18; ++l) caches.push_back(Weight(2 * kRows, kWidth, 100 + l));
    std::vector<Tensor> old;
    for (const Tensor& c : caches) old.push_back(c + 0.0);
    const auto extra = [&](int l, const Tensor& n) {
      caches[l].SliceAxis(0, {1, 1 + kRows}).Assign(n);
      Tensor seen = caches[l].Sum({0}, true);
      if (late == kNew && l == 9) seen = seen + caches[0].Sum();
      if (late == kOld && l == 9) seen = seen + old[0].Sum();
      return seen.Expand({kRows, kWidth});
    };
    std::vector<Tensor> tensors = {Network(x, 18, extra)};
    for (const Tensor& c : caches) tensors.push_back(c);
    EXPECT_GE(Segments(tensors).second, late == kNothing ? 8 : 3);
    ExpectValues(tensors);
  }
}

TEST(Segments, NotWhereCuttingCouldMatter) {
  const Tensor x = Weight(kRows, kWidth, 1);
  EXPECT_GE(Segments({Network(x, 12, NoExtra)}).second, 8);
  // Draws are counted through the whole graph; elsewhere is no one place.
  const auto draw = [](int, const Tensor& n) { return n * Tensor::Rand({kRows, kWidth}); };
  EXPECT_EQ(Segments({Network(x, 12, draw)}).first, 0);
  EXPECT_EQ(Segments({Network(x.Shard({"CPU:0", "CPU:1"}, 0), 12, NoExtra)}).first, 0);
  const auto elsewhere = [](int l, const Tensor& n) {
    return l == 3 ? (n.To("CPU:1") * 2).To("CPU:0") : n;
  };
  EXPECT_EQ(Segments({Network(x, 12, elsewhere)}).first, 0);
}

// Layers that differ here and there, with links over them.
TEST(Segments, RandomNetworks) {
  int cut = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto one_of = [&](int n) { return static_cast<int>(random() % n); };
    const int layers = 8 + one_of(6);
    std::vector<Tensor> caches, tensors, links;
    for (int c = 0; c < 4; ++c) caches.push_back(Weight(kRows, kWidth, 200 + c));
    const Tensor mask = Weight(1, kWidth, 300) > 0;
    const auto extra = [&](int l, const Tensor& n) {
      Tensor out = Where(mask, n, n * 0.5);
      switch (one_of(10)) {
        case 0:
          links.push_back(n);
          break;
        case 1:
          if (!links.empty()) out = out + links[one_of(static_cast<int>(links.size()))];
          break;
        case 2:
          caches[one_of(4)].Assign(n);
          break;
        case 3:
          out = out + caches[one_of(4)];
          break;
        case 4:
          caches[one_of(4)].SliceAxis(0, {l % kRows, l % kRows + 1}).Assign(n.Max({0}, true));
          break;
        case 5:
          tensors.push_back(n.Sum({1}));
          break;
        default:
          break;
      }
      return out;
    };
    tensors.push_back(Network(Weight(kRows, kWidth, seed), layers, extra));
    for (const Tensor& c : caches) tensors.push_back(c);
    cut += Segments(tensors).second > 0;
    ExpectValues(tensors);
  }
  EXPECT_GE(cut, 20);
}

}  // namespace
}  // namespace tessera
