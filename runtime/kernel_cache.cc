// The disk cache: entries written beside their place and renamed into it, verified when read.
#include "runtime/kernel_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/status.h"
#include "runtime/child_process.h"
#include "runtime/content_hash.h"

#ifndef TESSERA_JIT_BUILD  // set by cmake/clang_plugin.cmake: a hash of the sources named there
#error "TESSERA_JIT_BUILD is not defined"
#endif

namespace tessera {
namespace {

constexpr char kMagic[8] = {'T', 'E', 'S', 'S', 'K', 'R', 'N', '1'};
constexpr int64_t kMaxEntryBytes = int64_t{1} << 30;
constexpr time_t kStaleSeconds = 3600;  // a writer's file of this age has lost its writer
constexpr time_t kDaySeconds = 24 * 3600;
constexpr char kTempPrefix[] = "tmp-";
constexpr char kEntrySuffix[] = ".kernel";
constexpr char kShrunk[] = "/shrunk";  // an empty file: when the folder was last looked over

// The fixed part of an entry; key and object follow.
struct Header {
  char magic[8];
  uint64_t key_size;
  uint64_t object_size;
  uint64_t checksum_low;  // of key and object
  uint64_t checksum_high;
};
static_assert(sizeof(Header) == 40);

absl::Status SystemError(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("kernel cache: ", path, ": ", std::strerror(errno)));
}

// Makes a folder and what is missing above it, for this user alone.
absl::Status MakeFolders(const std::string& path) {
  for (size_t end = 1; end != std::string::npos;) {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return SystemError(part);
  }
  return absl::OkStatus();
}

// We run what lies in the folder: nobody else may write there.
absl::Status CheckOwner(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return SystemError(path);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "kernel cache: ", path, " is not a folder that only this user can write; name another ",
        "with CACHE_DIR"));
  }
  return absl::OkStatus();
}

void RemoveStaleTemps(const std::string& folder) {
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) return;
  const time_t now = time(nullptr);
  while (const dirent* entry = readdir(dir)) {
    if (!absl::StartsWith(entry->d_name, kTempPrefix)) continue;
    const std::string path = absl::StrCat(folder, "/", entry->d_name);
    struct stat info;
    if (stat(path.c_str(), &info) == 0 && now - info.st_mtime > kStaleSeconds) unlink(path.c_str());
  }
  closedir(dir);
}

// Whether the folder has not been looked over for a day; it counts as looked over from now on.
bool IsDue(const std::string& folder) {
  const std::string path = folder + kShrunk;
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && time(nullptr) - info.st_mtime < kDaySeconds) return false;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool marked = futimens(fd, nullptr) == 0;
  close(fd);
  return marked;
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path);
    bytes.remove_prefix(n);
  }
  return absl::OkStatus();
}

std::string Payload(absl::string_view key, absl::string_view object) {
  return absl::StrCat(key, object);
}

// A folder that is missing where nobody named one is no news.
void ReportOnce(const absl::Status& status) {
  static std::atomic<bool> reported{false};
  const bool asked = IntFlag(Flag::kDebug) >= 1 || !TextFlag(Flag::kCacheDir).empty();
  if (asked && !reported.exchange(true)) {
    std::fprintf(stderr, "tessera: going on without the disk cache: %s\n",
                 std::string(status.message()).c_str());
  }
}

}  // namespace

std::string KernelCacheKey(absl::string_view text, const Target& target,
                           absl::string_view compiler) {
  return absl::StrCat(absl::string_view(kMagic, sizeof(kMagic)), "\nbuild ", TESSERA_JIT_BUILD,
                      "\ncompiler ", compiler, "\ntarget ", target.Key(), "\ntext ", text.size(),
                      "\n", text);
}

KernelCache KernelCache::FromFlags() {
  const std::string root = IntFlag(Flag::kCache) != 0 ? CacheRoot() : "";
  return KernelCache(root.empty() ? "" : absl::StrCat(root, "/kernels"));
}

KernelCache::KernelCache(std::string folder) : folder_(std::move(folder)) {}

std::string KernelCache::Path(absl::string_view key) const {
  return absl::StrCat(folder_, "/", HashBytes(key).Hex(), kEntrySuffix);
}

absl::StatusOr<std::string> KernelCache::Load(absl::string_view key) const {
  if (folder_.empty()) return absl::NotFoundError("kernel cache: off");
  const std::string path = Path(key);
  auto bytes = ReadFile(path, kMaxEntryBytes);
  if (absl::IsNotFound(bytes.status())) return bytes.status();
  const absl::Status owner = bytes.ok() ? CheckOwner(folder_) : bytes.status();
  if (!owner.ok()) {
    ReportOnce(owner);
    return owner;
  }
  Header header;
  if (bytes->size() < sizeof(header)) return absl::DataLossError(absl::StrCat(path, ": cut short"));
  std::memcpy(&header, bytes->data(), sizeof(header));
  const absl::string_view payload = absl::string_view(*bytes).substr(sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.key_size > payload.size() ||
      header.object_size != payload.size() - header.key_size) {
    return absl::DataLossError(absl::StrCat(path, ": not a whole entry"));
  }
  if (HashBytes(payload) != ContentHash{header.checksum_low, header.checksum_high}) {
    return absl::DataLossError(absl::StrCat(path, ": its checksum is wrong"));
  }
  if (payload.substr(0, header.key_size) != key) {
    return absl::DataLossError(absl::StrCat(path, ": an entry of another key"));
  }
  return std::string(payload.substr(header.key_size));
}

absl::Status KernelCache::Prepare() const {
  struct stat info;
  if (stat(folder_.c_str(), &info) != 0) RETURN_IF_ERROR(MakeFolders(folder_));
  RETURN_IF_ERROR(CheckOwner(folder_));
  static std::atomic<bool> swept{false};
  if (!swept.exchange(true)) {
    RemoveStaleTemps(folder_);
    if (IsDue(folder_)) Shrink(kMostBytes);
  }
  return absl::OkStatus();
}

void KernelCache::Shrink(int64_t bytes) const {
  struct Entry {
    time_t read;
    int64_t bytes;
    std::string path;
  };
  std::vector<Entry> entries;
  int64_t all = 0;
  DIR* dir = opendir(folder_.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    if (!absl::EndsWith(entry->d_name, kEntrySuffix)) continue;
    std::string path = absl::StrCat(folder_, "/", entry->d_name);
    struct stat info;
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    all += info.st_size;
    // Where reading is not noted (noatime) it is when it was written.
    entries.push_back({std::max(info.st_atime, info.st_mtime), info.st_size, std::move(path)});
  }
  closedir(dir);
  if (all <= bytes) return;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.read < b.read; });
  for (const Entry& e : entries) {
    if (all <= bytes) return;
    if (unlink(e.path.c_str()) == 0) all -= e.bytes;
  }
}

absl::Status KernelCache::Store(absl::string_view key, absl::string_view object) const {
  if (folder_.empty()) return absl::OkStatus();
  auto store = [&]() -> absl::Status {
    RETURN_IF_ERROR(Prepare());
    const std::string payload = Payload(key, object);
    const ContentHash checksum = HashBytes(payload);
    Header header = {{}, key.size(), object.size(), checksum.low, checksum.high};
    std::memcpy(header.magic, kMagic, sizeof(kMagic));
    std::string temp = absl::StrCat(folder_, "/", kTempPrefix, getpid(), "-XXXXXX");
    const int fd = mkostemp(temp.data(), O_CLOEXEC);
    if (fd < 0) return SystemError(temp);
    absl::Status status = WriteAll(
        fd, absl::string_view(reinterpret_cast<const char*>(&header), sizeof(header)), temp);
    if (status.ok()) status = WriteAll(fd, payload, temp);
    if (close(fd) != 0 && status.ok()) status = SystemError(temp);
    if (status.ok() && rename(temp.c_str(), Path(key).c_str()) != 0) status = SystemError(temp);
    if (!status.ok()) unlink(temp.c_str());
    return status;
  };
  const absl::Status status = store();
  if (!status.ok()) ReportOnce(status);
  return status;
}

}  // namespace tessera
