// The rules on what is read and written: accesses inside their buffers, elements written once.
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

bool RunsAtOnce(const UOp& range) {
  const RangeKind kind = range.arg<RangeArg>().kind;
  return kind == RangeKind::kGrid || kind == RangeKind::kThread || kind == RangeKind::kRow;
}

// Who wrote an element: a STORE, at which point of its loops.
struct Writer {
  int store = 0;
  std::vector<int64_t> point;
  std::string where;
};

class WrittenOnce {
 public:
  explicit WrittenOnce(SpecGraph& g) : g_(g) {}

  void Check(int sink) {
    writers_.clear();
    std::vector<int> stores(g_.srcs(sink).begin(), g_.srcs(sink).end());
    std::sort(stores.begin(), stores.end());
    for (auto it = stores.begin(); it != stores.end();) {
      const auto next = std::find_if(it, stores.end(), [&](int s) { return s != *it; });
      if (next - it > 1) {
        g_.Report(SpecRule::kWrittenOnce, sink, "SINK: lists ", g_.NodeText(*it), " twice");
      }
      Store(*it);
      it = next;
    }
  }

 private:
  void Store(int i) {
    const SpecNode& n = g_.nodes[i];
    if ((n.op != Op::kStore && n.op != Op::kUpdate) || !n.sure()) return;
    const UOp& index = n.value.src(0);
    if (!index.is(Op::kIndex) || index.src(0).is(Op::kScratch)) return;
    if (!g_.nodes[g_.srcs(i)[0]].sure() || g_.budget <= 0) return;
    std::vector<UOp> expressions = {index.src(1)};
    const bool gated = index.size() == 3;
    if (gated) expressions.push_back(index.src(2));
    const int first = static_cast<int>(expressions.size());
    for (const UOp& r : n.value.srcs().subspan(2)) {
      if (!r.is(Op::kRange)) return;
      // The updates of an element come one after another, unless they run at once.
      if (n.op == Op::kStore || RunsAtOnce(r)) expressions.push_back(r);
    }
    const int end = static_cast<int>(expressions.size());
    SpecPoints points(std::move(expressions), SpecPoints::Reads::kUnknown, g_.budget);
    const int buffer = g_.srcs(g_.srcs(i)[0])[0];
    points.VisitAlongLoops([&] {
      const std::optional<int64_t> at = points.At(0);
      if (!at || (gated && points.At(1) != 1)) return true;
      std::vector<int64_t> point;
      for (int k = first; k < end; ++k) {
        const std::optional<int64_t> coordinate = points.At(k);
        if (!coordinate) return true;
        point.push_back(*coordinate);
      }
      Writer now{i, std::move(point), points.Where()};
      const auto [it, added] = writers_.emplace(std::pair(buffer, *at), now);
      const Writer& other = it->second;
      if (added || (other.store == i && other.point == now.point)) return true;
      // What updates an element comes after what stores it.
      if (other.store != i && (n.op == Op::kUpdate || g_.nodes[other.store].op == Op::kUpdate)) {
        return true;
      }
      g_.Report(SpecRule::kWrittenOnce, i, Info(n.op).text, ": element ", *at, " is written at ",
                now.where, " and ",
                other.store == i ? "" : absl::StrCat("by ", g_.NodeText(other.store), " "), "at ",
                other.where);
      return false;
    });
  }

  SpecGraph& g_;
  absl::flat_hash_map<std::pair<int, int64_t>, Writer> writers_;  // by buffer and element
};

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

void CheckWrittenOnce(SpecGraph& g) {
  if (!g.Applies(SpecRule::kWrittenOnce)) return;
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    if (g.nodes[i].op == Op::kSink) WrittenOnce(g).Check(i);
  }
}

}  // namespace tessera
