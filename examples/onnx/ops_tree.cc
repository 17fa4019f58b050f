// Trees that decide: all rows walk all trees at once, a level at a time.
#include <algorithm>
#include <cmath>
#include <map>

#include "examples/onnx/import.h"
#include "examples/onnx/learning.h"

namespace tessera::onnx {
namespace {

enum class Mode : int64_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kMember };
constexpr int kModes = 7;

// Nodes and leaves of all trees; a leaf leads to itself.
struct Forest {
  std::vector<int64_t> feature, on_true, on_false, missing_is_true, mode;
  std::vector<double> split;
  std::vector<std::vector<double>> members;  // of nodes that ask for them
  std::vector<int64_t> roots;
  std::vector<std::vector<std::pair<int64_t, double>>> weights;  // of leaves: target and weight

  int64_t Add() {
    feature.push_back(0);
    missing_is_true.push_back(0);
    mode.push_back(0);
    split.push_back(0);
    members.emplace_back();
    weights.emplace_back();
    on_true.push_back(static_cast<int64_t>(on_true.size()));
    on_false.push_back(on_true.back());
    return on_true.back();
  }
  bool IsLeaf(int64_t i) const { return on_true[static_cast<size_t>(i)] == i; }
};

// How many steps reach a leaf from any root; an Error where some lead round.
int64_t DepthOf(Call& c, const Forest& f) {
  std::vector<int64_t> depth(f.on_true.size(), -1);
  constexpr int64_t kOpen = -2;
  for (const int64_t root : f.roots) {
    std::vector<int64_t> path = {root};
    while (!path.empty()) {
      const int64_t at = path.back();
      int64_t& own = depth[static_cast<size_t>(at)];
      if (f.IsLeaf(at)) own = 0;
      if (own >= 0) {
        path.pop_back();
        continue;
      }
      const int64_t next[] = {f.on_true[static_cast<size_t>(at)],
                              f.on_false[static_cast<size_t>(at)]};
      int64_t deepest = 0;
      const size_t before = path.size();
      for (const int64_t n : next) {
        const int64_t below = depth[static_cast<size_t>(n)];
        if (below == kOpen) c.Fail("node ", n, " leads back to itself");
        if (below < 0 && !f.IsLeaf(n)) path.push_back(n);
        deepest = std::max(deepest, below);
      }
      own = path.size() > before ? kOpen : deepest + 1;
      if (path.size() > before) continue;
      path.pop_back();
    }
  }
  int64_t out = 0;
  for (const int64_t root : f.roots) out = std::max(out, depth[static_cast<size_t>(root)]);
  return out;
}

// Rows are as wide as the widest: one of many must not make all of them too large.
constexpr size_t kMostEntries = 1 << 24;
void CheckEntries(Call& c, size_t rows, size_t most) {
  if (most > kMostEntries / rows) {
    c.Unsupported(rows, " nodes and leaves, one of them with ", most, " entries");
  }
}

class Walk {
 public:
  Walk(Call& c, const Forest& f, const Tensor& x) : c_(c), f_(f), x_(x) {}

  // [N, T], the leaf of each row in each tree.
  Tensor Leaves() {
    const auto trees = static_cast<int64_t>(f_.roots.size());
    Tensor at = List(f_.roots).Expand({x_.shape()[0], trees});
    const Tensor feature = List(f_.feature), on_true = List(f_.on_true),
                 on_false = List(f_.on_false), missing = List(f_.missing_is_true),
                 split = List(f_.split).Cast(x_.dtype()), mode = List(f_.mode);
    for (int64_t depth = DepthOf(c_, f_); depth > 0; --depth) {
      const Tensor v = x_.Gather(1, feature.Take(at));
      Tensor holds = Tensor::Full({}, false);
      for (int64_t m = 0; m < kModes; ++m) {
        if (std::count(f_.mode.begin(), f_.mode.end(), m) == 0) continue;
        const Tensor is = Asked(static_cast<Mode>(m), v, split.Take(at), at);
        holds = Where(mode.Take(at) == m, is, holds);
      }
      holds = holds | (v.IsNan() & (missing.Take(at) != 0));
      at = Where(holds, on_true.Take(at), on_false.Take(at));
    }
    return at;
  }
  template <typename E>
  Tensor List(const std::vector<E>& values) {
    const Tensor known = Tensor::From(values, {static_cast<int64_t>(values.size())}, "CPU");
    return c_.all_known() ? known : c_.importer().Placed(known);
  }

 private:
  Tensor Asked(Mode mode, const Tensor& v, const Tensor& split, const Tensor& at) {
    switch (mode) {
      case Mode::kLeq:
        return v <= split;
      case Mode::kLt:
        return v < split;
      case Mode::kGte:
        return v >= split;
      case Mode::kGt:
        return v > split;
      case Mode::kEq:
        return v == split;
      case Mode::kNeq:
        return v != split;
      case Mode::kMember:
        break;
    }
    // Rows of members, filled up with what nothing equals.
    size_t most = 1;
    for (const std::vector<double>& set : f_.members) most = std::max(most, set.size());
    CheckEntries(c_, f_.members.size(), most);
    std::vector<double> table;
    for (const std::vector<double>& set : f_.members) {
      table.insert(table.end(), set.begin(), set.end());
      table.resize(table.size() + most - set.size(), NAN);
    }
    const Tensor rows = List(table).Cast(v.dtype()).Reshape({-1, static_cast<int64_t>(most)});
    return (v.Unsqueeze(-1) == rows.Take(at)).Any(-1);
  }

  Call& c_;
  const Forest& f_;
  const Tensor x_;
};

enum class Aggregate { kAverage, kSum, kMin, kMax };

// [N, targets] of the leaves that rows reach.
Tensor Scores(Call& c, const Forest& f, const Tensor& x, int64_t targets, Aggregate how,
              DType type) {
  if (targets < 1 || targets > kMostNodes) c.Fail(targets, " targets");
  for (const std::vector<std::pair<int64_t, double>>& leaf : f.weights) {
    for (const auto& [target, weight] : leaf) {
      if (target < 0 || target >= targets) c.Fail("target ", target, " is none of ", targets);
    }
  }
  Walk walk(c, f, x);
  const Tensor leaves = walk.Leaves();  // [N, T]
  std::vector<int64_t> target;
  std::vector<double> weight;
  size_t most = 1;
  for (const auto& leaf : f.weights) most = std::max(most, leaf.size());
  CheckEntries(c, f.weights.size(), most);
  for (const auto& leaf : f.weights) {  // a row each, filled up with no target
    for (size_t k = 0; k < most; ++k) {
      target.push_back(k < leaf.size() ? leaf[k].first : -1);
      weight.push_back(k < leaf.size() ? leaf[k].second : 0);
    }
  }
  const auto width = static_cast<int64_t>(most);
  const Tensor to = walk.List(target).Reshape({-1, width}).Take(leaves).Flatten(1).Unsqueeze(-1);
  const Tensor of =
      walk.List(weight).Cast(type).Reshape({-1, width}).Take(leaves).Flatten(1).Unsqueeze(-1);
  const Tensor is = to == Tensor::Arange(targets, kInt64);  // [N, T * width, targets]
  if (how == Aggregate::kSum || how == Aggregate::kAverage) {
    const Tensor sum = Where(is, of, 0).Sum(1);
    return how == Aggregate::kSum ? sum : sum / static_cast<double>(f.roots.size());
  }
  const bool least = how == Aggregate::kMin;
  const Tensor all = Where(is, of, least ? INFINITY : -INFINITY);
  return Where(is.Any(1), least ? all.Min(1) : all.Max(1), 0);
}

template <typename T>
const T& At(Call& c, const std::vector<T>& list, size_t i, const char* name) {
  if (i >= list.size()) c.Fail("attribute '", name, "' has ", list.size(), " entries");
  return list[i];
}

// The numbers of a tensor attribute; none where it is missing.
std::vector<double> NumbersOf(Call& c, const char* name) {
  if (c.Find(name) == nullptr) return {};
  return MakeTensor(c.TensorOf(name), "CPU").Flatten().ToVector<double>();
}

Aggregate AggregateNamed(Call& c) {
  const std::string name = c.Choice("aggregate_function", {"SUM", "AVERAGE", "MIN", "MAX"});
  return name == "SUM"   ? Aggregate::kSum
         : name == "MIN" ? Aggregate::kMin
         : name == "MAX" ? Aggregate::kMax
                         : Aggregate::kAverage;
}

}  // namespace

// Of version 5: nodes, and leaves, each by their positions.
void TreeEnsemble(Call& c) {
  const Tensor x = Rows(c, c.In(0));
  const std::vector<int64_t> features = c.Ints("nodes_featureids"),
                             true_ids = c.Ints("nodes_truenodeids"),
                             false_ids = c.Ints("nodes_falsenodeids"),
                             true_leafs = c.Ints("nodes_trueleafs"),
                             false_leafs = c.Ints("nodes_falseleafs"),
                             missing = c.Ints("nodes_missing_value_tracks_true"),
                             leaf_targets = c.Ints("leaf_targetids");
  const std::vector<double> modes = NumbersOf(c, "nodes_modes"),
                            splits = NumbersOf(c, "nodes_splits"),
                            weights = NumbersOf(c, "leaf_weights"),
                            members = NumbersOf(c, "membership_values");
  Forest f;
  const size_t nodes = features.size(), leaves = leaf_targets.size();
  for (size_t i = 0; i < nodes + leaves; ++i) f.Add();
  size_t member = 0;
  for (size_t i = 0; i < nodes; ++i) {
    const auto child = [&](const std::vector<int64_t>& ids, const std::vector<int64_t>& leafs,
                           const char* name) {
      const int64_t id = At(c, ids, i, name);
      const bool leaf = At(c, leafs, i, name) != 0;
      if (id < 0 || id >= static_cast<int64_t>(leaf ? leaves : nodes)) {
        c.Fail(name, ": ", id, " is no ", leaf ? "leaf" : "node");
      }
      return leaf ? id + static_cast<int64_t>(nodes) : id;
    };
    f.feature[i] = features[i];
    f.on_true[i] = child(true_ids, true_leafs, "nodes_truenodeids");
    f.on_false[i] = child(false_ids, false_leafs, "nodes_falsenodeids");
    if (f.IsLeaf(static_cast<int64_t>(i))) c.Fail("node ", i, " leads back to itself");
    f.missing_is_true[i] =
        missing.empty() ? 0 : At(c, missing, i, "nodes_missing_value_tracks_true");
    f.mode[i] = static_cast<int64_t>(At(c, modes, i, "nodes_modes"));
    if (f.mode[i] < 0 || f.mode[i] >= kModes) c.Fail("node ", i, " has mode ", f.mode[i]);
    f.split[i] = At(c, splits, i, "nodes_splits");
    if (f.mode[i] != static_cast<int64_t>(Mode::kMember)) continue;
    for (; member < members.size() && !std::isnan(members[member]); ++member) {
      f.members[i].push_back(members[member]);
    }
    ++member;  // the NaN between
  }
  for (size_t i = 0; i < leaves; ++i) {
    f.weights[nodes + i] = {{leaf_targets[i], At(c, weights, i, "leaf_weights")}};
  }
  for (const int64_t root : c.Ints("tree_roots")) {
    if (root < 0 || root >= static_cast<int64_t>(nodes)) c.Fail("root ", root, " is no node");
    f.roots.push_back(root);
  }
  if (f.roots.empty()) c.Fail("there is no tree");
  for (const int64_t feature : features) {
    if (feature < 0 || feature >= x.size(1)) {
      c.Fail("feature ", feature, " is none of ", x.size(1));
    }
  }
  constexpr absl::string_view kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO",
                                               "PROBIT"};
  const int64_t how = c.Int("aggregate_function", 1), transform = c.Int("post_transform", 0);
  if (how < 0 || how > 3) c.Fail("aggregate_function is ", how);
  if (transform < 0 || transform > 4) c.Fail("post_transform is ", transform);
  const Tensor scores =
      Scores(c, f, x, c.Int("n_targets", 1), static_cast<Aggregate>(how), x.dtype());
  c.Out(PostTransformed(c, scores, kTransforms[transform]));
}

// Before it: nodes by the number of their tree, and their own in it.
void TreeEnsembleRegressor(Call& c) {
  const Tensor x = Rows(c, c.In(0));
  const std::vector<int64_t> trees = c.Ints("nodes_treeids"), ids = c.Ints("nodes_nodeids"),
                             features = c.Ints("nodes_featureids"),
                             true_ids = c.Ints("nodes_truenodeids"),
                             false_ids = c.Ints("nodes_falsenodeids"),
                             missing = c.Ints("nodes_missing_value_tracks_true");
  const std::vector<std::string> modes = c.Strings("nodes_modes");
  std::vector<double> splits = c.Floats("nodes_values"), weights = c.Floats("target_weights"),
                      base = c.Floats("base_values");
  if (splits.empty()) splits = NumbersOf(c, "nodes_values_as_tensor");
  if (weights.empty()) weights = NumbersOf(c, "target_weights_as_tensor");
  if (base.empty()) base = NumbersOf(c, "base_values_as_tensor");
  Forest f;
  std::map<std::pair<int64_t, int64_t>, int64_t> known;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t tree = At(c, trees, i, "nodes_treeids");
    if (!known.emplace(std::pair(tree, ids[i]), f.Add()).second) {
      c.Fail("node ", ids[i], " of tree ", tree, " is there twice");
    }
  }
  const auto node = [&](int64_t tree, int64_t id) {
    const auto it = known.find({tree, id});
    if (it == known.end()) c.Fail("tree ", tree, " has no node ", id);
    return it->second;
  };
  constexpr absl::string_view kNames[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                          "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  std::vector<bool> is_root(ids.size(), true);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string& mode = At(c, modes, i, "nodes_modes");
    if (mode == "LEAF") continue;
    const auto* const name = std::find(std::begin(kNames), std::end(kNames), mode);
    if (name == std::end(kNames)) c.Fail("node ", i, " has mode '", mode, "'");
    f.mode[i] = name - std::begin(kNames);
    f.feature[i] = At(c, features, i, "nodes_featureids");
    if (f.feature[i] < 0 || f.feature[i] >= x.size(1)) {
      c.Fail("feature ", f.feature[i], " is none of ", x.size(1));
    }
    f.split[i] = At(c, splits, i, "nodes_values");
    f.on_true[i] = node(trees[i], At(c, true_ids, i, "nodes_truenodeids"));
    f.on_false[i] = node(trees[i], At(c, false_ids, i, "nodes_falsenodeids"));
    if (f.IsLeaf(static_cast<int64_t>(i))) c.Fail("node ", i, " leads back to itself");
    f.missing_is_true[i] =
        missing.empty() ? 0 : At(c, missing, i, "nodes_missing_value_tracks_true");
    is_root[static_cast<size_t>(f.on_true[i])] = is_root[static_cast<size_t>(f.on_false[i])] =
        false;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (is_root[i]) f.roots.push_back(static_cast<int64_t>(i));
  }
  if (f.roots.empty()) c.Fail("no node is the first of a tree");
  const std::vector<int64_t> of_tree = c.Ints("target_treeids"), of_node = c.Ints("target_nodeids"),
                             targets = c.Ints("target_ids");
  for (size_t i = 0; i < targets.size(); ++i) {
    const int64_t leaf =
        node(At(c, of_tree, i, "target_treeids"), At(c, of_node, i, "target_nodeids"));
    if (!f.IsLeaf(leaf)) c.Fail("node ", of_node[i], " of tree ", of_tree[i], " is no leaf");
    f.weights[static_cast<size_t>(leaf)].emplace_back(targets[i],
                                                      At(c, weights, i, "target_weights"));
  }
  const int64_t n = c.Int("n_targets", 1);
  Tensor scores = Scores(c, f, x, n, AggregateNamed(c), kFloat32);
  if (!base.empty()) {
    if (static_cast<int64_t>(base.size()) != n) {
      c.Fail("base_values has ", base.size(), " entries for ", n, " targets");
    }
    scores = scores + Walk(c, f, x).List(base).Cast(kFloat32);
  }
  c.Out(PostTransformed(c, scores, c.String("post_transform", "NONE")));
}

}  // namespace tessera::onnx
