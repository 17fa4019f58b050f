// tessera_embed keeps every byte of a text, whatever CMake or C++ would make of it.
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/testing.h"

namespace tessera {
extern const std::string_view kEmbedSample;
namespace {

TEST(Embed, KeepsEveryByte) {
  std::ifstream file("tests/smoke/embed.txt", std::ios::binary);  // ctest runs in the source root
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_GT(text.str().size(), 100u);
  EXPECT_EQ(kEmbedSample, text.str());
}

}  // namespace
}  // namespace tessera
