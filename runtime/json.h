// JSON as a view of its text: checked once as a whole, then read without building a tree.
//
// Parse accepts exactly RFC 8259 in UTF-8, nested at most 64 deep, and no key twice in an object.
// It allocates four bytes a key. A Json is a view: the text must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

class Json {
 public:
  enum class Type { kNull, kBool, kNumber, kString, kArray, kObject };

  // An error names `name` and the byte.
  static absl::StatusOr<Json> Parse(absl::string_view text, const std::string& name);

  Type type() const;
  bool is(Type t) const { return type() == t; }
  absl::string_view text() const { return text_; }

  // nullopt where the value has another type, or is an integer that does not fit.
  std::optional<bool> Bool() const;
  std::optional<int64_t> Int() const;  // of a number written without fraction or exponent
  std::optional<double> Number() const;
  std::optional<std::string> String() const;

  // The value of a key of an object. A pass over the object: iterate where many are wanted.
  std::optional<Json> Find(absl::string_view key) const;

  // The members of an object, or the elements of an array with empty keys:
  //   for (JsonItem i : value.Items()) Use(i.key(), i.value());
  class Iterator;
  struct Range;
  Range Items() const;

 private:
  explicit Json(absl::string_view text) : text_(text) {}
  absl::string_view text_;  // the value alone, without space around it
};

class JsonItem {
 public:
  JsonItem(absl::string_view key, Json value) : key_(key), value_(value) {}
  std::string key() const;
  const Json& value() const { return value_; }

 private:
  absl::string_view key_;  // as in the text, with quotes
  Json value_;
};

class Json::Iterator {
 public:
  Iterator(absl::string_view rest, bool object) : rest_(rest), object_(object) {}
  JsonItem operator*() const;
  Iterator& operator++();
  bool operator!=(const Iterator& o) const { return rest_.size() != o.rest_.size(); }

 private:
  absl::string_view rest_;  // from the item on; empty at the end
  bool object_;
};
struct Json::Range {
  Iterator first, last;
  Iterator begin() const { return first; }
  Iterator end() const { return last; }
};

}  // namespace tessera
