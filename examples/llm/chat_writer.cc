// A template is tried once before it is trusted with conversations.
#include "examples/llm/chat_writer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

std::tm DayOf(const Date& date) {
  std::tm t = {};
  t.tm_year = date.year - 1900;
  t.tm_mon = date.month - 1;
  t.tm_mday = date.day;
  t.tm_isdst = -1;
  std::mktime(&t);  // the day of the week
  return t;
}

std::string NameOf(const TokenizerSpec& spec, int64_t token) {
  return token < 0 ? "" : spec.tokens[static_cast<size_t>(token)].text;
}

}  // namespace

absl::StatusOr<std::vector<Tokenizer::Part>> ChatWriter::Parts(absl::Span<const Message> messages,
                                                               const Date& today,
                                                               bool to_answer) const {
  const TokenizerSpec& spec = tokenizer_->spec();
  jinja::Template::Inputs in;
  in.messages = messages;
  in.bos = NameOf(spec, spec.bos);
  in.eos = NameOf(spec, spec.eos);
  in.today = DayOf(today);
  in.in_parts = in_parts_;
  in.to_answer = to_answer;
  ASSIGN_OR_RETURN(const jinja::Text text, template_->Render(in));
  std::vector<Tokenizer::Part> out;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = std::min(text.said.find_first_not_of(text.said[begin], begin), text.size());
    Tokenizer::Part& part = out.emplace_back();
    part.text = text.bytes.substr(begin, end - begin);
    part.markup = text.said[begin] == 0;
  }
  return out;
}

// Whether it writes what a user says: as a text, or else as a list of texts.
absl::Status ChatWriter::Try() {
  absl::Status first;
  for (const bool in_parts : {false, true}) {
    in_parts_ = in_parts;
    const Message hello[] = {{"user", "Hello"}};
    const auto parts = Parts(hello, Today(), true);
    const bool said = parts.ok() && std::any_of(parts->begin(), parts->end(), [](const auto& p) {
                        return !p.markup && p.text == "Hello";
                      });
    if (said) return absl::OkStatus();
    if (in_parts) break;
    first = parts.ok() ? absl::InvalidArgumentError("it does not write what a user says")
                       : parts.status();
  }
  return first;
}

int32_t ChatWriter::FindEnd() const {
  const Message turns[] = {{"user", "U"}, {"assistant", "A"}, {"user", "V"}};
  const auto parts = Parts(turns, Today(), false);
  if (!parts.ok()) return -1;
  int said = 0;
  for (const Tokenizer::Part& part : *parts) {
    said += !part.markup;
    if (said != 2 || !part.markup) continue;
    Tokenizer::Options options;
    options.special = false;
    for (const int32_t id : tokenizer_->Encode(absl::MakeConstSpan(&part, 1), options)) {
      const TokenKind kind = tokenizer_->spec().tokens[static_cast<size_t>(id)].kind;
      if (kind == TokenKind::kControl || kind == TokenKind::kUserDefined) return id;
      if (!WithoutSpaceAtBegin(tokenizer_->Piece(id)).empty()) return -1;
    }
    return -1;
  }
  return -1;
}

absl::StatusOr<ChatWriter> ChatWriter::Make(const Tokenizer& tokenizer) {
  const std::string& text = tokenizer.spec().chat_template;
  ChatWriter out(tokenizer);
  const absl::StatusOr<ChatForm> form = RecogniseChat(text);
  if (form.ok()) out.form_ = *form;
  if (text.empty()) return form.status();
  absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(text);
  absl::Status status = parsed.status();
  if (parsed.ok()) {
    out.template_ = *std::move(parsed);
    status = out.Try();
  }
  if (!status.ok()) {
    out.template_.reset();
    if (form.ok()) return out;
    return absl::InvalidArgumentError(
        absl::StrCat("the model's chat template cannot be used: ", std::string(status.message())));
  }
  // Of several messages in one turn the last end is none that the template writes.
  if (out.form_ != ChatForm::kHarmony) out.end_ = out.FindEnd();
  return out;
}

absl::StatusOr<std::vector<int32_t>> ChatWriter::Encode(absl::Span<const Message> messages,
                                                        const Date& today) const {
  absl::StatusOr<std::vector<Tokenizer::Part>> parts =
      template_ ? Parts(messages, today, true) : absl::UnimplementedError("");
  if (!parts.ok()) {
    if (form_) return EncodeChat(*tokenizer_, *form_, messages, today);
    return absl::InvalidArgumentError(absl::StrCat("the model's chat template refuses this: ",
                                                   std::string(parts.status().message())));
  }
  Tokenizer::Options options;
  options.special = false;
  return tokenizer_->Encode(*parts, options);
}

}  // namespace tessera::llm
