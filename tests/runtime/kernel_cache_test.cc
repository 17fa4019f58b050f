// The disk cache: entries survive, change with every part of their key, and never come back broken.
#include "runtime/kernel_cache.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "graph/flags.h"
#include "runtime/content_hash.h"
#include "runtime/host_target.h"
#include "tests/testing.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class KernelCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = fs::temp_directory_path() / "tessera-cache-XXXXXX";
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    root_ = path;
    folder_ = root_ + "/a/b/kernels";
  }
  void TearDown() override {
    fs::permissions(root_, fs::perms::owner_all);
    fs::remove_all(root_);
  }
  int Files() const {
    int n = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      n += entry.is_regular_file() && entry.path().filename() != "shrunk";
    }
    return n;
  }

  std::string root_, folder_;
  SetFlagForTest unnamed_{Flag::kCacheDir, ""};
};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST_F(KernelCacheTest, MissThenHit) {
  const KernelCache cache(folder_);
  EXPECT_THAT(cache.Load("key"), StatusIs(absl::StatusCode::kNotFound, ""));
  const std::string object("bytes\0with zeros", 16);
  ASSERT_OK(cache.Store("key", object));
  EXPECT_THAT(cache.Load("key"), IsOkAndHolds(object));
  EXPECT_THAT(KernelCache(folder_).Load("key"), IsOkAndHolds(object));
  EXPECT_THAT(cache.Load("other"), StatusIs(absl::StatusCode::kNotFound, ""));
  ASSERT_OK(cache.Store("key", "newer"));
  EXPECT_THAT(cache.Load("key"), IsOkAndHolds(std::string("newer")));
  EXPECT_EQ(Files(), 1);
}

TEST_F(KernelCacheTest, EmptyKeyAndObject) {
  const KernelCache cache(folder_);
  ASSERT_OK(cache.Store("", ""));
  EXPECT_THAT(cache.Load(""), IsOkAndHolds(std::string()));
}

TEST_F(KernelCacheTest, EachPartOfTheKeyCounts) {
  const Target host = HostTarget();
  const std::string key = KernelCacheKey("text", host, "compiler 1");
  EXPECT_EQ(key, KernelCacheKey("text", host, "compiler 1"));
  EXPECT_NE(key, KernelCacheKey("texu", host, "compiler 1"));
  EXPECT_NE(key, KernelCacheKey("text", host, "compiler 2"));
  auto with = [&](auto change) {
    Target target = host;
    change(target);
    return KernelCacheKey("text", target, "compiler 1");
  };
  EXPECT_NE(key, with([](Target& t) { t.arch += "x"; }));
  EXPECT_NE(key, with([](Target& t) { t.features += ",-avx2"; }));
  EXPECT_NE(key, with([](Target& t) { t.vector_bytes *= 2; }));
  EXPECT_NE(key, with([](Target& t) { t.dialect = Dialect::kCuda; }));
  // The build of the code that makes and loads entries.
  EXPECT_NE(key.find("\nbuild "), std::string::npos);
}

TEST_F(KernelCacheTest, EveryTruncationIsDataLoss) {
  const KernelCache cache(folder_);
  ASSERT_OK(cache.Store("key", "the object"));
  const std::string path = cache.Path("key");
  const std::string whole = ReadAll(path);
  for (size_t n = 0; n < whole.size(); ++n) {
    WriteAll(path, whole.substr(0, n));
    EXPECT_THAT(cache.Load("key"), StatusIs(absl::StatusCode::kDataLoss, "")) << n;
  }
  WriteAll(path, whole + "x");
  EXPECT_THAT(cache.Load("key"), StatusIs(absl::StatusCode::kDataLoss, ""));
  WriteAll(path, whole);
  EXPECT_OK(cache.Load("key"));
}

TEST_F(KernelCacheTest, EveryFlippedBitIsDataLoss) {
  const KernelCache cache(folder_);
  ASSERT_OK(cache.Store("key", "the object"));
  const std::string path = cache.Path("key");
  const std::string whole = ReadAll(path);
  for (size_t i = 0; i < 8 * whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i / 8] ^= static_cast<char>(1 << i % 8);
    WriteAll(path, bytes);
    EXPECT_THAT(cache.Load("key"), StatusIs(absl::StatusCode::kDataLoss, "")) << i;
  }
  ASSERT_OK(cache.Store("key", "again"));  // replaced
  EXPECT_THAT(cache.Load("key"), IsOkAndHolds(std::string("again")));
}

// A whole entry of one key under the name of another, as a hash collision would leave it.
TEST_F(KernelCacheTest, EntryOfAnotherKeyIsDataLoss) {
  const KernelCache cache(folder_);
  ASSERT_OK(cache.Store("key", "object"));
  fs::copy_file(cache.Path("key"), cache.Path("kez"));
  EXPECT_THAT(cache.Load("kez"), StatusIs(absl::StatusCode::kDataLoss, "another key"));
}

TEST_F(KernelCacheTest, NoFolderNoCache) {
  const KernelCache cache("");
  EXPECT_OK(cache.Store("key", "object"));
  EXPECT_THAT(cache.Load("key"), StatusIs(absl::StatusCode::kNotFound, ""));
}

TEST_F(KernelCacheTest, FlagsChooseTheFolder) {
  SetFlagForTest dir(Flag::kCacheDir, root_);
  EXPECT_THAT(KernelCache::FromFlags().Path("key"), ::testing::StartsWith(root_ + "/kernels/"));
  SetFlagForTest off(Flag::kCache, "0");
  ASSERT_OK(KernelCache::FromFlags().Store("key", "object"));
  EXPECT_FALSE(fs::exists(root_ + "/kernels"));
}

// A path through a file can never be made, whoever asks (root ignores permission bits).
TEST_F(KernelCacheTest, FolderThatCannotBeMade) {
  SetFlagForTest quiet(Flag::kDebug, "0"), unnamed(Flag::kCacheDir, "");  // that is told only once
  WriteAll(root_ + "/file", "");
  const KernelCache cache(root_ + "/file/kernels");
  EXPECT_THAT(cache.Store("key", "object"), StatusIs(absl::StatusCode::kUnavailable, "file"));
  EXPECT_FALSE(cache.Load("key").ok());
  const KernelCache nowhere("/proc/no-such/kernels");
  EXPECT_FALSE(nowhere.Store("key", "object").ok());
}

TEST_F(KernelCacheTest, TroubleIsReportedOnceAndOnlyWhenAsked) {
  const KernelCache nowhere("/proc/no-such/kernels");
  testing::internal::CaptureStderr();
  {
    SetFlagForTest quiet(Flag::kDebug, "0"), unnamed(Flag::kCacheDir, "");
    EXPECT_FALSE(nowhere.Store("key", "object").ok());
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  SetFlagForTest quiet(Flag::kDebug, "0"), named(Flag::kCacheDir, "/proc/no-such");
  EXPECT_FALSE(nowhere.Store("key", "object").ok());
  EXPECT_FALSE(nowhere.Store("key", "object").ok());
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("without the disk cache"), text.rfind("without the disk cache"));
  EXPECT_NE(text.find("/proc/no-such"), std::string::npos);
}

TEST_F(KernelCacheTest, ReadOnlyFolder) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  const KernelCache cache(folder_);
  ASSERT_OK(cache.Store("key", "object"));
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_FALSE(cache.Store("other", "object").ok());
  EXPECT_OK(cache.Load("key"));
  fs::permissions(folder_, fs::perms::owner_all);
}

// What others can write is not run.
TEST_F(KernelCacheTest, FolderOthersCanWriteIsRefused) {
  const KernelCache cache(folder_);
  ASSERT_OK(cache.Store("key", "object"));
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_THAT(cache.Load("key"), StatusIs(absl::StatusCode::kPermissionDenied, "CACHE_DIR"));
  EXPECT_THAT(cache.Store("key", "x"), StatusIs(absl::StatusCode::kPermissionDenied, ""));
  ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
  EXPECT_THAT(cache.Load("key"), IsOkAndHolds(std::string("object")));
}

// A folder in place of the entry.
TEST_F(KernelCacheTest, EntryThatIsNoFile) {
  const KernelCache cache(folder_);
  fs::create_directories(cache.Path("key"));
  EXPECT_FALSE(cache.Load("key").ok());
  EXPECT_FALSE(cache.Store("key", "object").ok());
  EXPECT_EQ(Files(), 0);  // the temporary file is gone
}

TEST_F(KernelCacheTest, FullDiskIsAnErrorAndLeavesNothing) {
  const KernelCache cache(folder_);
  ASSERT_OK(cache.Store("key", "object"));
  const pid_t child = fork();  // limits of its own
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1 << 16, 1 << 16};
    setrlimit(RLIMIT_FSIZE, &limit);
    const bool failed = !cache.Store("large", std::string(1 << 20, 'x')).ok();
    _exit(failed && Files() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(KernelCacheTest, ShrinksByWhatWasReadLongestAgo) {
  const KernelCache cache(folder_);
  const std::string object(1000, 'x');
  const auto name = [](int i) { return absl::StrCat("key ", i); };
  const auto set_read = [&](int i, time_t when) {
    const timespec times[2] = {{when, 0}, {1'000'000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, cache.Path(name(i)).c_str(), times, 0), 0);
  };
  for (int i = 0; i < 8; ++i) ASSERT_OK(cache.Store(name(i), object));
  WriteAll(folder_ + "/notes.txt", object);
  cache.Shrink(100'000);  // more than there is
  EXPECT_OK(cache.Load(name(0)));
  for (int i = 0; i < 8; ++i) set_read(i, 1'000'000 + i * 5 % 8 * 100);
  cache.Shrink(3500);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(cache.Load(name(i)).ok(), i * 5 % 8 >= 5) << i;
  }
  cache.Shrink(0);
  EXPECT_THAT(cache.Load(name(3)), StatusIs(absl::StatusCode::kNotFound, ""));
  EXPECT_EQ(ReadAll(folder_ + "/notes.txt"), object);
}

// Writers killed at any moment: what is found is always whole.
TEST_F(KernelCacheTest, WritersDieMidWrite) {
  const KernelCache cache(folder_);
  auto object = [](int i) { return std::string(1 << 18, static_cast<char>('a' + i % 16)); };
  std::mt19937 random(7);
  std::vector<pid_t> children;
  for (int i = 0; i < 32; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (int k = 0; k < 4; ++k) {
        if (!cache.Store(absl::StrCat("key ", k % 4), object(k % 4)).ok()) _exit(1);
      }
      if (i % 2 != 0) _exit(0);
      for (int k = 0;; ++k) (void)cache.Store(absl::StrCat("key ", k % 4), object(k % 4));
    }
    ASSERT_GT(child, 0);
    children.push_back(child);
  }
  int good = 0;
  for (int i = 0; i < 32; ++i) {
    if (i % 2 == 0) {
      usleep(random() % 5000);
      kill(children[i], SIGKILL);
    }
    for (int k = 0; k < 4; ++k) {  // while others write
      const auto found = cache.Load(absl::StrCat("key ", k));
      if (absl::IsNotFound(found.status())) continue;
      ASSERT_OK(found);
      ASSERT_EQ(*found, object(k));
      ++good;
    }
  }
  for (int i = 0; i < 32; ++i) {
    int status = -1;
    ASSERT_EQ(waitpid(children[i], &status, 0), children[i]);
    EXPECT_TRUE(status == 0 || i % 2 == 0) << i;
  }
  EXPECT_GT(good, 0);
  for (int k = 0; k < 4; ++k)
    EXPECT_THAT(cache.Load(absl::StrCat("key ", k)), IsOkAndHolds(object(k)));
}

// The vectors that the authors of SipHash publish for the 128-bit form.
TEST(ContentHash, PublishedVectors) {
  auto bytes_of = [](const ContentHash& hash) {
    std::string hex;
    for (uint64_t word : {hash.low, hash.high}) {
      for (int i = 0; i < 8; ++i)
        absl::StrAppend(&hex, absl::Hex(word >> 8 * i & 0xff, absl::kZeroPad2));
    }
    return hex;
  };
  std::string input;
  EXPECT_EQ(bytes_of(HashBytes(input)), "a3817f04ba25a8e66df67214c7550293");
  input += '\0';
  EXPECT_EQ(bytes_of(HashBytes(input)), "da87c1d86b99af44347659119b22fc45");
  for (char c = 1; c < 15; ++c) input += c;
  EXPECT_EQ(bytes_of(HashBytes(input)), "5493e99933b0a8117e08ec0f97cfc3d9");
}

}  // namespace
}  // namespace tessera
