// The measured rows as a picture.
#pragma once

#include <string>
#include <vector>

#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {

// An SVG of a bar for each row that has a ratio, on a logarithmic scale, from the line of 1 on.
std::string Chart(const std::vector<Row>& rows, const std::string& machine);

}  // namespace tessera::benchmarks
