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

// What no reader would take is not written.
TEST(FileWriter, ModelsHaveEachNameOnce) {
  const std::string path = Path("names.gguf");
  const auto status = [&](const std::function<void(GgufWriter&)>& fill) {
    GgufWriter w;
    fill(w);
    return w.Write(path);
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const auto add = [](GgufWriter& w, const std::string& name, const std::vector<int64_t>& shape) {
    w.Add(name, WeightFormat::kI8, shape, [](char*, int64_t) {});
  };
  EXPECT_THAT(status([](GgufWriter& w) { w.Set("k", true), w.Set("k", "x"); }),
              StatusIs(invalid, "names.gguf: the key 'k' is there twice"));
  EXPECT_THAT(status([](GgufWriter& w) { w.Set("", true); }), StatusIs(invalid, "is empty"));
  EXPECT_THAT(status([](GgufWriter& w) { w.Set("\xFF", true); }), StatusIs(invalid, "not UTF-8"));
  EXPECT_THAT(status([&](GgufWriter& w) { add(w, "w", {4}), add(w, "w", {4}); }),
              StatusIs(invalid, "the tensor name 'w' is there twice"));
  EXPECT_THAT(status([&](GgufWriter& w) { add(w, std::string(64, 'w'), {4}); }),
              StatusIs(invalid, "is too long"));
  EXPECT_THAT(status([&](GgufWriter& w) {
                add(w, "w", {1, 1, 1, 1, 1});
              }),
              StatusIs(invalid, "has 5 axes and 1 bytes"));
  EXPECT_THAT(status([&](GgufWriter& w) {
                add(w, "w", {4, 0});
              }),
              StatusIs(invalid, "has 2 axes and 0 bytes"));
  EXPECT_EQ(MappedFile::Open(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_OK(status([&](GgufWriter& w) { add(w, std::string(63, 'w'), {1, 1, 1, 4}); }));
}

}  // namespace
}  // namespace tessera
