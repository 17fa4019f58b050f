// Runs one child process to its end under a deadline.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

struct ChildResult {
  // 128 + signal where a signal ended it; nothing where this process ignores SIGCHLD or waits for
  // all its children elsewhere.
  std::optional<int> exit_code;
  std::string output;  // what it wrote to stdout and stderr, cut at 1 MiB
};

// Starts argv[0] (a path) with `input` as its stdin and waits. DeadlineExceeded kills it first.
// Thread-safe, and passes no descriptor of ours on.
absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     double seconds);

// A new empty temporary file that no other process can name first; the caller unlinks it.
absl::StatusOr<std::string> MakeTempFile(absl::string_view suffix);

// The whole content of a regular file, read (never mapped), at most max_bytes long.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

}  // namespace tessera
