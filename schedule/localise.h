// Tensors on several places become what one place computes: every mesh dim Manual.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/box.h"
#include "graph/uop.h"

namespace tessera {

// A variable whose value is each place's own: an extent, a begin, a coordinate. Its name begins
// with kPlaceVariable.
struct PlaceVariable {
  std::string name;
  UOp variable;                 // the VAR
  Device mesh;                  // Manual
  std::vector<int64_t> values;  // by place; of a symbolic one the most that they are
  // Of a symbolic one: the value is what of a piece, by place, lies below an extent.
  Extent within = {};
  std::vector<Interval> pieces = {};
  bool is_symbolic() const { return !pieces.empty(); }
  Extent At(int place) const {
    return is_symbolic() ? PartBelow(pieces[place], within) : Extent(values[place]);
  }
  // Where that extent is this number.
  int64_t At(int place, int64_t number) const {
    return is_symbolic() ? Intersect(pieces[place], {0, number}).size() : values[place];
  }
};

struct Localised {
  std::vector<UOp> roots;
  std::vector<PlaceVariable> variables;
};

// One graph per mesh, whatever its size: shapes become those of one place's part, with variables
// where they differ; data moves only in EXCHANGE and ALLREDUCE; a COPY to a place's own part is a
// SHRINK. Afterwards no device is Shard, Replicate or Partial.
absl::StatusOr<Localised> Localise(absl::Span<const UOp> roots);

// Whether a node is a step of its own, or steps: data goes from buffers to a buffer.
bool IsTransfer(const UOp& u);

}  // namespace tessera
