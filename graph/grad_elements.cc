// The adjoint of WINDOW, element by element.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/grad_product.h"
#include "graph/grad_window.h"
#include "graph/index_math.h"
#include "graph/tensor_internal.h"

namespace tessera {
namespace {

constexpr int64_t kMostTerms = 32;
constexpr int64_t kMostNodes = 256;  // of all terms: what is compiled grows with them

// Ops that make no infinity or NaN of what lies between windows, which is left out of the sum and
// would count in the derivative of it: 0 times an infinity.
bool IsSteady(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kNeg:
    case Op::kAbs:
    case Op::kMax:
    case Op::kMin:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kCmpLt:
    case Op::kCmpLe:
    case Op::kCmpEq:
    case Op::kCmpNe:
    case Op::kWhere:
    case Op::kCast:
      return true;
    default:
      return false;
  }
}

class ByElements {
 public:
  static std::optional<Tensor> Make(const UOp& window, const Tensor& g) {
    ByElements by(window);
    if (!by.Fits(g)) return std::nullopt;
    std::vector<int64_t> term(by.windows_.size(), 0);
    const DType wide = AccumulateType(g.dtype());
    Tensor sum;
    while (true) {
      const Tensor own = by.Term(term, g).Cast(wide);
      sum = sum ? sum + own : own;
      size_t i = term.size();
      while (i > 0 && ++term[i - 1] == by.windows_[i - 1].terms) term[--i] = 0;
      if (i == 0) return sum.Cast(g.dtype());
    }
  }

 private:
  // Of one axis: in how many windows an element is at most, and the first element of the w-th one
  // of them where positions are spread by the stride.
  struct Axis {
    int axis;
    int64_t extent, positions, size, stride, dilation, terms;
    int64_t FirstOf(int64_t w) const { return w * (stride == 1 ? dilation : stride); }
  };

  explicit ByElements(const UOp& window) : window_(window) {}

  bool Fits(const Tensor& g) {
    const WindowArg& arg = window_.arg<WindowArg>();
    int64_t terms = 1;
    for (size_t i = 0; i < arg.axes.size(); ++i) {
      const int axis = static_cast<int>(arg.axes[i]);
      const Extent &n = window_.src(0).shape()[axis], &positions = window_.shape()[axis];
      if (!n.is_int() || !positions.is_int() || positions.is_int(0) || Shards(g, axis))
        return false;
      Axis a{axis, n.value(), positions.value(), arg.size[i], arg.stride[i], arg.dilation[i], 0};
      if (a.stride > 1 && a.dilation > 1 && a.size > 1) return false;
      a.terms = CeilDiv(a.size, a.stride);
      if (a.terms > kMostTerms || (terms *= a.terms) > kMostTerms) return false;
      windows_.push_back(a);
    }
    return Collect(g.uop()) && terms * static_cast<int64_t>(nodes_.size()) <= kMostNodes;
  }

  // Finds what each window has one of, and what is computed of that and the WINDOW; whether there
  // is nothing else.
  bool Collect(const UOp& u) {
    bool windowed = false;
    std::vector<std::pair<UOp, bool>> stack = {{u, false}};
    absl::flat_hash_set<const Node*> seen;
    while (!stack.empty()) {
      const auto [v, done] = stack.back();
      stack.pop_back();
      if (done) nodes_.push_back(v);
      if (done || !seen.insert(v.get()).second) continue;
      if (v.rank() == 0) {
        single_.push_back(v);
      } else if (v == window_) {
        windowed = true;
      } else if (const Tensor narrow = Narrowed(v); OfPositions(narrow)) {
        alike_.emplace(v, narrow);
      } else if (IsSteady(v.op())) {
        stack.push_back({v, true});
        for (const UOp& s : v.srcs()) stack.push_back({s, false});
      } else {
        return false;
      }
    }
    return windowed;
  }

  bool OfPositions(const Tensor& t) const {
    const int rank = window_.src(0).rank();
    for (int axis = rank; axis < t.rank(); ++axis) {
      if (window_.arg<WindowArg>().size[axis - rank] > 1 && Varies(t, axis)) return false;
    }
    return true;
  }

  // Positions along an axis as elements, each repeated over a stride, from the first that the w-th
  // window of each reaches; others are 0.
  static Tensor Spread(const Tensor& t, const Axis& a, int axis, int64_t w, int64_t repeated) {
    Tensor out = t;
    if (a.stride > 1) {
      Extents dims = t.Unsqueeze(axis + 1).shape().ToExtents();
      dims[axis + 1] = repeated;
      out = t.Unsqueeze(axis + 1).Expand(Dims(dims));
      if (repeated < a.stride) out = PaddedAlong(out, axis + 1, 0, a.stride - repeated);
      out = out.Flatten(axis, axis + 1);
    }
    const int64_t first = a.FirstOf(w);
    return PaddedAlong(out, axis, first, a.extent - first - a.positions * a.stride);
  }

  Tensor Term(const std::vector<int64_t>& term, const Tensor& g) {
    const int rank = window_.src(0).rank();
    absl::flat_hash_map<UOp, Tensor> there = {{window_, Tensor(window_.src(0))}};
    for (const auto& [u, narrow] : alike_) {
      Extents dims = narrow.shape().ToExtents();
      dims.resize(rank);
      Tensor t = narrow.Reshape(dims);
      for (size_t i = 0; i < windows_.size(); ++i) {
        const Axis& a = windows_[i];
        if (Varies(t, a.axis)) t = Spread(t, a, a.axis, term[i], a.stride);
      }
      there.emplace(u, t);
    }
    Tensor reached;
    for (size_t i = 0; i < windows_.size(); ++i) {
      const Axis& a = windows_[i];
      Extents dims(rank - a.axis, 1);
      dims[0] = a.extent;
      const int64_t elements = std::min(a.stride, a.size - term[i] * a.stride);
      const Tensor ones = Tensor::Ones({a.positions}, kBool);
      const Tensor along = Spread(ones, a, 0, term[i], a.stride == 1 ? 1 : elements).Reshape(dims);
      reached = reached ? reached & along : along;
    }
    for (const UOp& u : single_) there.emplace(u, Tensor(u));
    for (const UOp& u : nodes_) there.emplace(u, Elementwise(u, there));
    return Where(reached, there.at(g.uop()), 0);
  }

  static Tensor Elementwise(const UOp& v, const absl::flat_hash_map<UOp, Tensor>& there) {
    Extents all;
    for (const UOp& s : v.srcs()) {
      const Shape& shape = there.at(s).shape();
      if (shape.rank() == 0) continue;
      all.resize(shape.rank(), 1);
      for (int a = 0; a < shape.rank(); ++a) {
        if (!shape[a].is_int(1)) all[a] = shape[a];
      }
    }
    std::vector<UOp> srcs;
    for (const UOp& s : v.srcs()) {
      srcs.push_back(internal::BroadcastTo(there.at(s).uop(), Shape(all), /*keep_scalar=*/true));
    }
    return Tensor(v.WithSrcs(srcs));
  }

  const UOp window_;
  std::vector<Axis> windows_;
  absl::flat_hash_map<UOp, Tensor> alike_;
  std::vector<UOp> single_;  // of rank 0
  std::vector<UOp> nodes_;   // elementwise, after their sources
};

}  // namespace

std::optional<Tensor> CotangentByElements(const UOp& window, const Tensor& g) {
  return ByElements::Make(window, g);
}

}  // namespace tessera
