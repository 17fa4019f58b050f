// FileWriter: a name that nobody else writes to, then a rename.
#include "runtime/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {

FileWriter::FileWriter(std::string path) : path_(std::move(path)) {
  struct stat info;
  if (stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    // O_EXCL: other threads, and processes that have our number elsewhere, take other names.
    static std::atomic<int64_t> count{0};
    do {
      beside_ = absl::StrCat(path_, ".", getpid(), "-", count.fetch_add(1), ".part");
      fd_ = open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd_ < 0 && errno == EEXIST);
  }
  if (fd_ < 0) {
    NoteError();
    beside_.clear();
  }
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close(fd_);
  if (!beside_.empty()) unlink(beside_.c_str());
}

void FileWriter::NoteError() {
  if (!status_.ok()) return;
  status_ =
      absl::UnavailableError(absl::StrCat(path_, ": cannot be written: ", std::strerror(errno)));
}

void FileWriter::Write(absl::string_view bytes) {
  while (status_.ok() && !bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(n);
    } else if (errno != EINTR) {
      NoteError();
    }
  }
}

absl::Status FileWriter::Finish() {
  if (fd_ >= 0 && close(std::exchange(fd_, -1)) != 0) NoteError();
  if (status_.ok() && !beside_.empty()) {
    if (rename(beside_.c_str(), path_.c_str()) == 0) {
      beside_.clear();
    } else {
      NoteError();
    }
  }
  return status_;
}

absl::Status WriteFile(const std::string& path, absl::Span<const absl::string_view> parts) {
  FileWriter file(path);
  for (const absl::string_view part : parts) file.Write(part);
  return file.Finish();
}

}  // namespace tessera
