// What the parts of the validator share: the graph under test as a list of nodes in order.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "graph/spec.h"
#include "graph/spec_points.h"

namespace tessera {

// A statement as messages show it.
std::string Shown(absl::string_view statement);

struct SpecNode {
  Op op = Op::kConst;
  DType dtype;               // as stated
  const Arg* arg = nullptr;  // null where it could not be read
  UOp value;                 // the node, or a stand-in of its dtype where that cannot be made
  int first_src = 0;         // in SpecGraph::edges
  int num_srcs = 0;
  bool bad = false;       // a violation of its own has been reported, or a source is unknown
  bool partial = false;   // a source is unknown, and missing from the edges
  bool stand_in = false;  // `value` is one
  bool vague = false;     // its shape, or what kind of node it is, is not known
  // Whether the value is the node itself, with all its properties.
  bool sure() const { return !bad && !stand_in && !vague; }
};

struct SpecGraph {
  explicit SpecGraph(const SpecOptions& o) : options(o) {}

  const SpecOptions& options;
  SpecStage stage = SpecStage::kTensor;
  std::vector<SpecNode> nodes;  // sources before their users
  std::vector<int> edges;
  std::vector<int> roots;
  absl::flat_hash_map<const Node*, int> index;  // of values, but for stand-ins
  std::vector<absl::string_view> texts;         // of the statements, and
  std::vector<int> lines;                       // where they are; empty in memory
  std::vector<Violation> violations;
  std::vector<int> reported;  // violations by node; those beyond the first few are left out
  int64_t budget = 8 << 20;   // nodes that may still be evaluated at points

  absl::Span<const int> srcs(int i) const {
    return absl::MakeConstSpan(edges).subspan(nodes[i].first_src, nodes[i].num_srcs);
  }
  const SpecNode& src(int i, int k) const { return nodes[edges[nodes[i].first_src + k]]; }

  // Reports node i under a rule, unless the rule is of another stage or a higher level.
  template <typename... Parts>
  void Report(SpecRule rule, int i, const Parts&... parts) {
    if (Applies(rule)) Add(rule, i, absl::StrCat(parts...));
  }
  bool Applies(SpecRule rule) const;
  std::string NodeText(int i) const;  // cut where it is long

 private:
  void Add(SpecRule rule, int i, std::string message);
};

// A node as the rules on single nodes see it. src_ops are the ops as stated, where a value of srcs
// is a stand-in.
struct NodeView {
  Op op;
  DType dtype;
  absl::Span<const UOp> srcs;
  absl::Span<const Op> src_ops;
  const Arg& arg;
};
using ReportFn = absl::FunctionRef<void(SpecRule rule, std::string message)>;

// Whether all sources have values, where the op needs them; reports one that has not.
bool CheckOperands(const NodeView& v, ReportFn report);
// The rules on one node that need no more than its sources, beyond those of inference, which the
// node has passed.
void CheckForm(const NodeView& v, ReportFn report);

// Infers node i from its sources, reports what is wrong with it by itself, and gives it a value.
// `stated` is the node in memory, if it is one; `shape` and `device` come from an annotation.
struct StatedShape {
  bool known = false;
  Shape shape;
  Device device;
};
void CheckNode(SpecGraph& g, int i, const UOp& stated, const StatedShape& annotation);

// The rules on whole graphs of a stage; every node has been through CheckNode.
void CheckCommon(SpecGraph& g);
void CheckTensorGraph(SpecGraph& g);
void CheckLoops(SpecGraph& g);  // those of them on LOOPs
void CheckKernelGraph(SpecGraph& g);
void CheckProgramGraph(SpecGraph& g);
// Those on kernels and programs alike: pointers, range ids; parameters and launch limits.
void CheckRanges(SpecGraph& g);
void CheckLaunch(SpecGraph& g);

// An access of `lanes` elements from `offset` on of what node `pointer` points at, by node `node`.
struct SpecAccess {
  int node = 0, pointer = 0;
  UOp offset;
  int lanes = 1;
  std::vector<UOp> conditions = {};  // it happens only where all of them hold,
  std::vector<UOp> loops = {};       // and only inside these
  bool runs = true;                  // whether all loops around it do run
};
// Reports it if it lies outside for certain, or at some point of its loops.
void CheckAccess(SpecGraph& g, const SpecAccess& access, SpecPoints::Reads reads,
                 SpecPoints::Blocks blocks = SpecPoints::Blocks::kWithinBounds);
// Reports it if two of the threads, by the name of their variable, put to one element at once.
void CheckApart(SpecGraph& g, const SpecAccess& put, absl::Span<const absl::string_view> threads,
                SpecPoints::Blocks blocks);
// The elements to which an access puts: all that it may, where that is known.
struct SpecFill {
  bool known = false;
  absl::flat_hash_set<int64_t> elements;
};
SpecFill FillOf(SpecGraph& g, const SpecAccess& put,
                SpecPoints::Blocks blocks = SpecPoints::Blocks::kWithinBounds);
// Reports it if it reads what none of them fills.
void CheckFilled(SpecGraph& g, const SpecAccess& read, absl::Span<const SpecFill* const> fills,
                 SpecPoints::Blocks blocks = SpecPoints::Blocks::kWithinBounds);
// Reports STOREs of SINKs of kernels that write one element twice, or read what they write at
// another point.
void CheckWrites(SpecGraph& g);
// The rules on SCRATCH and on STAGEs of kernels; on SCRATCH, REGs and warps in programs.
void CheckScratch(SpecGraph& g);

}  // namespace tessera
