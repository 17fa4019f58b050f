// A case of each form that GPU kernels take, small enough to run under a checker of memory and
// races: values by the reference evaluator.
#include "examples/llm/quant.h"
#include "runtime/capture.h"
#include "tests/support/check.h"
#include "tests/support/gpu.h"

namespace tessera {
namespace {

#define GPU_CASE(name, ...) \
  TEST(GpuCases, name) { EXPECT_REFERENCE(__VA_ARGS__); }

// Blocks of a format, of any bits but in the numbers of half precision at these bytes.
Tensor Blocks(WeightFormat format, int64_t rows, int64_t columns, const std::vector<int>& halves) {
  const WeightFormatInfo& info = InfoOf(format);
  const int64_t blocks = columns / info.block_elements;
  std::vector<uint8_t> bytes;
  for (const double v : Fractions(rows * blocks * info.block_bytes, 3)) {
    bytes.push_back(static_cast<uint8_t>(128 + 127 * v));
  }
  for (size_t i = 0; i < bytes.size(); i += info.block_bytes) {
    for (const int at : halves) bytes[i + at + 1] = 0x28 | (bytes[i + at + 1] & 0x83);
  }
  return Tensor::FromBytes(bytes.data(), {rows, blocks, info.block_bytes}, kUInt8, Gpu());
}
// Rows by them: their values, and as integers.
Tensor ByValues(const Tensor& rows, WeightFormat format, int64_t n,
                const std::vector<int>& halves) {
  return rows.Linear(llm::Values(Blocks(format, n, rows.size(-1), halves), format));
}
Tensor ByIntegers(const Tensor& rows, WeightFormat format, int64_t n,
                  const std::vector<int>& halves) {
  return llm::Product(llm::Quantise(rows),
                      llm::Integers(Blocks(format, n, rows.size(-1), halves), format));
}

// ---- one thread for each output, or each vector of outputs
GPU_CASE(MapOfVectors, OnGpu({64, 128}) * 2 + OnGpu({64, 128}, kFloat32, 2))
GPU_CASE(MapOfOddLength, (OnGpu({1037}) * 3).Relu())
GPU_CASE(MapOfSomeForEachThread, OnGpu({251, 263}) * 3 + 1,
         OnGpu({64, 1024}).Slice({{}, {1, 1022}}))
GPU_CASE(MapOfSomeBytesForEachThread, (OnGpu({257, 301}) * 100).Cast(kInt8) * 2)
GPU_CASE(MapThatBroadcasts, OnGpu({33, 1}) * OnGpu({1, 65}, kFloat32, 2))
GPU_CASE(MapOfHalves, OnGpu({40, 64}, kFloat16) * 2 + 1)
GPU_CASE(MapOfBrainFloats, OnGpu({40, 63}, kBFloat16) * 2 + 1)
GPU_CASE(MapOfBytes, (OnGpu({3000}) * 100).Cast(kInt8) + 1)
GPU_CASE(MapOfLongs, (OnGpu({300}) * 1e6).Cast(kInt64) * 3)
GPU_CASE(MapOfBitsOfLongs, (OnGpu({300}) * 100).Cast(kInt32).Cast(kInt64).Bitcast(kUInt64),
         (OnGpu({300}) * 100).Cast(kInt32).Cast(kInt64).Bitcast(kFloat64))
// -32768 is its own negative.
Tensor Shorts() {
  const std::vector<int> values = {-32768, -32767, -9, -1, 0, 1, 8, 32767};
  return Tensor::From(values, {8}, Gpu()).Cast(kInt16).Realize();
}
GPU_CASE(MapOfShorts, -Shorts() % 9, Shorts().Abs() % 9, -Shorts() < Shorts(), Shorts() * -1 % 9,
         (Tensor::Zeros({8}, kInt16, Gpu()) - Shorts()).Cast(kFloat32))
GPU_CASE(MapOfFunctions, OnGpu({500}).Exp() + OnGpu({500}, kFloat32, 2).Sin())
GPU_CASE(Transposed, OnGpu({65, 34}).T() + 1)
GPU_CASE(TransposedWhole, OnGpu({64, 96}).T() * 2)
GPU_CASE(TransposedHalves, OnGpu({130, 70}, kFloat16).T() + OnGpu({70, 130}, kFloat16, 2))
GPU_CASE(TransposedBytes, (OnGpu({50, 200}) * 100).Cast(kInt8).T().Contiguous())
GPU_CASE(TransposedLongs, (OnGpu({40, 33}) * 1e6).Cast(kInt64).T() + 1)
GPU_CASE(TransposedTwice, OnGpu({40, 50}).T() + OnGpu({40, 50}, kFloat32, 2).T() * 3)
GPU_CASE(TransposedAndPadded, OnGpu({40, 50}).Pad({{1, 2}, {3, 0}}).T() + 1)
GPU_CASE(Permuted, OnGpu({3, 40, 5, 35}).Permute({0, 3, 2, 1}) + 1,
         OnGpu({2, 20, 6, 18}).Permute({3, 0, 2, 1}).Contiguous())
GPU_CASE(Joined, Cat({OnGpu({5, 30}), OnGpu({7, 30}, kFloat32, 2) * 2}, 0))
GPU_CASE(PaddedAndCut, OnGpu({20, 30}).Pad({{1, 2}, {3, 4}}).Slice({{0, 23, 2}}) * 2)
GPU_CASE(Selected, Where(OnGpu({999}) > 0, OnGpu({999}, kFloat32, 2), OnGpu({999}, kFloat32, 3)))
GPU_CASE(RandomBits, Tensor::RandInt(0, 1000, {777}, kInt32, Gpu()))

// ---- reductions: by a thread, a warp, a block, over the whole
GPU_CASE(SumOfColumns, OnGpu({70, 300}).Sum({0}))
GPU_CASE(SumOfLongColumns, OnGpu({2100, 512}).Sum({0}))
GPU_CASE(SumOfColumnsInVectors, OnGpu({100, 1024}, kBFloat16).Sum({0}), OnGpu({90, 520}).Sum({0}))
GPU_CASE(SumBetween, OnGpu({3, 80, 44}).Sum({1}), OnGpu({2, 70, 3, 36}).Sum({1}))
GPU_CASE(MaxOfColumns, OnGpu({200, 77}).Max({0}) - OnGpu({200, 77}).Min({0}))
GPU_CASE(SoftmaxOfColumns, OnGpu({150, 70}).Softmax(0))
GPU_CASE(SumOfShortRows, OnGpu({300, 40}).Sum({1}))
GPU_CASE(SumOfLongRows, OnGpu({5, 4100}).Sum({1}))
GPU_CASE(SumOfAll, OnGpu({50, 1000}).Sum())
GPU_CASE(MaxOfRows, OnGpu({30, 1000}).Max({1}))
GPU_CASE(PositionOfTheMaximum, OnGpu({30, 700}).ArgMax(1))
GPU_CASE(SumOfHalves, OnGpu({16, 512}, kFloat16).Sum({1}))
GPU_CASE(SoftmaxOfRows, OnGpu({20, 1500}).Softmax())
GPU_CASE(SoftmaxOfShortRows, OnGpu({64, 33}).Softmax())
GPU_CASE(SoftmaxOfAVectorForEachThread, OnGpu({4, 256}).Softmax())
GPU_CASE(SoftmaxOfAnElementForEachThread, OnGpu({5, 64}).Slice({{}, {0, 64, 2}}).Softmax())
GPU_CASE(SumOfAVectorForEachThread, OnGpu({4, 1024}).Sum({1}), OnGpu({9, 128}).Sum({1}))
GPU_CASE(RootMeanSquare, OnGpu({12, 2048}).RmsNorm(OnGpu({2048}, kFloat32, 2)))
GPU_CASE(LayerNormalised, OnGpu({12, 515}).LayerNorm())
GPU_CASE(SumOfPrimeLength, OnGpu({100003}).Sum())
GPU_CASE(RunningSum, OnGpu({6, 300}).CumSum(1))

// ---- products
GPU_CASE(ProductOfTiles, OnGpu({128, 64}).MatMul(OnGpu({64, 128}, kFloat32, 2)))
GPU_CASE(ProductOfOddSizes, OnGpu({33, 17}).MatMul(OnGpu({17, 45}, kFloat32, 2)))
GPU_CASE(ProductTransposed, OnGpu({64, 96}).MatMul(OnGpu({80, 96}, kFloat32, 2).T()).Relu())
GPU_CASE(ProductOfHalves, OnGpu({128, 64}, kFloat16).MatMul(OnGpu({64, 128}, kFloat16, 2)))
GPU_CASE(ProductOfBrainFloats,
         (OnGpu({128, 64}, kBFloat16).MatMul(OnGpu({64, 128}, kBFloat16, 2)) + 1).Relu())
GPU_CASE(ProductOfBrainFloatsTransposed,
         OnGpu({128, 96}, kBFloat16).MatMul(OnGpu({128, 96}, kBFloat16, 2).T()))
GPU_CASE(ProductOfBytes, (OnGpu({64, 64}) * 100)
                             .Cast(kInt8)
                             .Cast(kInt32)
                             .MatMul((OnGpu({64, 64}, kFloat32, 2) * 100).Cast(kInt8).Cast(kInt32)))
GPU_CASE(ProductWithALongSum, OnGpu({32, 4096}).MatMul(OnGpu({4096, 32}, kFloat32, 2)))
GPU_CASE(ProductWithAVector, OnGpu({300, 512}).MatMul(OnGpu({512}, kFloat32, 2)))
GPU_CASE(ProductOfAVector, OnGpu({1, 300}).MatMul(OnGpu({300, 170}, kFloat32, 2)),
         OnGpu({1, 512}, kBFloat16).MatMul(OnGpu({512, 320}, kBFloat16, 2)) + 1)
GPU_CASE(ProductOfFewRows, OnGpu({6, 200}).MatMul(OnGpu({200, 130}, kFloat32, 2)).Relu(),
         OnGpu({11, 96}).MatMul(OnGpu({96, 48}, kFloat32, 2)))
GPU_CASE(ProductsOfShortRows,
         OnGpu({3, 90, 128}, kBFloat16).MatMul(OnGpu({3, 128, 1}, kBFloat16, 2)))
GPU_CASE(AttentionOfOneQuery, OnGpu({4, 1, 64}, kBFloat16)
                                  .ScaledDotProductAttention(OnGpu({4, 300, 64}, kBFloat16, 2),
                                                             OnGpu({4, 300, 64}, kBFloat16, 3)))
GPU_CASE(ProductsInABatch, OnGpu({3, 40, 24}).MatMul(OnGpu({3, 24, 50}, kFloat32, 2)))
GPU_CASE(Attention, OnGpu({2, 16, 32})
                        .ScaledDotProductAttention(OnGpu({2, 48, 32}, kFloat32, 2),
                                                   OnGpu({2, 48, 32}, kFloat32, 3)))
GPU_CASE(AttentionOfBrainFloats, OnGpu({3, 70, 64}, kBFloat16)
                                     .ScaledDotProductAttention(OnGpu({3, 90, 64}, kBFloat16, 2),
                                                                OnGpu({3, 90, 64}, kBFloat16, 3)))
GPU_CASE(ProductOfBytesInBlocks, (((OnGpu({40, 1, 6, 32}) * 100).Cast(kInt8).Cast(kInt32) *
                                   (OnGpu({48, 6, 32}, kFloat32, 2) * 100).Cast(kInt8).Cast(kInt32))
                                      .Sum({-1})
                                      .Cast(kFloat32) *
                                  (OnGpu({40, 1, 6}, kFloat32, 3) * OnGpu({48, 6}, kFloat32, 4)))
                                     .Sum({-1}))

// ---- numbers of a block for each thread
GPU_CASE(RowsOfHalvesOfBytes, ByValues(OnGpu({1, 2048}), WeightFormat::kQ4_0, 24, {0}),
         ByValues(OnGpu({1, 1056}), WeightFormat::kQ4_0, 5, {0}))
GPU_CASE(RowsOfBytes, ByValues(OnGpu({1, 2048}), WeightFormat::kQ8_0, 12, {0}),
         (OnGpu({9, 2000}) * 100).Cast(kInt8).Cast(kFloat32).MatMul(OnGpu({2000}, kFloat32, 2)))
GPU_CASE(RowsOfBlocksWithOffsets, ByValues(OnGpu({1, 2048}), WeightFormat::kQ4_1, 12, {0, 2}),
         ByValues(OnGpu({1, 4096}), WeightFormat::kQ4K, 8, {0, 2}),
         ByValues(OnGpu({1, 4096}), WeightFormat::kQ5K, 4, {0, 2}))
GPU_CASE(RowsOfSeveralFields, ByValues(OnGpu({1, 4096}), WeightFormat::kQ6K, 8, {208}),
         ByValues(OnGpu({1, 4096}), WeightFormat::kQ2K, 4, {80, 82}),
         ByValues(OnGpu({1, 4096}), WeightFormat::kQ3K, 4, {108}))
GPU_CASE(RowsOfBlocksByAFewRows, ByValues(OnGpu({3, 2048}), WeightFormat::kQ4_0, 8, {0}),
         ByValues(OnGpu({8, 1024}), WeightFormat::kQ8_0, 6, {0}))
GPU_CASE(RowsOfTwoWidths,
         OnGpu({40, 1024}, kBFloat16).Cast(kFloat32).MatMul(OnGpu({1024}, kFloat32, 2)),
         OnGpu({3, 4104}, kFloat16).Cast(kFloat32).MatMul(OnGpu({4104}, kFloat32, 2)))
GPU_CASE(RowsOfIntegers, ByIntegers(OnGpu({1, 2048}), WeightFormat::kQ4_0, 24, {0}),
         ByIntegers(OnGpu({1, 2048}), WeightFormat::kQ8_0, 5, {0}),
         ByIntegers(OnGpu({2, 4096}), WeightFormat::kQ6K, 8, {208}))
GPU_CASE(
    RowsOfIntegersWithoutBlocks,
    (OnGpu({1, 2048}) * 100)
        .Cast(kInt8)
        .Cast(kInt32)
        .MatMul((OnGpu({30, 2048}, kFloat32, 2) * 100).Cast(kInt8).Cast(kInt32).T()),
    (OnGpu({1, 6, 1024}) * 100)
        .Cast(kUInt8)
        .Cast(kInt32)
        .MatMul(
            (OnGpu({6, 5, 1024}, kFloat32, 2) * 100).Cast(kInt8).Cast(kInt32).Permute({0, 2, 1}))
        .Sum({1}))
GPU_CASE(RowsOfIntegersWithOffsets, ByIntegers(OnGpu({1, 4096}), WeightFormat::kQ4K, 8, {0, 2}),
         ByIntegers(OnGpu({1, 2048}), WeightFormat::kQ4_1, 12, {0, 2}))

// ---- windows and indices
GPU_CASE(Convolution, OnGpu({2, 3, 12, 12}).Conv2d(OnGpu({4, 3, 3, 3}, kFloat32, 2)))
GPU_CASE(Pooling, OnGpu({2, 3, 12, 12}).MaxPool2d({{2, 2}}))
GPU_CASE(RowsByIndex, OnGpu({50, 40}).Embedding((OnGpu({30}, kFloat32, 2) * 60).Cast(kInt32)))
GPU_CASE(AddedByIndex, OnGpu({20, 8}).IndexAdd(0, (OnGpu({30}, kFloat32, 2) * 25).Cast(kInt32),
                                               OnGpu({30, 8}, kFloat32, 3)))
GPU_CASE(SetByIndex, OnGpu({40}).Scatter(0, (OnGpu({25}, kFloat32, 2) * 40).Cast(kInt32),
                                         OnGpu({25}, kFloat32, 3)))
GPU_CASE(InOrder, OnGpu({4, 60}).Sort().values)
GPU_CASE(Nothing, OnGpu({0, 5}) + 1, OnGpu({0, 5}).Sum({0}))

// A thread, or a warp, may have no rows at all.
TEST(GpuCases, ColumnsOfAnExtentThatVaries) {
  const Variable n("n", 0, 500);
  const Tensor x = OnGpu({500, 40}), weights = OnGpu({1, 500}, kFloat32, 2);
  const std::vector<float> values = x.ToVector<float>(), by = weights.ToVector<float>();
  Jit step([&] {
    return Cat({weights.Slice({{}, {0, n}}).MatMul(x.Slice({{0, n}})),
                x.Slice({{0, n}}).Sum({0}, /*keepdim=*/true)},
               0);
  });
  for (int64_t v : {500, 0, 5, 64, 499}) {
    const std::vector<float> got = step.One({}, {{"n", v}}).ToVector<float>();
    for (int64_t j = 0; j < 40; ++j) {
      double product = 0, sum = 0;
      for (int64_t i = 0; i < v; ++i) {
        product += double{by[i]} * values[i * 40 + j];
        sum += values[i * 40 + j];
      }
      EXPECT_NEAR(got[j], product, 1e-4) << v;
      EXPECT_NEAR(got[40 + j], sum, 1e-4) << v;
    }
  }
}

TEST(GpuCases, SymbolicExtentsAndAssignments) {
  const Variable n("n", 0, 40);
  Tensor state = Tensor::Zeros({40, 8}, kFloat32, Gpu()).Contiguous().Realize();
  const Tensor x = OnGpu({40, 8});
  const std::vector<float> values = x.ToVector<float>();
  Jit step([&] {
    state.Slice({{0, n}}).Assign(x.Slice({{0, n}}) + 1);
    return x.Slice({{0, n}}).Sum({1}) * 2;
  });
  for (int64_t v : {40, 0, 7, 33}) {
    const std::vector<float> got = step.One({}, {{"n", v}}).ToVector<float>();
    ASSERT_EQ(got.size(), static_cast<size_t>(v));
    for (int64_t i = 0; i < v; ++i) {
      double want = 0;
      for (int64_t k = 0; k < 8; ++k) want += 2.0 * values[i * 8 + k];
      EXPECT_NEAR(got[i], want, 1e-5) << v;
    }
  }
  const std::vector<float> kept = state.ToVector<float>();
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i], values[i] + 1);
}

}  // namespace
}  // namespace tessera
