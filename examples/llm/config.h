// What a model is: the numbers that its metadata gives, checked.
#pragma once

#include <cstdint>
#include <functional>
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

  // Rotary positions.
  double rope_base = 10000;
  bool rope_interleaved = false;      // pairs are neighbours, not halves of what turns
  int64_t rotated = 0;                // of a head the first so many elements turn; 0: all
  std::vector<double> rope_divisors;  // of each pair's frequency; empty: none
  double rope_magnitude = 1;          // of cosine and sine
  double local_rope_base = 0;  // in layers with a window, without divisors; 0: they are as all
  // Instead of those above where more positions than `rope_trained` are wanted.
  std::vector<double> long_rope_divisors;
  int64_t rope_trained = 0;
  std::vector<bool> unturned;  // of each layer, whether it goes without; empty: none does

  int64_t window = 0;          // how many positions back are seen; 0: all
  std::vector<bool> sees_all;  // of each layer, whatever the window; empty: of none
  bool output_apart = false;   // the file says that the output is not the embedding
  bool attention_biased = false, ffn_biased = false;  // says that these products add biases
  bool qkv_biased = false;                            // or of attention's all but the last one

  bool heads_normed = false;  // each head of the queries and keys is, whatever the architecture

  // What is multiplied by, and what bounds: a cap c is c * tanh(x / c); 0: none.
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  double score_scale = 0;  // 0: 1 / sqrt(head_dim)
  double score_cap = 0, logit_cap = 0;

  // Queries at a position are multiplied by 1 + sharpness * log(1 + position / sharper_every),
  // whose quotient is a whole number; 0: they are not.
  double sharpness = 0;
  int64_t sharper_every = 0;

  // Where keys and values of all heads are made of one vector a position, its length; keys end in
  // `rotated` numbers more that all heads share, and only these turn. 0: each head has its own.
  int64_t latent = 0;
  int64_t query_rank = 0;  // there: of what queries are made; 0: of what attention reads
  int64_t value_dim = 0;   // there: of a head's values

  // Of each layer, whether it has a memory by the delta rule in place of attention (see
  // delta_rule.cc), whose heads' values are more than the keys by a whole factor; empty: none has.
  std::vector<bool> remembers;
  int64_t memory_key_heads = 0, memory_value_heads = 0, memory_key_dim = 0, memory_value_dim = 0;
  bool memory_tiled = false;  // heads of values of one key lie apart, not side by side

  std::vector<bool> convolved;  // of each layer, whether it convolves instead; empty: none does
  int64_t taps = 0;             // there, and in memories: so many positions, its own the last

  // Where hidden states are several streams, of which layers read one (see streams.cc), so many;
  // 0: they are one. Each layer reads an embedding of its own of each token, too, of which the
  // rows may be fewer than the vocabulary, and what it reads goes past it by a way of `detour`.
  int64_t streams = 0, active_stream = 0, detour = 0, layer_embedding = 0, layer_vocabulary = 0;
  bool stream_scaled = true;  // what a layer's embedding has a gate of
  int64_t own_keys = 0;       // layers from this one on use those of one before; 0: none does
  // Of each layer, how many deviations above their mean gates must be not to count as 0, or -inf.
  std::vector<double> sparsity;

  double gate_limit = 0;  // 0: gates are SiLU or GELU; else as transformer.cc says
  // Layers with a router send each token to experts_used of so many feed-forward parts of their
  // own, and to a shared one of shared_ffn columns, if that is not 0.
  int64_t experts = 0, experts_used = 0, expert_ffn = 0, shared_ffn = 0;
  bool experts_renormed = false;  // the shares of those that are used sum to 1
  double experts_scale = 1;       // by which their shares are multiplied then
  // What a logit of the router is as a share: a part of a softmax, or its sigmoid. Where a file
  // does not say, those with a bias of the choice mean the latter.
  enum class Gating { kSoftmax, kSigmoid, kByBias } gating = Gating::kSoftmax;
  // Only experts of the best so many groups are chosen; 1 group: all may be.
  int64_t expert_groups = 1, expert_groups_used = 1;
  int64_t predicting_layers = 0;  // after the others, which guess tokens further on: passed over

  int64_t turned() const { return rotated == 0 ? head_dim : rotated; }
  int64_t WindowOf(size_t layer) const {
    return layer < sees_all.size() && sees_all[layer] ? 0 : window;
  }
  bool Remembers(size_t layer) const { return layer < remembers.size() && remembers[layer]; }
  bool AnyRemembers() const;
  bool AllRemember() const;
  // Of which layer the keys and values are: its own, or the last that has some of its kind; -1:
  // there is none.
  int64_t KeysOf(int64_t layer) const;
  bool Convolves(size_t layer) const { return layer < convolved.size() && convolved[layer]; }
  bool Turns(size_t layer) const { return layer >= unturned.size() || !unturned[layer]; }
};

constexpr int64_t kMostLayers = 4096;  // CheckConfig refuses more

// In what an architecture differs from the others that are known: a row of the table in
// architectures.cc, under the name that GGUF files give it. A new one begins here; what is computed
// otherwise is a field that transformer.cc reads.
struct Architecture {
  const char* name;
  const char* model_type = nullptr;  // in config.json, where that is another name
  bool rope_interleaved = false;     // GGUF files have queries and keys in that order
  bool beside_everywhere = false;    // safetensors have them so, too
  bool turned_first = false;         // and normed then
  bool qkv_biased = false;           // queries, keys and values add biases, if no key says no
  bool heads_normed = false;         // each head of the queries and keys is normed
  bool widths_normed = false;        // queries and keys are normed, all heads together
  bool attention_bias = false;       // config.json says so by this name, of results as well
  bool mlp_bias = false;             // the same, of feed-forward parts
  bool all_biased = false;           // all products add biases
  bool output_biased = false;        // if those of attention are, the logits' product is, too
  bool normed_before = true;         // what attention and feed-forward read
  bool normed_after = false;         // what they add to the hidden states
  bool centred = false;              // norms take the mean away, and may add biases
  bool parallel = false;             // the feed-forward part reads what attention reads
  bool norms_from_one = false;       // safetensors hold how much norms are above 1
  bool sinks = false;                // see LayerWeights
  bool yarn_between = false;         // see Yarn::whole_pairs; of GGUF files, which do not say
  bool joined = false;               // gates and ups are one matrix
  bool gelu = false;                 // gates by its approximation, not by SiLU
  bool squared = false;              // by the square of what is above 0
  bool ungated = false;              // there are none: this is what the feed-forward part applies
  bool embedding_scaled = false;     // by the root of its length
  bool logits_multiplied = false;    // by what files name logit_scale, by which others divide
  bool experts_divide = false;       // in GGUF files that do not say, the columns of a layer
  bool shared_whole = false;         // the shared expert has all, the same
  bool renormed = false;             // see experts_renormed; of files that do not say
  bool latent = false;               // see ModelConfig
  bool convolves = false;            // some layers do
  bool remembers = false;            // most layers do, and attention's results have gates
  bool memory_tiled = false;         // see ModelConfig, of GGUF files
  bool streams = false;              // see ModelConfig
  bool sigmoid = false;              // see Gating, the same
  bool choice_biased = false;        // kByBias, of GGUF files that do not say
  bool may_norm_heads = false;       // config.json says by use_qk_norm whether heads are normed
  bool windows_early = false;        // max_window_layers: of the first so many each second has one
  bool turned_by_window = false;     // where there is one, layers without go without positions
  bool local_unstretched = false;    // in layers with a window positions turn as they are
  // What ModelConfig has by such names, of files that do not say.
  int sees_all_every = 0, unturned_every = 0;  // of so many layers the last
  int64_t window = 0;
  double local_rope_base = 0, gate_limit = 0, score_cap = 0, logit_cap = 0;
};
// By its name in GGUF files, or by the model_type of config.json; or nullptr.
const Architecture* ArchitectureNamed(absl::string_view name);
const Architecture* ArchitectureOfType(absl::string_view model_type);
std::string KnownArchitectures();
std::string KnownModelTypes();

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

// What scores are multiplied by so that both queries and keys are `sharper` times as long.
void SharpenScores(double sharper, ModelConfig* config);

// How much longer contexts than the trained one turn, where the file gives divisors for both.
double LongMagnitude(double context, double trained);
// Which layers turn, where the window says so.
void TurnByWindow(const Architecture& known, ModelConfig* config);
// Of every so many layers the last.
std::vector<bool> EveryLast(int64_t layers, int64_t every);

// What files call a number of the configuration: GGUF's keys without the architecture, of several
// that which a file has.
struct ConfigKey {
  const char *gguf[2] = {}, *json[4] = {};
};
inline constexpr ConfigKey
    kLayersKey = {{"block_count"}, {"num_hidden_layers"}},
    kDimKey = {{"embedding_length"}, {"hidden_size"}},
    kHeadsKey = {{"attention.head_count"}, {"num_attention_heads"}},
    kKvHeadsKey = {{"attention.head_count_kv"}, {"num_key_value_heads"}},
    kHeadDimKey = {{"attention.key_length_mla", "attention.key_length"}, {"head_dim"}},
    kFfnKey = {{"feed_forward_length", "expert_feed_forward_length"},
               {"block_ff_dim", "intermediate_size", "moe_intermediate_size"}},
    kContextKey = {{"context_length"}, {"max_position_embeddings"}},
    kRotatedKey = {{"rope.dimension_count"},
                   {"partial_rotary_factor", "qk_rope_head_dim", "rotary_dim", "head_dim"}},
    kExpertsKey = {{"expert_count"},
                   {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}},
    kExpertsUsedKey = {{"expert_used_count"}, {"num_experts_per_tok", "moe_k"}},
    kExpertFfnKey = {{"expert_feed_forward_length", "feed_forward_length"},
                     {"moe_intermediate_size", "intermediate_size"}},
    kSharedKey = {{"expert_shared_feed_forward_length", "expert_shared_count"},
                  {"shared_expert_intermediate_size", "n_shared_experts",
                   "moe_num_shared_experts"}},
    kGroupsKey = {{"expert_group_count"}, {"n_group"}},
    kSharedLayersKey = {{"attention.shared_kv_layers"}, {"num_kv_shared_layers"}};
// As the file has it, for messages: "key 'llama.block_count'".
using KeyNamer = std::function<std::string(const ConfigKey&)>;

// Experts that every token goes through are as one of so many times the columns.
absl::Status ShareExperts(int64_t count, const std::string& file, const KeyNamer& name,
                          ModelConfig* config);
// Checks what must hold of any model.
absl::Status CheckConfig(const ModelConfig& config, const std::string& file,
                         const KeyNamer& name = {});

}  // namespace tessera::llm
