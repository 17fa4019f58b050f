// Running one node of com.microsoft, and inputs that another program can make as well.
//
// Where a test does not say otherwise, its expected values were recorded from ONNX Runtime 1.32
// (CPU, without graph optimisations) with the same inputs.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tests/onnx/run_node.h"

namespace tessera::onnx {

constexpr int64_t kElementInt8 = 3, kElementInt32 = 6;

inline Ran RunMicrosoft(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& values,
                        const std::vector<std::string>& attributes, int outputs = 1) {
  return RunNode(op, inputs, values, attributes, 17, outputs, "com.microsoft");
}

inline int64_t Elements(const std::vector<int64_t>& dims) {
  int64_t out = 1;
  for (const int64_t d : dims) out *= d;
  return out;
}
// Element i is ((37 i + 11 seed) mod 101 - 50) / 25.
inline std::string Wave(const std::string& name, const std::vector<int64_t>& dims, int64_t seed) {
  std::vector<float> out;
  for (int64_t i = 0; i < Elements(dims); ++i) {
    out.push_back(static_cast<float>((i * 37 + seed * 11) % 101 - 50) / 25);
  }
  return Floats(name, dims, out);
}
// Byte i is 37 i + 11 seed.
inline std::string BytesOf(const std::string& name, const std::vector<int64_t>& dims,
                           int64_t element, int64_t seed) {
  std::string out;
  for (int64_t i = 0; i < Elements(dims); ++i) out += static_cast<char>(i * 37 + seed * 11);
  return TensorText(name, dims, element, out);
}
inline std::string UBytes(const std::string& name, const std::vector<int64_t>& dims,
                          const std::vector<uint8_t>& values) {
  return TensorText(name, dims, kElementUInt8, Raw(values));
}
inline std::string SBytes(const std::string& name, const std::vector<int64_t>& dims,
                          const std::vector<int8_t>& values) {
  return TensorText(name, dims, kElementInt8, Raw(values));
}
inline std::string Ints(const std::string& name, const std::vector<int64_t>& dims,
                        const std::vector<int32_t>& values) {
  return TensorText(name, dims, kElementInt32, Raw(values));
}

inline void ExpectNear(const Tensor& got, const std::vector<float>& expected) {
  const std::vector<float> values = got.ToVector<float>();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 2e-5 * (1 + std::abs(expected[i]))) << "element " << i;
  }
}

}  // namespace tessera::onnx
