// Allocations of a simulated GPU.
#include "runtime/sim/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::sim {
namespace {

constexpr size_t kAlign = 16;  // as much as a vector needs: what runs over soon leaves the page
constexpr size_t kRemembered = 512;  // freed allocations that stay unmapped

absl::Status Unknown(uint64_t address) {
  return absl::DataLossError(absl::StrFormat("%#x is no allocation", address));
}

}  // namespace

Memory::~Memory() {
  for (auto& [address, block] : blocks_) munmap(block.base, block.mapped);
}

absl::StatusOr<uint64_t> Memory::Reserve(int64_t bytes) {
  if (bytes > capacity_ - used_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes of ", capacity_, ", of which ", used_, " are used"));
  }
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t rounded = (static_cast<size_t>(bytes) + kAlign - 1) / kAlign * kAlign;
  const size_t inner = (rounded + page - 1) / page * page;
  const size_t mapped = inner + 2 * page;
  void* base = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return absl::ResourceExhaustedError("no address space");
  char* const data = static_cast<char*>(base) + page + (inner - rounded);
  const auto address = reinterpret_cast<uint64_t>(data);
  blocks_[address] = {static_cast<char*>(base), mapped, bytes};
  used_ += bytes;
  reserved_ = std::max(reserved_, used_);
  return address;
}

absl::Status Memory::Enter(uint64_t address) {
  const auto it = blocks_.find(address);
  if (it == blocks_.end() || it->second.left) return Unknown(address);
  Block& b = it->second;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* const first = b.base + page;
  if (mprotect(first, b.mapped - 2 * page, PROT_READ | PROT_WRITE) != 0) {
    return absl::ResourceExhaustedError("mprotect");
  }
  std::memset(first, 0xff, b.mapped - 2 * page);
  b.alive = true;
  return absl::OkStatus();
}

absl::Status Memory::Leave(uint64_t address) {
  const auto it = blocks_.find(address);
  if (it == blocks_.end() || !it->second.alive) return Unknown(address);
  Block& b = it->second;
  b.alive = false;
  b.left = true;
  used_ -= b.bytes;
  // Fresh pages: the content is gone, and touching them is a fault.
  mmap(b.base, b.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  left_.push_back(address);
  if (left_.size() > kRemembered) {
    const auto old = blocks_.find(left_.front());
    munmap(old->second.base, old->second.mapped);
    blocks_.erase(old);
    left_.pop_front();
  }
  return absl::OkStatus();
}

bool Memory::Holds(uint64_t address, int64_t bytes) const {
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return false;
  --it;
  const Block& b = it->second;
  return b.alive && address - it->first <= static_cast<uint64_t>(b.bytes) &&
         bytes <= b.bytes - static_cast<int64_t>(address - it->first);
}

}  // namespace tessera::sim
