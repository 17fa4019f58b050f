// How a movement function makes a view; included where they are defined.
#pragma once

#include "graph/tensor.h"

namespace tessera {

template <typename Fn>
Tensor Tensor::Moved(Fn fn) const {
  const UOp& value = uop();
  Tensor out(fn(value));
  State& view = *out.state_;
  if (state_->base) {
    view.base = state_->base;
    view.base_version = state_->base_version;
    // The value may have been replaced by the storage it was computed into.
    view.view = state_->view == value ? view.value : fn(state_->view);
  } else {
    view.base = state_;
    view.base_version = value;
    view.view = view.value;
  }
  return out;
}

}  // namespace tessera
