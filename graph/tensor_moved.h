// How a movement function makes a view; included where they are defined.
#pragma once

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

template <typename Fn>
Tensor Tensor::Moved(Fn fn) const {
  const UOp value = internal::Current(uop());
  Tensor out(fn(value));
  State& view = *out.state_;
  const State& now = Now();
  if (now.base == nullptr) {
    view.base = state_;
    view.base_version = value;
    view.view = view.value;
    return out;
  }
  view.base = now.base;
  view.base_version = now.base_version;
  UOp from = now.view;
  if (from == now.base_version) view.base_version = from = internal::Current(from);
  // The value may have been replaced by the storage it was computed into.
  view.view = from == value ? view.value : fn(from);
  for (const auto& other : now.through) {
    if (!other.expired()) view.through.push_back(other);
  }
  view.through.push_back(state_);
  return out;
}

}  // namespace tessera
