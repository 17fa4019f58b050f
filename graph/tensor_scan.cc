// Running sums, products and extremes along an axis.
//
// Each result combines a window over the identity and what comes before it. A long axis is cut into
// blocks, which are combined with all that earlier blocks come to; the depth of that recursion is
// the logarithm of the extent.
#include <algorithm>

#include "graph/tensor.h"
#include "graph/tensor_along.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;
using internal::NormalAxis;
using internal::Show;

namespace {

// An associative operation: over the last axis, of two tensors, and what changes nothing in it.
struct Fold {
  Tensor (*over)(const Tensor& windows);
  Tensor (*of_two)(const Tensor& a, const Tensor& b);
  Number identity;
  // Where `over` is one reduction, that of the next window goes on from it
  // (schedule/keep_running.cc), and a block is one pass. Else windows would each be computed by
  // themselves: they double in length instead, a pass for each time.
  bool one_reduction = true;
  // Its derivative is that of the latter way, in which each element is in few combinations: by the
  // former each is in a whole block of windows.
  bool derives_doubled = false;
};

Tensor PadLast(const Tensor& t, int64_t before, int64_t after, Number value) {
  Pairs pairs(t.rank(), {0, 0});
  pairs.back() = {before, after};
  return t.Pad(pairs, value);
}

constexpr int64_t kRunningBlock = 512;
// Whole rows occupy a device where there are as many, and are one pass.
constexpr int64_t kManyRows = 1024, kLongestRow = 8192;

// Along the last axis, the windows that end at each element: of twice as many with every pass.
Tensor Doubled(const Tensor& x, const Fold& fold) {
  const int last = x.rank() - 1;
  const int64_t n = x.size(last);
  Tensor out(x.uop());
  for (int64_t length = 1; length < n; length *= 2) {
    const Tensor before = PadLast(out.SliceAxis(last, {0, n - length}), length, 0, fold.identity);
    out = fold.of_two(before, out).Contiguous();
  }
  return out;
}

// Along the last axis.
Tensor Running(const Tensor& x, const Fold& fold) {
  const int last = x.rank() - 1;
  const int64_t n = x.size(last);
  const bool many =
      fold.one_reduction && n <= kLongestRow && x.shape().MaxElements() >= n * kManyRows;
  if (n <= 2 * kRunningBlock || many) {
    if (n <= 1) return Tensor(x.uop());
    if (!fold.one_reduction) return Doubled(x, fold);
    return fold.over(PadLast(x, n - 1, 0, fold.identity).Window(last, {n}));
  }
  const int64_t blocks = (n + kRunningBlock - 1) / kRunningBlock;
  const Tensor padded = PadLast(x, 0, blocks * kRunningBlock - n, fold.identity);
  const Tensor within = Running(padded.Unflatten(last, {blocks, kRunningBlock}), fold);
  // Laid out by themselves: windows over them are read many times.
  const Tensor totals = Running(within.Select(-1, kRunningBlock - 1).Contiguous(), fold);
  const Tensor before = PadLast(totals.SliceAxis(last, {0, blocks - 1}), 1, 0, fold.identity);
  return fold.of_two(before.Unsqueeze(-1), within).Flatten(last).SliceAxis(last, {0, n});
}

// Of an extent that varies: each result folds all elements, with the identity in place of those
// that do not count.
Tensor Masked(const Tensor& x, const Fold& fold, const ScanOptions& o) {
  const int rank = x.rank();
  const Extent n = x.shape()[rank - 1];
  const Tensor i = CountAlong(rank - 1, rank + 1, n, kInt64);
  const Tensor j = CountAlong(rank, rank + 1, n, kInt64);
  const Tensor before = o.reverse ? j > i : j < i;
  const Tensor counts = o.exclusive ? before : before | (i == j);
  const Tensor identity(internal::NumberAs(fold.identity, x.dtype()));
  return fold.over(Where(counts, x.Unsqueeze(-2), identity));
}

Tensor OnAxis(const Tensor& x, int a, const Fold& fold, const ScanOptions& o) {
  Tensor t = x.Transpose(a, -1);
  if (!t.shape()[t.rank() - 1].is_int()) return Masked(t, fold, o).Transpose(a, -1);
  if (o.reverse) t = t.Flip(-1);
  if (o.exclusive && t.size(-1) > 0) {
    t = PadLast(t.SliceAxis(-1, {0, t.size(-1) - 1}), 1, 0, fold.identity);
  }
  t = Running(t, fold);
  if (o.reverse) t = t.Flip(-1);
  return t.Transpose(a, -1);
}

Tensor Along(const Tensor& x, int axis, const Fold& fold, const ScanOptions& o = {}) {
  const int a = internal::AxisAlong(axis, x.rank());
  if (x.rank() == 0) {
    return internal::OfElement(x, [&](const Tensor& one) { return Along(one, a, fold, o); });
  }
  return internal::AlongAxis({x}, a,
                             [&](const std::vector<Tensor>& sources) -> std::vector<Tensor> {
                               return {internal::CutAs(OnAxis(sources[0], a, fold, o), x)};
                             })[0];
}

// In the type that sums and products accumulate in.
Tensor Accumulated(const Tensor& x, int axis, const Fold& fold, const ScanOptions& o) {
  const DType result = SumType(x.dtype());
  const Tensor wide = x.Cast(AccumulateType(result)), out = Along(wide, axis, fold, o);
  if (!fold.derives_doubled || !result.IsFloat() || !x.shape().is_static()) return out.Cast(result);
  Fold doubled = fold;
  doubled.one_reduction = false;
  const auto derived = [&] { return Along(wide, axis, doubled, o); };
  return internal::DerivedBy(out, derived).Cast(result);
}

Number AsNumber(tessera::Scalar value, DType dtype) {
  if (dtype.IsFloat()) return value.AsFloat();
  if (dtype.IsBool()) return value.bits != 0;
  return dtype.IsUnsigned() ? Number(value.bits) : Number(value.AsInt());
}

// An element attains the running extreme where it equals it; the last that did holds it still.
ValuesAndIndices Extreme(const Tensor& x, int axis, bool max) {
  if (x.dtype().IsBool()) Fail("takes numbers, not ", Show(x), "; cast it to u8");
  const int a = internal::AxisAlong(axis, x.rank());
  if (x.rank() == 0) {
    return internal::OfElement(x, [&](const Tensor& one) { return Extreme(one, a, max); });
  }
  const DType type = x.dtype();
  Fold fold;
  fold.identity = AsNumber(max ? LowestScalar(type) : HighestScalar(type), type);
  if (max) {
    fold.over = [](const Tensor& w) { return w.Max(-1); };
    fold.of_two = [](const Tensor& a, const Tensor& b) { return a.Maximum(b); };
  } else {
    fold.over = [](const Tensor& w) { return w.Min(-1); };
    fold.of_two = [](const Tensor& a, const Tensor& b) { return a.Minimum(b); };
  }
  const Tensor values = Along(x, a, fold);
  Tensor attains = x == values;
  if (type.IsFloat()) attains = attains | x.IsNan();
  const DType index = internal::IndexType(x.shape()[a]);
  const Tensor position = CountAlong(a, x.rank(), x.shape()[a], index);
  const Fold latest = {[](const Tensor& w) { return w.Max(-1); },
                       [](const Tensor& p, const Tensor& q) { return p.Maximum(q); },
                       AsNumber(LowestScalar(index), index)};
  const Tensor indices = Along(Where(attains, position, 0), a, latest);
  if (!type.IsFloat()) return {values, indices};
  return {internal::DerivedBy(values, [&] { return x.Gather(a, indices); }), indices};
}

}  // namespace

Tensor Tensor::CumSum(int axis, CallSite at) const { return CumSum(axis, ScanOptions(), at); }

Tensor Tensor::CumSum(int axis, const ScanOptions& o, CallSite at) const {
  Call call("CumSum", at, *this);
  return Accumulated(*this, axis,
                     {[](const Tensor& w) { return w.Sum(-1); },
                      [](const Tensor& a, const Tensor& b) { return a + b; }, 0},
                     o);
}

Tensor Tensor::CumProd(int axis, const ScanOptions& o, CallSite at) const {
  Call call("CumProd", at, *this);
  return Accumulated(*this, axis,
                     {[](const Tensor& w) { return w.Prod(-1); },
                      [](const Tensor& a, const Tensor& b) { return a * b; }, 1,
                      /*one_reduction=*/true, /*derives_doubled=*/true},
                     o);
}

ValuesAndIndices Tensor::CumMax(int axis, CallSite at) const {
  Call call("CumMax", at, *this);
  return Extreme(*this, axis, /*max=*/true);
}

ValuesAndIndices Tensor::CumMin(int axis, CallSite at) const {
  Call call("CumMin", at, *this);
  return Extreme(*this, axis, /*max=*/false);
}

Tensor Tensor::LogCumSumExp(int axis, CallSite at) const {
  Call call("LogCumSumExp", at, *this);
  const Tensor sums = Along(internal::WideFloat(*this), axis,
                            {[](const Tensor& w) { return w.LogSumExp(-1); },
                             [](const Tensor& a, const Tensor& b) { return a.LogAddExp(b); },
                             LowestScalar(kFloat64).AsFloat(), /*one_reduction=*/false});
  return sums.Cast(internal::FloatResult(dtype()));
}

Tensor Tensor::Diff(int n, int axis, CallSite at) const {
  Call call("Diff", at, *this);
  if (n < 0) Fail("cannot be taken ", n, " times");
  Tensor t(uop());
  if (n == 0) return t;
  const int a = NormalAxis(axis, rank());
  for (int i = 0; i < n && t.shape()[a].max() > 0; ++i) {
    const Tensor later = internal::AllButFirst(t, a), earlier = internal::AllButLast(t, a);
    t = dtype().IsBool() ? later.LogicalXor(earlier) : later - earlier;
  }
  return t;
}

}  // namespace tessera
