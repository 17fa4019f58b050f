// The identity of a graph up to which buffers it reads: what plans are cached by.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "graph/uop.h"
#include "runtime/device.h"
#include "schedule/plan.h"

namespace tessera {

// A graph as words, equal for two graphs that differ only in their buffers, and those buffers in
// the order of their first use. Realised nodes count as the buffers they were computed into. The
// words are the whole structure, so equal keys are equal graphs.
struct PlanKey {
  std::vector<uint64_t> words;
  std::vector<UOp> order;   // the nodes, sources first, down to leaves
  std::vector<UOp> leaves;  // BUFFERs by slot
  // The words of node i of the order are those from starts[i] below starts[i + 1]; those at `refs`
  // are numbers of nodes, as the roots are.
  std::vector<uint32_t> starts, refs;
  std::vector<int> roots;
  // The words that hold the numbers of a node: a constant's value, or where a SHRINK or PAD begins
  // and ends on an axis, if both are integers.
  struct NumberWords {
    int node;             // in the order
    int axis;             // -1: a constant, whose value is at `begin`
    uint32_t begin, end;  // words
  };
  std::vector<NumberWords> number_words;
  std::vector<UOp> draws;  // by slot, sums whose second operand is where a draw begins to count
  // By slot, numbers that are VARs in the plan: of a constant, or where a SHRINK or PAD begins.
  struct Number {
    int node;  // in the order
    int axis;  // -1: a constant
    int64_t value;
  };
  std::vector<Number> numbers;
  bool on_meshes = false;  // some node is on a Sharding
  Lasting lasting;         // none, until SetLasting
};

// Whether a node's value is that of its first source, and says something of it for derivatives
// alone: nothing to a plan.
bool StandsForFirst(const UOp& u);

// With `draws_vary`, where random draws begin to count is no part of the words: WithParams makes
// it a VAR, so that a plan serves later draws too.
PlanKey MakePlanKey(absl::Span<const UOp> roots, bool draws_vary = false);

// Makes what lasts from run to run a part of the key, if anything does.
void SetLasting(PlanKey& key, Lasting lasting);

// How the leaves that have no contents yet are written: whole by an ASSIGN of the graph, or not.
class FirstWrites {
 public:
  explicit FirstWrites(const PlanKey& key);
  Written Of(const UOp& leaf) const {
    return whole_.contains(leaf.get()) ? Written::kWhole : Written::kInParts;
  }

 private:
  absl::flat_hash_set<const Node*> whole_;
};

// The values of the VARs that stand for where draws begin and for numbers, by name.
std::map<std::string, int64_t> KeyBindings(const PlanKey& key);

// The roots with each leaf as the PARAM of its slot.
std::vector<UOp> WithParams(absl::Span<const UOp> roots, const PlanKey& key);

// The same of some nodes of the graph: `order` has what they are made of, sources first, down to
// nodes that `params` gives.
std::vector<UOp> WithParams(absl::Span<const UOp> roots, const PlanKey& key,
                            absl::Span<const UOp> order,
                            const absl::flat_hash_map<const Node*, UOp>& params);

}  // namespace tessera
