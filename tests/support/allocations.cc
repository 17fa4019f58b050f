// operator new and delete of the test binary, which remember the largest block.
#include "tests/support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<size_t> largest{0};
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(size_t size) {
  size_t before = largest;
  while (before < size && !largest.compare_exchange_weak(before, size)) {
  }
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace tessera {

size_t LargestAllocation() { return largest; }
void ForgetAllocations() { largest = 0; }

}  // namespace tessera
