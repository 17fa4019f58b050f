// What the rules of inference share: the node to be made, and how its errors
// read. Private to the files of inference and to alignment, which asks for a shape alone.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/infer.h"

namespace tessera {

struct InferContext {
  Op op;
  absl::Span<const UOp> srcs;
  const Arg& arg;

  template <typename... Parts>
  absl::Status Fail(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat(
        Info(op).text, ": ", parts..., srcs.empty() ? "" : "; got ",
        absl::StrJoin(srcs, ", ",
                      [](std::string* out, const UOp& u) { absl::StrAppend(out, Describe(u)); })));
  }
};

template <typename T>
absl::StatusOr<const T*> ArgOf(const InferContext& c) {
  if (const T* v = std::get_if<T>(&c.arg.value)) return v;
  return c.Fail("the argument is of the wrong kind");
}

// Whether an op combines values of a dtype in any order.
absl::Status CheckCombines(const InferContext& c, Op op, DType t);

// Whether a list names dims of a mesh, each once.
absl::Status CheckMeshDims(const InferContext& c, const Ints& dims, const Mesh& mesh);

// Whether there is a tensor of these extents.
absl::Status CheckExtents(const InferContext& c, absl::Span<const Extent> dims);

// The shape of a node, by op; those of MSTACK, MSELECT, EXCHANGE and LOOP by themselves.
absl::StatusOr<Shape> InferShape(const InferContext& c);
absl::StatusOr<Shape> InferStack(const InferContext& c);
absl::StatusOr<Shape> InferSelect(const InferContext& c);
absl::StatusOr<Shape> InferExchange(const InferContext& c);
absl::StatusOr<Shape> InferLoop(const InferContext& c);
absl::StatusOr<Shape> InferResult(const InferContext& c);
// Whether a RESULT names one of a LOOP.
absl::Status CheckResult(const InferContext& c);

}  // namespace tessera
