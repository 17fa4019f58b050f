// Plans as text.
#include "schedule/plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/infer.h"

namespace tessera {

std::string Plan::ToString() const {
  std::string out = absl::StrCat("plan: ", steps.size(), " steps, ", kernels.size(), " kernels\n");
  const char* kinds[] = {"input", "output", "temp"};
  for (size_t i = 0; i < buffers.size(); ++i) {
    const PlanBuffer& b = buffers[i];
    absl::StrAppend(&out, "  b", i, " ", kinds[b.kind], " ", Describe(b.dtype, b.shape, b.device));
    if (b.kind == PlanBuffer::kTemp) absl::StrAppend(&out, " at ", b.offset);
    absl::StrAppend(&out, "\n");
  }
  for (const PlanStep& s : steps) {
    const std::string list =
        absl::StrJoin(s.buffers, ", ", [](std::string* o, int b) { absl::StrAppend(o, "b", b); });
    absl::StrAppend(&out, "  ", s.kind == PlanStep::kCopy ? "copy" : kernels[s.kernel].name, "(",
                    list, ")", s.site ? absl::StrCat("  at ", s.site->ToString()) : "", "\n");
  }
  for (const auto& [device, bytes] : arenas) {
    absl::StrAppend(&out, "  temps on ", device.ToString(), ": ", bytes, " bytes\n");
  }
  return out;
}

}  // namespace tessera
