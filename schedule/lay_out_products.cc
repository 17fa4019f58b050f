// What products of matrices read, laid out before them, on CPUs.
//
// The products of a convolution, or of its gradient by the input, are matrices of one image each,
// of as many columns as an image has places: 49 of 7 x 7, which fill four vectors of 16 for the
// work of three, and 16 of 4 x 4, one vector at a time, for each of which all rows are read anew.
// All images' together are one matrix with many columns. What the products read of them is then
// laid out first, [steps, columns], and the result is put where it belongs by what reads it.
//
// The gradient of a convolution by its weight has windows' few elements as columns, and sums along
// rows of images, which are short, or of which a stride leaves some out: lanes would be few, or
// gathered. So would those of a small image's columns that are a stride apart. (Gradient of 8
// results of 128 images of 97 x 13, 3 x 3 every 3, bf16: 6.9 ms as it lies, 0.7 laid out.)
//
// The weights of such a gradient lie across: a row of them goes on after a few elements far away.
// They are laid out as rows.
#include <algorithm>
#include <optional>
#include <vector>

#include "graph/index_math.h"
#include "graph/ops.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "schedule/axis_map.h"
#include "schedule/fuse.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

// Rows and steps that pay for columns being laid out. (Of windows of 3 x 3, in 64 images of 2 x 2,
// 64 rows of 144 steps take half as long again, and 256 half as long.)
constexpr int64_t kLeastRows = 128, kLeastSteps = 16;
// The same where the result, which is moved once more, is joined. (Four convolutions of 16 to 60
// steps took 1.5 times as long.)
constexpr int64_t kLeastStepsToJoin = 64;
// The same, of columns that would be gathered. (Weights of 3 x 3 every 3 in 8 images of 37 x 61: 4
// rows take 52 us gathered and 26 laid out, 2 rows of 3 x 3 in 31 x 31 58 and 78.)
constexpr int64_t kFewRows = 4;
// For which columns across memory are turned: 32 of 3 x 3 in 8 images of 31 x 31 take 580 us if
// not, and 240.
constexpr int64_t kRowsToTurn = 32;
// That share what is read of windows in rows, so that these are read where they lie: 24 of 16 times
// 3 x 3 take 310 us so, and 440 laid out; 8 of 8 times as many 260, and 100.
constexpr int64_t kRowsInPlace = 16;
// That share what is read over borders: one alone takes up to twice as long.
constexpr int64_t kLeastRowsOfBorders = 2, kLeastStepsOfBorders = 64;
// Of bytes that are laid out along the sum, the rows or columns that read them.
constexpr int64_t kLeastReadersOfBytes = 8;
constexpr int64_t kLeastToRaise = 1 << 25;          // products, for which two more kernels pay
constexpr int64_t kMostBytes = int64_t{128} << 20;  // of what is laid out
constexpr int64_t kMostIdle = 6;  // one of so many lanes: 49 columns leave 15 of 64, 56 leave 8
constexpr int64_t kLeastColumns = 256;  // that pay for rows being laid out

// A sum of products of a, which varies over the rows, and b, which does over the columns; both do
// over the steps, and over the batch, as the groups of a convolution.
struct Product {
  UOp a, b;
  Ints batch = {}, rows = {}, columns = {}, steps = {};  // axes, in order
  int64_t batch_count = 1, rows_count = 1, columns_count = 1, steps_count = 1;
  int64_t together = 1;  // columns that lie side by side in the result
};

std::optional<Product> ProductOf(const UOp& u) {
  if (!IsContraction(u) || !u.src(0).shape().is_static()) return std::nullopt;
  const UOp& product = u.src(0);
  const auto& summed = u.arg<ReduceArg>().axes;
  Product out{UOp(product.src(0)), UOp(product.src(1))};
  bool behind = true;  // no row is further in
  for (int axis = u.rank() - 1; axis >= 0; --axis) {
    const int64_t n = product.shape()[axis].value();
    if (n == 1) continue;
    const bool in_a = VariesOnAxis(out.a, axis), in_b = VariesOnAxis(out.b, axis);
    const bool step = std::find(summed.begin(), summed.end(), axis) != summed.end();
    if (n == 0 || (step ? !in_a || !in_b : !in_a && !in_b)) return std::nullopt;
    if (step) {
      out.steps.insert(out.steps.begin(), axis);
      out.steps_count *= n;
      continue;
    }
    if (in_a && in_b) {
      out.batch.insert(out.batch.begin(), axis);
      out.batch_count *= n;
      behind = false;
      continue;
    }
    if (out.columns.empty() && out.rows.empty() && in_a) std::swap(out.a, out.b);
    if (VariesOnAxis(out.b, axis)) {
      out.columns.insert(out.columns.begin(), axis);
      out.columns_count *= n;
      if (behind) out.together *= n;
    } else {
      out.rows.insert(out.rows.begin(), axis);
      out.rows_count *= n;
      behind = false;
    }
  }
  return out;
}

Ints Together(const Ints& first, const Ints& then) {
  Ints out = first;
  out.insert(out.end(), then.begin(), then.end());
  return out;
}

// The axis of a reshape's source in which one of its axes lies, or -1 where that is no single one.
int SourceAxis(const UOp& reshape, int axis) {
  const Shape& from = reshape.src(0).shape();
  for (const ReshapeGroup& g : ReshapeGroups(from, reshape.shape())) {
    if (axis < g.out_begin || axis >= g.out_end) continue;
    int in = g.in_begin, ins = 0;
    for (int i = g.in_begin; i < g.in_end; ++i) {
      if (!from[i].is_int(1)) in = i, ++ins;
    }
    return ins > 1 ? -1 : in;
  }
  return -1;
}

// Axes of a value as they lie in what it reads, the slowest first, and whether the last of them
// goes from element to element.
struct MemoryOrder {
  Ints axes;
  bool adjacent = false;
};

// Nothing where it is not known, as of a sum of two.
std::optional<MemoryOrder> InMemory(const UOp& value, const Ints& axes) {
  struct Place {
    int64_t axis;
    std::vector<int> at;  // the axis of the source in which it lies, and where within that
  };
  if (axes.empty()) return std::nullopt;
  std::vector<Place> places;
  for (const int64_t axis : axes) places.push_back({axis, {static_cast<int>(axis)}});
  UOp u = value;
  for (; IsMovement(u.op()) || u.is(Op::kCast); u = UOp(u.src(0))) {
    for (Place& p : places) {
      if (u.is(Op::kPermute)) p.at[0] = static_cast<int>(u.arg<Ints>()[p.at[0]]);
      if (u.is(Op::kReshape)) p.at.insert(p.at.begin(), SourceAxis(u, p.at[0]));
      if (p.at[0] < 0) return std::nullopt;
    }
    if (!u.is(Op::kWindow)) continue;
    const Ints& sizes = u.arg<WindowArg>().size;  // of 1: every so many elements of an axis
    if (std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n > 1; })) return {};
  }
  if (Info(u.op()).cls != OpClass::kLeaf && !u.is(Op::kContiguous)) return std::nullopt;
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& x, const Place& y) { return x.at < y.at; });
  MemoryOrder out;
  for (const Place& p : places) out.axes.push_back(p.axis);
  out.adjacent = true;
  for (int i = places.back().at[0] + 1; i < u.rank(); ++i) out.adjacent &= u.shape()[i].is_int(1);
  return out;
}

// How the rows of a lie in memory: one after another, or element by element beside one another; or
// across it, each in pieces as long as a window, as a convolution's weight does to the gradient by
// its input; or in single elements.
enum class Lie { kInOrder, kInPieces, kApart };

Lie LieOfRows(const Product& p) {
  const std::optional<MemoryOrder> order = InMemory(p.a, Together(p.rows, p.steps));
  if (!order) return Lie::kInOrder;
  if (!order->adjacent) return Lie::kApart;
  const auto is_row = [&](int64_t axis) {
    return std::find(p.rows.begin(), p.rows.end(), axis) != p.rows.end();
  };
  const auto step = std::find_if_not(order->axes.begin(), order->axes.end(), is_row);
  const bool after = std::any_of(step, order->axes.end(), is_row);
  return after && !is_row(order->axes.back()) ? Lie::kInPieces : Lie::kInOrder;
}

int64_t BytesOfRows(const Product& p) { return p.rows_count * p.steps_count * p.a.dtype().bytes(); }

// Whether tiles of those columns alone that lie together would leave much of the vectors unused,
// and all rows would come from beyond the core's own cache for the few that there are. (Within it
// 256 x 256 by 64 matrices of 16 columns took 0.42 ms, and 0.52 joined.)
bool AreFew(const Product& p, int64_t lanes, const Target& target) {
  if (2 * p.together <= lanes) return true;
  if (BytesOfRows(p) <= target.l2_bytes / 2 * 3 && LieOfRows(p) == Lie::kInOrder) return false;
  const int64_t vectors = CeilDiv(p.together, lanes);
  if (vectors < target.tile_vectors) return true;
  return (vectors * lanes - p.together) * kMostIdle > vectors * lanes;
}

bool JoiningPays(const Product& p, const UOp& u, const Target& target) {
  if (!p.batch.empty()) return false;
  const int64_t lanes = target.vector_bytes / u.dtype().bytes();
  if (lanes < 2) return false;
  if (p.rows_count < kLeastRows || p.steps_count < kLeastStepsToJoin) return false;
  if (p.together == p.columns_count || p.columns_count < target.tile_vectors * lanes) return false;
  if (p.columns_count > kMostBytes / u.dtype().bytes() / p.steps_count) return false;
  return AreFew(p, lanes, target);
}

// How elements along an axis lie in what a value reads: side by side, perhaps with a border, whose
// lanes are masked; with many others between them; with a few, as a window's stride leaves out; or
// they are a window's.
enum class Along { kAdjacent, kFar, kStrided, kOfWindow };
constexpr int64_t kFarApart = 16;  // numbers of 4 bytes: a line holds no two of them

Along LiesAlong(const UOp& value, int axis) {
  UOp u = value;
  for (; IsMovement(u.op()) || u.is(Op::kCast); u = UOp(u.src(0))) {
    if (u.is(Op::kPermute)) axis = static_cast<int>(u.arg<Ints>()[axis]);
    if (u.is(Op::kWindow)) {
      const auto& w = u.arg<WindowArg>();
      if (axis >= u.src(0).rank()) return Along::kOfWindow;
      for (size_t i = 0; i < w.axes.size(); ++i) {
        if (w.axes[i] == axis && w.stride[i] != 1) return Along::kStrided;
      }
    }
    if (!u.is(Op::kReshape)) continue;
    for (const ReshapeGroup& g : ReshapeGroups(u.src(0).shape(), u.shape())) {
      int64_t apart = 1;
      for (int i = axis + 1; axis >= g.out_begin && i < g.out_end; ++i) {
        apart *= std::min(u.shape()[i].max(), kFarApart);
      }
      if (apart > 1) return apart < kFarApart ? Along::kStrided : Along::kFar;
    }
    axis = SourceAxis(u, axis);
    if (axis < 0) return Along::kAdjacent;  // of several, the last of which may be
  }
  for (int i = axis + 1; i < u.rank(); ++i) {
    if (!u.shape()[i].is_int(1)) return Along::kFar;
  }
  return Along::kAdjacent;
}

// The product with the fewer of its rows and columns as rows, where lanes would be gathered, or
// few: along the columns, which are a window's elements or, few as well, lie apart; and along the
// sum, of which no long part goes on in memory in both operands, or few rows share what is read of
// it. (8 rows by 72 columns of 8 images of 31 x 31: 830 us as they lie, 95 laid out; 16 rows by
// 144: 165 and 165.)
std::optional<Product> Gathering(const Product& p, const UOp& u, const Target& target) {
  const int64_t lanes = target.vector_bytes / u.dtype().bytes();
  if (lanes < 2 || p.steps_count < kLeastSteps || p.columns.empty()) return std::nullopt;
  const auto is_short = [&](int64_t axis) {
    return 2 * u.src(0).shape()[static_cast<int>(axis)].value() <= lanes;
  };
  const Along column = LiesAlong(p.b, static_cast<int>(p.columns.back()));
  const bool few = column == Along::kStrided && is_short(p.columns.back());
  if (column != Along::kOfWindow && !few) return std::nullopt;
  bool in_row = false;
  for (const int64_t step : p.steps) {
    const int axis = static_cast<int>(step);
    const Along a = LiesAlong(p.a, axis), b = LiesAlong(p.b, axis);
    in_row |= a == Along::kAdjacent && b == a && !is_short(axis);
  }
  int64_t longest = 0;  // of the columns in a row
  for (const int64_t axis : p.columns) {
    longest = std::max(longest, u.src(0).shape()[static_cast<int>(axis)].value());
  }
  Product out = p;
  const bool windows = column == Along::kOfWindow && out.columns_count >= lanes;
  if (out.columns_count < out.rows_count && !windows) {
    std::swap(out.a, out.b);
    std::swap(out.rows, out.columns);
    std::swap(out.rows_count, out.columns_count);
  }
  if (out.rows_count < kFewRows || out.columns_count < lanes) return std::nullopt;
  const int64_t bytes = out.batch_count * out.columns_count * out.steps_count * u.dtype().bytes();
  const bool in_place =
      out.rows_count >= kRowsInPlace && (out.rows_count < kRowsToTurn || longest >= lanes);
  if (in_row && (in_place || bytes > target.cache_bytes)) return std::nullopt;
  return bytes <= kMostBytes ? std::optional<Product>(out) : std::nullopt;
}

// A value of which the axes that it does not vary over have one element, those in this order first.
UOp Ordered(const UOp& u, const Ints& first, const Ints& then, const Extents& as) {
  Pairs part;
  Ints order = Together(first, then);
  for (int axis = 0; axis < u.rank(); ++axis) {
    const bool own = std::find(order.begin(), order.end(), axis) != order.end();
    part.emplace_back(Extent(0), own ? u.shape()[axis] : Extent(1));
    if (!own) order.push_back(axis);
  }
  const UOp once = UOp::Make(Op::kShrink, {u}, part);
  return UOp::Make(Op::kReshape, {UOp::Make(Op::kPermute, {once}, order)}, as);
}

UOp CastTo(const UOp& u, DType dtype) {
  return u.dtype() == dtype ? u : UOp::Make(Op::kCast, dtype, {u}, Arg());
}

// What was cast after that, if it is no wider before; moved, and not yet cast.
UOp BeforeCast(const UOp& ordered) {
  std::vector<UOp> moves;
  UOp u = ordered;
  for (; IsMovement(u.op()); u = UOp(u.src(0))) moves.push_back(u);
  const bool narrow = u.is(Op::kCast) && u.src(0).dtype().IsFloat() == u.dtype().IsFloat() &&
                      u.src(0).dtype().bytes() < u.dtype().bytes();
  if (!narrow) return ordered;
  u = UOp(u.src(0));
  for (size_t i = moves.size(); i-- > 0;) u = UOp::Make(moves[i].op(), {u}, moves[i].arg());
  return u;
}

// An operand whose elements were put in order, in memory, as narrow as what it was cast from before
// they were moved: that is moved instead.
UOp Kept(const UOp& ordered, const UOp& operand) {
  return CastTo(UOp::Make(Op::kContiguous, {BeforeCast(ordered)}), operand.dtype());
}

// a as rows, one after another. The chip's tiles have them laid out as they are filled.
UOp Rows(const UOp& u, const Product& p, const Target& target) {
  const Ints first = Together(p.batch, p.rows);
  const UOp rows = Ordered(p.a, first, p.steps, {p.batch_count, p.rows_count, p.steps_count, 1});
  const bool lie = LieOfRows(p) == Lie::kInOrder || AreOfTiles(u.src(0), target);
  return lie ? rows : Kept(rows, p.a);
}

// A value over `axes`, in this order, as one of so many axes, of which the others have one element.
UOp InPlace(const UOp& value, const Ints& axes, const Shape& shape) {
  Ints order = axes, back(shape.rank());
  Extents extents;
  for (const int64_t axis : axes) extents.push_back(shape[static_cast<int>(axis)]);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
    order.push_back(axis);
    extents.push_back(1);
  }
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
  return UOp::Make(Op::kPermute, {UOp::Make(Op::kReshape, {value}, extents)}, back);
}

// The same as an operand of a product of this shape.
UOp InProduct(const UOp& value, const Ints& axes, const Shape& shape) {
  return UOp::Make(Op::kExpand, {InPlace(value, axes, shape)}, shape.ToExtents());
}

// Whether what is laid out of b goes on along the sum, and not along the columns: these are a
// window's few elements, and there are more steps in a row, which are loaded as vectors. (Windows
// of 3 x 3 x 3 at 16 places each: 600 us along the columns, 90 along the sum. What turns them then,
// a panel at a time, are blocks in registers.)
bool GoesAlongSum(const Product& p) {
  if (p.columns.empty() || p.steps.empty()) return false;
  const auto last = [&](const Ints& axes) { return static_cast<int>(axes.back()); };
  const Along column = LiesAlong(p.b, last(p.columns)), step = LiesAlong(p.b, last(p.steps));
  const int64_t columns = p.b.shape()[last(p.columns)].value();
  const bool in_row = step != Along::kFar && step != Along::kOfWindow;
  return column == Along::kOfWindow && in_row && p.b.shape()[last(p.steps)].value() > columns;
}

// The same with what windows are of between its borders in memory, if that keeps the order in which
// it lies.
UOp BetweenBorders(const UOp& value) {
  UOp window = value;
  while (IsMovement(window.op()) && !window.is(Op::kWindow)) window = UOp(window.src(0));
  if (!window.is(Op::kWindow) || !window.src(0).is(Op::kPad)) return value;
  UOp from = window.src(0).src(0);
  while (from.is(Op::kReshape) || from.is(Op::kCast)) from = UOp(from.src(0));
  if (IsMovement(from.op())) return value;
  const UOp between = UOp::Make(Op::kContiguous, {UOp(window.src(0))});
  return Substitute(value, {{window, window.WithSrcs({between})}});
}

// The sum as one product of matrices, or one for each of the batch.
UOp Joined(const UOp& u, const Product& p, const Target& target) {
  const int64_t rows = p.rows_count, steps = p.steps_count, count = p.columns_count;
  UOp columns;
  if (GoesAlongSum(p)) {
    columns = Ordered(p.b, Together(p.batch, p.columns), p.steps, {p.batch_count, 1, count, steps});
    columns = UOp::Make(Op::kPermute, {Kept(columns, p.b)}, Ints{0, 1, 3, 2});
  } else {
    columns = Ordered(p.b, Together(p.batch, p.steps), p.columns, {p.batch_count, 1, steps, count});
    columns = Kept(columns, p.b);
  }
  const Extents whole = {p.batch_count, rows, steps, count};
  const UOp a = UOp::Make(Op::kExpand, {Rows(u, p, target)}, whole);
  const UOp b = UOp::Make(Op::kExpand, {columns}, whole);
  const UOp sum = UOp::Make(Op::kReduce, {UOp::Make(Op::kMul, {a, b})}, ReduceArg{Op::kAdd, {2}});
  const Ints axes = Together(p.batch, Together(p.rows, p.columns));
  return InPlace(UOp::Make(Op::kContiguous, {sum}), axes, u.shape());
}

// Pieces go by in a core's own cache, if the rows fit; single elements do nowhere.
bool RowsPay(const UOp& u, const Product& p, const Target& target) {
  const int64_t bytes = BytesOfRows(p);
  if (!p.batch.empty()) return false;
  if (bytes <= target.l1_bytes || bytes > kMostBytes || p.columns_count < kLeastColumns) {
    return false;
  }
  const Lie lie = LieOfRows(p);
  if (lie == Lie::kInOrder || AreOfTiles(u.src(0), target)) return false;
  return lie == Lie::kApart || bytes > target.l2_bytes / 2;
}

// The same sum of products with a laid out.
UOp WithRows(const UOp& u, const Product& p, const Target& target) {
  const UOp a = InProduct(Rows(u, p, target), Together(p.rows, p.steps), u.src(0).shape());
  return u.WithSrcs({UOp::Make(Op::kMul, {a, p.b})});
}

// An operand's own axes, then those along the sum.
struct AlongSum {
  UOp operand;
  Ints axes;
  UOp ordered;
  AlongSum(const UOp& u, const Product& p, const UOp& operand, const Ints& own)
      : operand(operand), axes(Together(Together(p.batch, own), p.steps)) {
    const Shape& shape = u.src(0).shape();
    Extents as;
    for (const int64_t axis : axes) as.push_back(shape[static_cast<int>(axis)]);
    as.resize(shape.rank(), Extent(1));
    ordered = Ordered(operand, axes, {}, as);
  }
  bool LiesSo() const { return LiesAlong(operand, static_cast<int>(axes.back())) != Along::kFar; }
  bool Fits() const { return ordered.shape().MaxElements() <= kMostBytes; }
};

// The sums of an operand alone, which is the same along the axes of the other one.
UOp SumsOf(const UOp& u, const UOp& operand, const Ints& of_other) {
  Pairs once;
  for (int axis = 0; axis < operand.rank(); ++axis) {
    const bool own = std::find(of_other.begin(), of_other.end(), axis) == of_other.end();
    once.emplace_back(Extent(0), own ? operand.shape()[axis] : Extent(1));
  }
  const UOp shown = UOp::Make(Op::kShrink, {operand}, std::move(once));
  const UOp sums = UOp::Make(Op::kContiguous, {UOp::Make(Op::kReduce, {shown}, u.arg())});
  return UOp::Make(Op::kExpand, {sums}, u.shape().ToExtents());
}

// The same sum of products of bytes, of which a lane takes four that are side by side along the
// sum. (1024 x 1024 by 1024 x 1024, the first one unsigned: 27.8 ms as they lie, and 3.6 so.) Chips
// multiply bytes of two signs: of two signed ones for many, one is 128 more, in memory, and as many
// times the sum of the other is taken off again; it wraps as the sum itself does. (Both along the
// sum: 7.9 ms where each tile does that, 3.3 so.)
UOp OfBytes(const UOp& u, const Product& p, const Target& target) {
  if (p.steps.empty() || p.steps_count < kLeastSteps || !SumsBytes(target)) return UOp();
  if (HasTiles(kInt8, target) || p.columns.empty() || p.rows.empty()) return UOp();
  const Shape& shape = u.src(0).shape();
  const AlongSum of_a(u, p, p.a, p.rows), of_b(u, p, p.b, p.columns);
  const bool lay_a = !of_a.LiesSo() && p.columns_count >= kLeastReadersOfBytes && of_a.Fits();
  const bool lay_b = !of_b.LiesSo() && p.rows_count >= kLeastReadersOfBytes && of_b.Fits();
  UOp a = p.a, b = p.b;
  if (lay_a) a = InProduct(Kept(of_a.ordered, a), of_a.axes, shape);
  if (lay_b) b = InProduct(Kept(of_b.ordered, b), of_b.axes, shape);
  const UOp same = lay_a || lay_b ? u.WithSrcs({UOp::Make(Op::kMul, {a, b})}) : UOp();

  // What is turned anyway is not the one that is raised: that goes by as vectors.
  const bool raise_a = lay_b && !lay_a;
  const AlongSum& raised = raise_a ? of_a : of_b;
  const bool signs = BeforeCast(of_a.ordered).dtype() == kInt8 &&
                     BeforeCast(of_b.ordered).dtype() == kInt8 && MultipliesTwoSigns(target);
  const int64_t products = p.rows_count * p.columns_count * p.steps_count;
  if (!signs || !p.batch.empty() || products < kLeastToRaise || !raised.Fits()) return same;
  UOp up = BeforeCast(raised.ordered);
  if (lay_a && lay_b) up = UOp::Make(Op::kContiguous, {up});
  up = UOp::Make(Op::kBitcast, kUInt8, {up}, Arg());
  up = UOp::Make(Op::kAdd, {up, UOp::Const(kUInt8, int64_t{128})});
  up = InProduct(CastTo(UOp::Make(Op::kContiguous, {up}), kInt32), raised.axes, shape);
  const UOp sum = u.WithSrcs({UOp::Make(Op::kMul, {raise_a ? up : a, raise_a ? b : up})});
  const UOp sums = raise_a ? SumsOf(u, b, p.rows) : SumsOf(u, a, p.columns);
  return UOp::Make(Op::kAdd, {sum, UOp::Make(Op::kMul, {sums, UOp::Const(kInt32, int64_t{-128})})});
}

// What windows reach over a border is found anew for each, which shows where few rows share it and
// the sum is long: what they are windows of lies between its borders in memory then. (Gradient of
// 128 x 2 windows of 5 x 5 in 8 images of 37 x 31: 12.7 ms, and 1.0 so; 8 results of 128 such
// images of 37 x 61, 3 x 3 every 2: 4.8 and 2.3.)
UOp WithBorders(const UOp& u, const Product& p) {
  if (p.columns.empty() || p.rows_count < kLeastRowsOfBorders || p.rows_count >= kRowsInPlace ||
      p.steps_count < kLeastStepsOfBorders) {
    return UOp();
  }
  const Along column = LiesAlong(p.b, static_cast<int>(p.columns.back()));
  if (column != Along::kAdjacent && (column != Along::kOfWindow || p.rows_count >= kFewRows)) {
    return UOp();
  }
  const UOp b = BetweenBorders(p.b);
  return b == p.b ? UOp() : u.WithSrcs({UOp::Make(Op::kMul, {p.a, b})});
}

// The product with what it reads laid out, or nothing.
UOp LaidOut(const UOp& u, const Target& target) {
  if (target.dialect != Dialect::kCpp) return UOp();
  const std::optional<Product> p = ProductOf(u);
  if (!p) return UOp();
  if (IsByteProduct(u)) return OfBytes(u, *p, target);
  if (!u.dtype().IsFloat()) return UOp();
  if (JoiningPays(*p, u, target)) return Joined(u, *p, target);
  if (const auto gathering = Gathering(*p, u, target)) return Joined(u, *gathering, target);
  if (RowsPay(u, *p, target)) return WithRows(u, *p, target);
  return WithBorders(u, *p);
}

}  // namespace

std::vector<UOp> LayOutProducts(absl::Span<const UOp> roots, const Targets& targets) {
  return Rebuild(roots,
                 [&](const UOp& u, const UOp&) { return LaidOut(u, targets.Of(u.device())); });
}

}  // namespace tessera
