// Log-probabilities of tokens in OpenAI's two forms.
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "examples/llm/api_fields.h"
#include "examples/llm/json_line.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr int kDigits = 6;

// A token that ends or begins within a character has no text of its own: its bytes as \xNN.
std::string TextOf(const std::string& bytes, const char* before_bytes) {
  if (ValidUtf8Prefix(bytes) == bytes.size()) return bytes;
  std::string out = before_bytes;
  for (const char c : bytes) absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(c));
  return out;
}

std::string LogOf(const TokenChance& chance) {
  return absl::StrFormat("%.*f", kDigits, chance.log_probability);
}

JsonLine ChatToken(const TokenChance& chance) {
  const std::string numbers = absl::StrJoin(chance.bytes, ",", [](std::string* out, char c) {
    absl::StrAppend(out, static_cast<int>(static_cast<uint8_t>(c)));
  });
  JsonLine out;
  out.Text("token", TextOf(chance.bytes, ""))
      .Raw("logprob", LogOf(chance))
      .Raw("bytes", absl::StrCat("[", numbers, "]"));
  return out;
}

std::string ChatLogprobs(absl::Span<const ToldToken> tokens) {
  std::vector<std::string> content;
  for (const ToldToken& token : tokens) {
    std::vector<std::string> top;
    for (const TokenChance& chance : token.likeliest) top.push_back(ChatToken(chance).str());
    content.push_back(ChatToken(token.next).Raw("top_logprobs", JsonList(top)).str());
  }
  return JsonLine().Raw("content", JsonList(content)).Raw("refusal", "null").str();
}

std::string CompletionToken(const TokenChance& chance) {
  return JsonString(TextOf(chance.bytes, "bytes:"));
}

// An object whose keys are tokens; of equal ones the likeliest counts.
std::string Likeliest(const ToldToken& token) {
  std::set<std::string> seen;
  std::vector<std::string> members;
  const auto add = [&](const TokenChance& chance) {
    const std::string key = CompletionToken(chance);
    if (seen.insert(key).second) members.push_back(absl::StrCat(key, ":", LogOf(chance)));
  };
  for (const TokenChance& chance : token.likeliest) add(chance);
  add(token.next);
  return absl::StrCat("{", absl::StrJoin(members, ","), "}");
}

std::string CompletionLogprobs(absl::Span<const ToldToken> tokens) {
  std::vector<std::string> texts, logs, top, offsets;
  for (const ToldToken& token : tokens) {
    texts.push_back(CompletionToken(token.next));
    logs.push_back(LogOf(token.next));
    if (!token.likeliest.empty()) top.push_back(Likeliest(token));
    offsets.push_back(absl::StrCat(token.offset));
  }
  return JsonLine()
      .Raw("tokens", JsonList(texts))
      .Raw("token_logprobs", JsonList(logs))
      .Raw("top_logprobs", top.empty() ? "null" : JsonList(top))
      .Raw("text_offset", JsonList(offsets))
      .str();
}

}  // namespace

std::string LogprobsJson(bool chat, absl::Span<const ToldToken> tokens) {
  return chat ? ChatLogprobs(tokens) : CompletionLogprobs(tokens);
}

}  // namespace tessera::llm
