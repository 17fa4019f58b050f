// What the scheduler gives: kernels in index form, the steps that run them, and their buffers.
#pragma once

#include <string>
#include <vector>

#include "graph/callsite.h"
#include "graph/uop.h"

namespace tessera {

// A kernel in index form, and what a launch needs to know of it. Identical kernels of a plan are
// one PlanKernel.
struct PlanKernel {
  UOp graph;                           // SINK of STOREs
  std::string name;                    // of the generated function; made of what it computes
  std::vector<std::string> variables;  // VARs by slot
  int num_buffers = 0;                 // PARAM slots 0 .. num_buffers - 1
  int num_outputs = 0;                 // slots below are written
  int workers = 1;                     // over how many cores its grid is divided
  Extent bytes = 0, flops = 0;         // least traffic and arithmetic of one launch
};

struct PlanBuffer {
  enum Kind : uint8_t { kInput, kOutput, kTemp };
  Kind kind = kTemp;
  int slot = -1;  // of an input: the leaf's; of an output: the root's
  DType dtype;
  Shape shape;
  Device device;
  int64_t bytes = 0;    // with every variable at its highest
  int64_t offset = -1;  // of a temp: in the arena of its device
};

struct PlanStep {
  enum Kind : uint8_t { kKernel, kCopy };
  Kind kind = kKernel;
  int kernel = -1;           // of a kernel step
  std::vector<int> buffers;  // by slot; of a copy: destination, source
  const CallSite* site = nullptr;
};

struct Plan {
  std::vector<PlanBuffer> buffers;
  std::vector<PlanKernel> kernels;
  std::vector<PlanStep> steps;
  std::vector<int> roots;                          // the buffer of each root
  std::vector<std::pair<Device, int64_t>> arenas;  // bytes of temps by device
  std::string ToString() const;
};

}  // namespace tessera
