// What is computed from four bits is taken from a table of all it can be.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "codegen/passes.h"
#include "graph/fold.h"
#include "graph/rewrite.h"

namespace tessera {
namespace {

constexpr int kBits = 4, kEntries = 1 << kBits;
// So many ops less are worth a table, of which there may be many in a loop.
constexpr int kLeastOps = 4;

std::optional<Scalar> ConstantOf(const UOp& u) {
  const UOp& scalar = u.is(Op::kSplat) ? u.src(0) : u;
  if (!scalar.IsConst()) return std::nullopt;
  return scalar.arg<Scalar>();
}

bool IsUnsigned(const UOp& u) { return u.dtype().IsInt() && u.dtype().IsUnsigned(); }

// Ops that give the same bits wherever they are computed.
bool IsExact(Op op) { return IsElementwise(op) && !HasProperty(op, kExpensive) && op != Op::kPow; }

// A vector each lane of which depends on nothing but the lowest four bits of that of another.
struct Tabulated {
  UOp index;
  int ops = 0;  // between the two, counted for each use, up to kLeastOps
  std::array<Scalar, kEntries> entries;
};

class Tabulator {
 public:
  Tabulator(const UOp& sink, const Target& target) : target_(target) {
    const std::vector<UOp> order = TopoSort({&sink, 1});
    for (const UOp& u : order) {
      if (std::optional<Tabulated> t = Find(u)) known_.emplace(u, *std::move(t));
    }
    // What is read by anything but what is looked up itself.
    absl::flat_hash_set<UOp> read = {sink};
    for (auto u = order.rbegin(); u != order.rend(); ++u) {
      if (!read.contains(*u)) continue;
      const auto it = known_.find(*u);
      if (it != known_.end() && Pays(*u, it->second)) {
        looked_up_.insert(*u);
        read.insert(it->second.index);
      } else {
        read.insert(u->srcs().begin(), u->srcs().end());
      }
    }
  }

  // The lookup in place of a node that was `u`, or nothing.
  UOp Lookup(const UOp& u, const absl::flat_hash_map<UOp, UOp>& rebuilt) const {
    if (!looked_up_.contains(u)) return UOp();
    const Tabulated& t = known_.at(u);
    const DType type = u.dtype().Scalar();
    std::vector<UOp> entries;
    for (const Scalar s : t.entries) entries.push_back(UOp::Const(type, s));
    const UOp table = UOp::Make(Op::kLanes, type.WithLanes(kEntries), entries);
    const DType wanted = (type.bits() == 8 ? kUInt8 : kUInt32).WithLanes(u.dtype().lanes());
    UOp index = rebuilt.at(t.index);
    if (!(index.dtype() == wanted)) index = UOp::Make(Op::kCast, wanted, {index}, Arg());
    return UOp::Make(Op::kTable, u.dtype(), {table, index}, Arg());
  }

 private:
  // What u is as a function of four bits, or nothing. Its sources are constants, such functions of
  // the same index, or the index.
  std::optional<Tabulated> Find(const UOp& u) const {
    if (!IsExact(u.op()) || u.dtype().lanes() == 1) return std::nullopt;
    Tabulated out;
    if (u.is(Op::kAnd) && IsUnsigned(u)) {  // the bits themselves
      for (int i : {0, 1}) {
        const std::optional<Scalar> mask = ConstantOf(u.src(i));
        if (!mask || mask->bits >= kEntries || known_.contains(u.src(1 - i))) continue;
        out.index = u.src(1 - i);
        out.ops = 1;
        for (int v = 0; v < kEntries; ++v) out.entries[v] = Scalar::Int(v & mask->AsInt());
        return out;
      }
    }
    for (const UOp& s : u.srcs()) {
      if (ConstantOf(s)) continue;
      const auto it = known_.find(s);
      const UOp index = it != known_.end() ? it->second.index : IsSmall(s) ? s : UOp();
      if (!index || (out.index && !(out.index == index))) return std::nullopt;
      out.index = index;
      out.ops += it != known_.end() ? it->second.ops : 0;
    }
    if (!out.index) return std::nullopt;
    out.ops = std::min(out.ops + 1, kLeastOps);
    const DType operand = u.src(u.is(Op::kWhere) ? 1 : 0).dtype().Scalar();
    for (int v = 0; v < kEntries; ++v) {
      absl::InlinedVector<Scalar, 3> args;
      for (const UOp& s : u.srcs()) {
        const auto it = known_.find(s);
        const std::optional<Scalar> constant = ConstantOf(s);
        args.push_back(constant             ? *constant
                       : it != known_.end() ? it->second.entries[v]
                                            : Scalar::Int(v));
      }
      out.entries[v] = EvaluateScalarOp(u.op(), u.dtype().Scalar(), operand, args);
    }
    return out;
  }

  static bool IsSmall(const UOp& u) {
    return IsUnsigned(u) && u.dtype().lanes() > 1 && u.vmin() >= 0 && u.vmax() < kEntries;
  }

  // Lookups are within one register: of bytes in a part of it, of what has 32 bits where it is as
  // wide as the table.
  bool Pays(const UOp& u, const Tabulated& t) const {
    const int bits = u.dtype().Scalar().bits(), lanes = u.dtype().lanes();
    if (t.ops < kLeastOps || !std::has_single_bit(static_cast<unsigned>(lanes))) return false;
    if (bits == 8) return !u.dtype().IsBool() && lanes >= 4 && target_.vector_bytes >= 32;
    return bits == 32 && lanes >= kEntries && target_.vector_bytes >= kEntries * 4;
  }

  const Target& target_;
  absl::flat_hash_map<UOp, Tabulated> known_;
  absl::flat_hash_set<UOp> looked_up_;
};

}  // namespace

UOp Tabulate(const UOp& sink, const Target& target) {
  const Tabulator tabulator(sink, target);
  absl::flat_hash_map<UOp, UOp> rebuilt;
  return Rebuild({&sink, 1}, [&](const UOp& built, const UOp& u) {
    UOp lookup = tabulator.Lookup(u, rebuilt);
    rebuilt.emplace(u, lookup ? lookup : built);
    return lookup;
  })[0];
}

}  // namespace tessera
