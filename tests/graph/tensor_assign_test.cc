// Assignment: versions, views, and targets that cannot be written.
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

Tensor Four() { return Tensor::From(std::vector<float>{1, 2, 3, 4}); }

TEST(TensorAssign, ExpressionsKeepWhatTheyCaptured) {
  Tensor x = Four();
  const Tensor before = x * 10;
  x.Assign(x + 1);
  EXPECT_THAT(Values(x), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(Values(before), ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(Values(x * 10), ElementsAre(20, 30, 40, 50));
}

TEST(TensorAssign, HandlesShareTheTensor) {
  Tensor x = Four();
  Tensor same = x;
  same.Assign(0);
  EXPECT_THAT(Values(x), ElementsAre(0, 0, 0, 0));
  x = Four();  // another tensor under the name
  EXPECT_THAT(Values(same), ElementsAre(0, 0, 0, 0));
}

TEST(TensorAssign, CastsAndBroadcasts) {
  Tensor x = Four().Reshape({2, 2});
  x.Assign(Tensor::From({7, 8}, kInt64));
  EXPECT_EQ(x.dtype(), kFloat32);
  EXPECT_THAT(Values(x), ElementsAre(7, 8, 7, 8));
  x.Assign(1.5);
  EXPECT_THAT(Values(x), ElementsAre(1.5, 1.5, 1.5, 1.5));
  EXPECT_ERROR(x.Assign(Tensor::Zeros({3})), "Assign", "do not broadcast");
  EXPECT_ERROR(x.Assign(Tensor::Zeros({3, 2, 2})), "Assign", "fill the target f32[2, 2]");
  EXPECT_ERROR(x.Assign(Tensor::Empty({2}, kFloat32, "CPU:1")), "Assign", "CPU:1");
  EXPECT_THAT(Values(x), ElementsAre(1.5, 1.5, 1.5, 1.5));
}

TEST(TensorAssign, ViewsWriteIntoTheirBase) {
  Tensor x = Four();
  x.Slice({{1, 3}}).Assign(9);
  EXPECT_THAT(Values(x), ElementsAre(1, 9, 9, 4));
  x[0].Assign(-1);
  EXPECT_THAT(Values(x), ElementsAre(-1, 9, 9, 4));
  x.Flip(0).Slice({{0, 2}}).Assign(Tensor::From({5, 6}));
  EXPECT_THAT(Values(x), ElementsAre(-1, 9, 6, 5));
  x.Slice({{std::nullopt, std::nullopt, 2}}).Assign(0);
  EXPECT_THAT(Values(x), ElementsAre(0, 9, 0, 5));
  x.Slice({{std::nullopt, std::nullopt, -3}}).Assign(Tensor::From({1, 2}));
  EXPECT_THAT(Values(x), ElementsAre(2, 9, 0, 1));
  x.Reshape({2, 2}).T()[1].Assign(Tensor::From({3, 4}));
  EXPECT_THAT(Values(x), ElementsAre(2, 3, 0, 4));
  x.Window(0, {2}, {2}).Select(0, 1).Assign(7);
  EXPECT_THAT(Values(x), ElementsAre(2, 3, 7, 7));
  x.Slice({{2, 2}}).Assign(100);  // nothing
  EXPECT_THAT(Values(x), ElementsAre(2, 3, 7, 7));
}

TEST(TensorAssign, AViewSeesItsOwnWriteAndOldViewsTheOldValues) {
  Tensor x = Four();
  Tensor left = x.Slice({{0, 2}}), right = x.Slice({{2, 4}});
  left.Assign(0);
  EXPECT_THAT(Values(left), ElementsAre(0, 0));
  EXPECT_THAT(Values(right), ElementsAre(3, 4));
  // A view taken before still writes into the base as it is now.
  right.Assign(8);
  EXPECT_THAT(Values(x), ElementsAre(0, 0, 8, 8));
  EXPECT_THAT(Values(right), ElementsAre(8, 8));
  // As does a view of a view.
  right[1].Assign(5);
  EXPECT_THAT(Values(x), ElementsAre(0, 0, 8, 5));
}

// What is a view of something that no variable holds is a tensor like any other.
TEST(TensorAssign, ViewsOfWhatNoOneHolds) {
  Tensor x = (Four() * 2).Reshape({2, 2});
  x[0].Assign(9);
  EXPECT_THAT(Values(x), ElementsAre(9, 9, 6, 8));
  x[1][0].Assign(1);
  EXPECT_THAT(Values(x), ElementsAre(9, 9, 1, 8));
  Tensor turned = (Four() * 2).Reshape({2, 2}).T();
  turned[0].Assign(Tensor::From({5, 7}));
  EXPECT_THAT(Values(turned), ElementsAre(5, 7, 4, 8));
  turned.Assign(turned + 1);
  EXPECT_THAT(Values(turned), ElementsAre(6, 8, 5, 9));
  turned[1] = 0;
  EXPECT_THAT(Values(turned), ElementsAre(6, 8, 0, 0));
  // One that is held is written through, as ever.
  const Tensor base = Four();
  Tensor view = base.Reshape({2, 2});
  view[0].Assign(0);
  EXPECT_THAT(Values(base), ElementsAre(0, 0, 3, 4));
}

// What is written into a view of a view shows in the one between, if someone holds it.
TEST(TensorAssign, ViewsOfViewsWriteIntoThoseBetween) {
  Tensor base = Four();
  std::vector<Tensor> parts = base.Chunk(2);
  parts[0][0] = 9;
  EXPECT_THAT(Values(parts[0]), ElementsAre(9, 2));
  EXPECT_THAT(Values(parts[1]), ElementsAre(3, 4));
  EXPECT_THAT(Values(base), ElementsAre(9, 2, 3, 4));
  // Over several, of which one is gone.
  Tensor square = base.Reshape({2, 2});
  Tensor row = square.T()[1];
  row.Reshape({2, 1})[1] = 7;
  EXPECT_THAT(Values(row), ElementsAre(2, 7));
  EXPECT_THAT(Values(square), ElementsAre(9, 2, 3, 7));
  EXPECT_THAT(Values(base), ElementsAre(9, 2, 3, 7));
  EXPECT_THAT(Values(parts[1]), ElementsAre(3, 4));  // as captured: it was not made through it
  // What an expression captured stays.
  const Tensor twice = row * 2;
  row[0] = 0;
  EXPECT_THAT(Values(twice), ElementsAre(4, 14));
  EXPECT_THAT(Values(square), ElementsAre(9, 0, 3, 7));
}

TEST(TensorAssign, UnrealisedValues) {
  Tensor s = Four() + Tensor::From({10, 20, 30, 40});
  s.Slice({{0, 2}}).Assign(0);
  EXPECT_THAT(Values(s), ElementsAre(0, 0, 33, 44));
  s.Slice({{3, 4}}).Assign(1);
  EXPECT_THAT(Values(s), ElementsAre(0, 0, 33, 1));
}

TEST(TensorAssign, OverlapsReadTheOldValues) {
  Tensor x = Four();
  x.Slice({{1, 4}}).Assign(x.Slice({{0, 3}}));
  EXPECT_THAT(Values(x), ElementsAre(1, 1, 2, 3));
  Tensor y = Four();
  y.Slice({{0, 3}}).Assign(y.Slice({{1, 4}}));
  EXPECT_THAT(Values(y), ElementsAre(2, 3, 4, 4));
  Tensor z = Four().Reshape({2, 2});
  z.Assign(z.T());
  EXPECT_THAT(Values(z), ElementsAre(1, 3, 2, 4));
}

TEST(TensorAssign, SwapOfTwoSlices) {
  Tensor b = Four();
  const Tensor l = b.Slice({{0, 2}}), r = b.Slice({{2, 4}});
  b.Slice({{0, 2}}).Assign(r);
  b.Slice({{2, 4}}).Assign(l);
  EXPECT_THAT(Values(b), ElementsAre(3, 4, 1, 2));
}

// Equal constants are one node; what is written into one must not show in the other.
TEST(TensorAssign, EqualTensorsStayApart) {
  Tensor a = Tensor::Zeros({2}).Contiguous(), b = Tensor::Zeros({2}).Contiguous();
  ASSERT_EQ(a.uop(), b.uop());
  a[0].Assign(1);
  b[0].Assign(1);
  EXPECT_FALSE(a.uop() == b.uop());
  a[1].Assign(5);
  EXPECT_THAT(Values(a), ElementsAre(1, 5));
  EXPECT_THAT(Values(b), ElementsAre(1, 0));
  // The target lies in storage of the tensor's own, on the device of the value.
  UOp root = a.uop();
  while (root.is(Op::kAssign)) root = root.src(0);
  EXPECT_EQ(root.op(), Op::kBuffer);
  EXPECT_EQ(root.device().ToString(), "CPU");
  Tensor c = Tensor::Zeros({2}, kFloat32, "CPU:1");
  c.Assign(Tensor::Ones({2}));
  EXPECT_EQ(c.device().ToString(), "CPU:1");
}

TEST(TensorAssign, TargetsThatCannotBeWritten) {
  Tensor x = Four();
  EXPECT_ERROR(x.Reshape({1, 4}).Expand({3, 4}).Assign(1), "Assign", ".Contiguous()");
  EXPECT_ERROR(x.Pad({{1, 1}}).Assign(1), "Assign", "padding");
  EXPECT_ERROR(x.Window(0, {2}).Assign(1), "Assign", "repeats elements of f32[4]");
  EXPECT_ERROR(Tensor().Assign(1), "Assign", "empty");
  EXPECT_THAT(Values(x), ElementsAre(1, 2, 3, 4));
  Tensor wide = x.Reshape({1, 4}).Expand({2, 4}).Contiguous();
  wide[0].Assign(0);
  EXPECT_THAT(Values(wide), ElementsAre(0, 0, 0, 0, 1, 2, 3, 4));
  EXPECT_THAT(Values(x), ElementsAre(1, 2, 3, 4));
}

TEST(TensorAssign, ResultsOfFunctionsAreNotViews) {
  Tensor x = Four();
  Tensor y = x + 0;
  y.Assign(7);
  (x * 1).Slice({{0, 2}}).Assign(7);
  EXPECT_THAT(Values(x), ElementsAre(1, 2, 3, 4));
}

TEST(TensorAssign, AtASymbolicPosition) {
  const Variable position("position", 0, 3);
  Tensor cache = Tensor::Zeros({4, 2});
  cache.Slice({{position, position + 1}}).Assign(Tensor::From({{1, 2}}));
  EvaluateOptions options;
  options.vars["position"] = 2;
  EXPECT_THAT(Values(cache, options), ElementsAre(0, 0, 0, 0, 1, 2, 0, 0));
  const Tensor seen = cache.Slice({{0, position + 1}});
  EXPECT_EQ(Values(seen, options).size(), 6u);
}

TEST(TensorAssign, RealisedViewsKeepTheirBase) {
  Tensor x = Four();
  Tensor view = x.Slice({{1, 3}});
  view.SetUOp(Tensor::From(std::vector<float>{2, 3}).uop());  // as the runtime does
  view[0].Assign(9);
  EXPECT_THAT(Values(x), ElementsAre(1, 9, 3, 4));
  x.SetUOp(Four().uop());
  view.Assign(0);
  EXPECT_THAT(Values(x), ElementsAre(1, 0, 0, 4));
}

}  // namespace
}  // namespace tessera
