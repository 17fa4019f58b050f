// The generator: leaves, then one random function after another over what there is.
#include "tests/fuzz/generator.h"

#include <algorithm>
#include <optional>
#include <random>

#include "graph/error.h"
#include "tests/fuzz/random_tensors.h"

namespace tessera {
namespace {

// Elements of all nodes of a graph, for the reference's sake.
constexpr int64_t kMaxWork = 60000, kMaxLargeWork = 1200000;

class Generator : public RandomTensors {
 public:
  explicit Generator(uint64_t seed) : RandomTensors(seed) {
    large_ = Chance(0.03);
    if (Chance(0.12)) {
      bound_ = Size();
      variable_.emplace("n", 1, std::max<int64_t>(1, bound_));
    }
  }

  FuzzCase Run() {
    if (large_) return Large();
    const int leaves = static_cast<int>(Int(1, 3));
    for (int i = 0; i < leaves; ++i) pool_.push_back(AnyLeaf());
    const int64_t steps = Int(2, Chance(0.2) ? 16 : 8);
    for (int tries = 0; made_ < steps && tries < (variable_ ? 200 : 60); ++tries) Step();
    return Finished();
  }

 private:
  FuzzCase Finished() {
    std::vector<UOp> roots = {pool_.back().uop()};
    for (const Tensor& t : written_) roots.push_back(t.uop());
    while (Chance(0.35)) roots.push_back(pool_[Int(0, Last())].uop());
    std::shuffle(roots.begin(), roots.end(), rng());
    std::vector<UOp> distinct;
    for (const UOp& r : roots) {
      if (std::find(distinct.begin(), distinct.end(), r) == distinct.end()) distinct.push_back(r);
    }
    FuzzCase out = CaseOf(distinct);
    if (variable_) out.values["n"] = Int(1, std::max<int64_t>(1, bound_));
    out.then = Chance(variable_ ? 0.6 : 0.15) ? FuzzCase::kReplay
               : Chance(0.2)                  ? FuzzCase::kChange
                                              : FuzzCase::kNothing;
    out.seed = rng()();
    return out;
  }

  // Little of much: reductions in two steps, loops over all cores.
  FuzzCase Large() {
    const std::vector<std::vector<int64_t>> shapes = {
        {70000}, {65537}, {2, 67200}, {300, 257}, {131072}, {3, 2, 66000}, {66000, 2}};
    pool_.push_back(LeafOf(AnyType(), shapes[Int(0, static_cast<int64_t>(shapes.size()) - 1)]));
    if (Chance(0.5)) Add([&] { return Unary(pool_.back()); });
    Add([&] {
      const Tensor x = pool_.back();
      const Axes axes = Chance(0.7) ? Axes() : Axes(x.rank() - 1);
      return Chance(0.4) ? x.Sum(axes) : Chance(0.4) ? x.Max(axes) : Reduced(x);
    });
    for (int tries = 0; made_ < 3 && tries < 10; ++tries) Step();
    return Finished();
  }

  // With the variable for an extent, where the case has one.
  Tensor AnyLeaf() {
    if (!variable_ || Chance(0.2)) return Leaf();
    std::vector<int64_t> shape = RandomShape(3);
    if (shape.empty()) shape.push_back(1);
    std::vector<bool> varies(shape.size(), false);
    varies[Int(0, static_cast<int64_t>(shape.size()) - 1)] = true;
    return Cut(shape, varies, AnyType());
  }

  Tensor Cut(std::vector<int64_t> shape, const std::vector<bool>& varies, DType t) {
    for (size_t i = 0; i < shape.size(); ++i) {
      if (varies[i]) shape[i] = std::max<int64_t>(1, bound_);
    }
    Tensor out = LeafOf(t, shape);
    for (size_t i = 0; i < shape.size(); ++i) {
      if (varies[i]) out = out.SliceAxis(static_cast<int>(i), {0, *variable_});
    }
    return out;
  }

  int64_t Last() const { return static_cast<int64_t>(pool_.size()) - 1; }

  // A tensor there is, recent ones more often.
  const Tensor& Pick() { return pool_[std::max(Int(0, Last()), Int(0, Last()))]; }

  Tensor PickFloat() {
    const Tensor& t = Pick();
    return t.dtype().IsFloat() ? t : t.Cast(FloatType());
  }
  Tensor PickInt() {
    const Tensor& t = Pick();
    return t.dtype().IsInt() ? t : t.Cast(IntType());
  }
  Tensor PickBool() {
    const Tensor& t = Pick();
    return t.dtype().IsBool() ? t : t > 0;
  }

  // Something that broadcasts with a.
  Tensor Partner(const Tensor& a) {
    for (int i = 0; i < 6; ++i) {
      const Tensor& b = Pick();
      if (Broadcasts(a.shape(), b.shape())) return b;
    }
    std::vector<int64_t> shape;
    std::vector<bool> varies;
    for (int i = 0; i < a.rank(); ++i) {
      const bool one = Chance(0.2);
      varies.push_back(!one && variable_ && a.shape()[i] == Extent(*variable_));
      shape.push_back(one || varies.back() ? 1 : a.size(i));
    }
    if (!shape.empty() && Chance(0.2)) {
      shape.erase(shape.begin());
      varies.erase(varies.begin());
    }
    return Cut(shape, varies, Chance(0.7) ? a.dtype() : AnyType());
  }

  static bool Broadcasts(const Shape& a, const Shape& b) {
    for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i) {
      const Extent &x = a[a.rank() - i], &y = b[b.rank() - i];
      if (!(x == y) && !x.is_int(1) && !y.is_int(1)) return false;
    }
    return true;
  }

  void Step() {
    Add([&] { return Function(); });
  }

  template <typename Make>
  void Add(Make make) {
    Tensor t;
    try {
      t = make();
      if (!t || WorkOf(t) > MaxWork()) return;
    } catch (const Error&) {
      return;  // what the API refuses is no graph
    }
    pool_.push_back(t);
    ++made_;
  }

  int64_t MaxWork() const { return large_ ? kMaxLargeWork : kMaxWork; }

  int64_t WorkOf(const Tensor& t) const {
    int64_t n = 0;
    for (const UOp& u : TopoSort({&t.uop(), 1})) {
      if (u.shape().MaxElements() > MaxWork()) return MaxWork() + 1;
      n += u.shape().MaxElements();
    }
    return n;
  }

  Tensor Function() {
    switch (Int(0, 99)) {
      case 0 ... 15:
        return Unary(style() == kSmooth || Chance(0.3) ? PickFloat() : Pick());
      case 16 ... 36: {
        const Tensor& a = Pick();
        return Chance(0.25) ? BinaryWithNumber(a) : Binary(a, Partner(a));
      }
      case 37 ... 53:
        return Moved(Pick());
      case 54 ... 58:
        return Composed(Pick());
      case 59 ... 73:
        return Reduced(Pick());
      case 74 ... 77: {
        const Tensor& a = Pick();
        return Where(PickBoolLike(a), a, Partner(a));
      }
      case 78 ... 81:
        return Joined(Pick());
      case 82 ... 84:
        return Indexed();
      case 85 ... 87:
        return Contracted(Pick());
      case 88 ... 90:
        return Chance(0.5) ? CastAround(Pick()) : Pick().Cast(AnyType());
      case 91:
        return Chance(0.4) ? Counter() : AnyLeaf();
      case 92 ... 93:
        return Chance(0.5) ? Pick().Contiguous() + 0 : Moved(Pick().Contiguous());
      default:
        return Written();
    }
  }

  Tensor PickBoolLike(const Tensor& a) {
    const Tensor& b = Pick();
    if (b.dtype().IsBool() && Broadcasts(a.shape(), b.shape())) return b;
    return a > Partner(a);
  }

  Tensor Joined(const Tensor& a) {
    if (a.rank() == 0) return Stack({a, Pick().Sum().Cast(a.dtype())});
    const int axis = static_cast<int>(Int(0, a.rank() - 1));
    std::vector<Tensor> parts;
    for (int64_t n = Int(1, 3); n >= 0; --n) {
      const Tensor& b = Chance(0.4) ? a : Pick();
      bool fits = b.rank() == a.rank();
      for (int i = 0; fits && i < a.rank(); ++i) fits = i == axis || a.shape()[i] == b.shape()[i];
      std::vector<int64_t> shape;
      for (int i = 0; i < a.rank(); ++i) shape.push_back(i == axis ? Size() : a.size(i));
      Tensor part = fits ? b.Cast(a.dtype()) : LeafOf(a.dtype(), shape);
      parts.push_back(Chance(0.2) ? part.Flip(axis) : part);
    }
    return Chance(0.2) ? Stack({parts[0], parts[0] == parts[0]}, axis) : Cat(parts, axis);
  }

  Tensor Indexed() {
    const Tensor& table = Pick();
    if (table.rank() == 0) return Tensor();
    const int axis = static_cast<int>(Int(0, table.rank() - 1));
    Tensor index = Chance(0.4) ? PickInt() : LeafOf(IntType(), RandomShape(2));
    if (Chance(0.6)) index = index.Abs() % std::max<int64_t>(1, table.size(axis));
    if (Chance(0.15)) return index.OneHot(Int(1, 5), AnyType());
    return table.Take(index, axis);
  }

  Tensor Contracted(const Tensor& a) {
    if (a.rank() == 0) return Tensor();
    const int64_t k = a.size(-1);
    if (a.rank() == 4 && Chance(0.4)) {
      Conv2dOptions o{.stride = {Int(1, 2), Int(1, 2)}, .padding = {Int(0, 1), Int(0, 2)}};
      return a.Conv2d(LeafOf(a.dtype(), {Int(1, 3), a.size(1), Int(1, 3), Int(1, 2)}), o);
    }
    const Tensor b =
        LeafOf(a.dtype(), Chance(0.2) ? std::vector<int64_t>{k} : std::vector<int64_t>{k, Size()});
    const Tensor y = a.MatMul(b);
    return Chance(0.3) ? y + 1 : y;
  }

  // Writes into a tensor there is, or into a view of it. Others keep what they have captured.
  Tensor Written() {
    const Tensor base = Chance(0.5) ? Leaf() : Pick();
    Tensor target = Write(base);
    // Over what was just written, and again; versions in between are wanted as they were.
    while (target && Chance(0.3)) {
      if (Chance(0.5)) {
        const Tensor version(base.uop());
        pool_.push_back(version);
        if (Chance(0.5)) written_.push_back(version);
      }
      if (Tensor next = Write(base)) target = next;
    }
    return Chance(0.5) ? target : base;
  }

  // Gives the view that was written; nothing where that would be too much work.
  Tensor Write(const Tensor& base) {
    Tensor target = base;
    for (int64_t n = Int(0, 3); n > 0; --n) target = Writable(target);
    Tensor value = Chance(0.3)   ? Partner(target)
                   : Chance(0.5) ? Moved(base)
                                 : Binary(target, Partner(target));
    if (!Broadcasts(value.shape(), target.shape()) || value.rank() > target.rank()) {
      value = LeafOf(target.dtype(), {});
    }
    if (WorkOf(value) > MaxWork()) return Tensor();
    target.Assign(value);
    written_.push_back(base);
    return target;
  }

  Tensor Writable(const Tensor& t) {
    if (t.rank() == 0) return t;
    const int axis = static_cast<int>(Int(0, t.rank() - 1));
    const int64_t n = t.size(axis);
    switch (Int(0, 4)) {
      case 0:
        return t.Flip(axis);
      case 1:
        return t.Transpose(axis, 0);
      case 2:
        return t.Flatten();
      case 3:
        return t.SliceAxis(axis, {{}, {}, Chance(0.5) ? 2 : -2});
      default: {
        const int64_t begin = Int(0, n), end = Int(begin, n);
        return t.SliceAxis(axis, {begin, end});
      }
    }
  }

  std::vector<Tensor> pool_, written_;
  int64_t made_ = 0;
  bool large_ = false;
  std::optional<Variable> variable_;  // of extents
  int64_t bound_ = 1;
};

}  // namespace

FuzzCase RandomCase(uint64_t seed) {
  Tensor::ManualSeed(seed);
  return Generator(seed).Run();
}

}  // namespace tessera
