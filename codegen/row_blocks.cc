// Numbers of a block for each thread.
#include "codegen/row_blocks.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "codegen/block_tiler.h"
#include "codegen/byte_dots.h"
#include "codegen/contraction.h"
#include "codegen/gpu_numbers.h"
#include "codegen/lanes.h"
#include "codegen/share_factors.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kMostFields = 8;             // fields of the same bytes
constexpr int64_t kMostOfA = 8, kMostOfB = 4;  // rows of a product's operands for a thread
constexpr int64_t kNumbersOfScale = 8;         // for a thread, at least, where these are bytes
constexpr int64_t kMostNumbers = 32;    // of a thread, unless they are fields or dot products
constexpr int64_t kMostProducts = 64;   // of a thread at a step, in all rows
constexpr int64_t kMostSteps = 2;       // of a loop that are read at once
constexpr int64_t kLeastUnits = 4;      // of a thread, for more threads of a row
constexpr int64_t kLeastThreads = 384;  // of a multiprocessor, each with several loads under way
constexpr int64_t kLittleWork = 16;     // for a scale
constexpr int64_t kBytesOfThread = 8, kMostOfDot = 32;  // of a dot product; where it is whole

int64_t PowerOfTwoIn(int64_t n) { return n & -n; }

class RowBlocks {
 public:
  RowBlocks(const UOp& sink, const Target& target)
      : sink_(sink), sets_(sink), target_(target), next_id_(FreshRangeId(sets_)) {}

  UOp Run() {
    if (!Choose()) return UOp();
    ChooseThreads();
    next_stage_ = FreshStageId(sink_);
    Substitution map;
    std::vector<UOp> closed;
    PlaceLoops(map, closed);
    const std::vector<UOp> summed = PlaceSum(map);
    map[reduce_] = Nested(SumOver(WithWords(Simplify(Summed(map))), summed));
    std::vector<UOp> stores;
    for (const UOp& s : sink_.srcs()) stores.push_back(GatedStore(s, map, UOp(), closed));
    return Simplify(sink_.WithSrcs(stores));
  }

 private:
  UOp Range(const UOp& extent, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {Simplify(extent)}, RangeArg{next_id_++, kind});
  }
  UOp Range(int64_t extent, RangeKind kind) { return Range(UOp::Index(extent), kind); }
  bool Choose() {
    if (sink_.size() == 0) return false;
    const absl::Span<const UOp> loops = ClosedRanges(sink_.src(0));
    loops_.assign(loops.begin(), loops.end());
    RangeMask all = 0;
    for (const UOp& r : loops_) all |= sets_.Bit(r);
    for (const UOp& u : sets_.order()) {
      if (u.is(Op::kStage)) return false;
      if (u.is(Op::kStore) && !(ClosedRanges(u) == loops)) return false;
    }
    if (!ChooseSum() || sets_.Free(reduce_) != all || !ChooseLane()) return false;
    ChooseCopies();
    // Neighbouring outputs that read neighbours are better read so.
    const UOp best = BestLaneRange(sets_);
    return units_ >= kWarp && !(best && absl::c_linear_search(loops_, best)) &&
           (!dots_ || !dots_->rest || whole_);
  }

  // The kernel's sum: of dot products of bytes, perhaps in blocks, or of any products in f32.
  bool ChooseSum() {
    dots_ = FindByteDots(sets_);
    c_ = dots_ ? dots_->c : FindContraction(sets_);
    if (!c_) return false;
    reduce_ = dots_ && dots_->sum ? dots_->sum : c_->reduce;
    if (!dots_ && !(reduce_.dtype() == kFloat32)) return false;
    ranges_ = c_->inner;
    if (dots_) ranges_.insert(ranges_.begin(), dots_->blocks.begin(), dots_->blocks.end());
    return absl::c_all_of(ranges_, [](const UOp& r) { return r.src(0).IsConst(); });
  }

  // The range along which the narrow numbers are adjacent, and what else moves with it is as well.
  bool ChooseLane() {
    for (const UOp& r : dots_ ? c_->inner : ranges_) {
      int64_t narrow = kVectorBytes, wide = 1;
      bool adjacent = true;
      for (const UOp& u : sets_.order()) {
        if (!u.is(Op::kIndex) || !(sets_.Free(u) & sets_.Bit(r))) continue;
        const Step step = StepOf(u.src(1), r, sets_);
        adjacent &= step.linear && step.factor == 1;
        if (u.size() == 3) adjacent &= !(sets_.Free(u.src(2)) & sets_.Bit(r));
        narrow = std::min<int64_t>(narrow, u.dtype().bytes());
        wide = std::max<int64_t>(wide, u.dtype().bytes());
      }
      if (!adjacent || narrow > 2 || (lane_ && lane_.src(0).vmax() > r.src(0).vmax())) continue;
      if (narrow == 2 && wide == 2) continue;  // vectors of one width
      lane_ = r;
      bytes_ = narrow == 1;
      lanes_ = dots_         ? BytesAtOnce()
               : narrow == 1 ? std::min<int64_t>(8, kVectorBytes / wide)
                             : kVectorBytes / narrow;
    }
    if (!lane_) return false;
    lanes_ = std::min(lanes_, PowerOfTwoIn(lane_.src(0).vmax()));
    return lanes_ >= (dots_ ? 2 * kBytesOfDot : kLeastLanes);
  }

  bool MovesAlong(const UOp& u) const {
    return static_cast<bool>(sets_.Free(u) & sets_.Bit(lane_));
  }

  // Of a dot product, for a thread: as many as lie in vectors of 16, else some.
  int64_t BytesAtOnce() const {
    if (dots_->rest) return kMostOfDot;
    int64_t aligned = kVectorBytes;
    for (const UOp& u : TopoSort({&c_->b, 1})) {
      if (!u.is(Op::kIndex) || !MovesAlong(u)) continue;
      const UOp first(Substitute(u.src(1), {{lane_, UOp::Index(0)}}));
      aligned = std::min(aligned, AlignmentOf(Simplify(first), kVectorBytes));
    }
    return std::max(aligned, kBytesOfThread);
  }

  // Whether points of a range read the same bytes, or choose by it which they read.
  bool TellsFieldsApart(const UOp& r) const {
    if (!ChoosesBy(c_->b, r)) return false;
    bool alike = true;
    for (const UOp& u : TopoSort({&c_->b, 1})) {
      if (!u.is(Op::kIndex) || !MovesAlong(u)) continue;
      if (u.size() == 3 && (sets_.Free(u.src(2)) & sets_.Bit(r))) return true;
      alike &= !(sets_.Free(u) & sets_.Bit(r));
    }
    return alike;
  }

  // The ranges that tell fields of the same bytes apart, and more vectors of a block.
  void ChooseCopies() {
    std::vector<UOp> chosen;
    for (const UOp& r : ranges_) {
      if (!(r == lane_) && TellsFieldsApart(r)) chosen.push_back(r);
    }
    absl::c_stable_sort(
        chosen, [](const UOp& a, const UOp& b) { return a.src(0).vmax() < b.src(0).vmax(); });
    int64_t numbers = lanes_;
    for (const UOp& r : chosen) {
      if (numbers / lanes_ * r.src(0).vmax() > kMostFields) break;
      numbers *= r.src(0).vmax();
      copied_.push_back(r);
    }
    const int64_t extent = lane_.src(0).vmax();
    int64_t alike = lanes_;  // numbers of one scale
    for (const UOp& r : copied_) alike *= OfScales() & sets_.Bit(r) ? 1 : r.src(0).vmax();
    const int64_t least = kNumbersOfScale * (WorkOfScales() > kLittleWork ? 2 : 1);
    while (bytes_ && !dots_ && parts_ * alike < least && 2 * numbers <= kMostNumbers &&
           extent % (2 * parts_ * lanes_) == 0) {
      numbers *= 2;
      parts_ *= 2;
    }
    units_ = 1;
    for (const UOp& r : ranges_) units_ *= r.src(0).vmax();
    units_ /= numbers;
    products_ = dots_ ? numbers / kBytesOfDot : numbers;
    whole_ = extent == parts_ * lanes_;
    for (const UOp& r : dots_ ? c_->inner : ranges_)
      whole_ &= r == lane_ || absl::c_linear_search(copied_, r);
  }
  // What is computed once for a thread's numbers of a block.
  int64_t WorkOfScales() const {
    return absl::c_count_if(TopoSort({&reduce_.src(0), 1}), [&](const UOp& u) {
      const bool index = u.dtype() == kInt64 || u.dtype() == kBool;
      return IsElementwise(u.op()) && !index && !MovesAlong(u);
    });
  }

  // How many rows a thread takes, and how many threads each of them. Rows of both operands: what
  // one thread takes of them makes products of each with each.
  void ChooseThreads() {
    RangeMask all = 0;
    for (const UOp& r : loops_) all |= sets_.Bit(r);
    const int64_t rows = sets_.Iterations(all), busy = kLeastThreads * target_.cores;
    const UOp a = Longest(c_->rows), b = Longest(c_->columns);
    if (a && a.src(0).IsConst() && a.src(0).vmax() > 1)
      of_a_ = LargestDivisor(a.src(0).vmax(), kMostOfA);
    if (of_a_ > 1) row_a_ = a;
    // More warps for each row would read what they share more often, and meet at barriers.
    int64_t most = kWarp;
    while (2 * most <= std::min(kThreadsOfBlock, units_ / kLeastUnits)) most *= 2;
    of_b_ = b.src(0).IsConst() ? kMostOfB : 1;
    while (of_b_ > 1 &&
           (b.src(0).vmax() % of_b_ != 0 || of_a_ * of_b_ > kMostOfA ||
            products_ * of_b_ > kMostProducts || rows / (of_a_ * of_b_) * most < busy)) {
      of_b_ /= 2;
    }
    if (of_b_ > 1) row_b_ = b;
    const auto groups = rows / (of_a_ * of_b_);
    threads_ = kWarp;
    while (threads_ < kThreadsOfBlock && 2 * threads_ <= units_ && groups * threads_ < busy) {
      threads_ *= 2;
    }
  }

  // The stores' loops: blocks, rows of a block with a warp each, and rows of a thread.
  void PlaceLoops(Substitution& map, std::vector<UOp>& closed) {
    std::vector<UOp> outer;
    std::vector<std::pair<UOp, UOp>> grouped;  // a range, and that over its groups
    for (const UOp& r : loops_) {
      const int64_t each = row_a_ && r == row_a_ ? of_a_ : row_b_ && r == row_b_ ? of_b_ : 1;
      if (each == 1) {
        outer.push_back(r);
        continue;
      }
      outer.push_back(Range(r.src(0).vmax() / each, RangeKind::kLoop));
      grouped.emplace_back(r, outer.back());
    }
    UOp unit = UOp::Index(0);
    if (const UOp count = CountOf(outer); !outer.empty()) {
      int64_t of_block = threads_ == kWarp ? kWarpsOfBlock : 1;
      while (of_block > 1 && ShareOf(count.vmax(), target_.cores) <= of_block / 2) of_block /= 2;
      const UOp block = Range(CeilOver(count, of_block), RangeKind::kGrid);
      closed.push_back(block);
      unit = block;
      if (of_block > 1) {
        const UOp left = Minus(count, Times(block, of_block));
        const UOp all = UOp::Index(of_block);
        const bool whole = count.IsConst() && count.vmax() % of_block == 0;
        closed.push_back(Range(whole ? all : UOp::Make(Op::kMin, {all, left}), RangeKind::kRow));
        unit = Plus(Times(block, of_block), closed.back());
      }
    }
    PlaceRanges(outer, Simplify(unit), 1, UOp(), map);
    for (const auto& [range, group] : grouped) {
      const int64_t each = row_a_ && range == row_a_ ? of_a_ : of_b_;
      closed.push_back(Range(each, RangeKind::kUnroll));
      map[range] = Simplify(Plus(Times(map.at(group), each), closed.back()));
      map.erase(group);
    }
  }

  // The sum's ranges: threads, steps, and a thread's numbers. Those of a part of the lane's range
  // are neighbours, of its parts apart, so that threads next to each other read vectors that are.
  std::vector<UOp> PlaceSum(Substitution& map) {
    const UOp thread = Range(threads_, RangeKind::kThread);
    std::vector<UOp> summed = {thread};
    UOp unit = thread;
    if (units_ > threads_) {
      // Where a step is long, the loads of the next one are not far.
      const bool several = units_ % threads_ == 0 && products_ * of_a_ * of_b_ < kMostProducts;
      const int64_t at_once = LargestDivisor(units_ / threads_, several ? kMostSteps : 1);
      const UOp steps = Steps(UOp::Index(units_), thread, threads_ * at_once);
      UOp step = UOp::Index(0);
      if (!steps.IsConst(1)) {
        step = Range(steps, RangeKind::kLoop);
        summed.push_back(step);
      }
      if (at_once > 1) {
        summed.push_back(Range(at_once, RangeKind::kUnroll));
        step = Plus(Times(step, at_once), summed.back());
      }
      unit = Plus(Times(step, threads_), thread);
    }
    const UOp group = Range(lane_.src(0).vmax() / (parts_ * lanes_), RangeKind::kLoop);
    const UOp part = Range(parts_, RangeKind::kLoop), one = Range(lanes_, RangeKind::kLoop);
    std::vector<UOp> shared, fields, own;
    const RangeMask scaled = OfScales();
    int64_t of_fields = 1, of_own = parts_;
    for (const UOp& r : ranges_) {
      if (!absl::c_linear_search(copied_, r)) {
        if (!(r == lane_)) shared.push_back(r);
      } else if (scaled & sets_.Bit(r) || (dots_ && !absl::c_linear_search(c_->inner, r))) {
        fields.push_back(r);
        of_fields *= r.src(0).vmax();
      } else {
        own.push_back(r);
        of_own *= r.src(0).vmax();
      }
    }
    shared.push_back(group);
    own.push_back(part);
    if (dots_) {
      lanes_of_dot_ = Range(lanes_ / kBytesOfDot, RangeKind::kVector);
      steps_of_dot_ = Range(kBytesOfDot, RangeKind::kMatrix);
    } else {
      own.push_back(one);
      of_own *= lanes_;
    }
    own_ = Range(of_own, RangeKind::kUnroll);
    PlaceRanges(shared, unit, 1, UOp(), map);
    PlaceRanges(own, own_, 1, UOp(), map);
    if (of_fields > 1) {
      summed.push_back(Range(of_fields, RangeKind::kUnroll));
      PlaceRanges(fields, summed.back(), 1, UOp(), map);
    }
    const UOp vector =
        Plus(Times(map.at(part), lane_.src(0).vmax() / (parts_ * lanes_)), map.at(group));
    first_ = Simplify(Times(vector, lanes_));
    of_lane_ = dots_ ? Plus(Times(lanes_of_dot_, kBytesOfDot), steps_of_dot_) : map.at(one);
    map[lane_] = Simplify(Plus(first_, of_lane_));
    return summed;
  }

  // What is summed is a sum of terms, each of factors that move along the lane's range and others.
  struct Term {
    std::vector<UOp> own, shared;
  };
  Term TermOf(const std::vector<UOp>& factors) const {
    Term out;
    for (const UOp& f : factors) (MovesAlong(f) ? out.own : out.shared).push_back(f);
    return out;
  }
  std::vector<Term> Terms() const {
    const std::vector<UOp> factors = FactorsOf(reduce_.src(0));
    // A factor that is a product of bytes, and what is added to it alike for all of a block.
    for (size_t i = 0; i < factors.size(); ++i) {
      const UOp& f = factors[i];
      if (!f.is(Op::kAdd)) continue;
      for (const int k : {0, 1}) {
        const UOp product(f.src(k)), added(f.src(1 - k));
        if (!MovesAlong(product) || MovesAlong(added)) continue;
        if (!OfBytes(product) || !OfBytes(added)) continue;
        std::vector<UOp> first = factors, second = factors;
        first.erase(first.begin() + i);
        const std::vector<UOp> more = FactorsOf(product);
        first.insert(first.end(), more.begin(), more.end());
        second[i] = added;
        return {TermOf(first), TermOf(second)};
      }
    }
    return {TermOf(factors)};
  }
  // Whether blocks have scales that multiply the sums of their numbers.
  bool SharesFactors(const std::vector<Term>& terms) const {
    if (lanes_ * parts_ <= of_a_) return false;
    return absl::c_all_of(terms,
                          [](const Term& t) { return !t.own.empty() && !t.shared.empty(); }) &&
           absl::c_any_of(terms[0].own, OfBytes);
  }
  // What the scales of blocks depend on.
  RangeMask OfScales() const {
    RangeMask out = 0;
    for (const Term& t : dots_ ? std::vector<Term>() : Terms()) {
      for (const UOp& f : t.shared) out |= sets_.Free(f);
    }
    return out;
  }

  // The value at a thread's numbers, summed over those of a block.
  UOp Summed(const Substitution& map) {
    if (dots_) return SummedDots(map);
    const Substitution with = WithVectors(map);
    const std::vector<Term> terms = Terms();
    if (!SharesFactors(terms)) return SumOver(UOp(Substitute(reduce_.src(0), with)), {own_});
    UOp sum;
    for (const Term& t : terms) {
      const UOp own = SumOver(UOp(Substitute(ProductOf(t.own), with)), {own_});
      const UOp term = UOp::Make(Op::kMul, {own, UOp(Substitute(ProductOf(t.shared), with))});
      sum = sum ? UOp::Make(Op::kAdd, {sum, term}) : term;
    }
    return sum;
  }
  UOp SummedDots(const Substitution& map) {
    const UOp product(Substitute(c_->reduce.src(0), map));
    const UOp sum = SumOver(SumOver(SumOver(product, {steps_of_dot_}), {lanes_of_dot_}), {own_});
    if (!dots_->sum) return sum;
    Substitution with = map;
    with[c_->reduce] = sum;
    return UOp(Substitute(reduce_.src(0), with));
  }

  // A vector in registers, of elements from `at` on.
  UOp Vector(const UOp& pointer, const UOp& at, const UOp& gate, int64_t lanes) {
    const UOp lane = Range(lanes, RangeKind::kVector);
    std::vector<UOp> srcs = {pointer, Simplify(Plus(at, lane))};
    if (gate) srcs.push_back(gate);
    return MakeStage(next_stage_++, lanes, lane, UOp::Make(Op::kIndex, srcs), {&lane, 1},
                     Space::kRegister);
  }

  // What is adjacent along the lane's range is read in vectors, as wide as their place is known to
  // be aligned.
  Substitution WithVectors(const Substitution& map) {
    Substitution with = map, first = map;
    first[lane_] = first_;
    for (const UOp& u : sets_.order()) {
      if (!u.is(Op::kIndex) || !MovesAlong(u)) continue;
      const UOp at = Simplify(Substitute(u.src(1), first));
      const int64_t lanes =
          AlignmentOf(at, std::min<int64_t>(lanes_, kVectorBytes / u.dtype().bytes()));
      if (lanes == 1) continue;
      const UOp gate = u.size() == 3 ? Simplify(Substitute(u.src(2), map)) : UOp();
      const UOp of_part = Times(Over(of_lane_, lanes), lanes);
      const UOp vector = Vector(u.src(0), Simplify(Plus(at, of_part)), gate, lanes);
      with[u] = UOp::Make(Op::kIndex, {vector, Modulo(of_lane_, lanes)});
    }
    return with;
  }

  // Bytes side by side that make up a number, or several, are read as one vector where their place
  // is known to be aligned.
  UOp WithWords(const UOp& value) {
    // Those that lie a known number of bytes apart: what of their places is not known, and each.
    std::vector<std::pair<UOp, std::vector<std::pair<int64_t, UOp>>>> groups;
    for (const UOp& u : TopoSort({&value, 1})) {
      const bool byte = u.is(Op::kIndex) && u.size() == 2 && u.src(0).is(Op::kParam) &&
                        u.dtype().bytes() == 1 && !DependsOnVectors(u);
      if (!byte) continue;
      Sum sum = ToSum(u.src(1));
      const int64_t place = std::exchange(sum.constant, 0);
      const UOp rest = UOp::Make(Op::kIndex, {u.src(0), FromSum(sum, kInt64)});
      const auto is_rest = [&](const auto& group) { return group.first == rest; };
      auto group = std::find_if(groups.begin(), groups.end(), is_rest);
      if (group == groups.end()) group = groups.insert(group, {rest, {}});
      group->second.emplace_back(place, u);
    }
    Substitution map;
    for (auto& [rest, places] : groups) {
      std::sort(places.begin(), places.end(),
                [](const auto& x, const auto& y) { return x.first < y.first; });
      for (size_t i = 0; i < places.size();)
        i += ReadAtOnce(absl::MakeSpan(places).subspan(i), map);
    }
    return map.empty() ? value : UOp(Substitute(value, map));
  }

  // One vector of the first of these bytes and as many as lie in it, all of it read. Returns how
  // many.
  size_t ReadAtOnce(absl::Span<const std::pair<int64_t, UOp>> places, Substitution& map) {
    const UOp& at = places[0].second.src(1);
    for (int64_t lanes = AlignmentOf(at, kVectorBytes); lanes > 1; lanes /= 2) {
      size_t n = 0;
      while (n < places.size() && places[n].first < places[0].first + lanes) ++n;
      if (n < 2 || places[n - 1].first != places[0].first + lanes - 1) continue;
      const UOp vector = Vector(places[0].second.src(0), at, UOp(), lanes);
      for (const auto& [place, u] : places.first(n)) {
        const UOp which = UOp::Index(place - places[0].first);
        map[u] = UOp::Make(Op::kIndex, {vector, which});
      }
      return n;
    }
    return 1;
  }

  // Whether it is what fills a vector, of which lanes are not known yet.
  static bool DependsOnVectors(const UOp& u) {
    return FindBelow({&u, 1}, [](const UOp& s) {
             return s.is(Op::kRange) && s.arg<RangeArg>().kind == RangeKind::kVector;
           }) != nullptr;
  }

  // What is written out first, the last of it innermost, then steps, and threads last.
  static UOp Nested(const UOp& sum) {
    UOp out(sum.src(0));
    std::vector<UOp> steps, threads;
    const absl::Span<const UOp> ranges = ClosedRanges(sum);
    for (size_t i = ranges.size(); i-- > 0;) {
      const RangeKind kind = ranges[i].arg<RangeArg>().kind;
      if (kind == RangeKind::kUnroll) out = SumOver(out, {ranges[i]});
      if (kind == RangeKind::kLoop) steps.push_back(ranges[i]);
      if (kind == RangeKind::kThread) threads.push_back(ranges[i]);
    }
    return SumOver(SumOver(out, steps), threads);
  }

  const UOp sink_;
  const RangeSets sets_;
  const Target& target_;
  int64_t next_id_, next_stage_ = 0;
  std::vector<UOp> loops_;  // of the stores
  std::optional<ByteDots> dots_;
  std::optional<Contraction> c_;
  UOp reduce_, lane_;
  std::vector<UOp> ranges_;  // that are summed over
  bool bytes_ = false;
  std::vector<UOp> copied_;                        // that tell fields apart
  int64_t products_ = 1;                           // of a thread, at a step of a row
  int64_t lanes_ = 1, parts_ = 1;                  // of a thread
  bool whole_ = false;                             // whether a thread has all of a dot product
  int64_t units_ = 1;                              // of a row
  UOp row_a_, row_b_;                              // of which a thread takes several
  int64_t of_a_ = 1, of_b_ = 1, threads_ = kWarp;  // so many, and threads of a row
  UOp own_, lanes_of_dot_, steps_of_dot_;
  UOp first_, of_lane_;  // of a thread's vector, and the place in it
};

}  // namespace

UOp ReduceRowBlocks(const UOp& sink, const Target& target) { return RowBlocks(sink, target).Run(); }

}  // namespace tessera
