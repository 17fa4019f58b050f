// Reading protobuf's wire format.
#include "examples/onnx/wire.h"

#include <limits>

namespace tessera::onnx {

absl::StatusOr<uint64_t> WireReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ >= end_) return Error("a number runs past the end of its message");
    const auto byte = static_cast<uint8_t>(file_[at_++]);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return Error("a number of more than 64 bits");
}

absl::StatusOr<uint64_t> WireReader::Fixed(int size) {
  if (end_ - at_ < static_cast<size_t>(size)) {
    return Error("a field of ", size, " bytes, and its message ends after ", end_ - at_);
  }
  uint64_t value = 0;
  for (int i = 0; i < size; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(file_[at_++])) << (8 * i);
  }
  return value;
}

absl::StatusOr<bool> WireReader::Next() {
  if (at_ >= end_) return false;
  ASSIGN_OR_RETURN(const uint64_t tag, Varint());
  if (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) return Error("field number ", tag >> 3, " is none");
  field_ = static_cast<uint32_t>(tag >> 3);
  type_ = static_cast<uint32_t>(tag & 7);
  bytes_ = {};
  number_ = 0;
  switch (type_) {
    case kVarint: {
      ASSIGN_OR_RETURN(number_, Varint());
      return true;
    }
    case kEight: {
      ASSIGN_OR_RETURN(number_, Fixed(8));
      return true;
    }
    case kFour: {
      ASSIGN_OR_RETURN(number_, Fixed(4));
      return true;
    }
    case kBytes: {
      ASSIGN_OR_RETURN(const uint64_t size, Varint());
      if (size > end_ - at_) {
        return Error("field ", field_, " has ", size, " bytes, and its message ends after ",
                     end_ - at_);
      }
      bytes_ = file_.substr(at_, size);
      at_ += size;
      return true;
    }
  }
  return Error("wire type ", type_, " of field ", field_, " is not known");
}

absl::Status WireReader::Expect(Type type, absl::string_view what) const {
  if (type_ == type) return absl::OkStatus();
  return Error(what, " has wire type ", type_, ", not ", type);
}

absl::StatusOr<int64_t> WireReader::Int(absl::string_view what) const {
  RETURN_IF_ERROR(Expect(kVarint, what));
  return static_cast<int64_t>(number_);
}
absl::StatusOr<uint32_t> WireReader::Fixed32(absl::string_view what) const {
  RETURN_IF_ERROR(Expect(kFour, what));
  return static_cast<uint32_t>(number_);
}
absl::StatusOr<uint64_t> WireReader::Fixed64(absl::string_view what) const {
  RETURN_IF_ERROR(Expect(kEight, what));
  return number_;
}
absl::StatusOr<absl::string_view> WireReader::Bytes(absl::string_view what) const {
  RETURN_IF_ERROR(Expect(kBytes, what));
  return bytes_;
}
absl::StatusOr<WireReader> WireReader::Message(absl::string_view what) const {
  ASSIGN_OR_RETURN(const absl::string_view part, Bytes(what));
  return WireReader(file_, part, *name_);
}

absl::Status WireReader::Fixeds(Type type, size_t size, absl::string_view what,
                                std::string* bytes) const {
  if (type_ == type) {
    for (size_t i = 0; i < size; ++i) bytes->push_back(static_cast<char>(number_ >> (8 * i)));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const absl::string_view packed, Bytes(what));
  if (packed.size() % size != 0) {
    return Error(what, " has ", packed.size(), " bytes, which is no multiple of ", size);
  }
  bytes->append(packed.data(), packed.size());
  return absl::OkStatus();
}
absl::Status WireReader::Floats(absl::string_view what, std::string* bytes) const {
  return Fixeds(kFour, 4, what, bytes);
}
absl::Status WireReader::Doubles(absl::string_view what, std::string* bytes) const {
  return Fixeds(kEight, 8, what, bytes);
}

}  // namespace tessera::onnx
