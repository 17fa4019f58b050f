// A whole file mapped into memory to be read, and a reader of bytes that cannot leave them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/status.h"

namespace tessera {

// The bytes of a file for as long as the object lives. A file that is cut short by another process
// while it is mapped kills the reader (SIGBUS), as it does every program that maps files.
class MappedFile {
 public:
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  absl::string_view bytes() const { return {data_, size_}; }
  // Brings `size` bytes from `begin` on into memory, as far as the file has them, so that what
  // reads them next does not wait page by page. Nothing is lost where that fails.
  void Populate(uint64_t begin, uint64_t size) const;

 private:
  MappedFile(std::string path, const char* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const char* data_;
  size_t size_;
};

// Reads little-endian values one after another. Errors name the file, what was read and the byte.
class ByteReader {
 public:
  ByteReader(absl::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  template <typename T>
  absl::StatusOr<T> Read(absl::string_view what) {
    if (remaining() < sizeof(T)) return Ends(what, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }
  absl::StatusOr<absl::string_view> Bytes(uint64_t count, absl::string_view what) {
    if (remaining() < count) return Ends(what, count);
    const absl::string_view out = bytes_.substr(offset_, count);
    offset_ += count;
    return out;
  }
  // "NAME: byte OFFSET: parts".
  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::DataLossError(absl::StrCat(name_, ": byte ", offset_, ": ", parts...));
  }

 private:
  absl::Status Ends(absl::string_view what, uint64_t count) const {
    return Error(what, " takes ", count, " bytes, and the file ends after ", remaining());
  }
  absl::string_view bytes_;
  std::string name_;
  uint64_t offset_ = 0;
};

// Arithmetic on sizes from files: false where the result does not fit.
inline bool CheckedMul(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}
inline bool CheckedAdd(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}

// Where the bytes stop being UTF-8 (overlong forms and surrogates are none), or their size.
size_t ValidUtf8Prefix(absl::string_view bytes);

// Bytes of a file as they may be shown in a message: at most 64, what is not printable as \xNN.
std::string ShowName(absl::string_view name);

}  // namespace tessera
