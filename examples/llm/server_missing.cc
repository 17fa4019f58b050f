// In place of server.cc, where the library for HTTP is missing.
#include "examples/llm/server.h"

namespace tessera::llm {

absl::Status CanServe() {
  return absl::UnimplementedError(
      "--serve: this program was built without a library for HTTP; install libcpp-httplib-dev, as "
      "tools/setup does, and run tools/build");
}

absl::StatusOr<int> RunServe(const Command&, const Model&, Session&) { return CanServe(); }

}  // namespace tessera::llm
