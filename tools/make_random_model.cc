// Writes a GGUF model of the shape of a published one with random weights, for measuring speed:
// tools/make-random-model FORMAT FILE [LAYERS [SHAPE]], with FORMAT one of F16, F32, Q8_0, Q4_0,
// ...
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "examples/llm/quant.h"
#include "examples/llm/tokenizer.h"
#include "runtime/gguf_writer.h"

using namespace tessera;

namespace {

struct ModelShape {
  const char* name;
  const char* architecture;
  int64_t layers, dim, heads, kv_heads, head, ffn;  // ffn: of an expert, where there are some
  int64_t experts = 0, used = 0;
  bool heads_normed = false;
  double rope_base = 500000;
  int64_t shared = 0, dense_ffn = 0;  // experts of every token; of a first layer without experts
  // Attention that keeps one vector a position, of which keys of all heads end in `turned`.
  int64_t latent = 0, turned = 0, value = 0;
  // Where this is not 0: the layers that attend, a bit each; the others convolve. Layers beyond the
  // shape's own begin anew.
  uint64_t attends = 0;
  bool Convolves(int64_t layer) const {
    return attends != 0 && (attends >> (layer % layers) & 1) == 0;
  }
};
constexpr int64_t kTaps = 3;
constexpr ModelShape kShapes[] = {
    {"Llama-3.2-1B", "llama", 16, 2048, 32, 8, 64, 8192},
    {"Qwen3-30B-A3B", "qwen3moe", 48, 2048, 32, 4, 128, 768, 128, 8, true, 1e6},
    {"Mixtral-8x7B", "llama", 32, 4096, 32, 8, 128, 14336, 8, 2, false, 1e6},
    {"DeepSeek-V2-Lite", "deepseek2", 27, 2048, 16, 1, 192, 1408, 64, 6, false, 10000, 2, 10944,
     512, 64, 128},
    {"LFM2-1.2B", "lfm2", 16, 2048, 32, 8, 64, 8192, 0, 0, true, 1e6, 0, 0, 0, 0, 0, 0x5524}};
constexpr int64_t kVocabulary = 128256, kContext = 131072;

struct Random {
  uint64_t state = 1;
  uint64_t operator()() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
};

// Half of about this size: exponent and a random mantissa.
uint16_t HalfOf(int exponent, uint64_t bits) {
  return static_cast<uint16_t>((15 + exponent) << 10 | (bits & 0x3FF));
}

// Where a block has a scale: a half of about 2^exponent, or a byte as it is.
struct Scale {
  int at, exponent;
  bool is_byte = false;
};
// None of a format that is not known.
std::vector<Scale> ScalesOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return {{0, -12}};
    case WeightFormat::kQ4_0:
    case WeightFormat::kQ5_0:
      return {{0, -8}};
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ5_1:
      return {{0, -8}, {2, -8}};
    case WeightFormat::kQ4K:
    case WeightFormat::kQ5K:
      return {{0, -13}, {2, -13}};
    case WeightFormat::kQ2K:
      return {{80, -11}, {82, -11}};
    case WeightFormat::kQ3K:
      return {{108, -12}};
    case WeightFormat::kQ6K:
      return {{208, -14}};
    case WeightFormat::kIQ4NL:
      return {{0, -13}};
    case WeightFormat::kIQ4XS:
      return {{0, -14}};
    case WeightFormat::kMXFP4:
      return {{0, 127 - 7, /*is_byte=*/true}};
    case WeightFormat::kNVFP4:  // 2^-7, in seven bits
      return {{0, 2, true}, {1, 2, true}, {2, 2, true}, {3, 2, true}};
    case WeightFormat::kQ1_0:
    case WeightFormat::kQ2_0:
      return {{0, -6}};
    case WeightFormat::kTQ1:
      return {{52, -6}};
    case WeightFormat::kTQ2:
      return {{64, -6}};
    case WeightFormat::kIQ1S:
      return {{0, -9}};
    case WeightFormat::kIQ1M:  // the highest four bits of a half are those of its last byte
      return {{55, 0x10, true}};
    case WeightFormat::kIQ2XXS:
    case WeightFormat::kIQ2XS:
    case WeightFormat::kIQ2S:
      return {{0, -12}};
    case WeightFormat::kIQ3XXS:
    case WeightFormat::kIQ3S:
      return {{0, -13}};
    default:
      return {};
  }
}

// Weights of about 0.02 in any of the formats.
GgufWriter::Fill RandomFill(WeightFormat format) {
  return [format, random = Random()](char* to, int64_t size) mutable {
    for (int64_t i = 0; i < size; i += 8) {
      const uint64_t bits = random();
      std::memcpy(to + i, &bits, static_cast<size_t>(std::min<int64_t>(8, size - i)));
    }
    const int64_t block = InfoOf(format).block_bytes;
    for (int64_t b = 0; b + block <= size; b += block) {
      const uint64_t bits = random();
      const double value = (static_cast<double>(bits >> 11) * 0x1p-53 - 0.5) * 0.08;
      if (format == WeightFormat::kF32) {
        const float v = static_cast<float>(value);
        std::memcpy(to + b, &v, 4);
      } else if (format == WeightFormat::kF16) {  // a sign, 2^-6 and a mantissa
        const uint16_t v = static_cast<uint16_t>(HalfOf(-6, bits) | (bits >> 48 & 0x8000));
        std::memcpy(to + b, &v, 2);
      } else if (format == WeightFormat::kBF16) {
        const uint16_t v = static_cast<uint16_t>(121 << 7 | (bits & 0x7F) | (bits >> 48 & 0x8000));
        std::memcpy(to + b, &v, 2);
      }
      for (const Scale& s : ScalesOf(format)) {
        if (s.is_byte) {
          to[b + s.at] = static_cast<char>(s.exponent);
          continue;
        }
        const uint16_t half = HalfOf(s.exponent, random());
        std::memcpy(to + b + s.at, &half, 2);
      }
    }
  };
}

void AddVocabulary(GgufWriter* w) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.push_back(llm::ByteCharacters()[b]);
  for (int64_t i = 256; i < kVocabulary; ++i) tokens.push_back(absl::StrCat("<", i, ">"));
  w->Set("tokenizer.ggml.model", "gpt2");
  w->Set("tokenizer.ggml.pre", "llama-bpe");
  w->Set("tokenizer.ggml.tokens", tokens);
  w->Set("tokenizer.ggml.merges", std::vector<std::string>());
  w->Set("tokenizer.ggml.bos_token_id", uint32_t{128000});
  w->Set("tokenizer.ggml.eos_token_id", uint32_t{128001});
}

template <typename Add>
void AddAttention(const ModelShape& m, WeightFormat format, const std::string& p, const Add& add) {
  const WeightFormat vector = WeightFormat::kF32;
  add(p + "attn_q.weight", format, {m.heads * m.head, m.dim});
  if (m.latent > 0) {
    // Blocks of the keys' matrix lie along a head, which may be none of theirs.
    const int64_t own = m.head - m.turned;
    const bool whole = own % InfoOf(format).block_elements == 0;
    add(p + "attn_kv_a_norm.weight", vector, {m.latent});
    add(p + "attn_kv_a_mqa.weight", format, {m.latent + m.turned, m.dim});
    add(p + "attn_k_b.weight", whole ? format : WeightFormat::kQ8_0, {m.heads, m.latent, own});
    add(p + "attn_v_b.weight", format, {m.heads, m.value, m.latent});
    add(p + "attn_output.weight", format, {m.dim, m.heads * m.value});
  } else {
    add(p + "attn_k.weight", format, {m.kv_heads * m.head, m.dim});
    add(p + "attn_v.weight", format, {m.kv_heads * m.head, m.dim});
    add(p + "attn_output.weight", format, {m.dim, m.heads * m.head});
  }
  if (m.heads_normed) {
    add(p + "attn_q_norm.weight", vector, {m.head});
    add(p + "attn_k_norm.weight", vector, {m.head});
  }
}

template <typename Add>
void EachWeight(const ModelShape& m, WeightFormat format, int64_t layers, const Add& add) {
  const WeightFormat vector = WeightFormat::kF32;
  add("token_embd.weight", format, {kVocabulary, m.dim});
  add(m.attends != 0 ? "token_embd_norm.weight" : "output_norm.weight", vector, {m.dim});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string p = absl::StrCat("blk.", i, ".");
    add(p + "attn_norm.weight", vector, {m.dim});
    if (m.Convolves(i)) {
      add(p + "shortconv.conv.weight", vector, {m.dim, kTaps});
      add(p + "shortconv.in_proj.weight", format, {3 * m.dim, m.dim});
      add(p + "shortconv.out_proj.weight", format, {m.dim, m.dim});
    } else {
      AddAttention(m, format, p, add);
    }
    add(p + "ffn_norm.weight", vector, {m.dim});
    const bool dense = i == 0 && m.dense_ffn > 0;
    if (m.experts == 0 || dense) {
      const int64_t ffn = dense ? m.dense_ffn : m.ffn;
      add(p + "ffn_gate.weight", format, {ffn, m.dim});
      add(p + "ffn_up.weight", format, {ffn, m.dim});
      add(p + "ffn_down.weight", format, {m.dim, ffn});
      continue;
    }
    add(p + "ffn_gate_inp.weight", vector, {m.experts, m.dim});
    add(p + "ffn_gate_exps.weight", format, {m.experts, m.ffn, m.dim});
    add(p + "ffn_up_exps.weight", format, {m.experts, m.ffn, m.dim});
    add(p + "ffn_down_exps.weight", format, {m.experts, m.dim, m.ffn});
    if (m.shared == 0) continue;
    add(p + "ffn_gate_shexp.weight", format, {m.shared * m.ffn, m.dim});
    add(p + "ffn_up_shexp.weight", format, {m.shared * m.ffn, m.dim});
    add(p + "ffn_down_shexp.weight", format, {m.dim, m.shared * m.ffn});
  }
}

void AddWeights(const ModelShape& m, WeightFormat format, int64_t layers, GgufWriter* w) {
  EachWeight(m, format, layers,
             [&](const std::string& name, WeightFormat f, const std::vector<int64_t>& shape) {
               w->Add(name, f, shape, RandomFill(f));
             });
}

// The first weight whose rows are no whole blocks, and how long they are; or none.
std::optional<std::pair<std::string, int64_t>> Misfit(const ModelShape& m, WeightFormat format,
                                                      int64_t layers) {
  std::optional<std::pair<std::string, int64_t>> out;
  EachWeight(m, format, layers,
             [&](const std::string& name, WeightFormat f, const std::vector<int64_t>& shape) {
               if (!out && shape.back() % InfoOf(f).block_elements != 0) {
                 out.emplace(name, shape.back());
               }
             });
  return out;
}

bool CanFill(WeightFormat format) {
  return llm::CanCompute(format) &&
         (InfoOf(format).block_elements == 1 || !ScalesOf(format).empty());
}

void SetKeys(const ModelShape& m, int64_t layers, GgufWriter* w) {
  const auto key = [&](const char* name) { return absl::StrCat(m.architecture, ".", name); };
  const auto count = [&](const char* name, int64_t value) {
    w->Set(key(name), static_cast<uint32_t>(value));
  };
  w->Set("general.architecture", m.architecture);
  w->Set("general.name", absl::StrCat("random weights, ", m.name, " shape"));
  count("block_count", layers);
  count("context_length", kContext);
  count("embedding_length", m.dim);
  count("feed_forward_length", m.dense_ffn > 0 ? m.dense_ffn : m.ffn);
  count("attention.head_count", m.heads);
  if (m.attends != 0) {
    std::vector<int32_t> each;
    for (int64_t i = 0; i < layers; ++i) {
      each.push_back(m.Convolves(i) ? 0 : static_cast<int32_t>(m.kv_heads));
    }
    w->Set(key("attention.head_count_kv"), each);
    count("shortconv.l_cache", kTaps);
  } else {
    count("attention.head_count_kv", m.kv_heads);
  }
  count("attention.key_length", m.latent > 0 ? m.latent + m.turned : m.head);
  count("attention.value_length", m.latent > 0 ? m.latent : m.head);
  if (m.latent > 0) {
    count("attention.key_length_mla", m.head);
    count("attention.value_length_mla", m.value);
    count("attention.kv_lora_rank", m.latent);
  }
  w->Set(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  w->Set(key("rope.freq_base"), static_cast<float>(m.rope_base));
  count("rope.dimension_count", m.latent > 0 ? m.turned : m.head);
  count("vocab_size", kVocabulary);
  if (m.experts == 0) return;
  count("expert_count", m.experts);
  count("expert_used_count", m.used);
  count("expert_feed_forward_length", m.ffn);
  count("expert_shared_count", m.shared);
  if (m.dense_ffn > 0) count("leading_dense_block_count", 1);
}

const ModelShape* ShapeNamed(const std::string& name) {
  for (const ModelShape& m : kShapes) {
    if (name == m.name) return &m;
  }
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  const bool help = first == "--help" || first == "-h";
  const std::optional<WeightFormat> format = WeightFormatNamed(first);
  const ModelShape* shape = argc > 4 ? ShapeNamed(argv[4]) : &kShapes[0];
  int64_t layers = shape == nullptr ? 0 : shape->layers;
  const bool known = format && CanFill(*format);
  const bool counted = argc < 4 || (absl::SimpleAtoi(argv[3], &layers) && layers > 0);
  if (help || argc < 3 || argc > 5 || !known || !counted || shape == nullptr) {
    std::string shapes;
    for (const ModelShape& m : kShapes) absl::StrAppend(&shapes, "\n  ", m.name, ", ", m.layers);
    std::fprintf(help ? stdout : stderr,
                 "usage: tools/make-random-model FORMAT FILE [LAYERS [SHAPE]]\n"
                 "Writes a GGUF model with random weights, for measuring speed. FORMAT is one of\n"
                 "  %s\nand SHAPE, with as many layers unless told otherwise:%s\n",
                 llm::ComputableFormats().c_str(), shapes.c_str());
    return help ? 0 : 2;
  }
  if (const auto misfit = Misfit(*shape, *format, layers)) {
    std::string fitting;
    const std::string all = llm::ComputableFormats();
    for (const absl::string_view name : absl::StrSplit(all, ", ")) {
      const WeightFormat other = *WeightFormatNamed(name);
      if (!CanFill(other) || Misfit(*shape, other, layers)) continue;
      absl::StrAppend(&fitting, fitting.empty() ? "" : ", ", name);
    }
    std::fprintf(stderr,
                 "make-random-model: %s: tensor '%s' of %s has rows of %lld numbers, and %s has "
                 "blocks of %lld; choose one of %s\n",
                 argv[2], misfit->first.c_str(), shape->name,
                 static_cast<long long>(misfit->second), InfoOf(*format).name,
                 static_cast<long long>(InfoOf(*format).block_elements), fitting.c_str());
    return 1;
  }
  GgufWriter w;
  SetKeys(*shape, layers, &w);
  AddVocabulary(&w);
  AddWeights(*shape, *format, layers, &w);
  const absl::Status written = w.Write(argv[2]);
  if (!written.ok()) {
    std::fprintf(stderr, "make-random-model: %s\n", std::string(written.message()).c_str());
    return 1;
  }
  return 0;
}
