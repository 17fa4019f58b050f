// The largest block that this process asked of operator new since it was last told to forget.
#pragma once

#include <cstddef>

namespace tessera {

size_t LargestAllocation();  // 0 where a sanitizer brings an allocator of its own
void ForgetAllocations();

}  // namespace tessera
