// The tables of docs/numerics.md: every line is computed, compiled and by the reference evaluator.
#include <fstream>
#include <map>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "graph/evaluate.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

struct Line {
  std::string text, operation, dtype, a, b, result;
};

std::vector<Line> Lines() {
  std::ifstream page("docs/numerics.md");
  EXPECT_TRUE(page) << "the tests run in the repository's root";
  std::vector<Line> lines;
  for (std::string text; std::getline(page, text);) {
    if (text.empty() || text[0] != '|') continue;
    std::vector<std::string> cells = absl::StrSplit(text, '|');
    if (cells.size() != 7) {
      ADD_FAILURE() << "no five cells: " << text;
      continue;
    }
    for (std::string& c : cells) c = std::string(absl::StripAsciiWhitespace(c));
    if (cells[1] == "operation" || absl::StartsWith(cells[1], "---")) continue;
    lines.push_back({text, cells[1], cells[2], cells[3], cells[4], cells[5]});
  }
  return lines;
}

// Numbers in a row, or one of rank 0.
Tensor Parse(const std::string& text, DType dtype) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  std::vector<uint8_t> bytes(words.size() * dtype.bytes());
  for (size_t i = 0; i < words.size(); ++i) {
    auto value = ParseScalar(words[i], dtype);
    // A number that the dtype rounds.
    if (!value.ok() && dtype.IsFloat()) {
      value = Convert(Scalar::Float(std::stod(words[i])), kFloat64, dtype);
    }
    EXPECT_OK(value) << words[i];
    if (value.ok()) StoreScalar(&bytes[i * dtype.bytes()], dtype, *value);
  }
  if (words.size() == 1) return Tensor::FromBytes(bytes.data(), {}, dtype);
  return Tensor::FromBytes(bytes.data(), {static_cast<int64_t>(words.size())}, dtype);
}

using Fn = std::function<Tensor(const Tensor&, const Tensor&)>;

const std::map<std::string, Fn>& Operations() {
  static const std::map<std::string, Fn> all = {
      {"add", [](auto& a, auto& b) { return a + b; }},
      {"sub", [](auto& a, auto& b) { return a - b; }},
      {"mul", [](auto& a, auto& b) { return a * b; }},
      {"div", [](auto& a, auto& b) { return a / b; }},
      {"floordiv", [](auto& a, auto& b) { return a.FloorDiv(b); }},
      {"truncdiv", [](auto& a, auto& b) { return a.TruncDiv(b); }},
      {"mod", [](auto& a, auto& b) { return a % b; }},
      {"fmod", [](auto& a, auto& b) { return a.Fmod(b); }},
      {"pow", [](auto& a, auto& b) { return a.Pow(b); }},
      {"shl", [](auto& a, auto& b) { return a << b; }},
      {"shr", [](auto& a, auto& b) { return a >> b; }},
      {"max", [](auto& a, auto& b) { return a.Maximum(b); }},
      {"min", [](auto& a, auto& b) { return a.Minimum(b); }},
      {"equal", [](auto& a, auto& b) { return a == b; }},
      {"notequal", [](auto& a, auto& b) { return a != b; }},
      {"less", [](auto& a, auto& b) { return a < b; }},
      {"neg", [](auto& a, auto&) { return -a; }},
      {"abs", [](auto& a, auto&) { return a.Abs(); }},
      {"sign", [](auto& a, auto&) { return a.Sign(); }},
      {"round", [](auto& a, auto&) { return a.Round(); }},
      {"ceil", [](auto& a, auto&) { return a.Ceil(); }},
      {"relu", [](auto& a, auto&) { return a.Relu(); }},
      {"clip01", [](auto& a, auto&) { return a.Clip(0, 1); }},
      {"largest", [](auto& a, auto&) { return a.Max(); }},
      {"smallest", [](auto& a, auto&) { return a.Min(); }},
      {"sum", [](auto& a, auto&) { return a.Sum(); }},
      {"prod", [](auto& a, auto&) { return a.Prod(); }},
      {"any", [](auto& a, auto&) { return a.Any(); }},
      {"argmax", [](auto& a, auto&) { return a.ArgMax(); }},
      {"argmin", [](auto& a, auto&) { return a.ArgMin(); }},
      {"sort", [](auto& a, auto&) { return a.Sort().values; }},
      {"argsort", [](auto& a, auto&) { return a.ArgSort(); }},
      {"argsortdown", [](auto& a, auto&) { return a.ArgSort(-1, true); }},
      {"cummax", [](auto& a, auto&) { return a.CumMax(0).values; }},
  };
  return all;
}

// The bits of each element; NaNs are one.
std::vector<uint64_t> Bits(const HostArray& a) {
  std::vector<uint64_t> out;
  for (int64_t i = 0; i < a.elements(); ++i) {
    const Scalar s = a.At(i);
    const bool nan = a.dtype.IsFloat() && s.AsFloat() != s.AsFloat();
    out.push_back(nan ? UINT64_MAX : s.bits);
  }
  return out;
}

TEST(Numerics, EveryLineOfThePage) {
  const std::vector<Line> lines = Lines();
  ASSERT_GT(lines.size(), 100u);
  std::vector<Tensor> computed;
  std::vector<HostArray> evaluated, wanted;
  for (const Line& line : lines) {
    SCOPED_TRACE(line.text);
    ASSERT_OK_AND_ASSIGN(const DType dtype, DType::Parse(line.dtype));
    const Tensor a = Parse(line.a, dtype);
    Tensor y;
    if (line.operation == "cast") {
      ASSERT_OK_AND_ASSIGN(const DType to, DType::Parse(line.b));
      y = a.Cast(to);
    } else {
      const auto fn = Operations().find(line.operation);
      ASSERT_NE(fn, Operations().end());
      y = fn->second(a, line.b.empty() ? a : Parse(line.b, dtype));
    }
    ASSERT_OK_AND_ASSIGN(auto host, Evaluate({y.uop()}));
    evaluated.push_back(host[0]);
    ASSERT_OK_AND_ASSIGN(auto expected, Evaluate({Parse(line.result, y.dtype()).uop()}));
    wanted.push_back(expected[0]);
    computed.push_back(y);
  }
  Tensor::Realize(absl::MakeSpan(computed));
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(Bits(evaluated[i]), Bits(wanted[i])) << "evaluated: " << lines[i].text;
    EXPECT_EQ(Bits(ReadBuffer(computed[i].uop())), Bits(wanted[i]))
        << "compiled: " << lines[i].text;
  }
}

}  // namespace
}  // namespace tessera
