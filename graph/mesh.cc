// Places and meshes, and the table that interns meshes.
#include "graph/mesh.h"

#include <algorithm>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/error.h"
#include "graph/status.h"

namespace tessera {

struct Mesh::Data {
  std::vector<Place> places;
  std::vector<MeshDim> dims;
  absl::flat_hash_map<Place, int> index;  // follows from the places
  friend bool operator==(const Data& a, const Data& b) {
    return a.places == b.places && a.dims == b.dims;
  }
  template <typename H>
  friend H AbslHashValue(H h, const Data& d) {
    return H::combine(std::move(h), d.places, d.dims);
  }
};

absl::StatusOr<Place> Place::Parse(absl::string_view text) {
  absl::string_view kind = text;
  int index = 0;
  if (size_t colon = text.find(':'); colon != absl::string_view::npos) {
    kind = text.substr(0, colon);
    if (!absl::SimpleAtoi(text.substr(colon + 1), &index) || index < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("device: '", text, "' has no valid index; write it as CPU:3"));
    }
  }
  constexpr absl::string_view kKinds[] = {"CPU", "CUDA", "SIM", "NULL"};
  for (absl::string_view known : kKinds) {
    if (kind == known) return Place(std::string(kind), index);
  }
  return absl::InvalidArgumentError(absl::StrCat("device: there is no kind of device '", kind,
                                                 "'; known are ", absl::StrJoin(kKinds, ", ")));
}

std::string Place::ToString() const {
  return index_ == 0 ? kind_ : absl::StrCat(kind_, ":", index_);
}

namespace {

bool IsName(absl::string_view text) {
  bool ok = !text.empty() && !absl::ascii_isdigit(text[0]);
  for (char c : text) ok &= absl::ascii_isalnum(c) || c == '_';
  return ok;
}

absl::Status CheckMesh(const std::vector<Place>& places, const std::vector<MeshDim>& dims) {
  const auto fail = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("mesh: ", parts...));
  };
  if (places.empty()) return fail("needs at least one place");
  int64_t n = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d].size < 1) return fail("dim ", d, " has a size of ", dims[d].size);
    if (__builtin_mul_overflow(n, dims[d].size, &n)) return fail("the dims are too large");
    if (dims[d].name.empty()) continue;
    if (!IsName(dims[d].name)) {
      return fail("'", dims[d].name, "' is no name for a dim; use letters, digits and _");
    }
    for (size_t e = 0; e < d; ++e) {
      if (dims[e].name == dims[d].name) return fail("two dims are named ", dims[d].name);
    }
  }
  if (dims.empty() || n != static_cast<int64_t>(places.size())) {
    return fail("dims of ", n, " places in all do not fit ", places.size(), " places");
  }
  return absl::OkStatus();
}

template <typename... Parts>
[[noreturn]] void Refuse(const Parts&... parts) {
  throw Error(absl::InvalidArgumentError(absl::StrCat("mesh: ", parts...)));
}

}  // namespace

absl::StatusOr<Mesh> Mesh::Make(std::vector<Place> places, std::vector<MeshDim> dims) {
  RETURN_IF_ERROR(CheckMesh(places, dims));
  Data data{std::move(places), std::move(dims), {}};
  for (size_t i = 0; i < data.places.size(); ++i) {
    const Place& p = data.places[i];
    if (p.kind() != data.places[0].kind()) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: ", data.places[0].ToString(), " and ", p.ToString(),
                       " are of different kinds; a mesh is over places of one kind"));
    }
    if (!data.index.emplace(p, static_cast<int>(i)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: ", p.ToString(), " is repeated; each place may occur once"));
    }
  }
  static std::mutex& mutex = *new std::mutex;
  static auto& table = *new absl::node_hash_set<Data>;
  std::lock_guard lock(mutex);
  return Mesh(&*table.insert(std::move(data)).first);
}

PlaceList::PlaceList(std::initializer_list<const char*> texts) {
  for (const char* t : texts) places.push_back(ValueOrThrow(Place::Parse(t)));
}
PlaceList::PlaceList(const std::vector<std::string>& texts) {
  for (const std::string& t : texts) places.push_back(ValueOrThrow(Place::Parse(t)));
}

Mesh::Mesh(PlaceList places, std::vector<MeshDim> dims)
    : data_(ValueOrThrow(Make(std::move(places.places), std::move(dims))).data_) {}
Mesh::Mesh(PlaceList list, const char* name) : data_(nullptr) {
  const auto n = static_cast<int64_t>(list.places.size());
  *this = ValueOrThrow(Make(std::move(list.places), {{n, name}}));
}

Mesh::Tree::Tree(const char* place) : leaf(ValueOrThrow(Place::Parse(place))) {}

Mesh Mesh::OfTree(const Tree& tree, const std::vector<std::string>& names) {
  std::vector<MeshDim> dims;
  std::vector<const Tree*> level = {&tree};
  while (!level[0]->children.empty()) {
    std::vector<const Tree*> next;
    const size_t n = level[0]->children.size();
    for (const Tree* t : level) {
      if (t->children.size() != n) {
        ThrowIfError(absl::InvalidArgumentError(absl::StrCat("mesh: nodes of one depth have ", n,
                                                             " and ", t->children.size(),
                                                             " children; give each as many")));
      }
      for (const Tree& c : t->children) next.push_back(&c);
    }
    dims.push_back({static_cast<int64_t>(n), dims.size() < names.size() ? names[dims.size()] : ""});
    level = std::move(next);
  }
  std::vector<Place> places;
  for (const Tree* t : level) {
    if (!t->children.empty()) {
      ThrowIfError(absl::InvalidArgumentError("mesh: the leaves of a tree are at one depth"));
    }
    places.push_back(t->leaf);
  }
  return Mesh(std::move(places), std::move(dims));
}

const std::vector<Place>& Mesh::places() const { return data_->places; }
const std::vector<MeshDim>& Mesh::dims() const { return data_->dims; }

int Mesh::dim(absl::string_view name) const {
  for (int d = 0; d < ndim(); ++d) {
    if (dims()[d].name == name) return d;
  }
  throw Error(absl::InvalidArgumentError(
      absl::StrCat("mesh: ", ToString(), " has no dim named '", name, "'")));
}

std::string Mesh::DimName(int d) const {
  if (d < 0 || d >= ndim()) Refuse("there is no dim ", d, " in ", ToString());
  return dims()[d].name.empty() ? absl::StrCat(d) : dims()[d].name;
}

int Mesh::IndexOf(const Place& place) const {
  const auto it = data_->index.find(place);
  return it == data_->index.end() ? -1 : it->second;
}

std::vector<int64_t> Mesh::Coordinates(int index) const {
  if (index < 0 || index >= size()) Refuse("there is no place ", index, " in ", ToString());
  std::vector<int64_t> out(ndim());
  int64_t rest = index;
  for (int d = ndim() - 1; d >= 0; --d) {
    out[d] = rest % dims()[d].size;
    rest /= dims()[d].size;
  }
  return out;
}

int Mesh::IndexAt(absl::Span<const int64_t> coordinates) const {
  if (static_cast<int>(coordinates.size()) != ndim()) {
    Refuse("there are ", coordinates.size(), " coordinates for the ", ndim(), " dims of ",
           ToString());
  }
  int64_t index = 0;
  for (int d = 0; d < ndim(); ++d) {
    if (coordinates[d] < 0 || coordinates[d] >= dims()[d].size) {
      Refuse("there is no coordinate ", coordinates[d], " along dim ", DimName(d), " of ",
             ToString());
    }
    index = index * dims()[d].size + coordinates[d];
  }
  return static_cast<int>(index);
}

int64_t Mesh::CoordinateOver(int index, absl::Span<const int> over) const {
  const std::vector<int64_t> at = Coordinates(index);
  int64_t out = 0;
  for (int d : over) out = out * dims()[d].size + at[d];
  return out;
}

std::pair<int, int> Mesh::Neighbours(int index, int dim) const {
  std::vector<int64_t> at = Coordinates(index);
  const int64_t here = at[dim];
  std::pair<int, int> out{-1, -1};
  if (here > 0) {
    at[dim] = here - 1;
    out.first = IndexAt(at);
  }
  if (here + 1 < dims()[dim].size) {
    at[dim] = here + 1;
    out.second = IndexAt(at);
  }
  return out;
}

std::vector<std::vector<int>> Mesh::Groups(absl::Span<const int> over) const {
  std::vector<std::vector<int>> groups;
  absl::flat_hash_map<int64_t, int> group_of;
  std::vector<int> kept;
  for (int d = 0; d < ndim(); ++d) {
    if (std::find(over.begin(), over.end(), d) == over.end()) kept.push_back(d);
  }
  for (int i = 0; i < size(); ++i) {
    const auto [it, fresh] =
        group_of.try_emplace(CoordinateOver(i, kept), static_cast<int>(groups.size()));
    if (fresh) groups.emplace_back();
    groups[it->second].push_back(i);
  }
  return groups;
}

Mesh Mesh::Select(const std::vector<Place>& places) const {
  for (const Place& p : places) {
    if (IndexOf(p) >= 0) continue;
    throw Error(absl::InvalidArgumentError(
        absl::StrCat("mesh: ", p.ToString(), " is no place of ", ToString())));
  }
  return Mesh(places);
}

Mesh Mesh::Slice(int dim, int64_t position) const {
  if (dim < 0 || dim >= ndim() || position < 0 || position >= dims()[dim].size) {
    throw Error(absl::InvalidArgumentError(
        absl::StrCat("mesh: ", ToString(), " has no position ", position, " on dim ", dim)));
  }
  std::vector<Place> kept;
  for (int i = 0; i < size(); ++i) {
    if (Coordinates(i)[dim] == position) kept.push_back(places()[i]);
  }
  std::vector<MeshDim> rest = dims();
  rest.erase(rest.begin() + dim);
  if (rest.empty()) rest.push_back({});
  return Mesh(std::move(kept), std::move(rest));
}

Mesh Mesh::Reshape(std::vector<MeshDim> dims) const { return Mesh(places(), std::move(dims)); }

Mesh operator|(const Mesh& a, const Mesh& b) {
  std::vector<Place> places = a.places();
  for (const Place& p : b.places()) {
    if (a.IndexOf(p) < 0) places.push_back(p);
  }
  return Mesh(std::move(places));
}

bool Mesh::SamePlaces(const Mesh& other) const {
  return size() == other.size() &&
         std::all_of(places().begin(), places().end(),
                     [&other](const Place& p) { return other.IndexOf(p) >= 0; });
}

std::string Mesh::ToString() const {
  std::string out = absl::StrCat(places()[0].kind(), ":");
  for (size_t i = 0; i < places().size();) {
    size_t end = i + 1;
    while (end < places().size() && places()[end].index() == places()[end - 1].index() + 1) ++end;
    absl::StrAppend(&out, i > 0 ? "," : "", places()[i].index());
    if (end - i > 1) absl::StrAppend(&out, "-", places()[end - 1].index());
    i = end;
  }
  if (ndim() == 1 && dims()[0].name.empty()) return out;
  absl::StrAppend(&out, "[",
                  absl::StrJoin(dims(), ",",
                                [](std::string* o, const MeshDim& d) {
                                  absl::StrAppend(o, d.name, d.name.empty() ? "" : "=", d.size);
                                }),
                  "]");
  return out;
}

absl::StatusOr<Mesh> Mesh::Parse(absl::string_view text) {
  constexpr int64_t kMostPlaces = int64_t{1} << 16;  // of a text
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("mesh: '", text, "' is not of the form CPU:0-3 or CPU:0,2[dp=2]"));
  const size_t open = std::min(text.find('['), text.size());
  const absl::string_view list = text.substr(0, open);
  const size_t colon = list.find(':');
  if (colon == absl::string_view::npos) return bad;
  std::vector<Place> places;
  for (absl::string_view run : absl::StrSplit(list.substr(colon + 1), ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(run, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends[0], &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first ||
        last - first >= kMostPlaces - static_cast<int64_t>(places.size())) {
      return bad;
    }
    for (int i = first; i <= last; ++i) {
      ASSIGN_OR_RETURN(Place p, Place::Parse(absl::StrCat(list.substr(0, colon), ":", i)));
      places.push_back(std::move(p));
    }
  }
  std::vector<MeshDim> dims = {{static_cast<int64_t>(places.size()), ""}};
  if (open < text.size()) {
    if (text.back() != ']') return bad;
    dims.clear();
    for (absl::string_view part :
         absl::StrSplit(text.substr(open + 1, text.size() - open - 2), ',')) {
      const size_t equals = part.find('=');
      MeshDim d;
      if (equals != absl::string_view::npos) {
        d.name = std::string(part.substr(0, equals));
        part.remove_prefix(equals + 1);
        if (!IsName(d.name)) return bad;
      }
      if (!absl::SimpleAtoi(part, &d.size)) return bad;
      dims.push_back(std::move(d));
    }
  }
  return Make(std::move(places), std::move(dims));
}

}  // namespace tessera
