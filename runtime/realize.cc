// The members of Tensor that run something: realising, reading, wrapping memory, printing.
#include <cmath>
#include <cstring>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/buffer.h"
#include "graph/evaluate.h"
#include "graph/history.h"
#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"
#include "runtime/mesh.h"
#include "runtime/realize.h"

namespace tessera {
namespace {

using internal::Call;
using internal::Fail;
using internal::ThrowAsCall;

std::shared_ptr<Storage> StorageOf(const UOp& buffer) {
  return buffer.arg<BufferArg>().buffer->storage;
}

bool IsRealised(const UOp& u) { return u.is(Op::kBuffer) && StorageOf(u) != nullptr; }

void CheckNotCaptured() {
  if (internal::Trace::Current() == nullptr) return;
  Fail(
      "a step that is being captured has no values yet, and what it read now would not change in "
      "a replay; return the tensor from the step and read the result");
}

void RealizeAll(absl::Span<Tensor> tensors) {
  CheckNotCaptured();
  std::vector<UOp> roots;
  std::vector<Tensor*> pending;
  for (Tensor& t : tensors) {
    if (IsRealised(t.uop())) continue;
    roots.push_back(t.uop());
    pending.push_back(&t);
  }
  if (roots.empty()) return;
  absl::StatusOr<std::vector<UOp>> done = RealizeNodes(roots, {});
  ThrowAsCall(done.status());
  for (size_t i = 0; i < pending.size(); ++i) pending[i]->SetUOp((*done)[i]);
  KeepHistories(roots, *done);
}

// The elements of a realised tensor, in host memory.
HostArray ReadBack(const Tensor& tensor) {
  if (const Device d = tensor.device();
      d.is_sharding() && d.sharding().Has(Placement::Kind::kManual)) {
    Fail(internal::Show(tensor), " is each place's own, and so no one value; return it from the ",
         "ShardMap and read the result");
  }
  Tensor t = tensor;
  RealizeAll({&t, 1});
  HostArray out;
  out.dtype = t.dtype();
  for (const Extent& e : t.shape()) {
    if (!e.is_int())
      Fail("the shape ", t.shape().ToString(), " is symbolic; it has no values to read");
    out.shape.push_back(e.value());
  }
  out.bytes.resize(t.elements() * t.dtype().bytes());
  ThrowAsCall(CheckNotLost(*StorageOf(t.uop()), internal::Show(t)));
  ThrowAsCall(ReadTensor(t.shape(), t.dtype(), t.device(), *StorageOf(t.uop()), out.bytes.data()));
  return out;
}

template <typename E>
E As(Scalar v, DType from) {
  const Scalar to = Convert(v, from, DTypeOf<E>());
  if constexpr (std::is_floating_point_v<E>) return static_cast<E>(to.AsFloat());
  return static_cast<E>(to.bits);
}

// How many entries of a long axis are printed at each end.
constexpr int64_t kEdge = 3, kLong = 8;

std::string Element(const HostArray& a, int64_t i) {
  if (!a.dtype.IsFloat()) return ScalarToString(a.At(i), a.dtype);
  const double d = a.At(i).AsFloat();
  if (std::isnan(d)) return "nan";
  return absl::StrFormat("%.*g", a.dtype.bits() >= 32 ? 6 : 4, d);
}

void PrintAxis(std::ostream& out, const HostArray& a, size_t axis, int64_t offset,
               int64_t elements) {
  if (axis == a.shape.size()) {
    out << Element(a, offset);
    return;
  }
  const int64_t n = a.shape[axis], inner = n == 0 ? 0 : elements / n;
  const bool last = axis + 1 == a.shape.size();
  out << "[";
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0) out << (last ? ", " : ",\n" + std::string(axis + 1, ' '));
    if (n > kLong && i == kEdge) {
      out << "...";
      i = n - kEdge - 1;
      continue;
    }
    PrintAxis(out, a, axis + 1, offset + i * inner, inner);
  }
  out << "]";
}

}  // namespace

Tensor& Tensor::Realize(CallSite at) {
  Call call("Realize", at, *this);
  RealizeAll({this, 1});
  return *this;
}

void Tensor::Realize(absl::Span<Tensor> tensors, CallSite at) {
  Call call("Realize", at, absl::MakeConstSpan(tensors));
  RealizeAll(tensors);
}

std::vector<Tensor> Realize(const std::vector<Tensor>& tensors, const Bindings& values,
                            CallSite at) {
  Call call("Realize", at, absl::MakeConstSpan(tensors));
  CheckNotCaptured();
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
  absl::StatusOr<std::vector<UOp>> done = RealizeNodes(roots, values);
  ThrowAsCall(done.status());
  std::vector<Tensor> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (roots[i].is(Op::kAssign)) tensors[i].SetUOp((*done)[i]);
    out.push_back(roots[i].is(Op::kAssign) ? tensors[i] : Tensor((*done)[i]));
  }
  return out;
}

double Tensor::Item(CallSite at) const { return Item<double>(at); }

template <typename E>
E Tensor::Item(CallSite at) const {
  Call call("Item", at, *this);
  if (!shape().Elements().is_int(1)) {
    Fail("takes a tensor of one element; got ", internal::Show(*this),
         "; index it, or use ToVector");
  }
  return As<E>(ReadBack(*this).At(0), dtype());
}

template <typename E>
std::vector<E> Tensor::ToVector(CallSite at) const {
  Call call("ToVector", at, *this);
  const HostArray a = ReadBack(*this);
  const int64_t n = static_cast<int64_t>(a.bytes.size()) / a.dtype.bytes();
  std::vector<E> out(n);
  if constexpr (!std::is_same_v<E, bool>) {
    if (a.dtype == DTypeOf<E>()) {
      if (n > 0) std::memcpy(out.data(), a.bytes.data(), a.bytes.size());
      return out;
    }
  }
  for (int64_t i = 0; i < n; ++i) out[i] = As<E>(a.At(i), a.dtype);
  return out;
}

template <typename E>
const E* Tensor::Data(CallSite at) const {
  Call call("Data", at, *this);
  if (!(dtype() == DTypeOf<E>())) {
    Fail("the tensor is ", dtype().ToString(), ", not ", DTypeOf<E>().ToString(),
         "; cast it, or use ToVector");
  }
  Tensor t = *this;
  RealizeAll({&t, 1});
  if (t.device().is_sharding()) {
    Fail("the tensor is in parts on ", t.device().ToString(), "; gather it with .To(\"CPU\")");
  }
  absl::StatusOr<DeviceRuntime*> device = GetDevice(t.device().place());
  ThrowAsCall(device.status());
  if (!(*device)->IsHost())
    Fail("the tensor is on ", t.device().ToString(), "; move it with .To(\"CPU\")");
  ThrowAsCall(CheckNotLost(*StorageOf(t.uop()), internal::Show(t)));
  return static_cast<const E*>(StorageOf(t.uop())->data);
}

#define TESSERA_READ(E)                                        \
  template E Tensor::Item<E>(CallSite) const;                  \
  template std::vector<E> Tensor::ToVector<E>(CallSite) const; \
  template const E* Tensor::Data<E>(CallSite) const;
TESSERA_READ(bool)
TESSERA_READ(int8_t)
TESSERA_READ(int16_t)
TESSERA_READ(int32_t)
TESSERA_READ(int64_t)
TESSERA_READ(uint8_t)
TESSERA_READ(uint16_t)
TESSERA_READ(uint32_t)
TESSERA_READ(uint64_t)
TESSERA_READ(float)
TESSERA_READ(double)
#undef TESSERA_READ

Tensor Tensor::FromBlob(void* data, const Dims& shape, DType dtype,
                        std::function<void(void*)> deleter, Device device, CallSite at) {
  Call call("FromBlob", at);
  const Device home = device ? device : Device(Place("CPU", 0));
  const UOp buffer = internal::NewBuffer(dtype, shape.extents(), home);
  const int64_t bytes = internal::CheckHostBytes(buffer, data);
  // Places that all have the whole may all read it there.
  const bool shared = home.is_sharding() && home.sharding() == Sharding(home.sharding().mesh());
  if ((home.is_sharding() && !shared) || home.places()[0].kind() != "CPU") {
    Fail("memory of the host belongs to CPU places that have all of it, not to ", home.ToString());
  }
  if (reinterpret_cast<uintptr_t>(data) % dtype.bytes() != 0) {
    Fail("the pointer is not aligned to ", dtype.bytes(), " bytes, as ", dtype.ToString(),
         " must be");
  }
  if (dtype.IsBool()) {  // kernels rely on 0 and 1
    const auto* const first = static_cast<const uint8_t*>(data);
    const auto* const wrong = std::find_if(first, first + bytes, [](uint8_t b) { return b > 1; });
    if (wrong != first + bytes) {
      Fail("element ", wrong - first, " is the byte ", int{*wrong},
           ", and bools are 0 or 1; pass u8 and compare it, as in t != 0");
    }
  }
  auto storage = std::make_shared<Storage>();
  storage->data = data;
  storage->bytes = bytes;
  storage->is_shared = true;
  for (size_t i = 0; shared && i < home.places().size(); ++i) {
    storage->parts.push_back(std::make_shared<Storage>());
    storage->parts.back()->data = data;
    storage->parts.back()->bytes = storage->bytes;
  }
  if (deleter) storage->deleter = [deleter = std::move(deleter)](Storage& s) { deleter(s.data); };
  buffer.arg<BufferArg>().buffer->storage = std::move(storage);
  return Tensor(buffer);
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t) return out << "(empty tensor)";
  Call call("operator<<", CallSite::Here());
  const std::string what =
      absl::StrCat(t.dtype().ToString(), t.shape().ToString(), " on ",
                   t.device() ? t.device().ToString() : internal::DefaultDevice().ToString());
  if (!t.shape().is_static() || (t.device() && t.device().places()[0].kind() == "NULL")) {
    return out << "(" << what << ", not computed)";
  }
  const HostArray a = ReadBack(t);
  PrintAxis(out, a, 0, 0, static_cast<int64_t>(a.bytes.size()) / std::max(1, a.dtype.bytes()));
  return out << "  " << what;
}

}  // namespace tessera
