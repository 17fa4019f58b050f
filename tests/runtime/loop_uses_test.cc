// Loops within loops, of no turns, of a symbolic number; histories, other derivatives, assignments,
// other places; NaNs; what is refused.
#include "graph/derivatives.h"
#include "graph/grad.h"
#include "graph/loop_form.h"
#include "graph/shard_map.h"
#include "graph/vmap.h"
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tests/graph/tensor_testing.h"
#include "tests/runtime/loop_testing.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(Loop, WithinALoop) {
  const Tensor w = Numbers({4, 4}), x = Numbers({3, 5, 4}, 2), h = Numbers({4}, 3);
  const auto inner = [&](const Tensor& a, const Tensor& y) {
    const Tensor next = (a.Unsqueeze(0).MatMul(w).Squeeze(0) + y).Tanh();
    return Tensors{next, next * y};
  };
  const auto outer = [&](bool written) {
    return [&, written](const Tensor& a, const Tensor& rows) {
      const Tensors in =
          written ? WrittenOut(inner, {a}, {rows}, 5) : All(Loop(inner, {a}, {rows}));
      return Tensors{in[0] * 0.5 + a, in[1].Sum(0)};
    };
  };
  const Tensors inputs = {w, x, h};
  const auto both = [&](bool written) {
    return written ? WrittenOut(outer(true), {h}, {x}, 3) : All(Loop(outer(false), {h}, {x}));
  };
  const Tensors got = Grad(LossOf(both(false)), inputs), want = Grad(LossOf(both(true)), inputs);
  const Tensors got2 = Grad(LossOf(got), inputs), want2 = Grad(LossOf(want), inputs);
  for (size_t i = 0; i < 2; ++i) ExpectNear(both(false)[i], both(true)[i], "values");
  for (size_t i = 0; i < 3; ++i) {
    ExpectNear(got[i], want[i], "gradients", 1e-4);
    ExpectNear(got2[i], want2[i], "second gradients", 1e-3);
  }
  Jit step([&](const Tensor& h, const Tensor& x) { return All(Loop(outer(false), {h}, {x})); });
  for (int run = 0; run < 3; ++run) ExpectNear(step({h, x})[1], both(true)[1], "captured");
}

TEST(Loop, OfFewTurns) {
  const auto turn = [](const Tensor& a, const Tensor& b, const Tensor& x) {
    return Tensors{b + x, a.Sin(), a * b};
  };
  const Tensor a = Numbers({3}), b = Numbers({3}, 2);
  for (int64_t n : {0, 1, 2, 3}) {
    SCOPED_TRACE(n);
    const Tensor x = Numbers({n, 3}, 3);
    const Looped got = Loop(turn, {a, b}, {x});
    if (n == 0) {
      ExpectNear(got.carried[0], a, "nothing happens");
      EXPECT_EQ(got.stacked[0].shape(), Shape({0, 3}));
      EXPECT_THAT(got.stacked[0].ToVector<float>(), ::testing::IsEmpty());
      continue;
    }
    const Tensors want = WrittenOut(turn, {a, b}, {x}, n);
    for (size_t i = 0; i < 3; ++i) ExpectNear(All(got)[i], want[i], "result");
  }
  const Looped counted = Loop(
      [](const Tensor& t) {
        return Tensors{t * 2, t};
      },
      {Tensor::Ones({2})}, {}, {.turns = 10});
  EXPECT_EQ(counted.carried[0].ToVector<float>(), (std::vector<float>{1024, 1024}));
  EXPECT_EQ(counted.stacked[0].shape(), Shape({10, 2}));
}

TEST(Loop, OfASymbolicNumberOfTurns) {
  const Variable n("n", 0, 8);
  const Tensor x = Numbers({8, 3}), h = Numbers({3}, 2);
  const auto turn = [](const Tensor& a, const Tensor& y) { return Tensors{(a + y).Sin(), a * y}; };
  Jit step([&](const Tensor& x) {
    const Looped l = Loop(turn, {h}, {x.Shrink({{0, n}, {0, 3}})});
    return Tensors{l.carried[0], l.stacked[0].Sum(0)};
  });
  for (int64_t count : {0, 1, 5, 8, 2}) {
    SCOPED_TRACE(count);
    const Tensors got = step({x}, {{"n", count}});
    if (count == 0) {
      ExpectNear(got[0], h, "carried");
      ExpectNear(got[1], Tensor::Zeros({3}), "sum");
      continue;
    }
    const Tensors want = WrittenOut(turn, {h}, {x}, count);
    ExpectNear(got[0], want[0], "carried");
    ExpectNear(got[1], want[1].Sum(0), "sum");
  }
  const Looped l = Loop(turn, {h}, {x.Shrink({{0, n}, {0, 3}})});
  const Tensors eager = Realize({l.carried[0]}, {{"n", 4}});
  ExpectNear(eager[0], WrittenOut(turn, {h}, {x}, 4)[0], "eager");
}

TEST(Loop, OfASymbolicNumberWithinALoop) {
  const Variable n("n", 1, 6);
  const Tensor x = Numbers({3, 4}), rows = Numbers({8, 4}, 2), h = Numbers({4}, 3);
  const auto inner = [](const Tensor& a, const Tensor& y) { return Tensors{(a + y).Sin()}; };
  Jit step([&](const Tensor& start) {
    const auto outer = [&](const Tensor& a, const Tensor& y) {
      const Tensor some = rows.Shrink({{0, Extent(n) + Extent(1)}, {0, 4}}) * y;
      return Tensors{Loop(inner, {a}, {some}).carried[0] + y};
    };
    return Loop(outer, {start}, {x}).carried[0];
  });
  for (int64_t count : {1, 4, 6}) {
    const auto outer = [&](const Tensor& a, const Tensor& y) {
      return Tensors{WrittenOut(inner, {a}, {rows.SliceAxis(0, {0, count + 1}) * y}, count + 1)[0] +
                     y};
    };
    ExpectNear(step({h}, {{"n", count}})[0], WrittenOut(outer, {h}, {x}, 3)[0],
               std::to_string(count));
  }
}

TEST(Loop, IsOneNodeWhateverItsTurns) {
  const auto kernels = [](int64_t turns) {
    const Looped l = Loop(
        [](const Tensor& a) {
          return Tensors{a.MatMul(a).Tanh(), a.Sum()};
        },
        {Numbers({4, 4})}, {}, {.turns = turns});
    const std::vector<UOp> roots = {l.carried[0].uop(), l.stacked[0].uop()};
    const int64_t before = GetRuntimeStats().kernels_run;
    ValueOrThrow(RealizeNodes(roots, {}));
    return std::pair(TopoSort(roots).size(), GetRuntimeStats().kernels_run - before);
  };
  const auto [few_nodes, few_run] = kernels(10);
  const auto [many_nodes, many_run] = kernels(1000);
  EXPECT_EQ(few_nodes, many_nodes);
  EXPECT_EQ(few_run % 10, 0);
  EXPECT_EQ(many_run, 100 * few_run);
}

TEST(Loop, TrainsWhatItCaptures) {
  Tensor w = Numbers({3, 3});
  const Tensor x = Numbers({6, 3}, 2), h = Numbers({3}, 3);
  const auto turn = [&](const Tensor& a, const Tensor& y) {
    return Tensors{(a.Unsqueeze(0).MatMul(w).Squeeze(0) + y).Tanh()};
  };
  const Tensor want = Grad(WrittenOut(turn, {h}, {x}, 6)[0].Sum(), {w})[0];
  w.RequireGrad();
  Loop(turn, {h}, {x}).carried[0].Sum().Backward();
  ExpectNear(w.grad(), want, "gradient");
  // Views of it are asked for, too.
  const Tensor turned = w.Detach().Transpose();
  const auto of_view = [&](const Tensor& a, const Tensor& y) {
    return Tensors{(a.Unsqueeze(0).MatMul(turned).Squeeze(0) + y).Tanh()};
  };
  ExpectNear(Grad(Loop(of_view, {h}, {x}).carried[0].Sum(), {turned})[0],
             Grad(WrittenOut(of_view, {h}, {x}, 6)[0].Sum(), {turned})[0], "of a view");
}

TEST(Loop, KeepsTheHistoryOfWhatWasRead) {
  Tensor w = Numbers({3, 3});
  const Tensor x = Numbers({6, 3}, 2), h = Numbers({3}, 3);
  const auto turn = [&](const Tensor& a, const Tensor& y) {
    const Tensor next = (a.Unsqueeze(0).MatMul(w).Squeeze(0) + y).Tanh();
    return Tensors{next, next};
  };
  const Tensors written = WrittenOut(turn, {h}, {x}, 6);
  const Tensor want = Grad(written[0].Sum() + written[1].Square().Sum(), {w})[0];
  w.RequireGrad();
  Looped l = Loop(turn, {h}, {x});
  l.carried[0].Realize();  // one of two results, and then the loss
  Tensor loss = l.carried[0].Sum() + l.stacked[0].Square().Sum();
  EXPECT_TRUE(std::isfinite(loss.Item()));
  loss.Backward();
  ExpectNear(w.grad(), want, "gradient", 1e-4);
}

TEST(Loop, ConstantsHaveGradientsIfMarked) {
  const Tensor h = Numbers({3});
  const auto sum_with = [&](const Tensor& c) {
    return Loop([&](const Tensor& a) { return Tensors{(a * c).Sin() + a}; }, {h}, {}, {.turns = 4})
        .carried[0]
        .Sum();
  };
  const Tensor c = Tensor::Full({}, 0.5);
  EXPECT_ERROR(Grad(sum_with(c), {c}), "Grad", "mark it with RequireGrad");
  Tensor marked = Tensor::Full({}, 0.5);
  marked.RequireGrad();
  sum_with(marked).Backward();
  const double e = 1e-2;
  const double slope =
      (sum_with(Tensor::Full({}, 0.5 + e)).Item() - sum_with(Tensor::Full({}, 0.5 - e)).Item()) /
      (2 * e);
  EXPECT_NEAR(marked.grad().Item(), slope, 1e-2);
  // What is on no device yet has second ones, too.
  const Tensor all = Tensor::Full({4, 3}, 0.5);
  const auto turn = [&](const Tensor& a, const Tensor& y) {
    return Tensors{(a * y).Sin() + all[{1}]};
  };
  const auto second = [&](const Tensor& result) {
    return Grad(Grad(result.Sum(), {all})[0].Sin().Sum(), {all})[0];
  };
  ExpectNear(second(Loop(turn, {h}, {all}).carried[0]), second(WrittenOut(turn, {h}, {all}, 4)[0]),
             "second", 1e-4);
}

// Loops that read one another's results within a turn, and before it.
TEST(Loop, HasItsOwnItemsAmongOthers) {
  const Tensor h = Numbers({2}), x = Numbers({3, 2}, 2);
  const auto grow = [](const Tensor& u) { return Tensors{(u * 1.1).Sin()}; };
  const auto turn = [&](const Tensor& a, const Tensor& row) {
    const Tensor first = Loop(grow, {a}, {}, {.turns = 3}).carried[0];
    const auto reads = [&](const Tensor& u, const Tensor& v) {
      return Tensors{u * 0.5 + v + first};
    };
    const Tensor second = Loop(reads, {row}, {x}).carried[0];
    return Tensors{Loop(grow, {second}, {}, {.turns = 3}).carried[0] + row};
  };
  const Tensors inputs = {h, x};
  const Tensor got = Loop(turn, {h}, {x}).carried[0], want = WrittenOut(turn, {h}, {x}, 3)[0];
  const Tensors by = Grad(got.Sum(), inputs), wanted = Grad(want.Sum(), inputs);
  ExpectNear(got, want, "values");
  for (size_t i = 0; i < 2; ++i) ExpectNear(by[i], wanted[i], "gradients", 1e-4);
  // A chain of equal loops: no loop lies in another, however many there are.
  Tensor chain = h, written = h;
  for (int i = 0; i < 70; ++i) {
    const Tensor before = chain, before_written = written;
    const auto next = [](const Tensor& of) {
      return [of](const Tensor& u) { return Tensors{(u + of).Sin()}; };
    };
    chain = Loop(next(before), {h}, {}, {.turns = 2}).carried[0];
    written = WrittenOut(next(before_written), {h}, {}, 2)[0];
  }
  const Tensor by_h = Grad(chain.Sum(), {h})[0], wanted_h = Grad(written.Sum(), {h})[0];
  ExpectNear(chain, written, "chain", 1e-4);
  ExpectNear(by_h, wanted_h, "gradient of a chain", 1e-3);
}

TEST(Loop, OfOneNumberOfTurnsAfterAnother) {
  const Tensor h = Numbers({3});
  for (int64_t turns = 1; turns < 7; ++turns) {
    const auto turn = [](const Tensor& a) { return Tensors{(a + 1).Sin(), a}; };
    const Tensors got = All(Loop(turn, {h}, {}, {.turns = turns}));
    const Tensors want = WrittenOut(turn, {h}, {}, turns);
    for (size_t i = 0; i < 2; ++i) ExpectNear(got[i], want[i], std::to_string(turns));
  }
}

TEST(Loop, GoesWhereWhatItCapturesIs) {
  const Tensor w = Numbers({3, 3}).To("CPU:1").Realize();
  const auto turn = [](const Tensor& weight) {
    return [weight](const Tensor& a) { return Tensors{a.MatMul(weight) + 1}; };
  };
  const Tensor got = Loop(turn(w), {Tensor::Zeros({2, 3})}, {}, {.turns = 4}).carried[0];
  EXPECT_EQ(got.device().ToString(), "CPU:1");
  // Constants that a turn gives as well, whatever the default is.
  const auto gives = [](const Tensor& a) { return Tensors{a * 2, Tensor::Full({3}, 2.0)}; };
  const Tensor h = Numbers({3}).To("CPU:1").Realize();
  const Tensor all = Loop(gives, {h}, {}, {.turns = 4}).stacked[0] + h;
  ExpectNear(all.To("CPU:0"), (h + 2).To("CPU:0").Expand({4, 3}), "constants");
  ExpectNear(got, WrittenOut(turn(w), {Tensor::Zeros({2, 3})}, {}, 4)[0], "values");
}

TEST(Loop, OtherDerivatives) {
  const Tensor x = Numbers({4, 3}), h = Numbers({3}, 2), along = Numbers({3}, 3);
  const auto turn = [](const Tensor& a, const Tensor& y) { return Tensors{(a * y).Sin() + a}; };
  const auto looped = [&](const Tensor& a) { return Loop(turn, {a}, {x}).carried[0]; };
  const auto written = [&](const Tensor& a) { return WrittenOut(turn, {a}, {x}, 4)[0]; };
  ExpectNear(Jacobian(looped, {h})[0], Jacobian(written, {h})[0], "Jacobian");
  ExpectNear(Jvp(looped, {h}, {along}).derivatives[0], Jvp(written, {h}, {along}).derivatives[0],
             "Jvp");
}

TEST(Loop, IsThereForOthersToChange) {
  // What it reads is assigned later, and what it leaves is another's new value.
  Tensor x = Numbers({4, 3}), h = Numbers({3}, 2);
  const auto turn = [](const Tensor& a, const Tensor& y) { return Tensors{a * 0.5 + y, a}; };
  const Tensors want = WrittenOut(turn, {h}, {x}, 4);
  const Tensor want_h = (want[0] * 1.0).Realize(), want_all = (want[1] * 1.0).Realize();
  Tensor sum = want[1].Sum(0).Realize();
  Looped l = Loop(turn, {h}, {x});
  x.Assign(x * 0);
  h.Assign(l.carried[0]);
  Tensors all = {h, x, l.stacked[0]};
  Tensor::Realize(absl::MakeSpan(all));
  ExpectNear(all[0], want_h, "assigned");
  ExpectNear(all[1], Tensor::Zeros({4, 3}), "overwritten");
  ExpectNear(all[2], want_all, "stacked");
}

TEST(Loop, OfEachPlace) {
  const Tensor x = Numbers({4, 6}).Shard({"CPU:0", "CPU:1"}, 1);
  const auto turn = [](const Tensor& a, const Tensor& y) { return Tensors{a * 0.5 + y}; };
  const auto local = [&](const Tensor& mine) {
    return Loop(turn, {mine[{0}] * 0}, {mine}).carried[0];
  };
  ExpectNear(ShardMap({0}, {Placement::Shard(0)}, local, x), local(x.To("CPU:0")), "parts");
}

TEST(Loop, AssignsToItsOwn) {
  const Tensor a = Numbers({3}), x = Numbers({4, 3}, 2), w = Numbers({3}, 3);
  const auto turn = [&](const Tensor& given, const Tensor& y) {
    Tensor t = given, own = Tensor::Empty({3}), copy = w.Contiguous();
    own.Assign(y * 2);
    own[{1}] = t[{0}];
    t[{2}] = own.Sum();
    copy[{0}] = 1;
    copy[{1}] = y[{1}];
    return Tensors{t, own, y + t, copy};
  };
  // Where turns are written out, what is assigned is each one's own.
  const Tensors want =
      WrittenOut([&](const Tensor& t, const Tensor& y) { return turn((t * 1.0).Contiguous(), y); },
                 {a}, {x}, 4);
  const Tensors got = All(Loop(turn, {a}, {x}));
  const Tensors many =
      Vmap([&](const Tensor& b) { return All(Loop(turn, {b}, {x})); }, {Stack({a, a + 1})});
  for (size_t i = 0; i < 4; ++i) {
    ExpectNear(got[i], want[i], "result " + std::to_string(i));
    ExpectNear(many[i][{0}], want[i], "of a batch, result " + std::to_string(i));
  }
}

// Gradients go through what a turn assigns, to rows and to every other one.
TEST(Loop, GradientsOfWhatIsAssigned) {
  const Tensor a = Numbers({4}), x = Numbers({3, 4}, 2);
  const auto turn = [](const Tensor& t, const Tensor& y) {
    Tensor own = (y * t).Contiguous();
    own[{1}] = t[{0}] * y[{3}];
    own[{Slice{{}, {}, 2}}] += t[{Slice{{}, 2}}].Sin();
    return Tensors{t * 0.5 + own.Cos(), own};
  };
  const auto written = [](const Tensor& t, const Tensor& y) {
    const Tensor all = y * t, sines = t.Sin();
    const Tensor own =
        Stack({all[{0}] + sines[{0}], t[{0}] * y[{3}], all[{2}] + sines[{1}], all[{3}]});
    return Tensors{t * 0.5 + own.Cos(), own};
  };
  const auto grads = [&](const Tensors& results) { return Grad(LossOf(results), {a, x}); };
  const Tensors got = All(Loop(turn, {a}, {x})), want = WrittenOut(written, {a}, {x}, 3);
  const Tensors by = grads(got), wanted = grads(want);  // before values are read
  for (size_t i = 0; i < 2; ++i) {
    ExpectNear(got[i], want[i], "result");
    ExpectNear(by[i], wanted[i], "gradient");
  }
}

// What is given back as it was taken is not carried: it is there before the turns, as a weight is.
TEST(Loop, WhatStaysIsNotCarried) {
  const Tensor w = Numbers({3, 3}), h = Numbers({3}, 2);
  const auto turn = [](const Tensor& w, const Tensor& h) {
    return Tensors{w, h.MatMul(w).Tanh(), h};
  };
  const Looped l = Loop(turn, {w, h}, {}, {.turns = 9});
  EXPECT_EQ(LoopForm(l.stacked[0].uop().src(0)).carried.size(), 1u);
  const Tensors want = WrittenOut(turn, {w, h}, {}, 9), got = All(l);
  const Tensors by = Grad(LossOf(got), {w, h}), wanted = Grad(LossOf(want), {w, h});
  for (size_t i = 0; i < 3; ++i) ExpectNear(got[i], want[i], "result " + std::to_string(i));
  for (size_t i = 0; i < 2; ++i) ExpectNear(by[i], wanted[i], "gradient");
  const auto same = [](const Tensor& w) { return Tensors{w}; };
  ExpectNear(Loop(same, {w}, {}, {.turns = 5}).carried[0], w, "of nothing else");
}

// A function is traced once, also where nothing that it takes is on a device.
TEST(Loop, IsTracedOnce) {
  int calls = 0;
  std::function<Tensors(const Tensor&, int)> nested = [&](const Tensor& t, int left) -> Tensors {
    if (left == 0) return ++calls, Tensors{t + Tensor::Rand({3})};
    return Loop([&](const Tensor& u) { return nested(u, left - 1); }, {t}, {}, {.turns = 2})
        .carried;
  };
  const auto after = [&](const Tensor& start) {
    Tensor::ManualSeed(7);
    Tensors out = nested(start, 4);
    out.push_back(Tensor::Rand({3}));
    return out;
  };
  const Tensors from_none = after(Tensor::Zeros({3}));
  EXPECT_EQ(calls, 1);
  const Tensors from_one = after(Tensor::Zeros({3}).To("CPU").Realize());
  for (size_t i = 0; i < 2; ++i) ExpectNear(from_none[i], from_one[i], "the same draws");
}

// A loop of one place is a loop beside tensors of several.
TEST(Loop, BesideOthersOnSeveralPlaces) {
  const Variable n("n", 0, 8);
  const Tensor h = Numbers({4}), x = Numbers({8, 4}, 2);
  const Tensor parts = Numbers({6, 4}, 3).Shard({"CPU:0", "CPU:1"}, 0).Realize();
  const auto turn = [](const Tensor& h, const Tensor& x) { return Tensors{(h + x).Sin(), h}; };
  const Looped l = Loop(turn, {h}, {x.Shrink({{0, n}, {0, 4}})});
  const Tensors got = Realize({l.carried[0], parts * 2}, {{"n", 5}});
  ExpectNear(got[0], WrittenOut(turn, {h}, {x}, 5)[0], "carried");
  ExpectNear(got[1], Numbers({6, 4}, 3) * 2, "in parts");
  const auto sharded = [&] { return Loop(turn, {parts[{0}]}, {x.Shrink({{0, n}, {0, 4}})}); };
  EXPECT_ERROR(sharded(), "Loop", "the number of turns is n");
  const Tensor begins = x.To(Sharding({"CPU:0", "CPU:1"})).Shrink({{0, n}, {0, 4}});
  EXPECT_ERROR(Loop(turn, {h}, {begins}), "Loop", "on several places");
}

// A constant goes where what was taken lies.
TEST(Loop, GivesConstantsBack) {
  const Tensor a = Numbers({3}).To("CPU:0").Realize(), b = Numbers({3}, 2).To("CPU:1").Realize();
  const Looped l = Loop(
      [](const Tensor& a, const Tensor& b) {
        return Tensors{a + b.To("CPU:0"), Tensor::Ones({3})};
      },
      {a, b}, {}, {.turns = 3});
  EXPECT_EQ(l.carried[1].device().ToString(), "CPU:1");
  ExpectNear(l.carried[0], a + b.To("CPU:0") + 2, "carried");
}

TEST(Loop, DifferentiatesWithinATurn) {
  // Steps down the slope of a function of each turn's own.
  const Tensor start = Numbers({3}), x = Numbers({4, 3}, 2);
  const auto turn = [](const Tensor& w, const Tensor& y) {
    const Tensor loss = ((w - y).Square() * 0.5 + w.Sin()).Sum();
    return Tensors{w - Grad(loss, {w})[0] * 0.1, loss};
  };
  const auto written = [](const Tensor& w, const Tensor& y) {
    return Tensors{w - ((w - y) + w.Cos()) * 0.1, ((w - y).Square() * 0.5 + w.Sin()).Sum()};
  };
  const Tensors got = All(Loop(turn, {start}, {x})), want = WrittenOut(written, {start}, {x}, 4);
  const Tensor by_start = Grad(got[0].Sum(), {start})[0], wanted = Grad(want[0].Sum(), {start})[0];
  for (size_t i = 0; i < 2; ++i) ExpectNear(got[i], want[i], "result");
  ExpectNear(by_start, wanted, "by the start");
}

TEST(Loop, NamesTheOpThatMakesANan) {
  const Tensor x = Tensor::From({4.0f, 1.0f, 0.0f, -1.0f});
  const auto turn = [](const Tensor& a, const Tensor& y) { return Tensors{a + (y - 0.5).Log()}; };
  const Tensor sum = Loop(turn, {Tensor::Zeros({})}, {x}).carried[0];
  const auto done = RealizeNodes(std::vector<UOp>{sum.uop()}, {}, /*check_nan=*/true);
  ASSERT_FALSE(done.ok());
  EXPECT_THAT(std::string(done.status().message()), HasSubstr("LOG makes the first NaN"));
  EXPECT_THAT(std::string(done.status().message()), HasSubstr("loop_uses_test.cc"));
  const Looped rows = Loop(
      [](const Tensor& a, const Tensor& y) {
        return Tensors{a, (y - 0.5).Log()};
      },
      {Tensor::Zeros({})}, {x});
  const auto stacked =
      RealizeNodes(std::vector<UOp>{rows.stacked[0].uop()}, {}, /*check_nan=*/true);
  EXPECT_THAT(std::string(stacked.status().message()), HasSubstr("LOG makes the first NaN"));
  // Rows of a stack that no turn has written yet hold none, whatever lay there before.
  for (int i = 0; i < 4; ++i) {
    { Tensor all_bits = Tensor::Full({8, 64}, int64_t{-1}, kInt32).Realize(); }
    const Looped l = Loop(
        [&](const Tensor& a) {
          return Tensors{a * 0.5, a + i};
        },
        {Tensor::Ones({64})}, {}, {.turns = 8});
    EXPECT_OK(RealizeNodes(std::vector<UOp>{l.stacked[0].uop()}, {}, /*check_nan=*/true));
  }
}

TEST(Loop, SaysWhatIsWrong) {
  const Tensor a = Numbers({3}), x = Numbers({4, 3});
  const auto same = [](const Tensor& t, const Tensor&) { return Tensors{t}; };
  EXPECT_ERROR(Loop(same, {a}), "Loop", "say how many turns there are");
  EXPECT_ERROR(Loop(same, {a}, {x}, {.turns = 5}), "Loop", "has 4 elements, and there are 5 turns");
  EXPECT_ERROR(Loop(same, {a}, {Tensor::Ones({})}), "Loop", "no axis to go along");
  EXPECT_ERROR(
      Loop([](const Tensor& t, const Tensor&) { return Tensors{t.Cast(kFloat64)}; }, {a}, {x}),
      "Loop", "carried value 0 is taken as f32[3]");
  EXPECT_ERROR(
      Loop([](const Tensor& t, const Tensor& y) { return Tensors{t.Unsqueeze(0) + y}; }, {a}, {x}),
      "Loop", "given back as f32[1, 3]");
  EXPECT_ERROR(Loop([](const Tensor&, const Tensor&) { return Tensors{}; }, {a}, {x}), "Loop",
               "gives 0 back");
  EXPECT_ERROR(Loop(
                   [](const Tensor& t, const Tensor&) {
                     t.ToVector<float>();
                     return Tensors{t};
                   },
                   {a}, {x}),
               "ToVector", "stands for an input");
  Tensor count = Tensor::Zeros({3}).Realize();
  EXPECT_ERROR(Loop(
                   [&](const Tensor& t, const Tensor& y) {
                     count.Assign(count + t);
                     return Tensors{t + y};
                   },
                   {a}, {x}),
               "Assign", "");
  const auto halves = [](const Tensor& t) { return Tensors{t * 0.5, t}; };
  EXPECT_ERROR(Loop(halves, {a}, {}, {.turns = int64_t{1} << 62}), "Loop", "does not fit");
  std::function<Tensors(const Tensor&, int)> nested = [&](const Tensor& t, int left) -> Tensors {
    if (left == 0) return {t.Sin()};
    return Loop([&](const Tensor& u) { return nested(u, left - 1); }, {t}, {}, {.turns = 1})
        .carried;
  };
  EXPECT_ERROR(nested(a, 70), "Loop", "more than 62 loops lie within one another");
  EXPECT_ERROR(Loop(same, {a}, {x}, {.turns = Extent(-1)}), "Loop", "");
  int turns = 0;
  const auto more = [&](const Tensor& t, const Tensor& y) {
    return ++turns == 1 ? Tensors{t + y} : Tensors{t + y, y};
  };
  const Sharding two({"CPU:0", "CPU:1"});
  EXPECT_ERROR(Loop(more, {a.To(two)}, {x.To(two)}), "Loop",
               "turn 1 gives 2 values, and those before gave 1");
  EXPECT_ERROR(Loop(
                   [](const Tensor& t) {
                     t.ToVector<float>();
                     return Tensors{t + 1};
                   },
                   {Tensor::Zeros({3})}, {}, {.turns = 2}),
               "ToVector", "stands for an input");
}

}  // namespace
}  // namespace tessera
