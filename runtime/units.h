// Quantities as people read them.
#pragma once

#include <string>

namespace tessera {

std::string ShowBytes(double bytes);  // "17 B", "1.5 KiB", "2.0 GiB"
// The cores of a kernel; "/" how many parts they share, if more; and the busy share of the cores
// worth waking, if not all: "8", "8/64", "6 75%".
std::string ShowCores(int workers, int parts, double utilisation);
std::string ShowCount(double n);          // "17", "1.5 k", "2.1 G"
std::string ShowSeconds(double seconds);  // "0.3 us", "1.5 ms", "2.1 s"

}  // namespace tessera
