// The parser of .npy files: every size is checked before it is used.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "graph/infer.h"
#include "runtime/mapped_file.h"
#include "runtime/npy.h"

namespace tessera {
namespace {

constexpr size_t kMaxHeader = 1 << 20;

struct Name {
  DType dtype;
  const char* text;  // without the byte order
};
constexpr Name kNames[] = {{kBool, "b1"},   {kInt8, "i1"},    {kInt16, "i2"},   {kInt32, "i4"},
                           {kInt64, "i8"},  {kUInt8, "u1"},   {kUInt16, "u2"},  {kUInt32, "u4"},
                           {kUInt64, "u8"}, {kFloat16, "f2"}, {kFloat32, "f4"}, {kFloat64, "f8"}};

// The header's text: a Python dictionary of strings, booleans and one tuple of integers.
class HeaderReader {
 public:
  HeaderReader(absl::string_view text, const std::string& name, size_t offset)
      : text_(text), name_(name), offset_(offset) {}

  absl::Status Read(NpyArray* out) {
    bool descr = false, order = false, shape = false;
    RETURN_IF_ERROR(Expect('{'));
    while (!Take('}')) {
      ASSIGN_OR_RETURN(const std::string key, String());
      RETURN_IF_ERROR(Expect(':'));
      bool* seen = key == "descr"           ? &descr
                   : key == "fortran_order" ? &order
                   : key == "shape"         ? &shape
                                            : nullptr;
      if (seen == nullptr || *seen) return Bad("the key ", ShowName(key), " is unknown or doubled");
      *seen = true;
      RETURN_IF_ERROR(Value(key, out));
      if (!Take(',') && !(Blank(), at_ < text_.size() && text_[at_] == '}')) {
        return Bad("a comma or a closing brace is missing");
      }
    }
    Blank();
    if (at_ != text_.size()) return Bad("text follows the dictionary");
    if (!descr || !order || !shape) {
      return Bad("'", !descr ? "descr" : !order ? "fortran_order" : "shape", "' is missing");
    }
    return absl::OkStatus();
  }

 private:
  template <typename... Parts>
  absl::Status Bad(const Parts&... parts) const {
    return absl::DataLossError(absl::StrCat(name_, ": byte ", offset_ + at_, ": ", parts...));
  }
  void Blank() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool Take(char c) {
    Blank();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  absl::Status Expect(char c) {
    if (!Take(c)) return Bad("a ", std::string(1, c), " is missing");
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> String() {
    Blank();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) {
      return Bad("a quoted name is missing");
    }
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == absl::string_view::npos) return Bad("a quoted name has no end");
    const std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }
  absl::string_view Word() {
    Blank();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '-')) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  absl::Status Value(const std::string& key, NpyArray* out) {
    if (key == "shape") return Extents(out);
    if (key == "fortran_order") {
      const absl::string_view word = Word();
      if (word != "True" && word != "False") return Bad("fortran_order is neither True nor False");
      out->fortran_order = word == "True";
      return absl::OkStatus();
    }
    Blank();
    if (at_ < text_.size() && text_[at_] == '[') {
      return Bad("records of several fields are not tensors; save each field alone");
    }
    ASSIGN_OR_RETURN(const std::string descr, String());
    // Without an order of bytes it is this machine's, as with '='.
    const bool ordered = !descr.empty() && absl::string_view("<>|=").find(descr[0]) != descr.npos;
    for (const Name& n : kNames) {
      if (descr.substr(ordered ? 1 : 0) != n.text) continue;
      out->dtype = n.dtype;
      out->big_endian = descr[0] == '>' && n.dtype.bytes() > 1;
      return absl::OkStatus();
    }
    return Bad("the dtype ", ShowName(descr), " is not known: booleans, integers and floats are");
  }

  absl::Status Extents(NpyArray* out) {
    RETURN_IF_ERROR(Expect('('));
    while (!Take(')')) {
      const absl::string_view word = Word();
      int64_t n;
      if (!absl::SimpleAtoi(word, &n) || n < 0) {
        return Bad("the extent ", ShowName(word), " is no integer from 0 on");
      }
      out->shape.push_back(n);
      if (out->shape.size() > static_cast<size_t>(kMaxRank))
        return Bad("more than ", kMaxRank, " axes");
      if (!Take(',') && !(Blank(), at_ < text_.size() && text_[at_] == ')')) {
        return Bad("a comma or a closing parenthesis is missing in the shape");
      }
    }
    return absl::OkStatus();
  }

  const absl::string_view text_;
  const std::string& name_;
  const size_t offset_;
  size_t at_ = 0;
};

}  // namespace

const char* NpyNameOf(DType dtype) {
  for (const Name& n : kNames) {
    if (n.dtype == dtype) return n.text;
  }
  return nullptr;
}

absl::StatusOr<NpyArray> ParseNpy(absl::string_view bytes, const std::string& name) {
  ByteReader reader(bytes, name);
  ASSIGN_OR_RETURN(const absl::string_view magic, reader.Bytes(kNpyMagic.size(), "the magic"));
  if (magic != kNpyMagic) return reader.Error("this is no .npy file");
  ASSIGN_OR_RETURN(const auto major, reader.Read<uint8_t>("the version"));
  ASSIGN_OR_RETURN(const auto minor, reader.Read<uint8_t>("the version"));
  if (major < 1 || major > 3 || minor != 0) {
    return reader.Error("the version ", int{major}, ".", int{minor},
                        " is not known: 1.0 to 3.0 are");
  }
  uint64_t length;
  if (major == 1) {
    ASSIGN_OR_RETURN(length, reader.Read<uint16_t>("the header's length"));
  } else {
    ASSIGN_OR_RETURN(length, reader.Read<uint32_t>("the header's length"));
  }
  if (length > kMaxHeader) return reader.Error("the header has ", length, " bytes");
  const size_t offset = reader.offset();
  ASSIGN_OR_RETURN(const absl::string_view text, reader.Bytes(length, "the header"));
  NpyArray out;
  RETURN_IF_ERROR(HeaderReader(text, name, offset).Read(&out));
  uint64_t size = static_cast<uint64_t>(out.dtype.bytes());
  bool empty = false;
  for (int64_t n : out.shape) empty |= n == 0;
  for (int64_t n : out.shape) {
    if (!empty && !CheckedMul(size, static_cast<uint64_t>(n), &size)) {
      return reader.Error("the elements of the shape do not fit in 64 bits");
    }
  }
  if (empty) size = 0;
  if (size > INT64_MAX) return reader.Error("the elements of the shape do not fit in 63 bits");
  ASSIGN_OR_RETURN(out.bytes, reader.Bytes(size, "the elements"));
  if (reader.remaining() != 0) {
    return reader.Error(reader.remaining(), " bytes follow the elements");
  }
  return out;
}

}  // namespace tessera
