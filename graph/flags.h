// The environment flags of the whole system: one table of name, kind, default and meaning.
#pragma once

#include <cstdint>
#include <string>

// X(enumerator, environment name, kind, default text, meaning). A flag set to 0 is off: an integer
// flag reads 0, a text flag reads "". An empty value counts as unset; one below 0 is reported, and
// unset.
#define TESSERA_FLAGS(X)                                                                          \
  X(kDebug, "DEBUG", kInt, "0",                                                                   \
    "printed: 1 notes, 2 launches, 3 plans, 4 texts, 5 kernels, 6 programs, 7 passes")            \
  X(kSpec, "SPEC", kInt, "1", "validator level: 0 only what is never off, 1 borders, 2 all")      \
  X(kCheckNan, "CHECK_NAN", kInt, "0", "1: an error names the first op that makes a NaN")         \
  X(kCache, "CACHE", kInt, "1", "1: keep compiled kernels on disk")                               \
  X(kCacheDir, "CACHE_DIR", kText, "", "where; else $XDG_CACHE_HOME/tessera or ~/.cache/tessera") \
  X(kVary, "VARY", kInt, "1",                                                                     \
    "numbers as arguments of kernels: 0 never, 1 in the third that differs, 2 at once")           \
  X(kKeepMib, "KEEP_MIB", kInt, "256",                                                            \
    "most MiB that captured steps keep of what each call would compute alike; 0: none")           \
  X(kCores, "CORES", kInt, "0", "most cores that one kernel may use; 0: all that we may run on")  \
  X(kCpuFeatures, "CPU_FEATURES", kText, "",                                                      \
    "compile for a CPU with (+) or without (-) these: -avx512f,+amx-bf16; names as Clang's")      \
  X(kGuardPages, "GUARD_PAGES", kInt, "0", "1: unmapped pages around every CPU buffer")           \
  X(kJit, "JIT", kInt, "1", "CPU compiler: 0 none, 1 Clang in process, 2 a child clang")          \
  X(kClang, "CLANG", kText, "", "path of the child clang; else clang-14 to clang-22 of the PATH") \
  X(kDevice, "DEVICE", kText, "CPU", "where tensors are made that name no device, e.g. CUDA:1")   \
  X(kCudaDriver, "CUDA_DRIVER", kText, "", "the driver's library; else libcuda.so.1")             \
  X(kNvrtc, "NVRTC", kText, "", "NVRTC's library; else as the loader finds it, or the toolkit's") \
  X(kNccl, "NCCL", kText, "", "NCCL's library; else as the loader finds it")                      \
  X(kCollectiveSeconds, "COLLECTIVE_SECONDS", kInt, "60",                                         \
    "how long a collective over GPUs may take before its communicator is given up")               \
  X(kCudaArch, "CUDA_ARCH", kText, "", "kernels are compiled for it; else the device's: sm_90")   \
  X(kTf32, "TF32", kInt, "0", "1: GPUs may round the operands of f32 products to 10 bits")        \
  X(kSimSeed, "SIM_SEED", kInt, "1", "simulated GPUs: what their random orders start from")       \
  X(kSimNvrtc, "SIM_NVRTC", kText, "", "archs for which SIM has NVRTC compile each text as well") \
  X(kStrict, "STRICT", kInt, "0", "1: an implicit reshard is an error")                           \
  X(kSkipPass, "SKIP_PASS", kText, "", "comma-separated names of passes to leave out")            \
  X(kBisect, "BISECT", kInt, "-1", "run only the first N optional passes; -1: all")               \
  X(kDump, "DUMP", kText, "", "folder that receives graphs and texts after each pass")            \
  X(kFault, "FAULT", kText, "", "test mode: the fault to plant")                                  \
  X(kFuzzSeed, "FUZZ_SEED", kInt, "-1", "fuzz tests: the first seed; alone, unless FUZZ_GRAPHS")  \
  X(kFuzzGraphs, "FUZZ_GRAPHS", kInt, "0", "fuzz tests: how many seeds; 0: as the test says")     \
  X(kNoOpt, "NOOPT", kInt, "0", "1: kernels are lowered without optimisation choices")

namespace tessera {

enum class Flag : uint8_t {
#define TESSERA_FLAG_ENUM(id, name, kind, default_text, meaning) id,
  TESSERA_FLAGS(TESSERA_FLAG_ENUM)
#undef TESSERA_FLAG_ENUM
};

// The value of an integer flag. The environment is read once, at the first question about any
// flag; a text that is no integer is reported on stderr and the default taken. Thread-safe, cheap.
int64_t IntFlag(Flag flag);

// The value of a text flag; "0" and unset read as "". For CACHE_DIR see CacheRoot().
std::string TextFlag(Flag flag);

// The folder for everything kept on disk: CACHE_DIR, else $XDG_CACHE_HOME/tessera, else
// $HOME/.cache/tessera, else "" (nothing is kept).
std::string CacheRoot();

// The folders of $PATH, colon-separated.
std::string SearchPath();

// The table as text, one flag a line, for --help.
std::string FlagHelp();

// Sets a flag until the object dies, then restores what was there.
class SetFlagForTest {
 public:
  SetFlagForTest(Flag flag, const std::string& value);
  ~SetFlagForTest();
  SetFlagForTest(const SetFlagForTest&) = delete;
  SetFlagForTest& operator=(const SetFlagForTest&) = delete;

 private:
  Flag flag_;
  std::string before_;
};

}  // namespace tessera
