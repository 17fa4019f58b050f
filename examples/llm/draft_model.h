// A small model that guesses what a large one of the same vocabulary writes.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "examples/llm/guess.h"
#include "examples/llm/session.h"

namespace tessera::llm {

// Guesses the likeliest tokens by a model that is its own from here on, in a session of these
// options. An error where its tokens are not the large model's, which names what differs. Of texts
// that the session has no room for there are no guesses; one that goes on is read from there on
// alone.
absl::StatusOr<Guesser> GuesserByModel(Model draft, const SessionOptions& options,
                                       const Model& large);

}  // namespace tessera::llm
