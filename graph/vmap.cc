// One walk from the leaves up: what depends on a sample gets the batch as its first axis, the rest
// stays as it is.
#include "graph/vmap.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/buffer.h"
#include "graph/lookup.h"
#include "graph/loop_internal.h"
#include "graph/rewrite.h"
#include "graph/sample.h"
#include "graph/tensor_internal.h"
#include "graph/walk.h"

namespace tessera {
namespace {

using How = Placement::Kind;
using internal::BroadcastTo;
using internal::Build;
using internal::Call;
using internal::Fail;
using internal::PermuteTo;
using internal::ReshapeTo;
using internal::Show;

// Where a batch goes whose samples go to a device: stays cut along mesh dims that say nothing else.
Device OfBatch(Device device, Device batch_is_on) {
  if (!device.is_sharding()) return device;
  const Sharding to = device.sharding();
  std::vector<Placement> p = to.placements();
  for (Placement& each : p) {
    if (each.is(How::kShard)) ++each.axis;
  }
  if (batch_is_on.is_sharding() && batch_is_on.sharding().mesh() == to.mesh()) {
    const std::vector<Placement>& now = batch_is_on.sharding().placements();
    for (size_t d = 0; d < p.size(); ++d) {
      if (p[d].is(How::kReplicate) && now[d].ShardsAxis(0)) p[d] = now[d];
    }
  }
  return to.With(std::move(p));
}

class Batcher {
 public:
  Batcher(const Extent& batch, absl::flat_hash_map<const Node*, UOp> inputs)
      : batch_(batch), made_(std::move(inputs)) {}

  std::vector<UOp> Run(absl::Span<const UOp> roots) {
    const std::vector<UOp> order = TopoSort(roots);
    FindWritten(order);
    for (const UOp& u : order) {
      const bool depends = std::any_of(u.srcs().begin(), u.srcs().end(),
                                       [this](const UOp& s) { return IsBatched(s); });
      if (written_.contains(u.get())) {
        made_.insert_or_assign(u.get(), OwnOfEach(u));
      } else if (depends) {
        made_.emplace(u.get(), Batched(u));
      }
    }
    std::vector<UOp> out;
    for (const UOp& r : roots) out.push_back(Whole(r));
    return out;
  }

 private:
  bool IsBatched(const UOp& u) const { return made_.contains(u.get()); }

  Shape WithBatch(const Shape& of_sample) const {
    Extents dims = {batch_};
    for (const Extent& e : of_sample) dims.push_back(e);
    return Shape(std::move(dims));
  }

  // The batch's value, repeated where it is the same for all samples.
  UOp Whole(const UOp& u) const {
    const auto it = made_.find(u.get());
    return it != made_.end() ? it->second : BroadcastTo(u, WithBatch(u.shape()), false);
  }

  // Whether a BUFFER has a value of somebody else's, or will have.
  static bool HoldsOthers(const UOp& base) {
    if (!base.is(Op::kBuffer)) return false;
    const Buffer& buffer = *base.arg<BufferArg>().buffer;
    return buffer.storage != nullptr || buffer.stands_for_input;
  }

  // What is assigned to becomes each sample's own: as soon as one writes something of its own, and
  // always where the function has been given it.
  void FindWritten(const std::vector<UOp>& order) {
    for (bool more = true; more;) {
      more = false;
      absl::flat_hash_set<const Node*> depends;
      const auto does = [&](const UOp& u) {
        return IsBatched(u) || written_.contains(u.get()) || depends.contains(u.get());
      };
      for (const UOp& u : order) {
        const bool of_sample = std::any_of(u.srcs().begin(), u.srcs().end(), does);
        if (of_sample) depends.insert(u.get());
        if (!u.is(Op::kAssign)) continue;
        UOp base = u.src(0);
        while (base.is(Op::kAssign)) base = UOp(base.src(0));
        if (HoldsOthers(base) || (of_sample && !does(base))) {
          more |= written_.insert(base.get()).second;
        }
      }
    }
  }

  // A buffer for all samples, with what it holds.
  UOp OwnOfEach(const UOp& base) const {
    const UOp whole = Whole(base);
    if (!base.is(Op::kBuffer)) return Build(Op::kContiguous, {whole});
    const UOp made = internal::NewBuffer(base.dtype(), whole.shape().ToExtents(), whole.device());
    return HoldsOthers(base) ? Build(Op::kAssign, {made, made, whole}) : made;
  }

  UOp Batched(const UOp& u) const {
    if (IsElementwise(u.op())) return Elementwise(u);
    if (IsMovement(u.op())) return Moved(u);
    if (u.is(Op::kLoop)) return LoopOfBatch(u);
    if (u.is(Op::kResult)) return Result(u);
    const UOp x = Whole(u.src(0));
    switch (u.op()) {
      case Op::kReduce:
        return Build(u.op(), {x},
                     ReduceArg{u.arg<ReduceArg>().op, Raised(u.arg<ReduceArg>().axes)});
      case Op::kGather:
        return Gather(u);
      case Op::kScatter:
        return Scatter(u);
      case Op::kCat:
        return Build(u.op(), AllWhole(u), u.arg<int64_t>() + 1);
      case Op::kAllReduce:
        return IsPartial(x) ? Build(u.op(), {x}, u.arg()) : x;  // it was put after the REDUCE anew
      case Op::kMStack:
        return internal::BuildStack(AllWhole(u), OfBatch(u.device(), {}).sharding());
      case Op::kCopy:
      case Op::kLocal:
      case Op::kGlobal:
        return Build(u.op(), u.dtype(), {x}, OfBatch(u.device(), x.device()));
      case Op::kPass:  // which has one element along its first axis
        return AxesSwapped(Build(u.op(), {AxesSwapped(x)}, u.arg()));
      case Op::kMSelect:
      case Op::kContiguous:
      case Op::kMark:
      case Op::kStandIn:
      case Op::kAssign:
        return Build(u.op(), AllWhole(u), u.arg());
      default:
        Fail("cannot take a ", Info(u.op()).text, " of each sample, ", Describe(u));
    }
  }

  // The first two: the batch is the second axis of what goes by turns, of sequences and stacks.
  static UOp AxesSwapped(const UOp& u) {
    Ints order(u.rank());
    for (int i = 0; i < u.rank(); ++i) order[i] = i;
    std::swap(order[0], order[1]);
    return PermuteTo(u, order);
  }

  // All that is carried is of each sample; of what is read that which is so outside.
  UOp LoopOfBatch(const UOp& u) const {
    const LoopForm loop(u);
    internal::LoopParts parts;
    parts.turns = loop.turns;
    parts.backwards = loop.backwards;
    const internal::OpenBody body = internal::Opened(loop);
    absl::flat_hash_map<const Node*, UOp> batched;
    Substitution same;  // ITEMs of what is the same for all samples
    const auto stand_for = [&](int64_t number, const UOp& value, bool of_sample) {
      const auto it = body.items.find(number);
      if (it == body.items.end()) return;  // no turn takes it
      if (of_sample) {
        batched.emplace(it->second.get(), value);
      } else {
        same.emplace(it->second, value);
      }
    };
    for (int64_t k = 0; k < u.size() - 2; ++k) {
      const UOp& source = loop.SourceOf(k);
      const bool carried = k < static_cast<int64_t>(loop.carried.size());
      const bool of_sample = carried || IsBatched(source);
      const UOp value = of_sample ? Whole(source) : source;
      if (carried) {
        parts.carried.push_back(value);
        parts.carried_items.push_back(
            internal::NewItem(value.dtype(), value.shape(), value.device()));
        stand_for(k, parts.carried_items.back(), of_sample);
      } else if (loop.IsOfSequence(k)) {
        const UOp& all = parts.sequences.emplace_back(of_sample ? AxesSwapped(value) : value);
        parts.sequence_items.push_back(internal::NewItem(all.dtype(), ShapeOfElement(all),
                                                         internal::OfSample(all.device(), 0)));
        stand_for(k, parts.sequence_items.back(), of_sample);
      } else {
        stand_for(k, value, of_sample);
      }
    }
    parts.results = Substitute(Batcher(batch_, std::move(batched)).Run(body.results), same);
    return internal::MakeLoop(parts);
  }

  UOp Result(const UOp& u) const {
    const UOp out = internal::ResultOf(made_.at(u.src(0).get()), NumberOfResult(u));
    const bool stacked = NumberOfResult(u) >= static_cast<int>(LoopForm(u.src(0)).carried.size());
    return stacked ? AxesSwapped(out) : out;
  }

  std::vector<UOp> AllWhole(const UOp& u) const {
    std::vector<UOp> out;
    for (const UOp& s : u.srcs()) out.push_back(Whole(s));
    return out;
  }

  static Ints Raised(Ints axes) {
    for (int64_t& a : axes) ++a;
    return axes;
  }

  static bool IsPartial(const UOp& x) {
    if (!x.device().is_sharding()) return false;
    const std::vector<Placement>& p = x.device().sharding().placements();
    return std::any_of(p.begin(), p.end(), [](auto& each) { return each.is(How::kPartial); });
  }

  UOp Elementwise(const UOp& u) const {
    std::vector<UOp> srcs;
    for (const UOp& s : u.srcs()) {
      if (s.rank() == u.rank()) {
        srcs.push_back(Whole(s));
      } else if (IsBatched(s)) {  // a number of each sample beside its elements
        Extents dims(1 + u.rank(), Extent(1));
        dims[0] = batch_;
        srcs.push_back(BroadcastTo(ReshapeTo(Whole(s), dims), WithBatch(u.shape()), false));
      } else {
        srcs.push_back(s);
      }
    }
    return Build(u.op(), u.dtype(), srcs, u.arg());
  }

  UOp Moved(const UOp& u) const {
    const UOp x = Whole(u.src(0));
    switch (MovementOf(u.op())) {
      case Movement::kReshape:
      case Movement::kExpand: {
        Extents dims = u.arg<Extents>();
        dims.insert(dims.begin(), batch_);
        return Build(u.op(), {x}, std::move(dims));
      }
      case Movement::kPad:
      case Movement::kShrink: {
        Pairs pairs = u.arg<Pairs>();
        pairs.insert(pairs.begin(), {Extent(0), u.is(Op::kShrink) ? batch_ : Extent(0)});
        return Build(u.op(), {x}, std::move(pairs));
      }
      case Movement::kPermute: {
        Ints order = Raised(u.arg<Ints>());
        order.insert(order.begin(), 0);
        return Build(u.op(), {x}, std::move(order));
      }
      case Movement::kFlip:
        return Build(u.op(), {x}, Raised(u.arg<Ints>()));
      case Movement::kWindow: {
        WindowArg window = u.arg<WindowArg>();
        window.axes = Raised(std::move(window.axes));
        return Build(u.op(), {x}, std::move(window));
      }
    }
    return x;
  }

  UOp Gather(const UOp& u) const {
    const Lookup l = Lookup::Of(u);
    const UOp &table = u.src(0), &index = u.src(1);
    if (l.leading == 0 && !IsBatched(index)) {
      return Build(u.op(), {Whole(table), index}, Ints{l.axis + 1, 0, l.trailing});
    }
    if (l.leading == 0 && !IsBatched(table)) {  // the batch is one more axis of the index's own
      const UOp found = Build(u.op(), {table, Whole(index)}, u.arg());
      Ints order = {l.axis};
      for (int i = 0; i < found.rank(); ++i) {
        if (i != l.axis) order.push_back(i);
      }
      return PermuteTo(found, order);
    }
    return Build(u.op(), AllWhole(u), Ints{l.axis + 1, l.leading + 1, l.trailing});
  }

  UOp Scatter(const UOp& u) const {
    const Lookup l = Lookup::Of(u);
    const Ints axes = {l.axis + 1, l.leading + 1, l.trailing};
    return Build(u.op(), AllWhole(u), ReduceArg{u.arg<ReduceArg>().op, axes});
  }

  const Extent batch_;
  absl::flat_hash_map<const Node*, UOp> made_;
  absl::flat_hash_set<const Node*> written_;
};

}  // namespace

std::vector<UOp> internal::OfEach(absl::Span<const UOp> roots, const Extent& batch,
                                  absl::flat_hash_map<const Node*, UOp> inputs) {
  return Batcher(batch, std::move(inputs)).Run(roots);
}

std::vector<Tensor> Vmap(const TensorFunction& function, const std::vector<VmapInput>& inputs,
                         int out_axis) {
  std::vector<Tensor> given;
  for (const VmapInput& in : inputs) given.push_back(in.tensor);
  Call call("Vmap", function.at(), absl::MakeConstSpan(given));
  std::optional<Extent> batch;
  absl::flat_hash_map<const Node*, UOp> batches;
  std::vector<UOp> samples;
  for (const VmapInput& in : inputs) {
    if (!in.tensor) Fail("an input is empty");
    if (!in.axis) {
      samples.push_back(in.tensor.uop());
      continue;
    }
    const int axis = internal::NormalAxis(*in.axis, in.tensor.rank());
    const Extent& n = in.tensor.shape()[axis];
    if (batch && !(*batch == n)) {
      Fail("the inputs have ", batch->ToString(), " and ", n.ToString(),
           " samples along their axes; say with Along where they lie, or Whole for one that is the "
           "same for all");
    }
    batch = n;
    const Tensor x = in.tensor.MoveAxis(axis, 0);
    Extents dims(x.shape().begin() + 1, x.shape().end());
    const UOp sample =
        internal::Placeholder(x.dtype(), Shape(std::move(dims)), internal::OfSample(x.device(), 0));
    batches.emplace(sample.get(), internal::Current(x.uop()));
    samples.push_back(sample);
  }
  if (!batch) Fail("no input has samples; all of them are Whole");
  const std::vector<UOp> results = internal::Traced(function, samples);
  std::vector<Tensor> out;
  for (UOp& u : Batcher(*batch, std::move(batches)).Run(results)) {
    const Tensor t(std::move(u));
    out.push_back(t.MoveAxis(0, internal::NormalAxis(out_axis, t.rank())));
  }
  return out;
}

}  // namespace tessera
