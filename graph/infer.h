// What a node's dtype, shape, device and bounds are, given its sources: one rule an op.
#pragma once

#include "absl/status/statusor.h"
#include "graph/uop.h"

namespace tessera {

inline constexpr int kMaxRank = 60;  // passes keep sets of axes in 64 bits
// Tensors of more elements are refused: no memory holds them, and bytes are counted in 64 bits.
inline constexpr int64_t kMostElements = int64_t{1} << 44;

// Names of variables that hold a place's own numbers begin with this (schedule/localise.h).
inline constexpr char kPlaceVariable[] = "@p";

struct Inferred {
  DType dtype;
  Shape shape;
  Device device;
};

// Whether two shapes surely have as many elements: their products are the same, factor by factor,
// whatever the variables are.
bool SurelyAsMany(const Shape& a, const Shape& b);

// Whether what such a node gives lies in a buffer that an ASSIGN may write.
inline bool IsWritable(Op op) {
  return op == Op::kBuffer || op == Op::kParam || op == Op::kAssign || op == Op::kContiguous;
}

// Checks arity, source dtypes, shapes, devices and the argument of the node to be made, and gives
// what follows. `declared` is used by ops whose type rule is kDeclared. A message starts with the
// op and shows the sources. The step that fails goes to `failed`, if given.
enum class InferStep : uint8_t { kArgument, kArity, kType, kShape, kDevice };
absl::StatusOr<Inferred> Infer(Op op, DType declared, absl::Span<const UOp> srcs, const Arg& arg,
                               InferStep* failed = nullptr);

// Bounds of an integer or bool node, inclusive; never wrong, at worst the dtype's limits.
std::pair<int64_t, int64_t> InferBounds(Op op, DType dtype, absl::Span<const UOp> srcs,
                                        const Arg& arg);

// "f32[4, 5] on CPU": how messages show a value.
std::string Describe(const UOp& u);
std::string Describe(DType dtype, const Shape& shape, Device device);

}  // namespace tessera
