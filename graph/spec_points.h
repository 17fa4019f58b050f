// What expressions of a kernel or program are at points of their loops: where the ranges and
// variables in them have certain values. A point at which something is wrong shows that it is
// wrong, whatever ops the expression is made of; bounds of each node by itself show less.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/uop.h"

namespace tessera {

class SpecPoints {
 public:
  // What an integer that is read from memory, or made by what this does not evaluate, is: any value
  // within its bounds, the same wherever the node is used; or not known.
  enum class Reads { kAny, kUnknown };
  // Whether blocks are known by the bounds of rt_block: where variables say how many there are,
  // only the launch knows them.
  enum class Blocks { kWithinBounds, kUnknown };

  // Over the expressions and all that they are made of. Each node that is met or evaluated takes
  // from `budget`; when there is none left, there are no more points.
  SpecPoints(std::vector<UOp> expressions, Reads reads, int64_t& budget,
             Blocks blocks = Blocks::kWithinBounds);

  // expressions[i] at the current point; nothing where that is not known.
  std::optional<int64_t> At(int i) const { return Of(roots_[i]); }

  // The point: "r0 = 3, n = 5".
  std::string Where() const;

  // Calls fn at points until it returns false: at all of them if they are few; else at those where
  // expressions[0] is lowest and highest if it rises or falls with each loop by itself, at those
  // about which a comparison turns, a remainder begins anew or a cast wraps around, and at some
  // between. Only points that exist: those in all loops that the expressions mention.
  using Visitor = absl::FunctionRef<bool()>;
  void Visit(Visitor fn);

  // Calls fn at all points; false if they are too many, or fn was.
  bool VisitEach(Visitor fn);

  // Calls fn at points where a variable has its second or last value, with what the expressions are
  // where it has its first: the same round of each loop, and all else alike.
  using Values = absl::Span<const std::optional<int64_t>>;
  void VisitPairs(absl::string_view variable, absl::FunctionRef<bool(Values at_first)> fn);

  // Calls fn at points that lie along each loop by itself, from a few places, or at all if they are
  // few; variables are at their highest.
  void VisitAlongLoops(Visitor fn);

 private:
  enum class Kind : uint8_t { kConst, kElementwise, kRange, kVar, kAny, kUnknown };
  struct Entry {
    UOp node;
    Kind kind;
    absl::InlinedVector<int, 3> srcs;
  };
  // Which of its values a free entry takes: its lowest, its highest, or one by number from kFirst.
  static constexpr uint64_t kLowest = 0, kHighest = 1, kFirst = 2;

  void Add(const UOp& expression);
  std::optional<int64_t> Of(int entry) const;
  // How many values a free entry has at most.
  uint64_t MostValues(int entry) const;
  // Finds all values at the point of choices_; false if there is no such point.
  bool Evaluate();
  bool Take(int entry, int64_t lowest, int64_t step, uint64_t count);
  bool EvaluateRange(int entry);
  bool EvaluateVar(int entry);
  void EvaluateElementwise(int entry);
  bool AreFew() const;
  bool VisitExtreme(Visitor fn, bool highest);
  // What an op does turns where one entry less another, or less a number, is 0.
  struct Turn {
    int entry, less;  // -1: none
    int64_t number;
  };
  std::vector<Turn> Turns() const;
  std::optional<int64_t> ValueOf(const Turn& t) const;
  struct Stride {
    int entry;
    int64_t up;       // by how much a turn's value grows with each of the entry's values
    uint64_t number;  // which of them it has in the corner
  };
  std::vector<Stride> StridesAt(uint64_t corner, const Turn& t, int64_t begin);
  void GoTowards(int64_t target, uint64_t corner, const Turn& t, int64_t begin,
                 absl::Span<const Stride> strides);
  bool VisitTurn(Visitor fn, const Turn& t);
  // Which of its values a free entry has, counted from its lowest.
  uint64_t NumberOf(int entry) const;

  std::vector<Entry> entries_;  // sources before their users
  absl::flat_hash_map<const Node*, int> index_;
  std::vector<int> roots_;
  std::vector<int> free_;          // entries that take one of several values
  std::vector<uint64_t> choices_;  // by entry
  std::vector<Scalar> values_;
  std::vector<bool> known_;
  int workers_ = -1, blocks_ = -1;  // entries of what rt_worker and rt_block are below
  const Reads reads_;
  const Blocks blocks_known_;
  int64_t& budget_;
};

}  // namespace tessera
