// The weights of models in tests/llm/goldens, and how converters write them to GGUF files.
#include "tests/llm/golden_model.h"

#include <cmath>
#include <map>

#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

using Numbers = std::vector<float>;
const char kGoldens[] = "tests/llm/goldens/logits.json";

// The same numbers as Values in tests/llm/goldens/make_logits.py.
Named Hashed(const std::string& name, const std::vector<int64_t>& shape) {
  RandomWeights w;
  w.state = 0xCBF29CE484222325u;
  for (char byte : name) w.state = (w.state ^ static_cast<uint8_t>(byte)) * 0x100000001B3u;
  const bool norm = name.find("norm") != std::string::npos;
  w.Add(name, shape, norm ? 0.3 : 0.5, norm ? 1 : 0);
  return {name, shape, *w.memory[0]};
}

// What older files of latent attention have joined: keys and values of one matrix.
bool IsOlder(const std::string& label) { return label == "deepseek_v2"; }

// The last two axes exchanged.
Named Transposed(const Named& w) {
  Named out = w;
  const size_t rank = w.shape.size();
  const int64_t rows = w.shape[rank - 2], columns = w.shape[rank - 1];
  std::swap(out.shape[rank - 2], out.shape[rank - 1]);
  for (size_t i = 0; i < w.values.size(); ++i) {
    const int64_t matrix = i / (rows * columns), r = i / columns % rows, c = i % columns;
    out.values[(matrix * columns + c) * rows + r] = w.values[i];
  }
  return out;
}

// Of [experts, rows, ...] the rows that begin at `first`, each `step`-th, `count` of them.
Named Rows(const Named& w, const std::string& name, int64_t first, int64_t step, int64_t count) {
  Named out{name, w.shape, {}};
  out.shape[1] = count;
  int64_t size = 1;
  for (size_t i = 2; i < w.shape.size(); ++i) size *= w.shape[i];
  for (int64_t e = 0; e < w.shape[0]; ++e) {
    for (int64_t r = 0; r < count; ++r) {
      const auto row = w.values.begin() + (e * w.shape[1] + first + r * step) * size;
      out.values.insert(out.values.end(), row, row + size);
    }
  }
  return out;
}

// Halves of heads become neighbours, as GGUF files of some architectures have them.
void Interleave(int64_t heads, Named* w) {
  const Numbers from = w->values;
  const int64_t rows = w->shape[0], size = static_cast<int64_t>(from.size()) / rows;
  const int64_t head = rows / heads, half = head / 2;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t h = r / head, i = r % head;
    const int64_t to = h * head + (i < half ? 2 * i : 2 * (i - half) + 1);
    std::copy_n(from.begin() + r * size, size, w->values.begin() + to * size);
  }
}

// The rows of [rows, ...] in this order.
Named InOrder(const Named& w, const std::vector<int64_t>& order) {
  Named out{w.name, w.shape, {}};
  const int64_t size = static_cast<int64_t>(w.values.size()) / w.shape[0];
  out.shape[0] = static_cast<int64_t>(order.size());
  for (const int64_t row : order) {
    const auto from = w.values.begin() + row * size;
    out.values.insert(out.values.end(), from, from + size);
  }
  return out;
}

// Of rows that begin at `first`, `length` for each head: heads of one group apart, not side by
// side.
void AppendTiled(int64_t first, int64_t groups, int64_t each, int64_t length,
                 std::vector<int64_t>* order) {
  for (int64_t e = 0; e < each; ++e) {
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t i = 0; i < length; ++i) order->push_back(first + (g * each + e) * length + i);
    }
  }
}

// What belongs to memories, as converters write it; false: this does not.
bool AddMemory(const ModelConfig& c, const std::string& given, const std::string& blk, Named w,
               std::vector<Named>* out) {
  const size_t at = given.find("linear_attn.");
  if (at == std::string::npos) return false;
  const std::string part = given.substr(at + 12);
  const int64_t groups = c.memory_key_heads, each = c.memory_value_heads / groups;
  const int64_t keys = groups * c.memory_key_dim, length = c.memory_value_dim;
  const bool tiled = ArchitectureNamed(c.architecture)->memory_tiled;
  std::vector<int64_t> order;
  if (part == "in_proj_qkvz.weight") {
    w.shape = {groups, w.shape[0] / groups, c.dim};
    Named all{blk + "attn_qkv.weight", {0, c.dim}, {}};
    int64_t begin = 0;
    for (const int64_t count : {c.memory_key_dim, c.memory_key_dim, each * length}) {
      const Named rows = Rows(w, "", begin, 1, count);
      all.shape[0] += groups * count;
      all.values.insert(all.values.end(), rows.values.begin(), rows.values.end());
      begin += count;
    }
    out->push_back(std::move(all));
    out->push_back(Rows(w, blk + "attn_gate.weight", begin, 1, each * length));
    out->back().shape = {groups * each * length, c.dim};
    return true;
  }
  if (part == "A_log") {
    w.name = blk + "ssm_a";
    for (float& v : w.values) v = -std::exp(v);
  }
  if (part == "dt_bias") w.name = blk + "ssm_dt.bias";
  if (part == "conv1d.weight") w.shape = {w.shape[0], c.taps};
  if (tiled && (part == "conv1d.weight" || part == "in_proj_qkv.weight")) {
    for (int64_t i = 0; i < 2 * keys; ++i) order.push_back(i);
    AppendTiled(2 * keys, groups, each, length, &order);
  } else if (tiled && (part == "in_proj_z.weight" || part == "out_proj.weight")) {
    AppendTiled(0, groups, each, length, &order);
  } else if (tiled && part != "norm.weight") {
    AppendTiled(0, groups, each, 1, &order);
  }
  if (part == "out_proj.weight" && tiled) {
    w = Transposed(InOrder(Transposed(w), order));
  } else if (!order.empty()) {
    w = InOrder(w, order);
  }
  out->push_back(std::move(w));
  return true;
}

}  // namespace

GoldenModel GoldenModelNamed(const std::string& name) {
  GoldenModel out;
  out.name = name;
  out.text = std::make_shared<const std::string>(ReadFile(kGoldens));
  const Json all = ValueOrThrow(Json::Parse(*out.text, kGoldens));
  for (const JsonItem item : all.Items()) {
    if (item.value().Find("name")->String() == name) out.golden = item.value();
  }
  if (!out.golden) return out;
  out.architecture = *out.golden->Find("architecture")->String();
  out.config = ValueOrThrow(ConfigFromHuggingFace(*out.golden->Find("config"), "config.json"));
  const Json tensors = *out.golden->Find("tensors");
  for (const JsonItem item : tensors.Items()) {
    std::vector<int64_t> shape;
    std::string gguf_name;
    for (const JsonItem v : item.value().Items()) {
      if (const std::optional<int64_t> n = v.value().Int()) {
        shape.push_back(*n);
      } else {
        gguf_name = v.value().String().value_or("");
      }
    }
    out.weights.push_back(Hashed(item.key(), shape));
    out.gguf_names.push_back(gguf_name);
  }
  return out;
}

std::vector<Named> GgufWeights(const GoldenModel& m) {
  const Architecture& known = *ArchitectureNamed(m.config.architecture);
  const int64_t f = m.config.expert_ffn;
  std::vector<Named> out;
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < m.weights.size(); ++i) {
    Named w = m.weights[i];
    w.name = m.gguf_names[i];
    const std::string& given = m.weights[i].name;
    const auto is = [&](const char* part) { return given.find(part) != std::string::npos; };
    const std::string blk = "blk." + given.substr(given.find("layers.") + 7, 1) + ".";
    if (AddMemory(m.config, given, blk, w, &out)) continue;
    if (is("input_linear")) {
      out.push_back(Rows(w, blk + "ffn_gate_exps.weight", 0, 1, f));
      out.push_back(Rows(w, blk + "ffn_up_exps.weight", f, 1, f));
      continue;
    }
    if (is("experts.gate_up_proj")) {
      const std::string end = is("_bias") ? "bias" : "weight";
      const Named turned = is("_bias") ? w : Transposed(w);
      out.push_back(Rows(turned, blk + "ffn_gate_exps." + end, 0, 2, f));
      out.push_back(Rows(turned, blk + "ffn_up_exps." + end, 1, 2, f));
      continue;
    }
    if (is("feed_forward.experts.")) {
      w.name = blk +
               (is(".w1.")   ? "ffn_gate_exps"
                : is(".w2.") ? "ffn_down_exps"
                             : "ffn_up_exps") +
               ".weight";
    }
    if (is("altup_")) w.name = is("unembed") ? "altup_unembd_proj.weight" : "altup_proj.weight";
    if (is("correct_output_scale")) w.name = blk + "altup_correct_scale.weight";
    if (is("conv.conv")) w.shape = {m.config.dim, m.config.taps};
    if (is("e_score_correction_bias") || is("expert_bias")) {
      w.name = blk + "exp_probs_b.bias";
      w.shape = {m.config.experts};
    }
    if (is("kv_b_proj") && !IsOlder(m.name)) {
      const int64_t own = m.config.head_dim - m.config.rotated;
      w.shape = {m.config.heads, own + m.config.value_dim, m.config.latent};
      out.push_back(Transposed(Rows(w, blk + "attn_k_b.weight", 0, 1, own)));
      out.push_back(Rows(w, blk + "attn_v_b.weight", own, 1, m.config.value_dim));
      continue;
    }
    if (is("experts.down_proj_bias")) w.name = blk + "ffn_down_exps.bias";
    if (given.ends_with("experts.down_proj")) {
      w = Transposed(w);
      w.name = blk + "ffn_down_exps.weight";
    }
    if (is("sinks")) w.name = blk + "attn_sinks.weight";
    for (const char* part : {"gate", "up", "down"}) {  // of a layer that is no mixture among others
      if (w.name.empty() && is((std::string(".mlp.") + part).c_str())) {
        w.name = blk + "ffn_" + part + ".weight";
      }
    }
    if (is("shared_expert_gate")) w.shape.erase(w.shape.begin());
    if (known.norms_from_one && is("norm")) {
      for (float& v : w.values) v += 1;
    }
    const bool turned = known.rope_interleaved && !known.beside_everywhere;
    if (turned && is("q_proj")) Interleave(m.config.heads, &w);
    if (turned && is("k_proj")) Interleave(m.config.kv_heads, &w);
    // Experts, each with a tensor of its own, come in their order.
    const auto [at, fresh] = index.emplace(w.name, out.size());
    if (fresh) {
      if (is(".experts.0.") || is("_projections.0.")) w.shape.insert(w.shape.begin(), 1);
      out.push_back(std::move(w));
    } else {
      Named& all = out[at->second];
      ++all.shape[0];
      all.values.insert(all.values.end(), w.values.begin(), w.values.end());
    }
  }
  return out;
}

void SetGgufKeys(const GoldenModel& m, GgufWriter* file) {
  const ModelConfig& c = m.config;
  const std::string& architecture = m.architecture;
  const auto key = [&](const char* name) { return architecture + "." + name; };
  const auto count = [&](const char* name, int64_t value) {
    if (value != 0) file->Set(key(name), static_cast<uint32_t>(value));
  };
  const auto number = [&](const char* name, double value, double usual) {
    if (value != usual) file->Set(key(name), static_cast<float>(value));
  };
  file->Set("general.architecture", architecture);
  count("block_count", c.layers);
  count("context_length", c.context);
  count("embedding_length", c.dim);
  count("feed_forward_length", c.ffn);
  count("attention.head_count", c.heads);
  if (!c.remembers.empty()) {
    count("ssm.conv_kernel", c.taps);
    count("ssm.state_size", c.memory_key_dim);
    count("ssm.group_count", c.memory_key_heads);
    count("ssm.time_step_rank", c.memory_value_heads);
    count("ssm.inner_size", c.memory_value_heads * c.memory_value_dim);
    count("full_attention_interval", 2);
  } else {
    count("shortconv.l_cache", c.taps);
  }
  if (!c.convolved.empty()) {
    std::vector<int32_t> heads;
    for (const bool convolved : c.convolved) heads.push_back(convolved ? 0 : c.kv_heads);
    file->Set(key("attention.head_count_kv"), heads);
  } else if (c.latent == 0 || !IsOlder(m.name)) {
    count("attention.head_count_kv", c.kv_heads);
  }
  const bool kept = c.latent > 0 && !IsOlder(m.name);
  count("attention.key_length", kept ? c.latent + c.rotated : c.head_dim);
  count("attention.value_length", kept ? c.latent : c.latent > 0 ? c.value_dim : c.head_dim);
  if (kept) {
    count("attention.key_length_mla", c.head_dim);
    count("attention.value_length_mla", c.value_dim);
  }
  count("attention.kv_lora_rank", c.latent);
  count("attention.q_lora_rank", c.query_rank);
  count("attention.sliding_window", c.window);
  count("rope.dimension_count", c.turned());
  count("expert_count", c.experts);
  count("expert_used_count", c.experts_used);
  count("expert_feed_forward_length", c.expert_ffn);
  const bool counted = architecture == "deepseek2" || architecture == "glm4moe" ||
                       architecture == "dots1" || architecture == "lfm2moe";
  if (counted && c.experts > 0) {
    using Gating = ModelConfig::Gating;
    count("expert_shared_count", c.shared_ffn / c.expert_ffn);
    count("expert_group_count", c.expert_groups);
    count("expert_group_used_count", c.expert_groups_used);
    number("expert_weights_scale", c.experts_scale, 1);
    if (c.experts_renormed) file->Set(key("expert_weights_norm"), true);
    // Some files do not say, as those of GLM-4.7-Flash.
    if (m.name != "glm4_moe_lite")
      count("expert_gating_func", c.gating == Gating::kSigmoid ? 2 : 1);
  } else {
    count("expert_shared_feed_forward_length", c.shared_ffn);
  }
  const bool centred = ArchitectureNamed(c.architecture)->centred;
  number(centred ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c.norm_eps,
         0);
  if (c.latent == 0) number("attention.scale", c.score_scale, 0);
  number("attn_logit_softcapping", c.score_cap, 0);
  number("final_logit_softcapping", c.logit_cap, 0);
  number("rope.freq_base", c.rope_base, 0);
  number("rope.freq_base_swa", c.local_rope_base, 0);
  number("residual_scale", c.residual_scale, 1);
  const bool multiplied = ArchitectureNamed(c.architecture)->logits_multiplied;
  number("logit_scale", multiplied ? c.logit_scale : 1 / c.logit_scale, 1);
  if (architecture.starts_with("granite")) number("embedding_scale", c.embedding_scale, 1);
  if (c.streams > 0) {
    count("altup.num_inputs", c.streams);
    count("altup.active_idx", c.active_stream);
    count("embedding_length_per_layer_input", c.layer_embedding);
    count("attention.shared_kv_layers", c.layers - c.own_keys);
    file->Set(key("activation_sparsity_scale"), Numbers(c.sparsity.begin(), c.sparsity.end()));
  }
  if (architecture == "gemma3") {
    file->Set(key("rope.scaling.type"), "linear");
    number("rope.scaling.factor", c.rope_divisors[0], 0);
  }
  const bool olmo3 = architecture == "olmo2" && c.window > 0;
  const bool exaone = architecture == "exaone4" && c.window > 0;
  const bool by_turns = architecture == "gemma3" || architecture == "cohere2" || c.streams > 0;
  if (olmo3 || exaone || by_turns) count("attention.sliding_window_pattern", 2);
  if (c.sharpness > 0) {
    file->Set(key("rope.scaling.type"), "yarn");
    number("rope.scaling.factor", 8, 0);
    count("rope.scaling.original_context_length", c.sharper_every);
    number("rope.scaling.yarn_beta_fast", 4, 0);
    number("rope.scaling.yarn_log_multiplier", 1, 0);
    number("attention.temperature_scale", c.sharpness, 0);
  }
  if (c.latent > 0 && c.score_scale > 0) {
    file->Set(key("rope.scaling.type"), "yarn");
    number("rope.scaling.factor", 8, 0);
    count("rope.scaling.original_context_length", 8);
    number("rope.scaling.yarn_beta_fast", 4, 0);
    number("rope.scaling.yarn_log_multiplier", 0.07, 0);
  }
  if (architecture == "gpt-oss" || olmo3) {
    file->Set(key("rope.scaling.type"), "yarn");
    number("rope.scaling.factor", 8, 0);
    count("rope.scaling.original_context_length", 32);
    number("rope.scaling.yarn_beta_fast", 4, 0);
  }
  if (!c.long_rope_divisors.empty()) {
    count("rope.scaling.original_context_length", c.rope_trained);
    for (const auto& [name, divisors] :
         {std::pair("short", &c.rope_divisors), std::pair("long", &c.long_rope_divisors)}) {
      const Numbers values(divisors->begin(), divisors->end());
      file->Add(std::string("rope_factors_") + name + ".weight", WeightFormat::kF32,
                {static_cast<int64_t>(values.size())},
                std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size()));
    }
  }
}

}  // namespace tessera::llm
