// The rules on what the STOREs of a kernel write: each element once, and none that another point
// reads.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "graph/spec_graph.h"

namespace tessera {
namespace {

bool RunsAtOnce(const UOp& range) {
  const RangeKind kind = range.arg<RangeArg>().kind;
  return kind == RangeKind::kGrid || kind == RangeKind::kThread || kind == RangeKind::kRow;
}

// An access to an element at the points of the loops of a STORE or UPDATE.
struct LoopedAccess {
  LoopedAccess(const UOp& index, std::vector<UOp> around) : loops(std::move(around)) {
    expressions = {index.src(1)};
    gated = index.size() == 3;
    if (gated) expressions.push_back(index.src(2));
    first_loop = static_cast<int>(expressions.size());
    expressions.insert(expressions.end(), loops.begin(), loops.end());
  }
  std::vector<UOp> loops, expressions;
  bool gated = false;
  int first_loop = 0;

  // The element at a point, and the point; nothing where one of them is not known or the gate is
  // shut.
  struct Hit {
    int64_t element;
    std::vector<int64_t> point;
  };
  std::optional<Hit> At(const SpecPoints& points) const {
    const std::optional<int64_t> at = points.At(0);
    if (!at || (gated && points.At(1) != 1)) return std::nullopt;
    Hit hit{*at, {}};
    for (int k = first_loop; k < static_cast<int>(expressions.size()); ++k) {
      const std::optional<int64_t> coordinate = points.At(k);
      if (!coordinate) return std::nullopt;
      hit.point.push_back(*coordinate);
    }
    return hit;
  }
};

class SinkWrites {
 public:
  SinkWrites(SpecGraph& g, int sink) : g_(g), stores_(g.srcs(sink).begin(), g.srcs(sink).end()) {
    std::sort(stores_.begin(), stores_.end());
    const auto twice = std::adjacent_find(stores_.begin(), stores_.end());
    if (twice != stores_.end()) {
      g_.Report(SpecRule::kWrittenOnce, sink, "SINK: lists ", g_.NodeText(*twice), " twice");
      stores_.erase(std::unique(stores_.begin(), stores_.end()), stores_.end());
    }
    for (int s : stores_) {
      if (Writes(s) && !Store(s)) once_.push_back(s);
    }
    for (int s : once_) {
      if (Writes(s) && g_.nodes[s].op == Op::kStore) Reads(s);
    }
  }

 private:
  // Who wrote an element: a STORE, at which point of its loops.
  struct Writer {
    int store = 0;
    std::vector<int64_t> point;
    std::string where;
  };

  // Whether i is a STORE or UPDATE of a buffer, of which all is known that is needed here.
  bool Writes(int i) const {
    const SpecNode& n = g_.nodes[i];
    if ((n.op != Op::kStore && n.op != Op::kUpdate) || !n.sure() || g_.budget <= 0) return false;
    const UOp& index = n.value.src(0);
    return index.is(Op::kIndex) && !index.src(0).is(Op::kScratch) &&
           g_.nodes[g_.srcs(i)[0]].sure() &&
           std::all_of(n.value.srcs().begin() + 2, n.value.srcs().end(),
                       [](const UOp& r) { return r.is(Op::kRange); });
  }
  int BufferOf(int i) const { return g_.srcs(g_.srcs(i)[0])[0]; }

  // The updates of an element come one after another, unless they run at once.
  LoopedAccess AccessOf(int i) const {
    const UOp& u = g_.nodes[i].value;
    std::vector<UOp> loops;
    for (const UOp& r : u.srcs().subspan(2)) {
      if (u.is(Op::kStore) || RunsAtOnce(r)) loops.push_back(r);
    }
    return LoopedAccess(u.src(0), std::move(loops));
  }

  // Whether it writes an element twice, which is reported.
  bool Store(int i) {
    const SpecNode& n = g_.nodes[i];
    const LoopedAccess access = AccessOf(i);
    bool twice = TooMany(i, access);
    if (twice) return true;
    SpecPoints points(access.expressions, SpecPoints::Reads::kUnknown, g_.budget);
    const int buffer = BufferOf(i);
    points.VisitAlongLoops([&] {
      std::optional<LoopedAccess::Hit> hit = access.At(points);
      if (!hit) return true;
      const Writer now{i, std::move(hit->point), points.Where()};
      const auto [it, added] = writers_.emplace(std::pair(buffer, hit->element), now);
      const Writer& other = it->second;
      if (added || (other.store == i && other.point == now.point)) return true;
      // What updates an element comes after what stores it.
      if (other.store != i && (n.op == Op::kUpdate || g_.nodes[other.store].op == Op::kUpdate)) {
        return true;
      }
      if (n.op == Op::kStore &&
          n.value.arg<int64_t>() == ~g_.nodes[other.store].value.arg<int64_t>()) {
        return true;
      }
      g_.Report(SpecRule::kWrittenOnce, i, Info(n.op).text, ": element ", hit->element,
                " is written at ", now.where, " and ",
                other.store == i ? "" : absl::StrCat("by ", g_.NodeText(other.store), " "), "at ",
                other.where);
      twice = true;
      return false;
    });
    return twice;
  }

  // More points than the buffer has elements, all of which write inside it, must meet.
  bool TooMany(int i, const LoopedAccess& access) {
    if (g_.nodes[i].op != Op::kStore || access.gated) return false;
    const UOp& offset = access.expressions[0];
    const int64_t elements = g_.nodes[i].value.src(0).src(0).shape().MaxElements();
    if (offset.vmin() < 0 || offset.vmax() >= elements) return false;
    int64_t count = 1;
    for (size_t k = 0; k < access.loops.size(); ++k) {
      const UOp& r = access.loops[k];
      if (absl::c_linear_search(absl::MakeConstSpan(access.loops).first(k), r)) return false;
      if (!r.src(0).IsConst() || r.src(0).vmin() <= 0) return false;
      if (__builtin_mul_overflow(count, r.src(0).vmin(), &count)) count = INT64_MAX;
      if (count == INT64_MAX) break;
    }
    if (count <= elements) return false;
    g_.Report(SpecRule::kWrittenOnce, i, "STORE: its loops have ", count,
              " points, and what it writes has ", elements, " elements");
    return true;
  }

  // What a STORE's value reads at a point must not be written at another: which comes first is left
  // open.
  void Reads(int i) {
    std::vector<int> stack(g_.srcs(i).begin() + 1, g_.srcs(i).end());
    absl::flat_hash_map<int, bool> seen;
    while (!stack.empty()) {
      const int n = stack.back();
      stack.pop_back();
      if (!seen.emplace(n, true).second) continue;
      if (g_.nodes[n].op == Op::kStage) continue;  // which is filled before
      if (g_.nodes[n].op == Op::kIndex && g_.nodes[n].sure()) Read(n, i);
      stack.insert(stack.end(), g_.srcs(n).begin(), g_.srcs(n).end());
    }
  }

  void Read(int index, int i) {
    const int buffer = g_.srcs(index)[0];
    if (buffer != BufferOf(i) || g_.budget <= 0) return;
    const LoopedAccess access(g_.nodes[index].value, AccessOf(i).loops);
    SpecPoints points(access.expressions, SpecPoints::Reads::kUnknown, g_.budget);
    points.VisitAlongLoops([&] {
      const std::optional<LoopedAccess::Hit> hit = access.At(points);
      if (!hit) return true;
      const auto it = writers_.find(std::pair(buffer, hit->element));
      if (it == writers_.end() || it->second.store != i || it->second.point == hit->point) {
        return true;
      }
      g_.Report(SpecRule::kReadApart, i, "STORE: reads element ", hit->element, " at ",
                points.Where(), ", and writes it at ", it->second.where);
      return false;
    });
  }

  SpecGraph& g_;
  std::vector<int> stores_, once_;
  absl::flat_hash_map<std::pair<int, int64_t>, Writer> writers_;  // by buffer and element
};

}  // namespace

void CheckWrites(SpecGraph& g) {
  if (!g.Applies(SpecRule::kWrittenOnce)) return;
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    if (g.nodes[i].op == Op::kSink) SinkWrites(g, i);
  }
}

}  // namespace tessera
