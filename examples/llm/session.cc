// Steps of 1, 16 and 128 tokens, and of 512 on GPUs, captured when first needed and replayed for
// every position.
#include "examples/llm/session.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "examples/llm/sampler.h"
#include "graph/error.h"
#include "graph/panel.h"
#include "graph/status.h"
#include "runtime/host_target.h"

namespace tessera::llm {
namespace {

// A larger step costs as much for a few tokens as for all; past an eighth it pays, and past half
// where a smaller one keeps the device nearly as busy.
struct StepSize {
  int64_t tokens, least;
  bool on_cpus;
};
constexpr StepSize kStepSizes[] = {
    {512, 257, false}, {128, 17, true}, {16, 3, true}, {1, 1, true}};  // largest first
constexpr int64_t kAllTokens = 64;
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
  return known.ArgMax(0, /*keepdim=*/true).Cast(kInt32);
}

Tensor EmptyLogits(const Dims& shape, const Model& model) {
  return Tensor::Zeros(shape, kFloat32, model.division.logits).Contiguous().Realize();
}

}  // namespace

Session::Session(const Model& model, const SessionOptions& options)
    : model_(model),
      transformer_(model, ContextOf(model, options), CacheOf(model, options),
                   ActivationsOf(model, options)),
      interrupted_(options.interrupted) {
  logits_ = EmptyLogits({model.config.vocabulary}, model);
  if (model.division.logits.kind() != "CPU") {
    likeliest_ = Tensor::Zeros({1}, kInt32, model.division.logits).Contiguous().Realize();
  }
}

std::unique_ptr<Session::Step> Session::MakeStep(int64_t tokens, bool all) {
  // A name has one pair of bounds in the process, so it tells both.
  const std::string position_name = absl::StrCat("position_", tokens, "_of_", context());
  const std::string row_name = absl::StrCat("row_", tokens);
  const Variable position(position_name, 0, context() - tokens), row(row_name, 0, tokens - 1);
  auto body = [this, tokens, all, position, row](const Tensor& input) {
    const Extent count = tokens == 1 ? Extent(1) : row + 1;
    const Tensor hidden = transformer_.Hidden(input.To(model_.division.whole), position, count);
    if (all) {
      all_logits_.SliceAxis(0, {0, tokens}).Assign(transformer_.Logits(hidden));
    } else {
      const Tensor last = tokens == 1 ? hidden : hidden.SliceAxis(0, {row, row + 1});
      const Tensor logits = transformer_.Logits(last).Reshape({model_.config.vocabulary});
      logits_.Assign(logits);
      if (likeliest_) likeliest_.Assign(LikeliestAmong(logits));
    }
  };
  auto step =
      std::make_unique<Step>(Step{tokens, position_name, row_name, std::vector<int32_t>(tokens),
                                  Tensor(), Jit(std::move(body))});
  step->input = Tensor::FromBlob(step->ids.data(), {tokens}, kInt32, {}, model_.division.tokens);
  return step;
}

Session::Step& Session::StepFor(size_t tokens, bool all) {
  if (all) {
    const int64_t size = std::min(kAllTokens, context());
    if (all_ == nullptr) {
      all_logits_ = EmptyLogits({size, model_.config.vocabulary}, model_);
      all_ = MakeStep(size, true);
    }
    return *all_;
  }
  const bool on_cpus = model_.division.whole.places()[0].kind() == "CPU";
  int64_t best = 1;
  for (const StepSize& s : kStepSizes) {
    if (static_cast<int64_t>(tokens) >= s.least && s.tokens <= room() && (s.on_cpus || !on_cpus)) {
      best = s.tokens;
      break;
    }
  }
  for (const std::unique_ptr<Step>& s : steps_) {
    if (s->tokens == best) return *s;
  }
  steps_.push_back(MakeStep(best, false));
  return *steps_.back();
}

void Session::Run(Step& step, absl::Span<const int32_t> tokens) {
  std::copy(tokens.begin(), tokens.end(), step.ids.begin());
  std::fill(step.ids.begin() + static_cast<int64_t>(tokens.size()), step.ids.end(), 0);
  Bindings values;
  // Memories do not know of positions.
  if (!model_.config.AllRemember()) values[step.position] = position_;
  if (step.tokens > 1 && (&step != all_.get() || model_.config.AnyRemembers())) {
    values[step.row] = static_cast<int64_t>(tokens.size()) - 1;
  }
  step.jit({step.input}, values);
  if (model_.config.AnyRemembers()) {
    // In place: what is read again is followed by what will be.
    const size_t end = static_cast<size_t>(position_) + tokens.size();
    fed_.resize(std::max(fed_.size(), end));
    std::copy(tokens.begin(), tokens.end(), fed_.begin() + position_);
  }
  position_ += static_cast<int64_t>(tokens.size());
  remembered_ = position_;
}

// Brings memories to the position, where that is not where they are.
void Session::Recall() {
  if (remembered_ == position_ || !model_.config.AnyRemembers()) return;
  while (!kept_.empty() && kept_.back().position > position_) kept_.pop_back();
  const std::vector<Tensor*> memories = transformer_.memories();
  for (size_t i = 0; i < memories.size(); ++i) {
    Tensor& m = *memories[i];
    m.Assign(kept_.empty() ? Tensor::Zeros(m.shape(), m.dtype()) : kept_.back().memories[i]);
    m.Realize();
  }
  const int64_t to = position_;
  position_ = remembered_ = kept_.empty() ? 0 : kept_.back().position;
  const std::vector<int32_t> again(fed_.begin() + position_, fed_.begin() + to);
  try {
    RunAll(again);
  } catch (...) {  // interrupted: the text is as long as before, and memories are behind it
    position_ = to;
    throw;
  }
}

// Conversations go on from where a prompt ended, or the answer to it.
void Session::KeepMemories() {
  constexpr size_t kMost = 3;
  if (!model_.config.AnyRemembers() || position_ == 0) return;
  if (!kept_.empty() && kept_.back().position == position_) return;
  if (kept_.size() == kMost) kept_.erase(kept_.begin());
  Kept& kept = kept_.emplace_back(Kept{position_, {}});
  for (const Tensor* m : transformer_.memories()) {
    Tensor copy = Tensor::Empty(m->shape(), m->dtype(), m->device());
    copy.Assign(*m);
    kept.memories.push_back(copy.Realize());
  }
}

void Session::CheckInterrupted() const {
  if (interrupted_ != nullptr && *interrupted_) throw Error(absl::CancelledError("interrupted"));
}

void Session::Advance(absl::Span<const int32_t> tokens) {
  CHECK(!tokens.empty() && static_cast<int64_t>(tokens.size()) <= room());
  Recall();
  const bool prompt = tokens.size() > 1;
  if (prompt) KeepMemories();
  RunAll(tokens);
  if (prompt) KeepMemories();
}

void Session::RunAll(absl::Span<const int32_t> tokens) {
  while (!tokens.empty()) {
    CheckInterrupted();
    Step& step = StepFor(tokens.size(), false);
    const size_t n = std::min<size_t>(tokens.size(), step.tokens);
    Run(step, tokens.subspan(0, n));
    tokens.remove_prefix(n);
  }
}

const float* Session::Logits() {
  if (!likeliest_) return logits_.Data<float>();
  host_logits_ = logits_.ToVector<float>();
  return host_logits_.data();
}

int32_t Session::Likeliest() {
  if (likeliest_) return likeliest_.Item<int32_t>();
  return LikeliestOf({logits_.Data<float>(), static_cast<size_t>(model_.config.vocabulary)});
}

std::vector<float> Session::FeedForAll(absl::Span<const int32_t> tokens) {
  CHECK(static_cast<int64_t>(tokens.size()) <= room());
  Recall();
  std::vector<float> out;
  const size_t row = static_cast<size_t>(model_.config.vocabulary);
  while (!tokens.empty()) {
    CheckInterrupted();
    Step& step = StepFor(tokens.size(), true);
    if (step.tokens > room()) {  // no room for padding
      const float* logits = Feed(tokens.subspan(0, 1));
      out.insert(out.end(), logits, logits + row);
      tokens.remove_prefix(1);
      continue;
    }
    const size_t n = std::min<size_t>(tokens.size(), step.tokens);
    Run(step, tokens.subspan(0, n));
    if (likeliest_) host_logits_ = all_logits_.ToVector<float>();
    const float* const logits = likeliest_ ? host_logits_.data() : all_logits_.Data<float>();
    out.insert(out.end(), logits, logits + n * row);
    tokens.remove_prefix(n);
  }
  return out;
}

std::string Session::ExplainStep() {
  const Variable position(absl::StrCat("position_1_of_", context()), 0, context() - 1);
  const Tensor token = Tensor::Zeros({1}, kInt32, model_.division.whole).Contiguous().Realize();
  return Explain(transformer_.Logits(transformer_.Hidden(token, position, 1)));
}

}  // namespace tessera::llm
