// Canonical forms, against values that Python's unicodedata computed.
#include "examples/llm/compose.h"

#include <gtest/gtest.h>

#include "examples/llm/unicode.h"

namespace tessera::llm {
namespace {

TEST(Compose, JoinsWhatBelongsTogether) {
  EXPECT_EQ(Composed("e\u0301"), "\u00e9");
  EXPECT_EQ(Composed("s\u0323\u0307"), "\u1e69");
  EXPECT_EQ(Composed("s\u0307\u0323"), "\u1e69");       // in either order
  EXPECT_EQ(Composed("\u1112\u1161\u11ab"), "\ud55c");  // Hangul
  EXPECT_EQ(Composed("\uac00\u11a7"), "\uac00\u11a7");  // no trailing consonant
  EXPECT_EQ(Composed("\u212b"), "\u00c5");              // another name of a letter
  EXPECT_EQ(Composed("\u0958"), "\u0915\u093c");        // stays apart
  EXPECT_EQ(Composed("a\u0328\u0328\u0301"), "\u0105\u0328\u0301");
  EXPECT_EQ(Composed("\u09c7\u09be"), "\u09cb");  // of two that others begin at
  EXPECT_EQ(Composed("a\u0301 \u0301a"), "\u00e1 \u0301a");
  EXPECT_EQ(Composed(""), "");
  EXPECT_EQ(Decomposed("\u1e69\ud55c"), "s\u0323\u0307\u1112\u1161\u11ab");
  EXPECT_EQ(Decomposed("\u00c5"), "A\u030a");
}

TEST(Compose, BytesThatAreNoTextStay) {
  EXPECT_EQ(Composed("e\xff\u0301"), "e\xff\u0301");
  EXPECT_EQ(Composed("\xc3"
                     "e\u0301\xe2\x82"),
            "\xc3\u00e9\xe2\x82");
}

uint64_t Fnv(absl::string_view bytes) {
  uint64_t h = 0xcbf29ce484222325;
  for (char c : bytes) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}

// Each character of Unicode 14, followed by an acute accent and a dot below.
TEST(Compose, EveryCharacterAsRecorded) {
  std::string text;
  for (uint32_t c = 0; c < kNoCharacter; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    AppendUtf8(c, &text);
    text += "\u0301\u0323";
  }
  EXPECT_EQ(Fnv(Composed(text)), 0x1332d6608fd6152cu);
  EXPECT_EQ(Fnv(Decomposed(text)), 0x89b56ee3201dd279u);
}

}  // namespace
}  // namespace tessera::llm
