// What clients of the OpenAI API ask for and are answered, as JSON; how it travels is not told
// here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "examples/llm/chat.h"
#include "examples/llm/grammar.h"
#include "examples/llm/sampler.h"
#include "examples/llm/tool_calls.h"
#include "runtime/json.h"

namespace tessera::llm {

// What requests leave open.
struct ApiDefaults {
  SamplerOptions sampler;  // seed 0: each text has one of its own
  std::vector<std::string> stops;
  int64_t max_tokens = -1;  // -1: up to the context's end in chats, 16 in completions
};

// Which tools an answer may call, or has to; of neither it is the model that chooses.
struct ToolChoice {
  bool none = false, required = false;
  std::string name = {};  // of the function that is required; "": any
  bool one = false;       // no more than one call
};

struct ApiRequest {
  bool chat = false;
  // Of a chat. Arguments of calls come as texts, and most templates want objects: `messages` has
  // these. Beside calls a content may be null, or left out, and many templates want "". For those
  // that refuse `messages` there are other readings, the likelier first.
  std::vector<Message> messages;
  std::vector<std::vector<Message>> other_readings;
  std::string tools;  // a JSON array; "": none
  ToolChoice tool_choice;
  // Of a completion: texts to continue, or their tokens.
  struct Prompt {
    std::string text;
    std::optional<std::vector<int32_t>> tokens;
  };
  std::vector<Prompt> prompts;
  int64_t copies = 1;       // of each: "n"
  int64_t max_tokens = -1;  // -1: up to the context's end
  std::vector<std::string> stops;
  SamplerOptions sampler;
  std::shared_ptr<const Grammar> grammar;  // that the texts keep to; none: any
  bool stream = false, include_usage = false;
  int64_t likeliest = -1;  // tokens that are told beside each of a text; -1: none, nor that
};
inline constexpr int64_t kMostTexts = 32;  // of one request

// From the body of a request. Fields that are not known are passed over; what would change the
// answer and is not done is refused, by its name.
absl::StatusOr<ApiRequest> ParseApiRequest(absl::string_view body, bool chat,
                                           const ApiDefaults& defaults);

// The object that the body of any request is, by an error that says that it is the body.
absl::StatusOr<Json> ParseBody(absl::string_view body);
// An array of ids.
absl::StatusOr<std::vector<int32_t>> TokensOf(const Json& json, const std::string& field);

// A request that is wrong, in this field; `code` is what programs look at.
absl::Status WrongField(const std::string& field, absl::string_view what, const char* code = "");
// The status of HTTP that an error has, and the object that tells it.
int HttpStatusOf(const absl::Status& error);
std::string ErrorJson(const absl::Status& error, int http_status);

struct AnswerHead {
  bool chat = false;
  std::string id, model;
  int64_t created = 0;         // seconds since 1970
  bool include_usage = false;  // at the end of the parts
  bool weighed = false;        // with the likelihoods of tokens
};
// A token, which may be part of a character, and the logarithm of its probability.
struct TokenChance {
  std::string bytes;
  double log_probability = 0;
};
struct ToldToken {
  TokenChance next;
  std::vector<TokenChance> likeliest;
  int64_t offset = 0;  // the characters of the choice's text before it
};
// One of the texts that are asked for, or what is new of it.
struct Choice {
  int64_t index = 0;
  std::string text = {}, thought = {};
  std::vector<ToolCall> calls = {};
  std::vector<ToldToken> tokens = {};  // of `text`, where they are asked for
  std::string finish = {};  // why it ended: "stop", "length", "tool_calls"; "": it goes on
};
struct Usage {
  int64_t prompt = 0, completion = 0;
  int64_t cached = 0;  // tokens of prompts that were not read again
};
std::string AnswerJson(const AnswerHead& head, absl::Span<const Choice> choices,
                       const Usage& usage);
// Of a streamed answer: each text begins with `first`, which says who speaks, and ends with
// `finish`.
std::string AnswerPartJson(const AnswerHead& head, const Choice& news, bool first);
std::string UsagePartJson(const AnswerHead& head, const Usage& usage);

// `prefix` and 16 random characters.
std::string NewId(absl::string_view prefix);

}  // namespace tessera::llm
