// The ways are weighed on stand-ins, so that what the sources are made of is not walked.
#include "graph/tensor_along.h"

#include <algorithm>

#include "graph/infer_device.h"
#include "graph/moved_bytes.h"
#include "graph/tensor_align.h"

namespace tessera::internal {
namespace {

using How = Placement::Kind;

// The mesh dims on another axis, which has something for each of their places.
std::optional<Sharding> OnAxis(const Tensor& x, absl::Span<const int> dims, int other) {
  const Sharding s = x.device().sharding();
  std::vector<Placement> p = s.placements();
  int64_t parts = 1;
  for (int d : s.DimsOf(other)) parts *= s.mesh().dims()[d].size;
  for (int d : dims) {
    p[d] = Placement::Shard(other);
    parts *= s.mesh().dims()[d].size;
  }
  const Sharding to = s.With(std::move(p));
  if (x.shape()[other].max() < parts || !CheckPlacement(x.shape(), to).ok()) return std::nullopt;
  return to;
}

// Where x may go: nowhere, on another axis, whole.
std::vector<Sharding> Ways(const Tensor& x, int axis) {
  const Sharding s = x.device().sharding();
  const std::vector<int> dims = s.DimsOf(axis);
  std::vector<Sharding> out = {s};
  for (int a = 0; a < x.rank(); ++a) {
    if (a == axis) continue;
    if (const std::optional<Sharding> to = OnAxis(x, dims, a)) out.push_back(*to);
  }
  std::vector<Placement> whole = s.placements();
  for (int d : dims) whole[d] = Placement::Replicate();
  out.push_back(s.With(std::move(whole)));
  return out;
}

UOp StandIn(const Tensor& t, int64_t slot) {
  return UOp::Make(Op::kParam, t.dtype(), {}, ParamArg{slot, t.shape().ToExtents(), t.device()});
}

// What moves where the first source goes that way.
int64_t Weigh(const std::vector<Tensor>& sources, const Sharding& way, const TensorFn& f) {
  const WeighedOnly weighed;
  std::vector<Tensor> standing;
  for (size_t i = 0; i < sources.size(); ++i) {
    standing.emplace_back(StandIn(sources[i], static_cast<int64_t>(i)));
  }
  standing[0] = Tensor(CopyTo(standing[0].uop(), way));
  std::vector<UOp> roots;
  for (const Tensor& t : f(standing)) roots.push_back(t.uop());
  return MovedBytes(roots);
}

}  // namespace

std::vector<Tensor> AlongAxis(const std::vector<Tensor>& sources, int axis, const TensorFn& f) {
  const Tensor& x = sources[0];
  if (!x.device().is_sharding() || x.device().sharding().DimsOf(axis).empty()) return f(sources);
  std::optional<Sharding> best;
  int64_t least = 0;
  for (const Sharding& way : Ways(x, axis)) {
    const int64_t bytes = Weigh(sources, way, f);
    if (best && bytes >= least) continue;
    best = way;
    least = bytes;
  }
  std::vector<Tensor> moved = sources;
  moved[0] = Tensor(
      Reshard(x.uop(), *best, absl::StrCat("axis ", axis, ", which is sharded, is looked along")));
  return f(moved);
}

Tensor CutAs(const Tensor& result, const Tensor& x) {
  if (!x.device().is_sharding() || !result.device().is_sharding()) return result;
  std::vector<Placement> p = x.device().sharding().placements();
  for (Placement& q : p) {
    if (q.is(How::kShard) && !(x.shape()[q.axis] == result.shape()[q.axis])) q.layout = Layout();
  }
  return Tensor(Reshard(result.uop(), x.device().sharding().With(std::move(p)),
                        "the result is cut as the source is"));
}

}  // namespace tessera::internal
