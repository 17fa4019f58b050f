// The rules on accesses: they are inside their buffers, threads put to elements of their own, and
// what is read of scratch was put there.
#include <algorithm>

#include "absl/algorithm/container.h"
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

// What an access is made of: its offset, what must hold, and the loops around.
std::vector<UOp> ExpressionsOf(const SpecAccess& a) {
  std::vector<UOp> out = {a.offset};
  out.insert(out.end(), a.conditions.begin(), a.conditions.end());
  out.insert(out.end(), a.loops.begin(), a.loops.end());
  return out;
}

// The offset where an access happens for certain, by what its expressions are at a point.
template <typename At>
std::optional<int64_t> OffsetOf(const SpecAccess& a, At at) {
  const size_t conditions = 1 + a.conditions.size(), all = conditions + a.loops.size();
  for (size_t k = 1; k < all; ++k) {
    const std::optional<int64_t> value = at(static_cast<int>(k));
    if (!value || (k < conditions && *value == 0)) return std::nullopt;
  }
  return at(0);
}

}  // namespace

void CheckAccess(SpecGraph& g, const SpecAccess& a, SpecPoints::Reads reads,
                 SpecPoints::Blocks blocks) {
  if (!g.Applies(SpecRule::kIndexBounds) || !g.nodes[a.pointer].sure()) return;
  const UOp& pointer = g.nodes[a.pointer].value;
  const int64_t count = ElementsOf(pointer), last = count - a.lanes;
  const int64_t low = a.offset.vmin(), high = a.offset.vmax();
  // No loop over an empty buffer runs, whatever its index has been simplified to.
  if (count == 0 && !a.runs) return;
  if (low >= 0 && high <= last) return;
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
  SpecPoints points(ExpressionsOf(a), reads, g.budget, blocks);
  points.Visit([&] {
    const std::optional<int64_t> at = OffsetOf(a, [&](int k) { return points.At(k); });
    if (!at || (*at >= 0 && *at <= last)) return true;
    report(absl::StrCat(*at, " at ", points.Where()));
    return false;
  });
}

void CheckApart(SpecGraph& g, const SpecAccess& put, absl::Span<const absl::string_view> threads,
                SpecPoints::Blocks blocks) {
  if (!g.Applies(SpecRule::kPutApart) || g.budget <= 0) return;
  SpecPoints points(ExpressionsOf(put), SpecPoints::Reads::kUnknown, g.budget, blocks);
  for (absl::string_view thread : threads) {
    bool meet = false;
    points.VisitPairs(thread, [&](SpecPoints::Values at_first) {
      const auto one = OffsetOf(put, [&](int k) { return at_first[k]; });
      const auto other = OffsetOf(put, [&](int k) { return points.At(k); });
      int64_t apart = 0;
      if (!one || !other || __builtin_sub_overflow(*one, *other, &apart)) return true;
      meet = apart > -put.lanes && apart < put.lanes;
      if (!meet) return true;
      g.Report(SpecRule::kPutApart, put.node, Info(g.nodes[put.node].op).text, ": puts to element ",
               std::max(*one, *other), " at ", points.Where(), ", and at another ", thread,
               " as well");
      return false;
    });
    if (meet) return;
  }
}

SpecFill FillOf(SpecGraph& g, const SpecAccess& put, SpecPoints::Blocks blocks) {
  SpecFill fill;
  if (g.budget <= 0) return fill;
  SpecPoints points(ExpressionsOf(put), SpecPoints::Reads::kUnknown, g.budget, blocks);
  fill.known = points.VisitEach([&] {
    for (size_t k = 1; k <= put.conditions.size(); ++k) {
      if (points.At(static_cast<int>(k)) == 0) return true;
    }
    const std::optional<int64_t> at = points.At(0);
    if (!at) return false;
    for (int lane = 0; lane < put.lanes; ++lane) fill.elements.insert(*at + lane);
    return true;
  });
  return fill;
}

void CheckFilled(SpecGraph& g, const SpecAccess& read, absl::Span<const SpecFill* const> fills,
                 SpecPoints::Blocks blocks) {
  if (!g.Applies(SpecRule::kScratchFilled) || g.budget <= 0 || fills.empty()) return;
  if (!absl::c_all_of(fills, [](const SpecFill* f) { return f->known; })) return;
  SpecPoints points(ExpressionsOf(read), SpecPoints::Reads::kUnknown, g.budget, blocks);
  points.Visit([&] {
    const std::optional<int64_t> at = OffsetOf(read, [&](int k) { return points.At(k); });
    if (!at) return true;
    g.budget -= static_cast<int64_t>(fills.size());
    for (const SpecFill* f : fills) {
      for (int lane = 0; lane < read.lanes; ++lane) {
        if (f->elements.contains(*at + lane)) return true;
      }
    }
    g.Report(SpecRule::kScratchFilled, read.node, Info(g.nodes[read.node].op).text,
             ": reads element ", *at, " of ", g.NodeText(read.pointer), " at ", points.Where(),
             ", where nothing is put");
    return false;
  });
}

}  // namespace tessera
