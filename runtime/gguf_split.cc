// Opening a GGUF file, or a set of files that one model is split over.

#include "absl/strings/str_format.h"
#include "runtime/gguf.h"

namespace tessera {
namespace {

constexpr int64_t kMaxParts = 9999;

absl::StatusOr<Gguf> OpenOne(const std::string& path) {
  ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(Gguf part, ParseGguf(file->bytes(), path, file));
  part.files.push_back(std::move(file));
  return part;
}

absl::StatusOr<int64_t> Entry(const Gguf& part, const char* key, int64_t otherwise) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> value, part.metadata.Int(key));
  return value.value_or(otherwise);
}

absl::Status Bad(const std::string& path, const std::string& why) {
  return absl::DataLossError(absl::StrCat(path, ": ", why));
}

}  // namespace

absl::StatusOr<Gguf> OpenGguf(const std::string& path) {
  ASSIGN_OR_RETURN(Gguf all, OpenOne(path));
  ASSIGN_OR_RETURN(const int64_t count, Entry(all, "split.count", 1));
  if (count <= 1) return all;
  if (count > kMaxParts) return Bad(path, absl::StrCat("split.count is ", count));
  ASSIGN_OR_RETURN(const int64_t first, Entry(all, "split.no", -1));
  if (first != 0) {
    return Bad(path, absl::StrCat("this is part ", first + 1, " of ", count,
                                  "; give the first part (-00001-of-...)"));
  }
  const std::string ending = absl::StrFormat("-00001-of-%05d.gguf", count);
  if (path.size() < ending.size() || path.substr(path.size() - ending.size()) != ending) {
    return Bad(path, absl::StrCat("one part of ", count, "; its name must end in ", ending));
  }
  const std::string stem = path.substr(0, path.size() - ending.size());
  for (int64_t i = 1; i < count; ++i) {
    const std::string next = absl::StrFormat("%s-%05d-of-%05d.gguf", stem, i + 1, count);
    ASSIGN_OR_RETURN(Gguf part, OpenOne(next));
    ASSIGN_OR_RETURN(const int64_t number, Entry(part, "split.no", -1));
    ASSIGN_OR_RETURN(const int64_t parts, Entry(part, "split.count", -1));
    if (number != i || parts != count) {
      return Bad(next, absl::StrCat("it says part ", number + 1, " of ", parts, ", and its name ",
                                    i + 1, " of ", count));
    }
    for (const Weight& w : part.weights.all()) RETURN_IF_ERROR(all.weights.Add(w));
    all.files.push_back(part.files.front());
  }
  ASSIGN_OR_RETURN(const int64_t tensors, Entry(all, "split.tensors.count", -1));
  const int64_t found = static_cast<int64_t>(all.weights.all().size());
  if (tensors >= 0 && tensors != found) {
    return Bad(path, absl::StrCat("split.tensors.count is ", tensors, ", and the ", count,
                                  " parts hold ", found));
  }
  return all;
}

}  // namespace tessera
