// Writing GGUF files: metadata and tensors in the order given, version 3.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "runtime/weight_file.h"

namespace tessera {

class GgufWriter {
 public:
  void Set(const std::string& key, const std::string& value);
  void Set(const std::string& key, const char* value) { Set(key, std::string(value)); }
  void Set(const std::string& key, uint32_t value);
  void Set(const std::string& key, float value);
  void Set(const std::string& key, bool value);
  void Set(const std::string& key, const std::vector<std::string>& value);
  void Set(const std::string& key, const std::vector<float>& value);
  void Set(const std::string& key, const std::vector<int32_t>& value);

  // A key or a name that is there already, or that no file may have, is an error of Write.
  //
  // Fills `size` bytes when the file is written, so that large models need no memory.
  using Fill = std::function<void(char* bytes, int64_t size)>;
  // A row-major shape, none of whose extents is 0; CHECKs that it is made of whole blocks.
  void Add(const std::string& name, WeightFormat format, const std::vector<int64_t>& shape,
           Fill fill);
  void Add(const std::string& name, WeightFormat format, const std::vector<int64_t>& shape,
           const std::string& bytes);

  std::string Bytes() const;  // the whole file
  // To a file beside, which then takes its place: who reads the one before it goes on.
  absl::Status Write(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    WeightFormat format;
    std::vector<int64_t> shape;
    int64_t bytes;
    Fill fill;
  };
  // Keeps the first trouble there is.
  void Check(absl::string_view what, const std::string& name, uint64_t most,
             absl::flat_hash_set<std::string>* known);
  void Value(const std::string& key, uint32_t type, const std::string& bytes);
  void Emit(const std::function<void(const std::string&)>& out) const;

  std::string values_;
  uint64_t count_ = 0;
  absl::flat_hash_set<std::string> keys_, names_;
  absl::Status wrong_;
  std::vector<Tensor> tensors_;
};

}  // namespace tessera
