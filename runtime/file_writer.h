// Writing files so that no reader sees half of one.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera {

// A file that is written beside its place and put there when it is whole. Who has the one before it
// open or mapped keeps that; of two that are written at once to one place, the later stays. A pipe
// or a device has no place that a file could take: it is written as it is.
class FileWriter {
 public:
  explicit FileWriter(std::string path);
  ~FileWriter();  // leaves nothing of what was not finished
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void Write(absl::string_view bytes);
  // Puts the file in its place. The first error of all that was done, after which nothing is there.
  absl::Status Finish();

 private:
  void NoteError();  // errno's

  const std::string path_;
  std::string beside_;  // where it is written until then
  int fd_ = -1;
  absl::Status status_;
};

// The whole of a file, in parts.
absl::Status WriteFile(const std::string& path, absl::Span<const absl::string_view> parts);

}  // namespace tessera
