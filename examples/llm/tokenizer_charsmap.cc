// Reading the trie of a map of characters.
#include "examples/llm/tokenizer_charsmap.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "examples/llm/unicode_properties.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr size_t kShortCluster = 6;  // bytes; longer ones are not looked up whole

uint32_t WordAt(absl::string_view bytes, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) {
    word |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + i])) << 8 * i;
  }
  return word;
}

// The fields of a unit of the trie.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) { return unit >> 10 << ((unit & 1 << 9) >> 6); }

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Make(absl::string_view base64) {
  std::string bytes;
  if (!absl::Base64Unescape(base64, &bytes)) {
    return absl::InvalidArgumentError("a map of characters is no base64");
  }
  const size_t size = bytes.size() < 4 ? 0 : WordAt(bytes, 0);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4) {
    return absl::InvalidArgumentError("a map of characters ends too early");
  }
  Charsmap map;
  for (size_t i = 0; i < size; i += 4) map.trie_.push_back(WordAt(bytes, 4 + i));
  map.texts_ = bytes.substr(4 + size);
  for (size_t at = 0; at < map.texts_.size();) {
    const size_t length = std::char_traits<char>::length(map.texts_.c_str() + at);
    map.longest_ = std::max(map.longest_, length);
    at += length + 1;
  }
  return map;
}

bool Charsmap::Append(absl::string_view text, std::string* out) const {
  uint32_t node = Offset(trie_[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    node ^= byte;
    if (byte == 0 || node >= trie_.size() || Label(trie_[node]) != byte) return false;
    const uint32_t unit = trie_[node];
    node ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= trie_.size() || Value(trie_[node]) >= texts_.size()) return false;
    out->append(texts_.c_str() + Value(trie_[node]));
    return true;
  }
  return false;
}

std::string Charsmap::Mapped(absl::string_view text) const {
  const std::vector<Character> characters = Characters(text);
  const auto all = absl::MakeConstSpan(characters).first(characters.size() - 1);
  const auto between = [&](size_t begin, size_t end) {
    return text.substr(characters[begin].begin, characters[end].begin - characters[begin].begin);
  };
  std::string out;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = ClusterEnd(all, begin);
    const absl::string_view cluster = between(begin, end);
    const bool found = cluster.size() < kShortCluster && Append(cluster, &out);
    for (size_t i = begin; i < end && !found; ++i) {
      const absl::string_view one = between(i, i + 1);
      if (!Append(one, &out)) out.append(one.data(), one.size());
    }
    begin = end;
  }
  return out;
}

}  // namespace tessera::llm
