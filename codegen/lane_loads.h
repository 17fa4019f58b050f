// What is loaded for the lanes of a range: a vector where they are neighbours, vectors whose lanes
// are moved where they are a few elements apart or in runs, else one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/kernel_form.h"
#include "graph/node_map.h"

namespace tessera {

class LaneLoads {
 public:
  // `done` has what each node that a load is made of has become. Unless lanes can be moved within
  // vectors (`shuffles`), what is no neighbour is loaded one by one.
  LaneLoads(const RangeSets& sets, const UOp& range, bool shuffles, const NodeMap<UOp>& done);

  // Of an INDEX that moves with the range, or whose gate does.
  UOp Of(const UOp& index) const;

 private:
  UOp Vector(const UOp& u, const UOp& place, const UOp& gate, int64_t lanes) const;
  UOp GateOf(const UOp& u) const;
  bool GatesLanes(const UOp& u) const;
  std::vector<UOp> SearchedPlaces(const UOp& u) const;
  UOp Within(const UOp& u, const UOp& at) const;
  UOp InRuns(const UOp& u) const;
  UOp Repeated(const UOp& u, const std::vector<int64_t>& offsets) const;
  UOp Shuffled(const UOp& u, int64_t stride) const;
  UOp Moved(const UOp& a, const UOp& b, const Ints& from) const;

  const RangeSets& sets_;
  const RangeMask bit_;
  const UOp range_;
  const int64_t lanes_;
  const bool shuffles_;
  const NodeMap<UOp>& done_;
};

}  // namespace tessera
