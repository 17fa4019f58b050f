// What this machine reaches, measured: the scale on which kernels' rates are shown.
#pragma once

#include "graph/device.h"

namespace tessera {

struct Peak {
  double read = 0;   // bytes a second out of memory, by all cores that kernels may use
  double copy = 0;   // bytes a second, read and written alike
  double flops = 0;  // f32 multiplications and additions a second
  double bandwidth() const { return read > copy ? read : copy; }
};

// Measured by small loops at the first call, in about 0.2 s, then kept. All zero where the loops
// cannot be compiled.
const Peak& MeasuredPeak();
// Of any place: of a GPU what its own copies reach, and no flops. All zero of a place that has no
// room for them, or is not there. It has 256 MB of the place for a moment, as its peak bytes show.
const Peak& MeasuredPeak(const Place& place);

// How near rates of bytes and flops a second come to the peak: of the limits that are known, the
// nearer one.
struct PeakShare {
  double share = 0;
  bool memory = true;
};
PeakShare ShareOfPeak(const Peak& peak, double bytes_per_second, double flops_per_second);

}  // namespace tessera
