// Running a program of tools/ as a test.
#pragma once

#include <cstdio>
#include <string>

#include "tests/build_paths.h"

namespace tessera {

struct Outcome {
  int exit = -1;
  std::string out;  // and what it printed as errors
};

// `arguments` as a shell reads them.
inline Outcome RunTool(const std::string& name, const std::string& arguments) {
  Outcome o;
  const std::string command = std::string(kBinDir) + "/" + name + " " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return o;
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof(buffer), pipe)) o.out.append(buffer, n);
  o.exit = WEXITSTATUS(pclose(pipe));
  return o;
}

}  // namespace tessera
