// Picks the paragraphs of the CPU prelude that a kernel needs, by the names that occur in them.
#include "codegen/prelude.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tessera {

// The files of codegen/prelude/, embedded at build, each after those that it includes.
#define TESSERA_PRELUDE_FILES(X) \
  X(base)                        \
  X(select)                      \
  X(fold)                        \
  X(convert)                     \
  X(narrow)                      \
  X(libm)                        \
  X(float)                       \
  X(integer)                     \
  X(random)                      \
  X(vector_math)                 \
  X(exp)                         \
  X(log)                         \
  X(trig)                        \
  X(arc)                         \
  X(hyperbolic)
#define X(name) extern const std::string_view kPrelude_##name;
TESSERA_PRELUDE_FILES(X)
#undef X

namespace {

// Lines between two empty ones, without comments and includes.
struct Paragraph {
  std::string text;
  std::vector<int> needs;  // earlier ones
};

struct Prelude {
  std::vector<Paragraph> paragraphs;
  absl::flat_hash_map<std::string, int> defined_by;  // the first in which a name occurs
};

bool IsNameChar(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// Calls fn(name) for each name in `text` that begins with rt_ or RT_.
template <typename Fn>
void ForEachName(absl::string_view text, Fn fn) {
  for (size_t at = 0; at < text.size();) {
    if (!IsNameChar(text[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && IsNameChar(text[end])) ++end;
    const absl::string_view name = text.substr(at, end - at);
    if (absl::StartsWith(name, "rt_") || absl::StartsWith(name, "RT_")) fn(name);
    at = end;
  }
}

void AddParagraph(std::string text, Prelude& prelude) {
  const int index = static_cast<int>(prelude.paragraphs.size());
  Paragraph paragraph;
  ForEachName(text, [&](absl::string_view name) {
    const int definer = prelude.defined_by.try_emplace(name, index).first->second;
    std::vector<int>& needs = paragraph.needs;
    if (definer != index && std::find(needs.begin(), needs.end(), definer) == needs.end()) {
      needs.push_back(definer);
    }
  });
  paragraph.text = std::move(text);
  prelude.paragraphs.push_back(std::move(paragraph));
}

void AddFile(absl::string_view file, Prelude& prelude) {
  std::string text;
  for (absl::string_view line : absl::StrSplit(file, '\n')) {
    const bool empty = absl::StripAsciiWhitespace(line).empty();
    line = absl::StripTrailingAsciiWhitespace(line.substr(0, line.find("//")));
    if (absl::StartsWith(line, "#include ") || line == "#pragma once") continue;
    if (!line.empty()) absl::StrAppend(&text, line, "\n");
    if (empty && !text.empty()) AddParagraph(std::move(text), prelude), text.clear();
  }
  if (!text.empty()) AddParagraph(std::move(text), prelude);
}

const Prelude& GetPrelude() {
  static const Prelude* const prelude = [] {
    auto* p = new Prelude;
#define X(name) AddFile(absl::string_view(kPrelude_##name.data(), kPrelude_##name.size()), *p);
    TESSERA_PRELUDE_FILES(X)
#undef X
    return p;
  }();
  return *prelude;
}

}  // namespace

std::string PreludeFor(absl::string_view body) {
  const Prelude& prelude = GetPrelude();
  std::vector<bool> used(prelude.paragraphs.size());
  ForEachName(body, [&](absl::string_view name) {
    const auto found = prelude.defined_by.find(name);
    if (found != prelude.defined_by.end()) used[found->second] = true;
  });
  for (size_t i = used.size(); i-- > 0;) {
    if (!used[i]) continue;
    for (int need : prelude.paragraphs[i].needs) used[need] = true;
  }
  std::string text;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) text += prelude.paragraphs[i].text;
  }
  return text;
}

}  // namespace tessera
