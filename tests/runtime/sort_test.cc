// Sorting by counting, by digits on CPUs and by merging elsewhere, against the standard library:
// the same order, equal elements as they come, NaN above all.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

template <typename T>
std::vector<T> Draw(int64_t n, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> out(n);
  for (T& v : out) {
    if constexpr (std::is_floating_point_v<T>) {
      const T odd[] = {0,
                       static_cast<T>(-0.0),
                       std::numeric_limits<T>::quiet_NaN(),
                       std::numeric_limits<T>::infinity(),
                       -std::numeric_limits<T>::infinity(),
                       std::numeric_limits<T>::denorm_min(),
                       std::numeric_limits<T>::lowest()};
      v = random() % 4 == 0 ? odd[random() % 7] : static_cast<T>(random() % 2000) / 7 - 100;
    } else {
      v = static_cast<T>(random() >> random() % 64);
    }
  }
  return out;
}

template <typename T>
bool Before(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a < b || (!std::isnan(a) && std::isnan(b));
  return a < b;
}

// Along the last axis of [rows, n].
template <typename T>
std::vector<int64_t> Order(const std::vector<T>& v, int64_t rows, bool descending) {
  const int64_t n = static_cast<int64_t>(v.size()) / rows;
  std::vector<int64_t> order(v.size());
  for (int64_t r = 0; r < rows; ++r) {
    const auto begin = order.begin() + r * n;
    std::iota(begin, begin + n, 0);
    std::stable_sort(begin, begin + n, [&, row = v.begin() + r * n](int64_t a, int64_t b) {
      return descending ? Before(row[b], row[a]) : Before(row[a], row[b]);
    });
  }
  return order;
}

template <typename T>
void Check(int64_t rows, int64_t n, const char* place) {
  const std::vector<T> values = Draw<T>(rows * n, static_cast<uint32_t>(n));
  const Tensor x = Tensor::From(values).Reshape({rows, n}).To(place);
  for (const bool descending : {false, true}) {
    const std::vector<int64_t> order = Order(values, rows, descending);
    EXPECT_EQ(x.ArgSort(1, descending).template ToVector<int64_t>(), order)
        << place << " " << rows << "x" << n << (descending ? " descending" : "");
    if (descending) continue;
    EXPECT_EQ(x.T().ArgSort(0).T().template ToVector<int64_t>(), order) << "along axis 0";
    const std::vector<T> sorted = x.Sort(1).values.template ToVector<T>();
    for (int64_t i = 0; i < rows * n; ++i) {
      const T want = values[i / n * n + order[i]];
      ASSERT_TRUE(sorted[i] == want || (want != want && sorted[i] != sorted[i])) << i;
    }
  }
}

// Single ranks, and the first few, are found where the whole order has them.
template <typename T>
void CheckRanks(int64_t rows, int64_t n, const char* place) {
  const std::vector<T> values = Draw<T>(rows * n, static_cast<uint32_t>(n));
  const Tensor x = Tensor::From(values).Reshape({rows, n}).To(place);
  const std::vector<int64_t> order = Order(values, rows, false);
  constexpr int64_t kFew = 12;
  const Tensor few = x.TopK(kFew, 1, /*largest=*/false).indices;
  const Tensor last = x.KthValue(n, 1).indices, middle = x.KthValue((n + 1) / 2, 1).indices;
  const std::vector<int64_t> first = few.To("CPU").Cast(kInt64).ToVector<int64_t>();
  const std::vector<int64_t> ends = last.To("CPU").Cast(kInt64).ToVector<int64_t>();
  const std::vector<int64_t> middles = middle.To("CPU").Cast(kInt64).ToVector<int64_t>();
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = order.begin() + r * n;
    EXPECT_TRUE(std::equal(row, row + kFew, first.begin() + r * kFew)) << place << ", row " << r;
    EXPECT_EQ(ends[r], row[n - 1]) << place << ", row " << r;
    EXPECT_EQ(middles[r], row[(n - 1) / 2]) << place << ", row " << r;
  }
}

TEST(Sort, Ranks) {
  CheckRanks<float>(3, 1700, "CPU");
  CheckRanks<double>(2, 1900, "CPU");
  CheckRanks<int64_t>(1, 2600, "CPU");
  CheckRanks<uint8_t>(2, 1800, "CPU");
}

// Few of long rows: one by one, by blocks of which the first may be padded, or by sorting.
template <typename T>
void CheckTopK(int64_t rows, int64_t n, int64_t k, const char* place) {
  const std::vector<T> values = Draw<T>(rows * n, static_cast<uint32_t>(n + k));
  const Tensor x = Tensor::From(values).Reshape({rows, n}).To(place);
  for (const bool descending : {false, true}) {
    const std::vector<int64_t> order = Order(values, rows, descending);
    const auto [first, at] = x.TopK(k, 1, descending);
    const std::vector<int64_t> got = at.Cast(kInt64).template ToVector<int64_t>();
    const std::vector<T> least = first.template ToVector<T>();
    for (int64_t i = 0; i < rows * k; ++i) {
      const int64_t want = order[i / k * n + i % k];
      ASSERT_EQ(got[i], want) << place << " " << rows << "x" << n << ", " << k << ": " << i;
      const T value = values[i / k * n + want];
      ASSERT_TRUE(least[i] == value || (value != value && least[i] != least[i])) << i;
    }
    EXPECT_EQ(x.T().TopK(k, 0, descending).indices.T().Cast(kInt64).template ToVector<int64_t>(),
              got);
  }
}

TEST(Sort, TopKSlow) {
  for (const int64_t k : {2, 20, 65, 200, 400}) {
    CheckTopK<float>(40, 4001, k, "CPU");
    CheckTopK<uint8_t>(41, 4096, k, "CPU");  // many of them alike
  }
  CheckTopK<float>(150, 1500, 10, "CPU");
  CheckTopK<int32_t>(70, 2500, 64, "CPU");
  CheckTopK<double>(7, 1400, 17, "CPU");
  CheckTopK<float>(3, 300, 299, "CPU");
  CheckTopK<float>(30, 4001, 40, "SIM");
}

TEST(Sort, RanksOfFew) {
  CheckRanks<double>(2, 130, "CPU");
  CheckRanks<int64_t>(1, 300, "CPU");
  CheckRanks<uint8_t>(4, 65, "CPU");
  CheckRanks<float>(1, 200, "SIM");
}

TEST(Sort, RanksOnGpusSlow) { CheckRanks<float>(1, 2600, "SIM"); }

TEST(Sort, ByDigits) {
  Check<float>(1, 5000, "CPU");
  Check<float>(260, 257, "CPU");
  Check<double>(1, 4097, "CPU");
  Check<double>(5, 2000, "CPU");
  Check<int32_t>(4, 2112, "CPU");
  Check<int64_t>(17, 1000, "CPU");
  Check<uint64_t>(1, 4200, "CPU");
  Check<uint8_t>(1, 5000, "CPU");
}

TEST(Sort, ByCounting) {
  for (const char* place : {"CPU", "SIM:0"}) {
    Check<float>(1, 1, place);
    Check<float>(1, 257, place);
    Check<int64_t>(3, 600, place);
    Check<uint8_t>(7, 300, place);
  }
  Check<double>(1, 3000, "CPU");
}

// What is not fixed is not known to be few.
TEST(Sort, ByMergingSlow) {
  const Variable rows("rows", 1, 5);
  const std::vector<float> values = Draw<float>(3 * 300, 1);
  const Tensor x = Tensor::From(values).Reshape({3, 300}).Pad({{0, 2}, {0, 0}}).Realize();
  const std::vector<int64_t> want = Order(values, 3, false);
  Jit sort([&] { return x.SliceAxis(0, {0, rows}).ArgSort().Cast(kInt64); });
  EXPECT_EQ(sort.One({}, {{"rows", 3}}).ToVector<int64_t>(), want);
  Check<float>(1, 4100, "SIM:0");
}

}  // namespace
}  // namespace tessera
