// Plans of loops: what is computed once, what is repeated, and when memory is free.
#include "graph/loop.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "runtime/plan_key.h"
#include "schedule/schedule.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using Tensors = std::vector<Tensor>;

Tensor Input(const Dims& shape) { return Tensor::Empty(shape, kFloat32); }

Plan PlanOf(const Tensors& tensors) {
  Target target;
  target.cores = 2;
  target.cache_bytes = 8 << 20;
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
  const PlanKey key = MakePlanKey(roots);
  absl::StatusOr<Plan> plan = Schedule(WithParams(roots, key), target, Device(Place("CPU", 0)),
                                       /*on_meshes=*/false);
  EXPECT_OK(plan);
  return plan.ok() ? *std::move(plan) : Plan();
}

// The steps as letters: a kernel, a loop and its end, a copy.
std::string Kinds(const Plan& plan) {
  std::string out;
  for (const PlanStep& s : plan.steps) {
    out += s.kind == PlanStep::kKernel    ? 'k'
           : s.kind == PlanStep::kLoop    ? '('
           : s.kind == PlanStep::kEndLoop ? ')'
                                          : 'c';
  }
  return out;
}

// What each turn computes is a kernel within the loop, what none changes is one before it, and
// nothing is copied.
TEST(Loops, KernelsLieWhereTheyBelong) {
  const Tensor w = Input({8, 8}), x = Input({5, 4, 8}), h = Input({4, 8});
  const auto turn = [&](const Tensor& a, const Tensor& y) {
    const Tensor next = (y + a.MatMul(w.Sin())).Tanh();
    return Tensors{next, next * 2};
  };
  const Looped l = Loop(turn, {h}, {x});
  // The sine, the product, and both results in one kernel.
  EXPECT_EQ(Kinds(PlanOf({l.carried[0], l.stacked[0]})), "k(kk)");
  // Stacks that nobody asks for are not written.
  const Plan carried = PlanOf({l.carried[0]});
  ASSERT_EQ(carried.loops.size(), 1u);
  EXPECT_EQ(carried.loops[0].num_written, 2);
  // A view is read where it lies, and what is made of little is made in each turn.
  const auto views = [&](const Tensor& a, const Tensor& y) {
    return Tensors{a.MatMul(w.Transpose()) + y * (Tensor::Arange(8) < 3).Cast(kFloat32)};
  };
  EXPECT_EQ(Kinds(PlanOf({Loop(views, {h}, {x}).carried[0]})), "(k)");
  // What comes after the loop, and a loop after another.
  const Looped again = Loop(turn, {l.carried[0]}, {l.stacked[0]});
  EXPECT_EQ(Kinds(PlanOf({again.carried[0].Sum()})), "k(kk)(k)k");
}

TEST(Loops, LieWithinLoops) {
  const Tensor x = Input({3, 5, 4}), h = Input({4});
  const auto inner = [](const Tensor& a, const Tensor& y) { return Tensors{(a * y).Sin() + a}; };
  const auto outer = [&](const Tensor& a, const Tensor& rows) {
    return Tensors{Loop(inner, {a}, {rows}).carried[0] * 2};
  };
  const Plan plan = PlanOf({Loop(outer, {h}, {x}).carried[0]});
  EXPECT_EQ(Kinds(plan), "((k)k)");
  ASSERT_EQ(plan.loops.size(), 2u);
  EXPECT_NE(plan.loops[0].variable, plan.loops[1].variable);
}

// What a turn does not change is laid out in panels before the loop.
TEST(Loops, PanelsAreLaidOutOnce) {
  const Tensor w = Input({1024, 1024}), x = Input({5, 2048, 1024}), h = Input({2048, 1024});
  const auto turn = [&](const Tensor& a, const Tensor& y) { return Tensors{a.MatMul(w) + y}; };
  const Plan plan = PlanOf({Loop(turn, {h}, {x}).carried[0]});
  EXPECT_EQ(Kinds(plan), "k(k)");
  EXPECT_TRUE(absl::StartsWith(plan.kernels[plan.steps[0].kernel].name, "panels"));
  // What it does change is not.
  const auto changes = [&](const Tensor& a, const Tensor& b) {
    return Tensors{a.MatMul(b), b + 1};
  };
  const Plan changed = PlanOf({Loop(changes, {h, w}, {}, {.turns = 3}).carried[0]});
  EXPECT_EQ(Kinds(changed)[0], '(') << changed.ToString();
}

// A buffer that a loop shares with what is outside has its place during all turns.
TEST(Loops, MemoryIsHeldForAllTurns) {
  const Tensor w = Input({16, 16}), x = Input({5, 16, 16}), h = Input({16, 16});
  const auto inner = [&](const Tensor& a, const Tensor& y) {
    const Tensor b = a.MatMul(w.Cos());
    return Tensors{b.MatMul(b) + y.Unsqueeze(0), b.MatMul(a)};
  };
  const auto outer = [&](const Tensor& a, const Tensor& rows) {
    const Looped l = Loop(inner, {a.MatMul(a)}, {rows});
    return Tensors{l.carried[0].MatMul(l.stacked[0].Sum(0)), l.stacked[0].MatMul(a)};
  };
  const Looped l = Loop(outer, {h.MatMul(w)}, {x});
  const Tensor after = l.carried[0].MatMul(l.stacked[0].Sum({0, 1})).MatMul(h.Exp());
  const Plan plan = PlanOf({after.MatMul(w).MatMul(after)});
  const auto n = static_cast<int>(plan.steps.size());
  std::vector<std::pair<int, int>> loops;
  for (int s = 0; s < n; ++s) {
    if (plan.steps[s].kind == PlanStep::kLoop) {
      loops.emplace_back(s, static_cast<int>(EndOfLoop(plan, s)));
    }
  }
  ASSERT_EQ(loops.size(), 2u);
  // The steps by which a buffer is used, and all of a loop that is within them in part.
  std::vector<std::pair<int, int>> lives(plan.buffers.size(), {n, -1});
  for (int s = 0; s < n; ++s) {
    if (plan.steps[s].loop >= 0) continue;
    for (int b : plan.steps[s].buffers) {
      lives[b] = {std::min(lives[b].first, s), std::max(lives[b].second, s)};
    }
  }
  for (auto& [first, last] : lives) {
    if (last < 0) continue;
    for (int i = 0; i < 2; ++i) {
      for (const auto& [begin, end] : loops) {
        const bool meets = first <= end && begin <= last;
        const bool within = begin <= first && last <= end;
        if (!meets || within) continue;
        first = std::min(first, begin);
        last = std::max(last, end);
      }
    }
  }
  int temps = 0;
  for (size_t a = 0; a < lives.size(); ++a) {
    const PlanBuffer& x1 = plan.buffers[a];
    if (x1.kind != PlanBuffer::kTemp || lives[a].second < 0) continue;
    ++temps;
    for (size_t b = a + 1; b < lives.size(); ++b) {
      const PlanBuffer& x2 = plan.buffers[b];
      if (x2.kind != PlanBuffer::kTemp || lives[b].second < 0) continue;
      const bool together = lives[a].first <= lives[b].second && lives[b].first <= lives[a].second;
      const bool overlap = x1.offset < x2.offset + x2.bytes && x2.offset < x1.offset + x1.bytes;
      EXPECT_FALSE(together && overlap) << a << " and " << b << "\n" << plan.ToString();
    }
  }
  EXPECT_GE(temps, 8);
}

}  // namespace
}  // namespace tessera
