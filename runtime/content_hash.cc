// SipHash-2-4 with 128 bits of output, after its authors' reference description.
#include "runtime/content_hash.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

uint64_t Rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

struct State {
  uint64_t v0, v1, v2, v3;

  void Rounds(int n) {
    for (int i = 0; i < n; ++i) {
      v0 += v1;
      v1 = Rotate(v1, 13) ^ v0;
      v0 = Rotate(v0, 32);
      v2 += v3;
      v3 = Rotate(v3, 16) ^ v2;
      v0 += v3;
      v3 = Rotate(v3, 21) ^ v0;
      v2 += v1;
      v1 = Rotate(v1, 17) ^ v2;
      v2 = Rotate(v2, 32);
    }
  }
  void Absorb(uint64_t word) {
    v3 ^= word;
    Rounds(2);
    v0 ^= word;
  }
  uint64_t Fold() const { return v0 ^ v1 ^ v2 ^ v3; }
};

// `n` bytes, at most eight, as a little-endian number.
uint64_t Word(const char* bytes, size_t n) {
  uint64_t word = 0;
  for (size_t i = 0; i < n; ++i) {
    word |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return word;
}

}  // namespace

ContentHash HashBytes(absl::string_view bytes) {
  // The key of the published test vectors: 00 01 02 ... 0f.
  constexpr uint64_t k0 = 0x0706050403020100, k1 = 0x0f0e0d0c0b0a0908;
  State s = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261,
             k1 ^ 0x7465646279746573};
  const uint64_t size = bytes.size();
  while (bytes.size() >= 8) {
    s.Absorb(Word(bytes.data(), 8));
    bytes.remove_prefix(8);
  }
  s.Absorb(Word(bytes.data(), bytes.size()) | size << 56);
  ContentHash hash;
  s.v2 ^= 0xee;
  s.Rounds(4);
  hash.low = s.Fold();
  s.v1 ^= 0xdd;
  s.Rounds(4);
  hash.high = s.Fold();
  return hash;
}

std::string ContentHash::Hex() const {
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16), absl::Hex(low, absl::kZeroPad16));
}

}  // namespace tessera
