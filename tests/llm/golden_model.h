// Models of which tests/llm/goldens has what Hugging Face's transformers gives.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/llm/config.h"
#include "runtime/gguf_writer.h"
#include "runtime/json.h"

namespace tessera::llm {

struct Named {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

struct GoldenModel {
  std::string name, architecture;
  std::shared_ptr<const std::string> text;  // of the file, which `golden` is a part of
  std::optional<Json> golden;               // none: there is no such model
  ModelConfig config;
  std::vector<Named> weights;           // by the names of checkpoints
  std::vector<std::string> gguf_names;  // "": none of its own
};
GoldenModel GoldenModelNamed(const std::string& name);

// The weights as converters write them to GGUF files, and the keys that say what is not usual.
std::vector<Named> GgufWeights(const GoldenModel& m);
void SetGgufKeys(const GoldenModel& m, GgufWriter* file);

}  // namespace tessera::llm
