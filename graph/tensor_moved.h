// How a movement function makes a view; included where they are defined.
#pragma once

#include "graph/tensor.h"

namespace tessera {

template <typename Fn>
Tensor Tensor::Moved(Fn fn) const {
  const UOp value = uop();
  Tensor out(fn(value));
  State& view = *out.state_;
  const State& now = Now();
  if (now.base) {
    view.base = now.base;
    view.base_version = now.base_version;
    // The value may have been replaced by the storage it was computed into.
    view.view = now.view == value ? view.value : fn(now.view);
  } else {
    view.base = state_;
    view.base_version = value;
    view.view = view.value;
  }
  return out;
}

}  // namespace tessera
