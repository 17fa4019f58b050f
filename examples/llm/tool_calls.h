// Calls of tools in what an assistant writes: <tool_call>{"name": ..., "arguments":
// {...}}</tool_call>, one after the other at the end of the text, as Qwen's and Hermes' models do.
// What is cut before it is a whole call is text.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tessera::llm {

struct ToolCall {
  std::string id, name;
  std::string arguments;  // an object as JSON
};

class ToolCallReader {
 public:
  // What of the text comes before any call, as far as that is certain.
  std::string Push(absl::string_view text);
  // After the last: the calls, and what of the text that was held back is none.
  struct Rest {
    std::string text;
    std::vector<ToolCall> calls;
  };
  Rest Finish();

 private:
  std::string held_;
};

}  // namespace tessera::llm
