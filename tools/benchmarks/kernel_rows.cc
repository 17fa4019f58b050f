// Rows of kernels that memory limits: ours beside hand-written loops over the same data, and a pure
// test of memory beside both.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "graph/tensor.h"
#include "runtime/runtime.h"
#include "tools/benchmarks/peers.h"
#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {
namespace {

constexpr int64_t kRows = 65536, kColumns = 1024;
constexpr int kRounds = 15, kTrialRounds = 3;
constexpr double kEps = 1e-6;
// A hand loop that stays below this part of the pure test's bandwidth is no peer.
constexpr double kPeerShare = 0.95;

// Data of one size: x uniform in [-1, 1), a weight, and room for what the loops write.
struct Data {
  int64_t rows, columns;
  Tensor x, weight, room;
  Data(int64_t rows, int64_t columns) : rows(rows), columns(columns) {
    x = Tensor::Uniform(-1, 1, {rows, columns}).Realize();
    weight = Tensor::Uniform(0.5, 1.5, {columns}).Realize();
    room = Tensor::Zeros({rows, columns}).Contiguous().Realize();
  }
  int64_t elements() const { return rows * columns; }
  const float* in() const { return x.Data<float>(); }
  float* out() const { return const_cast<float*>(room.Data<float>()); }
};

// A loop over rows [begin, end), on every core its share; what reductions give comes back added.
using Loop = std::function<float(const Data& d, int64_t begin, int64_t end, Form form)>;

float RunLoop(const Data& d, const Loop& loop, Form form) {
  return OnCores(d.rows, [&](int64_t begin, int64_t end) { return loop(d, begin, end, form); });
}

struct Case {
  std::string name;
  std::function<Tensor(const Data&)> ours;
  Loop peer, pure;
  bool writes = true;  // as much as it reads; else it gives one sum
  double flops_per_element = 1;
  std::function<std::vector<double>(const Data&)> reference;  // in double
};

std::vector<double> Reference(const Data& d, const std::function<void(double*)>& row) {
  const std::vector<float> x = d.x.ToVector<float>();
  std::vector<double> out(x.begin(), x.end());
  for (int64_t r = 0; r < d.rows; ++r) row(&out[r * d.columns]);
  return out;
}

std::vector<Case> Cases() {
  const Peers& p = HostPeers();
  const Loop copy = [&p](const Data& d, int64_t begin, int64_t end, Form form) {
    const int64_t at = begin * d.columns;
    p.copy(d.in() + at, d.out() + at, (end - begin) * d.columns, form);
    return 0.0f;
  };
  const Loop sum = [&p](const Data& d, int64_t begin, int64_t end, Form form) {
    return p.sum(d.in() + begin * d.columns, (end - begin) * d.columns, form);
  };
  const Loop elementwise = [&p](const Data& d, int64_t begin, int64_t end, Form form) {
    const int64_t at = begin * d.columns;
    p.elementwise(d.in() + at, d.out() + at, (end - begin) * d.columns, form);
    return 0.0f;
  };
  const Loop softmax = [&p](const Data& d, int64_t begin, int64_t end, Form form) {
    const int64_t at = begin * d.columns;
    p.softmax(d.in() + at, d.out() + at, end - begin, d.columns, form);
    return 0.0f;
  };
  const Loop rmsnorm = [&p](const Data& d, int64_t begin, int64_t end, Form form) {
    const int64_t at = begin * d.columns;
    p.rmsnorm(d.in() + at, d.weight.Data<float>(), d.out() + at, end - begin, d.columns,
              static_cast<float>(kEps), form);
    return 0.0f;
  };
  const Loop layernorm = [&p](const Data& d, int64_t begin, int64_t end, Form form) {
    const int64_t at = begin * d.columns;
    p.layernorm(d.in() + at, d.weight.Data<float>(), d.out() + at, end - begin, d.columns,
                static_cast<float>(kEps), form);
    return 0.0f;
  };
  const Loop transpose = [&p](const Data& d, int64_t begin, int64_t end, Form form) {
    const int64_t last = end == d.rows ? end : end / 16 * 16;
    p.transpose(d.in(), d.out(), begin / 16 * 16, last, d.rows, d.columns, form);
    return 0.0f;
  };
  return {
      {"elementwise", [](const Data& d) { return (d.x * 1.5 + 0.5).Relu() * d.x - 0.25; },
       elementwise, copy, true, 5,
       [](const Data& d) {
         return Reference(d, [&](double* r) {
           for (int64_t i = 0; i < d.columns; ++i) {
             r[i] = std::max(r[i] * 1.5 + 0.5, 0.0) * r[i] - 0.25;
           }
         });
       }},
      {"sum", [](const Data& d) { return d.x.Sum(); }, sum, sum, false, 1,
       [](const Data& d) {
         double total = 0;
         for (float v : d.x.ToVector<float>()) total += v;
         return std::vector<double>{total};
       }},
      {"softmax", [](const Data& d) { return d.x.Softmax(); }, softmax, copy, true, 12,
       [](const Data& d) {
         return Reference(d, [&](double* r) {
           const double top = *std::max_element(r, r + d.columns);
           double total = 0;
           for (int64_t i = 0; i < d.columns; ++i) total += r[i] = std::exp(r[i] - top);
           for (int64_t i = 0; i < d.columns; ++i) r[i] /= total;
         });
       }},
      {"rmsnorm", [](const Data& d) { return d.x.RmsNorm(d.weight, kEps); }, rmsnorm, copy, true, 4,
       [](const Data& d) {
         const std::vector<float> w = d.weight.ToVector<float>();
         return Reference(d, [&](double* r) {
           double squares = 0;
           for (int64_t i = 0; i < d.columns; ++i) squares += r[i] * r[i];
           const double scale = 1 / std::sqrt(squares / static_cast<double>(d.columns) + kEps);
           for (int64_t i = 0; i < d.columns; ++i) r[i] *= scale * w[i];
         });
       }},
      {"layernorm", [](const Data& d) { return d.x.LayerNorm(d.weight, {}, kEps); }, layernorm,
       copy, true, 7,
       [](const Data& d) {
         const std::vector<float> w = d.weight.ToVector<float>();
         return Reference(d, [&](double* r) {
           const double n = static_cast<double>(d.columns);
           double mean = 0, squares = 0;
           for (int64_t i = 0; i < d.columns; ++i) mean += r[i] / n;
           for (int64_t i = 0; i < d.columns; ++i) squares += (r[i] - mean) * (r[i] - mean) / n;
           for (int64_t i = 0; i < d.columns; ++i) {
             r[i] = (r[i] - mean) / std::sqrt(squares + kEps) * w[i];
           }
         });
       }},
      {"transpose", [](const Data& d) { return d.x.T().Contiguous(); }, transpose, copy, true, 0,
       [](const Data& d) {
         const std::vector<float> x = d.x.ToVector<float>();
         std::vector<double> out(x.size());
         for (size_t i = 0; i < x.size(); ++i) {
           out[i % d.columns * d.rows + i / d.columns] = x[i];
         }
         return out;
       }},
  };
}

// Ours and the peer, in each of its forms, against the reference, at a small size.
void Check(const Case& c) {
  const Data d(48, kColumns);
  const std::vector<double> want = c.reference(d);
  CheckClose(c.name, c.ours(d).ToVector<float>(), want, 1e-4);
  for (const Form form : {Form{}, Form{true, false}, Form{false, true}, Form{true, true}}) {
    const float sum = RunLoop(d, c.peer, form);
    CheckClose(c.name + ", the hand-written loop,",
               c.writes ? d.room.ToVector<float>() : std::vector<float>{sum}, want, 1e-4);
  }
}

// The form in which a loop is fastest on this machine.
Form Best(const Data& d, const Loop& loop) {
  const Form forms[] = {{}, {true, false}, {false, true}, {true, true}};
  std::vector<std::function<void()>> fns;
  for (const Form& f : forms) fns.push_back([&d, &loop, f] { RunLoop(d, loop, f); });
  const std::vector<Times> ms = Interleaved(fns, kTrialRounds);
  const auto least = [](const Times& a, const Times& b) { return a.least < b.least; };
  return forms[std::min_element(ms.begin(), ms.end(), least) - ms.begin()];
}

Row Measure(const Case& c, const Data& d) {
  const Form peer = Best(d, c.peer), pure = Best(d, c.pure);
  const int64_t before = GetRuntimeStats().kernels_run;
  int64_t runs = 0;
  const std::vector<Times> ms =
      Interleaved({[&] {
                     ++runs;
                     Tensor y = c.ours(d);
                     y.Realize();
                   },
                   [&] { RunLoop(d, c.peer, peer); }, [&] { RunLoop(d, c.pure, pure); }},
                  kRounds);
  Row row;
  row.name = c.name;
  row.ours_ms = ms[0].median;
  row.bytes = static_cast<double>(d.elements()) * (c.writes ? 8 : 4);
  row.flops = static_cast<double>(d.elements()) * c.flops_per_element;
  row.kernels = (GetRuntimeStats().kernels_run - before) / runs;
  row.peer = absl::StrFormat("hand loop, %s", HostPeers().level);
  // By the least times: of what a loop can reach, a busy machine takes away at random.
  const double share = ms[2].least / ms[1].least;
  if (share >= kPeerShare) {
    row.peer_ms = ms[1].median;
  } else {
    row.note = absl::StrFormat(
        "the hand loop took %.2f ms (at best %.2f), %.2f times ours, and reached %.0f %% of the "
        "%.1f GB/s of the pure test: no peer",
        ms[1].median, ms[1].least, ms[1].median / ms[0].median, 100 * share,
        row.bytes / ms[2].least * 1e-6);
  }
  return row;
}

}  // namespace

std::vector<Row> KernelRows(const Wanted& wanted) {
  std::vector<Row> out;
  std::unique_ptr<Data> data;
  for (const Case& c : Cases()) {
    if (!wanted(c.name)) continue;
    Check(c);
    if (data == nullptr) data = std::make_unique<Data>(kRows, kColumns);
    out.push_back(Measure(c, *data));
  }
  return out;
}

}  // namespace tessera::benchmarks
