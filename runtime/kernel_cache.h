// Compiled kernels on disk: one checksummed file each, found by everything that it depends on.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/target.h"

namespace tessera {

// Everything that a compiled kernel depends on, as one string: the text, the target, the compiler,
// the sources of our own compile and load path, and the format of the files.
std::string KernelCacheKey(absl::string_view text, const Target& target,
                           absl::string_view compiler);

// A folder of entries. Safe under any number of processes and threads, and under their death at any
// point: an entry appears whole or not at all. The cache may always fail and never matters: a
// folder that cannot be made, read or written is as good as an empty one. The first such trouble of
// the process is reported on stderr, under DEBUG >= 1 or where CACHE_DIR is set.
class KernelCache {
 public:
  // The folder that the flags name (a subfolder of CacheRoot()), or none where CACHE=0.
  static KernelCache FromFlags();

  // An empty folder means no cache. The folder and its parents are made when first written.
  explicit KernelCache(std::string folder);

  // The object stored under the key, byte for byte as it was stored. NotFound where there is none;
  // DataLoss where the entry is cut, changed, or for another key of the same hash; PermissionDenied
  // where others may write the folder; Unavailable where it cannot be read.
  absl::StatusOr<std::string> Load(absl::string_view key) const;

  // Stores the object, replacing what is there.
  absl::Status Store(absl::string_view key, absl::string_view object) const;

  // Removes entries, those read longest ago first, until the others are no more bytes. Once a day
  // the first process that stores something keeps the folder at kMostBytes so.
  void Shrink(int64_t bytes) const;
  static constexpr int64_t kMostBytes = int64_t{4} << 30;

  // The file of a key.
  std::string Path(absl::string_view key) const;

 private:
  absl::Status Prepare() const;

  std::string folder_;
};

}  // namespace tessera
