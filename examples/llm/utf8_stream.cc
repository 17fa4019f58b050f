// Bytes of tokens to characters, as they come.
#include "examples/llm/tokenizer.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

// How many bytes at the beginning may be those of one character, at least 1, and how many it has; 0
// where none begins so.
struct Begun {
  size_t bytes, of;
};
Begun BegunAt(absl::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t b = at(0);
  const size_t n = b >= 0xF0 && b <= 0xF4  ? 4
                   : b >= 0xE0 && b < 0xF0 ? 3
                   : b >= 0xC2 && b < 0xE0 ? 2
                                           : 0;
  // Some leave room for fewer second bytes: no longer forms, halves of characters, or too many.
  const uint8_t low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
  size_t i = 1;
  while (i < n && i < bytes.size() && at(i) >= (i == 1 ? low : 0x80) &&
         at(i) <= (i == 1 ? high : 0xBF)) {
    ++i;
  }
  return {i, n};
}

}  // namespace

std::string Utf8Stream::Push(absl::string_view bytes) {
  pending_.append(bytes.data(), bytes.size());
  std::string out;
  while (true) {
    const size_t valid = ValidUtf8Prefix(pending_);
    out.append(pending_, 0, valid);
    pending_.erase(0, valid);
    if (pending_.empty()) return out;
    // What is left starts with a character that is incomplete or wrong.
    const Begun begun = BegunAt(pending_);
    if (begun.bytes == pending_.size() && begun.bytes < begun.of) return out;
    out += "\xEF\xBF\xBD";
    pending_.erase(0, begun.bytes);
  }
}

std::string Utf8Stream::Finish() {
  const std::string out = pending_.empty() ? "" : "\xEF\xBF\xBD";
  pending_.clear();
  return out;
}

}  // namespace tessera::llm
