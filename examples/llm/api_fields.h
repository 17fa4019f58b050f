// Values of fields: of requests, what is wrong with them; of answers, those that are long to write.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "examples/llm/api.h"
#include "examples/llm/thoughts.h"
#include "runtime/json.h"

namespace tessera::llm {

// "temperature is "hot"; it is a number"
absl::Status WrongValue(const std::string& field, const Json& v, absl::string_view allowed);

absl::Status ReadMessages(const Json& json, ApiRequest* request);
absl::Status ReadTools(const Json& json, std::string* to);
absl::Status ReadToolChoice(const std::string& field, const Json& v, ToolChoice* to);
// Of an answer that is one or several calls of these tools, in the form that ToolCallReader reads,
// after what the model thinks, if it does; `open`: it has begun with that.
absl::StatusOr<std::shared_ptr<const Grammar>> GrammarOfCalls(absl::string_view tools,
                                                              const ToolChoice& choice,
                                                              const ThoughtMarks* thoughts,
                                                              bool open);

// How likely tokens were, in the form of chats' answers or of completions'.
std::string LogprobsJson(bool chat, absl::Span<const ToldToken> tokens);

}  // namespace tessera::llm
