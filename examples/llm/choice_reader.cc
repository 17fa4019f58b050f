// Which bytes of the text are told, so that tokens are told with them.
#include "examples/llm/choice_reader.h"

#include <algorithm>

namespace tessera::llm {

ChoiceReader::ChoiceReader(const Tokenizer& tokenizer, const Options& options)
    : tokenizer_(tokenizer), options_(options), answer_(tokenizer, options.form) {
  if (options.thoughts != nullptr) thoughts_.emplace(*options.thoughts, options.open);
}

std::string ChoiceReader::Show(int32_t token) {
  return thoughts_ ? PieceWithMarks(*options_.thoughts, tokenizer_, token) : answer_.Show(token);
}

void ChoiceReader::Weigh(TokenLikelihood likelihood) {
  if (answer_.in_header()) return;
  const std::lock_guard lock(mutex_);
  weighed_.push_back(std::move(likelihood));
}

void ChoiceReader::Push(const std::string& text, Choice* news) {
  ThoughtReader::News parts;
  if (thoughts_) {
    parts = thoughts_->Push(text);
    said_from_ = thoughts_->said_from();
  } else {
    said_from_ = answer_.said_from();
    const size_t thought = std::min(said_from_ - std::min(said_from_, shown_), text.size());
    parts = {text.substr(0, thought), text.substr(thought)};
  }
  shown_ += text.size();
  news->thought += parts.thought;
  Say(parts.said, false, news);
}

void ChoiceReader::Finish(Choice* news) {
  ThoughtReader::News parts;
  if (thoughts_) parts = thoughts_->Finish();
  news->thought += parts.thought;
  Say(parts.said, true, news);
}

void ChoiceReader::Say(const std::string& said, bool ended, Choice* news) {
  std::string text = options_.calls ? calls_.Push(said) : said;
  if (ended) {
    ToolCallReader::Rest rest = calls_.Finish();
    text += rest.text;
    if (options_.one_call && rest.calls.size() > 1) rest.calls.resize(1);
    news->calls = std::move(rest.calls);
  }
  news->text += text;
  said_ += text;
  TellTokens(news);
}

void ChoiceReader::TellTokens(Choice* news) {
  const std::lock_guard lock(mutex_);
  while (!weighed_.empty() && weighed_.front().begin < said_from_ + said_.size()) {
    const TokenLikelihood weighed = std::move(weighed_.front());
    weighed_.pop_front();
    if (weighed.begin < said_from_) continue;  // of a thought
    for (; counted_ < weighed.begin - said_from_; ++counted_) {
      characters_ += static_cast<uint8_t>(said_[counted_]) >> 6 != 2;
    }
    ToldToken& told = news->tokens.emplace_back();
    told.next = ChanceOf(weighed.next);
    for (const auto& one : weighed.likeliest) told.likeliest.push_back(ChanceOf(one));
    told.offset = characters_;
  }
}

// Control tokens show nothing and are told by their names.
TokenChance ChoiceReader::ChanceOf(const TokenLikelihood::One& one) const {
  std::string bytes = tokenizer_.Piece(one.token);
  if (bytes.empty() && one.token < tokenizer_.size()) {
    bytes = tokenizer_.spec().tokens[static_cast<size_t>(one.token)].text;
  }
  return {std::move(bytes), one.log_probability};
}

}  // namespace tessera::llm
