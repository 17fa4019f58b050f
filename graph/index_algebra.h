// The side conditions and results of the simplifier's index rules. Each returns nothing where it
// does not apply. Divisors are positive constants unless said otherwise; results are exact for all
// values within the operands' bounds, and nothing is done where bounds show that a sum may wrap.
#pragma once

#include <optional>

#include "graph/uop.h"

namespace tessera {

UOp SimplifySum(const UOp& sum);  // collects like terms, in a fixed order
// What Simplify makes of the sum or difference of two extents, told without making that node first;
// nothing where they are not simple themselves, or have too many terms.
std::optional<Extent> SimplifiedSum(Op add_or_sub, const Extent& a, const Extent& b);
UOp SimplifyFloorDiv(const UOp& x, const UOp& divisor);
UOp SimplifyFloorMod(const UOp& x, const UOp& divisor);
UOp DivideByVariable(const UOp& x, const UOp& divisor);  // (a*n + r) / n for r a RANGE below n
UOp ModuloByVariable(const UOp& x, const UOp& divisor);
UOp SimplifyLess(const UOp& a, const UOp& b);
UOp PickByBounds(const UOp& max_or_min, const UOp& a, const UOp& b);
UOp SimplifyBoolConst(const UOp& and_or_or, const UOp& x, const UOp& constant);

}  // namespace tessera
