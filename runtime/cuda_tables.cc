// Tables from shared libraries: where they are looked for, and what is said when they are not
// there.
#include "runtime/cuda_tables.h"

#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/flags.h"
#include "graph/status.h"

namespace tessera::cuda {
namespace {

// A library opened by one of its names. Never closed: its threads and exit handlers live on.
struct Library {
  void* handle = nullptr;
  std::string name;
  std::vector<std::string> tried;  // why each name before did not do
};

// With a path given, that alone; else by soname, as the loader searches, then in the folders.
std::vector<std::string> Paths(const std::string& given, const std::vector<std::string>& names,
                               const std::vector<std::string>& folders) {
  if (!given.empty()) return {given};
  std::vector<std::string> out = names;
  for (const std::string& folder : folders) {
    for (const std::string& name : names) out.push_back(absl::StrCat(folder, "/", name));
  }
  return out;
}

bool TryOpen(const std::string& path, Library& library) {
  library.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  library.name = path;
  if (library.handle != nullptr) return true;
  const char* why = dlerror();
  library.tried.push_back(why != nullptr ? why : path);
  return false;
}

Library OpenLibrary(const std::vector<std::string>& paths) {
  Library out;
  for (const std::string& path : paths) {
    if (TryOpen(path, out)) break;
  }
  return out;
}

absl::Status NotOpened(const char* what, const Library& library, const char* advice) {
  return absl::UnavailableError(absl::StrCat("cuda: there is no ", what, " (",
                                             absl::StrJoin(library.tried, "; "), "); ", advice));
}

template <typename Fn>
absl::Status Resolve(const Library& library, const char* symbol, Fn*& fn) {
  fn = reinterpret_cast<Fn*>(dlsym(library.handle, symbol));
  if (fn != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cuda: ", library.name, " has no function ", symbol,
                                             ", which CUDA 12 has; install a newer one"));
}

// For as long as the process lives.
template <typename Table>
absl::StatusOr<const Table*> Keep(absl::StatusOr<std::unique_ptr<const Table>> table) {
  if (!table.ok()) return table.status();
  return table->release();
}

const std::vector<std::string>& ToolkitFolders() {
  static const auto* const folders = new std::vector<std::string>{
      "/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/opt/cuda/lib64"};
  return *folders;
}

const std::vector<std::string>& DriverFolders() {
  static const auto* const folders = new std::vector<std::string>{
      "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib"};
  return *folders;
}

constexpr int kOldestNvrtc = 12030;  // older ones lack __builtin_bit_cast

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::Status Initialise(const DriverTable& t, const std::string& name) {
  const CUresult result = t.cuInit(0);
  if (result == kSuccess) {
    int version = 0;
    t.cuDriverGetVersion(&version);
    if (version >= 12000) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("cuda: the driver in ", name, " is for CUDA ", VersionText(version),
                     ", and 12.0 is needed; install a newer driver"));
  }
  const char* text = nullptr;
  if (t.cuGetErrorString(result, &text) != kSuccess || text == nullptr) text = "unknown error";
  std::string advice = "; see whether nvidia-smi works";
  if (result == kStubLibrary) {
    advice =
        "; it is the toolkit's stub library, which is for linking only: take its folder out of "
        "LD_LIBRARY_PATH, or install the driver";
  } else if (result == kNoDevice) {
    advice = "; this machine shows no GPU to us: see nvidia-smi and CUDA_VISIBLE_DEVICES";
  } else if (result == kSystemDriverMismatch) {
    advice = "; the driver's library and its kernel module differ: reboot after a driver update";
  }
  return absl::UnavailableError(
      absl::StrCat("cuda: cuInit of ", name, " failed with ", result, " (", text, ")", advice));
}

std::string WhyNotNvrtc(int version, int driver) {
  if (version < kOldestNvrtc) {
    return absl::StrCat("it is NVRTC ", VersionText(version), ", and ", VersionText(kOldestNvrtc),
                        " is needed");
  }
  if (driver > 0 && version / 1000 > driver / 1000) {
    return absl::StrCat("it is NVRTC ", VersionText(version), ", and the driver is for CUDA ",
                        VersionText(driver), ", which does not load what it compiles");
  }
  return "";
}

// NVRTC opens its builtins by their bare name when it first compiles, and finds them beside itself
// only where the loader looks there, or where they are open already.
void OpenBuiltinsBeside(const std::string& nvrtc, int version) {
  const size_t slash = nvrtc.rfind('/');
  if (slash == std::string::npos) return;
  const std::string builtins =
      absl::StrCat(nvrtc.substr(0, slash), "/libnvrtc-builtins.so.", VersionText(version));
  (void)dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const DriverTable>> OpenDriver(const std::string& file) {
  const Library library = OpenLibrary(Paths(file, {"libcuda.so.1"}, DriverFolders()));
  if (library.handle == nullptr) {
    return NotOpened("driver", library,
                     "install NVIDIA's driver, or use SIM, a GPU simulated on the CPU");
  }
  auto table = std::make_unique<DriverTable>();
#define X(member, symbol, type) RETURN_IF_ERROR(Resolve(library, symbol, table->member));
  TESSERA_DRIVER_FUNCTIONS(X)
#undef X
  RETURN_IF_ERROR(Initialise(*table, library.name));
  return table;
}

absl::StatusOr<std::unique_ptr<const NvrtcTable>> OpenNvrtc(const std::string& file, int driver) {
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  if (driver > 0 && driver < 13000) names = {"libnvrtc.so.12", "libnvrtc.so"};
  Library library;
  for (const std::string& path : Paths(file, names, ToolkitFolders())) {
    if (!TryOpen(path, library)) continue;
    auto table = std::make_unique<NvrtcTable>();
#define X(member, symbol, type) RETURN_IF_ERROR(Resolve(library, symbol, table->member));
    TESSERA_NVRTC_FUNCTIONS(X)
#undef X
    int major = 0, minor = 0;
    table->nvrtcVersion(&major, &minor);
    const int version = major * 1000 + minor * 10;
    if (const std::string why = WhyNotNvrtc(version, driver); !why.empty()) {
      library.tried.push_back(absl::StrCat(path, ": ", why));
      continue;
    }
    OpenBuiltinsBeside(library.name, version);
    return table;
  }
  return NotOpened("NVRTC", library,
                   "install the package cuda-nvrtc of the driver's toolkit, 12.3 or newer, or name "
                   "the file with NVRTC=/path/to/libnvrtc.so");
}

absl::StatusOr<std::unique_ptr<const NcclTable>> OpenNccl(const std::string& file) {
  const Library library =
      OpenLibrary(Paths(file, {"libnccl.so.2", "libnccl.so"}, ToolkitFolders()));
  if (library.handle == nullptr) {
    return NotOpened("NCCL", library, "install the package libnccl2, or name the file with NCCL=");
  }
  auto table = std::make_unique<NcclTable>();
#define X(member, symbol, type) RETURN_IF_ERROR(Resolve(library, symbol, table->member));
  TESSERA_NCCL_FUNCTIONS(X)
#undef X
  return table;
}

absl::StatusOr<const DriverTable*> DriverFromLibrary() {
  static const auto* const result =
      new absl::StatusOr<const DriverTable*>(Keep(OpenDriver(TextFlag(Flag::kCudaDriver))));
  return *result;
}

absl::StatusOr<const NvrtcTable*> NvrtcFromLibrary() {
  static const auto* const result = new absl::StatusOr<const NvrtcTable*>([] {
    int driver = 0;
    if (const auto table = DriverFromLibrary(); table.ok()) (*table)->cuDriverGetVersion(&driver);
    return Keep(OpenNvrtc(TextFlag(Flag::kNvrtc), driver));
  }());
  return *result;
}

absl::StatusOr<const NcclTable*> NcclFromLibrary() {
  static const auto* const result =
      new absl::StatusOr<const NcclTable*>(Keep(OpenNccl(TextFlag(Flag::kNccl))));
  return *result;
}

}  // namespace tessera::cuda
