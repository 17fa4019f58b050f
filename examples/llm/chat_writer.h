// How conversations with a model are written: by the template of its file, or where that is beyond
// our interpreter or refuses a conversation, in the form of its family.
//
// What was said never becomes a control token: texts of templates know which of their bytes are the
// template's own (examples/llm/jinja_value.h), and names of tokens count only there.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "examples/llm/chat.h"
#include "examples/llm/jinja.h"
#include "examples/llm/tokenizer.h"

namespace tessera::llm {

// Copies share the template; each has its own tools.
class ChatWriter {
 public:
  // The tokenizer must outlive it. An error says why neither way is open.
  static absl::StatusOr<ChatWriter> Make(const Tokenizer& tokenizer);

  // Functions that the assistant may call, a JSON array of objects; an error where the template
  // writes none. `name` is where they come from.
  absl::Status SetTools(std::string tools, const std::string& name);

  // Templates may write a content that is null as "None"; from now on that is an error.
  void RefuseNone() { refuse_none_ = true; }

  // The conversation up to where the assistant is to speak.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::Span<const Message> messages,
                                              const Date& today = Today()) const;
  // The family's form, if that is known.
  std::optional<ChatForm> form() const { return form_; }
  // The token that the template writes after what an assistant says, or -1.
  int32_t end() const { return end_; }

 private:
  explicit ChatWriter(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  absl::StatusOr<std::vector<Tokenizer::Part>> Parts(absl::Span<const Message> messages,
                                                     const Date& today, bool to_answer) const;
  absl::Status Try();
  int32_t FindEnd() const;

  const Tokenizer* tokenizer_;
  std::string tools_;
  std::shared_ptr<const jinja::Template> template_;
  std::string why_no_template_;
  bool in_parts_ = false, refuse_none_ = false;
  std::optional<ChatForm> form_;
  int32_t end_ = -1;
};

// Of a JSON array of messages, each an object with a role and what else a template knows.
absl::StatusOr<std::vector<Message>> MessagesOfJson(absl::string_view text,
                                                    const std::string& name);

}  // namespace tessera::llm
