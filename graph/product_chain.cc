// Recognising chained products.
#include "graph/product_chain.h"

#include <algorithm>
#include <bit>

#include "graph/kernel_form.h"
#include "graph/matrix_unit.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

bool IsProduct(const UOp& u) {
  return u.is(Op::kReduce) && u.arg<ReduceArg>().op == Op::kAdd && u.src(0).is(Op::kMul) &&
         u.dtype().IsFloat();
}

std::vector<UOp> Reductions(const UOp& value) {
  std::vector<UOp> out;
  for (const UOp& u : TopoSort({&value, 1})) {
    if (u.is(Op::kReduce)) out.push_back(u);
  }
  return out;
}

}  // namespace

std::optional<ProductChain> FindProductChain(const RangeSets& sets) {
  const UOp& sink = sets.order().back();
  if (!sink.is(Op::kSink) || sink.size() != 1) return std::nullopt;
  const UOp& store = sink.src(0);
  const std::vector<UOp> top = TopReductions(store.src(1));
  if (top.size() != 1 || !IsProduct(top[0])) return std::nullopt;
  ProductChain c;
  c.second = top[0];
  c.weights = UOp(c.second.src(0).src(0));
  c.values = UOp(c.second.src(0).src(1));
  std::vector<UOp> below = Reductions(c.weights);
  if (below.empty()) {
    std::swap(c.weights, c.values);
    below = Reductions(c.weights);
  }
  if (!Reductions(c.values).empty()) return std::nullopt;
  c.inner.assign(ClosedRanges(c.second).begin(), ClosedRanges(c.second).end());
  const RangeMask inner = sets.Closed(c.second);
  bool whole_rows = false;  // whether something reduces what the second sums over
  for (const UOp& u : below) {
    if (sets.Closed(u) == inner && !(sets.Free(u) & inner)) {
      whole_rows = true;
    } else if (IsProduct(u) && !c.first && (sets.Free(u) & inner) == inner) {
      c.first = u;
    } else {
      return std::nullopt;
    }
  }
  if (!c.first || !whole_rows || Reductions(c.first).size() != 1) return std::nullopt;
  const RangeMask weights = sets.Free(c.weights), values = sets.Free(c.values);
  for (const UOp& r : ClosedRanges(store)) {
    const bool in_weights{weights & sets.Bit(r)}, in_values{values & sets.Bit(r)};
    (in_weights == in_values ? c.batch : in_weights ? c.rows : c.columns).push_back(r);
  }
  if (c.columns.empty()) return std::nullopt;
  return c;
}

namespace {

constexpr int64_t kLeastRows = 16, kLeastKeys = 32, kLeastSteps = 8;
constexpr int64_t kMostSteps = 256, kMostColumns = 128;
constexpr int64_t kScoreBytes = 4, kVectorBytes = 16;  // of a score, and between rows of a tile

RangeMask MaskOf(const std::vector<UOp>& ranges, const RangeSets& sets) {
  RangeMask mask = 0;
  for (const UOp& r : ranges) mask |= sets.Bit(r);
  return mask;
}

// How wide the elements of a product's operands are in scratch: as a matrix unit takes them.
struct Widths {
  int64_t first = kScoreBytes, second = kScoreBytes;
  bool first_by_unit = false;
};

Widths WidthsOf(const ProductChain& c, const ChainTile& t, const Target& target) {
  Widths out;
  if (const MatrixShape* unit = UnitOf(target, c.first.dtype(), {t.queries, t.key})) {
    out.first = unit->operand.bytes();
    out.first_by_unit = true;
  }
  if (const MatrixShape* unit = UnitOf(target, c.second.dtype(), {c.weights, c.values})) {
    out.second = unit->operand.bytes();
  }
  return out;
}

// Bytes of the rows' operand, of the tiles of keys, scores, weights and values, and of the scores
// and keys once more, as what is freed may lie apart.
int64_t BytesOf(const ChainTile& t, const Widths& width) {
  const auto tile = [](int64_t n, int64_t m, int64_t bytes) {  // either way round
    return n * m * bytes + std::max(n, m) * kVectorBytes;
  };
  const int64_t kept = tile(t.rows, t.steps, width.first) + 2 * ChainTile::kThreads * kVectorBytes;
  const int64_t scores =
      tile(t.keys, t.steps, width.first) + t.rows * (t.keys * kScoreBytes + 2 * kVectorBytes);
  const int64_t product =
      tile(t.rows, t.keys, width.second) + tile(t.keys, t.columns, width.second);
  return kept + 2 * scores + product;
}

}  // namespace

std::optional<ChainTile> ChainTileFor(const ProductChain& c, const RangeSets& sets,
                                      const Target& target) {
  if (target.max_threads < ChainTile::kThreads) return std::nullopt;
  if (!(c.first.dtype() == kFloat32) || !(c.second.dtype() == kFloat32)) return std::nullopt;
  const RangeMask row_mask = MaskOf(c.rows, sets), key_mask = MaskOf(c.inner, sets);
  ChainTile t;
  for (const UOp& operand : c.first.src(0).srcs()) {
    const bool by_rows{sets.Free(operand) & row_mask}, by_keys{sets.Free(operand) & key_mask};
    if (by_rows != by_keys) (by_rows ? t.queries : t.key) = operand;
  }
  if (!t.queries || !t.key) return std::nullopt;
  for (const UOp& r : ClosedRanges(c.first)) {
    if (!r.src(0).IsConst()) return std::nullopt;
  }
  bool adjacent = false;  // the columns, in the result
  for (const Sum sum = ToSum(sets.order().back().src(0).src(0).src(1));
       const auto& term : sum.terms) {
    const bool column = std::find(c.columns.begin(), c.columns.end(), term.term) != c.columns.end();
    adjacent |= column && term.factor == 1;
  }
  const int64_t rows = sets.Iterations(row_mask), keys = sets.Iterations(key_mask);
  const int64_t columns = sets.Iterations(MaskOf(c.columns, sets));
  const int64_t steps = sets.Iterations(sets.Closed(c.first));
  if (!adjacent || rows < kLeastRows || keys < kLeastKeys || steps < kLeastSteps ||
      steps > kMostSteps || columns > 2 * kMostColumns) {
    return std::nullopt;
  }
  const auto power = [](int64_t n) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
  };
  t.steps = std::max<int64_t>(16, power(steps));
  t.columns = std::clamp<int64_t>(power(columns), 64, kMostColumns);
  // Many rows read keys least often; fewer, where there would be too few blocks for all cores.
  const int64_t blocks = (rows + 63) / 64 * sets.Iterations(MaskOf(c.batch, sets));
  const bool many = rows > 32 && blocks >= target.cores;
  const Widths width = WidthsOf(c, t, target);
  const auto fits = [&](int64_t of_rows, int64_t of_keys) {
    t.rows = of_rows;
    t.keys = of_keys;
    return BytesOf(t, width) <= target.shared_bytes;
  };
  if (many && fits(64, 32)) return t;
  if (fits(32, 64)) return t;
  // With a matrix unit each warp has scores of 16 keys at least.
  if (!width.first_by_unit && fits(32, 32)) return t;
  return std::nullopt;
}

}  // namespace tessera
