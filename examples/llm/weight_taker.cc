// Each weight is checked against the shape that the configuration wants, and its format.
#include "examples/llm/weight_taker.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "examples/llm/float8.h"
#include "examples/llm/weight_names.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

std::string NameOf(const char* name, int64_t layer, int64_t expert) {
  return absl::StrReplaceAll(
      name, {{".N.", absl::StrCat(".", layer, ".")}, {".E.", absl::StrCat(".", expert, ".")}});
}

// Angles that are computed; and what inputs, keys and values are divided by where these become
// 8-bit floats as well.
bool IsForOthers(absl::string_view name, bool gguf) {
  if (absl::EndsWith(name, "rotary_emb.inv_freq")) return true;
  constexpr const char* kEnds[] = {".input_scale", ".k_scale", ".v_scale"};
  return !gguf && absl::c_any_of(kEnds, [&](const char* e) { return absl::EndsWith(name, e); });
}

// Without leading axes of 1.
absl::Span<const int64_t> Short(absl::Span<const int64_t> shape) {
  while (!shape.empty() && shape[0] == 1) shape.remove_prefix(1);
  return shape;
}

}  // namespace

std::vector<std::string> WeightTaker::NamesOf(const Names& names, int64_t layer,
                                              int64_t expert) const {
  std::vector<std::string> out;
  for (const char* name : gguf ? names.gguf : names.hugging_face) {
    if (name != nullptr) out.push_back(NameOf(name, layer, expert));
  }
  return out;
}
std::string WeightTaker::UsualName(const Names& names, int64_t layer, int64_t expert) const {
  const std::vector<std::string> all = NamesOf(names, layer, expert);
  return all.empty() ? "" : all[0];
}
const Weight* WeightTaker::Find(const Names& names, int64_t layer, int64_t expert) const {
  for (const std::string& name : NamesOf(names, layer, expert)) {
    if (const Weight* w = weights.Find(name)) return w;
  }
  return nullptr;
}

bool WeightTaker::IsOfOneExpert(const Names& names, int64_t layer) const {
  const Weight* found = Find(names, layer);
  for (const char* name : gguf ? names.gguf : names.hugging_face) {
    if (name == nullptr) break;
    const std::string own = NameOf(name, layer, 0);
    if (found == nullptr || found->name == own) return absl::StrContains(name, ".E.");
  }
  return false;
}

absl::StatusOr<std::optional<Weight>> WeightTaker::Optional(const Names& names, int64_t layer,
                                                            const std::vector<int64_t>& shape,
                                                            int64_t expert, bool bytes) {
  const Weight* w = Find(names, layer, expert);
  if (w == nullptr) return std::nullopt;
  const auto bad = [&](const auto&... parts) {
    return absl::DataLossError(absl::StrCat(w->file ? w->file->path() : file, ": tensor ",
                                            ShowName(w->name), ": ", parts...));
  };
  // GGUF files have no last axes of 1, which here are the first.
  const bool same = gguf ? Short(w->shape) == Short(shape) : w->shape == shape;
  if (!same) {
    return bad("its shape is ", ShowShape(w->shape), ", and the configuration wants ",
               ShowShape(shape));
  }
  if (bytes && w->format != WeightFormat::kU8) {
    return bad("its format is ", InfoOf(w->format).name, "; parts of blocks are U8");
  }
  if (!bytes && !CanCompute(w->format)) {
    return bad("its format is ", InfoOf(w->format).name, "; known are ", ComputableFormats());
  }
  if (shape.size() == 1 && InfoOf(w->format).block_elements > 1) {
    return bad("a vector in ", InfoOf(w->format).name, "; vectors are not quantised");
  }
  if (!taken.insert(w).second) return bad("another of this architecture has that name");
  Weight out = *w;
  out.shape = shape;
  return out;
}
absl::StatusOr<Weight> WeightTaker::Required(const Names& names, int64_t layer,
                                             const std::vector<int64_t>& shape, int64_t expert,
                                             bool bytes) {
  ASSIGN_OR_RETURN(std::optional<Weight> w, Optional(names, layer, shape, expert, bytes));
  if (w) return *std::move(w);
  const std::string name = UsualName(names, layer, expert);
  if (!name.empty()) {
    return absl::DataLossError(
        absl::StrCat(file, ": tensor ", ShowName(name), " ", ShowShape(shape), " is missing"));
  }
  const std::string other =
      WeightTaker{weights, !gguf, file, norms_from_one}.UsualName(names, layer);
  return absl::DataLossError(absl::StrCat(
      file, ": the configuration wants what ", gguf ? "safetensors" : "GGUF files", " call ",
      ShowName(other), " ", ShowShape(shape), ", for which ", gguf ? "GGUF files" : "safetensors",
      " have no known name; take out the key that wants it, such as use_bias, if there is none"));
}

absl::Status WeightTaker::ReadScale(const Names& names, int64_t layer, int64_t count, Matrix* to) {
  const std::string name = UsualName(names, layer);
  if (!gguf || name.empty()) return absl::OkStatus();
  const std::string base(absl::StripSuffix(name, "weight"));
  const std::string own = base + "scale", of_input = base + "input_scale";
  Tensor passed;
  RETURN_IF_ERROR(Read({{own.c_str()}, {}}, layer, {count}, false, &to->scale));
  return Read({{of_input.c_str()}, {}}, layer, {count}, false, &passed);
}
absl::StatusOr<Matrix> WeightTaker::MatrixOf(const Weight& w) {
  if (!gguf && IsFloat8(w.format)) {
    for (const char* suffix : {"_scale_inv", "_scale"}) {
      const Weight* scale = weights.Find(w.name + suffix);
      if (scale == nullptr) continue;
      taken.insert(scale);
      return TimesScale(w, *scale);
    }
  }
  return Matrix{Stored(w), w.format};
}
absl::Status WeightTaker::Read(const Names& names, int64_t layer, int64_t rows, int64_t columns,
                               Matrix* to) {
  ASSIGN_OR_RETURN(const Weight w, Required(names, layer, {rows, columns}));
  ASSIGN_OR_RETURN(*to, MatrixOf(w));
  return ReadScale(names, layer, 1, to);
}
absl::Status WeightTaker::Read(const Names& names, int64_t layer, const std::vector<int64_t>& shape,
                               bool required, Tensor* to) {
  std::optional<Weight> w;
  if (required) {
    ASSIGN_OR_RETURN(w, Required(names, layer, shape));
  } else {
    ASSIGN_OR_RETURN(w, Optional(names, layer, shape));
  }
  if (w) *to = Values(Stored(*w), w->format).Realize();
  return absl::OkStatus();
}
absl::Status WeightTaker::ReadNorm(const Names& names, int64_t layer, int64_t size, bool required,
                                   Tensor* to) {
  RETURN_IF_ERROR(Read(names, layer, {size}, required, to));
  if (*to && norms_from_one && !gguf) *to = (*to + 1).Realize();
  return absl::OkStatus();
}

absl::Status WeightTaker::ReadJoined(const Names& names, int64_t layer, int64_t columns,
                                     absl::Span<const std::pair<int64_t, Matrix*>> parts) {
  int64_t rows = 0;
  for (const auto& [own, to] : parts) rows += own;
  ASSIGN_OR_RETURN(const Weight w, Required(names, layer, {rows, columns}));
  Matrix whole;
  RETURN_IF_ERROR(ReadScale(names, layer, 1, &whole));
  if (IsFloat8(w.format)) {
    ASSIGN_OR_RETURN(whole, MatrixOf(w));
    int64_t row = 0;
    for (const auto& [own, to] : parts) {
      const Tensor part = whole.stored.SliceAxis(0, {row, row + own});
      *to = {part.Contiguous().Realize(), whole.format};
      row += own;
    }
    return absl::OkStatus();
  }
  const uint64_t row_bytes = w.bytes.size() / static_cast<uint64_t>(rows);
  uint64_t at = 0;
  for (const auto& [own, to] : parts) {
    Weight part = w;
    part.shape[0] = own;
    part.bytes = w.bytes.substr(at, static_cast<uint64_t>(own) * row_bytes);
    part.offset += at;
    at += part.bytes.size();
    *to = {Stored(part), part.format, whole.scale};
  }
  return absl::OkStatus();
}

absl::Status WeightTaker::ReadBatch(const Names& names, int64_t layer, int64_t count, int64_t rows,
                                    int64_t columns, Matrix* to) {
  ASSIGN_OR_RETURN(const Weight w, Required(names, layer, {count, rows, columns}));
  *to = {Stored(w), w.format};
  RETURN_IF_ERROR(ReadScale(names, layer, count, to));
  if (to->scale) to->scale = to->scale.Reshape({count, 1, 1}).Realize();
  return absl::OkStatus();
}

absl::Status WeightTaker::ReadExperts(const Names& names, int64_t layer, int64_t experts,
                                      int64_t rows, int64_t columns, Matrix* to) {
  if (!IsOfOneExpert(names, layer)) {
    return ReadBatch(names, layer, experts, rows, columns, to);
  }
  std::string bytes;
  std::vector<Tensor> scaled;
  Weight all;
  for (int64_t e = 0; e < experts; ++e) {
    ASSIGN_OR_RETURN(const Weight w, Required(names, layer, {rows, columns}, e));
    if (e > 0 && w.format != all.format) {
      return absl::DataLossError(absl::StrCat(
          file, ": tensor ", ShowName(w.name), ": its format is ", InfoOf(w.format).name,
          ", and that of the experts before it ", InfoOf(all.format).name));
    }
    all.format = w.format;
    if (IsFloat8(w.format)) {
      const WeightFormat before = to->format;
      ASSIGN_OR_RETURN(*to, MatrixOf(w));
      if (e > 0 && to->format != before) {
        return absl::DataLossError(absl::StrCat(
            file, ": tensor ", ShowName(w.name),
            ": of it and the experts before it, some have a scale beside them and some have none"));
      }
      scaled.push_back(to->stored);
    } else {
      absl::StrAppend(&bytes, w.bytes);
    }
  }
  if (!scaled.empty()) {
    to->stored = Stack(scaled, 0).Contiguous().Realize();
    return absl::OkStatus();
  }
  all.shape = {experts, rows, columns};
  all.bytes = bytes;
  *to = {Stored(all), all.format};
  return absl::OkStatus();
}

void WeightTaker::PassOver(std::initializer_list<const Names*> all, int64_t layer) {
  for (const Names* names : all) {
    const Weight* w = Find(*names, layer);
    if (w != nullptr) taken.insert(w);
  }
}

absl::Status WeightTaker::ReadApart(const Names& nibbles, const Names& exponents, int64_t layer,
                                    int64_t experts, int64_t rows, int64_t columns, Tensor* to) {
  const int64_t size = InfoOf(WeightFormat::kMXFP4).block_elements, half = size / 2;
  if (columns % size != 0) {
    return absl::DataLossError(absl::StrCat(file, ": tensor ", ShowName(UsualName(nibbles, layer)),
                                            ": rows of ", columns,
                                            " numbers are no whole blocks of ", size));
  }
  const std::vector<int64_t> blocks = {experts, rows, columns / size};
  ASSIGN_OR_RETURN(const Weight e, Required(exponents, layer, blocks, 0, /*bytes=*/true));
  ASSIGN_OR_RETURN(const Weight n,
                   Required(nibbles, layer, {experts, rows, columns / size, half}, 0,
                            /*bytes=*/true));
  const Tensor pairs = Stored(n).Squeeze(-1);
  const Tensor each = Stack({pairs & 15, pairs >> 4}, -1).Flatten(-2);
  const Tensor packed = each.SliceAxis(-1, {0, half}) | each.SliceAxis(-1, {half, size}) << 4;
  *to = Cat({Stored(e), packed}, -1);
  return absl::OkStatus();
}
absl::Status WeightTaker::NothingLeft(int64_t layers, int64_t passed) const {
  const absl::string_view begin = gguf ? "blk." : "model.layers.";
  const auto beyond = [&](absl::string_view name) {
    int64_t layer = 0;
    // Some families write these layers beside the others.
    if (!gguf && (absl::StartsWith(name, "mtp.") || absl::StartsWith(name, "model.mtp_"))) {
      return true;
    }
    return absl::ConsumePrefix(&name, begin) &&
           absl::SimpleAtoi(name.substr(0, name.find('.')), &layer) && layer >= layers &&
           layer < layers + passed;
  };
  for (const Weight& w : weights.all()) {
    if (taken.contains(&w) || IsForOthers(w.name, gguf) || beyond(w.name)) continue;
    return absl::DataLossError(absl::StrCat(w.file ? w.file->path() : file, ": tensor ",
                                            ShowName(w.name),
                                            " belongs to no part of this architecture"));
  }
  return absl::OkStatus();
}

}  // namespace tessera::llm
