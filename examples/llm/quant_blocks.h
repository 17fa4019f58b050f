// What is stored of a matrix in blocks of bytes, as the fields of its blocks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "graph/tensor.h"

namespace tessera::llm {

// The columns of a panel: a vector of 512 bits has a lane for each.
inline constexpr int64_t kColumnsOfPanel = 16;

// Blocks [..., bytes], whose fields are slices of what is stored. Or, of blocks [columns, blocks,
// bytes] in panels, views of copies: of 16 columns each field lies column by column, bytes of
// numbers by fours, so that products read several columns as one vector and none turns anything.
class Blocks {
 public:
  Blocks(const Tensor& stored) : stored_(stored) {}
  static Blocks InPanels(const Tensor& stored) {
    Blocks out(stored);
    out.panels_ = std::make_shared<Panels>();
    return out;
  }

  const Tensor& stored() const { return stored_; }

  // Bytes begin..end, by fours in panels; and such as are scales, one by one.
  Tensor Bytes(int64_t begin, int64_t end) const;
  Tensor ByteScales(int64_t begin, int64_t end) const;
  Tensor Half(int64_t at) const;  // of two bytes the number of half precision, in f32: [..., 1]
  Tensor Word(int64_t at) const;  // four bytes as one number: [..., 1]

 private:
  using Panels = std::map<std::pair<int64_t, int64_t>, Tensor>;  // by the bytes that they are
  Tensor Panel(int64_t begin, int64_t end, const Tensor& field, int64_t together) const;

  Tensor stored_;
  std::shared_ptr<Panels> panels_;
};

}  // namespace tessera::llm
