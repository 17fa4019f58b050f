// The safetensors parser, and folders of one or several such files.
#include "runtime/safetensors.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "graph/infer.h"
#include "graph/status.h"
#include "runtime/json.h"

namespace tessera {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;

template <typename... Parts>
absl::Status Bad(const std::string& file, const Parts&... parts) {
  return absl::DataLossError(absl::StrCat(file, ": ", parts...));
}

struct Entry {
  Weight weight;
  uint64_t begin = 0, end = 0;  // after the header
};

absl::StatusOr<Entry> ParseEntry(const std::string& file, const std::string& name,
                                 const Json& value) {
  const auto bad = [&](const auto&... parts) {
    return Bad(file, "tensor ", ShowName(name), ": ", parts...);
  };
  std::optional<Json> dtype, shape, offsets;
  if (!value.is(Json::Type::kObject)) return bad("its entry is no object");
  for (const JsonItem item : value.Items()) {
    const std::string key = item.key();
    std::optional<Json>* to = key == "dtype"          ? &dtype
                              : key == "shape"        ? &shape
                              : key == "data_offsets" ? &offsets
                                                      : nullptr;
    if (to == nullptr) return bad("the key ", ShowName(key), " is not known");
    *to = item.value();
  }
  if (!dtype || !shape || !offsets) {
    return bad("'", !dtype ? "dtype" : !shape ? "shape" : "data_offsets", "' is missing");
  }
  Entry e;
  e.weight.name = name;
  const std::optional<std::string> text = dtype->String();
  const std::optional<WeightFormat> format = text ? WeightFormatNamed(*text) : std::nullopt;
  if (!format || InfoOf(*format).block_elements != 1) {
    return bad("the dtype ", ShowName(std::string(dtype->text())), " is not known");
  }
  e.weight.format = *format;
  if (!shape->is(Json::Type::kArray)) return bad("its shape is no array");
  for (const JsonItem extent : shape->Items()) {
    const std::optional<int64_t> n = extent.value().Int();
    if (!n || *n < 0) {
      return bad("the extent ", ShowName(std::string(extent.value().text())),
                 " is no integer from 0 on");
    }
    e.weight.shape.push_back(*n);
    if (e.weight.shape.size() > static_cast<size_t>(kMaxRank)) {
      return bad("more than ", kMaxRank, " axes");
    }
  }
  std::vector<int64_t> ends;
  for (const JsonItem offset : offsets->Items()) {
    const std::optional<int64_t> n = offset.value().Int();
    if (!n || *n < 0 || ends.size() == 2) break;
    ends.push_back(*n);
  }
  if (ends.size() != 2 || offsets->text().find_first_of(".eE-") != absl::string_view::npos ||
      std::count(offsets->text().begin(), offsets->text().end(), ',') != 1) {
    return bad("its data_offsets are not two integers from 0 on");
  }
  e.begin = static_cast<uint64_t>(ends[0]);
  e.end = static_cast<uint64_t>(ends[1]);
  if (e.end < e.begin) return bad("its bytes end at ", e.end, ", before they begin at ", e.begin);
  const absl::StatusOr<WeightSize> size = SizeOf(e.weight.format, e.weight.shape);
  if (!size.ok()) return bad(size.status().message());
  if (size->bytes != e.end - e.begin) {
    return bad("it has ", e.end - e.begin, " bytes, and ", InfoOf(e.weight.format).name, " ",
               ShowShape(e.weight.shape), " takes ", size->bytes);
  }
  return e;
}

absl::Status CheckMetadata(const std::string& file, const Json& value) {
  if (!value.is(Json::Type::kObject)) return Bad(file, "'__metadata__' is no object");
  for (const JsonItem item : value.Items()) {
    if (!item.value().is(Json::Type::kString)) {
      return Bad(file, "'__metadata__': the value of ", ShowName(item.key()), " is no string");
    }
  }
  return absl::OkStatus();
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// The files that an index names, each with the tensors it says lie in it.
absl::StatusOr<std::map<std::string, std::vector<std::string>>> ReadIndex(const std::string& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> index, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const Json json, Json::Parse(index->bytes(), path));
  const std::optional<Json> map = json.Find("weight_map");
  if (!map || !map->is(Json::Type::kObject)) return Bad(path, "'weight_map' is missing");
  std::map<std::string, std::vector<std::string>> files;
  for (const JsonItem item : map->Items()) {
    const std::optional<std::string> file = item.value().String();
    if (!file || file->empty()) {
      return Bad(path, "tensor ", ShowName(item.key()), ": its file is no name");
    }
    if (file->find('/') != std::string::npos || file->find('\\') != std::string::npos ||
        *file == ".." || file->find('\0') != std::string::npos) {
      return Bad(path, "tensor ", ShowName(item.key()), ": its file ", ShowName(*file),
                 " is not in this folder");
    }
    files[*file].push_back(item.key());
  }
  return files;
}

absl::Status NoSafetensors(const std::string& folder) {
  if (DIR* dir = opendir(folder.c_str())) {
    bool pickle = false;
    while (const dirent* entry = readdir(dir)) {
      const std::string name = entry->d_name;
      const auto ends = [&](const std::string& tail) {
        return name.size() >= tail.size() && name.substr(name.size() - tail.size()) == tail;
      };
      pickle = pickle || ends(".bin") || ends(".pth") || ends(".pt");
    }
    closedir(dir);
    if (pickle) {
      return Bad(folder,
                 "only pickled weights (.bin, .pt), which can run code; get or convert to "
                 "safetensors");
    }
  }
  return Bad(folder, "neither model.safetensors nor model.safetensors.index.json");
}

}  // namespace

absl::StatusOr<WeightSet> ParseSafetensors(absl::string_view bytes, const std::string& name,
                                           std::shared_ptr<const MappedFile> file) {
  if (bytes.size() < 8) {
    return Bad(name, "the file has ", bytes.size(), " bytes; the header's length alone takes 8");
  }
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  if (length == 0) return Bad(name, "byte 0: the header is empty");
  if (length > kMaxHeader) {
    return Bad(name, "byte 0: the header has ", length, " bytes; at most ", kMaxHeader, " may be");
  }
  if (length > bytes.size() - 8) {
    return Bad(name, "byte 0: the header has ", length, " bytes, and the file goes on for ",
               bytes.size() - 8);
  }
  if (bytes[8] != '{') return Bad(name, "byte 8: the header does not start with {");
  ASSIGN_OR_RETURN(const Json header, Json::Parse(bytes.substr(8, length), name + ": header"));
  const absl::string_view data = bytes.substr(8 + length);
  std::vector<Entry> entries;
  for (const JsonItem item : header.Items()) {
    if (item.key() == "__metadata__") {
      RETURN_IF_ERROR(CheckMetadata(name, item.value()));
      continue;
    }
    ASSIGN_OR_RETURN(Entry e, ParseEntry(name, item.key(), item.value()));
    if (e.end > data.size()) {
      return Bad(name, "tensor ", ShowName(e.weight.name), ": its bytes end at ", e.end,
                 " after the header, where ", data.size(), " are: ", e.end - data.size(),
                 " bytes are missing (a download that broke off?)");
    }
    e.weight.bytes = data.substr(e.begin, e.end - e.begin);
    e.weight.offset = 8 + length + e.begin;
    e.weight.file = file;
    entries.push_back(std::move(e));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  WeightSet out;
  uint64_t used = 0;
  for (Entry& e : entries) {
    if (e.begin != used) {
      return Bad(name, "tensor ", ShowName(e.weight.name), ": its bytes begin at ", e.begin,
                 ", and those before it end at ", used);
    }
    used = e.end;
    RETURN_IF_ERROR(out.Add(std::move(e.weight)));
  }
  if (used != data.size()) {
    return Bad(name, data.size() - used, " bytes after the last tensor belong to none");
  }
  return out;
}

absl::StatusOr<WeightSet> OpenSafetensorsFolder(const std::string& folder) {
  const auto open = [&](const std::string& path) -> absl::StatusOr<WeightSet> {
    ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
    const absl::string_view bytes = file->bytes();
    return ParseSafetensors(bytes, path, std::move(file));
  };
  const std::string single = folder + "/model.safetensors";
  const std::string index = folder + "/model.safetensors.index.json";
  if (!Exists(index)) {
    if (!Exists(single)) return NoSafetensors(folder);
    return open(single);
  }
  ASSIGN_OR_RETURN(const auto files, ReadIndex(index));
  WeightSet all;
  for (const auto& [file, tensors] : files) {
    const std::string path = absl::StrCat(folder, "/", file);
    absl::StatusOr<WeightSet> part = open(path);
    if (!part.ok()) {
      return Bad(index, "it names ", ShowName(file), ": ", part.status().message());
    }
    for (const std::string& tensor : tensors) {
      const Weight* w = part->Find(tensor);
      if (w == nullptr) {
        return Bad(path, "tensor ", ShowName(tensor), " is missing; the index says it is here");
      }
      RETURN_IF_ERROR(all.Add(*w));
    }
  }
  return all;
}

}  // namespace tessera
