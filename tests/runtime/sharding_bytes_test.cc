// Bytes that plans move between places, against the least that could do: docs/sharding_bytes.md is
// the table. The least is counted here element by element, not by the code under test.
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_format.h"
#include "graph/box.h"
#include "graph/grad.h"
#include "graph/shard_map.h"
#include "runtime/runtime.h"
#include "tests/build_paths.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

const Placement R = Placement::Replicate();
Placement S(int axis, Layout layout = {}) { return Placement::Shard(axis, std::move(layout)); }

std::vector<Place> Cpus(int n) {
  std::vector<Place> out;
  for (int i = 0; i < n; ++i) out.emplace_back("CPU", i);
  return out;
}
Sharding Line(int n, Placement p) { return Sharding(Mesh(Cpus(n)), {std::move(p)}); }

// A tensor in storage, so that nothing moves to put it there.
Tensor On(const std::vector<int64_t>& shape, Device device, DType dtype = kFloat32) {
  return Tensor::Empty(Dims(shape), dtype, device);
}

// Which places hold an element, by position.
using Holders = std::map<std::vector<int64_t>, std::set<std::string>>;
Holders HoldersOf(const std::vector<int64_t>& shape, Device device) {
  Holders out;
  const Boxes boxes = BoxesOf(Shape(Dims(shape).extents()), device);
  for (size_t i = 0; i < device.places().size(); ++i) {
    const Box box = boxes.At(static_cast<int>(i));
    if (Volume(box) == 0) continue;
    std::vector<int64_t> at;
    for (const Interval& x : box) at.push_back(x.begin);
    for (;;) {
      out[at].insert(device.places()[i].ToString());
      int a = static_cast<int>(at.size()) - 1;
      for (; a >= 0; --a) {
        if (++at[a] < box[a].end) break;
        at[a] = box[a].begin;
      }
      if (a < 0) break;
    }
  }
  return out;
}

// Elements that places want and do not hold, where element `source(at)` of `from` is wanted
// wherever element `at` of `to` lies.
template <typename Fn>
int64_t Wanted(const Holders& from, const Holders& to, Fn source) {
  std::set<std::pair<std::vector<int64_t>, std::string>> moved;
  for (const auto& [at, places] : to) {
    for (const std::vector<int64_t>& s : source(at)) {
      const auto it = from.find(s);
      if (it == from.end()) continue;  // padding
      for (const std::string& p : places) {
        if (!it->second.contains(p)) moved.insert({s, p});
      }
    }
  }
  return static_cast<int64_t>(moved.size());
}

struct Row {
  std::string name;
  std::vector<Tensor> results;
  int64_t least;
};

using Positions = std::vector<std::vector<int64_t>>;

class Table {
 public:
  void Add(const std::string& name, const std::vector<Tensor>& results, int64_t least) {
    rows_.push_back({name, results, least});
  }
  // A movement of one source, given by the positions of which each element is made.
  template <typename Fn>
  void AddMove(const std::string& name, const Tensor& x, const Tensor& y, Fn source) {
    const auto shape = [](const Tensor& t) {
      std::vector<int64_t> out;
      for (const Extent& e : t.shape()) out.push_back(e.value());
      return out;
    };
    Add(name, {y},
        4 * Wanted(HoldersOf(shape(x), x.device()), HoldersOf(shape(y), y.device()), source));
  }

  std::string Text() {
    std::string out =
        "# Bytes that sharded programs move\n\n"
        "What plans move between places, before an algorithm is chosen, against the least that "
        "could "
        "do: elements\nthat a place wants and does not hold; 2(P-1)n for an all-reduce of n bytes "
        "over P "
        "places, (P-1)n for a\nreduce-scatter. Written by\n`tests/runtime/sharding_bytes_test.cc`, "
        "which fails where this table "
        "is not "
        "what the code does.\n\n"
        "| case | bytes moved | minimum | ratio |\n|---|---|---|---|\n";
    for (const Row& r : rows_) {
      std::vector<UOp> roots;
      for (const Tensor& t : r.results) roots.push_back(t.uop());
      const absl::StatusOr<Plan> plan = PlanOnly(roots, MakePlanKey(roots));
      EXPECT_OK(plan) << r.name;
      if (!plan.ok()) continue;
      const int64_t moved = BytesMoved(*plan);
      const double ratio = r.least == 0 ? (moved == 0 ? 1.0 : 99.0)
                                        : static_cast<double>(moved) / static_cast<double>(r.least);
      EXPECT_EQ(moved, r.least) << r.name << "\n" << plan->ToString();
      absl::StrAppend(&out,
                      absl::StrFormat("| %s | %d | %d | %.2f |\n", r.name, moved, r.least, ratio));
    }
    return out;
  }

 private:
  std::vector<Row> rows_;
};

// Values that lie as their targets do, and what of them goes elsewhere from there.
void AddAssignments(Table& t, const std::string& label, const Sharding& on) {
  using At = std::vector<int64_t>;
  const auto target = [&] { return On({10, 6}, on); };
  const auto assigned = [](Tensor x, const Tensor& view, const Tensor& v) {
    Tensor(view).Assign(v);
    return x;
  };
  {
    const Tensor x = target(), view = x.Slice({{2, 7}}), v = On({5, 6}, view.device());
    t.AddMove("assign to a slice, " + label, v, assigned(x, view, v), [](const At& a) {
      return a[0] >= 2 && a[0] < 7 ? Positions{{a[0] - 2, a[1]}} : Positions{};
    });
  }
  {
    const Tensor x = target(), view = x.Flip(0), v = On({10, 6}, view.device());
    t.AddMove("assign to a flip, " + label, v, assigned(x, view, v), [](const At& a) {
      return Positions{{9 - a[0], a[1]}};
    });
  }
  if (on.axis() != 0) {  // along the axis zeros between the rows move as well
    const Tensor x = target(), view = x.Slice({{{}, {}, 2}}), v = On({5, 6}, view.device());
    t.Add("assign to every second, " + label, {assigned(x, view, v)}, 0);
  }
  {
    const Tensor x = target(), view = x.ShardAt(1);
    const Box own = BoxesOf(x.shape(), on).At(1);
    const Tensor v = On({own[0].size(), own[1].size()}, "CPU:1");
    t.Add("assign to the part of a place, " + label, {assigned(x, view, v)}, 0);
  }
}

void AddPrimitives(Table& t) {
  using At = std::vector<int64_t>;
  const auto same = [](const At& a) { return Positions{a}; };
  for (const auto& [label, on] : {std::pair<std::string, Sharding>{"on the axis", Line(4, S(0))},
                                  {"on the axis, uneven", Line(3, S(0))},
                                  {"on the axis, ceil", Line(4, S(0, Layout::Ceil()))},
                                  {"on the axis, sizes", Line(3, S(0, Layout::Sizes({1, 7, 2})))},
                                  {"off the axis", Line(3, S(1))}}) {
    const Tensor x = On({10, 6}, on);
    const int64_t places = on.size();
    const bool along = on.axis() == 0;
    t.Add("elementwise, " + label, {x * x + 1}, 0);
    t.Add("replicated operand, " + label, {x + On({10, 6}, Sharding(on.mesh()))}, 0);
    t.Add("broadcast row, " + label, {x + On({6}, Sharding(on.mesh()))}, 0);
    t.Add("permute, " + label, {x.T()}, 0);
    t.Add("expand, " + label, {x.Unsqueeze(1).Expand({10, 3, 6})}, 0);
    t.Add("reshape, split, " + label, {x.Reshape({10, 2, 3})},
          along ? 0
                : 4 * Wanted(HoldersOf({10, 6}, on),
                             HoldersOf({10, 6}, Sharding(on.mesh(), {S(1, Layout::Aligned(3))})),
                             same));
    t.Add("pad, " + label, {x.Pad({{1, 1}, {0, 0}})}, 0);
    t.Add("shrink, " + label, {x.Shrink({{2, 9}, {0, 6}})}, 0);
    t.Add("reduce, " + label, {x.Sum({0})}, along ? 2 * (places - 1) * 6 * 4 : 0);
    t.Add("iota, random, " + label, {x + Tensor::Rand({10, 6})}, 0);
    t.AddMove("flip, " + label, x, x.Flip(0), [](const At& a) {
      return Positions{{9 - a[0], a[1]}};
    });
    t.AddMove("window of 3, " + label, x, x.Window(0, {3}), [](const At& a) {
      return Positions{{a[0] + a[2], a[1]}};
    });
    t.AddMove("window of 3 by 5 with steps, " + label, x, x.Window({0, 1}, {3, 5}, {1, 2}),
              [](const At& a) {
                return Positions{{a[0] + a[2], a[1] * 2 + a[3]}};
              });
    t.AddMove("window of 5, padded, " + label, x, x.Pad({{2, 2}, {0, 0}}).Window(0, {5}),
              [](const At& a) {
                return Positions{{a[0] + a[2] - 2, a[1]}};
              });
    t.AddMove("every second, " + label, x, x.Slice({{{}, {}, 2}}), [](const At& a) {
      return Positions{{2 * a[0], a[1]}};
    });
    const int other = along ? 1 : 0;
    const std::vector<int64_t> some =
        along ? std::vector<int64_t>{10, 2} : std::vector<int64_t>{3, 6};
    const Tensor index = On(some, on, kInt32), part = On(some, on);
    t.Add("lookup, axis shared with the index, " + label, {x.Gather(other, index)}, 0);
    t.Add("scatter, axis shared with the index, " + label,
          {x.Scatter(other, index, part), x.ScatterAdd(other, index, part)}, 0);
    const Sharding whole(on.mesh());
    t.Add("scatter of whole rows, " + label,
          {x.IndexAdd(0, On({4}, whole, kInt32), On({4, 6}, whole))}, 0);
    const Tensor rows = along ? On({10}, on, kInt32) : On({10}, whole, kInt32);
    t.Add("sum of rows by index, " + label, {Tensor::Zeros({5, 6}).IndexAdd(0, rows, x)},
          along ? 2 * (places - 1) * 5 * 6 * 4 : 0);
    t.AddMove("gather to one place, " + label, x, x.To("CPU:1"), same);
    t.AddMove("all-gather, " + label, x, x.To(Sharding(on.mesh())), same);
    t.AddMove("to the other axis, " + label, x, x.To(Sharding(on.mesh(), {S(along ? 1 : 0)})),
              same);
    t.AddMove("to other places, " + label, x, x.To(Sharding({"CPU:7", "CPU:0"}, 0)), same);
    t.AddMove("flip, then to other places, " + label, x,
              x.Flip(0).To(Sharding({"CPU:7", "CPU:0"}, 0)), [](const At& a) {
                return Positions{{9 - a[0], a[1]}};
              });
    AddAssignments(t, label, on);
  }
}

// Softmax(q k^T) v with a running maximum and sum, one part of the keys at a time.
Tensor RingAttention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int places = q.device().sharding().size();
  std::vector<int> previous;
  for (int i = 0; i < places; ++i) previous.push_back((i + places - 1) % places);
  return ShardMap(
      {"ring"}, {S(0)},
      [&](const Tensor& queries, Tensor keys, Tensor values) {
        Tensor most, sum, mixed;
        for (int step = 0; step < places; ++step) {
          const Tensor scores = queries.MatMul(keys.T());
          const Tensor top =
              step == 0 ? scores.Max({1}, true) : most.Maximum(scores.Max({1}, true));
          const Tensor weights = (scores - top).Exp();
          const Tensor part = weights.MatMul(values), total = weights.Sum({1}, true);
          const Tensor fade = step == 0 ? Tensor() : (most - top).Exp();
          mixed = step == 0 ? part : mixed * fade + part;
          sum = step == 0 ? total : sum * fade + total;
          most = top;
          if (step + 1 == places) break;
          keys = Permute(keys, "ring", previous);
          values = Permute(values, "ring", previous);
        }
        return mixed / sum;
      },
      q, k, v);
}

TEST(ShardingBytes, RingAttentionIsAttention) {
  std::vector<float> v(3 * 12 * 4);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i * 37 % 19) / 7 - 1;
  const Tensor all = Tensor::From(v, {3, 12, 4});
  const Sharding ring(Mesh(Cpus(3), std::vector<MeshDim>{{3, "ring"}}), {S(0)});
  const std::vector<float> got =
      RingAttention(all[0].To(ring), all[1].To(ring), all[2].To(ring)).ToVector<float>();
  const std::vector<float> expected =
      all[0].MatMul(all[1].T()).Softmax().MatMul(all[2]).ToVector<float>();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;
}

// Attention as Megatron divides it: each place has some of the heads whole, of which only their sum
// through the last weight leaves it.
struct AttentionWeights {
  Tensor query, key, value, output;
};
Tensor Attention(const Tensor& x, const AttentionWeights& w, int64_t heads) {
  const int64_t tokens = x.shape()[0].value(), width = w.query.shape()[1].value();
  const auto by_head = [&](const Tensor& weight) {
    return x.MatMul(weight).Reshape({tokens, heads, width / heads}).Permute({1, 0, 2});
  };
  const Tensor scores = by_head(w.query).MatMul(by_head(w.key).Transpose());
  const Tensor mixed = (scores / std::sqrt(width / heads)).Softmax().MatMul(by_head(w.value));
  return mixed.Permute({1, 0, 2}).Reshape({tokens, width}).MatMul(w.output);
}

// Each token goes to the expert that the router likes best, if that has not had `capacity` tokens
// of the token's group before: [groups, tokens, width], a group a place. The experts, one a place,
// get their tokens from all groups, and each token gets back what its expert made of it.
struct Experts {
  Tensor router, up, down;  // [width, experts], [experts, width, hidden], [experts, hidden, width]
};
Tensor RoutedExperts(const Tensor& x, const Experts& e, int64_t capacity) {
  const int64_t experts = e.up.shape()[0].value();
  const Tensor liking = x.MatMul(e.router).Softmax();
  const Tensor chosen = liking.ArgMax(-1).OneHot(experts);  // [groups, tokens, experts]
  const Tensor position = (chosen.CumSum(1) - 1).Cast(kInt32);
  const Tensor seats = chosen.Unsqueeze(-1) * position.OneHot(capacity);  // one seat, or none
  Tensor seated = Einsum("gtes,gtw->egsw", {seats, x});
  if (x.device().is_sharding()) seated = seated.To(e.up.device());
  Tensor made = Einsum("egsw,ewh->egsh", {seated, e.up}).Relu();
  made = Einsum("egsh,ehw->egsw", {made, e.down});
  if (x.device().is_sharding()) made = made.To(x.device().sharding().With({S(1)}));
  return Einsum("gtes,egsw->gtw", {seats * liking.Unsqueeze(-1), made});
}

std::vector<float> Numbers(int64_t n, int seed) {
  std::vector<float> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 37 + seed * 11) % 23) / 11 - 1;
  return v;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << i;
}

TEST(ShardingBytes, MegatronAttentionIsAttention) {
  const auto weight = [](int seed) { return Tensor::From(Numbers(64, seed), {8, 8}); };
  const Tensor x = Tensor::From(Numbers(48, 1), {6, 8});
  const AttentionWeights one{weight(2), weight(3), weight(4), weight(5)};
  const Sharding columns = Line(4, S(1)), rows = Line(4, S(0));
  const AttentionWeights four{one.query.To(columns), one.key.To(columns), one.value.To(columns),
                              one.output.To(rows)};
  ExpectNear(Attention(x.To(Line(4, R)), four, 4).ToVector<float>(),
             Attention(x, one, 4).ToVector<float>());
}

// Token by token on the host.
TEST(ShardingBytes, RoutedExpertsServeTheirTokens) {
  constexpr int kGroups = 4, kTokens = 5, kWidth = 3, kExperts = 4, kHidden = 2, kCapacity = 2;
  const std::vector<float> x = Numbers(kGroups * kTokens * kWidth, 1),
                           router = Numbers(kWidth * kExperts, 2),
                           up = Numbers(kExperts * kWidth * kHidden, 3),
                           down = Numbers(kExperts * kHidden * kWidth, 4);
  std::vector<float> expected(x.size());
  int dropped = 0;
  for (int g = 0; g < kGroups; ++g) {
    std::vector<int> had(kExperts);
    for (int t = 0; t < kTokens; ++t) {
      const float* in = &x[(g * kTokens + t) * kWidth];
      std::vector<double> liking(kExperts);
      for (int e = 0; e < kExperts; ++e) {
        for (int w = 0; w < kWidth; ++w) liking[e] += in[w] * router[w * kExperts + e];
      }
      const auto best = std::max_element(liking.begin(), liking.end());
      const int e = static_cast<int>(best - liking.begin());
      if (had[e]++ >= kCapacity) {
        ++dropped;
        continue;
      }
      double all = 0;
      for (double l : liking) all += std::exp(l - *best);
      for (int h = 0; h < kHidden; ++h) {
        double sum = 0;
        for (int w = 0; w < kWidth; ++w) sum += in[w] * up[(e * kWidth + w) * kHidden + h];
        for (int w = 0; w < kWidth; ++w) {
          expected[(g * kTokens + t) * kWidth + w] +=
              static_cast<float>(std::max(0.0, sum) * down[(e * kHidden + h) * kWidth + w] / all);
        }
      }
    }
  }
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, kGroups * kTokens / 2);
  const Tensor tokens = Tensor::From(x, {kGroups, kTokens, kWidth});
  const Experts one{Tensor::From(router, {kWidth, kExperts}),
                    Tensor::From(up, {kExperts, kWidth, kHidden}),
                    Tensor::From(down, {kExperts, kHidden, kWidth})};
  ExpectNear(RoutedExperts(tokens, one, kCapacity).ToVector<float>(), expected);
  const Sharding rows = Line(4, S(0));
  const Experts four{one.router.To(Line(4, R)), one.up.To(rows), one.down.To(rows)};
  ExpectNear(RoutedExperts(tokens.To(rows), four, kCapacity).ToVector<float>(), expected);
}

void AddSchemes(Table& t) {
  const auto over = [](int n) { return Sharding(Mesh(Cpus(n))); };
  constexpr int p = 4;
  const auto all_reduce = [](int64_t n) { return 2 * (p - 1) * n * 4; };
  const Tensor x = On({16, 8}, over(p)), up = On({8, 32}, Line(p, S(1))),
               down = On({32, 8}, Line(p, S(0)));
  t.Add("Megatron MLP", {x + x.MatMul(up).Relu().MatMul(down)}, all_reduce(16 * 8));
  t.Add("column-then-row matmuls", {x.MatMul(up).MatMul(down)}, all_reduce(16 * 8));
  {
    const Sharding columns = Line(p, S(1));
    const AttentionWeights w{On({8, 8}, columns), On({8, 8}, columns), On({8, 8}, columns),
                             On({8, 8}, Line(p, S(0)))};
    t.Add("Megatron attention", {Attention(x, w, 4)}, all_reduce(16 * 8));
  }
  {
    const Tensor rows = On({16, 8}, Line(p, S(0)));
    t.Add("sequence parallel: norm on pieces, gathered for a matmul",
          {rows.RmsNorm().To(over(p)).MatMul(up)}, (p - 1) * 16 * 8 * 4);
    const Tensor w = On({8, 32}, Line(p, S(0)));
    t.Add("FSDP: weights gathered before use", {rows.MatMul(w.To(over(p)))}, (p - 1) * 8 * 32 * 4);
    t.Add("sequence parallel: gathered before two matmuls, scattered after",
          {rows.RmsNorm().To(over(p)).MatMul(up).Relu().MatMul(down).To(rows.device()) + rows},
          2 * (p - 1) * 16 * 8 * 4);
    const Tensor g = Grad(rows.MatMul(w.To(over(p))).Square().Sum(), {w})[0];
    t.Add("FSDP: weights gathered, gradients reduce-scattered", {g}, 2 * (p - 1) * 8 * 32 * 4);
  }
  {
    // 4 groups have 2 seats at each of 4 experts: what stands on them goes there and back, but for
    // what an expert's own place has.
    const Sharding rows = Line(p, S(0));
    const Experts e{On({8, 4}, over(p)), On({4, 8, 16}, rows), On({4, 16, 8}, rows)};
    t.Add("expert all-to-all: tokens routed to the experts and back",
          {RoutedExperts(On({4, 4, 8}, rows), e, 2)}, 2 * (4 * 4 * 2) * 8 * 4 * (p - 1) / p);
  }
  {
    const Tensor table = On({20, 8}, Line(p, S(0))), ids = On({6}, over(p), kInt32);
    t.Add("vocabulary-parallel embedding", {table.Embedding(ids)}, all_reduce(6 * 8));
    const Tensor logits = On({6, 20}, Line(p, S(1)));
    const Tensor hot = ids.OneHot(20);
    t.Add("vocabulary-parallel loss", {-(logits.LogSoftmax() * hot).Sum({1})}, 3 * all_reduce(6));
    t.Add("vocabulary-parallel softmax", {logits.LogSoftmax()}, all_reduce(6) + all_reduce(6));
  }
  {
    // Each of 8 microbatches gives a gradient; the places add up once.
    const Tensor w = On({8, 4}, over(p));
    Tensor sum;
    for (int i = 0; i < 8; ++i) {
      const Tensor batch = On({8, 8}, Line(p, S(0)));
      const Tensor g = Grad(batch.MatMul(w).Tanh().Sum(), {w})[0];
      sum = sum ? sum + g : g;
    }
    t.Add("data parallel, 8 microbatches", {sum * 0.125}, all_reduce(8 * 4));
    const Tensor v = On({8, 4}, Line(p, S(0)));
    t.Add("sum(x @ w1) + sum(x @ w2)", {x.MatMul(up).Sum({1}) + x.MatMul(up * 2).Sum({1})},
          all_reduce(16));
    t.Add("pipeline of two stages",
          {(On({16, 8}, Place("CPU", 0)) * 2).To("CPU:1").Relu().To("CPU:2")}, 2 * 16 * 8 * 4);
  }
  {
    // Blocks of a row of places meet blocks of a column.
    const Mesh grid(Cpus(4), {{2, "row"}, {2, "column"}});
    const Tensor a = On({16, 8}, Sharding(grid, {S(0), S(1)})),
                 b = On({8, 12}, Sharding(grid, {S(0), S(1)}));
    t.Add("2-D matmul (SUMMA)",
          {a.To(Sharding(grid, {S(0), R})).MatMul(b.To(Sharding(grid, {R, S(1)})))},
          (16 * 8 + 8 * 12) * 4);
  }
  {
    // Keys and values go round; each place meets all of them.
    const Sharding ring(Mesh(Cpus(p), std::vector<MeshDim>{{p, "ring"}}), {S(0)});
    const Tensor q = On({16, 8}, ring), k = On({16, 8}, ring), v = On({16, 8}, ring);
    t.Add("ring attention", {RingAttention(q, k, v)}, (p - 1) * 2 * 16 * 8 * 4);
  }
  {
    // A row of zeros around; each place reads one row of each neighbour.
    const Tensor image = On({1, 2, 8, 8}, Line(p, S(2))), k = On({3, 2, 3, 3}, over(p));
    t.Add("halo convolution", {image.Conv2d(k, {.padding = {1, 1}})}, 6 * 2 * 8 * 4);
  }
}

TEST(ShardingBytes, AreTheMinimumAndTheTableSaysSo) {
  Table table;
  AddPrimitives(table);
  AddSchemes(table);
  const std::string text = table.Text();
  std::ifstream file("docs/sharding_bytes.md");
  std::stringstream was;
  was << file.rdbuf();
  if (was.str() == text) return;
  const std::string path = std::string(kBinDir) + "/sharding_bytes.md";
  std::ofstream(path) << text;
  ADD_FAILURE() << "docs/sharding_bytes.md is not what the code does; the new table is " << path;
}

}  // namespace
}  // namespace tessera
