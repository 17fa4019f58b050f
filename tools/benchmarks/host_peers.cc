// Which of the compiled peers this CPU can run.
#include "tools/benchmarks/peers.h"

namespace tessera::benchmarks {

const Peers& x86_64_v4();
const Peers& x86_64_v3();
const Peers& baseline();

const Peers& HostPeers() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return x86_64_v4();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return x86_64_v3();
#endif
  return baseline();
}

}  // namespace tessera::benchmarks
