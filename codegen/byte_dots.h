// Sums of products of bytes, by the chip's dot products of four bytes a lane.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/contraction.h"
#include "graph/target.h"

namespace tessera {

inline constexpr int64_t kBytesOfDot = 4;      // that a lane sums at once
inline constexpr char kDotName[] = "rt_dot4";  // the prelude's name for it, as an MMA's argument
inline constexpr char kSmallDotName[] = "rt_dot4_small";  // where pairs of products fit in 16 bits
inline constexpr char kPairName[] = "rt_dot2";  // that of products of bf16 in pairs: graph/panel.h

// REDUCE(add) in i32 of products of integers of eight bits: the contraction, of which a and b are
// the bytes. It is what is stored, or what a sum in f32 scales and takes up: the dot products of
// blocks, whose scales do not depend on what is inside of a block, and what else is added for each.
struct ByteDots {
  Contraction c;
  UOp sum;  // the REDUCE in f32, or nothing: of `scaled`, and of `rest` if there is
  UOp scaled, rest;
  std::vector<UOp> blocks;  // the ranges that it closes
};

// Whether an MMA is dot products of four bytes a lane.
inline bool IsByteDot(const UOp& mma) {
  const std::string& name = mma.arg<std::string>();
  return name == kDotName || name == kSmallDotName;
}

// The largest of the values' magnitudes.
int64_t Magnitude(const UOp& bytes);

// Whether a value is an integer of eight bits, cast to a wider one.
bool IsByte(const UOp& u);

// The dot products of bytes of a kernel that has no other reductions, or nothing.
std::optional<ByteDots> FindByteDots(const RangeSets& sets);

// The kernel with two loops of the dot products as one, where the rows of a table that columns look
// up are shorter than a vector and those that they meet lie one after another; or nothing.
UOp JoinShortRows(const UOp& sink, const RangeSets& sets, const ByteDots& dots);

// The kernel with them in tiles, whose steps of four are ranges of kind kMatrix: Expand makes dot
// products of them. Nothing where that does not pay.
UOp TileByteDots(const UOp& sink, const RangeSets& sets, const ByteDots& dots,
                 const Target& target);

}  // namespace tessera
