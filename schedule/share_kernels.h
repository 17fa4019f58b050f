// Kernels of a plan that differ in numbers alone become one.
//
// Steps that do the same to one piece after another (the rows of an Unbind, the steps of a loop
// over time, heads one by one) have kernels that differ in where they read and write, perhaps in a
// constant, or in a number that integers are compared with. Three such kernels or more become one
// whose numbers are VARs, and every step has the values for its own launch (PlanStep::numbers), so
// that text is generated and compiled once.
//
// What is decided from a number must hold for all sharers. So an offset becomes c + g * VAR with
// the greatest such g, from which divisibility follows as before; the VAR goes from 0 to what the
// farthest sharer has, so that each bound that can be proved is one of a sharer's own. Offsets that
// go along with one another share a VAR, and keep their distances.
//
// (The same of the factors of what a launch knows, as the size of a place's part.)
//
// Not shared are kernels that differ in anything else: extents, gates, masks, divisors, numbers
// from which indices are computed; nor those that read what they write at other distances.
#pragma once

#include "schedule/plan.h"

namespace tessera {

// The flag VARY says how many kernels must be alike: 0 never, 1 three, 2 two.
void ShareKernels(Plan& plan);

}  // namespace tessera
