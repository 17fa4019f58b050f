// A scope in which what is written has no derivative.
//
//   {
//     NoGrad scope;
//     total += loss;        // keeps no history, however often it is done
//   }
#pragma once

namespace tessera {

// While one lives, the results of functions that this thread calls are constants to derivatives, as
// after Detach: none goes through them, and they keep nothing of what they were computed from.
// Scopes nest; other threads go on as they were. What was written before keeps its history,
// wherever it is computed. A view made under one shows, once something is written into it, what its
// tensor then is, with that one's history. A step that is captured under one is another step than
// without.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  static bool Active();
};

}  // namespace tessera
