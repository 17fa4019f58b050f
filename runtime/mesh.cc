// Storage of parts, and collectives in this process's memory.
#include "runtime/mesh.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "graph/fold.h"
#include "graph/scalar_math.h"
#include "graph/status.h"
#include "runtime/core_pool.h"

namespace tessera {
namespace {

// Visits the rows of a box that lies within two row-major arrays: fn(offset in a, offset in b,
// elements), in elements.
template <typename Fn>
void ForEachRow(const Box& box, const Box& a, const Box& b, Fn fn) {
  const int rank = static_cast<int>(box.size());
  if (Volume(box) == 0) return;
  // Trailing axes that are whole in both are one run.
  int64_t run = 1;
  int outer = rank;
  while (outer > 0) {
    --outer;
    run *= box[outer].size();
    if (box[outer].size() != a[outer].size() || box[outer].size() != b[outer].size()) break;
  }
  const auto strides = [rank](const Box& x) {
    absl::InlinedVector<int64_t, 4> s(rank, 1);
    for (int i = rank - 2; i >= 0; --i) s[i] = s[i + 1] * x[i + 1].size();
    return s;
  };
  const auto sa = strides(a), sb = strides(b);
  int64_t ia = 0, ib = 0;
  for (int i = 0; i < rank; ++i) {
    ia += (box[i].begin - a[i].begin) * sa[i];
    ib += (box[i].begin - b[i].begin) * sb[i];
  }
  absl::InlinedVector<int64_t, 4> at(rank, 0);
  for (;;) {
    fn(ia, ib, run);
    int i = outer - 1;
    for (; i >= 0; --i) {
      ia += sa[i];
      ib += sb[i];
      if (++at[i] < box[i].size()) break;
      ia -= sa[i] * box[i].size();
      ib -= sb[i] * box[i].size();
      at[i] = 0;
    }
    if (i < 0) return;
  }
}

absl::StatusOr<std::shared_ptr<Storage>> AllocateParts(Device device,
                                                       absl::Span<const int64_t> bytes) {
  ASSIGN_OR_RETURN(const std::vector<DeviceRuntime*> places, DevicesOf(device));
  auto out = std::make_shared<Storage>();
  for (size_t i = 0; i < places.size(); ++i) {
    out->parts.emplace_back();
    ASSIGN_OR_RETURN(out->parts.back(), places[i]->Allocate(bytes[i]));
    out->bytes += bytes[i];
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<DeviceRuntime*>> DevicesOf(Device device) {
  std::vector<DeviceRuntime*> out;
  for (const Place& p : device.places()) {
    out.emplace_back();
    ASSIGN_OR_RETURN(out.back(), GetDevice(p));
  }
  return out;
}

absl::StatusOr<std::shared_ptr<Storage>> AllocateTensor(const Shape& shape, DType dtype,
                                                        Device device) {
  if (!device.is_sharding()) {
    ASSIGN_OR_RETURN(DeviceRuntime * place, GetDevice(device.place()));
    return place->Allocate(shape.MaxElements() * dtype.bytes());
  }
  const Boxes boxes = BoxesOf(shape, device);
  std::vector<int64_t> bytes;
  for (int i = 0; i < device.sharding().size(); ++i) {
    bytes.push_back(Volume(boxes.At(i)) * dtype.bytes());
  }
  return AllocateParts(device, bytes);
}

absl::StatusOr<std::shared_ptr<Storage>> AllocateBuffer(const Plan& plan,
                                                        const PlanBuffer& buffer) {
  if (!buffer.device.is_sharding()) {
    ASSIGN_OR_RETURN(DeviceRuntime * place, GetDevice(buffer.device.place()));
    return place->Allocate(buffer.bytes);
  }
  std::vector<int64_t> bytes(buffer.device.sharding().size(), buffer.bytes);
  for (size_t i = 0; i < bytes.size() && !buffer.shape.is_static(); ++i) {
    bytes[i] = buffer.dtype.bytes();
    for (const Extent& e : buffer.shape) {
      bytes[i] *= ExtentAt(plan, e, buffer.device, static_cast<int>(i));
    }
  }
  return AllocateParts(buffer.device, bytes);
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

absl::Status RunExchange(const PlanStep& step, int64_t width, absl::Span<void* const> target,
                         absl::Span<const void* const> source) {
  ASSIGN_OR_RETURN(const std::vector<DeviceRuntime*> to, DevicesOf(step.to->device));
  ASSIGN_OR_RETURN(const std::vector<DeviceRuntime*> from, DevicesOf(step.from->device));
  if (!to[0]->Computes() || !from[0]->Computes()) return absl::OkStatus();
  if (!to[0]->IsHost() || !from[0]->IsHost()) {
    return absl::UnimplementedError("exchange: only places of the host exchange parts yet");
  }
  return ForEachPlace(static_cast<int>(to.size()), [&](int i) {
    const Box want = step.to->At(i);
    for (const Move& m : MovesTo(*step.from, *step.to, i)) {
      const char* in = static_cast<const char*>(source[m.from]);
      char* out = static_cast<char*>(target[i]);
      ForEachRow(m.box, want, step.from->At(m.from), [&](int64_t a, int64_t b, int64_t n) {
        std::memcpy(out + a * width, in + b * width, n * width);
      });
    }
    return absl::OkStatus();
  });
}

namespace {

template <typename T, typename Fn>
void Combine(T* out, absl::Span<const void* const> parts, int64_t begin, int64_t end, Fn fn) {
  std::memcpy(out + begin, static_cast<const T*>(parts[0]) + begin, (end - begin) * sizeof(T));
  for (size_t p = 1; p < parts.size(); ++p) {
    const T* in = static_cast<const T*>(parts[p]);
    for (int64_t i = begin; i < end; ++i) out[i] = fn(out[i], in[i]);
  }
}

// Elements of one dtype, one at a time: what no loop above covers.
void CombineScalars(Op op, DType dtype, void* out, absl::Span<const void* const> parts,
                    int64_t begin, int64_t end) {
  const int64_t width = dtype.bytes();
  for (int64_t i = begin; i < end; ++i) {
    const auto at = [&](const void* p) {
      return LoadScalar(static_cast<const uint8_t*>(p) + i * width, dtype);
    };
    Scalar value = at(parts[0]);
    for (size_t p = 1; p < parts.size(); ++p) {
      value = EvaluateScalarOp(op, dtype, dtype, {value, at(parts[p])});
    }
    StoreScalar(static_cast<uint8_t*>(out) + i * width, dtype, value);
  }
}

template <typename T>
void CombineFloats(Op op, DType dtype, T* out, absl::Span<const void* const> parts, int64_t begin,
                   int64_t end) {
  switch (op) {
    case Op::kAdd:
      return Combine(out, parts, begin, end, [](T a, T b) { return a + b; });
    case Op::kMul:
      return Combine(out, parts, begin, end, [](T a, T b) { return a * b; });
    default:
      return CombineScalars(op, dtype, out, parts, begin, end);
  }
}

// Bytes of which at most one part has any that are not zero.
void CombineSelected(int64_t width, char* out, absl::Span<const void* const> parts, int64_t begin,
                     int64_t end) {
  Combine(out, parts, begin * width, end * width,
          [](char a, char b) { return static_cast<char>(a | b); });
}

void CombineAny(Op op, DType dtype, void* out, absl::Span<const void* const> parts, int64_t begin,
                int64_t end) {
  if (op == Op::kWhere) {
    return CombineSelected(dtype.bytes(), static_cast<char*>(out), parts, begin, end);
  }
  if (dtype == kFloat32) {
    return CombineFloats(op, dtype, static_cast<float*>(out), parts, begin, end);
  }
  if (dtype == kFloat64) {
    return CombineFloats(op, dtype, static_cast<double*>(out), parts, begin, end);
  }
  CombineScalars(op, dtype, out, parts, begin, end);
}

constexpr int64_t kChunk = 1 << 14;  // elements that one worker combines at a time

}  // namespace

absl::Status RunAllReduce(const PlanStep& step, DType dtype, Device mesh,
                          absl::Span<const int64_t> elements, absl::Span<void* const> target,
                          absl::Span<const void* const> source) {
  ASSIGN_OR_RETURN(const std::vector<DeviceRuntime*> places, DevicesOf(mesh));
  if (!places[0]->Computes()) return absl::OkStatus();
  if (!places[0]->IsHost()) {
    return absl::UnimplementedError("all-reduce: only places of the host combine values yet");
  }
  struct Chunk {
    const std::vector<int>* group;
    int64_t begin, end;
  };
  const std::vector<std::vector<int>> groups = mesh.sharding().mesh().Groups(step.dims);
  std::vector<Chunk> chunks;
  for (const std::vector<int>& g : groups) {
    const int64_t n = elements[g[0]];
    for (int64_t at = 0; at < n; at += kChunk) chunks.push_back({&g, at, std::min(n, at + kChunk)});
  }
  return ForEachPlace(std::max<int>(1, static_cast<int>(chunks.size())), [&](int c) {
    if (chunks.empty()) return absl::OkStatus();
    const auto& [group, begin, end] = chunks[c];
    std::vector<const void*> parts;
    for (int i : *group) parts.push_back(source[i]);
    void* first = target[(*group)[0]];
    CombineAny(step.op, dtype, first, parts, begin, end);
    const int64_t width = dtype.bytes();
    for (size_t i = 1; i < group->size(); ++i) {
      std::memcpy(static_cast<char*>(target[(*group)[i]]) + begin * width,
                  static_cast<const char*>(first) + begin * width, (end - begin) * width);
    }
    return absl::OkStatus();
  });
}

}  // namespace tessera
