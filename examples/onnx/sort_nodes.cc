// Sorting the nodes of each graph by the names that they take, those in their own graphs as well.
#include "examples/onnx/sort_nodes.h"

#include <functional>
#include <queue>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace tessera::onnx {
namespace {

using NameSet = absl::flat_hash_set<absl::string_view>;

class Sorter {
 public:
  explicit Sorter(Model& model) : model_(model), outer_(model.graphs.size()) {}

  void Run() {
    // Graphs of attributes come after those that they belong to.
    for (size_t g = model_.graphs.size(); g-- > 0;) {
      Graph& graph = model_.graphs[g];
      Sort(graph.nodes);
      outer_[g] = OuterNames(graph);
    }
    for (Function& f : model_.functions) Sort(f.nodes);
  }

 private:
  // Calls fn on each name that a node takes.
  template <typename Fn>
  void EachTaken(const Node& node, Fn fn) const {
    for (const std::string& name : node.inputs) fn(name);
    for (const auto& [key, a] : node.attributes) {
      if (a.graph < 0) continue;
      for (const absl::string_view name : outer_[a.graph]) fn(name);
    }
  }

  // What a graph takes of those around it.
  NameSet OuterNames(const Graph& graph) const {
    NameSet own, out;
    for (const ValueInfo& v : graph.inputs) own.insert(v.name);
    for (const TensorData& t : graph.initializers) own.insert(t.name);
    for (const Node& node : graph.nodes) own.insert(node.outputs.begin(), node.outputs.end());
    const auto take = [&](absl::string_view name) {
      if (!own.contains(name)) out.insert(name);
    };
    for (const Node& node : graph.nodes) EachTaken(node, take);
    for (const ValueInfo& v : graph.outputs) take(v.name);
    return out;
  }

  void Sort(std::vector<Node>& nodes) const {
    const auto count = static_cast<int>(nodes.size());
    absl::flat_hash_map<absl::string_view, int> made_by;
    for (int i = 0; i < count; ++i) {
      for (const std::string& name : nodes[i].outputs) {
        if (!name.empty()) made_by.emplace(name, i);
      }
    }
    bool sorted = true;
    std::vector<std::vector<int>> takers(count);
    std::vector<int> waits(count, 0);
    for (int i = 0; i < count; ++i) {
      EachTaken(nodes[i], [&](absl::string_view name) {
        const auto it = made_by.find(name);
        if (it == made_by.end()) return;
        sorted = sorted && it->second < i;
        takers[it->second].push_back(i);
        ++waits[i];
      });
    }
    if (sorted) return;
    // Of those that wait for nothing the first in the file goes first.
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (int i = 0; i < count; ++i) {
      if (waits[i] == 0) ready.push(i);
    }
    std::vector<int> order;
    while (!ready.empty()) {
      const int i = ready.top();
      ready.pop();
      order.push_back(i);
      for (const int taker : takers[i]) {
        if (--waits[taker] == 0) ready.push(taker);
      }
    }
    if (static_cast<int>(order.size()) < count) return;
    std::vector<Node> out;
    for (const int i : order) out.push_back(std::move(nodes[i]));
    nodes = std::move(out);
  }

  Model& model_;
  std::vector<NameSet> outer_;  // of each graph, once it has been looked at
};

}  // namespace

void SortNodes(Model& model) { Sorter(model).Run(); }

}  // namespace tessera::onnx
