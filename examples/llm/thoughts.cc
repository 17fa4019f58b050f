// Holding text back that may be a mark, and white space that may stand before one.
#include "examples/llm/thoughts.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "examples/llm/held_text.h"
#include "examples/llm/json_schema_scalars.h"

namespace tessera::llm {
namespace {

constexpr ThoughtMarks kMarks[] = {
    {"<think>", "</think>"}, {"<seed:think>", "</seed:think>"}, {"[THINK]", "[/THINK]"}};

size_t SpaceAtBegin(absl::string_view text) {
  return text.size() - absl::StripLeadingAsciiWhitespace(text).size();
}

}  // namespace

const ThoughtMarks* ThoughtMarksOf(absl::string_view chat_template) {
  for (const ThoughtMarks& marks : kMarks) {
    if (absl::StrContains(chat_template, marks.end)) return &marks;
  }
  return nullptr;
}

const std::string& PieceWithMarks(const ThoughtMarks& marks, const Tokenizer& tokenizer,
                                  int32_t token) {
  const std::string& piece = tokenizer.Piece(token);
  if (!piece.empty() || token < 0 || token >= tokenizer.size()) return piece;
  const std::string& name = tokenizer.spec().tokens[static_cast<size_t>(token)].text;
  return name == marks.begin || name == marks.end ? name : piece;
}

bool OpensThought(const ThoughtMarks& marks, const Tokenizer& tokenizer,
                  absl::Span<const int32_t> prompt) {
  std::string end;
  for (size_t i = prompt.size(); i > 0 && end.size() < marks.begin.size();) {
    end = absl::StrCat(PieceWithMarks(marks, tokenizer, prompt[--i]), end);
    absl::StripTrailingAsciiWhitespace(&end);
  }
  return absl::EndsWith(end, marks.begin);
}

// A mark's first character is no other of it. So a text without the mark is pieces that each begin
// with that character, go on as the mark does, and then otherwise.
std::string GrammarOfThought(const ThoughtMarks& marks) {
  const auto escaped = [](char c) {
    return absl::StrCat(c == '[' || c == ']' ? "\\" : "", absl::string_view(&c, 1));
  };
  const std::string first = escaped(marks.end[0]);
  std::vector<std::string> pieces;
  for (size_t n = 1; n < marks.end.size(); ++n) {
    pieces.push_back(absl::StrCat(GrammarQuoted(marks.end.substr(0, n)), " ([^",
                                  escaped(marks.end[n]), first, "] [^", first, "]*)?"));
  }
  return absl::StrCat("[^", first, "]* (", absl::StrJoin(pieces, " | "), ")* ",
                      GrammarQuoted(marks.end));
}

void ThoughtReader::Drop(size_t bytes) {
  held_.erase(0, bytes);
  said_from_ += bytes;
}

// Whether there is more to be read of what is held.
bool ThoughtReader::Step(News* out) {
  const absl::string_view text = held_;
  switch (at_) {
    case At::kBegin: {
      const absl::string_view rest = absl::StripLeadingAsciiWhitespace(text);
      if (absl::StartsWith(rest, marks_.begin)) {
        Drop(text.size() - rest.size() + marks_.begin.size());
        at_ = At::kThought;
        return true;
      }
      if (absl::StartsWith(marks_.begin, rest)) return false;
      at_ = At::kSaid;
      return true;
    }
    case At::kThought: {
      if (!thought_) Drop(SpaceAtBegin(text));
      const size_t end = absl::string_view(held_).find(marks_.end);
      const size_t certain = end == held_.npos ? BeforeMark(held_, marks_.end) : end;
      const absl::string_view thought =
          absl::StripTrailingAsciiWhitespace(absl::string_view(held_).substr(0, certain));
      out->thought.append(thought.data(), thought.size());
      thought_ = thought_ || !thought.empty();
      if (end == held_.npos) {
        Drop(thought.size());
        return false;
      }
      Drop(end + marks_.end.size());
      at_ = At::kAfter;
      return true;
    }
    case At::kAfter:
      Drop(SpaceAtBegin(text));
      if (held_.empty()) return false;
      at_ = At::kSaid;
      return true;
    case At::kSaid:
      out->said += held_;
      held_.clear();
      return false;
  }
  return false;
}

ThoughtReader::News ThoughtReader::Push(absl::string_view text) {
  held_.append(text.data(), text.size());
  News out;
  while (Step(&out)) {
  }
  return out;
}

ThoughtReader::News ThoughtReader::Finish() {
  News out;
  if (at_ == At::kBegin) out.said = std::move(held_);
  if (at_ == At::kThought) {
    absl::StripTrailingAsciiWhitespace(&held_);
    out.thought = std::move(held_);
  }
  held_.clear();
  return out;
}

}  // namespace tessera::llm
