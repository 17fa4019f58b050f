// The GGUF writer: everything is laid out first, then tensors are made in pieces.
#include "runtime/gguf_writer.h"

#include <algorithm>
#include <cstring>

#include "graph/status.h"
#include "runtime/file_writer.h"
#include "runtime/gguf.h"
#include "runtime/mapped_file.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 32;
constexpr int64_t kPiece = 1 << 20;  // bytes of a tensor made at once, in whole blocks

template <typename T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}
void AppendText(const std::string& text, std::string* out) {
  Append<uint64_t>(text.size(), out);
  out->append(text);
}
template <typename T>
std::string ArrayBytes(GgufType element, const std::vector<T>& values) {
  std::string out;
  Append<uint32_t>(static_cast<uint32_t>(element), &out);
  Append<uint64_t>(values.size(), &out);
  for (const T& v : values) {
    if constexpr (std::is_same_v<T, std::string>) {
      AppendText(v, &out);
    } else {
      Append(v, &out);
    }
  }
  return out;
}
int64_t Padding(int64_t n) { return (kAlignment - n % kAlignment) % kAlignment; }

}  // namespace

void GgufWriter::Check(absl::string_view what, const std::string& name, uint64_t most,
                       absl::flat_hash_set<std::string>* known) {
  const char* const wrong = name.empty()                           ? "is empty"
                            : name.size() > most                   ? "is too long"
                            : ValidUtf8Prefix(name) != name.size() ? "is not UTF-8"
                            : !known->insert(name).second          ? "is there twice"
                                                                   : nullptr;
  if (wrong == nullptr || !wrong_.ok()) return;
  wrong_ = absl::InvalidArgumentError(absl::StrCat(what, " ", ShowName(name), " ", wrong));
}

void GgufWriter::Value(const std::string& key, uint32_t type, const std::string& bytes) {
  Check("the key", key, kMostGgufKey, &keys_);
  AppendText(key, &values_);
  Append(type, &values_);
  values_.append(bytes);
  ++count_;
}

void GgufWriter::Set(const std::string& key, const std::string& value) {
  std::string bytes;
  AppendText(value, &bytes);
  Value(key, static_cast<uint32_t>(GgufType::kString), bytes);
}
void GgufWriter::Set(const std::string& key, uint32_t value) {
  std::string bytes;
  Append(value, &bytes);
  Value(key, static_cast<uint32_t>(GgufType::kU32), bytes);
}
void GgufWriter::Set(const std::string& key, float value) {
  std::string bytes;
  Append(value, &bytes);
  Value(key, static_cast<uint32_t>(GgufType::kF32), bytes);
}
void GgufWriter::Set(const std::string& key, bool value) {
  Value(key, static_cast<uint32_t>(GgufType::kBool), std::string(1, value ? '\1' : '\0'));
}
void GgufWriter::Set(const std::string& key, const std::vector<std::string>& value) {
  Value(key, static_cast<uint32_t>(GgufType::kArray), ArrayBytes(GgufType::kString, value));
}
void GgufWriter::Set(const std::string& key, const std::vector<float>& value) {
  Value(key, static_cast<uint32_t>(GgufType::kArray), ArrayBytes(GgufType::kF32, value));
}
void GgufWriter::Set(const std::string& key, const std::vector<int32_t>& value) {
  Value(key, static_cast<uint32_t>(GgufType::kArray), ArrayBytes(GgufType::kI32, value));
}

void GgufWriter::Add(const std::string& name, WeightFormat format,
                     const std::vector<int64_t>& shape, Fill fill) {
  const absl::StatusOr<WeightSize> size = SizeOf(format, shape);
  CHECK(size.ok(), std::string(size.status().message()));
  CHECK(InfoOf(format).gguf >= 0, InfoOf(format).name);
  Check("the tensor name", name, kMostGgufName, &names_);
  if (wrong_.ok() && (shape.empty() || shape.size() > kMostGgufRank || size->bytes == 0)) {
    wrong_ = absl::InvalidArgumentError(
        absl::StrCat("tensor ", ShowName(name), " has ", shape.size(), " axes and ", size->bytes,
                     " bytes; 1 to 4 axes, none of 0, are allowed"));
  }
  tensors_.push_back({name, format, shape, static_cast<int64_t>(size->bytes), std::move(fill)});
}
void GgufWriter::Add(const std::string& name, WeightFormat format,
                     const std::vector<int64_t>& shape, const std::string& bytes) {
  auto at = std::make_shared<size_t>(0);
  Add(name, format, shape, [bytes, at](char* to, int64_t size) {
    std::memcpy(to, bytes.data() + *at, static_cast<size_t>(size));
    *at = (*at + static_cast<size_t>(size)) % bytes.size();  // again from the start, if asked again
  });
  CHECK(tensors_.back().bytes == static_cast<int64_t>(bytes.size()), name);
}

void GgufWriter::Emit(const std::function<void(const std::string&)>& out) const {
  std::string head = "GGUF";
  Append<uint32_t>(3, &head);
  Append<uint64_t>(tensors_.size(), &head);
  Append<uint64_t>(count_, &head);
  head += values_;
  uint64_t offset = 0;
  for (const Tensor& t : tensors_) {
    AppendText(t.name, &head);
    Append(static_cast<uint32_t>(t.shape.size()), &head);
    for (size_t i = t.shape.size(); i-- > 0;) Append(t.shape[i], &head);
    Append(static_cast<uint32_t>(InfoOf(t.format).gguf), &head);
    Append(offset, &head);
    offset += static_cast<uint64_t>(t.bytes + Padding(t.bytes));
  }
  head.append(static_cast<size_t>(Padding(static_cast<int64_t>(head.size()))), '\0');
  out(head);
  std::string piece;
  for (const Tensor& t : tensors_) {
    const int64_t block = InfoOf(t.format).block_bytes, most = kPiece / block * block;
    for (int64_t done = 0; done < t.bytes; done += most) {
      piece.resize(static_cast<size_t>(std::min(most, t.bytes - done)));
      t.fill(piece.data(), static_cast<int64_t>(piece.size()));
      out(piece);
    }
    out(std::string(static_cast<size_t>(Padding(t.bytes)), '\0'));
  }
}

std::string GgufWriter::Bytes() const {
  std::string bytes;
  Emit([&](const std::string& part) { bytes += part; });
  return bytes;
}

absl::Status GgufWriter::Write(const std::string& path) const {
  if (!wrong_.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", wrong_.message()));
  FileWriter file(path);
  Emit([&](const std::string& part) { file.Write(part); });
  return file.Finish();
}

}  // namespace tessera
