// Mapping the files that a model names, and checking what it takes of them.
#include "examples/onnx/other_files.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_split.h"
#include "examples/onnx/proto_tensor.h"

namespace tessera::onnx {
namespace {

using File = std::shared_ptr<const MappedFile>;

// Whether a path leads out of the folder that it starts in. Links in the folder are its owner's.
bool LeadsOut(const std::string& path) {
  if (path.empty() || path[0] == '/' || path.find('\0') != std::string::npos) return true;
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  return std::find(parts.begin(), parts.end(), "..") != parts.end();
}

std::vector<TensorData*> TensorsOf(Model& model) {
  std::vector<TensorData*> out;
  const auto add = [&](std::map<std::string, Attribute>& attributes) {
    for (auto& [name, a] : attributes) {
      for (TensorData& t : a.tensors) out.push_back(&t);
    }
  };
  for (Graph& g : model.graphs) {
    for (TensorData& t : g.initializers) out.push_back(&t);
    for (Node& node : g.nodes) add(node.attributes);
  }
  for (Function& f : model.functions) {
    add(f.defaults);
    for (Node& node : f.nodes) add(node.attributes);
  }
  return out;
}

// Takes the tensor's part of a file.
absl::Status Take(TensorData& t, const MappedFile& file) {
  const absl::string_view all = file.bytes();
  const uint64_t offset = t.elsewhere.offset;
  const uint64_t left = offset <= all.size() ? all.size() - offset : 0;
  const uint64_t length = t.elsewhere.length.value_or(left);
  if (offset > all.size() || length > left) {
    return absl::DataLossError(absl::StrCat(file.path(), ": tensor ", ShowName(t.name), " takes ",
                                            length, " bytes from byte ", offset,
                                            ", and the file has ", all.size()));
  }
  t.raw = all.substr(offset, length);
  t.elsewhere = {};
  const std::string fault = t.dtype() ? FitData(t, true) : "";
  if (!fault.empty()) return absl::DataLossError(absl::StrCat(file.path(), ": ", fault));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<File>> ReadOtherFiles(Model& model, const std::string& folder) {
  std::map<std::string, File> files;
  for (TensorData* t : TensorsOf(model)) {
    const std::string location = t->elsewhere.location;
    if (location.empty()) continue;
    if (LeadsOut(location)) {
      return absl::InvalidArgumentError(absl::StrCat(folder, ": tensor ", ShowName(t->name),
                                                     " is in ", ShowName(location),
                                                     ", which lies outside the model's folder"));
    }
    File& file = files[location];
    if (file == nullptr) {
      ASSIGN_OR_RETURN(file, MappedFile::Open(folder + "/" + location));
    }
    RETURN_IF_ERROR(Take(*t, *file));
  }
  std::vector<File> out;
  for (auto& [location, file] : files) out.push_back(std::move(file));
  return out;
}

}  // namespace tessera::onnx
