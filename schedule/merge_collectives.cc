// Sums over places that are added up afterwards become one sum over places.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

// An op of one varying operand that may as well come before the sum, and does not make more of it.
bool IsLinear(const UOp& u, int i) {
  switch (u.op()) {
    case Op::kReshape:
    case Op::kPermute:
    case Op::kShrink:
    case Op::kFlip:
    case Op::kNeg:
      return true;
    case Op::kCast:
      return u.dtype().IsFloat() && u.src(0).dtype().IsFloat() &&
             u.dtype().bytes() <= u.src(0).dtype().bytes();
    case Op::kMul:
      return u.src(1 - i).IsConst();
    default:  // not known to be: it stays where it is
      return false;
  }
}

class Merger {
 public:
  explicit Merger(absl::Span<const UOp> roots) : order_(TopoSort(roots)) {
    for (const UOp& r : roots) ++uses_[r.get()];
    for (const UOp& u : order_) {
      for (const UOp& s : u.srcs()) ++uses_[s.get()];
    }
  }

  std::vector<UOp> Run(absl::Span<const UOp> roots) {
    for (const UOp& u : order_) Visit(u);
    std::vector<UOp> out;
    for (const UOp& r : roots) out.push_back(done_.at(r.get()));
    return out;
  }

 private:
  // A value that is the sum of `part` over mesh dims.
  struct Sum {
    UOp part;
    ReduceArg over;
  };

  const Sum* SumOf(const UOp& s) const {
    const auto it = sums_.find(s.get());
    return it == sums_.end() || uses_.at(s.get()) > 1 ? nullptr : &it->second;
  }

  void Visit(const UOp& u) {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(done_.at(s.get()));
    UOp made = u.WithSrcs(srcs);
    if (u.is(Op::kAllReduce) && u.arg<ReduceArg>().op == Op::kAdd) {
      sums_[u.get()] = {srcs[0], u.arg<ReduceArg>()};
    }
    const bool adds = u.is(Op::kAdd) || u.is(Op::kSub);
    const Sum *a = adds ? SumOf(u.src(0)) : nullptr, *b = adds ? SumOf(u.src(1)) : nullptr;
    if (a != nullptr && b != nullptr && a->over == b->over && a->part.shape() == b->part.shape() &&
        !(u.src(0) == u.src(1))) {
      const UOp part = UOp::Make(u.op(), {a->part, b->part});
      made = UOp::Make(Op::kAllReduce, {part}, a->over);
      made.SetMarks(u);
      if (made.note().empty()) made.SetNote("sums that are added up before they are reduced");
      Sum sum{part, a->over};
      sums_[u.get()] = std::move(sum);
    }
    for (int i = 0; i < u.size(); ++i) {
      const Sum* s = u.is(Op::kAllReduce) ? nullptr : SumOf(u.src(i));
      if (s == nullptr || !IsLinear(u, i)) continue;
      absl::InlinedVector<UOp, 4> before = srcs;
      before[i] = s->part;
      Sum sum{u.WithSrcs(before), s->over};
      sums_[u.get()] = std::move(sum);
      break;
    }
    done_.emplace(u.get(), std::move(made));
  }

  const std::vector<UOp> order_;
  absl::flat_hash_map<const Node*, int> uses_;
  absl::flat_hash_map<const Node*, UOp> done_;
  absl::flat_hash_map<const Node*, Sum> sums_;
};

}  // namespace

std::vector<UOp> MergeCollectives(absl::Span<const UOp> roots) { return Merger(roots).Run(roots); }

}  // namespace tessera
