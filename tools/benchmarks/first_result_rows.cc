// Rows of the first result of a process: a child is started, and timed until it has printed it.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "tools/benchmarks/row.h"

extern char** environ;

namespace tessera::benchmarks {
namespace {

constexpr int kRounds = 9;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "tools/bench: %s\n", what.c_str());
  std::exit(1);
}

// Runs the program with this kernel cache and gives the milliseconds from before its start until
// its output has arrived.
double FirstResult(const std::string& program, const std::string& cache) {
  std::vector<std::string> variables = {"CACHE_DIR=" + cache};
  for (char** v = environ; *v != nullptr; ++v) {
    if (!absl::StartsWith(*v, "CACHE") && !absl::StartsWith(*v, "DEBUG=")) variables.push_back(*v);
  }
  std::vector<char*> env;
  for (std::string& v : variables) env.push_back(v.data());
  env.push_back(nullptr);
  std::string path = program;
  char* args[] = {path.data(), nullptr};

  const auto start = std::chrono::steady_clock::now();
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) Die("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], 1);
  pid_t child = 0;
  if (posix_spawn(&child, args[0], &actions, nullptr, args, env.data()) != 0) {
    Die("cannot start " + program);
  }
  posix_spawn_file_actions_destroy(&actions);
  close(pipe[1]);
  char text[64] = {};
  const ssize_t n = read(pipe[0], text, sizeof(text) - 1);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  close(pipe[0]);
  int status = 0;
  waitpid(child, &status, 0);
  // Four numbers of [0, 1).
  const double value = n > 0 ? std::atof(text) : 0;
  if (status != 0 || value <= 0 || value >= 4) Die(program + " gave no result: '" + text + "'");
  return took.count();
}

}  // namespace

std::vector<Row> FirstResultRows(const Wanted& wanted, const std::string& program) {
  std::vector<Row> out;
  char name[] = "/tmp/tessera-bench-XXXXXX";
  if (mkdtemp(name) == nullptr) Die("no temporary folder");
  const std::string root = name;
  for (const bool cold : {true, false}) {
    Row row;
    row.name = cold ? "first_result_cold" : "first_result_warm";
    if (!wanted(row.name)) continue;
    std::vector<double> times;
    FirstResult(program, root + "/warm");  // fills that cache, and brings the program into memory
    for (int i = 0; i < kRounds; ++i) {
      times.push_back(
          FirstResult(program, cold ? root + "/cold" + std::to_string(i) : root + "/warm"));
    }
    row.ours_ms = Median(std::move(times));
    row.kernels = 1;
    row.note = cold ? "process start to Rand(4).Sum(), empty disk cache"
                    : "process start to Rand(4).Sum(), kernel on disk";
    out.push_back(std::move(row));
  }
  std::filesystem::remove_all(root);
  return out;
}

}  // namespace tessera::benchmarks
