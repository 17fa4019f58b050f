// The validator: what is wrong with a graph, by the rules of graph/spec_rules.def.
//
// It reads graphs in memory and statements of the text form, in order and before interning. It goes
// on after a violation: a wrong node counts as having the dtype, and the shape where annotated,
// that it declares, so one mistake is reported once. Level 1 checks what a border between stages
// must be able to rely on; level 2 recomputes what nodes store, and looks at values. docs/spec.md
// has both.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

enum class SpecStage : uint8_t { kTensor, kKernel, kProgram };

enum class SpecRule : uint8_t {
#define SPEC_RULE(name, ...) k##name,
#include "graph/spec_rules.def"
};

struct RuleInfo {
  const char* name;    // "reshape-count"
  const char* stages;  // letters of tensor, kernel, program
  int level;
  const char* sentence;  // what holds
};

const RuleInfo& Info(SpecRule rule);
absl::Span<const RuleInfo> AllRules();

inline constexpr int kMaxSpecLevel = 2;

struct Violation {
  std::string node;  // its statement
  SpecRule rule = SpecRule::kSyntax;
  std::string message;
  int line = 0;  // of the text; 0 in memory
  // "%2 = ADD f32 (%0, %1): shapes-alike (level 1): ADD: the shapes do not match; ..."
  std::string ToString() const;
};

struct SpecOptions {
  std::optional<SpecStage> stage;  // of texts: found from the ops if not given; in memory: tensor
  int level = kMaxSpecLevel;
  Target target;  // whose limits hold
};

// In the order of the statements.
std::vector<Violation> FindViolations(absl::Span<const UOp> roots, const SpecOptions& options);
std::vector<Violation> VerifyText(absl::string_view text, const SpecOptions& options);

// An error that names the pass after which the graph is wrong, the nodes, rules and levels.
absl::Status Verify(absl::Span<const UOp> roots, SpecStage stage, int level,
                    absl::string_view pass = "", const Target& target = Target());

// What inference leaves unchecked of a node that is about to be made; for UOp::TryMake, level 2.
absl::Status VerifyNewNode(Op op, DType dtype, absl::Span<const UOp> srcs, const Arg& arg);

// The level that the environment asks for (SPEC=0, 1 or 2; 1 if unset). Callers of Verify pass it.
int SpecLevel();

// The stage that the ops of a text belong to, and its name.
SpecStage DetectStage(absl::string_view text);
absl::string_view StageName(SpecStage stage);

}  // namespace tessera
