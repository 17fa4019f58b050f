// What the CPU that we run on has, in Clang's spelling.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tessera {

// Names of features, in the order of a table, as the CPU itself tells, and on ARM the system: only
// names that Clang 14 knows already, of what the system saves the registers of. Changed by the
// CPU_FEATURES flag.
std::vector<absl::string_view> HostFeatures();

// The CPU, as Clang spells it, that has all of its level and no more.
std::string ArchOf(const std::vector<absl::string_view>& features);

// These names of features, with those that `wanted` adds (+name) and without those that it takes
// away (-name), and what is built on them. Names that are not known are left out, and a message in
// `ignored` says so.
std::vector<absl::string_view> AdjustFeatures(std::vector<absl::string_view> names,
                                              absl::string_view wanted, std::string& ignored);

}  // namespace tessera
