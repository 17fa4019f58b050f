// What a vocabulary wants done to a text before its model, or to a token before it is text.
#pragma once

#include <string>

namespace tessera::llm {

struct TextStep {
  enum class Kind {
    // Changes.
    kCompose,  // see compose.h
    kDecompose,
    kLower,
    kWithoutMarks,
    kWithoutAccents,   // taken apart and without marks that take no room, as BERT does
    kTrim,             // white space at the ends that are set
    kReplace,          // by `text` what `from` is, or what `pattern` matches
    kPrefix,           // `text` before it
    kClean,            // without control characters, and each white space a space: BERT's
    kIdeographsApart,  // with spaces around them: BERT's
    kNmt,              // SentencePiece's cleaning
    kCharsmap,         // by the map `text`; see tokenizer_charsmap.h
    kBytes,            // each byte as the character that stands for it
    kFromBytes,        // the other way round
    // Cuts into words.
    kCut,     // by what `pattern` matches
    kScripts  // where the script changes
  };
  enum class Matches { kAlone, kRemoved, kWithPrevious, kWithNext, kTogether };

  Kind kind = Kind::kCut;
  std::string pattern, from, text;
  bool alike = false;              // of kCompose and kDecompose
  bool left = true, right = true;  // of kTrim
  // Of kPrefix: not where it is already; only where a text begins, not after tokens and cuts too.
  bool once = false, begin_only = false;
  Matches matches = Matches::kAlone;
  bool inverted = false;  // what does not match counts as a match, and else nothing
};

inline TextStep CutBy(std::string pattern, TextStep::Matches matches = TextStep::Matches::kAlone,
                      bool inverted = false) {
  TextStep step;
  step.pattern = std::move(pattern);
  step.matches = matches;
  step.inverted = inverted;
  return step;
}
inline TextStep Change(TextStep::Kind kind) {
  TextStep step;
  step.kind = kind;
  return step;
}
inline TextStep Replace(std::string from, std::string text) {
  TextStep step = Change(TextStep::Kind::kReplace);
  step.from = std::move(from);
  step.text = std::move(text);
  return step;
}
inline TextStep Prefix(std::string text, bool once = false, bool begin_only = false) {
  TextStep step = Change(TextStep::Kind::kPrefix);
  step.text = std::move(text);
  step.once = once;
  step.begin_only = begin_only;
  return step;
}

}  // namespace tessera::llm
