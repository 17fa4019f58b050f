// A model over several places, tensor parallel: each place has some heads, some columns of the
// feed-forward part and some of the vocabulary, and all of what is small.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "examples/llm/model.h"

namespace tessera::llm {

// How heads are dealt out. A place's queries need the keys they belong to: where there are fewer
// key heads than places, keys are computed and kept several times, each for some of its queries.
struct HeadDivision {
  int64_t repeats = 1;  // of each key head
  Layout layout;        // of the repeated key heads over the places
};

// The division with the fewest queries at the busiest place, and then the fewest repeats. The
// columns of a head group are cut into whole blocks of `block` values.
HeadDivision DivideHeads(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t block,
                         int places);

// Moves a model that was just loaded to the places, a weight at a time and each part to where it
// belongs, and sets `model->division`. On CPU:0 alone it stays in its file, unless `copied` asks
// for memory of its own: that has large pages, unlike files, and is read faster. `progress`
// as for LoadModel; where it ends the loading, the model is not to be used.
absl::Status Distribute(Model* model, const std::vector<Place>& places,
                        const LoadProgress& progress = {}, bool copied = false);

}  // namespace tessera::llm
