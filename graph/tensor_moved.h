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
  // A base that no one else holds is no tensor that could be read: what is written into the view is
  // written into this one.
  if (now.base.use_count() > 1) {
    view.base = now.base;
    view.base_version = now.base_version;
    UOp from = now.view;
    if (from == now.base_version) view.base_version = from = internal::Current(from);
    // The value may have been replaced by the storage it was computed into.
    view.view = from == value ? view.value : fn(from);
  } else {
    view.base = state_;
    view.base_version = value;
    view.view = view.value;
  }
  return out;
}

}  // namespace tessera
