// Measures kernels on a GPU beside the device's own copies and cuBLAS: tools/gpu-bench [--device
// PLACE] [--tiny] [--only PART] [--json FILE]
//
// What is measured is printed at once, and in the file from then on; a row that fails is told, and
// does not keep others from being measured.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/llm/quant.h"
#include "graph/buffer.h"
#include "graph/error.h"
#include "graph/tensor.h"
#include "runtime/capture.h"
#include "runtime/cuda_tables.h"
#include "runtime/device.h"
#include "runtime/runtime.h"

namespace tessera {
namespace {

struct Options {
  std::string device = "CUDA:0", json, only;  // which part, else all
  bool tiny = false;  // sizes for a simulated GPU, which show nothing but that the program works
};

struct Row {
  std::string name, peer, note;
  double ours_us = 0;
  std::optional<double> peer_us = {};
  double bytes = 0, flops = 0;
  double wanted = 0;    // of the peer's time over ours; 0: nothing
  double limit_us = 0;  // of our time; 0: none
  std::optional<bool> met() const {
    if (limit_us > 0) return ours_us <= limit_us;
    if (!peer_us || ours_us <= 0 || wanted <= 0) return std::nullopt;
    return *peer_us / ours_us >= wanted;
  }
};

void Must(const absl::Status& status) {
  if (!status.ok()) throw Error(status);
}

// Functions of cuBLAS, where the library is; a product of bf16 matrices by it.
class Blas {
 public:
  explicit Blas(bool look) {
    if (!look) return;
    void* library = nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so",
                             "/usr/local/cuda/lib64/libcublas.so"}) {
      if ((library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
    }
    if (library == nullptr) return;
    using Create = int (*)(void**);
    const auto create = reinterpret_cast<Create>(dlsym(library, "cublasCreate_v2"));
    gemm_ = reinterpret_cast<Gemm>(dlsym(library, "cublasGemmEx"));
    if (create == nullptr || gemm_ == nullptr || create(&handle_) != 0) gemm_ = nullptr;
  }
  bool found() const { return gemm_ != nullptr; }

  // c = a b of n x n row-major matrices: column-major, c^T = b^T a^T.
  bool Multiply(const void* a, const void* b, void* c, int n) const {
    constexpr int kBFloat16Data = 14, kFloat32Compute = 68, kDefaultAlgorithm = -1;
    const float one = 1, zero = 0;
    return gemm_(handle_, 0, 0, n, n, n, &one, b, kBFloat16Data, n, a, kBFloat16Data, n, &zero, c,
                 kBFloat16Data, n, kFloat32Compute, kDefaultAlgorithm) == 0;
  }

 private:
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int,
                       const void*, int, int, const void*, void*, int, int, int, int);
  void* handle_ = nullptr;
  Gemm gemm_ = nullptr;
};

// The addresses of a realised tensor on one place.
void* AddressOf(const Tensor& t) { return t.uop().arg<BufferArg>().buffer->storage->data; }

std::string Number(std::optional<double> v, int digits) {
  return v ? absl::StrFormat("%.*f", digits, *v) : "-";
}

void Print(const Row& r) {
  const std::optional<double> ratio =
      r.peer_us ? std::optional(*r.peer_us / r.ours_us) : std::nullopt;
  const std::optional<bool> met = r.met();
  std::printf("%-22s %12s %12s %7s %9s %9s %7s  %s\n", r.name.c_str(), Number(r.ours_us, 2).c_str(),
              Number(r.peer_us, 2).c_str(), Number(ratio, 3).c_str(),
              r.bytes > 0 ? Number(r.bytes / r.ours_us * 1e-3, 1).c_str() : "-",
              r.flops > 0 ? Number(r.flops / r.ours_us * 1e-6, 2).c_str() : "-",
              met ? *met ? "met" : "NOT MET" : "-",
              absl::StrCat(r.peer, r.note.empty() || r.peer.empty() ? "" : "; ", r.note).c_str());
  std::fflush(stdout);
}

// Names and notes hold nothing that JSON would want escaped.
std::string Json(const Row& r) {
  const auto number = [](std::optional<double> v) {
    return v ? absl::StrFormat("%.9g", *v) : std::string("null");
  };
  const std::optional<bool> met = r.met();
  return absl::StrCat(
      "{\"name\": \"", r.name, "\", \"ours_us\": ", number(r.ours_us), ", \"peer\": \"", r.peer,
      "\", \"peer_us\": ", number(r.peer_us), ", \"bytes\": ", number(r.bytes),
      ", \"flops\": ", number(r.flops), ", \"wanted_ratio\": ", number(r.wanted),
      ", \"limit_us\": ", number(r.limit_us), ", \"met\": ", met ? *met ? "true" : "false" : "null",
      ", \"note\": \"", r.note, "\"}");
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), place_(Device(options.device).place()) {
    const auto device = GetDevice(place_);
    Must(device.status());
    device_ = *device;
  }

  // Whether all rows of the part could be measured, and none was wrong.
  bool Run() {
    const std::pair<const char*, void (Bench::*)()> parts[] = {
        {"copies", &Bench::Copies},       {"reductions", &Bench::Reductions},
        {"products", &Bench::Products},   {"gemv", &Bench::RowsByWeights},
        {"attention", &Bench::Attention}, {"replays", &Bench::Replays}};
    bool known = options_.only.empty();
    for (const auto& [name, run] : parts) {
      if (!options_.only.empty() && options_.only != name) continue;
      known = true;
      (this->*run)();
    }
    if (!known) throw Error(absl::NotFoundError("there is no part '" + options_.only + "'"));
    return good_;
  }
  const Target& target() const { return device_->target(); }

 private:
  static constexpr double kMicrosecondsOfRound = 2e5;

  // Measures one row, and tells it.
  void Add(Row row, const std::function<void(Row&)>& measure) {
    try {
      measure(row);
    } catch (const Error& e) {
      row.ours_us = 0;
      row.note = absl::StrCat("FAILED: ", e.what());
    }
    const auto begins = [&](const char* word) { return row.note.rfind(word, 0) == 0; };
    good_ &= !begins("WRONG") && !begins("FAILED");
    for (char& c : row.note) {
      const bool plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
      if (!plain) c = ' ';
    }
    row.note.resize(std::min<size_t>(row.note.size(), 200));
    Print(row);
    rows_.push_back(std::move(row));
    if (options_.json.empty()) return;
    std::ofstream file(options_.json);
    for (size_t i = 0; i < rows_.size(); ++i) file << (i > 0 ? ",\n  " : "[\n  ") << Json(rows_[i]);
    file << "\n]\n";
    file.flush();
    if (!file.good()) throw Error(absl::UnavailableError("cannot write " + options_.json));
  }

  // Microseconds of one call, the least over rounds of enough calls to hide the last wait.
  double Time(const std::function<void()>& call, const std::function<void()>& wait) const {
    const auto run = [&](int calls) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) call();
      wait();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - start;
      return took.count() / calls;
    };
    run(1);  // compiles
    const double once = run(1);
    if (options_.tiny) return once;
    const int calls = static_cast<int>(std::clamp(kMicrosecondsOfRound / once, 1.0, 20.0));
    double least = once;
    for (int r = 0; r < 7; ++r) least = std::min(least, run(calls));
    return least;
  }
  double Time(const std::function<void()>& call) const {
    return Time(call, [&] { Must(device_->Wait()); });
  }
  Tensor Random(const Dims& shape, DType dtype = kFloat32) const {
    const double scale = dtype.IsFloat() ? 1 : 200;
    return ((Tensor::Rand(shape, kFloat32, place_) - 0.5) * scale)
        .Cast(dtype)
        .Contiguous()
        .Realize();
  }
  // The same bytes by the driver's own copy, half of them read and half written.
  double CopyTime(int64_t bytes) const {
    auto from = device_->Allocate(bytes / 2), to = device_->Allocate(bytes / 2);
    Must(from.status());
    Must(to.status());
    return Time([&] { Must(device_->CopyWithin((*to)->data, (*from)->data, bytes / 2)); });
  }

  // Of a kernel that memory limits: what it reads beside its input, and what it writes.
  void AddBandwidth(const std::string& name, const Dims& shape, DType dtype,
                    const std::function<Tensor(const Tensor&)>& fn, int64_t others, double wanted) {
    Row to_measure{name, "device memcpy of as many bytes", ""};
    to_measure.wanted = wanted;
    Add(to_measure, [&](Row& row) {
      const std::vector<Tensor> inputs = {Random(shape, dtype)};
      Jit step(fn);
      row.ours_us = Time([&] { step(inputs); });
      const int64_t bytes = inputs[0].elements() * dtype.bytes() + others;
      row.bytes = static_cast<double>(bytes);
      row.peer_us = CopyTime(bytes);
    });
  }

  void Copies() {
    const int64_t n = options_.tiny ? 64 : 8192, bytes = n * n * 4;
    const Dims shape = {n, n};
    AddBandwidth(
        "elementwise", shape, kFloat32, [](const Tensor& t) { return t * 1.5 + 0.5; }, bytes, 0.9);
    AddBandwidth(
        "cast_bf16", shape, kFloat32, [](const Tensor& t) { return t.Cast(kBFloat16); }, bytes / 2,
        0.9);
    AddBandwidth(
        "transpose", shape, kFloat32, [](const Tensor& t) { return t.T() + 1; }, bytes, 0.9);
  }

  void Reductions() {
    const int64_t rows = options_.tiny ? 4 : 16384, columns = options_.tiny ? 256 : 4096;
    const int64_t bytes = rows * columns * 4;
    const Dims shape = {rows, columns};
    AddBandwidth(
        "sum_all", shape, kFloat32, [](const Tensor& t) { return t.Sum(); }, 4, 0.85);
    AddBandwidth(
        "sum_rows", shape, kFloat32, [](const Tensor& t) { return t.Sum({1}); }, rows * 4, 0.85);
    AddBandwidth(
        "sum_columns", shape, kFloat32, [](const Tensor& t) { return t.Sum({0}); }, columns * 4,
        0.85);
    AddBandwidth(
        "softmax", shape, kFloat32, [](const Tensor& t) { return t.Softmax(); }, bytes, 0.85);
    AddBandwidth(
        "rmsnorm", shape, kFloat32,
        [w = Random({columns})](const Tensor& t) { return t.RmsNorm(w); }, bytes, 0.85);
  }

  // A product [m, k] by [k, n], whose operands come as these functions make them.
  void AddProduct(const std::string& name, int64_t m, int64_t n, int64_t k,
                  const std::vector<Tensor>& inputs,
                  const std::function<Tensor(const Tensor&, const Tensor&)>& fn) {
    Row to_measure{name, "", ""};
    to_measure.flops =
        2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    Add(to_measure, [&](Row& row) {
      Jit step(fn);
      row.ours_us = Time([&] { step(inputs); });
    });
  }

  void Products() {
    const Blas blas(place_.kind() == "CUDA");
    const auto multiply = [](const Tensor& x, const Tensor& y) { return x.MatMul(y); };
    for (const int64_t n :
         options_.tiny ? std::vector<int64_t>{64} : std::vector<int64_t>{4096, 8192}) {
      Row to_measure{absl::StrCat("matmul_bf16_", n), "cuBLAS", ""};
      to_measure.flops =
          2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
      to_measure.wanted = 0.6;
      Add(to_measure, [&](Row& row) {
        const Tensor a = Random({n, n}, kBFloat16), b = Random({n, n}, kBFloat16);
        Jit step(multiply);
        const std::vector<Tensor> inputs = {a, b};
        row.ours_us = Time([&] { step(inputs); });
        row.note =
            blas.found() ? Compare(blas, step.One(inputs), a, b, n, row.peer_us) : "no cuBLAS here";
      });
    }
    const int64_t n = options_.tiny ? 64 : 4096, few = options_.tiny ? 32 : 512;
    AddProduct(absl::StrCat("matmul_f32_", n), n, n, n, {Random({n, n}), Random({n, n})}, multiply);
    AddProduct(
        absl::StrCat("matmul_i8_", n), n, n, n, {Random({n, n}, kInt8), Random({n, n}, kInt8)},
        [](const Tensor& x, const Tensor& y) { return x.Cast(kInt32).MatMul(y.Cast(kInt32).T()); });
    // Of which work division splits the sum.
    AddProduct("matmul_bf16_long", 128, 128, n * 16,
               {Random({128, n * 16}, kBFloat16), Random({n * 16, 128}, kBFloat16)}, multiply);
    // Bytes in blocks of 32 with a scale each, as files of language models have them.
    const int64_t blocks = n / 32;
    const Tensor left = Random({few, 1, blocks}), right = Random({n, blocks});
    AddProduct("matmul_q8_blocks", few, n, n,
               {Random({few, 1, blocks, 32}, kInt8), Random({n, blocks, 32}, kInt8)},
               [left, right](const Tensor& x, const Tensor& y) {
                 const Tensor sums = (x.Cast(kInt32) * y.Cast(kInt32)).Sum({-1});
                 return (sums.Cast(kFloat32) * (left * right)).Sum({-1});
               });
    AddBandwidth(
        "matvec_bf16", {2 * n, 2 * n}, kBFloat16,
        [v = Random({2 * n}, kBFloat16)](const Tensor& t) { return t.MatMul(v); }, 2 * n * 2, 0);
  }

  // One row by weights as files of language models hold them, more than a cache does; then by those
  // of a small layer.
  void RowsByWeights() {
    const int64_t width = options_.tiny ? 512 : 8192, many = options_.tiny ? 16 : 4 * width;
    const int64_t narrow = options_.tiny ? 512 : 2048, few = options_.tiny ? 8 : 8192;
    for (const auto& [n, k] : {std::pair{many, width}, {few, narrow}, {narrow, few}}) {
      if (k % 256 != 0) continue;
      const std::string size = absl::StrCat("_", n, "x", k);
      const Tensor row = Random({1, k});
      for (const WeightFormat format :
           {WeightFormat::kQ4_0, WeightFormat::kQ8_0, WeightFormat::kQ4K, WeightFormat::kQ6K}) {
        const WeightFormatInfo& info = InfoOf(format);
        const Dims blocks = {n, k / info.block_elements, info.block_bytes};
        const auto bits = [](const Tensor& t) { return t.Bitcast(kUInt8); };
        AddBandwidth(
            absl::StrCat("gemv_", info.name, size), blocks, kInt8,
            [&](const Tensor& t) { return row.Linear(llm::Values(bits(t), format)); }, 4 * (n + k),
            0);
        const llm::RoundedRows rounded = {Random({1, k / 32, 32}, kInt8), Random({1, k / 32}),
                                          Random({1, k / 32})};
        AddBandwidth(
            absl::StrCat("gemv_", info.name, "_i8", size), blocks, kInt8,
            [&](const Tensor& t) { return llm::Product(rounded, llm::Integers(bits(t), format)); },
            4 * n + k, 0);
      }
      AddBandwidth(
          absl::StrCat("gemv_bf16", size), {n, k}, kBFloat16,
          [&](const Tensor& t) { return row.Linear(t); }, 4 * (n + k), 0);
    }
  }

  void Attention() {
    const int64_t heads = options_.tiny ? 2 : 32, keys = options_.tiny ? 64 : 2048;
    const int64_t width = options_.tiny ? 32 : 128;
    for (const DType dtype : {kBFloat16, kFloat32}) {
      for (const bool causal : {false, true}) {
        Row to_measure{absl::StrCat("attention_", dtype.ToString(), causal ? "_causal" : ""), "",
                       "of all pairs of query and key"};
        to_measure.flops =
            4.0 * static_cast<double>(heads * keys) * static_cast<double>(keys * width);
        Add(to_measure, [&](Row& row) {
          const Tensor q = Random({heads, keys, width}, dtype);
          const Tensor k = Random({heads, keys, width}, dtype);
          const Tensor v = Random({heads, keys, width}, dtype);
          AttentionOptions of;
          of.causal = causal;
          Jit step([&](const Tensor& x) { return x.ScaledDotProductAttention(k, v, of); });
          const std::vector<Tensor> inputs = {q};
          row.ours_us = Time([&] { step(inputs); });
        });
      }
    }
    AddBandwidth(
        "attention_one_query", {heads, 8 * keys, width}, kBFloat16,
        [&](const Tensor& k) {
          return k.Slice({{}, {0, 1}}).ScaledDotProductAttention(k, k);
        },
        0, 0);
  }

  // Times cuBLAS, and says where the results differ by more than rounding explains.
  std::string Compare(const Blas& blas, const Tensor& ours, const Tensor& a, const Tensor& b,
                      int64_t n, std::optional<double>& time) const {
    auto room = device_->Allocate(n * n * 2);
    Must(room.status());
    const auto driver = cuda::DriverFromLibrary();
    Must(driver.status());
    Must(device_->Wait());
    bool good = true;
    // Its handle works on the null stream, which ours do not wait for.
    const double took = Time(
        [&] {
          good &= blas.Multiply(AddressOf(a), AddressOf(b), (*room)->data, static_cast<int>(n));
        },
        [&] { good &= (*driver)->cuStreamSynchronize(nullptr) == cuda::kSuccess; });
    if (!good) return "cuBLAS fails";
    time = took;
    std::vector<uint16_t> bits(n * n);
    Must(device_->CopyOut(bits.data(), (*room)->data, n * n * 2));
    const std::vector<float> mine = ours.ToVector<float>();
    for (int64_t i = 0; i < n * n; ++i) {
      const uint32_t wide = uint32_t{bits[i]} << 16;
      float theirs;
      static_assert(sizeof(theirs) == sizeof(wide));
      std::memcpy(&theirs, &wide, sizeof(theirs));
      // Two roundings to eight bits, of sums of n products whose size is about sqrt(n) / 12.
      const double allowed = std::abs(theirs) / 64 + std::sqrt(static_cast<double>(n)) / 256;
      if (!(std::abs(mine[i] - theirs) <= allowed)) {
        return absl::StrCat("WRONG: element ", i, " is ", mine[i], " and cuBLAS has ", theirs);
      }
    }
    return "";
  }

  void Replays() {
    const int kernels = options_.tiny ? 4 : 200;
    Jit step([kernels](const Tensor& x) {
      Tensor y = x;
      for (int i = 0; i < kernels; ++i) y = (y + 1).Contiguous();
      return y;
    });
    Row to_measure{"replayed_kernel", "", "of a graph of them, one after another"};
    to_measure.limit_us = options_.tiny ? 0 : 1.5;
    Add(to_measure, [&](Row& row) {
      const std::vector<Tensor> inputs = {Random({8})};
      row.ours_us = Time([&] { step(inputs); }) / kernels;
    });
  }

  const Options options_;
  const Place place_;
  DeviceRuntime* device_ = nullptr;
  std::vector<Row> rows_;
  bool good_ = true;
};

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--tiny") {
      options.tiny = true;
    } else if (arg == "--device" && i + 1 < argc) {
      options.device = argv[++i];
    } else if (arg == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else if (arg == "--json" && i + 1 < argc) {
      options.json = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: gpu-bench [--device PLACE] [--tiny] [--only PART] [--json FILE]\n");
      return 2;
    }
  }
  Bench bench(options);
  std::printf("%s, %s, %d multiprocessors%s\n", options.device.c_str(), bench.target().arch.c_str(),
              bench.target().cores, options.tiny ? "; tiny sizes, whose times mean nothing" : "");
  std::printf("%-22s %12s %12s %7s %9s %9s %7s  %s\n", "row", "ours us", "peer us", "ratio", "GB/s",
              "TFLOP/s", "wanted", "peer; note");
  return bench.Run() ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    return tessera::Main(argc, argv);
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "gpu-bench: %s\n", e.what());
    return 1;
  }
}
