// spec-check: reads graphs in text form and prints what the validator finds wrong with them.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "graph/spec.h"

namespace tessera {
namespace {

constexpr char kUsage[] =
    "usage: tools/spec-check [--level N] [--stage tensor|kernel|program] [--target cpu|gpu] "
    "FILE...\n"
    "Checks the graphs in each FILE ('-' is the standard input), which a line --- separates, by "
    "the\n"
    "rules of docs/spec.md up to level N (default 2). The stage is found from the ops if not "
    "given, and\n"
    "the limits are those of a GPU (sm_90) if a parameter is on one.\n"
    "Prints ok and exits 0, or prints each violation and exits 1; 2 where a file cannot be read.\n";

enum class Limits { kFound, kCpu, kGpu };

Target GpuTarget() {
  Target t;
  t.dialect = Dialect::kCuda;
  t.arch = "sm_90";
  t.vector_bytes = 16;
  t.max_params = 400;
  t.max_grid = INT64_MAX;
  t.max_threads = 1024;
  t.shared_bytes = 227 << 10;
  DescribeMatrixUnits(t);
  return t;
}

bool IsOnGpu(const std::string& line) {
  if (!absl::StrContains(line, "PARAM ")) return false;
  return absl::StrContains(line, "@CUDA") || absl::StrContains(line, "@SIM");
}

int Usage() {
  std::fputs(kUsage, stderr);
  return 2;
}

// Prints the violations of the graphs of one file, and returns how many there are.
size_t Check(const std::string& file, const std::string& text, Limits limits, SpecOptions options) {
  size_t count = 0;
  bool gpu = limits == Limits::kGpu;
  int first_line = 0;
  std::string graph;
  std::istringstream lines(text);
  const auto flush = [&] {
    options.target = gpu ? GpuTarget() : Target();
    gpu = limits == Limits::kGpu;
    for (const Violation& v : VerifyText(graph, options)) {
      std::cout << file << ":" << first_line + v.line << ": " << v.ToString() << "\n";
      ++count;
    }
  };
  int line_number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++line_number;
    if (line == "---" || line == "---\r") {
      flush();
      graph.clear();
      first_line = line_number;
    } else {
      graph += line + "\n";
      gpu |= limits == Limits::kFound && IsOnGpu(line);
    }
  }
  flush();
  return count;
}

int Main(int argc, char** argv) {
  SpecOptions options;
  Limits limits = Limits::kFound;
  std::vector<std::string> files;
  bool flags = true;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (flags && (word == "--help" || word == "-h")) {
      std::fputs(kUsage, stdout);
      return 0;
    } else if (flags && word == "--") {
      flags = false;
    } else if (flags && word == "--level") {
      if (++i == argc || !absl::SimpleAtoi(argv[i], &options.level) || options.level < 0 ||
          options.level > kMaxSpecLevel) {
        return Usage();
      }
    } else if (flags && word == "--stage") {
      const std::string name = ++i == argc ? "" : argv[i];
      options.stage.reset();
      for (SpecStage s : {SpecStage::kTensor, SpecStage::kKernel, SpecStage::kProgram}) {
        if (StageName(s) == name) options.stage = s;
      }
      if (!options.stage) return Usage();
    } else if (flags && word == "--target") {
      const std::string name = ++i == argc ? "" : argv[i];
      if (name != "cpu" && name != "gpu") return Usage();
      limits = name == "gpu" ? Limits::kGpu : Limits::kCpu;
    } else if (flags && word.size() > 1 && word[0] == '-') {
      return Usage();
    } else {
      files.push_back(word);
    }
  }
  if (files.empty()) return Usage();
  size_t count = 0;
  bool unreadable = false;
  for (const std::string& file : files) {
    std::ostringstream text;
    if (file == "-") {
      text << std::cin.rdbuf();
    } else {
      std::ifstream in(file, std::ios::binary);
      // A folder opens but cannot be read.
      if (!in || (in.peek() == EOF && in.bad()) || (!in.eof() && !(text << in.rdbuf()))) {
        std::fprintf(stderr, "spec-check: cannot read %s\n", file.c_str());
        unreadable = true;
        continue;
      }
    }
    count += Check(file, text.str(), limits, options);
  }
  if (unreadable) return 2;
  if (count == 0) std::cout << "ok\n";
  if (!std::cout.flush()) {
    std::fprintf(stderr, "spec-check: the standard output takes no more\n");
    return 2;
  }
  return count == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
