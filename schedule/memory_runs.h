// How loops of a kernel go through memory: by runs of bytes, of which cores should have whole ones.
#pragma once

#include <cstdint>

#include "graph/kernel_form.h"
#include "schedule/work_division.h"

namespace tessera {

inline constexpr int64_t kLeastRun = 4096;  // bytes in a row that memory is read by well: a page

// The bytes at `loop` that an access of memory, which moves with another loop too, goes through one
// after another; 0 where none does.
int64_t RunOver(const RangeSets& sets, const UOp& loop, const UOp& other);

// Whether cores that share loops by such a division write less than a page in a row each, where
// nothing is reduced: they would take turns in pages, if not in lines. (Rows of 56 of 45 images,
// halved: 328 us, and 15 by images. Rows of 11 that are written one after another, 10 of them at a
// time: 280 us, and 30 by what lies around them.)
bool CutsRuns(const RangeSets& sets, absl::Span<const UOp> loops, const Division& division);

// Whether loops around the one that is shared read what it reads again, or write it: then it is
// best outermost. Else it stays in its place: each core goes through memory in the order of that.
// (A softmax over 21 channels of four images, whose pixels are shared: 5 ms, and 1.8 in order.)
bool IsReadAgainOutside(const RangeSets& sets, absl::Span<const UOp> loops, size_t shared);

// Whether what steps of a loop read and write lies one after another in every tensor, so that some
// of them in a row are a run of memory of their own.
bool RunsOn(const RangeSets& sets, const UOp& loop);

}  // namespace tessera
