// Thoughts told apart from what is said.
#include "examples/llm/thoughts.h"

#include "tests/testing.h"

namespace tessera::llm {
namespace {

const ThoughtMarks& Think() { return *ThoughtMarksOf("... </think> ..."); }

// What is thought and said of a text that comes in such pieces, and where the latter begins.
std::tuple<std::string, std::string, size_t> Read(const std::string& text, bool open,
                                                  size_t piece) {
  ThoughtReader reader(Think(), open);
  std::string thought, said;
  for (size_t i = 0; i < text.size(); i += piece) {
    const ThoughtReader::News news = reader.Push(text.substr(i, piece));
    thought += news.thought;
    said += news.said;
  }
  const ThoughtReader::News rest = reader.Finish();
  return {thought + rest.thought, said + rest.said, reader.said_from()};
}

TEST(Thoughts, AreToldApart) {
  struct Row {
    const char* text;
    bool open;
    const char *thought, *said;
  };
  const Row rows[] = {
      {"<think>\nWell, a < b\n</think>\n\nYes. \n", false, "Well, a < b", "Yes. \n"},
      {"\n<think>a  b</think>c", false, "a  b", "c"},
      {"<think>\n\n</think>\n\nc</think>", false, "", "c</think>"},
      {" Well <think>a</think>", false, "", " Well <think>a</think>"},
      {"\n <thi", false, "", "\n <thi"},
      {"<thinking>", false, "", "<thinking>"},
      {"", false, "", ""},
      {"Hm.\n</think>\n\nNo", true, "Hm.", "No"},
      {"Hm.\n</thin", true, "Hm.\n</thin", ""},
      {"<think>Hm.\n", false, "Hm.", ""},
      {"</think>Yes", true, "", "Yes"}};
  for (const Row& row : rows) {
    for (const size_t piece : {1, 2, 5, 1000}) {
      const auto [thought, said, from] = Read(row.text, row.open, piece);
      EXPECT_EQ(thought, row.thought) << row.text;
      EXPECT_EQ(said, row.said) << row.text;
      if (!said.empty()) {
        EXPECT_EQ(std::string(row.text).substr(from), said);
      }
    }
  }
}

TEST(Thoughts, AreToldAsSoonAsTheyAreCertain) {
  ThoughtReader reader(Think(), true);
  EXPECT_EQ(reader.Push("a b ").thought, "a b");
  EXPECT_EQ(reader.Push("c</th").thought, " c");
  EXPECT_EQ(reader.Push("at").thought, "</that");
}

TEST(Thoughts, OfTemplatesThatKnowThem) {
  EXPECT_EQ(ThoughtMarksOf("{{ messages[0].content }}"), nullptr);
  EXPECT_EQ(ThoughtMarksOf("... [/THINK]")->begin, "[THINK]");
}

TEST(Thoughts, PromptsThatOpenOne) {
  TokenizerSpec spec;
  for (const std::string& b : ByteCharacters()) spec.tokens.push_back({b});
  spec.tokens.push_back({"<think>", 0, TokenKind::kControl});
  spec.tokens.push_back({"</think>", 0, TokenKind::kUserDefined});
  const auto t = Tokenizer::Make(std::move(spec));
  ASSERT_OK(t.status());
  const auto opens = [&](const std::string& text) {
    Tokenizer::Options as_markup;
    as_markup.markup = true;
    return OpensThought(Think(), **t, (*t)->Encode(text, as_markup));
  };
  EXPECT_TRUE(opens("a<think>\n"));
  EXPECT_TRUE(opens("<think>"));
  EXPECT_FALSE(opens("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens("<think>a"));
  EXPECT_FALSE(opens(""));
  EXPECT_EQ(PieceWithMarks(Think(), **t, 256), "<think>");
  EXPECT_EQ(PieceWithMarks(Think(), **t, 'a'), "a");
  EXPECT_EQ(PieceWithMarks(Think(), **t, 9999), "");
}

}  // namespace
}  // namespace tessera::llm
