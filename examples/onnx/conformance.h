// ONNX backend node tests: folders with model.onnx and test_data_set_K/input_I.pb and output_I.pb.
#pragma once

#include <string>
#include <vector>

#include "examples/onnx/proto.h"
#include "graph/tensor.h"

namespace tessera::onnx {

struct CaseOptions {
  Device device = "CPU";
  double tolerance = 1e-3;  // relative; integers and bools are compared exactly
  int shard = 0;            // above 1: also with its inputs over so many virtual devices
};

struct CaseResult {
  enum class Kind { kPass, kFail, kSkip };
  Kind kind = Kind::kPass;
  std::string why;     // of a failure or a skip
  std::string moved;   // bytes that each sharded run moved, with a w if no result is sharded
  bool plain = false;  // see plain.h
};

// Runs the case in a folder. It throws nothing: what goes wrong is in the result.
CaseResult RunCase(const std::string& folder, const CaseOptions& options);

// What is wrong with where results lie, or with the bytes that were moved to make them of inputs
// over several places; empty: nothing, or nothing that can be told. Bytes are judged by LeastBytes;
// where results lie, of graphs that are elementwise, of one permutation or reduction, and of ops
// that work on each sample of a batch by itself.
std::string PlacementFault(const Model& model, const std::vector<Tensor>& inputs,
                           const std::vector<Tensor>& outputs, int64_t moved);

// Why the model of a folder is not plain (see plain.h), or cannot be read; empty: it is plain.
std::string WhyNotPlain(const std::string& folder);

// The folders of cases that a path names: itself, or those within it, by name.
std::vector<std::string> CaseFolders(const std::string& path);

// Why a tensor is not what is expected; empty where it is. Floats may differ by tolerance *
// |expected|, those of 16 bits by two units in the last place, and all by 1e-7 of the largest
// expected magnitude or of 1; all else is compared exactly.
std::string Difference(const Tensor& got, const TensorData& expected, double tolerance);

}  // namespace tessera::onnx
