// Rows of the graph path: building, scheduling and generating one decode step of a transformer on
// NULL, where nothing is compiled or run.
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/buffer.h"
#include "graph/error.h"
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tools/benchmarks/row.h"
#include "tools/benchmarks/transformer.h"

namespace tessera::benchmarks {
namespace {

constexpr int kRounds = 11;
constexpr int kChain = 100000;

// A model, its input, and its step.
class DecodeStep {
 public:
  explicit DecodeStep(int64_t layers)
      : model_(Shape(layers), "NULL"), token_(GivenBuffer({1}, kInt32, "NULL")) {}

  // Builds the step and realises it: what a user's call of it takes.
  void Run() {
    const Tensor logits = model_.Step(token_, position_);
    std::vector<UOp> roots = {logits.uop()};
    std::vector<Tensor> caches = model_.Caches();
    for (const Tensor& c : caches) roots.push_back(c.uop());
    const std::vector<UOp> done = ValueOrThrow(RealizeNodes(roots, {{"bench_position", 5}}));
    for (size_t i = 0; i < caches.size(); ++i) caches[i].SetUOp(done[i + 1]);
  }

 private:
  static TransformerShape Shape(int64_t layers) {
    TransformerShape shape;
    shape.layers = layers;
    return shape;
  }
  Transformer model_;
  Tensor token_;
  Variable position_{"bench_position", 0, 4095};
};

int64_t KernelsOf(DecodeStep& step) {
  const int64_t before = GetRuntimeStats().kernels_run;
  step.Run();
  return GetRuntimeStats().kernels_run - before;
}

Row FirstStep() {
  Row row;
  row.name = "graph_first_step";
  auto step = std::make_unique<DecodeStep>(16);
  ClearPlans();
  const double first = Milliseconds([&] { step->Run(); });
  row.ours_ms = Interleaved({[&] {
                              ClearPlans();
                              step->Run();
                            }},
                            kRounds)[0]
                    .median;
  row.kernels = KernelsOf(*step);
  row.peer = "tinygrad, recorded";
  row.note = absl::StrFormat(
      "16 layers; first in this process %.1f ms; tinygrad recorded elsewhere: 5900 ms", first);
  return row;
}

Row CachedStep() {
  Row row;
  row.name = "graph_cached_step";
  DecodeStep step(16);
  step.Run();
  row.ours_ms = Interleaved({[&] { step.Run(); }}, kRounds)[0].median;
  row.kernels = KernelsOf(step);
  row.note = "the second call: built again, its plan found";
  return row;
}

Row ExtraLayer() {
  Row row;
  row.name = "extra_layer";
  constexpr int kLess = 16, kMore = 48;
  DecodeStep less(kLess), more(kMore);
  const auto run = [](DecodeStep& step) {
    return [&step] {
      ClearPlans();
      step.Run();
    };
  };
  // Differences of neighbours: what slows the machine slows both.
  std::vector<double> differences;
  for (int i = 0; i < kRounds; ++i) {
    const double with = Milliseconds(run(more));
    differences.push_back((with - Milliseconds(run(less))) / (kMore - kLess));
  }
  row.ours_ms = Median(std::move(differences));
  row.kernels = (KernelsOf(more) - KernelsOf(less)) / (kMore - kLess);
  row.note = "first step of 48 layers less that of 16, a layer";
  return row;
}

Row NodeCreation() {
  Row row;
  row.name = "node_creation";
  const UOp x = UOp::Make(Op::kVar, kInt64, {}, VarArg{"bench_node", 0, 9});
  int64_t made = 0;
  const double chain = Interleaved({[&] {
                                     const int64_t before = LiveNodes();
                                     UOp u = x;
                                     for (int i = 0; i < kChain; ++i) {
                                       u = UOp::Make(Op::kMax, {u, i % 2 ? x : u});
                                       u = UOp::Make(Op::kXor, {u, x});
                                     }
                                     made = LiveNodes() - before;
                                   }},
                                   5)[0]
                           .median;
  row.ours_ms = chain / static_cast<double>(made);
  // Through Tensor, with its checks and views.
  Transformer model({}, "NULL");
  const Tensor token = GivenBuffer({1}, kInt32, "NULL");
  const Variable position("bench_position", 0, 4095);
  int64_t nodes = 0;
  const double build = Interleaved({[&] {
                                     const int64_t before = LiveNodes();
                                     Transformer fresh = model;
                                     const Tensor logits = fresh.Step(token, position);
                                     nodes = LiveNodes() - before;
                                   }},
                                   kRounds)[0]
                           .median;
  row.note = absl::StrFormat(
      "%.3f us a node made and dropped; %.3f us a node of the step (%d nodes), by Tensor calls",
      *row.ours_ms * 1e3, build * 1e3 / static_cast<double>(nodes), nodes);
  return row;
}

// What replaying a captured step costs for each kernel in it: a chain of kernels on the CPU that
// are too small to count.
Row Replay() {
  constexpr int kKernels = 200;
  Row row;
  row.name = "replay_per_kernel";
  const Tensor x = Tensor::From({1, 2, 3, 4}, kFloat32).Realize();
  Jit step([&](const Tensor& t) {
    Tensor y = t;
    for (int i = 0; i < kKernels; ++i) y = (y * 0.5 + 1).Contiguous();
    return y;
  });
  // Halved so often, only the fixed point 2 is left.
  CheckClose(row.name, step.One({x}).ToVector<float>(), {2, 2, 2, 2}, 1e-6);
  CheckClose(row.name, step.One({x}).ToVector<float>(), {2, 2, 2, 2}, 1e-6);
  const int64_t before = GetRuntimeStats().kernels_run;
  step.One({x});
  const int64_t kernels = GetRuntimeStats().kernels_run - before;
  const double ms = Interleaved({[&] {
                                  const Tensor y = step.One({x});
                                  if (y.Data<float>()[0] != 2) std::abort();
                                }},
                                20 * kRounds)[0]
                        .median;
  row.ours_ms = ms / kKernels;
  row.kernels = kernels;
  row.note = absl::StrFormat("%.3f us a kernel: %.4f ms for %d of 4 elements, through Jit",
                             *row.ours_ms * 1e3, ms, kKernels);
  return row;
}

}  // namespace

std::vector<Row> GraphRows(const Wanted& wanted) {
  std::vector<Row> out;
  if (wanted("graph_first_step")) out.push_back(FirstStep());
  if (wanted("graph_cached_step")) out.push_back(CachedStep());
  if (wanted("extra_layer")) out.push_back(ExtraLayer());
  if (wanted("node_creation")) out.push_back(NodeCreation());
  if (wanted("replay_per_kernel")) out.push_back(Replay());
  return out;
}

}  // namespace tessera::benchmarks
