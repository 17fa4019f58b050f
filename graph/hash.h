// The hash of several values together.
#pragma once

#include <cstddef>
#include <tuple>

#include "absl/hash/hash.h"

namespace tessera {

template <typename... T>
size_t HashAll(const T&... values) {  // absl::HashOf, which Ubuntu 22.04's abseil lacks
  return absl::Hash<std::tuple<const T&...>>()(std::tie(values...));
}

}  // namespace tessera
