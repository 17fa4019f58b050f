// The API answered by small models, without HTTP, for tests.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/llm/api_service.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {

using nlohmann::json;

inline SessionOptions FourTexts() {
  SessionOptions options;
  options.texts = 4;
  options.guesses = 3;  // where the service has any
  return options;
}

struct ApiFixture {
  Model model;
  Session session;
  Engine engine;
  ApiService service;
  ApiFixture(Model m, const ApiService::Options& options)
      : model(std::move(m)),
        session(model, FourTexts()),
        engine(session, model),
        service(engine, model, WithContext(options)) {}
  ApiService::Options WithContext(ApiService::Options options) const {
    options.context = session.context();
    return options;
  }

  // What is told, in order.
  absl::StatusOr<std::vector<json>> Ask(const std::string& body, bool chat = false) {
    ASSIGN_OR_RETURN(const auto job, service.Take(body, chat));
    std::vector<json> out;
    const auto tell = [&](const std::string& text) {
      out.push_back(json::parse(text));
      return true;
    };
    RETURN_IF_ERROR(service.Answer(*job, tell, [] { return true; }).status());
    return out;
  }
  absl::StatusOr<json> AskWhole(const std::string& body, bool chat = false) {
    ASSIGN_OR_RETURN(const std::vector<json> all, Ask(body, chat));
    EXPECT_EQ(all.size(), 1u);
    return json(all[0]);
  }
};

inline std::unique_ptr<ApiFixture> Story() {
  absl::StatusOr<Model> model = LoadModel(kStory);
  EXPECT_OK(model.status());
  ApiService::Options options;
  options.name = "story";
  return std::make_unique<ApiFixture>(*std::move(model), options);
}

// A model whose weights are zero, so that it always says its first token.
inline std::unique_ptr<ApiFixture> Sayer(const std::string& says,
                                         const std::string& chat_template) {
  std::vector<std::string> tokens = SmallTokens();
  std::vector<int32_t> kinds(tokens.size(), 1);
  tokens[0] = says;
  kinds[1] = kinds[2] = 3;
  for (int b = 0; b < 256; ++b) kinds[3 + b] = 6;
  const std::string path = SmallGguf()
                               .Set("llama.context_length", uint32_t{256})
                               .Set("tokenizer.ggml.tokens", tokens)
                               .Set("tokenizer.ggml.token_type", kinds)
                               .Set("tokenizer.chat_template", chat_template)
                               .Write();
  absl::StatusOr<Model> model = LoadModel(path);
  EXPECT_OK(model.status());
  ApiService::Options options;
  options.name = "sayer";
  return std::make_unique<ApiFixture>(*std::move(model), options);
}

}  // namespace tessera::llm
