// Functions over batches: every composed function of a batch against itself of each sample; shared
// inputs, other axes, assignments, placements, symbolic batches, nesting; what is refused.
#include "graph/vmap.h"

#include <cmath>

#include "graph/grad.h"
#include "runtime/capture.h"
#include "tests/support/check.h"
#include "tests/support/composite_rows.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

void ExpectNear(const std::vector<double>& a, const std::vector<double>& b,
                const std::string& what) {
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(a[i] == b[i] || std::fabs(a[i] - b[i]) <= 1e-5 * (1 + std::fabs(b[i])) ||
                (std::isnan(a[i]) && std::isnan(b[i])))
        << what << ", element " << i << ": " << a[i] << " is not " << b[i];
  }
}

void ExpectNear(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  ExpectNear(got.ToVector<double>(), want.ToVector<double>(), what);
}

class VmapOfComposite : public ::testing::TestWithParam<CompositeRow> {};

TEST_P(VmapOfComposite, IsThatOfEachSampleSlow) {
  const CompositeRow& row = GetParam();
  const std::vector<std::vector<Tensor>> samples = {CompositeInputs(row, {}, 0),
                                                    CompositeInputs(row, {}, 1)};
  const size_t n = samples[0].size();
  // Each input alone, then all.
  for (size_t which = 0; which < (n == 1 ? 1 : n + 1); ++which) {
    std::vector<VmapInput> inputs;
    std::vector<Tensor> other = samples[0];
    for (size_t i = 0; i < n; ++i) {
      const bool batched = which == i || which == n;
      const std::vector<Tensor> both = {samples[0][i], samples[1][i]};
      inputs.push_back(batched ? VmapInput(Stack(both).Realize()) : Whole(samples[0][i]));
      if (batched) other[i] = samples[1][i];
    }
    const std::vector<Tensor> got = Vmap(row.fn, inputs);
    const std::vector<Tensor> first = row.fn(samples[0]), second = row.fn(other);
    ASSERT_EQ(got.size(), first.size());
    std::vector<Tensor> all = got;
    for (size_t k = 0; k < got.size(); ++k) {
      all.push_back(Stack({first[k], second[k]}));
      ASSERT_EQ(got[k].shape(), all.back().shape()) << row.name;
      ASSERT_EQ(got[k].dtype(), all.back().dtype()) << row.name;
    }
    const std::vector<std::vector<double>> values = ReferenceValues(all);
    for (size_t k = 0; k < got.size(); ++k) {
      ExpectNear(values[k], values[got.size() + k],
                 row.name + ", inputs " + std::to_string(which) + ", result " + std::to_string(k));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, VmapOfComposite, ::testing::ValuesIn(CompositeRows()),
                         [](const auto& info) { return info.param.name; });

Tensor Numbers(const Dims& shape, uint64_t seed = 1) {
  Tensor::ManualSeed(seed);
  return Tensor::Uniform(-2, 2, shape).Realize();
}

TEST(Vmap, GradientsOfEachSample) {
  const Tensor x = Numbers({5, 3}), y = Numbers({5}), w = Numbers({3}, 2);
  const auto of_sample = [&](const Tensor& a, const Tensor& b) {
    return Grad((a.Dot(w) - b).Square(), {w})[0];
  };
  const Tensor g = Vmap(of_sample, x, y);
  ExpectNear(g, (x.MatMul(w) - y).Unsqueeze(1) * 2 * x, "gradients");
  // Their sum is the gradient of the sum, which is itself one of a Vmap.
  const Tensor losses =
      Vmap([&](const Tensor& a, const Tensor& b) { return (a.Dot(w) - b).Square(); }, x, y);
  ExpectNear(Grad(losses.Sum(), {w})[0], g.Sum(0), "the gradient of all");
}

TEST(Vmap, OtherAxes) {
  const Tensor x = Numbers({3, 4, 5});
  const auto f = [](const Tensor& t) { return t.CumSum(0); };
  for (int axis : {0, 1, 2, -1}) {
    const int at = axis < 0 ? axis + 3 : axis;
    for (int out : {0, 1, -1}) {
      const Tensor got = Vmap(f, {Along(x, axis)}, out)[0];
      std::vector<Tensor> each;
      for (int64_t i = 0; i < x.size(at); ++i) each.push_back(f(x.Select(at, i)));
      ExpectNear(got, Stack(each, out), "axis " + std::to_string(axis));
    }
  }
}

TEST(Vmap, WhatDependsOnNoSampleIsRepeated) {
  const Tensor x = Numbers({3, 2}), w = Numbers({4});
  const auto both = Vmap(
      [&](const Tensor& t) {
        return std::vector<Tensor>{t, w * 2};
      },
      std::vector<VmapInput>{x});
  ExpectNear(both[0], x, "the sample");
  ExpectNear(both[1], (w * 2).Expand({3, 4}), "the rest");
}

TEST(Vmap, SamplesWriteIntoWhatIsTheirs) {
  const Tensor x = Numbers({4, 3});
  const Tensor got = Vmap(
      [](const Tensor& t) {
        Tensor own = Tensor::Zeros({5});
        own.Slice({{1, 4}}).Assign(t);
        own += 1;
        return own;
      },
      x);
  ExpectNear(got, x.Pad({{0, 0}, {1, 1}}) + 1, "assigned");
  const Tensor filled = Vmap(
      [](const Tensor& t) {
        Tensor own = Tensor::From({1.f, 2.f, 3.f});
        own.Slice({{1, 2}}).Assign(t.Slice({{0, 1}}));
        return own;
      },
      x);
  ExpectNear(filled.Select(1, 0), Tensor::Ones({4}), "kept");
  ExpectNear(filled.Select(1, 1), x.Select(1, 0), "assigned");
}

std::string MessageOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing";
}

TEST(Vmap, TheirInputsAreTheirs) {
  const Tensor x = Numbers({4, 3}), w = Numbers({3}, 2);
  const Tensor before = (x + 0).Realize(), w_before = (w + 0).Realize();
  const auto write = [](Tensor t, Tensor all) {
    t.Slice({{0, 1}}).Assign(7);
    all.Slice({{0, 1}}).Assign(t.Slice({{1, 2}}));
    return t + all;
  };
  const Tensor got = Vmap(write, x, Whole(w));
  ExpectNear(got.Select(1, 0), before.Select(1, 1) + 7, "assigned");
  ExpectNear(got.Select(1, 2), before.Select(1, 2) + w_before.Select(0, 2), "kept");
  Jit step(
      [&](const Tensor& samples, const Tensor& all) { return Vmap(write, samples, Whole(all)); });
  for (int i = 0; i < 3; ++i) ExpectNear(step.One({x, w}), got, "captured");
  ExpectNear(x, before, "the caller's");
  ExpectNear(w, w_before, "the caller's");
}

TEST(Vmap, ButIntoNothingElse) {
  const Tensor x = Numbers({4, 3});
  const auto refused = HasSubstr("was there before the function under Vmap, Jvp or the like");
  Tensor realized = Tensor::Zeros({3}).Realize(), lazy = Tensor::Zeros({3});
  Tensor w = Numbers({3}).RequireGrad();
  for (Tensor* outside : {&realized, &lazy}) {
    const auto assign = [&](const Tensor& t) { return outside->Assign(t) * 2; };
    EXPECT_THAT(MessageOf([&] { Vmap(assign, x); }), refused);
    Jit step([&](const Tensor& t) { return Vmap(assign, t); });
    EXPECT_THAT(MessageOf([&] { step.One({x}); }), refused);
    const auto add = [&](const Tensor& t) { return *outside += t; };
    EXPECT_THAT(MessageOf([&] { Vmap(add, x); }), refused);
    const auto part = [&](const Tensor& t) {
      Tensor view = outside->Slice({{0, 2}});
      view.Assign(t.Slice({{0, 2}}));
      return t;
    };
    EXPECT_THAT(MessageOf([&] { Vmap(part, x); }), refused);
    EXPECT_EQ(outside->ToVector<float>(), std::vector<float>(3, 0));
  }
  const auto back = [&](const Tensor& t) {
    t.Dot(w).Backward();
    return t;
  };
  EXPECT_THAT(MessageOf([&] { Vmap(back, x); }), HasSubstr("Backward: "));
  EXPECT_FALSE(w.grad());
  // What was looked at alone may be written to as a copy.
  const Tensor got = Vmap(
      [&](const Tensor& t) {
        Tensor copy = realized + 0;
        copy += t;
        Tensor same = realized.Contiguous();
        same.Assign(t);
        return copy + same;
      },
      x);
  ExpectNear(got, x * 2, "copies");
  EXPECT_EQ(realized.ToVector<float>(), std::vector<float>(3, 0));
}

TEST(Vmap, OfVmap) {
  const Tensor x = Numbers({4, 3}), y = Numbers({5, 3}, 2);
  // All pairs: the distances.
  const auto pairs = [&](const Tensor& a) {
    return Vmap([&](const Tensor& b) { return (a - b).Square().Sum().Sqrt(); }, y);
  };
  const Tensor got = Vmap(pairs, x);
  ExpectNear(got, (x.Unsqueeze(1) - y.Unsqueeze(0)).Square().Sum(2).Sqrt(), "pairs");
}

TEST(Vmap, ABatchIsAContraction) {
  const Tensor x = Numbers({8, 16}), w = Numbers({4, 16});
  const Tensor got = Vmap([&](const Tensor& t) { return w.MatMul(t); }, x);
  ExpectNear(got, x.MatMul(w.Transpose()), "product");
}

TEST(Vmap, LookupsKeepTheirTable) {
  const Tensor table = Numbers({10, 4}), index = Tensor::From({{1, 2, 1}, {9, 0, 3}}).Realize();
  const auto look = [&](const Tensor& i) { return table.Take(i, 0); };
  ExpectNear(Vmap(look, index), table.Take(index, 0), "rows");
  const auto along = [&](const Tensor& i) { return table.Take(i % 4, 1); };
  ExpectNear(Vmap(along, index),
             Stack({table.Take(index.Select(0, 0) % 4, 1), table.Take(index.Select(0, 1) % 4, 1)}),
             "columns");
}

TEST(Vmap, SpreadOverPlaces) {
  const Tensor x = Numbers({6, 4, 3}), w = Numbers({3, 5}, 2);
  const auto f = [](const Tensor& t, const Tensor& of) {
    return (t.MatMul(of).Softmax() * t.Sum()).Max(0);
  };
  const Tensor want = Vmap(f, x, Whole(w));
  const PlaceList places = {"CPU:0", "CPU:1"};
  for (int axis : {0, 1, 2}) {
    const Tensor spread = x.Shard(Sharding(places, axis)), all = w.To(Sharding(places));
    const Tensor got = Vmap(f, spread, Whole(all));
    ExpectNear(got.To("CPU"), want, "cut along axis " + std::to_string(axis));
    if (axis == 0) {
      EXPECT_EQ(got.device(), Sharding(places, 0));
    }
    if (axis == 2) {
      const Tensor rows = w.Shard(Sharding(places, 0));
      ExpectNear(Vmap(f, spread, Whole(rows)).To("CPU"), want, "cut weights");
    }
  }
}

TEST(Vmap, SymbolicBatchAndJit) {
  const Tensor data = Numbers({6, 3});
  const Variable n("vmap_n", 0, 6);
  const auto f = [](const Tensor& t) { return t * t.Sum(); };
  Jit step([&](const Tensor& x) { return Vmap(f, x.SliceAxis(0, {0, n})); });
  for (int64_t count : {0, 2, 6}) {
    const Tensor part = data.SliceAxis(0, {0, count});
    ExpectNear(step.One({data}, {{"vmap_n", count}}), part * part.Sum(1, true), "symbolic");
  }
}

TEST(Vmap, NoSamplesAndOne) {
  const auto f = [](const Tensor& t) { return t.Softmax() + t.Sum(); };
  EXPECT_EQ(Vmap(f, Tensor::Zeros({0, 3})).ToVector<double>(), std::vector<double>{});
  const Tensor x = Numbers({1, 3});
  ExpectNear(Vmap(f, x), f(x.Select(0, 0)).Unsqueeze(0), "one");
}

TEST(Vmap, SaysWhatIsWrong) {
  const Tensor x = Numbers({4, 3});
  const auto twice = [](const Tensor& t) { return t * 2; };
  EXPECT_THAT(MessageOf([&] { Vmap(twice, Whole(x)); }), HasSubstr("Vmap: no input has samples"));
  EXPECT_THAT(MessageOf([&] {
                Vmap([](const Tensor& a, const Tensor& b) { return a + b; }, x, Numbers({3, 3}));
              }),
              HasSubstr("Vmap: the inputs have 4 and 3 samples"));
  EXPECT_THAT(MessageOf([&] { Vmap(twice, Along(x, 2)); }), HasSubstr("Vmap: "));
  EXPECT_THAT(MessageOf([&] { Vmap(twice, x, x); }),
              HasSubstr("takes 1 tensors, and 2 are passed"));
  EXPECT_THAT(MessageOf([&] { Vmap(twice, Tensor()); }), HasSubstr("Vmap: an input is empty"));
  EXPECT_THAT(
      MessageOf([&] { Vmap([](const Tensor& t) { return t * t.Sum().Item(); }, x); }),
      HasSubstr("stands for an input while a function is traced, which may not read values"));
  EXPECT_THAT(MessageOf([&] { Vmap([](const Tensor&) { return Tensor(); }, x); }),
              HasSubstr("Vmap: the function returns an empty tensor"));
}

}  // namespace
}  // namespace tessera
