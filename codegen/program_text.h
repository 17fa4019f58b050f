// What the text of a program depends on beyond one statement.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "graph/uop.h"

namespace tessera {

// The buffers that a program puts to: what reads their elements must not take them for constant.
absl::flat_hash_set<const Node*> WrittenBuffers(const UOp& program);

// Innermost loops over scratch of as many steps as copies divide: neighbours are then read as one
// vector, or while others are multiplied.
inline constexpr int64_t kCopiesOfLoop = 4;  // of such a loop's body
absl::flat_hash_set<const Node*> LoopsToUnroll(const UOp& program);

// How often a loop runs, where that is known; else 0.
int64_t LoopCount(const UOp& loop);

// A value of one dtype as one of another.
std::string CastText(const std::string& value, DType from, DType to);

}  // namespace tessera
