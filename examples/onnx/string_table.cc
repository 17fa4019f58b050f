// The table of strings.
#include "examples/onnx/string_table.h"

#include <deque>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "graph/error.h"

namespace tessera::onnx {
namespace {

struct Table {
  std::mutex mutex;
  std::deque<std::string> texts = {""};  // which do not move
  absl::flat_hash_map<absl::string_view, uint64_t> numbers = {{"", 0}};
};
// Leaked: tensors may outlive what is static.
Table& GetTable() {
  static auto* const table = new Table;
  return *table;
}

}  // namespace

uint64_t NumberOf(absl::string_view text) {
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  const auto it = table.numbers.find(text);
  if (it != table.numbers.end()) return it->second;
  const std::string& kept = table.texts.emplace_back(text);
  return table.numbers[kept] = table.texts.size() - 1;
}

absl::string_view StringOf(uint64_t number) {
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  if (number >= table.texts.size()) {
    throw Error(absl::InvalidArgumentError("STRING: elements were computed with, not moved"));
  }
  return table.texts[number];
}

}  // namespace tessera::onnx
