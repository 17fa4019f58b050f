// Captured steps compute what is the same at each call once: the results are those of computing it
// each time, and follow every write to what it was made of.
#include <cmath>
#include <cstring>
#include <thread>

#include "graph/buffer.h"
#include "graph/flags.h"
#include "runtime/capture.h"
#include "runtime/device.h"
#include "runtime/dlpack.h"
#include "runtime/replay.h"
#include "runtime/runtime.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

std::vector<float> Floats(int64_t n, uint32_t seed) {
  const std::vector<double> v = Draw(n, seed);
  return {v.begin(), v.end()};
}
Tensor Matrix(int64_t rows, int64_t columns, uint32_t seed = 1) {
  return Tensor::From(Floats(rows * columns, seed), {rows, columns}).Realize();
}

// Kernels that a call runs.
template <typename Fn>
int64_t KernelsOf(Fn fn) {
  const int64_t before = GetRuntimeStats().kernels_run;
  fn();
  return GetRuntimeStats().kernels_run - before;
}

// Bit for bit, which tells -0 from +0.
void ExpectSameBits(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.ToVector<float>(), y = b.ToVector<float>();
  ASSERT_EQ(x.size(), y.size());
  int64_t different = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    uint32_t p, q;
    std::memcpy(&p, &x[i], sizeof p);
    std::memcpy(&q, &y[i], sizeof q);
    different += p != q && !(std::isnan(x[i]) && std::isnan(y[i]));
  }
  EXPECT_EQ(different, 0);
}

// x [m, k] times w [k, n], in plain loops.
std::vector<double> Product(const std::vector<float>& x, const std::vector<float>& w, int64_t m,
                            int64_t k, int64_t n) {
  std::vector<double> out(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; ++j) {
        out[i * n + j] += static_cast<double>(x[i * k + l]) * w[l * n + j];
      }
    }
  }
  return out;
}

void ExpectClose(const Tensor& got, const std::vector<double>& expected) {
  ExpectNear(got.ToVector<double>(), expected, 1e-5);
}

// Loops, such as decompositions are, as well; and again once what they are made of was written.
TEST(Lasting, LoopsThatReadNoInputRunOnce) {
  Tensor k = Matrix(12, 12), x = Matrix(12, 3, 2);
  k.Assign(k.MatMul(k.Transpose()) + Tensor::Eye(12)).Realize();
  Jit step([&](const Tensor& x) { return k.Cholesky().MatMul(x); });
  Tensor out;
  for (int i = 0; i < 3; ++i) step.One({x}).Realize();
  EXPECT_LE(KernelsOf([&] { out = step.One({x}).Realize(); }), 2);
  ExpectNear(out.ToVector<double>(), k.Cholesky().MatMul(x).ToVector<double>(), 1e-5);
  k.Assign(k * 2).Realize();
  EXPECT_GE(KernelsOf([&] { out = step.One({x}).Realize(); }), 12);
  ExpectNear(out.ToVector<double>(), k.Cholesky().MatMul(x).ToVector<double>(), 1e-5);
  EXPECT_LE(KernelsOf([&] { out = step.One({x}).Realize(); }), 2);
}

TEST(Lasting, WhatReadsNoInputRunsOnce) {
  Tensor w = Matrix(4, 8);
  // Stored here and there: a sum within another kernel may be taken in another order.
  const auto sum = [&] { return (w.Exp() * 2).Sum({1}, true).Contiguous(); };
  Jit step([&](const Tensor& x) { return x + sum(); });
  const Tensor x = Matrix(4, 8, 2);
  const auto expected = [&] { return x + sum(); };
  EXPECT_EQ(KernelsOf([&] { step({x}); }), 2);
  EXPECT_EQ(KernelsOf([&] { ExpectSameBits(step.One({x}), expected()); }), 1 + 2);
  w.Assign(w * 3).Realize();
  EXPECT_EQ(KernelsOf([&] { step({x}); }), 2);
  EXPECT_EQ(KernelsOf([&] { step({x}); }), 1);
  ExpectSameBits(step.One({x}), expected());
  w.Slice({{1, 2}, {2, 3}}).Assign(-7).Realize();
  ExpectSameBits(step.One({x}), expected());
}

TEST(Lasting, WhatAnotherStepWritesIsFollowed) {
  Tensor w = Matrix(4, 8);
  Jit read([&](const Tensor& x) { return x * (w * 2).Contiguous(); });
  Jit write([&](const Tensor& x) { w.Assign(w + x); });
  const Tensor x = Matrix(4, 8, 3);
  for (int i = 0; i < 3; ++i) {
    ExpectSameBits(read.One({x}), x * (w * 2));
    write({x});
  }
}

TEST(Lasting, InputsVariablesAndRandomNumbersAreNew) {
  const Tensor w = Matrix(4, 8);
  const Variable n("lasting_rows", 1, 4);
  Jit step([&](const Tensor& x) {
    return std::vector<Tensor>{(x * 2).Contiguous() + w,
                               w.SliceAxis(0, {0, n}).Exp().Contiguous() + 1,
                               (Tensor::Rand({4, 8}) + w).Contiguous() * 2};
  });
  Tensor::ManualSeed(3);
  std::vector<std::vector<float>> random;
  for (int64_t i : {1, 4, 2}) {
    const Tensor x = Matrix(4, 8, i);
    const std::vector<Tensor> got = step({x}, {{"lasting_rows", i}});
    ExpectSameBits(got[0], x * 2 + w);
    ExpectSameBits(got[1], w.SliceAxis(0, {0, i}).Exp() + 1);
    random.push_back(got[2].ToVector<float>());
  }
  EXPECT_NE(random[0], random[1]);
  EXPECT_NE(random[1], random[2]);
}

TEST(Lasting, ResultsAreNewTensors) {
  Tensor w = Matrix(2, 3);
  Jit step([&](const Tensor& x) { return std::vector<Tensor>{(w * 2).Contiguous(), x}; });
  Tensor first = step({w})[0];
  first.Assign(first * 0).Realize();
  ExpectSameBits(step({w})[0], w * 2);
}

// A product with panels: the same numbers, from one kernel a call.
TEST(Lasting, RightOperandsAreLaidOutOnce) {
  constexpr int64_t kRows = 9, kInner = 40, kColumns = 96;
  Tensor w = Matrix(kInner, kColumns), bias = Matrix(1, kColumns, 5);
  const auto product = [&](const Tensor& x) { return (x.MatMul(w) + bias).Relu(); };
  Jit step(product);
  const Tensor x = Matrix(kRows, kInner, 2);
  const auto expected = [&] {
    std::vector<double> out =
        Product(x.ToVector<float>(), w.ToVector<float>(), kRows, kInner, kColumns);
    const std::vector<float> b = bias.ToVector<float>();
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::max(0.0, out[i] + b[i % kColumns]);
    return out;
  };
  EXPECT_EQ(KernelsOf([&] { ExpectClose(step.One({x}), expected()); }), 2);
  EXPECT_EQ(KernelsOf([&] { ExpectClose(step.One({x}), expected()); }), 1);
  for (int i = 0; i < 2; ++i) {
    w.Assign(w * -2).Realize();
    EXPECT_EQ(KernelsOf([&] { ExpectClose(step.One({x}), expected()); }), 2);
    EXPECT_EQ(KernelsOf([&] { ExpectClose(step.One({x}), expected()); }), 1);
  }
}

struct Form {
  std::string name;
  std::function<Tensor(const Tensor& x, const Tensor& w)> product;
  int64_t rows, inner, columns;
  DType dtype = kFloat32;
};

TEST(Lasting, PanelsOfManyForms) {
  const auto matmul = [](const Tensor& x, const Tensor& w) { return x.MatMul(w); };
  const auto linear = [](const Tensor& x, const Tensor& w) {
    return x.MatMul(w.Permute({1, 0}).Contiguous().Permute({1, 0}));
  };
  const auto heads = [](const Tensor& x, const Tensor& w) {
    return x.MatMul(w).Reshape({x.size(0), w.size(1) / 64, 64}).Permute({1, 0, 2}).Exp();
  };
  const auto batched = [](const Tensor& x, const Tensor& w) {
    return x.Reshape({2, x.size(0) / 2, x.size(1)}).MatMul(w).Softmax(-1);
  };
  const auto square = [](const Tensor& x, const Tensor& w) {
    return x.MatMul(w).MatMul(w.Permute({1, 0}));
  };
  const Form forms[] = {{"as it lies", matmul, 33, 50, 64},
                        {"one panel", matmul, 16, 7, 32},
                        {"one row", matmul, 1, 64, 64},
                        {"few rows", matmul, 4, 64, 64},
                        {"no rows", matmul, 0, 64, 64},
                        {"one step", matmul, 8, 1, 64},
                        {"odd columns", matmul, 8, 16, 99},
                        {"across the grain", linear, 40, 48, 64},
                        {"heads", heads, 12, 32, 128},
                        {"batches", batched, 16, 32, 64},
                        {"twice", square, 16, 64, 64},
                        {"f16", matmul, 20, 48, 64, kFloat16},
                        {"bf16", matmul, 20, 48, 64, kBFloat16},
                        {"f64", matmul, 20, 48, 64, kFloat64},
                        {"bf16 across", linear, 40, 48, 64, kBFloat16},
                        {"bf16, few rows", matmul, 5, 64, 96, kBFloat16},
                        {"bf16, odd", matmul, 40, 47, 64, kBFloat16},
                        {"bf16 heads", heads, 12, 32, 128, kBFloat16},
                        {"bf16, panels at once", matmul, 40, 64, 256, kBFloat16},
                        {"bf16, eleven panels", matmul, 40, 64, 352, kBFloat16},
                        {"bf16 heads, panels at once", heads, 300, 64, 256, kBFloat16}};
  for (const Form& f : forms) {
    SCOPED_TRACE(f.name);
    const Tensor w = Matrix(f.inner, f.columns).Cast(f.dtype).Realize();
    const Tensor x = Matrix(f.rows, f.inner, 2).Cast(f.dtype).Realize();
    const auto step = [&](const Tensor& t) { return f.product(t, w).Cast(kFloat32); };
    Jit with(step);
    Jit without(step);
    with({x});
    const Tensor got = with.One({x});
    ExpectNear(got.ToVector<double>(), step(x).ToVector<double>(), 1e-5);
    SetFlagForTest none(Flag::kKeepMib, "0");
    ExpectNear(got.ToVector<double>(), without.One({x}).ToVector<double>(), 1e-5);
  }
}

TEST(Lasting, SpecialValuesGoThroughPanels) {
  constexpr int64_t kInner = 40, kColumns = 64;
  std::vector<float> v = Floats(kInner * kColumns, 4);
  const float special[] = {INFINITY, -INFINITY, NAN, -0.0f, 1e-42f, 3e38f};
  for (size_t i = 0; i < std::size(special); ++i) v[i * 131 + 7] = special[i];
  const Tensor w = Tensor::From(v, {kInner, kColumns}).Realize();
  Jit step([&](const Tensor& x) { return x.MatMul(w); });
  const Tensor x = Matrix(16, kInner, 2);
  const std::vector<double> expected = Product(x.ToVector<float>(), v, 16, kInner, kColumns);
  const std::vector<double> got = step.One({x}).ToVector<double>();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << i;
    } else if (std::isinf(expected[i]) || std::fabs(expected[i]) > 1e30) {
      EXPECT_EQ(std::signbit(got[i]), std::signbit(expected[i])) << i;
      EXPECT_GT(std::fabs(got[i]), 1e30) << i;
    } else {
      EXPECT_NEAR(got[i], expected[i], 1e-5 * std::max(1.0, std::fabs(expected[i]))) << i;
    }
  }
}

TEST(Lasting, NoMoreIsKeptThanTheFlagSays) {
  const Tensor w = Matrix(512, 1024), x = Matrix(8, 512, 2);  // 2 MiB
  for (const auto& [flag, kernels] : {std::pair{0, 1}, {1, 1}, {2, 2}}) {
    ASSERT_EQ(Replay::KeptBytes(), 0);
    SetFlagForTest most(Flag::kKeepMib, std::to_string(flag));
    Jit step([&](const Tensor& t) { return t.MatMul(w); });
    EXPECT_EQ(KernelsOf([&] { step({x}); }), kernels) << flag;
    EXPECT_EQ(KernelsOf([&] { step({x}); }), 1) << flag;
  }
}

// One capture leaves less for the next.
TEST(Lasting, CapturesShareWhatMayBeKept) {
  const Tensor w = Matrix(512, 1024), x = Matrix(8, 512, 2), y = Matrix(16, 512, 3);  // 2 MiB
  const int64_t before = Replay::KeptBytes();
  SetFlagForTest most(Flag::kKeepMib, std::to_string((before >> 20) + 3));
  const auto product = [&](const Tensor& t) { return t.MatMul(w); };
  {
    Jit first(product);
    EXPECT_EQ(KernelsOf([&] { first({x}); }), 2);
    EXPECT_EQ(Replay::KeptBytes(), before + (2 << 20));
    EXPECT_EQ(KernelsOf([&] { first({y}); }), 1);
  }
  EXPECT_EQ(Replay::KeptBytes(), before);
  Jit second(product);
  EXPECT_EQ(KernelsOf([&] { second({y}); }), 2);
}

TEST(Lasting, MemoryIsFreedWithTheCapture) {
  const Tensor w = Matrix(512, 1024), x = Matrix(8, 512, 2);
  DeviceRuntime& cpu = *GetDevice(Place("CPU", 0)).value();
  const int64_t before = cpu.Memory().live_bytes;
  {
    Jit step([&](const Tensor& t) { return t.MatMul(w); });
    step({x});
    EXPECT_GE(cpu.Memory().live_bytes, before + (2 << 20));
    const int64_t held = cpu.Memory().live_bytes;
    for (int i = 0; i < 3; ++i) step({x});
    EXPECT_EQ(cpu.Memory().live_bytes, held);
  }
  EXPECT_EQ(cpu.Memory().live_bytes, before);
}

// Memory of the caller changes without being assigned.
TEST(Lasting, SharedMemoryIsReadAtEachCall) {
  std::vector<float> v = Floats(64 * 64, 1);
  const Tensor w = Tensor::FromBlob(v.data(), {64, 64}, kFloat32), x = Matrix(8, 64, 2);
  Jit step([&](const Tensor& t) { return t.MatMul(w) + (w.Sum({0}) * 2).Contiguous(); });
  for (int i = 0; i < 3; ++i) {
    ExpectSameBits(step.One({x}), x.MatMul(w) + (w.Sum({0}) * 2).Contiguous());
    for (float& f : v) f = f * -2 + 1;
  }
}

// Lent after it was captured.
TEST(Lasting, LentMemoryIsReadAtEachCall) {
  const Tensor w = Matrix(64, 64), x = Matrix(8, 64, 2);
  Jit step([&](const Tensor& t) { return t.MatMul(w); });
  step({x});
  DLManagedTensor* lent = ToDlpack(w);
  for (int i = 0; i < 3; ++i) {
    ExpectSameBits(step.One({x}), x.MatMul(w).Contiguous());
    static_cast<float*>(lent->dl_tensor.data)[i * 65] = 100;
  }
  lent->deleter(lent);
}

TEST(Lasting, OnSeveralPlaces) {
  constexpr int64_t kRows = 8, kInner = 64, kColumns = 192;
  const std::vector<float> a = Floats(kRows * kInner, 1), b = Floats(kInner * kColumns, 2);
  for (int places : {2, 3}) {
    for (int axis : {0, 1}) {
      Tensor w = Tensor::From(b, {kInner, kColumns}).Shard(Line(places, axis)).Realize();
      const Tensor x = Tensor::From(a, {kRows, kInner}).To(Line(places, std::nullopt)).Realize();
      Jit step([&](const Tensor& t) { return t.MatMul(w); });
      const auto check = [&] {
        ExpectClose(step.One({x}), Product(a, w.ToVector<float>(), kRows, kInner, kColumns));
      };
      const int64_t first = KernelsOf(check), then = KernelsOf(check);
      EXPECT_EQ(KernelsOf(check), then);
      if (axis == 1) {
        EXPECT_EQ(first, then + places) << places;
      }
      w.Assign(w * 2).Realize();
      EXPECT_EQ(KernelsOf(check), first);
      EXPECT_EQ(KernelsOf(check), then);
    }
  }
}

// What is moved between places once is not moved again.
TEST(Lasting, CopiesToOtherPlaces) {
  Tensor w = Matrix(4, 8);
  Jit step([&](const Tensor& x) { return x + (w * 2).To("CPU:1"); });
  const Tensor x = Matrix(4, 8, 2).To("CPU:1").Realize();
  for (int i = 0; i < 3; ++i) {
    ExpectSameBits(step.One({x}), x + (w * 2).To("CPU:1"));
    ExpectSameBits(step.One({x}), x + (w * 2).To("CPU:1"));
    w.Assign(w + 1).Realize();
  }
}

TEST(Lasting, ThreadsShareWhatIsKept) {
  Tensor w = Matrix(128, 256);
  Jit step([&](const Tensor& t) { return t.MatMul(w); });
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const Tensor x = Matrix(8, 128, t + 1);
        const std::vector<double> expected =
            Product(x.ToVector<float>(), w.ToVector<float>(), 8, 128, 256);
        for (int i = 0; i < 5; ++i) {
          ExpectNear(step.One({x}).ToVector<double>(), expected, 1e-4);
        }
      });
    }
    for (std::thread& t : threads) t.join();
    w.Assign(w * 2).Realize();
  }
}

}  // namespace
}  // namespace tessera
