// The pass runner.
#include "graph/pass.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/flags.h"
#include "graph/kernel_form.h"
#include "graph/status.h"
#include "graph/text.h"

namespace tessera {
namespace {

std::atomic<int64_t> optional_passes{0};
std::atomic<int64_t> dumps{0};

// What SKIP_PASS may name: every name that RunOptional is called with.
constexpr absl::string_view kOptional[] = {
    "merge_collectives", "scatter_reductions", "bucket_collectives",
    "sink_reshapes",     "part_products",      "lay_out_products",
    "split_reductions",  "optimise",           "matrix",
    "tabulate",          "join_transposed"};

bool IsOptional(absl::string_view name) { return absl::c_linear_search(kOptional, name); }

absl::StatusOr<bool> Skipped(const std::string& name) {
  CHECK(IsOptional(name), name, " is not among the optional passes");
  bool skipped = false;
  for (absl::string_view s : absl::StrSplit(TextFlag(Flag::kSkipPass), ',', absl::SkipEmpty())) {
    if (!IsOptional(s)) {
      return absl::InvalidArgumentError(absl::StrCat("SKIP_PASS: there is no optional pass '", s,
                                                     "'; there are ",
                                                     absl::StrJoin(kOptional, ", ")));
    }
    skipped |= s == name;
  }
  return skipped;
}

void Dump(const std::string& name, const PassRunner::Roots& roots) {
  const std::string folder = TextFlag(Flag::kDump);
  if (folder.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const std::string path =
      absl::StrCat(folder, "/", absl::Dec(dumps.fetch_add(1), absl::kZeroPad5), "_", name, ".txt");
  std::ofstream file(path);
  file << Print(roots);
  if (!file) std::fprintf(stderr, "tessera: cannot write %s\n", path.c_str());
}

}  // namespace

absl::Status PassRunner::Run(const std::string& name, Roots& roots, const Pass& pass, bool check) {
  const auto start = std::chrono::steady_clock::now();
  Roots after = pass(roots);
  if (IntFlag(Flag::kDebug) >= 7) {
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "%s.%s: %.1f us%s\n", list_.c_str(), name.c_str(), took.count(),
                 after == roots ? ", unchanged" : "");
  }
  const bool changed = !(after == roots);
  roots = std::move(after);
  if (changed) Dump(absl::StrCat(list_, "_", name), roots);
  if (!check || SpecLevel() < 2) return absl::OkStatus();
  return Verify(roots, stage_, SpecLevel(), absl::StrCat(list_, ".", name), target_);
}

absl::Status PassRunner::RunOptional(const std::string& name, Roots& roots, const Pass& pass,
                                     bool check) {
  ASSIGN_OR_RETURN(const bool skipped, Skipped(name));
  if (skipped) return absl::OkStatus();
  const int64_t number = optional_passes.fetch_add(1);
  const int64_t limit = IntFlag(Flag::kBisect);
  if (limit >= 0 && number >= limit) {
    if (number == limit) {
      std::fprintf(stderr, "tessera: BISECT=%lld: the first pass that is left out is %s.%s\n",
                   static_cast<long long>(limit), list_.c_str(), name.c_str());
    }
    return absl::OkStatus();
  }
  try {
    return Run(name, roots, pass, check);
  } catch (const TooManyRanges&) {
    return absl::OkStatus();
  }
}

}  // namespace tessera
