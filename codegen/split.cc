// Segments of ranges.
#include "codegen/split.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "codegen/lanes.h"
#include "graph/fault.h"
#include "graph/fold.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/node_map.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace tessera {
namespace {

class Splitter {
 public:
  Splitter(const UOp& sink, const UOp& range, const std::vector<LoopSegment>& segments)
      : sets_(sink), bit_(sets_.Bit(range)), range_(range), segments_(segments) {}

  UOp Run(const UOp& sink) {
    for (const UOp& u : sets_.order()) {
      if (u == range_) {
        std::vector<UOp> values;
        for (const LoopSegment& s : segments_) values.push_back(s.value);
        variants_.TryEmplace(u.get(), values);
      } else if (sets_.Free(u) & bit_) {
        std::vector<UOp> copies;
        for (size_t s = 0; s < segments_.size(); ++s) copies.push_back(Rebuild(u, s));
        variants_.TryEmplace(u.get(), std::move(copies));
      } else if (Closes(u)) {
        Close(u);
      } else {
        whole_.TryEmplace(u.get(), Rebuild(u, 0));
      }
    }
    return whole_.At(sink.get());
  }

 private:
  bool Closes(const UOp& u) const { return static_cast<bool>(sets_.Closed(u) & bit_); }

  // What source `s` is in a segment; the same in all where it does not depend on the range.
  const UOp& Source(const UOp& s, size_t segment) const {
    if (const std::vector<UOp>* each = variants_.Find(s.get())) return (*each)[segment];
    return whole_.At(s.get());
  }

  UOp Rebuild(const UOp& u, size_t segment) {
    absl::InlinedVector<UOp, 6> srcs;
    for (const UOp& s : u.srcs()) {
      // A store that runs over the range has become several.
      if (auto it = parts_.find(s.get()); it != parts_.end()) {
        srcs.insert(srcs.end(), it->second.begin(), it->second.end());
      } else {
        srcs.push_back(Source(s, segment));
      }
    }
    const UOp& within = segments_[segment].within;
    if (within && u.is(Op::kIndex) && (sets_.Free(u) & bit_)) {
      if (srcs.size() == 2) srcs.push_back(within);
      srcs[2] = srcs[2] == within ? within : Both(srcs[2], within);
    }
    return u.WithSrcs(srcs);
  }

  // Whether a value is 0 wherever nothing is read of what it is made of along the range.
  bool ZeroBeyond(const UOp& u) const {
    if (u.is(Op::kIndex)) return (sets_.Free(u) & bit_) != 0;
    if (u.is(Op::kCast)) return ZeroBeyond(u.src(0));
    if (!u.is(Op::kWhere)) return false;
    const auto zero = [&](const UOp& s) { return s.IsConst(0) || ZeroBeyond(s); };
    return zero(u.src(1)) && zero(u.src(2));
  }

  // What a reduction reduces, in a segment: beyond the end of the range nothing.
  UOp Reduced(const UOp& u, size_t segment) const {
    const UOp& x = u.src(0);
    const UOp value = Source(x, segment);
    const UOp& within = segments_[segment].within;
    if (!within) return value;
    const Op op = u.arg<ReduceArg>().op;
    const bool factors = x.is(Op::kMul) && ZeroBeyond(x.src(0)) && ZeroBeyond(x.src(1));
    if (op == Op::kAdd && (factors || ZeroBeyond(x))) return value;
    const UOp none = UOp::Const(x.dtype(), ReduceIdentity(op, x.dtype().Scalar()));
    return UOp::Make(Op::kWhere, {within, value, none});
  }

  // A sum of products of floats over copies alone: each is added with one rounding.
  bool SumsProducts(const UOp& u) const {
    const bool adds = u.is(Op::kReduce) && u.arg<ReduceArg>().op == Op::kAdd;
    return adds && u.dtype().IsFloat() && u.src(0).is(Op::kMul) && ClosedRanges(u).size() == 1 &&
           std::all_of(segments_.begin(), segments_.end(),
                       [](const LoopSegment& s) { return s.ranges.empty(); });
  }

  void CloseProducts(const UOp& u) {
    UOp sum = UOp::Const(u.dtype(), 0.0);
    for (const UOp& product : variants_.At(u.src(0).get())) {
      if (product.is(Op::kMul)) {
        sum = UOp::Make(Op::kFma, {UOp(product.src(0)), UOp(product.src(1)), sum});
      } else {
        sum = UOp::Make(Op::kAdd, {sum, product});
      }
    }
    whole_.TryEmplace(u.get(), sum);
  }

  // A node that runs over the range: one for each segment.
  void Close(const UOp& u) {
    if (SumsProducts(u) && (sets_.Free(u.src(0)) & bit_)) return CloseProducts(u);
    std::vector<UOp> parts;
    for (size_t s = 0; s < segments_.size(); ++s) {
      const size_t values = u.size() - ClosedRanges(u).size();
      std::vector<UOp> srcs, inner;
      for (size_t i = 0; i < values; ++i) {
        srcs.push_back(u.is(Op::kReduce) && i == 0 ? Reduced(u, s)
                                                   : Source(u.src(static_cast<int>(i)), s));
      }
      for (const UOp& r : ClosedRanges(u)) {
        if (!(r == range_)) {
          srcs.push_back(Source(r, s));
          continue;
        }
        // A loop stays where the range was; lanes and copies go innermost.
        for (const UOp& part : segments_[s].ranges) {
          const RangeKind kind = part.arg<RangeArg>().kind;
          const bool loop = kind == RangeKind::kLoop || kind == RangeKind::kGrid;
          (loop ? srcs : inner).push_back(part);
        }
      }
      srcs.insert(srcs.end(), inner.begin(), inner.end());
      const bool bare = u.is(Op::kReduce) && srcs.size() == 1;
      parts.push_back(bare ? ReducedOnce(u.arg<ReduceArg>(), srcs[0]) : u.WithSrcs(srcs));
      if (segments_[s].again && u.is(Op::kStore) && !StoresAgain(u)) {
        parts.back() = UOp::Make(Op::kStore, srcs, Arg(~u.arg<int64_t>()));
      }
    }
    if (WritesElements(u)) {
      parts_.emplace(u.get(), std::move(parts));
      return;
    }
    // Combined as a tree, which keeps the parts independent.
    while (parts.size() > 1) {
      std::vector<UOp> next;
      for (size_t i = 0; i + 1 < parts.size(); i += 2) {
        next.push_back(UOp::Make(u.arg<ReduceArg>().op, {parts[i], parts[i + 1]}));
      }
      const bool lost = FaultPlanted(Fault::kOddPartLost);
      if (parts.size() % 2 == 1 && !lost) next.push_back(parts.back());
      parts = std::move(next);
    }
    whole_.TryEmplace(u.get(), parts[0]);
  }

  const RangeSets sets_;
  const RangeMask bit_;
  const UOp range_;
  const std::vector<LoopSegment>& segments_;
  NodeMap<std::vector<UOp>> variants_;
  NodeMap<UOp> whole_;
  absl::flat_hash_map<const Node*, std::vector<UOp>> parts_;  // of stores
};

}  // namespace

UOp SumOver(const UOp& value, const std::vector<UOp>& ranges) {
  if (ranges.empty()) return value;
  std::vector<UOp> srcs = {value};
  srcs.insert(srcs.end(), ranges.begin(), ranges.end());
  return UOp::Make(Op::kReduce, srcs, ReduceArg{Op::kAdd, {}});
}

UOp SplitIntoSegments(const UOp& sink, const UOp& range, const std::vector<LoopSegment>& segments) {
  return Splitter(sink, range, segments).Run(sink);
}

UOp SeparateLoops(const UOp& sink, const UOp& range, std::vector<UOp>& own) {
  const RangeSets sets(sink);
  const RangeMask bit = sets.Bit(range);
  int64_t next_id = FreshRangeId(sets);
  absl::flat_hash_set<const Node*> last;  // the kernel's stores
  for (const UOp& s : sink.srcs()) last.insert(s.get());
  struct Made {
    UOp node;
    int depth = 0;  // reductions and stages on the longest way down
  };
  absl::flat_hash_map<const Node*, Made> made;
  std::map<std::pair<int, Op>, UOp> loops;
  for (const UOp& u : sets.order()) {
    Made m;
    absl::InlinedVector<UOp, 6> srcs;
    for (const UOp& s : u.srcs()) {
      const Made& source = made.at(s.get());
      srcs.push_back(source.node);
      m.depth = std::max(m.depth, source.depth);
    }
    m.depth += u.is(Op::kReduce) || u.is(Op::kStage);
    m.node = u.WithSrcs(srcs);
    if ((sets.Closed(u) & bit) && !last.contains(u.get())) {
      UOp& loop = loops[{m.depth, u.op()}];
      if (!loop) {
        loop = UOp::Make(Op::kRange, kInt64, {range.src(0)},
                         RangeArg{next_id++, range.arg<RangeArg>().kind});
        own.push_back(loop);
      }
      m.node = Substitute(m.node, {{range, loop}});
    }
    made.emplace(u.get(), std::move(m));
  }
  return made.at(sink.get()).node;
}

namespace {

// Whether nothing but time is changed by doing some points of a range twice. Where cores share it,
// one of them does the last whole tile and, after it, what is left.
bool MayRepeat(const RangeSets& sets, const UOp& range) {
  const RangeKind kind = range.arg<RangeArg>().kind;
  if (kind != RangeKind::kLoop && kind != RangeKind::kGrid) return false;
  if (sets.ClosedBy(Op::kReduce) & sets.Bit(range)) return false;
  absl::flat_hash_set<const Node*> written;
  for (const UOp& u : sets.order()) {
    if (u.is(Op::kUpdate) || u.is(Op::kRunning)) return false;
    if (u.is(Op::kStore) && u.src(0).src(0).is(Op::kParam)) written.insert(u.src(0).src(0).get());
  }
  const auto reads = [&](const UOp& u) {
    return u.is(Op::kIndex) && written.contains(u.src(0).get());
  };
  // What a STORE writes to may be the very node that is read elsewhere.
  return std::none_of(sets.order().begin(), sets.order().end(), [&](const UOp& u) {
    const absl::Span<const UOp> read = u.srcs().subspan(u.is(Op::kStore) ? 1 : 0);
    return std::any_of(read.begin(), read.end(), reads);
  });
}

constexpr int64_t kLeastDecided = 2;  // vectors that are worth a loop of their own

enum class Rest { kOnce, kRepeat, kMask };

constexpr size_t kMostMasked = 4;  // pieces of which each vector may hold some

// Where a range is cut: at its Thresholds, unless it has whole vectors and none of the pieces does,
// as of 16 columns of which the first and the last are a border. Lanes are masked there.
std::vector<int64_t> Pieces(const RangeSets& sets, const UOp& range, int64_t lanes) {
  const std::vector<int64_t> cuts = Thresholds(sets, range);
  const bool vectors = lanes > 1 && range.src(0).vmax() >= lanes;
  const bool masked = vectors && cuts.size() < kMostMasked && LongestPiece(sets, range) < lanes;
  return masked ? std::vector<int64_t>() : cuts;
}

UOp TileBy(const UOp& sink, const UOp& range, int64_t unroll, int64_t lanes, int64_t least_lanes,
           Rest rest) {
  const RangeSets sets(sink);
  int64_t next_id = FreshRangeId(sets);
  const auto make = [&](const UOp& extent, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {extent}, RangeArg{next_id++, kind});
  };
  const RangeKind kind = range.arg<RangeArg>().kind;
  std::vector<LoopSegment> segments;
  UOp n, done = UOp::Index(0);  // the end of the piece, elements before the segment
  const auto add = [&](int64_t copies, int64_t width) {
    const UOp left = Simplify(UOp::Make(Op::kSub, {n, done}));
    const UOp tiles = Simplify(Over(left, copies * width));
    if (tiles.vmax() <= 0) return;
    LoopSegment s;
    UOp tile = UOp::Index(0);
    // One of the workers runs a single tile, not each of them.
    if (!tiles.IsConst(1) || kind == RangeKind::kGrid) {
      tile = make(tiles, kind);
      s.ranges.push_back(tile);
    }
    s.value = Plus(done, Times(tile, copies * width));
    if (copies > 1) {
      s.ranges.push_back(make(UOp::Index(copies), RangeKind::kUnroll));
      s.value = Plus(s.value, Times(s.ranges.back(), width));
    }
    if (width > 1) {
      s.ranges.push_back(make(UOp::Index(width), RangeKind::kVector));
      s.value = Plus(s.value, s.ranges.back());
    }
    s.value = Simplify(s.value);
    segments.push_back(std::move(s));
    done = Simplify(Plus(done, Times(tiles, copies * width)));
  };
  std::vector<UOp> ends;
  for (int64_t at : Pieces(sets, range, lanes)) ends.push_back(UOp::Index(at));
  ends.push_back(range.src(0));
  for (const UOp& end : ends) {
    n = end;
    const UOp begin = done;
    add(unroll, lanes);
    // Fewer copies of what is left; or one after the other, where it is not known, or workers share
    // it.
    const UOp rest_tiles = Simplify(Over(Minus(n, done), lanes));
    const bool known = rest_tiles.IsConst() && kind != RangeKind::kGrid;
    if (known && rest_tiles.vmin() > 1 && rest_tiles.vmin() < unroll) {
      add(rest_tiles.vmin(), lanes);
    }
    if (unroll > 1 && lanes > 1) add(1, lanes);
    if (rest == Rest::kRepeat && begin.IsConst() && n.IsConst()) {
      const int64_t length = n.vmin() - begin.vmin();
      for (int64_t w = lanes / 2; w >= kLeastLanes && done == begin; w /= 2) add(1, w);
      const int64_t left = n.vmin() - done.vmin();
      int64_t width = kLeastLanes;
      while (width < left) width *= 2;
      if (left > 0 && width <= length) {
        done = UOp::Index(n.vmin() - width);
        add(1, width);
        segments.back().again = true;
      }
    }
    if (rest == Rest::kMask && n.IsConst() && done.IsConst() &&
        n.vmin() - done.vmin() >= kLeastLanes) {
      const UOp end = n;
      n = UOp::Index(done.vmin() + lanes);
      add(1, lanes);
      segments.back().within = UOp::Make(Op::kCmpLt, {segments.back().value, end});
      done = end;
      continue;
    }
    for (int64_t w = lanes / 2; least_lanes > 1 && w >= least_lanes; w /= 2) add(1, w);
    if ((unroll > 1 || lanes > 1) && !FaultPlanted(Fault::kRemainderLost)) add(1, 1);
  }
  return SplitIntoSegments(sink, range, segments);
}

}  // namespace

UOp Tile(const UOp& sink, const UOp& range, int64_t unroll, int64_t lanes, int64_t least_lanes) {
  return TileBy(sink, range, unroll, lanes, least_lanes, Rest::kOnce);
}

UOp TileRepeating(const UOp& sink, const UOp& range, int64_t unroll, int64_t lanes) {
  const bool may = MayRepeat(RangeSets(sink), range);
  return TileBy(sink, range, unroll, lanes, kLeastLanes, may ? Rest::kRepeat : Rest::kOnce);
}

bool MayMask(const RangeSets& sets, const UOp& range, int64_t lanes, const Target& target) {
  constexpr int kMasksBytes = 64;   // vectors of which lanes of any size can be left out
  constexpr int kLeastMasked = 16;  // bytes of a vector that is loaded so
  if (range.arg<RangeArg>().kind != RangeKind::kLoop || lanes < kLeastLanes) return false;
  const RangeMask bit = sets.Bit(range);
  return std::all_of(sets.order().begin(), sets.order().end(), [&](const UOp& u) {
    if (sets.Closed(u) & bit) {
      const auto values = u.size() - ClosedRanges(u).size();
      // Its INDEX is among the nodes, too, and must be linear.
      if (u.is(Op::kStore)) return StepOf(u.src(0).src(1), range, sets).factor == 1;
      return u.is(Op::kReduce) && values == 1;
    }
    if (!(sets.Free(u) & bit)) return true;
    if (u.is(Op::kStage) || u.is(Op::kReduce)) return false;
    if (!u.is(Op::kIndex)) return true;
    const Step s = StepOf(u.src(1), range, sets);
    const int bytes = u.dtype().bytes();
    return u.src(0).is(Op::kParam) && s.linear && s.factor != 0 &&
           std::abs(s.factor) <= MostShuffled(lanes) && lanes * bytes >= kLeastMasked &&
           (bytes >= 4 || target.vector_bytes >= kMasksBytes);
  });
}

UOp TileMasking(const UOp& sink, const UOp& range, int64_t unroll, int64_t lanes,
                const Target& target) {
  const bool may = MayMask(RangeSets(sink), range, lanes, target);
  return TileBy(sink, range, unroll, lanes, kLeastLanes, may ? Rest::kMask : Rest::kOnce);
}

std::vector<UOp> CutDecided(UOp& sink, const UOp& range, int64_t lanes) {
  const RangeSets sets(sink);
  const UOp& extent = range.src(0);
  if (lanes < 2 || !extent.IsConst() || range.arg<RangeArg>().kind != RangeKind::kLoop ||
      (sets.ClosedBy(Op::kReduce) & sets.Bit(range)) || !Thresholds(sets, range).empty()) {
    return {range};
  }
  RangePart part = DecidedPart(sets, range);
  part.begin = CeilDiv(part.begin, lanes) * lanes;
  if (part.end < extent.vmax()) part.end = part.end / lanes * lanes;
  const bool all = part.begin == 0 && part.end == extent.vmax();
  if (all || part.end - part.begin < kLeastDecided * lanes) return {range};
  std::vector<LoopSegment> segments;
  std::vector<UOp> loops;
  int64_t id = FreshRangeId(sets), begin = 0;
  for (const int64_t end : {part.begin, part.end, extent.vmax()}) {
    if (begin == end) continue;
    loops.push_back(
        UOp::Make(Op::kRange, kInt64, {UOp::Index(end - begin)}, RangeArg{id++, RangeKind::kLoop}));
    segments.push_back({Plus(loops.back(), UOp::Index(begin)), {loops.back()}});
    begin = end;
  }
  sink = Simplify(SplitIntoSegments(sink, range, segments));
  return loops;
}

UOp TileDecided(const UOp& sink, const UOp& range, int64_t lanes) {
  UOp out = sink;
  for (const UOp& r : CutDecided(out, range, lanes)) out = TileRepeating(out, r, 1, lanes);
  return Simplify(out);
}

UOp TileApart(const UOp& sink, const UOp& range, int64_t copies) {
  const RangeSets sets(sink);
  const UOp& extent = range.src(0);
  const bool alike = extent.IsConst() && extent.vmax() % copies == 0;
  if (copies < 2 || !alike || extent.vmax() < 2 * copies || !Thresholds(sets, range).empty()) {
    return Tile(sink, range, copies, 1);
  }
  const int64_t id = FreshRangeId(sets), apart = extent.vmax() / copies;
  const UOp step =
      UOp::Make(Op::kRange, kInt64, {UOp::Index(apart)}, RangeArg{id, range.arg<RangeArg>().kind});
  const UOp copy =
      UOp::Make(Op::kRange, kInt64, {UOp::Index(copies)}, RangeArg{id + 1, RangeKind::kUnroll});
  return SplitIntoSegments(sink, range, {{Plus(Times(copy, apart), step), {step, copy}}});
}

}  // namespace tessera
