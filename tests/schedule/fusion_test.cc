// Which kernels come of which expressions: fusion, joining, order, sharing and memory.
#include <gtest/gtest.h>

#include <random>

#include "graph/kernel_form.h"
#include "graph/tensor.h"
#include "runtime/plan_key.h"
#include "schedule/passes.h"
#include "schedule/schedule.h"
#include "tests/testing.h"

namespace tessera {
namespace {

Target TwoCores() {
  Target t;
  t.cores = 2;
  t.l2_bytes = 1 << 20;
  return t;
}

Tensor Input(const Dims& shape, DType dtype = kFloat32) { return Tensor::Empty(shape, dtype); }

Plan PlanOf(const std::vector<Tensor>& tensors, const Target& target = TwoCores()) {
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
  const PlanKey key = MakePlanKey(roots);
  absl::StatusOr<Plan> plan = Schedule(WithParams(roots, key), target, Device(Place("CPU", 0)),
                                       /*on_meshes=*/false);
  EXPECT_OK(plan);
  return plan.ok() ? *std::move(plan) : Plan();
}

int64_t TempBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const PlanBuffer& b : plan.buffers) bytes += b.kind == PlanBuffer::kTemp ? b.bytes : 0;
  return bytes;
}

size_t Steps(const std::vector<Tensor>& tensors) { return PlanOf(tensors).steps.size(); }

TEST(Fusion, ChainOfElementwiseOpsIsOneKernel) {
  Tensor x = Input({64, 64}), y = Input({64});
  EXPECT_EQ(Steps({((x + y) * 2 - x.Exp()).Relu().Tanh()}), 1u);
}

TEST(Fusion, MovementIsNoKernel) {
  Tensor x = Input({8, 6});
  EXPECT_EQ(Steps({x.Transpose().Reshape({3, 16}).Flip({0}).Pad({{1, 0}, {0, 2}}) + 1}), 1u);
}

TEST(Fusion, SoftmaxIsOneKernelWhereARowFits) {
  EXPECT_EQ(Steps({Input({512, 256}).Softmax()}), 1u);
  // Rows of 8 MiB stay in no cache: the maximum and the sum have buffers.
  EXPECT_GT(Steps({Input({64, 1 << 21}).Softmax()}), 1u);
}

// What lies across memory is not read again from a cache, but for a few rows.
TEST(Fusion, LongReductionsAcrossMemoryAreKernelsOfTheirOwn) {
  const Tensor x = Input({1024, 1024}), few = Input({32, 1 << 15}), small = Input({256, 256});
  EXPECT_EQ(Steps({x - x.Max({1}, true)}), 1u);
  EXPECT_EQ(Steps({x - x.Max({0}, true)}), 2u);
  EXPECT_EQ(Steps({x.T() - x.T().Max({1}, true)}), 2u);
  EXPECT_EQ(Steps({few - few.Max({0}, true)}), 1u);
  EXPECT_EQ(Steps({small - small.Max({0}, true)}), 1u);
}

// A long sum is in parts, each of which has a part of the steps; but of attention, whose scores
// nothing else reads, as they are wanted a row at a time.
TEST(Fusion, LongSumsOfWhatOthersReadAreInParts) {
  const Tensor scores = Input({64, 64}).MatMul(Input({64, 1 << 14}));
  const Tensor sum = scores.Softmax().MatMul(Input({1 << 14, 64}));
  EXPECT_EQ(Steps({sum}), 1u);
  // The scores, their softmax, the products of each part, and their sum.
  EXPECT_EQ(Steps({sum, scores}), 4u);
}

// 9 places fill half of two vectors of 8 lanes, 3,136 all of theirs, and 4 half of one. The larger
// weight is no cache's.
TEST(Fusion, ProductsOfFewColumnsEachAreOne) {
  const auto steps = [](int64_t images, int64_t side, int64_t channels) {
    ConvOptions options;
    options.padding = {1, 1};
    const Tensor x = Input({images, 128, side, side}), w = Input({channels, 128, 3, 3});
    return Steps({x.Conv2d(w, options)});
  };
  EXPECT_EQ(steps(8, 3, 512), 3u);
  EXPECT_EQ(steps(8, 3, 128), 1u);
  EXPECT_EQ(steps(8, 2, 128), 3u);
  EXPECT_EQ(steps(1, 3, 512), 1u);
  EXPECT_EQ(steps(8, 56, 512), 1u);
  EXPECT_EQ(steps(8, 2, 64), 1u);
}

// As the weight of [out, in, window] is read by rows of `in`, where it fills more than a cache; of
// one element of the window in any case.
TEST(Fusion, RowsThatLieAcrossMemoryAreLaidOut) {
  const auto steps = [](int64_t rows, absl::string_view equation) {
    const Tensor a = Input({300, rows, 8}), b = Input({300, 8, 512});
    return Steps({Einsum(equation, {a, b}).Relu()});
  };
  EXPECT_EQ(steps(256, "kiw,kwj->ij"), 2u);
  EXPECT_EQ(steps(32, "kiw,kwj->ij"), 1u);
  const Tensor one = Input({300, 256, 9}).Select(2, 4);
  EXPECT_EQ(Steps({Einsum("ki,kj->ij", {one, Input({300, 512})})}), 2u);
  // Rows in order, and side by side.
  EXPECT_EQ(Steps({Einsum("ikw,kwj->ij", {Input({256, 300, 8}), Input({300, 8, 512})})}), 1u);
  EXPECT_EQ(Steps({Einsum("kwi,kwj->ij", {Input({300, 8, 256}), Input({300, 8, 512})})}), 1u);
}

// As narrow as they were: the products of bf16 are.
TEST(Fusion, WhatProductsReadIsLaidOutAsNarrowAsItWas) {
  const Tensor a = Input({300, 256, 8}, kBFloat16), b = Input({300, 8, 512}, kBFloat16);
  const Plan plan = PlanOf({Einsum("kiw,kwj->ij", {a, b})});
  const auto is = [](const PlanBuffer& buffer) {
    return buffer.kind == PlanBuffer::kTemp && buffer.bytes == 300 * 256 * 8 * 2;
  };
  EXPECT_EQ(std::count_if(plan.buffers.begin(), plan.buffers.end(), is), 1);
}

TEST(Fusion, NormsAreOneKernel) {
  Tensor x = Input({128, 256}), w = Input({256}), b = Input({256});
  EXPECT_EQ(Steps({x.RmsNorm(w)}), 1u);
  EXPECT_EQ(Steps({x.LayerNorm(w, b)}), 1u);
  EXPECT_EQ(Steps({Input({1, 2048}).RmsNorm()}), 1u);
  const Tensor image = Input({4, 12, 9, 9}), channel = Input({12});
  EXPECT_EQ(Steps({image.GroupNorm(3, channel, channel)}), 1u);
  EXPECT_EQ(Steps({image.InstanceNorm()}), 1u);
}

// What only reshapes a value has no loops of its own, and no copy however many read it.
TEST(Fusion, ReshapesAreComputedInTheShapeOfTheirSource) {
  const Tensor x = Input({64, 3, 100}), y = (x - x.Mean({1, 2}, true)).Square();
  EXPECT_EQ(Steps({(y * y.Mean({1, 2}, true)).Reshape({192, 100})}), 1u);
  const Tensor w = Input({16, 16}).Reshape({4, 64}).Reshape({16, 16});
  std::vector<Tensor> products;
  for (int i = 0; i < 6; ++i) products.push_back(Input({16, 16}).MatMul(w.Reshape({1, 16, 16})));
  EXPECT_EQ(Steps(products), 6u);
}

// However many steps there are, they are the same few kernels.
TEST(Fusion, StepsOfEliminationAreTheSameKernels) {
  const Tensor m = Input({24, 24}), b = Input({24, 3});
  for (const Tensor& t :
       {m.Solve(b), m.SolveTriangular(b), m.SolveTriangular(b, true), m.Cholesky(), m.Det()}) {
    EXPECT_LE(PlanOf({t}).kernels.size(), 14u);
  }
  EXPECT_LE(PlanOf({m.Qr().first}).kernels.size(), 37u);
  EXPECT_LE(PlanOf({m.Eigh().second}).kernels.size(), 26u);
  EXPECT_LE(PlanOf({m.Svd().u}).kernels.size(), 56u);
  std::vector<Tensor> pieces;
  for (int i = 0; i < 320; ++i) pieces.push_back(Input({4, 8}));
  const Plan plan = PlanOf({Cat(pieces, 1)});
  EXPECT_EQ(plan.steps.size(), 11u);
  EXPECT_EQ(plan.kernels.size(), 2u);
}

// However many read it: each as it goes. What is read from memory first has a buffer.
TEST(Fusion, WhatIsMadeOfLoopsHasNoBuffer) {
  const Tensor at = Tensor::Arange(64) * 3 % 16, read = Input({64}, kInt64) * 3 % 16;
  std::vector<Tensor> by_loops, by_reading;
  for (int64_t rows = 1; rows <= 8; ++rows) {
    const Tensor x = Input({rows, 64});
    by_loops.push_back(Where(at < 8, x, x * 2));
    by_reading.push_back(Where(read < 8, x, x * 2));
  }
  EXPECT_EQ(TempBytes(PlanOf(by_loops)), 0);
  EXPECT_GT(TempBytes(PlanOf(by_reading)), 0);
}

TEST(Fusion, MatMulTakesBiasAndActivation) {
  Tensor x = Input({32, 64}), w = Input({64, 48}), b = Input({48});
  EXPECT_EQ(Steps({(x.MatMul(w) + b).Relu()}), 1u);
}

TEST(Fusion, MatMulOfComputedOperandKeepsIt) {
  // Each element of the operand is read 512 times: it is computed once.
  Tensor x = Input({64, 64}), w = Input({64, 512});
  EXPECT_EQ(Steps({x.Exp().MatMul(w)}), 2u);
  // Of a long sum as well: it is computed, then the products of each part, and their sum.
  const Tensor deep = Input({128, 1 << 14});
  EXPECT_EQ(Steps({deep.MatMul(Input({1 << 14, 512}))}), 2u);
  EXPECT_EQ(Steps({deep.Exp().MatMul(Input({1 << 14, 512}))}), 3u);
  EXPECT_EQ(Steps({(deep * 2).Linear(Input({512, 1 << 14}))}), 3u);
}

// What many columns would round anew is rounded before; what few do, or what is widened, is not.
TEST(Fusion, WhatProductsRoundForManyColumnsIsRoundedBefore) {
  const auto steps = [](int64_t rows, int64_t columns, DType from, DType to) {
    return Steps({Input({rows, 512}, from).Cast(to).MatMul(Input({512, columns}, to))});
  };
  EXPECT_EQ(steps(64, 512, kFloat32, kBFloat16), 2u);
  EXPECT_EQ(steps(64, 512, kFloat32, kFloat16), 2u);
  EXPECT_EQ(steps(1, 512, kFloat32, kBFloat16), 1u);
  EXPECT_EQ(steps(64, 64, kFloat32, kBFloat16), 1u);
  EXPECT_EQ(steps(64, 512, kBFloat16, kFloat32), 1u);
}

// A chip's dot products of bytes take four along the sum; there are as many for whom that is laid
// out.
TEST(Fusion, BytesAreLaidOutAlongTheSum) {
  Target target = TwoCores();
  const auto steps = [&](int64_t rows, bool across, int64_t side = 64) {
    const Tensor w = across ? Input({side, side}, kInt8).T() : Input({side, side}, kInt8);
    return PlanOf({Input({rows, side}, kInt8).MatMul(w)}, target).steps.size();
  };
  EXPECT_EQ(steps(32, false), 1u);
  target.features = "+avx512vnni";
  EXPECT_EQ(steps(32, false), 2u);
  EXPECT_EQ(steps(32, true), 1u);
  EXPECT_EQ(steps(4, false), 1u);
  // One of two signed ones is raised for many, and the other's sums are taken off.
  EXPECT_EQ(steps(512, false, 512), 4u);
  EXPECT_EQ(steps(512, true, 512), 3u);
  target.features = "+dotprod";
  EXPECT_EQ(steps(512, true, 512), 1u);
}

TEST(Fusion, AttentionKeepsNoScores) {
  AttentionOptions causal;
  causal.causal = true;
  for (int64_t keys : {2, 100, 4096}) {
    const Tensor q = Input({8, 512, 64}), k = Input({8, keys, 64});
    const Plan plan = PlanOf({q.ScaledDotProductAttention(k, k * 2, causal)});
    EXPECT_EQ(plan.steps.size(), 1u) << keys;
    EXPECT_EQ(TempBytes(plan), 0) << keys;
  }
}

TEST(Fusion, JoinedOperandIsComputedOnce) {
  const Tensor x = Input({8, 512, 64}), k = Input({8, 256, 64});
  const Tensor halves = Cat({x.SliceAxis(2, {32, 64}) * -2, x.SliceAxis(2, {0, 32})}, 2);
  EXPECT_EQ(Steps({halves.MatMul(k.Transpose())}), 2u);
}

TEST(Fusion, ChainsEndWhereTheirRowsAreNeeded) {
  const Tensor q = Input({8, 512, 64}), k = Input({8, 256, 64});
  const Tensor scores = q.MatMul(k.Transpose()), weights = scores.Softmax();
  EXPECT_EQ(Steps({weights.MatMul(k)}), 1u);
  EXPECT_EQ(Steps({weights.MatMul(k), weights}), 3u);
  EXPECT_EQ(Steps({weights.MatMul(k), scores}), 3u);
  EXPECT_EQ(Steps({weights.MatMul(k), weights.MatMul(k * 2)}), 4u);
  // No row is reduced between these: each is better off with tiles of its own.
  EXPECT_EQ(Steps({q.MatMul(k.Transpose()).Relu().MatMul(k)}), 2u);
  // Rows longer than a cache, and fewer than there are cores.
  EXPECT_GT(Steps({Input({8, 4, 4}).ScaledDotProductAttention(Input({8, 1 << 20, 4}),
                                                              Input({8, 1 << 20, 4}))}),
            1u);
  EXPECT_GT(Steps({Input({1, 1, 64})
                       .ScaledDotProductAttention(Input({1, 9999, 64}), Input({1, 9999, 64}))}),
            1u);
}

TEST(Fusion, TwoReductionsOfTheSameDataAreOneKernel) {
  Tensor x = Input({128, 96});
  const Plan plan = PlanOf({x.Sum({1}), x.Max({1})});
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.kernels[0].num_outputs, 2);
}

TEST(Fusion, ADependentReductionOfAnotherShapeIsAKernelOfItsOwn) {
  Tensor x = Input({64, 64});
  Tensor s = x.Sum({1}, /*keepdim=*/true);
  EXPECT_EQ(Steps({(x / s).Sum({0})}), 2u);
}

TEST(Fusion, LargeReductionToOneElementOccupiesTheCores) {
  const Plan plan = PlanOf({Input({1024, 1024}).Sum()});
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.kernels[plan.steps[0].kernel].workers, 2);
}

TEST(Fusion, CopiesAreSteps) {
  const Plan plan = PlanOf({(Input({16}) + 1).To(Place("CPU", 1)) * 2});
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_EQ(plan.steps[1].kind, PlanStep::kCopy);
}

TEST(Fusion, NothingIsRunForAnEmptyTensor) { EXPECT_EQ(Steps({Input({0, 4}) + 1}), 0u); }

TEST(Kernels, IdenticalLayersAreLoweredOnce) {
  Tensor x = Input({4, 64});
  for (int layer = 0; layer < 8; ++layer) x = x.Linear(Input({64, 64})).Relu();
  const Plan plan = PlanOf({x});
  EXPECT_EQ(plan.steps.size(), 8u);
  EXPECT_EQ(plan.kernels.size(), 1u);
}

TEST(Kernels, LongChainsAreCut) {
  Tensor x = Input({4});
  for (int i = 0; i < 5000; ++i) x = x.Sin();
  const Plan plan = PlanOf({x});
  EXPECT_GT(plan.steps.size(), 4u);
  for (const PlanKernel& k : plan.kernels) EXPECT_LT(RangeSets(k.graph).order().size(), 2000u);
}

TEST(Kernels, SharedDoublingsStayLinear) {
  Tensor x = Input({4});
  for (int i = 0; i < 64; ++i) x = x + x;
  const Plan plan = PlanOf({x});
  EXPECT_EQ(plan.steps.size(), 1u);
  EXPECT_LT(RangeSets(plan.kernels[0].graph).order().size(), 200u);
}

TEST(Kernels, AdjacentLoopsBecomeOne) {
  const Plan plan = PlanOf({Input({16, 32, 8}) * 2});
  EXPECT_EQ(RangeSets(plan.kernels[0].graph).ranges().size(), 1u);
  const Plan apart = PlanOf({Input({16, 32}) * Input({32})});
  EXPECT_EQ(RangeSets(apart.kernels[0].graph).ranges().size(), 2u);
}

TEST(Order, JoinedGroupsNeverWaitForOneAnother) {
  // The products share x and become one kernel, which waits for d and so for b. The last value
  // reads y as b does, but it waits for that kernel: joined with b, each would wait for the other.
  Tensor x = Input({1000}), y = Input({1000});
  const Tensor a = (x + 1).Contiguous();
  const Tensor b = (y * 2).Contiguous();
  const Tensor d = b.Sum().Contiguous();
  const Tensor joined = (x * d).Contiguous();
  const Tensor last = (a * y).Contiguous();
  EXPECT_EQ(Steps({a, b, d, joined, last}), 4u);
}

TEST(Order, ReadersOfTheOldVersionComeFirst) {
  Tensor cache = Input({8}), x = Input({4});
  Tensor old = cache * 2;
  cache[Slice{0, 4}].Assign(x);
  const Plan plan = PlanOf({cache, old});
  ASSERT_EQ(plan.steps.size(), 2u);
  // The reader's output is not the cache's buffer, and it runs before the write.
  EXPECT_NE(plan.steps[0].buffers[0], plan.roots[0]);
  EXPECT_EQ(plan.steps[1].buffers[0], plan.roots[0]);
}

TEST(Order, AReaderOfBothVersionsGetsACopyOfTheOld) {
  Tensor cache = Input({8}), x = Input({8});
  Tensor old = cache * 1;
  cache.Assign(x);
  Tensor both = old + cache.Flip({0});
  EXPECT_GE(PlanOf({cache, both}).steps.size(), 2u);
}

TEST(Memory, TempsShareBytesWhereTheirLivesAreApart) {
  Tensor x = Input({64, 64});
  for (int i = 0; i < 8; ++i) x = x.MatMul(Input({64, 64}));
  const Plan plan = PlanOf({x});
  ASSERT_EQ(plan.arenas.size(), 1u);
  EXPECT_EQ(plan.arenas[0].second, 2 * 64 * 64 * 4);
}

TEST(Memory, LiveTempsNeverOverlap) {
  Tensor x = Input({64, 64});
  std::vector<Tensor> layers;
  for (int i = 0; i < 6; ++i) layers.push_back(x.MatMul(Input({64, 64})));
  Tensor sum = layers[0];
  for (int i = 1; i < 6; ++i) sum = sum.MatMul(layers[i]);
  const Plan plan = PlanOf({sum});
  std::vector<int> first(plan.buffers.size(), -1), last(plan.buffers.size(), -1);
  for (int s = 0; s < static_cast<int>(plan.steps.size()); ++s) {
    for (int b : plan.steps[s].buffers) {
      if (first[b] < 0) first[b] = s;
      last[b] = s;
    }
  }
  int temps = 0;
  for (size_t a = 0; a < plan.buffers.size(); ++a) {
    if (plan.buffers[a].kind != PlanBuffer::kTemp) continue;
    ++temps;
    for (size_t b = a + 1; b < plan.buffers.size(); ++b) {
      if (plan.buffers[b].kind != PlanBuffer::kTemp) continue;
      const bool together = first[a] <= last[b] && first[b] <= last[a];
      const auto &x1 = plan.buffers[a], &x2 = plan.buffers[b];
      const bool overlap = x1.offset < x2.offset + x2.bytes && x2.offset < x1.offset + x1.bytes;
      EXPECT_FALSE(together && overlap) << plan.ToString();
    }
  }
  EXPECT_GE(temps, 6);
}

// So many that they get their places in another way: none overlaps, and little is lost.
TEST(Memory, NorDoVeryManyTemps) {
  constexpr int kTemps = 10000, kSteps = 3000;
  std::mt19937 random(46);
  Plan plan;
  plan.steps.resize(kSteps);
  std::vector<std::pair<int, int>> lives;
  std::vector<int64_t> live_bytes(kSteps, 0);
  for (int b = 0; b < kTemps; ++b) {
    PlanBuffer buffer;
    buffer.kind = PlanBuffer::kTemp;
    buffer.device = Device(Place("CPU", 0));
    buffer.bytes = b % 90 == 1 ? 0 : 1 + static_cast<int64_t>(random() % 5000);
    plan.buffers.push_back(buffer);
    const int first = static_cast<int>(random() % kSteps);
    const int length = static_cast<int>(random() % (b % 50 == 0 ? kSteps : 20));
    lives.emplace_back(first, std::min(kSteps - 1, first + length));
    plan.steps[lives[b].first].buffers.push_back(b);
    plan.steps[lives[b].second].buffers.push_back(b);
    for (int s = lives[b].first; s <= lives[b].second; ++s) live_bytes[s] += buffer.bytes;
  }
  PlanMemory(plan);
  ASSERT_EQ(plan.arenas.size(), 1u);
  std::vector<std::vector<int>> alive(kSteps);
  for (int b = 0; b < kTemps; ++b) {
    EXPECT_GE(plan.buffers[b].offset, 0);
    if (plan.buffers[b].bytes == 0) continue;
    for (int s = lives[b].first; s <= lives[b].second; ++s) alive[s].push_back(b);
  }
  for (std::vector<int>& bs : alive) {
    const auto at = [&](int b) -> const PlanBuffer& { return plan.buffers[b]; };
    std::sort(bs.begin(), bs.end(), [&](int a, int b) { return at(a).offset < at(b).offset; });
    for (size_t i = 1; i < bs.size(); ++i) {
      ASSERT_LE(at(bs[i - 1]).offset + at(bs[i - 1]).bytes, at(bs[i]).offset);
    }
    if (!bs.empty()) {
      EXPECT_LE(at(bs.back()).offset + at(bs.back()).bytes, plan.arenas[0].second);
    }
  }
  const int64_t most = *std::max_element(live_bytes.begin(), live_bytes.end());
  EXPECT_LT(plan.arenas[0].second, most * 3 / 2);
}

// Rows that are looked up are read where they lie, whatever is computed of their bytes; and what a
// kernel reads is told as so many rows.
// What a gradient adds up before it is summed: a product each, for which there are tiles.
TEST(Fusion, SumsOfProductsAreProducts) {
  const Tensor a = Input({96, 1, 80}), b = Input({96, 1, 80}), w = Input({72, 80}),
               u = Input({72, 80}), rows = Input({96, 1, 80}), v = Input({80});
  const auto products = [](const Tensor& t) {
    int n = 0;
    const Plan plan = PlanOf({t});
    for (const PlanStep& step : plan.steps) {
      for (const UOp& node : TopoSort({&plan.kernels[step.kernel].graph, 1})) {
        n += node.is(Op::kReduce) && node.src(0).is(Op::kMul);
      }
    }
    return n;
  };
  EXPECT_EQ(products((a * w + b * u).Sum({2})), 2);
  EXPECT_EQ(products((a * w + (b * u + (a - b) * u)).Sum({2})), 3);
  EXPECT_EQ(products((a * w - b * u).Sum({2})), 0);     // they may cancel, element by element
  EXPECT_EQ(products((a * w + rows * v).Sum({2})), 0);  // the other is no product of matrices
  EXPECT_EQ(products((a * w + b * u).Max({2})), 0);
}

// Bytes are read as bytes, however many readers take them as longer integers.
TEST(Fusion, WhatIsWidenedForManyIsNotStored) {
  const Tensor x = Tensor::Zeros({1, 64}, kInt8).Realize(), wide = x.Cast(kInt32);
  std::vector<Tensor> sums;
  for (int i = 0; i < 6; ++i) {
    sums.push_back((wide * Tensor::Zeros({8 + i, 64}, kInt8).Realize().Cast(kInt32)).Sum({1}));
  }
  EXPECT_EQ(PlanOf(sums).kernels.size(), sums.size());
  const Tensor narrow = Tensor::Zeros({1, 64}).Realize().Cast(kInt8);
  sums.clear();
  for (int i = 0; i < 6; ++i) {
    sums.push_back((narrow * Tensor::Zeros({8 + i, 64}, kInt8).Realize()).Sum({1}));
  }
  EXPECT_EQ(PlanOf(sums).kernels.size(), sums.size() + 1) << "a shorter copy is kept";
}

// The same bytes by another name, of which many parts are taken.
TEST(Fusion, BitsThatManyTakeAreNotStored) {
  const Tensor bytes = Tensor::Zeros({64, 18}, kInt8).Realize().Bitcast(kUInt8);
  Tensor sum = bytes.SliceAxis(-1, {0, 1});
  for (int i = 1; i < 9; ++i) sum = sum * 3 + bytes.SliceAxis(-1, {i, i + 1});
  EXPECT_EQ(PlanOf({sum}).kernels.size(), 1u);
}

TEST(Fusion, ProductsReadTheRowsThatAreLookedUp) {
  constexpr int64_t kTables = 64, kRows = 96, kBlocks = 16, kBytes = 18;
  const Tensor table = Tensor::Zeros({kTables, kRows, kBlocks, kBytes}, kUInt8).Realize();
  const Tensor index = Tensor::From(std::vector<int32_t>{3, 9}).Realize();
  const Tensor x = Tensor::Rand({2, 1, kBlocks * 32}).Realize();
  const Tensor blocks = table.Take(index);
  const Tensor bytes = blocks.SliceAxis(-1, {2, 18});
  const Tensor scales = blocks.SliceAxis(-1, {0, 1}).Cast(kFloat32);
  const Tensor halves = Stack({bytes & 15, bytes >> 4}, -2).Flatten(-2).Cast(kFloat32);
  const Tensor product = x.MatMul((halves * scales).Flatten(-2).SwapAxes(-1, -2));
  const Plan plan = PlanOf({product});
  ASSERT_EQ(plan.kernels.size(), 1u);
  const int64_t read = 2 * kRows * kBlocks * kBytes;
  EXPECT_GE(plan.kernels[0].bytes.max(), read);
  EXPECT_LE(plan.kernels[0].bytes.max(), read + 4 * 2 * (kBlocks * 32 + kRows) + 256);
  // Two lookups in one table read the rows of both.
  const Tensor other = Tensor::From(std::vector<int32_t>{5, 7}).Realize();
  const Tensor wide = Tensor::Zeros({kTables, 64}).Realize();
  const Plan both = PlanOf({wide.Take(index) + wide.Take(other)});
  ASSERT_EQ(both.kernels.size(), 1u);
  EXPECT_EQ(both.kernels[0].bytes.max(), 3 * 2 * 64 * 4 + 2 * 8);
}

}  // namespace
}  // namespace tessera
