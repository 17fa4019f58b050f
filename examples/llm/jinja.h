// Chat templates: a small interpreter of Jinja, as far as templates of models use it.
//
// A template is a program by whoever made a file. It sees the conversation and nothing else, has no
// attributes but those of its own values, and is bounded in steps (so in time), bytes and depth;
// what it does beyond is an error.
#pragma once

#include <ctime>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "examples/llm/jinja_value.h"

namespace tessera::llm {
struct Message;
}

namespace tessera::llm::jinja {

struct Program;

class Template {
 public:
  // Every error names the line, or the byte of what is no UTF-8.
  static absl::StatusOr<Template> Parse(absl::string_view text);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  struct Inputs {
    absl::Span<const Message> messages;
    std::string tools;     // a JSON array of functions that may be called; "": none
    std::string bos, eos;  // what these tokens are called
    std::tm today = {};
    bool in_parts = false;     // contents are lists of texts, as templates of some models want them
    bool refuse_none = false;  // it is an error to write a content that is null
    bool to_answer = true;     // the text goes up to where the assistant is to speak
  };
  absl::StatusOr<Text> Render(const Inputs& inputs, const Heap::Limits& limits = {}) const;

 private:
  explicit Template(std::unique_ptr<const Program> program);
  std::unique_ptr<const Program> program_;
};

}  // namespace tessera::llm::jinja
