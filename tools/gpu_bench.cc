// Measures kernels on a GPU beside the device's own copies and cuBLAS: tools/gpu-bench [--device
// PLACE] [--tiny] [--json FILE]
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
  std::string device = "CUDA:0", json;
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

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), place_(Device(options.device).place()) {
    const auto device = GetDevice(place_);
    Must(device.status());
    device_ = *device;
  }

  std::vector<Row> Run() {
    Copies();
    Reductions();
    Products();
    Replays();
    return rows_;
  }
  const Target& target() const { return device_->target(); }

 private:
  // Microseconds of one call, the least over rounds of enough calls to hide the last wait.
  double Time(const std::function<void()>& call, const std::function<void()>& wait) const {
    call();
    wait();
    const int calls = options_.tiny ? 1 : 20, rounds = options_.tiny ? 1 : 7;
    double least = 1e300;
    for (int r = 0; r < rounds; ++r) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) call();
      wait();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - start;
      least = std::min(least, took.count() / calls);
    }
    return least;
  }
  double Time(const std::function<void()>& call) const {
    return Time(call, [&] { Must(device_->Wait()); });
  }
  Tensor Random(const Dims& shape, DType dtype = kFloat32) const {
    return (Tensor::Rand(shape, kFloat32, place_) - 0.5).Cast(dtype).Contiguous().Realize();
  }
  // The same bytes by the driver's own copy, half of them read and half written.
  double CopyTime(int64_t bytes) const {
    auto from = device_->Allocate(bytes / 2), to = device_->Allocate(bytes / 2);
    Must(from.status());
    Must(to.status());
    return Time([&] { Must(device_->CopyWithin((*to)->data, (*from)->data, bytes / 2)); });
  }

  void AddBandwidth(const std::string& name, const Tensor& input,
                    const std::function<Tensor(const Tensor&)>& fn, int64_t written,
                    double wanted) {
    Jit step(fn);
    Row row{name, "device memcpy of as many bytes", ""};
    const std::vector<Tensor> inputs = {input};
    row.ours_us = Time([&] { step(inputs); });
    const int64_t bytes = input.elements() * input.dtype().bytes() + written;
    row.bytes = static_cast<double>(bytes);
    row.peer_us = CopyTime(bytes);
    row.wanted = wanted;
    rows_.push_back(row);
  }

  void Copies() {
    const int64_t n = options_.tiny ? 64 : 8192, bytes = n * n * 4;
    const Tensor x = Random({n, n});
    AddBandwidth(
        "elementwise", x, [](const Tensor& t) { return t * 1.5 + 0.5; }, bytes, 0.9);
    AddBandwidth(
        "cast_bf16", x, [](const Tensor& t) { return t.Cast(kBFloat16); }, bytes / 2, 0.9);
  }

  void Reductions() {
    const int64_t rows = options_.tiny ? 4 : 16384, columns = options_.tiny ? 256 : 4096;
    const int64_t bytes = rows * columns * 4;
    const Tensor x = Random({rows, columns}), w = Random({columns});
    AddBandwidth(
        "sum_all", x, [](const Tensor& t) { return t.Sum(); }, 4, 0.85);
    AddBandwidth(
        "sum_rows", x, [](const Tensor& t) { return t.Sum({1}); }, rows * 4, 0.85);
    AddBandwidth(
        "softmax", x, [](const Tensor& t) { return t.Softmax(); }, bytes, 0.85);
    AddBandwidth(
        "rmsnorm", x, [&](const Tensor& t) { return t.RmsNorm(w); }, bytes, 0.85);
  }

  void Products() {
    const Blas blas(place_.kind() == "CUDA");
    for (const int64_t n :
         options_.tiny ? std::vector<int64_t>{64} : std::vector<int64_t>{4096, 8192}) {
      const Tensor a = Random({n, n}, kBFloat16), b = Random({n, n}, kBFloat16);
      Jit step([](const Tensor& x, const Tensor& y) { return x.MatMul(y); });
      const std::vector<Tensor> inputs = {a, b};
      Row row{absl::StrCat("matmul_bf16_", n), "cuBLAS", ""};
      row.ours_us = Time([&] { step(inputs); });
      row.flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
      row.wanted = 0.6;
      if (blas.found()) {
        row.note = Compare(blas, step.One(inputs), a, b, n, row.peer_us);
      } else {
        row.note = "no cuBLAS here";
      }
      rows_.push_back(row);
    }
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
    const std::vector<Tensor> inputs = {Random({8})};
    Row row{"replayed_kernel", "", "of a graph of them, one after another"};
    row.ours_us = Time([&] { step(inputs); }) / kernels;
    row.limit_us = options_.tiny ? 0 : 1.5;
    rows_.push_back(row);
  }

  const Options options_;
  const Place place_;
  DeviceRuntime* device_ = nullptr;
  std::vector<Row> rows_;
};

std::string Number(std::optional<double> v, int digits) {
  return v ? absl::StrFormat("%.*f", digits, *v) : "-";
}

void Print(const Row& r) {
  const std::optional<double> ratio =
      r.peer_us ? std::optional(*r.peer_us / r.ours_us) : std::nullopt;
  const std::optional<bool> met = r.met();
  std::printf("%-18s %12s %12s %7s %9s %9s %7s  %s\n", r.name.c_str(), Number(r.ours_us, 2).c_str(),
              Number(r.peer_us, 2).c_str(), Number(ratio, 3).c_str(),
              r.bytes > 0 ? Number(r.bytes / r.ours_us * 1e-3, 1).c_str() : "-",
              r.flops > 0 ? Number(r.flops / r.ours_us * 1e-6, 2).c_str() : "-",
              met ? *met ? "met" : "NOT MET" : "-",
              absl::StrCat(r.peer, r.note.empty() || r.peer.empty() ? "" : "; ", r.note).c_str());
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

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--tiny") {
      options.tiny = true;
    } else if (arg == "--device" && i + 1 < argc) {
      options.device = argv[++i];
    } else if (arg == "--json" && i + 1 < argc) {
      options.json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: gpu-bench [--device PLACE] [--tiny] [--json FILE]\n");
      return 2;
    }
  }
  Bench bench(options);
  std::printf("%s, %s, %d multiprocessors%s\n", options.device.c_str(), bench.target().arch.c_str(),
              bench.target().cores, options.tiny ? "; tiny sizes, whose times mean nothing" : "");
  std::printf("%-18s %12s %12s %7s %9s %9s %7s  %s\n", "row", "ours us", "peer us", "ratio", "GB/s",
              "TFLOP/s", "wanted", "peer; note");
  const std::vector<Row> rows = bench.Run();
  bool right = true;
  std::string json;
  for (const Row& row : rows) {
    Print(row);
    right &= row.note.rfind("WRONG", 0) != 0;
    absl::StrAppend(&json, json.empty() ? "[\n  " : ",\n  ", Json(row));
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << json << "\n]\n";
    if (!file.good()) {
      std::fprintf(stderr, "gpu-bench: cannot write %s\n", options.json.c_str());
      return 1;
    }
  }
  return right ? 0 : 1;
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
