// Scales of rows and of blocks of any size become scales of blocks of one size.
#include "examples/llm/float8.h"

#include <bit>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "graph/index_math.h"

namespace tessera::llm {
namespace {

// The size of each of so many blocks, all but the last a power of two; or nothing.
std::optional<int64_t> SizeOfBlocks(int64_t extent, int64_t blocks) {
  if (extent < 1 || blocks < 1) return std::nullopt;
  if (blocks == 1) return extent;
  const auto least = static_cast<uint64_t>(CeilDiv(extent, blocks));
  const auto size = static_cast<int64_t>(std::bit_ceil(least));
  return CeilDiv(extent, size) == blocks ? std::optional(size) : std::nullopt;
}

// Along an axis of blocks, of so many elements each, one for every `step` elements of `extent`.
Tensor Spread(const Tensor& scales, int axis, int64_t size, int64_t step, int64_t extent) {
  return scales.IndexSelect(axis, (Tensor::Arange(extent / step, kInt64) * step).FloorDiv(size));
}

}  // namespace

bool IsFloat8(WeightFormat format) {
  return format == WeightFormat::kF8E4M3 || format == WeightFormat::kF8E5M2;
}

absl::StatusOr<Matrix> TimesScale(const Weight& matrix, const Weight& scale) {
  const auto bad = [&](const auto&... parts) {
    return absl::DataLossError(absl::StrCat(scale.file ? scale.file->path() : "", ": tensor ",
                                            ShowName(scale.name), ": ", parts...));
  };
  if (!CanCompute(scale.format) || InfoOf(scale.format).block_elements > 1) {
    return bad("its format is ", InfoOf(scale.format).name, "; scales are F32, F16 or BF16");
  }
  if (matrix.shape.size() != 2) return bad("a scale of ", ShowShape(matrix.shape), ", no matrix");
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  Tensor scales = Values(Stored(scale), scale.format);
  const bool of_rows = scales.elements() == 1 || scales.elements() == rows;
  if (scales.rank() < 2 && of_rows) scales = scales.Reshape({scales.elements(), 1});
  const auto wrong = [&] {
    return bad("its shape is ", ShowShape(scale.shape), "; a matrix of ", ShowShape(matrix.shape),
               " has one scale, one for each row, or one for each block of a power of two");
  };
  if (scales.rank() != 2) return wrong();
  const std::optional<int64_t> down = SizeOfBlocks(rows, scales.size(0)),
                               across = SizeOfBlocks(columns, scales.size(1));
  if (!down || !across) return wrong();
  scales = Spread(scales, 0, *down, 1, rows);
  const Tensor stored = Stored(matrix);
  const int64_t block = InfoOf(WeightFormat::kF8E4M3Scaled).block_elements;
  const bool fills = columns % block == 0 && (*across == columns || *across % block == 0);
  if (matrix.format != WeightFormat::kF8E4M3 || !fills) {
    const Tensor values = stored.Cast(kFloat32) * Spread(scales, 1, *across, 1, columns);
    return Matrix{values.Contiguous().Realize(), WeightFormat::kF32};
  }
  const Tensor own = Spread(scales, 1, *across, block, columns).Unsqueeze(-1).Bitcast(kUInt8);
  const Tensor bytes = stored.Bitcast(kUInt8).Unflatten(-1, {columns / block, block});
  return Matrix{Cat({own, bytes}, -1).Contiguous().Realize(), WeightFormat::kF8E4M3Scaled};
}

}  // namespace tessera::llm
