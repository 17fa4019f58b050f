// Reading requests: a table of the fields that are known, and the messages as templates want them.
#include <algorithm>
#include <map>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "examples/llm/api.h"
#include "examples/llm/chat_writer.h"
#include "examples/llm/json_line.h"
#include "examples/llm/json_schema.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr int64_t kCompletionTokens = 16;  // OpenAI's

// Where each part of a request goes until all of it is known.
struct Parts {
  ApiRequest request;
  std::optional<int64_t> max_tokens, max_completion_tokens;
  std::optional<Json> messages, tools;
  bool calls = true;  // tools may be called
  bool prompted = false, seeded = false;
};

// "temperature is "hot"; it is a number"
absl::Status WrongValue(const std::string& field, const Json& v, absl::string_view allowed) {
  constexpr size_t kShown = 40;
  std::string shown(v.text().substr(0, kShown));
  if (v.text().size() > kShown) shown += "...";  // a character that is cut is told as U+FFFD
  return WrongField(field, absl::StrCat("is ", shown, "; it is ", allowed));
}

absl::Status NotSupported(const std::string& field) {
  return WrongField(field, "is not supported; leave it out", "unsupported_parameter");
}

bool IsNothing(const Json& v) {
  const absl::string_view text = v.text();
  return text == "null" || text == "false" || text == "\"\"" || v.Number() == 0.0 ||
         ((v.is(Json::Type::kArray) || v.is(Json::Type::kObject)) &&
          !(v.Items().begin() != v.Items().end()));
}

absl::Status RefuseUnlessNothing(Parts&, const std::string& field, const Json& v) {
  return IsNothing(v) ? absl::OkStatus() : NotSupported(field);
}

absl::Status KeepTo(Parts& p, const std::string& field,
                    absl::StatusOr<std::shared_ptr<const Grammar>> grammar) {
  if (!grammar.ok()) return WrongField(field, absl::StrCat("is ", grammar.status().message()));
  if (p.request.grammar != nullptr) {
    return WrongField(field, "is another form than one that is given beside it; leave one out");
  }
  p.request.grammar = *std::move(grammar);
  return absl::OkStatus();
}

// What an answer has to look like.
absl::Status ReadResponseFormat(Parts& p, const std::string& field, const Json& v) {
  const std::optional<Json> type = v.is(Json::Type::kObject) ? v.Find("type") : std::nullopt;
  const std::string form = type ? type->String().value_or("") : "";
  if (form == "text") return absl::OkStatus();
  if (form == "json_object") return KeepTo(p, field, GrammarOfJsonSchema("{}", "wrong"));
  if (form != "json_schema") {
    return WrongField(field, "has no type of \"text\", \"json_object\" and \"json_schema\"");
  }
  const std::optional<Json> named = v.Find("json_schema");
  const std::optional<Json> schema =
      named && named->is(Json::Type::kObject) ? named->Find("schema") : std::nullopt;
  const std::string place = field + ".json_schema.schema";
  if (!schema) return WrongField(place, "is missing");
  return KeepTo(p, place, GrammarOfJsonSchema(schema->text(), "wrong"));
}

absl::Status ReadFlag(const std::string& field, const Json& v, bool* to) {
  const std::optional<bool> flag = v.Bool();
  if (!flag) return WrongValue(field, v, "true or false");
  *to = *flag;
  return absl::OkStatus();
}

absl::Status ReadCount(const std::string& field, const Json& v, int64_t least, int64_t most,
                       int64_t* to) {
  const std::optional<int64_t> n = v.Int();
  if (!n || *n < least || *n > most) {
    return WrongValue(field, v, absl::StrCat("a whole number from ", least, " to ", most));
  }
  *to = *n;
  return absl::OkStatus();
}

// The sampler's own check says what it may be.
absl::Status ReadNumber(Parts& p, const std::string& field, const Json& v,
                        double SamplerOptions::*to) {
  const std::optional<double> number = v.Number();
  if (!number) return WrongValue(field, v, "a number that a double holds");
  SamplerOptions alone;
  alone.*to = *number;
  if (const absl::Status status = CheckSampler(alone); !status.ok()) {
    const absl::string_view why = status.message();
    return WrongField(field, why.substr(why.find(' ') + 1));
  }
  p.request.sampler.*to = *number;
  return absl::OkStatus();
}

absl::Status ReadStops(Parts& p, const std::string& field, const Json& v) {
  constexpr size_t kMostStops = 32;
  std::vector<std::string>& stops = p.request.stops;
  stops.clear();
  const auto add = [&](const Json& text) {
    const std::optional<std::string> stop = text.String();
    if (!stop || stop->empty()) return false;
    stops.push_back(*stop);
    return true;
  };
  bool right = true;
  if (v.is(Json::Type::kArray)) {
    for (const JsonItem item : v.Items()) right = right && add(item.value());
  } else {
    right = add(v);
  }
  if (right && stops.size() <= kMostStops) return absl::OkStatus();
  return WrongValue(
      field, v,
      absl::StrCat("a text, or a list of at most ", kMostStops, " texts, none of them empty"));
}

absl::Status ReadPrompt(Parts& p, const std::string& field, const Json& v) {
  std::vector<ApiRequest::Prompt>& prompts = p.request.prompts;
  p.prompted = true;
  if (const std::optional<std::string> text = v.String()) {
    prompts.push_back({*text, {}});
    return absl::OkStatus();
  }
  if (!v.is(Json::Type::kArray)) return WrongValue(field, v, "a text, tokens, or a list of these");
  const Json::Range items = v.Items();
  if (!(items.begin() != items.end()) || (*items.begin()).value().is(Json::Type::kNumber)) {
    ASSIGN_OR_RETURN(std::vector<int32_t> tokens, TokensOf(v, field));
    prompts.push_back({"", std::move(tokens)});
    return absl::OkStatus();
  }
  for (const JsonItem item : items) {
    if (static_cast<int64_t>(prompts.size()) == kMostTexts) {
      return WrongField(field, absl::StrCat("has more than ", kMostTexts, " texts"));
    }
    ApiRequest::Prompt& prompt = prompts.emplace_back();
    if (const std::optional<std::string> text = item.value().String()) {
      prompt.text = *text;
    } else {
      ASSIGN_OR_RETURN(prompt.tokens, TokensOf(item.value(), field));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadToolChoice(Parts& p, const std::string& field, const Json& v) {
  const std::string choice = v.String().value_or("");
  p.calls = choice != "none";
  if (choice == "none" || choice == "auto") return absl::OkStatus();
  return WrongField(field, "is neither \"auto\" nor \"none\": no call can be required",
                    "unsupported_parameter");
}

struct Field {
  const char* name;
  absl::Status (*read)(Parts& p, const std::string& field, const Json& v);
};
constexpr int64_t kMost = int64_t{1} << 31;
constexpr Field kFields[] = {
    {"messages",
     [](Parts& p, const std::string&, const Json& v) {
       p.messages = v;
       return absl::OkStatus();
     }},
    {"prompt", ReadPrompt},
    {"tools",
     [](Parts& p, const std::string&, const Json& v) {
       p.tools = v;
       return absl::OkStatus();
     }},
    {"tool_choice", ReadToolChoice},
    {"max_tokens",
     [](Parts& p, const std::string& field, const Json& v) {
       return ReadCount(field, v, 1, kMost, &p.max_tokens.emplace());
     }},
    {"max_completion_tokens",
     [](Parts& p, const std::string& field, const Json& v) {
       return ReadCount(field, v, 1, kMost, &p.max_completion_tokens.emplace());
     }},
    {"n", [](Parts& p, const std::string& field,
             const Json& v) { return ReadCount(field, v, 1, kMostTexts, &p.request.copies); }},
    {"stop", ReadStops},
    {"temperature",
     [](Parts& p, const std::string& field, const Json& v) {
       return ReadNumber(p, field, v, &SamplerOptions::temperature);
     }},
    {"top_p", [](Parts& p, const std::string& field,
                 const Json& v) { return ReadNumber(p, field, v, &SamplerOptions::top_p); }},
    {"min_p", [](Parts& p, const std::string& field,
                 const Json& v) { return ReadNumber(p, field, v, &SamplerOptions::min_p); }},
    {"repeat_penalty",
     [](Parts& p, const std::string& field, const Json& v) {
       return ReadNumber(p, field, v, &SamplerOptions::repeat_penalty);
     }},
    {"top_k",
     [](Parts& p, const std::string& field, const Json& v) {
       RETURN_IF_ERROR(ReadCount(field, v, -1, kMost, &p.request.sampler.top_k));
       p.request.sampler.top_k = std::max<int64_t>(p.request.sampler.top_k, 0);  // -1: all, too
       return absl::OkStatus();
     }},
    {"seed",
     [](Parts& p, const std::string& field, const Json& v) {
       const std::optional<int64_t> seed = v.Int();
       if (!seed) return WrongValue(field, v, "a whole number of 64 bits");
       p.request.sampler.seed = static_cast<uint64_t>(*seed);
       p.seeded = true;
       return absl::OkStatus();
     }},
    {"stream", [](Parts& p, const std::string& field,
                  const Json& v) { return ReadFlag(field, v, &p.request.stream); }},
    {"stream_options",
     [](Parts& p, const std::string& field, const Json& v) {
       if (!v.is(Json::Type::kObject)) return WrongValue(field, v, "an object");
       const std::optional<Json> usage = v.Find("include_usage");
       if (!usage || usage->is(Json::Type::kNull)) return absl::OkStatus();
       return ReadFlag(field + ".include_usage", *usage, &p.request.include_usage);
     }},
    {"response_format", ReadResponseFormat},
    {"logprobs",
     [](Parts&, const std::string& field, const Json& v) {
       return v.Bool() == false ? absl::OkStatus() : NotSupported(field);
     }},
    {"best_of",
     [](Parts&, const std::string& field, const Json& v) {
       return v.Int() == 1 ? absl::OkStatus() : NotSupported(field);
     }},
    {"modalities",
     [](Parts&, const std::string& field, const Json& v) {
       return v.text() == "[\"text\"]" ? absl::OkStatus() : NotSupported(field);
     }},
    {"top_logprobs", RefuseUnlessNothing},
    {"logit_bias", RefuseUnlessNothing},
    {"presence_penalty", RefuseUnlessNothing},
    {"frequency_penalty", RefuseUnlessNothing},
    {"repetition_penalty",
     [](Parts& p, const std::string& field, const Json& v) {
       return ReadNumber(p, field, v, &SamplerOptions::repeat_penalty);
     }},
    {"functions", RefuseUnlessNothing},
    {"echo", RefuseUnlessNothing},
    {"suffix", RefuseUnlessNothing},
    {"grammar",
     [](Parts& p, const std::string& field, const Json& v) {
       if (IsNothing(v)) return absl::OkStatus();
       const std::optional<std::string> text = v.String();
       if (!text) return WrongValue(field, v, "a text in GBNF");
       return KeepTo(p, field, ParseGrammar(*text, "wrong"));
     }},
    {"json_schema",
     [](Parts& p, const std::string& field, const Json& v) {
       if (v.is(Json::Type::kNull)) return absl::OkStatus();
       return KeepTo(p, field, GrammarOfJsonSchema(v.text(), "wrong"));
     }},
    {"audio", RefuseUnlessNothing},
};

// An object again, with other values for some of its keys.
std::string Rewritten(const Json& object, const std::map<std::string, std::string>& others) {
  std::vector<std::string> members;
  for (const JsonItem item : object.Items()) {
    const std::string key = item.key();
    const auto other = others.find(key);
    members.push_back(absl::StrCat(JsonString(key), ":",
                                   other == others.end() ? item.value().text() : other->second));
  }
  return absl::StrCat("{", absl::StrJoin(members, ","), "}");
}

// A list of parts as one text.
absl::StatusOr<std::string> TextOfParts(const Json& parts, const std::string& field) {
  std::string out;
  int i = 0;
  for (const JsonItem item : parts.Items()) {
    const std::string at = absl::StrCat(field, "[", i++, "]");
    const bool object = item.value().is(Json::Type::kObject);
    const std::optional<Json> type = object ? item.value().Find("type") : std::nullopt;
    const std::optional<Json> text = object ? item.value().Find("text") : std::nullopt;
    const std::string is = type ? type->String().value_or("") : "";
    if (is != "text") return WrongField(at, "has a type that is not read: parts are of type text");
    if (!text || !text->is(Json::Type::kString)) return WrongField(at, "has no text");
    out += *text->String();
  }
  return out;
}

// Calls with their arguments as objects; `changed` says whether any was a text.
absl::StatusOr<std::string> CallsWithObjects(const Json& calls, const std::string& field,
                                             bool* changed) {
  if (!calls.is(Json::Type::kArray)) return WrongValue(field, calls, "a list of calls");
  std::vector<std::string> out;
  for (const JsonItem item : calls.Items()) {
    const Json& call = item.value();
    const std::optional<Json> function =
        call.is(Json::Type::kObject) ? call.Find("function") : std::nullopt;
    const std::optional<Json> name =
        function && function->is(Json::Type::kObject) ? function->Find("name") : std::nullopt;
    if (!name || !name->is(Json::Type::kString)) {
      return WrongField(absl::StrCat(field, "[", out.size(), "]"), "has no function with a name");
    }
    const std::optional<Json> arguments = function->Find("arguments");
    const std::string text = arguments ? arguments->String().value_or("") : "";
    const absl::StatusOr<Json> object = Json::Parse(text, "");
    if (object.ok() && object->is(Json::Type::kObject)) {
      *changed = true;
      out.push_back(Rewritten(call, {{"function", Rewritten(*function, {{"arguments", text}})}}));
    } else {
      out.emplace_back(call.text());
    }
  }
  return JsonList(out);
}

absl::StatusOr<std::vector<Message>> MessagesOf(absl::Span<const std::string> objects) {
  const absl::StatusOr<std::vector<Message>> out = MessagesOfJson(JsonList(objects), "messages");
  if (!out.ok()) return WrongField("messages", absl::StrCat("is wrong: ", out.status().message()));
  return out;
}

absl::Status ReadMessages(const Json& json, ApiRequest* request) {
  if (!json.is(Json::Type::kArray)) return WrongValue("messages", json, "a list of messages");
  std::vector<std::string> with_objects, as_told;
  bool changed = false;
  for (const JsonItem item : json.Items()) {
    const Json& message = item.value();
    const std::string field = absl::StrCat("messages[", as_told.size(), "]");
    if (!message.is(Json::Type::kObject)) return WrongValue(field, message, "an object");
    std::map<std::string, std::string> others;
    const std::optional<Json> content = message.Find("content"), calls = message.Find("tool_calls");
    const bool called = calls && !calls->is(Json::Type::kNull);
    if (content && content->is(Json::Type::kArray)) {
      ASSIGN_OR_RETURN(const std::string text, TextOfParts(*content, field + ".content"));
      others["content"] = JsonString(text);
    } else if (!content || content->is(Json::Type::kNull)) {
      if (!called) return WrongField(field + ".content", "is missing");
    } else if (!content->is(Json::Type::kString)) {
      return WrongValue(field + ".content", *content, "a text, or a list of parts of type text");
    }
    as_told.push_back(Rewritten(message, others));
    if (called) {
      ASSIGN_OR_RETURN(others["tool_calls"],
                       CallsWithObjects(*calls, field + ".tool_calls", &changed));
    }
    with_objects.push_back(Rewritten(message, others));
  }
  if (as_told.empty()) return WrongField("messages", "has no message");
  ASSIGN_OR_RETURN(request->messages, MessagesOf(with_objects));
  if (changed) {
    ASSIGN_OR_RETURN(request->as_told, MessagesOf(as_told));
  }
  return absl::OkStatus();
}

absl::Status ReadTools(const Json& json, std::string* to) {
  if (!json.is(Json::Type::kArray)) return WrongValue("tools", json, "a list of functions");
  int i = 0;
  for (const JsonItem item : json.Items()) {
    const Json& tool = item.value();
    const bool object = tool.is(Json::Type::kObject);
    const std::optional<Json> type = object ? tool.Find("type") : std::nullopt;
    const std::optional<Json> function = object ? tool.Find("function") : std::nullopt;
    const std::optional<Json> name =
        function && function->is(Json::Type::kObject) ? function->Find("name") : std::nullopt;
    if (!type || type->String() != "function" || !name || !name->is(Json::Type::kString)) {
      return WrongField(absl::StrCat("tools[", i, "]"),
                        "is no {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    ++i;
  }
  if (i > 0) *to = std::string(json.text());
  return absl::OkStatus();
}

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

absl::StatusOr<Json> ParseBody(absl::string_view body) {
  const absl::StatusOr<Json> json = Json::Parse(body, "the body");
  if (!json.ok()) return absl::InvalidArgumentError(json.status().message());
  if (!json->is(Json::Type::kObject)) {
    return absl::InvalidArgumentError("the body is no JSON object");
  }
  return json;
}

absl::StatusOr<std::vector<int32_t>> TokensOf(const Json& json, const std::string& field) {
  const auto wrong = [&] { return WrongField(field, "is no list of tokens"); };
  if (!json.is(Json::Type::kArray)) return wrong();
  std::vector<int32_t> out;
  for (const JsonItem item : json.Items()) {
    const std::optional<int64_t> id = item.value().Int();
    if (!id || *id < 0 || *id > INT32_MAX) return wrong();
    out.push_back(static_cast<int32_t>(*id));
  }
  return out;
}

absl::StatusOr<ApiRequest> ParseApiRequest(absl::string_view body, bool chat,
                                           const ApiDefaults& defaults) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  Parts p;
  ApiRequest& request = p.request;
  request.chat = chat;
  request.stops = defaults.stops;
  request.sampler = defaults.sampler;
  for (const JsonItem item : json.Items()) {
    if (item.value().is(Json::Type::kNull)) continue;
    const std::string key = item.key();
    for (const Field& field : kFields) {
      if (key == field.name) RETURN_IF_ERROR(field.read(p, key, item.value()));
    }
  }
  if (chat) {
    if (!p.messages) return WrongField("messages", "is missing");
    RETURN_IF_ERROR(ReadMessages(*p.messages, &request));
    if (p.tools) RETURN_IF_ERROR(ReadTools(*p.tools, &request.tools));
    if (!p.calls) request.tools.clear();
    request.prompts.clear();
  } else if (!p.prompted) {
    return WrongField("prompt", "is missing");
  } else if (static_cast<int64_t>(request.prompts.size()) * request.copies > kMostTexts) {
    return WrongField("n", absl::StrCat("asks for more than ", kMostTexts, " texts in all"));
  }
  request.max_tokens = p.max_completion_tokens            ? *p.max_completion_tokens
                       : p.max_tokens                     ? *p.max_tokens
                       : chat || defaults.max_tokens >= 0 ? defaults.max_tokens
                                                          : kCompletionTokens;
  if (!p.seeded && request.sampler.seed == 0) request.sampler.seed = RandomSeed();
  return std::move(p.request);
}

}  // namespace tessera::llm
