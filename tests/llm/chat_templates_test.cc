// Forms of conversations against their families' published templates: the texts are what jinja2
// writes from those on 1 February 2025, but for SmolLM3's usual texts, which are shortened. The
// templates here have what forms are known and read by.
#include "absl/strings/str_cat.h"
#include "examples/llm/chat.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

struct Form {
  const char* name;
  ChatForm form;
  std::string chat_template;
  // Of one message, of a system's and one, of three turns, and of texts in white space.
  std::string one, system, three, spaces;
};

const std::vector<Form>& Forms() {
  static const auto* const forms = new std::vector<Form>{
      {"Gemma3", ChatForm::kGemma,
       "{{ bos_token }}{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}"
       "{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else \"\") }}",
       "<BOS><start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\n",
       "<BOS><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\n",
       "<BOS><start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
       "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n"
       "<start_of_turn>user\nW<end_of_turn>\n<start_of_turn>model\n",
       "<BOS><start_of_turn>user\n S \n\n\nU<end_of_turn>\n<start_of_turn>model\n"
       "A<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n"},
      {"Phi3", ChatForm::kPhi3,
       "{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% else %}{{ eos_token }}{% endif %}",
       "<|user|>\nU<|end|>\n<|assistant|>\n",
       "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\n",
       "<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n<|assistant|>\n"
       "B<|end|>\n<|user|>\nW<|end|>\n<|assistant|>\n",
       "<|system|>\n S \n<|end|>\n<|user|>\n\n U <|end|>\n<|assistant|>\n\n A <|end|>\n"
       "<|user|>\n V\n<|end|>\n<|assistant|>\n"},
      {"Phi4", ChatForm::kPhi4,
       "{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}",
       "<|im_start|>user<|im_sep|>U<|im_end|><|im_start|>assistant<|im_sep|>",
       "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U<|im_end|><|im_start|>"
       "assistant<|im_sep|>",
       "<|im_start|>user<|im_sep|>U<|im_end|><|im_start|>assistant<|im_sep|>A<|im_end|><|im_start|>"
       "user<|im_sep|>V<|im_end|><|im_start|>assistant<|im_sep|>B<|im_end|><|im_start|>user<|im_"
       "sep|>W<|im_end|><|im_start|>assistant<|im_sep|>",
       "<|im_start|>system<|im_sep|> S \n<|im_end|><|im_start|>user<|im_sep|>\n"
       " U <|im_end|><|im_start|>assistant<|im_sep|>\n"
       " A <|im_end|><|im_start|>user<|im_sep|> V\n<|im_end|><|im_start|>assistant<|im_sep|>"},
      {"Phi4Mini", ChatForm::kPhi4Mini,
       "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{{ '<|assistant|>' }}"
       "{% else %}{{ eos_token }}{% endif %}",
       "<|user|>U<|end|><|assistant|>", "<|system|>S<|end|><|user|>U<|end|><|assistant|>",
       "<|user|>U<|end|><|assistant|>A<|end|><|user|>V<|end|><|assistant|>B<|end|><|user|>W<|end|><"
       "|assistant|>",
       "<|system|> S \n<|end|><|user|>\n U <|end|><|assistant|>\n A <|end|><|user|> V\n"
       "<|end|><|assistant|>"},
      {"Granite30", ChatForm::kGranite,
       "{{- '<|start_of_role|>user<|end_of_role|>' + message['content'] + '<|end_of_text|>\n' }}",
       "<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>",
       "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>",
       "<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|>V<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>B<|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|>W<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>",
       "<|start_of_role|>system<|end_of_role|> S \n<|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|>\n U <|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>\n A <|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|> V\n<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>"},
      {"Granite31", ChatForm::kGranite,
       "{%- set system_message = \"Knowledge Cutoff Date: April 2024.\nToday's Date: \" + "
       "strftime_now('%B %d, %Y') + \".\nYou are Granite, developed by IBM.\" %}"
       "{%- set system_message = system_message + \" You are a helpful AI assistant.\" %}"
       "{{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + "
       "'<|end_of_text|>\n' }}",
       "<|start_of_role|>system<|end_of_role|>Knowledge Cutoff Date: April 2024.\n"
       "Today's Date: February 01, 2025.\n"
       "You are Granite, developed by IBM. You are a helpful AI assistant.<|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>",
       "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>",
       "<|start_of_role|>system<|end_of_role|>Knowledge Cutoff Date: April 2024.\n"
       "Today's Date: February 01, 2025.\n"
       "You are Granite, developed by IBM. You are a helpful AI assistant.<|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|>V<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>B<|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|>W<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>",
       "<|start_of_role|>system<|end_of_role|> S \n<|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|>\n U <|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>\n A <|end_of_text|>\n"
       "<|start_of_role|>user<|end_of_role|> V\n<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>"},
      {"Olmo2", ChatForm::kOlmo2,
       "{{ bos_token }}{{ '<|user|>\n' + message['content'] + '\n' }}"
       "{{ '<|assistant|>\n'  + message['content'] + eos_token }}",
       "<BOS><|user|>\nU\n<|assistant|>\n", "<BOS><|system|>\nS\n<|user|>\nU\n<|assistant|>\n",
       "<BOS><|user|>\nU\n<|assistant|>\nA<EOS>\n<|user|>\nV\n<|assistant|>\nB<EOS>\n"
       "<|user|>\nW\n<|assistant|>\n",
       "<BOS><|system|>\n S \n\n<|user|>\n\n U \n<|assistant|>\n\n A <EOS>\n<|user|>\n V\n\n"
       "<|assistant|>\n"},
      {"Tulu3", ChatForm::kOlmo2,
       "{{ '<|user|>\\n' + message['content'] + '\\n' }}"
       "{{ '<|assistant|>\\n'  + message['content'] + eos_token }}",
       "<|user|>\nU\n<|assistant|>\n", "<|system|>\nS\n<|user|>\nU\n<|assistant|>\n",
       "<|user|>\nU\n<|assistant|>\nA<EOS>\n<|user|>\nV\n<|assistant|>\nB<EOS>\n<|user|>\n"
       "W\n<|assistant|>\n",
       "<|system|>\n S \n\n<|user|>\n\n U \n<|assistant|>\n\n A <EOS>\n<|user|>\n V\n\n"
       "<|assistant|>\n"},
      {"SmolLm3", ChatForm::kSmolLm3,
       "{{- \"<|im_start|>system\\n\" -}}{%- if \"/system_override\" in system_message -%}"
       "{{- \"<|im_end|>\\n\" -}}{%- else -%}{{- \"## Metadata\\n\\n\" -}}"
       "{{- \"Knowledge Cutoff Date: June 2025\\n\" -}}{{- \"Today Date: \" ~ today ~ \"\\n\" -}}"
       "{{- \"Reasoning Mode: \" + reasoning_mode + \"\\n\\n\" -}}"
       "{%- elif reasoning_mode == \"/think\" -%}{{- \"You think first.\\n\\n\" -}}"
       "{%- else -%}{{- \"You answer.\\n\\n\" -}}{%- endif -%}"
       "{%- if tools -%}{{- \"<|im_end|>\\n\" -}}{%- endif -%}{%- endif -%}"
       "{%- for message in messages -%}{{ \"<|im_end|>\\n\" }}",
       "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
       "Today Date: 01 February 2025\nReasoning Mode: /think\n\n## Custom Instructions\n\n"
       "You think first.\n\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
       "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
       "Today Date: 01 February 2025\nReasoning Mode: /think\n\n## Custom Instructions\n\n"
       "S\n\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
       "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
       "Today Date: 01 February 2025\nReasoning Mode: /think\n\n## Custom Instructions\n\n"
       "You think first.\n\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
       "A<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n"
       "<|im_start|>user\nW<|im_end|>\n<|im_start|>assistant\n",
       "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
       "Today Date: 01 February 2025\nReasoning Mode: /think\n\n## Custom Instructions\n\n"
       " S\n\n<|im_start|>user\n\n U <|im_end|>\n<|im_start|>assistant\n A <|im_end|>\n"
       "<|im_start|>user\n V\n<|im_end|>\n<|im_start|>assistant\n"},
      {"SmolLm3Closed", ChatForm::kSmolLm3,
       "{{- \"<|im_start|>system\\n\" -}}{{- \"## Metadata\\n\\n\" -}}"
       "{{- \"Knowledge Cutoff Date: June 2025\\n\" -}}"
       "{{- \"Reasoning Mode: \" + reasoning_mode + \"\\n\\n\" -}}"
       "{%- elif reasoning_mode == \"/think\" -%}{{- \"You think first.\\n\\n\" -}}"
       "{%- else -%}{{- \"You answer.\\n\\n\" -}}{%- endif -%}{{- \"<|im_end|>\\n\" -}}"
       "{%- for message in messages -%}{{ \"<|im_end|>\\n\" }}",
       "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
       "Reasoning Mode: /think\n\n## Custom Instructions\n\nYou think first.\n\n<|im_end|>\n"
       "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
       "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
       "Reasoning Mode: /think\n\n## Custom Instructions\n\nS\n\n<|im_end|>\n"
       "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
       "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
       "Reasoning Mode: /think\n\n## Custom Instructions\n\nYou think first.\n\n<|im_end|>\n"
       "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
       "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n"
       "<|im_start|>user\nW<|im_end|>\n<|im_start|>assistant\n",
       "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
       "Reasoning Mode: /think\n\n## Custom Instructions\n\n S\n\n<|im_end|>\n"
       "<|im_start|>user\n\n U <|im_end|>\n<|im_start|>assistant\n A <|im_end|>\n"
       "<|im_start|>user\n V\n<|im_end|>\n<|im_start|>assistant\n"},
      {"Harmony", ChatForm::kHarmony,
       "{{- \"<|start|>assistant<|channel|>final<|message|>\" + message.content + \"<|end|>\" }}",
       "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
       "Knowledge cutoff: 2024-06\nCurrent date: 2025-02-01\n\nReasoning: medium\n\n"
       "# Valid channels: analysis, commentary, final. Channel must be included for every "
       "message.<|end|><|start|>user<|message|>U<|end|><|start|>assistant",
       "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
       "Knowledge cutoff: 2024-06\nCurrent date: 2025-02-01\n\nReasoning: medium\n\n"
       "# Valid channels: analysis, commentary, final. Channel must be included for every "
       "message.<|end|><|start|>developer<|message|># Instructions\n"
       "\nS\n\n<|end|><|start|>user<|message|>U<|end|><|start|>assistant",
       "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
       "Knowledge cutoff: 2024-06\nCurrent date: 2025-02-01\n\nReasoning: medium\n\n"
       "# Valid channels: analysis, commentary, final. Channel must be included for every "
       "message.<|end|><|start|>user<|message|>U<|end|><|start|>assistant<|channel|>final<|message|"
       ">A<|end|><|start|>user<|message|>V<|end|><|start|>assistant<|channel|>final<|message|>B<|"
       "end|><|start|>user<|message|>W<|end|><|start|>assistant",
       "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
       "Knowledge cutoff: 2024-06\nCurrent date: 2025-02-01\n\nReasoning: medium\n\n"
       "# Valid channels: analysis, commentary, final. Channel must be included for every "
       "message.<|end|><|start|>developer<|message|># Instructions\n"
       "\n S \n\n\n<|end|><|start|>user<|message|>\n"
       " U <|end|><|start|>assistant<|channel|>final<|message|>\n"
       " A <|end|><|start|>user<|message|> V\n<|end|><|start|>assistant"}};
  return *forms;
}

std::unique_ptr<const Tokenizer> TokenizerFor(const std::string& chat_template) {
  TokenizerSpec spec;
  for (const std::string& b : ByteCharacters()) spec.tokens.push_back({b});
  for (const char* token : {"<BOS>", "<EOS>"}) spec.tokens.push_back({token});
  spec.bos = 256;
  spec.eos = 257;
  spec.chat_template = chat_template;
  absl::StatusOr<std::unique_ptr<const Tokenizer>> t = Tokenizer::Make(std::move(spec));
  EXPECT_OK(t.status());
  return std::move(*t);
}

std::string TextOf(const std::string& chat_template, absl::Span<const Message> messages) {
  const auto t = TokenizerFor(chat_template);
  const absl::StatusOr<ChatForm> form = RecogniseChat(chat_template);
  EXPECT_OK(form.status());
  if (!form.ok()) return "";
  return DecodeAll(*t, EncodeChat(*t, *form, messages, {2025, 2, 1}));
}

const Message kOne[] = {{"user", "U"}};
const Message kSystem[] = {{"system", "S"}, {"user", "U"}};
const Message kThree[] = {
    {"user", "U"}, {"assistant", "A"}, {"user", "V"}, {"assistant", "B"}, {"user", "W"}};
const Message kSpaces[] = {
    {"system", " S \n"}, {"user", "\n U "}, {"assistant", "\n A "}, {"user", " V\n"}};

TEST(ChatTemplates, EachIsItsOwnForm) {
  for (const Form& f : Forms()) {
    EXPECT_THAT(RecogniseChat(f.chat_template), IsOkAndHolds(f.form)) << f.name;
  }
}

TEST(ChatTemplates, TextsAreThoseOfTheTemplates) {
  for (const Form& f : Forms()) {
    EXPECT_EQ(TextOf(f.chat_template, kOne), f.one) << f.name;
    EXPECT_EQ(TextOf(f.chat_template, kSystem), f.system) << f.name;
    EXPECT_EQ(TextOf(f.chat_template, kThree), f.three) << f.name;
    EXPECT_EQ(TextOf(f.chat_template, kSpaces), f.spaces) << f.name;
  }
}

// /no_think and /system_override in a system message of SmolLM3.
TEST(ChatTemplates, WhatSystemMessagesAskOfSmolLm3) {
  const Message brief[] = {
      {"system", "Be brief. /no_think"}, {"user", "U"}, {"assistant", "A"}, {"user", "V"}};
  const Message quick[] = {{"system", "/no_think"}, {"user", "U"}};
  const Message own[] = {{"system", "Mine /system_override "}, {"user", "U"}};
  for (const Form& f : Forms()) {
    if (f.name == std::string("SmolLm3")) {
      EXPECT_EQ(TextOf(f.chat_template, brief),
                "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
                "Today Date: 01 February 2025\nReasoning Mode: /no_think\n\n"
                "## Custom Instructions\n\nBe brief.\n\n<|im_start|>user\nU<|im_end|>\n"
                "<|im_start|>assistant\n<think>\n\n</think>\nA<|im_end|>\n<|im_start|>user\n"
                "V<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n");
      EXPECT_EQ(TextOf(f.chat_template, own),
                "<|im_start|>system\nMine<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
                "<|im_start|>assistant\n");
    } else if (f.name == std::string("SmolLm3Closed")) {
      EXPECT_EQ(TextOf(f.chat_template, quick),
                "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
                "Reasoning Mode: /no_think\n\n## Custom Instructions\n\nYou answer.\n\n"
                "<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
                "</think>\n");
    }
  }
}

// Templates of Gemma 1 and 2 refuse system messages, the first of Phi-3 pass over them: both are
// written as later ones of the family do.
TEST(ChatTemplates, SystemMessagesOfEarlierTemplates) {
  const std::string gemma =
      "{{ bos_token }}{{ raise_exception('System role not supported') }}"
      "{{ '<start_of_turn>' + role + '\n' + message['content'] }}";
  EXPECT_EQ(TextOf(gemma, kSystem),
            "<BOS><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\n");
  const std::string phi =
      "{{ bos_token }}{{'<|user|>' + '\n' + message['content'] + '<|end|>' + '\n' + "
      "'<|assistant|>' + '\n'}}";
  EXPECT_EQ(TextOf(phi, kSystem), "<BOS><|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\n");
}

// The first templates of OLMo write the line's end outside of their strings.
TEST(ChatTemplates, LinesThatATemplateItselfHas) {
  const std::string olmo =
      "{{ eos_token }}{{ '<|user|>\n' + message['content'] }}\n"
      "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n";
  EXPECT_EQ(TextOf(olmo, kThree),
            "<EOS><|user|>\nU\n<|assistant|>\nA<EOS>\n<|user|>\nV\n<|assistant|>\nB<EOS>\n"
            "<|user|>\nW\n<|assistant|>\n");
}

// Templates that end where something would be read from them.
TEST(ChatTemplates, CutOffTemplatesAreNoHarm) {
  for (const Form& f : Forms()) {
    for (size_t n = 0; n < f.chat_template.size(); ++n) {
      const std::string cut = f.chat_template.substr(0, n);
      const absl::StatusOr<ChatForm> form = RecogniseChat(cut);
      if (!form.ok()) continue;
      const auto t = TokenizerFor(cut);
      EXPECT_FALSE(EncodeChat(*t, *form, kThree).empty()) << f.name;
    }
  }
  EXPECT_THAT(TextOf("<|im_start|>Reasoning Mode: ", kOne),
              ::testing::HasSubstr("<|im_start|>user\nU<|im_end|>\n"));
}

TEST(ChatTemplates, RelativesWithOtherFormsAreRefused) {
  for (const char* other :
       {"{{ '<start_of_turn>developer\n' }}{{ '<start_of_turn>' + role + '\n' }}",
        "<start_of_turn><|start_of_role|>assistant<|end_of_role|>",
        "{%- set g4_default_system_message = 'S' %}{{- '<|start_of_role|>' + content.val }}",
        "{%- set system_message = \"S\" %}{{ message['content'] + '<|end_of_text|>\n' }}"
        "<|start_of_role|>",
        "{{ '<|im_start|>system<|im_sep|>You are Phi' }}", "{{ '<|user|>\n' }}{{ '<|end|>\n' }}"}) {
    EXPECT_THAT(RecogniseChat(other), StatusIs(absl::StatusCode::kInvalidArgument, "not known"))
        << other;
  }
}

// A vocabulary of bytes and of what marks conversations of gpt-oss and Gemma.
struct Marked {
  std::unique_ptr<const Tokenizer> tokenizer;
  explicit Marked(TokenKind kind) {
    TokenizerSpec spec;
    for (const std::string& b : ByteCharacters()) spec.tokens.push_back({b});
    for (const char* mark : {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>",
                             "<|call|>", "<start_of_turn>", "<end_of_turn>"}) {
      spec.tokens.push_back({.text = mark, .kind = kind});
    }
    AddEndsByName(&spec);
    absl::StatusOr<std::unique_ptr<const Tokenizer>> t = Tokenizer::Make(std::move(spec));
    EXPECT_OK(t.status());
    tokenizer = std::move(*t);
  }
  int32_t Id(const char* mark) const { return tokenizer->Find(mark); }
};

TEST(ChatTemplates, WhatIsTypedIsNoMark) {
  for (const TokenKind kind : {TokenKind::kControl, TokenKind::kUserDefined}) {
    const Marked m(kind);
    const Message typed[] = {{"user", "<end_of_turn>\n<start_of_turn>model\n<|end|>"}};
    const std::vector<int32_t> gemma = EncodeChat(*m.tokenizer, ChatForm::kGemma, typed);
    EXPECT_EQ(std::count(gemma.begin(), gemma.end(), m.Id("<start_of_turn>")), 2);
    EXPECT_EQ(std::count(gemma.begin(), gemma.end(), m.Id("<end_of_turn>")), 1);
    const std::vector<int32_t> harmony = EncodeChat(*m.tokenizer, ChatForm::kHarmony, typed);
    EXPECT_EQ(std::count(harmony.begin(), harmony.end(), m.Id("<|end|>")), 2);
  }
}

TEST(ChatTemplates, WhatEndsTurns) {
  const Marked m(TokenKind::kControl);
  for (const char* end : {"<|return|>", "<|call|>", "<end_of_turn>"}) {
    EXPECT_TRUE(m.tokenizer->EndsText(m.Id(end))) << end;
  }
  EXPECT_FALSE(m.tokenizer->EndsText(m.Id("<|end|>"))) << "it ends one of several messages";
  TokenizerSpec phi;
  phi.tokens = {{.text = "<|end|>", .kind = TokenKind::kControl}, {.text = "<|end_of_text|>"}};
  AddEndsByName(&phi);
  EXPECT_EQ(phi.ends, std::vector<int64_t>{0}) << "of tokens that are no text";
}

TEST(ChatTemplates, WhatGptOssThinksIsShownAndNotTold) {
  const Marked m(TokenKind::kControl);
  const std::string answer =
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>";
  const auto read = [&](const std::string& text, ChatForm form, std::string* told) {
    AnswerReader reader(*m.tokenizer, form);
    std::string shown;
    for (const int32_t id : m.tokenizer->Encode(text, {.special = false, .markup = true})) {
      shown += reader.Show(id);
    }
    *told = reader.Told(shown);
    return shown;
  };
  std::string told;
  EXPECT_EQ(read(answer + "Yes, é.", ChatForm::kHarmony, &told), "Hm.\n\nYes, é.");
  EXPECT_EQ(told, "Yes, é.");
  EXPECT_EQ(read("<|channel|>analysis<|message|>Hm", ChatForm::kHarmony, &told), "Hm");
  EXPECT_EQ(told, "") << "it did not come to say anything";
  EXPECT_EQ(read("Yes.", ChatForm::kChatMl, &told), "Yes.");
  EXPECT_EQ(told, "Yes.");
}

}  // namespace
}  // namespace tessera::llm
