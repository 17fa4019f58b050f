// Fragments of matrix units.
#include "codegen/matrix.h"

#include <algorithm>

#include "codegen/gpu_numbers.h"
#include "codegen/lanes.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kFragmentBytes = 16, kMatrixRows = 8;
constexpr int kSums = 8;          // of a thread, for 16 columns
constexpr int64_t kMostHeld = 8;  // fragments: 32 registers

UOp Range(int64_t id, int64_t extent, RangeKind kind) {
  return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{id, kind});
}

class MatrixUser {
 public:
  MatrixUser(const UOp& sink, const Target& target) : sets_(sink), target_(target) {}

  UOp Run(const UOp& sink) {
    Substitution map;
    for (const UOp& u : sets_.order()) {
      if (!u.is(Op::kReduce)) continue;
      for (const UOp& r : ClosedRanges(u)) {
        if (r.arg<RangeArg>().kind != RangeKind::kMatrix) continue;
        // Scratch that a product reads may be filled from another, which came before.
        if (const UOp part = PartOf(u, r)) map.emplace(u, Substitute(part, map));
      }
    }
    return map.empty() ? sink : Substitute(sink, map);
  }

 private:
  UOp WithId(int64_t id) const {
    for (const UOp& r : sets_.ranges()) {
      if (r.arg<RangeArg>().id == id) return r;
    }
    return UOp();
  }

  // The element of scratch that a factor is, perhaps cast to the dtype of the sum.
  static UOp Element(const UOp& factor) {
    const UOp u = factor.is(Op::kCast) ? UOp(factor.src(0)) : factor;
    return u.is(Op::kIndex) && u.size() == 2 && u.src(0).is(Op::kStage) ? u : UOp();
  }

  // A thread's element of the sums, or nothing where this is no work for a unit.
  UOp PartOf(const UOp& sum, const UOp& steps) {
    const int64_t id = steps.arg<RangeArg>().id;
    const MatrixRanges ranges = {steps, WithId(id + 1), WithId(id + 2), WithId(id + 3)};
    const bool rescaled = sum.src(0).is(Op::kRescale);
    const UOp& product = rescaled ? sum.src(0).src(0) : sum.src(0);
    if (!product.is(Op::kMul) || !ranges.row_half || !ranges.column_part || !ranges.pair) {
      return UOp();
    }
    UOp a = Element(product.src(0)), b = Element(product.src(1));
    if (!a || !b) return UOp();
    if (sets_.Free(a) & sets_.Bit(ranges.column_part)) std::swap(a, b);
    for (const UOp& r : sets_.ranges()) {
      const bool threads = r.arg<RangeArg>().kind == RangeKind::kThread;
      if (threads && (sets_.Free(a) & sets_.Bit(r))) thread_ = r;
    }
    const auto shape = std::find_if(target_.mma.begin(), target_.mma.end(), [&](auto& m) {
      return m.operand == a.dtype() && m.operand == b.dtype() && m.sum == sum.dtype() &&
             m.steps() == steps.src(0).vmax();
    });
    if (shape == target_.mma.end() || !thread_) return UOp();
    const bool grouped = shape->warps > 1;
    const UOp left =
        grouped ? InPlace(a, ranges, shape->warps) : FragmentOf(a, ranges, /*is_a=*/true);
    const UOp right =
        grouped ? InPlace(b, ranges, shape->warps) : FragmentOf(b, ranges, /*is_a=*/false);
    if (!left || !right || (grouped && rescaled)) return UOp();
    const int64_t parts = ranges.column_part.src(0).vmax();
    const DType sums = sum.dtype().WithLanes(static_cast<int>(parts) * kSums / 2);
    const UOp which =
        Plus(Plus(Times(ranges.column_part, 4), Times(ranges.row_half, 2)), ranges.pair);
    const UOp product_of = UOp::Make(Op::kMma, sums, {left, right}, Arg(shape->name));
    const UOp held = grouped ? UOp() : WithHeld(sum, steps, product_of);
    if (held) {
      return UOp::Make(Op::kPart, sum.dtype(), {held, which});
    }
    std::vector<UOp> srcs = {product_of};
    if (rescaled) {
      const UOp factors = OfRows(sum.src(0).src(1), ranges);
      if (!factors) return UOp();
      srcs[0] = UOp::Make(Op::kRescale, {srcs[0], factors, UOp(sum.src(0).src(2))});
    }
    for (const UOp& r : ClosedRanges(sum)) {
      if (!(r == steps)) srcs.push_back(r);
    }
    const UOp all = srcs.size() > 1 ? UOp::Make(Op::kReduce, srcs, sum.arg())
                                    : srcs[0];  // the sum starts at +0, as the unit's does
    return UOp::Make(Op::kPart, sum.dtype(), {all, which});
  }

  // A short sum in a loop that its left operand does not change with: all of its products, one
  // after another, so that the left fragments are read once, before the loop, and stay in
  // registers. There the threads are those of the kernel's stores. Nothing where the sum is
  // another.
  UOp WithHeld(const UOp& sum, const UOp& steps, const UOp& product) const {
    RangeMask loops = 0;
    for (const UOp& r : sets_.ranges()) {
      if (r.arg<RangeArg>().kind == RangeKind::kLoop) loops |= sets_.Bit(r);
    }
    const UOp& left = product.src(0);
    loops &= sets_.Free(sum);
    if (loops == 0 || (sets_.Free(left.src(0)) & loops)) return UOp();
    UOp around, parts;
    for (const UOp& r : ClosedRanges(sets_.order().back().src(0))) {
      const bool alike = r.arg<RangeArg>().kind == RangeKind::kThread && r.src(0) == thread_.src(0);
      if (alike) around = r;
    }
    for (const UOp& r : ClosedRanges(sum)) {
      if (r == steps) continue;
      if (parts) return UOp();
      parts = r;
    }
    if (!around || !parts || !parts.src(0).IsConst() || parts.src(0).vmax() > kMostHeld) {
      return UOp();
    }
    UOp all;
    for (int64_t i = 0; i < parts.src(0).vmax(); ++i) {
      const UOp at = UOp::Index(i);
      const UOp held = Simplify(Substitute(left, {{parts, at}, {thread_, around}}));
      std::vector<UOp> srcs = {held, Simplify(Substitute(product.src(1), {{parts, at}}))};
      if (all) srcs.push_back(all);
      all = product.WithSrcs(srcs);
    }
    return all;
  }

  // What a thread's eight sums are multiplied by, of what differs from row to row; or nothing where
  // it differs within a row.
  UOp OfRows(const UOp& factor, const MatrixRanges& ranges) const {
    const RangeMask in_row = sets_.Bit(ranges.column_part) | sets_.Bit(ranges.pair);
    if (sets_.Free(factor) & in_row) return UOp();
    std::vector<UOp> lanes;
    for (int64_t lane = 0; lane < kSums; ++lane) {
      lanes.push_back(Substitute(factor, {{ranges.row_half, UOp::Index(lane / 2 % 2)}}));
    }
    return UOp::Make(Op::kLanes, factor.dtype().WithLanes(kSums), lanes);
  }

  // What a thread points at for its fragment is where some thread's own element of the sum lies,
  // at some step: so the offset says, whatever the layout, with other values of thread and ranges.
  // Thread t gives row t % 8 of matrix t / 8.
  UOp FragmentOf(const UOp& element, const MatrixRanges& ranges, bool is_a) {
    const DType dtype = element.dtype();
    const int64_t wide = kFragmentBytes / dtype.bytes();  // elements of a row
    const UOp& offset = element.src(1);
    const Step step = StepOf(offset, ranges.steps, sets_);
    const bool turned = !(step.linear && step.factor == 1);
    if (turned && dtype.bytes() != 2) return UOp();
    const UOp lane = Modulo(thread_, kWarp), first = Times(Over(thread_, kWarp), kWarp);
    const UOp row = Modulo(lane, kMatrixRows);
    const UOp low = Modulo(Over(lane, kMatrixRows), 2), high = Over(lane, 2 * kMatrixRows);
    Substitution map;
    // Of a: the matrices are (upper rows, first steps), (lower, first), (upper, next), (lower,
    // next); of b: (left columns, first steps), (left, next), (right, first), (right, next).
    const UOp &half = is_a ? low : high, &next = is_a ? high : low;
    map.emplace(is_a ? ranges.row_half : ranges.column_part, half);
    if (turned) {
      map.emplace(thread_, first);
      map.emplace(ranges.steps, Plus(row, Times(next, wide)));
    } else {
      map.emplace(thread_, Plus(first, is_a ? Times(row, 4) : Over(row, 2)));
      map.emplace(ranges.steps, Times(next, wide));
    }
    if (!is_a) map.emplace(ranges.pair, turned ? UOp::Index(0) : Modulo(row, 2));
    const UOp at = Simplify(Substitute(offset, map));
    return UOp::Make(Op::kFragment, dtype.WithLanes(static_cast<int>(wide)), {element.src(0), at},
                     Ints{0, turned});
  }

  // Where the rows begin that the unit's warps read together: at what the first of their threads
  // would read for its first sum.
  UOp InPlace(const UOp& element, const MatrixRanges& ranges, int64_t warps) const {
    const DType dtype = element.dtype();
    const UOp& offset = element.src(1);
    Substitution second;
    for (const UOp& r : sets_.ranges()) second.emplace(r, UOp::Index(r == ranges.steps));
    const bool turned = !Simplify(Substitute(offset, second)).IsConst(1);
    Substitution map = {{thread_, Times(Over(thread_, warps * kWarp), warps * kWarp)}};
    for (const UOp& r : {ranges.steps, ranges.row_half, ranges.column_part, ranges.pair}) {
      map.emplace(r, UOp::Index(0));
    }
    const int64_t wide = kFragmentBytes / dtype.bytes();
    return UOp::Make(Op::kFragment, dtype.WithLanes(static_cast<int>(wide)),
                     {element.src(0), Simplify(Substitute(offset, map))}, Ints{0, 2 + turned});
  }

  const RangeSets sets_;
  const Target& target_;
  UOp thread_;
};

}  // namespace

MatrixRanges MakeMatrixRanges(int64_t first_id, int64_t steps, int64_t columns, bool vectors) {
  return {Range(first_id, steps, RangeKind::kMatrix), Range(first_id + 1, 2, RangeKind::kUnroll),
          Range(first_id + 2, columns / kMatrixRows, RangeKind::kUnroll),
          Range(first_id + 3, 2, vectors ? RangeKind::kVector : RangeKind::kUnroll)};
}

UOp MatrixRow(const MatrixRanges& ranges, const UOp& lane) {
  return Plus(Over(lane, 4), Times(ranges.row_half, kMatrixRows));
}

UOp MatrixColumnPair(const MatrixRanges& ranges, const UOp& lane) {
  return Plus(Times(ranges.column_part, kMatrixRows / 2), Modulo(lane, 4));
}

bool ReadInPlace(const UOp& u) {
  return u.is(Op::kFragment) && u.size() == 2 && u.arg<Ints>()[1] >= 2;
}

UOp UseMatrixUnits(const UOp& sink, const Target& target) {
  return MatrixUser(sink, target).Run(sink);
}

}  // namespace tessera
