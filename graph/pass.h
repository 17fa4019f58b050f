// Running passes: timed, checked after each, dumped where they changed something, left out by name
// or by number.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/spec.h"
#include "graph/target.h"

namespace tessera {

// A list of rewriting passes under way over some roots.
//
//   PassRunner passes("codegen", SpecStage::kKernel, target);
//   RETURN_IF_ERROR(passes.Run("widen", roots, [&](auto r) { ... return r; }));
//
// With SPEC=2 the validator runs after each pass and a rejection names the pass. DEBUG=7 prints how
// long each took; DUMP=folder writes the text of the roots after each pass that changed them.
// SKIP_PASS=name,... and BISECT=n (only the first n of the process, which prints the first that it
// leaves out, if there are so many) leave out optional passes.
class PassRunner {
 public:
  using Roots = std::vector<UOp>;
  using Pass = std::function<Roots(const Roots&)>;

  // `check` is off for forms between two stages, which have rules of neither.
  PassRunner(std::string list, SpecStage stage, const Target& target)
      : list_(std::move(list)), stage_(stage), target_(target) {}

  // Replaces `roots` by what the pass makes of them.
  absl::Status Run(const std::string& name, Roots& roots, const Pass& pass, bool check = true);
  // The same for a pass that what follows can do without. One that makes more ranges of a kernel
  // than there may be (TooManyRanges, graph/kernel_form.h) is left out as well.
  absl::Status RunOptional(const std::string& name, Roots& roots, const Pass& pass,
                           bool check = true);

 private:
  const std::string list_;
  const SpecStage stage_;
  const Target& target_;
};

}  // namespace tessera
