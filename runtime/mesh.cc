// Storage of parts.
#include "runtime/mesh.h"

#include <cstring>
#include <mutex>

#include "graph/infer.h"
#include "graph/status.h"
#include "runtime/box_rows.h"
#include "runtime/core_pool.h"

namespace tessera {
absl::StatusOr<std::vector<DeviceRuntime*>> DevicesOf(Device device) {
  std::vector<DeviceRuntime*> out;
  for (const Place& p : device.places()) {
    out.emplace_back();
    ASSIGN_OR_RETURN(out.back(), GetDevice(p));
  }
  return out;
}

absl::StatusOr<std::shared_ptr<Storage>> AllocateParts(absl::Span<DeviceRuntime* const> places,
                                                       absl::Span<const int64_t> bytes,
                                                       Written written) {
  auto out = std::make_shared<Storage>();
  for (size_t i = 0; i < places.size(); ++i) {
    out->parts.emplace_back();
    ASSIGN_OR_RETURN(out->parts.back(), places[i]->Allocate(bytes[i], written));
    out->bytes += bytes[i];
  }
  return out;
}

absl::StatusOr<std::shared_ptr<Storage>> AllocateTensor(const Shape& shape, DType dtype,
                                                        Device device, Written written) {
  if (shape.MaxElements() > kMostElements) return TooLarge(shape, dtype);
  if (!device.is_sharding()) {
    ASSIGN_OR_RETURN(DeviceRuntime * place, GetDevice(device.place()));
    return place->Allocate(shape.MaxElements() * dtype.bytes(), written);
  }
  const Boxes boxes = BoxesOf(shape, device);
  std::vector<int64_t> bytes;
  for (int i = 0; i < device.sharding().size(); ++i) {
    bytes.push_back(Volume(boxes.At(i)) * dtype.bytes());
  }
  ASSIGN_OR_RETURN(const std::vector<DeviceRuntime*> places, DevicesOf(device));
  return AllocateParts(places, bytes, written);
}

int64_t BytesAt(const Plan& plan, const PlanBuffer& buffer, int place) {
  if (!buffer.device.is_sharding() || buffer.shape.is_static()) return buffer.bytes;
  int64_t bytes = buffer.dtype.bytes();
  for (const Extent& e : buffer.shape) bytes *= ExtentAt(plan, e, buffer.device, place);
  return bytes;
}

absl::StatusOr<std::shared_ptr<Storage>> AllocateBuffer(const Plan& plan,
                                                        const PlanBuffer& buffer) {
  if (!buffer.device.is_sharding()) {
    ASSIGN_OR_RETURN(DeviceRuntime * place, GetDevice(buffer.device.place()));
    return place->Allocate(buffer.bytes);
  }
  ASSIGN_OR_RETURN(const std::vector<DeviceRuntime*> places, DevicesOf(buffer.device));
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < places.size(); ++i) {
    bytes.push_back(BytesAt(plan, buffer, static_cast<int>(i)));
  }
  return AllocateParts(places, bytes);
}

absl::Status CopyBytes(DeviceRuntime& to, void* target, DeviceRuntime& from, const void* source,
                       int64_t bytes) {
  if (&to == &from) return to.CopyWithin(target, source, bytes);
  if (from.IsHost()) return to.CopyIn(target, source, bytes);
  if (to.IsHost()) return from.CopyOut(target, source, bytes);
  ASSIGN_OR_RETURN(const bool copied, to.CopyFrom(from, target, source, bytes));
  if (copied) return absl::OkStatus();
  std::vector<char> staging(bytes);
  RETURN_IF_ERROR(from.CopyOut(staging.data(), source, bytes));
  return to.CopyIn(target, staging.data(), bytes);
}

absl::StatusOr<std::shared_ptr<Storage>> CopyStorage(const Storage& storage, Device device) {
  ASSIGN_OR_RETURN(const std::vector<DeviceRuntime*> places, DevicesOf(device));
  const auto copy = [](DeviceRuntime* place,
                       const Storage& from) -> absl::StatusOr<std::shared_ptr<Storage>> {
    ASSIGN_OR_RETURN(std::shared_ptr<Storage> to, place->Allocate(from.bytes));
    RETURN_IF_ERROR(place->CopyWithin(to->data, from.data, from.bytes));
    return to;
  };
  if (storage.parts.empty()) return copy(places[0], storage);
  auto out = std::make_shared<Storage>();
  out->bytes = storage.bytes;
  for (size_t i = 0; i < places.size(); ++i) {
    out->parts.emplace_back();
    ASSIGN_OR_RETURN(out->parts.back(), copy(places[i], *storage.parts[i]));
  }
  return out;
}

absl::Status ReadTensor(const Shape& shape, DType dtype, Device device, const Storage& storage,
                        void* host) {
  ASSIGN_OR_RETURN(const std::vector<DeviceRuntime*> places, DevicesOf(device));
  const int64_t width = dtype.bytes();
  if (storage.parts.empty()) {
    return places[0]->CopyOut(host, storage.data, shape.MaxElements() * width);
  }
  const Boxes boxes = BoxesOf(shape, device);
  Boxes whole{device, {}};
  for (const Extent& e : shape) whole.axes.push_back({{}, {{0, e.value()}}});
  const Box all = whole.At(0);
  // As if the first place asked for everything: of replicas, one is read.
  for (const Move& m : MovesTo(boxes, whole, 0)) {
    const Box own = boxes.At(m.from);
    std::vector<char> part(Volume(own) * width);
    const Storage& from = *storage.parts[m.from];
    RETURN_IF_ERROR(
        places[m.from]->CopyOut(part.data(), from.data, static_cast<int64_t>(part.size())));
    ForEachRow(m.box, all, own, [&](int64_t to, int64_t at, int64_t n) {
      std::memcpy(static_cast<char*>(host) + to * width, part.data() + at * width, n * width);
    });
  }
  return absl::OkStatus();
}

absl::Status ForEachPlace(int n, absl::FunctionRef<absl::Status(int)> fn) {
  if (n == 1) return fn(0);
  struct Call {
    absl::FunctionRef<absl::Status(int)> fn;
    std::mutex mutex;
    absl::Status first;
  } call{fn, {}, {}};
  CorePool::Global().Run(
      [](void* arg, int64_t worker, int64_t) {
        Call& c = *static_cast<Call*>(arg);
        absl::Status s = c.fn(static_cast<int>(worker));
        if (s.ok()) return;
        std::lock_guard lock(c.mutex);
        c.first.Update(s);
      },
      &call, n);
  return call.first;
}

}  // namespace tessera
