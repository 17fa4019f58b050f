// Every class of malformed file is refused in one line that names the file and what is wrong in it.
#include <sys/stat.h>

#include <fstream>
#include <limits>

#include "absl/strings/str_replace.h"
#include "examples/llm/model.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"
#include "tests/support/allocations.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Float = std::numeric_limits<float>;

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void ExpectRefused(const std::string& path, size_t file_bytes, const std::string& part) {
  ForgetAllocations();
  const absl::Status status = LoadModel(path).status();
  EXPECT_LE(LargestAllocation(), 2 * file_bytes + 65536);
  ASSERT_FALSE(status.ok());
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(part));
  EXPECT_THAT(message, HasSubstr("bad")) << "the file is named";
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  EXPECT_LT(message.size(), 600u);
}

struct Row {
  const char* what;
  std::string bytes;
  const char* error;
};

std::string Entry(const std::string& key, uint32_t type, const std::string& value) {
  return Text(key) + U32(type) + value;
}
std::string WithTensor(const std::string& tensor) {
  return RawGguf(3, 1, 0, tensor + std::string(64, '\0'));
}
std::string Cut(const std::string& bytes, size_t missing) {
  return bytes.substr(0, bytes.size() - missing);
}
SmallGguf Small() { return SmallGguf(); }

// A key's value in place of the base's.
template <typename T>
std::string With(const std::string& key, T value) {
  return Small().Set(key, value).Bytes();
}
std::string With(const std::string& key, uint32_t value, const std::string& other,
                 uint32_t other_value) {
  return Small().Set(key, value).Set(other, other_value).Bytes();
}

std::vector<Row> HeaderRows() {
  const std::string pad(64, '\0');
  return {
      {"empty", "", "has 0 bytes"},
      {"short", "GGUF", "has 4 bytes"},
      {"magic", "ABCD" + pad, "starts with 'ABCD'"},
      {"ggml", "lmgg" + pad, "old GGML file"},
      {"ggjt", "tjgg" + pad, "old GGML file"},
      {"version 0", RawGguf(0, 0, 0, pad), "version 0 is not known"},
      {"version 1", RawGguf(1, 0, 0, pad), "GGUFv1 is no longer supported"},
      {"version 4", RawGguf(4, 0, 0, pad), "version 4 is not known"},
      {"big-endian", RawGguf(3u << 24, 0, 0, pad), "big-endian"},
      {"tensors", RawGguf(3, 1000, 0, pad), "1000 tensors do not fit"},
      {"negative tensors", RawGguf(3, ~0ull, 0, pad), "tensors do not fit"},
      {"values", RawGguf(3, 0, 1ull << 62, pad), "metadata entries do not fit"},
      {"key length", RawGguf(3, 0, 1, U64(70000) + pad), "70000 bytes"},
      {"key past end", RawGguf(3, 0, 1, U64(1000) + pad), "the file ends"},
      {"empty key", RawGguf(3, 0, 1, Entry("", 4, U32(1)) + pad), "an empty key"},
      {"key not UTF-8", RawGguf(3, 0, 1, Entry("\xFF\xFE", 4, U32(1)) + pad), "not UTF-8"},
      {"duplicate key", RawGguf(3, 0, 2, Entry("k", 4, U32(1)) + Entry("k", 4, U32(2)) + pad),
       "'k' is there twice"},
      {"value type", RawGguf(3, 0, 1, Entry("k", 13, U32(1)) + pad), "value type 13"},
      {"bool", RawGguf(3, 0, 1, Entry("k", 7, "\2") + pad), "a bool is 2"},
      {"string length", RawGguf(3, 0, 1, Entry("k", 8, U64(1ull << 40)) + pad), "1099511627776"},
      {"string past end", RawGguf(3, 0, 1, Entry("k", 8, U64(500)) + pad), "the file ends"},
      {"array type", RawGguf(3, 0, 1, Entry("k", 9, U32(77) + U64(1)) + pad), "value type 77"},
      {"array count", RawGguf(3, 0, 1, Entry("k", 9, U32(4) + U64(~0ull)) + pad), "do not fit"},
      {"array of strings", RawGguf(3, 0, 1, Entry("k", 9, U32(8) + U64(1ull << 29)) + pad),
       "do not fit"},
      {"nested array", RawGguf(3, 0, 1, Entry("k", 9, U32(9) + U64(1)) + pad), "array of arrays"},
      {"bools", RawGguf(3, 0, 1, Entry("k", 9, U32(7) + U64(2) + "\1\3") + pad), "a bool is 3"},
      {"alignment 0", RawGguf(3, 0, 1, Entry("general.alignment", 4, U32(0)) + pad),
       "power of two"},
      {"alignment 48", RawGguf(3, 0, 1, Entry("general.alignment", 4, U32(48)) + pad),
       "power of two"},
      {"alignment type", RawGguf(3, 0, 1, Entry("general.alignment", 10, U64(32)) + pad),
       "not u32"},
  };
}

std::vector<Row> TensorRows() {
  const uint64_t large = 1ull << 40;
  return {
      {"name length", WithTensor(RawTensor(std::string(64, 'n'), {4}, 0, 0)), "at most 63"},
      {"empty name", WithTensor(RawTensor("", {4}, 0, 0)), "without a name"},
      {"name not UTF-8", WithTensor(RawTensor("\xC0\x80", {4}, 0, 0)), "not UTF-8"},
      {"no axes", WithTensor(RawTensor("t", {}, 0, 0)), "0 axes"},
      {"five axes", WithTensor(RawTensor("t", {1, 1, 1, 1, 1}, 0, 0)), "5 axes"},
      {"extent 0", WithTensor(RawTensor("t", {4, 0}, 0, 0)), "an extent of 0"},
      {"extent negative", WithTensor(RawTensor("t", {~0ull}, 0, 0)), "an extent of -1"},
      {"product overflows", WithTensor(RawTensor("t", {large, large}, 0, 0)), "overflows"},
      {"bytes overflow", WithTensor(RawTensor("t", {1ull << 62}, 0, 0)), "overflow"},
      {"removed type", WithTensor(RawTensor("t", {32}, 4, 0)), "removed from the format"},
      {"type 43", WithTensor(RawTensor("t", {32}, 43, 0)), "type 43"},
      {"block", WithTensor(RawTensor("t", {33}, 8, 0)), "multiple of 32"},
      {"block of IQ2_XXS", WithTensor(RawTensor("t", {128}, 16, 0)), "multiple of 256"},
      {"block of NVFP4", WithTensor(RawTensor("t", {96}, 40, 0)), "multiple of 64"},
      {"block of Q1_0", WithTensor(RawTensor("t", {64}, 41, 0)), "multiple of 128"},
      {"short IQ3_S", WithTensor(RawTensor("t", {1 << 20}, 21, 0)), "450503 bytes are missing"},
      {"misaligned", WithTensor(RawTensor("t", {4}, 0, 4)), "multiple of the alignment"},
      {"beyond the end", WithTensor(RawTensor("t", {4}, 0, large)), "bytes are missing"},
      {"offset overflows", WithTensor(RawTensor("t", {4}, 0, ~0ull - 31)), "overflows"},
      {"duplicate",
       RawGguf(3, 2, 0,
               RawTensor("t", {4}, 0, 0) + RawTensor("t", {4}, 0, 32) + std::string(128, '\0')),
       "'t' is there twice"},
      {"overlap",
       RawGguf(3, 2, 0,
               RawTensor("t", {16}, 0, 0) + RawTensor("u", {4}, 0, 32) + std::string(128, '\0')),
       "before the end 64"},
      {"out of order",
       RawGguf(3, 2, 0,
               RawTensor("t", {4}, 0, 32) + RawTensor("u", {4}, 0, 0) + std::string(128, '\0')),
       "before the end 48"},
      {"no data", RawGguf(3, 1, 0, RawTensor("name", {4}, 0, 0)), "tensors' bytes start"},
      {"truncated", Cut(Small().Bytes(), 100), "100 bytes are missing"},
      {"truncated to half", Cut(Small().Bytes(), Small().Bytes().size() / 2), "bytes are missing"},
      {"second part", Small().Set("split.count", 2u).Set("split.no", 1u).Bytes(), "part 2 of 2"},
      {"split name", Small().Set("split.count", 2u).Set("split.no", 0u).Bytes(), "must end in"},
      {"split count", With("split.count", 100000u), "split.count is 100000"},
  };
}

std::vector<Row> ModelRows() {
  const std::string heads = "llama.attention.head_count";
  return {
      {"no architecture", Small().Drop("general.architecture").Bytes(), "is missing"},
      {"architecture", With("general.architecture", "gpt9"),
       "known are llama, mistral, mixtral, qwen2"},
      {"architecture type", With("general.architecture", 3u), "is u32, not a string"},
      {"no layers", Small().Drop("llama.block_count").Bytes(), "'llama.block_count' is missing"},
      {"layers type", With("llama.block_count", "one"), "is string, not an integer"},
      {"0 layers", With("llama.block_count", 0u),
       "key 'llama.block_count': the number of layers is 0"},
      {"absurd layers", With("llama.block_count", 1000000000u), "layers is 1000000000"},
      {"0 dim", With("llama.embedding_length", 0u),
       "key 'llama.embedding_length': the embedding length is 0"},
      {"0 heads", With(heads, 0u), "is 0"},
      {"heads divide dim", With(heads, 3u),
       "key 'llama.embedding_length' is 8, which is no multiple of 3 heads"},
      {"0 key heads", With("llama.attention.head_count_kv", 0u),
       "_kv': the number of key heads is 0"},
      {"key heads divide", With("llama.attention.head_count_kv", 3u),
       "key 'llama.attention.head_count_kv': 2 heads are no multiple of 3"},
      {"odd heads", With("llama.attention.key_length", 3u), "need pairs"},
      {"0 feed-forward", With("llama.feed_forward_length", 0u),
       "key 'llama.feed_forward_length': the feed-forward length is 0"},
      {"0 context", With("llama.context_length", 0u), "context length is 0"},
      {"absurd context", With("llama.context_length", 4000000000u), "context length is 4000000000"},
      {"rope base", With("llama.rope.freq_base", -1.0f),
       "key 'llama.rope.freq_base': the base of rotary positions is -1"},
      {"rope NaN", With("llama.rope.freq_base", Float::quiet_NaN()), "rotary positions is nan"},
      {"rope scaling", With("llama.rope.scaling.type", "magic"), "'magic'"},
      {"rope scaling of an absurd head",
       Small()
           .Set("llama.rope.scaling.type", "linear")
           .Set("llama.attention.key_length", 2147483648u)
           .Bytes(),
       "the length of a head is 2147483648"},
      {"yarn by nothing",
       Small()
           .Set("llama.rope.scaling.type", "yarn")
           .Set("llama.rope.scaling.factor", 0.0f)
           .Bytes(),
       "yarn wants a factor"},
      {"yarn without turns",
       Small()
           .Set("llama.rope.scaling.type", "yarn")
           .Set("llama.rope.scaling.yarn_beta_fast", 0.5f)
           .Bytes(),
       "yarn_beta_fast >= yarn_beta_slow"},
      {"old rope scaling", With("llama.rope.scale_linear", -2.0f),
       "'llama.rope.scale_linear' is -2"},
      {"rope part", With("llama.rope.dimension_count", 6u),
       "positions of 6 elements in heads of 4"},
      {"no rope part", With("llama.rope.dimension_count", 0u), "'llama.rope.dimension_count' is 0"},
      {"odd rope part", With("llama.rope.dimension_count", 3u), "they need pairs"},
      {"scale 0", With("llama.logit_scale", 0.0f),
       "key 'llama.logit_scale': the scale of the logits is inf"},
      {"scale NaN", With("llama.embedding_scale", Float::quiet_NaN()), "embedding is nan"},
      {"scale below 0", With("llama.residual_scale", -1.0f), "what layers add is -1"},
      {"cap", With("llama.attn_logit_softcapping", -5.0f),
       "key 'llama.attn_logit_softcapping': the cap of the scores is -5"},
      {"window of each layer",
       With("llama.attention.sliding_window_pattern", std::vector<int32_t>{1, 0}), "2 entries"},
      {"eps 0", With("llama.attention.layer_norm_rms_epsilon", 0.0f), "epsilon"},
      {"experts", With("llama.expert_count", 8u), "'llama.expert_used_count' is missing"},
      {"experts used", With("llama.expert_used_count", 9u, "llama.expert_count", 8u),
       "key 'llama.expert_used_count': the number of experts for a token is 9; 1 to 8 may be"},
      {"no expert used", With("llama.expert_used_count", 0u, "llama.expert_count", 8u),
       "experts for a token is 0"},
      {"too many experts", With("llama.expert_count", 1u << 20, "llama.expert_used_count", 1u),
       "the number of experts is 1048576"},
      {"router", Small().Shape("blk.0.ffn_gate_inp.weight", {8, 8}).Bytes(),
       "layer 0 has a router, and the configuration names no experts: its key "
       "'llama.expert_count'"},
      {"per layer", With("llama.feed_forward_length", std::vector<int32_t>{12, 12}), "2 entries"},
      {"missing tensor", Small().Drop("blk.0.ffn_up.weight").Bytes(),
       "'blk.0.ffn_up.weight' [12, 8] is missing"},
      {"superfluous tensor", Small().Shape("blk.7.x", {4}).Bytes(), "belongs to no part"},
      {"wrong shape", Small().Shape("blk.0.ffn_up.weight", {8, 12}).Bytes(),
       "[8, 12], and the configuration wants [12, 8]"},
      {"format", Small().Shape("blk.0.ffn_up.weight", {12, 8}, WeightFormat::kI8).Bytes(),
       "its format is I8; known are"},
      {"vocabulary", With("llama.vocab_size", 10u), "the configuration's vocabulary is 10"},
  };
}

std::vector<Row> TokenizerRows() {
  std::vector<std::string> tokens = SmallTokens(), wrong_byte = tokens, not_text = tokens;
  wrong_byte[5] = "<0xZZ>";
  std::vector<std::string> signed_byte = tokens, spaced_byte = tokens, long_byte = tokens;
  signed_byte[5] = "<0x-1>";
  spaced_byte[5] = "<0x 4>";
  long_byte[5] = "<0x41a";
  not_text[262] = "\xFF";
  std::vector<int32_t> kinds(tokens.size(), 1);
  kinds[7] = 9;
  const std::string t = "tokenizer.ggml.";
  return {
      {"no model", Small().Drop(t + "model").Bytes(), "'tokenizer.ggml.model' is missing"},
      {"model", With(t + "model", "bert"), "'bert' is not known"},
      {"no tokens", Small().Drop(t + "tokens").Bytes(), "'tokenizer.ggml.tokens' is missing"},
      {"tokens type", With(t + "tokens", 1u), "not an array of strings"},
      {"scores", With(t + "scores", std::vector<float>{1, 2}), "has 2 entries"},
      {"types", With(t + "token_type", std::vector<int32_t>{1}), "has 1 entries"},
      {"type", With(t + "token_type", kinds), "token 7 has type 9"},
      {"bos", With(t + "bos_token_id", 9999u), "is 9999, and there are 264 tokens"},
      {"eos", With(t + "eos_token_id", 264u), "is 264"},
      {"byte", With(t + "tokens", wrong_byte), "is no byte <0xNN>"},
      {"signed byte", With(t + "tokens", signed_byte), "is no byte <0xNN>"},
      {"spaced byte", With(t + "tokens", spaced_byte), "is no byte <0xNN>"},
      {"unclosed byte", With(t + "tokens", long_byte), "is no byte <0xNN>"},
      {"not UTF-8", With(t + "tokens", not_text), "token 262 is not UTF-8"},
      {"NaN score", With(t + "scores", std::vector<float>(264, Float::quiet_NaN())), "NaN"},
      {"pre-tokenizer", Small().Set(t + "model", "gpt2").Set(t + "pre", "what").Bytes(),
       "the pre-tokenizer 'what' is not known; gpt-2"},
      {"no merges", Small().Set(t + "model", "gpt2").Set(t + "pre", "gpt-2").Bytes(),
       "merges' is missing"},
      {"merge form",
       Small()
           .Set(t + "model", "gpt2")
           .Set(t + "pre", "gpt-2")
           .Set(t + "merges", std::vector<std::string>{"ab"})
           .Bytes(),
       "not of the form"},
      {"merge part",
       Small()
           .Set(t + "model", "gpt2")
           .Set(t + "pre", "gpt-2")
           .Set(t + "merges", std::vector<std::string>{"a q"})
           .Bytes(),
       "'q' is no token"},
      {"byte tokens",
       Small()
           .Set(t + "model", "gpt2")
           .Set(t + "pre", "gpt-2")
           .Set(t + "merges", std::vector<std::string>{"a b"})
           .Bytes(),
       "no token for the byte"},
  };
}

void ExpectAllRefused(const std::vector<Row>& rows) {
  const std::string path = OwnTempDir() + "/bad.gguf";
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    Write(path, row.bytes);
    ExpectRefused(path, row.bytes.size(), row.error);
  }
}

TEST(BadFiles, TheBaseIsGood) {
  const std::string path = OwnTempDir() + "/good.gguf";
  Write(path, Small().Bytes());
  EXPECT_OK(LoadModel(path));
}

TEST(BadFiles, GgufHeaders) { ExpectAllRefused(HeaderRows()); }
TEST(BadFiles, GgufTensors) { ExpectAllRefused(TensorRows()); }
TEST(BadFiles, Models) { ExpectAllRefused(ModelRows()); }
TEST(BadFiles, Tokenizers) { ExpectAllRefused(TokenizerRows()); }
TEST(BadFiles, MoreThanSixtyOfThem) {
  EXPECT_GE(HeaderRows().size() + TensorRows().size() + ModelRows().size() + TokenizerRows().size(),
            60u);
}

TEST(BadFiles, EveryTruncationOfAGoodFile) {
  const std::string good = Small().Bytes();
  for (size_t size = 0; size < good.size(); size += size < 2000 ? 7 : 997) {
    const absl::Status status = ParseGguf(good.substr(0, size), "bad", nullptr).status();
    EXPECT_FALSE(status.ok()) << size;
  }
  EXPECT_OK(ParseGguf(good, "good", nullptr).status());
}

TEST(BadFiles, NumbersOfAnArrayThatAnIntDoesNotHold) {
  const std::string u64 = U32(10) + U64(2) + U64(7) + U64(~uint64_t{0});
  const std::string f64 = U32(12) + U64(2) + U64(0x401C000000000000) + U64(0x7FF8000000000000);
  for (const std::string& array : {u64, f64}) {
    const std::string bytes = RawGguf(3, 0, 1, Entry("a", 9, array));  // which the array points to
    ASSERT_OK_AND_ASSIGN(const Gguf file, ParseGguf(bytes, "f", nullptr));
    ASSERT_OK_AND_ASSIGN(const GgufArray* a, file.metadata.Numbers("a"));
    EXPECT_EQ(a->Int(0), 7);
    EXPECT_EQ(a->Int(1), -1);
  }
}

TEST(BadFiles, MissingFileAndFolder) {
  EXPECT_THAT(LoadModel("/nowhere/bad.gguf").status(),
              StatusIs(absl::StatusCode::kNotFound, "/nowhere/bad.gguf: No such file"));
  for (const char* part : {"model.safetensors", "config.json"}) {
    EXPECT_THAT(LoadModel(std::string("/nowhere/") + part).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, "give the folder"));
  }
  EXPECT_THAT(LoadTokenizer("/nowhere/tokenizer.json").status(),
              StatusIs(absl::StatusCode::kNotFound, "/nowhere/tokenizer.json: No such file"));
}

// ---- folders

struct FolderRow {
  const char* what;
  const char* file;
  std::string text;  // "" removes the file
  const char* error;
};

std::vector<FolderRow> FolderRows() {
  const auto base = SmallFolder();
  const auto edit = [&](const char* file, const char* from, const char* to) {
    const std::string out = absl::StrReplaceAll(base.at(file), {{from, to}});
    EXPECT_NE(out, base.at(file)) << from;
    return out;
  };
  const char *config = "config.json", *tokens = "tokenizer.json", *weights = "model.safetensors";
  const auto header = [](const std::string& text) { return Safetensors(text, 16); };
  const char* index = "model.safetensors.index.json";
  return {
      {"no config", config, "", "No such file"},
      {"config", config, "{", "byte 1"},
      {"config text after", config, base.at(config) + "x", "after the end"},
      {"config list", config, "[]", "no object"},
      {"an output apart", config, edit(config, "\"tie_word_embeddings\":true,", ""),
       "'lm_head.weight' [264, 8] is missing"},
      {"model_type", config, edit(config, "\"llama\"", "\"gpt9\""), "known are llama"},
      {"no model_type", config, "{}", "'model_type' is missing"},
      {"hidden size", config, edit(config, "\"hidden_size\":8", "\"hidden_size\":9"),
       "no multiple"},
      {"size type", config, edit(config, "\"hidden_size\":8", "\"hidden_size\":\"8\""), "integer"},
      {"size huge", config, edit(config, "\"hidden_size\":8", "\"hidden_size\":1e30"), "integer"},
      {"0 heads", config, edit(config, "heads\":2", "heads\":0"), "is 0"},
      {"twice", config, edit(config, "{\"model_type", "{\"vocab_size\":1,\"model_type"), "twice"},
      {"no tokenizer", tokens, "", "No such file"},
      {"no model", tokens, "{}", "'model' is missing"},
      {"merge", tokens, edit(tokens, "\"a b\"", "\"ab\""), "neither"},
      {"merge part", tokens, edit(tokens, "\"a b\"", "[\"a\",\"q\"]"), "'q' is no token"},
      {"token id", tokens, edit(tokens, "\"a\":260", "\"a\":99999999"), "99999999"},
      {"token id twice", tokens, edit(tokens, "\"a\":260", "\"a\":261"), "have one id"},
      {"normalizer", tokens, edit(tokens, "\"Prepend\"", "\"Rot13\""), "'Rot13'"},
      {"tokenizer type", tokens, edit(tokens, "\"BPE\"", "\"WordSoup\""), "'WordSoup'"},
      {"unk", tokens, edit(tokens, "\"unk_token\":\"<unk>\"", "\"unk_token\":\"?\""), "no token"},
      {"no weights", weights, "", "neither model.safetensors"},
      {"tiny", weights, "1234567", "7 bytes"},
      {"header 0", weights, U64(0) + "{}", "header is empty"},
      {"header huge", weights, U64(1ull << 40) + "{}", "1099511627776"},
      {"header past end", weights, U64(100) + "{}", "goes on for 2"},
      {"header start", weights, header("[]"), "does not start with {"},
      {"header not UTF-8", weights, header("{\"\xFF\":1}"), "not UTF-8"},
      {"header JSON", weights, header("{\"a\":}"), "no JSON value"},
      {"trailing NUL", weights, header(std::string("{}\0", 3)), "after the end"},
      {"depth", weights, header("{\"a\":" + std::string(100, '[')), "nested deeper"},
      {"metadata", weights, header(R"({"__metadata__":{"a":1}})"), "no string"},
      {"no dtype", weights, header(R"({"a":{"shape":[4],"data_offsets":[0,16]}})"), "'dtype'"},
      {"dtype", weights, header(R"({"a":{"dtype":"F3","shape":[4],"data_offsets":[0,16]}})"), "F3"},
      {"shape", weights, header(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})"),
       "-4"},
      {"float", weights, header(R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})"),
       "4.0"},
      {"overflow", weights,
       header(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})"),
       "overflows"},
      {"offsets", weights, header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})"),
       "before they begin"},
      {"one offset", weights, header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16]}})"),
       "two integers"},
      {"size", weights, header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})"),
       "takes 12"},
      {"hole", weights, header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})"),
       "those before it end at 0"},
      {"trailing", weights, header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
       "8 bytes after the last"},
      {"truncated", weights, Cut(base.at(weights), 10), "10 bytes are missing"},
      {"same name", weights,
       header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
              R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})"),
       "twice"},
      {"index", index, "{}", "'weight_map' is missing"},
      {"index file", index, R"({"weight_map":{"a":"b.safetensors"}})", "No such file"},
      {"index path", index, R"({"weight_map":{"a":"../x"}})", "not in this folder"},
      {"index absolute", index, R"({"weight_map":{"a":"/etc/passwd"}})", "not in this folder"},
      {"index tensor", index, R"({"weight_map":{"a":"model.safetensors"}})", "'a' is missing"},
  };
}

TEST(BadFiles, Folders) {
  const std::string folder = OwnTempDir() + "/bad_folder";
  mkdir(folder.c_str(), 0755);
  const auto reset = [&] {
    unlink((folder + "/model.safetensors.index.json").c_str());
    for (const auto& [name, text] : SmallFolder()) Write(folder + "/" + name, text);
  };
  reset();
  ASSERT_OK(LoadModel(folder));
  for (const FolderRow& row : FolderRows()) {
    SCOPED_TRACE(row.what);
    reset();
    const std::string path = folder + "/" + row.file;
    if (row.text.empty()) {
      unlink(path.c_str());
    } else {
      Write(path, row.text);
    }
    ExpectRefused(folder, 40000, row.error);
  }
  reset();
  unlink((folder + "/model.safetensors").c_str());
  Write(folder + "/pytorch_model.bin", "x");
  ExpectRefused(folder, 40000, "pickled weights");
  unlink((folder + "/pytorch_model.bin").c_str());
}

}  // namespace
}  // namespace tessera::llm
