// Boxes and their intersections.
#include "graph/box.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/status.h"
#include "graph/uop.h"

namespace tessera {
namespace {

Box Meet(const Box& a, const Box& b) {
  Box out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back(Intersect(a[i], b[i]));
  return out;
}

const Mesh* MeshOf(Device device, std::optional<Mesh>& hold) {
  if (!device.is_sharding()) return nullptr;
  hold = device.sharding().mesh();
  return &*hold;
}

// The index of a place among those of a device; -1 where it is none of them.
int FindPlace(Device device, const Place& place) {
  if (device.is_sharding()) return device.sharding().mesh().IndexOf(place);
  return device.place() == place ? 0 : -1;
}

}  // namespace

int64_t Volume(const Box& box) {
  int64_t n = 1;
  for (const Interval& i : box) n *= i.size();
  return n;
}

Box Boxes::At(int place) const {
  std::optional<Mesh> hold;
  const Mesh* mesh = MeshOf(device, hold);
  Box out;
  for (const AxisBoxes& a : axes) {
    out.push_back(a.pieces[a.dims.empty() ? 0 : mesh->CoordinateOver(place, a.dims)]);
  }
  return out;
}

Boxes BoxesOf(const Shape& shape, Device device) {
  Boxes out{device, {}};
  for (int a = 0; a < shape.rank(); ++a) {
    AxisBoxes axis;
    const int64_t n = std::max<int64_t>(0, shape[a].max());
    if (device.is_sharding()) {
      const Sharding s = device.sharding();
      for (int d : s.DimsOf(a)) axis.dims.push_back(d);
      if (!axis.dims.empty()) {
        const Cut cut = CutAxis(s.NestOf(a), n);
        for (size_t i = 0; i + 1 < cut.size(); ++i) axis.pieces.push_back({cut[i], cut[i + 1]});
      }
    }
    if (axis.dims.empty()) axis.pieces.push_back({0, n});
    out.axes.push_back(std::move(axis));
  }
  return out;
}

namespace {

// On one mesh, where no dim divides two axes: what is wanted and what of it is held are products
// over the axes, so that the time does not grow with the number of places.
std::optional<int64_t> MovedByAxis(const Boxes& from, const Boxes& to) {
  if (!from.device.is_sharding() || !to.device.is_sharding()) return std::nullopt;
  const Mesh mesh = to.device.sharding().mesh();
  if (!(from.device.sharding().mesh() == mesh)) return std::nullopt;
  std::vector<bool> used(mesh.ndim(), false);
  int64_t wanted = 1, held = 1;
  for (size_t a = 0; a < to.axes.size(); ++a) {
    const AxisBoxes &f = from.axes[a], &t = to.axes[a];
    std::vector<int> dims(f.dims.begin(), f.dims.end());
    dims.insert(dims.end(), t.dims.begin(), t.dims.end());
    std::sort(dims.begin(), dims.end());
    dims.erase(std::unique(dims.begin(), dims.end()), dims.end());
    int64_t n = 1;
    for (int d : dims) {
      if (used[d]) return std::nullopt;
      used[d] = true;
      n *= mesh.dims()[d].size;
    }
    const auto piece = [&](const AxisBoxes& x, int64_t c) {
      // The coordinate over the axis's own dims, of one over all of them.
      int64_t index = 0;
      for (int d : x.dims) {
        int64_t rest = c;
        for (size_t k = dims.size(); dims[k - 1] != d; --k) rest /= mesh.dims()[dims[k - 1]].size;
        index = index * mesh.dims()[d].size + rest % mesh.dims()[d].size;
      }
      return x.pieces[index];
    };
    int64_t want = 0, have = 0;
    for (int64_t c = 0; c < n; ++c) {
      const Interval w = piece(t, c);
      want += w.size();
      have += Intersect(w, piece(f, c)).size();
    }
    wanted *= want;
    held *= have;
  }
  for (int d = 0; d < mesh.ndim(); ++d) {
    if (used[d]) continue;
    wanted *= mesh.dims()[d].size;
    held *= mesh.dims()[d].size;
  }
  return wanted - held;
}

}  // namespace

Extent PartBelow(const Interval& interval, const Extent& limit) {
  const int64_t size = interval.size();
  if (limit.is_int()) return Intersect(interval, {0, limit.value()}).size();
  // All of it is the limit, however little that may vary: shapes are compared as they are written.
  if (interval.begin == 0 && limit.max() <= interval.end) return limit;
  if (limit.min() >= interval.end) return size;
  if (size == 0 || limit.max() <= interval.begin) return 0;
  return Max(Min(limit - interval.begin, size), 0);
}

int64_t MovedElements(const Boxes& from, const Boxes& to) {
  if (const auto fast = MovedByAxis(from, to)) return *fast;
  int64_t moved = 0;
  const absl::Span<const Place> places = to.device.places();
  for (size_t j = 0; j < places.size(); ++j) {
    const Box want = to.At(static_cast<int>(j));
    moved += Volume(want);
    const int own = FindPlace(from.device, places[j]);
    if (own >= 0) moved -= Volume(Meet(want, from.At(own)));
  }
  return moved;
}

std::vector<Move> MovesTo(const Boxes& from, const Boxes& to, int place) {
  std::vector<Move> out;
  const Box want = to.At(place);
  if (Volume(want) == 0) return out;
  std::optional<Mesh> hold;
  const Mesh* mesh = MeshOf(from.device, hold);
  // Coordinates of the sender along dims that divide nothing: the receiver's own, or spread.
  std::vector<int64_t> base;
  if (mesh != nullptr) {
    const int own = mesh->IndexOf(to.device.places()[place]);
    base = mesh->Coordinates(own >= 0 ? own : place % mesh->size());
  }
  struct Part {
    int64_t piece;
    Interval in;
  };
  std::vector<std::vector<Part>> parts(from.axes.size());
  for (size_t a = 0; a < from.axes.size(); ++a) {
    for (size_t p = 0; p < from.axes[a].pieces.size(); ++p) {
      const Interval in = Intersect(from.axes[a].pieces[p], want[a]);
      if (in.size() > 0) parts[a].push_back({static_cast<int64_t>(p), in});
    }
    if (parts[a].empty()) return out;
  }
  std::vector<size_t> at(from.axes.size(), 0);
  for (;;) {
    Move m{0, place, {}};
    std::vector<int64_t> coordinates = base;
    for (size_t a = 0; a < at.size(); ++a) {
      const Part& part = parts[a][at[a]];
      m.box.push_back(part.in);
      int64_t rest = part.piece;
      for (auto d = from.axes[a].dims.rbegin(); d != from.axes[a].dims.rend(); ++d) {
        coordinates[*d] = rest % mesh->dims()[*d].size;
        rest /= mesh->dims()[*d].size;
      }
    }
    if (mesh != nullptr) m.from = mesh->IndexAt(coordinates);
    out.push_back(std::move(m));
    int a = static_cast<int>(at.size()) - 1;
    for (; a >= 0; --a) {
      if (++at[a] < parts[a].size()) break;
      at[a] = 0;
    }
    if (a < 0) return out;
  }
}

std::string Boxes::ToString() const {
  const auto piece = [](std::string* out, const Interval& i) {
    absl::StrAppend(out, i.begin, "..", i.end);
  };
  const auto axis = [&](std::string* out, const AxisBoxes& a) {
    absl::StrAppend(out, absl::StrJoin(a.dims, "."), ":", absl::StrJoin(a.pieces, ",", piece));
  };
  return absl::StrCat(device.ToString(), "<", absl::StrJoin(axes, ";", axis), ">");
}

absl::StatusOr<Boxes> Boxes::Parse(absl::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("boxes: '", text, "' is not of the form CPU:0-1{M}<0:0..3,3..5;:0..4>"));
  const size_t open = text.find('<');
  if (open == absl::string_view::npos || text.back() != '>') return bad;
  Boxes out;
  ASSIGN_OR_RETURN(out.device, Device::Parse(text.substr(0, open)));
  const absl::string_view inside = text.substr(open + 1, text.size() - open - 2);
  if (inside.empty()) return out;
  const int ndim = out.device.is_sharding() ? out.device.sharding().mesh().ndim() : 0;
  for (absl::string_view part : absl::StrSplit(inside, ';')) {
    AxisBoxes a;
    const size_t colon = part.find(':');
    if (colon == absl::string_view::npos) return bad;
    int64_t n = 1;
    for (absl::string_view d : absl::StrSplit(part.substr(0, colon), '.', absl::SkipEmpty())) {
      a.dims.emplace_back();
      if (!absl::SimpleAtoi(d, &a.dims.back()) || a.dims.back() < 0 || a.dims.back() >= ndim) {
        return bad;
      }
      n *= out.device.sharding().mesh().dims()[a.dims.back()].size;
    }
    for (absl::string_view p : absl::StrSplit(part.substr(colon + 1), ',')) {
      const std::vector<absl::string_view> ends = absl::StrSplit(p, "..");
      a.pieces.emplace_back();
      if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &a.pieces.back().begin) ||
          !absl::SimpleAtoi(ends[1], &a.pieces.back().end)) {
        return bad;
      }
    }
    if (static_cast<int64_t>(a.pieces.size()) != n) return bad;
    out.axes.push_back(std::move(a));
  }
  return out;
}

}  // namespace tessera
