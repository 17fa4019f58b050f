// libFuzzer targets of everything that parses files: the environment's FUZZ_TARGET names one of
// kTargets, which tools/fuzz runs in turn. Without it the names are printed.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "examples/llm/api.h"
#include "examples/llm/chat.h"
#include "examples/llm/config.h"
#include "examples/llm/grammar_matcher.h"
#include "examples/llm/jinja.h"
#include "examples/llm/json_schema.h"
#include "examples/llm/pattern.h"
#include "examples/llm/tokenizer.h"
#include "examples/onnx/plain.h"
#include "examples/onnx/proto.h"
#include "graph/spec.h"
#include "graph/text.h"
#include "runtime/gguf.h"
#include "runtime/json.h"
#include "runtime/npy.h"
#include "runtime/safetensors.h"

namespace tessera::llm {
namespace {

constexpr char kText[] = "Hello, y'all! \xF0\x9F\x98\x80 1234 \n\n x";

void UseTokenizer(absl::StatusOr<TokenizerSpec> spec) {
  if (!spec.ok()) return;
  const auto tokenizer = Tokenizer::Make(*std::move(spec));
  if (!tokenizer.ok()) return;
  for (int32_t id : (*tokenizer)->Encode(kText, {})) (*tokenizer)->Piece(id);
}

void Gguf(absl::string_view bytes) {
  const absl::StatusOr<tessera::Gguf> file = ParseGguf(bytes, "fuzz", nullptr);
  if (!file.ok()) return;
  for (const Weight& w : file->weights.all()) {
    if (!w.bytes.empty() && (w.bytes.front() ^ w.bytes.back()) == 1) continue;  // they are there
  }
  ConfigFromGguf(file->metadata).status().IgnoreError();
  UseTokenizer(TokenizerFromGguf(file->metadata));
}

void ReadAll(const Json& json, int depth) {
  json.String();
  json.Number();
  if (depth > 70) std::abort();
  for (const JsonItem item : json.Items()) {
    item.key();
    ReadAll(item.value(), depth + 1);
  }
}

void ReadTensorBytes(const onnx::TensorData& t) {
  const absl::string_view bytes = t.bytes();
  if (!bytes.empty() && (bytes.front() ^ bytes.back()) == 1) return;  // they are there
}
void Onnx(absl::string_view bytes) {
  const absl::StatusOr<onnx::TensorData> tensor = onnx::ParseTensor(bytes, "fuzz");
  if (tensor.ok()) ReadTensorBytes(*tensor);
  using Kind = onnx::ValueInfo::Kind;
  for (const Kind kind : {Kind::kSequence, Kind::kOptional}) {
    const absl::StatusOr<onnx::ValueData> v = onnx::ParseValue(bytes, kind, "fuzz");
    for (size_t i = 0; v.ok() && i < v->tensors.size(); ++i) ReadTensorBytes(v->tensors[i]);
  }
  const absl::StatusOr<onnx::Model> model = onnx::ParseModel(bytes, "fuzz");
  if (!model.ok()) return;
  onnx::PlainnessOf(*model);
  for (const onnx::Graph& g : model->graphs) {
    for (const onnx::TensorData& t : g.initializers) ReadTensorBytes(t);
    for (const onnx::Node& node : g.nodes) {
      for (const auto& [name, a] : node.attributes) {
        for (const onnx::TensorData& t : a.tensors) ReadTensorBytes(t);
        if (a.graph >= static_cast<int>(model->graphs.size())) std::abort();
      }
    }
  }
}

void Npy(absl::string_view bytes) {
  const absl::StatusOr<NpyArray> array = ParseNpy(bytes, "fuzz");
  if (!array.ok()) return;
  int64_t size = array->dtype.bytes();
  for (int64_t n : array->shape) size *= n == 0 ? 0 : n;
  if (size != static_cast<int64_t>(array->bytes.size())) std::abort();
}

// What is read prints as a text that is read as the same nodes; the validator takes any text.
void GraphText(absl::string_view bytes) {
  SpecOptions options;
  VerifyText(bytes, options);
  const absl::StatusOr<std::vector<UOp>> roots = tessera::Parse(bytes);
  if (!roots.ok()) return;
  const absl::StatusOr<std::vector<UOp>> again = tessera::Parse(Print(*roots));
  if (!again.ok() || *again != *roots) std::abort();
}

void ChatTemplate(absl::string_view bytes) {
  const absl::StatusOr<jinja::Template> chat = jinja::Template::Parse(bytes);
  if (!chat.ok()) return;
  const Message messages[] = {{"user", kText}, {"assistant", "A</think>B"}, {"user", ""}};
  jinja::Template::Inputs in;
  in.messages = messages;
  in.tools = R"([{"a": [1, -2.5e300, null, true, "\u00e9"], "b": {}}])";
  for (const bool in_parts : {false, true}) {
    in.in_parts = in_parts;
    const auto text = chat->Render(in, {.steps = 20'000, .bytes = 4 << 20});
    if (text.ok() && text->bytes.size() != text->said.size()) std::abort();
  }
}

// What a look at all tokens says of each is what the token itself says.
void Match(const std::shared_ptr<const Grammar>& grammar) {
  const std::vector<std::string> texts = {"a",  "b",    "ab",   "\"",   "{", "{\"", "}",
                                          "1",  "\xC3", "\xA9", "true", ":", ": ",  ", ",
                                          "\n", "]",    "[",    "-",    " ", "x",   "\\"};
  const TokenTree tree(texts);
  GrammarMatcher matcher(grammar);
  for (size_t step = 0; step < 40; ++step) {
    const auto mask = matcher.Mask(tree);
    if (!mask.ok()) return;
    const uint64_t allowed = (*mask)[0];
    for (size_t i = 0; i < texts.size() && !matcher.overflowed(); ++i) {
      if (matcher.Allows(texts[i]) != ((allowed >> i & 1) != 0) && !matcher.overflowed()) {
        std::abort();
      }
    }
    size_t next = step * 7 % texts.size();
    for (size_t i = 0; i < texts.size() && (allowed >> next & 1) == 0; ++i) {
      next = (next + 1) % texts.size();
    }
    if ((allowed >> next & 1) == 0) return;
    if (!matcher.Push(texts[next])) std::abort();
  }
}

// What a schema becomes is a grammar, unless none fits it.
void Schema(absl::string_view bytes) {
  const absl::StatusOr<std::string> text = GrammarTextOfJsonSchema(bytes, "fuzz");
  if (!text.ok()) return;
  const auto grammar = ParseGrammar(*text, "fuzz");
  if (grammar.ok()) return Match(*grammar);
  const absl::string_view why = grammar.status().message();
  for (const char* known :
       {"never ends", "too large", "too many", "may be empty", "no character"}) {
    if (why.find(known) != absl::string_view::npos) return;
  }
  std::abort();
}

// Requests of both kinds; and what an assistant writes, which is all shown or becomes calls,
// however it comes.
void Request(absl::string_view bytes) {
  for (const bool chat : {false, true}) {
    const absl::StatusOr<ApiRequest> request = ParseApiRequest(bytes, chat, {});
    if (request.ok() && (chat ? request->messages.empty() : request->prompts.empty())) std::abort();
    if (!request.ok()) ErrorJson(request.status(), HttpStatusOf(request.status()));
  }
  ToolCallReader whole, pieces;
  std::string one = whole.Push(bytes), other;
  for (size_t i = 0; i < bytes.size(); i += 3) other += pieces.Push(bytes.substr(i, 3));
  const ToolCallReader::Rest a = whole.Finish(), b = pieces.Finish();
  if (one + a.text != other + b.text || a.calls.size() != b.calls.size()) std::abort();
  if (a.calls.empty() && one + a.text != bytes) std::abort();
}

void SafetensorsFile(absl::string_view bytes) {
  ParseSafetensors(bytes, "fuzz", nullptr).status().IgnoreError();
}

void JsonText(absl::string_view bytes) {
  const absl::StatusOr<Json> json = Json::Parse(bytes, "fuzz");
  if (json.ok()) ReadAll(*json, 0);
}

void TokenizerText(absl::string_view bytes) {
  UseTokenizer(TokenizerFromHuggingFaceText(bytes, "fuzz"));
}

void Config(absl::string_view bytes) {
  const absl::StatusOr<Json> json = Json::Parse(bytes, "fuzz");
  if (json.ok()) ConfigFromHuggingFace(*json, "fuzz").status().IgnoreError();
}

void GrammarText(absl::string_view bytes) {
  const auto grammar = ParseGrammar(bytes, "fuzz");
  if (grammar.ok()) Match(*grammar);
}

// Words lie side by side, and none is empty.
void PatternText(absl::string_view bytes) {
  const absl::StatusOr<Pattern> pattern = Pattern::Compile(bytes);
  const std::vector<Character> text = Characters(kText);
  if (!pattern.ok()) return;
  size_t end = 0;
  for (const Word& w : pattern->Split(text, {0, text.size() - 1})) {
    if (w.begin != end || w.end <= w.begin) std::abort();
    end = w.end;
  }
  if (end != text.size() - 1) std::abort();
}

struct FuzzTarget {
  const char* name;
  void (*parse)(absl::string_view bytes);
};
constexpr FuzzTarget kTargets[] = {
    {"gguf", Gguf},
    {"safetensors", SafetensorsFile},
    {"json", JsonText},
    {"config", Config},
    {"tokenizer", TokenizerText},
    {"pattern", PatternText},
    {"onnx", Onnx},
    {"npy", Npy},
    {"text", GraphText},
    {"chat", ChatTemplate},
    {"grammar", GrammarText},
    {"schema", Schema},
    {"request", Request},
};

const FuzzTarget* chosen = nullptr;

}  // namespace
}  // namespace tessera::llm

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using tessera::llm::kTargets;
  const char* const name = std::getenv("FUZZ_TARGET");
  for (const auto& target : kTargets) {
    if (name == nullptr) std::puts(target.name);
    if (name != nullptr && absl::string_view(name) == target.name) tessera::llm::chosen = &target;
  }
  if (name == nullptr) std::exit(0);
  if (tessera::llm::chosen == nullptr) {
    std::fprintf(stderr, "FUZZ_TARGET=%s is none of those printed without it\n", name);
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::llm::chosen->parse({reinterpret_cast<const char*>(data), size});
  return 0;
}
