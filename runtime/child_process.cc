// RunChild by posix_spawn with non-blocking pipes, and the two file helpers that go with it.
#include "runtime/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/status.h"

extern char** environ;

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxOutput = 1 << 20;

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void Reset(int fd) {
    Close();
    fd_ = fd;
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// A SIGPIPE of ours stays off while a child that died early leaves its stdin unread. Blocking it
// in this thread and eating the pending one leaves the process's own handling alone.
class BlockSigpipe {
 public:
  BlockSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~BlockSigpipe() {
    const timespec now = {0, 0};
    if (!sigismember(&before_, SIGPIPE)) {
      while (sigtimedwait(&pipe_, nullptr, &now) > 0) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;
};

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& argv, int in, int out) {
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, out, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  sigset_t defaults;  // it may have children itself, and must see them end
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGCHLD);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  errno = posix_spawn(&pid, args[0], &actions, &attributes, args.data(), environ);
  const bool failed = errno != 0;
  absl::Status status =
      failed ? SystemError(absl::StrCat("cannot start ", argv[0])) : absl::OkStatus();
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (!status.ok()) return status;
  return pid;
}

// Feeds and drains the child until it closes its output. False: the deadline passed.
bool Converse(Descriptor& in, Descriptor& out, absl::string_view input, std::string* output,
              Clock::time_point deadline) {
  if (input.empty()) in.Close();
  for (;;) {
    pollfd polls[2] = {{out.get(), POLLIN, 0}, {in.get(), POLLOUT, 0}};  // a closed one is ignored
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    if (poll(polls, 2, static_cast<int>(left)) < 0 && errno != EINTR) return true;
    if (polls[1].revents != 0) {
      const ssize_t n = write(in.get(), input.data(), input.size());
      if (n > 0) input.remove_prefix(n);
      if (input.empty() || (n < 0 && errno != EAGAIN && errno != EINTR)) in.Close();
    }
    if (polls[0].revents != 0) {
      char buffer[4096];
      const ssize_t n = read(out.get(), buffer, sizeof(buffer));
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return true;
      if (n > 0 && output->size() < kMaxOutput) output->append(buffer, n);
    }
  }
}

}  // namespace

absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     double seconds) {
  const auto deadline =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  BlockSigpipe no_sigpipe;
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0) return SystemError("pipe2");
  Descriptor in_read(in[0]), in_write(in[1]);
  if (pipe2(out, O_CLOEXEC) != 0) return SystemError("pipe2");
  Descriptor out_read(out[0]), out_write(out[1]);
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, in_read.get(), out_write.get()));
  in_read.Close();
  out_write.Close();
  fcntl(in_write.get(), F_SETFL, O_NONBLOCK);
  fcntl(out_read.get(), F_SETFL, O_NONBLOCK);
  ChildResult result;
  bool in_time = Converse(in_write, out_read, input, &result.output, deadline);
  int status = 0;
  bool known = true;
  for (;;) {  // it has closed its output, so it ends at once or not before the deadline
    if (in_time && Clock::now() > deadline) in_time = false;
    if (!in_time) kill(pid, SIGKILL);
    const pid_t got = waitpid(pid, &status, in_time ? WNOHANG : 0);
    if (got == pid) break;
    if (got < 0 && errno == ECHILD) {  // it has ended, and somebody else was told how
      known = false;
      break;
    }
    if (got < 0 && errno != EINTR) return SystemError("waitpid");
    if (got == 0) usleep(200);
  }
  if (!in_time) {
    return absl::DeadlineExceededError(absl::StrCat(argv[0], " ran past ", seconds, " s"));
  }
  if (!known) return result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

absl::StatusOr<std::string> MakeTempFile(absl::string_view suffix) {
  std::string path = absl::StrCat(P_tmpdir, "/tessera-XXXXXX", suffix);
  const int fd = mkostemps(path.data(), static_cast<int>(suffix.size()), O_CLOEXEC);
  if (fd < 0) return SystemError(absl::StrCat("cannot make a file like ", path));
  close(fd);
  return path;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
    return SystemError(path);
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError(path);
  if (!S_ISREG(info.st_mode) || info.st_size > max_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": not a regular file of at most ", max_bytes, " bytes"));
  }
  std::string bytes(info.st_size, '\0');
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = read(file.get(), bytes.data() + got, bytes.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path);
    if (n == 0) break;
    got += n;
  }
  bytes.resize(got);
  return bytes;
}

}  // namespace tessera
