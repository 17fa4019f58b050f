// A user's program: only installed headers and libraries. outside PREFIX: fails where its kernels
// were compiled by another plugin than that below the prefix, if there is one.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "graph/tensor.h"

int main(int argc, char** argv) {
  const float sum = tessera::Tensor::From({1.5, 2.5}).Sum().Item();
  std::cout << "outside: " << sum << "\n";
  if (sum != 4 || argc < 2) return 1;
  bool there = false, used = false;
  for (const auto& file : std::filesystem::recursive_directory_iterator(argv[1])) {
    there |= file.path().filename().string().rfind("tessera_clang-", 0) == 0;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    used |= line.find(argv[1]) != line.npos && line.find("tessera_clang-") != line.npos;
  }
  if (there != used) std::cout << "outside: the plugin of " << argv[1] << " was not used\n";
  return there == used ? 0 : 1;
}
