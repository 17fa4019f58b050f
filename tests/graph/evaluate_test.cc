// The reference evaluator against values worked out by hand and plain loops.
#include "graph/evaluate.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "graph/buffer.h"
#include "graph/fold.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<double> Values(const HostArray& a) {
  std::vector<double> out;
  for (int64_t i = 0; i < a.elements(); ++i) out.push_back(a.AsDouble(i));
  return out;
}

std::vector<double> Eval(const UOp& u, const EvaluateOptions& options = {}) {
  auto out = Evaluate({u}, options);
  EXPECT_OK(out);
  return out.ok() ? Values(out->front()) : std::vector<double>();
}

// 0, 1, ... as a tensor of the shape.
UOp Count(DType dtype, Extents dims) {
  UOp iota = UOp::Make(Op::kIota, dtype, {}, Extents{Shape(dims).Elements()});
  return UOp::Make(Op::kReshape, {iota}, dims);
}

template <typename T>
UOp Data(DType dtype, std::vector<T> values) {
  auto buffer = std::make_shared<Buffer>();
  buffer->storage = std::make_shared<Storage>();
  auto* bytes = new uint8_t[values.size() * sizeof(T)];
  std::memcpy(bytes, values.data(), values.size() * sizeof(T));
  buffer->storage->data = bytes;
  buffer->storage->deleter = [](Storage& s) { delete[] static_cast<uint8_t*>(s.data); };
  const Extents shape(1, values.size());
  return UOp::Make(Op::kBuffer, dtype, {}, BufferArg{buffer, shape, {}});
}

TEST(Evaluate, Leaves) {
  EXPECT_THAT(Eval(UOp::Const(kFloat32, 1.5)), ElementsAre(1.5));
  EXPECT_THAT(Eval(Count(kInt32, {2, 2})), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Eval(Data<float>(kFloat32, {1, -2})), ElementsAre(1, -2));
  const UOp n = UOp::Make(Op::kVar, kInt64, {}, VarArg{"n", 0, 9});
  EvaluateOptions options;
  options.vars["n"] = 3;
  EXPECT_THAT(Eval(UOp::Make(Op::kIota, kInt64, {}, Extents{Extent(n)}), options),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(Evaluate({n}), StatusIs(absl::StatusCode::kInvalidArgument, "n has no value"));
  options.vars["n"] = 10;
  EXPECT_THAT(Evaluate({n}, options), StatusIs(absl::StatusCode::kInvalidArgument, "outside 0..9"));
}

TEST(Evaluate, ContentsOfBuffersAndParams) {
  const UOp empty =
      UOp::Make(Op::kBuffer, kInt32, {}, BufferArg{std::make_shared<Buffer>(), {2}, {}});
  EXPECT_THAT(Evaluate({empty}),
              StatusIs(absl::StatusCode::kInvalidArgument, "was never given data"));
  const UOp param = UOp::Make(Op::kParam, kInt32, {}, ParamArg{1, {2}, {}});
  const int32_t data[2] = {7, -8};
  EvaluateOptions options;
  options.contents = [&](const UOp&) { return reinterpret_cast<const uint8_t*>(data); };
  EXPECT_THAT(Eval(UOp::Make(Op::kAdd, {empty, param}), options), ElementsAre(14, -16));
}

TEST(Evaluate, ResultLayout) {
  ASSERT_OK_AND_ASSIGN(auto out,
                       Evaluate({Count(kFloat16, {2, 3}), UOp::Const(kBool, int64_t{1})}));
  EXPECT_THAT(out[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(out[0].bytes.size(), 12u);
  EXPECT_EQ(out[0].elements(), 6);
  EXPECT_TRUE(out[1].shape.empty());
  EXPECT_THAT(out[1].bytes, ElementsAre(1));
}

TEST(Evaluate, Movement) {
  const UOp x = Count(kInt32, {2, 3});
  EXPECT_THAT(Eval(UOp::Make(Op::kPermute, {x}, Ints{1, 0})), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(Eval(UOp::Make(Op::kFlip, {x}, Ints{1})), ElementsAre(2, 1, 0, 5, 4, 3));
  EXPECT_THAT(Eval(UOp::Make(Op::kShrink, {x}, Pairs{{1, 2}, {0, 2}})), ElementsAre(3, 4));
  EXPECT_THAT(Eval(UOp::Make(Op::kPad, {x}, Pairs{{0, 1}, {1, 0}})),
              ElementsAre(0, 0, 1, 2, 0, 3, 4, 5, 0, 0, 0, 0));
  EXPECT_THAT(Eval(UOp::Make(Op::kExpand, {Count(kInt32, {2, 1})}, Extents{2, 3})),
              ElementsAre(0, 0, 0, 1, 1, 1));
  // Positions 0 and 2, two elements each, one apart by two.
  const UOp w = UOp::Make(Op::kWindow, {Count(kInt32, {5})}, WindowArg{{0}, {2}, {2}, {2}});
  EXPECT_THAT(Eval(w), ElementsAre(0, 2, 2, 4));
  EXPECT_THAT(Eval(UOp::Make(Op::kShrink, {x}, Pairs{{1, 1}, {0, 2}})), ElementsAre());
}

TEST(Evaluate, SymbolicShrink) {
  const UOp n = UOp::Make(Op::kVar, kInt64, {}, VarArg{"n", 0, 2});
  const UOp s =
      UOp::Make(Op::kShrink, {Count(kInt32, {4})}, Pairs{{Extent(n), Extent(n) + Extent(2)}});
  EvaluateOptions options;
  for (int64_t v = 0; v <= 2; ++v) {
    options.vars["n"] = v;
    EXPECT_THAT(Eval(s, options), ElementsAre(v, v + 1));
  }
}

TEST(Evaluate, Reductions) {
  const UOp x = Count(kInt32, {2, 3});
  const auto reduce = [](UOp u, Op op, Ints axes) {
    return Eval(UOp::Make(Op::kReduce, {u}, ReduceArg{op, axes}));
  };
  EXPECT_THAT(reduce(x, Op::kAdd, {0}), ElementsAre(3, 5, 7));
  EXPECT_THAT(reduce(x, Op::kAdd, {1}), ElementsAre(3, 12));
  EXPECT_THAT(reduce(x, Op::kMax, {0, 1}), ElementsAre(5));
  EXPECT_THAT(reduce(x, Op::kMin, {}), ElementsAre(0, 1, 2, 3, 4, 5));
  const UOp none = UOp::Make(Op::kShrink, {x}, Pairs{{0, 0}, {0, 3}});
  EXPECT_THAT(reduce(none, Op::kAdd, {0}), ElementsAre(0, 0, 0));
  EXPECT_THAT(reduce(none, Op::kMul, {0}), ElementsAre(1, 1, 1));
  EXPECT_THAT(reduce(none, Op::kAnd, {0}), ElementsAre(-1, -1, -1));
  const UOp small = Data<int8_t>(kInt8, {127, 1});
  EXPECT_THAT(reduce(small, Op::kAdd, {0}), ElementsAre(-128));
  // Added one by one in f16, 2048 ones would stop growing at 2048; the sum is rounded once.
  const UOp halves =
      UOp::Make(Op::kExpand, {UOp::Make(Op::kReshape, {UOp::Const(kFloat16, 1.0)}, Extents{1})},
                Extents{4098});
  EXPECT_THAT(reduce(halves, Op::kAdd, {0}), ElementsAre(4096));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(reduce(Data<double>(kFloat64, {1, nan, 2}), Op::kMax, {0})[0]));
}

TEST(Evaluate, GatherReadsZeroOutOfRange) {
  const UOp x = Count(kFloat32, {2, 3});
  const UOp index = Data<int32_t>(kInt32, {2, -1, 0, 3});
  EXPECT_THAT(Eval(UOp::Make(Op::kGather, {x, index}, Ints{1, 0, 0})),
              ElementsAre(2, 0, 0, 0, 5, 0, 3, 0));
  const UOp huge = Data<uint64_t>(kUInt64, {~uint64_t{0}, 1});
  EXPECT_THAT(Eval(UOp::Make(Op::kGather, {x, huge}, Ints{0, 0, 0})),
              ElementsAre(0, 0, 0, 3, 4, 5));
  const UOp scalar = UOp::Const(kInt64, int64_t{1});
  EXPECT_THAT(Eval(UOp::Make(Op::kGather, {x, scalar}, Ints{0, 0, 0})), ElementsAre(3, 4, 5));
}

TEST(Evaluate, GatherAlongSharedAxes) {
  const UOp x = Count(kFloat32, {2, 3, 2});
  const UOp index = Data<int32_t>(kInt32, {2, 0, -1, 1});
  const UOp shared = UOp::Make(Op::kReshape, {index}, Extents{2, 1, 2});
  EXPECT_THAT(Eval(UOp::Make(Op::kGather, {x, shared}, Ints{1, 1, 1})), ElementsAre(4, 1, 0, 9));
  const UOp leading = UOp::Make(Op::kReshape, {index}, Extents{2, 2});
  EXPECT_THAT(Eval(UOp::Make(Op::kGather, {x, leading}, Ints{1, 1, 0})),
              ElementsAre(4, 5, 0, 1, 0, 0, 8, 9));
}

TEST(Evaluate, ScatterTakesUpdatesInOrder) {
  const UOp base = Data<float>(kFloat32, {-0.0f, 1, 2});
  const UOp index = Data<int32_t>(kInt32, {2, 1, 2, 3, -1});
  const UOp updates = Data<float>(kFloat32, {5, -0.0f, 7, 9, 9});
  const auto by = [&](Op op) {
    return Eval(UOp::Make(Op::kScatter, {base, index, updates}, ReduceArg{op, {0, 0, 0}}));
  };
  EXPECT_THAT(by(Op::kAdd), ElementsAre(0, 1, 14));
  EXPECT_TRUE(std::signbit(by(Op::kAdd)[0]));
  EXPECT_THAT(by(Op::kMul), ElementsAre(0, 0, 70));
  EXPECT_THAT(by(Op::kMax), ElementsAre(0, 1, 7));
  EXPECT_THAT(by(Op::kAssign), ElementsAre(0, 0, 7));
  EXPECT_TRUE(std::signbit(by(Op::kAssign)[1]));
}

TEST(Evaluate, CatKeepsNegativeZero) {
  const UOp a = Data<float>(kFloat32, {-0.0f, 1}), b = Data<float>(kFloat32, {2});
  const auto v = Eval(UOp::Make(Op::kCat, {a, b}, int64_t{0}));
  EXPECT_THAT(v, ElementsAre(0, 1, 2));
  EXPECT_TRUE(std::signbit(v[0]));
}

TEST(Evaluate, AssignIsFunctional) {
  const UOp base = Data<float>(kFloat32, {1, 2, 3, 4});
  const UOp flipped = UOp::Make(Op::kFlip, {base}, Ints{0});
  const UOp view = UOp::Make(Op::kShrink, {flipped}, Pairs{{0, 3}});
  const UOp value = UOp::Make(Op::kShrink, {base}, Pairs{{1, 4}});
  ASSERT_OK_AND_ASSIGN(auto out, Evaluate({UOp::Make(Op::kAssign, {base, view, value}), base}));
  EXPECT_THAT(Values(out[0]), ElementsAre(1, 4, 3, 2));
  EXPECT_THAT(Values(out[1]), ElementsAre(1, 2, 3, 4));
}

TEST(Evaluate, RealizedNodesAreLeaves) {
  const UOp sum = UOp::Make(Op::kAdd, {Data<float>(kFloat32, {1}), UOp::Const(kFloat32, 1.0)});
  sum.SetRealized(Data<float>(kFloat32, {40}));
  const UOp twice = UOp::Make(Op::kAdd, {sum, sum});
  EXPECT_THAT(Eval(twice), ElementsAre(80));
  EvaluateOptions options;
  options.stop_at_realized = false;
  EXPECT_THAT(Eval(twice, options), ElementsAre(4));
}

TEST(Evaluate, LongChainsAndSharedNodes) {
  UOp chain = UOp::Const(kFloat32, 0.0);
  const UOp step = Data<float>(kFloat32, {1});
  for (int i = 0; i < 100000; ++i) chain = UOp::Make(Op::kAdd, {chain, step});
  EXPECT_THAT(Eval(chain), ElementsAre(100000));
  UOp doubled = UOp::Const(kInt64, int64_t{1});
  for (int i = 0; i < 62; ++i) doubled = UOp::Make(Op::kAdd, {doubled, doubled});
  EXPECT_THAT(Eval(doubled), ElementsAre(std::ldexp(1.0, 62)));
}

TEST(Evaluate, RefusesKernels) {
  const UOp sink = UOp::Make(Op::kSink, {UOp::Const(kFloat32, 1.0)});
  EXPECT_THAT(Evaluate({sink}), StatusIs(absl::StatusCode::kInvalidArgument, "SINK"));
}

// ---- elementwise ops on scalars

Scalar Fold2(Op op, DType t, Scalar a, Scalar b) { return EvaluateScalarOp(op, t, t, {a, b}); }
double FoldF(Op op, DType t, double a, double b) {
  return Fold2(op, t, Scalar::Float(a), Scalar::Float(b)).AsFloat();
}

TEST(Fold, IntegerDivision) {
  for (DType t : {kInt8, kInt16, kInt32, kInt64}) {
    for (int64_t a = -9; a <= 9; ++a) {
      for (int64_t b = -9; b <= 9; ++b) {
        const Scalar x = Scalar::Int(a), y = Scalar::Int(b);
        const double q = static_cast<double>(a) / static_cast<double>(b);
        const int64_t trunc = b == 0 ? 0 : static_cast<int64_t>(std::trunc(q));
        const int64_t floor = b == 0 ? 0 : static_cast<int64_t>(std::floor(q));
        EXPECT_EQ(Fold2(Op::kTruncDiv, t, x, y).AsInt(), trunc) << a << " " << b;
        EXPECT_EQ(Fold2(Op::kFloorDiv, t, x, y).AsInt(), floor) << a << " " << b;
        EXPECT_EQ(Fold2(Op::kTruncMod, t, x, y).AsInt(), b == 0 ? 0 : a - trunc * b);
        EXPECT_EQ(Fold2(Op::kFloorMod, t, x, y).AsInt(), b == 0 ? 0 : a - floor * b);
      }
    }
    const Scalar low = Scalar::Int(MinInt(t)), minus = Scalar::Int(-1);
    EXPECT_EQ(Fold2(Op::kTruncDiv, t, low, minus), low);
    EXPECT_EQ(Fold2(Op::kFloorDiv, t, low, minus), low);
    EXPECT_EQ(Fold2(Op::kTruncMod, t, low, minus).AsInt(), 0);
    EXPECT_EQ(EvaluateScalarOp(Op::kAbs, t, t, {low}), low);
    EXPECT_EQ(EvaluateScalarOp(Op::kNeg, t, t, {low}), low);
  }
}

// Every pair of 8-bit operands against arithmetic in plain ints.
TEST(Fold, ExhaustiveBytes) {
  for (DType t : {kInt8, kUInt8}) {
    const bool is_signed = t == kInt8;
    const auto wrap = [&](int v) {
      return is_signed ? int{static_cast<int8_t>(v)} : int{static_cast<uint8_t>(v)};
    };
    for (int64_t a = MinInt(t); a <= MaxInt(t); ++a) {
      for (int64_t b = MinInt(t); b <= MaxInt(t); ++b) {
        const auto f = [&](Op op) { return Fold2(op, t, Scalar::Int(a), Scalar::Int(b)).AsInt(); };
        const int x = static_cast<int>(a), y = static_cast<int>(b);
        ASSERT_EQ(f(Op::kAdd), wrap(x + y));
        ASSERT_EQ(f(Op::kSub), wrap(x - y));
        ASSERT_EQ(f(Op::kMul), wrap(x * y));
        ASSERT_EQ(f(Op::kMax), std::max(x, y));
        ASSERT_EQ(f(Op::kMin), std::min(x, y));
        ASSERT_EQ(f(Op::kAnd), wrap(x & y));
        ASSERT_EQ(f(Op::kOr), wrap(x | y));
        ASSERT_EQ(f(Op::kXor), wrap(x ^ y));
        ASSERT_EQ(f(Op::kShl), y < 0 || y >= 8 ? 0 : wrap(x << y));
        ASSERT_EQ(f(Op::kShr), y < 0 || y >= 8 ? (x < 0 ? -1 : 0) : x >> y);
        const auto cmp = [&](Op op) {
          return EvaluateScalarOp(op, kBool, t, {Scalar::Int(a), Scalar::Int(b)}).AsInt();
        };
        ASSERT_EQ(cmp(Op::kCmpLt), x < y);
        ASSERT_EQ(cmp(Op::kCmpLe), x <= y);
        ASSERT_EQ(cmp(Op::kCmpEq), x == y);
        ASSERT_EQ(cmp(Op::kCmpNe), x != y);
        int power = 1;  // by repeated, wrapping products
        for (int i = 0; i < y; ++i) power = wrap(power * x);
        if (y < 0) power = x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
        ASSERT_EQ(f(Op::kPow), power) << x << " " << y;
      }
    }
  }
}

TEST(Fold, SixtyFourBitValues) {
  const Scalar all{~uint64_t{0}}, two{2};
  EXPECT_EQ(Fold2(Op::kTruncDiv, kUInt64, all, two).bits, ~uint64_t{0} / 2);
  EXPECT_EQ(Fold2(Op::kMax, kUInt64, all, two), all);
  EXPECT_EQ(Fold2(Op::kMax, kInt64, all, two), two);  // -1 as a signed number
  EXPECT_EQ(Fold2(Op::kShl, kInt64, Scalar::Int(1000), Scalar::Int(64)).AsInt(), 0);
  EXPECT_EQ(Fold2(Op::kShr, kInt64, Scalar::Int(-1), Scalar::Int(31)).AsInt(), -1);
  EXPECT_EQ(EvaluateScalarOp(Op::kCmpLt, kBool, kUInt64, {two, all}).AsInt(), 1);
}

TEST(Fold, FloatsWithNaNAndSignedZero) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (DType t : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    for (Op op : {Op::kMax, Op::kMin}) {
      EXPECT_TRUE(std::isnan(FoldF(op, t, nan, 1)));
      EXPECT_TRUE(std::isnan(FoldF(op, t, 1, nan)));
    }
    EXPECT_FALSE(std::signbit(FoldF(Op::kMax, t, -0.0, 0.0)));
    EXPECT_FALSE(std::signbit(FoldF(Op::kMax, t, 0.0, -0.0)));
    EXPECT_TRUE(std::signbit(FoldF(Op::kMin, t, -0.0, 0.0)));
    EXPECT_TRUE(std::signbit(FoldF(Op::kMin, t, 0.0, -0.0)));
    EXPECT_TRUE(std::signbit(EvaluateScalarOp(Op::kNeg, t, t, {Scalar::Float(0)}).AsFloat()));
    EXPECT_TRUE(std::signbit(EvaluateScalarOp(Op::kCeil, t, t, {Scalar::Float(-0.5)}).AsFloat()));
    const auto cmp = [&](Op op, double a, double b) {
      return EvaluateScalarOp(op, kBool, t, {Scalar::Float(a), Scalar::Float(b)}).AsInt();
    };
    EXPECT_EQ(cmp(Op::kCmpLt, nan, 1), 0);
    EXPECT_EQ(cmp(Op::kCmpLe, nan, nan), 0);
    EXPECT_EQ(cmp(Op::kCmpEq, nan, nan), 0);
    EXPECT_EQ(cmp(Op::kCmpNe, nan, nan), 1);
    EXPECT_EQ(cmp(Op::kCmpLt, 0.25, 0.5), 1);  // not truncated to integers
  }
}

TEST(Fold, RoundsToTheDtype) {
  EXPECT_EQ(FoldF(Op::kAdd, kFloat32, 16777216, 1), 16777216);
  EXPECT_EQ(FoldF(Op::kAdd, kFloat16, 65504, 65504), std::numeric_limits<double>::infinity());
  EXPECT_EQ(FoldF(Op::kDiv, kFloat32, 1, 3), static_cast<double>(1.0f / 3.0f));
  // A double would round a*b + c twice.
  const double a = 1 + std::ldexp(1, -12), c = std::ldexp(1, -60);
  const Scalar fma = EvaluateScalarOp(Op::kFma, kFloat32, kFloat32,
                                      {Scalar::Float(a), Scalar::Float(a), Scalar::Float(c)});
  EXPECT_EQ(fma.AsFloat(),
            std::fmaf(static_cast<float>(a), static_cast<float>(a), static_cast<float>(c)));
}

TEST(Fold, CastBitcastWhere) {
  EXPECT_EQ(EvaluateScalarOp(Op::kCast, kInt32, kFloat32, {Scalar::Float(3e9)}).AsInt(), INT32_MAX);
  EXPECT_EQ(EvaluateScalarOp(Op::kCast, kInt32, kBool, {Scalar::Int(1)}).AsInt(), 1);
  EXPECT_EQ(EvaluateScalarOp(Op::kBitcast, kUInt32, kFloat32, {Scalar::Float(1)}).bits,
            0x3f800000u);
  EXPECT_EQ(EvaluateScalarOp(Op::kBitcast, kInt8, kUInt8, {Scalar::Int(255)}).AsInt(), -1);
  const Scalar yes = Scalar::Int(1), no = Scalar::Int(0);
  const Scalar x = Scalar::Float(-0.0), y = Scalar::Float(2);
  EXPECT_EQ(EvaluateScalarOp(Op::kWhere, kFloat32, kFloat32, {yes, x, y}), x);
  EXPECT_EQ(EvaluateScalarOp(Op::kWhere, kFloat32, kFloat32, {no, x, y}), y);
}

// The known-answer vectors of Random123 for threefry2x32-20.
TEST(Fold, Threefry) {
  const auto threefry = [](uint64_t counter, uint64_t key) {
    return Fold2(Op::kThreefry, kUInt64, {counter}, {key}).bits;
  };
  EXPECT_EQ(threefry(0, 0), 0x99ba4efe6b200159u);
  EXPECT_EQ(threefry(~uint64_t{0}, ~uint64_t{0}), 0xbb002be71cb996fcu);
  EXPECT_EQ(threefry(0x85a308d3243f6a88u, 0x0370734413198a2eu), 0x483df7a0c4923a9cu);
}

// Every elementwise op runs on every dtype it takes, and gives a value of its dtype.
TEST(Fold, EveryRow) {
  int rows = 0;
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (!IsElementwise(op)) continue;
    for (DType t : {kBool, kInt8, kUInt16, kInt64, kUInt64, kFloat8E4M3, kFloat16, kFloat32}) {
      std::vector<UOp> srcs(Info(op).arity, UOp::Const(t, int64_t{1}));
      if (op == Op::kWhere) srcs[0] = UOp::Const(kBool, int64_t{1});
      auto node = UOp::TryMake(op, op == Op::kCast || op == Op::kBitcast ? t : kVoid, srcs, Arg());
      if (!node.ok()) continue;
      ++rows;
      ASSERT_OK_AND_ASSIGN(auto out, Evaluate({*node}));
      EXPECT_EQ(out[0].dtype, node->dtype());
    }
  }
  EXPECT_GT(rows, 150);
}

}  // namespace
}  // namespace tessera
