// Running one node, or a small graph, of which all inputs are initializers.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/onnx/import.h"
#include "tests/onnx/encode.h"
#include "tests/testing.h"

namespace tessera::onnx {

// The outputs, or no tensors and an error.
struct Ran {
  std::vector<Tensor> out;
  std::string error;
};
inline Ran RunGraph(const std::string& graph, int64_t opset) {
  const std::string bytes = ModelText(graph, opset);
  const absl::StatusOr<Model> model = ParseModel(bytes, "test");
  EXPECT_OK(model.status());
  Ran ran;
  if (!model.ok()) return ran;
  try {
    for (Value& v : Importer(*model, "CPU").Run({})) ran.out.push_back(v.tensor.Realize());
  } catch (const Error& e) {
    ran.out.clear();
    ran.error = e.what();
  }
  return ran;
}
inline Ran RunNode(const std::string& op, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& values,
                   const std::vector<std::string>& attributes, int64_t opset, int outputs = 1,
                   const std::string& domain = "") {
  std::vector<std::string> names;
  for (int i = 0; i < outputs; ++i) names.push_back(absl::StrCat("y", i));
  return RunGraph(GraphText({NodeText(op, inputs, names, attributes, domain)}, {}, names, values),
                  opset);
}

}  // namespace tessera::onnx
