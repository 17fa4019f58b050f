// Loops, blocks and threads opened and closed.
#include <algorithm>
#include <utility>

#include "codegen/lowerer.h"
#include "graph/fault.h"
#include "graph/status.h"

namespace tessera {
namespace {

constexpr int64_t kMostBlocks = INT32_MAX;
constexpr int64_t kCombineBytes = 256;  // a value of each warp

}  // namespace

absl::Status Lowerer::OpenLoop(const UOp& range, absl::Span<const int64_t> strides) {
  const bool around = std::exchange(extents_, true);  // they need nothing of the loops around
  RETURN_IF_ERROR(Compute({range.src(0)}));
  const UOp extent = *Find(range.src(0));
  extents_ = around;
  const RangeKind kind = range.arg<RangeArg>().kind;
  if (threads_ && kind != RangeKind::kLoop && kind != RangeKind::kMatrix) {
    return OpenAtOnce(range, extent);
  }
  UOp begin = UOp::Index(0), end = extent;
  if (range.arg<RangeArg>().kind == RangeKind::kGrid) {
    const UOp worker = UOp::Make(Op::kVar, kInt64, {}, VarArg{"rt_worker", 0, 65535});
    const UOp workers = UOp::Make(Op::kVar, kInt64, {}, VarArg{"rt_workers", 1, 65536});
    const auto share = [&](const UOp& w) {
      if (FaultPlanted(Fault::kLastChunkLost)) {
        const UOp chunk = Append(0, UOp::Make(Op::kFloorDiv, {extent, workers}));
        return Append(0, UOp::Make(Op::kMul, {w, chunk}));
      }
      const UOp scaled = Append(0, UOp::Make(Op::kMul, {w, extent}));
      return Append(0, UOp::Make(Op::kFloorDiv, {scaled, workers}));
    };
    begin = share(worker);
    end = share(Append(0, UOp::Make(Op::kAdd, {worker, UOp::Index(1)})));
  }
  const bool guarded = range.src(0).vmin() < 1;
  if (guarded) {
    Block around_it;
    around_it.skipped = UOp(range.src(0));
    around_it.rounds = extent;
    blocks_.push_back(std::move(around_it));
  }
  RangeArg arg = range.arg<RangeArg>();
  const auto push = [&](int64_t step) {
    Block block;
    arg.id = next_id_++;
    block.head = UOp::Make(Op::kRange, kInt64, {begin, end, UOp::Index(step)}, arg);
    block.guarded = guarded && blocks_.back().rounds;
    blocks_.push_back(std::move(block));
  };
  int64_t whole = extent.IsConst() ? extent.vmax() : 0;  // points that a loop has each time, or 0
  for (const int64_t step : strides) {
    push(step);
    begin = blocks_.back().head;
    const int here = static_cast<int>(blocks_.size()) - 1;
    const UOp next = Append(here, UOp::Make(Op::kAdd, {begin, UOp::Index(step)}));
    whole = whole > 0 && whole % step == 0 ? step : 0;
    end = whole != 0 ? next : Append(here, UOp::Make(Op::kMin, {next, end}));
  }
  push(1);
  blocks_.back().bit = sets_.Bit(range);
  blocks_.back().values.emplace(range.get(), blocks_.back().head);
  return absl::OkStatus();
}

absl::Status Lowerer::ShapeLaunch() {
  for (const UOp& r : sets_.ranges()) {
    const int64_t most = r.src(0).vmax();
    switch (r.arg<RangeArg>().kind) {
      case RangeKind::kGrid:
        if (!shape_.grid.IsConst(1)) return absl::InternalError("lower: two ranges are the grid");
        shape_.grid = r.src(0);
        break;
      case RangeKind::kThread:
        shape_.threads = std::max(shape_.threads, static_cast<int>(most));
        break;
      case RangeKind::kRow:
        shape_.rows = std::max(shape_.rows, static_cast<int>(most));
        break;
      case RangeKind::kLoop:
      case RangeKind::kUnroll:
      case RangeKind::kVector:
      case RangeKind::kMatrix:
        break;
    }
  }
  const bool combines =
      std::any_of(reduces_.begin(), reduces_.end(), [&](const UOp& r) { return OverThreads(r); });
  if (combines && shape_.threads > kWarp) scratch_bytes_ = combine_bytes_ = kCombineBytes;
  return absl::OkStatus();
}

UOp Lowerer::ThreadVar() const {
  return UOp::Make(Op::kVar, kInt64, {}, VarArg{"rt_thread", 0, shape_.threads - 1});
}

UOp Lowerer::RowVar() const {
  return UOp::Make(Op::kVar, kInt64, {}, VarArg{"rt_row", 0, shape_.rows - 1});
}

absl::Status Lowerer::OpenAtOnce(const UOp& range, const UOp& extent) {
  Block block;
  block.bit = sets_.Bit(range);
  block.kind = range.arg<RangeArg>().kind;
  UOp point;
  if (block.kind == RangeKind::kGrid) {
    const int64_t most = std::min(kMostBlocks, std::max<int64_t>(1, extent.vmax()));
    point = UOp::Make(Op::kVar, kInt64, {}, VarArg{"rt_block", 0, most - 1});
    if (extent.vmax() > kMostBlocks) {
      const UOp blocks = UOp::Make(Op::kVar, kInt64, {}, VarArg{"rt_blocks", 1, kMostBlocks});
      RangeArg arg = range.arg<RangeArg>();
      arg.id = next_id_++;
      point = block.head = UOp::Make(Op::kRange, kInt64, {point, extent, blocks}, arg);
    }
  } else if (block.kind == RangeKind::kThread || block.kind == RangeKind::kRow) {
    const bool is_row = block.kind == RangeKind::kRow;
    point = is_row ? RowVar() : ThreadVar();
    if (!extent.IsConst(is_row ? shape_.rows : shape_.threads)) {
      const UOp holds =
          Append(static_cast<int>(blocks_.size()) - 1, UOp::Make(Op::kCmpLt, {point, extent}));
      block.head = UOp::Make(Op::kIf, {holds}, FreshId());
    }
  } else {
    return absl::InternalError("lower: a range of unrolled copies or lanes is left");
  }
  block.values.emplace(range.get(), point);
  blocks_.push_back(std::move(block));
  return absl::OkStatus();
}

bool Lowerer::AllThreads() const {
  for (const Block& b : blocks_) {
    if (b.head && b.head.is(Op::kIf)) return false;
  }
  return true;
}

UOp Lowerer::OneThread() {
  const auto open = [&](RangeKind kind) {
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [&](const Block& b) { return b.kind == kind; });
  };
  const int here = static_cast<int>(blocks_.size()) - 1;
  UOp gate;
  const auto first = [&](const UOp& var) {
    const UOp is = Append(here, UOp::Make(Op::kCmpEq, {var, UOp::Index(0)}));
    gate = gate ? Append(here, UOp::Make(Op::kAnd, {gate, is})) : is;
  };
  if (shape_.threads > 1 && !open(RangeKind::kThread)) first(ThreadVar());
  if (shape_.rows > 1 && !open(RangeKind::kRow)) first(RowVar());
  return gate;
}

void Lowerer::CloseLoop() {
  const Block inner = std::move(blocks_.back());
  blocks_.pop_back();
  UOp test;
  if (inner.guarded) {
    const Block around = std::move(blocks_.back());
    blocks_.pop_back();
    const int here = static_cast<int>(blocks_.size()) - 1;
    if (!around.statements.empty()) {
      const UOp runs = Append(here, UOp::Make(Op::kCmpLt, {UOp::Index(0), around.rounds}));
      test = Append(here, UOp::Make(Op::kIf, {runs}, FreshId()));
    }
    for (const UOp& s : around.statements) Append(here, s);
    KeepHeld(around);
  }
  KeepHeld(inner);
  AppendLoop(inner);
  if (test) {
    const int here = static_cast<int>(blocks_.size()) - 1;
    Append(here, UOp::Make(Op::kEnd, {test}, test.arg<int64_t>()));
  }
}

void Lowerer::KeepHeld(const Block& closed) {
  std::vector<Held>& held = blocks_.back().held;
  held.insert(held.end(), closed.held.begin(), closed.held.end());
}

void Lowerer::AppendLoop(const Block& inner) {
  std::vector<UOp>& out = blocks_.back().statements;
  if (inner.head) out.push_back(inner.head);
  out.insert(out.end(), inner.statements.begin(), inner.statements.end());
  if (!inner.head) return;
  const bool is_if = inner.head.is(Op::kIf);
  const int64_t id = is_if ? inner.head.arg<int64_t>() : inner.head.arg<RangeArg>().id;
  out.push_back(UOp::Make(Op::kEnd, {inner.head}, id));
}

}  // namespace tessera
