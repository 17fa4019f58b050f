// Places, shardings, and the table that interns them.
#include "graph/device.h"

#include <algorithm>
#include <mutex>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/error.h"
#include "graph/status.h"

namespace tessera {

struct Device::Data {
  std::variant<Place, Sharding> value;
  friend bool operator==(const Data& a, const Data& b) { return a.value == b.value; }
  template <typename H>
  friend H AbslHashValue(H h, const Data& d) {
    return std::visit([&h](const auto& v) { return H::combine(std::move(h), v); }, d.value);
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
  for (absl::string_view known : {"CPU", "CUDA", "SIM", "NULL"}) {
    if (kind == known) return Place(std::string(kind), index);
  }
  return absl::InvalidArgumentError(absl::StrCat("device: there is no kind of device '", kind,
                                                 "'; known are CPU, CUDA, SIM and NULL"));
}

std::string Place::ToString() const {
  return index_ == 0 ? kind_ : absl::StrCat(kind_, ":", index_);
}

Sharding::Sharding(const std::vector<std::string>& places, std::optional<int> axis) : axis_(axis) {
  for (const std::string& text : places) places_.push_back(ValueOrThrow(Place::Parse(text)));
}

std::string Sharding::ToString() const {
  const std::string list = absl::StrJoin(
      places_, ",", [](std::string* out, const Place& p) { absl::StrAppend(out, p.ToString()); });
  return axis_ ? absl::StrCat("{", list, "}@", *axis_) : absl::StrCat("{", list, "}");
}

namespace {
const Device::Data* Intern(std::variant<Place, Sharding> value) {
  static std::mutex& mutex = *new std::mutex;
  static auto& table = *new absl::node_hash_set<Device::Data>;
  std::lock_guard<std::mutex> lock(mutex);
  return &*table.insert(Device::Data{std::move(value)}).first;
}
}  // namespace

Device::Device(const Place& place) : data_(Intern(place)) {}
Device::Device(const Sharding& sharding) : data_(Intern(sharding)) {}

namespace {
// "{CPU,CPU:1}@0": places, and the axis they divide.
absl::StatusOr<Device> ParseSharding(absl::string_view text) {
  const size_t close = text.find('}');
  const absl::string_view tail = text.substr(std::min(text.size(), close + 1));
  int axis = 0;
  const bool whole = tail.empty();
  if (close == absl::string_view::npos ||
      (!whole && (tail[0] != '@' || !absl::SimpleAtoi(tail.substr(1), &axis)))) {
    return absl::InvalidArgumentError(
        absl::StrCat("device: '", text, "' is not of the form {CPU,CPU:1}@0"));
  }
  std::vector<Place> places;
  for (absl::string_view part : absl::StrSplit(text.substr(1, close - 1), ',')) {
    ASSIGN_OR_RETURN(Place place, Place::Parse(absl::StripAsciiWhitespace(part)));
    places.push_back(std::move(place));
  }
  return Device(Sharding(std::move(places), whole ? std::nullopt : std::optional<int>(axis)));
}
}  // namespace

Device::Device(const char* text) : Device(ValueOrThrow(Place::Parse(text))) {}

absl::StatusOr<Device> Device::Parse(absl::string_view text) {
  if (text == "none") return Device();
  if (!text.empty() && text[0] == '{') return ParseSharding(text);
  ASSIGN_OR_RETURN(Place place, Place::Parse(text));
  return Device(place);
}

bool Device::is_sharding() const {
  return data_ != nullptr && std::holds_alternative<Sharding>(data_->value);
}

const Place& Device::place() const {
  CHECK(data_ != nullptr && !is_sharding());
  return std::get<Place>(data_->value);
}

const Sharding& Device::sharding() const {
  CHECK(is_sharding());
  return std::get<Sharding>(data_->value);
}

std::string Device::ToString() const {
  if (data_ == nullptr) return "none";
  return is_sharding() ? sharding().ToString() : place().ToString();
}

}  // namespace tessera
