// Sizes of panels.
#include "graph/panel.h"

#include <algorithm>

namespace tessera {

int64_t MostOfPanel(const Target& target) {
  return std::max(target.l2_bytes * 3 / 4, target.cache_bytes / (2 * target.cores));
}

int64_t VectorsOfPanel(const Target& target, int64_t columns, int64_t lanes, int64_t steps) {
  const bool fits = steps <= MostOfPanel(target) / (2 * target.vector_bytes);
  return columns >= 2 * lanes && fits ? 2 : 1;
}

}  // namespace tessera
