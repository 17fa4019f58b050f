// Axes that shift by as much as a variable says (graph/shifts.h), place by place.
#pragma once

#include "graph/shifts.h"
#include "schedule/local_parts.h"

namespace tessera {

class LocalShifts : public LocalParts {
 public:
  // x holds the boxes `from` of `shape`; each place gets its box of `to`, which on the axes that
  // shift is one of the result, of extents `result`. Where there is no element of the source, 0.
  UOp Shifted(const UOp& x, const Shape& shape, const Boxes& from, const Boxes& to,
              absl::Span<const Shift> shifts, const Shape& result);
  // A CAT whose pieces begin where symbolic ones end, of its pieces as each place has them:
  // parts[k] is source k, shifted to where it stands in the result.
  UOp JoinedAt(const UOp& cat, absl::Span<const UOp> parts);
};

}  // namespace tessera
