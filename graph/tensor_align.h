// What builders put around a primitive whose sources lie on several places: reshards before it,
// the ALLREDUCE after it. Composite functions need none of this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/tensor_internal.h"

namespace tessera::internal {

// The node with these parts, some of which are on a Sharding.
UOp BuildSharded(Op op, DType dtype, absl::Span<const UOp> srcs, Arg arg);

// The value on the device, moved below its movement ops where that moves fewer bytes. STRICT=1
// refuses to move bytes; zero-byte slices are always made. `why` is what Explain shows.
UOp Reshard(const UOp& u, const Sharding& to, const std::string& why);

// While one lives, what this thread builds is only weighed: implied copies are not refused by
// STRICT=1, nor reported by DEBUG.
class WeighedOnly {
 public:
  WeighedOnly() { ++depth_; }
  ~WeighedOnly() { --depth_; }
  WeighedOnly(const WeighedOnly&) = delete;
  static bool Now() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

// What that moves.
int64_t ReshardBytes(const UOp& u, const Sharding& to);

// ---- what the rules share

// The node, or an Error that begins with the call's name.
UOp Made(Op op, DType dtype, absl::Span<const UOp> srcs, Arg arg);
// What moves when a whole tensor goes to a device.
int64_t BytesBetween(const UOp& u, Device to);
// A COPY that no user wrote.
UOp ImpliedCopy(const UOp& u, const Sharding& to, const std::string& why);
// Brings all sources that have a device onto one mesh.
void OneMesh(Op op, std::vector<UOp>& srcs);

// GATHER's sources, brought together; and how its result is cut again, if it is.
std::optional<Sharding> AlignGather(std::vector<UOp>& srcs, const Arg& arg);
UOp BuildScatter(DType dtype, std::vector<UOp> srcs, const Arg& arg);

}  // namespace tessera::internal
