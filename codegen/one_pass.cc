// Recognising what one pass over the keys can do.
#include "codegen/one_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {

bool IsNumber(const UOp& u, double value) {
  return u.IsConst() && u.dtype().IsFloat() && u.arg<Scalar>().AsFloat() == value;
}

namespace {

class Finder {
 public:
  Finder(const UOp& sink, const ProductChain& chain, const RangeSets& sets)
      : sink_(sink), chain_(chain), sets_(sets), keys_(sets.Closed(chain.second)) {
    pass_.chain = chain;
  }

  std::optional<OnePass> Run() {
    if (!FindReductions() || !FindWeight()) return std::nullopt;
    bool counted = false;  // whether some sum is that of the exponentials
    for (const UOp& sum : pass_.sums) {
      std::vector<std::pair<Op, UOp>> none;
      const UOp value = Linear(sum.src(0), none);
      if (!value || !none.empty()) return std::nullopt;
      pass_.values.push_back(value);
      counted |= value == pass_.weight;
    }
    std::vector<std::pair<Op, UOp>> factors;
    const UOp weights = Linear(chain_.weights, factors);
    if (!weights || !counted) return std::nullopt;
    pass_.chain.weights = weights;
    pass_.chain.second = chain_.second.WithSrcs(SecondOf(weights));
    pass_.sink = Substitute(sink_, {{chain_.second, Whole(factors)}});
    return std::move(pass_);
  }

 private:
  // The maximum and the sums over the keys.
  bool FindReductions() {
    for (const UOp& u : TopoSort({&chain_.weights, 1})) {
      if (!u.is(Op::kReduce) || u == chain_.first) continue;
      if (!(u.dtype() == kFloat32)) return false;
      const Op op = u.arg<ReduceArg>().op;
      if (op == Op::kMax && !pass_.max) {
        pass_.max = u;
      } else if (op == Op::kAdd) {
        pass_.sums.push_back(u);
      } else {
        return false;
      }
    }
    return pass_.max && !Holds(pass_.max.src(0), /*weight=*/false);
  }

  // The one exponential of an element less the maximum; or, where that is -inf, less 0.
  bool FindWeight() {
    for (const UOp& u : TopoSort({&chain_.weights, 1})) {
      if (!u.is(Op::kExp) && !u.is(Op::kExp2)) continue;
      UOp difference = u.src(0);
      if (difference.is(Op::kMul) && difference.src(1).IsConst()) {
        const double by = difference.src(1).arg<Scalar>().AsFloat();
        if (by > 0 && std::isfinite(by)) difference = UOp(difference.src(0));
      }
      if (!difference.is(Op::kSub) || !(difference.src(0) == pass_.max.src(0))) continue;
      bool or_zero = false;
      if (!IsShift(difference.src(1), or_zero)) continue;
      const UOp from_max = UOp::Make(Op::kSub, {UOp(difference.src(0)), pass_.max});
      const UOp weight = Substitute(u, {{difference, from_max}});
      if (weight_ && !(weight == pass_.weight && or_zero == or_zero_)) return false;
      weight_ = u;
      or_zero_ = or_zero;
      pass_.weight = weight;
      pass_.difference = from_max;
    }
    return static_cast<bool>(weight_);
  }

  bool IsShift(const UOp& u, bool& or_zero) const {
    if (u == pass_.max) return true;
    if (!u.is(Op::kWhere)) return false;
    const UOp& is = u.src(0);
    const auto compares = [&](Op op) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      return is.is(op) && ((is.src(0) == pass_.max && IsNumber(is.src(1), -kInfinity)) ||
                           (is.src(1) == pass_.max && IsNumber(is.src(0), -kInfinity)));
    };
    const auto chooses = [&](int zero) {
      return IsNumber(u.src(zero), 0) && u.src(3 - zero) == pass_.max;
    };
    or_zero = (compares(Op::kCmpEq) && chooses(1)) || (compares(Op::kCmpNe) && chooses(2));
    return or_zero;
  }

  // Whether a value is made of the maximum or a sum, or of the exponential.
  bool Holds(const UOp& value, bool weight = true) const {
    for (const UOp& u : TopoSort({&value, 1})) {
      if (u == pass_.max || (weight && u == weight_)) return true;
      if (std::find(pass_.sums.begin(), pass_.sums.end(), u) != pass_.sums.end()) return true;
    }
    return false;
  }

  // Whether it is the same for all keys, and known once their sums are.
  bool IsFactor(const UOp& u) const {
    if ((sets_.Free(u) & keys_) || !(u.dtype() == kFloat32)) return false;
    const std::vector<UOp> reductions = TopReductions(u);
    return std::all_of(reductions.begin(), reductions.end(), [&](const UOp& r) {
      return std::find(pass_.sums.begin(), pass_.sums.end(), r) != pass_.sums.end();
    });
  }

  // A value as a linear function of the exponential, without the factors and divisors that are the
  // same for all keys, the innermost first among `factors`; or nothing where it is none.
  UOp Linear(const UOp& u, std::vector<std::pair<Op, UOp>>& factors) const {
    std::vector<UOp> path;  // down to the exponential
    for (UOp at = u; !(at == weight_);) {
      path.push_back(at);
      const int next = TermOf(at);
      if (next < 0) return UOp();
      at = UOp(at.src(next));
    }
    UOp out = pass_.weight;
    for (size_t i = path.size(); i-- > 0;) {
      const UOp& at = path[i];
      const int term = TermOf(at);
      if ((at.is(Op::kMul) || at.is(Op::kDiv)) && IsFactor(at.src(1 - term))) {
        factors.emplace_back(at.op(), UOp(at.src(1 - term)));
        continue;
      }
      std::vector<UOp> srcs(at.srcs().begin(), at.srcs().end());
      for (int s = 0; s < at.size(); ++s) {
        if (s != term && Holds(at.src(s))) return UOp();
      }
      srcs[term] = out;
      out = UOp::Make(at.op(), at.dtype(), srcs, at.arg());
    }
    return out;
  }

  // Which source of a node it is linear in, of those that the exponential is below of; or -1.
  int TermOf(const UOp& u) const {
    const auto holds = [&](int i) {
      const std::vector<UOp> nodes = TopoSort({&u.src(i), 1});
      return (sets_.Free(u.src(i)) & keys_) &&
             std::find(nodes.begin(), nodes.end(), weight_) != nodes.end();
    };
    if (u.is(Op::kCast) && u.dtype().IsFloat() && u.dtype().bits() >= 16) return 0;
    if (u.is(Op::kMul)) return holds(0) ? 0 : holds(1) ? 1 : -1;
    if (u.is(Op::kDiv)) return holds(0) ? 0 : -1;
    if (u.is(Op::kWhere)) {
      if (IsNumber(u.src(2), 0) && holds(1)) return 1;
      if (IsNumber(u.src(1), 0) && holds(2)) return 2;
    }
    return -1;
  }

  std::vector<UOp> SecondOf(const UOp& weights) const {
    std::vector<UOp> srcs(chain_.second.srcs().begin(), chain_.second.srcs().end());
    srcs[0] = UOp::Make(Op::kMul, {weights, chain_.values});
    return srcs;
  }

  // What stands for the second sum: the sum of what is left in it, times the rest.
  UOp Whole(const std::vector<std::pair<Op, UOp>>& factors) const {
    UOp out = pass_.chain.second;
    const DType dtype = out.dtype();
    for (const auto& [op, factor] : factors) out = UOp::Make(op, {out, factor});
    const auto none = [&](double value) { return UOp::Const(dtype, Scalar::Float(value)); };
    // No exponential is above 0, though the largest would be 1: the maximum is -inf.
    for (size_t i = 0; i < pass_.sums.size() && !or_zero_; ++i) {
      if (!(pass_.values[i] == pass_.weight)) continue;
      const UOp empty = UOp::Make(Op::kCmpEq, {pass_.sums[i], none(0)});
      out = UOp::Make(Op::kWhere, {empty, none(std::numeric_limits<double>::quiet_NaN()), out});
      break;
    }
    UOp keys = UOp::Index(1);
    for (const UOp& r : chain_.inner) keys = UOp::Make(Op::kMul, {keys, UOp(r.src(0))});
    keys = Simplify(keys);
    if (keys.vmin() > 0) return out;
    const UOp some = UOp::Make(Op::kCmpLt, {UOp::Index(0), keys});
    return UOp::Make(Op::kWhere, {some, out, none(0)});
  }

  const UOp& sink_;
  const ProductChain& chain_;
  const RangeSets& sets_;
  const RangeMask keys_;
  OnePass pass_;
  UOp weight_;            // as the kernel has it
  bool or_zero_ = false;  // where the maximum is -inf, 0 is subtracted
};

}  // namespace

std::optional<OnePass> FindOnePass(const UOp& sink, const ProductChain& chain,
                                   const RangeSets& sets) {
  return Finder(sink, chain, sets).Run();
}

UOp RescaleFactor(const OnePass& pass, const UOp& before, const UOp& now) {
  return Substitute(pass.weight, {{pass.difference, UOp::Make(Op::kSub, {before, now})}});
}

}  // namespace tessera
