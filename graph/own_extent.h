// Extents that are each place's own inside per-place programs, where an axis is cut unevenly.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "graph/uop.h"

namespace tessera {

// Such an extent is a multiple of a VAR whose name says what it is at each place; names of this
// form are no user's.
inline constexpr char kOwnVariable[] = "@pd";

struct OwnSizes {
  std::vector<std::pair<int, int64_t>> dims;  // mesh dims on which it depends, with their sizes
  std::vector<int64_t> sizes;                 // by coordinate over those, row-major
};

// The extent: an integer where all sizes are equal.
Extent OwnExtent(const OwnSizes& own);
// The sizes of such a VAR, or of a multiple of one; nothing for others.
std::optional<OwnSizes> OwnSizesOf(const UOp& variable);
std::optional<OwnSizes> OwnSizesOf(const Extent& extent);

// Whether places that differ in a mesh dim, or in any if it is -1, have shapes that differ.
bool DiffersAlong(const Shape& shape, int dim);

}  // namespace tessera
