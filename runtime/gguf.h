// GGUF files, versions 2 and 3: metadata by key, and tensors in the mapping.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/weight_file.h"

namespace tessera {

// Bytes of a key and of a tensor's name, and axes: no file has more.
inline constexpr uint64_t kMostGgufKey = 65535, kMostGgufName = 63;
inline constexpr uint32_t kMostGgufRank = 4;

enum class GgufType : uint8_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
const char* NameOf(GgufType type);

// An array of numbers stays bytes of the file; strings are views into it.
struct GgufArray {
  GgufType element = GgufType::kU8;
  uint64_t count = 0;
  absl::string_view bytes;                 // of numbers and bools
  std::vector<absl::string_view> strings;  // of strings
  // Element i, which must be below count, of an array of numbers or bools. An Int that 64 bits with
  // a sign do not hold, or NaN, is -1.
  double Number(uint64_t i) const;
  int64_t Int(uint64_t i) const;
};

struct GgufValue {
  GgufType type = GgufType::kU8;
  std::variant<uint64_t, int64_t, double, bool, absl::string_view, GgufArray> value;
};

// Metadata by key. What is absent gives nullopt or null; what has another type is an error that
// names file and key.
class GgufMetadata {
 public:
  const std::string& file() const { return file_; }
  const GgufValue* Find(absl::string_view key) const;
  absl::StatusOr<std::optional<int64_t>> Int(absl::string_view key) const;
  absl::StatusOr<std::optional<double>> Number(absl::string_view key) const;
  absl::StatusOr<std::optional<bool>> Bool(absl::string_view key) const;
  absl::StatusOr<std::optional<absl::string_view>> String(absl::string_view key) const;
  absl::StatusOr<const GgufArray*> Strings(absl::string_view key) const;
  absl::StatusOr<const GgufArray*> Numbers(absl::string_view key) const;
  // In the order of the file.
  const std::vector<std::pair<std::string, GgufValue>>& all() const { return values_; }

 private:
  friend struct GgufParser;
  absl::Status WrongType(absl::string_view key, const GgufValue& v, const char* wanted) const;
  std::string file_;
  std::vector<std::pair<std::string, GgufValue>> values_;
  absl::flat_hash_map<std::string, size_t> index_;
};

struct Gguf {
  GgufMetadata metadata;
  WeightSet weights;
  std::vector<std::shared_ptr<const MappedFile>> files;  // what metadata and weights point into
};

// The parts of one file's bytes; `file` is put into the weights and may be null in tests.
absl::StatusOr<Gguf> ParseGguf(absl::string_view bytes, const std::string& name,
                               std::shared_ptr<const MappedFile> file);

// Maps and parses a file, and where it is the first of a split set (name-00001-of-00003.gguf)
// the others too. All sizes are checked before anything points into the mapping.
absl::StatusOr<Gguf> OpenGguf(const std::string& path);

}  // namespace tessera
