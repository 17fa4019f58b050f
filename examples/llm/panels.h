// Weights copied into the order in which CPUs multiply them fastest.
#pragma once

#include "absl/status/status.h"
#include "examples/llm/model.h"

namespace tessera::llm {

// Whether such copies of a model's weights would leave as much memory free as they take.
bool LeavesRoomForPanels(const Model& model);

// Gives a model that is on one CPU panels of all matrices that products of integers read (quant.h);
// the others stay as they are. What the file has is kept: products of single rows and of floats
// read it. `progress` as for LoadModel; where it ends the loading, the model is not to be used.
absl::Status CopyIntoPanels(Model* model, const LoadProgress& progress = {});

}  // namespace tessera::llm
