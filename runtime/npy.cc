// Reading and writing .npy files.
#include "runtime/npy.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "graph/infer.h"
#include "graph/tensor_internal.h"
#include "runtime/file_writer.h"
#include "runtime/mapped_file.h"
#include "runtime/tensor_bytes.h"

namespace tessera {
namespace {

using internal::Call;
using internal::Fail;
using internal::Show;
using internal::ThrowAsCall;

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMaxHeader = 1 << 20, kAlign = 64;

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

std::string Header(DType dtype, const Shape& shape) {
  std::string descr;
  for (const Name& n : kNames) {
    if (n.dtype == dtype) descr = absl::StrCat(dtype.bytes() == 1 ? "|" : "<", n.text);
  }
  if (descr.empty()) {
    Fail(dtype.ToString(), " has no name in .npy files; cast it to f32, or use safetensors");
  }
  std::string extents;
  for (const Extent& e : shape) absl::StrAppend(&extents, e.value(), ", ");
  if (shape.rank() > 1) extents.resize(extents.size() - 2);
  if (shape.rank() == 1) extents.resize(extents.size() - 1);
  std::string text =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", extents, "), }");
  constexpr size_t kPreamble = 10;
  const size_t used = kPreamble + text.size() + 1;
  text.append((kAlign - used % kAlign) % kAlign, ' ');
  return text + "\n";
}

}  // namespace

absl::StatusOr<NpyArray> ParseNpy(absl::string_view bytes, const std::string& name) {
  ByteReader reader(bytes, name);
  ASSIGN_OR_RETURN(const absl::string_view magic, reader.Bytes(kMagic.size(), "the magic"));
  if (magic != kMagic) return reader.Error("this is no .npy file");
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

Tensor LoadNpy(const std::string& path, Device device, CallSite at) {
  Call call("LoadNpy", at);
  const auto file = MappedFile::Open(path);
  ThrowAsCall(file.status());
  const absl::StatusOr<NpyArray> parsed = ParseNpy((*file)->bytes(), path);
  ThrowAsCall(parsed.status());
  std::string swapped;
  absl::string_view bytes = parsed->bytes;
  const auto width = static_cast<size_t>(parsed->dtype.bytes());
  if (parsed->big_endian) {
    swapped = std::string(bytes);
    for (size_t i = 0; i < swapped.size(); i += width) {
      std::reverse(swapped.begin() + static_cast<int64_t>(i),
                   swapped.begin() + static_cast<int64_t>(i + width));
    }
    bytes = swapped;
  }
  std::string truths;
  if (parsed->dtype.IsBool()) {  // any byte but 0 is true
    for (char c : bytes) truths += c != 0 ? '\1' : '\0';
    bytes = truths;
  }
  std::vector<int64_t> shape = parsed->shape;
  if (parsed->fortran_order) std::reverse(shape.begin(), shape.end());
  const Tensor t = Tensor::FromBytes(bytes.data(), shape, parsed->dtype, device, at);
  return parsed->fortran_order ? t.T() : t;
}

void SaveNpy(const std::string& path, const Tensor& tensor, CallSite at) {
  Call call("SaveNpy", at, tensor);
  if (!tensor.shape().is_static()) Fail("the shape of ", Show(tensor), " is symbolic");
  const std::string text = Header(tensor.dtype(), tensor.shape());
  const std::vector<uint8_t> bytes = BytesOf(tensor);
  std::string head(kMagic);
  head += '\1';
  head += '\0';
  head += static_cast<char>(text.size() & 255);
  head += static_cast<char>(text.size() >> 8);
  ThrowAsCall(WriteFile(
      path,
      {head + text, absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())}));
}

}  // namespace tessera
