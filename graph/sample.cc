// Placeholders, and functions called with them.
#include "graph/sample.h"

#include <atomic>

#include "graph/buffer.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {

void CheckArity(const char* what, size_t takes, size_t given) {
  if (takes == given) return;
  throw Error(absl::InvalidArgumentError(
      absl::StrCat(what, " takes ", takes, " tensors, and ", given, " are passed")));
}

UOp Placeholder(DType dtype, const Shape& shape, Device device) {
  return PlaceholderOn(dtype, shape, device ? device : DefaultDevice());
}

UOp PlaceholderOn(DType dtype, const Shape& shape, Device device) {
  const UOp out = NewBuffer(dtype, shape.ToExtents(), device);
  out.arg<BufferArg>().buffer->stands_for_input = true;
  return out;
}

Device OfSample(Device device, int axis) {
  if (!device.is_sharding()) return device;
  std::vector<Placement> p = device.sharding().placements();
  for (Placement& each : p) {
    if (each.ShardsAxis(axis)) {
      each = Placement::Replicate();
    } else if (each.is(Placement::Kind::kShard) && each.axis > axis) {
      --each.axis;
    }
  }
  return device.sharding().With(std::move(p));
}

std::vector<UOp> Traced(const TensorFunction& function, const std::vector<UOp>& inputs) {
  std::vector<Tensor> results;
  {
    const Call::Pause users;
    const FunctionScope scope;
    results = function(std::vector<Tensor>(inputs.begin(), inputs.end()));
  }
  std::vector<UOp> out;
  for (const Tensor& t : results) {
    if (!t) Fail("the function returns an empty tensor");
    out.push_back(Current(t.uop()));
  }
  return out;
}

FunctionScope::FunctionScope() : before_(current_) {
  static std::atomic<uint64_t> last{0};
  current_ = ++last;
}

}  // namespace tessera::internal
