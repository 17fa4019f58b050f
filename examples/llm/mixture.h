// Layers of several feed-forward parts, of which each token goes through a few: its experts.
//
// Rows that go to one expert lie together in blocks, so that a product by experts is a batch of
// products, each by the weights that its block looks up: they are read where they lie, and of a
// single token only those of its own experts.
#pragma once

#include "graph/tensor.h"

namespace tessera::llm {

// Where each of T tokens goes, and what its experts' results count.
struct Routes {
  Tensor experts;  // i32 [T, used]
  Tensor shares;   // f32 [T, used]
};
// How a router chooses.
struct Router {
  int64_t used = 1;       // so many experts
  bool renormed = false;  // their shares sum to 1, or else are as large as they are among all
  bool sigmoid = false;   // shares are sigmoids of the logits, or else a softmax
  Tensor bias = {};       // [experts]: added to the shares where experts are chosen
  // Only experts of the best so many groups are chosen; a group is as good as its best expert, or,
  // by sigmoids, as its best two together.
  int64_t groups = 1, groups_used = 1;
  double scale = 1;  // of the shares
};
// Of logits [T, experts].
Routes Route(const Tensor& logits, const Router& router);

// The rows [blocks, rows] of a batch of products.
struct ExpertBlocks {
  Tensor expert;  // i32 [blocks], of each block
  Tensor token;   // i32 [blocks, rows], of each row; any where there are fewer rows
  Tensor row;     // i32 [T, used]: where in blocks * rows a token's share lies
};
// A few tokens have a block for each of their experts. Of more each expert has the blocks that its
// tokens fill, as it turns out; there are as many as any choice could need.
ExpertBlocks BlocksOf(const Routes& routes, int64_t experts);

}  // namespace tessera::llm
