// Rows of what reduces, runs along an axis, moves and indexes, over rows of four elements.
#include "tests/support/dtype_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tessera {

bool IsTaken(Takes takes, DType t) {
  switch (takes) {
    case Takes::kAll:
      return true;
    case Takes::kNumbers:
      return !t.IsBool();
    case Takes::kIntegers:
      return t.IsInt();
    case Takes::kBits:
      return !t.IsFloat();
    case Takes::kFloats:
      return t.IsFloat();
  }
  return false;
}

std::vector<DType> AllDTypes() {
  return {kBool,   kInt8,       kInt16,      kInt32,   kInt64,    kUInt8,   kUInt16, kUInt32,
          kUInt64, kFloat8E4M3, kFloat8E5M2, kFloat16, kBFloat16, kFloat32, kFloat64};
}

Numbers DTypeInput(DType t, int which) {
  if (t.IsBool())
    return which == 0 ? Numbers{0, 1, 1, 0, 1, 0, 0, 1} : Numbers{1, 0, 1, 1, 0, 0, 1, 1};
  if (which == 1) return {1, 2, 3, 4, 1, 2, 3, 1};
  if (t.IsUnsigned()) return {3, 0, 2, 5, 7, 1, 4, 6};
  return {3, -2, 0, 2, -3, 1, 4, -1};
}

namespace {

constexpr size_t kRow = 4;

DType Same(DType t) { return t; }
DType Float(DType t) { return t.IsFloat() ? t : kFloat32; }
DType Bool(DType) { return kBool; }
DType I32(DType) { return kInt32; }

using Loop = std::function<Numbers(const Numbers&, const Numbers&)>;
using OfRow = std::function<Numbers(const Numbers&)>;

// What f makes of each row of x.
Loop Rows(OfRow f) {
  return [f](const Numbers& x, const Numbers&) {
    Numbers out;
    for (size_t i = 0; i < x.size(); i += kRow) {
      const Numbers made = f(Numbers(x.begin() + i, x.begin() + i + kRow));
      out.insert(out.end(), made.begin(), made.end());
    }
    return out;
  };
}
Loop OneOfRow(std::function<double(const Numbers&)> f) {
  return Rows([f](const Numbers& r) { return Numbers{f(r)}; });
}

// Elements of x by position; 0 for -1.
Loop Picked(std::vector<int> from) {
  return [from](const Numbers& x, const Numbers&) {
    Numbers out;
    for (int i : from) out.push_back(i < 0 ? 0 : x[i]);
    return out;
  };
}

double SumOf(const Numbers& r) { return std::accumulate(r.begin(), r.end(), 0.0); }
double MeanOf(const Numbers& r) { return SumOf(r) / static_cast<double>(r.size()); }
double MaxOf(const Numbers& r) { return *std::max_element(r.begin(), r.end()); }
double MinOf(const Numbers& r) { return *std::min_element(r.begin(), r.end()); }
double VarOf(const Numbers& r) {
  double sum = 0;
  for (double v : r) sum += (v - MeanOf(r)) * (v - MeanOf(r));
  return sum / static_cast<double>(r.size() - 1);
}
double LogSumExpOf(const Numbers& r) {
  double sum = 0;
  for (double v : r) sum += std::exp(v);
  return std::log(sum);
}
double Product(const Numbers& r) {
  return std::accumulate(r.begin(), r.end(), 1.0, [](double a, double b) { return a * b; });
}
double NonZeros(const Numbers& r) {
  return static_cast<double>(r.size()) - static_cast<double>(std::count(r.begin(), r.end(), 0));
}
double PlaceOf(const Numbers& r, double v) {
  return static_cast<double>(std::find(r.begin(), r.end(), v) - r.begin());
}
Numbers InOrder(Numbers r) {
  std::sort(r.begin(), r.end());
  return r;
}
Numbers PlacesInOrder(const Numbers& r) {
  Numbers out(r.size());
  std::iota(out.begin(), out.end(), 0);
  std::stable_sort(out.begin(), out.end(),
                   [&](double a, double b) { return r[size_t(a)] < r[size_t(b)]; });
  return out;
}
template <typename F>
Numbers Running(const Numbers& r, F f) {
  Numbers out;
  for (double v : r) out.push_back(out.empty() ? v : f(out.back(), v));
  return out;
}

#define ROW(function, call, gives, takes, ...)                                                   \
  rows.push_back({#function, [](const Tensor& x, const Tensor& y) { return call; }, __VA_ARGS__, \
                  gives, Takes::takes})

void AddReduced(std::vector<DTypeRow>& rows) {
  ROW(Sum, x.Sum(1), SumType, kAll, OneOfRow(SumOf));
  ROW(Prod, x.Prod(1), SumType, kAll, OneOfRow(Product));
  ROW(Mean, x.Mean(1), Float, kAll, OneOfRow(MeanOf));
  ROW(Max, x.Max(1), Same, kAll, OneOfRow(MaxOf));
  ROW(Min, x.Min(1), Same, kAll, OneOfRow(MinOf));
  ROW(Any, x.Any(1), Bool, kAll, OneOfRow([](const Numbers& r) { return NonZeros(r) > 0; }));
  ROW(All, x.All(1), Bool, kAll, OneOfRow([](const Numbers& r) { return NonZeros(r) == kRow; }));
  ROW(Var, x.Var(1), Float, kAll, OneOfRow(VarOf));
  ROW(Std, x.Std(1), Float, kAll, OneOfRow([](const Numbers& r) { return std::sqrt(VarOf(r)); }));
  ROW(Norm, x.Norm(2, 1), Float, kAll, OneOfRow([](const Numbers& r) {
        double sum = 0;
        for (double v : r) sum += v * v;
        return std::sqrt(sum);
      }));
  ROW(CountNonzero, x.CountNonzero(1), I32, kAll, OneOfRow(NonZeros));
  ROW(NanSum, x.NanSum(1), SumType, kAll, OneOfRow(SumOf));
  ROW(NanProd, x.NanProd(1), SumType, kAll, OneOfRow(Product));
  ROW(NanMean, x.NanMean(1), Float, kAll, OneOfRow(MeanOf));
  ROW(NanVar, x.NanVar(1), Float, kAll, OneOfRow(VarOf));
  ROW(NanMax, x.NanMax(1), Same, kAll, OneOfRow(MaxOf));
  ROW(NanMin, x.NanMin(1), Same, kAll, OneOfRow(MinOf));
  ROW(Ptp, x.Ptp(1), Same, kNumbers,
      OneOfRow([](const Numbers& r) { return MaxOf(r) - MinOf(r); }));
  ROW(LogSumExp, x.LogSumExp(1), Float, kAll, OneOfRow(LogSumExpOf));
  ROW(Softmax, x.Softmax(1), Float, kAll, Rows([](const Numbers& r) {
        Numbers out;
        for (double v : r) out.push_back(std::exp(v - LogSumExpOf(r)));
        return out;
      }));
  ROW(Rfft, x.Rfft(), Float, kAll, Rows([](const Numbers& r) -> Numbers {
        return {SumOf(r), 0, r[0] - r[2], r[3] - r[1], r[0] - r[1] + r[2] - r[3], 0};
      }));
  ROW(LogSoftmax, x.LogSoftmax(1), Float, kAll, Rows([](const Numbers& r) {
        Numbers out;
        for (double v : r) out.push_back(v - LogSumExpOf(r));
        return out;
      }));
  ROW(ArgMax, x.ArgMax(1), I32, kAll,
      OneOfRow([](const Numbers& r) { return PlaceOf(r, MaxOf(r)); }));
  ROW(ArgMin, x.ArgMin(1), I32, kAll,
      OneOfRow([](const Numbers& r) { return PlaceOf(r, MinOf(r)); }));
  ROW(Hardmax, x.Hardmax(1), Same, kAll, Rows([](const Numbers& r) {
        Numbers out(kRow, 0);
        out[size_t(PlaceOf(r, MaxOf(r)))] = 1;
        return out;
      }));
  ROW(LayerNorm, x.LayerNorm({}, {}, 0.25), Float, kAll, Rows([](const Numbers& r) {
        Numbers out;
        const double scale = std::sqrt(VarOf(r) * 3 / 4 + 0.25);
        for (double v : r) out.push_back((v - MeanOf(r)) / scale);
        return out;
      }));
}

void AddOrdered(std::vector<DTypeRow>& rows) {
  ROW(CumSum, x.CumSum(1), SumType, kAll,
      Rows([](const Numbers& r) { return Running(r, [](double a, double b) { return a + b; }); }));
  ROW(CumProd, x.CumProd(1), SumType, kAll,
      Rows([](const Numbers& r) { return Running(r, [](double a, double b) { return a * b; }); }));
  ROW(CumMax, x.CumMax(1).values, Same, kNumbers, Rows([](const Numbers& r) {
        return Running(r, [](double a, double b) { return std::fmax(a, b); });
      }));
  ROW(CumMin, x.CumMin(1).values, Same, kNumbers, Rows([](const Numbers& r) {
        return Running(r, [](double a, double b) { return std::fmin(a, b); });
      }));
  ROW(LogCumSumExp, x.LogCumSumExp(1), Float, kAll, Rows([](const Numbers& r) {
        return Running(r, [](double a, double b) { return LogSumExpOf({a, b}); });
      }));
  ROW(Diff, x.Diff(), Same, kAll, Rows([](const Numbers& r) {
        return Numbers{r[1] - r[0], r[2] - r[1], r[3] - r[2]};
      }));
  ROW(Sort, x.Sort(1).values, Same, kAll, Rows(InOrder));
  ROW(ArgSort, x.ArgSort(1), I32, kAll, Rows(PlacesInOrder));
  ROW(TopK, x.TopK(2).values, Same, kAll, Rows([](const Numbers& r) {
        return Numbers{InOrder(r)[3], InOrder(r)[2]};
      }));
  ROW(KthValue, x.KthValue(2).values, Same, kAll,
      OneOfRow([](const Numbers& r) { return InOrder(r)[1]; }));
  ROW(Median, x.Median().values, Same, kAll,
      OneOfRow([](const Numbers& r) { return InOrder(r)[1]; }));
  ROW(NanMedian, x.NanMedian().values, Same, kAll,
      OneOfRow([](const Numbers& r) { return InOrder(r)[1]; }));
  ROW(Quantile, x.Quantile(0.5, 1), Float, kAll,
      OneOfRow([](const Numbers& r) { return (InOrder(r)[1] + InOrder(r)[2]) / 2; }));
  ROW(SearchSorted, x.Sort(1).values.SearchSorted(y), I32, kAll,
      [](const Numbers& x, const Numbers& y) {
        Numbers out;
        for (size_t i = 0; i < y.size(); ++i) {
          const auto row = x.begin() + static_cast<int64_t>(i / kRow * kRow);
          out.push_back(static_cast<double>(
              std::count_if(row, row + kRow, [&](double v) { return v < y[i]; })));
        }
        return out;
      });
  ROW(IsIn, x.IsIn(y), Bool, kAll, [](const Numbers& x, const Numbers& y) {
    Numbers out;
    for (double v : x) out.push_back(std::count(y.begin(), y.end(), v) > 0);
    return out;
  });
}

void AddMoved(std::vector<DTypeRow>& rows) {
  ROW(Reshape, x.Reshape({4, 2}), Same, kAll, Picked({0, 1, 2, 3, 4, 5, 6, 7}));
  ROW(Transpose, x.Transpose(), Same, kAll, Picked({0, 4, 1, 5, 2, 6, 3, 7}));
  ROW(Flip, x.Flip({0, 1}), Same, kAll, Picked({7, 6, 5, 4, 3, 2, 1, 0}));
  ROW(Slice, x.Slice({Slice{}, Slice{3, 0, -2}}), Same, kAll, Picked({3, 1, 7, 5}));
  ROW(Pad, x.Pad({{0, 0}, {1, 0}}), Same, kAll, Picked({-1, 0, 1, 2, 3, -1, 4, 5, 6, 7}));
  ROW(PadBy, x.PadBy(PadMode::kReflect, {{0, 0}, {1, 0}}), Same, kAll,
      Picked({1, 0, 1, 2, 3, 5, 4, 5, 6, 7}));
  ROW(Roll, x.Roll(1, 1), Same, kAll, Picked({3, 0, 1, 2, 7, 4, 5, 6}));
  ROW(Expand, x.Select(0, 1).Expand({2, 4}), Same, kAll, Picked({4, 5, 6, 7, 4, 5, 6, 7}));
  ROW(Repeat, x.Select(1, 1).Repeat({2}), Same, kAll, Picked({1, 5, 1, 5}));
  ROW(RepeatInterleave, x.Select(1, 1).RepeatInterleave(2, 0), Same, kAll, Picked({1, 1, 5, 5}));
  ROW(Tril, x.Tril(), Same, kAll, Picked({0, -1, -1, -1, 4, 5, -1, -1}));
  ROW(Triu, x.Triu(), Same, kAll, Picked({0, 1, 2, 3, -1, 5, 6, 7}));
  ROW(Diagonal, x.Diagonal(1), Same, kAll, Picked({1, 6}));
  ROW(DiagEmbed, x.Select(1, 0).DiagEmbed(), Same, kAll, Picked({0, -1, -1, 4}));
  ROW(Unfold, x.Unfold(1, 3), Same, kAll, Picked({0, 1, 2, 1, 2, 3, 4, 5, 6, 5, 6, 7}));
  ROW(Cat, Cat({x, x.Flip(0)}), Same, kAll,
      Picked({0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 0, 1, 2, 3}));
  ROW(Stack, Stack({x.Select(0, 1), x.Select(0, 0)}, 1), Same, kAll,
      Picked({4, 0, 5, 1, 6, 2, 7, 3}));
}

void AddIndexed(std::vector<DTypeRow>& rows) {
  ROW(Take, x.Take(Tensor::From({3, 7, 0}), 1), Same, kAll, Picked({3, -1, 0, 7, -1, 4}));
  ROW(Gather, x.Gather(1, Tensor::From({{2}, {1}})), Same, kAll, Picked({2, 5}));
  ROW(GatherND, x.GatherND(Tensor::From({{1, 2}, {0, 0}})), Same, kAll, Picked({6, 0}));
  ROW(IndexSelect, x.IndexSelect(0, Tensor::From({1})), Same, kAll, Picked({4, 5, 6, 7}));
  ROW(Scatter, x.Scatter(1, Tensor::From({{2}, {1}}), x.SliceAxis(1, {0, 1})), Same, kAll,
      Picked({0, 1, 0, 3, 4, 4, 6, 7}));
  ROW(IndexCopy, x.IndexCopy(0, Tensor::From({1}), x.SliceAxis(0, {0, 1})), Same, kAll,
      Picked({0, 1, 2, 3, 0, 1, 2, 3}));
  ROW(ScatterAdd, x.ScatterAdd(1, Tensor::From({{2}, {1}}), x.SliceAxis(1, {0, 1})), Same, kAll,
      [](Numbers x, const Numbers&) {
        x[2] += x[0];
        x[5] += x[4];
        return x;
      });
  ROW(MaskedSelect, x.MaskedSelect(y > 1, 4), Same, kAll, [](const Numbers& x, const Numbers& y) {
    Numbers out;
    for (size_t i = 0; i < x.size(); ++i) {
      if (y[i] > 1) out.push_back(x[i]);
    }
    out.resize(4, 0);
    return out;
  });
  ROW(NonZero, x.NonZero(3), I32, kAll, [](const Numbers& x, const Numbers&) {
    Numbers out;
    for (size_t i = 0; i < x.size() && out.size() < 6; ++i) {
      if (x[i] == 0) continue;
      out.push_back(static_cast<double>(i / kRow));
      out.push_back(static_cast<double>(i % kRow));
    }
    return out;
  });
  ROW(
      OneHot, y.OneHot(4), [](DType) { return kFloat32; }, kIntegers,
      [](const Numbers&, const Numbers& y) {
        Numbers out;
        for (double v : y) {
          for (int i = 0; i < 4; ++i) out.push_back(v == i);
        }
        return out;
      });
  ROW(BinCount, y.Flatten().BinCount(3), I32, kIntegers, [](const Numbers&, const Numbers& y) {
    Numbers out;
    for (int i = 0; i < 3; ++i)
      out.push_back(static_cast<double>(std::count(y.begin(), y.end(), i)));
    return out;
  });
}

void AddProducts(std::vector<DTypeRow>& rows) {
  const Loop product = [](const Numbers& x, const Numbers& y) {
    Numbers out(4, 0);
    for (size_t i = 0; i < 4; ++i) {
      for (size_t k = 0; k < kRow; ++k) out[i] += x[i / 2 * kRow + k] * y[i % 2 * kRow + k];
    }
    return out;
  };
  ROW(MatMul, x.MatMul(y.T()), SumType, kAll, product);
  ROW(Linear, x.Linear(y), SumType, kAll, product);
  ROW(Einsum, Einsum("ik,jk->ij", {x, y}), SumType, kAll, product);
  ROW(Inner, x.Inner(y), SumType, kAll, product);
  ROW(Conv, x.Unsqueeze(1).Conv(y.Unsqueeze(1)), SumType, kAll, product);
  ROW(MaxPool, x.Unsqueeze(0).MaxPool({.size = {4}}), Same, kAll, OneOfRow(MaxOf));
  ROW(AvgPool, x.Unsqueeze(0).AvgPool({.size = {4}}), Float, kAll, OneOfRow(MeanOf));
}

}  // namespace

std::vector<DTypeRow> DTypeRows() {
  std::vector<DTypeRow> rows;
  AddElementwiseRows(rows);
  AddReduced(rows);
  AddOrdered(rows);
  AddMoved(rows);
  AddIndexed(rows);
  AddProducts(rows);
  return rows;
}

}  // namespace tessera
