// Images of the simulated GPU.
#include "runtime/sim/module.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "graph/status.h"

namespace tessera::sim {
namespace {
constexpr char kMagic[8] = {'T', 'S', 'I', 'M', 'G', '0', '0', '1'};
}  // namespace

std::string MakeImage(absl::string_view object) {
  const uint64_t bytes = object.size();
  std::string out(kMagic, sizeof(kMagic));
  out.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  out.append(object.data(), object.size());
  return out;
}

absl::StatusOr<std::unique_ptr<Module>> LoadImage(const void* image) {
  const char* p = static_cast<const char*>(image);
  if (std::memcmp(p, kMagic, sizeof(kMagic)) != 0) {
    return absl::DataLossError("no image of the simulated GPU");
  }
  uint64_t bytes = 0;
  std::memcpy(&bytes, p + sizeof(kMagic), sizeof(bytes));
  auto module = std::make_unique<Module>();
  const absl::string_view object(p + sizeof(kMagic) + sizeof(bytes), bytes);
  ASSIGN_OR_RETURN(module->object, LoadedObject::Load(object));
  return module;
}

Function* Module::Find(const std::string& name) {
  void* const entry = object->Symbol(name);
  void* const params = object->Symbol(absl::StrCat(name, "_params"));
  if (entry == nullptr || params == nullptr) return nullptr;
  auto f = std::make_unique<Function>();
  f->name = name;
  f->device = device;
  f->entry = reinterpret_cast<Entry>(entry);
  f->params = *static_cast<const int32_t*>(params);
  functions.push_back(std::move(f));
  return functions.back().get();
}

}  // namespace tessera::sim
