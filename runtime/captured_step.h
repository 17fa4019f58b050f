// One captured step of a Jit, and its calls. Private to the files of Jit.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "graph/no_grad.h"
#include "graph/trace.h"
#include "runtime/capture.h"
#include "runtime/plan_key.h"
#include "runtime/replay.h"
#include "runtime/rollback.h"

namespace tessera {

// One captured step: a plan, and what each of its leaves and roots is in a call.
class CapturedStep {
 public:
  // Traces the step, for inputs like these.
  CapturedStep(const Jit::Step& step, const std::vector<Tensor>& inputs, CallSite at);

  bool Fits(const std::vector<Tensor>& inputs) const;

  // Whether what it took for constant still is.
  bool IsCurrent() const {
    return std::all_of(constants_.begin(), constants_.end(),
                       [this](int c) { return captured_[c]->unchanged(); }) &&
           std::all_of(captured_.begin(), captured_.end(),
                       [](const auto& c) { return c->finds_gradient(); });
  }

  std::vector<Tensor> Run(const std::vector<Tensor>& inputs, const Bindings& values);

 private:
  // Where a tensor of a call comes from.
  struct Source {
    enum Kind : uint8_t { kInput, kCaptured, kOwn } kind = kOwn;
    int index = -1;  // of the input or captured tensor
  };
  struct Signature {
    DType dtype;
    Shape shape;
    Device device;
  };
  using Storages = std::vector<std::shared_ptr<Storage>>;
  struct Leaf {
    Source source;
    UOp own;  // a buffer that the step made
    bool overwritten = false;
    Written written = Written::kWhole;  // if there is no memory of it yet
    DType dtype;
    Shape shape;
    Device device;
  };
  struct Result {
    enum Kind : uint8_t { kTensor, kRoot, kResult } kind = kRoot;
    Source tensor;   // the very tensor
    int index = -1;  // of the root, or of the result before that is the same tensor
  };
  struct Write {
    Source target;
    int root = -1, leaf = -1;
  };
  struct Root {
    UOp like;       // dtype and shape
    Extents dims;   // of the shape
    Device device;  // of the plan's buffer
    int leaf = -1;  // that it was written into
    bool symbolic = false;
  };
  struct Named {
    std::string name;
    int64_t min, max;
  };

  void Collect(internal::Trace& trace, const std::vector<Tensor>& arguments,
               const std::vector<UOp>& placeholders, const std::vector<Tensor>& results);
  struct RootList;
  void CollectWrites(const std::vector<Tensor>& arguments, const std::vector<UOp>& placeholders,
                     RootList& roots);
  void CollectResults(const std::vector<Tensor>& arguments, const std::vector<Tensor>& results,
                      RootList& roots);
  void PrepareReplay(const std::vector<UOp>& roots, const std::vector<UOp>& placeholders);
  void CollectLeaves(const PlanKey& key, const std::vector<UOp>& placeholders);
  std::vector<bool> LastingLeaves() const;
  Tensor TensorOf(const Source& s, const std::vector<Tensor>& inputs) const {
    return s.kind == Source::kInput ? inputs[s.index] : captured_[s.index]->tensor();
  }
  const UOp& ValueOf(const Source& s, const std::vector<Tensor>& inputs) const {
    return s.kind == Source::kInput ? inputs[s.index].uop() : captured_[s.index]->now();
  }
  std::string Name(const Source& s) const {
    return s.kind == Source::kInput ? absl::StrCat("input ", s.index) : "a captured tensor";
  }
  // The storage of each leaf in one call.
  struct Bound {
    std::vector<Storage*> leaves;
    Storages own;   // made for this call
    Storages kept;  // by write: what others still see a copy of; null if nobody does
  };
  void Prepare(const std::vector<Tensor>& inputs) const;
  Bound Bind(const std::vector<Tensor>& inputs, Rollback& undo) const;
  Storages Execute(const Bound& bound, const std::vector<int64_t>& numbers) const;
  void CheckAliases(absl::Span<Storage* const> leaves) const;
  void CheckValues(const Bindings& values) const;
  std::vector<int64_t> Values(const Bindings& values) const;

  CallSite at_;
  std::vector<Signature> signature_;
  const bool no_grad_ = NoGrad::Active();
  std::vector<std::shared_ptr<internal::Trace::Captured>> captured_;
  std::vector<int> constants_;  // captured tensors without a device
  std::vector<int> watched_;    // captured tensors that something else held at capture
  // Captured views that are assigned. What a view is of is its base's value after the step or,
  // where the base was assigned once more, a copy of the version before: a root.
  struct View {
    int captured = -1, root = -1;
  };
  std::vector<View> views_;
  std::vector<Leaf> leaves_;
  std::vector<Root> roots_;
  std::vector<int> repeated_;    // roots that are computed into what an earlier one is
  std::vector<Result> results_;  // the step's, then gradients
  struct Gradient {
    int captured = -1;
    bool made = false;  // else cleared
  };
  std::vector<Gradient> gradients_;
  std::vector<Write> writes_;
  std::vector<Named> variables_;
  int64_t drawn_ = 0;
  std::unique_ptr<Replay> replay_;
};

}  // namespace tessera
