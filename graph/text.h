// The text form of graphs: what prints them, and what reads them back as the same nodes.
//
//   text       := line*
//   line       := [statement | return] [';' comment]
//   statement  := name '=' OP dtype '(' [name (',' name)*] ')' [argument] [':' annotation]
//   return     := 'return' [name (',' name)*]
//   name       := '%' (letter | digit | '_' | '.')+
//   dtype      := an element type of graph/dtype.h, with lanes ("f32", "i8x16"), or 'void'
//   argument   := as the op's row in the op table says:
//     Scalar     2.0   -7   true   inf   nan
//     Var        start_pos 0..4095
//     Buffer     #12 [4, 8] @CPU
//     Param      slot 2 [4, 8] @CPU
//     Extents    [4, %7]
//     Ints       [0, 2, 1]
//     Pairs      [(0, 4), (1, %7)]
//     Window     axes=[1] size=[3] stride=[1] dilation=[1]
//     Reduce     ADD axes=[1]          ADD (in kernels)
//     Int        3
//     Device     @CUDA:1
//     Range      r0:loop               (loop, grid, unroll, vector, thread, row, matrix)
//     Stage      s0:shared ahead 2     (global, shared, register; ahead 0 is left out)
//     String     "name"
//     Exchange   "CPU<:0..4>" "CPU:0-1{M}<0:0..2,2..4>" [2]   (boxes, boxes, extents)
//                and perhaps ADD axes=[0]      (combined over mesh dims)
//   extent     := integer | name of an i64 expression over VARs
//   annotation := [dtype] '[' [(extent | '?') (',' (extent | '?'))*] ']' ['on' device]
//
// A name is defined before it is used, once. Equal statements are one node. An annotation says what
// is inferred, and is checked. The roots are the names after `return`, or else what no other
// statement uses, in order. A buffer id that is alive means that buffer; any other one is a fresh
// buffer, the same within a text. A device that is left out is none. Quoted strings are escaped as
// in C.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/uop.h"

namespace tessera {

// The text of everything reachable from the roots, sources first, named %0, %1, ...
std::string Print(absl::Span<const UOp> roots);

// The roots of a text. For text that Print made these are the very nodes that were printed, as
// long as those live; of assignments to tensors equal ones. An error names the line.
absl::StatusOr<std::vector<UOp>> Parse(absl::string_view text);

// Names of the nodes of one graph: their numbers.
using NodeNames = absl::flat_hash_map<const Node*, int>;

// One statement, without a newline; nodes that have no name print as "%?".
std::string PrintNode(const UOp& u, const NodeNames& names);

}  // namespace tessera
