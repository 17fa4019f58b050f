// Where a tensor lives: one place, or a Sharding over several. Both are interned immutable values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/layout.h"
#include "graph/mesh.h"
#include "graph/ops.h"

namespace tessera {

// What a dim of a mesh does to a tensor.
struct Placement {
  enum class Kind : uint8_t {
    kReplicate,  // every place has all of it
    kShard,      // the places have adjacent pieces of an axis
    kPartial,    // the value is the places' values combined by an op
    kManual,     // every place has a value of its own, and the shape is that of one
  };
  Kind kind = Kind::kReplicate;
  int axis = -1;     // of kShard
  Layout layout;     // of kShard
  Op op = Op::kAdd;  // of kPartial; kWhere where one place has each element, the others zero
  static Placement Replicate() { return {}; }
  static Placement Shard(int axis, Layout layout = {}) {
    return {Kind::kShard, axis, std::move(layout)};
  }
  static Placement Partial(Op op) { return {Kind::kPartial, -1, {}, op}; }
  static Placement Manual() { return {Kind::kManual, -1, {}}; }
  bool is(Kind k) const { return kind == k; }
  bool ShardsAxis(int a) const { return kind == Kind::kShard && axis == a; }
  std::string ToString() const;  // "R", "S0", "S1:aligned(4)", "P:ADD", "M"
  static absl::StatusOr<Placement> Parse(absl::string_view text);

  friend bool operator==(const Placement& a, const Placement& b) = default;
  friend bool operator<(const Placement& a, const Placement& b);  // which one sorts first
  template <typename H>
  friend H AbslHashValue(H h, const Placement& p) {
    return H::combine(std::move(h), p.kind, p.axis, p.layout, p.op);
  }
};

class Device;
struct DeviceData;

// A mesh and a placement for each of its dims. What cannot be one throws tessera::Error.
class Sharding {
 public:
  // Over a line of places: pieces of an axis, or the whole on each.
  explicit Sharding(PlaceList places, std::optional<int> axis = std::nullopt, Layout layout = {});
  Sharding(const Mesh& mesh, std::vector<Placement> placements);
  explicit Sharding(const Mesh& mesh);  // replicated

  const Mesh& mesh() const;
  const std::vector<Placement>& placements() const;
  const Placement& operator()(int dim) const;  // of a dim of the mesh
  int size() const { return mesh().size(); }
  const Place& operator[](int i) const;
  auto begin() const { return mesh().places().begin(); }
  auto end() const { return mesh().places().end(); }
  const std::vector<Place>& devices() const { return mesh().places(); }
  std::optional<int> axis() const;  // the one axis that is sharded, if it is one

  bool Has(Placement::Kind kind) const;
  // The mesh dims that shard an axis, in mesh order, and their layouts.
  std::vector<int> DimsOf(int axis) const;
  Nest NestOf(int axis) const;
  // The same mesh with other placements.
  Sharding With(std::vector<Placement> placements) const { return {mesh(), std::move(placements)}; }
  Sharding AllManual() const;
  std::string ToString() const;  // "CPU:0-1{S0}", "CPU:0-3[dp=2,tp=2]{S0,S1:aligned(4)}"

  friend bool operator==(const Sharding& a, const Sharding& b) { return a.data_ == b.data_; }
  template <typename H>
  friend H AbslHashValue(H h, const Sharding& s) {
    return H::combine(std::move(h), s.data_);
  }

 private:
  friend class Device;
  explicit Sharding(const DeviceData* data) : data_(data) {}
  const DeviceData* data_;
};

// A place, a Sharding, or nothing (constants and what is made of them). One pointer; equal values
// are the same pointer.
class Device {
 public:
  Device() = default;
  Device(const Place& place);
  Device(const Sharding& sharding) : data_(sharding.data_) {}
  Device(const char* text);  // a place; text that is none throws tessera::Error
  Device(const std::string& text) : Device(text.c_str()) {}
  static absl::StatusOr<Device> Parse(absl::string_view text);  // "CPU:1", "CPU:0-1{S0}", "none"

  explicit operator bool() const { return data_ != nullptr; }
  inline bool is_sharding() const;
  inline bool is_manual() const;  // a Sharding of which every place has a value of its own
  const Place& place() const;     // of a device that is one place
  Sharding sharding() const;      // of one that is not
  // Its places: one, or those of the mesh.
  absl::Span<const Place> places() const;
  std::string ToString() const;
  uint64_t id() const { return reinterpret_cast<uintptr_t>(data_); }  // of this process

  friend bool operator==(Device a, Device b) { return a.data_ == b.data_; }
  template <typename H>
  friend H AbslHashValue(H h, Device d) {
    return H::combine(std::move(h), d.data_);
  }

 private:
  const DeviceData* data_ = nullptr;
};

// What the handles point to.
struct DeviceData {
  bool is_sharding = false;
  bool is_manual = false;  // on every mesh dim
  Place place;
  std::optional<Mesh> mesh;
  std::vector<Placement> placements;
};

inline bool Device::is_manual() const { return data_ != nullptr && data_->is_manual; }
inline bool Device::is_sharding() const { return data_ != nullptr && data_->is_sharding; }

}  // namespace tessera
