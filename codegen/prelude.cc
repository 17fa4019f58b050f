// Picks the chunks of the CPU prelude that a kernel needs, from what their texts define and
// include.
#include "codegen/prelude.h"

#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "graph/status.h"

namespace tessera {

// Embedded at build, one for each file of codegen/prelude/; CMakeLists.txt knows the same list.
#define TESSERA_PRELUDE_CHUNKS(X) \
  X(base)                         \
  X(fold)                         \
  X(convert)                      \
  X(narrow)                       \
  X(libm)                         \
  X(float)                        \
  X(integer)                      \
  X(random)                       \
  X(vector_math)                  \
  X(exp)                          \
  X(log)                          \
  X(trig)                         \
  X(arc)                          \
  X(hyperbolic)
#define X(name) extern const std::string_view kPrelude_##name;
TESSERA_PRELUDE_CHUNKS(X)
#undef X

namespace {

struct Chunk {
  std::string text;        // without comments and includes
  std::vector<int> needs;  // other chunks, all before this one
};

struct Chunks {
  std::vector<Chunk> list;
  absl::flat_hash_map<std::string, int> defined_by;
};

bool IsNameChar(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// The first name in `text` that begins with rt_, which is cut off with all before it.
absl::string_view NextName(absl::string_view& text) {
  for (size_t at = text.find("rt_"); at != text.npos; at = text.find("rt_", at + 1)) {
    if (at > 0 && IsNameChar(text[at - 1])) continue;
    size_t end = at;
    while (end < text.size() && IsNameChar(text[end])) ++end;
    const absl::string_view name = text.substr(at, end - at);
    text.remove_prefix(end);
    return name;
  }
  text = {};
  return {};
}

Chunks ReadChunks() {
  Chunks chunks;
  absl::flat_hash_map<std::string, int> by_file;
  const auto add = [&](absl::string_view file, std::string_view raw) {
    const int index = static_cast<int>(chunks.list.size());
    Chunk chunk;
    for (absl::string_view line : absl::StrSplit(absl::string_view(raw.data(), raw.size()), '\n')) {
      line = line.substr(0, line.find("//"));
      line = absl::StripTrailingAsciiWhitespace(line);
      if (absl::ConsumePrefix(&line, "#include \"codegen/prelude/")) {
        const auto found = by_file.find(line.substr(0, line.find('"')));
        CHECK(found != by_file.end(), file, " includes ", line, ", which comes after it");
        chunk.needs.push_back(found->second);
        continue;
      }
      if (line.empty() || line == "#pragma once") continue;
      absl::StrAppend(&chunk.text, line, "\n");
      // A function's name is the one before its parenthesis.
      const size_t paren = line.find('(');
      if (!absl::StartsWith(line, "RT_FN ") || paren == line.npos) continue;
      absl::string_view name, rest = line.substr(0, paren);
      while (!rest.empty()) {
        const absl::string_view next = NextName(rest);
        if (!next.empty()) name = next;
      }
      chunks.defined_by.try_emplace(name, index);
    }
    by_file.emplace(absl::StrCat(file, ".h"), index);
    chunks.list.push_back(std::move(chunk));
  };
#define X(name) add(#name, kPrelude_##name);
  TESSERA_PRELUDE_CHUNKS(X)
#undef X
  return chunks;
}

}  // namespace

std::string PreludeFor(absl::string_view body) {
  static const Chunks* const chunks = new Chunks(ReadChunks());
  std::vector<bool> used(chunks->list.size());
  used[0] = true;
  while (!body.empty()) {
    const auto found = chunks->defined_by.find(NextName(body));
    if (found != chunks->defined_by.end()) used[found->second] = true;
  }
  size_t bytes = 0;
  for (size_t i = used.size(); i-- > 0;) {  // a chunk's needs come before it
    if (!used[i]) continue;
    for (int need : chunks->list[i].needs) used[need] = true;
    bytes += chunks->list[i].text.size();
  }
  std::string text;
  text.reserve(bytes);
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) text += chunks->list[i].text;
  }
  return text;
}

}  // namespace tessera
