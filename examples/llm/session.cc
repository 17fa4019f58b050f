// Steps of 1, 16 and 128 tokens, of 32 on CPUs and of 512 on GPUs, and of a few with guesses,
// captured when first needed and replayed for every position.
#include "examples/llm/session.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "examples/llm/guess.h"
#include "examples/llm/sampler.h"
#include "graph/error.h"
#include "graph/panel.h"
#include "graph/status.h"
#include "runtime/host_target.h"

namespace tessera::llm {
namespace {

// A larger step costs as much for a few tokens as for all. On CPUs it takes the longer the larger
// it is: three steps of 32 are as long as one of 128. GPUs are nearly as busy with fewer tokens;
// past an eighth the larger one pays, and past half of the largest.
struct StepSize {
  int64_t tokens, least_on_cpus, least_on_gpus;  // taken for so many tokens or more; 0: never
};
constexpr StepSize kStepSizes[] = {
    {512, 0, 257}, {128, 97, 17}, {32, 17, 0}, {16, 3, 3}, {1, 1, 1}};  // largest first
constexpr int64_t kAllTokens = 64;
// Of steps with guesses: by Q4_0 these take 1.1, 1.6 and 2.9 times as long as one token.
constexpr int64_t kGuessSizes[] = {4, 8, 16};
static_assert(kMostGuesses < 16);
constexpr int64_t kDefaultContext = 4096;

int64_t ContextOf(const Model& model, const SessionOptions& options) {
  if (options.context > 0) return options.context;
  return std::min(model.config.context, kDefaultContext);
}

DType CacheOf(const Model& model, const SessionOptions& options) {
  if (options.cache) return *options.cache;
  return model.format == InfoOf(WeightFormat::kF32).name ? kFloat32 : kFloat16;
}

Activations ActivationsOf(const Model& model, const SessionOptions& options) {
  if (options.activations) return *options.activations;
  const Place& place = model.division.whole.places()[0];
  if (place.kind() != "CPU") {
    const std::vector<MatrixShape>& units = ValueOrThrow(GetDevice(place))->target().mma;
    const auto takes = [](const MatrixShape& m) { return m.operand == kBFloat16; };
    return std::any_of(units.begin(), units.end(), takes) ? Activations::kBf16 : Activations::kF32;
  }
  const bool pairs = model.format == InfoOf(WeightFormat::kBF16).name && SumsPairs(HostTarget());
  return pairs || HasTiles(kBFloat16, HostTarget()) ? Activations::kBf16 : Activations::kInt8;
}

Tensor LikeliestAmong(const Tensor& logits) {
  constexpr float kLeast = std::numeric_limits<float>::lowest();  // above what stands for NaN
  const Tensor known =
      Where(logits.IsNan(), -std::numeric_limits<float>::infinity(), logits.Maximum(kLeast));
  const Tensor none = known.Max(-1) == -std::numeric_limits<float>::infinity();
  return Where(none, kNoNumbers, known.ArgMax(-1).Cast(kInt32));
}

Tensor EmptyLogits(const Dims& shape, const Model& model) {
  return Tensor::Zeros(shape, kFloat32, model.division.logits).Contiguous().Realize();
}

// The tokens of a step that checks guesses, for so many.
int64_t StepSizeFor(int64_t tokens) {
  return *std::lower_bound(std::begin(kGuessSizes), std::end(kGuessSizes), tokens);
}

}  // namespace

Session::Session(const Model& model, const SessionOptions& options)
    : model_(model),
      transformer_(model, ContextOf(model, options), CacheOf(model, options),
                   ActivationsOf(model, options)),
      guesses_(model.config.AnyRemembers() ? 0 : std::min(options.guesses, kMostGuesses)),
      interrupted_(options.interrupted) {
  for (int64_t i = 0; i < options.texts; ++i) texts_.push_back({transformer_.EmptyCaches()});
  last_ = Room(options.texts);
  if (guesses_ > 0) each_ = Room(StepSizeFor(guesses_ + 1));
}

Session::Given Session::Room(int64_t rows) const {
  const Place& place = model_.division.logits;
  Given out{EmptyLogits({rows, model_.config.vocabulary}, model_)};
  if (place.kind() != "CPU") {
    out.likeliest = Tensor::Zeros({rows}, kInt32, place).Contiguous().Realize();
  }
  return out;
}

uint64_t Session::cache_bytes() const {
  uint64_t sum = 0;
  for (const Text& text : texts_) {
    for (const Tensor& t : TensorsOf(text.caches)) {
      sum += static_cast<uint64_t>(t.elements() * t.dtype().bytes());
    }
  }
  return sum;
}

std::unique_ptr<Session::Step> Session::MakeStep(size_t texts, int64_t tokens, Gives gives) {
  const std::string row_name = absl::StrCat("row_", tokens);
  const Variable row(row_name, 0, tokens - 1);
  std::vector<std::string> positions;
  std::vector<Part> parts;
  for (size_t i = 0; i < texts; ++i) {
    // A name has one pair of bounds in the process, so it tells both.
    const std::string name = absl::StrCat("position_", tokens, "_of_", context());
    positions.push_back(i == 0 ? name : absl::StrCat(name, "_", i));
    parts.push_back({texts_[0].caches, tokens, Variable(positions[i], 0, context() - tokens),
                     tokens == 1 ? Extent(1) : row + 1});
  }
  auto body = [this, parts, tokens, gives, row](const std::vector<Tensor>& inputs) {
    std::vector<Part> own = parts;
    absl::Span<const Tensor> rest = absl::MakeConstSpan(inputs).subspan(1);
    for (Part& p : own) {
      p.caches = WithTensors(p.caches, rest);
      rest.remove_prefix(TensorsOf(p.caches).size());
    }
    const Tensor hidden = transformer_.Hidden(inputs[0].To(model_.division.whole), own);
    if (gives == Gives::kAll) {
      all_logits_.SliceAxis(0, {0, tokens}).Assign(transformer_.Logits(hidden));
    } else {
      const bool one = gives == Gives::kLast && tokens > 1;
      const Tensor logits = transformer_.Logits(one ? hidden.SliceAxis(0, {row, row + 1}) : hidden);
      const int64_t count = gives == Gives::kEach ? tokens : static_cast<int64_t>(own.size());
      Given& to = gives == Gives::kEach ? each_ : last_;
      to.logits.SliceAxis(0, {0, count}).Assign(logits);
      if (to.likeliest) to.likeliest.SliceAxis(0, {0, count}).Assign(LikeliestAmong(logits));
    }
    return std::vector<Tensor>();
  };
  const int64_t rows = static_cast<int64_t>(texts) * tokens;
  auto step = std::make_unique<Step>(Step{texts, tokens, gives, std::move(positions), row_name,
                                          std::vector<int32_t>(static_cast<size_t>(rows)), Tensor(),
                                          Jit(std::move(body))});
  step->input = Tensor::FromBlob(step->ids.data(), {rows}, kInt32, {}, model_.division.tokens);
  return step;
}

Session::Step& Session::StepOf(size_t texts, int64_t tokens, Gives gives) {
  for (const std::unique_ptr<Step>& s : steps_) {
    if (s->texts == texts && s->tokens == tokens && s->gives == gives) return *s;
  }
  steps_.push_back(MakeStep(texts, tokens, gives));
  return *steps_.back();
}

Session::Step& Session::StepForAll() {
  const int64_t size = std::min(kAllTokens, context());
  if (all_ == nullptr) {
    all_logits_ = EmptyLogits({size, model_.config.vocabulary}, model_);
    all_ = MakeStep(1, size, Gives::kAll);
  }
  return *all_;
}

Session::Step& Session::StepFor(size_t tokens, const Text& text) {
  const bool on_cpus = model_.division.whole.places()[0].kind() == "CPU";
  int64_t best = 1;
  for (const StepSize& s : kStepSizes) {
    const int64_t least = on_cpus ? s.least_on_cpus : s.least_on_gpus;
    if (least > 0 && static_cast<int64_t>(tokens) >= least &&
        s.tokens <= context() - text.position) {
      best = s.tokens;
      break;
    }
  }
  return StepOf(1, best);
}

// The tokens of the texts one after another; of one alone there may be fewer than the step has.
void Session::Run(Step& step, absl::Span<const int32_t> tokens, absl::Span<Text* const> texts) {
  std::copy(tokens.begin(), tokens.end(), step.ids.begin());
  std::fill(step.ids.begin() + static_cast<int64_t>(tokens.size()), step.ids.end(), 0);
  const size_t each = tokens.size() / texts.size();
  Bindings values;
  std::vector<Tensor> inputs = {step.input};
  for (size_t i = 0; i < texts.size(); ++i) {
    for (Tensor& t : TensorsOf(texts[i]->caches)) inputs.push_back(std::move(t));
    // Memories do not know of positions.
    if (!model_.config.AllRemember()) values[step.positions[i]] = texts[i]->position;
  }
  if (step.tokens > 1 && (step.gives == Gives::kLast || model_.config.AnyRemembers())) {
    values[step.row] = static_cast<int64_t>(each) - 1;
  }
  given_ = step.gives == Gives::kEach ? &each_ : &last_;
  given_->host_logits.clear();
  given_->host_likeliest.clear();
  step.jit(inputs, values);
  for (size_t i = 0; i < texts.size(); ++i) {
    Text& text = *texts[i];
    const size_t end = static_cast<size_t>(text.position) + each;
    if (model_.config.AnyRemembers()) {
      // In place: what is read again is followed by what will be.
      text.fed.resize(std::max(text.fed.size(), end));
      const absl::Span<const int32_t> own = tokens.subspan(i * each, each);
      std::copy(own.begin(), own.end(), text.fed.begin() + text.position);
    }
    text.position = text.remembered = static_cast<int64_t>(end);
  }
}

// Brings memories to the position, where that is not where they are.
void Session::Recall(Text& text) {
  if (text.remembered == text.position || !model_.config.AnyRemembers()) return;
  while (!text.kept.empty() && text.kept.back().position > text.position) text.kept.pop_back();
  const std::vector<Tensor*> memories = transformer_.Memories(text.caches);
  for (size_t i = 0; i < memories.size(); ++i) {
    Tensor& m = *memories[i];
    m.Assign(text.kept.empty() ? Tensor::Zeros(m.shape(), m.dtype())
                               : text.kept.back().memories[i]);
    m.Realize();
  }
  const int64_t to = text.position;
  text.position = text.remembered = text.kept.empty() ? 0 : text.kept.back().position;
  const std::vector<int32_t> again(text.fed.begin() + text.position, text.fed.begin() + to);
  try {
    for (absl::Span<const int32_t> rest = again; !rest.empty();) {
      rest.remove_prefix(RunSome(rest, text));
    }
  } catch (...) {  // interrupted: the text is as long as before, and memories are behind it
    text.position = to;
    throw;
  }
}

// Conversations go on from where a prompt ended, or the answer to it.
void Session::KeepMemories(Text& text) {
  constexpr size_t kMost = 3;
  if (!model_.config.AnyRemembers() || text.position == 0) return;
  if (!text.kept.empty() && text.kept.back().position == text.position) return;
  if (text.kept.size() == kMost) text.kept.erase(text.kept.begin());
  Text::Kept& kept = text.kept.emplace_back(Text::Kept{text.position, {}});
  for (const Tensor* m : transformer_.Memories(text.caches)) {
    Tensor copy = Tensor::Empty(m->shape(), m->dtype(), m->device());
    copy.Assign(*m);
    kept.memories.push_back(copy.Realize());
  }
}

void Session::CheckInterrupted() const {
  if (interrupted_ != nullptr && *interrupted_) throw Error(absl::CancelledError("interrupted"));
}

size_t Session::RunSome(absl::Span<const int32_t> tokens, Text& text) {
  CheckInterrupted();
  Step& step = StepFor(tokens.size(), text);
  const size_t n = std::min<size_t>(tokens.size(), static_cast<size_t>(step.tokens));
  Run(step, tokens.subspan(0, n), {&text});
  return n;
}

size_t Session::AdvanceSome(absl::Span<const int32_t> tokens, int64_t text) {
  CHECK(!tokens.empty() && static_cast<int64_t>(tokens.size()) <= room(text));
  Text& at = texts_[static_cast<size_t>(text)];
  Recall(at);
  const bool prompt = tokens.size() > 1;
  if (prompt) KeepMemories(at);
  const size_t n = RunSome(tokens, at);
  if (prompt && n == tokens.size()) KeepMemories(at);
  return n;
}

void Session::Advance(absl::Span<const int32_t> tokens, int64_t text) {
  CHECK(!tokens.empty());
  while (!tokens.empty()) tokens.remove_prefix(AdvanceSome(tokens, text));
}

void Session::AdvanceTogether(absl::Span<const Next> next) {
  std::vector<int32_t> tokens;
  std::vector<Text*> texts;
  for (const Next& n : next) {
    CHECK(room(n.text) > 0);
    texts.push_back(&texts_[static_cast<size_t>(n.text)]);
    tokens.push_back(n.token);
    Recall(*texts.back());
  }
  CheckInterrupted();
  Run(StepOf(texts.size(), 1), tokens, texts);
}

int64_t Session::MostGuesses(int64_t text) const {
  int64_t most = 0;
  for (const int64_t size : kGuessSizes) {
    if (size <= room(text)) most = size - 1;
  }
  return std::min(most, guesses_);
}

void Session::AdvanceGuessing(absl::Span<const int32_t> tokens, int64_t text) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  CHECK(count > 1 && count - 1 <= MostGuesses(text));
  CheckInterrupted();
  Run(StepOf(1, StepSizeFor(count), Gives::kEach), tokens, {&texts_[static_cast<size_t>(text)]});
}

const float* Session::Logits(size_t which) {
  Given& g = *given_;
  const size_t row = static_cast<size_t>(model_.config.vocabulary);
  if (!g.likeliest) return g.logits.Data<float>() + which * row;
  if (g.host_logits.empty()) g.host_logits = g.logits.ToVector<float>();
  return g.host_logits.data() + which * row;
}

int32_t Session::Likeliest(size_t which) {
  Given& g = *given_;
  if (!g.likeliest) {
    return LikeliestOf({Logits(which), static_cast<size_t>(model_.config.vocabulary)});
  }
  if (g.host_likeliest.empty()) g.host_likeliest = g.likeliest.ToVector<int32_t>();
  return g.host_likeliest[which];
}

std::vector<float> Session::FeedForAll(absl::Span<const int32_t> tokens) {
  CHECK(static_cast<int64_t>(tokens.size()) <= room());
  Text& text = texts_[0];
  Recall(text);
  std::vector<float> out;
  const size_t row = static_cast<size_t>(model_.config.vocabulary);
  while (!tokens.empty()) {
    CheckInterrupted();
    Step& step = StepForAll();
    if (step.tokens > room()) {  // no room for padding
      const float* logits = Feed(tokens.subspan(0, 1));
      out.insert(out.end(), logits, logits + row);
      tokens.remove_prefix(1);
      continue;
    }
    const size_t n = std::min<size_t>(tokens.size(), static_cast<size_t>(step.tokens));
    Run(step, tokens.subspan(0, n), {&text});
    std::vector<float> copy;
    if (last_.likeliest) copy = all_logits_.ToVector<float>();
    const float* const logits = last_.likeliest ? copy.data() : all_logits_.Data<float>();
    out.insert(out.end(), logits, logits + n * row);
    tokens.remove_prefix(n);
  }
  return out;
}

std::string Session::ExplainStep() {
  const Variable position(absl::StrCat("position_1_of_", context()), 0, context() - 1);
  const Tensor token = Tensor::Zeros({1}, kInt32, model_.division.whole).Contiguous().Realize();
  const Part part{texts_[0].caches, 1, position, 1};
  return Explain(transformer_.Logits(transformer_.Hidden(token, {part})));
}

}  // namespace tessera::llm
