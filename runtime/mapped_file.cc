// Mapping files, and what messages about their bytes need.
#include "runtime/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_format.h"

namespace tessera {

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // A pipe would wait for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  struct stat info;
  const bool known = fstat(fd, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(
        path, known && S_ISDIR(info.st_mode) ? ": is a folder, not a file" : ": is not a file"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": cannot map ", size, " bytes: ", std::strerror(error)));
  }
#ifdef MADV_HUGEPAGE
  // Where the file system can, what is read from disk from now on goes to large pages: weights are
  // then read up to half again as fast, and the mapping has hardly any page faults.
  constexpr size_t kLargePage = 2 << 20;
  if (size >= kLargePage) static_cast<void>(madvise(data, size, MADV_HUGEPAGE));
#endif
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const char*>(data), size));
}

MappedFile::~MappedFile() {
  if (size_ > 0) munmap(const_cast<char*>(data_), size_);
}

void MappedFile::Populate(uint64_t begin, uint64_t size) const {
  if (begin >= size_ || size == 0) return;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t end = begin + std::min<uint64_t>(size, size_ - begin);
  begin -= begin % page;
#ifdef MADV_POPULATE_READ
  const int failed = madvise(const_cast<char*>(data_ + begin), end - begin, MADV_POPULATE_READ);
  if (failed == 0 || errno != EINVAL) return;
#endif
  // Kernels before Linux 5.14 do not know it.
  for (uint64_t at = begin; at < end; at += page) {
    static_cast<void>(*static_cast<const volatile char*>(data_ + at));
  }
}

size_t ValidUtf8Prefix(absl::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  size_t i = 0;
  while (i < bytes.size()) {
    const uint8_t b = at(i);
    const size_t n = b < 0x80 ? 1 : b >= 0xC2 && b < 0xE0 ? 2 : b >= 0xE0 && b < 0xF0 ? 3 : 4;
    if (n == 4 && (b < 0xF0 || b > 0xF4)) return i;
    if (i + n > bytes.size()) return i;
    for (size_t k = 1; k < n; ++k) {
      if (at(i + k) >> 6 != 2) return i;
    }
    if (n >= 3) {  // the second byte rules out overlong forms, surrogates and what is too large
      const uint8_t c = at(i + 1);
      if ((b == 0xE0 && c < 0xA0) || (b == 0xED && c > 0x9F) || (b == 0xF0 && c < 0x90) ||
          (b == 0xF4 && c > 0x8F)) {
        return i;
      }
    }
    i += n;
  }
  return i;
}

std::string ShowName(absl::string_view name) {
  std::string out = "'";
  for (char c : name.substr(0, 64)) {
    if (c >= 0x20 && c < 0x7F) {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(c));
    }
  }
  return out + (name.size() > 64 ? "...'" : "'");
}

}  // namespace tessera
