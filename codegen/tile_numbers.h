// Which registers of a CPU's matrix unit hold the tiles of a program: they are known by number.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "graph/uop.h"

namespace tessera {

inline constexpr int kTiles = 8;

using TileNumbers = absl::flat_hash_map<const Node*, int>;

// The number of each tile that a statement makes: a FRAGMENT, a LOAD of memory, a REG that starts
// from zero, an MMA without a sum. Others (what is read from a REG, sums that an MMA takes up) are
// the same tile as what they come from. A number is free again after its tile's last use, or after
// the loop that has it if the tile was made before that. ResourceExhausted if there are too few.
absl::StatusOr<TileNumbers> NumberTiles(const UOp& program);

}  // namespace tessera
