// The GGUF parser: header, metadata, tensor table; every count and size is checked before use.
#include "runtime/gguf.h"

#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace tessera {
namespace {

constexpr int kTypes = 13;
constexpr const char* kTypeNames[kTypes] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                            "bool", "string", "array", "u64", "i64", "f64"};
constexpr int kTypeBytes[kTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr uint64_t kMaxString = uint64_t{1} << 30;
constexpr uint64_t kMaxArray = uint64_t{1} << 30;
// The least bytes of an entry: key length and a byte, type, value; name, rank, extent, type,
// offset.
constexpr uint64_t kLeastValue = 8 + 1 + 4 + 1;
constexpr uint64_t kLeastTensor = 8 + 1 + 4 + 8 + 4 + 8;

template <typename T>
T At(absl::string_view bytes, uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Calls fn with the element as its own C++ type.
template <typename Fn>
auto Visit(GgufType type, absl::string_view bytes, uint64_t i, Fn fn) {
  switch (type) {
    case GgufType::kU8:
      return fn(At<uint8_t>(bytes, i));
    case GgufType::kI8:
      return fn(At<int8_t>(bytes, i));
    case GgufType::kU16:
      return fn(At<uint16_t>(bytes, i));
    case GgufType::kI16:
      return fn(At<int16_t>(bytes, i));
    case GgufType::kU32:
      return fn(At<uint32_t>(bytes, i));
    case GgufType::kI32:
      return fn(At<int32_t>(bytes, i));
    case GgufType::kF32:
      return fn(At<float>(bytes, i));
    case GgufType::kU64:
      return fn(At<uint64_t>(bytes, i));
    case GgufType::kI64:
      return fn(At<int64_t>(bytes, i));
    case GgufType::kF64:
      return fn(At<double>(bytes, i));
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return fn(At<uint8_t>(bytes, i));
}

}  // namespace

const char* NameOf(GgufType type) { return kTypeNames[static_cast<int>(type)]; }

double GgufArray::Number(uint64_t i) const {
  return Visit(element, bytes, i, [](auto v) { return static_cast<double>(v); });
}
int64_t GgufArray::Int(uint64_t i) const {
  return Visit(element, bytes, i, [](auto v) -> int64_t {
    if constexpr (std::is_floating_point_v<decltype(v)>) {
      return v > -9e18 && v < 9e18 ? static_cast<int64_t>(v) : -1;
    } else {
      return std::in_range<int64_t>(v) ? static_cast<int64_t>(v) : -1;
    }
  });
}

// One pass over the file.
struct GgufParser {
  ByteReader in;
  std::string name;
  absl::string_view file_bytes;
  std::shared_ptr<const MappedFile> file;
  uint64_t alignment = 32;
  Gguf out = {};

  absl::Status Run() {
    uint64_t tensors = 0, values = 0;
    RETURN_IF_ERROR(Header(&tensors, &values));
    out.metadata.file_ = name;
    for (uint64_t i = 0; i < values; ++i) RETURN_IF_ERROR(KeyValue());
    RETURN_IF_ERROR(Alignment());
    return Tensors(tensors);
  }

  absl::Status Header(uint64_t* tensors, uint64_t* values) {
    if (file_bytes.size() < 24) {
      return in.Error("the file has ", file_bytes.size(), " bytes; a GGUF header takes 24");
    }
    const absl::string_view magic = file_bytes.substr(0, 4);
    for (const char* old : {"lmgg", "tjgg", "fmgg", "algg", "GGML", "ggjt", "ggmf", "ggla"}) {
      if (magic == old) {
        return in.Error("this is an old GGML file, from before GGUF; convert it to GGUF");
      }
    }
    if (magic != "GGUF") {
      return in.Error("the file starts with ", ShowName(magic), ", not 'GGUF'");
    }
    RETURN_IF_ERROR(in.Bytes(4, "magic").status());
    ASSIGN_OR_RETURN(const uint32_t version, in.Read<uint32_t>("the version"));
    if ((version & 0xFFFF) == 0 && version != 0) {
      return in.Error("version ", version, ": is this a big-endian file?");
    }
    if (version == 1) return in.Error("GGUFv1 is no longer supported; convert the file again");
    if (version != 2 && version != 3) {
      return in.Error("version ", version, " is not known; 2 and 3 are");
    }
    ASSIGN_OR_RETURN(*tensors, in.Read<uint64_t>("the number of tensors"));
    ASSIGN_OR_RETURN(*values, in.Read<uint64_t>("the number of metadata entries"));
    if (*tensors > in.remaining() / kLeastTensor) {
      return in.Error(*tensors, " tensors do not fit in the ", in.remaining(),
                      " bytes that follow");
    }
    if (*values > in.remaining() / kLeastValue) {
      return in.Error(*values, " metadata entries do not fit in the ", in.remaining(),
                      " bytes that follow");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<absl::string_view> String(absl::string_view what, uint64_t limit) {
    ASSIGN_OR_RETURN(const uint64_t size, in.Read<uint64_t>(what));
    if (size > limit) return in.Error(what, " has ", size, " bytes; at most ", limit, " may be");
    return in.Bytes(size, what);
  }

  absl::StatusOr<GgufType> Type(absl::string_view key) {
    ASSIGN_OR_RETURN(const uint32_t type, in.Read<uint32_t>("a value's type"));
    if (type >= kTypes) {
      return in.Error("key ", ShowName(key), ": value type ", type, " is not known; 0 to 12 are");
    }
    return static_cast<GgufType>(type);
  }

  absl::Status KeyValue() {
    ASSIGN_OR_RETURN(const absl::string_view key, String("a key", kMostGgufKey));
    if (key.empty()) return in.Error("an empty key");
    if (ValidUtf8Prefix(key) != key.size()) {
      return in.Error("the key ", ShowName(key), " is not UTF-8");
    }
    GgufValue value;
    ASSIGN_OR_RETURN(value.type, Type(key));
    switch (value.type) {
      case GgufType::kString: {
        ASSIGN_OR_RETURN(value.value, String(ShowName(key), kMaxString));
        break;
      }
      case GgufType::kArray: {
        ASSIGN_OR_RETURN(value.value, Array(key));
        break;
      }
      default: {
        ASSIGN_OR_RETURN(value.value, ScalarValue(key, value.type));
      }
    }
    std::string owned(key);
    if (!out.metadata.index_.emplace(owned, out.metadata.values_.size()).second) {
      return in.Error("the key ", ShowName(key), " is there twice");
    }
    out.metadata.values_.emplace_back(std::move(owned), std::move(value));
    return absl::OkStatus();
  }

  absl::StatusOr<decltype(GgufValue::value)> ScalarValue(absl::string_view key, GgufType type) {
    ASSIGN_OR_RETURN(const absl::string_view bytes,
                     in.Bytes(kTypeBytes[static_cast<int>(type)], ShowName(key)));
    if (type == GgufType::kBool) {
      if (static_cast<uint8_t>(bytes[0]) > 1) {
        return in.Error("key ", ShowName(key), ": a bool is ", static_cast<uint8_t>(bytes[0]),
                        "; 0 and 1 are allowed");
      }
      return bytes[0] == 1;
    }
    return Visit(type, bytes, 0, [](auto v) -> decltype(GgufValue::value) {
      if constexpr (std::is_floating_point_v<decltype(v)>)
        return static_cast<double>(v);
      else if constexpr (std::is_unsigned_v<decltype(v)>)
        return static_cast<uint64_t>(v);
      else
        return static_cast<int64_t>(v);
    });
  }

  absl::StatusOr<GgufArray> Array(absl::string_view key) {
    GgufArray array;
    ASSIGN_OR_RETURN(array.element, Type(key));
    if (array.element == GgufType::kArray) {
      return in.Error("key ", ShowName(key), ": an array of arrays; no model of ours has one");
    }
    ASSIGN_OR_RETURN(array.count, in.Read<uint64_t>("an array's length"));
    const bool strings = array.element == GgufType::kString;
    const uint64_t least = strings ? 8 : kTypeBytes[static_cast<int>(array.element)];
    if (array.count > kMaxArray || array.count > in.remaining() / least) {
      return in.Error("key ", ShowName(key), ": ", array.count, " elements of ",
                      NameOf(array.element), " do not fit in the ", in.remaining(),
                      " bytes that follow");
    }
    if (!strings) {
      ASSIGN_OR_RETURN(array.bytes, in.Bytes(array.count * least, ShowName(key)));
      if (array.element == GgufType::kBool) {
        for (char c : array.bytes) {
          if (static_cast<uint8_t>(c) > 1) {
            return in.Error("key ", ShowName(key), ": a bool is ", static_cast<uint8_t>(c),
                            "; 0 and 1 are allowed");
          }
        }
      }
      return array;
    }
    array.strings.reserve(array.count);
    const std::string what = ShowName(key);
    for (uint64_t i = 0; i < array.count; ++i) {
      ASSIGN_OR_RETURN(const absl::string_view s, String(what, kMaxString));
      array.strings.push_back(s);
    }
    return array;
  }

  absl::Status Alignment() {
    const GgufValue* v = out.metadata.Find("general.alignment");
    if (v == nullptr) return absl::OkStatus();
    if (v->type != GgufType::kU32) {
      return in.Error("general.alignment is ", NameOf(v->type), ", not u32");
    }
    alignment = std::get<uint64_t>(v->value);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
      return in.Error("general.alignment is ", alignment, ", not a power of two");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Weight> TensorEntry() {
    ASSIGN_OR_RETURN(const absl::string_view text, String("a tensor's name", kMostGgufName));
    if (text.empty()) return in.Error("a tensor without a name");
    if (ValidUtf8Prefix(text) != text.size()) {
      return in.Error("the tensor name ", ShowName(text), " is not UTF-8");
    }
    Weight w;
    w.name = std::string(text);
    w.file = file;
    ASSIGN_OR_RETURN(const uint32_t rank, in.Read<uint32_t>(ShowName(text)));
    if (rank == 0 || rank > kMostGgufRank) {
      return in.Error("tensor ", ShowName(text), " has ", rank, " axes; 1 to 4 are allowed");
    }
    w.shape.resize(rank);
    for (uint32_t i = 0; i < rank; ++i) {
      ASSIGN_OR_RETURN(const int64_t extent, in.Read<int64_t>(ShowName(text)));
      if (extent <= 0) return in.Error("tensor ", ShowName(text), " has an extent of ", extent);
      w.shape[rank - 1 - i] = extent;  // the file starts with the contiguous axis
    }
    ASSIGN_OR_RETURN(const uint32_t type, in.Read<uint32_t>(ShowName(text)));
    const std::optional<WeightFormat> format = WeightFormatOfGguf(type);
    if (!format) {
      const bool removed =
          type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38);
      return in.Error(
          "tensor ", ShowName(text), " has type ", type, ", which ",
          removed ? "was removed from the format; convert the file again" : "is not known");
    }
    w.format = *format;
    ASSIGN_OR_RETURN(w.offset, in.Read<uint64_t>(ShowName(text)));
    if (w.offset % alignment != 0) {
      return in.Error("tensor ", ShowName(text), " lies at ", w.offset,
                      ", not at a multiple of the alignment ", alignment);
    }
    return w;
  }

  absl::Status Tensors(uint64_t count) {
    std::vector<Weight> entries;

    for (uint64_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(Weight w, TensorEntry());
      entries.push_back(std::move(w));
    }
    const uint64_t start = (in.offset() + alignment - 1) / alignment * alignment;
    if (count > 0 && start > file_bytes.size()) {
      return in.Error("the tensors' bytes start at ", start, ", and the file has ",
                      file_bytes.size());
    }
    uint64_t used = 0;
    for (Weight& w : entries) {
      RETURN_IF_ERROR(Place(&w, start, &used));
      RETURN_IF_ERROR(out.weights.Add(std::move(w)));
    }
    return absl::OkStatus();
  }

  // Points the weight at its bytes, which must follow those of the tensor before it.
  absl::Status Place(Weight* w, uint64_t start, uint64_t* used) {
    const auto error = [&](const auto&... parts) {
      return absl::DataLossError(
          absl::StrCat(name, ": tensor ", ShowName(w->name), ": ", parts...));
    };
    const absl::StatusOr<WeightSize> size = SizeOf(w->format, w->shape);
    if (!size.ok()) return error(size.status().message());
    if (w->offset < *used) {
      return error("its bytes start at ", w->offset, ", before the end ", *used,
                   " of the tensor listed before it");
    }
    uint64_t end = 0;
    if (!CheckedAdd(w->offset, size->bytes, &end) || end > UINT64_MAX - start) {
      return error("its offset ", w->offset, " overflows");
    }
    const uint64_t available = file_bytes.size() - start;
    if (end > available) {
      return error("its bytes end at ", start + end, ", and the file has ", file_bytes.size(), ": ",
                   end - available, " bytes are missing (a download that broke off?)");
    }
    w->bytes = file_bytes.substr(start + w->offset, size->bytes);
    w->offset += start;
    *used = end;
    return absl::OkStatus();
  }
};

absl::StatusOr<Gguf> ParseGguf(absl::string_view bytes, const std::string& name,
                               std::shared_ptr<const MappedFile> file) {
  GgufParser parser{ByteReader(bytes, name), name, bytes, std::move(file)};
  RETURN_IF_ERROR(parser.Run());
  return std::move(parser.out);
}

// ---- metadata

const GgufValue* GgufMetadata::Find(absl::string_view key) const {
  const auto it = index_.find(std::string(key));
  return it == index_.end() ? nullptr : &values_[it->second].second;
}

absl::Status GgufMetadata::WrongType(absl::string_view key, const GgufValue& v,
                                     const char* wanted) const {
  std::string is = NameOf(v.type);
  if (v.type == GgufType::kArray) {
    is = absl::StrCat("an array of ", NameOf(std::get<GgufArray>(v.value).element));
  }
  return absl::DataLossError(
      absl::StrCat(file_, ": key ", ShowName(key), " is ", is, ", not ", wanted));
}

absl::StatusOr<std::optional<int64_t>> GgufMetadata::Int(absl::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return std::optional<int64_t>();
  if (const auto* i = std::get_if<int64_t>(&v->value)) return std::optional<int64_t>(*i);
  if (const auto* u = std::get_if<uint64_t>(&v->value)) {
    if (*u <= static_cast<uint64_t>(INT64_MAX)) return std::optional<int64_t>(*u);
    return absl::DataLossError(
        absl::StrCat(file_, ": key ", ShowName(key), " is ", *u, ", which is too large"));
  }
  return WrongType(key, *v, "an integer");
}

absl::StatusOr<std::optional<double>> GgufMetadata::Number(absl::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return std::optional<double>();
  if (const auto* d = std::get_if<double>(&v->value)) return std::optional<double>(*d);
  return WrongType(key, *v, "a float");
}

absl::StatusOr<std::optional<bool>> GgufMetadata::Bool(absl::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return std::optional<bool>();
  if (const auto* b = std::get_if<bool>(&v->value)) return std::optional<bool>(*b);
  return WrongType(key, *v, "a bool");
}

absl::StatusOr<std::optional<absl::string_view>> GgufMetadata::String(absl::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return std::optional<absl::string_view>();
  if (const auto* s = std::get_if<absl::string_view>(&v->value)) {
    return std::optional<absl::string_view>(*s);
  }
  return WrongType(key, *v, "a string");
}

absl::StatusOr<const GgufArray*> GgufMetadata::Strings(absl::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return nullptr;
  const auto* a = std::get_if<GgufArray>(&v->value);
  if (a == nullptr || a->element != GgufType::kString) {
    return WrongType(key, *v, "an array of strings");
  }
  return a;
}

absl::StatusOr<const GgufArray*> GgufMetadata::Numbers(absl::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return nullptr;
  const auto* a = std::get_if<GgufArray>(&v->value);
  if (a == nullptr || a->element == GgufType::kString || a->element == GgufType::kBool) {
    return WrongType(key, *v, "an array of numbers");
  }
  return a;
}

}  // namespace tessera
