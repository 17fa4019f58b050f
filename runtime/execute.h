// The pieces of running a plan that a replay shares.
#pragma once

#include "runtime/runtime.h"

namespace tessera {

// Copies from one buffer of a plan to another, which lie at these addresses.
absl::Status CopyPlanBuffer(const PlanBuffer& to, void* target, const PlanBuffer& from,
                            const void* source);

// The value of an extent under the bindings.
absl::StatusOr<int64_t> ExtentValue(const Extent& e, const Bindings& bindings);

// Whether a VAR of this name and bounds can be bound to the value; null: none was given.
absl::Status CheckBinding(const std::string& name, int64_t min, int64_t max, const int64_t* value);

}  // namespace tessera
