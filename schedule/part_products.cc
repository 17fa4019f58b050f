// Sums of several products of matrices: one by one, or those of few steps joined to longer ones.
#include <algorithm>
#include <array>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/rewrite.h"
#include "schedule/axis_map.h"
#include "schedule/fuse.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

constexpr size_t kMostTerms = 1 << 16;
constexpr size_t kMostJoined = 32;   // in one product
constexpr int64_t kLeastSteps = 16;  // below, tiles gain little

// The products that are added up; none where there is anything else. What is subtracted stays: it
// may be nearly the same, element by element.
std::vector<UOp> ProductsOf(const UOp& sum) {
  std::vector<UOp> out, stack = {sum};
  absl::flat_hash_set<const Node*> seen;
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (out.size() + stack.size() > kMostTerms) return {};
    if (u.is(Op::kAdd)) {
      if (!seen.insert(u.get()).second) return {};  // a sum that is added up again: too many terms
      stack.push_back(UOp(u.src(1)));
      stack.push_back(UOp(u.src(0)));
    } else if (u.is(Op::kMul)) {
      out.push_back(u);
    } else {
      return {};
    }
  }
  return out;
}

// Whether each operand is read again for all rows, or all columns, of the other.
bool IsMatrixProduct(const UOp& reduce) {
  if (!IsContraction(reduce)) return false;
  const auto& summed = reduce.arg<ReduceArg>().axes;
  const auto read_again = [&](const UOp& operand) {
    for (int axis = 0; axis < operand.rank(); ++axis) {
      const bool kept = std::find(summed.begin(), summed.end(), axis) == summed.end();
      if (kept && operand.shape()[axis].max() > 1 && !VariesOnAxis(operand, axis)) return true;
    }
    return false;
  };
  return read_again(reduce.src(0).src(0)) && read_again(reduce.src(0).src(1));
}

UOp CastTo(DType dtype, const UOp& u) {
  return u.dtype() == dtype ? u : UOp::Make(Op::kCast, dtype, {u});
}

// The elements of a factor that are not repetitions.
int64_t ElementsOf(const UOp& u) {
  int64_t n = 1;
  for (int a = 0; a < u.rank(); ++a) {
    if (VariesOnAxis(u, a)) n *= std::max<int64_t>(1, u.shape()[a].max());
  }
  return n;
}

using Terms = std::vector<std::array<UOp, 2>>;  // factors

// How products are added up.
struct Sum {
  ReduceArg reduce;
  DType wide = kFloat32;

  UOp Product(const std::array<UOp, 2>& term) const {
    return UOp::Make(Op::kMul, {CastTo(wide, term[0]), CastTo(wide, term[1])});
  }
  UOp Of(const std::array<UOp, 2>& term) const {
    return UOp::Make(Op::kReduce, {Product(term)}, reduce);
  }
};

// The axes along which it differs, as a mask.
uint64_t AxesOf(const UOp& u) {
  uint64_t mask = 0;
  for (int a = 0; a < u.rank(); ++a) mask |= uint64_t{VariesOnAxis(u, a)} << a;
  return mask;
}

// Whether what a factor has but for its values is the same, with extents that are known: the
// factors of several terms then can lie side by side.
bool LinesUp(const UOp& u, const UOp& other) {
  return AxesOf(u) == AxesOf(other) && u.dtype() == other.dtype() && u.shape() == other.shape() &&
         std::all_of(u.shape().begin(), u.shape().end(),
                     [](const Extent& e) { return e.is_int(); });
}

// The terms that line up with the most others, perhaps once their factors are exchanged; the others
// stay in `terms`.
Terms TakeLinedUp(Terms& terms) {
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, int> counts;
  const auto key = [](const std::array<UOp, 2>& t) {
    return std::minmax({AxesOf(t[0]), AxesOf(t[1])});
  };
  std::array<UOp, 2> model;
  int most = 0;
  for (const auto& t : terms) {
    const int alike = ++counts[key(t)];
    if (alike > most) model = t;
    most = std::max(most, alike);
  }
  Terms taken, left;
  for (std::array<UOp, 2>& t : terms) {
    if (!LinesUp(t[0], model[0])) std::swap(t[0], t[1]);
    const bool fits = LinesUp(t[0], model[0]) && LinesUp(t[1], model[1]);
    (fits ? taken : left).push_back(std::move(t));
  }
  terms = std::move(left);
  return taken;
}

// Factor f of some terms in a buffer, side by side along an axis of their own, the first.
UOp SideBySide(absl::Span<const std::array<UOp, 2>> terms, int f) {
  const Shape& shape = terms[0][f].shape();
  const uint64_t differs = AxesOf(terms[0][f]);
  Pairs cut;
  Extents once = {Extent(1)}, all = {Extent(static_cast<int64_t>(terms.size()))};
  for (int a = 0; a < shape.rank(); ++a) {
    const bool repeated = !(differs >> a & 1);
    cut.emplace_back(Extent(0), repeated ? Extent(1) : shape[a]);
    once.push_back(cut.back().second);
    all.push_back(shape[a]);
  }
  std::vector<UOp> rows;
  for (const auto& t : terms) {
    rows.push_back(UOp::Make(Op::kReshape, {UOp::Make(Op::kShrink, {t[f]}, cut)}, once));
  }
  const UOp joined = UOp::Make(Op::kContiguous, {UOp::Make(Op::kCat, rows, int64_t{0})});
  return UOp::Make(Op::kExpand, {joined}, all);
}

// Some terms as one product, whose sum is as much longer.
UOp AsOne(const Sum& sum, absl::Span<const std::array<UOp, 2>> terms) {
  if (terms.size() == 1) return sum.Of(terms[0]);
  Sum longer{{sum.reduce.op, {0}}, sum.wide};
  for (const int64_t a : sum.reduce.axes) longer.reduce.axes.push_back(a + 1);
  const UOp one = longer.Of({SideBySide(terms, 0), SideBySide(terms, 1)});
  return UOp::Make(Op::kReshape, {one}, Extents(one.shape().begin() + 1, one.shape().end()));
}

UOp AddedUp(absl::Span<const UOp> terms) {
  UOp sum = terms[0];
  for (const UOp& t : terms.subspan(1)) sum = UOp::Make(Op::kAdd, {sum, t});
  return sum;
}

UOp Parted(const UOp& u) {
  if (!u.is(Op::kReduce) || u.arg<ReduceArg>().op != Op::kAdd || u.size() != 1) return UOp();
  const std::vector<UOp> products = ProductsOf(u.src(0));
  if (products.size() < 2) return UOp();
  Terms single;
  for (const UOp& m : products) single.push_back({UOp(m.src(0)), UOp(m.src(1))});
  // Sums of narrow floats are rounded once, as before: when they are added up.
  const bool narrow = u.dtype().IsFloat() && u.dtype().bytes() < 4;
  const Sum sum{u.arg<ReduceArg>(), narrow ? kFloat32 : u.dtype()};
  int64_t steps = 1;
  for (const int64_t axis : sum.reduce.axes) {
    steps *= std::max<int64_t>(1, u.src(0).shape()[static_cast<int>(axis)].max());
  }
  const auto is_product = [&](const std::array<UOp, 2>& t) { return IsMatrixProduct(sum.Of(t)); };
  std::vector<UOp> parts;
  // To be joined costs a term its factors, written and read; to be added up, its result.
  Terms joined = TakeLinedUp(single);
  const size_t n = joined.size(), groups = (n + kMostJoined - 1) / kMostJoined;
  const auto pays = [&] {
    const int64_t factors = ElementsOf(joined[0][0]) + ElementsOf(joined[0][1]);
    const int64_t longer = steps * static_cast<int64_t>(n / groups);
    // A sum of one step is none, and what is added up stays as it was written.
    return steps > 1 && factors <= u.shape().MaxElements() && longer >= kLeastSteps &&
           is_product(joined[0]);
  };
  if (n > 1 && pays()) {
    for (size_t g = 0; g < groups; ++g) {
      const size_t begin = n * g / groups, end = n * (g + 1) / groups;
      parts.push_back(AsOne(sum, absl::MakeSpan(joined).subspan(begin, end - begin)));
    }
  } else {
    single.insert(single.begin(), joined.begin(), joined.end());
  }
  if (steps >= kLeastSteps && std::all_of(single.begin(), single.end(), is_product)) {
    for (const auto& t : single) parts.push_back(sum.Of(t));
  } else if (parts.empty()) {
    return UOp();
  } else if (!single.empty()) {
    std::vector<UOp> rest;
    for (const auto& t : single) rest.push_back(sum.Product(t));
    parts.push_back(UOp::Make(Op::kReduce, {AddedUp(rest)}, sum.reduce));
  }
  return CastTo(u.dtype(), AddedUp(parts));
}

}  // namespace

std::vector<UOp> PartProducts(absl::Span<const UOp> roots) {
  return Rebuild(roots, [](const UOp& u, const UOp&) { return Parted(u); });
}

}  // namespace tessera
