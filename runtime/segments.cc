// Cutting graphs behind the values through which everything goes, and joining the plans.
#include "runtime/segments.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/spec.h"
#include "graph/status.h"
#include "schedule/fuse.h"
#include "schedule/schedule.h"

namespace tessera {
namespace {

constexpr int kLeastNodes = 200;  // of a graph; less is scheduled in no time
constexpr int kMostShared = 8;    // values besides the one at the end that later segments read
constexpr size_t kLeastCuts = 4;

// What the cutting goes by, by node.
struct Nodes {
  std::vector<int> last_use;       // the last node that reads it, through nodes that are made again
  std::vector<int> uses;           // by nodes that are not made again
  std::vector<bool> again;         // made again in each segment that reads it, as fusion would
  std::vector<bool> from_product;  // a contraction, or elementwise of one, moved or not
};

class Cutter {
 public:
  explicit Cutter(const PlanKey& key) : key_(key), size_(static_cast<int>(key.order.size())) {}

  std::vector<Segment> Run() {
    if (size_ < kLeastNodes || key_.on_meshes || !OnePlace()) return {};
    if (!key_.draws.empty() || !key_.numbers.empty()) return {};
    const auto loops = [](const UOp& u) { return u.is(Op::kLoop); };
    if (std::any_of(key_.order.begin(), key_.order.end(), loops)) return {};  // bodies are no parts
    Summarise();
    is_root_.assign(size_, false);
    for (int r : key_.roots) is_root_[r] = true;
    std::vector<Segment> out = SegmentsBetween(Cuts());
    const auto repeats = [](const Segment& s) { return s.like >= 0; };
    if (std::none_of(out.begin(), out.end(), repeats)) return {};
    return out;
  }

 private:
  bool OnePlace() const {
    Device place;
    for (const UOp& u : key_.order) {
      if (!u.device() || u.device() == place) continue;
      if (place) return false;
      place = u.device();
    }
    return static_cast<bool>(place);
  }

  bool IsLeaf(int i) const {
    return key_.words[key_.starts[i]] == static_cast<uint64_t>(Op::kBuffer);
  }
  int SlotOf(int i) const { return static_cast<int>(key_.words[key_.starts[i] + 1]); }

  // Calls with each node that node i reads, or has in its argument.
  template <typename F>
  void ForEachRef(int i, F f) const {
    for (uint32_t r = first_ref_[i]; r < first_ref_[i + 1]; ++r) {
      f(static_cast<int>(key_.words[key_.refs[r]]));
    }
  }

  void Summarise() {
    first_ref_.resize(size_ + 1);
    uint32_t r = 0;
    for (int i = 0; i <= size_; ++i) {
      while (r < key_.refs.size() && key_.refs[r] < key_.starts[i]) ++r;
      first_ref_[i] = r;
    }
    struct Below {
      int ops = 0, leaf = -1;
      bool many_leaves = false, dear = false;
    };
    std::vector<Below> below(size_);
    nodes_.again.resize(size_);
    nodes_.from_product.resize(size_);
    for (int i = 0; i < size_; ++i) {
      const UOp& u = key_.order[i];
      Below& b = below[i];
      if (IsLeaf(i)) {
        b.leaf = SlotOf(i);
        continue;
      }
      bool of_product = u.is(Op::kReduce) && (IsContraction(u) || IsScaledDots(u));
      ForEachRef(i, [&](int s) {
        const Below& sb = below[s];
        b.ops = std::min(b.ops + sb.ops, kCheapOps + 1);
        b.many_leaves |= sb.many_leaves || (b.leaf >= 0 && sb.leaf >= 0 && b.leaf != sb.leaf);
        b.dear |= sb.dear;
        if (b.leaf < 0) b.leaf = sb.leaf;
        of_product |= (IsElementwise(u.op()) || IsMovement(u.op())) && nodes_.from_product[s];
      });
      const bool is_leaf = Info(u.op()).cls == OpClass::kLeaf;
      const bool plain = IsElementwise(u.op()) || IsMovement(u.op()) || is_leaf;
      b.ops += IsElementwise(u.op()) && !u.is(Op::kCast) ? 1 : 0;
      b.dear |= HasProperty(u.op(), kExpensive) || !plain;
      nodes_.from_product[i] = of_product;
      const bool of_variables = u.rank() == 0 && !u.device() && b.leaf < 0 && plain;
      nodes_.again[i] = is_leaf || IsMovement(u.op()) || of_variables ||
                        (!b.dear && !b.many_leaves && b.ops <= kCheapOps);
    }
    nodes_.uses.assign(size_, 0);
    nodes_.last_use.assign(size_, -1);
    for (int i = size_ - 1; i >= 0; --i) {
      const bool again = !IsLeaf(i) && nodes_.again[i];
      const int last = again ? std::max(i, nodes_.last_use[i]) : i;
      const int uses = again ? nodes_.uses[i] : 1;
      ForEachRef(i, [&](int s) {
        nodes_.last_use[s] = std::max(nodes_.last_use[s], last);
        nodes_.uses[s] = std::min(nodes_.uses[s] + uses, 2);
      });
    }
  }

  // Whether a node has to be handed on to the segments after its own.
  bool HandedOn(int i) const { return !IsLeaf(i) && !nodes_.again[i]; }

  // No cut lies between an ASSIGN and who reads what it leaves, or, through another node, what it
  // overwrites: that order is the scheduler's.
  std::vector<int> Forbidden() const {
    std::vector<int> last_of_slot(key_.leaves.size(), -1);
    for (int i = 0; i < size_; ++i) {
      if (!IsLeaf(i)) continue;
      int& last = last_of_slot[SlotOf(i)];
      last = std::max(last, nodes_.last_use[i]);
    }
    std::vector<int> ends(size_ + 1, 0);  // differences
    absl::flat_hash_map<int, int> base;   // of ASSIGNs: what lies below all of them
    for (int i = 0; i < size_; ++i) {
      if (IsLeaf(i) || !key_.order[i].is(Op::kAssign)) continue;
      int under = static_cast<int>(key_.words[key_.refs[first_ref_[i]]]);
      if (const auto it = base.find(under); it != base.end()) under = it->second;
      base[i] = under;
      const int reads = IsLeaf(under) ? last_of_slot[SlotOf(under)] : nodes_.last_use[under];
      const int last = std::max(nodes_.last_use[i], reads);
      if (last <= i) continue;
      ++ends[i];
      --ends[last];
    }
    return ends;
  }

  // The nodes behind which the graph is cut.
  std::vector<int> Cuts() const {
    std::vector<int> handed(size_ + 1, 0);  // differences
    for (int i = 0; i < size_; ++i) {
      if (!HandedOn(i) || nodes_.last_use[i] <= i) continue;
      ++handed[i];
      --handed[nodes_.last_use[i]];
    }
    const std::vector<int> forbidden = Forbidden();
    std::map<int, std::vector<int>> by_count;  // how many values go on
    int count = 0, forbids = 0;
    for (int i = 0; i < size_; ++i) {
      count += handed[i];
      forbids += forbidden[i];
      const bool ends_layer = HandedOn(i) && IsElementwise(key_.order[i].op()) &&
                              nodes_.from_product[i] && nodes_.uses[i] > 1 &&
                              nodes_.last_use[i] > i;
      if (ends_layer && forbids == 0 && count <= kMostShared + 1) by_count[count].push_back(i);
    }
    for (auto& [n, cuts] : by_count) {
      if (cuts.size() >= kLeastCuts) return std::move(cuts);
    }
    return {};
  }

  // The segments that end with these nodes, or with the last one. Those that nothing equals are
  // not cut from one another: their cuts need not be ends of layers.
  std::vector<Segment> SegmentsBetween(std::vector<int> cuts) const {
    std::vector<Segment> out;
    std::vector<int> kind, size_of_kind;
    std::map<std::pair<int, int>, Described> described;
    for (bool settled = false; !settled;) {
      out.clear();
      kind.clear();
      size_of_kind.clear();
      absl::flat_hash_map<absl::Span<const uint64_t>, int> kinds;
      std::vector<int> first;
      for (size_t c = 0; c <= cuts.size(); ++c) {
        const int begin = c == 0 ? 0 : cuts[c - 1] + 1;
        const int end = c == cuts.size() ? size_ : cuts[c] + 1;
        const auto [known, is_new] = described.try_emplace({begin, end});
        Described& d = known->second;
        if (is_new) d = Describe(begin, end);
        const auto [it, fresh] = kinds.try_emplace(d.words, static_cast<int>(first.size()));
        out.push_back(d.segment);
        if (fresh) {
          first.push_back(static_cast<int>(c));
          size_of_kind.push_back(0);
        } else {
          out.back().like = first[it->second];
        }
        kind.push_back(it->second);
        ++size_of_kind[it->second];
      }
      std::vector<int> kept;
      for (size_t c = 0; c < cuts.size(); ++c) {
        if (size_of_kind[kind[c]] > 1 || size_of_kind[kind[c + 1]] > 1) kept.push_back(cuts[c]);
      }
      settled = kept.size() == cuts.size();
      cuts = std::move(kept);
    }
    return out;
  }

  // A segment, and it as words, equal for two that differ only in what they read. Nodes of its own
  // go by their place in it, others made again by which nodes they are.
  struct Described {
    Segment segment;
    std::vector<uint64_t> words;
  };
  Described Describe(int begin, int end) const {
    enum : uint64_t { kOwn, kInput, kOther };
    Described out;
    Segment& s = out.segment;
    s.begin = begin;
    s.end = end;
    std::vector<uint64_t>& words = out.words;
    words.reserve(key_.starts[end] - key_.starts[begin] + 64);
    absl::flat_hash_map<int, int> leaf_input, node_input;
    const auto input = [&](bool is_leaf, int index) {
      auto& known = is_leaf ? leaf_input : node_input;
      const auto [it, fresh] = known.try_emplace(index, static_cast<int>(s.inputs.size()));
      if (fresh) s.inputs.push_back({is_leaf, index});
      return static_cast<uint64_t>(it->second);
    };
    std::vector<int> below;
    absl::flat_hash_set<int> seen;  // whose inputs are known
    const auto number = [&](int i) {
      if (i >= s.begin) {
        words.push_back(static_cast<uint64_t>(i - s.begin) << 2 | kOwn);
        return;
      }
      if (IsLeaf(i) || HandedOn(i)) {
        words.push_back(input(IsLeaf(i), IsLeaf(i) ? SlotOf(i) : i) << 2 | kInput);
        return;
      }
      words.push_back(static_cast<uint64_t>(i) << 2 | kOther);
      below.assign(1, i);
      while (!below.empty()) {
        const int n = below.back();
        below.pop_back();
        if (!seen.insert(n).second) continue;
        if (IsLeaf(n) || HandedOn(n)) {
          input(IsLeaf(n), IsLeaf(n) ? SlotOf(n) : n);
        } else {
          ForEachRef(n, [&](int r) { below.push_back(r); });
        }
      }
    };
    uint32_t ref = first_ref_[s.begin];
    for (int i = s.begin; i < s.end; ++i) {
      uint32_t w = key_.starts[i];
      if (IsLeaf(i)) {
        words.push_back(key_.words[w]);
        words.push_back(input(true, SlotOf(i)));
        w += 2;
      }
      for (; w < key_.starts[i + 1]; ++w) {
        if (ref < first_ref_[i + 1] && key_.refs[ref] == w) {
          number(static_cast<int>(key_.words[w]));
          ++ref;
        } else {
          words.push_back(key_.words[w]);
        }
      }
      if (is_root_[i] ? !IsLeaf(i) : HandedOn(i) && nodes_.last_use[i] >= s.end) {
        s.results.push_back(i);
      }
    }
    AppendInterface(s, words);
    return out;
  }

  // Its results, and the kinds of its inputs.
  void AppendInterface(const Segment& s, std::vector<uint64_t>& words) const {
    words.push_back(~uint64_t{0});
    for (int r : s.results) words.push_back(static_cast<uint64_t>(r - s.begin));
    for (const Segment::Input& in : s.inputs) {
      const UOp& u = in.is_leaf ? key_.leaves[in.index] : key_.order[in.index];
      words.push_back(in.is_leaf);
      words.push_back(static_cast<uint64_t>(u.dtype().kind()));
      words.push_back(u.device() ? u.device().id() : ~uint64_t{0});
      for (const Extent& e : u.shape()) {
        words.push_back(e.is_int());
        words.push_back(e.is_int() ? static_cast<uint64_t>(e.value())
                                   : reinterpret_cast<uintptr_t>(e.expr().get()));
      }
    }
  }

  const PlanKey& key_;
  const int size_;
  std::vector<bool> is_root_;
  std::vector<uint32_t> first_ref_;  // in key_.refs, by node
  Nodes nodes_;
};

// Plans of segments, one after another, as one.
class Joiner {
 public:
  Joiner(const PlanKey& key, Device home) : key_(key), home_(home) {
    leaf_buffer_.assign(key.leaves.size(), -1);
  }

  // The steps of a part that was planned for this segment or for an equal one. Whether they do as
  // well here: not where a value that is handed on shares its buffer with what the part reads.
  bool Add(const Plan& part, const Segment& segment) {
    std::vector<int> buffers(part.buffers.size());
    for (size_t b = 0; b < buffers.size(); ++b) {
      PlanBuffer copy = part.buffers[b];
      if (copy.kind == PlanBuffer::kInput) {
        const Segment::Input& in = segment.inputs[copy.slot];
        buffers[b] = in.is_leaf ? LeafBuffer(in.index) : node_buffer_.at(in.index);
        continue;
      }
      copy.kind = PlanBuffer::kTemp;
      copy.slot = -1;
      buffers[b] = static_cast<int>(out_.buffers.size());
      out_.buffers.push_back(std::move(copy));
    }
    std::vector<int> kernels;
    for (const PlanKernel& k : part.kernels) {
      const auto [it, fresh] =
          kernels_.try_emplace(k.identity, static_cast<int>(out_.kernels.size()));
      if (fresh) out_.kernels.push_back(k);
      kernels.push_back(it->second);
    }
    for (PlanStep step : part.steps) {
      for (int& b : step.buffers) b = buffers[b];
      if (step.kernel >= 0) step.kernel = kernels[step.kernel];
      out_.steps.push_back(std::move(step));
    }
    for (size_t i = 0; i < segment.results.size(); ++i) {
      const int node = segment.results[i];
      const bool assigns = key_.order[node].is(Op::kAssign);
      if (!assigns && part.buffers[part.roots[i]].kind == PlanBuffer::kInput) return false;
      node_buffer_[node] = buffers[part.roots[i]];
    }
    return true;
  }

  Plan Finish() {
    for (size_t i = 0; i < key_.roots.size(); ++i) {
      const int node = key_.roots[i];
      const auto it = node_buffer_.find(node);
      const int b = it != node_buffer_.end()
                        ? it->second
                        : LeafBuffer(static_cast<int>(key_.words[key_.starts[node] + 1]));
      out_.roots.push_back(b);
      PlanBuffer& buffer = out_.buffers[b];
      if (buffer.kind != PlanBuffer::kTemp) continue;
      buffer.kind = PlanBuffer::kOutput;
      buffer.slot = static_cast<int>(i);
    }
    return std::move(out_);
  }

 private:
  int LeafBuffer(int slot) {
    int& b = leaf_buffer_[slot];
    if (b >= 0) return b;
    b = static_cast<int>(out_.buffers.size());
    const UOp& leaf = key_.leaves[slot];
    PlanBuffer buffer;
    buffer.kind = PlanBuffer::kInput;
    buffer.slot = slot;
    buffer.dtype = leaf.dtype();
    buffer.shape = leaf.shape();
    buffer.device = leaf.device() ? leaf.device() : home_;
    buffer.bytes = leaf.shape().MaxElements() * leaf.dtype().bytes();
    out_.buffers.push_back(std::move(buffer));
    return b;
  }

  const PlanKey& key_;
  const Device home_;
  Plan out_;
  std::vector<int> leaf_buffer_;               // by slot; -1: none yet
  absl::flat_hash_map<int, int> node_buffer_;  // of what is handed on, and of roots
  absl::flat_hash_map<UOp, int> kernels_;      // by identity
};

// The nodes that the results of a segment are made of, down to what it reads.
std::vector<UOp> NodesOf(const PlanKey& key, const Segment& segment) {
  absl::flat_hash_set<const Node*> stops;
  for (const Segment::Input& in : segment.inputs) {
    stops.insert((in.is_leaf ? key.leaves[in.index] : key.order[in.index]).get());
  }
  // Numbers rise from sources to readers, so one walk down meets every reader first.
  std::vector<bool> wanted(segment.end, false);
  for (int r : segment.results) wanted[r] = true;
  std::vector<UOp> out;
  auto ref_end = std::lower_bound(key.refs.begin(), key.refs.end(), key.starts[segment.end]);
  for (int i = segment.end - 1; i >= 0; --i) {
    const auto end = ref_end;
    while (ref_end != key.refs.begin() && *std::prev(ref_end) >= key.starts[i]) --ref_end;
    if (!wanted[i]) continue;
    const UOp& u = key.order[i];
    out.push_back(u);
    const UOp computed = u.realized();
    if (stops.contains((computed ? computed : u).get())) continue;
    for (auto r = ref_end; r != end; ++r) wanted[key.words[*r]] = true;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

absl::StatusOr<Plan> ScheduleSegment(const PlanKey& key, const Segment& segment,
                                     const Targets& targets, Device home, IndexForms& forms) {
  absl::flat_hash_map<const Node*, UOp> params;
  const std::vector<bool>& slots = key.lasting.slots;
  std::vector<bool> lasting;
  for (size_t i = 0; i < segment.inputs.size(); ++i) {
    const Segment::Input& in = segment.inputs[i];
    const size_t slot = in.is_leaf ? in.index : slots.size();
    lasting.push_back(slot < slots.size() && slots[slot]);
    const UOp& u = in.is_leaf ? key.leaves[in.index] : key.order[in.index];
    params[u.get()] = UOp::Make(
        Op::kParam, u.dtype(), {},
        ParamArg{static_cast<int64_t>(i), u.shape().ToExtents(), u.device() ? u.device() : home});
  }
  std::vector<UOp> results;
  for (int r : segment.results) results.push_back(key.order[r]);
  const std::vector<UOp> values = WithParams(results, key, NodesOf(key, segment), params);
  RETURN_IF_ERROR(Verify(values, SpecStage::kTensor, SpecLevel(), "front", targets.home()));
  return ScheduleKernels(values, targets, home, /*on_meshes=*/false, lasting, forms);
}

}  // namespace

std::vector<Segment> FindSegments(const PlanKey& key) { return Cutter(key).Run(); }

absl::StatusOr<Plan> ScheduleSegments(const PlanKey& key, absl::Span<const Segment> segments,
                                      const Targets& targets, Device home) {
  std::vector<Plan> parts(segments.size());
  Joiner joiner(key, home);
  IndexForms forms;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    if (s.like < 0) {
      ASSIGN_OR_RETURN(parts[i], ScheduleSegment(key, s, targets, home, forms));
    }
    if (!joiner.Add(parts[s.like < 0 ? i : s.like], s)) {
      return absl::UnimplementedError("a value is handed on in the buffer of another");
    }
  }
  return joiner.Finish();
}

}  // namespace tessera
