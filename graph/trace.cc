// Tensors as a captured step sees them.
#include "graph/trace.h"

#include <algorithm>
#include <limits>

#include "graph/sample.h"
#include "graph/status.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {

Trace::Trace() : id_(last_id_.fetch_add(1) + 1) {
  CHECK(current_ == nullptr, "a trace is open already");
  current_ = this;
}

Trace::~Trace() { current_ = nullptr; }

Tensor Trace::AddInput(DType dtype, const Shape& shape, Device device) {
  const Tensor input(Placeholder(dtype, shape, device));
  inputs_.emplace(input.state_->value.get(), input.state_.get());
  return input;
}

bool Trace::StandsForAnother(const UOp& value, const Tensor::State& state) const {
  if (const auto it = inputs_.find(value.get()); it != inputs_.end()) return it->second != &state;
  const auto seen = std::find_if(captured_.begin(), captured_.end(), [&](const auto& c) {
    return c->is_placeholder_ && c->seen_ == value;
  });
  return seen != captured_.end() && &(*seen)->inside_ != &state;
}

void Trace::Born(const std::shared_ptr<Tensor::State>& state) {
  state->trace = id_;
  born_.push_back(state);
}

bool Trace::Knows(const std::shared_ptr<Tensor::State>& state) const {
  return state->trace == id_ || by_state_.contains(state.get());
}

Tensor::State& Trace::See(const std::shared_ptr<Tensor::State>& state) {
  if (state->trace == id_) return *state;
  if (const auto it = by_state_.find(state.get()); it != by_state_.end()) {
    return it->second->inside_;
  }
  auto made = std::make_shared<Captured>();
  Captured& c = *made;
  c.outside_ = state;
  c.inside_ = *state;
  c.start_grad_ = state->grad;
  c.had_grad_ = state->grad != nullptr;
  const UOp& value = state->value;
  c.is_placeholder_ = bool{value.device()};
  c.seen_ = c.is_placeholder_ ? Placeholder(value.dtype(), value.shape(), value.device()) : value;
  c.inside_.value = c.seen_;
  captured_.push_back(std::move(made));
  by_state_.emplace(state.get(), &c);
  if (state->base) See(state->base);
  return c.inside_;
}

std::shared_ptr<Tensor::State>& Trace::GradOf(const std::shared_ptr<Tensor::State>& state,
                                              bool replaced) {
  if (state->trace == id_) return state->grad;
  See(state);
  Captured& c = *by_state_.at(state.get());
  c.saw_grad_ |= !replaced && !c.set_grad_;
  c.set_grad_ |= replaced;
  return c.inside_.grad;
}

Tensor Trace::Captured::gradient() const {
  Tensor t;
  t.state_ = inside_.grad;
  return t;
}

Tensor Trace::Captured::tensor() const {
  Tensor t;
  t.state_ = outside_;
  return t;
}

Tensor Trace::Captured::base() const {
  Tensor t;
  t.state_ = outside_->base;
  return t;
}

void Trace::Captured::SetView(const UOp& base_value) const { tensor().Renew(base_value); }

namespace {
UOp RandomVar(const char* name, int64_t min) {
  const UOp var =
      Build(Op::kVar, kInt64, {}, VarArg{name, min, std::numeric_limits<int64_t>::max()});
  return CastTo(var, kUInt64);
}
}  // namespace

UOp Trace::RandomCounter(int64_t elements) {
  const UOp before = UOp::Const(kUInt64, Scalar{static_cast<uint64_t>(drawn_)});
  drawn_ += elements;
  return Build(Op::kAdd, {RandomVar(kCounterName, 0), before});
}

UOp Trace::RandomSeed() const { return RandomVar(kSeedName, std::numeric_limits<int64_t>::min()); }

int Trace::Escaped(std::initializer_list<absl::Span<const Tensor>> held) const {
  absl::flat_hash_map<const Tensor::State*, int64_t> known;
  std::vector<std::shared_ptr<Tensor::State>> alive;
  for (const auto& weak : born_) {
    if (auto state = weak.lock()) alive.push_back(std::move(state));
  }
  for (const auto& list : held) {
    for (const Tensor& t : list) ++known[t.state_.get()];
  }
  for (const auto& state : alive) {
    ++known[state.get()];
    if (state->base) ++known[state->base.get()];
  }
  for (const auto& state : alive) ++known[state->grad.get()];
  for (const auto& c : captured_) ++known[c->inside_.grad.get()];
  int escaped = 0;
  for (const auto& state : alive) escaped += state.use_count() > known[state.get()];
  return escaped;
}

}  // namespace tessera::internal
