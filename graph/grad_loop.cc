// A turn of the adjoint has what the turn took: carried values from a stack of them, which the
// loop leaves, elements of its sequences, and what is fixed. It carries cotangents of carried
// values back. What flows to a fixed value is summed over the turns: of a product of what turns
// have, as of a weight, by one long product of stacks after the loop; else by a sum that is
// carried.
#include "graph/grad_loop.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "graph/loop_internal.h"
#include "graph/rewrite.h"
#include "graph/sample.h"
#include "graph/tensor_internal.h"
#include "graph/walk.h"

namespace tessera {
namespace {

using internal::Build;
using internal::NewItem;

UOp ZerosLike(const UOp& u, DType dtype) {
  return internal::CopyTo(Tensor::Zeros(u.shape(), dtype).uop(), u.device());
}

bool ShowsElements(const UOp& u) {
  return u.is(Op::kExpand) || u.is(Op::kReshape) || u.is(Op::kPermute) || u.is(Op::kFlip);
}

// What a value is made of by movement.
UOp MovedFrom(const UOp& u) {
  const UOp* at = &u;
  while (IsMovement(at->op())) at = &at->src(0);
  return *at;
}

// A sum of products of two values, both of them of less than it has: `sum` is the REDUCE, of which
// the whole is another shape.
struct SumOfProducts {
  UOp whole, sum, a, b;
};

std::optional<SumOfProducts> FindSum(const UOp& whole) {
  const UOp* sum = &whole;
  while (sum->is(Op::kReshape) || sum->is(Op::kPermute) || sum->is(Op::kFlip)) sum = &sum->src(0);
  if (!sum->is(Op::kReduce) || sum->arg<ReduceArg>().op != Op::kAdd || sum->size() != 1) {
    return std::nullopt;
  }
  const UOp& product = sum->src(0);
  if (!product.is(Op::kMul) || product.src(0).rank() != product.src(1).rank()) return std::nullopt;
  SumOfProducts out{whole, *sum, MovedFrom(product.src(0)), MovedFrom(product.src(1))};
  const auto elements = [](const UOp& u) { return u.shape().MaxElements(); };
  if (elements(out.a) + elements(out.b) > elements(whole)) return std::nullopt;
  return out;
}

class Adjoint {
 public:
  using Asks = std::function<bool(const UOp&)>;
  Adjoint(const UOp& loop, const std::map<int, Tensor>& of_results, const Asks& needs,
          const Asks& ends)
      : loop_(loop),
        form_(loop),
        body_(internal::Opened(form_)),
        items_(body_.items),
        of_results_(of_results),
        needs_(needs),
        ends_(ends) {}

  std::vector<Flow> Run(const Pullback& pullback) {
    parts_.turns = form_.turns;
    parts_.backwards = !form_.backwards;
    SetOutputs();
    std::vector<UOp> inputs;
    std::vector<int64_t> numbers;
    for (const auto& [number, item] : items_) {
      if (!item.dtype().IsFloat()) continue;
      inputs.push_back(item);
      numbers.push_back(number);
    }
    const std::vector<Tensor> given = pullback(outputs_, cotangents_, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) flows_[numbers[i]] = given[i];
    CarryBack();
    SumFixed(pullback);
    StackSequences();
    Substitution fixed;
    for (const auto& [number, item] : items_) {
      if (IsFixed(number)) fixed.emplace(item, form_.SourceOf(number));
    }
    if (wanted_.empty() && products_.empty()) return {};
    // What is carried comes first.
    parts_.results.insert(parts_.results.end(), stacked_.begin(), stacked_.end());
    parts_.results = Substitute(parts_.results, fixed);
    TakeWhatIsUsed();
    adjoint_ = internal::MakeLoop(parts_);
    std::vector<Flow> out;
    for (const Wanted& w : wanted_) {
      out.push_back({w.to, Tensor(Result(w.result)).Cast(w.to.dtype())});
    }
    for (const auto& [to, sum] : products_) out.push_back({to, Product(sum).Cast(to.dtype())});
    return out;
  }

 private:
  // Of the adjoint: carried values, or stacks.
  struct Where {
    bool stacked;
    size_t number;
  };
  UOp Result(const Where& w) const {
    const size_t first = w.stacked ? parts_.carried.size() : 0;
    return internal::ResultOf(adjoint_, static_cast<int>(first + w.number));
  }

  int64_t num_carried() const { return static_cast<int64_t>(form_.carried.size()); }
  bool IsFixed(int64_t number) const {
    return number >= num_carried() && !form_.IsOfSequence(number);
  }

  const Tensor* OfResult(int i) const {
    const auto it = of_results_.find(i);
    return it == of_results_.end() ? nullptr : &it->second;
  }

  UOp AddCarried(const UOp& first, const UOp& like, DType dtype) {
    parts_.carried.push_back(first);
    const Device device = first.device() ? first.device() : like.device();
    return parts_.carried_items.emplace_back(NewItem(dtype, like.shape(), device));
  }
  Where Carry(const UOp& result) {
    parts_.results.push_back(result);
    return {false, parts_.results.size() - 1};
  }
  Where Stack(const UOp& each) {
    const auto at = std::find(stacked_.begin(), stacked_.end(), each) - stacked_.begin();
    if (static_cast<size_t>(at) == stacked_.size()) stacked_.push_back(each);
    return {true, static_cast<size_t>(at)};
  }

  // What a turn gives, with cotangents that are carried back, or elements of those of a stack.
  void SetOutputs() {
    for (int c = 0; c < num_carried(); ++c) {
      const UOp& value = form_.carried[c];
      if (!value.dtype().IsFloat()) continue;
      const Tensor* g = OfResult(c);
      const UOp first =
          g != nullptr ? CotangentAt(*g, value.device()) : ZerosLike(value, value.dtype());
      outputs_.push_back(body_.results[c]);
      cotangents_.push_back(Tensor(AddCarried(first, value, value.dtype())));
    }
    for (int s = 0; s < form_.num_stacked(); ++s) {
      const Tensor* g = OfResult(form_.Stacked(s));
      if (g == nullptr) continue;
      outputs_.push_back(body_.results[form_.Stacked(s)]);
      cotangents_.push_back(TakeElement(*g, outputs_.back().device()));
    }
  }

  // What a turn sees of the cotangent of a stack.
  Tensor TakeElement(const Tensor& g, Device device) {
    const UOp sequence = g.device() ? g.uop() : internal::CopyTo(g.uop(), device);
    parts_.sequences.push_back(sequence);
    return Tensor(parts_.sequence_items.emplace_back(
        NewItem(g.dtype(), ShapeOfElement(sequence), internal::OfSample(sequence.device(), 0))));
  }

  // What flows to an ITEM in a turn; nothing if nothing does.
  Tensor FlowTo(int64_t number) const {
    const auto it = flows_.find(number);
    return it == flows_.end() ? Tensor() : it->second;
  }

  void CarryBack() {
    for (int c = 0; c < num_carried(); ++c) {
      const UOp& value = form_.carried[c];
      if (!value.dtype().IsFloat()) continue;
      Tensor g = FlowTo(c);
      if (const Tensor* taken = OfResult(form_.Taken(c)); taken != nullptr) {
        const Tensor each = TakeElement(*taken, value.device());
        g = g ? g + each : each;
      }
      const Where result =
          Carry(g ? CotangentAt(g, value.device()) : ZerosLike(value, value.dtype()));
      if (needs_(value)) wanted_.push_back({value, result});
    }
  }

  // What shows the elements of something else, perhaps many times, takes part as that: a sum is as
  // large as what it is of. Sums of narrow floats are in f32, rounded once.
  void SumFixed(const Pullback& pullback) {
    for (const auto& [number, item] : items_) {
      const UOp& source = form_.SourceOf(number);
      Tensor g = FlowTo(number);
      if (!IsFixed(number) || !g || !needs_(source)) continue;
      UOp of = source;
      while (ShowsElements(of) && !ends_(of)) of = UOp(of.src(0));
      if (!(of == source)) {
        const UOp base = NewItem(of.dtype(), of.shape(), of.device());
        const UOp shown = Substitute(source, {{of, base}});
        g = pullback({&shown, 1}, {&g, 1}, {&base, 1})[0];
      }
      const auto found = FindSum(g.uop());
      if (found && !of.device().is_sharding() && Varies(found->a) && Varies(found->b)) {
        products_.emplace_back(of, *found);
        for (const UOp& u : {found->a, found->b}) {
          if (!ItemOf(u)) Stack(u);
        }
        continue;
      }
      const DType wide = of.dtype().bits() < 32 ? kFloat32 : of.dtype();
      const Tensor sum(AddCarried(ZerosLike(of, wide), of, wide));
      wanted_.push_back({of, Carry(CotangentAt(sum + g.Cast(wide), of.device()))});
    }
  }

  // Whether a value may be another one in each turn.
  bool Varies(const UOp& u) const {
    return FindBelow(absl::MakeConstSpan(&u, 1), [&](const UOp& below) {
             if (!below.is(Op::kItem)) return false;
             return absl::c_none_of(items_, [&](const auto& item) {
               return item.second == below && IsFixed(item.first);
             });
           }) != nullptr;
  }

  // Of an ITEM that is not fixed the number.
  std::optional<int64_t> ItemOf(const UOp& u) const {
    for (const auto& [number, item] : items_) {
      if (u == item && !IsFixed(number)) return number;
    }
    return std::nullopt;
  }

  // All that a turn has of a value.
  UOp StackOf(const UOp& u) {
    if (const auto number = ItemOf(u)) {
      if (form_.IsOfSequence(*number)) return form_.SourceOf(*number);
      return internal::ResultOf(loop_, form_.Taken(static_cast<int>(*number)));
    }
    return Result(Stack(u));
  }

  // The sum over all turns: the product has their number as its first axis.
  Tensor Product(const SumOfProducts& s) {
    absl::flat_hash_map<const Node*, UOp> stacks;
    for (const UOp& u : {s.a, s.b}) stacks.emplace(u.get(), StackOf(u));
    const UOp product =
        internal::OfEach({&s.sum.src(0), 1}, Extent(form_.turns), std::move(stacks))[0];
    Ints axes = {0};
    for (int64_t a : s.sum.arg<ReduceArg>().axes) axes.push_back(a + 1);
    const UOp sum = Build(Op::kReduce, {product}, ReduceArg{Op::kAdd, axes});
    const UOp shaped = internal::ReshapeTo(sum, s.sum.shape().ToExtents());
    return Tensor(Substitute(s.whole, {{s.sum, shaped}}));
  }

  void StackSequences() {
    for (const auto& [number, item] : items_) {
      const UOp& source = form_.SourceOf(number);
      const Tensor g = FlowTo(number);
      if (!form_.IsOfSequence(number) || !g || !needs_(source)) continue;
      wanted_.push_back({source, Stack(CotangentAt(g, item.device()))});
    }
  }

  // Of what the turn took that which its adjoint reads.
  void TakeWhatIsUsed() {
    absl::flat_hash_set<const Node*> used;
    WalkDown(parts_.results, [&](const UOp& u) { return used.insert(u.get()).second; });
    for (const auto& [number, item] : items_) {
      if (!used.contains(item.get()) || IsFixed(number)) continue;
      parts_.sequences.push_back(StackOf(item));
      parts_.sequence_items.push_back(item);
    }
  }

  struct Wanted {
    UOp to;
    Where result;
  };
  const UOp loop_;
  const LoopForm form_;
  const internal::OpenBody body_;
  const std::map<int64_t, UOp>& items_;  // of it
  const std::map<int, Tensor>& of_results_;
  const Asks &needs_, &ends_;
  std::vector<UOp> outputs_;
  std::vector<Tensor> cotangents_;
  std::map<int64_t, Tensor> flows_;  // by number of the ITEM
  internal::LoopParts parts_;
  std::vector<UOp> stacked_;  // results of a turn of the adjoint
  std::vector<Wanted> wanted_;
  std::vector<std::pair<UOp, SumOfProducts>> products_;
  UOp adjoint_;
};

}  // namespace

std::vector<Flow> LoopCotangents(const UOp& loop, const std::map<int, Tensor>& of_results,
                                 const std::function<bool(const UOp&)>& needs,
                                 const std::function<bool(const UOp&)>& ends,
                                 const Pullback& pullback) {
  return Adjoint(loop, of_results, needs, ends).Run(pullback);
}

}  // namespace tessera
