// How single values carry errors through elementwise ops and reductions.
#pragma once

#include <limits>

#include "graph/uop.h"

namespace tessera {

inline constexpr double kUnknown = std::numeric_limits<double>::infinity();

struct ScalarWithError {
  Scalar value;
  double error = 0;
};

// Whether the op's result is the same in every bit wherever its operands are.
bool IsExact(const UOp& u);

// How far an elementwise node's value may be from `result`, its value by the reference.
double ErrorOf(const UOp& u, const ScalarWithError* args, Scalar result);

// One element of a reduction, whose operands may come in any order and grouping.
class ReduceError {
 public:
  ReduceError(Op op, DType dtype) : op_(op), dtype_(dtype) {}
  void Add(ScalarWithError x, double unrounded);
  double Error(Scalar result) const;

 private:
  double SumError(double result) const;
  double ProductError(double result) const;
  Op op_;
  DType dtype_;
  int64_t count_ = 0;
  bool nan_ = false, unknown_ = false, plus_ = false, minus_ = false;
  double magnitude_ = 0;           // sum of |x| of the finite
  double errors_ = 0, worst_ = 0;  // sum and maximum of the errors
  int finest_ = INT32_MAX;         // exponent of the lowest bit set in any x
  double relative_ = 0;            // of a product: sum of the relative errors
  double up_ = 0, down_ = 0;       // of a product: log2 of the largest and smallest partial one
  double odd_ = 1;                 // of a product: product of the odd parts of the significands
  bool zero_ = false;
};

}  // namespace tessera
