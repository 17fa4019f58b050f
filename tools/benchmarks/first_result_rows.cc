// Rows of processes of their own: a child is started, and timed until it has printed its result;
// or what it prints is what it measured.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "runtime/host_target.h"
#include "tools/benchmarks/folder.h"
#include "tools/benchmarks/row.h"

extern char** environ;

namespace tessera::benchmarks {
namespace {

constexpr int kRounds = 9;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "tools/bench: %s\n", what.c_str());
  std::exit(1);
}

struct Output {
  std::string text;
  double ms = 0;  // from before the start until it has arrived
};

// Runs a program with these variables, in the place of those that choose caches and cores.
Output Run(const std::string& program, const char* argument, std::vector<std::string> variables) {
  for (char** v = environ; *v != nullptr; ++v) {
    const bool ours = absl::StartsWith(*v, "CACHE") || absl::StartsWith(*v, "CORES=") ||
                      absl::StartsWith(*v, "DEBUG=");
    if (!ours) variables.push_back(*v);
  }
  std::vector<char*> env;
  for (std::string& v : variables) env.push_back(v.data());
  env.push_back(nullptr);
  std::string path = program, option = argument;
  char* args[] = {path.data(), option.empty() ? nullptr : option.data(), nullptr};

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
  if (status != 0 || n <= 0) Die(program + " gave no result");
  return {text, took.count()};
}

// Milliseconds from the start of a process to its first result, with this kernel cache.
double FirstResult(const std::string& program, const std::string& cache) {
  const Output out = Run(program, "", {"CACHE_DIR=" + cache});
  // Four numbers of [0, 1).
  const double value = std::atof(out.text.c_str());
  if (value <= 0 || value >= 4) Die(program + " gave no result: '" + out.text + "'");
  return out.ms;
}

// Operations a second of a product of matrices, and of a loop of nothing but multiplications and
// additions.
struct CoreRates {
  double product = 0, loop = 0;
};
CoreRates RatesOn(const std::string& program, const std::string& cache, int cores) {
  const Output out =
      Run(program, "rates", {"CACHE_DIR=" + cache, "CORES=" + std::to_string(cores)});
  CoreRates rates;
  if (std::sscanf(out.text.c_str(), "%lf %lf", &rates.product, &rates.loop) != 2) {
    Die(program + " gave no rates: '" + out.text + "'");
  }
  return rates;
}

}  // namespace

std::vector<Row> FirstResultRows(const Wanted& wanted, const std::string& program) {
  std::vector<Row> out;
  const Folder folder;
  const std::string& root = folder.path;
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
  return out;
}

std::vector<Row> CoreRows(const Wanted& wanted, const std::string& program) {
  Row row;
  row.name = "two_cores";
  if (!wanted(row.name)) return {};
  if (CountCores() < 2) {
    row.note = "skipped: kernels have one core here";
    return {row};
  }
  const Folder folder;
  std::vector<double> product, loop;
  for (int i = 0; i < kRounds; ++i) {
    const CoreRates two = RatesOn(program, folder.path, 2), one = RatesOn(program, folder.path, 1);
    product.push_back(two.product / one.product);
    loop.push_back(two.loop / one.loop);
  }
  const double ours = Median(product), most = Median(loop);
  row.note = absl::StrFormat(
      "a product of 1024x1024 matrices is %.2f times as fast on two cores as on one, a pure loop "
      "of "
      "multiplications and additions %.2f times: %.2f of that; at least 0.92 is wanted",
      ours, most, ours / most);
  return {row};
}

}  // namespace tessera::benchmarks
