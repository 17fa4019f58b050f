// Capture and replay: the same values as without, at every call, and errors where it cannot be.
#include "runtime/capture.h"

#include <chrono>
#include <thread>

#include "runtime/replay.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<double> Read(const Tensor& t) { return t.ToVector<double>(); }
Tensor Row(std::vector<float> v) { return Tensor::From(v); }

// The step called five times through a Jit and five times without, on inputs made anew.
template <typename Step, typename Inputs>
void ExpectSame(Step step, Inputs inputs) {
  Jit jit(step);
  std::vector<std::vector<Tensor>> kept;
  for (int i = 0; i < 5; ++i) kept.push_back(jit(inputs(i)));
  for (int i = 0; i < 5; ++i) {
    const std::vector<Tensor> expected = step(inputs(i));
    ASSERT_EQ(kept[i].size(), expected.size());
    for (size_t r = 0; r < expected.size(); ++r) {
      EXPECT_EQ(Read(kept[i][r]), Read(expected[r])) << "call " << i << ", result " << r;
    }
  }
  EXPECT_EQ(jit.captures(), 1);
}

TEST(Capture, FiveReplaysEqualFiveCalls) {
  const Tensor w = Tensor::Rand({8, 4}).Realize();
  ExpectSame(
      [w](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor h = in[0].MatMul(w).Relu() + in[1];
        return {h, h.Sum({0}), h.Softmax(-1)};
      },
      [](int i) -> std::vector<Tensor> {
        return {Tensor::Arange(24, kFloat32).Reshape({3, 8}) * (i + 1),
                Row({1, 2, 3, static_cast<float>(i)})};
      });
}

TEST(Capture, FixedAritiesAndResults) {
  Jit add([](const Tensor& a, const Tensor& b) { return a + b; });
  EXPECT_THAT(Read(add.One({Row({1, 2}), Row({3, 4})})), ElementsAre(4, 6));
  EXPECT_THAT(Read(add.One({Row({5, 6}), Row({3, 4})})), ElementsAre(8, 10));
  Jit none([] { return std::vector<Tensor>{Tensor::Arange(3)}; });
  EXPECT_THAT(Read(none({})[0]), ElementsAre(0, 1, 2));
  Tensor total = Row({0, 0}).Realize();
  Jit nothing([&](Tensor x) { total.Assign(total + x); });
  for (int i = 0; i < 3; ++i) nothing({Row({1, 2})});
  EXPECT_THAT(Read(total), ElementsAre(3, 6));
  EXPECT_ERROR(add({Row({1})}), "Jit", "takes 2 tensors, and 1 are passed");
  EXPECT_ERROR(none.One({Row({1})}), "Jit", "takes 0 tensors");
}

TEST(Capture, ResultsAreNotOverwrittenByTheNextCall) {
  Jit step([](const Tensor& x) { return x * 2; });
  const Tensor first = step.One({Row({1, 2})});
  const Tensor second = step.One({Row({3, 4})});
  EXPECT_THAT(Read(first), ElementsAre(2, 4));
  EXPECT_THAT(Read(second), ElementsAre(6, 8));
}

TEST(Capture, AnInputOrCapturedTensorReturnedIsItself) {
  Tensor kept = Row({1, 2}).Realize();
  Jit step([&](const Tensor& x) { return std::vector<Tensor>{x, kept, Tensor(x.uop())}; });
  for (int i = 0; i < 2; ++i) {
    const Tensor x = Row({5, 6});
    const auto out = step({x});
    EXPECT_TRUE(out[0].Is(x));
    EXPECT_TRUE(out[1].Is(kept));
    EXPECT_THAT(Read(out[2]), ElementsAre(5, 6));
  }
}

TEST(Capture, InputsInAVectorThatChanges) {
  Jit step([](const std::vector<Tensor>& in) {
    Tensor sum = in[0];
    for (size_t i = 1; i < in.size(); ++i) sum = sum + in[i];
    return sum;
  });
  std::vector<Tensor> in = {Row({1}), Row({2})};
  EXPECT_THAT(Read(step.One(in)), ElementsAre(3));
  in[1] = Row({5});
  EXPECT_THAT(Read(step.One(in)), ElementsAre(6));
  EXPECT_EQ(step.captures(), 1);
  in.push_back(Row({10}));
  EXPECT_THAT(Read(step.One(in)), ElementsAre(16));
  EXPECT_EQ(step.captures(), 2);
}

TEST(Capture, OtherShapesAndDtypesAreCapturedBeside) {
  Jit step([](const Tensor& x) { return x.Sum(); });
  for (int round = 0; round < 2; ++round) {
    for (int n : {1, 7, 3, 0}) {
      EXPECT_THAT(Read(step.One({Tensor::Ones({n})})), ElementsAre(n));
    }
    EXPECT_THAT(Read(step.One({Tensor::Ones({7}, kInt32)})), ElementsAre(7));
  }
  EXPECT_EQ(step.captures(), 5);
}

TEST(Capture, RandomNumbersGoOnWithTheProcess) {
  const auto step = [](const Tensor& x) {
    return std::vector<Tensor>{x + Tensor::Rand({5}), Tensor::RandN({3}),
                               Tensor::RandInt(0, 100, {4})};
  };
  Jit jit(step);
  const Tensor zero = Tensor::Zeros({5}).Realize();
  const auto draw = [&](auto& fn) {
    std::vector<std::vector<double>> out;
    for (uint64_t seed : {7, 8}) {
      Tensor::ManualSeed(seed);
      for (int i = 0; i < 3; ++i) {
        for (const Tensor& t : fn({zero})) out.push_back(Read(t));
        out.push_back(Read(Tensor::Rand({2})));
      }
    }
    return out;
  };
  const auto without = [&](const std::vector<Tensor>& in) { return step(in[0]); };
  const auto expected = draw(without);
  EXPECT_EQ(draw(jit), expected);
  EXPECT_NE(expected[0], expected[4]);
  EXPECT_EQ(jit.captures(), 1);
}

TEST(Capture, KvCacheAtASymbolicPosition) {
  const Variable position("position", 0, 15);
  Tensor cache = Tensor::Zeros({16, 4}).Realize();
  Tensor cache2 = Tensor::Zeros({16, 4}).Realize();
  Jit step([&](const Tensor& q, const Tensor& k) {
    cache.Slice({{position, position + 1}}).Assign(k);
    const Tensor seen = cache.Slice({{0, position + 1}});
    const Tensor scores = q.MatMul(seen.T()).Softmax(-1);
    return scores.MatMul(seen);
  });
  for (int i = 0; i < 16; ++i) {
    const Tensor q = (Tensor::Arange(4, kFloat32) * 0.1 + i * 0.01).Reshape({1, 4});
    const Tensor k = (Tensor::Arange(4, kFloat32) * -0.2 + i * 0.3).Reshape({1, 4});
    const Tensor got = step.One({q, k}, {{"position", i}});
    cache2.Slice({{i, i + 1}}).Assign(k);
    const Tensor seen = cache2.Slice({{0, i + 1}});
    ExpectNear(Read(got), Read(q.MatMul(seen.T()).Softmax(-1).MatMul(seen)), 1e-5);
    EXPECT_EQ(Read(cache), Read(cache2)) << i;
  }
  EXPECT_EQ(step.captures(), 1);
}

TEST(Capture, SymbolicResultsHaveNumbersForExtents) {
  const Variable n("n", 1, 7);
  Jit step([&](const Tensor& x) {
    return std::vector<Tensor>{x.Slice({{0, n}}) * 2, x.Slice({{0, n}}).Sum()};
  });
  const Tensor x = Row({1, 2, 3, 4, 5, 6, 7}).Realize();
  for (int i : {1, 7, 3}) {
    const auto out = step({x}, {{"n", i}});
    EXPECT_THAT(Sizes(out[0]), ElementsAre(i));
    EXPECT_EQ(Read(out[0]).back(), 2 * i);
    EXPECT_THAT(Read(out[1]), ElementsAre(i * (i + 1) / 2));
  }
}

TEST(Capture, VariablesWithoutJit) {
  const Variable n("n", 1, 7);
  const Tensor x = Row({1, 2, 3, 4, 5, 6, 7});
  const Tensor part = x.Slice({{0, n}}) + 1;
  for (int i : {2, 7, 1}) {
    const Tensor got = Realize({part}, {{"n", i}})[0];
    EXPECT_THAT(Sizes(got), ElementsAre(i));
    EXPECT_EQ(Read(got).back(), i + 1);
  }
  EXPECT_ERROR(Realize({part}, {}), "Realize", "'n' has no value");
  EXPECT_ERROR(Realize({part}, {{"n", 8}}), "Realize", "'n' is 8, outside its bounds 1 to 7");
  EXPECT_ERROR(Realize({part}, {{"n", 1}, {"m", 2}}), "Realize", "'m', which is no Variable");
  EXPECT_ERROR(Tensor(part).Sum().Item(), "Item", "'n' has no value");
  Tensor y = Tensor::Zeros({4}).Realize();
  const Variable at("at", 0, 3);
  for (int i : {2, 0}) {
    y.Slice({{at, at + 1}}).Assign(i + 5);
    Realize({y}, {{"at", i}});
  }
  EXPECT_THAT(Read(y), ElementsAre(5, 0, 7, 0));
}

TEST(Capture, BadValues) {
  const Variable n("n", 1, 7);
  Tensor calls = Tensor::Zeros({1}).Realize();
  Jit step([&](const Tensor& x) {
    calls.Assign(calls + 1);
    return x.Slice({{0, n}}).Sum();
  });
  const Tensor x = Row({1, 2, 3, 4, 5, 6, 7});
  EXPECT_ERROR(step({x}), "Jit", "'n' has no value");
  EXPECT_ERROR(step({x}, {{"n", 0}}), "Jit", "'n' is 0, outside its bounds 1 to 7");
  EXPECT_ERROR(step({x}, {{"n", 1}, {"k", 0}}), "Jit", "'k', which is no Variable");
  EXPECT_THAT(Read(calls), ElementsAre(0));  // nothing has run
  EXPECT_THAT(Read(step.One({x}, {{"n", 2}})), ElementsAre(3));
  EXPECT_THAT(Read(calls), ElementsAre(1));
}

TEST(Capture, ReadingInTheStepIsAnError) {
  Tensor w = Row({1, 2}).Realize();
  const std::string advice = "return the tensor from the step";
  const auto read = [](auto fn) { Jit([fn](const Tensor& x) { fn(x); })({Row({1})}); };
  EXPECT_ERROR(read([](Tensor x) { x.Item(); }), "Item", advice);
  EXPECT_ERROR(read([](Tensor x) { x.ToVector<float>(); }), "ToVector", advice);
  EXPECT_ERROR(read([](Tensor x) { x.Realize(); }), "Realize", advice);
  EXPECT_ERROR(read([](Tensor x) { x.Data<float>(); }), "Data", advice);
  EXPECT_ERROR(read([](Tensor x) { Realize({x}, {}); }), "Realize", advice);
  EXPECT_ERROR(read([](Tensor x) { (void)(std::ostringstream() << x); }), "operator<<", advice);
  EXPECT_ERROR(read([&](Tensor) { w.ToVector<float>(); }), "ToVector", advice);
  EXPECT_ERROR(read([](Tensor) { Tensor::ManualSeed(1); }), "ManualSeed", "before the step");
  EXPECT_THAT(Read(w), ElementsAre(1, 2));
}

TEST(Capture, AStepThatFailsLeavesNothingBehind) {
  Tensor w = Row({1, 2}).Realize();
  Jit step([&](const Tensor& x) {
    w.Assign(0);
    return x + Tensor::Zeros({3});
  });
  EXPECT_ERROR(step({Row({1, 2})}), "Add", "do not broadcast");
  EXPECT_THAT(Read(w), ElementsAre(1, 2));
  EXPECT_THAT(Read(step.One({Row({1, 2, 3})})), ElementsAre(1, 2, 3));
  EXPECT_THAT(Read(w), ElementsAre(0, 0));
}

TEST(Capture, StaleInputsAndCaptures) {
  Tensor w = Row({1, 2}).Realize();
  Jit step([&w](const Tensor& x) { return x + w; });
  EXPECT_ERROR(step({Tensor()}), "Jit", "input 0 is empty");
  Tensor moved = Row({1, 2});
  const Tensor to = std::move(moved);
  EXPECT_ERROR(step({moved}), "Jit", "input 0 is empty");
  EXPECT_ERROR(step({Tensor::Empty({2})}), "Jit", "was never given data");
  step({to});
  w = Row({3, 4});  // another tensor
  EXPECT_ERROR(step({to}), "Jit", "Assign to a captured tensor instead of replacing it");
  EXPECT_ERROR(Jit([](const Tensor&) { return Tensor(); })({to}), "Jit", "empty tensor");
}

TEST(Capture, TensorsThatEscape) {
  Tensor state = Row({1, 2}).Realize(), last;
  Jit replaces([&](const Tensor& x) { state = state + x; });
  EXPECT_ERROR(replaces({Row({1, 1})}), "Jit", "stored 1 tensor that it made");
  Jit stores([&](const Tensor& x) {
    last = x * 2;
    return last;
  });
  EXPECT_ERROR(stores({Row({1, 1})}), "Jit", "Assign to a tensor that exists outside");
}

TEST(Capture, InsideAnotherStepItIsAFunction) {
  Tensor w = Row({1, 1}).Realize();
  Jit inner([&](const Tensor& x) {
    w.Assign(w + x);
    return w * 2;
  });
  Jit outer([&](const Tensor& x) { return inner.One({x}) + 1; });
  EXPECT_THAT(Read(outer.One({Row({1, 2})})), ElementsAre(5, 7));
  EXPECT_THAT(Read(outer.One({Row({1, 2})})), ElementsAre(7, 11));
  EXPECT_THAT(Read(inner.One({Row({1, 2})})), ElementsAre(8, 14));
}

// GraphFuzz seed 1020.
TEST(Capture, AResultThatIsRealisedElsewhere) {
  const Tensor elsewhere = Tensor::Full({2}, 7.0).Realize();
  Jit step([](const Tensor& x) { return std::vector<Tensor>{Tensor::Full({2}, 7.0), x + 1}; });
  for (float i : {1.f, 2.f}) {
    const auto out = step({Row({i})});
    EXPECT_THAT(Read(out[0]), ElementsAre(7, 7));
    EXPECT_THAT(Read(out[1]), ElementsAre(i + 1));
    EXPECT_FALSE(out[0].Is(elsewhere));
  }
}

TEST(Capture, TensorsMadeInTheStep) {
  Jit step([](const Tensor& x) {
    Tensor table = Tensor::From({10, 20, 30});
    table.Slice({{1, 2}}).Assign(x);
    Tensor scratch = Tensor::Empty({3});
    scratch.Assign(table + 1);
    return std::vector<Tensor>{table, scratch, Tensor::From({1, 2})};
  });
  for (float i : {1.f, 2.f, 3.f}) {
    auto out = step({Row({i})});
    EXPECT_THAT(Read(out[0]), ElementsAre(10, i, 30));
    EXPECT_THAT(Read(out[1]), ElementsAre(11, i + 1, 31));
    EXPECT_THAT(Read(out[2]), ElementsAre(1, 2));
    out[2].Assign(0);
    out[2].Realize();
  }
}

TEST(Capture, NothingGrowsOverManyReplays) {
  Tensor w = Tensor::Zeros({8}).Realize();
  const Variable n("n", 1, 8);
  Jit step([&](const Tensor& x) {
    w.Assign(w * 0.5 + x);
    return std::vector<Tensor>{(w + Tensor::Rand({8})).Contiguous() * 2, w.Slice({{0, n}}) + 1};
  });
  const Tensor x = Tensor::Ones({8}).Realize();
  const Place place = x.device().place();
  // A simulated GPU takes its time over each kernel.
  const int replays = place.kind() == "SIM" ? 200 : 10000;
  int64_t nodes = 0, bytes = 0;
  for (int i = 0; i < replays; ++i) {
    const auto out = step({x}, {{"n", i % 8 + 1}});
    if (i != 10 && i != replays - 1) continue;
    Read(out[1]);
    const int64_t live = GetDevice(place).value()->Memory().live_bytes;
    if (i == 10) nodes = LiveNodes(), bytes = live;
    EXPECT_EQ(LiveNodes(), nodes);
    EXPECT_EQ(live, bytes);
  }
  EXPECT_NEAR(Read(w)[0], 2, 1e-6);
}

TEST(Capture, ThreadsReplayAtOnce) {
  const Tensor w = Tensor::Rand({16, 16}).Realize();
  const auto body = [w](const Tensor& x) { return x.MatMul(w).Softmax(-1).MatMul(w); };
  Jit shared(body);
  const Tensor x = Tensor::Rand({4, 16}).Realize();
  const std::vector<double> expected = Read(body(x));
  const int rounds = x.device().place().kind() == "SIM" ? 10 : 200;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Jit own(body);
      Tensor mine = Tensor::Zeros({4, 16}).Realize();
      Jit assigns([mine](const Tensor& y) mutable { mine.Assign(mine + y); });
      for (int i = 0; i < rounds; ++i) {
        wrong += Read(own.One({x})) != expected;
        wrong += Read(shared.One({x})) != expected;
        assigns({x});
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Capture, TheLastUsedAreKept) {
  int traced = 0;
  Jit step([&](const Tensor& x) {
    ++traced;
    return x;
  });
  const auto call = [&](int64_t n) {
    const Tensor x = Tensor::Empty({n}, kInt8, "NULL");
    EXPECT_EQ(step.One({x}).size(0), n);
    return traced;
  };
  constexpr int most = 64;
  for (int n = 1; n <= most; ++n) EXPECT_EQ(call(n), n);
  EXPECT_EQ(call(1), most);  // the one used last, from now on
  for (int n = 1; n <= 9; ++n) EXPECT_EQ(call(most + n), most + n);
  EXPECT_EQ(step.captures(), most);
  EXPECT_EQ(call(1), most + 9);
  EXPECT_EQ(call(11), most + 9);
  EXPECT_EQ(call(2), most + 10);
  EXPECT_EQ(step.captures(), most);
}

TEST(Capture, NullDevice) {
  const Variable n("n", 1, 8);
  Tensor cache = Tensor::Empty({8, 4}, kFloat32, "NULL");
  Jit step([&](const Tensor& x) {
    cache.Slice({{n - 1, n}}).Assign(x);
    return cache.Slice({{0, n}}).Sum({0});
  });
  const Tensor x = Tensor::Empty({1, 4}, kFloat32, "NULL");
  EXPECT_ERROR(step({x}, {{"n", 1}}), "Jit", "was never given data");
  const Tensor zero = Tensor::Zeros({1, 4}, kFloat32, "NULL");
  for (int i = 1; i <= 8; ++i) {
    EXPECT_EQ(step.One({zero}, {{"n", i}}).device(), Device("NULL"));
  }
}

TEST(Capture, AStepMayAskForItsCaptures) {
  std::vector<int> seen;
  std::unique_ptr<Jit> jit;
  jit = std::make_unique<Jit>([&](const Tensor& x) {
    seen.push_back(jit->captures());
    return x + 1;
  });
  EXPECT_EQ(jit->One({Tensor::From({1.f})}).Item(), 2);
  EXPECT_EQ(jit->One({Tensor::From({2.f})}).Item(), 3);
  EXPECT_EQ(jit->One({Tensor::From({2.f, 3.f})}).Sum().Item(), 7);
  EXPECT_THAT(seen, ::testing::ElementsAre(0, 1));
}

// The runtime's share of a kernel: the fastest call of a chain of kernels that do next to nothing.
TEST(Capture, OverheadOfAKernelSlow) {
  constexpr int kKernels = 200, kRounds = 200;
  for (const char* place : {"CPU", "NULL"}) {
    Jit step([](const Tensor& x) {
      Tensor y = x;
      for (int i = 0; i < kKernels; ++i) y = (y + 1).Contiguous();
      return y;
    });
    const Tensor x = Tensor::Zeros({8}, kFloat32).To(place).Contiguous();
    step({x});
    double least = 1e30;
    const int64_t before = GetRuntimeStats().kernels_run;
    for (int i = 0; i < kRounds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      step({x});
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      least = std::min(least, took.count());
    }
    EXPECT_EQ(GetRuntimeStats().kernels_run - before, int64_t{kKernels} * kRounds) << place;
    EXPECT_LT(least / kKernels, 2e-6) << place;
  }
}

}  // namespace
}  // namespace tessera
