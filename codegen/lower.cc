// Lowering: from a graph of stores and reductions over ranges to statements in order.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "codegen/memory_hints.h"
#include "codegen/passes.h"
#include "graph/fault.h"
#include "graph/fold.h"
#include "graph/kernel_form.h"
#include "graph/status.h"

namespace tessera {
namespace {

class Lowerer {
 public:
  Lowerer(const UOp& sink, const Target& target)
      : sink_(sink),
        sets_(sink),
        hints_(FindMemoryHints(sets_, target)),
        most_sums_(target.vector_registers - 6),
        threads_(target.dialect == Dialect::kCuda),
        fetches_(target.fetches) {
    for (const UOp& u : sets_.order()) depth_.emplace(u.get(), DepthOf(u));
    for (const UOp& u : sets_.order()) {
      if (u.is(Op::kReduce)) reduces_.push_back(u);
    }
  }

  absl::StatusOr<Lowered> Run(const std::string& name) {
    if (threads_) RETURN_IF_ERROR(ShapeLaunch());
    blocks_.emplace_back();
    std::vector<UOp> stores(sink_.srcs().begin(), sink_.srcs().end());
    RETURN_IF_ERROR(EmitStores(stores, 0));
    Lowered out = std::move(shape_);
    out.program = UOp::Make(Op::kProgram, blocks_[0].statements, Arg(name));
    out.scratch_bytes = scratch_bytes_;
    return out;
  }

 private:
  // An open loop, or the function's body (bit 0): its statements so far, and what stands for each
  // node computed in it.
  struct Block {
    RangeMask bit = 0;
    UOp head;  // in the program: a RANGE, an IF, or nothing where all that run it take one value
    RangeKind kind = RangeKind::kLoop;
    std::vector<UOp> statements;
    absl::flat_hash_map<const Node*, UOp> values;
    // Of the block right around a loop that may not run: the loop's extent, and what was computed
    // of it. What the loop needs but does not change stands here, in an IF if there is any.
    UOp skipped, rounds;
    bool guarded = false;  // a loop with such a block around it
  };

  int DepthOf(const UOp& u) const {
    int d = 0;
    for (const UOp& s : u.srcs()) d = std::max(d, depth_.at(s.get()));
    return d + (u.is(Op::kReduce) || u.is(Op::kStage));
  }

  // The outermost block in which everything that u depends on is known.
  int Known(const UOp& u) const {
    const RangeMask free = sets_.Free(u);
    int home = static_cast<int>(blocks_.size()) - 1;
    while (home > 0 && !(blocks_[home].bit & free)) --home;
    return home;
  }

  // The outermost in which it may be computed: nothing leaves what is around a loop that may not
  // run, as what it would read need not exist; but a stage whose own loops do not run either then.
  int Home(const UOp& u) const {
    const int known = Known(u);
    if (threads_ || extents_ || u.size() == 0 || u.is(Op::kRange)) return known;
    for (int b = static_cast<int>(blocks_.size()) - 1; b > known; --b) {
      if (blocks_[b].skipped && !(u.is(Op::kStage) && SkippedAlike(u, blocks_[b].skipped)))
        return b;
    }
    return known;
  }

  // Whether the variables of an extent are among those of the extents that a stage is filled over.
  static bool SkippedAlike(const UOp& stage, const UOp& extent) {
    std::vector<UOp> own;
    for (const UOp& s : stage.srcs()) {
      for (const UOp& r : ClosedRanges(s)) own.push_back(UOp(r.src(0)));
    }
    const std::vector<UOp> among = TopoSort(own);
    const std::vector<UOp> nodes = TopoSort({&extent, 1});
    return std::all_of(nodes.begin(), nodes.end(), [&](const UOp& u) {
      return !u.is(Op::kVar) || std::find(among.begin(), among.end(), u) != among.end();
    });
  }

  UOp* Find(const UOp& u) {
    for (int b = Home(u), known = Known(u); b >= known; --b) {
      auto it = blocks_[b].values.find(u.get());
      if (it != blocks_[b].values.end()) return &it->second;
    }
    return nullptr;
  }

  UOp Append(int block, UOp statement) {
    blocks_[block].statements.push_back(statement);
    return statement;
  }
  void Define(const UOp& u, const UOp& value) { blocks_[Home(u)].values.emplace(u.get(), value); }
  Arg FreshId() { return Arg(next_id_++); }

  absl::Status EmitStores(const std::vector<UOp>& stores, size_t depth) {
    std::vector<bool> done(stores.size(), false);
    for (size_t i = 0; i < stores.size(); ++i) {
      if (done[i]) continue;
      if (const UOp gate = Testable(stores[i])) {
        std::vector<UOp> inside;
        for (size_t j = i; j < stores.size(); ++j) {
          if (done[j] || !(Testable(stores[j]) == gate)) continue;
          inside.push_back(stores[j]);
          done[j] = true;
        }
        RETURN_IF_ERROR(OpenIf(gate));
        RETURN_IF_ERROR(EmitStores(inside, depth));
        CloseLoop();
        tested_.pop_back();
        continue;
      }
      const absl::Span<const UOp> ranges = ClosedRanges(stores[i]);
      if (ranges.size() == depth) {
        RETURN_IF_ERROR(EmitStore(stores[i]));
        continue;
      }
      std::vector<UOp> inside;
      for (size_t j = i; j < stores.size(); ++j) {
        const absl::Span<const UOp> other = ClosedRanges(stores[j]);
        if (done[j] || other.size() <= depth || !(other[depth] == ranges[depth])) continue;
        inside.push_back(stores[j]);
        done[j] = true;
      }
      RETURN_IF_ERROR(OpenLoop(ranges[depth]));
      RETURN_IF_ERROR(EmitStores(inside, depth + 1));
      CloseLoop();
    }
    return absl::OkStatus();
  }

  // The gate of an UPDATE, once all that it depends on is known and it has not been tested yet.
  UOp Testable(const UOp& store) const {
    if (!store.is(Op::kUpdate) || store.src(0).size() < 3) return UOp();
    const UOp& gate = store.src(0).src(2);
    RangeMask open = 0;
    for (const Block& b : blocks_) open |= b.bit;
    const bool known = (sets_.Free(gate) & ~open) == 0;
    return known && std::find(tested_.begin(), tested_.end(), gate) == tested_.end() ? gate : UOp();
  }

  // What is emitted from here on, if it depends on the innermost loop, is where the gate holds.
  absl::Status OpenIf(const UOp& gate) {
    RETURN_IF_ERROR(Compute({gate}));
    Block block;
    block.bit = blocks_.back().bit;
    block.head = UOp::Make(Op::kIf, {*Find(gate)}, FreshId());
    block.values = blocks_.back().values;
    blocks_.push_back(std::move(block));
    tested_.push_back(gate);
    return absl::OkStatus();
  }

  absl::Status OpenLoop(const UOp& range) {
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
    Block block;
    block.bit = sets_.Bit(range);
    RangeArg arg = range.arg<RangeArg>();
    arg.id = next_id_++;
    block.head = UOp::Make(Op::kRange, kInt64, {begin, end, UOp::Index(1)}, arg);
    block.values.emplace(range.get(), block.head);
    if (range.src(0).vmin() < 1) {
      Block around_it;
      around_it.skipped = UOp(range.src(0));
      around_it.rounds = extent;
      block.guarded = true;
      blocks_.push_back(std::move(around_it));
    }
    blocks_.push_back(std::move(block));
    return absl::OkStatus();
  }

  // What the launch looks like: the blocks of the one grid range, the threads of the widest ranges.
  absl::Status ShapeLaunch() {
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
    if (combines && shape_.threads > kWarp) scratch_bytes_ = kCombineBytes;
    return absl::OkStatus();
  }

  static constexpr int64_t kMostBlocks = INT32_MAX;
  UOp ThreadVar() const {
    return UOp::Make(Op::kVar, kInt64, {}, VarArg{"rt_thread", 0, shape_.threads - 1});
  }
  UOp RowVar() const {
    return UOp::Make(Op::kVar, kInt64, {}, VarArg{"rt_row", 0, shape_.rows - 1});
  }

  // A range whose points run at once: each block, thread or row of threads is one of them.
  absl::Status OpenAtOnce(const UOp& range, const UOp& extent) {
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

  // Whether all threads of a block reach what is appended now: nothing open runs in some only.
  bool AllThreads() const {
    for (const Block& b : blocks_) {
      if (b.head && b.head.is(Op::kIf)) return false;
    }
    return true;
  }

  // True in one thread of those that would write the same, or nothing where there is only one.
  UOp OneThread() {
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

  // Ends the innermost loop or IF.
  void CloseLoop() {
    Block inner = std::move(blocks_.back());
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
    }
    AppendLoop(inner);
    if (test) {
      const int here = static_cast<int>(blocks_.size()) - 1;
      Append(here, UOp::Make(Op::kEnd, {test}, test.arg<int64_t>()));
    }
  }

  void AppendLoop(const Block& inner) {
    std::vector<UOp>& out = blocks_.back().statements;
    if (inner.head) out.push_back(inner.head);
    out.insert(out.end(), inner.statements.begin(), inner.statements.end());
    if (!inner.head) return;
    const bool is_if = inner.head.is(Op::kIf);
    const int64_t id = is_if ? inner.head.arg<int64_t>() : inner.head.arg<RangeArg>().id;
    out.push_back(UOp::Make(Op::kEnd, {inner.head}, id));
  }

  // Reads what the element holds after all updates before this one.
  absl::Status EmitUpdate(const UOp& update) {
    const UOp& index = update.src(0);
    RETURN_IF_ERROR(Compute({index.src(1), update.src(1), index.src(0)}));
    const int here = static_cast<int>(blocks_.size()) - 1;
    const UOp pointer = *Find(index.src(0)), offset = *Find(index.src(1));
    UOp value = *Find(update.src(1));
    if (const Op op = update.arg<ReduceArg>().op; op != Op::kAssign) {
      const UOp old =
          Append(here, UOp::Make(Op::kLoad, value.dtype(), {pointer, offset}, FreshId()));
      value = Append(here, UOp::Make(op, {old, value}));
    }
    std::vector<UOp> srcs = {pointer, offset, value};
    if (const UOp gate = threads_ ? OneThread() : UOp()) srcs.push_back(gate);
    Append(here, UOp::Make(Op::kPut, srcs, FreshId()));
    return absl::OkStatus();
  }

  absl::Status EmitStore(const UOp& store) {
    if (store.is(Op::kUpdate)) return EmitUpdate(store);
    const UOp& index = store.src(0);
    if (ahead_ && CanFetch(store)) return EmitFetch(store);
    std::vector<UOp> needed = {index.src(1), store.src(1), index.src(0)};
    if (index.size() == 3) needed.push_back(index.src(2));
    RETURN_IF_ERROR(Compute(needed));
    std::vector<UOp> srcs = {*Find(index.src(0)), *Find(needed[0]), *Find(needed[1])};
    if (index.size() == 3) srcs.push_back(*Find(needed[3]));
    if (UOp gate = threads_ ? OneThread() : UOp()) {
      const int here = static_cast<int>(blocks_.size()) - 1;
      if (srcs.size() == 4) gate = Append(here, UOp::Make(Op::kAnd, {gate, srcs.back()}));
      srcs.resize(3);
      srcs.push_back(gate);
    }
    const Op put = hints_.streamed.contains(store.get()) ? Op::kStream : Op::kPut;
    Append(static_cast<int>(blocks_.size()) - 1, UOp::Make(put, srcs, FreshId()));
    return absl::OkStatus();
  }

  // Whether a store only copies 4, 8 or 16 bytes of memory to scratch.
  bool CanFetch(const UOp& store) const {
    const UOp &to = store.src(0), &from = store.src(1);
    if (!fetches_ || to.size() != 2 || !(from.is(Op::kIndex) || from.is(Op::kLoad))) return false;
    if (!from.src(0).is(Op::kParam) || !(from.src(0).dtype() == to.src(0).dtype())) return false;
    if (from.size() == 3 && from.src(2).dtype().lanes() > 1) return false;
    const int bytes = from.dtype().bytes() * from.dtype().lanes();
    return bytes == 4 || bytes == 8 || bytes == 16;
  }

  absl::Status EmitFetch(const UOp& store) {
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

  // Emits whatever is missing for the nodes, sources first. Does not look inside reductions and
  // stages: these emit what is inside their loops themselves.
  absl::Status Compute(const std::vector<UOp>& nodes) {
    std::vector<std::pair<UOp, bool>> stack;
    for (const UOp& n : nodes) stack.emplace_back(n, false);
    while (!stack.empty()) {
      auto [u, ready] = std::move(stack.back());
      stack.pop_back();
      if (Find(u) != nullptr) continue;
      if (ready) {
        RETURN_IF_ERROR(Emit(u));
        continue;
      }
      stack.emplace_back(u, true);
      if (u.is(Op::kReduce) || u.is(Op::kStage)) continue;
      for (int i = u.size() - 1; i >= 0; --i) {
        if (Find(u.src(i)) == nullptr) stack.emplace_back(u.src(i), false);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Emit(const UOp& u) {
    const int home = Home(u);
    switch (u.op()) {
      case Op::kConst:
      case Op::kVar:
      case Op::kParam:
        Define(u, u);
        return absl::OkStatus();
      case Op::kRange:
        return absl::InternalError(
            absl::StrCat("lower: range ", u.arg<RangeArg>().id, " is used outside of its loop"));
      case Op::kReduce:
        return EmitReduces(u);
      case Op::kStage:
        return EmitStage(u);
      case Op::kRunning:
        return EmitRunning(u);
      case Op::kIndex:
      case Op::kLoad: {
        std::vector<UOp> srcs;
        for (const UOp& s : u.srcs()) srcs.push_back(*Find(s));
        Define(u, Append(home, UOp::Make(Op::kLoad, u.dtype(), srcs, FreshId())));
        if (auto ahead = hints_.ahead.find(u.get()); ahead != hints_.ahead.end()) {
          const UOp at = Append(home, UOp::Make(Op::kAdd, {srcs[1], UOp::Index(ahead->second)}));
          Append(home, UOp::Make(Op::kPrefetch, {srcs[0], at}, FreshId()));
        }
        return absl::OkStatus();
      }
      case Op::kFragment: {
        const Ints arg = {next_id_++, u.arg<Ints>()[1]};
        Define(u,
               Append(home, UOp::Make(u.op(), u.dtype(), {*Find(u.src(0)), *Find(u.src(1))}, arg)));
        return absl::OkStatus();
      }
      default: {
        std::vector<UOp> srcs;
        for (const UOp& s : u.srcs()) srcs.push_back(*Find(s));
        const UOp made = u.WithSrcs(srcs);
        // Two nodes may become one here; the statement stands where it was first needed.
        Define(u, Append(home, made));
        return absl::OkStatus();
      }
    }
  }

  // Runs `body` with the loops above `home` set aside, so that what it emits comes before them.
  template <typename Body>
  absl::Status AtHome(int home, Body body) {
    std::vector<Block> aside(std::make_move_iterator(blocks_.begin() + home + 1),
                             std::make_move_iterator(blocks_.end()));
    blocks_.resize(home + 1);
    const absl::Status status = body();
    blocks_.insert(blocks_.end(), std::make_move_iterator(aside.begin()),
                   std::make_move_iterator(aside.end()));
    return status;
  }

  // A reduction over the threads of a row: each computes its value, then all combine them.
  absl::Status EmitCombines(const std::vector<UOp>& group, int home) {
    return AtHome(home, [&]() -> absl::Status {
      const UOp& range = ClosedRanges(group[0])[0];
      const bool whole = range.src(0).IsConst(shape_.threads) && ClosedRanges(group[0]).size() == 1;
      const bool warps = shape_.threads == kWarp || (shape_.rows == 1 && AllThreads());
      if (!whole || !warps) {
        return absl::InternalError("lower: a reduction over threads that not all of them reach");
      }
      RETURN_IF_ERROR(OpenLoop(range));
      std::vector<UOp> values;
      for (const UOp& r : group) {
        RETURN_IF_ERROR(Compute({r.src(0)}));
        values.push_back(*Find(r.src(0)));
      }
      CloseLoop();
      for (size_t i = 0; i < group.size(); ++i) {
        const UOp all = UOp::Make(Op::kCombine, group[i].dtype(), {values[i]}, group[i].arg());
        Define(group[i], Append(home, all));
      }
      return absl::OkStatus();
    });
  }

  bool OverThreads(const UOp& u) const {
    return threads_ && std::any_of(ClosedRanges(u).begin(), ClosedRanges(u).end(), [](auto& r) {
             return r.template arg<RangeArg>().kind == RangeKind::kThread;
           });
  }

  absl::Status EmitReduces(const UOp& first) {
    const int home = Home(first);
    std::vector<UOp> group;
    for (const UOp& r : reduces_) {
      if (depth_.at(r.get()) == depth_.at(first.get()) && sets_.Free(r) == sets_.Free(first) &&
          ClosedRanges(r) == ClosedRanges(first) && Find(r) == nullptr) {
        group.push_back(r);
      }
    }
    if (OverThreads(first)) return EmitCombines(group, home);
    const std::vector<int> pool = Pool(group);
    return AtHome(home, [&]() -> absl::Status {
      const int begin = FaultPlanted(Fault::kAccumulatorKept) ? 0 : home;
      std::vector<UOp> regs;
      for (size_t i = 0; i < group.size(); ++i) {
        const UOp& r = group[i];
        if (pool[i] != static_cast<int>(i)) {
          regs.push_back(regs[pool[i]]);
          continue;
        }
        const UOp start = Start(r, begin);
        regs.push_back(Append(begin, UOp::Make(Op::kReg, {start}, FreshId())));
      }
      const std::vector<UOp> early = FilledAhead(ClosedRanges(first)[0]);
      if (!early.empty()) RETURN_IF_ERROR(FillFirst(early, ClosedRanges(first)[0]));
      for (const UOp& range : ClosedRanges(first)) {
        RETURN_IF_ERROR(OpenLoop(range));
        if (!early.empty() && range == ClosedRanges(first)[0]) {
          RETURN_IF_ERROR(FillNext(early, range));
        }
      }
      RETURN_IF_ERROR(EmitSteps(group, regs));
      for (size_t i = ClosedRanges(first).size(); i-- > 0;) {
        if (i == 0 && !early.empty()) RETURN_IF_ERROR(PutLate(ClosedRanges(first)[0]));
        CloseLoop();
      }
      for (size_t i = 0; i < group.size(); ++i) {
        const UOp& r = group[i];
        if (pool[i] == static_cast<int>(i)) {
          const UOp result = UOp::Make(Op::kLoad, r.dtype(), {regs[i]}, FreshId());
          Define(r, Append(home, result));
        } else {  // its part is in the other's register
          Define(r, Start(r, home));
        }
      }
      return absl::OkStatus();
    });
  }

  // A register that stands before the loop takes up the value of each of its points.
  absl::Status EmitRunning(const UOp& u) {
    const int here = Home(u);
    if (here == 0 || blocks_[here].bit != sets_.Bit(u.src(1)) || !blocks_[here].head) {
      return absl::InternalError("lower: a RUNNING whose RANGE is not the innermost of its loops");
    }
    const UOp reg = Append(here - 1, UOp::Make(Op::kReg, {Start(u, here - 1)}, FreshId()));
    const UOp old = Append(here, UOp::Make(Op::kLoad, u.dtype(), {reg}, FreshId()));
    const UOp now = Append(here, UOp::Make(u.arg<ReduceArg>().op, {old, *Find(u.src(0))}));
    Append(here, UOp::Make(Op::kSet, {reg, now}, FreshId()));
    Define(u, now);
    return absl::OkStatus();
  }

  // What a reduction starts from: a constant, or one in every lane.
  UOp Start(const UOp& r, int block) {
    const DType scalar = r.dtype().Scalar();
    const Op op = r.arg<ReduceArg>().op;
    const bool zero = op == Op::kMax && FaultPlanted(Fault::kMaxStartsAtZero);
    const UOp one = UOp::Const(scalar, zero ? tessera::Scalar() : ReduceIdentity(op, scalar));
    if (r.dtype().lanes() == 1) return one;
    return Append(block, UOp::Make(Op::kSplat, r.dtype(), {one}));
  }

  // In which other's register, by place in the group, each reduction takes up its values: its own,
  // unless there are more than registers. Then two that are only combined with one another share.
  std::vector<int> Pool(const std::vector<UOp>& group) const {
    std::vector<int> pool(group.size());
    for (size_t i = 0; i < group.size(); ++i) pool[i] = static_cast<int>(i);
    if (static_cast<int>(group.size()) <= most_sums_) return pool;
    absl::flat_hash_map<const Node*, int> place, uses;
    for (size_t i = 0; i < group.size(); ++i) place[group[i].get()] = static_cast<int>(i);
    for (const UOp& u : sets_.order()) {
      for (const UOp& s : u.srcs()) {
        if (place.contains(s.get())) ++uses[s.get()];
      }
    }
    for (const UOp& u : sets_.order()) {
      if (u.size() != 2) continue;
      const auto a = place.find(u.src(0).get()), b = place.find(u.src(1).get());
      if (a == place.end() || b == place.end() || a == b) continue;
      if (uses[a->first] != 1 || uses[b->first] != 1) continue;
      const Op op = group[a->second].arg<ReduceArg>().op;
      if (!u.is(op) || group[b->second].arg<ReduceArg>().op != op) continue;
      pool[std::max(a->second, b->second)] = std::min(a->second, b->second);
    }
    return pool;
  }

  // One iteration: each register takes up its value. A sum of products is one rounding.
  absl::Status EmitSteps(const std::vector<UOp>& group, const std::vector<UOp>& regs) {
    std::vector<UOp> needed;
    const auto by_unit = [&](const UOp& r) { return r.src(0).is(Op::kMma); };
    const auto fused = [&](const UOp& r) {
      return by_unit(r) ||
             (r.arg<ReduceArg>().op == Op::kAdd && r.dtype().IsFloat() && r.src(0).is(Op::kMul));
    };
    for (const UOp& r : group) {
      if (fused(r)) {
        needed.insert(needed.end(), r.src(0).srcs().begin(), r.src(0).srcs().end());
      } else {
        needed.push_back(r.src(0));
      }
    }
    // Reversed, as Compute takes the last first.
    std::reverse(needed.begin(), needed.end());
    RETURN_IF_ERROR(Compute(needed));
    const int inner = static_cast<int>(blocks_.size()) - 1;
    for (size_t i = 0; i < group.size(); ++i) {
      const UOp& r = group[i];
      const UOp old = Append(inner, UOp::Make(Op::kLoad, r.dtype(), {regs[i]}, FreshId()));
      const auto factor = [&](int k) { return *Find(r.src(0).src(k)); };
      const UOp next = by_unit(r) ? r.src(0).WithSrcs({factor(0), factor(1), old})
                       : fused(r) ? UOp::Make(Op::kFma, {factor(0), factor(1), old})
                                  : UOp::Make(r.arg<ReduceArg>().op, {old, *Find(r.src(0))});
      Append(inner, next);
      Append(inner, UOp::Make(Op::kSet, {regs[i], next}, FreshId()));
    }
    return absl::OkStatus();
  }

  UOp MakeScratch(const UOp& stage) {
    const int64_t size = stage.src(0).arg<Pairs>()[0].second.value();
    const int64_t at = FaultPlanted(Fault::kScratchOverlaps) ? 0 : scratch_bytes_;
    scratch_bytes_ += (size + 63) / 64 * 64;
    const Pairs where = {{Extent(at), Extent(size)}};
    return Append(0, UOp::Make(Op::kScratch, stage.dtype(), {}, where));
  }

  // ---- stages that are filled steps ahead of the loop that reads them
  //
  // Scratch has a place for each step that is under way; the offsets say which. So many steps are
  // filled before the loop. Each step of it waits for its own part; after the barrier all threads
  // see that, and none still reads the part of the step before, which then is filled anew. What
  // cannot be fetched is loaded and computed then, and stored once the step's own work is done.

  std::vector<UOp> FilledAhead(const UOp& loop) const {
    std::vector<UOp> out;
    for (const UOp& u : sets_.order()) {
      if (threads_ && u.is(Op::kStage) && u.arg<StageArg>().ahead > 0 &&
          (sets_.Free(u) & sets_.Bit(loop))) {
        out.push_back(u);
      }
    }
    return out;
  }

  // Fills the stages for step `at` of the loop, if there is one.
  absl::Status FillAt(const std::vector<UOp>& stages, const UOp& loop, const UOp& at) {
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

  absl::Status FillFirst(const std::vector<UOp>& stages, const UOp& loop) {
    RETURN_IF_ERROR(Arrive(/*only_in_loops=*/true));
    fetched_ = false;
    for (const UOp& stage : stages) scratch_.insert_or_assign(stage.get(), MakeScratch(stage));
    for (int64_t i = 0; i < stages[0].arg<StageArg>().ahead; ++i) {
      RETURN_IF_ERROR(FillAt(stages, loop, UOp::Index(i)));
    }
    return absl::OkStatus();
  }

  absl::Status FillNext(const std::vector<UOp>& stages, const UOp& loop) {
    const int here = static_cast<int>(blocks_.size()) - 1;
    const int64_t ahead = stages[0].arg<StageArg>().ahead;
    if (fetched_) Append(here, UOp::Make(Op::kWait, {}, Ints{next_id_++, ahead - 1}));
    RETURN_IF_ERROR(Arrive(/*only_in_loops=*/false));
    for (const UOp& stage : stages) {
      blocks_[here].values.emplace(stage.get(), scratch_.at(stage.get()));
    }
    next_ = Append(here, UOp::Make(Op::kAdd, {*Find(loop), UOp::Index(ahead)}));
    std::vector<UOp> now;
    late_.clear();
    for (const UOp& stage : stages) (IsLate(stage) ? late_ : now).push_back(stage);
    if (!now.empty()) RETURN_IF_ERROR(FillAt(now, loop, next_));
    return ComputeLate(loop);
  }

  // Whether all of a stage is computed by all threads, in copies: its values fit in registers.
  bool IsLate(const UOp& stage) const {
    return std::all_of(stage.srcs().begin() + 1, stage.srcs().end(), [&](const UOp& store) {
      const absl::Span<const UOp> ranges = ClosedRanges(store);
      return !CanFetch(store) && ranges.size() == 1 && ranges == ClosedRanges(stage.src(1)) &&
             ranges[0].arg<RangeArg>().kind == RangeKind::kThread &&
             ranges[0].src(0).IsConst(shape_.threads);
    });
  }

  // The values of the next step; past the last one those of the last again, which nobody stores.
  absl::Status ComputeLate(const UOp& loop) {
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

  absl::Status PutLate(const UOp& loop) {
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

  // Fills a stage's scratch at the outermost place where what it holds is known.
  absl::Status EmitStage(const UOp& stage) {
    return AtHome(Home(stage), [&]() -> absl::Status {
      if (threads_) RETURN_IF_ERROR(Arrive(/*only_in_loops=*/true));
      const UOp scratch = MakeScratch(stage);
      Define(stage, scratch);
      // Stages over other loops may have been made of one, and still name one SCRATCH.
      const Node* name = stage.src(0).get();
      const UOp outer = std::exchange(blocks_[0].values[name], scratch);
      const absl::Status status = EmitStores({stage.srcs().begin() + 1, stage.srcs().end()}, 0);
      blocks_[0].values[name] = outer;
      RETURN_IF_ERROR(status);
      return threads_ ? Arrive(/*only_in_loops=*/false) : absl::OkStatus();
    });
  }

  // A barrier for all threads of the block: before scratch is filled again, and once it is filled.
  absl::Status Arrive(bool only_in_loops) {
    const bool looped = std::any_of(blocks_.begin(), blocks_.end(),
                                    [](const Block& b) { return b.head && b.head.is(Op::kRange); });
    if (shape_.threads * shape_.rows == 1 || (only_in_loops && !looped)) return absl::OkStatus();
    if (!AllThreads()) return absl::InternalError("lower: a stage that not all threads fill");
    Append(static_cast<int>(blocks_.size()) - 1, UOp::Make(Op::kBarrier, {}, FreshId()));
    return absl::OkStatus();
  }

  static constexpr int kWarp = 32;
  static constexpr int64_t kCombineBytes = 256;  // a value of each warp

  const UOp sink_;
  const RangeSets sets_;
  const MemoryHints hints_;
  const int most_sums_;  // registers that sums may take, others left for operands
  const bool threads_;   // whether grid ranges are blocks of threads, not shares of workers
  const bool fetches_;   // whether the target copies to scratch without waiting
  Lowered shape_;
  absl::flat_hash_map<const Node*, int> depth_;
  std::vector<UOp> reduces_;
  std::vector<Block> blocks_;
  bool extents_ = false;                           // whether an extent is being computed
  std::vector<UOp> tested_;                        // gates of UPDATEs that hold here
  absl::flat_hash_map<const Node*, UOp> scratch_;  // of stages that are filled ahead
  UOp next_;                                       // the step that is filled now
  std::vector<UOp> late_, late_values_;  // stages that are stored after their values are computed
  bool ahead_ = false;                   // inside what fills scratch before the step that reads it
  bool fetched_ = false;                 // something that it filled has not arrived
  int64_t next_id_ = 0;
  int64_t scratch_bytes_ = 0;
};

}  // namespace

absl::StatusOr<Lowered> Lower(const UOp& sink, const std::string& name, const Target& target) {
  return Lowerer(sink, target).Run(name);
}

}  // namespace tessera
