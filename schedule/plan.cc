// Plans as text.
#include "schedule/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/infer.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

const char* KindName(PlanStep::Kind kind) {
  switch (kind) {
    case PlanStep::kKernel:
      return "kernel";
    case PlanStep::kCopy:
      return "copy";
    case PlanStep::kExchange:
      return "exchange";
    case PlanStep::kAllReduce:
      return "all-reduce";
    case PlanStep::kReduceScatter:
      return "reduce-scatter";
    case PlanStep::kLoop:
      return "loop";
    case PlanStep::kEndLoop:
      return "end of loop";
  }
  return "";
}

std::string MeshText(Device d) {
  return d.is_sharding() ? d.sharding().mesh().ToString() : d.ToString();
}

}  // namespace

std::vector<std::string> VariablesOf(const UOp& sink) {
  std::vector<std::string> names;
  for (const UOp& u : TopoSort({&sink, 1}, /*with_extents=*/true)) {
    if (u.is(Op::kVar)) names.push_back(u.arg<VarArg>().name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

const std::string& NameIn(const PlanStep& step, const std::string& variable) {
  const auto it = step.names.find(variable);
  return it == step.names.end() ? variable : it->second;
}

std::string StepName(const Plan& plan, const PlanStep& step) {
  if (step.kind == PlanStep::kKernel) return plan.kernels[step.kernel].name;
  if (step.loop >= 0) {
    return absl::StrCat(KindName(step.kind), " of ", plan.loops[step.loop].turns.ToString(),
                        " turns");
  }
  const PlanBuffer &to = plan.buffers[step.buffers[0]], &from = plan.buffers[step.buffers[1]];
  const std::string kind = KindName(step.kind);
  if (step.kind == PlanStep::kCopy || step.kind == PlanStep::kExchange) {
    return absl::StrCat(kind, " ", MeshText(from.device), " -> ", MeshText(to.device));
  }
  const Mesh mesh = to.device.sharding().mesh();
  const std::string dims =
      absl::StrJoin(step.dims, ",", [&mesh](std::string* o, int d) { *o += mesh.DimName(d); });
  return absl::StrCat(kind, " ", step.op == Op::kWhere ? "select" : Info(step.op).text,
                      " of groups of ", mesh.Groups(step.dims)[0].size(), " along ", dims, " of ",
                      mesh.ToString());
}

absl::Status TooLarge(const Shape& shape, DType dtype) {
  return absl::ResourceExhaustedError(
      absl::StrCat("realize: a tensor ", dtype.ToString(), shape.ToString(),
                   " has more elements than any memory holds; compute it in parts"));
}

absl::Span<const int> WrittenBy(const Plan& plan, const PlanStep& step) {
  int n = 1;
  if (step.kind == PlanStep::kKernel) n = plan.kernels[step.kernel].num_outputs;
  if (step.loop >= 0) n = plan.loops[step.loop].num_written;
  return absl::MakeSpan(step.buffers).subspan(0, n);
}

size_t EndOfLoop(const Plan& plan, size_t begin) {
  size_t end = begin + 1;
  while (plan.steps[end].loop != plan.steps[begin].loop) ++end;
  return end;
}

std::vector<int> WrittenLeaves(const Plan& plan) {
  std::vector<int> out;
  for (const PlanStep& step : plan.steps) {
    for (int b : WrittenBy(plan, step)) {
      if (plan.buffers[b].kind == PlanBuffer::kInput) out.push_back(plan.buffers[b].slot);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Extent ExtentOn(const Plan& plan, const Extent& extent, Device mesh, int place) {
  if (extent.is_int()) return extent;
  Substitution values;
  for (const PlaceVariable& v : plan.place_variables) {
    if (!(v.mesh == mesh)) continue;
    values.emplace(v.variable, v.At(place).ToUOp());
  }
  return Extent(Simplify(Substitute(extent.expr(), values)));
}

int64_t ExtentAt(const Plan& plan, const Extent& extent, Device mesh, int place) {
  return std::max<int64_t>(0, ExtentOn(plan, extent, mesh, place).max());
}

int64_t BytesMoved(const Plan& plan, const PlanStep& step) {
  if (step.loop >= 0) return 0;
  const PlanBuffer& to = plan.buffers[step.buffers[0]];
  const int64_t width = to.dtype.bytes();
  switch (step.kind) {
    case PlanStep::kKernel:
    case PlanStep::kLoop:
    case PlanStep::kEndLoop:
      return 0;
    case PlanStep::kCopy:
      return to.device == plan.buffers[step.buffers[1]].device ? 0 : to.bytes;
    case PlanStep::kExchange:
      return MovedElements(*step.from, *step.to) * width;
    case PlanStep::kAllReduce: {
      int64_t bytes = 0;
      for (const std::vector<int>& group : to.device.sharding().mesh().Groups(step.dims)) {
        int64_t elements = 1;
        for (const Extent& e : to.shape) elements *= ExtentAt(plan, e, to.device, group[0]);
        bytes += 2 * (static_cast<int64_t>(group.size()) - 1) * elements * width;
      }
      return bytes;
    }
    case PlanStep::kReduceScatter: {
      int64_t bytes = 0;
      for (const std::vector<int>& group : to.device.sharding().mesh().Groups(step.dims)) {
        for (int i : group) {
          bytes += (static_cast<int64_t>(group.size()) - 1) * Volume(step.to->At(i)) * width;
        }
      }
      return bytes;
    }
  }
  return 0;
}

int64_t BytesMoved(const Plan& plan) {
  int64_t bytes = 0;
  for (const PlanStep& s : plan.steps) bytes += BytesMoved(plan, s);
  return bytes;
}

bool GoesAtOnce(int64_t bytes, int places) {
  constexpr int64_t kMost = 4096;
  return bytes * places <= kMost;
}

int64_t BytesSent(const Plan& plan, const PlanStep& step) {
  if (step.kind != PlanStep::kAllReduce) return BytesMoved(plan, step);
  const PlanBuffer& to = plan.buffers[step.buffers[0]];
  int64_t bytes = 0;
  for (const std::vector<int>& group : to.device.sharding().mesh().Groups(step.dims)) {
    int64_t n = to.dtype.bytes();
    for (const Extent& e : to.shape) n *= ExtentAt(plan, e, to.device, group[0]);
    const auto places = static_cast<int>(group.size());
    bytes += (GoesAtOnce(n, places) ? places : 2) * int64_t{places - 1} * n;
  }
  return bytes;
}

std::string Plan::ToString() const {
  std::string out = absl::StrCat("plan: ", steps.size(), " steps, ", kernels.size(), " kernels\n");
  const char* kinds[] = {"input", "output", "temp", "of a turn"};
  for (size_t i = 0; i < buffers.size(); ++i) {
    const PlanBuffer& b = buffers[i];
    absl::StrAppend(&out, "  b", i, " ", kinds[b.kind], " ", Describe(b.dtype, b.shape, b.device));
    if (b.kept) {
      absl::StrAppend(&out, " kept");
    } else if (b.kind == PlanBuffer::kTemp) {
      absl::StrAppend(&out, " at ", b.offset);
    }
    absl::StrAppend(&out, "\n");
  }
  for (const PlanStep& s : steps) {
    const std::string list =
        absl::StrJoin(s.buffers, ", ", [](std::string* o, int b) { absl::StrAppend(o, "b", b); });
    const std::string numbers = absl::StrJoin(s.numbers, "", [](std::string* o, const auto& n) {
      absl::StrAppend(o, ", ", n.first, "=", n.second);
    });
    const std::string names = absl::StrJoin(s.names, "", [](std::string* o, const auto& n) {
      absl::StrAppend(o, ", ", n.first, "=", n.second);
    });
    const std::string name =
        s.kind == PlanStep::kKernel || s.loop >= 0 ? StepName(*this, s) : KindName(s.kind);
    absl::StrAppend(&out, "  ", name, "(", list, numbers, names, ")", s.once ? " once" : "",
                    s.site ? absl::StrCat("  at ", s.site->ToString()) : "", "\n");
  }
  for (const auto& [device, bytes] : arenas) {
    absl::StrAppend(&out, "  temps on ", device.ToString(), ": ", bytes, " bytes\n");
  }
  return out;
}

}  // namespace tessera
