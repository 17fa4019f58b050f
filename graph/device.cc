// Shardings and devices, and the table that interns them.
#include "graph/device.h"

#include <algorithm>
#include <mutex>
#include <tuple>

#include "absl/container/node_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/error.h"
#include "graph/hash.h"
#include "graph/status.h"

namespace tessera {
namespace {

struct DataHash {
  size_t operator()(const DeviceData& d) const {
    return HashAll(d.is_sharding, d.place, d.mesh ? HashAll(*d.mesh) : 0, d.placements);
  }
};
struct DataEq {
  bool operator()(const DeviceData& a, const DeviceData& b) const {
    return a.is_sharding == b.is_sharding && a.place == b.place && a.mesh == b.mesh &&
           a.placements == b.placements;
  }
};

const DeviceData* Intern(DeviceData data) {
  static std::mutex& mutex = *new std::mutex;
  static auto& table = *new absl::node_hash_set<DeviceData, DataHash, DataEq>;
  std::lock_guard lock(mutex);
  return &*table.insert(std::move(data)).first;
}

absl::StatusOr<const DeviceData*> MakeSharding(const Mesh& mesh,
                                               std::vector<Placement> placements) {
  const auto fail = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("sharding: ", parts...));
  };
  if (static_cast<int>(placements.size()) != mesh.ndim()) {
    return fail(mesh.ToString(), " needs a placement for each of its ", mesh.ndim(), " dims, has ",
                placements.size());
  }
  for (const Placement& p : placements) {
    if (p.is(Placement::Kind::kShard) && p.axis < 0) return fail("there is no axis ", p.axis);
  }
  const bool manual = std::all_of(placements.begin(), placements.end(), [](const Placement& p) {
    return p.is(Placement::Kind::kManual);
  });
  return Intern({true, manual, {}, mesh, std::move(placements)});
}

std::vector<Placement> LinePlacement(std::optional<int> axis, Layout layout) {
  if (!axis) return {Placement::Replicate()};
  return {Placement::Shard(*axis, std::move(layout))};
}

// Splits at commas outside of brackets.
std::vector<absl::string_view> SplitOutside(absl::string_view text) {
  std::vector<absl::string_view> out;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    out.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return out;
}

}  // namespace

bool operator<(const Placement& a, const Placement& b) {
  const auto key = [](const Placement& p) { return std::tie(p.axis, p.layout, p.op); };
  // Pieces before whole copies, the lower axis before the higher.
  const bool sa = a.is(Placement::Kind::kShard), sb = b.is(Placement::Kind::kShard);
  if (sa != sb) return sa;
  if (a.kind != b.kind) return a.kind < b.kind;
  return key(a) < key(b);
}

std::string Placement::ToString() const {
  switch (kind) {
    case Kind::kReplicate:
      return "R";
    case Kind::kShard:
      return layout == Layout() ? absl::StrCat("S", axis)
                                : absl::StrCat("S", axis, ":", layout.ToString());
    case Kind::kPartial:
      return absl::StrCat("P:", Info(op).text);
    case Kind::kManual:
      return "M";
  }
  return "";
}

absl::StatusOr<Placement> Placement::Parse(absl::string_view text) {
  if (text == "R") return Replicate();
  if (text == "M") return Manual();
  const size_t colon = text.find(':');
  const absl::string_view head = text.substr(0, colon);
  const absl::string_view tail =
      colon == absl::string_view::npos ? absl::string_view() : text.substr(colon + 1);
  int axis = 0;
  if (head == "P" && !tail.empty()) {
    ASSIGN_OR_RETURN(Op op, ParseOp(tail));
    return Partial(op);
  }
  if (head.empty() || head[0] != 'S' || !absl::SimpleAtoi(head.substr(1), &axis) || axis < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device: '", text, "' is none of R, S0, S0:ceil, P:ADD, M"));
  }
  if (colon == absl::string_view::npos) return Shard(axis);
  ASSIGN_OR_RETURN(Layout layout, Layout::Parse(tail));
  return Shard(axis, layout);
}

Sharding::Sharding(const Mesh& mesh, std::vector<Placement> placements)
    : data_(ValueOrThrow(MakeSharding(mesh, std::move(placements)))) {}
Sharding::Sharding(const Mesh& mesh)
    : Sharding(mesh, std::vector<Placement>(mesh.ndim(), Placement::Replicate())) {}
Sharding::Sharding(PlaceList places, std::optional<int> axis, Layout layout)
    : Sharding(Mesh(std::move(places)), LinePlacement(axis, std::move(layout))) {}

const Mesh& Sharding::mesh() const { return *data_->mesh; }
const std::vector<Placement>& Sharding::placements() const { return data_->placements; }

std::optional<int> Sharding::axis() const {
  std::optional<int> found;
  for (const Placement& p : placements()) {
    if (!p.is(Placement::Kind::kShard)) continue;
    if (found && *found != p.axis) return std::nullopt;
    found = p.axis;
  }
  return found;
}

bool Sharding::Has(Placement::Kind kind) const {
  return std::any_of(placements().begin(), placements().end(),
                     [kind](const Placement& p) { return p.kind == kind; });
}

std::vector<int> Sharding::DimsOf(int axis) const {
  std::vector<int> out;
  for (int d = 0; d < mesh().ndim(); ++d) {
    if (placements()[d].ShardsAxis(axis)) out.push_back(d);
  }
  return out;
}

Nest Sharding::NestOf(int axis) const {
  Nest out;
  for (int d : DimsOf(axis)) out.push_back({mesh().dims()[d].size, placements()[d].layout});
  return out;
}

Sharding Sharding::AllManual() const {
  return With(std::vector<Placement>(mesh().ndim(), Placement::Manual()));
}

const Placement& Sharding::operator()(int dim) const {
  const std::vector<Placement>& all = placements();
  if (dim >= 0 && dim < static_cast<int>(all.size())) return all[dim];
  throw Error(absl::InvalidArgumentError(
      absl::StrCat("sharding: there is no dim ", dim, " in ", ToString())));
}

const Place& Sharding::operator[](int i) const {
  const std::vector<Place>& all = devices();
  if (i >= 0 && i < static_cast<int>(all.size())) return all[i];
  throw Error(absl::InvalidArgumentError(
      absl::StrCat("sharding: there is no place ", i, "; ", ToString(), " has ", all.size())));
}

std::string Sharding::ToString() const {
  return absl::StrCat(
      mesh().ToString(), "{",
      absl::StrJoin(placements(), ",",
                    [](std::string* out, const Placement& p) { *out += p.ToString(); }),
      "}");
}

Device::Device(const Place& place) : data_(Intern({false, false, place, {}, {}})) {}
Device::Device(const char* text) : Device(ValueOrThrow(Place::Parse(text))) {}

absl::StatusOr<Device> Device::Parse(absl::string_view text) {
  if (text == "none") return Device();
  const size_t open = text.find('{');
  if (open == absl::string_view::npos) {
    ASSIGN_OR_RETURN(Place place, Place::Parse(text));
    return Device(place);
  }
  if (text.back() != '}') {
    return absl::InvalidArgumentError(
        absl::StrCat("device: '", text, "' is not of the form CPU:0-1{S0}"));
  }
  ASSIGN_OR_RETURN(Mesh mesh, Mesh::Parse(text.substr(0, open)));
  std::vector<Placement> placements;
  for (absl::string_view part : SplitOutside(text.substr(open + 1, text.size() - open - 2))) {
    ASSIGN_OR_RETURN(Placement p, Placement::Parse(part));
    placements.push_back(std::move(p));
  }
  ASSIGN_OR_RETURN(const DeviceData* data, MakeSharding(mesh, std::move(placements)));
  return Device(Sharding(data));
}

const Place& Device::place() const {
  if (data_ == nullptr || is_sharding()) {
    throw Error(absl::InvalidArgumentError(
        absl::StrCat("device: ", ToString(), " is not one place; places() lists those it has")));
  }
  return data_->place;
}

Sharding Device::sharding() const {
  if (!is_sharding()) {
    throw Error(absl::InvalidArgumentError(
        absl::StrCat("device: ", ToString(), " is not a Sharding; ask is_sharding() first")));
  }
  return Sharding(data_);
}

absl::Span<const Place> Device::places() const {
  if (data_ == nullptr) return {};
  if (!is_sharding()) return {&data_->place, 1};
  return data_->mesh->places();
}

std::string Device::ToString() const {
  if (data_ == nullptr) return "none";
  return is_sharding() ? sharding().ToString() : place().ToString();
}

}  // namespace tessera
