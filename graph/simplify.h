// Algebraic simplification: rules that hold for every value of their operands, floats included,
// and the index algebra (sums of multiples, floor division and modulo, comparisons by bounds).
#pragma once

#include "graph/rewrite.h"

namespace tessera {

// Constant folding, identities, index algebra. Keeps dtype, shape and device of what it rewrites.
const RuleSet& SimplifyRules();

// Loads in kernels whose gate has become a constant: without it, or 0.
const RuleSet& GateRules();

UOp Simplify(const UOp& u);

// An integer expression as a sum: constant + coefficient * term, terms in a fixed order.
struct Sum {
  struct Term {
    UOp term;
    int64_t factor;
  };
  absl::InlinedVector<Term, 6> terms;
  int64_t constant = 0;
};

// u as a sum; every expression is one, if only of itself. Arithmetic is modulo 2^64.
Sum ToSum(const UOp& u);
UOp FromSum(const Sum& sum, DType dtype);

// A total order of expressions by what they are, never by address.
int CompareExpr(const UOp& a, const UOp& b);

}  // namespace tessera
