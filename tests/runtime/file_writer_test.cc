// Files that are whole or not there: writers beside one another, readers, and what goes wrong.
#include "runtime/file_writer.h"

#include <fstream>
#include <thread>
#include <vector>

#include "runtime/gguf_writer.h"
#include "runtime/mapped_file.h"
#include "tests/testing.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string Path(const std::string& name) { return OwnTempDir() + "/" + name; }

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int FilesLike(const std::string& name) {
  int n = 0;
  for (const auto& entry : fs::directory_iterator(OwnTempDir())) {
    n += entry.path().filename().string().rfind(name, 0) == 0;
  }
  return n;
}

TEST(FileWriter, ThreadsThatWriteToOnePlace) {
  std::vector<std::thread> threads;
  for (char letter : {'a', 'b', 'c', 'd'}) {
    threads.emplace_back([letter] {
      const std::string half(1 << 18, letter);
      for (int i = 0; i < 20; ++i) EXPECT_OK(WriteFile(Path("shared"), {half, half}));
    });
  }
  for (std::thread& t : threads) t.join();
  const std::string found = Read(Path("shared"));
  ASSERT_EQ(found.size(), size_t{1} << 19);
  EXPECT_EQ(found, std::string(1 << 19, found[0]));
  EXPECT_EQ(FilesLike("shared"), 1);
}

TEST(FileWriter, WhatIsNotFinishedIsNotThere) {
  ASSERT_OK(WriteFile(Path("kept"), {"before"}));
  {
    FileWriter file(Path("kept"));
    file.Write("after");
    EXPECT_EQ(Read(Path("kept")), "before");
  }
  EXPECT_EQ(Read(Path("kept")), "before");
  EXPECT_EQ(FilesLike("kept"), 1);
}

TEST(FileWriter, ErrorsTellTheReason) {
  EXPECT_THAT(WriteFile("/nowhere/x", {"a"}),
              StatusIs(absl::StatusCode::kUnavailable,
                       "/nowhere/x: cannot be written: No such file or directory"));
  EXPECT_THAT(WriteFile(OwnTempDir(), {"a"}),
              StatusIs(absl::StatusCode::kUnavailable, "cannot be written: Is a directory"));
  EXPECT_THAT(WriteFile("/dev/full", {"a"}),
              StatusIs(absl::StatusCode::kUnavailable, "cannot be written: No space left"));
  EXPECT_FALSE(fs::is_regular_file("/dev/full"));
}

// A model that someone reads while another takes its place.
TEST(FileWriter, AMappedModelStays) {
  const std::string path = Path("model.gguf"), large(1 << 20, 'x');
  GgufWriter before, after;
  before.Add("w", WeightFormat::kI8, {1 << 20}, large);
  after.Add("w", WeightFormat::kI8, {4}, "abcd");
  ASSERT_OK(before.Write(path));
  const auto file = MappedFile::Open(path);
  ASSERT_OK(file);
  ASSERT_OK(after.Write(path));
  EXPECT_EQ((*file)->bytes(), before.Bytes());
  EXPECT_EQ(Read(path), after.Bytes());
}

}  // namespace
}  // namespace tessera
