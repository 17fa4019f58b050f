// Finding, loading and calling the Clang plugin; the child clang where it cannot be had.
#include "runtime/jit_compiler.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/flags.h"
#include "graph/status.h"
#include "runtime/child_process.h"
#include "runtime/clang_plugin.h"

#ifndef TESSERA_JIT_BUILD  // set by cmake/clang_plugin.cmake, as the others: a hash of the sources
                           // named there
#define TESSERA_JIT_BUILD "0"
#endif
#ifndef TESSERA_PLUGIN_DIRS
#define TESSERA_PLUGIN_DIRS ""
#endif
#ifndef TESSERA_PLUGIN_LIBRARIES
#define TESSERA_PLUGIN_LIBRARIES ""
#endif

// The folder of the plugin beside which find_package(tessera) found the libraries; a source of its
// own that it gives to programs (cmake/tesseraConfig.cmake.in).
extern "C" __attribute__((weak)) const char tessera_plugin_dir[];

namespace tessera {
namespace {

constexpr char kPluginName[] = "tessera_clang-" TESSERA_JIT_BUILD ".so";
constexpr size_t kStackBytes = size_t{256} << 20;  // reserved, not touched: Clang recurses deeply
constexpr double kChildSeconds = 300;
constexpr int64_t kMaxObjectBytes = int64_t{1} << 30;

bool IsFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string DirOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? "." : std::string(path.substr(0, slash));
}

// The folders that may hold the plugin: beside the executable and the library that we are in, the
// lib folder beside them, that of the package, the build folder, the installed one.
std::vector<std::string> PluginDirs() {
  std::vector<std::string> dirs;
  auto add = [&dirs](const std::string& near) {
    for (const char* tail : {"", "/../lib/tessera", "/../lib"}) dirs.push_back(near + tail);
  };
  char exe[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
  if (n > 0) add(DirOf(absl::string_view(exe, n)));
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&PluginDirs), &info) != 0 && info.dli_fname != nullptr &&
      info.dli_fname[0] == '/') {
    add(DirOf(info.dli_fname));
  }
  if (tessera_plugin_dir != nullptr) dirs.emplace_back(tessera_plugin_dir);
  for (absl::string_view dir : absl::StrSplit(TESSERA_PLUGIN_DIRS, ':', absl::SkipEmpty())) {
    dirs.emplace_back(dir);
  }
  return dirs;
}

std::string FindPlugin() {
  for (const std::string& dir : PluginDirs()) {
    std::string path = absl::StrCat(dir, "/", kPluginName);
    if (IsFile(path)) return path;
  }
  return "";
}

std::string FindChild() {
  const std::string asked = TextFlag(Flag::kClang);
  if (!asked.empty()) return IsFile(asked) ? asked : "";
  const std::string path = SearchPath();
  std::vector<std::string> dirs = absl::StrSplit(path, ':', absl::SkipEmpty());
  dirs.push_back("/usr/bin");
  std::vector<std::string> names;
  for (const int version :
       {19, 20, 21, 22, 18, 17, 16, 15, 14}) {  // as in cmake/clang_plugin.cmake
    names.push_back(absl::StrCat("clang-", version));
  }
  names.push_back("clang");
  for (const std::string& name : names) {
    for (const std::string& dir : dirs) {
      if (IsFile(absl::StrCat(dir, "/", name))) return absl::StrCat(dir, "/", name);
    }
  }
  return "";
}

// Path, size and time of a file, so that an upgrade in place is noticed.
std::string FileIdentity(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::StrCat(path, "?");
  return absl::StrCat(path, "@", info.st_size, "@", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec);
}

struct Plugin {
  absl::Status status;  // why the rest is null
  decltype(&tessera_clang_compile) compile = nullptr;
  decltype(&tessera_clang_free) free = nullptr;
};

std::atomic<bool> plugin_failed{false};  // the file is there, but it cannot be loaded
std::atomic<bool> plugin_loaded{false};

// Compiles in flight, and whether the process is exiting: the destructors of LLVM's globals must
// not run under a compile, and none may start after them.
std::atomic<int> in_flight{0};
std::atomic<bool> exiting{false};

// Exit handlers run last in, first out. LLVM registers destructors of its own when it is loaded,
// and more as code paths run for the first time, so ours is registered again after each early
// compile.
constexpr int kMaxHandlers = 256;
std::atomic<int> handlers{0};

void WaitForCompiles() {
  exiting.store(true);
  for (int i = 0; i < 5000 && in_flight.load() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void RegisterWait() {
  if (handlers.fetch_add(1) < kMaxHandlers) std::atexit(WaitForCompiles);
}

absl::Status PluginMissing(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("no Clang plugin: ", why));
}

Plugin LoadPlugin() {
  Plugin plugin;
  const std::string path = FindPlugin();
  if (path.empty()) {
    plugin.status = PluginMissing(
        absl::StrCat(kPluginName, " is in none of ", absl::StrJoin(PluginDirs(), ", ")));
    return plugin;
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* error = dlerror();
    plugin.status = PluginMissing(error != nullptr ? error : path);
  } else {
    auto abi = reinterpret_cast<decltype(&tessera_clang_abi)>(dlsym(library, "tessera_clang_abi"));
    if (abi == nullptr || abi() != TESSERA_CLANG_ABI) {
      plugin.status = PluginMissing(absl::StrCat(path, " is of another version; build it again"));
    } else {
      plugin.compile = reinterpret_cast<decltype(&tessera_clang_compile)>(
          dlsym(library, "tessera_clang_compile"));
      plugin.free =
          reinterpret_cast<decltype(&tessera_clang_free)>(dlsym(library, "tessera_clang_free"));
      CHECK(plugin.compile != nullptr && plugin.free != nullptr, path);
    }
  }
  plugin_failed.store(!plugin.status.ok());
  plugin_loaded.store(plugin.status.ok());
  if (plugin.status.ok()) RegisterWait();
  return plugin;
}

const Plugin& GetPlugin() {
  static const Plugin* const plugin = new Plugin(LoadPlugin());
  return *plugin;
}

// Runs fn on a fresh thread with a big stack and waits for it.
absl::Status RunOnBigStack(const std::function<void()>& fn) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  const int error = pthread_create(
      &thread, &attributes,
      [](void* arg) -> void* {
        (*static_cast<const std::function<void()>*>(arg))();
        return nullptr;
      },
      const_cast<std::function<void()>*>(&fn));
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    return absl::ResourceExhaustedError("cannot start a compile thread with a stack of 256 MiB");
  }
  pthread_join(thread, nullptr);
  return absl::OkStatus();
}

absl::Status TextError(absl::string_view log, absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("a kernel does not compile:\n", log, "\nits text is:\n", text));
}

std::vector<std::string> ChildArguments(const std::string& clang, const std::string& out,
                                        const Target& target) {
  // The same meaning as the plugin's list; -O2 runs more passes, which may not change a result.
  std::vector<std::string> args = {clang,
                                   "-c",
                                   "-x",
                                   "c++",
                                   "-std=c++17",
                                   "-",
                                   "-o",
                                   out,
                                   "-O2",
                                   "-fno-vectorize",
                                   "-fno-slp-vectorize",
                                   "-ffp-contract=off",
                                   "-fwrapv",
                                   "-fno-strict-aliasing",
                                   "-fno-exceptions",
                                   "-fno-rtti",
                                   "-ffreestanding",
                                   "-fno-builtin",
                                   "-nostdinc",
                                   "-fbracket-depth=4096",
                                   "-fno-threadsafe-statics",
                                   "-w",
                                   "-fPIC",
                                   "-fvisibility=hidden",
                                   "-fomit-frame-pointer",
                                   "-fno-math-errno",
                                   "-fno-stack-protector",
                                   "-fno-asynchronous-unwind-tables",
                                   "-fno-unwind-tables",
                                   absl::StrCat("-mprefer-vector-width=", target.vector_bytes * 8)};
  // As the plugin does for the f16 of Clang 14; later versions have it, and no longer the option.
  std::unique_ptr<char, decltype(&free)> real(realpath(clang.c_str(), nullptr), &free);
  if (real != nullptr && absl::EndsWith(DirOf(DirOf(real.get())), "llvm-14")) {
    args.insert(args.end(), {"-Xclang", "-fallow-half-arguments-and-returns"});
  }
  auto cc1 = [&args](const std::string& name, absl::string_view value) {
    for (const std::string& arg :
         {std::string("-Xclang"), name, std::string("-Xclang"), std::string(value)}) {
      args.push_back(arg);
    }
  };
  cc1("-target-cpu", target.arch);
  for (absl::string_view feature : absl::StrSplit(target.features, ',', absl::SkipEmpty())) {
    cc1("-target-feature", feature);
  }
  return args;
}

}  // namespace

namespace internal {

absl::StatusOr<std::string> CompileInProcess(absl::string_view text, const Target& target) {
  const Plugin& plugin = GetPlugin();
  RETURN_IF_ERROR(plugin.status);
  in_flight.fetch_add(1);
  if (exiting.load()) {
    in_flight.fetch_sub(1);
    return absl::CancelledError("the process is exiting");
  }
  TesseraCompileOptions options = {};
  options.cpu = target.arch.c_str();
  options.features = target.features.c_str();
  options.opt_level = 1;
  options.vector_bits = target.vector_bytes * 8;
  TesseraBytes object = {}, log = {};
  bool ok = false;
  const absl::Status started = RunOnBigStack(
      [&] { ok = plugin.compile(text.data(), text.size(), &options, &object, &log) == 1; });
  RegisterWait();
  in_flight.fetch_sub(1);
  std::string object_bytes(object.data, object.size);
  std::string log_text(log.data, log.size);
  plugin.free(&object);
  plugin.free(&log);
  RETURN_IF_ERROR(started);
  if (!ok) return TextError(log_text, text);
  return object_bytes;
}

absl::StatusOr<std::string> CompileInChild(absl::string_view text, const Target& target) {
  const std::string clang = FindChild();
  if (clang.empty()) {
    return absl::UnavailableError(
        "no child clang: neither CLANG names a file nor is clang-14 to clang-22 or clang in the "
        "PATH "
        "or in /usr/bin");
  }
  ASSIGN_OR_RETURN(const std::string out, MakeTempFile(".o"));
  auto result = RunChild(ChildArguments(clang, out, target), text, kChildSeconds);
  auto object = ReadFile(out, kMaxObjectBytes);
  unlink(out.c_str());
  RETURN_IF_ERROR(result.status());
  // Where nobody tells how it ended, the object does: a compiler that fails leaves none.
  const bool failed = result->exit_code ? *result->exit_code != 0 : !object.ok() || object->empty();
  if (failed) {
    const std::string code = result->exit_code ? absl::StrCat(*result->exit_code) : "no object";
    return TextError(absl::StrCat(clang, " ended with ", code, "\n", result->output), text);
  }
  return object;
}

}  // namespace internal

absl::StatusOr<std::string> CompileToObject(absl::string_view text, const Target& target) {
  const int64_t mode = IntFlag(Flag::kJit);
  if (target.dialect != Dialect::kCpp) {
    return absl::InvalidArgumentError("CompileToObject: the target is not a CPU");
  }
  if (mode == 0) {
    return absl::UnavailableError("JIT=0 turns the CPU compiler off; unset it, or set 1 or 2");
  }
  absl::Status no_plugin = absl::UnavailableError("JIT=2 leaves the plugin out");
  if (mode == 1) {
    auto object = internal::CompileInProcess(text, target);
    if (!absl::IsUnavailable(object.status())) return object;
    no_plugin = object.status();
  }
  auto object = internal::CompileInChild(text, target);
  if (!absl::IsUnavailable(object.status())) return object;
  return absl::UnavailableError(absl::StrCat(
      "no compiler for CPU kernels. ", no_plugin.message(), ". ", object.status().message(),
      ". Install clang-19 (or 14 to 22), or libclang-19-dev and llvm-19-dev and build again"));
}

std::string CompilerIdentity() {
  const int64_t mode = IntFlag(Flag::kJit);
  if (mode == 0) return "";
  if (mode == 1 && !plugin_failed.load()) {
    const std::string path = FindPlugin();
    if (!path.empty()) {
      std::string identity = absl::StrCat("plugin ", kPluginName);
      for (absl::string_view library :
           absl::StrSplit(TESSERA_PLUGIN_LIBRARIES, ':', absl::SkipEmpty())) {
        absl::StrAppend(&identity, " ", FileIdentity(std::string(library)));
      }
      return identity;
    }
  }
  const std::string clang = FindChild();
  return clang.empty() ? "" : absl::StrCat("child ", FileIdentity(clang));
}

bool CompilerLoaded() { return plugin_loaded.load(); }

}  // namespace tessera
