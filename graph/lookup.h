// The axes of GATHER and SCATTER, and how placements go through both.
//
// A table (what is read, or the base that is written), an index, and elements (the result of a
// GATHER, the updates of a SCATTER). The elements have the table's axes but one, in whose place
// stand the index's own; what the index has in common with the table, so many leading and so many
// trailing axes, all three share.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "graph/uop.h"

namespace tessera {

struct Lookup {
  static constexpr int kTarget = -1;  // the table's axis that is looked up: no axis of the elements
  static constexpr int kNone = -2;    // no axis

  int axis = 0, leading = 0, trailing = 0;
  int table_rank = 0, index_rank = 0;

  // Of a GATHER or SCATTER with these sources, or an error where the axes do not exist.
  static absl::StatusOr<Lookup> Of(Op op, absl::Span<const UOp> srcs, const Arg& arg);
  static Lookup Of(const UOp& u);

  int own() const { return index_rank - leading - trailing; }  // axes of the index alone
  int element_rank() const { return table_rank - 1 + own(); }
  bool IsOwn(int element_axis) const { return element_axis >= axis && element_axis < axis + own(); }

  // Which axis of the elements, or kTarget, an axis of the table or the index is.
  int FromTable(int a) const;
  int FromIndex(int a) const;
  // Which axis of the table or the index one of the elements is, or kNone.
  int ToTable(int e) const;
  int ToIndex(int e) const;

  // The elements' shape.
  Extents Elements(const Shape& table, const Shape& index) const;
};

// The operands, by the number of a SCATTER's sources; 2 is also the result of a GATHER.
enum class LookupPart { kTable, kIndex, kElements };

// What a mesh dim cuts: an axis of the elements, kTarget, or nothing (kNone); or it is Manual.
struct LookupCut {
  int axis = Lookup::kNone;
  Layout layout = {};
  bool manual = false;
  friend bool operator==(const LookupCut&, const LookupCut&) = default;
};

// What a dim of the operand's mesh cuts, in terms of the elements.
LookupCut CutOf(const Lookup& l, LookupPart part, const Placement& p);
// Where an operand must lie for these cuts, one for each mesh dim.
Sharding PartSharding(const Lookup& l, LookupPart part, const Mesh& mesh,
                      absl::Span<const LookupCut> cuts);

// What each mesh dim cuts, where all operands that have a device agree.
absl::StatusOr<std::vector<LookupCut>> CutsOf(const Lookup& l, absl::Span<const UOp> srcs);

}  // namespace tessera
