// Picks the paragraphs of a prelude that a kernel needs, by the names that occur in them.
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
  X(dot)                         \
  X(table)                       \
  X(tile)                        \
  X(libm)                        \
  X(float)                       \
  X(integer)                     \
  X(random)                      \
  X(f64)                         \
  X(f64_exp)                     \
  X(f64_log)                     \
  X(f64_trig)                    \
  X(vector_math)                 \
  X(power)                       \
  X(exp)                         \
  X(log)                         \
  X(trig)                        \
  X(arc)                         \
  X(hyperbolic)
// Those of GPUs: the first for CUDA, sim after the CPU's for the simulated one, gpu for both.
#define TESSERA_GPU_FILES(X) \
  X(cuda_base)               \
  X(cuda_select)             \
  X(cuda_math)               \
  X(cuda_matrix)             \
  X(sim)                     \
  X(sim_matrix)              \
  X(gpu)
#define X(name) extern const std::string_view kPrelude_##name;
TESSERA_PRELUDE_FILES(X)
TESSERA_GPU_FILES(X)
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

const Prelude* MakePrelude(std::initializer_list<std::string_view> files) {
  auto* prelude = new Prelude;
  for (std::string_view file : files) AddFile({file.data(), file.size()}, *prelude);
  return prelude;
}

const Prelude& GetPrelude(PreludeKind kind) {
#define X(name) kPrelude_##name,
  static const Prelude* const cpp = MakePrelude({TESSERA_PRELUDE_FILES(X)});
  static const Prelude* const sim =
      MakePrelude({TESSERA_PRELUDE_FILES(X) kPrelude_sim, kPrelude_sim_matrix, kPrelude_gpu});
#undef X
  static const Prelude* const cuda =
      MakePrelude({kPrelude_cuda_base, kPrelude_cuda_select, kPrelude_cuda_math,
                   kPrelude_cuda_matrix, kPrelude_gpu});
  return kind == PreludeKind::kCpp ? *cpp : kind == PreludeKind::kCuda ? *cuda : *sim;
}

}  // namespace

std::string WholePrelude(PreludeKind kind) {
  std::string text;
  for (const Paragraph& p : GetPrelude(kind).paragraphs) text += p.text;
  return text;
}

std::string PreludeFor(absl::string_view body, PreludeKind kind) {
  const Prelude& prelude = GetPrelude(kind);
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
