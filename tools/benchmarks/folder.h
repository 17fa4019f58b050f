// A temporary folder, and what a compiler takes with its cache empty and full.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "graph/flags.h"
#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {

// Gone when this is.
struct Folder {
  std::string path;
  Folder() {
    path = std::filesystem::temp_directory_path() / "tessera_bench_XXXXXX";
    if (mkdtemp(path.data()) == nullptr) std::abort();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

// Rows of what `compile`, which gives its milliseconds, takes the first and the second time with a
// fresh folder for the disk cache: medians of so many rounds.
inline void MeasureColdAndWarm(const std::function<double()>& compile, int rounds, Row& cold,
                               Row& warm) {
  std::vector<double> first, second;
  for (int i = 0; i < rounds; ++i) {
    const Folder folder;
    const SetFlagForTest there(Flag::kCacheDir, folder.path), on(Flag::kCache, "1");
    first.push_back(compile());
    second.push_back(compile());
  }
  cold.ours_ms = Median(first);
  warm.ours_ms = Median(second);
}

}  // namespace tessera::benchmarks
