// Scanning for NaNs, and computing a graph node by node until one makes one.
#include "runtime/check_nan.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/buffer.h"
#include "graph/callsite.h"
#include "graph/infer.h"
#include "graph/rewrite.h"
#include "graph/status.h"

namespace tessera {
namespace {

// Nodes with more elements than the largest tensor of the graph that exists, and than this, are not
// computed on their own: the products that a matrix product sums would fill the memory.
constexpr int64_t kAlwaysComputed = 1 << 20;

template <typename T>
int64_t FindNanIn(const void* data, int64_t elements) {
  const T* p = static_cast<const T*>(data);
  for (int64_t i = 0; i < elements; ++i) {
    if (p[i] != p[i]) return i;
  }
  return -1;
}

const std::shared_ptr<Storage>& StorageOf(const UOp& buffer) {
  return buffer.arg<BufferArg>().buffer->storage;
}

// The first NaN of a computed node, or -1; the first of what its bounded shape may hold.
int64_t NanOf(const UOp& buffer) {
  const std::shared_ptr<Storage>& storage = StorageOf(buffer);
  if (storage == nullptr || storage->data == nullptr) return -1;
  if (!buffer.shape().is_static()) return -1;
  return FindNan(storage->data, buffer.dtype(), buffer.shape().MaxElements());
}

bool MakesValues(const UOp& u) {
  return u.dtype().IsFloat() && (IsElementwise(u.op()) || u.is(Op::kReduce)) &&
         u.shape().is_static();
}

absl::Status Named(const UOp& u, int64_t position, const absl::Status& found) {
  std::vector<int64_t> shape;
  for (const Extent& e : u.shape()) shape.push_back(e.value());
  const CallSite* site = u.call_site();
  return absl::InvalidArgumentError(absl::StrCat(
      "realize: ", Info(u.op()).text, " makes the first NaN, at ", ShowPosition(position, shape),
      " of ", Describe(u), site != nullptr ? absl::StrCat(", written at ", site->ToString()) : "",
      "; what it reads holds none (", found.message().substr(sizeof("realize:")), ")"));
}

}  // namespace

int64_t FindNan(const void* data, DType dtype, int64_t elements) {
  if (!dtype.IsFloat()) return -1;
  if (dtype == kFloat32) return FindNanIn<float>(data, elements);
  if (dtype == kFloat64) return FindNanIn<double>(data, elements);
  const auto* bytes = static_cast<const uint8_t*>(data);
  for (int64_t i = 0; i < elements; ++i) {
    if (std::isnan(LoadScalar(bytes + i * dtype.bytes(), dtype).AsFloat())) return i;
  }
  return -1;
}

std::string ShowPosition(int64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> at(shape.size());
  for (size_t i = shape.size(); i-- > 0; flat /= std::max<int64_t>(1, shape[i])) {
    at[i] = flat % std::max<int64_t>(1, shape[i]);
  }
  return absl::StrCat("[", absl::StrJoin(at, ", "), "]");
}

absl::Status NameNanOp(const PlanKey& key, const Bindings& bindings, const absl::Status& found) {
  int64_t most = kAlwaysComputed;
  for (const UOp& leaf : key.leaves) most = std::max(most, leaf.shape().MaxElements());
  for (const UOp& u : key.order) {
    if (u.is(Op::kAssign) && !u.realized()) return found;
    if (u.device().is_sharding()) return found;
    if (!u.device()) continue;
    const auto device = GetDevice(u.device().place());
    if (!device.ok() || !(*device)->IsHost()) return found;
  }
  Substitution stands;                       // for a node: what it was computed into
  absl::flat_hash_set<const Node*> has_nan;  // of the nodes, those whose elements hold one
  for (const UOp& u : key.order) {
    const UOp computed = u.realized();
    if (computed || u.is(Op::kBuffer)) {
      stands.emplace(u, computed ? computed : u);
      if (NanOf(stands.at(u)) >= 0) has_nan.insert(u.get());
      continue;
    }
    if (StandsForFirst(u)) {
      stands.emplace(u, stands.at(u.src(0)));
      if (has_nan.contains(u.src(0).get())) has_nan.insert(u.get());
      continue;
    }
    absl::InlinedVector<UOp, 4> srcs;
    bool nan_before = u.IsConst() && u.dtype().IsFloat() && std::isnan(u.arg<Scalar>().AsFloat());
    for (const UOp& s : u.srcs()) {
      srcs.push_back(stands.at(s));
      nan_before |= has_nan.contains(s.get());
    }
    const UOp value = u.WithSrcs(srcs);
    if (nan_before) has_nan.insert(u.get());
    if (nan_before || !MakesValues(u) || u.shape().MaxElements() > most) {
      stands.emplace(u, value);
      continue;
    }
    const auto done = RealizeNodes({&value, 1}, bindings, /*check_nan=*/false);
    if (!done.ok()) return found;
    if (const int64_t at = NanOf((*done)[0]); at >= 0) return Named(u, at, found);
    stands.emplace(u, (*done)[0]);
  }
  return found;
}

}  // namespace tessera
