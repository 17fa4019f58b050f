// What all GPUs of CUDA have alike, as far as choices rest on it.
#pragma once

#include <cstdint>

namespace tessera {

inline constexpr int64_t kWarp = 32;             // threads
inline constexpr int64_t kVectorBytes = 16;      // that a thread loads or stores at most
inline constexpr int64_t kThreadsOfBlock = 256;  // that is given no other number
inline constexpr int64_t kWarpsOfBlock = kThreadsOfBlock / kWarp;
inline constexpr int64_t kThreadsOfCore = 1024;  // that keep a multiprocessor's memory busy

}  // namespace tessera
