// The instructions of a matrix unit, on chips that have none: each is carried out as it is met.
//
// While an EmulateTiles lives, an instruction that the chip refuses is read from memory, and if it
// is one of AMX (tile configuration, loads, stores, products of bf16 and of bytes) done in its
// place, for every thread with tiles of its own, with the effects that Intel's manual gives it: so
// code that was compiled for such a chip runs as it is, encodings and addresses included. Others
// are left to end the process.
#pragma once

#include <cstdint>

#include "graph/target.h"

namespace tessera {

class EmulateTiles {
 public:
  EmulateTiles();
  ~EmulateTiles();
  EmulateTiles(const EmulateTiles&) = delete;
  EmulateTiles& operator=(const EmulateTiles&) = delete;

  // Products that were done in all threads since the first one lived.
  static int64_t Products();
};

// Whether this machine can run such code.
bool CanEmulateTiles();

// This machine as a chip with tiles of bf16 and of bytes.
Target HostWithTiles();

}  // namespace tessera
