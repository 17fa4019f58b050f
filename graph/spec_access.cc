// The rule on accesses: they are inside their buffers.
#include <algorithm>

#include "graph/infer.h"
#include "graph/spec_graph.h"

namespace tessera {
namespace {

// How many elements a pointer points at, at most.
int64_t ElementsOf(const UOp& pointer) {
  const UOp p = pointer.is(Op::kStage) ? UOp(pointer.src(0)) : pointer;
  if (!p.is(Op::kScratch)) return p.shape().MaxElements();
  return p.arg<Pairs>()[0].second.value() / std::max(1, p.dtype().bytes());
}

}  // namespace

void CheckAccess(SpecGraph& g, const SpecAccess& a, SpecPoints::Reads reads,
                 SpecPoints::Blocks blocks) {
  if (!g.Applies(SpecRule::kIndexBounds) || !g.nodes[a.pointer].sure()) return;
  const UOp& pointer = g.nodes[a.pointer].value;
  const int64_t count = ElementsOf(pointer), last = count - a.lanes;
  const int64_t low = a.offset.vmin(), high = a.offset.vmax();
  // No loop over an empty buffer runs, whatever its index has been simplified to.
  if (count == 0 || (low >= 0 && high <= last)) return;
  const auto report = [&](const std::string& where) {
    g.Report(SpecRule::kIndexBounds, a.node, Info(g.nodes[a.node].op).text, ": the offset is ",
             where, a.lanes > 1 ? absl::StrCat(" and ", a.lanes - 1, " further") : "", ", and ",
             Describe(pointer), " has ", count, " elements");
  };
  bool always = a.runs;
  for (const UOp& c : a.conditions) {
    if (c.vmax() == 0) return;
    always &= c.vmin() == 1;
  }
  if (always && (high < 0 || low > last)) return report(absl::StrCat("in ", low, "..", high));
  if (g.budget <= 0) return;
  std::vector<UOp> expressions = {a.offset};
  expressions.insert(expressions.end(), a.conditions.begin(), a.conditions.end());
  const int conditions = static_cast<int>(expressions.size());
  expressions.insert(expressions.end(), a.loops.begin(), a.loops.end());
  const int end = static_cast<int>(expressions.size());
  SpecPoints points(std::move(expressions), reads, g.budget, blocks);
  points.Visit([&] {
    const std::optional<int64_t> at = points.At(0);
    if (!at || (*at >= 0 && *at <= last)) return true;
    for (int k = 1; k < end; ++k) {
      const std::optional<int64_t> value = points.At(k);
      if (!value || (k < conditions && *value == 0)) return true;
    }
    report(absl::StrCat(*at, " at ", points.Where()));
    return false;
  });
}

}  // namespace tessera
