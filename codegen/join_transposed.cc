// Blocks that are loaded by rows and stored, or used, by columns turn in registers.
#include <algorithm>
#include <bit>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "codegen/passes.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

// A STORE of one lane of a vector, or one lane's part of a STORE of some adjacent ones.
struct LaneStore {
  int place = 0;  // among the stores
  UOp vector;
  int64_t lane = 0;
  int64_t offset = 0;         // beyond what it shares with the others of its block
  size_t stored = 1, at = 0;  // so many lanes at once, of which it is that one
};

// What stores of one block share: pointer, index but for a constant, dtype, loops, and whether
// others store the same elements.
std::string BlockKey(const UOp& store, const Sum& sum) {
  std::string key;
  const auto add = [&](const void* p) { key.append(reinterpret_cast<const char*>(&p), sizeof(p)); };
  add(store.src(0).src(0).get());
  for (const Sum::Term& t : sum.terms) {
    add(t.term.get());
    key.append(reinterpret_cast<const char*>(&t.factor), sizeof(t.factor));
  }
  for (const UOp& r : ClosedRanges(store)) add(r.get());
  key += store.src(1).dtype().ToString();
  key += StoresAgain(store) ? "again" : "";
  return key;
}

// Whether a shuffle takes adjacent lanes of one vector.
bool IsPartOfOne(const UOp& shuffle) {
  const Ints& from = shuffle.arg<Ints>();
  for (size_t l = 1; l < from.size(); ++l) {
    if (from[l] != from[0] + static_cast<int64_t>(l)) return false;
  }
  return shuffle.src(0) == shuffle.src(1) && from.back() < shuffle.src(0).dtype().lanes();
}

// The lower (0) or upper (1) halves of two vectors, so many lanes of each in turn.
UOp Interleaved(const UOp& a, const UOp& b, int half, int unit) {
  const int lanes = a.dtype().lanes();
  Ints from;
  for (int i = 0; i < lanes; ++i) {
    const int at = i / unit;
    from.push_back(half * lanes / 2 + at / 2 * unit + i % unit + at % 2 * lanes);
  }
  return UOp::Make(Op::kShuffle, a.dtype(), {a, b}, from);
}

// n vectors of as many units of lanes or more, as n vectors: the first units of all of them, in
// their order, then the second ones, and so on. n must be a power of two. Each round interleaves
// the first half with the second.
std::vector<UOp> Transposed(std::vector<UOp> rows, int unit = 1) {
  const size_t n = rows.size();
  for (size_t round = 1; round < n; round *= 2) {
    std::vector<UOp> next(n);
    for (size_t i = 0; i < n / 2; ++i) {
      next[2 * i] = Interleaved(rows[i], rows[i + n / 2], 0, unit);
      next[2 * i + 1] = Interleaved(rows[i], rows[i + n / 2], 1, unit);
    }
    rows = std::move(next);
  }
  return rows;
}

// Vectors as as many: the first lanes of all of them, in their order, then the second ones, and so
// on.
std::vector<UOp> AllInterleaved(const std::vector<UOp>& rows) {
  const auto n = static_cast<int64_t>(rows.size());
  const DType type = rows[0].dtype();
  std::vector<UOp> out;
  for (int64_t k = 0; k < n; ++k) {
    UOp so_far = rows[0];
    for (int64_t j = 1; j < n; ++j) {
      Ints from;
      for (int64_t l = 0; l < type.lanes(); ++l) {
        const int64_t at = k * type.lanes() + l, lane = at / n;
        const bool new_one = at % n == j;
        from.push_back(new_one ? type.lanes() + lane : j == 1 ? lane : l);
      }
      so_far = UOp::Make(Op::kShuffle, type, {so_far, rows[j]}, from);
    }
    out.push_back(so_far);
  }
  return out;
}

constexpr size_t kMostBetween = 8;  // vectors that interleave, of a number that is no power of two

class Joiner {
 public:
  explicit Joiner(const UOp& node) : stores_(node.srcs().begin(), node.srcs().end()) {
    out_.assign(stores_.begin(), stores_.end());
  }

  std::vector<UOp> Run() {
    std::map<std::string, std::vector<LaneStore>> blocks;
    for (size_t i = 0; i < stores_.size(); ++i) {
      const UOp& s = stores_[i];
      if (!s.is(Op::kStore) || s.src(0).size() != 2) continue;
      const UOp& value = s.src(1);
      const bool several = value.is(Op::kShuffle) && IsPartOfOne(value);
      if (!several && !value.is(Op::kLane)) continue;
      const Sum sum = ToSum(s.src(0).src(1));
      const int64_t first = several ? value.arg<Ints>()[0] : value.arg<int64_t>();
      const auto stored = static_cast<size_t>(value.dtype().lanes());
      for (size_t l = 0; l < stored; ++l) {
        const auto lane = static_cast<int64_t>(l);
        blocks[BlockKey(s, sum)].push_back(
            {static_cast<int>(i), value.src(0), first + lane, sum.constant + lane, stored, l});
      }
    }
    for (auto& [key, block] : blocks) Join(block);
    std::vector<UOp> left;
    for (const UOp& s : out_) {
      if (s) left.push_back(s);
    }
    return left;
  }

 private:
  // Adjacent stores of the same unit of lanes of n vectors, of m such units each.
  struct Row {
    size_t unit = 1, n = 0, m = 0;
    size_t stores() const { return unit * n; }
  };

  // Finds, from every offset on, such rows, and those of the vectors' other units elsewhere in the
  // block. All units of n = m vectors make up a square, wherever its rows lie; of fewer vectors,
  // one whose rows follow one another.
  void Join(std::vector<LaneStore>& block) {
    std::sort(block.begin(), block.end(),
              [](const LaneStore& a, const LaneStore& b) { return a.offset < b.offset; });
    using Vectors = std::pair<std::vector<const Node*>, size_t>;  // and the unit
    std::map<Vectors, std::vector<size_t>> blocks;                // where rows begin
    for (size_t i = 0; i < block.size();) {
      const Row row = RowAt(block, i);
      if (row.n < 2) {
        ++i;
        continue;
      }
      Vectors key({}, row.unit);
      for (size_t k = 0; k < row.n; ++k) {
        key.first.push_back(block[i + k * row.unit].vector.get());
      }
      blocks[std::move(key)].push_back(i);
      i += row.stores();
    }
    for (auto& [key, begins] : blocks) {
      std::sort(begins.begin(), begins.end(),
                [&](size_t x, size_t y) { return block[x].lane < block[y].lane; });
      const Row row = RowAt(block, begins[0]);
      if (!Complete(block, begins, row)) continue;
      std::vector<UOp> rows;
      for (size_t k = 0; k < row.n; ++k) rows.push_back(block[begins[0] + k * row.unit].vector);
      const bool halves = std::has_single_bit(row.n);
      const std::vector<UOp> turned =
          halves ? Transposed(std::move(rows), static_cast<int>(row.unit)) : AllInterleaved(rows);
      for (size_t k = 0; k < row.n; ++k) {
        if (halves) {
          Replace(block, begins, row, k, turned[k]);
        } else {
          ReplaceRun(block, begins[0] + k * row.m, row.m, turned[k]);
        }
      }
    }
  }

  static bool Follows(const LaneStore& a, const LaneStore& b) { return b.offset == a.offset + 1; }

  static Row RowAt(const std::vector<LaneStore>& block, size_t i) {
    const LaneStore& first = block[i];
    const auto lanes = static_cast<size_t>(first.vector.dtype().lanes());
    if (!std::has_single_bit(lanes) || first.at > 0) return {};
    size_t run = 1;
    for (; i + run < block.size() && run < lanes; ++run) {
      const LaneStore &a = block[i + run - 1], &b = block[i + run];
      if (!Follows(a, b) || !(b.vector == first.vector) || b.lane != a.lane + 1) break;
    }
    Row row{std::bit_floor(run), 1, 0};
    row.m = lanes / row.unit;
    const auto is_whole = [&](const LaneStore& s) { return s.stored == 1 || s.stored == row.unit; };
    if (!is_whole(first)) return {};
    size_t at = i + 1;
    for (; at < block.size() && at < i + lanes; ++at) {
      const LaneStore &a = block[at - 1], &b = block[at];
      if (!Follows(a, b) || !(b.vector.dtype() == first.vector.dtype())) break;
      const size_t in_unit = (at - i) % row.unit;
      if (!is_whole(b) || (b.stored > 1 && b.at != in_unit)) break;
      if (b.lane != first.lane + static_cast<int64_t>(in_unit)) break;
      if (in_unit > 0 && !(b.vector == a.vector)) break;
      if (in_unit == 0 && b.vector == block[at - row.unit].vector) break;
    }
    row.n = (at - i) / row.unit;
    if (!std::has_single_bit(row.n) && !(row.unit == 1 && GoesOn(block, i, at))) {
      row.n = std::bit_floor(row.n);
    }
    return row;
  }

  // Whether the stores from i up to `end`, each of another vector, are followed by the next lanes
  // of the same ones, or are of the last.
  static bool GoesOn(const std::vector<LaneStore>& block, size_t i, size_t end) {
    const LaneStore& first = block[i];
    if (end - i > kMostBetween) return false;
    if (first.lane + 1 == first.vector.dtype().lanes()) return true;
    return end < block.size() && Follows(block[end - 1], block[end]) &&
           block[end].vector == first.vector && block[end].lane == first.lane + 1;
  }

  // Whether rows, in the order of their lanes, are those of all units, and lie as they must.
  static bool Complete(const std::vector<LaneStore>& block, const std::vector<size_t>& begins,
                       const Row& row) {
    if (begins.size() != row.m) return false;
    for (size_t u = 0; u < row.m; ++u) {
      const LaneStore& first = block[begins[u]];
      if (first.lane != static_cast<int64_t>(u * row.unit)) return false;
      const int64_t after = first.offset - block[begins[0]].offset;
      if (row.n < row.m && after != static_cast<int64_t>(u * row.stores())) return false;
    }
    return true;
  }

  // The stores of the k-th of n parts of all rows become one, of a vector.
  void Replace(const std::vector<LaneStore>& block, const std::vector<size_t>& begins,
               const Row& row, size_t k, const UOp& vector) {
    const size_t part = row.m / row.n;
    const UOp& first = stores_[block[begins[k * part]].place];
    std::vector<UOp> srcs(first.srcs().begin(), first.srcs().end());
    srcs[1] = vector;
    for (size_t u = k * part; u < (k + 1) * part; ++u) {
      for (size_t s = 0; s < row.stores(); ++s) out_[block[begins[u] + s].place] = UOp();
    }
    out_[block[begins[k * part]].place] = UOp::Make(Op::kStore, srcs, first.arg());
  }

  // So many adjacent stores from `begin` on become one.
  void ReplaceRun(const std::vector<LaneStore>& block, size_t begin, size_t lanes,
                  const UOp& vector) {
    const UOp& first = stores_[block[begin].place];
    std::vector<UOp> srcs(first.srcs().begin(), first.srcs().end());
    srcs[1] = vector;
    for (size_t s = begin; s < begin + lanes; ++s) out_[block[s].place] = UOp();
    out_[block[begin].place] = UOp::Make(Op::kStore, srcs, first.arg());
  }

  std::vector<UOp> stores_, out_;
};

// Vectors whose lanes are loaded one by one: lane l from l * stride beyond lane 0.
struct LaneLoads {
  UOp vector;
  int64_t offset = 0;  // of lane 0, beyond what it shares with the others of its block
};
struct LoadBlock {
  int64_t stride = 0;
  std::vector<LaneLoads> vectors;
};

// What vectors of one block share: pointer, index of lane 0 but for a constant, stride, lanes;
// empty where the lanes are not a regular row of plain loads.
std::string LoadKey(const UOp& u, int64_t& offset, int64_t& stride) {
  std::vector<Sum> sums;
  for (const UOp& s : u.srcs()) {
    if (!s.is(Op::kIndex) || s.size() != 2 || !(s.src(0) == u.src(0).src(0))) return "";
    sums.push_back(ToSum(s.src(1)));
  }
  if (sums.size() < 2) return "";
  std::string key;
  const auto add = [&](const void* p) { key.append(reinterpret_cast<const char*>(&p), sizeof(p)); };
  const auto number = [&](int64_t n) { key.append(reinterpret_cast<const char*>(&n), sizeof(n)); };
  add(u.src(0).src(0).get());
  offset = sums[0].constant;
  stride = sums[1].constant - offset;
  number(stride);
  number(static_cast<int64_t>(sums.size()));
  for (size_t l = 0; l < sums.size(); ++l) {
    if (sums[l].constant != offset + static_cast<int64_t>(l) * stride) return "";
    if (sums[l].terms.size() != sums[0].terms.size()) return "";
    for (size_t t = 0; t < sums[0].terms.size(); ++t) {
      const Sum::Term &a = sums[l].terms[t], &b = sums[0].terms[t];
      if (!(a.term == b.term) || a.factor != b.factor) return "";
      if (l > 0) continue;
      add(b.term.get());
      number(b.factor);
    }
  }
  return key;
}

// n such vectors that begin one element after another are n rows of memory that turn.
UOp JoinLoads(const UOp& sink) {
  std::map<std::string, LoadBlock> blocks;
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (!u.is(Op::kLanes) || (u.size() & (u.size() - 1)) != 0) continue;
    int64_t offset, stride;
    const std::string key = LoadKey(u, offset, stride);
    if (key.empty()) continue;
    LoadBlock& block = blocks[key];
    block.stride = stride;
    block.vectors.push_back({u, offset});
  }
  Substitution turned;
  for (auto& [key, block] : blocks) {
    std::vector<LaneLoads>& vectors = block.vectors;
    std::sort(vectors.begin(), vectors.end(),
              [](const LaneLoads& a, const LaneLoads& b) { return a.offset < b.offset; });
    const size_t n = vectors[0].vector.size();
    for (size_t i = 0; i + n <= vectors.size();) {
      if (vectors[i + n - 1].offset - vectors[i].offset != static_cast<int64_t>(n) - 1) {
        ++i;
        continue;
      }
      std::vector<UOp> rows;
      for (const UOp& first : vectors[i].vector.srcs()) {
        rows.push_back(UOp::Make(Op::kLoad, vectors[i].vector.dtype(), {first.src(0), first.src(1)},
                                 int64_t{0}));
      }
      rows = Transposed(std::move(rows));
      for (size_t k = 0; k < n; ++k) turned.emplace(vectors[i + k].vector, rows[k]);
      i += n;
    }
  }
  return turned.empty() ? sink : Substitute(sink, turned);
}

}  // namespace

UOp JoinTransposed(const UOp& kernel) {
  const UOp sink = JoinLoads(kernel);
  absl::flat_hash_map<UOp, UOp> done;
  for (const UOp& u : TopoSort({&sink, 1})) {
    absl::InlinedVector<UOp, 6> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(done.at(s));
    UOp made = u.WithSrcs(srcs);
    if (u.is(Op::kStage) || u.is(Op::kSink)) made = made.WithSrcs(Joiner(made).Run());
    done.emplace(u, std::move(made));
  }
  return done.at(sink);
}

}  // namespace tessera
