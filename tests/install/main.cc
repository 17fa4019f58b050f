// A user's program: only installed headers and libraries.
#include <iostream>

#include "graph/target.h"

int main() {
  std::cout << "outside: " << tessera::Target().Key() << "\n";
  return 0;
}
