// onnx-test: runs ONNX backend node tests and says which pass.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "examples/onnx/conformance.h"

namespace tessera::onnx {
namespace {

constexpr char kUsage[] =
    "usage: tools/onnx-test [--device D] [--tolerance T] [--shard N] [--time] [--not-plain] "
    "DIR...\n"
    "Runs the ONNX backend node tests in each DIR, which is the folder of one (model.onnx and\n"
    "test_data_set_0/) or a folder of such. Prints pass, fail or skip and the name of each, why "
    "it\n"
    "fails or is skipped, and a tally; exits 1 if any fails.\n"
    "  --device D     where tensors lie (CPU)\n"
    "  --tolerance T  how far floats may be off, relative to what is expected (1e-3)\n"
    "  --shard N      runs each also with its data inputs over CPU:0 to CPU:N-1, on each axis in\n"
    "                 turn, in even and in uneven pieces; prints the bytes moved in each such "
    "run,\n"
    "                 with a w where the results lie whole on every place\n"
    "  --time         prints the milliseconds of each, and their median\n"
    "  --not-plain    prints those that are not plain, and why, and runs nothing\n";

struct Command {
  CaseOptions options;
  bool time = false, not_plain = false;
  std::vector<std::string> folders;
};

int Usage(const std::string& why) {
  std::cerr << "onnx-test: " << why << "\n" << kUsage;
  return 2;
}

struct Tally {
  int pass = 0, fail = 0, skip = 0, plain = 0, plain_pass = 0;
  std::vector<double> milliseconds;
};

void Run(const std::string& folder, const Command& command, Tally& tally) {
  const std::string name = folder.substr(folder.find_last_of('/') + 1);
  const auto start = std::chrono::steady_clock::now();
  const CaseResult r = RunCase(folder, command.options);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  using Kind = CaseResult::Kind;
  const char* word = r.kind == Kind::kPass ? "pass" : r.kind == Kind::kFail ? "fail" : "skip";
  std::cout << word << " " << name;
  if (!r.why.empty()) std::cout << " " << r.why;
  if (!r.moved.empty()) std::cout << " moved bytes: " << r.moved;
  if (command.time) std::cout << absl::StrFormat(" (%.1f ms)", took.count());
  std::cout << std::endl;
  (r.kind == Kind::kPass ? tally.pass : r.kind == Kind::kFail ? tally.fail : tally.skip) += 1;
  tally.plain += r.plain;
  tally.plain_pass += r.plain && r.kind == Kind::kPass;
  if (r.kind != Kind::kSkip) tally.milliseconds.push_back(took.count());
}

void Print(const Tally& tally, bool time) {
  std::cout << tally.pass << " passed, " << tally.fail << " failed, " << tally.skip
            << " skipped; of " << tally.plain << " plain ones " << tally.plain_pass << " passed\n";
  if (!time || tally.milliseconds.empty()) return;
  std::vector<double> sorted = tally.milliseconds;
  std::sort(sorted.begin(), sorted.end());
  std::cout << absl::StrFormat("median %.1f ms, slowest %.1f ms\n", sorted[sorted.size() / 2],
                               sorted.back());
}

int Main(int argc, char** argv) {
  Command command;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (word == "--help") return std::fputs(kUsage, stdout), 0;
    if (word == "--time") {
      command.time = true;
    } else if (word == "--not-plain") {
      command.not_plain = true;
    } else if (word == "--device") {
      const absl::StatusOr<Device> device = Device::Parse(value());
      if (!device.ok()) return Usage(std::string(device.status().message()));
      command.options.device = *device;
    } else if (word == "--tolerance") {
      if (!absl::SimpleAtod(value(), &command.options.tolerance)) {
        return Usage("--tolerance takes a number");
      }
    } else if (word == "--shard") {
      int& n = command.options.shard;
      if (!absl::SimpleAtoi(value(), &n) || n < 1 || n > 64) return Usage("--shard takes 1 to 64");
    } else if (word.rfind("--", 0) == 0) {
      return Usage("'" + word + "' is no option");
    } else {
      command.folders.push_back(word);
    }
  }
  if (command.folders.empty()) return Usage("no folder is named");
  Tally tally;
  for (std::string path : command.folders) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const std::vector<std::string> cases = CaseFolders(path);
    if (cases.empty()) {
      const bool folder = std::filesystem::is_directory(path);
      std::cout << "fail " << path
                << (folder ? " there is no model.onnx in it, nor in a folder in it\n"
                           : " is no folder\n");
      ++tally.fail;
    }
    for (const std::string& folder : cases) {
      if (!command.not_plain) {
        Run(folder, command, tally);
        continue;
      }
      const std::string why = WhyNotPlain(folder);
      if (!why.empty()) {
        std::cout << folder.substr(folder.find_last_of('/') + 1) << ": " << why << "\n";
      }
    }
  }
  if (!command.not_plain) Print(tally, command.time);
  return tally.fail == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera::onnx

int main(int argc, char** argv) { return tessera::onnx::Main(argc, argv); }
