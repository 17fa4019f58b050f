// Parsing the command line.
#include "examples/llm/command.h"

#include <iostream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "examples/llm/json_schema.h"
#include "graph/status.h"
#include "runtime/mapped_file.h"

namespace tessera::llm {

std::atomic<bool> interrupted{false};

namespace {

struct Option {
  const char* name;
  const char* value;  // its value's name, or ""
  const char* meaning;
  bool (*set)(Command& c, const std::string& v);  // false: the value is wrong
};

template <Command::Mode mode>
bool SetMode(Command& c, const std::string&) {
  c.mode = mode;
  return true;
}
bool Double(const std::string& v, double* to) { return absl::SimpleAtod(v, to); }
bool Int(const std::string& v, int64_t* to) { return absl::SimpleAtoi(v, to); }

// ID+BIAS or ID-BIAS.
bool AddBias(Command& c, const std::string& v) {
  const size_t sign = v.find_first_of("+-");
  if (sign == std::string::npos) return false;
  auto& [token, bias] = c.sampler.biases.emplace_back();
  return absl::SimpleAtoi(v.substr(0, sign), &token) && Double(v.substr(sign), &bias);
}

// [HOST:]PORT, where a host with colons stands in brackets.
bool SetAddress(Command& c, const std::string& v) {
  c.mode = Command::Mode::kServe;
  const size_t colon = v.rfind(':');
  if (colon != std::string::npos) {
    c.host = v.substr(0, colon);
    const bool brackets = c.host.size() >= 2 && c.host.front() == '[' && c.host.back() == ']';
    if (brackets) c.host = c.host.substr(1, c.host.size() - 2);
    if (c.host.empty() || (!brackets && c.host.find(':') != std::string::npos)) return false;
  }
  return Int(v.substr(colon + 1), &c.port) && c.port >= 0 && c.port <= 65535;
}

constexpr Option kOptions[] = {
    {"--model", "FILE|DIR", "a GGUF file, or a folder with config.json and safetensors",
     [](Command& c, const std::string& v) { return c.model = v, true; }},
    {"--prompt", "TEXT", "what to continue; - or none: stdin",
     [](Command& c, const std::string& v) {
       c.prompt = v;
       c.prompt_given = v != "-";
       return true;
     }},
    {"--max-tokens", "N",
     "new tokens; without it a text ends at 256 with its prompt, or 128 after a long one",
     [](Command& c, const std::string& v) { return Int(v, &c.max_tokens) && c.max_tokens >= 0; }},
    {"--temperature", "T", "0 (the default): always the likeliest token",
     [](Command& c, const std::string& v) { return Double(v, &c.sampler.temperature); }},
    {"--top-k", "K", "only the K likeliest tokens; 0: all",
     [](Command& c, const std::string& v) { return Int(v, &c.sampler.top_k); }},
    {"--typical-p", "P", "only the fewest tokens nearest to the usual surprise that reach P",
     [](Command& c, const std::string& v) { return Double(v, &c.sampler.typical_p); }},
    {"--top-p", "P", "only the fewest tokens that reach probability P",
     [](Command& c, const std::string& v) { return Double(v, &c.sampler.top_p); }},
    {"--min-p", "M", "only tokens with M times the likeliest one's probability",
     [](Command& c, const std::string& v) { return Double(v, &c.sampler.min_p); }},
    {"--repeat-penalty", "R", "above 1: recent tokens become less likely",
     [](Command& c, const std::string& v) { return Double(v, &c.sampler.repeat_penalty); }},
    {"--repeat-last-n", "N", "how many tokens are recent; 64; -1: all, with the prompt",
     [](Command& c, const std::string& v) { return Int(v, &c.sampler.repeat_last); }},
    {"--presence-penalty", "P", "taken from the logits of tokens that were written, from -2 to 2",
     [](Command& c, const std::string& v) { return Double(v, &c.sampler.presence_penalty); }},
    {"--frequency-penalty", "P", "the same for each time that they were",
     [](Command& c, const std::string& v) { return Double(v, &c.sampler.frequency_penalty); }},
    {"--logit-bias", "ID+B|ID-B",
     "adds B, at most 100, to a token's logit; may be given several times", AddBias},
    {"--seed", "S", "of the draws; the same seed gives the same text",
     [](Command& c, const std::string& v) { return absl::SimpleAtoi(v, &c.sampler.seed); }},
    {"--stop", "TEXT", "ends the text before this; may be given several times",
     [](Command& c, const std::string& v) { return c.stops.push_back(v), !v.empty(); }},
    {"--context", "N", "positions to make room for; else the model's, at most 4096",
     [](Command& c, const std::string& v) {
       return Int(v, &c.context) && c.context > 0 && c.context <= (int64_t{1} << 24);
     }},
    {"--cache", "f32|f16",
     "how keys and values are kept; else f32 for models in F32, f16 for others",
     [](Command& c, const std::string& v) {
       c.cache = v == "f32" ? kFloat32 : kFloat16;
       return v == "f32" || v == "f16";
     }},
    {"--activations", "f32|int8|bf16",
     "what quantised weights are multiplied by; bf16 is for prompts, single tokens are int8 then, "
     "f32 on GPUs; else bf16 where a matrix unit takes it, int8 on other CPUs, f32 elsewhere",
     [](Command& c, const std::string& v) {
       c.activations = v == "f32"    ? Activations::kF32
                       : v == "int8" ? Activations::kInt8
                                     : Activations::kBf16;
       return v == "f32" || v == "int8" || v == "bf16";
     }},
    {"--weights", "mapped|copied|panels",
     "on one CPU: read from the file at each step, or copied to memory that is read faster, or "
     "there in an order in which integers are multiplied faster; else that, if it leaves room",
     [](Command& c, const std::string& v) {
       c.copy_weights = v == "copied";
       c.panels = v == "panels";
       return v == "mapped" || v == "copied" || v == "panels";
     }},
    {"--draft", "N",
     "guesses up to N tokens at a time, at most 15, from what followed the last ones earlier, and "
     "checks them in one step: the same text, sooner where it repeats what was there; 0: none",
     [](Command& c, const std::string& v) {
       c.guessing_given = true;
       return Int(v, &c.guessing.most) && c.guessing.most >= 0 && c.guessing.most <= kMostGuesses;
     }},
    {"--draft-model", "FILE|DIR",
     "guesses by this model of the same vocabulary instead, up to 3 tokens without --draft",
     [](Command& c, const std::string& v) { return c.draft_model = v, !v.empty(); }},
    {"--devices", "A,B,...", "where to run: one device, or several of a kind side by side",
     [](Command& c, const std::string& v) {
       c.devices = PlaceList(std::vector<std::string>(absl::StrSplit(v, ','))).places;
       return true;
     }},
    {"--parallel", "tensor", "how several devices share the work: each has a part of every layer",
     [](Command&, const std::string& v) { return v == "tensor"; }},
    {"--chat", "", "a conversation: each line of stdin is a message, after that of --prompt",
     SetMode<Command::Mode::kChat>},
    {"--system", "TEXT", "a chat's system message",
     [](Command& c, const std::string& v) { return c.system = v, true; }},
    {"--tools", "FILE", "a JSON array of functions that a chat's assistant may call",
     [](Command& c, const std::string& v) { return c.tools_file = v, !v.empty(); }},
    {"--messages", "FILE",
     "a JSON array of messages that a chat begins with, of any role; one that is not the "
     "assistant's at its end is answered",
     [](Command& c, const std::string& v) { return c.messages_file = v, !v.empty(); }},
    {"--grammar", "FILE",
     "the text, or each answer of a chat, is one of this grammar in GBNF, llama.cpp's notation",
     [](Command& c, const std::string& v) { return c.grammar_file = v, !v.empty(); }},
    {"--json-schema", "FILE", "the same: JSON that fits this JSON schema; of {} any object",
     [](Command& c, const std::string& v) { return c.schema_file = v, !v.empty(); }},
    {"--tokenize", "", "prints the ids of the tokens of stdin, or of --prompt",
     SetMode<Command::Mode::kTokenize>},
    {"--no-bos", "", "with --tokenize: without the tokens that begin and end a text",
     [](Command& c, const std::string&) { return c.bos = false, true; }},
    {"--check", "", "checks all names and sizes, says what the model is, runs one token",
     SetMode<Command::Mode::kCheck>},
    {"--check-tensors", "", "with --check: also that every weight is finite",
     [](Command& c, const std::string&) {
       c.mode = Command::Mode::kCheck;
       return c.check_tensors = true;
     }},
    {"--bench", "", "tokens/s and share of the memory bandwidth", SetMode<Command::Mode::kBench>},
    {"--bench-prompt", "N", "how many tokens --bench reads before it writes; 128",
     [](Command& c, const std::string& v) {
       return Int(v, &c.bench_prompt) && c.bench_prompt > 0 && c.bench_prompt <= (1 << 24);
     }},
    {"--perplexity", "FILE", "of a text",
     [](Command& c, const std::string& v) {
       c.file = v;
       return SetMode<Command::Mode::kPerplexity>(c, v);
     }},
    {"--logits", "FILE.npy", "writes the logits of the prompt's tokens",
     [](Command& c, const std::string& v) {
       c.file = v;
       return SetMode<Command::Mode::kLogits>(c, v);
     }},
    {"--explain", "", "the kernels and collectives of a step", SetMode<Command::Mode::kExplain>},
    {"--serve", "[HOST:]PORT",
     "answers the OpenAI API there, until Ctrl-C; 0: at any port that is free; host: 127.0.0.1",
     SetAddress},
    {"--slots", "N", "how many requests --serve answers at once, from 1 to 256; 4",
     [](Command& c, const std::string& v) {
       return Int(v, &c.slots) && c.slots > 0 && c.slots <= 256;
     }},
    {"--api-key", "KEY", "what --serve's clients have to name",
     [](Command& c, const std::string& v) { return c.api_key = v, !v.empty(); }},
    {"--cors", "ORIGIN",
     "whose pages in browsers may ask --serve, as http://a.b:80; * for any; none",
     [](Command& c, const std::string& v) {
       c.cors = v;
       return !v.empty() && v.find_first_of(" \r\n") == v.npos;
     }},
    {"--json", "", "in every mode: the result as one JSON object; of --chat, one a line and event",
     [](Command& c, const std::string&) { return c.json = true; }},
    {"--help", "", "this", [](Command& c, const std::string&) { return c.help = true; }},
};

absl::StatusOr<std::shared_ptr<const Grammar>> ReadGrammar(const Command& c) {
  const std::string& file = c.grammar_file.empty() ? c.schema_file : c.grammar_file;
  if (file.empty()) return nullptr;
  if (!c.grammar_file.empty() && !c.schema_file.empty()) {
    return absl::InvalidArgumentError("--grammar and --json-schema: a text keeps to one of them");
  }
  if (c.mode != Command::Mode::kGenerate && c.mode != Command::Mode::kChat) {
    return absl::InvalidArgumentError(absl::StrCat(
        c.grammar_file.empty() ? "--json-schema" : "--grammar", " goes with --prompt or --chat"));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadText(file));
  return c.grammar_file.empty() ? GrammarOfJsonSchema(text, file) : ParseGrammar(text, file);
}

const Option* FindOption(const std::string& name) {
  for (const Option& o : kOptions) {
    if (name == o.name) return &o;
  }
  return nullptr;
}

}  // namespace

std::string CommandHelp() {
  std::string out =
      "tools/llm --model FILE|DIR [--prompt TEXT] [...]: text from a language model\n\n";
  for (const Option& o : kOptions) {
    absl::StrAppendFormat(&out, "  %-26s %s\n", absl::StrCat(o.name, " ", o.value), o.meaning);
  }
  return out;
}

absl::StatusOr<Command> ParseCommand(absl::Span<const std::string> arguments) {
  Command c;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Option* option = FindOption(arguments[i]);
    if (option == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(ShowName(arguments[i]), " is no option; --help lists them"));
    }
    std::string value;
    if (option->value[0] != '\0') {
      if (i + 1 == arguments.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat(option->name, " wants a value: ", option->value));
      }
      value = arguments[++i];
    }
    bool right = false;
    try {
      right = option->set(c, value);
    } catch (const Error& e) {
      return absl::InvalidArgumentError(absl::StrCat(option->name, ": ", e.what()));
    }
    if (!right) {
      return absl::InvalidArgumentError(absl::StrCat(option->name, " ", ShowName(value), ": wants ",
                                                     option->value, ", ", option->meaning));
    }
  }
  if (!c.help && c.model.empty()) {
    return absl::InvalidArgumentError("--model FILE|DIR is missing; --help lists the options");
  }
  if (!c.draft_model.empty() && !c.guessing_given) c.guessing.most = 3;
  if (c.mode != Command::Mode::kChat && !c.help) {
    for (const auto& [name, value] :
         {std::pair("--tools", &c.tools_file), std::pair("--messages", &c.messages_file)}) {
      if (!value->empty())
        return absl::InvalidArgumentError(absl::StrCat(name, " goes with --chat"));
    }
  }
  if (!c.help) {
    ASSIGN_OR_RETURN(c.grammar, ReadGrammar(c));
  }
  RETURN_IF_ERROR(CheckSampler(c.sampler));
  RETURN_IF_ERROR(CheckUtf8("--prompt", c.prompt));
  RETURN_IF_ERROR(CheckUtf8("--system", c.system));
  for (const std::string& stop : c.stops) RETURN_IF_ERROR(CheckUtf8("--stop", stop));
  return c;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  if (path == "-") {
    std::string text(std::istreambuf_iterator<char>(std::cin), {});
    RETURN_IF_ERROR(CheckUtf8("stdin", text));
    return text;
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  RETURN_IF_ERROR(CheckUtf8(path, file->bytes()));
  return std::string(file->bytes());
}

absl::Status CheckUtf8(const std::string& what, absl::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": not UTF-8 from byte ", valid));
}

}  // namespace tessera::llm
