// The one exception type of the public API: it carries the status that the core returned.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace tessera {

class Error : public std::runtime_error {
 public:
  explicit Error(absl::Status status)
      : std::runtime_error(std::string(status.message())), status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) throw Error(std::move(value).status());
  return *std::move(value);
}
inline void ThrowIfError(absl::Status status) {
  if (!status.ok()) throw Error(std::move(status));
}

}  // namespace tessera
