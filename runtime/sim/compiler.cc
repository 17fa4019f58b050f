// NVRTC of the simulated GPU: a kernel's body under the simulated GPU's prelude, compiled for the
// CPU.
#include <atomic>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "codegen/prelude.h"
#include "graph/flags.h"
#include "runtime/cuda_compiler.h"
#include "runtime/host_target.h"
#include "runtime/jit_compiler.h"
#include "runtime/sim/driver.h"
#include "runtime/sim/faults.h"
#include "runtime/sim/module.h"
#include "runtime/sim/sim.h"

namespace tessera::sim {
namespace {

using cuda::nvrtcProgram;
using cuda::nvrtcResult;

constexpr nvrtcResult kOk = 0, kInvalidInput = 3, kInvalidProgram = 4, kCompilation = 6;

struct Text {
  std::string source, log, image;
};
Text* Of(nvrtcProgram p) { return reinterpret_cast<Text*>(p); }

nvrtcResult Create(nvrtcProgram* out, const char* source, const char*, int, const char* const*,
                   const char* const*) {
  if (out == nullptr || source == nullptr) return kInvalidInput;
  *out = reinterpret_cast<nvrtcProgram>(new Text{source, "", ""});
  return kOk;
}

nvrtcResult Destroy(nvrtcProgram* p) {
  if (p == nullptr || *p == nullptr) return kInvalidProgram;
  delete Of(*p);
  *p = nullptr;
  return kOk;
}

// What NVRTC itself says of the text for each of the archs that SIM_NVRTC lists.
std::string AskNvrtc(const std::string& source) {
  for (const std::string& arch : std::vector<std::string>(
           absl::StrSplit(TextFlag(Flag::kSimNvrtc), ',', absl::SkipEmpty()))) {
    const auto nvrtc = cuda::NvrtcFromLibrary();
    if (!nvrtc.ok()) return std::string(nvrtc.status().message());
    if (arch != "sm_90" && absl::StrContains(source, "= rt_wgmma_")) continue;  // of sm_90 alone
    Target target;
    target.arch = arch;
    const auto compiled =
        cuda::CompileText(**nvrtc, source, "kernel", cuda::CompileOptions(target));
    if (!compiled.ok()) return absl::StrCat(arch, ": ", compiled.status().message());
  }
  return "";
}

// Takes the statement that starts so out of the kernel's text, if the fault strikes there.
void DropOne(absl::string_view statement, Fault fault, std::string& text) {
  for (size_t at = 0; (at = text.find(statement.data(), at, statement.size())) != std::string::npos;
       at += statement.size()) {
    if (!Strikes(fault)) continue;
    text.erase(at, text.find(';', at) - at);
    return;
  }
}

// Vectors that are not aligned are a fault on a GPU, though not on this CPU: has each be looked at.
void CheckAlignment(std::string& body) {
  for (const absl::string_view name : {"rt_load<", "rt_load_by<", "rt_store<"}) {
    for (size_t at = 0; (at = body.find(name.data(), at, name.size())) != std::string::npos;) {
      const size_t open = body.find(">(", at);
      if (open == std::string::npos) return;
      body.insert(open + 2, "RT_SELF ");
      body.insert(at + name.size() - 1, "_aligned");
      at = open;
    }
  }
}

void CountCompile() {
  Lock lock(M().mutex);
  ++M().counts.compiles;
}

nvrtcResult Compile(nvrtcProgram p, int, const char* const*) {
  Text& t = *Of(p);
  const size_t mark = t.source.find(kBodyMark);
  if (mark == std::string::npos) {
    t.log = "the simulated GPU compiles only text with the mark of a kernel's body";
    return kCompilation;
  }
  if (Strikes(Fault::kCompile)) {
    t.log = "planted: the compiler refuses this text";
    return kCompilation;
  }
  if (t.log = AskNvrtc(t.source); !t.log.empty()) return kCompilation;
  CountCompile();
  std::string body = t.source.substr(mark + std::strlen(kBodyMark));
  CheckAlignment(body);
  std::string text = absl::StrCat(PreludeFor(body, PreludeKind::kSim), body);
  DropOne("rt_barrier();", Fault::kDropBarrier, text);
  DropOne("  rt_wait(", Fault::kDropFetchWait, text);
  auto object = CompileToObject(text, HostTarget());
  if (!object.ok()) {
    t.log = std::string(object.status().message());
    return kCompilation;
  }
  t.image = MakeImage(*object);
  return kOk;
}

nvrtcResult Size(size_t* out, size_t bytes) {
  if (out == nullptr) return kInvalidInput;
  *out = bytes;
  return kOk;
}

}  // namespace

const cuda::NvrtcTable* Nvrtc() {
  static const cuda::NvrtcTable* const table = [] {
    auto* t = new cuda::NvrtcTable;
    t->nvrtcVersion = [](int* major, int* minor) {
      *major = 0;
      *minor = 1;
      return kOk;
    };
    t->nvrtcGetErrorString = [](nvrtcResult r) {
      return r == kOk ? "success" : r == kCompilation ? "compilation failed" : "invalid argument";
    };
    t->nvrtcCreateProgram = Create;
    t->nvrtcDestroyProgram = Destroy;
    t->nvrtcCompileProgram = Compile;
    t->nvrtcGetCUBINSize = [](nvrtcProgram p, size_t* n) { return Size(n, Of(p)->image.size()); };
    t->nvrtcGetCUBIN = [](nvrtcProgram p, char* out) {
      std::memcpy(out, Of(p)->image.data(), Of(p)->image.size());
      return kOk;
    };
    t->nvrtcGetPTXSize = [](nvrtcProgram, size_t* n) { return Size(n, 0); };
    t->nvrtcGetPTX = [](nvrtcProgram, char*) { return kInvalidProgram; };
    t->nvrtcGetProgramLogSize = [](nvrtcProgram p, size_t* n) {
      return Size(n, Of(p)->log.size() + 1);
    };
    t->nvrtcGetProgramLog = [](nvrtcProgram p, char* out) {
      std::memcpy(out, Of(p)->log.c_str(), Of(p)->log.size() + 1);
      return kOk;
    };
    return t;
  }();
  return table;
}

}  // namespace tessera::sim
