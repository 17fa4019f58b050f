// One statement of the text form: its parts, and the readers of its argument and annotation.
// For graph/text.cc, which stops at the first mistake, and the validator, which goes on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/uop.h"

namespace tessera {

// All views point into the text.
struct Statement {
  absl::string_view text;  // the line, without comment
  absl::string_view name;  // "%3"; empty for `return`
  Op op = Op::kConst;
  DType dtype;
  std::vector<absl::string_view> srcs;  // of `return`: the roots
  absl::string_view rest;               // argument and annotation
  bool is_return() const { return name.empty(); }
};

// What an annotation states; an extent written '?' is nothing.
struct Annotation {
  DType dtype;  // void: not stated
  absl::InlinedVector<std::optional<Extent>, 4> dims;
  std::optional<Device> device;
};

// The parts of a line; nothing for a line that is blank or a comment.
absl::StatusOr<std::optional<Statement>> ParseStatement(absl::string_view line);

// The node with a name, for extents.
using FindNode = absl::FunctionRef<absl::StatusOr<UOp>(absl::string_view name)>;

// The buffers of a text by the ids it gives them; those it made up, for ids that were not alive.
struct TextBuffers {
  absl::flat_hash_map<int64_t, std::shared_ptr<Buffer>> by_id;
  absl::flat_hash_set<const Buffer*> fresh;
};

// The argument of an op of this dtype at the front of `text`, which is left with what follows.
absl::StatusOr<Arg> ParseArg(Op op, DType dtype, absl::string_view& text, FindNode find,
                             TextBuffers& buffers);

// The annotation that is all of `text`, or nothing if that is empty.
absl::StatusOr<std::optional<Annotation>> ParseAnnotation(absl::string_view text, FindNode find);

// Whether a node has what its annotation states; the error says what it has.
absl::Status CheckAnnotation(const Annotation& a, DType dtype, const Shape& shape, Device device);

// The enumerators of an argument, as text.
absl::string_view RangeKindText(RangeKind kind);
absl::string_view SpaceText(Space space);

}  // namespace tessera
