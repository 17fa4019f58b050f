// Bytes of tokens to characters, as they come.
#include "examples/llm/tokenizer.h"
#include "graph/status.h"

namespace tessera::llm {

std::string Utf8Stream::Push(absl::string_view bytes) {
  pending_.append(bytes.data(), bytes.size());
  std::string out;
  while (true) {
    const size_t valid = ValidUtf8Prefix(pending_);
    out.append(pending_, 0, valid);
    pending_.erase(0, valid);
    if (pending_.empty()) return out;
    // What is left starts with a character that is incomplete or wrong.
    const uint8_t b = static_cast<uint8_t>(pending_[0]);
    const size_t n = b >= 0xF0 && b <= 0xF4  ? 4
                     : b >= 0xE0 && b < 0xF0 ? 3
                     : b >= 0xC2 && b < 0xE0 ? 2
                                             : 0;
    size_t have = 1;
    while (have < pending_.size() && static_cast<uint8_t>(pending_[have]) >> 6 == 2) ++have;
    if (have == pending_.size() && have < n) return out;
    out += "\xEF\xBF\xBD";
    pending_.erase(0, 1);
  }
}

std::string Utf8Stream::Finish() {
  std::string out;
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (i == 0 || static_cast<uint8_t>(pending_[i]) >> 6 != 2) out += "\xEF\xBF\xBD";
  }
  pending_.clear();
  return out;
}

}  // namespace tessera::llm
