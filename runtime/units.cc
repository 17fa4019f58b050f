// Quantities as text.
#include "runtime/units.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera {
namespace {

template <size_t N>
std::string Scaled(double value, double step, const std::array<const char*, N>& units) {
  size_t i = 0;
  while (i + 1 < N && value >= 999.5) value /= step, ++i;
  if (i == 0) return absl::StrFormat("%.0f%s", value, units[0]);
  return absl::StrFormat("%.*f%s", value < 9.95 ? 1 : 0, value, units[i]);
}

}  // namespace

std::string ShowBytes(double bytes) {
  return Scaled<5>(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}
std::string ShowCount(double n) { return Scaled<5>(n, 1000, {"", " k", " M", " G", " T"}); }
std::string ShowSeconds(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.1f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.2f ms", seconds * 1e3);
  return absl::StrFormat("%.2f s", seconds);
}

std::string ShowCores(int workers, int parts, double utilisation) {
  std::string out = std::to_string(workers);
  if (parts > workers) absl::StrAppend(&out, "/", parts);
  if (workers > 1 && utilisation <= 0.995)
    absl::StrAppendFormat(&out, " %.0f%%", 100 * utilisation);
  return out;
}

}  // namespace tessera
