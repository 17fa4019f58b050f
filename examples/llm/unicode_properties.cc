// Tables of properties, searched by halving.
#include "examples/llm/unicode_properties.h"

#include <algorithm>
#include <iterator>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"

namespace tessera::llm {
namespace {

#include "examples/llm/unicode_properties.inc"

enum Cluster { kOther, kControl, kExtend, kPrepend };  // as in tools/make-unicode-table

// Of a list of ranges, each a first code point with a value in its lower bits.
template <size_t n>
uint32_t ValueAt(const uint32_t (&ranges)[n], int bits, uint32_t code) {
  const uint32_t mask = (1u << bits) - 1;
  const uint32_t* next = std::upper_bound(ranges, ranges + n, code << bits | mask);
  return next[-1] & mask;
}

}  // namespace

uint32_t Mapped(absl::Span<const CodeRun> runs, uint32_t code) {
  auto it = std::upper_bound(runs.begin(), runs.end(), code,
                             [](uint32_t c, const CodeRun& run) { return c < run.first; });
  // Of two runs whose steps interleave the later begins within the earlier.
  for (int tries = 0; it != runs.begin() && tries < 2; ++tries) {
    --it;
    if (code <= it->last && (code - it->first) % it->step == 0) {
      return code + static_cast<uint32_t>(it->add);
    }
  }
  return code;
}

void AppendLower(uint32_t code, std::string* out) {
  constexpr uint32_t kDottedI = 0x130, kDot = 0x307;
  if (code == kDottedI) {
    out->push_back('i');
    AppendUtf8(kDot, out);
    return;
  }
  AppendUtf8(Mapped(kLowerRuns, code), out);
}

// Of lists of (code point << 5) | number of parts, and the parts; whether it is there.
static bool AppendParts(absl::Span<const uint32_t> list, uint32_t code, std::string* out) {
  for (size_t i = 0; i < list.size(); i += 1 + (list[i] & 31)) {
    if (list[i] >> 5 != code) continue;
    for (const uint32_t part : list.subspan(i + 1, list[i] & 31)) AppendUtf8(part, out);
    return true;
  }
  return false;
}
void AppendUpper(uint32_t code, std::string* out) {
  if (code >= 0x80 && AppendParts(kUpperParts, code, out)) return;
  AppendUtf8(Mapped(kUpperRuns, code), out);
}
void AppendTitle(uint32_t code, std::string* out) {
  if (code < 0x80 || !AppendParts(kTitleParts, code, out)) AppendUpper(code, out);
}

uint32_t Folded(uint32_t code) {
  const uint32_t folded = Mapped(kFoldRuns, code);
  return folded != code ? folded : Mapped(kLowerRuns, code);
}

absl::Span<const uint32_t> CasesOf(uint32_t code) {
  static const auto* const by_folded = [] {
    auto* out = new absl::flat_hash_map<uint32_t, std::vector<uint32_t>>;
    for (const auto& runs : {absl::MakeConstSpan(kLowerRuns), absl::MakeConstSpan(kFoldRuns)}) {
      for (const CodeRun& run : runs) {
        for (uint32_t c = run.first; c <= run.last; c += run.step) {
          std::vector<uint32_t>& cases = (*out)[Folded(c)];
          if (cases.empty()) cases.push_back(Folded(c));
          if (std::find(cases.begin(), cases.end(), c) == cases.end()) cases.push_back(c);
        }
      }
    }
    return out;
  }();
  const auto it = by_folded->find(Folded(code));
  return it == by_folded->end() ? absl::Span<const uint32_t>() : it->second;
}

int ScriptOf(uint32_t code) { return static_cast<int>(ValueAt(kScripts, 8, code)); }

std::optional<int> ScriptNamed(absl::string_view name) {
  for (size_t i = 0; i < std::size(kScriptNames); ++i) {
    if (PlainName(kScriptNames[i]) == PlainName(name)) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::vector<CodeRange> CodesOfScript(int script) {
  std::vector<CodeRange> out;
  for (size_t i = 0; i < std::size(kScripts); ++i) {
    if (static_cast<int>(kScripts[i] & 255) != script) continue;
    const uint32_t end = i + 1 < std::size(kScripts) ? kScripts[i + 1] >> 8 : kNoCharacter;
    out.push_back({kScripts[i] >> 8, end - 1});
  }
  return out;
}

absl::Span<const CodeRange> OtherAlphabetic() { return kOtherAlphabetic; }
absl::Span<const CodeRange> OtherUppercase() { return kOtherUppercase; }
absl::Span<const CodeRange> OtherLowercase() { return kOtherLowercase; }

size_t ClusterEnd(absl::Span<const Character> text, size_t begin) {
  const auto cluster = [&](size_t i) {
    const uint32_t code = text[i].code;
    return code == kNoCharacter ? kControl : static_cast<Cluster>(ValueAt(kClusters, 2, code));
  };
  size_t end = begin + 1;
  if (text[begin].code == '\r' && end < text.size() && text[end].code == '\n') return end + 1;
  for (; end < text.size() && cluster(end - 1) != kControl; ++end) {
    const bool joins =
        cluster(end) == kExtend || (cluster(end - 1) == kPrepend && cluster(end) != kControl);
    if (!joins) break;
  }
  return end;
}

std::string PlainName(absl::string_view name) {
  std::string out;
  for (char c : name) {
    if (c != ' ' && c != '_' && c != '-') out += absl::ascii_tolower(static_cast<uint8_t>(c));
  }
  return out;
}

}  // namespace tessera::llm
