// Values of a request's fields, and what is wrong with them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "examples/llm/api.h"
#include "runtime/json.h"

namespace tessera::llm {

// "temperature is "hot"; it is a number"
absl::Status WrongValue(const std::string& field, const Json& v, absl::string_view allowed);

absl::Status ReadMessages(const Json& json, ApiRequest* request);
absl::Status ReadTools(const Json& json, std::string* to);

}  // namespace tessera::llm
