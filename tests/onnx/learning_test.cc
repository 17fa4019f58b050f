// The ops of ai.onnx.ml against plain loops, and what they refuse.
#include <cmath>
#include <random>

#include "examples/onnx/import.h"
#include "examples/onnx/strings.h"
#include "runtime/runtime.h"
#include "tests/graph/tensor_testing.h"
#include "tests/onnx/encode.h"
#include "tests/testing.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;
using Attributes = std::vector<std::string>;

Value Made(const std::string& op, const Attributes& attributes,
           const std::vector<std::string>& inputs, int64_t version = 4) {
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) names.push_back(absl::StrCat("x", i));
  const std::string bytes = ModelText(
      GraphText({NodeText(op, names, {"y"}, attributes, "ai.onnx.ml")}, {}, {"y"}, inputs), 20,
      Bytes(8, OpsetText("ai.onnx.ml", version)));
  const Model model = ValueOrThrow(ParseModel(bytes, "test"));
  return Importer(model, "CPU").Run({})[0];
}
std::vector<float> Numbers(const std::string& op, const Attributes& attributes,
                           const std::vector<std::string>& inputs) {
  return Made(op, attributes, inputs).tensor.ToVector<float>();
}
const std::vector<std::string> kTwoByThree = {Floats("x0", {2, 3}, {1, -2, 3, 0, 0, 0})};

TEST(OnnxLearning, Features) {
  EXPECT_THAT(
      Numbers("Scaler", {FloatsAttribute("offset", {1, 0, 1}), FloatsAttribute("scale", {2})},
              kTwoByThree),
      ElementsAre(0, -4, 4, -2, 0, -2));
  EXPECT_THAT(Numbers("Normalizer", {TextAttribute("norm", "L1")}, kTwoByThree),
              ElementsAre(1.F / 6, -2.F / 6, 3.F / 6, 0, 0, 0));
  EXPECT_THAT(Numbers("Normalizer", {}, kTwoByThree), ElementsAre(1.F / 3, -2.F / 3, 1, 0, 0, 0));
  EXPECT_THAT(Numbers("Imputer",
                      {FloatsAttribute("imputed_value_floats", {7, 8, 9}),
                       FloatAttribute("replaced_value_float", NAN)},
                      {Floats("x0", {2, 3}, {NAN, 1, 2, 3, NAN, NAN})}),
              ElementsAre(7, 1, 2, 3, 8, 9));
  EXPECT_THAT(Numbers("FeatureVectorizer", {IntsAttribute("inputdimensions", {1, 2})},
                      {Longs("x0", {2, 1}, {1, 2}), Floats("x1", {2, 2}, {3, 4, 5, 6})}),
              ElementsAre(1, 3, 4, 2, 5, 6));
  EXPECT_THAT(Numbers("LinearRegressor",
                      {FloatsAttribute("coefficients", {1, 0, 0, 1, 1, 1}),
                       FloatsAttribute("intercepts", {0.5F, 0}), IntAttribute("targets", 2)},
                      kTwoByThree),
              ElementsAre(1.5F, 2, 0.5F, 0));
  EXPECT_THAT(
      Numbers("OneHotEncoder", {IntsAttribute("cats_int64s", {3, 1})}, {Longs("x0", {2}, {1, 9})}),
      ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(Numbers("OneHotEncoder", {TextsAttribute("cats_strings", {"a", "b"})},
                      {StringsText("x0", {2}, {"b", "a"})}),
              ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(Numbers("Binarizer", {FloatAttribute("threshold", -1)}, kTwoByThree),
              ElementsAre(1, 0, 1, 1, 1, 1));
}

TEST(OnnxLearning, Labels) {
  EXPECT_THAT(
      Numbers("LabelEncoder",
              {FloatsAttribute("keys_floats", {NAN, 1}), FloatsAttribute("values_floats", {5, 6}),
               FloatAttribute("default_float", 7)},
              {Floats("x0", {3}, {1, NAN, 2})}),
      ElementsAre(6, 5, 7));
  const Value back =
      Made("LabelEncoder",
           {IntsAttribute("keys_int64s", {4, 5}), TextsAttribute("values_strings", {"a", "b"})},
           {Longs("x0", {3}, {5, 6, 4})});
  EXPECT_TRUE(IsStrings(back));
  EXPECT_EQ(back.tensor.ToVector<uint64_t>(),
            (std::vector<uint64_t>{NumberOf("b"), NumberOf("_Unused"), NumberOf("a")}));
  EXPECT_THAT(Made("LabelEncoder", {TextsAttribute("classes_strings", {"a", "b"})},
                   {StringsText("x0", {3}, {"b", "c", "a"})}, 1)
                  .tensor.ToVector<int64_t>(),
              ElementsAre(1, -1, 0));
  EXPECT_THAT(
      Made("CategoryMapper",
           {TextsAttribute("cats_strings", {"a", "b"}), IntsAttribute("cats_int64s", {8, 9})},
           {StringsText("x0", {3}, {"b", "c", "a"})})
          .tensor.ToVector<int64_t>(),
      ElementsAre(9, -1, 8));
}

// Trees of random nodes, walked one row and tree at a time.
TEST(OnnxLearning, TreesAreWalkedAsWritten) {
  std::mt19937 random(5);
  const auto below = [&](int n) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(n));
  };
  const char* const kModes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  constexpr int64_t kRows = 20, kFeatures = 3, kTargets = 2;
  struct Node {
    int64_t tree, id, feature, yes, no;
    int mode;
    float split;
    bool missing;
  };
  std::vector<Node> nodes;
  for (int64_t tree = 0; tree < 3; ++tree) {
    for (int64_t id = 0; id < 7; ++id) {  // 3 to 6 are leaves
      nodes.push_back({tree, id, below(kFeatures), 2 * id + 1, 2 * id + 2,
                       static_cast<int>(id < 3 ? below(6) : -1), static_cast<float>(below(4)),
                       below(2) == 1});
    }
  }
  std::vector<int64_t> trees, ids, features, yes, no, missing, of_tree, of_node, target;
  std::vector<std::string> modes;
  std::vector<float> splits, weights;
  for (const Node& n : nodes) {
    trees.push_back(n.tree);
    ids.push_back(n.id);
    features.push_back(n.feature);
    yes.push_back(n.mode < 0 ? 0 : n.yes);
    no.push_back(n.mode < 0 ? 0 : n.no);
    missing.push_back(n.missing);
    modes.emplace_back(n.mode < 0 ? "LEAF" : kModes[n.mode]);
    splits.push_back(n.split);
    if (n.mode >= 0) continue;
    for (int64_t t = 0; t < kTargets; ++t) {
      of_tree.push_back(n.tree);
      of_node.push_back(n.id);
      target.push_back(t);
      weights.push_back(static_cast<float>(below(9)));
    }
  }
  std::vector<float> x;
  for (int64_t i = 0; i < kRows * kFeatures; ++i) {
    x.push_back(below(6) == 0 ? NAN : static_cast<float>(below(4)));
  }
  for (const char* how : {"SUM", "AVERAGE", "MIN", "MAX"}) {
    std::vector<float> want;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t t = 0; t < kTargets; ++t) {
        std::vector<float> found;
        for (int64_t tree = 0; tree < 3; ++tree) {
          const Node* n = &nodes[static_cast<size_t>(tree * 7)];
          while (n->mode >= 0) {
            const float v = x[static_cast<size_t>(row * kFeatures + n->feature)], s = n->split;
            const bool holds[] = {v <= s, v<s, v >= s, v> s, v == s, v != s};
            const bool is = holds[n->mode] || (std::isnan(v) && n->missing);
            n = &nodes[static_cast<size_t>(tree * 7 + (is ? n->yes : n->no))];
          }
          for (size_t i = 0; i < target.size(); ++i) {
            const bool own = of_tree[i] == tree && of_node[i] == n->id && target[i] == t;
            if (own) found.push_back(weights[i]);
          }
        }
        ASSERT_EQ(found.size(), 3u);
        const float sum = found[0] + found[1] + found[2];
        want.push_back((how == std::string("SUM")       ? sum
                        : how == std::string("AVERAGE") ? sum / 3
                        : how == std::string("MIN")
                            ? *std::min_element(found.begin(), found.end())
                            : *std::max_element(found.begin(), found.end())) +
                       static_cast<float>(t + 1));
      }
    }
    const std::vector<float> got =
        Numbers("TreeEnsembleRegressor",
                {IntsAttribute("nodes_treeids", trees), IntsAttribute("nodes_nodeids", ids),
                 IntsAttribute("nodes_featureids", features),
                 IntsAttribute("nodes_truenodeids", yes), IntsAttribute("nodes_falsenodeids", no),
                 IntsAttribute("nodes_missing_value_tracks_true", missing),
                 TextsAttribute("nodes_modes", modes), FloatsAttribute("nodes_values", splits),
                 IntsAttribute("target_treeids", of_tree), IntsAttribute("target_nodeids", of_node),
                 IntsAttribute("target_ids", target), FloatsAttribute("target_weights", weights),
                 FloatsAttribute("base_values", {1, 2}), IntAttribute("n_targets", kTargets),
                 TextAttribute("aggregate_function", how)},
                {Floats("x0", {kRows, kFeatures}, x)});
    EXPECT_THAT(got, ::testing::Pointwise(::testing::FloatEq(), want)) << how;
  }
}

TEST(OnnxLearning, WhatIsWrong) {
  const auto tree = [](const std::vector<int64_t>& yes, const std::vector<int64_t>& leafs,
                       const std::vector<int64_t>& features = {0, 0}, float mode = 0) {
    return Made(
        "TreeEnsemble",
        {IntsAttribute("nodes_featureids", features), IntsAttribute("nodes_truenodeids", yes),
         IntsAttribute("nodes_falsenodeids", {0, 0}), IntsAttribute("nodes_trueleafs", leafs),
         IntsAttribute("nodes_falseleafs", {1, 1}),
         TensorAttribute("nodes_modes", Floats("m", {2}, {mode, 0})),
         TensorAttribute("nodes_splits", Floats("s", {2}, {0, 0})),
         IntsAttribute("leaf_targetids", {0}),
         TensorAttribute("leaf_weights", Floats("w", {1}, {2})), IntsAttribute("tree_roots", {0})},
        {Floats("x0", {1, 1}, {1})}, 5);
  };
  EXPECT_THAT(tree({1, 0}, {0, 1}).tensor.ToVector<float>(), ElementsAre(2));
  EXPECT_ERROR(tree({1, 0}, {0, 0}), "TreeEnsemble", "leads back to itself");
  EXPECT_ERROR(tree({0, 0}, {0, 1}), "TreeEnsemble", "leads back to itself");
  EXPECT_ERROR(tree({7, 0}, {0, 1}), "TreeEnsemble", "7 is no node");
  EXPECT_ERROR(tree({1, 0}, {0}), "TreeEnsemble", "attribute 'nodes_truenodeids' has 1 entries");
  EXPECT_ERROR(tree({1, 0}, {0, 1}, {0, 5}), "TreeEnsemble", "feature 5 is none of 1");
  EXPECT_ERROR(tree({1, 0}, {0, 1}, {0, 0}, 9), "TreeEnsemble", "node 0 has mode 9");
  EXPECT_ERROR(Made("Scaler", {FloatsAttribute("scale", {1, 2})}, kTwoByThree), "Scaler",
               "has 2 entries for 3 features");
  EXPECT_ERROR(Made("LabelEncoder", {IntsAttribute("keys_int64s", {1})}, {Longs("x0", {1}, {1})}),
               "LabelEncoder", "wants keys and values");
  EXPECT_ERROR(Made("LabelEncoder",
                    {TextsAttribute("keys_strings", {"a"}), IntsAttribute("values_int64s", {1})},
                    {Longs("x0", {1}, {1})}),
               "LabelEncoder", "the input is INT64, its keys are STRING");
  EXPECT_ERROR(Made("OneHotEncoder", {IntsAttribute("cats_int64s", {1}), IntAttribute("zeros", 0)},
                    {Longs("x0", {1}, {2})}),
               "OneHotEncoder", "none of the categories");
  EXPECT_ERROR(Made("LabelEncoder",
                    {IntsAttribute("keys_int64s", {1}), TextsAttribute("values_strings", {"a"}),
                     TensorAttribute("default_tensor", Longs("d", {1}, {0}))},
                    {Longs("x0", {1}, {1})}),
               "LabelEncoder", "default_tensor is INT64, the values are STRING");
  EXPECT_ERROR(Numbers("FeatureVectorizer", {IntsAttribute("inputdimensions", {-1})}, kTwoByThree),
               "FeatureVectorizer", "3 features of -1");
}

TEST(OnnxLearning, OneWideLeafOfMany) {
  constexpr int64_t kCount = 5000;
  const std::vector<int64_t> zeros(kCount, 0);
  std::vector<int64_t> each(kCount);
  for (int64_t i = 0; i < kCount; ++i) each[static_cast<size_t>(i)] = i;
  EXPECT_ERROR(Made("TreeEnsembleRegressor",
                    {IntsAttribute("nodes_treeids", each), IntsAttribute("nodes_nodeids", zeros),
                     TextsAttribute("nodes_modes", std::vector<std::string>(kCount, "LEAF")),
                     IntsAttribute("target_treeids", zeros), IntsAttribute("target_nodeids", zeros),
                     IntsAttribute("target_ids", zeros),
                     FloatsAttribute("target_weights", std::vector<float>(kCount, 1))},
                    {Floats("x0", {1, 1}, {1})}),
               "TreeEnsembleRegressor", "5000 nodes and leaves, one of them with 5000 entries");
}

}  // namespace
}  // namespace tessera::onnx
