// What DEBUG prints, to stderr: 2 a table of what runs, 3 plans, 4 kernel texts, 5 kernels in index
// form, 6 programs statement by statement.
#pragma once

#include <map>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "codegen/codegen.h"
#include "runtime/peak.h"
#include "schedule/plan.h"

namespace tessera {

void DebugPlan(const Plan& plan);
void DebugProgram(const PlanKernel& kernel, const Program& program);

// The table of one execution of a plan: a header when it is made, a line for each launch as it
// happens, totals when it dies. Rates are shown beside the share of the machine's measured peak
// that they are, of memory or of arithmetic, whichever is nearer to its limit. When the process
// ends, the memory of each device is printed.
class LaunchTable {
 public:
  explicit LaunchTable(const Plan& plan);
  ~LaunchTable();
  LaunchTable(const LaunchTable&) = delete;
  // A launch that computed nothing, on NULL, has no rates.
  void Add(const PlanStep& step, double seconds, double bytes, double flops, bool computes);
  // The launches of a step between these have one line, with their number.
  void BeginLoop() { ++loops_; }
  void EndLoop();

 private:
  struct Sum {
    int launches = 0;
    double seconds = 0, bytes = 0, flops = 0;
    bool computes = false;
    void Add(const Sum& other);
  };
  void Line(const PlanStep& step, const Sum& sum) const;
  void Line(const std::string& name, const std::string& cores, double seconds, double bytes,
            double flops, bool computes, const Peak& peak, const std::string& site) const;
  // Where a step runs, or the first of its places.
  Place PlaceOf(const PlanStep& step) const;

  const Plan& plan_;
  Sum all_;
  int loops_ = 0;                        // under way
  std::map<const PlanStep*, Sum> sums_;  // of steps in them, in the order of the plan
  absl::flat_hash_set<Place> places_;
};

}  // namespace tessera
