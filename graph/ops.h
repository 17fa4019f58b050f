// The op enum and what the op table (graph/ops.def) says of each op.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

enum class Op : uint8_t {
#define OP(name, ...) k##name,
#include "graph/ops.def"
};

inline constexpr int kOpCount = 0
#define OP(...) +1
#include "graph/ops.def"
    ;

// The movement ops alone: a switch over them has no default, so a new one stops the build wherever
// it must be handled. MovementOf() gives an op as one.
#define TESSERA_IF_Leaf(row)
#define TESSERA_IF_Elementwise(row)
#define TESSERA_IF_Movement(row) row,
#define TESSERA_IF_Reduce(row)
#define TESSERA_IF_Data(row)
#define TESSERA_IF_Kernel(row)
#define TESSERA_IF_Program(row)
enum class Movement : uint8_t {
#define OP(name, text, arity, cls, ...) \
  TESSERA_IF_##cls(k##name = static_cast<uint8_t>(Op::k##name))
#include "graph/ops.def"
};
#undef TESSERA_IF_Leaf
#undef TESSERA_IF_Elementwise
#undef TESSERA_IF_Movement
#undef TESSERA_IF_Reduce
#undef TESSERA_IF_Data
#undef TESSERA_IF_Kernel
#undef TESSERA_IF_Program

enum class OpClass : uint8_t { kLeaf, kElementwise, kMovement, kReduce, kData, kKernel, kProgram };

// How the result's dtype follows from the sources'.
enum class TypeRule : uint8_t {
  kDeclared,  // given with the node
  kSame,      // all sources alike, result too
  kFirst,     // the first source's
  kVoid,      // no value
  kNumber,    // sources alike, any dtype
  kArith,     // sources alike, not bool
  kFloat,     // sources alike, floating
  kInt,       // sources alike, integers
  kBits,      // sources alike, integers or bool
  kCompare,   // sources alike; result bool
  kWhere,     // bool and two alike
  kRandom,    // u64
  kReduce,    // as the op of the argument
};

enum class ArgKind : uint8_t {
  kNone,
  kScalar,
  kVar,
  kBuffer,
  kParam,
  kExtents,
  kInts,
  kPairs,
  kWindow,
  kReduce,
  kInt,
  kDevice,
  kRange,
  kStage,
  kString,
  kExchange,
};

enum OpProperty : uint8_t {
  kCommutative = 1,
  kAssociative = 2,
  kNoDevice = 4,   // takes the device of what it meets
  kExpensive = 8,  // worth keeping rather than computing again
  kPuts = 16,      // a statement that stores a value at a pointer
};

struct OpInfo {
  const char* name;  // enumerator without the k
  const char* text;  // in the text form
  int arity;         // -1: any number
  OpClass cls;
  TypeRule type;
  ArgKind arg;
  uint8_t props;
  const char* ctext;   // elementwise: an expression over $0, $1, $2
  const char* stages;  // letters of the graphs it belongs in: tensor, kernel, program
  const char* comment;
};

const OpInfo& Info(Op op);
inline bool HasProperty(Op op, OpProperty p) { return Info(op).props & p; }
inline bool IsElementwise(Op op) { return Info(op).cls == OpClass::kElementwise; }
inline bool IsPut(Op op) { return HasProperty(op, kPuts); }
inline bool IsMovement(Op op) { return Info(op).cls == OpClass::kMovement; }
Movement MovementOf(Op op);  // which must be one

// The op with this text ("ADD").
absl::StatusOr<Op> ParseOp(absl::string_view text);

}  // namespace tessera
