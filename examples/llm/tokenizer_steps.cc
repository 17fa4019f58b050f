// Steps on texts: changes go over characters or are replacements, cuts are by patterns.
#include "examples/llm/tokenizer_steps.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "examples/llm/compose.h"
#include "examples/llm/tokenizer.h"
#include "examples/llm/unicode_properties.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

using Kind = TextStep::Kind;

constexpr size_t kMostSteps = 256;
constexpr size_t kMostGrowth = 1 << 16;

// Each character as `change` appends it; bytes of none stay.
template <typename Change>
std::string Each(absl::string_view text, const Change& change) {
  const std::vector<Character> characters = Characters(text);
  std::string out;
  for (size_t i = 0; i + 1 < characters.size(); ++i) {
    if (characters[i].code == kNoCharacter) {
      out += text[characters[i].begin];
    } else {
      change(characters[i].code, &out);
    }
  }
  return out;
}

// What UTF-8 stands for where some characters stand for bytes.
std::string FromBytes(absl::string_view text) {
  static const auto* const byte_of = [] {
    auto* out = new std::array<int16_t, 512>;  // by code point; -1: one that stands for itself
    out->fill(-1);
    for (int b = 0; b < 256; ++b) (*out)[Characters(ByteCharacters()[b])[0].code] = b;
    return out;
  }();
  return Each(text, [](uint32_t code, std::string* out) {
    if (code < byte_of->size() && (*byte_of)[code] >= 0) {
      out->push_back(static_cast<char>((*byte_of)[code]));
    } else {
      AppendUtf8(code, out);
    }
  });
}

bool IsMark(uint32_t code) {
  const Category c = CategoryOf(code);
  return c == Category::kMn || c == Category::kMc || c == Category::kMe;
}

void AppendClean(uint32_t code, std::string* out) {
  const Category c = CategoryOf(code);
  constexpr uint32_t kReplacement = 0xFFFD;
  if (code == '\t' || code == '\n' || code == '\r') {
    out->push_back(' ');
  } else if (code == kReplacement || c == Category::kCc || c == Category::kCf ||
             c == Category::kCo) {
    return;
  } else if (IsWhitespace(code)) {
    out->push_back(' ');
  } else {
    AppendUtf8(code, out);
  }
}

void AppendIdeographApart(uint32_t code, std::string* out) {
  constexpr CodeRange kIdeographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                       {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                       {0x2F800, 0x2FA1F}};
  const bool apart =
      std::any_of(std::begin(kIdeographs), std::end(kIdeographs),
                  [&](const CodeRange& r) { return code >= r.first && code <= r.last; });
  if (apart) out->push_back(' ');
  AppendUtf8(code, out);
  if (apart) out->push_back(' ');
}

void AppendNmt(uint32_t code, std::string* out) {
  const bool space = code == '\t' || code == '\n' || code == '\f' || code == '\r' ||
                     code == 0x1680 || (code >= 0x200B && code <= 0x200F) || code == 0x2028 ||
                     code == 0x2029 || code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
  const bool gone = (code >= 1 && code <= 0x1F) || code == 0x7F || code == 0x8F || code == 0x9F;
  if (space) {
    out->push_back(' ');
  } else if (!gone) {
    AppendUtf8(code, out);
  }
}

std::string Replaced(const Pattern& pattern, absl::string_view text, absl::string_view by) {
  const std::vector<Character> characters = Characters(text);
  std::string out;
  size_t rest = 0;
  const auto keep = [&](size_t end) {
    const size_t begin = characters[rest].begin;
    out.append(text.data() + begin, characters[end].begin - begin);
  };
  for (const Word& match : pattern.Matches(characters, {0, characters.size() - 1})) {
    keep(match.begin);
    out.append(by.data(), by.size());
    rest = match.end;
  }
  keep(characters.size() - 1);
  return out;
}

// Kana go with ideographs. Spaces and what has no script go with what is before them, and are gone
// where nothing is.
void CutByScript(absl::Span<const Character> text, const Word& of, std::vector<Word>* out) {
  static const int kHan = *ScriptNamed("Han"), kHiragana = *ScriptNamed("Hiragana"),
                   kKatakana = *ScriptNamed("Katakana"), kNone = *ScriptNamed("Unknown");
  constexpr uint32_t kLongVowel = 0x30FC;
  int before = kNone;
  for (size_t i = of.begin; i < of.end; ++i) {
    const uint32_t code = text[i].code;
    int script = code == ' ' ? kNone : ScriptOf(code);
    if (script == kHiragana || script == kKatakana || code == kLongVowel) script = kHan;
    if (script != kNone && script != before) {
      out->push_back({i, i});
      before = script;
    }
    if (before != kNone) out->back().end = i + 1;
  }
}

// At most how many times as long a text becomes.
size_t GrowthOf(const TextStep& step, const std::optional<Charsmap>& map) {
  constexpr size_t kAlike = 11, kForm = 3, kPlain = 2;
  switch (step.kind) {
    case Kind::kCompose:
    case Kind::kDecompose:
      return step.alike ? kAlike : kForm;
    case Kind::kWithoutAccents:
      return kForm;
    case Kind::kReplace:
      if (step.from.empty()) return step.text.size() + 1;  // it may match nothing, anywhere
      return std::max<size_t>(1, (step.text.size() + step.from.size() - 1) / step.from.size());
    case Kind::kPrefix:
      return step.text.size() + 1;
    case Kind::kCharsmap:
      return std::max<size_t>(1, map->longest());
    case Kind::kLower:
    case Kind::kIdeographsApart:
    case Kind::kBytes:
      return kPlain;
    case Kind::kWithoutMarks:
    case Kind::kTrim:
    case Kind::kClean:
    case Kind::kNmt:
    case Kind::kFromBytes:
    case Kind::kCut:
    case Kind::kScripts:
      return 1;
  }
  return 1;
}

}  // namespace

absl::StatusOr<TextSteps> TextSteps::Make(std::vector<TextStep> steps) {
  if (steps.size() > kMostSteps) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", kMostSteps, " steps on texts"));
  }
  TextSteps out;
  size_t growth = 1;
  for (TextStep& step : steps) {
    Step made;
    if (step.kind == Kind::kCut && step.pattern.empty()) {
      return absl::InvalidArgumentError("a cut by no pattern");
    }
    if (!step.pattern.empty()) {
      ASSIGN_OR_RETURN(made.pattern, Pattern::Compile(step.pattern));
    }
    if (step.kind == Kind::kCharsmap) {
      ASSIGN_OR_RETURN(made.map, Charsmap::Make(step.text));
      step.text = {};
    }
    made.growth = GrowthOf(step, made.map);
    growth *= made.growth;
    if (growth > kMostGrowth) {
      return absl::InvalidArgumentError(
          absl::StrCat("steps that may make texts ", kMostGrowth, " times as long"));
    }
    made.step = std::move(step);
    out.steps_.push_back(std::move(made));
  }
  return out;
}

std::string TextSteps::Changed(const Step& step, absl::string_view text, const Place& place) {
  const TextStep& s = step.step;
  switch (s.kind) {
    case Kind::kCompose:
      return Composed(text, s.alike);
    case Kind::kDecompose:
      return Decomposed(text, s.alike);
    case Kind::kLower:
      return Each(text, AppendLower);
    case Kind::kWithoutMarks:
      return Each(text, [](uint32_t code, std::string* out) {
        if (!IsMark(code)) AppendUtf8(code, out);
      });
    case Kind::kWithoutAccents:
      return Each(Decomposed(text), [](uint32_t code, std::string* out) {
        if (CategoryOf(code) != Category::kMn) AppendUtf8(code, out);
      });
    case Kind::kTrim:
      if (s.left) text = WithoutSpaceAtBegin(text);
      if (s.right) text = WithoutSpaceAtEnd(text);
      return std::string(text);
    case Kind::kReplace:
      if (step.pattern) return Replaced(*step.pattern, text, s.text);
      return absl::StrReplaceAll(text, {{s.from, s.text}});
    case Kind::kPrefix: {
      const bool none = text.empty() || (place.begins && place.follows) ||
                        (s.begin_only && !place.begins) ||
                        (s.once && absl::StartsWith(text, s.text));
      return absl::StrCat(none ? "" : s.text, text);
    }
    case Kind::kClean:
      return Each(text, AppendClean);
    case Kind::kIdeographsApart:
      return Each(text, AppendIdeographApart);
    case Kind::kNmt:
      return Each(text, AppendNmt);
    case Kind::kCharsmap:
      return step.map->Mapped(text);
    case Kind::kBytes: {
      std::string out;
      for (const char c : text) out += ByteCharacters()[static_cast<uint8_t>(c)];
      return out;
    }
    case Kind::kFromBytes:
      return FromBytes(text);
    case Kind::kCut:
    case Kind::kScripts:
      break;
  }
  return std::string(text);
}

void TextSteps::Cut(const Step& step, absl::Span<const Character> text, const Word& of,
                    std::vector<Word>* out) {
  using Matches = TextStep::Matches;
  if (step.step.kind == Kind::kScripts) return CutByScript(text, of, out);
  const Matches what = step.step.matches;
  const bool back = what == Matches::kWithNext;
  struct Part {
    Word word;
    bool match;
  };
  std::vector<Part> parts;
  size_t rest = of.begin;
  for (const Word& match : step.pattern->Matches(text, of)) {
    if (rest < match.begin) parts.push_back({{rest, match.begin}, step.step.inverted});
    parts.push_back({match, !step.step.inverted});
    rest = match.end;
  }
  if (rest < of.end) parts.push_back({{rest, of.end}, step.step.inverted});
  if (back) std::reverse(parts.begin(), parts.end());
  std::vector<Word> words;
  bool before = false;
  for (const Part& part : parts) {
    const bool joins = what == Matches::kTogether               ? part.match == before
                       : what == Matches::kWithPrevious || back ? part.match && !before
                                                                : false;
    before = part.match;
    if (what == Matches::kRemoved && part.match) continue;
    if (!joins || words.empty()) {
      words.push_back(part.word);
    } else if (back) {
      words.back().begin = part.word.begin;
    } else {
      words.back().end = part.word.end;
    }
  }
  if (back) std::reverse(words.begin(), words.end());
  std::copy_if(words.begin(), words.end(), std::back_inserter(*out),
               [](const Word& w) { return w.begin < w.end; });
}

void TextSteps::From(size_t step, absl::string_view text, const Place& place,
                     const Taker& take) const {
  if (text.empty()) return;
  if (step == steps_.size()) return take(text);
  if (!steps_[step].cuts()) {
    return From(step + 1, Changed(steps_[step], text, place), place, take);
  }
  const std::vector<Character> characters = Characters(text);
  std::vector<Word> words = {{0, characters.size() - 1}};
  for (; step < steps_.size() && steps_[step].cuts(); ++step) {
    std::vector<Word> split;
    for (const Word& w : words) Cut(steps_[step], characters, w, &split);
    words = std::move(split);
  }
  for (const auto& [begin, end] : words) {
    const uint32_t from = characters[begin].begin;
    From(step, text.substr(from, characters[end].begin - from),
         {place.begins && begin == 0, place.follows}, take);
  }
}

void TextSteps::Do(absl::string_view text, const Place& place, const Taker& take) const {
  From(0, text, place, take);
}

std::string TextSteps::Changed(absl::string_view text, const Place& place) const {
  std::string out(text);
  for (const Step& step : steps_) out = Changed(step, out, place);
  return out;
}

std::optional<std::string> TextSteps::ChangedWithin(size_t* budget, absl::string_view text) const {
  std::string out(text);
  size_t most = out.size();
  for (const Step& step : steps_) {
    if (out.size() > *budget / step.growth) return std::nullopt;
    out = Changed(step, out, {});
    most = std::max(most, out.size());
  }
  if (most > *budget) return std::nullopt;
  *budget -= most;
  return out;
}

}  // namespace tessera::llm
