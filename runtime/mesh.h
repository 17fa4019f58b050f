// What is on several places at once: storage of parts, and work for each of them.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/box.h"
#include "graph/buffer.h"
#include "graph/uop.h"
#include "runtime/device.h"
#include "schedule/plan.h"

namespace tessera {

// The devices at the places of a device, in order.
absl::StatusOr<std::vector<DeviceRuntime*>> DevicesOf(Device device);

// Storage of a tensor on one place, or parts of it on each: as many bytes as each part has.
absl::StatusOr<std::shared_ptr<Storage>> AllocateTensor(const Shape& shape, DType dtype,
                                                        Device device, Written written);
// The same of a plan's buffer.
absl::StatusOr<std::shared_ptr<Storage>> AllocateBuffer(const Plan& plan, const PlanBuffer& buffer);
// The bytes of its part at one of its places.
int64_t BytesAt(const Plan& plan, const PlanBuffer& buffer, int place);
// Parts of these sizes, one on each place.
absl::StatusOr<std::shared_ptr<Storage>> AllocateParts(absl::Span<DeviceRuntime* const> places,
                                                       absl::Span<const int64_t> bytes,
                                                       Written written = Written::kWhole);

// Bytes from one place to another, by memory of the host where neither reaches the other.
absl::Status CopyBytes(DeviceRuntime& to, void* target, DeviceRuntime& from, const void* source,
                       int64_t bytes);

// New storage with the same bytes, on the same places.
absl::StatusOr<std::shared_ptr<Storage>> CopyStorage(const Storage& storage, Device device);

// The whole tensor, row-major, into host memory.
absl::Status ReadTensor(const Shape& shape, DType dtype, Device device, const Storage& storage,
                        void* host);

// Calls fn(i) for each of n places, side by side on the core pool; the earliest error, if any.
absl::Status ForEachPlace(int n, absl::FunctionRef<absl::Status(int)> fn);

}  // namespace tessera
