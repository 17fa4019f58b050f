// Reads and writes by position: PyTorch's values and NumPy's, of sin(0.7 i); and errors.
#include "graph/index_functions.h"

#include <gtest/gtest.h>

#include <vector>

#include "graph/grad.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/waves.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

// torch.take and put
TEST(IndexFunctions, Flat) {
  const Tensor x = Waves({3, 4});
  ExpectNear(Computed(TakeFlat(x, Tensor::From({{0, -1}, {5, 7}}))),
             {0, 0.9881682338770003, -0.35078322768961984, -0.9824526126243326}, 1e-15);
  EXPECT_EQ(Computed(TakeFlat(x, Tensor::From({12, -13}))), (Values{0, 0}));
  const Tensor at = Tensor::From({1, -2, 1}), to = Tensor::From<double>({10, 20, 30});
  ExpectNear(Computed(PutFlat(x, at, to, /*accumulate=*/true)),
             {0, 40.64421768723769, 0.9854497299884601, 0.8632093666488739, 0.3349881501559051,
              -0.35078322768961984, -0.8715757724135877, -0.9824526126243326, -0.6312666378723216,
              0.016813900484349713, 20.656986598718788, 0.9881682338770003},
             1e-14);
  EXPECT_EQ(Computed(PutFlat(x, at, to).SliceAxis(0, {0, 1})),
            (Values{0, 30, Computed(x)[2], Computed(x)[3]}));
  EXPECT_EQ(Computed(PutFlat(x, Tensor::From({12, -13}), Waves({2}))), Computed(x));
  EXPECT_EQ(Computed(TakeFlat(Tensor::Scalar(3.), Tensor::From({0, -1}))), (Values{3, 3}));
  EXPECT_EQ(Computed(PutFlat(Tensor::Scalar(3.), Tensor::From({-1}), Tensor::From({4.}))),
            Values{4});
  EXPECT_EQ(TakeFlat(Waves({0, 2}), Tensor::Zeros({0}, kInt32)).shape(), Shape({0}));
  EXPECT_ERROR(PutFlat(x, at, Waves({2})), "PutFlat", "as many as the positions");
  EXPECT_ERROR(TakeFlat(x, x), "TakeFlat", "index");
}

// torch.take_along_dim, numpy.take_along_axis and put_along_axis
TEST(IndexFunctions, Along) {
  const Tensor x = Waves({3, 4});
  ExpectNear(Computed(TakeAlong(x, Tensor::From({{2}, {0}, {1}}), 1)),
             {0.9854497299884601, 0.3349881501559051, 0.016813900484349713}, 1e-15);
  ExpectNear(Computed(TakeAlong(x, Tensor::From({{2, 0, 3}}), 1)),
             {0.9854497299884601, 0, 0.8632093666488739, -0.8715757724135877, 0.3349881501559051,
              -0.9824526126243326, 0.6569865987187891, -0.6312666378723216, 0.9881682338770003},
             1e-15);
  ExpectNear(Computed(TakeAlong(x.SliceAxis(0, {0, 1}), Tensor::From({{3, -1}, {0, 1}}), -1)),
             {0.8632093666488739, 0.8632093666488739, 0, 0.644217687237691}, 1e-15);
  const Tensor at = Tensor::From({{1}, {-1}, {0}});
  ExpectNear(
      Computed(PutAlong(x, at, 9, 1)),
      {0, 9, 0.9854497299884601, 0.8632093666488739, 0.3349881501559051, -0.35078322768961984,
       -0.8715757724135877, 9, 9, 0.016813900484349713, 0.6569865987187891, 0.9881682338770003},
      1e-15);
  const Tensor more = Tensor::From({{2.}, {3.}, {4.}}, kFloat64);
  const Tensor added = PutAlong(x, at, more, 1, ScatterMode::kAdd) - x;
  ExpectNear(Computed(added), {0, 2, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0}, 1e-15);
  EXPECT_EQ(Computed(Grad(TakeAlong(x, Tensor::From({{1, 1}}), 1).Sum(), {x})[0]),
            (Values{0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0}));
  EXPECT_ERROR(TakeAlong(x, Tensor::From({1}), 1), "TakeAlong", "rank");
  EXPECT_ERROR(PutAlong(x, Tensor::From({1}), 0, 1), "PutAlong", "rank");
  EXPECT_ERROR(TakeAlong(x, Tensor::From({{0, 1, 2}}), 0), "TakeAlong", "[1, 3]");
}

// torch.index_reduce
TEST(IndexFunctions, IndexReduce) {
  const Tensor x = Waves({3, 4}), src = Waves({4, 4}) * 2, at = Tensor::From({0, 2, 0, 0});
  struct Row {
    ScatterMode mode;
    Values with, without;
  };
  for (const Row& r : std::vector<Row>{
           {ScatterMode::kMul,
            {-0, 0.01781346167397299, -1.8705300711715034, -5.1818598514887375, 0.3349881501559051,
             -0.35078322768961984, -0.8715757724135877, -0.9824526126243326, -0.4229336865519733,
             -0.01179606856390451, -1.1452272044874088, -1.9416569261696628},
            {-0, 0.027651307976895897, -1.898148646500119, -6.003016245763877, 0.3349881501559051,
             -0.35078322768961984, -0.8715757724135877, -0.9824526126243326, 0.6699763003118102,
             -0.7015664553792397, -1.7431515448271755, -1.9649052252486652}},
           {ScatterMode::kMean,
            {0.1116661351079799, 0.6511193968451192, 0.8843410322247763, 0.7016432619393207,
             0.3349881501559051, -0.35078322768961984, -0.8715757724135877, -0.9824526126243326,
             0.019354831219744295, -0.342376277447445, -0.5430824730541932, -0.48836849568583246},
            {0.1488881801439732, 0.653419966714262, 0.850638132970215, 0.6477878937028028,
             0.3349881501559051, -0.35078322768961984, -0.8715757724135877, -0.9824526126243326,
             0.6699763003118102, -0.7015664553792397, -1.7431515448271755, -1.9649052252486652}},
           {ScatterMode::kMax,
            {1.7091978161765629, 1.288435374475382, 1.9708994599769203, 1.9763364677540005,
             0.3349881501559051, -0.35078322768961984, -0.8715757724135877, -0.9824526126243326,
             0.6699763003118102, 0.016813900484349713, 0.6569865987187891, 0.9881682338770003},
            {1.7091978161765629, 1.288435374475382, 1.9708994599769203, 1.9763364677540005,
             0.3349881501559051, -0.35078322768961984, -0.8715757724135877, -0.9824526126243326,
             0.6699763003118102, -0.7015664553792397, -1.7431515448271755, -1.9649052252486652}},
           {ScatterMode::kMin,
            {-1.2625332757446432, 0.033627800968699426, -0.7329582585038535, -1.75939151994334,
             0.3349881501559051, -0.35078322768961984, -0.8715757724135877, -0.9824526126243326,
             -0.6312666378723216, -0.7015664553792397, -1.7431515448271755, -1.9649052252486652},
            {-1.2625332757446432, 0.033627800968699426, -0.7329582585038535, -1.75939151994334,
             0.3349881501559051, -0.35078322768961984, -0.8715757724135877, -0.9824526126243326,
             0.6699763003118102, -0.7015664553792397, -1.7431515448271755, -1.9649052252486652}}}) {
    ExpectNear(Computed(IndexReduce(x, 0, at, src, r.mode)), r.with, 1e-14);
    ExpectNear(Computed(IndexReduce(x, 0, at, src, r.mode, false)), r.without, 1e-14);
    ExpectNear(Computed(IndexReduce(x.T(), 1, at, src.T(), r.mode).T()), r.with, 1e-14);
  }
  EXPECT_EQ(Computed(IndexReduce(x, 0, at, src, ScatterMode::kAdd)),
            Computed(x.IndexAdd(0, at, src)));
  EXPECT_ERROR(IndexReduce(x, 0, at, x, ScatterMode::kMul), "IndexReduce", "shape [4, 4]");
  EXPECT_ERROR(IndexReduce(x, 0, at.Unsqueeze(0), src, ScatterMode::kMul), "IndexReduce", "vector");
}

// torch.repeat_interleave and segment_reduce
TEST(IndexFunctions, Segments) {
  const Tensor counts = Tensor::From({2, 0, 3, 1}), x = Waves({6});
  ExpectNear(Computed(RepeatInterleave(Waves({3, 2}), counts.SliceAxis(0, {0, 3}), 5, 0)),
             {0, 0.644217687237691, 0, 0.644217687237691, 0.3349881501559051, -0.35078322768961984,
              0.3349881501559051, -0.35078322768961984, 0.3349881501559051, -0.35078322768961984},
             1e-15);
  const Tensor numbers = RepeatInterleave(Tensor::Arange(4), counts, 6, 0);
  EXPECT_EQ(Computed(numbers), (Values{0, 0, 2, 2, 2, 3}));
  EXPECT_EQ(Computed(RepeatInterleave(Tensor::From({5, 7}), Tensor::From({1, 2}), 4, 0)),
            (Values{5, 7, 7, 0}));
  ExpectNear(Computed(SegmentReduce(Waves({6, 2}), numbers, 4)),
             {0.9854497299884601, 1.5074270538865648, 0, 0, -1.1678542601300044,
              -1.3164219398296026, 0.6569865987187891, 0.9881682338770003},
             1e-15);
  const auto reduced = [&](ScatterMode mode) {
    return Computed(SegmentReduce(x, numbers, 4, mode));
  };
  ExpectNear(reduced(ScatterMode::kMean),
             {0.3221088436188455, kNan, 0.7278824155977465, -0.35078322768961984}, 1e-15);
  ExpectNear(reduced(ScatterMode::kMax),
             {0.644217687237691, -kInf, 0.9854497299884601, -0.35078322768961984}, 1e-15);
  ExpectNear(reduced(ScatterMode::kMin), {0, kInf, 0.3349881501559051, -0.35078322768961984},
             1e-15);
  ExpectNear(reduced(ScatterMode::kMul), {0, 1, 0.284957481428149, -0.35078322768961984}, 1e-15);
  EXPECT_EQ(Computed(SegmentReduce(Tensor::Zeros({0, 2}), Tensor::Zeros({0}, kInt32), 1)),
            (Values{0, 0}));
  EXPECT_EQ(
      Computed(SegmentReduce(Tensor::From({1, 2}), Tensor::From({1, 1}), 2, ScatterMode::kMean)),
      (Values{0, 1}));
  EXPECT_ERROR(RepeatInterleave(x, counts, 6, 0), "RepeatInterleave", "each position of axis 0");
  EXPECT_ERROR(SegmentReduce(x, counts, 4), "SegmentReduce", "the index i32[4]");
  EXPECT_ERROR(SegmentReduce(x, numbers, 4, ScatterMode::kSet), "SegmentReduce", "IndexCopy");
}

// torch.diagonal_scatter
TEST(IndexFunctions, DiagonalScatter) {
  const Tensor m = Waves({3, 4}), three = Tensor::From<double>({7, 8, 9});
  ExpectNear(
      Computed(DiagonalScatter(m, three, 1)),
      {0, 7, 0.9854497299884601, 0.8632093666488739, 0.3349881501559051, -0.35078322768961984, 8,
       -0.9824526126243326, -0.6312666378723216, 0.016813900484349713, 0.6569865987187891, 9},
      1e-15);
  for (const int64_t offset : {-3, -1, 0, 2, 5}) {
    for (const Tensor& t : {m, m.T(), Waves({2, 3, 4})}) {
      const int b = t.rank() - 1;
      const Tensor part = t.Diagonal(offset, b, 0), to = Waves(part.shape()) + 3;
      const Tensor changed = DiagonalScatter(t, to, offset, b, 0);
      EXPECT_EQ(changed.shape(), t.shape());
      ExpectNear(Computed(changed.Diagonal(offset, b, 0)), Computed(to), 0);
      EXPECT_EQ(Computed((changed != t).Cast(kInt32).Sum())[0], to.elements());
    }
  }
  EXPECT_ERROR(DiagonalScatter(m, Waves({2})), "DiagonalScatter", "f64[2]");
}

}  // namespace
}  // namespace tessera
