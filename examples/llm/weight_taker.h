// Takes a model's weights out of a set by their names, and remembers which were taken.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "examples/llm/model.h"

namespace tessera::llm {

struct Names;  // examples/llm/weight_names.h

// Every error names the file, the tensor, and what the configuration wants of it.
struct WeightTaker {
  const WeightSet& weights;
  bool gguf;
  const std::string& file;
  bool norms_from_one;
  absl::flat_hash_set<const Weight*> taken = {};

  // What it may be called in such files, the usual name first.
  std::vector<std::string> NamesOf(const Names& names, int64_t layer, int64_t expert) const;
  // Empty where such files have no name for it.
  std::string UsualName(const Names& names, int64_t layer, int64_t expert = 0) const;
  const Weight* Find(const Names& names, int64_t layer, int64_t expert = 0) const;
  // Whether what is found has an expert's number in its name; or would, where nothing is.
  bool IsOfOneExpert(const Names& names, int64_t layer) const;
  // With this shape. None where there is none. What is no numbers but parts of blocks is `bytes`.
  absl::StatusOr<std::optional<Weight>> Optional(const Names& names, int64_t layer,
                                                 const std::vector<int64_t>& shape,
                                                 int64_t expert = 0, bool bytes = false);
  absl::StatusOr<Weight> Required(const Names& names, int64_t layer,
                                  const std::vector<int64_t>& shape, int64_t expert = 0,
                                  bool bytes = false);

  absl::Status Read(const Names& names, int64_t layer, int64_t rows, int64_t columns, Matrix* to);
  absl::Status Read(const Names& names, int64_t layer, const std::vector<int64_t>& shape,
                    bool required, Tensor* to);
  absl::Status ReadNorm(const Names& names, int64_t layer, int64_t size, bool required, Tensor* to);
  // Matrices that are one in the file, one below the other.
  absl::Status ReadJoined(const Names& names, int64_t layer, int64_t columns,
                          absl::Span<const std::pair<int64_t, Matrix*>> parts);
  // A matrix of each head, or of each expert, in one tensor.
  absl::Status ReadBatch(const Names& names, int64_t layer, int64_t count, int64_t rows,
                         int64_t columns, Matrix* to);
  // Of all experts: one tensor, or those of each, which are brought together.
  absl::Status ReadExperts(const Names& names, int64_t layer, int64_t experts, int64_t rows,
                           int64_t columns, Matrix* to);
  // Of all experts in MXFP4, whose nibbles, two neighbours in a byte, and exponents lie apart: as
  // blocks of GGUF files, of which a byte's nibbles are half a block apart.
  absl::Status ReadApart(const Names& nibbles, const Names& exponents, int64_t layer,
                         int64_t experts, int64_t rows, int64_t columns, Tensor* to);
  // Weights of a layer that does not use them.
  void PassOver(std::initializer_list<const Names*> all, int64_t layer);
  // An error where the set has weights that were not taken, but for those of layers that guess
  // further tokens: from `layers` on, of which there are `passed`, or by a name of their own.
  absl::Status NothingLeft(int64_t layers, int64_t passed) const;

 private:
  // What a matrix's products are multiplied by, which GGUF files have beside it. What its inputs
  // were divided by on chips that multiply in such formats is passed over.
  absl::Status ReadScale(const Names& names, int64_t layer, int64_t count, Matrix* to);
  // What was taken; times the scale that folders have beside what is in 8-bit floats.
  absl::StatusOr<Matrix> MatrixOf(const Weight& w);
};

}  // namespace tessera::llm
