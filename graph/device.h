// Where a tensor lives: one place, or a Sharding over several. Both are interned immutable values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// One device: a kind and an index, "CPU" (the same as "CPU:0"), "CPU:3", "CUDA:0", "NULL".
class Place {
 public:
  Place() = default;
  Place(std::string kind, int index) : kind_(std::move(kind)), index_(index) {}
  static absl::StatusOr<Place> Parse(absl::string_view text);

  const std::string& kind() const { return kind_; }
  int index() const { return index_; }
  std::string ToString() const;  // "CPU" for index 0, else "CPU:3"

  friend bool operator==(const Place& a, const Place& b) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Place& p) {
    return H::combine(std::move(h), p.kind_, p.index_);
  }

 private:
  std::string kind_;
  int index_ = 0;
};

// A tensor spread over places along an axis, or held whole by each of them. The text of a place
// that cannot be parsed throws tessera::Error where a Sharding is built from text.
class Sharding {
 public:
  Sharding(std::vector<Place> places, std::optional<int> axis = std::nullopt)
      : places_(std::move(places)), axis_(axis) {}
  Sharding(const std::vector<std::string>& places, std::optional<int> axis = std::nullopt);

  int size() const { return static_cast<int>(places_.size()); }
  const Place& operator[](int i) const { return places_[i]; }
  auto begin() const { return places_.begin(); }
  auto end() const { return places_.end(); }
  const std::vector<Place>& devices() const { return places_; }
  std::optional<int> axis() const { return axis_; }
  std::string ToString() const;

  friend bool operator==(const Sharding& a, const Sharding& b) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Sharding& s) {
    return H::combine(std::move(h), s.places_, s.axis_.value_or(-1));
  }

 private:
  std::vector<Place> places_;
  std::optional<int> axis_;
};

// A place, a Sharding, or nothing (constants and what is made of them). One pointer; equal values
// are the same pointer.
class Device {
 public:
  struct Data;
  Device() = default;
  Device(const Place& place);
  Device(const Sharding& sharding);
  Device(const char* text);  // a place; text that is none throws tessera::Error
  Device(const std::string& text) : Device(text.c_str()) {}
  static absl::StatusOr<Device> Parse(absl::string_view text);  // a place, "{CPU,CPU:1}@0", "none"

  explicit operator bool() const { return data_ != nullptr; }
  bool is_sharding() const;
  const Place& place() const;        // of a device that is one place
  const Sharding& sharding() const;  // of one that is not
  std::string ToString() const;

  friend bool operator==(Device a, Device b) { return a.data_ == b.data_; }
  template <typename H>
  friend H AbslHashValue(H h, Device d) {
    return H::combine(std::move(h), d.data_);
  }

 private:
  explicit Device(const Data* data) : data_(data) {}
  const Data* data_ = nullptr;
};

}  // namespace tessera
