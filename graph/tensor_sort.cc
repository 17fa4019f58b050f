// Sorting, and what follows from order.
//
// Elements are ordered by whole numbers that compare as they do. Few are sorted by counting, for
// each, those of its axis that come before it; many in one of two ways:
//
// By digits, from the last to the first: each element goes behind those of lower digits, and behind
// those of its own that come before it, which are counted by blocks. Eight passes over 32 bits.
// Each writes its elements one after another, which suits a core but not the threads of a GPU.
//
// By merging: blocks are sorted by counting; then neighbours are merged, every element of a merged
// block finding by bisection how many of those before it come from the first one. Of n elements
// log n merges of log n steps.
//
// The first few of a long axis are found among the blocks whose least ones come first, as none of
// the others holds one; or one after the other, each the least of those that come after the one
// before; or, when the last of them has been found bit by bit, among those that do not come after
// it; or by sorting all: whichever is the least work.
#include <algorithm>
#include <bit>
#include <cmath>

#include "graph/index_math.h"
#include "graph/tensor.h"
#include "graph/tensor_along.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_order.h"

namespace tessera {

using internal::AxisAlong;
using internal::Call;
using internal::CountAlong;
using internal::ExtentAlong;
using internal::Fail;
using internal::IsFewComparisons;
using internal::OfElement;
using internal::OrderOf;
using internal::PairAlong;
using internal::Show;
using internal::SortedIndex;

namespace internal {

Tensor OrderOf(const Tensor& x, bool descending) {
  const DType type = x.dtype();
  Tensor order;
  if (type.IsFloat()) {
    const bool wide = type == kFloat64;
    const DType bits = wide ? kUInt64 : kUInt32;
    const Tensor value = x.Cast(wide ? kFloat64 : kFloat32);
    const Tensor zero_or_value = Where(value == 0, 0, value);
    const Tensor raw = zero_or_value.Bitcast(bits);
    const uint64_t sign = wide ? uint64_t{1} << 63 : uint64_t{1} << 31;
    const Tensor negative = (raw & sign) != 0;
    order = Where(negative, ~raw, raw | sign);
    order = Where(value.IsNan(), ~Tensor::Zeros({}, bits), order);
  } else if (type.IsUnsigned() || type.IsBool()) {
    order = x.Cast(type == kUInt64 ? kUInt64 : kUInt32);
  } else {
    const bool wide = type == kInt64;
    const DType bits = wide ? kUInt64 : kUInt32;
    const uint64_t sign = wide ? uint64_t{1} << 63 : uint64_t{1} << 31;
    order = x.Cast(wide ? kInt64 : kInt32).Bitcast(bits) ^ sign;
  }
  return descending ? ~order : order;
}

}  // namespace internal

namespace {

// Axes up to this long are sorted by counting, and longer ones of few elements.
constexpr int64_t kCounted = 256;
// Comparisons that take less time than passing over digits takes to start, and, elsewhere than on a
// CPU, merging blocks. (3,000 floats on two cores: 204 us compared, 43 by digits; 700: 15 and 16.)
constexpr int64_t kFewOfCores = 2 << 20, kFewComparisons = 12 << 20;
constexpr int64_t kBlock = 64;
// More are not found one by one: each is a kernel.
constexpr int64_t kMostOneByOne = 64;
// Blocks of which those with the least elements are taken, for each element that is wanted.
constexpr int64_t kBlocksPerFound = 4;

// Where a core writes one element after another anywhere.
bool IsOnCpu(const Tensor& t) {
  const Device device = t.device() ? t.device() : internal::DefaultDevice();
  return device && !device.is_sharding() && device.place().kind() == "CPU";
}

enum class Alike { kNone, kSome };  // elements of one row

// Positions along the last axis in order of `order`, equal ones as they come.
Tensor Counted(const Tensor& order, DType type, Alike alike = Alike::kSome) {
  const int rank = order.rank();
  const Extent n = order.shape()[rank - 1];
  const Tensor own = order.Unsqueeze(-1), other = order.Unsqueeze(-2);
  const Tensor i = CountAlong(rank - 1, rank + 1, n, type), j = CountAlong(rank, rank + 1, n, type);
  Tensor before = other < own;
  if (alike == Alike::kSome) before = before | ((other == own) & (j < i));
  // Materialised: it is looked at once more for every element.
  const Tensor place = before.Cast(type).Sum(-1).Cast(type).Contiguous();
  const Tensor position = CountAlong(rank - 1, rank, n, type);
  if (order.shape().is_static() && IsOnCpu(order)) {
    return Tensor::Zeros(order.shape(), type)
        .Scatter(rank - 1, place, position.Expand(order.shape()));
  }
  const Tensor found = place.Unsqueeze(-2) == CountAlong(rank - 1, rank + 1, n, type);
  return Where(found, CountAlong(rank, rank + 1, n, type), 0).Sum(-1).Cast(type);
}

// Rows of sorted blocks of m elements each: element p of a row of the result is at the returned
// position of that row of `order`, where pairs of blocks are merged.
Tensor Merged(const Tensor& order, int64_t m, DType type) {
  const int last = order.rank() - 1;
  const Tensor p = CountAlong(last, order.rank(), order.shape()[last], type);
  const Tensor k = p % (2 * m), first = p - k, second = first + m;
  const auto at = [&](const Tensor& position) {
    return order.Gather(last, position.Expand(order.shape()));
  };
  Tensor low = (k - m).Maximum(0), high = k.Minimum(m);
  for (int64_t span = m; span > 0; span /= 2) {
    const Tensor middle = (low + high).FloorDiv(2);
    const Tensor a = at(first + middle), b = at(second + k - 1 - middle);
    const Tensor open = low < high, from_first = a <= b;
    low = Where(open & from_first, middle + 1, low);
    high = Where(open & from_first, high, Where(open, middle, high));
  }
  const Tensor a = first + low, b = second + k - low;
  const Tensor take_first = (low < m) & ((k - low >= m) | (at(a) <= at(b)));
  return Where(take_first, a, b);
}

constexpr int64_t kDigitBits = 4, kDigits = 1 << kDigitBits;

// Sums of bools over an axis, at most 255 of them.
Tensor FewCounted(const Tensor& t, int axis) {
  const UOp bytes = t.Cast(kUInt8).uop();
  return Tensor(internal::Build(Op::kReduce, {bytes}, ReduceArg{Op::kAdd, {axis}})).Squeeze(axis);
}

// The same as Counted, of rows [rows, n] of u32, by digits. Until its turn comes a digit waits in
// the low half of a word, then in the high one, while the position moves down: at the end it is the
// low half.
Tensor DigitsSorted(const Tensor& order, DType type) {
  const int64_t rows = order.size(0), n = order.size(1);
  const int64_t blocks = CeilDiv(n, kBlock), padded = blocks * kBlock;
  // What is added goes behind its equals, as it comes later.
  const Tensor inside = Tensor::Ones({rows, n}, kBool).Pad({{0, 0}, {0, padded - n}});
  const Tensor key =
      Where(inside, order.Pad({{0, 0}, {0, padded - n}}), ~Tensor::Zeros({}, kUInt32));
  Tensor word = (key.Cast(kUInt64) | Tensor::Arange(padded, kUInt64) << 32).Contiguous();
  const Tensor place = Tensor::Arange(kBlock, kUInt8), digits = Tensor::Arange(kDigits, kUInt8);
  const Tensor earlier = place.Unsqueeze(1) < place;
  const Tensor block = Tensor::Arange(blocks, kInt32).Unsqueeze(1);
  for (int64_t bit = 0; bit < 32; bit += kDigitBits) {
    const Tensor digit =
        (word & (kDigits - 1)).Cast(kUInt8).Reshape({rows, blocks, kBlock}).Contiguous();
    const Tensor alike = digit.Unsqueeze(-1) == digit.Unsqueeze(-2);
    const Tensor before = FewCounted(alike & earlier, 2).Contiguous();
    // Where the first of each digit of each block goes: behind lower digits, and earlier blocks.
    const Tensor count = FewCounted(digit.Unsqueeze(-1) == digits, 2).Cast(kInt32);
    const Tensor start =
        count.Transpose(1, 2).Flatten(1).CumSum(1, {.exclusive = true}).Cast(kInt32).Contiguous();
    const Tensor first = start.Gather(1, (digit.Cast(kInt32) * blocks + block).Flatten(1));
    const Tensor to = first + before.Cast(kInt32).Flatten(1);
    const Tensor turned = word >> kDigitBits | word << (64 - kDigitBits);
    word = Tensor::Zeros({rows, padded}, kUInt64).Scatter(1, to, turned);
  }
  const Tensor position = word & INT64_C(0xffffffff);
  return position.SliceAxis(1, {0, n}).Cast(type);
}

// The digits of u64 in two halves, the low one first.
Tensor WordsSorted(const Tensor& order, DType type) {
  if (order.dtype() == kUInt32) return DigitsSorted(order, type);
  const Tensor by_low =
      DigitsSorted((order & INT64_C(0xffffffff)).Cast(kUInt32), type).Contiguous();
  const Tensor high = (order >> 32).Cast(kUInt32).Gather(1, by_low);
  return by_low.Gather(1, DigitsSorted(high, type));
}

// The same as Counted, by merging.
Tensor MergeSorted(const Tensor& order, DType type) {
  const int last = order.rank() - 1;
  const int64_t n = order.size(last);
  int64_t length = kBlock;
  while (length < n) length *= 2;
  Pairs pairs(order.rank(), {0, 0});
  pairs.back() = {0, length - n};
  // What is added goes behind its equals, as it comes later.
  const Tensor most = ~Tensor::Zeros({}, order.dtype());
  const Tensor inside = Tensor::Ones(order.shape(), kBool).Pad(pairs);
  const Tensor padded = Where(inside, order.Pad(pairs), most);
  // Laid out, as each is compared with all of its block.
  const Tensor blocks = padded.Unflatten(last, {length / kBlock, kBlock}).Contiguous();
  const Tensor within = Counted(blocks, type);
  Tensor key = blocks.Gather(-1, within).Flatten(last).Contiguous();
  const Tensor start = Tensor::Arange(length / kBlock, type).Unsqueeze(1) * kBlock;
  Tensor position = (within + start).Flatten(last).Contiguous();
  for (int64_t m = kBlock; m < length; m *= 2) {
    const Tensor from = Merged(key, m, type).Contiguous();
    key = key.Gather(last, from).Contiguous();
    position = position.Gather(last, from).Contiguous();
  }
  return position.SliceAxis(last, {0, n});
}

// Whether no place has only a part of an axis.
bool IsWhole(const Tensor& t, int axis) {
  return !t.device().is_sharding() || t.device().sharding().DimsOf(axis).empty();
}

// One number of an order of 32 bits and the position: no two are alike.
Tensor Joined(const Tensor& order, const Tensor& place) {
  return order.Cast(kUInt64) << 32 | place.Cast(kUInt64);
}

// Of the first blocks of n elements that k are looked for among: at least kBlocksPerFound for each.
int64_t LengthOfBlocks(int64_t n, int64_t k) {
  const auto length = static_cast<uint64_t>(std::max<int64_t>(1, n / (kBlocksPerFound * k)));
  return static_cast<int64_t>(std::bit_floor(length));
}

// Positions of the first k in order of rows [..., n] whose order has 32 bits. The k blocks whose
// least elements come first hold them; so do the k shorter ones of those, down to single elements.
// Lengths are powers of two, so that the first blocks alone may need padding.
Tensor FirstByBlocks(const Tensor& x, int64_t k, bool descending) {
  const int last = x.rank() - 1;
  const int64_t n = x.size(last);
  int64_t length = LengthOfBlocks(n, k);
  const int64_t count = CeilDiv(n, length);
  const auto chosen = [&](const Tensor& least) {
    return Counted(least, kInt32, Alike::kNone).SliceAxis(last, {0, k}).Unsqueeze(-1);
  };
  const auto taken = [&](const Tensor& blocks, const Tensor& index) {
    Extents found(blocks.shape().begin(), blocks.shape().end());
    found[last] = k;
    return blocks.Gather(last, index.Expand(found));
  };
  const auto keys_of = [&](const Tensor& blocks, const Tensor& place) {
    // What is added goes behind its equals, as it comes later.
    const Tensor most = ~Tensor::Zeros({}, kUInt32);
    return Joined(Where(place < n, OrderOf(blocks, descending), most), place);
  };
  Pairs pairs(x.rank(), {0, 0});
  pairs.back() = {0, count * length - n};
  const Tensor blocks = x.Pad(pairs).Unflatten(last, {count, length});
  const Tensor place = Tensor::Arange(count * length, kInt32).Unflatten(0, {count, length});
  const Tensor index = chosen(keys_of(blocks, place).Min(-1).Contiguous());
  Tensor keys = keys_of(taken(blocks, index), index * length + Tensor::Arange(length, kInt32));
  while (length > 1) {
    const int64_t shorter = std::max(length / kBlocksPerFound, int64_t{1});
    const Tensor divided =
        keys.Contiguous().Flatten(last).Unflatten(last, {k * length / shorter, shorter});
    const bool single = shorter == 1;
    keys = taken(divided, chosen(single ? divided.Squeeze(-1) : divided.Min(-1).Contiguous()));
    length = shorter;
  }
  return (keys.Squeeze(-1) & INT64_C(0xffffffff)).Cast(kInt32).Contiguous();
}

// Positions of the first k in order of rows [..., n]: those that come before the k-th, and of its
// equals the first ones. The k-th is the greatest that fewer than k come before.
Tensor FirstByLast(const Tensor& x, int64_t k, bool descending) {
  const int last = x.rank() - 1;
  const Tensor order = OrderOf(x, descending).Contiguous();
  const auto counted = [](const Tensor& t) { return t.Cast(kInt32).Sum({-1}, /*keepdim=*/true); };
  Tensor kth = Tensor::Zeros({}, order.dtype());
  for (int bit = order.dtype().bits() - 2; bit >= 0; bit -= 2) {
    Tensor digit = Tensor::Zeros({}, kInt32);
    for (uint64_t next : {1, 2, 3}) {
      digit = digit + (counted(order < (kth | next << bit)) < k).Cast(kInt32);
    }
    kth = (kth | digit.Cast(order.dtype()) << bit).Contiguous();
  }
  const Tensor before = (order < kth).CumSum(last).Cast(kInt32).Contiguous();
  const Tensor equal = (order == kth).CumSum(last).Cast(kInt32).Contiguous();
  const Tensor all_before = before.SliceAxis(last, {-1, {}});
  const Tensor place = Tensor::Arange(k, kInt32);
  const Tensor of_equal = equal.SearchSorted((place - all_before + 1).Contiguous());
  Extents found(x.shape().begin(), x.shape().end());
  found[last] = k;
  const Tensor of_before = before.SearchSorted((place + 1).Expand(found));
  const Tensor position = Where(place < all_before, of_before, of_equal).Contiguous();
  const Tensor ranked = SortedIndex(order.Gather(last, position), last, false);
  return position.Gather(last, ranked).Cast(kInt32).Contiguous();
}

// Positions of the first k in order, equal ones as they come: each the least of those that come
// after the one before. An order of 32 bits and the position are one number; one of 64 bits is
// asked for its least element, then for the first position of that.
Tensor OneByOne(const Tensor& x, int64_t k, bool descending) {
  const int last = x.rank() - 1;
  const Tensor order = OrderOf(x, descending);
  const bool joined = order.dtype() == kUInt32;
  const Tensor place = CountAlong(last, x.rank(), x.shape()[last], kInt32);
  const Tensor key = joined ? Joined(order, place) : order;
  const Tensor most = ~Tensor::Zeros({}, kUInt64);
  const auto kept = [](const Tensor& t) { return t.Min(-1, /*keepdim=*/true).Contiguous(); };
  std::vector<Tensor> found;
  Tensor least, rest = Tensor::Ones({}, kBool);
  for (int64_t i = 0; i < k; ++i) {
    if (i > 0) rest = key > least;
    if (i > 0 && !joined) rest = rest | ((key == least) & (place > found.back()));
    least = kept(i > 0 ? Where(rest, key, most) : key);
    found.push_back(
        joined ? least : kept(Where(rest & (key == least), place, Tensor::Full({}, INT32_MAX))));
  }
  // Kept, as every reader would choose among all of them again.
  const Tensor all = Cat(found, -1);
  return (joined ? (all & INT64_C(0xffffffff)).Cast(kInt32) : all).Contiguous();
}

}  // namespace

namespace internal {

bool IsFewComparisons(const Tensor& x, int a) {
  if (!x.shape().is_static()) return false;
  const int64_t n = x.size(a), few = IsOnCpu(x) ? kFewOfCores : kFewComparisons;
  return n == 0 || x.shape().MaxElements() <= few / n;
}

Tensor SortedIndex(const Tensor& x, int a, bool descending) {
  const Extent n = x.shape()[a];
  if (n.is_int() && n.value() > kMostElements) {
    Fail("axis ", a, " of ", Show(x), " is longer than anything that is sorted, ", kMostElements,
         " elements");
  }
  const bool narrow = n.max() <= INT32_MAX / 4;
  const Tensor order = OrderOf(x, descending).Transpose(a, -1);
  const bool count = !n.is_int() || n.value() <= kCounted || IsFewComparisons(x, a);
  const DType type = narrow ? kInt32 : kInt64;
  Tensor index;
  if (count) {
    index = Counted(order, IndexType(n));
  } else if (narrow && x.shape().is_static() && IsOnCpu(x)) {
    const Tensor rows = order.Reshape({x.shape().MaxElements() / n.value(), n.value()});
    index = WordsSorted(rows, type).Reshape(order.shape());
  } else {
    index = MergeSorted(order, type);
  }
  return index.Cast(IndexType(n));
}

ValuesAndIndices PairAlong(const Tensor& x, int axis, const OfOne& f) {
  const std::vector<Tensor> pair =
      AlongAxis({x}, axis, [&f](const std::vector<Tensor>& sources) { return f(sources[0]); });
  return {pair[0], pair[1]};
}

}  // namespace internal

namespace {

ValuesAndIndices SortedBy(const Tensor& x, int axis, bool descending) {
  const int a = AxisAlong(axis, x.rank());
  if (x.rank() == 0) return {x, Tensor::Scalar(0, kInt32)};
  return PairAlong(x, a, [&](const Tensor& t) -> std::vector<Tensor> {
    const Tensor index = SortedIndex(t, a, descending).Transpose(a, -1);
    return {internal::CutAs(t.Gather(a, index), x), internal::CutAs(index, x)};
  });
}

// The work of each way to find k of n elements of so many rows, in comparisons between all elements
// of two blocks: 40 of them take a nanosecond on two cores with vectors of 64 bytes. From rows of
// 300 to 128256 elements and 1 to 512 of them, measured there; a kernel's start counts as well.
struct WorkOfFirst {
  double elements;  // of all rows
  int64_t n, k;
  double OneByOne() const {
    const double look = elements > (1 << 19) ? 8 : 2;  // from memory, or from a cache
    const auto looks = static_cast<double>(k);
    return looks * 5e4 + elements * (look * looks + 14);
  }
  double ByBlocks() const {
    const int64_t first = LengthOfBlocks(n, k);
    const auto blocks = static_cast<double>(CeilDiv(n, first));
    const auto shorter = static_cast<double>(kBlocksPerFound * k);
    double compared = blocks * blocks;
    for (int64_t length = first; length > 1; length /= kBlocksPerFound)
      compared += shorter * shorter;
    return 4e6 + elements * (15 + compared / static_cast<double>(n));
  }
  double ByLast(bool wide) const {
    const auto sorted = elements / static_cast<double>(n) * static_cast<double>(k);
    return 5e6 + elements * (wide ? 160 : 80) +
           sorted * std::min(2.5 * static_cast<double>(k), 900.0);
  }
  double BySorting(bool counted) const {
    return elements * (counted ? 2.5 * static_cast<double>(n) : 600);
  }
};

// The first k positions in order of rows [..., n].
Tensor FirstOf(const Tensor& rows, int64_t k, bool descending) {
  const int last = rows.rank() - 1;
  const Extent& n = rows.shape()[last];
  const auto sorted = [&] { return SortedIndex(rows, last, descending).SliceAxis(last, {0, k}); };
  if (k == 0 || !n.is_int() || n.value() <= kCounted || n.value() > INT32_MAX) return sorted();
  const bool counted = IsFewComparisons(rows, last);
  const WorkOfFirst work{static_cast<double>(rows.shape().MaxElements()), n.value(), k};
  const double by_sorting = work.BySorting(counted);
  // Blocks are told apart by one number of order and position, and lie on one place.
  const bool whole = rows.dtype().bytes() < 8 && IsWhole(rows, last);
  const bool fits = k <= n.value() / kBlocksPerFound && n.value() <= INT32_MAX / 2;
  const double by_blocks = whole && fits ? work.ByBlocks() : by_sorting;
  if (k == 1 || (k <= kMostOneByOne && work.OneByOne() <= std::min(by_blocks, by_sorting))) {
    return OneByOne(rows, k, descending);
  }
  const bool wide = rows.dtype().bytes() == 8;
  if (IsWhole(rows, last) && work.ByLast(wide) < std::min(by_blocks, by_sorting)) {
    return FirstByLast(rows, k, descending);
  }
  return by_blocks < by_sorting ? FirstByBlocks(rows, k, descending) : sorted();
}

}  // namespace

ValuesAndIndices Tensor::Sort(int axis, bool descending, CallSite at) const {
  Call call("Sort", at, *this);
  return SortedBy(*this, axis, descending);
}

Tensor Tensor::ArgSort(int axis, bool descending, CallSite at) const {
  Call call("ArgSort", at, *this);
  return SortedBy(*this, axis, descending).indices;
}

ValuesAndIndices Tensor::TopK(int64_t k, int axis, bool largest, CallSite at) const {
  Call call("TopK", at, *this);
  const int a = AxisAlong(axis, rank());
  const Extent extent = ExtentAlong(*this, a);
  const int64_t n = extent.min();
  if (k < 0 || k > n) Fail("cannot take ", k, " of the ", n, " elements of ", Show(*this));
  if (rank() == 0) {
    const ValuesAndIndices of_one = AtLeast(1).TopK(k, a, largest);
    return k == 0 ? of_one : internal::AsElement(of_one);
  }
  return PairAlong(*this, a, [&](const Tensor& x) -> std::vector<Tensor> {
    const Tensor first = FirstOf(x.Transpose(a, -1), k, largest).Transpose(a, -1);
    return {internal::CutAs(x.Gather(a, first), *this), internal::CutAs(first, *this)};
  });
}

namespace {
constexpr int64_t kFewToCompare = 64;  // with each of which every value is compared
}

Tensor Tensor::SearchSorted(const Tensor& values, bool right, CallSite at) const {
  Call call("SearchSorted", at, *this, values);
  bool fits = rank() == 1 || (rank() > 1 && rank() == values.rank());
  for (int i = 0; fits && i + 1 < rank(); ++i) fits = shape()[i] == values.shape()[i];
  if (!fits) {
    Fail(Show(*this), " must be a vector, or agree with ", Show(values),
         " on all axes but the last");
  }
  const DType type = internal::CommonType(*this, values);
  const auto before = [right](const Tensor& x, const Tensor& y) { return right ? x <= y : x < y; };
  const Extent& n = shape()[rank() - 1];
  const auto of = [&](const std::vector<Tensor>& sources) -> std::vector<Tensor> {
    const Tensor in_order = OrderOf(sources[0].Cast(type), false);
    const Tensor wanted = OrderOf(sources[1].Cast(type), false);
    if (!n.is_int() || n.value() <= kFewToCompare || !IsWhole(sources[0], rank() - 1)) {
      const Tensor own = rank() == 1 ? in_order : in_order.Unsqueeze(-2);
      return {before(own, wanted.Unsqueeze(-1)).Cast(kInt32).Sum(-1)};
    }
    // How many come before, found from the highest bit down.
    const int64_t last = n.value() - 1;
    Tensor count = wanted.ZerosLike(kInt32);
    auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n.value())));
    for (; step > 0; step /= 2) {
      const Tensor index = (count + (step - 1)).Minimum(last);
      const Tensor there = rank() == 1 ? in_order.Take(index) : in_order.Gather(-1, index);
      count = Where((count + step <= n.value()) & before(there, wanted), count + step, count);
    }
    return {count};
  };
  return internal::AlongAxis({*this, values}, rank() - 1, of)[0];
}

}  // namespace tessera
