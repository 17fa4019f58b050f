// Long graphs in segments, so that equal layers of a network are scheduled once.
//
// In a chain of layers there are values through which everything goes that comes later: the sums
// that end the layers. Such a value has a buffer anyway, so the graph may be cut behind it. Where
// the segments between two cuts are equal up to the buffers that they read, one of them is
// scheduled and its steps are repeated with the buffers of the others. The joined plan is what
// scheduling the graph as a whole gives, but for what would have moved over a cut; lifetimes, what
// lasts and the division of work are decided on the whole afterwards.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "runtime/plan_key.h"
#include "schedule/plan.h"
#include "schedule/targets.h"

namespace tessera {

// A run of the nodes of a key's order, by their numbers in it.
struct Segment {
  struct Input {
    bool is_leaf;
    int index;  // the slot of a leaf, or the number of an earlier segment's node
  };
  int begin = 0, end = 0;
  std::vector<Input> inputs;  // by slot
  std::vector<int> results;   // nodes that others read, and roots of the graph
  int like = -1;              // the first segment that is equal to this one; -1: this is the first
};

// The segments of a graph, in order; none where no two are equal, or where cutting could change
// what is computed: on meshes, on several places, where random counters advance or numbers vary.
std::vector<Segment> FindSegments(const PlanKey& key);

// Schedules the first of each kind of segment; gives the plan of them all, up to FinishPlan.
absl::StatusOr<Plan> ScheduleSegments(const PlanKey& key, absl::Span<const Segment> segments,
                                      const Targets& targets, Device home);

}  // namespace tessera
