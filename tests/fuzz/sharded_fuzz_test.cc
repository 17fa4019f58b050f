// Random graphs with their leaves, and values on the way, spread over random meshes: what comes out
// is what the reference says of the graph without them, every place holds its part alone, and no
// more moves between them than must. Extents may be symbolic, along sharded axes as well.
//
// FUZZ_SEED=n tries that seed alone; FUZZ_GRAPHS=n tries that many.
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "graph/box.h"
#include "graph/buffer.h"
#include "graph/flags.h"
#include "graph/infer.h"
#include "graph/infer_device.h"
#include "graph/least_bytes.h"
#include "graph/moved_bytes.h"
#include "graph/shard_map.h"
#include "graph/tensor_internal.h"
#include "graph/text.h"
#include "runtime/execute.h"
#include "runtime/mesh.h"
#include "runtime/runtime.h"
#include "tests/fuzz/generator.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

struct Tally {
  int64_t ran = 0, refused = 0, sharded_roots = 0, moved = 0, programs = 0;
  Compared compared;
};

// Decides where things lie.
class Spreader {
 public:
  explicit Spreader(uint64_t seed) : rng_(seed) {
    std::vector<MeshDim> dims;
    int64_t places = 1;
    for (int64_t n = Int(1, 3); n > 0 && places < 8; --n) {
      MeshDim dim{Int(1, 8 / places)};
      if (Chance(0.3)) dim.name = absl::StrCat("d", dims.size());
      dims.push_back(std::move(dim));
      places *= dims.back().size;
    }
    std::vector<Place> list;
    for (int i = 0; i < places; ++i) list.emplace_back("CPU", i);
    if (Chance(0.3)) std::shuffle(list.begin(), list.end(), rng_);
    mesh_ = Mesh(std::move(list), std::move(dims));
  }

  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double p) { return static_cast<double>(rng_() >> 11) < p * 0x1p53; }

  Sharding Any(const Shape& shape) {
    for (;;) {
      std::vector<Placement> p;
      for (int d = 0; d < mesh_->ndim(); ++d) {
        if (shape.rank() == 0 || Chance(0.25)) {
          p.push_back(Placement::Replicate());
          continue;
        }
        const int axis = static_cast<int>(Int(0, shape.rank() - 1));
        p.push_back(Placement::Shard(axis, AnyLayout(shape[axis].max(), mesh_->dims()[d].size)));
      }
      const Sharding s(*mesh_, std::move(p));
      if (CheckPlacement(shape, s).ok()) return s;
    }
  }

  const Mesh& mesh() const { return *mesh_; }

 private:
  Layout AnyLayout(int64_t n, int64_t parts) {
    switch (Int(0, 9)) {
      case 0:
        return Layout::Ceil();
      case 1:
        return Layout::Aligned(Int(2, 4));
      case 2: {
        std::vector<int64_t> sizes(parts, 0);
        for (int64_t i = 0; i < n; ++i) ++sizes[Int(0, parts - 1)];
        return Layout::Sizes(std::move(sizes));
      }
      default:
        return Layout();
    }
  }

  std::mt19937_64 rng_;
  std::optional<Mesh> mesh_;
};

// An elementwise node as a program of the places along one mesh dim, in which what they have may go
// round or be dealt out along another axis, and comes back. Nothing where its operands lie in
// different ways, or a program may not do what was drawn.
UOp InProgram(const UOp& built, Op op, DType dtype, absl::Span<const UOp> srcs, const Arg& arg,
              Spreader& s) {
  const Sharding to = built.device().sharding();
  std::vector<Tensor> arguments;
  for (const UOp& x : srcs) {
    const bool alike = x.device().is_sharding() && x.rank() == built.rank() &&
                       SamePlacement(x.shape(), x.device(), built.device());
    if (!alike && (x.device() || x.rank() > 0)) return UOp();
    arguments.emplace_back(x);
  }
  const auto dim = static_cast<int>(s.Int(0, to.mesh().ndim() - 1));
  const int64_t places = to.mesh().dims()[dim].size, way = s.Int(0, 2);
  const int axis = to(dim).axis, other = static_cast<int>(s.Int(0, built.rank() - 1));
  try {
    return ShardMap(
               {dim}, {{to(dim)}},
               [&](const std::vector<Tensor>& own) {
                 std::vector<UOp> inside;
                 for (const Tensor& t : own) inside.push_back(t.uop());
                 Tensor y(internal::Build(op, dtype, inside, arg));
                 std::vector<int> on, back;
                 for (int64_t i = 0; i < places; ++i) {
                   on.push_back(static_cast<int>((i + 1) % places));
                   back.push_back(static_cast<int>((i + places - 1) % places));
                 }
                 if (way == 1) y = Permute(Permute(y, dim, on), dim, back);
                 if (way == 2 && axis >= 0 && other != axis) {
                   y = AllToAll(AllToAll(y, dim, other, axis), dim, axis, other);
                 }
                 return std::vector<Tensor>{y};
               },
               arguments)[0]
        .uop();
  } catch (const Error&) {
    return UOp();
  }
}

// The graph of the case with leaves on Shardings, and reshards and per-place programs here and
// there.
std::vector<UOp> Spread(const FuzzCase& c, Spreader& s, int64_t* programs = nullptr) {
  absl::flat_hash_map<const Node*, UOp> made;
  const bool written =
      std::any_of(c.roots.begin(), c.roots.end(), [](const UOp& r) { return r.is(Op::kAssign); });
  for (const UOp& u : TopoSort(c.roots)) {
    UOp out;
    if (u.is(Op::kParam)) {
      const auto& bytes = c.data[u.arg<ParamArg>().slot];
      const Tensor t = Tensor::FromBytes(bytes.data(), Dims(u.shape()), u.dtype(), "CPU");
      Tensor spread = t.Shard(s.Any(u.shape()));
      if (s.Chance(0.7)) spread.Realize();
      out = spread.uop();
      // What is assigned to lies in a buffer of its own, as Tensor::Assign has it.
      if (written && !IsWritable(out.op())) {
        const UOp fresh = internal::NewBuffer(u.dtype(), u.shape().ToExtents(), out.device());
        out = internal::Build(Op::kAssign, {fresh, fresh, out});
      }
    } else if (u.size() == 0) {
      out = u;
    } else if (u.is(Op::kCopy)) {
      out = made.at(u.src(0).get());
    } else {
      std::vector<UOp> srcs;
      for (const UOp& x : u.srcs()) srcs.push_back(made.at(x.get()));
      out = internal::Build(u.op(), u.dtype(), srcs, u.arg());
      const bool mapped = out.device().is_sharding() && out.rank() > 0 && IsElementwise(u.op());
      if (mapped && s.Chance(0.3)) {
        const UOp program = InProgram(out, u.op(), u.dtype(), srcs, u.arg(), s);
        if (program) out = program;
        if (program && programs != nullptr) ++*programs;
      }
      if (!written && out.device() && s.Chance(0.1)) {
        out = internal::CopyTo(out, s.Any(out.shape()));
      }
    }
    made.emplace(u.get(), out);
  }
  std::vector<UOp> roots;
  for (const UOp& r : c.roots) roots.push_back(made.at(r.get()));
  return roots;
}

// Every place holds its part and nothing else; of symbolic extents as long as they may be.
std::string CheckHeld(const UOp& root, const UOp& buffer, Tally& tally) {
  if (!buffer.device().is_sharding()) return "";
  ++tally.sharded_roots;
  const auto& parts = buffer.arg<BufferArg>().buffer->storage->parts;
  const bool symbolic = !root.shape().is_static();
  const Boxes boxes =
      symbolic ? BoxesOf(root.shape(), root.device()) : BoxesOf(buffer.shape(), buffer.device());
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t want = Volume(boxes.At(static_cast<int>(i))) * buffer.dtype().bytes();
    if (parts[i]->bytes != want) {
      return absl::StrCat("place ", i, " holds ", parts[i]->bytes, " bytes, not ", want);
    }
  }
  return "";
}

// What an ASSIGN leaves of symbolic extents keeps them: the part of it that there is with values.
UOp WithValues(const UOp& buffer, const Bindings& values) {
  if (buffer.shape().is_static()) return buffer;
  Extents dims;
  for (const Extent& e : buffer.shape()) dims.push_back(*ExtentValue(e, values));
  const Device device = DeviceWithin(buffer.shape(), buffer.device(), dims);
  return UOp::Make(Op::kBuffer, buffer.dtype(), {},
                   BufferArg{buffer.arg<BufferArg>().buffer, std::move(dims), device});
}

std::string RunSpread(const FuzzCase& c, uint64_t seed, Tally& tally) {
  EvaluateOptions options;
  options.stop_at_realized = false;
  options.vars.insert(c.values.begin(), c.values.end());
  options.contents = [&](const UOp& leaf) { return c.data[leaf.arg<ParamArg>().slot].data(); };
  const auto want = EvaluateWithBounds(c.roots, options);
  if (!want.ok()) return absl::StrCat("reference: ", want.status().ToString());
  Spreader spreader(seed);
  std::vector<UOp> roots;
  try {
    roots = Spread(c, spreader, &tally.programs);
  } catch (const Error& e) {
    bool assigns = false;
    for (const UOp& u : TopoSort(c.roots)) assigns |= u.is(Op::kAssign);
    if (!assigns) return absl::StrCat("refused: ", e.what());
    ++tally.refused;
    return "";
  }
  const std::string text = Print(roots);
  const int64_t least = *LeastBytes(roots);
  if (MovedBytes(roots) != least) {
    return absl::StrCat("by boxes ", MovedBytes(roots), " bytes move, one by one ", least, "\n",
                        text);
  }
  const int64_t before = GetRuntimeStats().bytes_moved;
  Bindings values;
  for (const UOp& u : TopoSort(roots, /*with_extents=*/true)) {
    if (!u.is(Op::kVar)) continue;
    const auto it = c.values.find(u.arg<VarArg>().name);
    if (it != c.values.end()) values.insert(*it);
  }
  const auto got = RealizeNodes(roots, values);
  if (!got.ok()) return absl::StrCat("realize: ", got.status().ToString(), "\n", text);
  ++tally.ran;
  const int64_t moved = GetRuntimeStats().bytes_moved - before;
  tally.moved += moved;
  if (moved > least) {
    return absl::StrCat("moved ", moved, " bytes where ", least, " would do\n", text);
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    std::string wrong =
        Difference(ReadBuffer(WithValues((*got)[i], values)), (*want)[i], &tally.compared);
    if (wrong.empty()) wrong = CheckHeld(roots[i], (*got)[i], tally);
    if (!wrong.empty()) return absl::StrCat("root ", i, ": ", wrong, "\n", text);
  }
  return "";
}

void Fuzz(uint64_t first, int64_t count) {
  if (IntFlag(Flag::kFuzzSeed) >= 0) {
    first = IntFlag(Flag::kFuzzSeed);
    count = 1;
  }
  if (IntFlag(Flag::kFuzzGraphs) > 0) count = IntFlag(Flag::kFuzzGraphs);
  std::cout << "seeds from " << first << std::endl;  // also where one of them ends the process
  Tally tally;
  int failures = 0, tried = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); ++seed) {
    const FuzzCase c = RandomCase(seed);
    ++tried;
    if (RunSpread(c, seed, tally).empty()) continue;
    if (++failures > 3) break;
    Tally ignored;
    const FuzzCase small =
        Shrink(c, [&](const FuzzCase& x) { return !RunSpread(x, seed, ignored).empty(); });
    ADD_FAILURE() << "FUZZ_SEED=" << seed << "\n"
                  << ToString(small) << RunSpread(small, seed, ignored);
  }
  std::cout << tally.ran << " ran, " << tally.refused << " refused, " << tally.sharded_roots
            << " results in parts; elements: " << tally.compared.exact << " exact, "
            << tally.compared.within << " within a bound, " << tally.compared.unknown
            << " unknown; " << tally.moved << " bytes moved, " << tally.programs
            << " per-place programs\n";
  if (count < 50) return;
  EXPECT_GT(tried, count / 2);
  EXPECT_GT(tally.ran, tried * 8 / 10);
  EXPECT_GT(tally.sharded_roots, tried / 2);
  EXPECT_GT(tally.programs, tried / 20);
}

TEST(ShardedFuzz, Few) { Fuzz(1, 60); }
TEST(ShardedFuzz, AssignedOfSymbolicExtents) { Fuzz(267094701123614, 1); }
TEST(ShardedFuzz, TwoAssignmentsToOneVersion) { Fuzz(267094701129803, 1); }
TEST(ShardedFuzz, ManySlow) { Fuzz(5000, 400); }
TEST(ShardedFuzz, FreshSeedsLong) { Fuzz(uint64_t{std::random_device()()} << 16, 100000); }

}  // namespace
}  // namespace tessera
