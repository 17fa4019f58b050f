// Places, and meshes of them: n-dimensional grids whose dims have sizes and names.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

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

// Places as they are written: {"CPU:0", "CPU:1"}, or a vector. Text that is none throws Error.
struct PlaceList {
  std::vector<Place> places;
  PlaceList(std::initializer_list<const char*> texts);
  PlaceList(std::vector<Place> places) : places(std::move(places)) {}
  PlaceList(const std::vector<std::string>& texts);
};

struct MeshDim {
  int64_t size = 1;
  std::string name = {};  // may be empty
  friend bool operator==(const MeshDim&, const MeshDim&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const MeshDim& d) {
    return H::combine(std::move(h), d.size, d.name);
  }
};

// Distinct places of one kind in row-major order over the dims. An interned immutable value. What
// cannot be a mesh throws tessera::Error.
class Mesh {
 public:
  struct Data;
  // A line of places; a grid; a tree of places whose nodes at one depth have as many children each,
  // as {{"CPU:1", "CPU:3"}, {"CPU:2", "CPU:4"}}: a dim for each depth.
  explicit Mesh(PlaceList places, const char* name = "");
  Mesh(PlaceList places, std::vector<MeshDim> dims);
  struct Tree {
    Place leaf;
    std::vector<Tree> children;
    Tree(const char* place);
    Tree(std::initializer_list<Tree> children) : children(children) {}
  };
  static Mesh OfTree(const Tree& tree, const std::vector<std::string>& names = {});

  int ndim() const { return static_cast<int>(dims().size()); }
  int size() const { return static_cast<int>(places().size()); }
  const std::vector<Place>& places() const;
  const std::vector<MeshDim>& dims() const;
  int dim(absl::string_view name) const;  // by name; an Error where there is none
  std::string DimName(int d) const;       // its name, or its number
  int IndexOf(const Place& place) const;  // -1 where it is no member
  std::vector<int64_t> Coordinates(int index) const;
  int IndexAt(absl::Span<const int64_t> coordinates) const;
  // The places before and after one along a dim; -1 at the edge.
  std::pair<int, int> Neighbours(int index, int dim) const;
  // The members that differ in these dims only, each group in order, the groups by their first.
  std::vector<std::vector<int>> Groups(absl::Span<const int> over) const;
  // The same as coordinates along some dims, row-major over them.
  int64_t CoordinateOver(int index, absl::Span<const int> over) const;

  Mesh Select(const std::vector<Place>& places) const;  // a line of some members
  Mesh Slice(int dim, int64_t position) const;          // without that dim
  Mesh Reshape(std::vector<MeshDim> dims) const;        // the same places in order
  friend Mesh operator|(const Mesh& a, const Mesh& b);  // a line: a's places, then b's others

  bool SamePlaces(const Mesh& other) const;  // in any order
  std::string ToString() const;              // "CPU:0-3", "CPU:0,2[dp=2]", "CPU:0-3[dp=2,2]"
  static absl::StatusOr<Mesh> Parse(absl::string_view text);

  friend bool operator==(const Mesh& a, const Mesh& b) { return a.data_ == b.data_; }
  template <typename H>
  friend H AbslHashValue(H h, const Mesh& m) {
    return H::combine(std::move(h), m.data_);
  }

 private:
  explicit Mesh(const Data* data) : data_(data) {}
  static absl::StatusOr<Mesh> Make(std::vector<Place> places, std::vector<MeshDim> dims);
  const Data* data_;
};

}  // namespace tessera
