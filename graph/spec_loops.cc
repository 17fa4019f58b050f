// The rules on LOOPs: a turn takes what its loop reads, and no other sees its ITEMs.
#include <algorithm>
#include <bit>

#include "graph/infer.h"
#include "graph/loop_form.h"
#include "graph/spec_graph.h"
#include "graph/walk.h"

namespace tessera {
namespace {

// The highest of the LOOPs that the nodes are made of, plus 1.
int64_t HeightAbove(absl::Span<const UOp> roots) {
  int64_t out = 0;
  WalkDown(roots, [&](const UOp& u) {
    if (u.is(Op::kLoop)) out = std::max(out, u.arg<Ints>()[3] + 1);
    return true;
  });
  return out;
}

// What a turn takes against what its loop reads.
void CheckItems(SpecGraph& g, int i, const LoopForm& loop) {
  const auto sources = static_cast<int64_t>(g.nodes[i].value.size()) - 2;
  for (const UOp& item : loop.Items()) {
    const int64_t k = NumberOfItem(item);
    if (k >= sources) {
      g.Report(SpecRule::kLoopForm, i, "LOOP: ITEM ", k, " is none of its ", sources, " sources");
      continue;
    }
    const UOp& source = loop.SourceOf(k);
    const bool placed = !source.device() || source.device() == item.device() ||
                        (source.device().is_sharding() && loop.IsOfSequence(k));
    if (item.dtype() == source.dtype() && item.shape() == loop.ShapeOfItem(k) && placed) continue;
    g.Report(SpecRule::kLoopForm, i, "LOOP: ITEM ", k, " is ", Describe(item), ", and stands for ",
             loop.IsOfSequence(k) ? "elements of " : "", Describe(source));
  }
}

}  // namespace

void CheckLoops(SpecGraph& g) {
  std::vector<uint64_t> open(g.nodes.size(), 0);  // the heights of ITEMs below
  const auto first_of = [](uint64_t heights) { return std::countr_zero(heights); };
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const SpecNode& n = g.nodes[i];
    const absl::Span<const int> srcs = g.srcs(i);
    const bool loops = n.op == Op::kLoop && n.sure() && !srcs.empty();
    for (int s : loops ? srcs.subspan(1) : srcs) open[i] |= open[s];
    if (n.op == Op::kItem && n.sure()) {
      open[i] |= uint64_t{1} << std::min(HeightOfItem(n.value), kMostHeights);
    }
    if (!loops) continue;
    const LoopForm loop(n.value);
    if (loop.height > kMostHeights) {
      g.Report(SpecRule::kLoopForm, i, "LOOP: the height ", loop.height, " is above ",
               kMostHeights);
      continue;
    }
    if (loop.height < HeightAbove({&loop.body, 1})) {
      g.Report(SpecRule::kLoopForm, i, "LOOP: its body has a loop as high as it is");
    }
    if (const uint64_t others = open[srcs[0]] & ~(uint64_t{1} << loop.height); others != 0) {
      g.Report(SpecRule::kLoopForm, i, "LOOP: its body takes ITEMs of height ", first_of(others),
               ", and its own are of ", loop.height);
    }
    CheckItems(g, i, loop);
  }
  for (int r : g.roots) {
    if (open[r] == 0 || g.nodes[r].op == Op::kItem) continue;
    g.Report(SpecRule::kLoopForm, r, "takes an ITEM of height ", first_of(open[r]),
             ", and is in the body of no LOOP");
  }
}

}  // namespace tessera
