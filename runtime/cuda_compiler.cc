// Compiling with NVRTC's table.
#include "runtime/cuda_compiler.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/flags.h"
#include "graph/status.h"
#include "graph/text.h"
#include "runtime/kernel_cache.h"
#include "runtime/over_threads.h"

namespace tessera::cuda {
namespace {

constexpr nvrtcResult kInvalidOption = 5;
constexpr char kMinimal[] = "--minimal";  // which 12.3 lacks; texts include nothing either way

std::string Numbered(absl::string_view text) {
  std::string out;
  int line = 0;
  for (absl::string_view l : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&out, ++line, ": ", l, "\n");
  }
  return out;
}

// A text, or another result, that the table gives by its size first.
template <typename SizeFn, typename GetFn>
std::string Fetch(nvrtcProgram p, SizeFn size, GetFn get) {
  size_t n = 0;
  if (size(p, &n) != kSuccess || n == 0) return "";
  std::string out(n, '\0');
  if (get(p, out.data()) != kSuccess) return "";
  return out;
}

struct ProgramHandle {
  const NvrtcTable& nvrtc;
  nvrtcProgram program = nullptr;
  ~ProgramHandle() {
    if (program != nullptr) nvrtc.nvrtcDestroyProgram(&program);
  }
};

std::string WithoutNul(std::string text) {
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

absl::StatusOr<std::string> MakeImage(const NvrtcTable& nvrtc, const std::string& identity,
                                      const Program& program, const Target& target) {
  const std::vector<std::string> options = CompileOptions(target);
  const KernelCache cache = KernelCache::FromFlags();
  const std::string key = KernelCacheKey(program.text, target,
                                         absl::StrCat(identity, "|", absl::StrJoin(options, " ")));
  if (auto cached = cache.Load(key); cached.ok()) return *std::move(cached);
  const auto begin = std::chrono::steady_clock::now();
  auto compiled = CompileText(nvrtc, program.text, program.entry, options);
  if (!compiled.ok()) {
    return absl::Status(compiled.status().code(),
                        absl::StrCat(compiled.status().message(), "\nof the program\n",
                                     Print({&program.statements, 1})));
  }
  if (IntFlag(Flag::kDebug) >= 2) {
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr, "tessera: compiled %s for %s in %.1f ms, %zu bytes\n",
                 program.entry.c_str(), target.arch.c_str(), ms.count(), compiled->image.size());
  }
  (void)cache.Store(key, compiled->image);  // may fail, and reports that itself
  return std::move(compiled->image);
}

}  // namespace

std::vector<std::string> CompileOptions(const Target& target) {
  // The instructions of sm_90 alone have a name of their own.
  const char* own = target.arch == "sm_90" ? "a" : "";
  return {absl::StrCat("--gpu-architecture=", target.arch, own), "--std=c++17", kMinimal,
          "--fmad=false"};
}

absl::StatusOr<Compiled> CompileText(const NvrtcTable& nvrtc, const std::string& text,
                                     const std::string& name,
                                     absl::Span<const std::string> options) {
  ProgramHandle handle{nvrtc};
  nvrtcResult r = nvrtc.nvrtcCreateProgram(&handle.program, text.c_str(), (name + ".cu").c_str(), 0,
                                           nullptr, nullptr);
  if (r != kSuccess) {
    return absl::InternalError(
        absl::StrCat("compile: NVRTC takes no text: ", nvrtc.nvrtcGetErrorString(r)));
  }
  std::vector<const char*> list;
  for (const std::string& o : options) list.push_back(o.c_str());
  r = nvrtc.nvrtcCompileProgram(handle.program, static_cast<int>(list.size()), list.data());
  Compiled out;
  out.log =
      WithoutNul(Fetch(handle.program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog));
  if (r == kInvalidOption) {
    std::vector<std::string> fewer(options.begin(), options.end());
    if (std::erase(fewer, kMinimal) > 0) return CompileText(nvrtc, text, name, fewer);
    return absl::FailedPreconditionError(absl::StrCat(
        "compile: this NVRTC does not take ", absl::StrJoin(options, " "), ": ", out.log,
        "; it is older than the GPU: install a newer one, or set CUDA_ARCH to the newest that it "
        "knows, written as compute_90, which the driver compiles for the GPU"));
  }
  if (r != kSuccess) {
    return absl::InvalidArgumentError(absl::StrCat("compile: NVRTC fails on the kernel ", name,
                                                   ": ", nvrtc.nvrtcGetErrorString(r), "\n",
                                                   out.log, "\n", Numbered(text)));
  }
  out.image = Fetch(handle.program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN);
  out.ptx = WithoutNul(Fetch(handle.program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX));
  if (out.image.empty()) out.image = out.ptx;  // of a virtual arch
  if (out.image.empty()) return absl::InternalError("compile: NVRTC gives no image");
  return out;
}

absl::StatusOr<std::vector<std::string>> CompileImages(const Compiler& compiler,
                                                       absl::Span<const Program* const> programs,
                                                       const Target& target, int threads) {
  ASSIGN_OR_RETURN(const NvrtcTable* nvrtc, compiler.table());
  ASSIGN_OR_RETURN(const std::string identity, compiler.identity(*nvrtc));
  const int64_t n = static_cast<int64_t>(programs.size());
  std::vector<absl::StatusOr<std::string>> results(n, std::string());
  OverThreads(n, threads,
              [&](int64_t i) { results[i] = MakeImage(*nvrtc, identity, *programs[i], target); });
  std::vector<std::string> images;
  for (auto& r : results) {
    RETURN_IF_ERROR(r.status());
    images.push_back(*std::move(r));
  }
  return images;
}

}  // namespace tessera::cuda
