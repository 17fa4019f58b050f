// LOOPs apart from the graph that they are in: their bodies are scheduled by themselves.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "graph/rewrite.h"
#include "graph/uop.h"

namespace tessera {

// A LOOP whose RESULTs are RANs: nodes that read what the loop does, and have no body. What is made
// of little (constants, counters, another shape of what lies in memory) is made in each turn, where
// it is used; the RANs read what that is made of.
struct OutlinedLoop {
  UOp loop;
  std::vector<UOp> values;  // of each source of the loop beyond those that are carried, by PARAMs
                            // whose slots are the places of what the RANs read
};

struct Outlined {
  std::vector<UOp> roots;
  std::vector<OutlinedLoop> loops;  // by number, as RANs have it
};

// A RAN's loop, and which RESULT of it that is.
int LoopOfRan(const UOp& ran);
int ResultOfRan(const UOp& ran);

Outlined OutlineLoops(absl::Span<const UOp> roots, Device default_device);

}  // namespace tessera
