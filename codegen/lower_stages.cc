// Scratch that is filled where it is read, or steps ahead of that.
#include <algorithm>
#include <utility>

#include "codegen/lowerer.h"
#include "graph/fault.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/status.h"

namespace tessera {

UOp Lowerer::MakeScratch(const UOp& stage) {
  const int64_t size = stage.src(0).arg<Pairs>()[0].second.value();
  // Matrix units of several warps want what they read at multiples of 1024.
  const int64_t unit = threads_ && size % 1024 == 0 ? 1024 : 64;
  const int64_t rounded = CeilDiv(size, unit) * unit;
  const auto next = [unit](int64_t from) { return CeilDiv(from, unit) * unit; };
  int64_t at = next(combine_bytes_);
  std::vector<Held> in_order = held_;
  in_order.insert(in_order.end(), aside_.begin(), aside_.end());
  std::sort(in_order.begin(), in_order.end(),
            [](const Held& a, const Held& b) { return a.at < b.at; });
  for (const Held& h : in_order) {
    if (at + rounded <= h.at) break;
    at = std::max(at, next(h.at + h.size));
  }
  if (FaultPlanted(Fault::kScratchOverlaps)) at = 0;
  held_.push_back({at, rounded, blocks_.size()});
  blocks_.back().held.push_back(held_.back());
  scratch_bytes_ = std::max(scratch_bytes_, at + rounded);
  const Pairs where = {{Extent(at), Extent(size)}};
  const UOp scratch = UOp::Make(Op::kScratch, stage.dtype(), {}, where);
  const std::vector<UOp>& made = blocks_[0].statements;
  if (std::find(made.begin(), made.end(), scratch) == made.end()) Append(0, scratch);
  return scratch;
}

absl::Status Lowerer::EmitStage(const UOp& stage) {
  return AtHome(Home(stage), [&]() -> absl::Status {
    const UOp scratch = MakeScratch(stage);
    if (threads_ && MayBeInUse(scratch)) RETURN_IF_ERROR(Arrive(/*only_in_loops=*/true));
    const size_t before = held_.size();
    Define(stage, scratch);
    // Stages over other loops may have been made of one, and still name one SCRATCH.
    const Node* name = stage.src(0).get();
    const UOp outer = std::exchange(blocks_[0].values[name], scratch);
    const absl::Status status = EmitStores({stage.srcs().begin() + 1, stage.srcs().end()}, 0);
    blocks_[0].values[name] = outer;
    RETURN_IF_ERROR(status);
    const size_t home = blocks_.size();
    held_.erase(std::remove_if(held_.begin() + before, held_.end(),
                               [&](const Held& h) { return h.home > home; }),
                held_.end());
    return threads_ ? Arrive(/*only_in_loops=*/false) : absl::OkStatus();
  });
}

bool Lowerer::MayBeInUse(const UOp& scratch) const {
  const auto& [begin, size] = scratch.arg<Pairs>()[0];
  const auto shares = [begin = begin.value(), size = size.value()](const UOp& u) {
    if (!u.is(Op::kScratch)) return false;
    const auto& [at, bytes] = u.arg<Pairs>()[0];
    return at.value() < begin + size && begin < at.value() + bytes.value();
  };
  const std::vector<UOp>& done = blocks_.back().statements;
  int within = 0;  // loops and IFs that have ended
  for (size_t i = done.size(); i-- > 0;) {
    const UOp& s = done[i];
    within += s.is(Op::kEnd);
    within -= s.is(Op::kRange) || s.is(Op::kIf);
    if (within == 0 && s.is(Op::kBarrier)) return false;
    if (std::any_of(s.srcs().begin(), s.srcs().end(), shares)) return true;
  }
  return true;
}

absl::Status Lowerer::Arrive(bool only_in_loops) {
  const bool looped = std::any_of(blocks_.begin(), blocks_.end(),
                                  [](const Block& b) { return b.head && b.head.is(Op::kRange); });
  if (shape_.threads * shape_.rows == 1 || (only_in_loops && !looped)) return absl::OkStatus();
  if (!AllThreads()) return absl::InternalError("lower: a stage that not all threads fill");
  Append(static_cast<int>(blocks_.size()) - 1, UOp::Make(Op::kBarrier, {}, FreshId()));
  return absl::OkStatus();
}

bool Lowerer::CanFetch(const UOp& store) const {
  const UOp &to = store.src(0), &from = store.src(1);
  if (!fetches_ || to.size() != 2 || !(from.is(Op::kIndex) || from.is(Op::kLoad))) return false;
  if (!from.src(0).is(Op::kParam) || !(from.src(0).dtype() == to.src(0).dtype())) return false;
  if (from.size() == 3 && from.src(2).dtype().lanes() > 1) return false;
  const int bytes = from.dtype().bytes() * from.dtype().lanes();
  return bytes == 4 || bytes == 8 || bytes == 16;
}

absl::Status Lowerer::EmitFetch(const UOp& store) {
  const UOp &to = store.src(0), &from = store.src(1);
  std::vector<UOp> needed = {to.src(0), to.src(1)};
  needed.insert(needed.end(), from.srcs().begin(), from.srcs().end());
  RETURN_IF_ERROR(Compute(needed));
  std::vector<UOp> srcs;
  for (const UOp& u : needed) srcs.push_back(*Find(u));
  Append(static_cast<int>(blocks_.size()) - 1,
         UOp::Make(Op::kFetch, srcs, Ints{next_id_++, from.dtype().lanes()}));
  fetched_ = true;
  return absl::OkStatus();
}

std::vector<UOp> Lowerer::FilledAhead(const UOp& loop) const {
  std::vector<UOp> out;
  for (const UOp& u : sets_.order()) {
    if (threads_ && u.is(Op::kStage) && u.arg<StageArg>().ahead > 0 &&
        (sets_.Free(u) & sets_.Bit(loop))) {
      out.push_back(u);
    }
  }
  return out;
}

absl::Status Lowerer::FillAt(const std::vector<UOp>& stages, const UOp& loop, const UOp& at) {
  RETURN_IF_ERROR(Compute({loop.src(0)}));
  const UOp extent = *Find(loop.src(0));
  const int here = static_cast<int>(blocks_.size()) - 1;
  Block block;
  block.bit = sets_.Bit(loop);
  if (at.vmax() >= extent.vmin()) {
    const UOp holds = Append(here, UOp::Make(Op::kCmpLt, {at, extent}));
    block.head = UOp::Make(Op::kIf, {holds}, FreshId());
  }
  block.values.emplace(loop.get(), at);
  blocks_.push_back(std::move(block));
  const bool outer = std::exchange(ahead_, true);
  for (const UOp& stage : stages) {
    blocks_[0].values[stage.src(0).get()] = scratch_.at(stage.get());
    RETURN_IF_ERROR(EmitStores({stage.srcs().begin() + 1, stage.srcs().end()}, 0));
  }
  ahead_ = outer;
  CloseLoop();
  if (fetched_) Append(here, UOp::Make(Op::kCommit, {}, FreshId()));
  return absl::OkStatus();
}

absl::Status Lowerer::FillFirst(const std::vector<UOp>& stages, const UOp& loop) {
  RETURN_IF_ERROR(Arrive(/*only_in_loops=*/true));
  fetched_ = false;
  for (const UOp& stage : stages) scratch_.insert_or_assign(stage.get(), MakeScratch(stage));
  for (int64_t i = 0; i < stages[0].arg<StageArg>().ahead; ++i) {
    RETURN_IF_ERROR(FillAt(stages, loop, UOp::Index(i)));
  }
  return absl::OkStatus();
}

absl::Status Lowerer::FillNext(const std::vector<UOp>& stages, const UOp& loop) {
  RETURN_IF_ERROR(AwaitFilled(stages));
  return FillFreed(stages, loop);
}

absl::Status Lowerer::AwaitFilled(const std::vector<UOp>& stages) {
  const int here = static_cast<int>(blocks_.size()) - 1;
  const int64_t ahead = stages[0].arg<StageArg>().ahead;
  if (fetched_) Append(here, UOp::Make(Op::kWait, {}, Ints{next_id_++, ahead - 1}));
  RETURN_IF_ERROR(Arrive(/*only_in_loops=*/false));
  for (const UOp& stage : stages) {
    blocks_[here].values.emplace(stage.get(), scratch_.at(stage.get()));
  }
  return absl::OkStatus();
}

absl::Status Lowerer::FillFreed(const std::vector<UOp>& stages, const UOp& loop) {
  const int here = static_cast<int>(blocks_.size()) - 1;
  const int64_t ahead = stages[0].arg<StageArg>().ahead;
  next_ = Append(here, UOp::Make(Op::kAdd, {*Find(loop), UOp::Index(ahead)}));
  std::vector<UOp> now;
  late_.clear();
  for (const UOp& stage : stages) (IsLate(stage) ? late_ : now).push_back(stage);
  if (!now.empty()) RETURN_IF_ERROR(FillAt(now, loop, next_));
  return ComputeLate(loop);
}

bool Lowerer::IsLate(const UOp& stage) const {
  return std::all_of(stage.srcs().begin() + 1, stage.srcs().end(), [&](const UOp& store) {
    const absl::Span<const UOp> ranges = ClosedRanges(store);
    return !CanFetch(store) && ranges.size() == 1 && ranges == ClosedRanges(stage.src(1)) &&
           ranges[0].arg<RangeArg>().kind == RangeKind::kThread &&
           ranges[0].src(0).IsConst(shape_.threads);
  });
}

absl::Status Lowerer::ComputeLate(const UOp& loop) {
  if (late_.empty()) return absl::OkStatus();
  const int here = static_cast<int>(blocks_.size()) - 1;
  const UOp last = Append(here, UOp::Make(Op::kSub, {*Find(loop.src(0)), UOp::Index(1)}));
  Block block;
  block.bit = sets_.Bit(loop);
  block.values.emplace(loop.get(), Append(here, UOp::Make(Op::kMin, {next_, last})));
  blocks_.push_back(std::move(block));
  late_values_.clear();
  for (const UOp& stage : late_) {
    RETURN_IF_ERROR(OpenLoop(ClosedRanges(stage.src(1))[0]));
    for (const UOp& store : stage.srcs().subspan(1)) {
      RETURN_IF_ERROR(Compute({store.src(1)}));
      late_values_.push_back(*Find(store.src(1)));
    }
    CloseLoop();
  }
  CloseLoop();
  return absl::OkStatus();
}

absl::Status Lowerer::PutLate(const UOp& loop) {
  if (late_.empty()) return absl::OkStatus();
  const int here = static_cast<int>(blocks_.size()) - 1;
  Block block;
  block.bit = sets_.Bit(loop);
  const UOp holds = Append(here, UOp::Make(Op::kCmpLt, {next_, *Find(loop.src(0))}));
  block.head = UOp::Make(Op::kIf, {holds}, FreshId());
  block.values.emplace(loop.get(), next_);
  blocks_.push_back(std::move(block));
  size_t i = 0;
  for (const UOp& stage : late_) {
    RETURN_IF_ERROR(OpenLoop(ClosedRanges(stage.src(1))[0]));
    for (const UOp& store : stage.srcs().subspan(1)) {
      const UOp& offset = store.src(0).src(1);
      RETURN_IF_ERROR(Compute({offset}));
      Append(static_cast<int>(blocks_.size()) - 1,
             UOp::Make(Op::kPut, {scratch_.at(stage.get()), *Find(offset), late_values_[i++]},
                       FreshId()));
    }
    CloseLoop();
  }
  CloseLoop();
  return absl::OkStatus();
}

}  // namespace tessera
