// A temporary folder.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

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

}  // namespace tessera::benchmarks
