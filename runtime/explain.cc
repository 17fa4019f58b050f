// Explain: the plan that would run, as text.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/callsite.h"
#include "graph/infer.h"
#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "runtime/runtime.h"
#include "runtime/units.h"

namespace tessera {
namespace {

using internal::Call;

std::string Name(int buffer) { return absl::StrCat("b", buffer); }

std::string Names(const std::vector<int>& buffers, int begin, int end) {
  std::string out;
  for (int i = begin; i < end; ++i) absl::StrAppend(&out, i > begin ? ", " : "", Name(buffers[i]));
  return out;
}

// What a launch takes; of a kernel with variables, what it takes at their highest.
std::string Quantity(const PlanKernel& k, const Extent& e, std::string (*show)(double)) {
  return absl::StrCat(k.variables.empty() ? "" : "<= ", show(static_cast<double>(e.max())));
}

// Whether a kernel stores what it loads, computing nothing.
bool OnlyMoves(const PlanKernel& k) {
  const auto stores = k.graph.srcs();
  return std::all_of(stores.begin(), stores.end(),
                     [](const UOp& s) { return s.is(Op::kStore) && s.src(1).is(Op::kIndex); });
}

std::string Plural(size_t n, const char* noun) {
  return absl::StrCat(n, " ", noun, n == 1 ? "" : "s");
}

// What moves, between which places, and why.
std::string TransferName(const Plan& plan, const PlanStep& s) {
  const char* unsaid = s.kind == PlanStep::kCopy ? "as written: To" : "as written";
  return absl::StrCat(StepName(plan, s), " (", s.why.empty() ? unsaid : s.why, ")");
}

constexpr int kNameColumn = 36;  // what is longer has a line of its own

void ShowStep(const Plan& plan, size_t i, std::string* out) {
  const PlanStep& s = plan.steps[i];
  const int n = static_cast<int>(s.buffers.size());
  std::string what, cores = "-", bytes = "-", flops = "-", buffers;
  if (s.loop >= 0) {
    const auto written = static_cast<int>(WrittenBy(plan, s).size());
    what = StepName(plan, s);
    if (s.kind == PlanStep::kLoop) {
      buffers = absl::StrCat(Names(s.buffers, 0, written), " <- ", Names(s.buffers, written, n));
    }
  } else if (s.kind != PlanStep::kKernel) {
    what = TransferName(plan, s);
    bytes = ShowBytes(static_cast<double>(
        s.kind == PlanStep::kCopy ? plan.buffers[s.buffers[0]].bytes : BytesMoved(plan, s)));
    buffers = absl::StrCat(Name(s.buffers[0]), " <- ", Name(s.buffers[1]));
  } else {
    const PlanKernel& k = plan.kernels[s.kernel];
    what = absl::StrCat(k.name, OnlyMoves(k) ? " (moves data)" : "");
    cores = ShowCores(k.workers, k.parts(), k.utilisation);
    bytes = Quantity(k, k.bytes, ShowBytes);
    flops = Quantity(k, k.flops, ShowCount);
    buffers = absl::StrCat(Names(s.buffers, 0, k.num_outputs), " <- ",
                           Names(s.buffers, k.num_outputs, n));
  }
  const std::string site = s.site ? s.site->ToString() : "";
  absl::StrAppend(out, absl::StrFormat("  %4d  ", i + 1));
  if (what.size() > kNameColumn) {
    absl::StrAppend(out, what, "\n        ");
    what.clear();
  }
  absl::StrAppend(out, absl::StrFormat("%-*s %7s %11s %9s  %-20s %s\n", kNameColumn, what, cores,
                                       bytes, flops, buffers, site));
}

void ShowBuffers(const Plan& plan, std::string* out) {
  const char* kinds[] = {"reads", "result", "temp", "turn"};
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& b = plan.buffers[i];
    absl::StrAppend(out, absl::StrFormat("  %4s  %-6s %11s  %s", Name(static_cast<int>(i)),
                                         kinds[b.kind], ShowBytes(static_cast<double>(b.bytes)),
                                         Describe(b.dtype, b.shape, b.device)));
    if (b.kind == PlanBuffer::kTemp && b.offset >= 0) {
      absl::StrAppend(out, ", at ", b.offset, " of the temps");
    }
    *out += "\n";
  }
}

std::string ShowPlan(const Plan& plan) {
  size_t copies = 0, exchanges = 0, reductions = 0, scatters = 0, loops = 0;
  double copied = 0;
  for (const PlanStep& s : plan.steps) {
    exchanges += s.kind == PlanStep::kExchange;
    reductions += s.kind == PlanStep::kAllReduce;
    scatters += s.kind == PlanStep::kReduceScatter;
    loops += s.kind == PlanStep::kLoop;
    if (s.kind != PlanStep::kCopy) continue;
    ++copies;
    copied += static_cast<double>(plan.buffers[s.buffers[0]].bytes);
  }
  const size_t launches =
      plan.steps.size() - copies - exchanges - reductions - scatters - 2 * loops;
  std::string out = Plural(launches, "kernel");
  if (plan.kernels.size() != launches)
    absl::StrAppend(&out, " (", plan.kernels.size(), " distinct)");
  absl::StrAppend(&out, ", ", copies == 1 ? "1 copy" : absl::StrCat(copies, " copies"));
  if (copies > 0) absl::StrAppend(&out, " of ", ShowBytes(copied));
  if (loops > 0) absl::StrAppend(&out, ", ", Plural(loops, "loop"));
  if (exchanges + reductions + scatters > 0) {
    absl::StrAppend(&out, ", ", Plural(exchanges, "exchange"), ", ",
                    Plural(reductions, "all-reduce"), ", ",
                    scatters > 0 ? absl::StrCat(Plural(scatters, "reduce-scatter"), ", ") : "",
                    ShowBytes(static_cast<double>(BytesMoved(plan))), " between places");
  }
  for (const auto& [device, bytes] : plan.arenas) {
    absl::StrAppend(&out, ", temps of ", ShowBytes(static_cast<double>(bytes)), " on ",
                    device.ToString());
  }
  absl::StrAppend(
      &out, absl::StrFormat("\n  %4s  %-*s %7s %11s %9s  %-20s %s\n", "step", kNameColumn, "kernel",
                            "cores", "bytes", "flops", "writes <- reads", "written at"));
  for (size_t i = 0; i < plan.steps.size(); ++i) ShowStep(plan, i, &out);
  ShowBuffers(plan, &out);
  return out;
}

}  // namespace

std::string Explain(absl::Span<const Tensor> tensors, CallSite at) {
  Call call("Explain", at);
  std::vector<UOp> roots;
  std::string out = "plan of ";
  for (const Tensor& t : tensors) {
    absl::StrAppend(&out, roots.empty() ? "" : ", ", internal::Show(t));
    roots.push_back(t.uop());
  }
  const absl::StatusOr<Plan> plan = PlanWithGrids(roots, MakePlanKey(roots));
  if (!plan.ok()) throw Error(plan.status());
  return absl::StrCat(out, ": ", ShowPlan(*plan));
}

std::string Explain(const Tensor& tensor, CallSite at) { return Explain({&tensor, 1}, at); }

}  // namespace tessera
