// Lowering: from a graph of stores and reductions over ranges to statements in order.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "codegen/byte_dots.h"
#include "codegen/lowerer.h"
#include "graph/kernel_form.h"
#include "graph/status.h"

namespace tessera {

Lowerer::Lowerer(const UOp& sink, const Target& target)
    : sink_(sink),
      sets_(sink),
      hints_(FindMemoryHints(sets_, target)),
      most_sums_(target.vector_registers / 2),
      threads_(target.dialect == Dialect::kCuda),
      fetches_(target.fetches) {
  for (const UOp& u : sets_.order()) depth_.emplace(u.get(), DepthOf(u));
  for (const UOp& u : sets_.order()) {
    if (u.is(Op::kReduce)) reduces_.push_back(u);
    const bool adds = u.is(Op::kUpdate) && u.arg<ReduceArg>().op == Op::kAdd;
    if (adds && u.src(1).is(Op::kReduce) && u.src(1).src(0).is(Op::kMma)) {
      added_by_.emplace(u.src(1).get(), u);
    }
    for (const UOp& s : u.srcs()) {
      const auto it = added_by_.find(s.get());
      CHECK(it == added_by_.end() || it->second == u, "lower: a sum of tiles is read besides");
    }
  }
  if (threads_) FindChains();
  if (!threads_) FindSkippable();
}

void Lowerer::FindChains() {
  absl::flat_hash_set<const Node*> summed;
  for (const UOp& r : reduces_) {
    for (const UOp& p : ProductsOf(TakenUp(r))) summed.insert(p.get());
  }
  absl::flat_hash_map<const Node*, size_t> place;
  for (const UOp& u : sets_.order()) {
    if (!u.is(Op::kMma) || IsByteDot(u)) continue;
    const auto before = u.size() == 3 ? place.find(u.src(2).get()) : place.end();
    const size_t at = before == place.end() ? 0 : before->second + 1;
    place[u.get()] = at;
    if (chains_.size() <= at) chains_.resize(at + 1);
    if (!summed.contains(u.get())) chains_[at].push_back(u);
  }
  if (chains_.size() < 2) chains_.clear();
}

absl::StatusOr<Lowered> Lowerer::Run(const std::string& name) {
  if (threads_) RETURN_IF_ERROR(ShapeLaunch());
  blocks_.emplace_back();
  std::vector<UOp> stores(sink_.srcs().begin(), sink_.srcs().end());
  RETURN_IF_ERROR(EmitStores(stores, 0));
  Lowered out = std::move(shape_);
  out.program = UOp::Make(Op::kProgram, blocks_[0].statements, Arg(name));
  out.scratch_bytes = scratch_bytes_;
  return out;
}

int Lowerer::DepthOf(const UOp& u) const {
  int d = 0;
  for (const UOp& s : u.srcs()) d = std::max(d, depth_.at(s.get()));
  return d + (u.is(Op::kReduce) || u.is(Op::kStage));
}

int Lowerer::Known(const UOp& u) const {
  const RangeMask free = sets_.Free(u);
  int home = static_cast<int>(blocks_.size()) - 1;
  while (home > 0 && !(blocks_[home].bit & free)) --home;
  return home;
}

int Lowerer::Home(const UOp& u) const {
  const int known = Known(u);
  if (threads_ || extents_ || u.size() == 0 || u.is(Op::kRange)) return known;
  for (int b = static_cast<int>(blocks_.size()) - 1; b > known; --b) {
    if (blocks_[b].skipped && !(u.is(Op::kStage) && SkippedAlike(u, blocks_[b].skipped))) return b;
  }
  return known;
}

bool Lowerer::SkippedAlike(const UOp& stage, const UOp& extent) {
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

UOp* Lowerer::Find(const UOp& u) {
  for (int b = Home(u), known = Known(u); b >= known; --b) {
    auto it = blocks_[b].values.find(u.get());
    if (it != blocks_[b].values.end()) return &it->second;
  }
  return nullptr;
}

UOp Lowerer::Append(int block, UOp statement) {
  blocks_[block].statements.push_back(statement);
  return statement;
}

absl::Status Lowerer::AtHome(int home, absl::FunctionRef<absl::Status()> body) {
  std::vector<Block> aside(std::make_move_iterator(blocks_.begin() + home + 1),
                           std::make_move_iterator(blocks_.end()));
  blocks_.resize(home + 1);
  const size_t before = aside_.size();
  for (const Block& b : aside) aside_.insert(aside_.end(), b.held.begin(), b.held.end());
  const absl::Status status = body();
  aside_.resize(before);
  blocks_.insert(blocks_.end(), std::make_move_iterator(aside.begin()),
                 std::make_move_iterator(aside.end()));
  return status;
}

absl::Status Lowerer::EmitStores(const std::vector<UOp>& stores, size_t depth) {
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
      if (threads_ && reduces_.empty() && i % kReadAtOnce == 0)
        RETURN_IF_ERROR(ReadFirst(stores, i, depth));
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

absl::Status Lowerer::ReadFirst(absl::Span<const UOp> stores, size_t first, size_t depth) {
  std::vector<UOp> values;
  for (const UOp& s : stores.subspan(first, kReadAtOnce)) {
    if (!s.is(Op::kStore) || ClosedRanges(s).size() != depth) return absl::OkStatus();
    if (!(ahead_ && CanFetch(s))) values.push_back(s.src(1));
  }
  std::reverse(values.begin(), values.end());  // Compute takes the last first
  return Compute(values);
}

UOp Lowerer::Testable(const UOp& store) const {
  if (!store.is(Op::kUpdate) || store.src(0).size() < 3) return UOp();
  const UOp& gate = store.src(0).src(2);
  RangeMask open = 0;
  for (const Block& b : blocks_) open |= b.bit;
  const bool known = (sets_.Free(gate) & ~open) == 0;
  return known && std::find(tested_.begin(), tested_.end(), gate) == tested_.end() ? gate : UOp();
}

absl::Status Lowerer::OpenIf(const UOp& gate) {
  RETURN_IF_ERROR(Compute({gate}));
  Block block;
  block.bit = blocks_.back().bit;
  block.head = UOp::Make(Op::kIf, {*Find(gate)}, FreshId());
  block.values = blocks_.back().values;
  blocks_.push_back(std::move(block));
  tested_.push_back(gate);
  return absl::OkStatus();
}

absl::Status Lowerer::EmitUpdate(const UOp& update) {
  const UOp& index = update.src(0);
  RETURN_IF_ERROR(Compute({index.src(1), update.src(1), index.src(0)}));
  const int here = static_cast<int>(blocks_.size()) - 1;
  const UOp pointer = *Find(index.src(0)), offset = *Find(index.src(1));
  UOp value = *Find(update.src(1));
  const Op op = update.arg<ReduceArg>().op;
  if (op != Op::kAssign && !added_by_.contains(update.src(1).get())) {
    const UOp old = Append(here, UOp::Make(Op::kLoad, value.dtype(), {pointer, offset}, FreshId()));
    value = Append(here, UOp::Make(op, {old, value}));
  }
  std::vector<UOp> srcs = {pointer, offset, value};
  if (const UOp gate = threads_ ? OneThread() : UOp()) srcs.push_back(gate);
  Append(here, UOp::Make(Op::kPut, srcs, FreshId()));
  return absl::OkStatus();
}

absl::Status Lowerer::EmitStore(const UOp& store) {
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

absl::Status Lowerer::Compute(const std::vector<UOp>& nodes) {
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

void Lowerer::AskForPart(int block, const UOp& pointer, const UOp& offset,
                         const MemoryHints::NextPart& part) {
  const auto append = [&](Op op, const UOp& a, const UOp& b) {
    return Append(block, UOp::Make(op, {a, b}));
  };
  const UOp* square = Find(part.square);
  if (square == nullptr) return;
  const UOp own = append(Op::kMul, *square, UOp::Index(part.rows * part.row));
  const UOp first = append(Op::kAdd, append(Op::kAdd, offset, UOp::Index(part.by)), own);
  for (int64_t i = 0; i < part.rows; ++i) {
    const UOp at = i == 0 ? first : append(Op::kAdd, first, UOp::Index(i * part.row));
    Append(block, UOp::Make(Op::kPrefetch, {pointer, at}, Ints{next_id_++, 2}));
  }
}

absl::Status Lowerer::Emit(const UOp& u) {
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
    case Op::kEarlier:
      Define(u, earlier_.at(u.src(0).get()));
      return absl::OkStatus();
    case Op::kIndex:
    case Op::kLoad: {
      std::vector<UOp> srcs;
      for (const UOp& s : u.srcs()) srcs.push_back(*Find(s));
      Define(u, Append(home, UOp::Make(Op::kLoad, u.dtype(), srcs, FreshId())));
      if (auto ahead = hints_.ahead.find(u.get()); ahead != hints_.ahead.end()) {
        const int64_t each = u.dtype().Scalar().bytes(), line = kLineBytes / each;
        for (int64_t lane = 0; lane < u.dtype().lanes(); lane += line) {
          const UOp by = UOp::Index(ahead->second + lane);
          const UOp at = Append(home, UOp::Make(Op::kAdd, {srcs[1], by}));
          Append(home, UOp::Make(Op::kPrefetch, {srcs[0], at}, Ints{next_id_++, 1}));
        }
      }
      return absl::OkStatus();
    }
    case Op::kFragment: {
      std::vector<UOp> srcs;
      for (const UOp& s : u.srcs()) srcs.push_back(*Find(s));
      const bool once = hints_.once.contains(u.get());
      const Ints arg = {next_id_++, once ? 1 : u.arg<Ints>()[1]};
      Define(u, Append(home, UOp::Make(u.op(), u.dtype(), srcs, arg)));
      if (auto part = hints_.parts.find(u.get()); part != hints_.parts.end()) {
        AskForPart(home, srcs[0], srcs[1], part->second);
      }
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

absl::StatusOr<Lowered> Lower(const UOp& sink, const std::string& name, const Target& target) {
  return Lowerer(sink, target).Run(name);
}

}  // namespace tessera
