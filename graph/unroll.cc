// Substituting, turn by turn.
#include "graph/unroll.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/infer.h"
#include "graph/loop_form.h"
#include "graph/rewrite.h"
#include "graph/status.h"
#include "graph/tensor_align.h"

namespace tessera {
namespace {

// Values of all turns along a new first axis; of none, a tensor without elements.
UOp Stack(const std::vector<UOp>& values, const UOp& like, Device device) {
  Extents one = like.shape().ToExtents();
  one.insert(one.begin(), Extent(1));
  if (values.empty()) {
    Extents none = one;
    none[0] = Extent(0);
    const Extents ones(one.size(), Extent(1));
    UOp zero = UOp::Const(like.dtype(), int64_t{0});
    zero = UOp::Make(Op::kExpand, {UOp::Make(Op::kReshape, {zero}, ones)}, std::move(none));
    return device ? UOp::Make(Op::kCopy, zero.dtype(), {zero}, device) : zero;
  }
  std::vector<UOp> rows;
  for (const UOp& v : values) rows.push_back(UOp::Make(Op::kReshape, {v}, one));
  return rows.size() == 1 ? rows[0] : UOp::Make(Op::kCat, rows, int64_t{0});
}

// What stands for an ITEM lies where that does: an element of a sequence whose turns are on several
// places does not.
UOp PlacedAs(const UOp& value, const UOp& item) {
  if (!item.device() || !item.device().is_sharding() || value.device() == item.device()) {
    return value;
  }
  return internal::ImpliedCopy(value, item.device().sharding(), "what each turn takes");
}

// All that a loop leaves.
std::vector<UOp> Unrolled(const LoopForm& loop, int64_t turns) {
  std::vector<UOp> carried(loop.carried.begin(), loop.carried.end());
  std::vector<std::vector<UOp>> stacked(loop.num_results());
  const std::vector<UOp> items = loop.Items();
  for (int64_t t = 0; t < turns; ++t) {
    const int64_t at = loop.backwards ? turns - 1 - t : t;
    Substitution values;
    for (const UOp& item : items) {
      const int64_t k = NumberOfItem(item);
      const auto c = static_cast<size_t>(k);
      const UOp& source = loop.SourceOf(k);
      const UOp value = c < carried.size()     ? carried[c]
                        : loop.IsOfSequence(k) ? ElementOf(source, Extent(at))
                                               : source;
      values.emplace(item, PlacedAs(value, item));
    }
    const std::vector<UOp> given = Substitute(loop.body.srcs(), values);
    for (size_t i = 0; i < carried.size(); ++i) {
      stacked[loop.Taken(static_cast<int>(i))].push_back(carried[i]);
    }
    for (size_t i = 0; i < given.size(); ++i) {
      (i < carried.size() ? carried[i] : stacked[i].emplace_back()) = given[i];
    }
  }
  std::vector<UOp> out;
  for (int i = 0; i < loop.num_results(); ++i) {
    if (i < static_cast<int>(carried.size())) {
      out.push_back(carried[i]);
      continue;
    }
    if (loop.backwards) std::reverse(stacked[i].begin(), stacked[i].end());
    const UOp& like = i < loop.body.size() ? loop.body.src(i) : loop.carried[i - loop.body.size()];
    out.push_back(Stack(stacked[i], like, loop.DeviceOfResult(i)));
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<UOp>> WithoutLoops(absl::Span<const UOp> roots, bool stop_at_realized,
                                              const std::function<bool(const UOp&)>& which) {
  const std::vector<UOp> order = TopoSort(roots);
  const auto loops = [&](const UOp& u) { return u.is(Op::kLoop) && which(u); };
  if (std::none_of(order.begin(), order.end(), loops)) {
    return std::vector<UOp>(roots.begin(), roots.end());
  }
  absl::flat_hash_map<const Node*, UOp> plain;
  absl::flat_hash_map<const Node*, std::vector<UOp>> results;  // by LOOP
  for (const UOp& u : order) {
    if (stop_at_realized && u.realized()) {
      plain.emplace(u.get(), u);
      continue;
    }
    std::vector<UOp> srcs;
    for (const UOp& s : u.srcs()) {
      const auto it = plain.find(s.get());
      srcs.push_back(it != plain.end() ? it->second : s);
    }
    if (loops(u)) {
      const LoopForm loop(srcs, u.arg<Ints>());
      if (!loop.turns.IsConst()) {
        return absl::InvalidArgumentError(
            absl::StrCat("LOOP: the number of turns is an expression, and the loop is written ",
                         "out; give a number, or run it on one place"));
      }
      results.emplace(u.get(), Unrolled(loop, loop.turns.vmin()));
    } else if (u.is(Op::kResult) && results.contains(u.src(0).get())) {
      plain.emplace(u.get(), results.at(u.src(0).get())[NumberOfResult(u)]);
    } else {
      const bool same = std::equal(srcs.begin(), srcs.end(), u.srcs().begin());
      plain.emplace(u.get(), same ? u : u.WithSrcs(srcs));
    }
  }
  std::vector<UOp> out;
  for (const UOp& r : roots) out.push_back(plain.at(r.get()));
  return out;
}

}  // namespace tessera
