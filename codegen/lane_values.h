// What an expression is at each lane of a range, and vectors put together from parts.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/uop.h"

namespace tessera {

UOp AtLane(const UOp& u, const UOp& range, int64_t lane);

// What it is at each of the range's lanes.
std::vector<UOp> AtLanes(const UOp& u, const UOp& range);

// An index that is simplified, and so much more.
UOp Ahead(const UOp& index, int64_t by);

// The step between the values of an index at neighbouring lanes, or false where it is not one.
bool LaneStride(const UOp& index, const UOp& range, int64_t& stride);

// How far from the first lane's each lane's value of an index is, or nothing where that varies.
std::vector<int64_t> LaneOffsets(const UOp& index, const UOp& range);

// The lanes of which every run of so many is of neighbours in memory; 1 where there is no such.
int64_t RunLength(const std::vector<int64_t>& offsets);

// The same of what the index is at each lane, where it depends on what is read.
int64_t RunOfNeighbours(const std::vector<UOp>& places);

// Vectors one after another as one; nothing where their number is no power of two.
UOp Joined(std::vector<UOp> parts);

// A vector of scalars; of runs of equal ones, each of them once.
UOp OfScalars(const std::vector<UOp>& parts);

}  // namespace tessera
