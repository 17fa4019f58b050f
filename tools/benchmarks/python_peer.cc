// The child process and its two pipes.
#include "tools/benchmarks/python_peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

extern char** environ;

namespace tessera::benchmarks {

std::unique_ptr<PythonPeer> PythonPeer::Start(const std::string& python, const std::string& text) {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) return nullptr;
  signal(SIGPIPE, SIG_IGN);  // a child that ends is seen by the answer that does not come
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::string program = python, flag = "-c";
  std::string all = text + R"(
import sys
step()
print(version, flush=True)
for line in sys.stdin:
    step()
    print("done", flush=True)
)";
  char* args[] = {program.data(), flag.data(), all.data(), nullptr};
  // Memory that it frees stays its own, as ours does: without it each large result is faulted in
  // page by page, which took a convolution of PyTorch's from 4 ms to between 8 and 24.
  std::string keep[] = {"MALLOC_TRIM_THRESHOLD_=4000000000", "MALLOC_MMAP_THRESHOLD_=4000000000"};
  std::vector<char*> variables = {keep[0].data(), keep[1].data()};
  for (char** v = environ; *v != nullptr; ++v) variables.push_back(*v);
  variables.push_back(nullptr);
  std::unique_ptr<PythonPeer> peer(new PythonPeer);
  const bool started =
      posix_spawnp(&peer->child_, args[0], &actions, nullptr, args, variables.data()) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  peer->to_ = to[1];
  peer->from_ = from[0];
  if (!started) peer->child_ = 0;
  peer->version_ = peer->Line();
  return started && !peer->version_.empty() ? std::move(peer) : nullptr;
}

PythonPeer::~PythonPeer() {
  close(to_);
  close(from_);
  if (child_ != 0) waitpid(child_, nullptr, 0);
}

std::string PythonPeer::Line() {
  std::string out;
  char c;
  while (read(from_, &c, 1) == 1 && c != '\n') out += c;
  return out;
}

void PythonPeer::Step() {
  if (write(to_, "\n", 1) == 1 && Line() == "done") return;
  std::fprintf(stderr, "tools/bench: the Python peer has ended\n");
  std::exit(1);
}

}  // namespace tessera::benchmarks
