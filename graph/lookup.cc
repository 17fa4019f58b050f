// Axes and cuts of lookups.
#include "graph/lookup.h"

#include "absl/strings/str_cat.h"
#include "graph/infer_device.h"
#include "graph/status.h"

namespace tessera {
namespace {

using How = Placement::Kind;

int RankOf(const Lookup& l, LookupPart part) {
  switch (part) {
    case LookupPart::kTable:
      return l.table_rank;
    case LookupPart::kIndex:
      return l.index_rank;
    case LookupPart::kElements:
      return l.element_rank();
  }
  return 0;
}

int AxisIn(const Lookup& l, LookupPart part, int element_axis) {
  switch (part) {
    case LookupPart::kTable:
      return l.ToTable(element_axis);
    case LookupPart::kIndex:
      return l.ToIndex(element_axis);
    case LookupPart::kElements:
      return element_axis == Lookup::kTarget ? Lookup::kNone : element_axis;
  }
  return Lookup::kNone;
}

}  // namespace

absl::StatusOr<Lookup> Lookup::Of(Op op, absl::Span<const UOp> srcs, const Arg& arg) {
  const Ints& axes =
      op == Op::kGather ? std::get<Ints>(arg.value) : std::get<ReduceArg>(arg.value).axes;
  if (axes.size() != 3) {
    return absl::InvalidArgumentError("needs an axis, and how many axes are shared on both sides");
  }
  const int table = srcs[0].rank(), index = srcs[1].rank();
  if (axes[0] < 0 || axes[0] >= table) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no axis ", axes[0], " in rank ", table));
  }
  if (axes[1] < 0 || axes[2] < 0 || axes[1] > axes[0] || axes[2] > table - 1 - axes[0] ||
      axes[1] + axes[2] > index) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot share ", axes[1], " leading and ", axes[2], " trailing axes"));
  }
  return Lookup{static_cast<int>(axes[0]), static_cast<int>(axes[1]), static_cast<int>(axes[2]),
                table, index};
}

Lookup Lookup::Of(const UOp& u) {
  absl::StatusOr<Lookup> l = Of(u.op(), u.srcs(), u.arg());
  CHECK(l.ok(), "a lookup without its axes");
  return *l;
}

int Lookup::FromTable(int a) const {
  if (a == axis) return kTarget;
  return a < axis ? a : a - 1 + own();
}

int Lookup::FromIndex(int a) const {
  if (a < leading) return a;
  if (a < leading + own()) return axis + a - leading;
  return a - index_rank + element_rank();
}

int Lookup::ToTable(int e) const {
  if (e == kTarget) return axis;
  if (e < axis) return e;
  return IsOwn(e) ? kNone : e - own() + 1;
}

int Lookup::ToIndex(int e) const {
  if (e == kTarget) return kNone;
  if (e < leading) return e;
  if (IsOwn(e)) return leading + e - axis;
  return e >= element_rank() - trailing ? e - element_rank() + index_rank : kNone;
}

Extents Lookup::Elements(const Shape& table, const Shape& index) const {
  Extents dims;
  for (int e = 0; e < element_rank(); ++e) {
    dims.push_back(IsOwn(e) ? index[ToIndex(e)] : table[ToTable(e)]);
  }
  return dims;
}

LookupCut CutOf(const Lookup& l, LookupPart part, const Placement& p) {
  if (p.is(How::kManual)) return {Lookup::kNone, {}, true};
  if (!p.is(How::kShard)) return {};
  const int e = part == LookupPart::kTable   ? l.FromTable(p.axis)
                : part == LookupPart::kIndex ? l.FromIndex(p.axis)
                                             : p.axis;
  return {e, p.layout};
}

Sharding PartSharding(const Lookup& l, LookupPart part, const Mesh& mesh,
                      absl::Span<const LookupCut> cuts) {
  std::vector<Placement> out(mesh.ndim(), Placement::Replicate());
  for (size_t d = 0; d < cuts.size(); ++d) {
    if (cuts[d].manual) out[d] = Placement::Manual();
    if (cuts[d].axis == Lookup::kNone) continue;
    const int a = AxisIn(l, part, cuts[d].axis);
    if (a >= 0 && a < RankOf(l, part)) out[d] = Placement::Shard(a, cuts[d].layout);
  }
  return Sharding(mesh, std::move(out));
}

absl::StatusOr<std::vector<LookupCut>> CutsOf(const Lookup& l, absl::Span<const UOp> srcs) {
  constexpr LookupPart kParts[] = {LookupPart::kTable, LookupPart::kIndex, LookupPart::kElements};
  std::vector<LookupCut> cuts;
  std::vector<Sharding> have;
  for (size_t i = 0; i < srcs.size(); ++i) {
    if (!srcs[i].device()) continue;
    const Sharding s = CanonicalSharding(srcs[i].shape(), srcs[i].device().sharding());
    cuts.resize(s.mesh().ndim());
    for (size_t d = 0; d < cuts.size(); ++d) {
      if (cuts[d] == LookupCut()) cuts[d] = CutOf(l, kParts[i], s(static_cast<int>(d)));
    }
  }
  for (size_t i = 0; i < srcs.size(); ++i) {
    if (!srcs[i].device()) continue;
    const Sharding s = srcs[i].device().sharding();
    const Sharding wanted = PartSharding(l, kParts[i], s.mesh(), cuts);
    if (SamePlacement(srcs[i].shape(), s, wanted)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("source ", i, " is on ", s.ToString(), ", where ", wanted.ToString(),
                     " goes with the others; reshard one of them with .To(...)"));
  }
  return cuts;
}

}  // namespace tessera
