// Two-step reductions.
//
// Parts that divide their axis are an axis of their own. Where none of enough parts does, the first
// step takes parts of so many whole sticks each, and the second what is left as well, in elements;
// of a GPU's product of matrices the last part is filled with zeros instead, so that all are tiles.
//
// A CPU's product of matrices with a long sum is several with shorter ones, whose panels stay in a
// core's own cache, and their sum: 1024 x 16384 by 16384 x 1024 took 1.7 times as long whole, and
// of bf16 256 x 14336 by 14336 x 4096 3.7 times.
//
// Columns of a matrix with short rows are reduced for so many rows at once that these are long, and
// then over those rows: 1,048,576 rows of 64 took 30 ms one by one and 20 so, and f32 sums lost a
// hundred times as much.
#include <algorithm>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/fault.h"
#include "graph/ops.h"
#include "graph/rewrite.h"
#include "graph/walk.h"
#include "schedule/fuse.h"
#include "schedule/passes.h"
#include "schedule/pointwise.h"
#include "schedule/work_division.h"

namespace tessera {
namespace {

constexpr int64_t kLargeReduction = 1 << 16;
constexpr int64_t kPartsPerCore = 16;
constexpr int64_t kThreadsPerCore = 1024;   // of a GPU, that keep its memory busy
constexpr int64_t kManyElements = 1 << 20;  // to reduce, that pay for a second kernel
constexpr int64_t kLeastRows = 64;          // of a part, of columns that threads reduce
constexpr int64_t kTile = 64 * 64;      // sums of a GPU's block, which keep a multiprocessor busy
constexpr int64_t kLeastSide = 16;      // rows and columns of a product that is done in tiles
constexpr int64_t kLeastSideAlong = 8;  // of a product whose columns were laid out along the sum
constexpr int64_t kLeastSteps = 1024;   // of a part, that pay for its sums being written and read
constexpr int64_t kStepsOfTile = 64;    // at most, that a tile of a product takes at once
// Bytes: codegen reads no shorter pieces of many rows together (codegen/far_rows.cc).
constexpr int64_t kShortRow = 512;
constexpr int64_t kRowsOfGroup = 64, kLeastGroups = 16;

// How often each node is read.
using Uses = absl::flat_hash_map<const Node*, size_t>;

Uses CountUses(absl::Span<const UOp> roots) {
  Uses out;
  for (const UOp& r : roots) ++out[r.get()];
  for (const UOp& u : TopoSort(roots)) {
    for (const UOp& s : u.srcs()) ++out[s.get()];
  }
  return out;
}

// Whether a value is made of a product and of what reduces it, and nothing else reads what lies
// between, as of softmax(Q K^T): its rows are then wanted whole (see ChainProducts), and not by
// parts of what is summed over. (What the gradient of a batch norm is made of, others read too.)
bool IsReducedProduct(const UOp& value, const Uses& uses) {
  std::vector<const Node*> of_product;
  absl::flat_hash_map<const Node*, std::vector<const Node*>> readers;
  bool reduction = false;
  WalkDown({&value, 1}, [&](const UOp& u) {
    if (IsContraction(u)) {
      of_product.push_back(u.get());
      return false;
    }
    reduction |= u.is(Op::kReduce);
    if (!IsElementwise(u.op()) && !IsMovement(u.op()) && !u.is(Op::kReduce)) return false;
    for (const UOp& s : u.srcs()) readers[s.get()].push_back(u.get());
    return true;
  });
  if (of_product.empty() || !reduction) return false;
  SeenNodes seen;
  for (size_t i = 0; i < of_product.size(); ++i) {
    const Node* const u = of_product[i];
    if (!seen.Insert(u)) continue;
    const std::vector<const Node*>& within = readers[u];
    if (uses.at(u) > within.size() + (u == value.get())) return false;
    of_product.insert(of_product.end(), within.begin(), within.end());
  }
  return true;
}

int64_t BytesOfPanel(int64_t steps, const Target& target) {
  return steps * target.tile_vectors * target.vector_bytes;
}

// One reduced axis in parts of `each` elements, and what is left of it.
struct Parts {
  int64_t axis = -1, count = 1, each = 0, left = 0;
};

// How work division splits the one axis that it may, of what is read by so many cores' parts at
// most; the results are shared out first, where they are given.
Parts PartsOf(const UOp& u, bool results, int64_t most, int64_t stick_bytes) {
  const UOp& x = u.src(0);
  const auto& reduced = u.arg<ReduceArg>().axes;
  IterationSpace space;
  for (int64_t a = 0; a < x.shape().rank(); ++a) {
    IterationAxis axis;
    axis.size = x.shape()[a].value();
    axis.reduction = std::find(reduced.begin(), reduced.end(), a) != reduced.end();
    axis.uneven = axis.reduction;
    if (!axis.reduction && !results) axis.size = 1;
    const bool adjacent = axis.reduction && a + 1 == x.shape().rank();
    if (adjacent) axis.stick = std::max<int64_t>(1, stick_bytes / x.dtype().bytes());
    space.axes.push_back(axis);
  }
  DivisionLimits limits;
  limits.cores = most;
  const Division division = UseCores(space, limits, {std::vector<int64_t>(space.axes.size(), 1)});
  Parts out;
  for (int64_t a = 0; a < x.shape().rank(); ++a) {
    if (!space.axes[a].reduction || division.splits[a] < 2) continue;
    out.axis = a;
    out.count = division.splits[a];
    out.each = EachPart(space.axes[a], out.count);
    out.left = space.axes[a].size - out.count * out.each;
  }
  return out;
}

// Of a CPU's product of matrices whose sum is so long that a panel of it does not stay in a core's
// own cache: alike parts of which one takes about a quarter of that, of whole steps of tiles if any
// are, along the outermost axis that has such; and no more of them than that their results are half
// of what the factors have. Else one part.
Parts PartsOfLongSum(const UOp& u, int64_t outputs, int64_t steps, int64_t elements,
                     const Target& target) {
  if (!u.dtype().IsFloat()) return {};
  const int64_t wanted = BytesOfPanel(steps, target) / (target.l2_bytes / 4);
  const int64_t most = std::min(2 * wanted, elements / (2 * outputs));
  for (const int64_t whole : {kStepsOfTile, int64_t{1}}) {
    for (const int64_t axis : u.arg<ReduceArg>().axes) {
      const int64_t n = u.src(0).shape()[axis].value();
      const auto divides = [&](int64_t by) { return n % by == 0 && steps / by % whole == 0; };
      for (int64_t parts = wanted; parts <= most; ++parts) {
        if (divides(parts)) return {axis, parts, n / parts};
      }
      for (int64_t parts = std::min(wanted, most); parts > wanted / 2; --parts) {
        if (divides(parts)) return {axis, parts, n / parts};
      }
    }
  }
  return {};
}

// The factors of a product, before they are spread over each other's rows.
std::vector<UOp> Factors(const UOp& product) {
  std::vector<UOp> out;
  for (const UOp& f : product.srcs()) out.push_back(f.is(Op::kExpand) ? UOp(f.src(0)) : f);
  return out;
}

// Whether a factor was laid out in memory with the sum's steps side by side: a few columns at a
// time meet all rows then, which are read again for each.
bool LaidOutAlong(const UOp& factor, absl::Span<const int64_t> axes) {
  if (!factor.is(Op::kPermute)) return false;
  const UOp from = factor.src(0).is(Op::kCast) ? UOp(factor.src(0).src(0)) : UOp(factor.src(0));
  const Ints& order = factor.arg<Ints>();
  const auto last = std::find(order.begin(), order.end(), from.rank() - 1) - order.begin();
  return from.is(Op::kContiguous) && std::find(axes.begin(), axes.end(), last) != axes.end();
}

// Of a product of matrices: the parts of its sum; else one. A GPU's, where the result has too few
// tiles to keep its multiprocessors busy.
Parts PartsOfProduct(const UOp& u, int64_t outputs, int64_t steps, const Target& target) {
  const UOp& x = u.src(0);
  if (!x.is(Op::kMul) || u.arg<ReduceArg>().op != Op::kAdd || steps == 0) return {};
  const bool cpu = target.dialect == Dialect::kCpp;
  if (cpu && BytesOfPanel(steps, target) < target.l2_bytes / 4 * 3) return {};
  int64_t elements = 0;
  for (const UOp& once : Factors(x)) {
    // The rows of all matrices that one factor has; so the columns of each, or the other way round.
    const int64_t rows = once.shape().is_static() ? once.shape().MaxElements() / steps : 0;
    const bool few = cpu && LaidOutAlong(once, u.arg<ReduceArg>().axes);
    if (rows == 0 || outputs / rows < (few ? kLeastSideAlong : kLeastSide)) return {};
    elements += rows * steps;
  }
  if (cpu) return PartsOfLongSum(u, outputs, steps, elements, target);
  const int64_t tiles = std::max<int64_t>(1, outputs / kTile);
  const int64_t parts = std::min(target.cores / tiles, steps / kLeastSteps);
  return parts < 2 ? Parts() : PartsOf(u, /*results=*/false, parts, 1);
}

// Of columns on a GPU, which a thread each reduces so that neighbours read neighbours: by how many
// threads' worth of parts they are read, where there are too few of them to keep memory busy; else
// 1.
int64_t PartsOfColumns(const UOp& u, int64_t outputs, int64_t steps, const Target& target) {
  const auto& reduced = u.arg<ReduceArg>().axes;
  const int64_t last = u.src(0).shape().rank() - 1;
  if (target.dialect != Dialect::kCuda || IsContraction(u) || steps < 2 * kLeastRows) return 1;
  if (std::find(reduced.begin(), reduced.end(), last) != reduced.end()) return 1;
  if (u.src(0).shape()[last].value() < kLeastSide || outputs * steps < kManyElements) return 1;
  const int64_t parts = std::min(kThreadsPerCore * target.cores / outputs, steps / kLeastRows);
  return parts < 2 ? 1 : parts * outputs;
}

UOp ShrinkAxis(const UOp& u, int64_t axis, int64_t begin, int64_t end) {
  Pairs to;
  for (const Extent& e : u.shape().ToExtents()) to.emplace_back(Extent(0), e);
  to[axis] = {Extent(begin), Extent(end)};
  return UOp::Make(Op::kShrink, {u}, to);
}

UOp PadAxis(const UOp& u, int64_t axis, int64_t after) {
  Pairs by(u.shape().rank(), {Extent(0), Extent(0)});
  by[axis].second = Extent(after);
  return UOp::Make(Op::kPad, {u}, by);
}

// Whether two kernels may read parts of a value without computing anything first.
bool IsThere(UOp u) {
  while (IsMovement(u.op())) u = UOp(u.src(0));
  return Info(u.op()).cls == OpClass::kLeaf || u.is(Op::kContiguous);
}

// Elements begin..end of an axis, computed from those of what the value is computed from; nothing
// where something else than element by element must be computed first.
UOp Restricted(const UOp& x, int64_t axis, int64_t begin, int64_t end) {
  const auto elementwise = [](const UOp& u) { return IsElementwise(u.op()); };
  return PartThrough(x, elementwise, [&](const UOp& u) {
    return !IsThere(u) ? UOp() : u.rank() == 0 ? u : ShrinkAxis(u, axis, begin, end);
  });
}

// A product with zeros after an axis of both factors.
UOp Padded(const UOp& product, int64_t axis, int64_t after) {
  return UOp::Make(Op::kMul,
                   {PadAxis(product.src(0), axis, after), PadAxis(product.src(1), axis, after)});
}

// An axis of a factor as two; it is spread over the other's rows last, as products are known by
// that.
UOp AxisInParts(const UOp& factor, const Parts& parts) {
  const bool spread = factor.is(Op::kExpand);
  const UOp from = spread ? UOp(factor.src(0)) : factor;
  const auto in_parts = [&](const UOp& u) {
    Extents out = u.shape().ToExtents();
    const bool one = u.shape()[parts.axis].is_int(1);
    out[parts.axis] = one ? Extent(1) : Extent(parts.count);
    out.insert(out.begin() + parts.axis + 1, one ? Extent(1) : Extent(parts.each));
    return out;
  };
  const UOp split = UOp::Make(Op::kReshape, {from}, in_parts(from));
  return spread ? UOp::Make(Op::kExpand, {split}, in_parts(factor)) : split;
}

// The reduction of a value in two steps, by parts that divide its axis.
UOp InParts(const UOp& u, const UOp& x, const Parts& parts, bool of_product) {
  const ReduceArg& arg = u.arg<ReduceArg>();
  const Op second = FaultPlanted(Fault::kSecondStepSums) && !x.dtype().IsBool() ? Op::kAdd : arg.op;
  const int64_t axis = parts.axis;
  Extents split = x.shape().ToExtents();
  split[axis] = parts.count;
  split.insert(split.begin() + axis + 1, parts.each);
  ReduceArg first{arg.op, {}};
  for (int64_t a : arg.axes) first.axes.push_back(a >= axis ? a + 1 : a);
  const UOp in_parts =
      of_product ? UOp::Make(Op::kMul, {AxisInParts(x.src(0), parts), AxisInParts(x.src(1), parts)})
                 : UOp::Make(Op::kReshape, {x}, split);
  UOp partial = UOp::Make(Op::kReduce, {in_parts}, first);
  if (of_product) {
    // A result for each part: rows and columns lie as they do without parts.
    Ints order = {axis};
    for (int64_t i = 0; i < partial.shape().rank(); ++i) {
      if (i != axis) order.push_back(i);
    }
    partial = UOp::Make(Op::kContiguous, {UOp::Make(Op::kPermute, {partial}, order)});
    const UOp sum = UOp::Make(Op::kReduce, {partial}, ReduceArg{second, {0}});
    return UOp::Make(Op::kReshape, {sum}, u.shape().ToExtents());
  }
  Extents merged = x.shape().ToExtents();
  for (int64_t a : arg.axes) merged[a] = a == axis ? Extent(parts.count) : Extent(1);
  partial = UOp::Make(Op::kContiguous, {UOp::Make(Op::kReshape, {partial}, merged)});
  return UOp::Make(Op::kReduce, {partial}, ReduceArg{second, {axis}});
}

UOp Split(const UOp& u, const Target& target);

// The reduction of a value along an axis in two steps: of each place in groups of so many rows, and
// of these rows.
UOp InGroups(const UOp& u, const UOp& x, int64_t axis, int64_t rows, const Target& target) {
  const Op op = u.arg<ReduceArg>().op;
  Extents split = x.shape().ToExtents();
  split[axis] = x.shape()[axis].value() / rows;
  split.insert(split.begin() + axis + 1, rows);
  const UOp groups = UOp::Make(Op::kReshape, {x}, split);
  const UOp first = UOp::Make(Op::kReduce, {groups}, ReduceArg{op, {axis}});
  const UOp by_cores = Split(first, target);
  const UOp kept = UOp::Make(Op::kContiguous, {by_cores ? by_cores : first});
  const UOp second = UOp::Make(Op::kReduce, {kept}, ReduceArg{op, {axis + 1}});
  return UOp::Make(Op::kReshape, {second}, u.shape().ToExtents());
}

// Of a CPU, short rows of which one axis is reduced; or nothing.
UOp ByShortRows(const UOp& u, const Target& target) {
  const UOp& x = u.src(0);
  const ReduceArg& arg = u.arg<ReduceArg>();
  if (target.dialect != Dialect::kCpp || arg.axes.size() != 1 || IsContraction(u)) return UOp();
  const int64_t axis = arg.axes[0], n = x.shape()[axis].value();
  int64_t columns = 1;
  for (int64_t a = axis + 1; a < x.shape().rank(); ++a) columns *= x.shape()[a].value();
  const int64_t row_bytes = columns * x.dtype().bytes();
  if (columns < 2 || row_bytes >= kShortRow) return UOp();
  if (n < kLeastGroups * kRowsOfGroup || x.shape().MaxElements() < kLargeReduction) return UOp();
  const int64_t whole = n / kRowsOfGroup * kRowsOfGroup;
  if (whole == n) return InGroups(u, x, axis, kRowsOfGroup, target);
  const UOp most = Restricted(x, axis, 0, whole);
  if (!most) return UOp();
  const UOp rest = UOp::Make(Op::kReduce, {Restricted(x, axis, whole, n)}, u.arg());
  return UOp::Make(arg.op, {InGroups(u, most, axis, kRowsOfGroup, target), rest});
}

// A reduction of known extents, of which there are any.
bool IsKnown(const UOp& u) {
  if (!u.is(Op::kReduce) || !u.shape().is_static() || !u.src(0).shape().is_static()) return false;
  return u.shape().MaxElements() > 0;
}

// The product of matrices in two steps, or nothing where it is none or one is enough.
UOp SplitProduct(const UOp& u, const Target& target) {
  if (!IsKnown(u)) return UOp();
  const UOp& x = u.src(0);
  const int64_t outputs = u.shape().MaxElements(), steps = x.shape().MaxElements() / outputs;
  Parts parts = PartsOfProduct(u, outputs, steps, target);
  if (parts.count < 2) return UOp();
  if (parts.left == 0) return InParts(u, x, parts, true);
  // Whole steps of tiles in all parts but the last, which zeros fill.
  const int64_t n = x.shape()[parts.axis].value();
  parts.each = (n / parts.count / kStepsOfTile + 1) * kStepsOfTile;
  parts.count = (n + parts.each - 1) / parts.each;
  return InParts(u, Padded(x, parts.axis, parts.count * parts.each - n), parts, true);
}

// The reduction in two steps, or nothing where one is enough.
UOp Split(const UOp& u, const Target& target) {
  if (!IsKnown(u) || target.cores < 2) return UOp();
  const UOp& x = u.src(0);
  const int64_t outputs = u.shape().MaxElements(), steps = x.shape().MaxElements() / outputs;
  if (const UOp groups = ByShortRows(u, target)) return groups;
  const bool large = outputs < 2 * target.cores && steps >= kLargeReduction;
  const int64_t readers =
      large ? kPartsPerCore * target.cores : PartsOfColumns(u, outputs, steps, target);
  if (readers < 2) return UOp();
  const Parts parts = PartsOf(u, /*results=*/true, readers, kStickBytes);
  if (parts.axis < 0) return UOp();
  if (parts.left == 0) return InParts(u, x, parts, false);
  const int64_t whole = parts.count * parts.each;
  const UOp most = Restricted(x, parts.axis, 0, whole);
  if (!most) return UOp();
  UOp rest = Restricted(x, parts.axis, whole, whole + parts.left);
  rest = UOp::Make(Op::kReduce, {rest}, u.arg());
  if (const UOp two = Split(rest, target)) rest = two;  // along another axis
  return UOp::Make(u.arg<ReduceArg>().op, {InParts(u, most, parts, false), rest});
}

}  // namespace

std::vector<UOp> SplitReductions(absl::Span<const UOp> roots, const Targets& targets) {
  std::optional<Uses> uses;
  const auto chains = [&](const UOp& product) {
    if (!uses) uses = CountUses(roots);
    const std::vector<UOp> factors = Factors(product.src(0));
    return std::any_of(factors.begin(), factors.end(),
                       [&](const UOp& f) { return IsReducedProduct(f, *uses); });
  };
  return Rebuild(roots, [&](const UOp& u, const UOp& was) {
    const Target& target = targets.Of(u.device());
    UOp two = SplitProduct(u, target);
    if (two && chains(was)) two = UOp();
    return two ? two : Split(u, target);
  });
}

}  // namespace tessera
