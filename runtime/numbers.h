// Graphs that come again with other numbers: a step with another rate, a loop over positions.
//
// A number is part of what a kernel computes, and often makes it simpler, so a plan is made for the
// numbers that a graph has. Where graphs come that differ in nothing but some numbers, the third of
// them gets a plan in which those are VARs, given their values at each run, and so do all later
// ones. The numbers are those of constants, and where SHRINKs begin and what PADs put before.
// Masks, shifts and divisors of integers vary from the fifth other one on: kernels are recognised
// by them (blocks of bytes), and divide by known numbers in half the time. Extents do not vary, nor
// what they are made of, as loops are divided by them; a Variable does.
#pragma once

#include "runtime/plan_key.h"

namespace tessera {

// Once graphs that differ in numbers alone have come often enough: moves the numbers that varied
// into `key.numbers`, rewrites `key.words` so that all these graphs share one key, and returns
// true. Before that it returns false and leaves the key alone. No plan may have the key yet.
bool LetNumbersVary(PlanKey& key);

// The values of the key's numbers, by the names of their VARs.
void BindNumbers(const PlanKey& key, std::map<std::string, int64_t>& bindings);

// The node with `srcs`, and VARs for its numbers.
UOp WithNumbersVaried(const PlanKey& key, absl::Span<const int> slots, const UOp& u,
                      absl::Span<const UOp> srcs);

// Forgets which graphs have come.
void ForgetNumbers();

}  // namespace tessera
