// A 128-bit hash of bytes (SipHash-2-4 with a fixed key), for cache names and checksums.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

struct ContentHash {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const ContentHash&, const ContentHash&) = default;

  // 32 hexadecimal digits.
  std::string Hex() const;
};

// The same on every machine and in every build. It guards against accidents, not against an enemy
// who picks the bytes: who must be certain compares the bytes too.
ContentHash HashBytes(absl::string_view bytes);

}  // namespace tessera
