// Square blocks that are loaded by rows and stored, or used, by columns turn in registers.
#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "codegen/passes.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

// A STORE of one lane of a vector.
struct LaneStore {
  int place = 0;  // among the stores
  UOp vector;
  int64_t lane = 0;
  int64_t offset = 0;  // beyond what it shares with the others of its block
};

// What stores of one block share: pointer, index but for a constant, dtype, loops.
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
  return key;
}

// The lower (0) or upper (1) halves of two vectors, a lane of each in turn.
UOp Interleaved(const UOp& a, const UOp& b, int half) {
  const int lanes = a.dtype().lanes();
  Ints from;
  for (int i = 0; i < lanes; ++i) from.push_back(half * lanes / 2 + i / 2 + i % 2 * lanes);
  return UOp::Make(Op::kShuffle, a.dtype(), {a, b}, from);
}

// n vectors whose lane l is row l's elements, as n vectors whose lane l is vector l's: n must be a
// power of two. Each round interleaves the first half with the second.
std::vector<UOp> Transposed(std::vector<UOp> rows) {
  const size_t n = rows.size();
  for (size_t round = 1; round < n; round *= 2) {
    std::vector<UOp> next(n);
    for (size_t i = 0; i < n / 2; ++i) {
      next[2 * i] = Interleaved(rows[i], rows[i + n / 2], 0);
      next[2 * i + 1] = Interleaved(rows[i], rows[i + n / 2], 1);
    }
    rows = std::move(next);
  }
  return rows;
}

class Joiner {
 public:
  explicit Joiner(const UOp& node) : stores_(node.srcs().begin(), node.srcs().end()) {
    out_.assign(stores_.begin(), stores_.end());
  }

  std::vector<UOp> Run() {
    std::map<std::string, std::vector<LaneStore>> blocks;
    for (size_t i = 0; i < stores_.size(); ++i) {
      const UOp& s = stores_[i];
      if (!s.is(Op::kStore) || !s.src(1).is(Op::kLane) || s.src(0).size() != 2) continue;
      const Sum sum = ToSum(s.src(0).src(1));
      blocks[BlockKey(s, sum)].push_back(
          {static_cast<int>(i), s.src(1).src(0), s.src(1).arg<int64_t>(), sum.constant});
    }
    for (auto& [key, block] : blocks) Join(block);
    std::vector<UOp> left;
    for (const UOp& s : out_) {
      if (s) left.push_back(s);
    }
    return left;
  }

 private:
  // Finds, from every offset on, n adjacent stores of one lane of n vectors, and the other lanes of
  // the same vectors elsewhere in the block.
  void Join(std::vector<LaneStore>& block) {
    std::sort(block.begin(), block.end(),
              [](const LaneStore& a, const LaneStore& b) { return a.offset < b.offset; });
    std::map<std::vector<const Node*>, std::vector<size_t>> squares;  // vectors; where rows begin
    for (size_t i = 0; i < block.size();) {
      const size_t n = block[i].vector.dtype().lanes();
      if (!IsRow(block, i, n)) {
        ++i;
        continue;
      }
      std::vector<const Node*> vectors;
      for (size_t k = 0; k < n; ++k) vectors.push_back(block[i + k].vector.get());
      squares[std::move(vectors)].push_back(i);
      i += n;
    }
    for (const auto& [vectors, begins] : squares) {
      const size_t n = vectors.size();
      if (begins.size() != n || (n & (n - 1)) != 0) continue;
      std::vector<UOp> rows;
      for (size_t k = 0; k < n; ++k) rows.push_back(block[begins[0] + k].vector);
      const std::vector<UOp> turned = Transposed(std::move(rows));
      for (size_t b : begins) Replace(block, b, n, turned[block[b].lane]);
    }
  }

  static bool IsRow(const std::vector<LaneStore>& block, size_t i, size_t n) {
    if (n < 2 || i + n > block.size()) return false;
    for (size_t k = 1; k < n; ++k) {
      const LaneStore& s = block[i + k];
      if (s.offset != block[i].offset + static_cast<int64_t>(k) || s.lane != block[i].lane ||
          !(s.vector.dtype() == block[i].vector.dtype())) {
        return false;
      }
    }
    return true;
  }

  // The n stores from `begin` on become one, of a vector.
  void Replace(const std::vector<LaneStore>& block, size_t begin, size_t n, const UOp& vector) {
    const UOp& first = stores_[block[begin].place];
    std::vector<UOp> srcs(first.srcs().begin(), first.srcs().end());
    srcs[1] = vector;
    for (size_t k = 0; k < n; ++k) out_[block[begin + k].place] = UOp();
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
