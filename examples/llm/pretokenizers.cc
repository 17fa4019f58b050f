// The patterns of published vocabularies, an alternative a line, and the names that share them.
#include "examples/llm/pretokenizers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/status.h"

namespace tessera::llm {

const char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d)"
                            R"(| ?\p{L}+)"
                            R"(| ?\p{N}+)"
                            R"(| ?[^\s\p{L}\p{N}]+)"
                            R"(|\s+(?!\S)|\s+)";

namespace {

constexpr char kLlama3[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                           R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
                           R"(|\p{N}{1,3})"
                           R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                           R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                          R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
                          R"(|\p{N})"
                          R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                          R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Marks belong to words.
constexpr char kQwen35[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                           R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+)"
                           R"(|\p{N})"
                           R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
                           R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kSeedCoder[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                              R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
                              R"(|\p{N})"
                              R"(| ?[^\s\p{L}\p{N}\r\n]+)"
                              R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// New words begin at capitals.
constexpr char kTekken[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kGpt4o[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// As kGpt4o, but characters of Unicode's script Han are words of their own.
#define HAN                                                                              \
  "[\u2E80-\u2E99\u2E9B-\u2EF3\u2F00-\u2FD5\u3005\u3007\u3021-\u3029\u3038-\u303B"       \
  "\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFA6D\uFA70-\uFAD9\U00016FE2\U00016FE3\U00016FF0"   \
  "\U00016FF1\U00020000-\U0002A6DF\U0002A700-\U0002B739\U0002B740-\U0002B81D"            \
  "\U0002B820-\U0002CEA1\U0002CEB0-\U0002EBE0\U0002EBF0-\U0002EE5D\U0002F800-\U0002FA1D" \
  "\U00030000-\U0003134A\U00031350-\U000323AF]"
constexpr char kKimi[] = HAN
    "+"
    R"(|[^\r\n\p{L}\p{N}]?(?:(?!)" HAN R"()[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
    R"((?:(?!)" HAN R"()[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?(?:(?!)" HAN R"()[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
    R"((?:(?!)" HAN R"()[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
#undef HAN
constexpr char kDeepseek3[] = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
                              R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
                              R"(| ?[\p{P}\p{S}]+[\r\n]*)"
                              R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr char kBloom[] = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr char kLine[] = R"([\r\n])";
constexpr char kLetters[] = R"(\s?\p{L}+)";
constexpr char kCased[] = R"(\s?((?![𝐀-𝟋𖹀-𖹿])[\p{Lu}\p{Ll}\p{Lt}])+)";
constexpr char kMarks[] = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr char kTrailingSpaces[] = R"(\s+(?![\s\S]))";
constexpr char kEastAsian[] = "[一-龥ࠀ-一가-힣ힰ-ퟻ]+";
constexpr char kHanAndKana[] = "[一-龥぀-ゟ゠-ヿ]+";
constexpr char kSpacedPunctuation[] = R"(\s?\p{P}+)";
constexpr char kPunctuation[] = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr char kThreeDigits[] = "[0-9][0-9][0-9]";
constexpr char kUpToThreeDigits[] = R"(\p{N}{1,3})";
constexpr char kDigit[] = R"(\p{N})";
constexpr char kDigits[] = R"(\p{N}+)";

const std::vector<PreTokenizer>& Known() {
  static const auto* const table = new std::vector<PreTokenizer>{
      {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe "
       "gigachat a.x-4.0 mellum mpt olmo jais trillion exaone4",
       {kGpt2Pattern}},
      {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", {kLlama3}, true},
      {"dbrx smaug-bpe glm4 chatglm-bpe", {kLlama3}},
      {"qwen2 deepseek-r1-qwen megrez", {kQwen2}, false, true},
      {"hunyuan stablelm2", {kQwen2}},
      {"tekken", {kTekken}, true},
      {"gpt-4o llama4 minimax-m2", {kGpt4o}},
      {"kimi-k2", {kKimi}},
      {"qwen35", {kQwen35}, false, true},
      {"seed-coder", {kSeedCoder}},
      {"falcon", {kPunctuation, kGpt2Pattern, kThreeDigits}},
      {"smollm starcoder refact command-r exaone minerva-7b codeshell", {kDigit, kGpt2Pattern}},
      {"bloom poro-chat gpt3-finnish", {kBloom}},
      {"viking", {kBloom, kDigit}},
      {"deepseek-llm", {kLine, kCased, kMarks, kTrailingSpaces, kEastAsian, kDigits}},
      {"deepseek-coder", {kLine, kLetters, kSpacedPunctuation, kEastAsian, kDigit}},
      {"deepseek-v3 hunyuan-dense joyai-llm", {kUpToThreeDigits, kHanAndKana, kDeepseek3}}};
  return *table;
}

}  // namespace

absl::StatusOr<const PreTokenizer*> PreTokenizerNamed(absl::string_view name) {
  std::vector<std::string> known;
  for (const PreTokenizer& p : Known()) {
    const std::vector<std::string> names = absl::StrSplit(p.names, ' ');
    if (std::find(names.begin(), names.end(), std::string(name)) != names.end()) return &p;
    known.push_back(p.names);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the pre-tokenizer ", ShowName(name), " is not known; ", absl::StrJoin(known, " "), " are"));
}

}  // namespace tessera::llm
