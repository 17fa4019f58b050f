// Fusion by one walk from the roots to the leaves, tracking which loops index each axis.
#include "schedule/fuse.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "graph/fault.h"
#include "graph/infer.h"
#include "graph/lookup.h"
#include "graph/status.h"
#include "schedule/axis_map.h"
#include "schedule/groups.h"
#include "schedule/localise.h"

namespace tessera {
namespace {

// What lies below a node, down to leaves, reductions and what has a buffer whatever reads it.
struct Below {
  int ops = 0;                 // elementwise, saturating
  const Node* leaf = nullptr;  // the one leaf with storage, if there is one
  bool many_leaves = false;
  bool reduces = false;
  bool expensive = false;
};

constexpr int kManyOps = 1 << 20;
constexpr int kMostFactors = 32;  // of a sum, among which its dot products are looked for
// Elements of a row across memory that stay in cache until they are read again, each in a line of
// its own, of which many may share the same few places: with a short reader, and with one that
// takes so long that loads wait for one another. (4096 x 4096 along axis 0: softmax 26 ms with the
// maximum in the kernel of its reader, 10 apart. Over 40 channels 4.5 and 2.7; but what is
// normalised over 40 channels 1.1 and 3.6.)
constexpr int64_t kLinesKept = 256, kLinesOfExpensive = 32;
// Columns of a product, and elements of what it multiplies with them, for which these are rounded
// before. (1024 x 1024 floats as bf16 times as many: 24.6 ms, and 9.5 with them rounded before.)
constexpr int64_t kLeastColumnsToRound = 256, kLeastToRound = 1 << 14;
constexpr int64_t kSmallWork = 1 << 16;  // elements below which parallelism does not matter

struct Demand {
  int kernel;
  AxisMap map;
};

struct NodeState {
  absl::InlinedVector<Demand, 1> demands;
  bool materialize = false;
  // The value is read many times by a contraction: for each tile of it, or each element of a
  // window.
  bool repeated_operand = false;
};

struct Kernel {
  int root = -1;
  int ranges = 0;  // loops over the root's axes: the first ones
  int nodes = 0;
  int inputs = 0;            // values asked for that are not computed in it, so far
  int loops = 0;             // of its own and of its reductions, at most
  uint64_t reduce_mask = 0;  // the loops outside of its inlined reductions
  bool has_reduce = false, has_contraction = false;
  bool scales_dots = false;  // its contraction sums dot products that it computes, too
  bool expensive = false;    // some op of it is, so far
};

// The value that is there, in another dtype: computed anew as easily as read.
bool IsConversion(const UOp& u) { return u.is(Op::kCast) || u.is(Op::kBitcast); }

class Fuser {
 public:
  Fuser(absl::Span<const UOp> roots, const Targets& targets) : targets_(targets) {
    order_ = TopoSort(roots);
    states_.resize(order_.size());
    index_.reserve(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) index_[order_[i].get()] = static_cast<int>(i);
    for (const UOp& r : roots) states_[index_[r.get()]].materialize = !IsLeaf(r);
    MarkForced();
    Summarize();
  }

  Fusion Run() {
    for (int i = static_cast<int>(order_.size()) - 1; i >= 0; --i) Visit(i);
    Fusion out;
    for (size_t i = 0; i < order_.size(); ++i) {
      if (!states_[i].materialize) continue;
      out.group_of[order_[i].get()] = static_cast<int>(out.groups.size());
      out.groups.push_back({{order_[i]}, {}});
    }
    for (FusedGroup& g : out.groups) g.inputs = InputsOf(g, out);
    return out;
  }

 private:
  static bool IsLeaf(const UOp& u) { return Info(u.op()).cls == OpClass::kLeaf; }

  void Summarize() {
    below_.resize(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      const UOp& u = order_[i];
      Below& b = below_[i];
      if (u.is(Op::kParam) || u.is(Op::kBuffer)) b.leaf = u.get();
      for (const UOp& s : u.srcs()) {
        const Below& sb = below_[index_[s.get()]];
        b.ops = std::min(kManyOps, b.ops + sb.ops);
        b.reduces |= sb.reduces;
        b.expensive |= sb.expensive;
        b.many_leaves |= sb.many_leaves || (b.leaf && sb.leaf && b.leaf != sb.leaf);
        if (b.leaf == nullptr) b.leaf = sb.leaf;
      }
      if (IsElementwise(u.op()) && !IsConversion(u)) ++b.ops;
      b.expensive |= HasProperty(u.op(), kExpensive);
      b.reduces |= u.is(Op::kReduce);
      if (PicksRows(u)) {
        const int index = index_[u.src(1).get()];
        if (below_[index].reduces) Materialize(u.src(1));
        if (below_[index].reduces || Cheap(index)) b = below_[index_[u.src(0).get()]];
      }
      if (states_[i].materialize) b = Below{.leaf = u.get()};  // read from its buffer
    }
  }

  // Whether a GATHER shows long rows of what is in memory: they are read where they lie, however
  // often, as all that is found again is where a row begins.
  bool PicksRows(const UOp& u) {
    if (!u.is(Op::kGather) || !ShowsLongRows(u)) return false;
    const int table = index_[u.src(0).get()];
    return below_[table].leaf != nullptr && below_[table].ops == 0 && Cheap(table);
  }

  // Values that have a buffer whatever reads them.
  void MarkForced() {
    for (size_t i = 0; i < order_.size(); ++i) {
      const UOp& u = order_[i];
      if (u.is(Op::kContiguous) || IsTransfer(u) || u.is(Op::kAssign) || u.is(Op::kScatter)) {
        states_[i].materialize = true;
      }
      if (IsTransfer(u)) {
        for (const UOp& s : u.srcs()) Materialize(s);
      }
      if (u.is(Op::kAssign)) {
        Materialize(u.src(0));
        if (ReadsElsewhere(u)) Materialize(u.src(2));
      }
    }
  }

  void Materialize(const UOp& u) {
    if (!u.is(Op::kParam) && !u.is(Op::kBuffer)) states_[index_[u.get()]].materialize = true;
  }

  // Whether the value of an ASSIGN reads its base other than element by element at the very place
  // that it overwrites.
  bool ReadsElsewhere(const UOp& assign) {
    if (FaultPlanted(Fault::kOverwrittenInPlace)) return false;
    const UOp& base = assign.src(0);
    const UOp& view = assign.src(1);
    absl::flat_hash_map<const Node*, bool> seen;                        // whether only pointwise
    std::vector<std::pair<UOp, bool>> stack = {{assign.src(2), true}};  // node, still pointwise
    while (!stack.empty()) {
      auto [u, pointwise] = stack.back();
      stack.pop_back();
      if (u == view && pointwise) continue;
      if (u == base) return true;
      if (index_[u.get()] < index_[base.get()]) continue;  // before it: cannot read it
      const auto [before, fresh] = seen.emplace(u.get(), pointwise);
      if (!fresh && (pointwise || !before->second)) continue;
      before->second = pointwise;
      if (states_[index_[u.get()]].materialize || u.is(Op::kContiguous)) continue;
      for (const UOp& s : u.srcs()) stack.emplace_back(s, pointwise && IsElementwise(u.op()));
    }
    return false;
  }

  bool Cheap(int i) const {
    const Below& b = below_[i];
    return !b.reduces && !b.many_leaves && !b.expensive && b.ops <= kCheapOps;
  }

  // Integers in memory, or the least or largest that they may be.
  bool IsCut(int i) const {
    const UOp& u = order_[i];
    const bool cuts = u.is(Op::kMin) || u.is(Op::kMax);
    return cuts && u.dtype().IsInt() && below_[i].ops <= 2 && Cheap(i);
  }

  // What is in memory in a dtype that is no longer: a copy would be read no faster.
  bool IsWidened(int i) const {
    const UOp& u = order_[i];
    return IsConversion(u) && below_[i].leaf != nullptr && below_[i].ops == 0 && Cheap(i) &&
           u.src(0).dtype().bytes() <= u.dtype().bytes();
  }

  // Made of loops and constants alone, by little: nothing that a reader could read is as near.
  bool OfLoops(int i) const { return below_[i].leaf == nullptr && Cheap(i); }

  void Visit(int i) {
    NodeState& state = states_[i];
    const UOp& u = order_[i];
    if (IsLeaf(u) || (state.demands.empty() && !state.materialize)) return;
    if (!state.materialize) state.materialize = MustKeep(i);
    if (state.materialize) {
      // A kernel of its own, one loop an axis.
      Kernel k;
      k.root = i;
      k.ranges = LoopShape(u).rank();
      k.loops = std::popcount(IdentityMap(LoopShape(u)).Mask()) + ReducedAxes(u);
      kernels_.push_back(k);
      Demand own{static_cast<int>(kernels_.size()) - 1, IdentityMap(LoopShape(u))};
      state.demands.clear();
      state.demands.push_back(std::move(own));
    }
    absl::InlinedVector<int, 4> entered;
    for (const Demand& d : state.demands) {
      Kernel& k = kernels_[d.kernel];
      const bool first = std::find(entered.begin(), entered.end(), d.kernel) == entered.end();
      if (first && k.root != i) --k.inputs;  // no more
      entered.push_back(d.kernel);
      Enter(i, d);
    }
  }

  static const Shape& LoopShape(const UOp& u) {
    return u.is(Op::kAssign) ? u.src(1).shape() : WrittenFor(u).shape();
  }

  // One number made of launch variables: a kernel of its own would run on no place, and some of
  // them have values on places alone.
  bool OfVariables(int i) const {
    const UOp& u = order_[i];
    return u.rank() == 0 && !u.device() && below_[i].leaf == nullptr && !below_[i].reduces;
  }

  bool MustKeep(int i) {
    const NodeState& state = states_[i];
    const UOp& u = order_[i];
    if (OfVariables(i)) return false;
    if (state.demands.size() > 1 && !Cheap(i) && !IsMovement(u.op())) return true;
    // Many readers: what an EXPAND repeats is kept, not the repetitions; what a RESHAPE shows, and
    // not a copy in another shape or dtype; nor positions that are cut to what is there, as that
    // shows each reader that they are; nor what is made of loops.
    if (state.demands.size() > 4 && !IsCut(i) && !IsWidened(i) && !OfLoops(i)) {
      return !u.is(Op::kExpand) && !u.is(Op::kReshape);
    }
    const Demand& d = state.demands[0];
    Kernel& k = kernels_[d.kernel];
    if (k.nodes >= kMostKernelNodes) return !IsMovement(u.op()) || k.nodes >= 2 * kMostKernelNodes;
    if (u.size() > 1 && WouldReadTooMuch(i)) return true;
    if (state.repeated_operand && IsElementwise(u.op()) && !IsConversion(u)) return true;
    if (state.repeated_operand && u.is(Op::kCat) && below_[i].ops > 0) return true;
    if (state.repeated_operand && RoundsForMany(i, d, k)) return true;
    if (u.is(Op::kReduce)) return !CanInline(u, d, k);
    if (IsElementwise(u.op()) && !IsConversion(u) && below_[i].expensive) return !Hoistable(d, k);
    return false;
  }

  // Whether a CPU's products would round floats in memory anew for each tile of many columns, which
  // takes longer than what the products do with them.
  bool RoundsForMany(int i, const Demand& d, const Kernel& k) const {
    const UOp& u = order_[i];
    const bool rounds = u.is(Op::kCast) && u.dtype().IsFloat() && u.src(0).dtype().IsFloat() &&
                        u.dtype().bits() < u.src(0).dtype().bits();
    if (!rounds || below_[i].leaf == nullptr || below_[i].ops > 0 || below_[i].reduces)
      return false;
    if (targets_.Of(u.device()).dialect != Dialect::kCpp) return false;
    const int64_t times = Iterations(k, RealLoops(k) & ~d.map.Mask());
    return times >= kLeastColumnsToRound && u.shape().MaxElements() >= kLeastToRound;
  }

  // Whether a kernel that computes node i as well would have more inputs than its target takes.
  bool WouldReadTooMuch(int i) const {
    const int most = targets_.Of(order_[i].device()).max_params - kSpareParams;
    return std::any_of(states_[i].demands.begin(), states_[i].demands.end(), [&](const Demand& d) {
      return kernels_[d.kernel].inputs + order_[i].size() > most;
    });
  }

  // Whether the loops that do not index the value all lie inside those that do.
  bool Hoistable(const Demand& d, const Kernel& k) const {
    const uint64_t mask = d.map.Mask();
    const uint64_t root = (uint64_t{1} << std::min(k.ranges, 63)) - 1;
    if (mask & ~root) return true;  // inside a reduction: indexed by its loop
    const uint64_t missing = RealLoops(k) & ~mask;
    return missing == 0 || mask == 0 || std::countr_zero(missing) > 63 - std::countl_zero(mask);
  }

  // The loops of a kernel's root that have more than one iteration.
  uint64_t RealLoops(const Kernel& k) const {
    return IdentityMap(LoopShape(order_[k.root])).Mask();
  }

  int64_t Iterations(const Kernel& k, uint64_t mask) const {
    int64_t n = 1;
    const Shape& shape = LoopShape(order_[k.root]);
    for (int a = 0; a < shape.rank(); ++a) {
      if (mask >> a & 1) n *= std::max<int64_t>(1, shape[a].max());
    }
    return n;
  }

  static int ReducedAxes(const UOp& u) {
    if (u.is(Op::kScatter)) return Lookup::Of(u).own() + 1;
    return u.is(Op::kReduce) ? static_cast<int>(u.arg<ReduceArg>().axes.size()) : 0;
  }

  bool CanInline(const UOp& r, const Demand& d, Kernel& k) {
    if (k.loops + ReducedAxes(r) > kMaxKernelLoops) return false;
    if (order_[k.root].is(Op::kScatter)) return false;  // it would run again for each part
    if (IsByteProduct(r) && OfScaledDots(r, d, k)) {
      k.loops += ReducedAxes(r);
      return true;
    }
    const uint64_t mask = d.map.Mask(), all = RealLoops(k);
    if (!d.map.OneToOne(k.ranges)) return false;
    const bool epilogue = mask == all;
    const bool contraction = IsContraction(r) || IsScaledDots(r);
    if (contraction && (!epilogue || k.has_reduce)) return false;
    if (k.has_contraction) return false;
    if (k.has_reduce && k.reduce_mask != mask) return false;
    if (!epilogue || k.has_reduce || order_[k.root].is(Op::kReduce)) {
      // The row is read again: it must stay in cache, and rows are what is left to share out.
      const int64_t row =
          r.src(0).shape().MaxElements() / std::max<int64_t>(1, r.shape().MaxElements());
      const int64_t rows = Iterations(k, mask);
      const Target& target = targets_.Of(r.device());
      const int64_t bytes = r.src(0).dtype().bytes();
      if (row * bytes > target.l2_bytes / 2) return false;
      if (row > (k.expensive ? kLinesOfExpensive : kLinesKept) &&
          r.src(0).shape().MaxElements() > target.l2_bytes / bytes &&
          target.dialect != Dialect::kCuda && !RunsAlongMemory(r)) {
        return false;
      }
      // A GPU's block is fast enough by itself that few of them cost less than another launch;
      // very few have less to do.
      const int64_t of_row = row + Iterations(k, all & ~mask);
      const bool blocks = target.dialect == Dialect::kCuda;
      const int64_t most = blocks && rows < target.cores / 8 ? kSmallWork / 4 : kSmallWork;
      if (rows < 2 * target.cores && (blocks ? of_row : rows * of_row) > most) return false;
    }
    k.loops += ReducedAxes(r);
    k.has_reduce = true;
    k.has_contraction |= contraction;
    k.scales_dots |= IsScaledDots(r);
    k.reduce_mask = mask;
    return true;
  }

  // Whether dot products of bytes are asked for by the sum of a kernel that scales them, by
  // nothing but loops: both are then done as one.
  bool OfScaledDots(const UOp& r, const Demand& d, const Kernel& k) const {
    const uint64_t all = RealLoops(k);
    uint64_t seen = 0;
    for (const AxisLoop& a : d.map.axes) {
      if (a.id == 0) continue;
      if (std::popcount(a.mask) != 1 || a.id != std::countr_zero(a.mask) + uint64_t{1})
        return false;
      if (seen & a.mask) return false;
      seen |= a.mask;
    }
    return k.scales_dots && k.reduce_mask == all && (seen & all) == all && seen != all;
  }

  // Node i is computed by kernel d.kernel at d.map: asks for its sources.
  void Enter(int i, const Demand& d) {
    const UOp& u = order_[i];
    Kernel& k = kernels_[d.kernel];
    k.nodes += KernelNodesOf(u);
    k.expensive |= HasProperty(u.op(), kExpensive);
    if (IsTransfer(u)) return;  // reads buffers whole
    if (u.is(Op::kAssign)) {
      Ask(u.src(2), d.kernel, d.map, false);
      return;
    }
    if (u.is(Op::kReshape) && k.root == i) {
      Ask(WrittenFor(u), d.kernel, d.map, false);
      return;
    }
    if (u.is(Op::kReduce) && k.root == i) {
      k.has_reduce = true;
      k.reduce_mask = d.map.Mask();
      k.scales_dots = IsScaledDots(u);
      k.has_contraction = k.scales_dots || IsContraction(u);
    }
    const bool contraction = u.is(Op::kReduce) && IsContraction(u);
    for (int s = 0; s < u.size(); ++s) {
      AxisMap map = SourceMap(u, s, d.map, LoopShape(order_[k.root]));
      if (!contraction) {
        const bool repeated = states_[i].repeated_operand || (k.has_contraction && Overlaps(u));
        Ask(u.src(s), d.kernel, map, repeated && (IsMovement(u.op()) || IsConversion(u)));
        continue;
      }
      // Straight to the product's operands: one that lacks the last loop is read once a tile of it.
      ++k.nodes;
      for (const UOp& operand : u.src(0).srcs()) {
        const bool lacks_last = LacksLastLoop(u, operand);
        Ask(operand, d.kernel, map, lacks_last);
      }
    }
  }

  // Whether a WINDOW shows elements of its source more than once.
  static bool Overlaps(const UOp& u) {
    if (!u.is(Op::kWindow)) return false;
    const WindowArg& w = u.arg<WindowArg>();
    for (size_t i = 0; i < w.axes.size(); ++i) {
      if (w.size[i] > w.stride[i]) return true;
    }
    return false;
  }

  // Whether an operand of a contraction is the same along the result's last axis, which is long. An
  // axis that both have, as of the parts of a long sum, is one of several products.
  static bool LacksLastLoop(const UOp& reduce, const UOp& operand) {
    const auto& axes = reduce.arg<ReduceArg>().axes;
    const UOp& product = reduce.src(0);
    for (int a = reduce.rank() - 1; a >= 0; --a) {
      if (std::find(axes.begin(), axes.end(), a) != axes.end()) continue;
      if (reduce.shape()[a].max() <= 1) continue;
      if (VariesOnAxis(product.src(0), a) && VariesOnAxis(product.src(1), a)) continue;
      return reduce.shape()[a].max() > 4 && VariesOnAxis(operand, a) == false;
    }
    return false;
  }

  void Ask(const UOp& s, int kernel, const AxisMap& map, bool repeated) {
    NodeState& state = states_[index_[s.get()]];
    state.repeated_operand |= repeated;
    bool asked = false;
    for (const Demand& d : state.demands) {
      if (d.kernel == kernel && d.map == map) return;
      asked |= d.kernel == kernel;
    }
    if (!asked && (!IsLeaf(s) || s.is(Op::kParam) || s.is(Op::kBuffer))) {
      ++kernels_[kernel].inputs;
    }
    if (state.demands.size() < 6) state.demands.push_back({kernel, map});
  }

  static constexpr int kMaxKernelLoops = 32;
  static constexpr int kSpareParams = 16;  // for outputs
  const Targets& targets_;
  std::vector<UOp> order_;
  std::vector<NodeState> states_;
  std::vector<Below> below_;
  absl::flat_hash_map<const Node*, int> index_;
  std::vector<Kernel> kernels_;
};

}  // namespace

UOp WrittenFor(const UOp& value) {
  UOp u = value;
  while (u.is(Op::kReshape)) u = UOp(u.src(0));
  return u;
}

int KernelNodesOf(const UOp& u) { return u.is(Op::kGather) ? 16 : u.is(Op::kPad) ? 4 : 1; }

bool IsContraction(const UOp& reduce) {
  if (!reduce.is(Op::kReduce) || reduce.arg<ReduceArg>().op != Op::kAdd) return false;
  const UOp& product = reduce.src(0);
  if (!product.is(Op::kMul) || product.src(0).rank() != product.rank() ||
      product.src(1).rank() != product.rank()) {
    return false;
  }
  const auto& axes = reduce.arg<ReduceArg>().axes;
  bool lacks[2] = {false, false};
  for (int a = 0; a < reduce.rank(); ++a) {
    if (std::find(axes.begin(), axes.end(), a) != axes.end() || product.shape()[a].max() <= 1)
      continue;
    for (int s : {0, 1}) lacks[s] |= !VariesOnAxis(product.src(s), a);
  }
  return lacks[0] || lacks[1];
}

bool ShowsLongRows(const UOp& gather) {
  constexpr int64_t kLongRow = 32;
  const int64_t rows = std::max<int64_t>(1, gather.src(1).shape().MaxElements());
  return gather.shape().MaxElements() / rows >= kLongRow;
}

bool IsByteProduct(const UOp& reduce) {
  if (!reduce.is(Op::kReduce) || reduce.arg<ReduceArg>().op != Op::kAdd) return false;
  const UOp& product = reduce.src(0);
  if (!product.is(Op::kMul) || !(product.dtype().Scalar() == kInt32)) return false;
  return std::all_of(product.srcs().begin(), product.srcs().end(), [](UOp s) {
    while (IsMovement(s.op())) s = UOp(s.src(0));
    return s.is(Op::kCast) && s.src(0).dtype().IsInt() && s.src(0).dtype().bits() == 8;
  });
}

bool IsScaledDots(const UOp& reduce) {
  if (!reduce.is(Op::kReduce) || reduce.arg<ReduceArg>().op != Op::kAdd) return false;
  if (!(reduce.dtype() == kFloat32)) return false;
  std::vector<UOp> stack = {UOp(reduce.src(0))};
  for (int looked = 0; !stack.empty() && looked < kMostFactors; ++looked) {
    const UOp u = stack.back();
    stack.pop_back();
    if (IsByteProduct(u)) return true;
    if (u.is(Op::kMul) || u.is(Op::kAdd) || u.is(Op::kCast) || IsMovement(u.op())) {
      stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
  }
  return false;
}

absl::StatusOr<Fusion> Fuse(absl::Span<const UOp> roots, const Targets& targets) {
  return Fuser(roots, targets).Run();
}

}  // namespace tessera
