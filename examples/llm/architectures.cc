// The table of architectures.
#include "absl/strings/str_cat.h"
#include "examples/llm/config.h"

namespace tessera::llm {
namespace {

constexpr Architecture kKnown[] = {
    {.name = "llama",
     .rope_interleaved = true,
     .attention_bias = true,
     .mlp_bias = true,
     .renormed = true},
    {.name = "mistral", .rope_interleaved = true, .windowed = true},
    {.name = "mixtral", .rope_interleaved = true, .renormed = true, .windowed = true},
    {.name = "qwen2", .qkv_biased = true},
    {.name = "qwen2moe", .model_type = "qwen2_moe", .qkv_biased = true, .norm_topk_prob = true},
    {.name = "qwen3", .heads_normed = true, .attention_bias = true},
    {.name = "qwen3moe",
     .model_type = "qwen3_moe",
     .heads_normed = true,
     .attention_bias = true,
     .renormed = true,
     .norm_topk_prob = true},
    {.name = "gemma",
     .attention_bias = true,
     .norms_from_one = true,
     .gelu = true,
     .embedding_scaled = true,
     .tied = true},
    {.name = "gemma2",
     .attention_bias = true,
     .normed_after = true,
     .norms_from_one = true,
     .gelu = true,
     .embedding_scaled = true,
     .tied = true,
     .windowed = true,
     .sees_all_every = 2,
     .window = 4096,
     .score_cap = 50,
     .logit_cap = 30},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .heads_normed = true,
     .attention_bias = true,
     .normed_after = true,
     .norms_from_one = true,
     .gelu = true,
     .embedding_scaled = true,
     .tied = true,
     .windowed = true,
     .sees_all_every = 6,
     .local_rope_base = 10000},
    {.name = "phi3", .joined = true, .windowed = true},
    {.name = "granite",
     .rope_interleaved = true,
     .attention_bias = true,
     .mlp_bias = true,
     .multipliers = true},
    {.name = "granitemoe",
     .rope_interleaved = true,
     .attention_bias = true,
     .multipliers = true,
     .renormed = true},
    {.name = "olmo2",
     .widths_normed = true,
     .attention_bias = true,
     .normed_before = false,
     .normed_after = true,
     .local_unstretched = true,
     .sees_all_every = 4},
    {.name = "olmo2",  // as GGUF files call it as well
     .model_type = "olmo3",
     .widths_normed = true,
     .attention_bias = true,
     .normed_before = false,
     .normed_after = true,
     .windowed = true,
     .local_unstretched = true,
     .sees_all_every = 4},
    {.name = "olmoe", .widths_normed = true, .attention_bias = true, .norm_topk_prob = true},
    {.name = "smollm3",
     .rope_interleaved = true,
     .attention_bias = true,
     .mlp_bias = true,
     .tied = true,
     .unturned_every = 4},
    {.name = "gpt-oss",
     .model_type = "gpt_oss",
     .attention_bias = true,
     .all_biased = true,
     .sinks = true,
     .yarn_between = true,
     .renormed = true,
     .windowed = true,
     .sees_all_every = 2,
     .gate_limit = 7},
    {.name = "mistral3", .model_type = "ministral3", .rope_interleaved = true, .windowed = true},
    {.name = "glm4",
     .rope_interleaved = true,
     .beside_everywhere = true,
     .normed_after = true,
     .joined = true},
    {.name = "exaone4",
     .heads_normed = true,
     .normed_before = false,
     .normed_after = true,
     .windowed = true,
     .turned_by_window = true,
     .sees_all_every = 4},
    {.name = "seed_oss", .qkv_biased = true},
    {.name = "ernie4_5", .rope_interleaved = true, .beside_everywhere = true},
    {.name = "hunyuan-dense",
     .model_type = "hunyuan_v1_dense",
     .turned_first = true,
     .heads_normed = true,
     .attention_bias = true},
    {.name = "arcee",
     .rope_interleaved = true,
     .attention_bias = true,
     .mlp_bias = true,
     .squared = true,
     .ungated = true},
    {.name = "starcoder2",
     .all_biased = true,
     .centred = true,
     .gelu = true,
     .ungated = true,
     .tied = true,
     .windowed = true},
    {.name = "command-r",
     .model_type = "cohere",
     .rope_interleaved = true,
     .beside_everywhere = true,
     .attention_bias = true,
     .centred = true,
     .parallel = true,
     .logits_multiplied = true,
     .tied = true},
    {.name = "cohere2",
     .rope_interleaved = true,
     .beside_everywhere = true,
     .attention_bias = true,
     .centred = true,
     .parallel = true,
     .logits_multiplied = true,
     .tied = true,
     .windowed = true,
     .turned_by_window = true,
     .sees_all_every = 4},
    // The text of models that see, whose positions are those of any text.
    {.name = "qwen2vl", .model_type = "qwen2_vl_text", .qkv_biased = true},
    {.name = "qwen3vl",
     .model_type = "qwen3_vl_text",
     .heads_normed = true,
     .attention_bias = true},
    {.name = "qwen3vlmoe",
     .model_type = "qwen3_vl_moe_text",
     .heads_normed = true,
     .attention_bias = true,
     .renormed = true,
     .norm_topk_prob = true}};

}  // namespace

const Architecture* ArchitectureNamed(absl::string_view name) {
  for (const Architecture& a : kKnown) {
    if (name == a.name) return &a;
  }
  return nullptr;
}

const Architecture* ArchitectureOfType(absl::string_view model_type) {
  for (const Architecture& a : kKnown) {
    if (model_type == (a.model_type == nullptr ? a.name : a.model_type)) return &a;
  }
  return nullptr;
}

std::string KnownModelTypes() {
  std::string out;
  for (const Architecture& a : kKnown) {
    absl::StrAppend(&out, out.empty() ? "" : ", ", a.model_type == nullptr ? a.name : a.model_type);
  }
  return out;
}

std::string KnownArchitectures() {
  std::string out;
  for (const Architecture& a : kKnown) {
    if (ArchitectureNamed(a.name) != &a) continue;
    absl::StrAppend(&out, out.empty() ? "" : ", ", a.name);
  }
  return out;
}

}  // namespace tessera::llm
