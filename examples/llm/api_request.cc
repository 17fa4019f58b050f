// Reading requests: a table of the fields that are known.
#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "examples/llm/api.h"
#include "examples/llm/api_fields.h"
#include "examples/llm/json_schema.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr int64_t kCompletionTokens = 16;  // OpenAI's

// Where each part of a request goes until all of it is known.
struct Draft {
  ApiRequest request;
  std::optional<int64_t> max_tokens, max_completion_tokens, top_logprobs;
  std::optional<Json> messages, tools;
  bool prompted = false, seeded = false, logprobs = false;
};

absl::Status NotSupported(const std::string& field) {
  return WrongField(field, "is not supported; leave it out", "unsupported_parameter");
}

bool IsNothing(const Json& v) {
  const absl::string_view text = v.text();
  return text == "null" || text == "false" || text == "\"\"" || v.Number() == 0.0 ||
         ((v.is(Json::Type::kArray) || v.is(Json::Type::kObject)) &&
          !(v.Items().begin() != v.Items().end()));
}

absl::Status RefuseUnlessNothing(Draft&, const std::string& field, const Json& v) {
  return IsNothing(v) ? absl::OkStatus() : NotSupported(field);
}

absl::Status KeepTo(Draft& d, const std::string& field,
                    absl::StatusOr<std::shared_ptr<const Grammar>> grammar) {
  if (!grammar.ok()) return WrongField(field, absl::StrCat("is ", grammar.status().message()));
  if (d.request.grammar != nullptr) {
    return WrongField(field, "is another form than one that is given beside it; leave one out");
  }
  d.request.grammar = *std::move(grammar);
  return absl::OkStatus();
}

// What an answer has to look like.
absl::Status ReadResponseFormat(Draft& d, const std::string& field, const Json& v) {
  const std::optional<Json> type = v.is(Json::Type::kObject) ? v.Find("type") : std::nullopt;
  const std::string form = type ? type->String().value_or("") : "";
  if (form == "text") return absl::OkStatus();
  if (form == "json_object") {
    const std::optional<Json> schema = v.Find("schema");  // as llama-server has it
    const bool given = schema && !schema->is(Json::Type::kNull);
    return KeepTo(d, field, GrammarOfJsonSchema(given ? schema->text() : "{}", "wrong"));
  }
  if (form != "json_schema") {
    return WrongField(field, "has no type of \"text\", \"json_object\" and \"json_schema\"");
  }
  const std::optional<Json> named = v.Find("json_schema");
  const std::optional<Json> schema =
      named && named->is(Json::Type::kObject) ? named->Find("schema") : std::nullopt;
  const std::string place = field + ".json_schema.schema";
  if (!schema) return WrongField(place, "is missing");
  return KeepTo(d, place, GrammarOfJsonSchema(schema->text(), "wrong"));
}

absl::Status ReadFlag(const std::string& field, const Json& v, bool* to) {
  const std::optional<bool> flag = v.Bool();
  if (!flag) return WrongValue(field, v, "true or false");
  *to = *flag;
  return absl::OkStatus();
}

absl::Status ReadCount(const std::string& field, const Json& v, int64_t least, int64_t most,
                       int64_t* to) {
  std::optional<int64_t> n = v.Int();
  if (const std::optional<double> d = v.Number(); !n && d && *d == std::floor(*d)) {
    if (std::abs(*d) <= static_cast<double>(most)) n = static_cast<int64_t>(*d);  // 8.0
  }
  if (!n || *n < least || *n > most) {
    return WrongValue(field, v, absl::StrCat("a whole number from ", least, " to ", most));
  }
  *to = *n;
  return absl::OkStatus();
}

// The sampler's own check says what it may be.
absl::Status ReadNumber(Draft& d, const std::string& field, const Json& v,
                        double SamplerOptions::*to) {
  const std::optional<double> number = v.Number();
  if (!number) return WrongValue(field, v, "a number that a double holds");
  SamplerOptions alone;
  alone.*to = *number;
  if (const absl::Status status = CheckSampler(alone); !status.ok()) {
    const absl::string_view why = status.message();
    return WrongField(field, why.substr(why.find(' ') + 1));
  }
  d.request.sampler.*to = *number;
  return absl::OkStatus();
}

// The object of OpenAI's, from ids of tokens to biases.
absl::Status ReadBiases(Draft& d, const std::string& field, const Json& v) {
  if (!v.is(Json::Type::kObject)) return WrongValue(field, v, "an object from ids to numbers");
  auto& biases = d.request.sampler.biases;
  biases.clear();
  for (const JsonItem item : v.Items()) {
    auto& [token, bias] = biases.emplace_back();
    const std::string key = item.key(), at = absl::StrCat(field, "[\"", key, "\"]");
    if (!absl::SimpleAtoi(key, &token) || token < 0) return WrongField(at, "is no id of a token");
    const std::optional<double> number = item.value().Number();
    if (!number || !(*number >= -100) || *number > 100) {
      return WrongValue(at, item.value(), "a number from -100 to 100");
    }
    bias = *number;
  }
  return absl::OkStatus();
}

absl::Status ReadStops(Draft& d, const std::string& field, const Json& v) {
  constexpr size_t kMostStops = 32;
  std::vector<std::string>& stops = d.request.stops;
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

absl::Status ReadPrompt(Draft& d, const std::string& field, const Json& v) {
  std::vector<ApiRequest::Prompt>& prompts = d.request.prompts;
  d.prompted = true;
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

// Of chats whether, of completions how many.
absl::Status ReadLogprobs(Draft& d, const std::string& field, const Json& v) {
  if (!d.request.chat) return ReadCount(field, v, 0, 5, &d.request.likeliest);
  return ReadFlag(field, v, &d.logprobs);
}

struct Field {
  const char* name;
  absl::Status (*read)(Draft& d, const std::string& field, const Json& v);
};
constexpr int64_t kMost = int64_t{1} << 31;
constexpr Field kFields[] = {
    {"messages",
     [](Draft& d, const std::string&, const Json& v) {
       d.messages = v;
       return absl::OkStatus();
     }},
    {"prompt", ReadPrompt},
    {"tools",
     [](Draft& d, const std::string&, const Json& v) {
       d.tools = v;
       return absl::OkStatus();
     }},
    {"tool_choice", [](Draft& d, const std::string& field,
                       const Json& v) { return ReadToolChoice(field, v, &d.request.tool_choice); }},
    {"parallel_tool_calls",
     [](Draft& d, const std::string& field, const Json& v) {
       bool several = true;
       RETURN_IF_ERROR(ReadFlag(field, v, &several));
       d.request.tool_choice.one = !several;
       return absl::OkStatus();
     }},
    {"max_tokens",
     [](Draft& d, const std::string& field, const Json& v) {
       return ReadCount(field, v, 1, kMost, &d.max_tokens.emplace());
     }},
    {"max_completion_tokens",
     [](Draft& d, const std::string& field, const Json& v) {
       return ReadCount(field, v, 1, kMost, &d.max_completion_tokens.emplace());
     }},
    {"n", [](Draft& d, const std::string& field,
             const Json& v) { return ReadCount(field, v, 1, kMostTexts, &d.request.copies); }},
    {"stop", ReadStops},
    {"temperature",
     [](Draft& d, const std::string& field, const Json& v) {
       return ReadNumber(d, field, v, &SamplerOptions::temperature);
     }},
    {"top_p", [](Draft& d, const std::string& field,
                 const Json& v) { return ReadNumber(d, field, v, &SamplerOptions::top_p); }},
    {"min_p", [](Draft& d, const std::string& field,
                 const Json& v) { return ReadNumber(d, field, v, &SamplerOptions::min_p); }},
    {"typical_p",
     [](Draft& d, const std::string& field, const Json& v) {
       return ReadNumber(d, field, v, &SamplerOptions::typical_p);
     }},
    {"presence_penalty",
     [](Draft& d, const std::string& field, const Json& v) {
       return ReadNumber(d, field, v, &SamplerOptions::presence_penalty);
     }},
    {"frequency_penalty",
     [](Draft& d, const std::string& field, const Json& v) {
       return ReadNumber(d, field, v, &SamplerOptions::frequency_penalty);
     }},
    {"repeat_last_n",
     [](Draft& d, const std::string& field, const Json& v) {
       return ReadCount(field, v, -1, kMost, &d.request.sampler.repeat_last);
     }},
    {"repeat_penalty",
     [](Draft& d, const std::string& field, const Json& v) {
       return ReadNumber(d, field, v, &SamplerOptions::repeat_penalty);
     }},
    {"top_k",
     [](Draft& d, const std::string& field, const Json& v) {
       RETURN_IF_ERROR(ReadCount(field, v, -1, kMost, &d.request.sampler.top_k));
       d.request.sampler.top_k = std::max<int64_t>(d.request.sampler.top_k, 0);  // -1: all, too
       return absl::OkStatus();
     }},
    {"seed",
     [](Draft& d, const std::string& field, const Json& v) {
       const std::optional<int64_t> seed = v.Int();
       if (!seed) return WrongValue(field, v, "a whole number of 64 bits");
       d.request.sampler.seed = static_cast<uint64_t>(*seed);
       d.seeded = true;
       return absl::OkStatus();
     }},
    {"stream", [](Draft& d, const std::string& field,
                  const Json& v) { return ReadFlag(field, v, &d.request.stream); }},
    {"stream_options",
     [](Draft& d, const std::string& field, const Json& v) {
       if (!v.is(Json::Type::kObject)) return WrongValue(field, v, "an object");
       const std::optional<Json> usage = v.Find("include_usage");
       if (!usage || usage->is(Json::Type::kNull)) return absl::OkStatus();
       return ReadFlag(field + ".include_usage", *usage, &d.request.include_usage);
     }},
    {"response_format", ReadResponseFormat},
    {"logprobs", ReadLogprobs},
    {"top_logprobs",
     [](Draft& d, const std::string& field, const Json& v) {
       return ReadCount(field, v, 0, 20, &d.top_logprobs.emplace());
     }},
    {"best_of",
     [](Draft&, const std::string& field, const Json& v) {
       return v.Int() == 1 ? absl::OkStatus() : NotSupported(field);
     }},
    {"modalities",
     [](Draft&, const std::string& field, const Json& v) {
       return v.text() == "[\"text\"]" ? absl::OkStatus() : NotSupported(field);
     }},
    {"logit_bias", ReadBiases},
    {"repetition_penalty",
     [](Draft& d, const std::string& field, const Json& v) {
       return ReadNumber(d, field, v, &SamplerOptions::repeat_penalty);
     }},
    {"functions", RefuseUnlessNothing},
    {"echo", RefuseUnlessNothing},
    {"suffix", RefuseUnlessNothing},
    {"grammar",
     [](Draft& d, const std::string& field, const Json& v) {
       if (IsNothing(v)) return absl::OkStatus();
       const std::optional<std::string> text = v.String();
       if (!text) return WrongValue(field, v, "a text in GBNF");
       return KeepTo(d, field, ParseGrammar(*text, "wrong"));
     }},
    {"json_schema",
     [](Draft& d, const std::string& field, const Json& v) {
       if (v.is(Json::Type::kNull)) return absl::OkStatus();
       return KeepTo(d, field, GrammarOfJsonSchema(v.text(), "wrong"));
     }},
    {"audio", RefuseUnlessNothing},
    // Of other servers: what they say would change the answer.
    {"function_call", RefuseUnlessNothing},
    {"reasoning_effort", RefuseUnlessNothing},
    {"verbosity", RefuseUnlessNothing},
    {"chat_template_kwargs", RefuseUnlessNothing},
    {"continue_final_message", RefuseUnlessNothing},
    {"add_generation_prompt",
     [](Draft&, const std::string& field, const Json& v) {
       return v.Bool() == true ? absl::OkStatus() : NotSupported(field);
     }},
    {"min_tokens", RefuseUnlessNothing},
    {"ignore_eos", RefuseUnlessNothing},
    {"stop_token_ids", RefuseUnlessNothing},
    {"bad_words", RefuseUnlessNothing},
    {"guided_json", RefuseUnlessNothing},
    {"guided_regex", RefuseUnlessNothing},
    {"guided_choice", RefuseUnlessNothing},
    {"guided_grammar", RefuseUnlessNothing},
    {"structured_outputs", RefuseUnlessNothing},
    {"mirostat", RefuseUnlessNothing},
    {"dry_multiplier", RefuseUnlessNothing},
    {"xtc_probability", RefuseUnlessNothing},
    {"n_predict",
     [](Draft& d, const std::string& field, const Json& v) {
       if (v.Int() == -1) return absl::OkStatus();
       return ReadCount(field, v, 1, kMost, &d.max_tokens.emplace());
     }},
};

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
  Draft d;
  ApiRequest& request = d.request;
  request.chat = chat;
  request.stops = defaults.stops;
  request.sampler = defaults.sampler;
  for (const JsonItem item : json.Items()) {
    if (item.value().is(Json::Type::kNull)) continue;
    const std::string key = item.key();
    for (const Field& field : kFields) {
      if (key == field.name) RETURN_IF_ERROR(field.read(d, key, item.value()));
    }
  }
  if (chat) {
    if (!d.messages) return WrongField("messages", "is missing");
    RETURN_IF_ERROR(ReadMessages(*d.messages, &request));
    if (d.tools) RETURN_IF_ERROR(ReadTools(*d.tools, &request.tools));
    if (request.tool_choice.none) request.tools.clear();
    if (request.tool_choice.required) {
      if (request.grammar != nullptr) {
        return WrongField("tool_choice", "asks for a call, and another field for another form");
      }
      if (request.tools.empty()) {
        return WrongField("tool_choice", "asks for a call, and there are no tools");
      }
    }
    request.prompts.clear();
    if (d.logprobs) request.likeliest = d.top_logprobs.value_or(0);
    if (d.top_logprobs && !d.logprobs) {
      return WrongField("top_logprobs", "goes with logprobs: true");
    }
  } else if (!d.prompted) {
    return WrongField("prompt", "is missing");
  } else if (static_cast<int64_t>(request.prompts.size()) * request.copies > kMostTexts) {
    return WrongField("n", absl::StrCat("asks for more than ", kMostTexts, " texts in all"));
  }
  request.max_tokens = d.max_completion_tokens            ? *d.max_completion_tokens
                       : d.max_tokens                     ? *d.max_tokens
                       : chat || defaults.max_tokens >= 0 ? defaults.max_tokens
                                                          : kCompletionTokens;
  if (!d.seeded && request.sampler.seed == 0) request.sampler.seed = RandomSeed();
  return std::move(d.request);
}

}  // namespace tessera::llm
