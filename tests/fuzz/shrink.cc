// Making a failing case smaller, step by step, as long as it fails.
#include <algorithm>

#include "graph/evaluate.h"
#include "graph/rewrite.h"
#include "tests/fuzz/fuzz_case.h"

namespace tessera {
namespace {

class Shrinker {
 public:
  Shrinker(FuzzCase c, const std::function<bool(const FuzzCase&)>& fails)
      : best_(std::move(c)), fails_(fails) {}

  FuzzCase Run() {
    for (bool again = true; again && tries_ < kMaxTries;) {
      again = NothingThen() || OneRoot() || Cut() || Skip() || Narrow() || Dull();
    }
    return best_;
  }

 private:
  static constexpr int kMaxTries = 2000;

  bool Try(FuzzCase c) {
    if (tries_ >= kMaxTries) return false;
    ++tries_;
    // Slots that nothing reads go.
    std::vector<std::vector<uint8_t>> data;
    Substitution params;
    for (const UOp& u : TopoSort(c.roots)) {
      if (!u.is(Op::kParam)) continue;
      const auto slot = static_cast<int64_t>(data.size());
      data.push_back(c.data[u.arg<ParamArg>().slot]);
      params.emplace(u, UOp::Make(Op::kParam, u.dtype(), {},
                                  ParamArg{slot, u.shape().ToExtents(), u.device()}));
    }
    c.roots = Substitute(c.roots, params);
    c.data = std::move(data);
    if (!fails_(c)) return false;
    best_ = std::move(c);
    return true;
  }

  bool NothingThen() {
    FuzzCase c = best_;
    c.then = FuzzCase::kNothing;
    return best_.then != FuzzCase::kNothing && Try(c);
  }

  bool OneRoot() {
    for (size_t i = 0; best_.roots.size() > 1 && i < best_.roots.size(); ++i) {
      FuzzCase c = best_;
      c.roots = {best_.roots[i]};
      if (Try(c)) return true;
      c = best_;
      c.roots.erase(c.roots.begin() + static_cast<int64_t>(i));
      if (Try(c)) return true;
    }
    // A root's sources instead of it.
    for (size_t i = 0; i < best_.roots.size(); ++i) {
      const UOp root = best_.roots[i];
      for (const UOp& s : root.srcs()) {
        if (s.size() == 0) continue;
        FuzzCase c = best_;
        c.roots[i] = s;
        if (Try(c)) return true;
      }
    }
    return false;
  }

  // The graph below a node gives way to a leaf of the same value.
  bool Cut() {
    EvaluateOptions options;
    options.stop_at_realized = false;
    options.vars.insert(best_.values.begin(), best_.values.end());
    options.contents = [&](const UOp& leaf) {
      return best_.data[leaf.arg<ParamArg>().slot].data();
    };
    std::vector<UOp> order = TopoSort(best_.roots);
    std::reverse(order.begin(), order.end());
    for (const UOp& u : order) {
      if (u.size() == 0 || !u.shape().is_static()) continue;
      const auto value = Evaluate({u}, options);
      if (!value.ok()) continue;
      FuzzCase c = best_;
      const UOp leaf =
          UOp::Make(Op::kParam, u.dtype(), {},
                    ParamArg{static_cast<int64_t>(c.data.size()), u.shape().ToExtents(),
                             u.device() ? u.device() : Device(Place("CPU", 0))});
      c.data.push_back((*value)[0].bytes);
      c.roots = Substitute(c.roots, {{u, leaf}});
      if (Fits(c) && Try(c)) return true;
    }
    return false;
  }

  // A node gives way to a source of its shape and dtype.
  bool Skip() {
    for (const UOp& u : TopoSort(best_.roots)) {
      for (const UOp& s : u.srcs()) {
        if (!(s.dtype() == u.dtype()) || !(s.shape() == u.shape())) continue;
        FuzzCase c = best_;
        c.roots = Substitute(c.roots, {{u, s}});
        if (Fits(c) && Try(c)) return true;
      }
    }
    return false;
  }

  // A wide dtype where a narrow one makes no difference: casts on both sides go.
  bool Narrow() {
    for (const UOp& u : TopoSort(best_.roots)) {
      if (!u.is(Op::kCast) || !u.src(0).is(Op::kCast)) continue;
      FuzzCase c = best_;
      c.roots = Substitute(c.roots, {{u, UOp::Make(Op::kCast, u.dtype(), {u.src(0).src(0)})}});
      if (Try(c)) return true;
    }
    return false;
  }

  // Zeros and ones for data.
  bool Dull() {
    for (const UOp& u : TopoSort(best_.roots)) {
      if (!u.is(Op::kParam)) continue;
      const auto slot = static_cast<size_t>(u.arg<ParamArg>().slot);
      const int width = u.dtype().bytes();
      const int64_t n = static_cast<int64_t>(best_.data[slot].size()) / width;
      for (int64_t value : {0, 1}) {
        std::vector<uint8_t> one(width);
        StoreScalar(one.data(), u.dtype(), Convert(Scalar::Int(value), kInt64, u.dtype()));
        const auto is_dull = [&](int64_t i) {
          for (int64_t v : {int64_t{0}, value}) {
            std::vector<uint8_t> dull(width);
            StoreScalar(dull.data(), u.dtype(), Convert(Scalar::Int(v), kInt64, u.dtype()));
            if (std::equal(dull.begin(), dull.end(), &best_.data[slot][i * width])) return true;
          }
          return false;
        };
        for (int64_t size = n; size >= 1; size = size > 64 && size < n ? 0 : size / 2) {
          for (int64_t at = 0; at < n; at += size) {
            FuzzCase c = best_;
            bool changes = false;
            for (int64_t i = at; i < std::min(n, at + size); ++i) {
              if (is_dull(i)) continue;
              changes = true;
              std::copy(one.begin(), one.end(), &c.data[slot][i * width]);
            }
            if (changes && Try(c)) return true;
          }
        }
      }
    }
    return false;
  }

  // An ASSIGN's view must go on ending at its base.
  static bool Fits(const FuzzCase& c) {
    for (const UOp& u : TopoSort(c.roots)) {
      if (!u.is(Op::kAssign)) continue;
      UOp at = u.src(1);
      while (!(at == u.src(0)) && IsMovement(at.op())) at = UOp(at.src(0));
      UOp base = u.src(0);
      while (base.is(Op::kAssign)) base = UOp(base.src(0));
      if (!(at == u.src(0)) || !base.is(Op::kParam)) return false;
    }
    return true;
  }

  FuzzCase best_;
  const std::function<bool(const FuzzCase&)>& fails_;
  int tries_ = 0;
};

}  // namespace

FuzzCase Shrink(const FuzzCase& c, const std::function<bool(const FuzzCase&)>& fails) {
  return Shrinker(c, fails).Run();
}

}  // namespace tessera
