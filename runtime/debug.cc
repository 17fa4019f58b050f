// Debug output.
#include "runtime/debug.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/callsite.h"
#include "graph/flags.h"
#include "graph/text.h"
#include "runtime/device.h"
#include "runtime/peak.h"
#include "runtime/units.h"

namespace tessera {
namespace {

constexpr int kNameColumn = 32;

}  // namespace

void DebugPlan(const Plan& plan) {
  if (IntFlag(Flag::kDebug) < 3) return;
  std::fprintf(stderr, "%s", plan.ToString().c_str());
}

void DebugProgram(const PlanKernel& kernel, const Program& program) {
  const int64_t level = IntFlag(Flag::kDebug);
  if (level >= 5) {
    std::fprintf(stderr, "// %s, index form\n%s", kernel.name.c_str(),
                 Print({&kernel.graph, 1}).c_str());
  }
  if (level >= 6) {
    std::fprintf(stderr, "// %s, program\n%s", kernel.name.c_str(),
                 Print({&program.statements, 1}).c_str());
  }
  if (level >= 4) {
    const size_t body = program.text.find("RT_KERNEL(" + kernel.name);
    std::fprintf(stderr, "%s\n", program.text.substr(body == std::string::npos ? 0 : body).c_str());
  }
}

namespace {

// At the first of its launches.
const Peak& ShownPeak(const Place& place) {
  static std::mutex mutex;
  static auto& shown = *new absl::flat_hash_set<Place>;
  const Peak& peak = MeasuredPeak(place);
  const std::lock_guard lock(mutex);
  if (!shown.insert(place).second || peak.bandwidth() <= 0) return peak;
  std::string rates = absl::StrFormat("copy %.1f GB/s", peak.copy * 1e-9);
  if (peak.flops > 0) {
    rates = absl::StrFormat("read %.1f GB/s, %s, %.0f GFLOP/s (f32)", peak.read * 1e-9, rates,
                            peak.flops * 1e-9);
  }
  std::fprintf(stderr, "peak of %s, measured: %s\n",
               place.kind() == "CPU" ? "this machine" : place.ToString().c_str(), rates.c_str());
  return peak;
}

}  // namespace

LaunchTable::LaunchTable(const Plan& plan) : plan_(plan) {
  static const bool once = [] {
    std::atexit([] { std::fprintf(stderr, "%s", MemoryReport().c_str()); });
    return true;
  }();
  (void)once;
  for (const PlanStep& s : plan.steps) ShownPeak(PlaceOf(s));  // before the table
  std::fprintf(stderr, "%s",
               absl::StrFormat("%-*s %7s %10s %9s %9s %10s  %s\n", kNameColumn, "kernel", "cores",
                               "time", "GB/s", "GFLOP/s", "of peak", "written at")
                   .c_str());
}

Place LaunchTable::PlaceOf(const PlanStep& step) const {
  return plan_.buffers[step.buffers[0]].device.places()[0];
}

LaunchTable::~LaunchTable() {
  if (all_.launches < 2) return;
  const bool one_place = places_.size() == 1;
  Line(absl::StrCat("all ", all_.launches), "", all_.seconds, all_.bytes, all_.flops, all_.computes,
       one_place ? MeasuredPeak(*places_.begin()) : Peak(), "");
}

void LaunchTable::Sum::Add(const Sum& other) {
  launches += other.launches;
  seconds += other.seconds, bytes += other.bytes, flops += other.flops;
  computes |= other.computes;
}

void LaunchTable::Add(const PlanStep& step, double seconds, double bytes, double flops,
                      bool computes) {
  const Sum one = {1, seconds, bytes, flops, computes};
  all_.Add(one);
  places_.insert(PlaceOf(step));
  if (loops_ > 0) return sums_[&step].Add(one);
  Line(step, one);
}

void LaunchTable::EndLoop() {
  if (--loops_ > 0) return;
  for (const auto& [step, sum] : sums_) Line(*step, sum);
  sums_.clear();
}

void LaunchTable::Line(const PlanStep& step, const Sum& sum) const {
  std::string cores;
  if (step.kind == PlanStep::kKernel) {
    const PlanKernel& k = plan_.kernels[step.kernel];
    cores = ShowCores(k.workers, k.parts(), k.utilisation);
  }
  const std::string times = sum.launches > 1 ? absl::StrCat(" x ", sum.launches) : "";
  Line(StepName(plan_, step) + times, cores, sum.seconds, sum.bytes, sum.flops, sum.computes,
       MeasuredPeak(PlaceOf(step)), step.site ? step.site->ToString() : "");
}

void LaunchTable::Line(const std::string& name, const std::string& cores, double seconds,
                       double bytes, double flops, bool computes, const Peak& peak,
                       const std::string& site) const {
  std::string gbps = "-", gflops = "-", share = "-";
  if (computes && seconds > 0) {
    gbps = absl::StrFormat("%.2f", bytes / seconds * 1e-9);
    gflops = absl::StrFormat("%.2f", flops / seconds * 1e-9);
    const PeakShare s = ShareOfPeak(peak, bytes / seconds, flops / seconds);
    if (s.share > 0) share = absl::StrFormat("%.0f %% %s", 100 * s.share, s.memory ? "mem" : "fma");
  }
  const bool long_name = name.size() > kNameColumn;  // it has a line of its own
  std::fprintf(stderr, "%s%s", long_name ? name.c_str() : "", long_name ? "\n" : "");
  std::fprintf(
      stderr, "%s",
      absl::StrFormat("%-*s %7s %10s %9s %9s %10s  %s\n", kNameColumn, long_name ? "" : name, cores,
                      ShowSeconds(seconds), gbps, gflops, share, site)
          .c_str());
}

}  // namespace tessera
