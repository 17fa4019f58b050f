// One graph to try: roots over PARAMs, and the contents of these. Running, and shrinking what
// fails.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/uop.h"
#include "runtime/runtime.h"
#include "tests/support/error_bound.h"

namespace tessera {

struct FuzzCase {
  std::vector<UOp> roots;                  // leaves: PARAMs by slot, constants, counters
  std::vector<std::vector<uint8_t>> data;  // by slot
  Bindings values;                         // of the VARs
  // What is tried after the graph itself, with every plan and kernel of it in the caches.
  enum Then : uint8_t { kNothing, kReplay, kChange } then = kNothing;
  uint64_t seed = 0;  // of kChange
};

// The case of graphs over realised buffers.
FuzzCase CaseOf(std::vector<UOp> roots);

// Schedules, compiles and runs the roots together in fresh buffers and compares each with the
// reference: "" or what is wrong. Then, as the case has it: the same graph captured and replayed
// on other data and values, or the graph with other constants, slices and flips.
std::string RunCase(const FuzzCase& c, Compared* compared = nullptr);

// The graph with some of its constants, offsets and flipped axes replaced; the shapes stay.
FuzzCase Changed(const FuzzCase& c);

// A smaller case that still fails: fewer roots, parts of the graph cut off or skipped, duller data.
FuzzCase Shrink(const FuzzCase& c, const std::function<bool(const FuzzCase&)>& fails);

// The graph in text form and its data.
std::string ToString(const FuzzCase& c);

}  // namespace tessera
