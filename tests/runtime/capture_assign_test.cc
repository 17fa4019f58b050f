// What a captured step assigns: to inputs, to tensors from outside and to views of them.
#include "graph/buffer.h"
#include "runtime/capture.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<double> Read(const Tensor& t) { return t.ToVector<double>(); }
Tensor Row(std::vector<float> v) { return Tensor::From(v); }

TEST(CaptureAssign, AssignmentsThatAreNotReturnedHappenEachCall) {
  Tensor w = Row({10, 20}).Realize(), momentum = Row({0, 0}).Realize();
  Tensor w2 = Row({10, 20}).Realize(), momentum2 = Row({0, 0}).Realize();
  const auto update = [](Tensor w, Tensor m, const Tensor& gradient) {
    m.Assign(m * 0.5 + gradient);
    w.Assign(w - m);
  };
  Jit step([&](const Tensor& gradient) {
    update(w, momentum, gradient);
    return gradient.Sum();
  });
  for (int i = 1; i <= 5; ++i) {
    const Tensor gradient = Row({static_cast<float>(i), 1});
    EXPECT_THAT(Read(step.One({gradient})), ElementsAre(i + 1));
    update(w2, momentum2, gradient);
    Tensor both[] = {w2, momentum2};
    Tensor::Realize(absl::MakeSpan(both));
    EXPECT_EQ(Read(w), Read(w2));
    EXPECT_EQ(Read(momentum), Read(momentum2));
  }
}

TEST(CaptureAssign, AssignToAnInputThatIsNotReturned) {
  Jit step([](Tensor x) {
    const Tensor before = x * 10;
    x.Slice({{0, 1}}).Assign(-1);
    return before;
  });
  for (int i = 0; i < 3; ++i) {
    Tensor x = Row({static_cast<float>(i), 7}).Realize();
    EXPECT_THAT(Read(step.One({x})), ElementsAre(10 * i, 70));
    EXPECT_THAT(Read(x), ElementsAre(-1, 7));
  }
}

TEST(CaptureAssign, ReadersOutsideKeepTheOldVersion) {
  Tensor w = Row({1, 2}).Realize();
  Jit step([&] { w.Assign(w + 1); });
  std::vector<Tensor> readers, views;
  for (int i = 0; i < 4; ++i) {
    readers.push_back(w * 10);
    views.push_back(w.Slice({{1, 2}}));
    step({});
  }
  const auto address = [&] { return w.uop().arg<BufferArg>().buffer->storage->data; };
  const void* data = address();
  step({});
  EXPECT_EQ(address(), data);  // in place
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(Read(readers[i]), ElementsAre(10 + 10 * i, 20 + 10 * i));
    EXPECT_THAT(Read(views[i]), ElementsAre(2 + i));
  }
  EXPECT_THAT(Read(w), ElementsAre(6, 7));
}

TEST(CaptureAssign, OldVersionsOfTheStepItselfCanBeReturned) {
  Tensor w = Row({1, 2}).Realize();
  Jit step([&] {
    const Tensor old(w.uop());
    w.Assign(w + 1);
    const Tensor middle(w.uop());
    w.Assign(w * 2);
    return std::vector<Tensor>{old, middle, w};
  });
  for (int i = 0, a = 1; i < 4; ++i, a = (a + 1) * 2) {
    const auto out = step({});
    EXPECT_EQ(Read(out[0])[0], a);
    EXPECT_EQ(Read(out[1])[0], a + 1);
    EXPECT_EQ(Read(out[2])[0], (a + 1) * 2);
  }
}

TEST(CaptureAssign, AssignmentsOutsideAreSeen) {
  Tensor w = Row({1, 2});
  Jit step([&](const Tensor& x) { return x + w; });
  EXPECT_THAT(Read(step.One({Row({0, 0})})), ElementsAre(1, 2));
  w.Assign(w * 10);
  EXPECT_THAT(Read(step.One({Row({0, 0})})), ElementsAre(10, 20));
  w[0].Assign(5);
  EXPECT_THAT(Read(step.One({Row({0, 0})})), ElementsAre(5, 20));
  EXPECT_EQ(step.captures(), 1);
}

TEST(CaptureAssign, ConstantsWithoutADeviceAreCapturedAgainWhenAssigned) {
  Tensor c = Tensor::Full({2}, 3.0);
  Jit step([&](const Tensor& x) { return x + c; });
  EXPECT_THAT(Read(step.One({Row({0, 1})})), ElementsAre(3, 4));
  c.Assign(c + 1);
  EXPECT_THAT(Read(step.One({Row({0, 1})})), ElementsAre(4, 5));
  Tensor n = Tensor::Zeros({2});
  Jit count([&] { n.Assign(n + 1); });
  for (int i = 0; i < 3; ++i) count({});
  EXPECT_THAT(Read(n), ElementsAre(3, 3));
}

TEST(CaptureAssign, ViewsFromOutside) {
  Tensor base = Row({1, 2, 3, 4}).Realize();
  Tensor tail = base.Slice({{2, 4}});
  Jit step([&] {
    tail.Assign(tail * 10);
    return base.Sum();
  });
  EXPECT_THAT(Read(step.One({})), ElementsAre(73));
  EXPECT_THAT(Read(step.One({})), ElementsAre(703));
  EXPECT_THAT(Read(base), ElementsAre(1, 2, 300, 400));
  tail.Assign(tail + 1);
  EXPECT_THAT(Read(base), ElementsAre(1, 2, 301, 401));
  EXPECT_THAT(Read(step.One({})), ElementsAre(7023));
  tail.Assign(Row({300, 400}));
  EXPECT_THAT(Read(tail), ElementsAre(300, 400));
}

TEST(CaptureAssign, OverwritingWhatIsAlsoRead) {
  Jit step([](Tensor a, Tensor b) { a.Assign(a + b); });
  Tensor x = Row({1, 2}).Realize(), y = Row({3, 4}).Realize();
  step({x, y});
  EXPECT_ERROR(step({x, x}), "Jit", "pass a copy made with .Contiguous()");
  EXPECT_THAT(Read(x), ElementsAre(4, 6));
  const Tensor copy = x.Contiguous();
  step({x, copy});
  EXPECT_THAT(Read(x), ElementsAre(8, 12));
  EXPECT_THAT(Read(copy), ElementsAre(4, 6));
  std::vector<float> memory = {1, 2};
  Tensor lent = Tensor::FromBlob(memory.data(), {2}, kFloat32);
  step({lent, lent.Contiguous()});
  EXPECT_THAT(memory, ElementsAre(2, 4));
  EXPECT_ERROR(step({x.Slice({{0, 2}}).Flip(0), y}), "Jit", "is a view");
}

TEST(CaptureAssign, ACallThatIsRefusedDrawsNothing) {
  Jit step([](Tensor a, Tensor b) { a.Assign(a + b * Tensor::Rand({2})); });
  Tensor x = Row({1, 2}).Realize(), y = Row({3, 4}).Realize();
  step({x, y});
  Tensor::ManualSeed(5);
  const auto want = Read(Tensor::Rand({3}));
  Tensor::ManualSeed(5);
  EXPECT_ERROR(step({x, x}), "Jit", "overwrites input 0, which is input 1");
  EXPECT_ERROR(step({x, y}, {{"n", 1}}), "Jit", "no Variable of the step");
  EXPECT_EQ(Read(Tensor::Rand({3})), want);
}

// A tensor that is a view of what no one holds, written in part, from outside and made inside.
TEST(CaptureAssign, WritesIntoViewsOfWhatNoOneHolds) {
  Tensor x = Tensor::Arange(6).Cast(kFloat32).Reshape({3, 2});
  x.Realize();
  Jit step([&](const Tensor& t) {
    Tensor y = (t * 2).Reshape({3, 2});
    y[1].Assign(0);
    x[0].Assign(x[0] + t[0]);
    return y;
  });
  for (int call = 1; call <= 3; ++call) {
    const Tensor y = step.One({Tensor::Ones({6})});
    EXPECT_EQ(y.ToVector<float>(), (std::vector<float>{2, 2, 0, 0, 2, 2}));
    const float added = static_cast<float>(call);
    EXPECT_EQ(x.ToVector<float>(), (std::vector<float>{added, 1 + added, 2, 3, 4, 5}));
  }
}

// A view between what a step writes and its base; and a view passed to a step that writes it.
TEST(CaptureAssign, WritesIntoViewsBetween) {
  Tensor base = Tensor::Arange(6).Cast(kFloat32).Realize();
  Tensor rows = base.Reshape({3, 2});
  Jit step([&](const Tensor& t) {
    rows[1].Slice({{0, 1}}).Assign(rows[1][1] + t.Sum());
    return t * 2;
  });
  for (int call = 1; call <= 3; ++call) {
    step.One({Tensor::Ones({6})});
    const float written = 3 + 6;
    EXPECT_EQ(base.ToVector<float>(), (std::vector<float>{0, 1, written, 3, 4, 5}));
    EXPECT_EQ(rows.ToVector<float>(), base.ToVector<float>());
  }
  Jit fills([](Tensor t) {
    t.Assign(t + 1);
    return t;
  });
  Tensor own = Tensor::Zeros({4}).Reshape({2, 2});
  for (int call = 1; call <= 3; ++call) {
    fills.One({own});
    EXPECT_EQ(own.ToVector<float>(), std::vector<float>(4, static_cast<float>(call)));
  }
  own[0][0] = 7;
  EXPECT_EQ(own.ToVector<float>(), (std::vector<float>{7, 3, 3, 3}));
  EXPECT_ERROR(fills.One({rows}), "Jit", "is a view of another tensor in this call");
}

// A tensor in storage of its own, though it is the same node as long as nothing is written.
TEST(CaptureAssign, WhatIsMadeContiguousIsItsOwn) {
  const Tensor x = Tensor::From({1.f, 2.f, 3.f}).Realize();
  Tensor w = Tensor::From({1.f, 2.f, 3.f}).Realize();
  Jit step([&](const Tensor& t) {
    Tensor y = t.Contiguous(), z = w.Contiguous(), part = z.Slice({{1, 2}});
    y.Slice({{0, 1}}).Assign(7);
    part.Assign(5);
    return y + t + z + w;
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(step.One({x}).ToVector<float>(), (std::vector<float>{10, 11, 12}));
    EXPECT_EQ(x.ToVector<float>(), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(w.ToVector<float>(), (std::vector<float>{1, 2, 3}));
  }
}

}  // namespace
}  // namespace tessera
