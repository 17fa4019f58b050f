// Range bookkeeping of kernels.
#include "graph/kernel_form.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/fault.h"
#include "graph/index_math.h"
#include "graph/ops.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/status.h"
#include "graph/walk.h"

namespace tessera {

bool HasUpdates(const UOp& sink) {
  return std::any_of(sink.srcs().begin(), sink.srcs().end(),
                     [](const UOp& s) { return s.is(Op::kUpdate); });
}

UOp RunningRange(const UOp& sink) {
  const UOp* running = FindBelow({&sink, 1}, [](const UOp& u) { return u.is(Op::kRunning); });
  return running ? running->src(1) : UOp();
}

bool ClosesRanges(const UOp& u) { return WritesElements(u) || (u.is(Op::kReduce) && u.size() > 1); }

absl::Span<const UOp> ClosedRanges(const UOp& u) {
  if (!ClosesRanges(u)) return {};
  return u.srcs().subspan(WritesElements(u) ? 2 : 1);
}

UOp AdjacentLoop(const UOp& store) {
  const Sum sum = ToSum(store.src(0).src(1));
  UOp lane;
  for (const Sum::Term& t : sum.terms) {
    if (t.factor == 1 && t.term.is(Op::kRange)) lane = t.term;
  }
  if (!lane) return lane;
  const auto depends = [&](const Sum::Term& t) { return DependsOn(t.term, lane); };
  return std::count_if(sum.terms.begin(), sum.terms.end(), depends) == 1 ? lane : UOp();
}

TooManyRanges::TooManyRanges()
    : Error(absl::ResourceExhaustedError(
          absl::StrCat("schedule: a kernel has more than ", kMostRanges,
                       " loops: put a Contiguous() between what is fused in it"))) {}

RangeSets::RangeSets(const UOp& sink) : order_(TopoSort({&sink, 1})), free_(order_.size()) {
  for (const UOp& u : order_) {
    RangeMask mask = 0;
    if (u.is(Op::kRange)) {
      if (ranges_.size() == kMostRanges) throw TooManyRanges();
      mask = RangeMask{1} << static_cast<int>(ranges_.size());
      ranges_.push_back(u);
    }
    const absl::Span<const UOp> closed = ClosedRanges(u);
    for (const UOp& s : u.srcs().first(u.size() - closed.size())) mask |= Free(s);
    for (const UOp& r : closed) mask &= ~Free(r);
    for (const UOp& r : closed) mask |= Free(r.src(0));
    if (!closed.empty()) mask &= ~Closed(u);  // the extent of one may depend on another
    free_.TryEmplace(u.get(), mask);
  }
}

RangeMask RangeSets::Bit(const UOp& range) const {
  const auto it = std::find(ranges_.begin(), ranges_.end(), range);
  return it == ranges_.end() ? 0 : RangeMask{1} << static_cast<int>(it - ranges_.begin());
}

RangeMask RangeSets::Closed(const UOp& u) const {
  RangeMask mask = 0;
  for (const UOp& r : ClosedRanges(u)) mask |= Bit(r);
  return mask;
}

RangeMask RangeSets::ClosedBy(Op op) const {
  RangeMask mask = 0;
  for (const UOp& u : order_) {
    if (u.is(op)) mask |= Closed(u);
  }
  return mask;
}

int64_t RangeSets::Iterations(RangeMask mask) const {
  int64_t n = 1;
  for (; mask != 0; mask &= mask - 1) {
    const int64_t extent = std::max<int64_t>(1, ranges_[Lowest(mask)].src(0).vmax());
    if (__builtin_mul_overflow(n, extent, &n)) return INT64_MAX;
  }
  return n;
}

UOp ReducedOnce(const ReduceArg& arg, const UOp& value) {
  if (arg.op != Op::kAdd || !value.dtype().IsFloat()) return value;
  return UOp::Make(Op::kAdd, {value, UOp::Const(value.dtype(), 0.0)});
}

UOp ReplaceRanges(const UOp& sink, const RangeReplacements& map) {
  absl::flat_hash_map<UOp, UOp> done;
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (auto it = map.find(u); it != map.end()) {
      done.emplace(u, it->second.value);
      continue;
    }
    absl::InlinedVector<UOp, 6> srcs;
    const size_t values = u.size() - ClosedRanges(u).size();
    for (size_t i = 0; i < values; ++i) srcs.push_back(done.at(u.src(static_cast<int>(i))));
    for (const UOp& r : ClosedRanges(u)) {
      auto it = map.find(r);
      if (it == map.end()) {
        srcs.push_back(done.at(r));
      } else {
        srcs.insert(srcs.end(), it->second.ranges.begin(), it->second.ranges.end());
      }
    }
    const bool bare = u.is(Op::kReduce) && srcs.size() == 1 && u.size() > 1;
    done.emplace(u, bare ? ReducedOnce(u.arg<ReduceArg>(), srcs[0]) : u.WithSrcs(srcs));
  }
  return done.at(sink);
}

UOp WithLoops(const UOp& sink, absl::Span<const UOp> loops) {
  std::vector<UOp> stores;
  for (const UOp& s : sink.srcs()) {
    std::vector<UOp> srcs = {s.src(0), s.src(1)};
    srcs.insert(srcs.end(), loops.begin(), loops.end());
    stores.push_back(s.WithSrcs(srcs));
  }
  return sink.WithSrcs(stores);
}

int64_t LargestDivisor(int64_t n, int64_t most) {
  for (int64_t d = std::min(n, most); d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

int64_t ShareOf(int64_t n, int64_t cores) {
  cores = std::max<int64_t>(1, cores);
  return n / cores + (n % cores != 0 ? 1 : 0);
}

UOp SeparateRanges(const UOp& sink) {
  if (FaultPlanted(Fault::kRangesNotSeparated)) return sink;
  const RangeSets sets(sink);
  absl::flat_hash_map<const Node*, RangeMask> closed;  // by a node and all below it
  Substitution fresh;
  int64_t id = FreshRangeId(sets);
  for (const UOp& u : sets.order()) {
    RangeMask below = 0;
    for (const UOp& s : u.srcs()) below |= closed[s.get()];
    closed[u.get()] = below | sets.Closed(u);
    if (!u.is(Op::kReduce)) continue;
    std::vector<UOp> srcs(u.srcs().begin(), u.srcs().end());
    bool changed = false;
    for (size_t i = 1; i < srcs.size(); ++i) {
      const RangeMask bit = sets.Bit(srcs[i]);
      if (!(below & bit) || (sets.Free(u.src(0)) & bit)) continue;
      RangeArg arg = srcs[i].arg<RangeArg>();
      arg.id = id++;
      srcs[i] = UOp::Make(Op::kRange, kInt64, {srcs[i].src(0)}, arg);
      changed = true;
    }
    if (changed) fresh.emplace(u, u.WithSrcs(srcs));
  }
  if (fresh.empty()) return sink;
  // From below, as one may hold another.
  Substitution map;
  for (const UOp& u : sets.order()) {
    const auto it = fresh.find(u);
    const UOp& from = it == fresh.end() ? u : it->second;
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : from.srcs()) {
      const auto at = map.find(s);
      srcs.push_back(at == map.end() ? s : at->second);
    }
    map.emplace(u, from.WithSrcs(srcs));
  }
  return map.at(sink);
}

int64_t FreshRangeId(const RangeSets& sets) {
  int64_t id = 0;
  for (const UOp& r : sets.ranges()) id = std::max(id, r.arg<RangeArg>().id + 1);
  return id;
}

UOp OnlyReduction(const RangeSets& sets) {
  UOp out;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kReduce)) continue;
    if (out) return UOp();
    out = u;
  }
  return out;
}

std::vector<UOp> TopReductions(const UOp& value) {
  std::vector<UOp> out;
  WalkDown({&value, 1}, [&](const UOp& u) {
    if (u.is(Op::kReduce)) out.push_back(u);
    return !u.is(Op::kReduce);
  });
  return out;
}

}  // namespace tessera
