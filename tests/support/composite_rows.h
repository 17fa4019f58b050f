// A table of composed functions, of graph/tensor.h and of the headers beside it, with small inputs
// for each.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

// Distinct values between low and high, in an order of their own.
struct CompositeInput {
  std::vector<int64_t> shape;
  double low = -2, high = 2;
  DType dtype = kFloat32;
};

struct CompositeRow {
  std::string name;
  std::vector<CompositeInput> inputs;
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn;
  bool differentiable = true;
  bool flat = false;  // some of its derivatives are 0 throughout
};

inline void PrintTo(const CompositeRow& row, std::ostream* out) { *out << row.name; }

std::vector<CompositeRow> CompositeRows();
// What a row is called with; its floats of another dtype; other numbers for another set.
std::vector<Tensor> CompositeInputs(const CompositeRow& row, std::optional<DType> floats = {},
                                    int set = 0);
// The parts in composite_rows_more.cc, composite_rows_rest.cc, composite_rows_matrix.cc,
// composite_rows_named.cc and composite_rows_free.cc.
void AddMoreRows(std::vector<CompositeRow>& rows);
void AddRestOfRows(std::vector<CompositeRow>& rows);
void AddMatrixRows(std::vector<CompositeRow>& rows);
void AddNamedRows(std::vector<CompositeRow>& rows);
void AddFreeRows(std::vector<CompositeRow>& rows);

}  // namespace tessera
