// Index expressions over bounded ranges and variables: simplified and direct, at every point.
#include <random>

#include "absl/strings/str_cat.h"
#include "graph/index_algebra.h"
#include "graph/simplify.h"
#include "graph/text.h"
#include "tests/support/sample_evaluator.h"
#include "tests/testing.h"

namespace tessera {
namespace {

class IndexFuzz {
 public:
  explicit IndexFuzz(uint64_t seed) : rng_(seed) {}
  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double p) { return static_cast<double>(rng_() >> 11) < p * 0x1p53; }

  // Ranges over integers and over a variable, and variables that may be negative.
  void Leaves() {
    const UOp n = UOp::Make(Op::kVar, kInt64, {}, VarArg{"n", Int(1, 2), Int(3, 6)});
    const UOp low = UOp::Make(Op::kVar, kInt64, {}, VarArg{"m", -Int(0, 5), Int(0, 5)});
    leaves_ = {n, low};
    for (int64_t i = 0; i < 3; ++i) {
      const UOp extent = i == 2 && Chance(0.5) ? n : UOp::Index(Int(1, 7));
      leaves_.push_back(UOp::Make(Op::kRange, kInt64, {extent}, RangeArg{i, RangeKind::kLoop}));
    }
    nodes_ = leaves_;
  }

  UOp Expression() {
    for (int64_t steps = Int(1, 9); steps > 0; --steps) {
      const UOp a = Node(), b = Node(), c = UOp::Index(Chance(0.1) ? Int(-40, 40) : Int(0, 12));
      const UOp positive = UOp::Index(Int(1, 12));
      switch (Int(0, 12)) {
        case 0 ... 1:
          nodes_.push_back(UOp::Make(Op::kAdd, {a, Chance(0.5) ? b : c}));
          break;
        case 2:
          nodes_.push_back(UOp::Make(Op::kSub, {a, Chance(0.5) ? b : c}));
          break;
        case 3 ... 4:
          nodes_.push_back(UOp::Make(Op::kMul, {a, Chance(0.2) ? leaves_[0] : c}));
          break;
        case 5 ... 6:
          nodes_.push_back(UOp::Make(Op::kFloorDiv, {a, Chance(0.15) ? leaves_[0] : positive}));
          break;
        case 7 ... 8:
          nodes_.push_back(UOp::Make(Op::kFloorMod, {a, Chance(0.15) ? leaves_[0] : positive}));
          break;
        case 9:
          nodes_.push_back(
              UOp::Make(Op::kWhere, {UOp::Make(Op::kCmpLt, {a, Chance(0.5) ? b : c}), b, a}));
          break;
        case 10:
          nodes_.push_back(UOp::Make(Chance(0.5) ? Op::kMax : Op::kMin, {a, Chance(0.5) ? b : c}));
          break;
        case 11: {
          // How a reshape takes an index apart.
          const int64_t d = Int(2, 6);
          const UOp q = UOp::Make(Op::kFloorDiv, {a, UOp::Index(d)});
          const UOp r = UOp::Make(Op::kFloorMod, {a, UOp::Index(d)});
          nodes_.push_back(UOp::Make(
              Op::kAdd, {UOp::Make(Op::kMul, {q, UOp::Index(Chance(0.7) ? d : Int(1, 9))}), r}));
          break;
        }
        default:
          nodes_.push_back(
              UOp::Make(Op::kAdd, {UOp::Make(Op::kMul, {a, UOp::Index(Int(1, 8))}), b}));
      }
    }
    const UOp last = nodes_.back();
    return Chance(0.2)
               ? UOp::Make(Op::kCmpLt, {last, Chance(0.5) ? Node() : UOp::Index(Int(-9, 60))})
               : last;
  }

  // Every point of the leaves.
  std::vector<std::vector<int64_t>> Points() const {
    std::vector<std::vector<int64_t>> points = {{}};
    for (const UOp& leaf : leaves_) {
      std::vector<std::vector<int64_t>> next;
      for (const auto& p : points) {
        int64_t low = 0, high = 0;
        if (leaf.is(Op::kVar)) {
          low = leaf.arg<VarArg>().min, high = leaf.arg<VarArg>().max;
        } else {
          high = (leaf.src(0).IsConst() ? leaf.src(0).vmax() : p[0]) - 1;
        }
        for (int64_t v = low; v <= high; ++v) {
          next.push_back(p);
          next.back().push_back(v);
        }
      }
      points = std::move(next);
    }
    return points;
  }

  const std::vector<UOp>& leaves() const { return leaves_; }

 private:
  UOp Node() { return nodes_[Int(0, static_cast<int64_t>(nodes_.size()) - 1)]; }
  std::mt19937_64 rng_;
  std::vector<UOp> leaves_, nodes_;
};

void Fuzz(uint64_t first, int rounds) {
  int failures = 0, divisions = 0, fewer = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(rounds) && failures < 3;
       ++seed) {
    IndexFuzz fuzz(seed);
    fuzz.Leaves();
    const UOp u = fuzz.Expression(), r = Simplify(u);
    const auto count = [](const UOp& root) {
      int n = 0;
      for (const UOp& x : TopoSort({&root, 1})) n += x.is(Op::kFloorDiv) || x.is(Op::kFloorMod);
      return n;
    };
    divisions += count(u);
    fewer += count(u) - count(r);
    const auto points = fuzz.Points();
    SampleEvaluator evaluator(static_cast<int64_t>(points.size()));
    for (size_t i = 0; i < fuzz.leaves().size(); ++i) {
      std::vector<Scalar> values;
      for (const auto& p : points) values.push_back(Scalar::Int(p[i]));
      evaluator.Set(fuzz.leaves()[i], std::move(values));
    }
    const std::vector<Scalar> a = evaluator.Of(u), b = evaluator.Of(r);
    std::string wrong;
    for (size_t k = 0; k < points.size() && wrong.empty(); ++k) {
      if (!(a[k] == b[k])) {
        wrong = absl::StrCat(a[k].AsInt(), " became ", b[k].AsInt(), " at ",
                             testing::PrintToString(points[k]));
      }
    }
    for (const UOp& root : {u, r}) {
      for (const UOp& x : TopoSort({&root, 1})) {
        for (const Scalar& v : evaluator.Of(x)) {
          if (v.AsInt() >= x.vmin() && v.AsInt() <= x.vmax()) continue;
          wrong = absl::StrCat(v.AsInt(), " lies outside of ", x.vmin(), "..", x.vmax(), " of ",
                               Info(x.op()).text);
        }
      }
    }
    if (wrong.empty()) continue;
    ++failures;
    ADD_FAILURE() << "seed " << seed << ": " << wrong << "\n"
                  << Print({&u, 1}) << "=>\n"
                  << Print({&r, 1});
  }
  EXPECT_GT(fewer * 4, divisions);  // it does simplify
}

// The digits of a number, however its divisions were joined, are together the number.
TEST(IndexAlgebra, DigitsJoin) {
  const UOp x = UOp::Make(Op::kRange, kInt64, {UOp::Index(64)}, RangeArg{0, RangeKind::kLoop});
  const auto binary = [](Op op, const UOp& a, int64_t b) {
    return UOp::Make(op, {a, UOp::Index(b)});
  };
  const auto digit = [&](int64_t unit, int64_t base) {
    return binary(Op::kFloorMod, binary(Op::kFloorDiv, x, unit), base);
  };
  const UOp high = binary(Op::kMul, binary(Op::kFloorDiv, x, 8), 256);
  const UOp middle = binary(Op::kMul, digit(2, 4), 64), low = binary(Op::kMul, digit(1, 2), 32);
  const UOp sum = UOp::Make(Op::kAdd, {UOp::Make(Op::kAdd, {high, low}), middle});
  EXPECT_EQ(Simplify(sum), binary(Op::kMul, x, 32));
}

// Of x + 16 y, where x is below 16, divisions by what 16 divides are of y alone.
TEST(IndexAlgebra, WhatIsBelowADivisorOfBothStaysOutside) {
  const auto range = [](int64_t id, int64_t extent) {
    return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{id, RangeKind::kLoop});
  };
  const auto binary = [](Op op, const UOp& a, int64_t b) {
    return UOp::Make(op, {a, UOp::Index(b)});
  };
  const UOp x = range(0, 16), y = range(1, 24), z = range(2, 17);
  const auto sum = [&](const UOp& low) {
    return UOp::Make(Op::kAdd, {low, binary(Op::kMul, y, 16)});
  };
  EXPECT_EQ(Simplify(binary(Op::kFloorDiv, sum(x), 64)), binary(Op::kFloorDiv, y, 4));
  EXPECT_EQ(Simplify(binary(Op::kFloorMod, sum(x), 64)),
            Simplify(UOp::Make(Op::kAdd, {x, binary(Op::kMul, binary(Op::kFloorMod, y, 4), 16)})));
  const UOp wide = Simplify(binary(Op::kFloorDiv, sum(z), 64));  // z may be 16
  EXPECT_EQ(wide.src(0), Simplify(sum(z)));
}

// Extents are added without the nodes between, and give what those would have been simplified to.
TEST(IndexAlgebra, SumsOfExtents) {
  int told = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    IndexFuzz fuzz(seed);
    fuzz.Leaves();
    const UOp a = Simplify(fuzz.Expression()), b = Simplify(fuzz.Expression());
    if (!(a.dtype() == kInt64) || !(b.dtype() == kInt64)) continue;
    for (const Op op : {Op::kAdd, Op::kSub}) {
      const std::optional<Extent> sum = SimplifiedSum(op, Extent(a), Extent(b));
      told += sum.has_value();
      EXPECT_EQ(sum ? sum->ToUOp() : UOp(), Simplify(UOp::Make(op, {a, b}))) << seed;
    }
  }
  EXPECT_GT(told, 2000);
  // Not of what is not simple itself.
  const UOp n = UOp::Make(Op::kVar, kInt64, {}, VarArg{"not_simple", 0, 9});
  const UOp twice = UOp::Make(Op::kAdd, {n, UOp::Make(Op::kFloorDiv, {n, UOp::Index(1)})});
  EXPECT_FALSE(SimplifiedSum(Op::kAdd, Extent(twice), 1).has_value());
  EXPECT_EQ(SimplifiedSum(Op::kSub, Extent(Simplify(twice)), Extent(Simplify(n)))->expr(), n);
}

// A sum of any number of terms comes to an end, in whatever order it was written, and keeps its
// value.
TEST(IndexAlgebra, SumsOfManyTerms) {
  for (int n : {31, 32, 33, 40, 64, 65, 200}) {
    std::vector<UOp> terms;
    Substitution values;
    int64_t want = 0;
    for (int i = 0; i < n; ++i) {
      terms.push_back(UOp::Make(Op::kVar, kInt64, {}, VarArg{absl::StrCat("v", i), 0, 1000}));
      values.emplace(terms.back(), UOp::Index(i * 7 % 11));
      want += i * 7 % 11;
    }
    UOp left = terms[0], right = terms[n - 1], pieces = UOp::Index(0);
    for (int i = 1; i < n; ++i) {
      left = UOp::Make(Op::kAdd, {left, terms[i]});
      right = UOp::Make(Op::kAdd, {terms[n - 1 - i], right});
    }
    // As the pieces of a CAT are joined: the part so far is simplified each time.
    for (const UOp& t : terms) pieces = Simplify(UOp::Make(Op::kAdd, {t, pieces}));
    UOp doubled = Simplify(left);
    for (int i = 0; i < 40; ++i) doubled = Simplify(UOp::Make(Op::kAdd, {doubled, doubled}));
    for (const UOp& sum : {left, right, pieces}) {
      const UOp simple = Simplify(sum);
      EXPECT_EQ(Simplify(simple), simple) << n;
      EXPECT_EQ(Simplify(Substitute(simple, values)), UOp::Index(want)) << n;
    }
    EXPECT_EQ(Simplify(Substitute(doubled, values)), UOp::Index(want << 40)) << n;
  }
}

TEST(IndexAlgebra, RandomExpressions) { Fuzz(1, 2000); }
TEST(IndexAlgebra, ManyRandomExpressionsSlow) { Fuzz(100000, 20000); }

}  // namespace
}  // namespace tessera
