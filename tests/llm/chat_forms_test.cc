// Forms of conversations: recognised by their templates, and written mark by mark.
#include "examples/llm/chat.h"

#include <fstream>

#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ChatForms, TemplatesAreRecognised) {
  SKIP_WITHOUT_DATA();
  ASSERT_OK_AND_ASSIGN(const auto t,
                       LoadTokenizer(std::string(kData) + "tokenizers/ggml-vocab-llama-bpe.gguf"));
  ASSERT_OK_AND_ASSIGN(const ChatForm form, RecogniseChat(t->spec().chat_template));
  EXPECT_EQ(form, ChatForm::kLlama3);
  const Message messages[] = {{"user", "Hello <|eot_id|>"}};
  const std::vector<int32_t> ids = EncodeChat(*t, form, messages, {2024, 7, 26});
  EXPECT_EQ(ids.front(), 128000);  // <|begin_of_text|>
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 128009), 2) << "what a user types is no mark";
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 128006), 3);
  EXPECT_TRUE(t->EndsText(128009));
  EXPECT_EQ(DecodeAll(*t, ids),
            "system\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
            "user\n\nHello <|eot_id|>assistant\n\n");
}

TEST(ChatForms, FormsByTheirMarks) {
  EXPECT_THAT(RecogniseChat("x<|im_start|>y"), IsOkAndHolds(ChatForm::kChatMl));
  EXPECT_THAT(RecogniseChat("[INST] <<SYS>>"), IsOkAndHolds(ChatForm::kLlama2));
  EXPECT_THAT(RecogniseChat("[INST]"), IsOkAndHolds(ChatForm::kMistral));
  EXPECT_THAT(RecogniseChat("{{'<|user|>' + eos_token}}"), IsOkAndHolds(ChatForm::kZephyr));
  EXPECT_THAT(RecogniseChat("{{'<|user|>\n' + message['content'] + eos_token}}"),
              IsOkAndHolds(ChatForm::kZephyr));
  EXPECT_THAT(RecogniseChat("'<|im_start|>' content.split('</think>') <|end|> <|user|> eos_token"),
              IsOkAndHolds(ChatForm::kChatMl));
  EXPECT_THAT(RecogniseChat(""), StatusIs(absl::StatusCode::kInvalidArgument, "no chat template"));
  EXPECT_THAT(RecogniseChat("{{ x }}"), StatusIs(absl::StatusCode::kInvalidArgument, "not known"));
}

TEST(ChatForms, EveryFormWritesItsMarksInOrder) {
  ASSERT_OK_AND_ASSIGN(const auto t, LoadTokenizer(kStory));
  const Message messages[] = {{"system", "S"}, {"user", "U"}, {"assistant", "A"}, {"user", "V"}};
  const auto text = [&](ChatForm form) { return DecodeAll(*t, EncodeChat(*t, form, messages)); };
  EXPECT_THAT(text(ChatForm::kChatMl),
              HasSubstr("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"));
  EXPECT_THAT(text(ChatForm::kLlama2), HasSubstr("[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A "));
  EXPECT_THAT(text(ChatForm::kMistral), HasSubstr("[INST] S\n\nU [/INST]A"));
  EXPECT_THAT(text(ChatForm::kZephyr), HasSubstr("<|user|>\nU"));
  EXPECT_THAT(text(ChatForm::kZephyr), ::testing::EndsWith("<|assistant|>\n"));
}

// The ids of a conversation are those of its whole text: of what the reference's templates write.
TEST(ChatForms, MarksAndContentsAreOneText) {
  ASSERT_OK_AND_ASSIGN(const auto t, LoadTokenizer(kStory));
  const int32_t bos = static_cast<int32_t>(t->spec().bos);
  const int32_t eos = static_cast<int32_t>(t->spec().eos);
  const auto with = [&](std::vector<int32_t> ids, const std::string& text, int32_t end) {
    Tokenizer::Options plain;
    plain.special = false;
    ids.push_back(bos);
    for (const int32_t id : t->Encode(text, plain)) ids.push_back(id);
    if (end >= 0) ids.push_back(end);
    return ids;
  };
  const Message one[] = {{"user", " Once upon "}};
  EXPECT_EQ(EncodeChat(*t, ChatForm::kMistral, one), with({}, "[INST]  Once upon  [/INST]", -1));
  EXPECT_EQ(EncodeChat(*t, ChatForm::kLlama2, one), with({}, "[INST] Once upon [/INST]", -1));
  const Message three[] = {{"user", "Once"}, {"assistant", " upon "}, {"user", "a time"}};
  EXPECT_EQ(EncodeChat(*t, ChatForm::kLlama2, three),
            with(with({}, "[INST] Once [/INST] upon ", eos), "[INST] a time [/INST]", -1));
  const Message system[] = {{"system", "S "}, {"user", " Once "}};
  EXPECT_EQ(EncodeChat(*t, ChatForm::kLlama2, system),
            with({}, "[INST] <<SYS>>\nS \n<</SYS>>\n\n Once [/INST]", -1));
}

// A template's own system message, and thoughts that it leaves out of what was said.
TEST(ChatForms, WhatQwensTemplatesAdd) {
  const auto text = [](const std::string& chat_template, absl::Span<const Message> messages) {
    TokenizerSpec spec;
    for (const std::string& b : ByteCharacters()) spec.tokens.push_back({b});
    spec.chat_template = chat_template;
    const auto t = Tokenizer::Make(std::move(spec));
    EXPECT_OK(t.status());
    return t.ok() ? DecodeAll(**t, EncodeChat(**t, ChatForm::kChatMl, messages)) : "";
  };
  const std::string usual =
      "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- else %}"
      "{{- '<|im_start|>system\\nYou are kind.\\nAlways.<|im_end|>\\n' }}";
  const std::string end = "<|im_start|>assistant\n";
  const Message user[] = {{"user", "U"}}, both[] = {{"system", "S"}, {"user", "U"}};
  const std::string said = "<|im_start|>user\nU<|im_end|>\n";
  EXPECT_EQ(text(usual, user),
            "<|im_start|>system\nYou are kind.\nAlways.<|im_end|>\n" + said + end);
  EXPECT_EQ(text(usual, both), "<|im_start|>system\nS<|im_end|>\n" + said + end);
  EXPECT_EQ(text("{{ '<|im_start|>system\\n' + content }}<|im_end|>", user), said + end);
  const Message thought[] = {
      {"user", "U"}, {"assistant", "<think>\nx\n</think>\n\nA"}, {"user", "U"}};
  EXPECT_EQ(text("<|im_start|> content.split('</think>')", thought),
            said + "<|im_start|>assistant\nA<|im_end|>\n" + said + end);
  EXPECT_EQ(text("<|im_start|>", thought),
            said + "<|im_start|>assistant\n<think>\nx\n</think>\n\nA<|im_end|>\n" + said + end);
}

TEST(ChatForms, TemplatesOfFolders) {
  const std::string folder = OwnTempDir();
  const auto found = [&](const std::string& config, const std::string& jinja) {
    std::ofstream(folder + "/tokenizer.json")
        << ByteLevelJson(R"({"type":"ByteLevel","add_prefix_space":false})", "null");
    std::ofstream(folder + "/tokenizer_config.json") << config;
    if (!jinja.empty()) std::ofstream(folder + "/chat_template.jinja") << jinja;
    const absl::StatusOr<TokenizerSpec> spec = TokenizerFromHuggingFace(folder);
    EXPECT_OK(spec.status());
    return spec.ok() ? spec->chat_template : "";
  };
  EXPECT_EQ(found("{}", ""), "");
  EXPECT_EQ(found(R"({"chat_template":"x"})", ""), "x");
  EXPECT_EQ(found(R"({"chat_template":[{"name":"tool_use","template":"t"},)"
                  R"({"name":"default","template":"d"}]})",
                  ""),
            "d");
  EXPECT_EQ(found(R"({"chat_template":[{"name":"tool_use","template":"t"}]})", ""), "");
  EXPECT_EQ(found("{}", "j\n"), "j\n");
  EXPECT_EQ(found(R"({"chat_template":"x"})", "j"), "j");
}

}  // namespace
}  // namespace tessera::llm
