// Random per-place programs over random meshes, against the reference, which writes them out.
//
// FUZZ_SEED=n tries that seed alone.
#include <algorithm>
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/shard_map.h"
#include "graph/text.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

class Programs {
 public:
  explicit Programs(uint64_t seed) : rng_(seed) {
    std::vector<MeshDim> dims = {{Int(1, 4), "a"}};
    if (Chance(0.6)) dims.push_back({Int(2, 3), "b"});
    int64_t places = 1;
    for (const MeshDim& d : dims) places *= d.size;
    std::vector<Place> list;
    for (int i = 0; i < places; ++i) list.emplace_back("CPU", i);
    if (Chance(0.3)) std::shuffle(list.begin(), list.end(), rng_);
    mesh_ = Mesh(std::move(list), std::move(dims));
  }

  // Results of a program over some of the mesh's dims, on arguments that it cuts evenly.
  std::vector<Tensor> Run() {
    std::vector<int> dims = {0};
    if (mesh_->ndim() == 2) {
      dims = Chance(0.4) ? std::vector<int>{0, 1} : std::vector<int>{static_cast<int>(Int(0, 1))};
    }
    std::vector<Tensor> arguments;
    for (int i = 0; i < 2; ++i) arguments.push_back(Argument());
    return Mapped(dims, arguments, /*nested=*/false);
  }

 private:
  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double p) { return static_cast<double>(rng_() >> 11) < p * 0x1p53; }
  std::string Name(int dim) const { return mesh_->dims()[dim].name; }

  Tensor Argument() {
    // Halves and whole numbers, whose sums are exact in any order.
    const int64_t rows = Chance(0.3) ? Int(3, 14) : 12, columns = 12;
    std::vector<float> v(rows * columns);
    for (float& x : v) x = static_cast<float>(Int(-6, 6)) / 2;
    const DType types[] = {kFloat32, kFloat32, kInt32, kFloat16};
    std::vector<Placement> p;
    for (int d = 0; d < mesh_->ndim(); ++d) {
      // Parts of different sizes are of one dim.
      const int axis = static_cast<int>(Int(0, 1));
      const bool even = (axis == 0 ? rows : columns) % mesh_->dims()[d].size == 0;
      const bool whole = Chance(0.3) || (!even && (mesh_->ndim() > 1 || Chance(0.2)));
      p.push_back(whole ? Placement::Replicate() : Placement::Shard(axis));
    }
    if (p.size() == 2 && p[0] == p[1] && mesh_->size() > 4) p[1] = Placement::Replicate();
    const Tensor t = Tensor::From(v, {rows, columns}).Cast(types[Int(0, 3)]);
    return t.To(Sharding(*mesh_, p));
  }

  std::vector<Tensor> Mapped(const std::vector<int>& dims, const std::vector<Tensor>& arguments,
                             bool nested) {
    MeshDimNames names;
    for (int d : dims) names.push_back(Name(d));
    std::vector<std::vector<Placement>> leaves(2);
    for (std::vector<Placement>& p : leaves) {
      for (size_t i = 0; i < dims.size(); ++i) {
        const bool whole = Chance(0.4);
        p.push_back(whole ? Placement::Replicate() : Placement::Shard(static_cast<int>(Int(0, 1))));
      }
    }
    return ShardMap(
        names, leaves,
        [&](const std::vector<Tensor>& inside) {
          std::vector<Tensor> values = inside;
          for (int64_t steps = Int(2, 7); steps > 0; --steps) {
            const Tensor& x = values[Int(0, static_cast<int64_t>(values.size()) - 1)];
            const Tensor made = Step(x, values, dims, nested);
            if (made.shape().MaxElements() <= 600) values.push_back(made);
          }
          std::vector<Tensor> out;
          for (size_t r = 0; r < leaves.size(); ++r) {
            Tensor y = values[values.size() - 1 - r];
            for (size_t i = 0; i < dims.size(); ++i) {
              const bool whole = leaves[r][i].is(Placement::Kind::kReplicate);
              const int own = y.shape()[0].is_int() ? 1 : 0;
              if (!y.shape().is_static() && (whole || leaves[r][i].axis != own)) {
                y = AllGather(y, Name(dims[i]), own);
              }
              if (whole) y = AllReduce(y, Name(dims[i]), Op::kMax);
            }
            out.push_back(y);
          }
          return out;
        },
        arguments);
  }

  // Of parts whose sizes differ along the only dim.
  Tensor UnevenStep(const Tensor& x, const std::string& d) {
    const int own = x.shape()[0].is_int() ? 1 : 0;
    switch (Int(0, 6)) {
      case 0:
        return AllGather(x, d, own);
      case 1:
        return AllToAll(x, d, 1 - own, own);
      case 2:
        return x + PlaceIndex(x, d).Cast(x.dtype());
      case 3:
        return x.Sum({own}, /*keepdim=*/true);
      case 4:
        return Cat({x.Flip(1 - own), x.Abs()}, 1 - own);
      case 5:
        return x.T() + Tensor::Arange(x.T().shape()[1]).Cast(x.dtype());
      default:
        return x.Max({1 - own}, /*keepdim=*/true) - x;
    }
  }

  Tensor Step(const Tensor& x, const std::vector<Tensor>& values, const std::vector<int>& dims,
              bool nested) {
    const int d = dims[Int(0, static_cast<int64_t>(dims.size()) - 1)];
    if (!x.shape().is_static()) return UnevenStep(x, Name(d));
    const int64_t places = mesh_->dims()[d].size;
    const int axis = static_cast<int>(Int(0, 1));
    const auto divides = [&](int a) { return x.size(a) % places == 0; };
    const Op ops[] = {Op::kAdd, Op::kMax, Op::kMin};
    switch (Int(0, 10)) {
      case 0:
        return AllReduce(x, Name(d), ops[Int(0, 2)]);
      case 1:
        return AllGather(x, Name(d), axis);
      case 2:
        return divides(axis) ? ReduceScatter(x, Name(d), axis, ops[Int(0, 2)]) : x + 1;
      case 3: {
        const int join = static_cast<int>(Int(0, 1));
        return divides(axis) ? AllToAll(x, Name(d), axis, join) : x.T();
      }
      case 4: {
        std::vector<int> sources;
        for (int64_t i = 0; i < places; ++i) {
          sources.push_back(static_cast<int>(Int(-1, places - 1)));
        }
        return Permute(x, Name(d), sources);
      }
      case 5:
        return x + PlaceIndex(x, Name(d)).Cast(x.dtype());
      case 6:
        return x.Sum({axis}, /*keepdim=*/true) + x;
      case 7:
        return Cat({x.Flip(axis), x.Abs()}, axis);
      case 8: {  // a program within, over the other dim
        if (nested || dims.size() == 2 || mesh_->ndim() == 1) return x.Maximum(0);
        return Mapped({1 - d}, {x, x.T()}, /*nested=*/true)[0];
      }
      case 9: {
        const Tensor& y = values[Int(0, static_cast<int64_t>(values.size()) - 1)];
        return y.shape() == x.shape() ? x - y : x.Neg();
      }
      default:
        return x.SliceAxis(axis, {0, std::max<int64_t>(1, x.size(axis) / 2)});
    }
  }

  std::mt19937_64 rng_;
  std::optional<Mesh> mesh_;
};

void Fuzz(uint64_t first, int64_t count) {
  if (IntFlag(Flag::kFuzzSeed) >= 0) {
    first = IntFlag(Flag::kFuzzSeed);
    count = 1;
  }
  int64_t ran = 0, refused = 0;
  std::string last;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); ++seed) {
    std::vector<Tensor> results;
    try {
      results = Programs(seed).Run();
    } catch (const Error& e) {
      ++refused;
      last = e.what();
      continue;
    }
    std::string text;
    for (const Tensor& t : results) absl::StrAppend(&text, Print({t.uop()}), "\n");
    const std::string wrong = Mismatch(results);
    if (wrong.empty()) {
      ++ran;
    } else {
      ADD_FAILURE() << "FUZZ_SEED=" << seed << ": " << wrong << "\n" << text;
      break;
    }
  }
  std::cout << ran << " ran, " << refused << " refused, the last with: " << last << "\n";
  if (count < 20) return;
  EXPECT_GT(ran, count * 7 / 10);
}

TEST(ShardMapFuzz, Few) { Fuzz(1, 40); }
TEST(ShardMapFuzz, ManySlow) { Fuzz(1000, 500); }
TEST(ShardMapFuzz, FreshSeedsLong) { Fuzz(uint64_t{std::random_device()()} << 16, 50000); }

}  // namespace
}  // namespace tessera
