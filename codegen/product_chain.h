// Tiles for chained products, as attention is.
//
// With n keys, a row of the first product is n numbers: all rows at once would fill memory and come
// back from it twice. So a core takes a block of rows through the whole chain: the first product
// into scratch, what reduces and scales its rows into scratch again, and the second product from
// there. Each of the three is a kernel of its own to the tilers; the loops outside of a block are
// put around them afterwards. Where panels of all keys and values stay in the core's part of the
// last cache they are packed once for all blocks, and a block has so few rows that what it keeps, 8
// n bytes a row, stays in the core's own; else a block packs keys and values anew, 8 n d bytes for
// 4 n d flops a row, and has enough rows to pay for that. Keys that a mask of indices hides from
// all rows of a block are left out (codegen/seen_keys.h).
#pragma once

#include "absl/functional/function_ref.h"
#include "graph/product_chain.h"
#include "graph/target.h"

namespace tessera {

// The kernel in blocks of rows, each nest of it optimised by `nest`; or nothing where a block does
// not fit.
UOp TileChain(const UOp& sink, const ProductChain& chain, const Target& target,
              absl::FunctionRef<UOp(const UOp& sink)> nest);

}  // namespace tessera
