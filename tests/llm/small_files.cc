// A Llama of dim 8 with 2 heads and one layer, in both forms.
#include "tests/llm/small_files.h"

#include <cstring>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "examples/llm/model.h"
#include "examples/llm/tokenizer.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

template <typename T>
std::string Raw(T v) {
  return std::string(reinterpret_cast<const char*>(&v), sizeof(T));
}
constexpr int64_t kDim = 8, kFfn = 12;

}  // namespace

std::vector<std::string> SmallTokens() {
  std::vector<std::string> out = {"<unk>", "<s>", "</s>"};
  for (int b = 0; b < 256; ++b) out.push_back(absl::StrFormat("<0x%02X>", b));
  for (const char* word : {"\xE2\x96\x81", "a", "b", "ab",
                           "\xE2\x96\x81"
                           "ab"})
    out.push_back(word);
  return out;
}

std::vector<int32_t> SomeTokens(int count, int seed) {
  std::vector<int32_t> out;
  for (int i = 0; i < count; ++i) out.push_back(3 + (i * 7 + seed * 31) % 200);
  return out;
}

SmallGguf::SmallGguf() {
  const std::vector<std::string> tokens = SmallTokens();
  const int64_t vocabulary = static_cast<int64_t>(tokens.size());
  std::vector<float> scores(tokens.size(), 0);
  std::vector<int32_t> kinds(tokens.size(), 1);
  kinds[0] = 2, kinds[1] = kinds[2] = 3;
  for (int b = 0; b < 256; ++b) kinds[3 + b] = 6;
  Set("general.architecture", "llama");
  Set("llama.block_count", uint32_t{1});
  Set("llama.embedding_length", static_cast<uint32_t>(kDim));
  Set("llama.feed_forward_length", static_cast<uint32_t>(kFfn));
  Set("llama.context_length", uint32_t{16});
  Set("llama.attention.head_count", uint32_t{2});
  Set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  Set("tokenizer.ggml.model", "llama");
  Set("tokenizer.ggml.tokens", tokens);
  Set("tokenizer.ggml.scores", scores);
  Set("tokenizer.ggml.token_type", kinds);
  Set("tokenizer.ggml.bos_token_id", uint32_t{1});
  Set("tokenizer.ggml.eos_token_id", uint32_t{2});
  Set("tokenizer.ggml.unknown_token_id", uint32_t{0});
  Shape("token_embd.weight", {vocabulary, kDim});
  Shape("output_norm.weight", {kDim});
  for (const char* name : {"attn_norm", "ffn_norm"}) {
    Shape(absl::StrCat("blk.0.", name, ".weight"), {kDim});
  }
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    Shape(absl::StrCat("blk.0.", name, ".weight"), {kDim, kDim});
  }
  Shape("blk.0.ffn_gate.weight", {kFfn, kDim});
  Shape("blk.0.ffn_up.weight", {kFfn, kDim});
  Shape("blk.0.ffn_down.weight", {kDim, kFfn});
}

std::vector<int> HalvesOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ5_1:
    case WeightFormat::kQ4K:
    case WeightFormat::kQ5K:
      return {0, 2};
    case WeightFormat::kQ2K:
      return {80, 82};
    case WeightFormat::kQ3K:
      return {108};
    case WeightFormat::kQ6K:
      return {208};
    case WeightFormat::kTQ1:
      return {52};
    case WeightFormat::kTQ2:
      return {64};
    case WeightFormat::kMXFP4:  // its first byte is an exponent
    case WeightFormat::kNVFP4:  // its first four bytes are scales
    case WeightFormat::kIQ1M:   // four bits of each of its last four words
      return {};
    default:
      return {0};
  }
}

void FillRandomly(WeightFormat format, char* to, int64_t size) {
  std::mt19937 rng(static_cast<unsigned>(size));
  if (format == WeightFormat::kF32) {
    for (int64_t i = 0; i < size; i += 4) {
      const float v = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) * 1e-3f;
      std::memcpy(to + i, &v, 4);
    }
    return;
  }
  const int64_t block = InfoOf(format).block_bytes;
  for (int64_t i = 0; i < size; ++i) to[i] = static_cast<char>(rng());
  for (int64_t i = 0; i < size; i += block) {
    if (format == WeightFormat::kMXFP4) to[i] = 127 - 7;
    if (format == WeightFormat::kIQ1M) to[i + 55] = static_cast<char>(to[i + 55] & 15);  // 2^-15
    for (int s = 0; format == WeightFormat::kNVFP4 && s < 4; ++s) to[i + s] &= 15;       // to 2^-5
    for (const int at : HalvesOf(format)) {
      const uint16_t small = static_cast<uint16_t>(3 << 10 | (rng() & 1023));  // 2^-12
      std::memcpy(to + i + at, &small, 2);
    }
  }
}

std::string SmallGguf::Bytes() const {
  GgufWriter w;
  for (const auto& [key, set] : values) set(w, key);
  for (const auto& [name, t] : tensors) {
    w.Add(name, t.format, t.shape, [this, format = t.format](char* to, int64_t size) {
      std::memset(to, 0, static_cast<size_t>(size));
      if (random) FillRandomly(format, to, size);
    });
  }
  return w.Bytes();
}

std::string SmallGguf::Write() const {
  static int files = 0;
  const std::string path = absl::StrCat(OwnTempDir(), "/small", files++, ".gguf");
  std::ofstream(path, std::ios::binary) << Bytes();
  return path;
}

void ExpectRefused(const SmallGguf& file, const std::string& part) {
  const std::string path = file.Write();
  const absl::Status status = LoadModel(path).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, part));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, path));
}

std::string U32(uint32_t v) { return Raw(v); }
std::string U64(uint64_t v) { return Raw(v); }
std::string Text(const std::string& s) { return absl::StrCat(U64(s.size()), s); }

std::string RawGguf(uint32_t version, uint64_t tensors, uint64_t values, const std::string& rest) {
  return absl::StrCat("GGUF", U32(version), U64(tensors), U64(values), rest);
}

std::string RawTensor(const std::string& name, const std::vector<uint64_t>& extents, uint32_t type,
                      uint64_t offset) {
  std::string out = absl::StrCat(Text(name), U32(static_cast<uint32_t>(extents.size())));
  for (uint64_t e : extents) absl::StrAppend(&out, U64(e));
  return absl::StrCat(out, U32(type), U64(offset));
}

std::string Safetensors(const std::string& header, size_t data_bytes) {
  return absl::StrCat(U64(header.size()), header, std::string(data_bytes, '\0'));
}

std::string ByteLevelJson(const std::string& pre_tokenizer, const std::string& normalizer,
                          const std::string& added) {
  std::string vocabulary;
  for (int b = 0; b < 256; ++b) {
    const std::string& text = ByteCharacters()[b];
    absl::StrAppend(&vocabulary, "\"", text == "\"" || text == "\\" ? "\\" : "", text, "\":", b,
                    ",");
  }
  return absl::StrCat(R"({"model":{"type":"BPE","vocab":{)", vocabulary,
                      "\"--\":256,\"\u0120a\":257,\"\u00c3\u00a9\":258},",
                      "\"merges\":[\"- -\",\"\u0120 a\",\"\u00c3 \u00a9\"]},", R"("normalizer":)",
                      normalizer, R"(,"added_tokens":)", added, R"(,"pre_tokenizer":)",
                      pre_tokenizer, "}");
}

std::map<std::string, std::string> SmallFolder() {
  const std::vector<std::string> tokens = SmallTokens();
  std::vector<std::string> vocab;
  for (size_t i = 0; i < tokens.size(); ++i)
    vocab.push_back(absl::StrCat("\"", tokens[i], "\":", i));
  std::map<std::string, std::string> files;
  files["config.json"] = absl::StrCat(
      R"({"model_type":"llama","tie_word_embeddings":true,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,)",
      R"("num_attention_heads":2,"rms_norm_eps":1e-5,"max_position_embeddings":16,"vocab_size":)",
      tokens.size(), "}");
  files["tokenizer.json"] = absl::StrCat(
      R"({"added_tokens":[{"id":0,"content":"<unk>","special":true},)",
      R"({"id":1,"content":"<s>","special":true},{"id":2,"content":"</s>","special":true}],)",
      R"("normalizer":{"type":"Prepend","prepend":"▁"},"pre_tokenizer":null,"model":{"type":"BPE",)",
      R"("unk_token":"<unk>","byte_fallback":true,"vocab":{)", absl::StrJoin(vocab, ","),
      R"(},"merges":["a b"]}})");
  const int64_t vocabulary = static_cast<int64_t>(tokens.size());
  const std::string layer = "model.layers.0.";
  const std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
      {"model.embed_tokens.weight", {vocabulary, kDim}},
      {"model.norm.weight", {kDim}},
      {absl::StrCat(layer, "input_layernorm.weight"), {kDim}},
      {absl::StrCat(layer, "post_attention_layernorm.weight"), {kDim}},
      {absl::StrCat(layer, "self_attn.q_proj.weight"), {kDim, kDim}},
      {absl::StrCat(layer, "self_attn.k_proj.weight"), {kDim, kDim}},
      {absl::StrCat(layer, "self_attn.v_proj.weight"), {kDim, kDim}},
      {absl::StrCat(layer, "self_attn.o_proj.weight"), {kDim, kDim}},
      {absl::StrCat(layer, "mlp.gate_proj.weight"), {kFfn, kDim}},
      {absl::StrCat(layer, "mlp.up_proj.weight"), {kFfn, kDim}},
      {absl::StrCat(layer, "mlp.down_proj.weight"), {kDim, kFfn}}};
  std::vector<std::string> entries = {R"("__metadata__":{"format":"pt"})"};
  int64_t offset = 0;
  for (const auto& [name, shape] : tensors) {
    int64_t bytes = 4;
    for (int64_t e : shape) bytes *= e;
    entries.push_back(absl::StrCat("\"", name, R"(":{"dtype":"F32","shape":[)",
                                   absl::StrJoin(shape, ","), R"(],"data_offsets":[)", offset, ",",
                                   offset + bytes, "]}"));
    offset += bytes;
  }
  files["model.safetensors"] =
      Safetensors(absl::StrCat("{", absl::StrJoin(entries, ","), "}"), static_cast<size_t>(offset));
  return files;
}

}  // namespace tessera::llm
