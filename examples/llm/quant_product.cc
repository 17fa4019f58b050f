// Products of rows and weights as integers of eight bits.
#include "examples/llm/quant.h"

namespace tessera::llm {
namespace {

// The sums of the rows' values in so many blocks, which are those they were rounded in or halves.
Tensor SumsOf(const RoundedRows& rows, int64_t blocks) {
  const int64_t parts = blocks / rows.sums.size(-1);
  if (parts == 1) return rows.sums;
  const Tensor integers = rows.integers.Unflatten(-1, {parts, rows.integers.size(-1) / parts});
  const Tensor sums = integers.Cast(kInt32).Sum({-1}).Cast(kFloat32);
  return (sums * rows.scales.Unsqueeze(-1)).Flatten(-2).Contiguous();
}

}  // namespace

RoundedRows Quantise(const Tensor& values) {
  constexpr int64_t kBlock = 32;
  const Tensor blocks = values.Unflatten(-1, {values.size(-1) / kBlock, kBlock});
  const Tensor scales = (blocks.Abs().Max({-1}) / 127).Contiguous();
  // 0 / 0 and what is not finite become some integer: the scale says what they are.
  const Tensor integers = (blocks / scales.Unsqueeze(-1)).Round().Cast(kInt8).Contiguous();
  const Tensor kept = scales.Cast(kFloat16).Cast(kFloat32).Contiguous();
  return {integers, kept, (integers.Cast(kInt32).Sum({-1}).Cast(kFloat32) * kept).Contiguous()};
}

Tensor Product(const RoundedRows& rows, const IntegerBlocks& columns) {
  const Tensor& w = columns.integers;
  const int lead = rows.integers.rank() - 3;  // of the batch
  const int axes = columns.scales.rank() - lead - 1;
  const int64_t m = rows.integers.size(lead);
  int64_t all = columns.scales.elements() / w.size(lead);  // blocks of a column
  std::vector<int64_t> blocks;                             // for all columns
  for (int axis = 0; axis < lead; ++axis) {
    blocks.push_back(w.size(axis));
    all /= w.size(axis);
  }
  blocks.insert(blocks.end(), {m, 1});
  std::vector<int64_t> numbers = blocks;
  Ints summed, inside;
  for (int axis = lead + 1; axis < w.rank(); ++axis) {
    numbers.push_back(w.size(axis));
    (axis <= lead + axes ? summed : inside).push_back(axis + 1);
    if (axis <= lead + axes) blocks.push_back(w.size(axis));
  }
  // The rows' blocks are cut as the columns' are.
  const auto by_block = [&](const Tensor& t) {
    std::vector<int64_t> parts;
    for (int axis = 0; axis < t.rank(); ++axis) parts.push_back(t.size(axis));
    parts.push_back(all / t.size(-1));
    return t.Unsqueeze(-1).BroadcastTo(parts).Reshape(blocks);
  };
  const Tensor x = rows.integers.Reshape(numbers);
  const Tensor dots = (x.Cast(kInt32) * w.Unsqueeze(lead).Cast(kInt32)).Sum(inside);
  const Tensor y = dots.Cast(kFloat32) * (by_block(rows.scales) * columns.scales.Unsqueeze(lead));
  if (!columns.offsets) return y.Sum(summed);
  const Tensor sums = SumsOf(rows, all);
  // One row reads each column's offsets where it reads its integers; many share them as a product.
  if (m == 1) {
    return (y + by_block(sums) * columns.offsets.Unsqueeze(lead)).Sum(summed);
  }
  const Tensor offsets = columns.offsets.Flatten(lead + 1);
  return y.Sum(summed) + sums.MatMul(offsets.SwapAxes(-1, -2)).Contiguous();
}

}  // namespace tessera::llm
