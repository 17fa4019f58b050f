// The functions of a model, found by what nodes call them.
#pragma once

#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "examples/onnx/proto.h"

namespace tessera::onnx {

// Of two that are called the same, the first. The functions must outlive it.
class Functions {
 public:
  explicit Functions(absl::Span<const Function> functions) {
    for (const Function& f : functions) by_name_.try_emplace({f.domain, f.name, f.overload}, &f);
  }
  // The one that a node calls; null where it is no call.
  const Function* Of(const Node& node) const {
    const auto it = by_name_.find({node.domain, node.op, node.overload});
    return it == by_name_.end() ? nullptr : it->second;
  }

 private:
  using Name = std::tuple<absl::string_view, absl::string_view, absl::string_view>;
  absl::flat_hash_map<Name, const Function*> by_name_;
};

}  // namespace tessera::onnx
