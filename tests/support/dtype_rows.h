// A table of functions of graph/tensor.h by dtype: what they take, what they give, and plain loops
// that compute the same.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

using Numbers = std::vector<double>;

enum class Takes : uint8_t { kAll, kNumbers, kIntegers, kBits, kFloats };  // kBits: bools, too

struct DTypeRow {
  std::string name;
  // Of x and y, both [2, 4]; see DTypeInput.
  std::function<Tensor(const Tensor& x, const Tensor& y)> fn;
  std::function<Numbers(const Numbers& x, const Numbers& y)> loop;
  std::function<DType(DType)> gives;
  Takes takes = Takes::kAll;
};

bool IsTaken(Takes takes, DType t);
std::vector<DType> AllDTypes();
// The numbers of x (0) and y (1): small whole ones that every dtype holds.
Numbers DTypeInput(DType t, int which);

std::vector<DTypeRow> DTypeRows();
void AddElementwiseRows(std::vector<DTypeRow>& rows);  // dtype_rows_elementwise.cc

}  // namespace tessera
