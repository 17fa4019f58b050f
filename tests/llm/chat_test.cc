// Conversations: the date that templates tell, and what goes on from answer to answer.
#include "examples/llm/chat.h"

#include <atomic>

#include "examples/llm/generate.h"
#include "graph/error.h"
#include "tests/llm/models.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

std::string TextOf(const std::string& chat_template, absl::Span<const Message> messages) {
  TokenizerSpec spec;
  for (const std::string& b : ByteCharacters()) spec.tokens.push_back({b});
  spec.chat_template = chat_template;
  const auto t = Tokenizer::Make(std::move(spec));
  EXPECT_OK(t.status());
  std::string out;
  if (!t.ok()) return out;
  for (int32_t id : EncodeChat(**t, ChatForm::kLlama3, messages, {2025, 2, 1})) {
    out += (*t)->Piece(id);
  }
  return out;
}

TEST(ChatDates, BeginEverySystemMessage) {
  const std::string dated =
      R"({{- "Cutting Knowledge Date: December 2023\n" }}{{- "Today Date: " + date_string }})";
  const std::string begin = "<|start_header_id|>system<|end_header_id|>\n\n",
                    dates = "Cutting Knowledge Date: December 2023\nToday Date: 01 Feb 2025\n\n",
                    user = "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>",
                    end = "<|start_header_id|>assistant<|end_header_id|>\n\n";
  const Message one[] = {{"user", "U"}}, two[] = {{"system", " S "}, {"user", "U"}};
  EXPECT_EQ(TextOf(dated, one), begin + dates + "<|eot_id|>" + user + end);
  EXPECT_EQ(TextOf(dated, two), begin + dates + "S<|eot_id|>" + user + end);
  EXPECT_EQ(TextOf("<|start_header_id|>", one), user + end);
  EXPECT_EQ(TextOf("<|start_header_id|>", two), begin + "S<|eot_id|>" + user + end);
}

TEST(ChatDates, TodayIsADate) {
  const Date today = Today();
  EXPECT_GE(today.year, 2025);
  EXPECT_TRUE(today.month >= 1 && today.month <= 12) << today.month;
  EXPECT_TRUE(today.day >= 1 && today.day <= 31) << today.day;
}

GenerateOptions Few() {
  GenerateOptions options;
  options.max_tokens = 4;
  return options;
}
std::vector<int32_t> Answer(const Model& model, Session& session, const GenerateOptions& options) {
  session.Rewind(0);
  const absl::StatusOr<Generated> g = Generate(
      session, model, model.tokenizer->Encode("Once upon a time", {}), options, [](auto&) {});
  EXPECT_OK(g.status());
  return g.ok() ? g->tokens : std::vector<int32_t>();
}

TEST(ChatTurns, EarlierTokensAreRecent) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  Session session(model, {});
  GenerateOptions options = Few();
  const std::vector<int32_t> plain = Answer(model, session, options);
  options.sampler.repeat_penalty = 1e6;
  EXPECT_EQ(Answer(model, session, options)[0], plain[0]);
  options.before = {plain[0]};
  EXPECT_NE(Answer(model, session, options)[0], plain[0]);
}

TEST(ChatTurns, DrawingGoesOn) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  Session session(model, {});
  GenerateOptions options = Few();
  options.sampler.temperature = 50;  // nearly any token
  const std::vector<int32_t> first = Answer(model, session, options);
  EXPECT_EQ(Answer(model, session, options), first);
  Sampler sampler(options.sampler, model.config.vocabulary);
  options.draws = &sampler;
  EXPECT_EQ(Answer(model, session, options), first);
  EXPECT_NE(Answer(model, session, options), first);
}

// Ctrl-C while a prompt is read: the parts of it that were not begun are left, and what was read
// before can be gone on from.
TEST(ChatTurns, APromptIsInterruptedBetweenItsParts) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  std::atomic<bool> interrupted = false;
  SessionOptions options;
  options.interrupted = &interrupted;
  Session session(model, options);
  session.Feed(std::vector<int32_t>(20, 5));
  interrupted = true;
  try {
    session.Feed(std::vector<int32_t>(200, 5));
    ADD_FAILURE() << "it went on";
  } catch (const Error& e) {
    EXPECT_EQ(e.status().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(session.position(), 20);
  interrupted = false;
  session.Feed({std::vector<int32_t>(1, 5)});
  EXPECT_EQ(session.position(), 21);
}

}  // namespace
}  // namespace tessera::llm
