// GetKernel and CompileAll: sources, single flight, errors, warm starts, many processes, exits.
#include "runtime/jit.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "graph/flags.h"
#include "runtime/host_target.h"
#include "runtime/jit_compiler.h"
#include "runtime/kernel_cache.h"
#include "tests/runtime/kernel_texts.h"
#include "tests/testing.h"

extern char** environ;

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Jit : public ::testing::Test {
 protected:
  Jit() : dir_(MakeDir()), flag_(Flag::kCacheDir, dir_) { ClearKernels(); }
  ~Jit() override { fs::remove_all(dir_); }

  static std::string MakeDir() {
    std::string path = fs::temp_directory_path() / "tessera-jit-XXXXXX";
    CHECK(mkdtemp(path.data()) != nullptr, path);
    return path;
  }
  // The entries on disk, temporary files included.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    if (!fs::exists(dir_ + "/kernels")) return files;
    for (const auto& entry : fs::directory_iterator(dir_ + "/kernels")) {
      if (entry.path().filename() != "shrunk") files.push_back(entry.path());
    }
    return files;
  }
  // This binary again, as another process that runs one test of `Worker` below.
  pid_t Spawn(const std::string& worker) const {
    std::string filter = "--gtest_filter=JitWorker.DISABLED_" + worker;
    std::string also = "--gtest_also_run_disabled_tests", exe = fs::read_symlink("/proc/self/exe");
    char* argv[] = {exe.data(), filter.data(), also.data(), nullptr};
    std::vector<std::string> texts = {"CACHE_DIR=" + dir_};
    for (char** e = environ; *e != nullptr; ++e) {
      if (!absl::StartsWith(*e, "CACHE_DIR=") && !absl::StartsWith(*e, "GTEST_"))
        texts.push_back(*e);
    }
    std::vector<char*> env;
    for (std::string& text : texts) env.push_back(text.data());
    env.push_back(nullptr);
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    pid_t pid = -1;
    CHECK(posix_spawn(&pid, argv[0], &quiet, nullptr, argv, env.data()) == 0);
    posix_spawn_file_actions_destroy(&quiet);
    return pid;
  }
  static int Wait(pid_t pid) {
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
  }

  std::string dir_;
  SetFlagForTest flag_;
};

float Apply(const CpuKernel& kernel, float x) {
  float in[8], out[8];
  std::fill(in, in + 8, x);
  void* buffers[] = {out, in};
  const int64_t vars[] = {8};
  kernel.fn(buffers, vars, nullptr, 0, 1);
  return out[7];
}

TEST_F(Jit, MemoryThenDisk) {
  const JitStats before = GetJitStats();
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr first, GetKernel(ScaleText(3), "scale", HostTarget()));
  EXPECT_EQ(Apply(*first, 2), 7.0f);
  EXPECT_EQ(GetJitStats().compiles, before.compiles + 1);
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr second, GetKernel(ScaleText(3), "scale", HostTarget()));
  EXPECT_EQ(first, second);
  EXPECT_EQ(GetJitStats().memory_hits, before.memory_hits + 1);
  ClearKernels();
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr third, GetKernel(ScaleText(3), "scale", HostTarget()));
  EXPECT_NE(first, third);
  EXPECT_EQ(Apply(*third, 2), 7.0f);
  EXPECT_EQ(Apply(*first, 2), 7.0f);  // what we hold stays
  EXPECT_EQ(GetJitStats().disk_hits, before.disk_hits + 1);
  EXPECT_EQ(GetJitStats().compiles, before.compiles + 1);
}

TEST_F(Jit, MemoryKeepsTheLastUsed) {
  const int64_t before = SetKernelLimit(3);
  std::vector<std::weak_ptr<const CpuKernel>> kernels;
  ASSERT_OK_AND_ASSIGN(const CpuKernelPtr held, GetKernel(ScaleText(0), "scale", HostTarget()));
  kernels.emplace_back(held);
  for (int i = 1; i < 6; ++i) {
    ASSERT_OK_AND_ASSIGN(const CpuKernelPtr k, GetKernel(ScaleText(i), "scale", HostTarget()));
    kernels.emplace_back(k);
    EXPECT_OK(GetKernel(ScaleText(1), "scale", HostTarget()));  // used again and again
  }
  const std::vector<bool> there = {true, true, false, false, true, true};
  for (size_t i = 0; i < there.size(); ++i) EXPECT_EQ(!kernels[i].expired(), there[i]) << i;
  EXPECT_EQ(Apply(*held, 2), 1.0f);  // forgotten, and held here
  const JitStats stats = GetJitStats();
  EXPECT_OK(GetKernel(ScaleText(2), "scale", HostTarget()));
  EXPECT_EQ(GetJitStats().disk_hits, stats.disk_hits + 1);  // not compiled again
  EXPECT_EQ(GetJitStats().compiles, stats.compiles);
  SetKernelLimit(1);
  EXPECT_TRUE(kernels[5].expired());
  EXPECT_EQ(SetKernelLimit(before), 1);
}

TEST_F(Jit, CacheOffWritesNothing) {
  SetFlagForTest off(Flag::kCache, "0");
  EXPECT_OK(GetKernel(ScaleText(3), "scale", HostTarget()));
  EXPECT_TRUE(Files().empty());
}

// One name, two texts that differ in a constant; two names in one text; two targets.
TEST_F(Jit, NothingCollides) {
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr two, GetKernel(ScaleText(2), "scale", HostTarget()));
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr four, GetKernel(ScaleText(4), "scale", HostTarget()));
  EXPECT_EQ(Apply(*two, 1), 3.0f);
  EXPECT_EQ(Apply(*four, 1), 5.0f);
  const std::string pair =
      "extern \"C\" void f(void* const* b, const long*, void*, long, long) { *(float*)b[0] = 1; }"
      "extern \"C\" void g(void* const* b, const long*, void*, long, long) { *(float*)b[0] = 2; }";
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr f, GetKernel(pair, "f", HostTarget()));
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr g, GetKernel(pair, "g", HostTarget()));
  EXPECT_NE(f->fn, g->fn);
  const JitStats before = GetJitStats();
  Target plain = HostTarget();
  plain.features = "";
  plain.arch = "x86-64";
  plain.vector_bytes = 16;
#if defined(__x86_64__)
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr other, GetKernel(ScaleText(2), "scale", plain));
  EXPECT_EQ(Apply(*other, 1), 3.0f);
  EXPECT_EQ(GetJitStats().compiles, before.compiles + 1);
#endif
}

TEST_F(Jit, ErrorsAreNotKept) {
  const JitStats before = GetJitStats();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(GetKernel("int f( {", "f", HostTarget()),
                StatusIs(absl::StatusCode::kInvalidArgument, "expected"));
    EXPECT_THAT(GetKernel(ScaleText(2), "other", HostTarget()),
                StatusIs(absl::StatusCode::kInvalidArgument, "'other'"));
  }
  {
    SetFlagForTest off(Flag::kJit, "0");
    EXPECT_THAT(GetKernel(ScaleText(9), "scale", HostTarget()),
                StatusIs(absl::StatusCode::kUnavailable, "JIT=0"));
  }
  EXPECT_OK(GetKernel(ScaleText(9), "scale", HostTarget()));
  EXPECT_EQ(GetJitStats().compiles, before.compiles + 1);
}

TEST_F(Jit, BrokenEntryIsReplaced) {
  ASSERT_OK(GetKernel(ScaleText(5), "scale", HostTarget()));
  ASSERT_EQ(Files().size(), 1u);
  const auto size = fs::file_size(Files()[0]);
  fs::resize_file(Files()[0], size - 100);
  ClearKernels();
  const JitStats before = GetJitStats();
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr kernel, GetKernel(ScaleText(5), "scale", HostTarget()));
  EXPECT_EQ(Apply(*kernel, 1), 6.0f);
  EXPECT_EQ(GetJitStats().broken_entries, before.broken_entries + 1);
  EXPECT_EQ(GetJitStats().compiles, before.compiles + 1);
  ASSERT_EQ(Files().size(), 1u);
  EXPECT_EQ(fs::file_size(Files()[0]), size);
}

// Its entry on disk has grown beyond the memory there is. (A sanitizer ends a process that has
// none.)
TEST_F(Jit, NoMemoryIsAnErrorThatDoesNotLastSlow) {
  ASSERT_OK(GetKernel(ScaleText(8), "scale", HostTarget()));
  ASSERT_EQ(Files().size(), 1u);
  fs::resize_file(Files()[0], 1 << 30);
  ClearKernels();
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit less = before;
  less.rlim_cur = pages * sysconf(_SC_PAGESIZE) + (512 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &less), 0);
  std::vector<absl::Status> got;
  for (int i = 0; i < 2; ++i) {
    got.push_back(GetKernel(ScaleText(8), "scale", HostTarget()).status());
  }
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  for (const absl::Status& status : got) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                 "jit: the kernel scale cannot be made"));
  }
  EXPECT_OK(GetKernel(ScaleText(8), "scale", HostTarget()));
}

// A checksummed entry that holds no object at all.
TEST_F(Jit, EntryWithoutAnObjectIsReplaced) {
  const KernelCache cache = KernelCache::FromFlags();
  const std::string key = KernelCacheKey(ScaleText(6), HostTarget(), CompilerIdentity());
  ASSERT_OK(cache.Store(key, "no object"));
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr kernel, GetKernel(ScaleText(6), "scale", HostTarget()));
  EXPECT_EQ(Apply(*kernel, 1), 7.0f);
  ASSERT_OK_AND_ASSIGN(const std::string object, cache.Load(key));
  EXPECT_NE(object, "no object");
}

TEST_F(Jit, UnusableFolderDoesNotMatter) {
  SetFlagForTest nowhere(Flag::kCacheDir, "/proc/no-such-folder");
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr kernel, GetKernel(ScaleText(7), "scale", HostTarget()));
  EXPECT_EQ(Apply(*kernel, 1), 8.0f);
}

TEST_F(Jit, ThreadsShareOneCompile) {
  const JitStats before = GetJitStats();
  std::vector<CpuKernelPtr> kernels(8);
  std::vector<std::thread> threads;
  for (auto& kernel : kernels) {
    threads.emplace_back(
        [&kernel] { kernel = GetKernel(ScaleText(11), "scale", HostTarget()).value(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
  EXPECT_EQ(GetJitStats().compiles, before.compiles + 1);
  EXPECT_EQ(GetJitStats().memory_hits, before.memory_hits + 7);
}

TEST_F(Jit, CompileAllKeepsTheOrder) {
  Target target = HostTarget();
  target.cores = 4;
  std::vector<std::string> texts;
  for (int i = 0; i < 12; ++i) texts.push_back(ScaleText(i % 10));  // two of them twice
  std::vector<KernelRequest> requests;
  for (const std::string& text : texts) requests.push_back({text, "scale"});
  const JitStats before = GetJitStats();
  ASSERT_OK_AND_ASSIGN(const auto kernels, CompileAll(requests, target));
  ASSERT_EQ(kernels.size(), 12u);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(Apply(*kernels[i], 1), i % 10 + 1.0f);
  EXPECT_EQ(kernels[0], kernels[10]);
  EXPECT_EQ(GetJitStats().compiles, before.compiles + 10);
  EXPECT_OK(CompileAll({}, target));
}

TEST_F(Jit, CompileAllGivesTheFirstError) {
  const std::string good = ScaleText(1), bad_1 = "int first;;; !", bad_2 = "second !";
  const std::vector<KernelRequest> requests = {{good, "scale"}, {bad_1, "f"}, {bad_2, "f"}};
  EXPECT_THAT(CompileAll(requests, HostTarget()),
              StatusIs(absl::StatusCode::kInvalidArgument, "first"));
}

TEST_F(Jit, ClearingWhileOthersCompile) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 15; ++i) {
        auto kernel = GetKernel(ScaleText(i), "scale", HostTarget());
        ASSERT_OK(kernel);
        EXPECT_EQ(Apply(**kernel, 1), i + 1.0f) << t;
      }
    });
  }
  std::thread clearer([&] {
    while (!stop.load()) {
      ClearKernels();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop.store(true);
  clearer.join();
}

// A second process finds everything on disk, and no LLVM enters it.
TEST_F(Jit, WarmStartTouchesNoLlvm) {
  EXPECT_EQ(Wait(Spawn("Cold")), 0);
  EXPECT_EQ(Wait(Spawn("Warm")), 0);
}

TEST_F(Jit, ManyProcessesCompileOneKernelAndHalfAreKilled) {
  std::vector<pid_t> pids;
  for (int i = 0; i < 32; ++i) pids.push_back(Spawn("Cold"));
  for (int i = 0; i < 32; i += 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    kill(pids[i], SIGKILL);
  }
  for (int i = 0; i < 32; ++i) {
    const int status = Wait(pids[i]);
    EXPECT_TRUE(status == 0 || i % 2 == 0) << i;
  }
  EXPECT_EQ(Wait(Spawn("Warm")), 0);
}

TEST_F(Jit, ExitUnderCompiles) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Wait(Spawn("ExitUnderCompiles")), 0);
}

// What Spawn runs.
TEST(JitWorker, DISABLED_Cold) {
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr kernel, GetKernel(ScaleText(3), "scale", HostTarget()));
  EXPECT_EQ(Apply(*kernel, 2), 7.0f);
}

TEST(JitWorker, DISABLED_Warm) {
  ASSERT_OK_AND_ASSIGN(CpuKernelPtr kernel, GetKernel(ScaleText(3), "scale", HostTarget()));
  EXPECT_EQ(Apply(*kernel, 2), 7.0f);
  EXPECT_EQ(GetJitStats().disk_hits, 1);
  EXPECT_FALSE(CompilerLoaded());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    EXPECT_EQ(line.find("libLLVM"), std::string::npos) << line;
    EXPECT_EQ(line.find("tessera_clang"), std::string::npos) << line;
  }
}

TEST(JitWorker, DISABLED_ExitUnderCompiles) {
  for (int t = 0; t < 2; ++t) {
    std::thread([t] {
      for (int i = 0;; ++i) (void)GetKernel(ScaleText(1000 * t + i), "scale", HostTarget());
    }).detach();
  }
  while (GetJitStats().compiles < 3) std::this_thread::yield();
  std::exit(0);
}

}  // namespace
}  // namespace tessera
