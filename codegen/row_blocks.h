// Sums of GPUs along long rows of what narrow numbers stand for: a vector by a matrix of weights
// that are bytes in blocks, each with a scale of its own.
//
// Such sums cost instructions, not memory, where each thread takes any two numbers of a row: it
// reads the scale for them, chooses which half of a byte they are, and half of what it issues is
// addresses. So a thread takes some numbers of one block at once: all fields of the same bytes,
// which it reads once and whose gates and shifts are constants in its text, in vectors as wide as
// their places allow, and multiplies their sum by what they share. Of several rows it takes the
// same numbers, as many rows as leave the chip full of threads: what the rows are multiplied by is
// read once for them, and as many loads are under way. Threads beside each other read vectors of it
// that lie beside each other: in f32 it is seven times as many bytes as weights of four bits, all
// of them from the first cache.
//
// Of weights that are s q + o in a block, s and o its own, a thread sums x q and x apart and adds
// up s and o times these. Where x is infinite that is NaN if the two have other signs, and would
// have been infinite.
//
// Products of bytes are summed by the chip's dot products of four, whose operands stay four bytes
// of a register from the load on.
#pragma once

#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// The kernel so, its loops all plain ones; or nothing where it is none of these.
UOp ReduceRowBlocks(const UOp& sink, const Target& target);

}  // namespace tessera
