// Numbers of tiles, first free first.
#include "codegen/tile_numbers.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/panel.h"

namespace tessera {
namespace {

// Tiles in the order in which statements make them, and the last statement that each is there for.
class Lifetimes {
 public:
  struct Tile {
    const Node* node;
    size_t first, last;
  };

  explicit Lifetimes(const UOp& program) : statements_(program.srcs()) {
    FindEnds();
    for (size_t p = 0; p < statements_.size(); ++p) {
      const UOp& u = statements_[p];
      if (u.is(Op::kRange) || u.is(Op::kIf)) open_.push_back(p);
      if (u.is(Op::kEnd)) open_.pop_back();
      for (const UOp& s : u.srcs()) Use(s, p);
      Make(u, p);
    }
  }

  const std::vector<Tile>& tiles() const { return tiles_; }

 private:
  void FindEnds() {
    std::vector<size_t> open;
    ends_.resize(statements_.size());
    for (size_t p = 0; p < statements_.size(); ++p) {
      if (statements_[p].is(Op::kRange) || statements_[p].is(Op::kIf)) open.push_back(p);
      if (!statements_[p].is(Op::kEnd)) continue;
      ends_[open.back()] = p;
      open.pop_back();
    }
  }

  // A value's tile, by place in tiles_, or -1.
  int Of(const UOp& u) const {
    const auto it = of_.find(u.get());
    return it == of_.end() ? -1 : it->second;
  }

  void Use(const UOp& u, size_t p) {
    const int tile = Of(u);
    if (tile < 0) return;
    const auto loop = std::find_if(open_.begin(), open_.end(),
                                   [&](size_t begin) { return begin > tiles_[tile].first; });
    tiles_[tile].last = std::max(tiles_[tile].last, loop == open_.end() ? p : ends_[*loop]);
  }

  void Make(const UOp& u, size_t p) {
    if (!IsTile(u.dtype()) || u.is(Op::kSplat)) return;
    const int same = u.is(Op::kMma) && u.size() == 3     ? Of(u.src(2))
                     : u.is(Op::kLoad) || u.is(Op::kReg) ? Of(u.src(0))
                                                         : -1;
    of_.insert_or_assign(u.get(), same >= 0 ? same : static_cast<int>(tiles_.size()));
    if (same < 0) tiles_.push_back({u.get(), p, p});
  }

  const absl::Span<const UOp> statements_;
  std::vector<size_t> ends_, open_;  // where a loop ends; those around a statement
  std::vector<Tile> tiles_;
  absl::flat_hash_map<const Node*, int> of_;
};

}  // namespace

absl::StatusOr<TileNumbers> NumberTiles(const UOp& program) {
  TileNumbers out;
  const absl::Span<const UOp> statements = program.srcs();
  if (std::none_of(statements.begin(), statements.end(),
                   [](const UOp& u) { return IsTile(u.dtype()); })) {
    return out;
  }
  std::vector<size_t> until(kTiles, 0);  // the last statement that has the number
  std::vector<bool> taken(kTiles, false);
  const Lifetimes lifetimes(program);
  for (const Lifetimes::Tile& tile : lifetimes.tiles()) {
    int number = 0;
    while (number < kTiles && taken[number] && until[number] >= tile.first) ++number;
    if (number == kTiles) {
      return absl::ResourceExhaustedError(
          absl::StrCat("render: more than ", kTiles, " tiles are in use at once"));
    }
    taken[number] = true;
    until[number] = tile.last;
    out.insert_or_assign(tile.node, number);
  }
  return out;
}

}  // namespace tessera
