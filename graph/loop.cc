// Tracing a turn, and closing its body over what it captures.
#include "graph/loop.h"

#include <algorithm>
#include <atomic>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/buffer.h"
#include "graph/loop_internal.h"
#include "graph/repeat.h"
#include "graph/rewrite.h"
#include "graph/sample.h"
#include "graph/tensor_align.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"
#include "graph/walk.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::Fail;
using internal::Show;

UOp internal::NewItem(DType dtype, const Shape& shape, Device device) {
  // Heights that no loop has, so that it is none's until it is made.
  static std::atomic<int64_t> last{0};
  const int64_t slot = ItemSlot(int64_t{1} << 24, 0) + ++last;
  return UOp::Make(Op::kItem, dtype, {}, ParamArg{slot, shape.ToExtents(), device});
}

UOp internal::ResultOf(const UOp& loop, int number) {
  return Build(Op::kResult, LoopForm(loop).DTypeOfResult(number), {loop}, int64_t{number});
}

internal::OpenBody internal::Opened(const LoopForm& loop) {
  OpenBody out;
  Substitution own;
  for (const UOp& item : loop.Items()) {
    const UOp placeholder = NewItem(item.dtype(), item.shape(), item.device());
    own.emplace(item, placeholder);
    out.items.emplace(NumberOfItem(item), placeholder);
  }
  out.results = Substitute(loop.body.srcs(), own);
  return out;
}

namespace {

// Makes the body of a loop: its placeholders become ITEMs, and so does what is fixed.
class Closer {
 public:
  explicit Closer(const internal::LoopParts& parts) : parts_(parts) {
    for (size_t i = 0; i < parts.carried.size(); ++i) {
      AddSource(parts.carried[i], parts.carried_items[i]);
    }
    for (size_t i = 0; i < parts.sequences.size(); ++i) {
      AddSource(parts.sequences[i], parts.sequence_items[i]);
    }
  }

  UOp Run() {
    std::vector<UOp> results = parts_.results;
    for (size_t i = 0; i < parts_.carried_items.size(); ++i) {
      results[i] = Placed(results[i], parts_.carried_items[i].device());
    }
    Nodes nodes = NodesOf(results);
    if (absl::c_any_of(nodes.varying, [](const UOp& u) { return u.is(Op::kAssign); })) {
      results = WithoutAssigns(results, nodes.varying);
      nodes = NodesOf(results);
    }
    const auto fix = [&](const UOp& u) {
      const bool stays = u.is(Op::kConst) || u.is(Op::kVar) || u.is(Op::kSink);
      if (!stays && !nodes.varies.contains(u.get()) && !written_.contains(u)) AddSource(u, u);
    };
    int64_t height = 0;
    for (const UOp& u : nodes.varying) {
      if (written_.contains(u)) continue;
      if (u.is(Op::kLoop)) height = std::max(height, LoopForm(u).height + 1);
      // How many turns a loop within has is a part of shapes.
      for (int i = 0; i < u.size(); ++i) {
        if (!u.is(Op::kLoop) || i != 1) fix(u.src(i));
      }
    }
    for (const UOp& r : results) fix(r);
    if (height > kMostHeights) Fail("more than ", kMostHeights, " loops lie within one another");
    Substitution items;
    for (const auto& [written, number] : written_) {
      const ParamArg arg{ItemSlot(height, number), written.shape().ToExtents(), written.device()};
      items.emplace(written, UOp::Make(Op::kItem, written.dtype(), {}, arg));
    }
    std::vector<UOp> srcs = {Build(Op::kSink, Substitute(results, items)), parts_.turns};
    srcs.insert(srcs.end(), sources_.begin(), sources_.end());
    const Ints arg = {static_cast<int64_t>(parts_.carried.size()),
                      static_cast<int64_t>(parts_.sequences.size()), parts_.backwards ? 1 : 0,
                      height};
    return Build(Op::kLoop, srcs, arg);
  }

 private:
  // What varies from turn to turn, sources first.
  struct Nodes {
    std::vector<UOp> varying;
    absl::flat_hash_set<const Node*> varies;
  };
  Nodes NodesOf(absl::Span<const UOp> results) const {
    Nodes out;
    for (const UOp& u : TopoSort(results)) {
      const bool does = written_.contains(u) || absl::c_any_of(u.srcs(), [&](const UOp& s) {
                          return out.varies.contains(s.get());
                        });
      if (!does) continue;
      out.varying.push_back(u);
      out.varies.insert(u.get());
    }
    return out;
  }

  // What is carried stays in the form in which it is taken.
  static UOp Placed(const UOp& given, Device device) {
    const Device now = given.device();
    const bool differs = now && now.is_sharding() && device.is_sharding() && !(now == device);
    return differs ? internal::ImpliedCopy(given, device.sharding(), "the form that is carried on")
                   : given;
  }

  // What a turn assigns is its own: values without ASSIGNs, from what was there before it.
  static std::vector<UOp> WithoutAssigns(absl::Span<const UOp> results,
                                         absl::Span<const UOp> varying) {
    absl::flat_hash_map<const Node*, UOp> done;
    const auto now = [&](const UOp& u) {
      const auto it = done.find(u.get());
      return it == done.end() ? u : it->second;
    };
    for (const UOp& u : varying) {
      if (u.is(Op::kAssign)) {
        const UOp base = IsNew(u.src(0)) ? Zeros(u.src(0)) : now(u.src(0));
        const UOp view = Substitute(u.src(1), {{u.src(0), base}});
        done.emplace(u.get(), internal::AfterAssign(base, view, Tensor(now(u.src(2)))).uop());
        continue;
      }
      std::vector<UOp> srcs;
      for (const UOp& s : u.srcs()) srcs.push_back(now(s));
      const bool same = std::equal(srcs.begin(), srcs.end(), u.srcs().begin());
      if (!same) done.emplace(u.get(), u.WithSrcs(srcs));
    }
    std::vector<UOp> out;
    for (const UOp& r : results) out.push_back(now(r));
    return out;
  }

  static UOp Zeros(const UOp& like) {
    return internal::CopyTo(Tensor::Zeros(like.shape(), like.dtype()).uop(), like.device());
  }

  // Memory that nothing was written to before.
  static bool IsNew(const UOp& u) {
    if (!u.is(Op::kBuffer)) return false;
    const Buffer& buffer = *u.arg<BufferArg>().buffer;
    return buffer.storage == nullptr && !buffer.stands_for_input;
  }

  // A source of the LOOP, and what stands for it in the body as it was written.
  void AddSource(const UOp& source, const UOp& written) {
    written_.emplace(written, static_cast<int64_t>(sources_.size()));
    sources_.push_back(source);
  }

  const internal::LoopParts& parts_;
  std::vector<UOp> sources_;
  absl::flat_hash_map<UOp, int64_t> written_;  // the numbers of sources
};

// Where what has no device of its own is put: with the first that has one; none where none has.
Device DeviceAmong(const std::vector<Tensor>& carried, const std::vector<Tensor>& sequences) {
  for (const auto* tensors : {&carried, &sequences}) {
    for (const Tensor& t : *tensors) {
      const Device d = t.device();
      if (d && !d.is_sharding()) return d;
      if (d) return Device(Sharding(d.sharding().mesh()));
    }
  }
  return Device();
}

void CheckCount(const std::vector<UOp>& given, size_t carried) {
  if (given.size() >= carried) return;
  Fail("a turn takes ", carried, " values that are carried, and gives ", given.size(),
       " back; return each of them, then what is stacked");
}

// An Error where a turn gives back another tensor than it has taken.
void CheckCarried(const UOp& given, const UOp& taken, size_t i) {
  if (!(given.dtype() == taken.dtype()) || !(given.shape() == taken.shape())) {
    Fail("carried value ", i, " is taken as ", Describe(taken), " and given back as ",
         Describe(given), "; begin with what comes back, or cast and reshape what is given");
  }
  const Device from = taken.device(), to = given.device();
  if (!from || !to || from == to || (from.is_sharding() && to.is_sharding())) return;
  Fail("carried value ", i, " is taken as ", Describe(taken), " and given back as ",
       Describe(given), "; move one of them with .To(...)");
}

Extent TurnsOf(const std::vector<Tensor>& sequences, const std::optional<Extent>& asked) {
  std::optional<Extent> turns = asked;
  for (const Tensor& s : sequences) {
    if (s.rank() == 0) Fail("the sequence ", Show(s), " has no axis to go along");
    const Extent& n = s.shape()[0];
    if (turns && !(*turns == n)) {
      Fail("the sequence ", Show(s), " has ", n.ToString(), " elements, and there are ",
           turns->ToString(), " turns");
    }
    turns = n;
  }
  if (!turns) Fail("there is no sequence to go along; say how many turns there are");
  if (turns->min() < 0) Fail("the number of turns, ", turns->ToString(), ", may be negative");
  return *turns;
}

}  // namespace

UOp internal::MakeLoop(const LoopParts& parts) { return Closer(parts).Run(); }

namespace {

using Trace = std::function<std::vector<UOp>(const std::vector<UOp>&)>;

bool IsInParts(Device d) { return d && d.is_sharding(); }
bool IsInParts(const std::vector<Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const Tensor& t) { return IsInParts(t.device()); });
}

// Each turn as a copy of what the function writes.
Looped WrittenOut(const Trace& trace, const std::vector<Tensor>& carried,
                  const std::vector<Tensor>& sequences, int64_t turns, bool backwards) {
  Looped out{carried, {}};
  std::vector<std::vector<Tensor>> stacked;
  const auto n = static_cast<std::ptrdiff_t>(carried.size());
  for (int64_t t = 0; t < turns; ++t) {
    const int64_t at = backwards ? turns - 1 - t : t;
    std::vector<UOp> taken;
    for (const Tensor& c : out.carried) taken.push_back(c.uop());
    for (const Tensor& s : sequences) taken.push_back(s.Select(0, at).uop());
    const std::vector<UOp> given = trace(taken);
    CheckCount(given, carried.size());
    if (t > 0 && given.size() != carried.size() + stacked.size()) {
      Fail("turn ", t, " gives ", given.size(), " values, and those before gave ",
           carried.size() + stacked.size());
    }
    for (size_t i = 0; i < carried.size(); ++i) CheckCarried(given[i], taken[i], i);
    out.carried = std::vector<Tensor>(given.begin(), given.begin() + n);
    stacked.resize(given.size() - n);
    for (size_t i = 0; i < stacked.size(); ++i) stacked[i].push_back(Tensor(given[n + i]));
  }
  for (std::vector<Tensor>& each : stacked) {
    if (backwards) std::reverse(each.begin(), each.end());
    out.stacked.push_back(Stack(each));
  }
  return out;
}

// What is traced: placeholders for what a turn takes, and what it makes of them.
struct TracedTurn {
  std::vector<UOp> sources, items, results;  // carried values, then sequences; of a turn
};

// Sources that have no device go to the given one; without it, so do their placeholders not.
TracedTurn TracedOn(Device device, const std::vector<Tensor>& carried,
                    const std::vector<Tensor>& sequences) {
  TracedTurn out;
  for (const auto* tensors : {&carried, &sequences}) {
    for (const Tensor& t : *tensors) {
      UOp u = internal::Current(t.uop());
      if (!u.device() && device) u = internal::CopyTo(u, device);
      const bool of_sequence = tensors == &sequences;
      const Shape shape = of_sequence ? ShapeOfElement(u) : u.shape();
      const Device on = of_sequence && u.device() ? internal::OfSample(u.device(), 0) : u.device();
      out.items.push_back(internal::PlaceholderOn(u.dtype(), shape, on));
      out.sources.push_back(std::move(u));
    }
  }
  return out;
}

// Whether all that is on a device is on this one.
bool LieOn(Device device, absl::Span<const UOp> results) {
  const UOp* elsewhere =
      FindBelow(results, [&](const UOp& u) { return u.device() && !(u.device() == device); });
  return elsewhere == nullptr;
}

// What is made of the turn: what is given back as it was taken is no longer carried, as it is the
// same in each turn.
Looped Made(const TracedTurn& turn, size_t carried, const Extent& turns, bool backwards) {
  internal::LoopParts parts;
  parts.turns = turns.ToUOp();
  parts.backwards = backwards;
  Substitution same;
  for (size_t i = 0; i < turn.items.size(); ++i) {
    if (i < carried && turn.results[i] == turn.items[i]) {
      same.emplace(turn.items[i], turn.sources[i]);
      continue;
    }
    (i < carried ? parts.carried : parts.sequences).push_back(turn.sources[i]);
    (i < carried ? parts.carried_items : parts.sequence_items).push_back(turn.items[i]);
  }
  for (size_t i = 0; i < turn.results.size(); ++i) {
    if (i >= carried || !same.contains(turn.items[i])) parts.results.push_back(turn.results[i]);
  }
  parts.results = Substitute(parts.results, same);
  Looped out;
  UOp loop;
  if (!parts.results.empty()) loop = internal::MakeLoop(parts);
  int next = 0;
  for (size_t i = 0; i < turn.results.size(); ++i) {
    const bool stays = i < carried && same.contains(turn.items[i]);
    (i < carried ? out.carried : out.stacked)
        .push_back(Tensor(stays ? turn.sources[i] : internal::ResultOf(loop, next++)));
  }
  return out;
}

Looped LoopOf(const Trace& trace, const std::vector<Tensor>& carried,
              const std::vector<Tensor>& sequences, const LoopOptions& options) {
  const Extent turns = TurnsOf(sequences, options.turns);
  const size_t n = carried.size();
  // On several places each turn is placed as it comes: what is carried may lie elsewhere after it.
  const auto written_out = [&] {
    if (!turns.is_int()) {
      Fail("a loop of tensors on several places is written out, and the number of turns is ",
           turns.ToString(), "; give a number, or move what it takes to one place with .To(...)");
    }
    return WrittenOut(trace, carried, sequences, turns.value(), options.backwards);
  };
  const bool has_turns = !turns.is_int(0);
  if (has_turns && (IsInParts(carried) || IsInParts(sequences))) return written_out();
  Device home = DeviceAmong(carried, sequences);
  const auto traced_on = [&](Device device) {
    TracedTurn turn = TracedOn(device, carried, sequences);
    turn.results = trace(turn.items);
    CheckCount(turn.results, n);
    return turn;
  };
  TracedTurn turn = traced_on(home);
  const auto in_parts = [](const UOp& u) { return IsInParts(u.device()); };
  if (has_turns && absl::c_any_of(turn.results, in_parts)) return written_out();
  if (!home) {  // all goes where what is captured is
    for (const UOp& r : turn.results) home = home ? home : r.device();
    if (!home) home = internal::DefaultDevice();
    if (LieOn(home, turn.results)) {
      TracedTurn placed = TracedOn(home, carried, sequences);
      Substitution items;
      for (size_t i = 0; i < turn.items.size(); ++i) items.emplace(turn.items[i], placed.items[i]);
      placed.results = Substitute(turn.results, items);
      turn = std::move(placed);
    } else {
      turn = traced_on(home);
    }
  }
  // So are constants that a turn gives: what the loop leaves is made by it, on a device.
  for (size_t i = 0; i < turn.results.size(); ++i) {
    UOp& r = turn.results[i];
    if (!r.device()) r = internal::CopyTo(r, i < n ? turn.items[i].device() : home);
  }
  for (size_t i = 0; i < n; ++i) CheckCarried(turn.results[i], turn.items[i], i);
  return Made(turn, n, turns, options.backwards);
}

constexpr int64_t kFewSteps = 6;

}  // namespace

Looped Loop(const TensorFunction& turn, const std::vector<Tensor>& carried,
            const std::vector<Tensor>& sequences, const LoopOptions& options) {
  Call call("Loop", turn.at(), absl::MakeConstSpan(carried), absl::MakeConstSpan(sequences));
  for (const auto* tensors : {&carried, &sequences}) {
    for (const Tensor& t : *tensors) {
      if (!t) Fail("an input is empty");
    }
  }
  const auto trace = [&](const std::vector<UOp>& items) { return internal::Traced(turn, items); };
  return LoopOf(trace, carried, sequences, options);
}

Looped internal::Repeat(int64_t times, const std::vector<Tensor>& carried,
                        const std::vector<Tensor>& sequences, const TensorsToTensors& step) {
  const auto trace = [&](const std::vector<UOp>& items) {
    std::vector<UOp> out;
    for (const Tensor& t : step({items.begin(), items.end()})) out.push_back(t.uop());
    return out;
  };
  return times > kFewSteps ? LoopOf(trace, carried, sequences, {.turns = times})
                           : WrittenOut(trace, carried, sequences, times, false);
}

Tensor internal::JoinedAlong(const Tensor& stacked, int axis) {
  return stacked.Squeeze(axis < 0 ? axis : axis + 1).MoveAxis(0, axis);
}

}  // namespace tessera
