// What tools/bench times from the start of a process: the first result.
#include <cstdio>

#include "graph/tensor.h"

int main() { std::printf("%.6f\n", tessera::Tensor::Rand({4}).Sum().Item()); }
