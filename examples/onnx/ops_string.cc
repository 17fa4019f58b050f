// Strings: joined, split, compared with patterns, put into one form.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"
#include "examples/llm/pattern.h"
#include "examples/llm/unicode_properties.h"
#include "examples/onnx/import.h"
#include "examples/onnx/strings.h"
#include "graph/status.h"

namespace tessera::onnx {
namespace {

using Texts = std::vector<std::string>;

// An Error where a node would make too much: strings are kept as long as the process lives.
constexpr size_t kMostBytes = size_t{1} << 28;
void CheckBytes(Call& c, size_t bytes) {
  if (bytes > kMostBytes) c.Unsupported("more than ", kMostBytes, " bytes of strings");
}
void CheckBytes(Call& c, absl::Span<const absl::string_view> texts) {
  size_t bytes = 0;
  for (const absl::string_view text : texts) CheckBytes(c, bytes += text.size());
}

void Concat(Call& c) {
  if (!IsStrings(c.Input(0)) || !IsStrings(c.Input(1))) c.Fail("joins strings");
  const Tensor a = c.Read(0), b = c.Read(1);
  const Tensor zeros = a.ZerosLike() + b.ZerosLike();  // of the shape of both
  const std::vector<uint64_t> first = (a + zeros).ToVector<uint64_t>(),
                              second = (b + zeros).ToVector<uint64_t>();
  Texts out;
  size_t bytes = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    CheckBytes(c, bytes += StringOf(first[i]).size() + StringOf(second[i]).size());
  }
  for (size_t i = 0; i < first.size(); ++i) {
    out.push_back(absl::StrCat(StringOf(first[i]), StringOf(second[i])));
  }
  OutStrings(c, out, Sizes(zeros));
}

// By a delimiter, or white space; after so many splits the rest is as it is.
std::vector<std::string> Parts(absl::string_view text, const std::string& delimiter, int64_t most) {
  std::vector<std::string> out;
  if (!delimiter.empty()) {
    if (text.empty()) return out;
    while (most-- > 0) {
      const size_t at = text.find(delimiter);
      if (at == text.npos) break;
      out.emplace_back(text.substr(0, at));
      text.remove_prefix(at + delimiter.size());
    }
    out.emplace_back(text);
    return out;
  }
  const std::vector<llm::Character> all = llm::Characters(text);
  const size_t end = all.size() - 1;
  for (size_t at = 0;;) {
    while (at < end && llm::IsWhitespace(all[at].code)) ++at;
    if (at == end) return out;
    const size_t begin = all[at].begin;
    if (most-- == 0) {
      out.emplace_back(llm::WithoutSpaceAtEnd(text.substr(begin)));
      return out;
    }
    while (at < end && !llm::IsWhitespace(all[at].code)) ++at;
    out.emplace_back(text.substr(begin, all[at].begin - begin));
  }
}
void Split(Call& c) {
  const std::vector<absl::string_view> texts = StringsOf(c, 0);
  CheckBytes(c, texts);
  const std::string delimiter = c.String("delimiter", "");
  const int64_t most = c.Int("maxsplit", INT64_MAX);
  std::vector<std::vector<std::string>> all;
  std::vector<int64_t> counts, shape = Sizes(c.Input(0).tensor);
  size_t width = 0;
  for (const absl::string_view text : texts) {
    all.push_back(Parts(text, delimiter, most < 0 ? INT64_MAX : most));
    counts.push_back(static_cast<int64_t>(all.back().size()));
    width = std::max(width, all.back().size());
  }
  if (width * all.size() > size_t{kMostNodes}) c.Unsupported("more than ", kMostNodes, " parts");
  Texts out;
  for (const std::vector<std::string>& parts : all) {
    out.insert(out.end(), parts.begin(), parts.end());
    out.resize(out.size() + width - parts.size());
  }
  const Tensor lengths = Tensor::From(counts, shape, "CPU");
  shape.push_back(static_cast<int64_t>(width));
  OutStrings(c, out, shape);
  c.Out(Value{lengths, true});
}

// Patterns are RE2's where those are Oniguruma's as well (examples/llm/pattern.h).
void FullMatch(Call& c) {
  const std::string pattern = c.String("pattern", "");
  // Alone first: what is wrong of it by itself may be right within the brackets.
  const absl::Status alone = llm::Pattern::Compile(pattern).status();
  if (!alone.ok()) c.Unsupported("the pattern '", pattern, "': ", alone.message());
  const absl::StatusOr<llm::Pattern> whole =
      llm::Pattern::Compile(absl::StrCat("\\A(?:", pattern, ")\\z"));
  if (!whole.ok()) c.Unsupported("the pattern '", pattern, "': ", whole.status().message());
  std::vector<bool> out;
  for (const absl::string_view text : StringsOf(c, 0)) {
    const std::vector<llm::Character> all = llm::Characters(text);
    out.push_back(!whole->Matches(all, {0, all.size() - 1}).empty());
  }
  c.Out(Value{Tensor::From(out, Sizes(c.Input(0).tensor), "CPU"), true});
}

// Without words that are to be left out, then in one case.
void Normalizer(Call& c) {
  const std::vector<absl::string_view> texts = StringsOf(c, 0);
  CheckBytes(c, texts);
  const std::vector<int64_t> shape = Sizes(c.Input(0).tensor);
  const bool rows = shape.size() == 2 && shape[0] == 1;
  if (shape.size() != 1 && !rows) c.Fail("the input is of shape [C] or [1, C]");
  const std::string action = c.Choice("case_change_action", {"NONE", "LOWER", "UPPER"});
  const bool exact = c.Int("is_case_sensitive", 0) != 0;
  const auto in_case = [](absl::string_view text, bool upper) {
    std::string out;
    for (const llm::Character& ch : llm::Characters(text)) {
      if (ch.code == llm::kNoCharacter) {
        absl::StrAppend(&out, text.substr(ch.begin, ch.begin < text.size() ? 1 : 0));
      } else if (upper) {
        llm::AppendUpper(ch.code, &out);
      } else {
        llm::AppendLower(ch.code, &out);
      }
    }
    return out;
  };
  const auto key = [&](absl::string_view text) {
    return exact ? std::string(text) : in_case(text, false);
  };
  absl::flat_hash_set<std::string> left_out;
  for (const std::string& word : c.Strings("stopwords")) left_out.insert(key(word));
  Texts out;
  for (const absl::string_view text : texts) {
    if (left_out.contains(key(text))) continue;
    out.push_back(action == "NONE" ? std::string(text) : in_case(text, action == "UPPER"));
  }
  if (out.empty()) out.emplace_back();
  const auto n = static_cast<int64_t>(out.size());
  OutStrings(c, out, rows ? std::vector<int64_t>{1, n} : std::vector<int64_t>{n});
}

constexpr OpRow kRows[] = {{"RegexFullMatch", FullMatch},
                           {"StringConcat", Concat},
                           {"StringNormalizer", Normalizer},
                           {"StringSplit", Split}};

}  // namespace

absl::Span<const OpRow> StringOps() { return kRows; }

}  // namespace tessera::onnx
