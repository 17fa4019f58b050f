// Where statements stand in programs.
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/passes.h"
#include "graph/text.h"
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
  const Tensor x = Tensor::Empty({64, 256});
  const Variable n("lower_test_n", 0, 256);
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

// One tile where there are five rows, and what is left of fewer: neither computes the other's sums.
TEST(Lower, SumsForLoopsOfWhichOneDoesNotRunAreApart) {
  const absl::StatusOr<std::vector<UOp>> roots = Parse(R"(
%out = PARAM f32 () slot 0 [16] @CPU
%in = PARAM f32 () slot 1 [64] @CPU
%n = VAR i64 () lower_rows 0..8
%five = CONST i64 () 5
%c = CONST i64 () 32
%tiles = FLOORDIV i64 (%n, %five)
%left = FLOORMOD i64 (%n, %five)
%i = RANGE i64 (%tiles) r0:loop
%j = RANGE i64 (%left) r1:loop
%k = RANGE i64 (%c) r2:loop
%x = INDEX f32 (%in, %k)
%far = ADD i64 (%k, %c)
%y = INDEX f32 (%in, %far)
%a = REDUCE f32 (%x, %k) ADD
%b = REDUCE f32 (%y, %k) ADD
%ai = INDEX f32 (%out, %i)
%jj = ADD i64 (%j, %five)
%bi = INDEX f32 (%out, %jj)
%as = STORE void (%ai, %a, %i) 0
%bs = STORE void (%bi, %b, %j) 0
%sink = SINK void (%as, %bs)
)");
  ASSERT_OK(roots);
  const absl::StatusOr<Lowered> lowered = Lower(roots->at(0), "apart", SmallChip());
  ASSERT_OK(lowered);
  int loads = 0;  // of memory, not of registers
  for (const UOp& s : lowered->program.srcs()) loads += s.is(Op::kLoad) && s.size() > 1;
  EXPECT_EQ(loads, 2);
}

// In each step of a loop a block's threads fill scratch that others read: they meet before, as the
// step before may still be read, and after. What is filled next meets nobody who still reads it.
TEST(Lower, ThreadsMeetBeforeScratchIsFilledAgain) {
  const absl::StatusOr<std::vector<UOp>> roots = Parse(R"(
%out = PARAM f32 () slot 0 [32] @SIM
%in = PARAM f32 () slot 1 [64, 32] @SIM
%n = CONST i64 () 32
%m = CONST i64 () 64
%last = CONST i64 () 31
%step = RANGE i64 (%m) r0:loop
%t = RANGE i64 (%n) r1:thread
%u = RANGE i64 (%n) r2:thread
%v = RANGE i64 (%n) r3:thread
%row = MUL i64 (%step, %n)
%at = ADD i64 (%row, %u)
%x = INDEX f32 (%in, %at)
%a = SCRATCH f32 () [(0, 128)]
%ai = INDEX f32 (%a, %u)
%afill = STORE void (%ai, %x, %u) 0
%as = STAGE f32 (%a, %afill) s0:shared
%vback = SUB i64 (%last, %v)
%y = INDEX f32 (%as, %vback)
%b = SCRATCH f32 () [(1, 128)]
%bi = INDEX f32 (%b, %v)
%bfill = STORE void (%bi, %y, %v) 0
%bs = STAGE f32 (%b, %bfill) s1:shared
%tback = SUB i64 (%last, %t)
%z = INDEX f32 (%bs, %tback)
%w = INDEX f32 (%as, %t)
%zw = MUL f32 (%z, %w)
%sum = REDUCE f32 (%zw, %step) ADD
%o = INDEX f32 (%out, %t)
%store = STORE void (%o, %sum, %t) 0
%sink = SINK void (%store)
)");
  ASSERT_OK(roots);
  Target gpu;
  gpu.dialect = Dialect::kCuda;
  gpu.max_threads = 1024;
  gpu.shared_bytes = 48 << 10;
  const absl::StatusOr<Lowered> lowered = Lower(roots->at(0), "meet", gpu);
  ASSERT_OK(lowered);
  // Before the first, after it, after the second.
  EXPECT_EQ(Count(lowered->program, Op::kBarrier), 3);
  EXPECT_EQ(DeepestLoops(lowered->program, Op::kBarrier), 1);
  bool filled = false;
  for (const UOp& s : lowered->program.srcs()) {
    if (s.is(Op::kBarrier)) break;
    filled |= s.is(Op::kPut);
  }
  EXPECT_FALSE(filled) << "the first is filled while others may read it";
}

}  // namespace
}  // namespace tessera
