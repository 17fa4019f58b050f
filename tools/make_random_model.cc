// Writes a GGUF model of the Llama-3.2-1B shape with random weights, for measuring speed:
// tools/make-random-model FORMAT FILE [LAYERS], with FORMAT one of F16, BF16, F32, Q8_0, Q4_0, ...
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "examples/llm/quant.h"
#include "examples/llm/tokenizer.h"
#include "runtime/gguf_writer.h"

using namespace tessera;

namespace {

constexpr int64_t kLayers = 16, kDim = 2048, kHeads = 32, kKvHeads = 8, kHead = 64, kFfn = 8192;
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

// Where a block has a scale of about 2^exponent: a half, or the byte of an exponent.
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
      return {{0, -7, /*is_byte=*/true}};
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
          to[b + s.at] = static_cast<char>(127 + s.exponent);
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

void AddWeights(WeightFormat format, int64_t layers, GgufWriter* w) {
  const auto add = [&](const std::string& name, WeightFormat f, const std::vector<int64_t>& shape) {
    w->Add(name, f, shape, RandomFill(f));
  };
  const WeightFormat vector = WeightFormat::kF32;
  add("token_embd.weight", format, {kVocabulary, kDim});
  add("output_norm.weight", vector, {kDim});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string p = absl::StrCat("blk.", i, ".");
    add(p + "attn_norm.weight", vector, {kDim});
    add(p + "attn_q.weight", format, {kHeads * kHead, kDim});
    add(p + "attn_k.weight", format, {kKvHeads * kHead, kDim});
    add(p + "attn_v.weight", format, {kKvHeads * kHead, kDim});
    add(p + "attn_output.weight", format, {kDim, kHeads * kHead});
    add(p + "ffn_norm.weight", vector, {kDim});
    add(p + "ffn_gate.weight", format, {kFfn, kDim});
    add(p + "ffn_up.weight", format, {kFfn, kDim});
    add(p + "ffn_down.weight", format, {kDim, kFfn});
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  const bool help = first == "--help" || first == "-h";
  const std::optional<WeightFormat> format = WeightFormatNamed(first);
  int64_t layers = kLayers;
  const bool known = format && llm::CanCompute(*format) &&
                     (InfoOf(*format).block_elements == 1 || !ScalesOf(*format).empty());
  const bool counted = argc < 4 || (absl::SimpleAtoi(argv[3], &layers) && layers > 0);
  if (help || argc < 3 || argc > 4 || !known || !counted) {
    std::fprintf(help ? stdout : stderr,
                 "usage: tools/make-random-model FORMAT FILE [LAYERS]\n"
                 "Writes a GGUF model of the shape of Llama-3.2-1B, with %d layers unless told "
                 "otherwise, and\nrandom weights: for measuring speed. FORMAT is one of\n  %s\n",
                 static_cast<int>(kLayers), llm::ComputableFormats().c_str());
    return help ? 0 : 2;
  }
  GgufWriter w;
  w.Set("general.architecture", "llama");
  w.Set("general.name", "random weights, Llama-3.2-1B shape");
  w.Set("llama.block_count", static_cast<uint32_t>(layers));
  w.Set("llama.context_length", static_cast<uint32_t>(kContext));
  w.Set("llama.embedding_length", static_cast<uint32_t>(kDim));
  w.Set("llama.feed_forward_length", static_cast<uint32_t>(kFfn));
  w.Set("llama.attention.head_count", static_cast<uint32_t>(kHeads));
  w.Set("llama.attention.head_count_kv", static_cast<uint32_t>(kKvHeads));
  w.Set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  w.Set("llama.rope.freq_base", 500000.0f);
  w.Set("llama.rope.dimension_count", static_cast<uint32_t>(kHead));
  w.Set("llama.vocab_size", static_cast<uint32_t>(kVocabulary));
  AddVocabulary(&w);
  AddWeights(*format, layers, &w);
  const absl::Status written = w.Write(argv[2]);
  if (!written.ok()) {
    std::fprintf(stderr, "make-random-model: %s\n", std::string(written.message()).c_str());
    return 1;
  }
  return 0;
}
