// Loops against the same turns written out: values and gradients, by the evaluator, eagerly and
// captured, in batches, on several places; every composed function as a turn.
#include "graph/evaluate.h"
#include "graph/grad.h"
#include "graph/unroll.h"
#include "graph/vmap.h"
#include "runtime/capture.h"
#include "tests/runtime/loop_testing.h"
#include "tests/support/check.h"
#include "tests/support/composite_rows.h"

namespace tessera {
namespace {

struct Case {
  std::string name;
  TensorFunction turn;
  Tensors carried, sequences;
  Tensors weights = {};  // that some turns capture
};

// On one place, or with rows on each of two.
std::vector<Case> Cases(bool sharded = false) {
  const auto placed = [sharded](const Tensor& t, std::optional<int> axis = {}) {
    if (!sharded) return t;
    const Mesh two({"CPU:0", "CPU:1"});
    return (axis ? t.Shard({"CPU:0", "CPU:1"}, *axis) : t.To(Sharding(two))).Realize();
  };
  const Tensor w = placed(Numbers({6, 6}, 3)), bias = placed(Numbers({6}, 4));
  const Tensor h = placed(Numbers({2, 6}, 5), 0), x = placed(Numbers({5, 2, 6}, 6), 1);
  std::vector<Case> out;
  out.push_back({"Recurrent",
                 [=](const Tensor& h, const Tensor& x) {
                   const Tensor next = (x + h.MatMul(w) + bias).Tanh();
                   return Tensors{next, next};
                 },
                 {h},
                 {x}});
  out.push_back({"TwoCarriedSwap",
                 [](const Tensor& a, const Tensor& b, const Tensor& x) {
                   return Tensors{b, a * 0.5 + x, a + b};
                 },
                 {h, h + 1},
                 {x}});
  out.push_back({"SameTwice",
                 [](const Tensor& a, const Tensor& b, const Tensor& x) {
                   const Tensor c = a.Sin() + b * x;
                   return Tensors{c, c, c, c};
                 },
                 {h, h + 1},
                 {x}});
  out.push_back({"CarriedStays",
                 [](const Tensor& a, const Tensor& b, const Tensor& x) {
                   return Tensors{a, b + a * x, a};
                 },
                 {h, h + 1},
                 {x}});
  out.push_back({"ConstantResults",
                 [=](const Tensor& a, const Tensor& x) {
                   return Tensors{Tensor::Ones({2, 6}), a, bias, Tensor::Full({3}, 2.0)};
                 },
                 {h},
                 {x}});
  out.push_back({"NothingCarried",
                 [=](const Tensor& x) {
                   return Tensors{x.MatMul(w).Softmax(-1), x.Sum()};
                 },
                 {},
                 {x}});
  out.push_back(
      {"NothingStacked",
       [=](const Tensor& a, const Tensor& x) { return Tensors{a * 0.9 + x.Sum(0).Unsqueeze(0)}; },
       {h},
       {x}});
  out.push_back({"Counter",
                 [](const Tensor& n, const Tensor& a, const Tensor& x) {
                   return Tensors{n + 1, Where(n % 2 == 0, a + x, a * x), n * n};
                 },
                 {Tensor::Full({}, 3, kInt32), h},
                 {x}});
  out.push_back({"Weights",
                 [=](const Tensor& a, const Tensor& x) {
                   const Tensor moved = w.Transpose().Unsqueeze(0).Expand({2, 6, 6});
                   return Tensors{a + x.Unsqueeze(1).MatMul(moved).Squeeze(1) * bias,
                                  x.MatMul(w.Flip({0})).Gelu()};
                 },
                 {h},
                 {x}});
  out.push_back({"ProductsOfWeights",
                 [=](const Tensor& a, const Tensor& x) {
                   const Tensor both = w.MatMul(w.Transpose() * bias);
                   return Tensors{(a.MatMul(both) + x).Tanh(), x * w.Sum(0)};
                 },
                 {h},
                 {x}});
  out.push_back({"Gathered",
                 [=](const Tensor& a, const Tensor& x) {
                   const Tensor row = x.ArgMax(-1);
                   return Tensors{a * 0.5 + w.IndexSelect(0, row), row};
                 },
                 {h},
                 {x}});
  out.push_back({"Reductions",
                 [](const Tensor& a, const Tensor& x) {
                   const Tensor y = (x - x.Mean(-1, true)) / (x.Var(-1, 1, true) + 0.1).Sqrt();
                   return Tensors{(a + y).CumSum(1) * 0.3, y.Sort(-1).values};
                 },
                 {h},
                 {x}});
  out.push_back({"TwoSequences",
                 [](const Tensor& a, const Tensor& x, const Tensor& y) {
                   return Tensors{a * y + x, x * y.Sum()};
                 },
                 {h},
                 {x, placed(Numbers({5, 1, 6}, 7))}});
  out.push_back({"Doubles",
                 [](const Tensor& a, const Tensor& x) {
                   return Tensors{(a * x).Cos(), a.Cast(kBFloat16) * 2};
                 },
                 {h.Cast(kFloat64)},
                 {x.Cast(kFloat64)}});
  // A value that stands in for something: its derivatives have derivatives of their own.
  out.push_back({"StandsIn",
                 [](const Tensor& a, const Tensor& x) {
                   const Tensor both = a * 0.5 + x, e = both.Detach().Exp();
                   return Tensors{a * e.WithDerivativeOf(e.Detach() * both) * 0.3, e};
                 },
                 {h},
                 {x}});
  for (Case& c : out) c.weights = {w, bias};
  return out;
}

constexpr const char* kCases[] = {
    "Recurrent",         "TwoCarriedSwap", "SameTwice",    "CarriedStays", "ConstantResults",
    "NothingCarried",    "NothingStacked", "Counter",      "Weights",      "Gathered",
    "ProductsOfWeights", "Reductions",     "TwoSequences", "Doubles",      "StandsIn"};

// By name: the cases' tensors are not made before a test runs.
class LoopCases : public ::testing::TestWithParam<const char*> {
 protected:
  static Case Of(const std::string& name) {
    const std::vector<Case> all = Cases();
    EXPECT_EQ(all.size(), std::size(kCases));
    return *std::find_if(all.begin(), all.end(), [&](const Case& c) { return c.name == name; });
  }
};

// The reference gives the same bits for loops and for their turns; it reads the host's memory.
void ExpectEvaluatesAsTurns(const Tensors& results) {
  std::vector<UOp> roots;
  for (const Tensor& t : results) roots.push_back(t.uop());
  const std::vector<HostArray> evaluated = ValueOrThrow(Evaluate(roots));
  const std::vector<UOp> written = ValueOrThrow(WithoutLoops(roots, false));
  const std::vector<HostArray> of_written = ValueOrThrow(Evaluate(written));
  for (size_t i = 0; i < roots.size(); ++i) {
    ASSERT_EQ(evaluated[i].bytes, of_written[i].bytes) << "result " << i;
  }
}

TEST_P(LoopCases, AreTheirTurns) {
  const Case c = Of(GetParam());
  for (bool backwards : {false, true}) {
    SCOPED_TRACE(backwards);
    const Tensors want = WrittenOut(c.turn, c.carried, c.sequences, 5, backwards);
    const Looped loop = Loop(c.turn, c.carried, c.sequences, {.backwards = backwards});
    const Tensors got = All(loop);
    ASSERT_EQ(got.size(), want.size());
    if ((c.carried.empty() ? c.sequences : c.carried)[0].device().ToString() == "CPU") {
      ExpectEvaluatesAsTurns(got);
    }
    for (size_t i = 0; i < got.size(); ++i) {
      ExpectNear(got[i], want[i], "result " + std::to_string(i),
                 want[i].dtype() == kBFloat16 ? 1e-2 : 1e-5);
    }
    Jit step([&](const Tensors& in) {
      const auto n = static_cast<std::ptrdiff_t>(c.carried.size());
      return All(Loop(c.turn, Tensors(in.begin(), in.begin() + n),
                      Tensors(in.begin() + n, in.end()), {.backwards = backwards}));
    });
    Tensors in = c.carried;
    in.insert(in.end(), c.sequences.begin(), c.sequences.end());
    for (int run = 0; run < 3; ++run) {
      const Tensors captured = step(in);
      for (size_t i = 0; i < got.size(); ++i) {
        ExpectNear(captured[i], got[i], "captured, result " + std::to_string(i));
      }
      for (Tensor& t : in) {
        if (t.dtype().IsFloat() && run == 0) t = (t + 0.0).Realize();
      }
    }
  }
}

TEST_P(LoopCases, HaveTheirGradients) {
  const Case c = Of(GetParam());
  Tensors inputs;
  for (const auto* tensors : {&c.carried, &c.sequences}) {
    for (const Tensor& t : *tensors) {
      if (t.dtype().IsFloat()) inputs.push_back(t);
    }
  }
  const auto grads = [&](bool written) {
    const Tensors results = written ? WrittenOut(c.turn, c.carried, c.sequences, 5)
                                    : All(Loop(c.turn, c.carried, c.sequences));
    return Grad(LossOf(results), inputs);
  };
  inputs.insert(inputs.end(), c.weights.begin(), c.weights.end());
  const Tensors got = grads(false), want = grads(true);
  // And again, before they are computed.
  const Tensors got2 = Grad(LossOf(got), inputs), want2 = Grad(LossOf(want), inputs);
  for (const auto& [first, second] : {std::pair(got, got2), std::pair(want, want2)}) {
    Tensors together = first;
    together.insert(together.end(), second.begin(), second.end());
    Tensor::Realize(absl::MakeSpan(together));
  }
  for (size_t i = 0; i < got.size(); ++i) {
    ExpectNear(got[i], want[i], "gradient " + std::to_string(i), 1e-4);
    ExpectNear(got2[i], want2[i], "second gradient " + std::to_string(i), 1e-3);
  }
}

TEST_P(LoopCases, OfBatches) {
  const Case c = Of(GetParam());
  std::vector<VmapInput> batched, shared_carried, shared_sequences;
  const auto two = [](const Tensor& t) { return Stack({t, t.Flip({0}) * 2}).Realize(); };
  size_t n = 0;
  for (const auto* tensors : {&c.carried, &c.sequences}) {
    for (const Tensor& t : *tensors) {
      const bool of_sequence = n++ >= c.carried.size();
      const bool can = t.rank() > 0;
      const VmapInput each = can ? VmapInput(two(t)) : Whole(t);
      batched.push_back(each);
      shared_carried.push_back(of_sequence ? each : Whole(t));
      shared_sequences.push_back(of_sequence ? Whole(t) : each);
    }
  }
  const auto run = [&](bool written) {
    return [&c, written](const Tensors& in) {
      const auto n = static_cast<std::ptrdiff_t>(c.carried.size());
      const Tensors carried(in.begin(), in.begin() + n), sequences(in.begin() + n, in.end());
      return written ? WrittenOut(c.turn, carried, sequences, 5)
                     : All(Loop(c.turn, carried, sequences));
    };
  };
  for (const auto& inputs : {batched, shared_carried, shared_sequences}) {
    const bool any = std::any_of(inputs.begin(), inputs.end(),
                                 [](const VmapInput& i) { return i.axis.has_value(); });
    if (!any) continue;
    const Tensors got = Vmap(run(false), inputs), want = Vmap(run(true), inputs);
    for (size_t i = 0; i < got.size(); ++i) {
      ExpectNear(got[i], want[i], "result " + std::to_string(i),
                 want[i].dtype() == kBFloat16 ? 1e-2 : 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Turns, LoopCases, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param); });

TEST(Loop, OnSeveralPlaces) {
  const std::vector<Case> on_one = Cases(), on_two = Cases(/*sharded=*/true);
  for (size_t i = 0; i < on_two.size(); ++i) {
    SCOPED_TRACE(on_two[i].name);
    const Case &one = on_one[i], &two = on_two[i];
    const Tensors want = All(Loop(one.turn, one.carried, one.sequences));
    const Tensors got = All(Loop(two.turn, two.carried, two.sequences));
    for (size_t k = 0; k < got.size(); ++k) {
      ExpectNear(got[k], want[k], "result " + std::to_string(k),
                 want[k].dtype() == kBFloat16 ? 1e-2 : 1e-5);
    }
    const auto gradient = [](const Case& c) {
      return Grad(LossOf(All(Loop(c.turn, c.carried, c.sequences))), {c.sequences[0]})[0];
    };
    ExpectNear(gradient(two), gradient(one), "gradient", 1e-4);
  }
}

// A turn of each composed function: two samples are two turns.
class LoopOfComposite : public ::testing::TestWithParam<CompositeRow> {};

void LoopIsItsTurns(const CompositeRow& row, bool compiled) {
  const std::vector<Tensors> samples = {CompositeInputs(row, {}, 0), CompositeInputs(row, {}, 1)};
  Tensors sequences;
  for (size_t i = 0; i < samples[0].size(); ++i) {
    sequences.push_back(Stack({samples[0][i], samples[1][i]}).Realize());
  }
  const Tensors got = Loop(row.fn, {}, sequences).stacked;
  const Tensors first = row.fn(samples[0]), second = row.fn(samples[1]);
  ASSERT_EQ(got.size(), first.size());
  for (size_t k = 0; k < got.size(); ++k) {
    const Tensor want = Stack({first[k], second[k]});
    const std::string what = "result " + std::to_string(k);
    if (compiled) {
      ExpectNear(got[k], want, what);
      continue;
    }
    EXPECT_EQ(got[k].shape(), want.shape()) << what;
    EXPECT_EQ(got[k].dtype(), want.dtype()) << what;
    const std::vector<std::vector<double>> values = ReferenceValues({got[k], want});
    ExpectNear(values[0], values[1], what);
  }
}

// What is said of the graph; LoopCases and the fuzzer of loops compile theirs.
TEST_P(LoopOfComposite, IsItsTurnsSlow) { LoopIsItsTurns(GetParam(), false); }
TEST_P(LoopOfComposite, IsItsTurnsCompiledLong) { LoopIsItsTurns(GetParam(), true); }

INSTANTIATE_TEST_SUITE_P(Functions, LoopOfComposite, ::testing::ValuesIn(CompositeRows()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
