// Rows of single operations beside PyTorch. That their values are right is tested elsewhere.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/grad.h"
#include "graph/tensor.h"
#include "runtime/core_pool.h"
#include "tools/benchmarks/python_peer.h"
#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {

Row BesideTorch(const std::string& name, const std::string& python, const std::string& text,
                double bytes, double flops, const std::function<Tensor()>& ours) {
  const std::string all =
      absl::StrCat("import torch\ntorch.set_num_threads(", CorePool::Global().cores(),
                   ")\ntorch.set_grad_enabled(False)\nversion = torch.__version__\n", text);
  const std::unique_ptr<PythonPeer> torch = PythonPeer::Start(python, all);
  if (torch) {
    return Measured(
        name, bytes, flops, ours, absl::StrCat("PyTorch ", torch->version()),
        [&] { torch->Step(); }, /*settled=*/true);
  }
  Row row = Measured(name, bytes, flops, ours, "PyTorch, not installed", nullptr);
  row.note = absl::StrCat("to measure it here: pip install torch, and --python if ", python,
                          " is not the one that has it");
  return row;
}

namespace {

// One operation on tensors of these shapes: in Python, on a list `t` of them, and here.
struct Operation {
  const char* name;
  std::vector<std::vector<int64_t>> shapes;
  const char* torch;
  double bytes = 0, flops = 0;
  std::function<Tensor(const std::vector<Tensor>&)> ours;
  DType dtype = kFloat32;
};

ConvOptions Stepping(int64_t step, int64_t padding, int64_t groups = 1) {
  ConvOptions options;
  options.stride = {step, step};
  options.padding = {padding, padding};
  options.groups = groups;
  return options;
}

std::vector<Operation> Operations() {
  using In = const std::vector<Tensor>&;
  constexpr double kMiB = 1 << 20;
  return {
      {"gelu",
       {{16 << 20}},
       "torch.nn.functional.gelu(t[0])",
       128 * kMiB,
       0,
       [](In t) { return t[0].Gelu(); }},
      {"softmax_masked",
       {{96, 512, 512}},
       "torch.where(torch.ones(512, 512, dtype=torch.bool).tril(), t[0], -1e9).softmax(-1)",
       192 * kMiB,
       0,
       [](In t) {
         return Where(Tensor::Ones({512, 512}, kBool).Tril(), t[0], -1e9f).Softmax();
       }},
      {"softmax_channels",
       {{8, 40, 128, 128}},
       "t[0].softmax(1)",
       40 * kMiB,
       0,
       [](In t) { return t[0].Softmax(1); }},
      {"topk_10",
       {{4096, 4096}},
       "torch.topk(t[0], 10)",
       64 * kMiB,
       0,
       [](In t) { return t[0].TopK(10).values; }},
      {"matmul_f16_1024",
       {{1024, 1024}, {1024, 1024}},
       "t[0] @ t[1]",
       6 * kMiB,
       2048 * kMiB,
       [](In t) { return t[0].MatMul(t[1]); },
       kFloat16},
      {"conv2d_7x7_by_two",
       {{8, 3, 224, 224}, {64, 3, 7, 7}},
       "torch.nn.functional.conv2d(t[0], t[1], stride=2, padding=3)",
       4.0 * (8 * 3 * 224 * 224 + 8 * 64 * 112 * 112),
       2.0 * 8 * 64 * 112 * 112 * 3 * 49,
       [](In t) { return t[0].Conv2d(t[1], Stepping(2, 3)); }},
      {"conv2d_depthwise_by_two",
       {{8, 96, 112, 112}, {96, 1, 3, 3}},
       "torch.nn.functional.conv2d(t[0], t[1], stride=2, padding=1, groups=96)",
       4.0 * 8 * 96 * (112 * 112 + 56 * 56),
       2.0 * 8 * 96 * 56 * 56 * 9,
       [](In t) { return t[0].Conv2d(t[1], Stepping(2, 1, 96)); }},
      {"conv2d_weight_gradient",
       {{8, 64, 56, 56}, {64, 64, 3, 3}, {8, 64, 56, 56}},
       "torch.ops.aten.convolution_backward(t[2], t[0], t[1], None, [1, 1], [1, 1], [1, 1], False, "
       "[0, 0], 1, [False, True, False])",
       4.0 * (2 * 8 * 64 * 56 * 56 + 64 * 64 * 9),
       2.0 * 8 * 64 * 64 * 56 * 56 * 9,
       [](In t) { return Grad((t[0].Conv2d(t[1], Stepping(1, 1)) * t[2]).Sum(), {t[1]})[0]; }},
  };
}

}  // namespace

std::vector<Row> OperationRows(const Wanted& wanted, const std::string& python) {
  std::vector<Row> out;
  for (const Operation& op : Operations()) {
    if (!wanted(op.name)) continue;
    std::string text = "t = []\n";
    std::vector<Tensor> tensors;
    for (const std::vector<int64_t>& shape : op.shapes) {
      tensors.push_back(Tensor::Uniform(-1, 1, shape).Cast(op.dtype).Realize());
      absl::StrAppend(&text, "t.append((torch.rand(", absl::StrJoin(shape, ", "), ") * 2 - 1)",
                      op.dtype == kFloat16 ? ".half()" : "", ")\n");
    }
    absl::StrAppend(&text, "def step():\n    ", op.torch, "\n");
    out.push_back(
        BesideTorch(op.name, python, text, op.bytes, op.flops, [&] { return op.ours(tensors); }));
  }
  return out;
}

}  // namespace tessera::benchmarks
