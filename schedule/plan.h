// What the scheduler gives: kernels in index form, the steps that run them, and their buffers.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/box.h"
#include "graph/callsite.h"
#include "graph/fault.h"
#include "graph/uop.h"
#include "schedule/localise.h"

namespace tessera {

// A kernel in index form, and what a launch needs to know of it. Identical kernels of a plan are
// one PlanKernel, and so are those that differ in numbers alone (schedule/share_kernels.h).
struct PlanKernel {
  UOp graph;                           // SINK of STOREs
  UOp identity;                        // what it computes and where to; until the plan is finished
  Device device;                       // where it runs
  std::string name;                    // of the generated function; made of what it computes
  std::vector<std::string> variables;  // VARs by slot
  int num_buffers = 0;                 // PARAM slots 0 .. num_buffers - 1
  int num_outputs = 0;                 // slots below are written
  int workers = 1;                     // over how many cores its grid is divided
  int parts_each = 1;                  // of a core's share, which cores that are done take from it
  double utilisation = 1;              // of the cores worth waking, until the last of them is done
  Extent bytes = 0, flops = 0;         // least traffic and arithmetic of one launch

  int parts() const { return workers * parts_each; }
};

// The error of a tensor of more than kMostElements.
absl::Status TooLarge(const Shape& shape, DType dtype);

struct PlanBuffer {
  // kOfTurn: in the steps of a loop, one of the buffers of a carried value, by turns.
  enum Kind : uint8_t { kInput, kOutput, kTemp, kOfTurn };
  Kind kind = kTemp;
  int slot = -1;  // of an input: the leaf's; of an output: the root's
  DType dtype;
  Shape shape;
  Device device;
  int64_t bytes = 0;    // with every variable at its highest
  int64_t offset = -1;  // of a temp: in the arena of its device
  // Of a temp: it is computed by steps that run `once`, has storage of its own, and none in an
  // arena.
  bool kept = false;
};

// What stays the same from one run of a plan to the next, and how much of what depends on nothing
// else may be kept between them.
struct Lasting {
  std::vector<bool> slots;  // of leaves, by slot; those beyond its end may change
  int64_t most_bytes = 0;
};

struct PlanStep {
  // Steps from a kLoop to the kEndLoop of the same loop are repeated; both list what these write
  // that others read, and what they read of others.
  enum Kind : uint8_t { kKernel, kCopy, kExchange, kAllReduce, kReduceScatter, kLoop, kEndLoop };
  Kind kind = kKernel;
  int kernel = -1;  // of a kernel step
  int loop = -1;    // of a kLoop or kEndLoop, in the plan's
  // By name, the values of those of the kernel's variables that are the step's own.
  std::map<std::string, int64_t> numbers = {};
  // By name, which variables of the plan those of the kernel are that several steps share.
  std::map<std::string, std::string> names = {};
  std::vector<int> buffers;  // by slot; of the others: destination, source
  const CallSite* site = nullptr;
  // Of an exchange or reduce-scatter: where the parts lie before and after. Its sources are one
  // buffer on all places of `from`, or a buffer for each place.
  std::shared_ptr<const Boxes> from, to;
  Op op = Op::kAdd;       // of a reduction; kWhere: one place has each element, the others zeros
  std::vector<int> dims;  // of the mesh, over which it combines
  std::string why;        // the note of the node, where a builder put it there
  // Whether it depends on nothing but what lasts: it may run once for many runs of the other steps.
  // Of a loop all steps do, or none.
  bool once = false;
};

// Steps that are repeated, each turn with the value of a variable. The buffer of a carried value is
// another in each turn: the first turn reads where it begins, the last one writes the result, and
// those between write the result and another buffer by turns, so that nothing is copied.
struct PlanLoop {
  Extent turns;
  bool backwards = false;  // the variable counts down
  std::string variable;
  struct Carried {
    std::array<int, 3> buffers;  // the result, the other one, and where it begins
    int taken, given;            // kOfTurn: what a turn reads, and writes
    int result() const { return buffers[0]; }
    int first() const { return buffers[2]; }
  };
  std::vector<Carried> carried;
  // Of the buffers that a kLoop lists: the first. These are the result and the other buffer of each
  // carried value, then stacks, of which each turn writes an element; next come those where carried
  // values begin.
  int num_written = 0;

  int64_t At(int64_t turn, int64_t of) const { return backwards ? of - 1 - turn : turn; }
  // Which of a carried value's buffers turn `turn` of `of` writes and reads: 0, the result, 1, the
  // other one, or 2, where it begins.
  static int GivenBy(int64_t turn, int64_t of) { return static_cast<int>((of - 1 - turn) % 2); }
  static int TakenBy(int64_t turn, int64_t of) {
    return turn == 0 || FaultPlanted(Fault::kTurnTakesFirst) ? 2 : GivenBy(turn - 1, of);
  }
};

struct Plan {
  std::vector<PlanBuffer> buffers;
  std::vector<PlanKernel> kernels;
  std::vector<PlanStep> steps;
  std::vector<PlanLoop> loops;
  std::vector<int> roots;                          // the buffer of each root
  std::vector<std::pair<Device, int64_t>> arenas;  // bytes of temps by device
  std::vector<PlaceVariable> place_variables;
  std::string ToString() const;

  bool has_meshes() const { return !place_variables.empty() || on_meshes; }
  bool on_meshes = false;  // some buffer is on several places
};

// The names of a kernel's VARs, by slot.
std::vector<std::string> VariablesOf(const UOp& sink);
// The variable of the plan that one of a step's kernel is.
const std::string& NameIn(const PlanStep& step, const std::string& variable);

// What a step is, in a line of a table: the name of its kernel, or what moves between which places.
std::string StepName(const Plan& plan, const PlanStep& step);

// Bytes that a step moves between places, before an algorithm is chosen: what each place wants and
// does not hold; of an all-reduce of n bytes over P places 2 (P - 1) n for each group, of a
// reduce-scatter (P - 1) n. Symbolic extents count with their highest values.
int64_t BytesMoved(const Plan& plan, const PlanStep& step);
int64_t BytesMoved(const Plan& plan);

// What moves by the way that is chosen: a small all-reduce goes from each place to every other at
// once, P (P - 1) n bytes; a larger one is scattered and gathered, as in a ring. All else moves its
// least.
bool GoesAtOnce(int64_t bytes, int places);
int64_t BytesSent(const Plan& plan, const PlanStep& step);

// The step that ends the loop which step `begin` begins.
size_t EndOfLoop(const Plan& plan, size_t begin);

// The buffers that a step writes: the first of its own. Of a loop those that others read, which its
// own steps write.
absl::Span<const int> WrittenBy(const Plan& plan, const PlanStep& step);
// The slots of leaves that some step writes.
std::vector<int> WrittenLeaves(const Plan& plan);

// An extent with the variables of a place given their values there.
Extent ExtentOn(const Plan& plan, const Extent& extent, Device mesh, int place);
// As far as that makes it known; else with the others at their highest.
int64_t ExtentAt(const Plan& plan, const Extent& extent, Device mesh, int place);

}  // namespace tessera
