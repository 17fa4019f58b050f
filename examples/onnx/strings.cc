// Which ops take strings, and strings as numbers.
#include "examples/onnx/strings.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace tessera::onnx {
namespace {

// By FullName, in order.
constexpr absl::string_view kTakeStrings[] = {"Cast",
                                              "CastLike",
                                              "CenterCropPad",
                                              "Compress",
                                              "Concat",
                                              "ConcatFromSequence",
                                              "DepthToSpace",
                                              "Equal",
                                              "Expand",
                                              "Flatten",
                                              "Gather",
                                              "GatherElements",
                                              "GatherND",
                                              "Identity",
                                              "If",
                                              "Loop",
                                              "Optional",
                                              "OptionalGetElement",
                                              "OptionalHasElement",
                                              "Pad",
                                              "RegexFullMatch",
                                              "Reshape",
                                              "ReverseSequence",
                                              "Scan",
                                              "Scatter",
                                              "ScatterElements",
                                              "ScatterND",
                                              "SequenceAt",
                                              "SequenceConstruct",
                                              "SequenceErase",
                                              "SequenceInsert",
                                              "SequenceLength",
                                              "SequenceMap",
                                              "Shape",
                                              "Size",
                                              "Slice",
                                              "SpaceToDepth",
                                              "Split",
                                              "SplitToSequence",
                                              "Squeeze",
                                              "StringConcat",
                                              "StringNormalizer",
                                              "StringSplit",
                                              "TfIdfVectorizer",
                                              "Tile",
                                              "Transpose",
                                              "Unsqueeze",
                                              "Where",
                                              "ai.onnx.ml.CategoryMapper",
                                              "ai.onnx.ml.LabelEncoder",
                                              "ai.onnx.ml.OneHotEncoder"};
static_assert(std::is_sorted(std::begin(kTakeStrings), std::end(kTakeStrings)));

// With as few digits as tell it from all others of its dtype, and a point or an exponent.
std::string Written(double x, DType dtype) {
  if (!std::isfinite(x)) return ScalarToString(Scalar::Float(x), dtype);
  std::string out;
  constexpr int kMostDigits = 17;
  for (int digits = 1; digits <= kMostDigits; ++digits) {
    out = absl::StrFormat("%.*g", digits, x);
    double back = 0;
    const bool read = absl::SimpleAtod(out, &back);
    if (read && Convert(Scalar::Float(back), kFloat64, dtype).AsFloat() == x) break;
  }
  return out.find_first_of(".e") == out.npos ? out + ".0" : out;
}

// Texts as whole numbers that the dtype holds; of bool as true and false as well.
template <typename I>
std::vector<I> Whole(Call& c, absl::Span<const absl::string_view> texts, DType dtype) {
  std::vector<I> out;
  for (const absl::string_view text : texts) {
    I v = 0;
    const bool whole = absl::SimpleAtoi(text, &v);
    if (!whole && dtype.IsBool() && absl::EqualsIgnoreCase(text, "true")) {
      v = 1;
    } else if (!whole && !(dtype.IsBool() && absl::EqualsIgnoreCase(text, "false"))) {
      c.Fail("'", text, "' is no whole number of ", ElementName(ElementOfDType(dtype)));
    }
    if (dtype != kUInt64 && !dtype.IsBool() &&
        Convert(Scalar::Int(static_cast<int64_t>(v)), kInt64, dtype).AsInt() !=
            static_cast<int64_t>(v)) {
      c.Fail("'", text, "' is out of range of ", ElementName(ElementOfDType(dtype)));
    }
    out.push_back(v);
  }
  return out;
}

}  // namespace

Tensor StringTensor(absl::Span<const std::string> texts, absl::Span<const int64_t> shape) {
  std::vector<uint64_t> numbers;
  for (const std::string& text : texts) numbers.push_back(NumberOf(text));
  return Tensor::From(numbers, std::vector<int64_t>(shape.begin(), shape.end()), "CPU");
}

bool IsStrings(const Value& v) { return v.element == kElementString; }

std::vector<absl::string_view> StringsOf(Call& c, int input) {
  if (!IsStrings(c.Input(input))) c.Fail("input ", input, " has no strings");
  std::vector<absl::string_view> out;
  for (const uint64_t n : c.Read(input).ToVector<uint64_t>()) out.push_back(StringOf(n));
  return out;
}

void CheckStrings(const Node& node, absl::Span<const Value> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!IsStrings(inputs[i])) continue;
    const bool takes =
        std::binary_search(std::begin(kTakeStrings), std::end(kTakeStrings), FullName(node));
    const auto reduction = node.attributes.find("reduction");  // of ScatterElements, ScatterND
    if (takes && reduction != node.attributes.end() && reduction->second.s != "none") {
      throw AtNode(Error(absl::InvalidArgumentError(absl::StrCat(
                       absl::CEscape(node.op), ": input ", i, " is STRING; reduction '",
                       absl::CEscape(reduction->second.s), "' computes with numbers"))),
                   node);
    }
    if (takes) return;
    throw AtNode(Error(absl::InvalidArgumentError(absl::StrCat(
                     absl::CEscape(node.op), ": input ", i, " is STRING; it takes no strings"))),
                 node);
  }
}

void OutStrings(Call& c, absl::Span<const std::string> texts, absl::Span<const int64_t> shape) {
  c.Out(Value{StringTensor(texts, shape), true, kElementString});
}

void CastStrings(Call& c, int64_t to) {
  const std::vector<int64_t> shape = Sizes(c.Input(0).tensor);
  if (IsStrings(c.Input(0)) && to == kElementString) return c.Out(c.Input(0));
  if (to == kElementString) {
    const Tensor x = c.Read(0);
    std::vector<std::string> texts;
    const DType dtype = x.dtype();
    const auto add = [&](Scalar v) { texts.push_back(ScalarToString(v, dtype)); };
    if (dtype.IsFloat()) {
      for (const double v : x.ToVector<double>()) texts.push_back(Written(v, dtype));
    } else if (dtype == kUInt64) {
      for (const uint64_t v : x.ToVector<uint64_t>()) add({v});
    } else {
      for (const int64_t v : x.ToVector<int64_t>()) add(Scalar::Int(v));
    }
    return OutStrings(c, texts, shape);
  }
  const std::optional<DType> dtype = DTypeOfElement(to);
  if (!dtype || IsNarrow(to)) c.Unsupported("strings as ", ElementName(to));
  const std::vector<absl::string_view> texts = StringsOf(c, 0);
  if (dtype->IsFloat()) {
    std::vector<double> numbers;
    for (const absl::string_view text : texts) {
      double v = 0;
      if (!absl::SimpleAtod(text, &v)) c.Fail("'", text, "' is no number");
      numbers.push_back(v);
    }
    return c.Out(Value{Tensor::From(numbers, shape, "CPU").Cast(*dtype), true});
  }
  const Tensor whole = *dtype == kUInt64
                           ? Tensor::From(Whole<uint64_t>(c, texts, *dtype), shape, "CPU")
                           : Tensor::From(Whole<int64_t>(c, texts, *dtype), shape, "CPU");
  c.Out(Value{whole.Cast(*dtype), true});
}

}  // namespace tessera::onnx
