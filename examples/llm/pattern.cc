// Patterns as programs of splits, and a matcher that goes back where a choice failed and remembers
// what failed where.
//
//   What follows from a point of the program and of the text depends on nothing else, so a split
// that failed at a character once has failed there for good, from wherever a match began: no split
// is tried twice at a character. For that a loop must not come round without reading: the body of
// one that could match nothing is compiled to what it matches otherwise.
#include "examples/llm/pattern.h"

#include <algorithm>
#include <array>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "examples/llm/pattern_tree.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

using Piece = PatternPiece;
using Sequence = PatternSequence;
using Choice = PatternChoice;

constexpr size_t kMostInstructions = 2000;

// A set with what it says of ASCII looked up.
struct Set {
  std::array<bool, 128> ascii;
  CharSet all;
  explicit Set(CharSet from) : all(std::move(from)) {
    for (uint32_t c = 0; c < ascii.size(); ++c) ascii[c] = all.Has(c);
  }
  bool Has(uint32_t c) const { return c < ascii.size() ? ascii[c] : all.Has(c); }
};

struct Instruction {
  enum class Kind {
    kSet,       // reads a character of set `first`
    kSplit,     // goes on at `first`, and where that fails at `second`
    kLoop,      // reads all that is in set `first`, or else less, and goes on at `second`
    kJump,      // to `first`
    kAhead,     // goes on at `first` if what follows this instruction, up to its kEnd, matches
    kNotAhead,  // if it does not
    kOnce,  // goes on at `first` from where the first match of what follows, up to its kEnd, ends
    kBack,  // goes `first` characters back
    kFail,
    kEnd
  } kind;
  int first = 0, second = 0;
  int split = 0;  // the number of a kSplit or kLoop
};
using Kind = Instruction::Kind;

}  // namespace

struct Pattern::Program {
  std::vector<Instruction> code;
  std::vector<Set> sets;
  int splits = 0;
};

namespace {

bool Nullable(const Choice& choice);
bool Nullable(const Piece& p) {
  if (p.kind == Piece::Kind::kSet) return p.min == 0;
  return !p.reads() || p.min == 0 || Nullable(p.choice);
}
bool Nullable(const Sequence& s) {
  return std::all_of(s.begin(), s.end(), [](const Piece& p) { return Nullable(p); });
}
bool Nullable(const Choice& c) {
  return std::any_of(c.begin(), c.end(), [](const Sequence& s) { return Nullable(s); });
}

// Writes a tree's program: of all that it matches, or of that which reads something or nothing.
struct Compiler {
  enum class What { kAll, kSome, kNothing };

  std::vector<Instruction> code;
  std::vector<Set> sets;
  std::map<const Piece*, int> set_of;
  int splits = 0;
  bool empty_once = false;  // a repeat has a kOnce that may match nothing

  bool Full() const { return code.size() > kMostInstructions; }
  int here() const { return static_cast<int>(code.size()); }
  int Emit(Kind kind, int first = 0) {
    code.push_back({kind, first, 0, kind == Kind::kSplit || kind == Kind::kLoop ? splits++ : 0});
    return here() - 1;
  }
  // The second way of a split is what is written next; where it is lazy that is tried first.
  void Leave(int split, bool lazy) {
    code[split].second = here();
    if (lazy) std::swap(code[split].first, code[split].second);
  }
  // The next instruction first; `second` is set when it is known.
  int EmitSplit() { return Emit(Kind::kSplit, here() + 1); }

  void Write(const Choice& choice, What what) {
    // A sequence as it is, or, where it must read, with the first of its pieces that does.
    struct Alternative {
      const Sequence* sequence;
      size_t reads;
    };
    std::vector<Alternative> all;
    for (const Sequence& s : choice) {
      if (what != What::kSome) {
        if (what == What::kAll || Nullable(s)) all.push_back({&s, s.size()});
        continue;
      }
      for (size_t i = 0; i < s.size(); ++i) {
        if (s[i].max > 0) all.push_back({&s, i});
        if (!Nullable(s[i])) break;
      }
    }
    if (all.empty()) Emit(Kind::kFail);
    std::vector<int> jumps;
    for (size_t i = 0; i < all.size() && !Full(); ++i) {
      const bool last = i + 1 == all.size();
      const int split = last ? -1 : EmitSplit();
      const Sequence& s = *all[i].sequence;
      for (size_t k = 0; k < s.size() && !Full(); ++k) {
        Write(s[k], what == What::kAll       ? What::kAll
                    : what == What::kNothing ? What::kNothing
                    : k < all[i].reads       ? What::kNothing
                    : k == all[i].reads      ? What::kSome
                                             : What::kAll);
      }
      if (last) break;
      jumps.push_back(Emit(Kind::kJump));
      code[split].second = here();
    }
    for (int j : jumps) code[j].first = here();
  }

  void Write(const Piece& p, What what) {
    if (!p.reads()) {
      if (what == What::kSome) {
        Emit(Kind::kFail);
      } else if (p.kind == Piece::Kind::kBack) {
        Emit(Kind::kBack, p.min);
      } else {
        WriteApart(p.kind == Piece::Kind::kAhead ? Kind::kAhead : Kind::kNotAhead, p);
      }
      return;
    }
    if (what == What::kNothing) {
      empty_once |= p.kind == Piece::Kind::kOnce;
      if (p.min > 0)
        Write(p.choice, What::kNothing);  // a set that must read is in no such sequence
      return;
    }
    const bool nullable = p.kind != Piece::Kind::kSet && Nullable(p.choice);
    int count = 0;
    if (what == What::kSome && nullable) {
      WriteOnce(p, What::kSome);
      count = 1;
    }
    const int least = what == What::kSome && !nullable ? std::max(p.min, 1) : p.min;
    for (; count < least && !Full(); ++count) {
      const int before = here();
      WriteOnce(p, What::kAll);
      if (here() == before) count = least - 1;  // nothing, however often
    }
    if (p.max == kMany && p.kind == Piece::Kind::kSet && !p.lazy) {
      const int loop = Emit(Kind::kLoop, SetOf(p));
      code[loop].second = here();
      return;
    }
    if (p.max == kMany) {
      const int loop = EmitSplit();
      WriteOnce(p, nullable ? What::kSome : What::kAll);
      Emit(Kind::kJump, loop);
      Leave(loop, p.lazy);
      return;
    }
    std::vector<int> outs;
    for (; count < p.max && !Full(); ++count) {
      outs.push_back(EmitSplit());
      WriteOnce(p, What::kAll);
    }
    for (int out : outs) Leave(out, p.lazy);
  }

  // With a kEnd of its own.
  void WriteApart(Kind kind, const Piece& p) {
    const int apart = Emit(kind);
    Write(p.choice, What::kAll);
    Emit(Kind::kEnd);
    code[apart].first = here();
  }

  void WriteOnce(const Piece& p, What what) {
    if (p.kind == Piece::Kind::kGroup) {
      Write(p.choice, what);
      return;
    }
    if (p.kind == Piece::Kind::kOnce) {
      empty_once |= what != What::kAll;
      WriteApart(Kind::kOnce, p);
      return;
    }
    Emit(Kind::kSet, SetOf(p));
  }

  int SetOf(const Piece& p) {
    const auto [it, added] = set_of.emplace(&p, static_cast<int>(sets.size()));
    if (added) sets.emplace_back(p.set);
    return it->second;
  }
};

// What is known of splits at characters, in pages that are made when something is.
class Memory {
 public:
  enum Known : uint8_t { kNothing, kFails, kMatches };
  Memory(size_t characters, int splits)
      : splits_(static_cast<size_t>(splits)), pages_(characters / kPage + 1) {}

  bool empty() const { return empty_; }
  Known Of(int split, size_t at) const {
    const std::vector<Known>& page = pages_[at / kPage];
    return page.empty() ? kNothing : page[at % kPage * splits_ + static_cast<size_t>(split)];
  }
  void Learn(int split, size_t at, Known known) {
    std::vector<Known>& page = pages_[at / kPage];
    if (page.empty()) page.resize(kPage * splits_);
    empty_ = false;
    page[at % kPage * splits_ + static_cast<size_t>(split)] = known;
  }

 private:
  static constexpr size_t kPage = 256;
  const size_t splits_;
  std::vector<std::vector<Known>> pages_;
  bool empty_ = true;
};

class Matcher {
 public:
  Matcher(const std::vector<Instruction>& code, const std::vector<Set>& sets, int splits,
          absl::Span<const Character> text)
      : code_(code), sets_(sets), text_(text), memory_(text.size(), splits) {}

  // Where the match that begins at a character ends, or -1.
  int64_t Match(size_t at) {
    steps_ = 0;
    return Run(0, at, End::kMatch);
  }

 private:
  enum class End { kMatch, kAhead, kOnce };  // of what a run is

  // A split on the way here, and whether its last way is the one that is tried: of a loop, that
  // which reads no further than `least`; now it has read up to `at`, and it could up to `most`.
  struct Frame {
    int pc;
    bool last;
    size_t at, least, most;
  };
  // Matches of so few steps, nearly all there are, remember nothing.
  static constexpr int kShort = 64;

  bool Reads(const Instruction& i, size_t at) const {
    return at < text_.size() && sets_[i.first].Has(text_[at].code);
  }

  // From an instruction to the end of its program.
  int64_t Run(int pc, size_t at, End end) {
    const size_t base = stack_.size();
    while (true) {
      const Instruction& i = code_[pc];
      ++steps_;
      bool good = true;
      switch (i.kind) {
        case Kind::kSet:
          good = Reads(i, at);
          ++at;
          ++pc;
          break;
        case Kind::kJump:
          pc = i.first;
          break;
        case Kind::kFail:
          good = false;
          break;
        case Kind::kEnd:
          return Succeed(base, at, end);
        case Kind::kAhead:
        case Kind::kNotAhead:
          good = (Run(pc + 1, at, End::kAhead) >= 0) == (i.kind == Kind::kAhead);
          pc = i.first;
          break;
        case Kind::kOnce: {
          const int64_t to = Run(pc + 1, at, End::kOnce);
          good = to >= 0;
          if (good) at = static_cast<size_t>(to);
          pc = i.first;
          break;
        }
        case Kind::kBack:
          good = at >= static_cast<size_t>(i.first);
          at -= static_cast<size_t>(i.first);
          ++pc;
          break;
        case Kind::kSplit: {
          const Memory::Known known = memory_.Of(i.split, at);
          if (known == Memory::kMatches) return Succeed(base, EndOf(i.split, at), end);
          good = known == Memory::kNothing;
          if (!good) break;
          if (Blocked(i.first, at)) {
            pc = i.second;
            break;
          }
          const bool only = Blocked(i.second, at);
          if (!only || steps_ > kShort) stack_.push_back({pc, only, at, at, at});
          pc = i.first;
          break;
        }
        case Kind::kLoop: {
          const Memory::Known known = memory_.Of(i.split, at);
          if (known == Memory::kMatches) return Succeed(base, EndOf(i.split, at), end);
          good = known == Memory::kNothing;
          if (!good) break;
          size_t to = at;
          bool fails = false;  // there
          while (!fails && Reads(i, to)) {
            ++to;
            fails = !memory_.empty() && memory_.Of(i.split, to) == Memory::kFails;
          }
          if (fails) --to;
          steps_ += static_cast<int64_t>(to - at);
          if (to > at || steps_ > kShort) stack_.push_back({pc, to == at, to, at, to});
          at = to;
          pc = i.second;
          break;
        }
      }
      if (good) continue;
      while (stack_.size() > base && stack_.back().last) {
        Learn(stack_.back(), Memory::kFails);
        stack_.pop_back();
      }
      if (stack_.size() == base) return -1;
      Frame& f = stack_.back();
      pc = code_[f.pc].second;
      if (code_[f.pc].kind == Kind::kLoop) {
        --f.at;
        while (f.at > f.least && Blocked(pc, f.at)) --f.at;
      }
      f.last = f.at == f.least;
      at = f.at;
    }
  }

  // Whether an instruction is seen to fail.
  bool Blocked(int pc, size_t at) const {
    return code_[pc].kind == Kind::kSet && !Reads(code_[pc], at);
  }

  // What led here matches too, of a lookahead or a kOnce: of others it matters where they end.
  int64_t Succeed(size_t base, size_t at, End end) {
    for (size_t i = base; i < stack_.size() && end != End::kMatch && steps_ > kShort; ++i) {
      const Frame& f = stack_[i];
      Learn(f, Memory::kMatches);
      const uint64_t split = static_cast<uint64_t>(code_[f.pc].split) << 32;
      for (size_t k = f.least; k <= f.at && end == End::kOnce; ++k) ends_[split | k] = at;
    }
    stack_.resize(base);
    return static_cast<int64_t>(at);
  }

  // Where a match that is known ends; anywhere if it is a lookahead's.
  size_t EndOf(int split, size_t at) const {
    const auto it = ends_.find(static_cast<uint64_t>(split) << 32 | at);
    return it == ends_.end() ? at : it->second;
  }

  void Learn(const Frame& f, Memory::Known known) {
    if (steps_ <= kShort) return;
    const size_t most = known == Memory::kFails ? f.most : f.at;
    for (size_t at = f.least; at <= most; ++at) memory_.Learn(code_[f.pc].split, at, known);
  }

  const std::vector<Instruction>& code_;
  const std::vector<Set>& sets_;
  const absl::Span<const Character> text_;
  Memory memory_;
  std::vector<Frame> stack_;
  absl::flat_hash_map<uint64_t, size_t> ends_;  // of splits of kOnce and characters
  int64_t steps_ = 0;                           // of this match
};

}  // namespace

Pattern::Pattern(std::unique_ptr<Program> program) : program_(std::move(program)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

absl::StatusOr<Pattern> Pattern::Compile(absl::string_view text) {
  ASSIGN_OR_RETURN(const Choice choice, ParsePattern(text));
  Compiler compiler;
  compiler.Write(choice, Compiler::What::kAll);
  compiler.Emit(Kind::kEnd);
  if (compiler.Full()) {
    return absl::InvalidArgumentError(absl::StrCat("pattern: repeats make it longer than ",
                                                   kMostInstructions,
                                                   " steps; smaller counts do not"));
  }
  if (compiler.empty_once) {
    return absl::InvalidArgumentError(
        "pattern: a possessive repeat that may match nothing, in another repeat, is not known");
  }
  auto program = std::make_unique<Program>();
  program->code = std::move(compiler.code);
  program->sets = std::move(compiler.sets);
  program->splits = compiler.splits;
  return Pattern(std::move(program));
}

std::vector<Word> Pattern::Matches(absl::Span<const Character> text, const Word& of) const {
  std::vector<Word> matches;
  const size_t size = of.end - of.begin;
  Matcher matcher(program_->code, program_->sets, program_->splits, text.subspan(of.begin, size));
  for (size_t at = 0; at <= size;) {
    const int64_t to = matcher.Match(at);
    const size_t end = of.begin + static_cast<size_t>(std::max<int64_t>(to, 0));
    const bool nothing = to <= static_cast<int64_t>(at);
    // No match of nothing follows another match at once.
    if (to >= 0 && !(nothing && !matches.empty() && matches.back().end == end)) {
      matches.push_back({of.begin + at, end});
    }
    at = nothing ? at + 1 : static_cast<size_t>(to);
  }
  return matches;
}

std::vector<Word> Pattern::Split(absl::Span<const Character> text, const Word& of) const {
  std::vector<Word> words;
  size_t rest = of.begin;  // where what no match holds begins
  for (const Word& match : Matches(text, of)) {
    if (rest < match.begin) words.push_back({rest, match.begin});
    if (match.begin < match.end) words.push_back(match);
    rest = match.end;
  }
  if (rest < of.end) words.push_back({rest, of.end});
  return words;
}

}  // namespace tessera::llm
