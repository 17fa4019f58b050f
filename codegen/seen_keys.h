// The keys that rows of a chain may see (see graph/product_chain.h), where a mask of indices says
// which: of causal attention a row sees those up to its own place, on average half.
//
// A score that a condition makes -inf gets a weight of 0, and such a weight adds nothing: unless it
// meets a value that is not finite, of which 0 times is NaN. So a block of rows goes over the keys
// up to the last that one of its rows may see; and over all, if some of the values that its columns
// read are not finite, which is found out once for all blocks.
#pragma once

#include <vector>

#include "graph/kernel_form.h"
#include "graph/product_chain.h"

namespace tessera {

// So many of the first keys, at least one of them, may be seen by some of the rows that `rows` run
// over; in terms of the other loops. Nothing where that is not known, or where a weight that is 0
// would matter by more than the values.
UOp SeenKeys(const UOp& sink, const ProductChain& chain, const RangeSets& sets,
             const std::vector<UOp>& rows);

// Whether enough keys may be unseen by some of enough rows.
bool MayLeaveKeys(const UOp& sink, const ProductChain& chain, const RangeSets& sets);

// What is 0 if all values are finite that the columns `own` read, and else NaN: a sum over new
// ranges.
UOp FinitenessOfValues(const ProductChain& chain, const std::vector<UOp>& own, int64_t& next_id);

// The kernel with loops over keys that end after the first `seen`, or somewhat later; nothing where
// that cannot be told. `scores` and `weights` are stages as they were made, of whose SCRATCH the
// kernel knows them, filled over rows and, last, keys, the weights perhaps `in_tiles`: a loop is
// over keys if it moves along their rows, or along scratch that is filled from them for each key.
// Others, as what whole tiles leave has them, go over all keys, and weights count 0 there. What
// does not depend on `seen` is filled for all keys.
UOp EndAfterSeen(const UOp& sink, const UOp& scores, const UOp& weights, bool in_tiles,
                 const UOp& seen, int64_t& next_id);

}  // namespace tessera
