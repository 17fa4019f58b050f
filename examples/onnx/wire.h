// A reader of the protobuf wire format that cannot leave its bytes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/status.h"

namespace tessera::onnx {

// The fields of one message, one after another. A message within it is read by another reader.
//
//   WireReader in(file);
//   while (true) {
//     ASSIGN_OR_RETURN(const bool more, in.Next());
//     if (!more) break;
//     if (in.field() == 7) { ASSIGN_OR_RETURN(WireReader graph, in.Message("graph")); ... }
//   }
class WireReader {
 public:
  // `name` is the file's, for messages, and must outlive the reader.
  WireReader(absl::string_view file, const std::string& name)
      : file_(file), name_(&name), end_(file.size()) {}
  // The message that is part of the file.
  WireReader(absl::string_view file, absl::string_view part, const std::string& name)
      : file_(file),
        name_(&name),
        at_(static_cast<size_t>(part.data() - file.data())),
        end_(at_ + part.size()) {}

  // Goes to the next field; false where the message ends.
  absl::StatusOr<bool> Next();
  uint32_t field() const { return field_; }

  // The value of the field, which must be of the wire type that the name of the function says.
  absl::StatusOr<int64_t> Int(absl::string_view what) const;
  absl::StatusOr<uint32_t> Fixed32(absl::string_view what) const;
  absl::StatusOr<uint64_t> Fixed64(absl::string_view what) const;
  absl::StatusOr<absl::string_view> Bytes(absl::string_view what) const;
  absl::StatusOr<WireReader> Message(absl::string_view what) const;
  // Appends one number of a repeated field, or all of a packed one.
  template <typename List>
  absl::Status Ints(absl::string_view what, List* to) const {
    if (type_ == kVarint) return to->push_back(static_cast<int64_t>(number_)), absl::OkStatus();
    ASSIGN_OR_RETURN(WireReader packed, Message(what));
    while (packed.at_ < packed.end_) {
      ASSIGN_OR_RETURN(const uint64_t v, packed.Varint());
      to->push_back(static_cast<int64_t>(v));
    }
    return absl::OkStatus();
  }
  absl::Status Floats(absl::string_view what, std::string* bytes) const;   // appended as they are
  absl::Status Doubles(absl::string_view what, std::string* bytes) const;  // likewise

  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::DataLossError(absl::StrCat(*name_, ": byte ", at_, ": ", parts...));
  }

 private:
  enum Type : uint32_t { kVarint = 0, kEight = 1, kBytes = 2, kFour = 5 };
  absl::StatusOr<uint64_t> Varint();
  absl::StatusOr<uint64_t> Fixed(int size);
  absl::Status Expect(Type type, absl::string_view what) const;
  absl::Status Fixeds(Type type, size_t size, absl::string_view what, std::string* bytes) const;

  absl::string_view file_;
  const std::string* name_;
  size_t at_ = 0, end_ = 0;
  uint32_t field_ = 0, type_ = 0;
  uint64_t number_ = 0;      // of a varint or fixed field
  absl::string_view bytes_;  // of a length-delimited one
};

}  // namespace tessera::onnx
