// Compiling texts in process and in a child: values, exact arithmetic, errors, threads.
#include "runtime/jit_compiler.h"

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <thread>
#include <vector>

#include "graph/flags.h"
#include "runtime/child_process.h"
#include "runtime/elf_loader.h"
#include "runtime/host_target.h"
#include "runtime/jit.h"
#include "tests/runtime/kernel_texts.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

enum Way { kPlugin, kChild };

class Compile : public ::testing::TestWithParam<Way> {
 protected:
  absl::StatusOr<std::string> Text(absl::string_view text) {
    return GetParam() == kPlugin ? internal::CompileInProcess(text, HostTarget())
                                 : internal::CompileInChild(text, HostTarget());
  }
  void SetUp() override {
    if (absl::IsUnavailable(Text("").status())) GTEST_SKIP() << Text("").status();
  }
  // The value that a text's `void f(void* const* buffers, ...)` leaves in one float.
  void RunBody(const std::string& body, float a, float b, float c, float* out) {
    ASSERT_OK_AND_ASSIGN(
        const std::string object,
        Text(absl::StrCat("extern \"C\" void f(void* const* buffers, const long*, void*, long, "
                          "long) { float* p = (float*)buffers[0]; float a = p[0], b = p[1], c = "
                          "p[2]; int* q = (int*)p; ",
                          body, "}")));
    ASSERT_OK_AND_ASSIGN(auto loaded, LoadedObject::Load(object));
    float values[4] = {a, b, c, 0};
    void* buffers[1] = {values};
    auto fn = reinterpret_cast<CpuKernelFn>(loaded->Symbol("f"));
    ASSERT_NE(fn, nullptr);
    fn(buffers, nullptr, nullptr, 0, 1);
    *out = values[0];
  }
};

TEST_P(Compile, VectorKernelRuns) {
  ASSERT_OK_AND_ASSIGN(const std::string object, Text(ScaleText(2.5)));
  ASSERT_OK_AND_ASSIGN(auto loaded, LoadedObject::Load(object));
  auto fn = reinterpret_cast<CpuKernelFn>(loaded->Symbol("scale"));
  ASSERT_NE(fn, nullptr);
  std::vector<float> in(1024), out(1024, -1.0f);
  for (int i = 0; i < 1024; ++i) in[i] = i * 0.5f;
  void* buffers[] = {out.data(), in.data()};
  const int64_t vars[] = {1024};
  for (int worker = 0; worker < 3; ++worker) fn(buffers, vars, nullptr, worker, 3);
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(out[i], in[i] * 2.5f + 1.0f) << i;
}

TEST_P(Compile, ErrorCarriesLogAndText) {
  const std::string text = "extern \"C\" void broken() { not_a_thing(42); }";
  EXPECT_THAT(Text(text), StatusIs(absl::StatusCode::kInvalidArgument, "not_a_thing"));
  EXPECT_THAT(Text(text), StatusIs(absl::StatusCode::kInvalidArgument, "undeclared identifier"));
  EXPECT_THAT(Text(text), StatusIs(absl::StatusCode::kInvalidArgument, text));
}

// An error that only the back end finds: LLVM's own handler would print it and exit.
TEST_P(Compile, BackEndErrorIsAnError) {
  EXPECT_THAT(Text("extern \"C\" void f() { __asm__ volatile(\"no_such_instruction %eax\"); }"),
              StatusIs(absl::StatusCode::kInvalidArgument, "no_such_instruction"));
}

#if defined(__x86_64__)
// What LLVM calls fatal would end the process; the compiles after it work.
TEST_P(Compile, FatalErrorIsAnError) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a compile that LLVM gives up leaks what it held";
#endif
  const std::string text =
      "#pragma clang diagnostic ignored \"-Wregister\"\n"
      "register long frame asm(\"rbp\"); extern \"C\" long f() { return frame; }";
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Text(text), StatusIs(absl::StatusCode::kInvalidArgument, "rbp is allocatable"));
    EXPECT_OK(Text(ScaleText(i)));
  }
}
#endif

TEST_P(Compile, NoHeaderIsSeen) {
  EXPECT_THAT(Text("#include <stddef.h>\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "file not found"));
}

// 2^24+1 is lost in the product unless a*b+c is fused.
TEST_P(Compile, NothingIsContracted) {
  const float a = 4097, c = -16785408;  // a * a = 16785409, rounds to 16785408
  float value = -1;
  RunBody("p[0] = a * b + c;", a, a, c, &value);
  EXPECT_EQ(value, 0.0f);
  RunBody("p[0] = __builtin_fmaf(a, b, c);", a, a, c, &value);
  EXPECT_EQ(value, 1.0f);
}

TEST_P(Compile, NothingIsReassociated) {
  float value = 0;
  RunBody("p[0] = (a + b) - a;", 1e30f, 1.0f, 0, &value);
  EXPECT_EQ(value, 0.0f);
  RunBody("p[0] = a != a ? 1.0f : 0.0f;", std::nanf(""), 0, 0, &value);
  EXPECT_EQ(value, 1.0f);
  RunBody("p[0] = 1.0f / (a + 0.0f);", -0.0f, 0, 0, &value);
  EXPECT_EQ(value, INFINITY);
  RunBody("p[0] = a * b;", 1e-30f, 1e-10f, 0, &value);  // a subnormal, not zero
  EXPECT_EQ(value, 1e-30f * 1e-10f);
  EXPECT_NE(value, 0.0f);
}

TEST_P(Compile, IntegersWrapAndPointersAlias) {
  float value = 0;
  RunBody("q[1] = 2147483647; int x = q[1]; p[0] = x + 1 > x ? 1.0f : -1.0f;", 0, 0, 0, &value);
  EXPECT_EQ(value, -1.0f);
  RunBody("p[0] = 1.0f; q[0] = 0x40000000; p[0] = p[0] + 1.0f;", 0, 0, 0, &value);
  EXPECT_EQ(value, 3.0f);
}

// Copying and clearing loops must not become library calls, nor the other way round recurse.
TEST_P(Compile, LoopsStayLoops) {
  ASSERT_OK_AND_ASSIGN(const std::string object,
                       Text("extern \"C\" void f(char* a, long n) { for (long i = 0; i < n; ++i) "
                            "a[i] = 0; }"));
  EXPECT_THAT(object, Not(HasSubstr("memset")));
}

TEST_P(Compile, DeepExpression) {
  std::string sum = "a";
  for (int i = 0; i < 3000; ++i) sum += " + a";
  float value = 0;
  RunBody("p[0] = " + sum + ";", 1.0f, 0, 0, &value);
  EXPECT_EQ(value, 3001.0f);
}

INSTANTIATE_TEST_SUITE_P(Ways, Compile, ::testing::Values(kPlugin, kChild), [](const auto& info) {
  return info.param == kPlugin ? "Plugin" : "Child";
});

TEST(CompileToObject, ThreadsCompileAtOnce) {
  constexpr int kThreads = 8;
  std::vector<absl::StatusOr<std::string>> good(kThreads, ""), bad(kThreads, "");
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      good[i] = CompileToObject(ScaleText(i + 1), HostTarget());
      bad[i] = CompileToObject(absl::StrCat("int f() { return missing_", i, "; }"), HostTarget());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_OK(good[i]);
    EXPECT_THAT(bad[i], StatusIs(absl::StatusCode::kInvalidArgument, absl::StrCat("missing_", i)));
  }
}

TEST(CompileToObject, SaysWhatIsMissing) {
  SetFlagForTest child(Flag::kJit, "2");
  SetFlagForTest nowhere(Flag::kClang, "/no/such/clang");
  const auto object = CompileToObject(ScaleText(1), HostTarget());
  EXPECT_THAT(object, StatusIs(absl::StatusCode::kUnavailable, "CLANG"));
  EXPECT_THAT(object, StatusIs(absl::StatusCode::kUnavailable, "Install clang-19"));
  EXPECT_EQ(CompilerIdentity(), "");
}

TEST(CompileToObject, ZeroTurnsItOff) {
  SetFlagForTest off(Flag::kJit, "0");
  EXPECT_THAT(CompileToObject(ScaleText(1), HostTarget()),
              StatusIs(absl::StatusCode::kUnavailable, "JIT=0"));
}

TEST(CompileToObject, OtherDialectIsRefused) {
  Target target = HostTarget();
  target.dialect = Dialect::kCuda;
  EXPECT_THAT(CompileToObject(ScaleText(1), target),
              StatusIs(absl::StatusCode::kInvalidArgument, "not a CPU"));
}

TEST(CompilerIdentity, NamesTheWay) {
  SetFlagForTest child(Flag::kJit, "2");
  const std::string with_child = CompilerIdentity();
  SetFlagForTest plugin(Flag::kJit, "1");
  if (!absl::IsUnavailable(internal::CompileInProcess("", HostTarget()).status())) {
    EXPECT_THAT(CompilerIdentity(), HasSubstr("plugin "));
    EXPECT_NE(CompilerIdentity(), with_child);
  }
}

TEST(RunChild, PassesInputAndOutput) {
  const std::string text(300000, 'x');
  ASSERT_OK_AND_ASSIGN(const ChildResult result, RunChild({"/bin/cat"}, text, 20));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, text);
}

TEST(RunChild, ReportsExitAndSignal) {
  ASSERT_OK_AND_ASSIGN(ChildResult result, RunChild({"/bin/sh", "-c", "exit 3"}, "unread", 20));
  EXPECT_EQ(result.exit_code, 3);
  ASSERT_OK_AND_ASSIGN(result, RunChild({"/bin/sh", "-c", "kill -9 $$"}, "", 20));
  EXPECT_EQ(result.exit_code, 128 + 9);
  EXPECT_THAT(RunChild({"/no/such/program"}, "", 20),
              StatusIs(absl::StatusCode::kUnavailable, "/no/such/program"));
}

// Where children are reaped by nobody, nobody says how they ended; their own children are theirs.
class ReapedElsewhere : public ::testing::Test {
 protected:
  ReapedElsewhere() : before_(signal(SIGCHLD, SIG_IGN)) {}
  ~ReapedElsewhere() override { signal(SIGCHLD, before_); }

 private:
  void (*const before_)(int);
};
TEST_F(ReapedElsewhere, TheOutputIsAllThatIsKnown) {
  ASSERT_OK_AND_ASSIGN(ChildResult result, RunChild({"/bin/sh", "-c", "echo a; exit 3"}, "", 20));
  EXPECT_FALSE(result.exit_code.has_value());
  EXPECT_EQ(result.output, "a\n");
  ASSERT_OK_AND_ASSIGN(result, RunChild({"/bin/sh", "-c", "/bin/sh -c 'exit 5'; echo $?"}, "", 20));
  EXPECT_EQ(result.output, "5\n");
  EXPECT_THAT(RunChild({"/bin/sleep", "60"}, "", 0.05),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "sleep"));
}
TEST_F(ReapedElsewhere, TheObjectSaysWhetherTheCompilerFailed) {
  const auto object = internal::CompileInChild(ScaleText(2.5), HostTarget());
  if (absl::IsUnavailable(object.status()) &&
      object.status().message().find("no child clang") != absl::string_view::npos) {
    GTEST_SKIP() << object.status();
  }
  ASSERT_OK(object);
  EXPECT_OK(LoadedObject::Load(*object));
  EXPECT_THAT(internal::CompileInChild("int f( {", HostTarget()),
              StatusIs(absl::StatusCode::kInvalidArgument, "expected"));
}

TEST(RunChild, KillsPastTheDeadline) {
  EXPECT_THAT(RunChild({"/bin/sleep", "60"}, "", 0.05),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "sleep"));
  // One that has closed its output and goes on.
  EXPECT_THAT(RunChild({"/bin/sh", "-c", "exec >/dev/null 2>&1 sleep 60"}, "", 0.05),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "sh"));
}

}  // namespace
}  // namespace tessera
