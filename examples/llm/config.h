// What a model is: the numbers that its metadata gives, checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/gguf.h"
#include "runtime/json.h"

namespace tessera::llm {

struct ModelConfig {
  std::string architecture;  // one of KnownArchitectures
  std::string name;
  int64_t layers = 0, dim = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  int64_t vocabulary = 0;  // 0: the rows of the embedding
  int64_t context = 0;     // what the model was trained for
  double norm_eps = 0;
  double rope_base = 10000;
  bool rope_interleaved = false;      // pairs are neighbours, not halves of a head
  std::vector<double> rope_divisors;  // of each pair's frequency; empty: none
  double rope_magnitude = 1;          // of cosine and sine
  int64_t window = 0;                 // how many positions back are seen; 0: all
  std::vector<bool> sees_all;         // of each layer, whatever the window; empty: of none
  bool output_apart = false;          // the file says that the output is not the embedding
  bool attention_biased = false, ffn_biased = false;  // says that these products add biases

  int64_t WindowOf(size_t layer) const {
    return layer < sees_all.size() && sees_all[layer] ? 0 : window;
  }
};

// In what an architecture differs from the others that are known: a row of the table in config.cc,
// under the name that files give it. A new one begins here; what is computed otherwise is a field
// that transformer.cc reads.
struct Architecture {
  const char* name;
  bool rope_interleaved = false;  // GGUF files have queries and keys in that order
  bool qkv_biased = false;        // queries, keys and values add biases
  bool heads_normed = false;      // each head of the queries and keys is normed
  bool attention_bias = false;    // config.json may ask for such biases, by this name
  bool mlp_bias = false;          // the same
};
const Architecture* ArchitectureNamed(absl::string_view name);  // or nullptr
std::string KnownArchitectures();

// The errors name file and key, the value found and the value allowed.
absl::StatusOr<ModelConfig> ConfigFromGguf(const GgufMetadata& metadata);
absl::StatusOr<ModelConfig> ConfigFromHuggingFace(const Json& config, const std::string& file);

// Rotary positions stretched beyond the trained context (YaRN): pairs that turn often within it
// stay as they are, slow ones are stretched by the factor, those between blend; attention is a
// little sharper.
struct Yarn {
  double factor = 1, trained = 0;  // of the stretch, and the trained context
  double fast = 32, slow = 1;      // turns of the pairs where blending begins and ends
  bool whole_pairs = true;         // it begins and ends at a pair, not between two
};
// False where these numbers make no sense. Sets divisors and magnitude.
bool Stretch(const Yarn& yarn, ModelConfig* config);
// What cosine and sine are multiplied by where positions are stretched by `factor`.
double Sharper(double factor, double by = 1);

// Checks what must hold of any model, by the names that the file gives the numbers.
absl::Status CheckConfig(const ModelConfig& config, const std::string& file);

}  // namespace tessera::llm
