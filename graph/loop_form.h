// A LOOP by its parts, and what it leaves.
#pragma once

#include <vector>

#include "graph/uop.h"

namespace tessera {

// Loops nest, and ITEMs say which they are of: a loop's height is above those of the loops in its
// body, so that no ITEM of another loop there has its number.
inline constexpr int64_t kMostHeights = 62;
int64_t ItemSlot(int64_t height, int64_t number);
int64_t HeightOfItem(const UOp& item);
int64_t NumberOfItem(const UOp& item);

struct LoopForm {
  explicit LoopForm(const UOp& loop);
  // Of a LOOP or the parts of one that is not made yet; they must be as InferLoop wants them.
  LoopForm(absl::Span<const UOp> srcs, const Ints& arg);

  UOp body;   // a SINK of what a turn gives: carried values, then those that are stacked
  UOp turns;  // how many: an i64 number
  absl::Span<const UOp> carried, sequences, fixed;  // what it begins with, and reads; of the node
  bool backwards = false;                           // the last elements of sequences come first
  int64_t height = 0;

  int num_stacked() const { return body.size() - static_cast<int>(carried.size()); }
  // Carried values after the last turn, stacked ones, carried ones as each turn took them.
  int num_results() const { return body.size() + static_cast<int>(carried.size()); }
  int Stacked(int i) const { return static_cast<int>(carried.size()) + i; }
  int Taken(int i) const { return body.size() + i; }

  DType DTypeOfResult(int i) const { return OfResult(i).dtype(); }
  Shape ShapeOfResult(int i) const;
  Device DeviceOfResult(int i) const;

  // The ITEMs of the body.
  std::vector<UOp> Items() const;
  // What the ITEM of a number stands for: a carried value, a sequence (of one element), what is
  // fixed.
  const UOp& SourceOf(int64_t number) const { return all_[number]; }
  bool IsOfSequence(int64_t number) const;
  Shape ShapeOfItem(int64_t number) const;

 private:
  // A node of the result's dtype and, unless it is stacked, shape.
  const UOp& OfResult(int i) const;
  absl::Span<const UOp> all_;  // carried, sequences, fixed
};

// What an element of a sequence is like, along its first axis.
Shape ShapeOfElement(const UOp& sequence);
// The element of a sequence, or what lies along its first axis, at a place that may be a variable.
UOp ElementOf(const UOp& sequence, const Extent& at);

// How many the RESULT is, and of what.
inline int NumberOfResult(const UOp& result) { return static_cast<int>(result.arg<int64_t>()); }

}  // namespace tessera
