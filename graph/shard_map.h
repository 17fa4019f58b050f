// Per-place programs: a function that sees what each place has as its own, and says itself what
// places exchange.
//
//   Tensor y = ShardMap({"tp"}, {Placement::Replicate()}, [](const Tensor& x, const Tensor& w) {
//     return AllReduce(x.MatMul(w), "tp");
//   }, x, w);
//
// Along the named mesh dims every tensor inside has the shape of one place's part (a LOCAL: mesh
// dims become Manual), and no operation moves anything by itself. Along the other dims it is what
// it was, so programs nest: another ShardMap inside takes another dim. What the function returns
// leaves with a placement for each of the named dims (a GLOBAL): Shard puts the places' values side
// by side, Replicate is for what does not differ between them. Random numbers that are drawn inside
// are the same on all places: draw them outside, whole, where each is to have its own.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

// A mesh dim by its name, or by its number.
struct MeshDimName {
  std::string text;
  MeshDimName(const char* name) : text(name) {}
  MeshDimName(const std::string& name) : text(name) {}
  MeshDimName(int number) : text(std::to_string(number)) {}
};
using MeshDimNames = std::vector<MeshDimName>;

// The dims of a ShardMap, and where it is called.
struct MeshDimsHere {
  MeshDimNames names;
  CallSite at;
  MeshDimsHere(std::initializer_list<MeshDimName> dims, CallSite site = CallSite::Here())
      : names(dims), at(site) {}
  MeshDimsHere(const MeshDimNames& dims, CallSite site = CallSite::Here())
      : names(dims), at(site) {}
};

using LocalProgram = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// Of several results, each with its placements along the dims. Arguments without a device go in as
// they are; the others must be on one mesh. Parts along the dims may differ in size: then their
// extent is symbolic inside, each place's own, and such axes are not reduced over places, permuted
// between them, or cut by other mesh dims as well.
std::vector<Tensor> ShardMap(const MeshDimNames& dims,
                             const std::vector<std::vector<Placement>>& out_placements,
                             const LocalProgram& program, const std::vector<Tensor>& arguments,
                             CallSite at = CallSite::Here());

// Of one result.
template <typename Fn, typename... Arguments>
requires(std::is_invocable_r_v<Tensor, Fn, const Arguments&...>) Tensor
    ShardMap(const MeshDimsHere& dims, const std::vector<Placement>& out_placements, Fn program,
             const Arguments&... arguments) {
  const auto call = [&]<size_t... i>(const std::vector<Tensor>& in, std::index_sequence<i...>) {
    return program(in[i]...);
  };
  return ShardMap(
      dims.names, std::vector<std::vector<Placement>>{out_placements},
      [&](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{call(in, std::index_sequence_for<Arguments...>())};
      },
      std::vector<Tensor>{arguments...}, dims.at)[0];
}

// ---- inside such a program. Places that differ in the dim alone take part together.

// Each gets the values of all, combined by kAdd, kMul, kMax, kMin, kAnd, kOr or kXor.
Tensor AllReduce(const Tensor& x, const MeshDimName& dim, Op op = Op::kAdd,
                 CallSite at = CallSite::Here());
// Each gets the values of all, side by side along the axis.
Tensor AllGather(const Tensor& x, const MeshDimName& dim, int axis = 0,
                 CallSite at = CallSite::Here());
// Each gets its part along the axis of the values of all, combined.
Tensor ReduceScatter(const Tensor& x, const MeshDimName& dim, int axis = 0, Op op = Op::kAdd,
                     CallSite at = CallSite::Here());
// Each cuts the split axis into a part for every other, and puts what it gets side by side along
// the join axis.
Tensor AllToAll(const Tensor& x, const MeshDimName& dim, int split_axis, int join_axis,
                CallSite at = CallSite::Here());
// Each gets the value of the place with this coordinate, by its own; of -1, zeros as long as its
// own part. Parts of different sizes go as long as the longest.
Tensor Permute(const Tensor& x, const MeshDimName& dim, const std::vector<int>& sources,
               CallSite at = CallSite::Here());
// The coordinate along the dim of each place that has the tensor, an i32 scalar.
Tensor PlaceIndex(const Tensor& like, const MeshDimName& dim, CallSite at = CallSite::Here());

}  // namespace tessera
