// Measures Tessera beside its peers: tools/bench [--only NAME[,NAME...]] [--json FILE] [--python
// PROGRAM]
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/error.h"
#include "runtime/core_pool.h"
#include "runtime/peak.h"
#include "tools/benchmarks/chart.h"
#include "tools/benchmarks/row.h"

namespace tessera::benchmarks {
namespace {

struct Options {
  absl::flat_hash_set<std::string> only;
  std::string json, svg, python = "python3";
};

[[noreturn]] void Usage() {
  std::fprintf(
      stderr,
      "usage: tools/bench [--only NAME[,NAME...]] [--json FILE] [--svg FILE] [--python PROGRAM]\n");
  std::exit(2);
}

Options Parse(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (i + 1 == argc) Usage();
    if (arg == "--only") {
      for (absl::string_view name : absl::StrSplit(argv[++i], ',')) out.only.emplace(name);
    } else if (arg == "--json") {
      out.json = argv[++i];
    } else if (arg == "--svg") {
      out.svg = argv[++i];
    } else if (arg == "--python") {
      out.python = argv[++i];
    } else {
      Usage();
    }
  }
  return out;
}

// OpenBLAS reads OPENBLAS_CORETYPE as it is loaded, and where that is set takes slower kernels than
// its own choice: this process starts again without it.
void DropCoreType(char** argv) {
  if (std::getenv("OPENBLAS_CORETYPE") == nullptr) return;
  unsetenv("OPENBLAS_CORETYPE");
  execv("/proc/self/exe", argv);
}

std::string Number(std::optional<double> value, const char* unit = "") {
  if (!value) return "-";
  const double v = *value;
  const int digits = v >= 99.95 ? 0 : v >= 9.995 ? 1 : v >= 0.0995 ? 2 : 5;
  return absl::StrFormat("%.*f%s", digits, v, unit);
}

struct Rates {
  std::optional<double> gbps, gflops, peak_share;
};
Rates RatesOf(const Row& row) {
  Rates out;
  if (!row.ours_ms || *row.ours_ms <= 0) return out;
  const double seconds = *row.ours_ms * 1e-3;
  if (row.bytes > 0) out.gbps = row.bytes / seconds * 1e-9;
  if (row.flops > 0) out.gflops = row.flops / seconds * 1e-9;
  const PeakShare share = ShareOfPeak(MeasuredPeak(), row.bytes / seconds, row.flops / seconds);
  if (share.share > 0) out.peak_share = share.share;
  return out;
}

void PrintHeader() {
  const Peak& peak = MeasuredPeak();
  std::printf(
      "peak of this machine, measured: read %.1f GB/s, copy %.1f GB/s, %.0f GFLOP/s (f32)\n",
      peak.read * 1e-9, peak.copy * 1e-9, peak.flops * 1e-9);
  std::printf("%-18s %10s %10s %7s %8s %8s %6s %7s  %s\n", "row", "ours ms", "peer ms", "ratio",
              "GB/s", "GFLOP/s", "peak", "kernels", "peer; note");
}

void Print(const Row& row) {
  const Rates rates = RatesOf(row);
  const std::string share =
      rates.peak_share ? absl::StrFormat("%.0f %%", 100 * *rates.peak_share) : "-";
  std::string text = row.peer;
  if (!row.note.empty()) text += (text.empty() ? "" : "; ") + row.note;
  std::printf("%-18s %10s %10s %7s %8s %8s %6s %7lld  %s\n", row.name.c_str(),
              Number(row.ours_ms).c_str(), Number(row.peer_ms).c_str(), Number(row.ratio()).c_str(),
              Number(rates.gbps).c_str(), Number(rates.gflops).c_str(), share.c_str(),
              static_cast<long long>(row.kernels), text.c_str());
  std::fflush(stdout);
}

nlohmann::json Json(const Row& row) {
  const auto number = [](std::optional<double> v) {
    return v ? nlohmann::json(*v) : nlohmann::json(nullptr);
  };
  const Rates rates = RatesOf(row);
  return {{"name", row.name},
          {"ratio", number(row.ratio())},
          {"ours_ms", number(row.ours_ms)},
          {"peer", row.peer},
          {"peer_ms", number(row.peer_ms)},
          {"bytes", row.bytes},
          {"flops", row.flops},
          {"gbps", number(rates.gbps)},
          {"gflops", number(rates.gflops)},
          {"peak_share", number(rates.peak_share)},
          {"kernels", row.kernels},
          {"note", row.note}};
}

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file.good()) std::fprintf(stderr, "tools/bench: cannot write %s\n", path.c_str());
  return file.good();
}

// The chip's name, where the system tells it, and how many cores kernels use.
std::string Machine() {
  std::ifstream file("/proc/cpuinfo");
  std::string name = "CPU";
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (!absl::StartsWith(line, "model name") || colon == std::string::npos) continue;
    name = line.substr(colon + 2);
    break;
  }
  return absl::StrCat(name, ", ", CorePool::Global().cores(), " cores");
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  DropCoreType(argv);
  const std::string first_result =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "bench-first-result";
  std::vector<std::string> names;
  const Wanted wanted = [&](const std::string& name) {
    names.push_back(name);
    return options.only.empty() || options.only.contains(name);
  };
  std::printf("%s\n", Machine().c_str());
  PrintHeader();
  std::vector<Row> rows;
  const auto add = [&](const std::vector<Row>& some) {
    for (const Row& row : some) {
      Print(row);
      rows.push_back(row);
    }
  };
  add(GraphRows(wanted));
  add(CompileRows(wanted));
  add(NvrtcRows(wanted));
  add(KernelRows(wanted));
  add(MatMulRows(wanted));
  add(GemvRows(wanted));
  add(ShardedRows(wanted));
  add(NetworkRows(wanted, options.python));
  add(OperationRows(wanted, options.python));
  add(TrainingRows(wanted, options.python));
  add(TileRows(wanted));
  add(FirstResultRows(wanted, first_result));
  add(CoreRows(wanted, first_result));
  for (const std::string& name : options.only) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::fprintf(stderr, "tools/bench: there is no row %s; the rows are: %s\n", name.c_str(),
                 absl::StrJoin(names, ", ").c_str());
    return 2;
  }
  bool written = true;
  if (!options.json.empty()) {
    nlohmann::json all = nlohmann::json::array();
    for (const Row& row : rows) all.push_back(Json(row));
    written &= Write(options.json, all.dump(2) + "\n");
  }
  if (!options.svg.empty()) written &= Write(options.svg, Chart(rows, Machine()));
  return written ? 0 : 1;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) {
  try {
    return tessera::benchmarks::Main(argc, argv);
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "tools/bench: %s\n", e.what());
    return 1;
  }
}
