// Runs a language model from files: tools/llm --model FILE|DIR --prompt TEXT; --help lists the
// rest.
#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "examples/llm/command.h"
#include "examples/llm/server.h"

using tessera::llm::Command;

namespace {

int Run(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const absl::StatusOr<Command> command = tessera::llm::ParseCommand(arguments);
  absl::Status status = command.status();
  if (command.ok() && command->mode == Command::Mode::kServe) status = tessera::llm::CanServe();
  absl::StatusOr<int> exit_status =
      status.ok() ? tessera::llm::RunCommand(*command, tessera::llm::RunServe) : status;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (exit_status.ok() && written) return *exit_status;
  if (exit_status.ok()) {
    std::fprintf(stderr, "llm: what it wrote was lost: the standard output takes no more\n");
    return 1;
  }
  std::fprintf(stderr, "llm: %s\n", std::string(exit_status.status().message()).c_str());
  return command.ok() ? 1 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  // The first Ctrl-C ends the text, the second the program.
  std::signal(SIGINT, [](int) {
    tessera::llm::interrupted = true;
    std::signal(SIGINT, SIG_DFL);
  });
  try {
    return Run(argc, argv);
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "llm: %s\n", e.what());
    if (e.status().code() == absl::StatusCode::kCancelled) return 130;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "llm: out of memory; a smaller --context takes less\n");
  }
  return 1;
}
