// The table of number formats and the set of tensors.
#include "runtime/weight_file.h"

#include "absl/strings/str_join.h"

namespace tessera {
namespace {

constexpr WeightFormatInfo kFormats[] = {
#define TESSERA_WEIGHT_ROW(id, name, number, elements, bytes) {name, number, elements, bytes},
    TESSERA_WEIGHT_FORMATS(TESSERA_WEIGHT_ROW)
#undef TESSERA_WEIGHT_ROW
};

template <typename Fn>
std::optional<WeightFormat> FindFormat(Fn matches) {
  for (size_t i = 0; i < std::size(kFormats); ++i) {
    if (matches(kFormats[i])) return static_cast<WeightFormat>(i);
  }
  return std::nullopt;
}

}  // namespace

const WeightFormatInfo& InfoOf(WeightFormat format) { return kFormats[static_cast<int>(format)]; }

std::optional<WeightFormat> WeightFormatOfGguf(uint32_t number) {
  return FindFormat([&](const WeightFormatInfo& f) {
    return f.gguf >= 0 && static_cast<uint32_t>(f.gguf) == number;
  });
}

std::optional<WeightFormat> WeightFormatNamed(absl::string_view name) {
  return FindFormat([&](const WeightFormatInfo& f) { return name == f.name; });
}

absl::Status WeightSet::Add(Weight weight) {
  if (!index_.emplace(weight.name, weights_.size()).second) {
    return absl::DataLossError(absl::StrCat(weight.file ? weight.file->path() + ": " : "",
                                            "tensor ", ShowName(weight.name), " is there twice"));
  }
  weights_.push_back(std::move(weight));
  return absl::OkStatus();
}

const Weight* WeightSet::Find(absl::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &weights_[it->second];
}

uint64_t WeightSet::bytes() const {
  uint64_t sum = 0;
  for (const Weight& w : weights_) sum += w.bytes.size();
  return sum;
}

absl::StatusOr<WeightSize> SizeOf(WeightFormat format, absl::Span<const int64_t> shape) {
  const WeightFormatInfo& info = InfoOf(format);
  uint64_t elements = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || !CheckedMul(elements, static_cast<uint64_t>(extent), &elements) ||
        elements > static_cast<uint64_t>(INT64_MAX)) {
      return absl::DataLossError(absl::StrCat("the shape ", ShowShape(shape), " overflows"));
    }
  }
  const int64_t last = shape.empty() ? 1 : shape.back();
  if (last % info.block_elements != 0) {
    return absl::DataLossError(absl::StrCat("the shape ", ShowShape(shape), " ends in ", last,
                                            ", and ", info.name, " needs a multiple of ",
                                            info.block_elements));
  }
  WeightSize out;
  out.elements = elements;
  if (!CheckedMul(elements / info.block_elements, info.block_bytes, &out.bytes) ||
      out.bytes > static_cast<uint64_t>(INT64_MAX)) {
    return absl::DataLossError(
        absl::StrCat("the bytes of the shape ", ShowShape(shape), " overflow"));
  }
  return out;
}

std::string ShowShape(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace tessera
