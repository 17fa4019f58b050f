// What index expressions are at a lane.
#include "codegen/lane_values.h"

#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "tests/testing.h"

namespace tessera {
namespace {

UOp Range(int64_t id, int64_t extent) {
  return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{id, RangeKind::kLoop});
}
UOp Binary(Op op, const UOp& a, int64_t b) { return UOp::Make(op, {a, UOp::Index(b)}); }
UOp Add(const UOp& a, const UOp& b) { return UOp::Make(Op::kAdd, {a, b}); }

// Sums in which the range is a term, and all others, are what putting the number in gives.
TEST(LaneValues, AtALaneIsWithTheNumberPutIn) {
  const UOp lane = Range(0, 8), row = Range(1, 100),
            n = UOp::Make(Op::kVar, kInt64, {}, VarArg{"n", 0, 40});
  const UOp adjacent = Add(Binary(Op::kMul, row, 64), lane);
  const UOp far = Add(Add(Binary(Op::kMul, lane, -12), n), Binary(Op::kAdd, row, 5));
  const UOp digits = Add(Binary(Op::kMul, Binary(Op::kFloorDiv, Add(lane, row), 4), 32),
                         Binary(Op::kFloorMod, lane, 4));
  const UOp by_variable = Add(UOp::Make(Op::kMul, {lane, n}), lane);
  const UOp gate = UOp::Make(Op::kCmpLt, {adjacent, n});
  for (const UOp& u : {lane, row, adjacent, far, digits, by_variable, gate}) {
    for (int64_t l = 0; l < 8; ++l) {
      EXPECT_EQ(AtLane(u, lane, l), Simplify(Substitute(u, {{lane, UOp::Index(l)}}))) << l;
      EXPECT_EQ(AtLane(Simplify(u), lane, l), AtLane(u, lane, l)) << l;
    }
  }
  EXPECT_EQ(AtLane(adjacent, lane, 3), Binary(Op::kAdd, Binary(Op::kMul, row, 64), 3));
}

}  // namespace
}  // namespace tessera
