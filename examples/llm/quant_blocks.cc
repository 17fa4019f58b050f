// Fields as slices, or as views of panels.
#include "examples/llm/quant_blocks.h"

namespace tessera::llm {

Tensor Blocks::Bytes(int64_t begin, int64_t end) const {
  const Tensor slice = stored_.SliceAxis(-1, {begin, end});
  return panels_ ? Panel(begin, end, slice, 4) : slice;
}

Tensor Blocks::ByteScales(int64_t begin, int64_t end) const {
  const Tensor slice = stored_.SliceAxis(-1, {begin, end});
  return panels_ ? Panel(begin, end, slice, 1) : slice;
}

Tensor Blocks::Half(int64_t at) const {
  const Tensor half = stored_.SliceAxis(-1, {at, at + 2}).Bitcast(kFloat16);
  return (panels_ ? Panel(at, at + 2, half, 1) : half).Cast(kFloat32);
}

Tensor Blocks::Word(int64_t at) const {
  Tensor word = stored_.SliceAxis(-1, {at, at + 1}).Cast(kUInt32);
  for (int i = 1; i < 4; ++i) {
    word = word | (stored_.SliceAxis(-1, {at + i, at + i + 1}).Cast(kUInt32) << (8 * i));
  }
  return panels_ ? Panel(at, at + 4, word, 1) : word;
}

// [columns, blocks, n] of [panels, blocks, n / together, columns of a panel, together].
Tensor Blocks::Panel(int64_t begin, int64_t end, const Tensor& field, int64_t together) const {
  const auto [at, is_new] = panels_->try_emplace({begin, end});
  const int64_t columns = field.size(0), blocks = field.size(1), n = field.size(2);
  if (is_new) {
    at->second =
        field.Reshape({columns / kColumnsOfPanel, kColumnsOfPanel, blocks, n / together, together})
            .Permute({0, 2, 3, 1, 4})
            .Contiguous()
            .Realize();
  }
  return at->second.Permute({0, 3, 1, 2, 4}).Reshape({columns, blocks, n});
}

}  // namespace tessera::llm
