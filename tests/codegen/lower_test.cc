// Where statements stand in programs.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/codegen/kernels.h"

namespace tessera {
namespace {

// Of a program: in how many loops the most deeply nested statement of this op stands.
int DeepestLoops(const UOp& program, Op op) {
  std::vector<Op> open;
  int deepest = 0;
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kRange) || s.is(Op::kIf)) open.push_back(s.op());
    if (s.is(Op::kEnd)) open.pop_back();
    if (!s.is(op)) continue;
    deepest = std::max(deepest, static_cast<int>(std::count(open.begin(), open.end(), Op::kRange)));
  }
  return deepest;
}

TEST(Lower, WhatALoopDoesNotChangeStandsBeforeItThoughItMayNotRun) {
  const Tensor x = Tensor::Empty({64, 512});
  const Variable n("lower_test_n", 0, 512);
  for (const Tensor& y : {x.Softmax(), x.SliceAxis(1, {0, n}).Softmax()}) {
    const UOp program = ProgramOf(y, SmallChip());
    EXPECT_EQ(DeepestLoops(program, Op::kExp), 2) << "a row's sum is computed for each element";
  }
}

TEST(Lower, ButOnlyWhereTheLoopRuns) {
  // The maximum of y may have nothing to read where x is empty: it is inside of a test.
  const Variable n("lower_test_n", 0, 512);
  const Tensor x = Tensor::Empty({64, 512}).SliceAxis(1, {0, n}), y = Tensor::Empty({64, 256});
  const UOp program = ProgramOf(x - y.Max({1}, true), SmallChip());
  int depth = 0;
  bool tested = false;
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kIf)) ++depth;
    if (s.is(Op::kEnd) && s.src(0).is(Op::kIf)) --depth;
    if (s.is(Op::kMax)) {
      EXPECT_GT(depth, 0);
      tested = true;
    }
  }
  EXPECT_TRUE(tested);
}

}  // namespace
}  // namespace tessera
