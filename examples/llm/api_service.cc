// From a request to the texts that are asked for, each by a call of the engine.
#include "examples/llm/api_service.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "examples/llm/api_fields.h"
#include "examples/llm/choice_reader.h"
#include "examples/llm/json_line.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// The texts of one request, as they are written.
class ApiService::Answering {
 public:
  Answering(ApiService& service, const Job& job,
            const std::function<bool(const std::string&)>& tell, const std::function<bool()>& there)
      : service_(service), job_(job), tell_(tell), there_(there) {
    choices_.resize(job.prompts.size() * static_cast<size_t>(job.request.copies));
  }

  absl::StatusOr<Report> Run() {
    const double begin = Seconds();
    std::vector<std::thread> others;
    for (size_t i = 1; i < choices_.size(); ++i) {
      try {
        others.emplace_back([this, i] { Try(i); });
      } catch (const std::system_error&) {  // no more threads: one after the other
        Try(i);
      }
    }
    Try(0);
    for (std::thread& other : others) other.join();
    report_.seconds = Seconds() - begin;
    RETURN_IF_ERROR(status_);
    if (!job_.request.stream) {
      Tell(AnswerJson(job_.head, choices_, report_.usage));
    } else if (job_.request.include_usage) {
      Tell(UsagePartJson(job_.head, report_.usage));
    }
    RETURN_IF_ERROR(status_);
    return report_;
  }

 private:
  void Tell(const std::string& json) {
    if (status_.ok() && !tell_(json)) status_ = absl::CancelledError("the client is gone");
  }

  // What is new of a text; false: there is no use in going on.
  bool Add(Choice news, bool first) {
    const std::lock_guard lock(mutex_);
    Choice& all = choices_[static_cast<size_t>(news.index)];
    all.text += news.text;
    all.thought += news.thought;
    all.calls.insert(all.calls.end(), news.calls.begin(), news.calls.end());
    all.tokens.insert(all.tokens.end(), news.tokens.begin(), news.tokens.end());
    all.finish = news.finish;
    const bool nothing =
        news.text.empty() && news.thought.empty() && news.calls.empty() && news.finish.empty();
    if (service_.ending_ && status_.ok()) status_ = absl::UnavailableError("the server ends");
    if (job_.request.stream && (first || !nothing)) {
      Tell(AnswerPartJson(job_.head, news, first));
    } else if (status_.ok() && !there_()) {
      status_ = absl::CancelledError("the client is gone");
    }
    return status_.ok();
  }

  // Writes a text, of which nothing is thrown.
  void Try(size_t i) {
    absl::Status status;
    try {
      Write(i);
    } catch (const Error& e) {
      status = e.status();
    } catch (const std::exception& e) {
      status = absl::InternalError(e.what());
    }
    const std::lock_guard lock(mutex_);
    status_.Update(status);
  }

  void Write(size_t i) {
    const ApiRequest& request = job_.request;
    Choice news;
    news.index = static_cast<int64_t>(i);
    choices_[i].index = news.index;
    if (!Add(news, request.chat)) return;
    const size_t copies = static_cast<size_t>(request.copies);
    GenerateOptions options;
    options.max_tokens = request.max_tokens >= 0 ? request.max_tokens : service_.options_.context;
    options.stops = request.stops;
    options.sampler = request.sampler;
    options.sampler.seed += i % copies;
    options.grammar = request.grammar;
    options.guessing = service_.options_.guessing;
    ChoiceReader::Options reading;
    if (job_.writer) {
      options.end = job_.writer->end();
      reading.form = job_.writer->form();
      reading.thoughts = job_.thoughts;
      reading.open = job_.open;
      reading.calls = !request.tools.empty();
      reading.one_call = request.tool_choice.one;
    }
    // The engine's too, whose thread reads what comes.
    const auto reader = std::make_shared<ChoiceReader>(*service_.model_.tokenizer, reading);
    options.piece = [reader](int32_t token) { return reader->Show(token); };
    if (request.likeliest >= 0) {
      options.likeliest = request.likeliest;
      options.weighed = [reader](TokenLikelihood weighed) { reader->Weigh(std::move(weighed)); };
    }
    const auto show = [&](const std::string& text) {
      Choice more;
      more.index = news.index;
      reader->Push(text, &more);
      return Add(std::move(more), false);
    };
    const std::vector<int32_t>& prompt = job_.prompts[i / copies];
    const absl::StatusOr<Generated> g = service_.engine_.Generate(prompt, options, show);
    Finish(i, g, reader.get());
  }

  void Finish(size_t i, const absl::StatusOr<Generated>& g, ChoiceReader* reader) {
    if (!g.ok()) {
      const std::lock_guard lock(mutex_);
      status_.Update(g.status());
      return;
    }
    service_.guessed_ += g->guessed;
    service_.kept_ += g->kept;
    Choice last;
    last.index = static_cast<int64_t>(i);
    reader->Finish(&last);
    const absl::string_view reason = g->reason;
    last.finish = !last.calls.empty()                         ? "tool_calls"
                  : reason == "length" || reason == "context" ? "length"
                                                              : "stop";
    {
      const std::lock_guard lock(mutex_);
      if (reason == "interrupt" && status_.ok()) {
        status_ = absl::UnavailableError("the server ends");
      }
      if (i % static_cast<size_t>(job_.request.copies) == 0) {
        report_.usage.prompt +=
            static_cast<int64_t>(job_.prompts[i / static_cast<size_t>(job_.request.copies)].size());
        report_.usage.cached += g->reused_tokens;
      }
      report_.usage.completion += static_cast<int64_t>(g->tokens.size());
      absl::StripTrailingAsciiWhitespace(&choices_[i].thought);
      if (!status_.ok()) return;
    }
    Add(std::move(last), false);
  }

  ApiService& service_;
  const Job& job_;
  const std::function<bool(const std::string&)>& tell_;
  const std::function<bool()>& there_;
  std::mutex mutex_;  // of what follows, and of telling
  std::vector<Choice> choices_;
  Report report_;
  absl::Status status_;
};

ApiService::ApiService(Engine& engine, const Model& model, Options options)
    : engine_(engine),
      model_(model),
      options_(std::move(options)),
      writer_(ChatWriter::Make(*model.tokenizer)),
      begun_(std::time(nullptr)) {}

absl::Status ApiService::CheckTokens(absl::Span<const int32_t> tokens,
                                     const std::string& field) const {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < model_.tokenizer->size()) continue;
    return WrongField(
        field, absl::StrCat("has token ", token, ", and the model has ", model_.tokenizer->size()));
  }
  return absl::OkStatus();
}

absl::Status ApiService::EncodeChat(Job* job) const {
  ApiRequest& request = job->request;
  if (!writer_.ok()) {
    if (!model_.tokenizer->spec().chat_template.empty()) return writer_.status();
    return WrongField("model", "has no chat template: it continues texts, at /v1/completions");
  }
  ChatWriter& writer = job->writer.emplace(*writer_);
  if (!request.tools.empty()) {
    const absl::Status status = writer.SetTools(request.tools, "tools");
    if (!status.ok()) return WrongField("tools", absl::StrCat("is wrong: ", status.message()));
  }
  writer.RefuseNone();
  absl::StatusOr<std::vector<int32_t>> ids = writer.Encode(request.messages);
  for (const std::vector<Message>& reading : request.other_readings) {
    if (ids.ok()) break;
    absl::StatusOr<std::vector<int32_t>> other = writer.Encode(reading);
    if (other.ok()) ids = std::move(other);
  }
  if (!ids.ok()) return WrongField("messages", absl::StrCat("is wrong: ", ids.status().message()));
  if (writer.form() != ChatForm::kHarmony) {
    job->thoughts = ThoughtMarksOf(model_.tokenizer->spec().chat_template);
  }
  // A grammar says all of what is written, thoughts too.
  job->open = job->thoughts != nullptr && request.grammar == nullptr &&
              OpensThought(*job->thoughts, *model_.tokenizer, *ids);
  job->prompts.push_back(*std::move(ids));
  if (!request.tool_choice.required) return absl::OkStatus();
  if (writer.form() == ChatForm::kHarmony) {
    return WrongField("tool_choice", "asks for a call, which gpt-oss writes in an unknown form");
  }
  ASSIGN_OR_RETURN(request.grammar,
                   GrammarOfCalls(request.tools, request.tool_choice, job->thoughts, job->open));
  return absl::OkStatus();
}

absl::Status ApiService::EncodePrompts(Job* job) const {
  Tokenizer::Options as_text;
  as_text.markup = true;
  for (ApiRequest::Prompt& prompt : job->request.prompts) {
    if (prompt.tokens) {
      RETURN_IF_ERROR(CheckTokens(*prompt.tokens, "prompt"));
      job->prompts.push_back(*std::move(prompt.tokens));
    } else {
      job->prompts.push_back(model_.tokenizer->Encode(prompt.text, as_text));
    }
  }
  return job->prompts.empty() ? WrongField("prompt", "has no text") : absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const ApiService::Job>> ApiService::Take(absl::string_view body,
                                                                        bool chat) {
  ++requests_;
  auto job = std::make_shared<Job>();
  ASSIGN_OR_RETURN(job->request, ParseApiRequest(body, chat, options_.defaults));
  const int64_t texts =
      (chat ? 1 : static_cast<int64_t>(job->request.prompts.size())) * job->request.copies;
  places_ += texts;
  job->place = std::shared_ptr<void>(nullptr, [this, texts](void*) { places_ -= texts; });
  if (places_ > options_.slots + kMostWaiting || ending_) {
    return absl::UnavailableError(ending_ ? "the server ends"
                                          : "too many texts are waiting; ask again later");
  }
  for (const auto& [token, bias] : job->request.sampler.biases) {
    RETURN_IF_ERROR(CheckTokens({&token, 1}, "logit_bias"));
  }
  RETURN_IF_ERROR(chat ? EncodeChat(job.get()) : EncodePrompts(job.get()));
  const std::string field = chat ? "messages" : "prompt";
  for (const std::vector<int32_t>& prompt : job->prompts) {
    if (prompt.empty()) {
      return WrongField(field, "is empty, with no token to begin with");
    }
    if (static_cast<int64_t>(prompt.size()) > options_.context) {
      return WrongField(field,
                        absl::StrCat("has ", prompt.size(),
                                     " tokens, and the context has room for ", options_.context),
                        "context_length_exceeded");
    }
  }
  job->head = {.chat = chat,
               .id = NewId(chat ? "chatcmpl-" : "cmpl-"),
               .model = options_.name,
               .created = std::time(nullptr),
               .include_usage = job->request.stream && job->request.include_usage,
               .weighed = job->request.likeliest >= 0};
  return job;
}

absl::StatusOr<ApiService::Report> ApiService::Answer(
    const Job& job, const std::function<bool(const std::string&)>& tell,
    const std::function<bool()>& there) {
  absl::StatusOr<Report> report = Answering(*this, job, tell, there).Run();
  if (report.ok()) {
    prompt_tokens_ += report->usage.prompt;
    new_tokens_ += report->usage.completion;
  }
  return report;
}

std::string ApiService::Models() const {
  const std::string model = JsonLine()
                                .Text("id", options_.name)
                                .Text("object", "model")
                                .Count("created", begun_)
                                .Text("owned_by", "tessera")
                                .Count("max_model_len", options_.context)
                                .str();
  return JsonLine().Text("object", "list").Raw("data", JsonList({model})).str();
}

absl::StatusOr<std::string> ApiService::Tokenize(absl::string_view body) const {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  Tokenizer::Options options;
  options.special = false;
  options.markup = true;
  for (const auto& [field, to] :
       {std::pair("add_special", &options.special), std::pair("parse_special", &options.markup)}) {
    const std::optional<Json> flag = json.Find(field);
    if (!flag) continue;
    if (!flag->Bool()) return WrongField(field, "is neither true nor false");
    *to = *flag->Bool();
  }
  const std::optional<Json> pieces = json.Find("with_pieces"), content = json.Find("content");
  if (pieces && pieces->Bool() != false) return WrongField("with_pieces", "is not supported");
  const std::optional<std::string> text = content ? content->String() : std::nullopt;
  if (!text) return WrongField("content", content ? "is no text" : "is missing");
  return JsonLine().Ids("tokens", model_.tokenizer->Encode(*text, options)).str();
}

absl::StatusOr<std::string> ApiService::Detokenize(absl::string_view body) const {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  const std::optional<Json> list = json.Find("tokens");
  if (!list) return WrongField("tokens", "is missing");
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, TokensOf(*list, "tokens"));
  RETURN_IF_ERROR(CheckTokens(tokens, "tokens"));
  std::string text;
  for (const int32_t token : tokens) text += model_.tokenizer->Piece(token);
  return JsonLine().Text("content", text).str();
}

std::string ApiService::Metrics() const {
  const Engine::Load load = engine_.load();
  std::string out;
  const auto add = [&out](const char* name, const char* type, int64_t value) {
    absl::StrAppend(&out, "# TYPE tessera_llm_", name, " ", type, "\ntessera_llm_", name, " ",
                    value, "\n");
  };
  add("requests_total", "counter", requests_);
  add("prompt_tokens_total", "counter", prompt_tokens_);
  add("new_tokens_total", "counter", new_tokens_);
  add("guessed_tokens_total", "counter", guessed_);
  add("kept_guesses_total", "counter", kept_);
  add("texts_running", "gauge", load.running);
  add("texts_waiting", "gauge", load.waiting);
  return out;
}

}  // namespace tessera::llm
