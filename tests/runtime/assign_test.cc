// Versions of tensors: assignment to wholes and views, readers of old versions, reading and blobs.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/flags.h"
#include "graph/grad.h"
#include "graph/tensor_internal.h"
#include "runtime/capture.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

Tensor Data(std::vector<float> v) { return Tensor::From(v); }
std::vector<float> Read(const Tensor& t) { return t.ToVector<float>(); }

TEST(Assign, Whole) {
  Tensor a = Data({1, 2, 3});
  a.Assign(a + 1);
  EXPECT_THAT(Read(a), ElementsAre(2, 3, 4));
  a.Assign(5);
  EXPECT_THAT(Read(a), ElementsAre(5, 5, 5));
  a.Assign(Data({1, 2, 3}).Cast(kInt32));
  EXPECT_THAT(Read(a), ElementsAre(1, 2, 3));
  a.Assign(a);
  EXPECT_THAT(Read(a), ElementsAre(1, 2, 3));
  a.Assign(a.Flip(0));
  EXPECT_THAT(Read(a), ElementsAre(3, 2, 1));
}

TEST(Assign, OperatorsThatWriteInPlace) {
  Tensor a = Data({1, 2, 3, 4});
  const Tensor other = a;  // a handle to the same tensor
  a += 1;
  a *= Data({1, 2, 3, 4});
  EXPECT_THAT(Read(other), ElementsAre(2, 6, 12, 20));
  a[1] -= 5;
  a.SliceAxis(0, {2, 4}) /= Data({4, 5});
  EXPECT_THAT(Read(a), ElementsAre(2, 1, 3, 4));
  a += a;
  EXPECT_THAT(Read(a), ElementsAre(4, 2, 6, 8));
  a %= 4;
  EXPECT_THAT(Read(a), ElementsAre(0, 2, 2, 0));

  Tensor bits = Tensor::From({12, 5, 3});
  bits &= 6;
  bits |= 8;
  bits ^= 1;
  bits <<= 2;
  bits >>= 1;
  EXPECT_THAT(bits.ToVector<int32_t>(), ElementsAre(26, 26, 22));
  EXPECT_ERROR(bits /= 2, "/=", "cannot hold");
  EXPECT_ERROR(bits += 0.5, "+=", "cannot hold");
  EXPECT_ERROR(a += Data({1, 2}), "+=", "[4]");
  EXPECT_ERROR(a[0] += Data({1, 2}), "+=", "[2]");
}

TEST(Assign, GradientsGoThroughOperatorsInPlace) {
  Tensor w = Data({1, 2, 3});
  w.RequireGrad();
  for (const bool read : {false, true}) {
    Tensor loss = (w * w).Sum();
    const Tensor other = loss;
    loss += w.Sum() * 3;
    if (read) {
      EXPECT_EQ(loss.Item(), 32);
    }
    loss *= 2;
    EXPECT_THAT(Read(Grad(loss, {&w, 1})[0]), ElementsAre(10, 14, 18));
    EXPECT_EQ(other.Item(), 64);
  }
  // A parameter is written.
  const Tensor other = w;
  w -= Grad((w * w).Sum(), {&w, 1})[0] * 0.5;
  EXPECT_THAT(Read(other), ElementsAre(0, 0, 0));
  EXPECT_TRUE(w.uop().is(Op::kBuffer));
}

TEST(Assign, IntoEmptyStorage) {
  Tensor a = Tensor::Empty({3});
  EXPECT_THROW(Read(a), Error);
  Tensor b = Tensor::Empty({4});
  b.Assign(7);
  EXPECT_THAT(Read(b), ElementsAre(7, 7, 7, 7));
}

TEST(Assign, SlicesAndViews) {
  Tensor a = Tensor::Arange(12).Cast(kFloat32).Reshape({3, 4}).Contiguous().Realize();
  a[1].Assign(9);
  a[{Slice{}, 3}].Assign(-1);
  EXPECT_THAT(Read(a), ElementsAre(0, 1, 2, -1, 9, 9, 9, -1, 8, 9, 10, -1));
  a.T()[0].Assign(Data({7, 8, 9}));
  EXPECT_THAT(Read(a), ElementsAre(7, 1, 2, -1, 8, 9, 9, -1, 9, 9, 10, -1));
  a.Flip(0)[0].Slice({{{}, {}, 2}}).Assign(0);
  EXPECT_THAT(Read(a), ElementsAre(7, 1, 2, -1, 8, 9, 9, -1, 0, 9, 0, -1));
  a.Reshape({12}).SliceAxis(0, {{}, {}, -5}).Assign(Data({50, 51, 52}));
  EXPECT_THAT(Read(a), ElementsAre(7, 52, 2, -1, 8, 9, 51, -1, 0, 9, 0, 50));
}

TEST(Assign, ViewsSeeWhatIsWritten) {
  Tensor a = Data({1, 2, 3, 4});
  Tensor head = a[Slice{0, 2}];
  head.Assign(head * 10);
  EXPECT_THAT(Read(head), ElementsAre(10, 20));
  EXPECT_THAT(Read(a), ElementsAre(10, 20, 3, 4));
  a.Assign(0);
  EXPECT_THAT(Read(head), ElementsAre(10, 20));  // an expression captures what it was made of
}

TEST(Assign, OverlappingSlices) {
  Tensor up = Data({0, 1, 2, 3, 4, 5, 6, 7}), down = Data({0, 1, 2, 3, 4, 5, 6, 7});
  up[Slice{1, 8}].Assign(up[Slice{0, 7}]);
  down[Slice{0, 7}].Assign(down[Slice{1, 8}]);
  EXPECT_THAT(Read(up), ElementsAre(0, 0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Read(down), ElementsAre(1, 2, 3, 4, 5, 6, 7, 7));
  std::vector<float> v(4096);
  std::iota(v.begin(), v.end(), 0.0f);
  Tensor square = Tensor::From(v, {64, 64});
  square.Assign(square.T());
  const std::vector<float> t = Read(square);
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(t[i], v[i % 64 * 64 + i / 64]);
}

// The same value element by element and elsewhere: it must not be overwritten while it is read.
TEST(Assign, ReadsItsPlaceAndOthers) {
  Tensor a = Data({1, 2, 3, 4}), b = Data({1, 2, 3, 4});
  a.Assign((a + 1).Flip(0) + (a + 1));
  b.Assign((b + 1) + (b + 1).Flip(0));
  EXPECT_THAT(Read(a), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(Read(b), ElementsAre(7, 7, 7, 7));
  Tensor c = Data({1, 2, 3, 4});
  c.Assign(c / c.Sum());
  EXPECT_THAT(Read(c), ElementsAre(0.1f, 0.2f, 0.3f, 0.4f));
  Tensor d = Data({1, 2, 3, 4});
  d.Assign(d - d.Max() + d.Roll(1, 0));
  EXPECT_THAT(Read(d), ElementsAre(1, -1, 1, 3));
}

TEST(Assign, SwapOfTwoSlices) {
  Tensor b = Data({0, 1, 2, 3, 4, 5, 6, 7});
  Tensor l = b[Slice{0, 4}], r = b[Slice{4, 8}];
  b[Slice{0, 4}].Assign(r);
  b[Slice{4, 8}].Assign(l);
  EXPECT_THAT(Read(b), ElementsAre(4, 5, 6, 7, 0, 1, 2, 3));
  EXPECT_THAT(Read(l), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Read(r), ElementsAre(4, 5, 6, 7));
}

TEST(Assign, SwapOfTwoTensors) {
  Tensor a = Data({1, 2}), b = Data({3, 4});
  const Tensor old = a + 0;
  a.Assign(b);
  b.Assign(old);
  std::vector<Tensor> both = {a, b};
  Tensor::Realize(absl::MakeSpan(both));
  EXPECT_THAT(Read(a), ElementsAre(3, 4));
  EXPECT_THAT(Read(b), ElementsAre(1, 2));
}

TEST(Assign, IntoAViewOfAnUnrealisedValue) {
  const Tensor a = Data({1, 2, 3}), b = Data({10, 20, 30});
  Tensor sum = a + b;
  Tensor same = a + b;  // another tensor, though the same expression
  sum[Slice{0, 2}].Assign(0);
  EXPECT_THAT(Read(sum), ElementsAre(0, 0, 33));
  EXPECT_THAT(Read(same), ElementsAre(11, 22, 33));
  Tensor zeros = Tensor::Zeros({4});
  zeros[1].Assign(5);
  EXPECT_THAT(Read(zeros), ElementsAre(0, 5, 0, 0));
  EXPECT_THAT(Read(Tensor::Zeros({4})), ElementsAre(0, 0, 0, 0));
}

TEST(Assign, ReadersOfTheOldVersionInBothOrders) {
  for (int order = 0; order < 4; ++order) {
    Tensor b = Data({1, 2, 3, 4});
    Tensor before = b * 2;
    b[Slice{0, 2}].Assign(100);
    Tensor after = b * 3;
    if (order == 0) before.Realize();
    if (order == 1) b.Realize();
    if (order == 2) after.Realize();
    if (order == 3) {
      std::vector<Tensor> all = {after, before, b};
      Tensor::Realize(absl::MakeSpan(all));
    }
    EXPECT_THAT(Read(after), ElementsAre(300, 300, 9, 12)) << order;
    EXPECT_THAT(Read(b), ElementsAre(100, 100, 3, 4)) << order;
    EXPECT_THAT(Read(before), ElementsAre(2, 4, 6, 8)) << order;
  }
}

TEST(Assign, OneExpressionOfBothVersions) {
  Tensor b = Data({1, 2, 3, 4});
  const Tensor old = b * 2;
  b.Assign(b + 10);
  Tensor both = old + b;
  EXPECT_THAT(Read(both), ElementsAre(13, 16, 19, 22));
  EXPECT_THAT(Read(b), ElementsAre(11, 12, 13, 14));
  EXPECT_THAT(Read(old), ElementsAre(2, 4, 6, 8));
}

TEST(Assign, LazyHoldersKeepWhatTheyCaptured) {
  Tensor b = Data({1, 2, 3, 4});
  Tensor view = b[Slice{1, 3}], sum = b.Sum(), copy = b + 0;
  b.Assign(0);
  b.Realize();
  EXPECT_THAT(Read(view), ElementsAre(2, 3));
  EXPECT_EQ(sum.Item(), 10);
  EXPECT_THAT(Read(copy), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Read(b), ElementsAre(0, 0, 0, 0));
  Tensor again = b + 1;
  b.Assign(b + 5);
  b.Realize();
  b.Assign(b + 5);
  b.Realize();
  EXPECT_THAT(Read(again), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(Read(b), ElementsAre(10, 10, 10, 10));
}

TEST(Assign, ChainsOfAssigns) {
  Tensor b = Data({1, 1, 1, 1});
  std::vector<Tensor> history;
  for (int i = 0; i < 6; ++i) {
    history.push_back(b + 0);
    b[i % 4].Assign(b.Sum());
  }
  EXPECT_THAT(Read(b), ElementsAre(49, 94, 13, 25));
  EXPECT_THAT(Read(history[0]), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(Read(history[5]), ElementsAre(49, 7, 13, 25));
  EXPECT_THAT(Read(history[3]), ElementsAre(4, 7, 13, 1));
}

TEST(Assign, ReadersOnTheWayDoNotRunItAgain) {
  Tensor b = Data({1, 2, 3, 4});
  b.Assign(b * 2);
  Tensor first = b.Sum(), middle = b + 0;
  b.Assign(b * 10);
  Tensor last = b[0];
  EXPECT_EQ(last.Item(), 20);  // runs both
  EXPECT_EQ(first.Item(), 20);
  EXPECT_EQ(b.Sum().Item(), 200);
  EXPECT_THAT(Read(middle), ElementsAre(2, 4, 6, 8));
  b.Assign(b + 1);
  EXPECT_THAT(Read(b), ElementsAre(21, 41, 61, 81));
}

// Two tensors of one expression share its node once realised, and part when one is written.
TEST(Assign, TensorsThatShareANode) {
  const Tensor x = Data({1, 2, 3});
  Tensor p = x + 1, q = x + 1;
  p.Realize();
  q.Realize();
  p.Assign(0);
  q[0].Assign(7);
  std::vector<Tensor> both = {p, q};
  Tensor::Realize(absl::MakeSpan(both));
  EXPECT_THAT(Read(p), ElementsAre(0, 0, 0));
  EXPECT_THAT(Read(q), ElementsAre(7, 3, 4));
  EXPECT_THAT(Read(x + 1), ElementsAre(2, 3, 4));
}

TEST(Assign, LoopsHoldNoMemory) {
  Tensor b = Data({1, 2, 3, 4}), sum;
  int64_t nodes = 0;
  for (int i = 0; i < 50; ++i) {
    b.Assign(b * 0.5);
    sum = b.Sum();
    EXPECT_EQ(sum.Item(), std::ldexp(10.0, -i - 1));
    if (i == 10) nodes = LiveNodes();
  }
  EXPECT_LE(LiveNodes(), nodes + 10);
}

TEST(Assign, OtherTensorsAreLeftAlone) {
  Tensor a = Data({1, 2, 3}), b = a.Contiguous(), c = a + 0, d = a;
  a.Assign(9);
  EXPECT_THAT(Read(a), ElementsAre(9, 9, 9));
  EXPECT_THAT(Read(c), ElementsAre(1, 2, 3));
  EXPECT_THAT(Read(d), ElementsAre(9, 9, 9));  // another name of the same tensor
}

TEST(Assign, Broadcasts) {
  Tensor a = Tensor::Zeros({2, 3}).Contiguous();
  a.Assign(Data({1, 2, 3}));
  EXPECT_THAT(Read(a), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THROW(a.Assign(Data({1, 2})), Error);
  EXPECT_THROW(Data({1}).Expand({4}).Assign(2), Error);
  EXPECT_THROW(a.Pad({{1, 0}, {0, 0}}).Assign(2), Error);
  EXPECT_THROW(a.Window({1}, {2}).Assign(2), Error);
  EXPECT_THAT(Read(a), ElementsAre(1, 2, 3, 1, 2, 3));
}

TEST(Assign, OfNothing) {
  Tensor a = Data({1, 2, 3});
  a[Slice{1, 1}].Assign(5);
  EXPECT_THAT(Read(a), ElementsAre(1, 2, 3));
  Tensor none = Tensor::Zeros({0, 2}).Contiguous();
  none.Assign(3);
  EXPECT_TRUE(Read(none).empty());
}

TEST(Assign, NarrowTypes) {
  for (DType t : {kFloat16, kBFloat16, kFloat8E4M3, kInt8, kUInt64, kBool}) {
    Tensor a = Data({0, 1, 1, 0}).Cast(t).Contiguous();
    a[Slice{1, 3}].Assign(a[Slice{0, 2}]);
    EXPECT_THAT(a.ToVector<int>(), ElementsAre(0, 0, 1, 0)) << t.ToString();
  }
}

// What is written to a value that has no buffer of its own would be lost; a Tensor gives it one.
TEST(Assign, NoCopyIsATarget) {
  const Sharding three({"CPU:0", "CPU:1", "CPU:2"}), parts({"CPU:0", "CPU:1", "CPU:2"}, 0);
  for (const Device& there : {Device(Place("CPU", 1)), Device(three), Device(parts)}) {
    const Tensor x = Data({1, 2, 3, 4}).To("CPU").Realize();
    const UOp copy = internal::Build(Op::kCopy, {x.uop()}, there);
    const UOp view = internal::Build(Op::kShrink, {copy}, Pairs{{Extent(1), Extent(3)}});
    const UOp value = Data({8, 9}).To("CPU").To(view.device()).Realize().uop();
    EXPECT_THAT(UOp::TryMake(Op::kAssign, {copy, view, value}),
                StatusIs(absl::StatusCode::kInvalidArgument, "the base is a COPY"));
    Tensor written(copy);
    written[Slice{1, 3}].Assign(Tensor(value));
    EXPECT_THAT(Read(Tensor(copy)), ElementsAre(1, 2, 3, 4)) << there.ToString();
    EXPECT_THAT(Read(written), ElementsAre(1, 8, 9, 4)) << there.ToString();
  }
}

// One of them keeps what the others overwrite.
TEST(Assign, TensorsThatShareANodeThatIsKept) {
  Tensor x = Data({1, 2, 3}).Realize();
  x.Assign(x + 1);
  Tensor y = x.Cast(kFloat32), z = x.Cast(kFloat32);
  x[Slice{0, 1}].Assign(8);
  y[Slice{1, 2}].Assign(9);
  std::vector<Tensor> all = {z, x, y};
  Tensor::Realize(absl::MakeSpan(all));
  EXPECT_THAT(Read(z), ElementsAre(2, 3, 4));
  EXPECT_THAT(Read(x), ElementsAre(8, 3, 4));
  EXPECT_THAT(Read(y), ElementsAre(2, 9, 4));
}

// A graph may ask for a copy, and for what it becomes by several assignments, though no Tensor
// does.
TEST(Assign, WhatWasCopiedIsAResultBesideWhatItBecomes) {
  const Sharding parts({"CPU:0", "CPU:1", "CPU:2"}, 0);
  for (const Device& there : {Device(Place("CPU", 1)), Device(parts)}) {
    const Tensor x = Data({1, 2, 3, 4}).To(there).Realize();
    const UOp copy = internal::Build(Op::kContiguous, {x.uop()});
    const UOp view = internal::Build(Op::kShrink, {copy}, Pairs{{Extent(1), Extent(3)}});
    const UOp value = Data({8, 9}).To("CPU").To(view.device()).Realize().uop();
    const UOp written = internal::Build(Op::kAssign, {copy, view, value});
    const UOp again = internal::Build(Op::kAssign, {copy, copy, (x + 1).uop()});
    ASSERT_OK_AND_ASSIGN(const std::vector<UOp> got, RealizeNodes({copy, written, again}, {}));
    EXPECT_THAT(Read(Tensor(got[0])), ElementsAre(1, 2, 3, 4)) << there.ToString();
    EXPECT_THAT(Read(Tensor(got[1])), ElementsAre(1, 8, 9, 4)) << there.ToString();
    EXPECT_THAT(Read(Tensor(got[2])), ElementsAre(2, 3, 4, 5)) << there.ToString();
    EXPECT_THAT(Read(x), ElementsAre(1, 2, 3, 4));
  }
}

TEST(Blob, IsReadAndWrittenInPlace) {
  std::vector<float> memory = {1, 2, 3, 4};
  bool freed = false;
  {
    Tensor t = Tensor::FromBlob(memory.data(), {2, 2}, kFloat32, [&](void*) { freed = true; });
    EXPECT_EQ(t.Data<float>(), memory.data());
    memory[0] = 10;
    EXPECT_EQ(t.Sum().Item(), 19);
    t[1].Assign(7);
    t.Realize();
    EXPECT_THAT(memory, ElementsAre(10, 2, 7, 7));
    EXPECT_EQ(t.Data<float>(), memory.data());
    EXPECT_FALSE(freed);
  }
  EXPECT_TRUE(freed);
}

TEST(Blob, OldVersionsLiveOnElsewhere) {
  std::vector<float> memory = {1, 2};
  Tensor t = Tensor::FromBlob(memory.data(), {2}, kFloat32);
  Tensor old = t * 10;
  t.Assign(0);
  t.Realize();
  EXPECT_THAT(memory, ElementsAre(0, 0));
  EXPECT_THAT(Read(old), ElementsAre(10, 20));
}

TEST(Blob, CopiesAreNotWrittenThere) {
  std::vector<float> memory = {1, 2};
  Tensor t = Tensor::FromBlob(memory.data(), {2}, kFloat32);
  Tensor copy = t.Contiguous();
  copy.Assign(copy * 10);
  EXPECT_THAT(Read(copy), ElementsAre(10, 20));
  EXPECT_THAT(memory, ElementsAre(1, 2));
  t.Assign(t + 5);
  EXPECT_THAT(Read(t), ElementsAre(6, 7));
  EXPECT_THAT(memory, ElementsAre(6, 7));
  EXPECT_THAT(Read(copy), ElementsAre(10, 20));
}

TEST(Blob, OnPlacesThatShareIt) {
  std::vector<float> memory = {1, 2};
  const Sharding both({"CPU:0", "CPU:1"});
  Tensor t = Tensor::FromBlob(memory.data(), {2}, kFloat32, {}, both);
  EXPECT_EQ(t.device(), Device(both));
  EXPECT_THAT(Read(t * 2), ElementsAre(2, 4));
  memory[1] = 5;
  EXPECT_THAT(Read(t * 3), ElementsAre(3, 15));
  EXPECT_THAT(Read(t.ShardAt(1)), ElementsAre(1, 5));
  EXPECT_THROW(t.Assign(0), Error);
  EXPECT_THROW(t[0].Assign(0), Error);
  Jit step([](Tensor x) { x.Assign(x + 1); });
  EXPECT_THROW(step({t}), Error);
  Tensor copy = t.Contiguous();
  copy.Assign(copy + 1);
  EXPECT_THAT(Read(copy), ElementsAre(2, 6));
  EXPECT_THAT(memory, ElementsAre(1, 5));
  const Sharding parts({"CPU:0", "CPU:1"}, 0);
  EXPECT_THROW(Tensor::FromBlob(memory.data(), {2}, kFloat32, {}, parts), Error);
}

TEST(Read, ConvertsAndChecks) {
  const Tensor t = Data({1.5f, -2.7f});
  EXPECT_THAT(t.ToVector<int>(), ElementsAre(1, -2));
  EXPECT_THAT(t.ToVector<bool>(), ElementsAre(true, true));
  EXPECT_THAT(t.ToVector<double>(), ElementsAre(1.5, double{-2.7f}));
  EXPECT_THROW(t.Item(), Error);
  EXPECT_THROW(t.Data<int>(), Error);
  EXPECT_EQ(t[0].Item<int>(), 1);
  EXPECT_EQ((t > 0).Data<bool>()[0], true);
  EXPECT_EQ(t.Sum().Cast(kFloat16).Item(), -1.2001953125);
}

TEST(Read, ExpressionsStayTensors) {
  Tensor x = Data({1, 2}) + 1;
  EXPECT_THAT(Read(x), ElementsAre(2, 3));
  EXPECT_THAT(Read(x * 2), ElementsAre(4, 6));
  x.Realize();
  EXPECT_THAT(Read(x * 2), ElementsAre(4, 6));
}

// What is left over after whole tiles is one worker's, not each one's.
TEST(Assign, EveryElementIsUpdatedOnce) {
  for (int64_t n : {100001, 100017, 100065, 131071}) {
    Tensor x = Tensor::Zeros({n}).Contiguous().Realize();
    for (int i = 0; i < 4; ++i) x.Assign(x + 1).Realize();
    EXPECT_EQ(x.Min().Item(), 4) << n;
    EXPECT_EQ(x.Max().Item(), 4) << n;
  }
}

// The share of a tensor's memory that the system has given it.
double Touched(const Tensor& t) {
  const int64_t page = sysconf(_SC_PAGESIZE), bytes = t.elements() * t.dtype().bytes();
  const auto begin = reinterpret_cast<uintptr_t>(t.Data<float>()) / page * page;
  std::vector<unsigned char> in((bytes + page - 1) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), bytes, in.data()), 0);
  return static_cast<double>(std::count_if(in.begin(), in.end(), [](int b) { return b & 1; })) /
         static_cast<double>(in.size());
}

// A cache takes memory as it is filled, and not a large page for each row that has a number.
TEST(Assign, WhatIsWrittenInPartsTakesMemoryForThese) {
  if (IntFlag(Flag::kGuardPages) != 0) GTEST_SKIP() << "GUARD_PAGES fills what it gives";
  GetDevice(Place("CPU", 0)).value()->Trim();
  const Device here = "CPU";
  const int64_t rows = 16, columns = int64_t{1} << 19;
  const auto empty = [&] { return Tensor::Empty({rows, columns}, kFloat32, here); };
  Tensor cache = empty(), jitted = empty(), whole = empty();
  cache.SliceAxis(1, {0, 8}).Assign(1);
  cache.Realize();
  EXPECT_LT(Touched(cache), 0.01);
  Jit step([&](const Tensor& x) {
    jitted.SliceAxis(1, {0, 8}).Assign(x);
    return x + 1;
  });
  for (int i = 0; i < 3; ++i) step.One({Tensor::Full({rows, 8}, i, kFloat32, here)}).Realize();
  EXPECT_LT(Touched(jitted), 0.01);
  EXPECT_EQ(jitted[3][7].Item<float>(), 2);
  whole.Assign(1);
  whole.Realize();
  EXPECT_EQ(Touched(whole), 1);
}

}  // namespace
}  // namespace tessera
