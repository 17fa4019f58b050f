// A template is tried once before it is trusted with conversations.
#include "examples/llm/chat_writer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"
#include "runtime/json.h"

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

// Whether the form of a family has it.
bool IsPlain(const Message& m) {
  return m.whole.empty() && (m.role == "system" || m.role == "user" || m.role == "assistant");
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
  in.tools = tools_;
  in.bos = NameOf(spec, spec.bos);
  in.eos = NameOf(spec, spec.eos);
  in.today = DayOf(today);
  in.in_parts = in_parts_;
  in.refuse_none = refuse_none_;
  in.to_answer = to_answer;
  ASSIGN_OR_RETURN(const jinja::Text text, template_->Render(in));
  std::vector<Tokenizer::Part> out;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = std::min(text.said.find_first_not_of(text.said[begin], begin), text.size());
    Tokenizer::Part& part = out.emplace_back();
    part.text = text.bytes.substr(begin, end - begin);
    part.markup = text.said[begin] == jinja::kOfTemplate;
    part.own = text.said[begin] == jinja::kOfAssistant;
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
    out.template_ = std::make_shared<const jinja::Template>(*std::move(parsed));
    status = out.Try();
  }
  if (!status.ok()) {
    out.template_.reset();
    out.why_no_template_ = std::string(status.message());
    if (form.ok()) return out;
    return absl::InvalidArgumentError(
        absl::StrCat("the model's chat template cannot be used: ", std::string(status.message())));
  }
  // Of several messages in one turn the last end is none that the template writes.
  if (out.form_ != ChatForm::kHarmony) out.end_ = out.FindEnd();
  return out;
}

absl::Status ChatWriter::SetTools(std::string tools, const std::string& name) {
  ASSIGN_OR_RETURN(const Json json, Json::Parse(tools, name));
  const auto bad = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", parts...));
  };
  if (!json.is(Json::Type::kArray)) return bad("tools are an array of objects");
  int count = 0;
  for (const JsonItem item : json.Items()) {
    if (!item.value().is(Json::Type::kObject)) return bad("tool ", count, " is no object");
    ++count;
  }
  if (count == 0) return bad("there are no tools");
  if (!template_) return bad("the model has no chat template that could be run with tools");
  const Message hello[] = {{"user", "Hello"}};
  ASSIGN_OR_RETURN(const std::vector<Tokenizer::Part> without, Parts(hello, Today(), true));
  tools_ = std::move(tools);
  const absl::StatusOr<std::vector<Tokenizer::Part>> with = Parts(hello, Today(), true);
  if (!with.ok()) return bad("the model's chat template refuses them: ", with.status().message());
  const bool same = std::equal(with->begin(), with->end(), without.begin(), without.end(),
                               [](const auto& a, const auto& b) { return a.text == b.text; });
  return same ? bad("the model's chat template writes no tools") : absl::OkStatus();
}

absl::StatusOr<std::vector<Message>> MessagesOfJson(absl::string_view text,
                                                    const std::string& name) {
  ASSIGN_OR_RETURN(const Json json, Json::Parse(text, name));
  if (!json.is(Json::Type::kArray)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": messages are an array of objects"));
  }
  std::vector<Message> out;
  for (const JsonItem item : json.Items()) {
    const std::optional<Json> role =
        item.value().is(Json::Type::kObject) ? item.value().Find("role") : std::nullopt;
    const std::string is = role ? role->String().value_or("") : "";
    const bool named = !is.empty() && std::all_of(is.begin(), is.end(), [](char c) {
      return absl::ascii_isalnum(c) || c == '_' || c == '-';
    });
    if (!named) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": message ", out.size(), " is no object with a 'role' of letters"));
    }
    const std::optional<Json> content = item.value().Find("content");
    bool two_texts = content && content->is(Json::Type::kString);
    for (const JsonItem entry : item.value().Items()) {
      two_texts = two_texts && (entry.key() == "role" || entry.key() == "content");
    }
    Message& message = out.emplace_back();
    message.role = is;
    if (content) message.content = content->String().value_or("");
    if (!two_texts) message.whole = std::string(item.value().text());
  }
  return out;
}

absl::StatusOr<std::vector<int32_t>> ChatWriter::Encode(absl::Span<const Message> messages,
                                                        const Date& today) const {
  absl::StatusOr<std::vector<Tokenizer::Part>> parts =
      template_ ? Parts(messages, today, true)
                : absl::UnimplementedError(
                      absl::StrCat("it cannot be run (", why_no_template_,
                                   "), and the form of its family has roles and texts alone"));
  if (!parts.ok()) {
    const bool plain = tools_.empty() && std::all_of(messages.begin(), messages.end(), IsPlain);
    if (form_ && plain) return EncodeChat(*tokenizer_, *form_, messages, today);
    return absl::InvalidArgumentError(absl::StrCat("the model's chat template refuses this: ",
                                                   std::string(parts.status().message())));
  }
  Tokenizer::Options options;
  options.special = false;
  return tokenizer_->Encode(*parts, options);
}

}  // namespace tessera::llm
