// The mode that converses.
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "examples/llm/chat_writer.h"
#include "examples/llm/command.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

class Conversation {
 public:
  Conversation(const Command& command, const Model& model, Session& session, ChatWriter writer)
      : command_(command),
        model_(model),
        session_(session),
        writer_(std::move(writer)),
        sampler_(command.sampler, model.config.vocabulary) {
    if (!command.system.empty()) system_.push_back({"system", command.system});
    options_.stops = command.stops;
    options_.sampler = command.sampler;
    options_.interrupted = &interrupted;
    options_.grammar = command.grammar;
    options_.guessing = command.guessing;
    options_.draws = &sampler_;
    options_.end = writer_.end();
  }

  // Answers a message, or says why not and goes on as if it had not been.
  absl::Status Take(const std::string& text) {
    if (const absl::Status utf8 = CheckUtf8("the message", text); !utf8.ok()) {
      Tell("refused", std::string(utf8.message()));
      return absl::OkStatus();
    }
    return Take(Message{"user", text});
  }

  // A conversation so far, of which the last message is answered unless it is the assistant's, or
  // says what the assistant is.
  absl::Status Begin(std::vector<Message> messages) {
    const bool answered =
        messages.empty() || messages.back().role == "assistant" || messages.back().role == "system";
    const Message last = answered ? Message() : messages.back();
    if (!answered) messages.pop_back();
    for (Message& m : messages) {
      (m.role == "system" && turns_.empty() ? system_ : turns_).push_back(std::move(m));
    }
    return answered ? absl::OkStatus() : Take(last);
  }

 private:
  absl::Status Take(const Message& message) {
    const absl::StatusOr<std::vector<int32_t>> own = Encode(Beginnings(message).back(), message);
    if (!own.ok()) return Refused(own.status());
    const size_t alone = own->size();
    if (static_cast<int64_t>(alone) >= session_.context()) {
      Tell("refused",
           absl::StrCat("the message takes ", alone, " of the context's ", session_.context(),
                        " positions, which leaves none for an answer; a larger --context does"));
      return absl::OkStatus();
    }
    const absl::StatusOr<std::vector<int32_t>> ids = EncodeWhatFits(message);
    return ids.ok() ? Answer(message, *ids) : Refused(ids.status());
  }

  // What a template does not write is no reason to end.
  absl::Status Refused(const absl::Status& why) const {
    if (!absl::IsInvalidArgument(why)) return why;
    Tell("refused", std::string(why.message()));
    return absl::OkStatus();
  }
  // Where the conversation may begin if it ends in `last`: at the first turn, and then where the
  // user speaks. Results of tools are nothing without what they were asked for.
  std::vector<size_t> Beginnings(const Message& last) const {
    std::vector<size_t> out = {0};
    for (size_t i = 1; i < turns_.size(); ++i) {
      if (turns_[i].role == "user") out.push_back(i);
    }
    if (!turns_.empty() && last.role == "user") out.push_back(turns_.size());
    return out;
  }
  absl::StatusOr<std::vector<int32_t>> Encode(size_t from, const Message& last) const {
    std::vector<Message> all = system_;
    all.insert(all.end(), turns_.begin() + static_cast<int64_t>(from), turns_.end());
    all.push_back(last);
    return writer_.Encode(all);
  }

  // The conversation in at most three quarters of the context: the oldest turns go first, a system
  // message and what was said last stay.
  absl::StatusOr<std::vector<int32_t>> EncodeWhatFits(const Message& last) {
    const std::vector<size_t> beginnings = Beginnings(last);
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, Encode(0, last));
    const auto fits = [&] {
      return static_cast<int64_t>(ids.size()) <= session_.context() * 3 / 4;
    };
    if (fits() || beginnings.size() == 1) return ids;
    size_t low = 1, high = beginnings.size() - 1;  // the first that fits is within, or none
    while (low < high) {
      const size_t middle = (low + high) / 2;
      ASSIGN_OR_RETURN(ids, Encode(beginnings[middle], last));
      if (fits()) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    Tell("dropped",
         absl::StrCat("the conversation outgrows the context; its ",
                      low == 1 ? "oldest turn is" : absl::StrCat(low, " oldest turns are"),
                      " dropped"));
    turns_.erase(turns_.begin(), turns_.begin() + static_cast<int64_t>(beginnings[low]));
    return Encode(0, last);
  }

  absl::Status Answer(const Message& message, const std::vector<int32_t>& ids) {
    const size_t same = ReadBefore(fed_, ids);
    session_.Rewind(static_cast<int64_t>(same));
    options_.before.assign(ids.begin(), ids.begin() + static_cast<int64_t>(same));
    AnswerReader reader(*model_.tokenizer, writer_.form());
    options_.piece = [&](int32_t token) { return reader.Show(token); };
    options_.max_tokens = command_.max_tokens >= 0 ? command_.max_tokens : session_.room();
    ASSIGN_OR_RETURN(const Generated g,
                     Generate(session_, model_, absl::MakeConstSpan(ids).subspan(same), options_,
                              [&](const std::string& part) {
                                if (!command_.json) Show(part);
                              }));
    if (command_.json) {
      PrintJson(JsonLine().Text("event", "answer").Text("message", message.content), g);
    } else {
      Show("\n");
    }
    fed_ = ids;
    fed_.insert(fed_.end(), g.tokens.begin(), g.tokens.end());
    fed_.resize(static_cast<size_t>(session_.position()));
    turns_.push_back(message);
    turns_.push_back({"assistant", reader.Told(g.text)});
    ReportSpeed(g);
    return absl::OkStatus();
  }

  void Tell(const char* event, const std::string& what) const {
    std::fprintf(stderr, "llm: %s\n", what.c_str());
    if (command_.json) JsonLine().Text("event", event).Text("reason", what).Print();
  }

  const Command& command_;
  const Model& model_;
  Session& session_;
  const ChatWriter writer_;
  Sampler sampler_;
  GenerateOptions options_;
  std::vector<Message> system_, turns_;
  std::vector<int32_t> fed_;  // what the session has seen
};

}  // namespace

absl::StatusOr<int> RunChat(const Command& command, const Model& model, Session& session) {
  ASSIGN_OR_RETURN(ChatWriter writer, ChatWriter::Make(*model.tokenizer));
  if (!command.tools_file.empty()) {
    ASSIGN_OR_RETURN(std::string tools, ReadText(command.tools_file));
    RETURN_IF_ERROR(writer.SetTools(std::move(tools), command.tools_file));
  }
  Conversation conversation(command, model, session, std::move(writer));
  if (!command.messages_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(command.messages_file));
    ASSIGN_OR_RETURN(std::vector<Message> messages, MessagesOfJson(text, command.messages_file));
    RETURN_IF_ERROR(conversation.Begin(std::move(messages)));
  }
  if (command.prompt_given) RETURN_IF_ERROR(conversation.Take(command.prompt));
  std::string line;
  while (!interrupted) {
    std::fprintf(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    RETURN_IF_ERROR(conversation.Take(line));
  }
  std::fprintf(stderr, "\n");
  return interrupted ? 130 : 0;
}

}  // namespace tessera::llm
