// Sums of exponentials, and of products of them, in one pass together with the maximum that is
// subtracted first: what softmax(Q K^T) V needs of a row of scores.
//
// Of a pass over part of the keys there are the largest score so far, m, and sums of exp(s - m) as
// factors of whatever. When the next part has a larger one, m', they are multiplied by exp(m - m'),
// which is the same for all terms, and go on. So all of it is a sum that is rescaled (RESCALE) by
// what a running maximum (RUNNING) was and is. That is right of a value that is linear in the
// exponential: itself, cast, times or over what does not depend on the maximum, or chosen where
// 0 is the other choice. What does not differ over the keys, as the division by their sum, is left
// for after the sum, where it is known.
//
// What comes of special values is what comes of the composed operations: -inf scores count nothing,
// a row of nothing else gives NaN (or what composed operations choose, as they then subtract 0), so
// does one with a NaN or +inf, and infinities among the values meet weights that are 0 only where
// they would. Else a result differs by the rounding of its factors: of f32 a few units of the last
// place for each time that the maximum grows; shares that are rounded to 16 bits are so before they
// are divided, and add up to what is divided by.
#pragma once

#include <optional>
#include <vector>

#include "graph/product_chain.h"
#include "graph/uop.h"

namespace tessera {

struct OnePass {
  UOp sink;            // the kernel, what does not differ over the keys taken out of its second sum
  ProductChain chain;  // in that
  UOp max;             // the REDUCE over the keys that the exponential's argument lies below
  UOp weight;          // the exponential: of a multiple of an element of `max` less `max`
  UOp difference;      // this
  std::vector<UOp> sums;    // the other REDUCEs over the keys, as the sink has them,
  std::vector<UOp> values;  // and what they take up, in terms of `weight`
};

// Nothing where some reduction of the chain is another.
std::optional<OnePass> FindOnePass(const UOp& sink, const ProductChain& chain,
                                   const RangeSets& sets);

// Whether it is this number, as a constant of floats.
bool IsNumber(const UOp& u, double value);

// What sums so far are multiplied by where the maximum was `before`, and `now` is subtracted.
UOp RescaleFactor(const OnePass& pass, const UOp& before, const UOp& now);

}  // namespace tessera
