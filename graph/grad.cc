// The walk from the loss to the parameters.
#include "graph/grad.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "graph/grad_data.h"
#include "graph/grad_loop.h"
#include "graph/grad_rules.h"
#include "graph/grad_sum.h"
#include "graph/grad_window.h"
#include "graph/history.h"
#include "graph/loop_form.h"
#include "graph/stand_ins.h"
#include "graph/tensor_internal.h"

namespace tessera {
namespace {

using internal::Call;
using internal::Fail;
using internal::Show;

// What comes from a value that elementwise ops repeat: a scalar beside a shape.
Tensor Fitted(const Tensor& g, const UOp& src) {
  if (!g || g.rank() == src.rank()) return g;
  return g.Sum().Cast(src.dtype());
}

class Walk {
 public:
  // Of values with their histories, given their cotangents.
  Walk(absl::Span<const UOp> values, absl::Span<const Tensor> cotangents,
       absl::Span<const UOp> parameters)
      : order_(TopoSort(values)) {
    for (const UOp& p : parameters) is_parameter_.insert({p.get(), true});
    for (const UOp& u : order_) {
      bool needs = IsParameter(u);
      for (const UOp& s : u.srcs()) needs |= needs_[s.get()];
      if (needs && u.is(Op::kSink)) {
        Fail("a parameter is a constant, which the turns of a loop have as such; mark it with ",
             "RequireGrad, or realise it, before the loop is written");
      }
      needs_[u.get()] = needs && (u.dtype().IsFloat() || u.is(Op::kLoop));
    }
    for (size_t i = 0; i < values.size(); ++i) Add(values[i], cotangents[i]);
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) Visit(*it);
    for (const UOp& u : order_) {
      const auto it = cotangents_.find(u.get());
      if (it == cotangents_.end() || !IsParameter(u)) continue;
      const UOp computed = u.realized();
      const bool itself = is_parameter_.contains(u.get());
      const Tensor g = SumOfCotangents(it->second);
      Tensor& sum = of_parameters_[itself ? u.get() : computed.get()];
      sum = sum ? sum + g : g;
    }
  }

  // Of the node or, where that was computed since, of the node that it was; empty if the loss does
  // not depend on it.
  Tensor Of(const UOp& parameter) const {
    const auto it = of_parameters_.find(parameter.get());
    return it == of_parameters_.end() ? Tensor() : it->second;
  }

  // Derivatives, in which results that stand in for something have derivatives in turn.
  std::vector<UOp> WithResults(std::vector<UOp> derivatives) const {
    const Substitution results = ResultsInDerivatives(order_);
    return results.empty() ? derivatives : Substitute(derivatives, results);
  }

  // Whether it came from the parameter by way of a value that nothing says the making of.
  bool Lost(const Tensor& parameter) const {
    return std::any_of(order_.begin(), order_.end(),
                       [&](const UOp& u) { return WasComputedFrom(u, parameter.uop()); });
  }

 private:
  bool IsParameter(const UOp& u) const {
    if (is_parameter_.contains(u.get())) return true;
    const UOp computed = u.realized();
    return computed && is_parameter_.contains(computed.get());
  }

  void Visit(const UOp& u) {
    if (u.is(Op::kLoop)) return VisitLoop(u);
    const auto it = cotangents_.find(u.get());
    // An assigned parameter begins there: how it was updated is no part of the loss.
    const bool begins = u.size() == 0 || (u.is(Op::kAssign) && IsParameter(u));
    if (it == cotangents_.end() || begins) return;
    const Tensor g = SumOfCotangents(it->second);
    it->second = {g};  // a parameter's is asked for again
    if (u.is(Op::kResult)) {
      of_results_[u.src(0).get()][NumberOfResult(u)] = g;
      return;
    }
    if (u.is(Op::kReduce)) return Add(u.src(0), OfReduce(u, Tensor(u), g));
    if (u.is(Op::kAllReduce) && u.src(0).is(Op::kReduce) && !IsOwn(u)) {
      return Add(u.src(0).src(0), OfReduce(u.src(0), Tensor(u), g));
    }
    if (u.is(Op::kAllReduce) && u.src(0).is(Op::kScatter) && !IsOwn(u)) {
      const Cotangents all = OfScatter(u.src(0), Tensor(u), g);
      for (size_t i = 0; i < all.size(); ++i) Add(u.src(0).src(static_cast<int>(i)), all[i]);
      return;
    }
    if (IsMovement(u.op()) && !needs_[u.src(0).get()]) return;
    if (u.is(Op::kWindow) && u.src(0).is(Op::kPad) && !IsParameter(u.src(0))) {
      return Add(u.src(0).src(0), WindowCotangent(u, g, /*of_padded=*/true));
    }
    if (IsMovement(u.op())) return Add(u.src(0), OfMovement(u, g));
    const Cotangents all = IsElementwise(u.op()) ? OfElementwise(u, g) : OfData(u, g);
    for (size_t i = 0; i < all.size(); ++i) Add(u.src(static_cast<int>(i)), all[i]);
  }

  // Those of all its results are there.
  void VisitLoop(const UOp& loop) {
    const auto it = of_results_.find(loop.get());
    if (it == of_results_.end()) return;
    const auto needs = [this](const UOp& s) { return needs_[s.get()]; };
    const auto pullback = [](absl::Span<const UOp> outputs, absl::Span<const Tensor> cotangents,
                             absl::Span<const UOp> inputs) {
      const Walk walk(outputs, cotangents, inputs);
      std::vector<UOp> found;
      for (const UOp& in : inputs) {
        if (const Tensor g = walk.Of(in)) found.push_back(g.uop());
      }
      found = walk.WithResults(std::move(found));
      std::vector<Tensor> out;
      auto next = found.begin();
      for (const UOp& in : inputs) out.push_back(walk.Of(in) ? Tensor(*next++) : Tensor());
      return out;
    };
    const auto ends = [this](const UOp& s) { return IsParameter(s); };
    for (const Flow& f : LoopCotangents(loop, it->second, needs, ends, pullback)) {
      Add(f.to, f.cotangent);
    }
  }

  static Cotangents OfElementwise(const UOp& u, const Tensor& g) {
    Cotangents out;
    for (int i = 0; i < u.size(); ++i) {
      const bool flows = u.src(i).dtype().IsFloat();
      out.push_back(flows ? Fitted(ElementwiseCotangent(u, i, g), u.src(i)) : Tensor());
    }
    return out;
  }

  void Add(const UOp& s, const Tensor& cotangent) {
    if (!cotangent || !needs_[s.get()]) return;
    cotangents_[s.get()].push_back(WithExtentsOf(s, cotangent));
  }

  // What an adjoint has computed from other extents is as long, and may be written otherwise: where
  // a variable has one value, or bounds of slices cancel.
  static Tensor WithExtentsOf(const UOp& s, const Tensor& g) {
    if (g.shape() == s.shape() || g.rank() != s.rank()) return g;
    Pairs pairs;
    for (int i = 0; i < s.rank(); ++i) {
      const Extent &is = g.shape()[i], &as = s.shape()[i];
      pairs.emplace_back(Extent(0), is.is_int() && as.is_int() ? is : as);
    }
    return g.Shrink(pairs);
  }

  const std::vector<UOp> order_;
  absl::flat_hash_map<const Node*, bool> is_parameter_, needs_;
  absl::flat_hash_map<const Node*, std::vector<Tensor>> cotangents_;
  absl::flat_hash_map<const Node*, std::map<int, Tensor>> of_results_;  // by LOOP
  absl::flat_hash_map<const Node*, Tensor> of_parameters_;
};

}  // namespace

std::vector<Tensor> Grad(const Tensor& loss, absl::Span<const Tensor> parameters, CallSite at) {
  Call call("Grad", at, loss, parameters);
  if (!loss.dtype().IsFloat() || !loss.shape().Elements().is_int(1)) {
    Fail("the loss ", Show(loss), " is not one float; sum it, or take the mean");
  }
  for (const Tensor& p : parameters) {
    if (!p.dtype().IsFloat()) Fail("the parameter ", Show(p), " is not of a float dtype");
  }
  std::vector<UOp> nodes;
  for (const Tensor& p : parameters) nodes.push_back(p.uop());
  const UOp value = WithHistory(loss.uop());
  const Tensor one = Tensor::Ones(loss.shape(), loss.dtype());
  const Walk walk({&value, 1}, {&one, 1}, nodes);
  std::vector<UOp> out;
  for (const Tensor& p : parameters) {
    Tensor g = walk.Of(p.uop());
    if (!g && walk.Lost(p)) {
      Fail("the loss ", Show(loss), " depends on the parameter ", Show(p),
           " by a value that was realised (or read, or printed) before the loss was written; mark ",
           "the parameter with RequireGrad before that, so that its history is kept");
    }
    if (!g) g = Tensor::Zeros(p.shape(), p.dtype());
    out.push_back(CotangentAt(g, p.device()));
  }
  out = walk.WithResults(std::move(out));
  return std::vector<Tensor>(out.begin(), out.end());
}

}  // namespace tessera
