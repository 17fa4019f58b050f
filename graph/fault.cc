// Reading of the flag FAULT.
#include "graph/fault.h"

#include <cstdio>
#include <cstdlib>

#include "graph/flags.h"

namespace tessera {
namespace internal {

std::atomic<int> planted_fault{-1};

int ReadPlantedFault() {
  const std::string wanted = TextFlag(Flag::kFault);
  int found = static_cast<int>(Fault::kNone);
  if (!wanted.empty()) {
    const std::vector<FaultInfo>& all = AllFaults();
    for (size_t i = 0; i < all.size(); ++i) {
      if (wanted == all[i].name) found = static_cast<int>(i) + 1;
    }
    // Going on without it would let a test pass that finds nothing.
    if (found == 0) {
      std::fprintf(stderr, "tessera: FAULT=%s is none of:\n", wanted.c_str());
      for (const FaultInfo& f : all) std::fprintf(stderr, "  %-22s %s\n", f.name, f.meaning);
      std::_Exit(2);
    }
  }
  if (planted_fault.exchange(found) < 0 && found > 0) {
    std::fprintf(stderr, "tessera: FAULT=%s is planted; results may be wrong\n", wanted.c_str());
  }
  return found;
}

}  // namespace internal

const std::vector<FaultInfo>& AllFaults() {
  static const std::vector<FaultInfo>& all = *new std::vector<FaultInfo>{
#define TESSERA_FAULT_ROW(name, meaning) {#name, meaning},
      TESSERA_FAULTS(TESSERA_FAULT_ROW)
#undef TESSERA_FAULT_ROW
  };
  return all;
}

}  // namespace tessera
