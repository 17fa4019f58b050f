// Rows of training beside PyTorch: a step of each network forward, back, and of its optimiser.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/loop.h"
#include "graph/tensor.h"
#include "runtime/capture.h"
#include "runtime/optimizer.h"
#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {
namespace {

using Tensors = std::vector<Tensor>;

// A layer's weights, drawn so that it keeps its input's variance.
Tensor Weight(const Dims& shape) {
  const Tensor drawn = Tensor::RandN(shape);
  const int64_t in = drawn.elements() / drawn.size(0);
  return (drawn * std::sqrt(2.0 / static_cast<double>(in))).Realize();
}
Tensor Zeros(int64_t n) { return Tensor::Zeros({n}).Contiguous().Realize(); }
Tensor Ones(int64_t n) { return Tensor::Ones({n}).Contiguous().Realize(); }

Tensor Labels(int64_t n, int64_t classes) { return Tensor::RandInt(0, classes, {n}).Realize(); }

// A network: its weights, and what it makes of an input.
struct Network {
  Tensors weights;
  std::function<Tensor(const Tensor&)> forward;

  Tensor Add(const Tensor& weight) {
    weights.push_back(weight);
    return weight;
  }
};

Tensor Convolved(const Tensor& x, const Tensor& w, int64_t padding, int64_t stride = 1,
                 const Tensor& bias = {}) {
  ConvOptions options;
  options.bias = bias;
  options.padding = {padding, padding};
  options.stride = {stride, stride};
  return x.Conv2d(w, options);
}

// Two convolutions and two linear layers over images of 28 x 28.
Network Convolutional() {
  Network n;
  const Tensor w1 = n.Add(Weight({32, 1, 3, 3})), b1 = n.Add(Zeros(32));
  const Tensor w2 = n.Add(Weight({64, 32, 3, 3})), b2 = n.Add(Zeros(64));
  const Tensor w3 = n.Add(Weight({128, 9216})), b3 = n.Add(Zeros(128));
  const Tensor w4 = n.Add(Weight({10, 128})), b4 = n.Add(Zeros(10));
  n.forward = [=](const Tensor& image) {
    const Tensor x = Convolved(Convolved(image, w1, 0, 1, b1).Relu(), w2, 0, 1, b2).Relu();
    return x.MaxPool({}).Flatten(1).Linear(w3, b3).Relu().Linear(w4, b4);
  };
  return n;
}

constexpr const char* kConvolutional = R"(
net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
                    nn.MaxPool2d(2), nn.Flatten(1), nn.Linear(9216, 128), nn.ReLU(),
                    nn.Linear(128, 10))
x, label = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
)";

// Four residual blocks of 64 to 512 channels over images of 32 x 32, normalised by the batch.
Network Residual() {
  struct Layer {
    Tensor weight, scale, shift;
  };
  struct Block {
    Layer first, second;
    Tensor beside;
    int64_t stride;
  };
  Network n;
  const auto layer = [&](int64_t out, int64_t in) {
    return Layer{n.Add(Weight({out, in, 3, 3})), n.Add(Ones(out)), n.Add(Zeros(out))};
  };
  const Layer stem = layer(64, 3);
  std::vector<Block> blocks;
  int64_t in = 64;
  for (const int64_t out : {64, 128, 256, 512}) {
    const Layer first = layer(out, in), second = layer(out, out);
    blocks.push_back({first, second, n.Add(Weight({out, in, 1, 1})), out == in ? 1 : 2});
    in = out;
  }
  const Tensor w = n.Add(Weight({10, 512})), b = n.Add(Zeros(10));
  const auto normalised = [](const Tensor& x, const Layer& l, int64_t stride) {
    return Convolved(x, l.weight, 1, stride).BatchNormTraining(l.scale, l.shift).output;
  };
  n.forward = [=](const Tensor& image) {
    Tensor x = normalised(image, stem, 1).Relu();
    for (const Block& block : blocks) {
      const Tensor y = normalised(normalised(x, block.first, block.stride).Relu(), block.second, 1);
      x = (y + Convolved(x, block.beside, 0, block.stride)).Relu();
    }
    return x.Mean({2, 3}).Linear(w, b);
  };
  return n;
}

constexpr const char* kResidual = R"(
class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        s = 1 if i == o else 2
        self.a, self.b = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.m, self.n = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.c = nn.Conv2d(i, o, 1, s, bias=False)
    def forward(self, x):
        return F.relu(self.n(self.b(F.relu(self.m(self.a(x))))) + self.c(x))
net = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                    Block(64, 64), Block(64, 128), Block(128, 256), Block(256, 512),
                    nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(512, 10))
x, label = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
)";

// Four layers of a decoder, 256 wide, over 8 texts of 128 tokens.
Network Transformer() {
  constexpr int64_t kLayers = 4, kWide = 256, kHeads = 4, kTokens = 128, kTexts = 8, kWords = 1024;
  struct Layer {
    Tensor scale, shift, qkv, out, scale2, shift2, up, up_bias, down, down_bias;
  };
  Network n;
  const auto norm = [&](Tensor& scale, Tensor& shift) {
    scale = n.Add(Ones(kWide));
    shift = n.Add(Zeros(kWide));
  };
  const Tensor words = n.Add((Tensor::RandN({kWords, kWide}) * 0.02).Realize());
  const Tensor places = n.Add((Tensor::RandN({kTokens, kWide}) * 0.02).Realize());
  std::vector<Layer> layers(kLayers);
  for (Layer& l : layers) {
    norm(l.scale, l.shift);
    norm(l.scale2, l.shift2);
    l.qkv = n.Add(Weight({3 * kWide, kWide}));
    l.out = n.Add(Weight({kWide, kWide}));
    l.up = n.Add(Weight({4 * kWide, kWide}));
    l.up_bias = n.Add(Zeros(4 * kWide));
    l.down = n.Add(Weight({kWide, 4 * kWide}));
    l.down_bias = n.Add(Zeros(kWide));
  }
  Tensor scale, shift;
  norm(scale, shift);
  n.forward = [=](const Tensor& text) {
    AttentionOptions causal;
    causal.causal = true;
    Tensor x = words.Embedding(text) + places;
    for (const Layer& l : layers) {
      const Tensor qkv = x.LayerNorm(l.scale, l.shift)
                             .Linear(l.qkv)
                             .Reshape({kTexts, kTokens, 3, kHeads, kWide / kHeads})
                             .Permute({2, 0, 3, 1, 4});
      const Tensor seen =
          qkv.Select(0, 0).ScaledDotProductAttention(qkv.Select(0, 1), qkv.Select(0, 2), causal);
      x = x + seen.Permute({0, 2, 1, 3}).Reshape({kTexts, kTokens, kWide}).Linear(l.out);
      const Tensor up = x.LayerNorm(l.scale2, l.shift2).Linear(l.up, l.up_bias).Gelu();
      x = x + up.Linear(l.down, l.down_bias);
    }
    return x.LayerNorm(scale, shift).Linear(words).Reshape({kTexts * kTokens, kWords});
  };
  return n;
}

constexpr const char* kTransformer = R"(
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.LayerNorm(256), nn.LayerNorm(256)
        self.qkv, self.out = nn.Linear(256, 768, bias=False), nn.Linear(256, 256, bias=False)
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x):
        q, k, v = self.qkv(self.a(x)).reshape(8, 128, 3, 4, 64).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.permute(0, 2, 1, 3).reshape(8, 128, 256))
        return x + self.down(F.gelu(self.up(self.b(x))))
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(1024, 256), nn.Parameter(torch.randn(128, 256) * 0.02)
        nn.init.normal_(self.words.weight, std=0.02)
        self.layers, self.norm = nn.Sequential(*[Layer() for _ in range(4)]), nn.LayerNorm(256)
    def forward(self, x):
        x = self.norm(self.layers(self.words(x) + self.places))
        return F.linear(x, self.words.weight).reshape(1024, 1024)
net = Decoder()
x, label = torch.randint(0, 1024, (8, 128)), torch.randint(0, 1024, (1024,))
)";

// A long short-term memory of 64 numbers over 8 sequences of 500 steps of 32, as a loop or written
// out.
constexpr int64_t kSteps = 500;
Network Recurrent(bool loop) {
  constexpr int64_t kSequences = 8, kIn = 32, kWide = 64, kClasses = 10;
  Network n;
  const Tensor wx = n.Add(Weight({4 * kWide, kIn})), wh = n.Add(Weight({4 * kWide, kWide}));
  const Tensor bias = n.Add(Zeros(4 * kWide));
  const Tensor w = n.Add(Weight({kClasses, kWide})), b = n.Add(Zeros(kClasses));
  n.forward = [=](const Tensor& x) {
    const auto step = [&](const Tensor& h, const Tensor& cell, const Tensor& from_input) {
      const Tensors gates = (from_input + h.Linear(wh)).Chunk(4, 1);
      const Tensor next = gates[1].Sigmoid() * cell + gates[0].Sigmoid() * gates[2].Tanh();
      return Tensors{gates[3].Sigmoid() * next.Tanh(), next};
    };
    const Tensor zeros = Tensor::Zeros({kSequences, kWide}), all = x.Linear(wx, bias);
    if (loop) return Loop(step, {zeros, zeros}, {all}).carried[0].Linear(w, b);
    Tensors state = {zeros, zeros};
    for (int64_t t = 0; t < kSteps; ++t) state = step(state[0], state[1], all.Select(0, t));
    return state[0].Linear(w, b);
  };
  return n;
}

constexpr const char* kRecurrent = R"(
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(32, 64), nn.Linear(64, 10)
    def forward(self, x):
        return self.last(self.lstm(x)[0][-1])
net = Recurrent()
x, label = torch.randn(500, 8, 32), torch.randint(0, 10, (8,))
)";

constexpr const char* kBefore =
    "import torch.nn as nn, torch.nn.functional as F\ntorch.set_grad_enabled(True)\n";
constexpr const char* kStep = R"(
def step():
    adam.zero_grad()
    F.cross_entropy(net(x), label).backward()
    adam.step()
)";

Row Training(const std::string& name, const std::string& python, const Network& network,
             const Tensor& input, const Tensor& label, double flops, const char* peer) {
  Optimizer adam(network.weights, AdamOptions{});
  Jit step([&](const Tensor& x, const Tensor& y) {
    const Tensor loss = network.forward(x).CrossEntropy(y);
    loss.Backward();
    adam.Step();
    return loss;
  });
  const std::string text =
      absl::StrCat(kBefore, peer,
                   "adam = torch.optim.AdamW(net.parameters(), weight_decay=0, fused=True)", kStep);
  return BesideTorch(name, python, text, 0, flops, [&] { return step.One({input, label}); });
}

}  // namespace

std::vector<Row> TrainingRows(const Wanted& wanted, const std::string& python) {
  std::vector<Row> out;
  // Multiplied and added, three times the forward pass: it, and the gradients by both operands.
  if (wanted("train_convolutional")) {
    constexpr double kFlops = 2.0 * 64 * (32 * 676 * 9 + 64 * 576 * 288 + 9216 * 128 + 1280);
    out.push_back(Training("train_convolutional", python, Convolutional(),
                           Tensor::RandN({64, 1, 28, 28}).Realize(), Labels(64, 10), 3 * kFlops,
                           kConvolutional));
  }
  if (wanted("train_residual")) {
    constexpr double kBlocks = 1024 * 64 * (27 + 2 * 576 + 64) + 256 * 128 * (576 + 1152 + 64) +
                               64 * 256 * (1152 + 2304 + 128) + 16 * 512 * (2304 + 4608 + 256);
    out.push_back(Training("train_residual", python, Residual(),
                           Tensor::RandN({32, 3, 32, 32}).Realize(), Labels(32, 10),
                           3 * 2.0 * 32 * kBlocks, kResidual));
  }
  if (wanted("train_transformer")) {
    constexpr double kOfToken = 4 * (12 * 256 * 256 + 2 * 128 * 256) + 256 * 1024;
    out.push_back(Training("train_transformer", python, Transformer(),
                           Tensor::RandInt(0, 1024, {8, 128}).Realize(), Labels(1024, 1024),
                           3 * 2.0 * 1024 * kOfToken, kTransformer));
  }
  for (const bool loop : {true, false}) {
    const char* name = loop ? "train_recurrent" : "train_recurrent_steps";
    if (!wanted(name)) continue;
    constexpr double kFlops = 2.0 * kSteps * 8 * 256 * (32 + 64);
    out.push_back(Training(name, python, Recurrent(loop), Tensor::RandN({kSteps, 8, 32}).Realize(),
                           Labels(8, 10), 3 * kFlops, kRecurrent));
  }
  return out;
}

}  // namespace tessera::benchmarks
