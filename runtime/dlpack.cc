// DLPack in and out.
#include "runtime/dlpack.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "graph/buffer.h"
#include "graph/infer.h"
#include "graph/tensor_internal.h"
#include "runtime/device.h"
#include "runtime/mapped_file.h"
#include "runtime/mesh.h"

namespace tessera {
namespace {

using internal::Call;
using internal::Fail;
using internal::Show;

struct Name {
  DType dtype;
  uint8_t code;
};
constexpr Name kNames[] = {{kBool, kDLBool},
                           {kInt8, kDLInt},
                           {kInt16, kDLInt},
                           {kInt32, kDLInt},
                           {kInt64, kDLInt},
                           {kUInt8, kDLUInt},
                           {kUInt16, kDLUInt},
                           {kUInt32, kDLUInt},
                           {kUInt64, kDLUInt},
                           {kFloat16, kDLFloat},
                           {kFloat32, kDLFloat},
                           {kFloat64, kDLFloat},
                           {kBFloat16, kDLBfloat},
                           {kFloat8E4M3, kDLFloat8E4M3Fn},
                           {kFloat8E5M2, kDLFloat8E5M2}};

// What a managed tensor of ours keeps alive.
struct Held {
  std::shared_ptr<Storage> storage;
  std::vector<int64_t> shape, strides;
  DLManagedTensor managed;
};

// Where its memory lies, once all that was launched has written it: whoever gets the memory knows
// nothing of our streams.
DLDevice FinishedOn(const Tensor& t) {
  if (t.device().is_sharding()) {
    Fail("the tensor is in parts on ", t.device().ToString(), "; gather it with .To(\"CPU\")");
  }
  const Place& place = t.device().place();
  const absl::StatusOr<DeviceRuntime*> device = GetDevice(place);
  internal::ThrowAsCall(device.status());
  internal::ThrowAsCall((*device)->Wait());
  if (place.kind() == "CPU") return {kDLCPU, 0};  // virtual devices share the memory
  if (place.kind() == "CUDA") return {kDLCUDA, place.index()};
  Fail("the tensor is on ", t.device().ToString(),
       ", whose memory nobody else can read; move it "
       "with .To(\"CPU\")");
}

DLDataType TypeOf(DType dtype) {
  for (const Name& n : kNames) {
    if (n.dtype == dtype) return {n.code, static_cast<uint8_t>(dtype.bits()), 1};
  }
  Fail(dtype.ToString(), " has no code in DLPack; cast it");
}

DType TypeOf(const DLDataType& d) {
  for (const Name& n : kNames) {
    if (d.lanes == 1 && n.code == d.code && n.dtype.bits() == d.bits) return n.dtype;
  }
  Fail("the dtype of code ", int{d.code}, " with ", int{d.bits}, " bits and ", int{d.lanes},
       " lanes is not known");
}

// Axes by falling stride, those that repeat elements left out.
std::vector<int> OrderOf(const DLTensor& d) {
  std::vector<int> order;
  for (int i = 0; i < d.ndim; ++i) {
    if (d.strides[i] != 0 || d.shape[i] <= 1) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    // An axis of one element lies anywhere.
    const auto stride = [&](int i) { return d.shape[i] == 1 ? 0 : d.strides[i]; };
    return stride(a) > stride(b);
  });
  return order;
}

void CheckShape(const DLTensor& d) {
  if (d.ndim < 0 || d.ndim > kMaxRank) {
    Fail("the tensor has ", d.ndim, " axes, not 0 to ", kMaxRank, "; reshape it first");
  }
  if (d.ndim > 0 && d.shape == nullptr) Fail("the tensor has ", d.ndim, " axes and no shape");
  uint64_t bytes = static_cast<uint64_t>(d.dtype.bits) / 8;
  for (int i = 0; i < d.ndim; ++i) {
    if (d.shape[i] < 0) Fail("axis ", i, " has the extent ", d.shape[i]);
    if (!CheckedMul(bytes, static_cast<uint64_t>(d.shape[i]), &bytes) || bytes > INT64_MAX) {
      Fail("the elements of the shape do not fit in 63 bits");
    }
  }
}

// Tensors of equal expressions may share a value, and with it the memory that one gives out.
void MakeOwn(const Tensor& t) {
  const UOp shared = t.uop();
  constexpr int kOwn = 2;  // the tensor and this
  if (!t.StandAlone() || shared.get()->refs.load() <= kOwn) return;
  const Buffer& from = *shared.arg<BufferArg>().buffer;
  const UOp own = internal::NewBuffer(shared.dtype(), shared.shape().ToExtents(), shared.device());
  Buffer& to = *own.arg<BufferArg>().buffer;
  absl::StatusOr<std::shared_ptr<Storage>> copy = CopyStorage(*from.storage, shared.device());
  internal::ThrowAsCall(copy.status());
  to.storage = *std::move(copy);
  to.history = from.history;
  to.computed_from = from.computed_from;
  t.SetUOp(own);
}

}  // namespace

DLManagedTensor* ToDlpack(const Tensor& tensor, CallSite at) {
  Call call("ToDlpack", at, tensor);
  if (!tensor.shape().is_static()) Fail("the shape of ", Show(tensor), " is symbolic");
  auto held = std::make_unique<Held>();
  Tensor computed = tensor;
  computed.Realize(at);
  internal::ThrowAsCall(
      CheckNotLost(*computed.uop().arg<BufferArg>().buffer->storage, Show(tensor)));
  const DLDataType dtype = TypeOf(tensor.dtype());
  const DLDevice device = FinishedOn(computed);
  MakeOwn(computed);
  held->storage = computed.uop().arg<BufferArg>().buffer->storage;
  Storage& storage = *held->storage;
  const int rank = tensor.rank();
  held->shape.resize(rank);
  held->strides.resize(rank);
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    held->shape[i] = tensor.size(i);
    held->strides[i] = stride;
    stride *= tensor.size(i);
  }
  DLTensor& d = held->managed.dl_tensor;
  d = {storage.data, device, rank, dtype, held->shape.data(), held->strides.data(), 0};
  held->managed.manager_ctx = held.get();
  held->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Held*>(self->manager_ctx);
  };
  storage.is_shared = true;
  return &held.release()->managed;
}

Tensor FromDlpack(DLManagedTensor* managed, CallSite at) {
  Call call("FromDlpack", at);
  if (managed == nullptr) Fail("the pointer is null");
  const DLTensor& d = managed->dl_tensor;
  if (d.device.device_type != kDLCPU) {
    Fail("the memory is on a device of type ", d.device.device_type,
         "; only the CPU's can be used in place");
  }
  const DType dtype = TypeOf(d.dtype);
  CheckShape(d);
  const bool empty = std::any_of(d.shape, d.shape + d.ndim, [](int64_t n) { return n == 0; });
  std::vector<int> order(d.ndim);
  std::iota(order.begin(), order.end(), 0);
  if (d.strides != nullptr && !empty) order = OrderOf(d);
  std::vector<int64_t> stored;
  int64_t expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int axis = order[i];
    if (d.strides != nullptr && !empty && d.shape[axis] != 1 && d.strides[axis] != expected) {
      Fail("axis ", axis, " of extent ", d.shape[axis], " has the stride ", d.strides[axis],
           ", not ", expected, ": the elements have gaps; make the tensor contiguous first");
    }
    expected *= d.shape[axis];
    stored.insert(stored.begin(), d.shape[axis]);
  }
  const bool nothing = empty || d.data == nullptr;
  void* data = nothing ? nullptr : static_cast<char*>(d.data) + d.byte_offset;
  // Until all has gone well the memory is the caller's.
  const auto ours = std::make_shared<bool>(false);
  Tensor t = Tensor::FromBlob(
      data, stored, dtype,
      [managed, ours](void*) {
        if (*ours && managed->deleter != nullptr) managed->deleter(managed);
      },
      {}, at);
  // Back from the order in memory, with the axes that repeat elements.
  Ints back(order.size());
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < order.size(); ++i) {
    back[std::lower_bound(sorted.begin(), sorted.end(), order[i]) - sorted.begin()] =
        static_cast<int64_t>(i);
  }
  if (!order.empty()) t = t.Permute(back);
  std::vector<int64_t> whole(d.shape, d.shape + d.ndim);
  for (int i = 0; i < d.ndim; ++i) {
    if (std::find(order.begin(), order.end(), i) == order.end()) t = t.Unsqueeze(i);
  }
  if (static_cast<int>(order.size()) < d.ndim) t = t.Expand(whole);
  *ours = true;
  return t;
}

}  // namespace tessera
