// Directions forward by going back twice: what is pulled back is linear in the cotangents, and its
// own derivative by them, back from a tangent, is how the result moves along it. Matrices are
// batches of these (graph/vmap.h).
#include "graph/derivatives.h"

#include "graph/grad.h"
#include "graph/rewrite.h"
#include "graph/sample.h"
#include "graph/tensor_internal.h"
#include "graph/vmap.h"

namespace tessera {
namespace {

using internal::Call;
using internal::Fail;
using internal::Show;

Tensor Standing(const Tensor& like) {
  return Tensor(internal::Placeholder(like.dtype(), like.shape(), like.device()));
}

// A function's results over tensors that stand for its inputs, and what is linear in others that
// stand for cotangents of the results.
class Linearised {
 public:
  Linearised(const TensorFunction& function, const std::vector<Tensor>& of) {
    std::vector<UOp> nodes;
    for (const Tensor& x : of) {
      if (!x) Fail("an input is empty");
      if (!x.dtype().IsFloat()) Fail("the input ", Show(x), " is not of a float dtype");
      inputs_.push_back(Standing(x));
      nodes.push_back(inputs_.back().uop());
      Put(given_, inputs_.back(), x);
    }
    Tensor sum;
    for (UOp& u : internal::Traced(function, nodes)) {
      results_.emplace_back(std::move(u));
      const Tensor& y = results_.back();
      if (!y.dtype().IsFloat()) Fail("the result ", Show(y), " is not of a float dtype");
      cotangents_.push_back(Standing(y));
      sum = Sum(sum, y * cotangents_.back());
    }
    if (results_.empty()) Fail("the function returns nothing");
    pulled_ = Grad(sum, inputs_);
  }

  std::vector<Tensor> Results() const { return With(given_, results_); }

  std::vector<Tensor> Back(const std::vector<Tensor>& cotangents) const {
    return With(And(cotangents_, cotangents, "cotangents"), pulled_);
  }

  std::vector<Tensor> Along(const std::vector<Tensor>& tangents) const {
    std::vector<Tensor> along;
    Tensor sum;
    for (size_t i = 0; i < pulled_.size(); ++i) {
      along.push_back(Standing(inputs_[i]));
      sum = Sum(sum, pulled_[i] * along[i]);
    }
    const std::vector<Tensor> moved = Grad(sum, cotangents_);
    // Nothing is left of the cotangents but where extents are taken of them.
    Substitution values = And(along, tangents, "tangents");
    for (const Tensor& u : cotangents_) {
      Put(values, u, Tensor::Zeros(Dims(u.shape()), u.dtype()));
    }
    return With(values, moved);
  }

 private:
  static Tensor Sum(const Tensor& sum, const Tensor& terms) {
    const Tensor more = terms.Sum();
    return sum ? sum + more.Cast(sum.dtype()) : more;
  }

  static void Put(Substitution& values, const Tensor& placeholder, const Tensor& value) {
    Tensor v = value.dtype() == placeholder.dtype() ? value : value.Cast(placeholder.dtype());
    if (!(v.device() == placeholder.device())) v = v.To(placeholder.device());
    values.emplace(placeholder.uop(), internal::Current(v.uop()));
  }

  // The values of the inputs, and of other placeholders.
  Substitution And(const std::vector<Tensor>& placeholders, const std::vector<Tensor>& values,
                   const char* what) const {
    if (values.size() != placeholders.size()) {
      Fail(placeholders.size(), " ", what, " are needed, and ", values.size(), " given");
    }
    Substitution out = given_;
    for (size_t i = 0; i < values.size(); ++i) {
      const Tensor& to = placeholders[i];
      if (!values[i] || !(values[i].shape() == to.shape())) {
        Fail("of the ", what, ", ", values[i] ? Show(values[i]) : "an empty tensor",
             " does not have the shape of ", Show(to));
      }
      Put(out, to, values[i]);
    }
    return out;
  }

  static std::vector<Tensor> With(const Substitution& values, const std::vector<Tensor>& tensors) {
    std::vector<UOp> nodes;
    for (const Tensor& t : tensors) nodes.push_back(internal::Current(t.uop()));
    const std::vector<UOp> out = Substitute(nodes, values);
    return std::vector<Tensor>(out.begin(), out.end());
  }

  std::vector<Tensor> inputs_, results_, cotangents_, pulled_;
  Substitution given_;
};

// Of each element of a shape a tensor that is 1 there and 0 elsewhere, side by side.
Tensor Units(const Tensor& like) {
  const int64_t n = like.elements();
  Extents dims = like.shape().ToExtents();
  dims.insert(dims.begin(), Extent(n));
  return Tensor(internal::ReshapeTo(Tensor::Eye(n, n, like.dtype()).uop(), dims));
}

const Tensor& Only(const std::vector<Tensor>& results) {
  if (results.size() != 1) Fail("the function returns ", results.size(), " tensors, and not one");
  return results[0];
}

}  // namespace

ValuesAndDerivatives Vjp(const TensorFunction& function, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& cotangents) {
  Call call("Vjp", function.at(), absl::MakeConstSpan(inputs));
  const Linearised f(function, inputs);
  return {f.Results(), f.Back(cotangents)};
}

ValuesAndDerivatives Jvp(const TensorFunction& function, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& tangents) {
  Call call("Jvp", function.at(), absl::MakeConstSpan(inputs));
  const Linearised f(function, inputs);
  return {f.Results(), f.Along(tangents)};
}

Tensor Jacobian(const TensorFunction& function, const Tensor& x) {
  Call call("Jacobian", function.at(), x);
  const Linearised f(function, {x});
  const Tensor y = Only(f.Results());
  const auto fixed = [](const Tensor& t) { return t.shape().Elements().is_int(); };
  if (!fixed(x) || !fixed(y)) Fail("of ", Show(x), " and ", Show(y), " not all extents are fixed");
  const bool forward = x.elements() < y.elements();
  const auto row = [&](const Tensor& unit) {
    return (forward ? f.Along({unit}) : f.Back({unit}))[0];
  };
  const Tensor rows = Vmap(row, {Units(forward ? x : y)}, forward ? -1 : 0)[0];
  Extents dims = y.shape().ToExtents();
  for (const Extent& e : x.shape()) dims.push_back(e);
  return Tensor(internal::ReshapeTo(rows.uop(), dims));
}

Tensor Hessian(const TensorFunction& function, const Tensor& x) {
  Call call("Hessian", function.at(), x);
  return Jacobian([&](const Tensor& at) { return Grad(Only(function({at})), {at})[0]; }, x);
}

}  // namespace tessera
