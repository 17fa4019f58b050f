// tools/make-random-model refuses what its shapes cannot be written as, before it writes.
#include <fstream>

#include "tests/testing.h"
#include "tests/tools/run_tool.h"

namespace tessera::llm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RandomModel, RowsThatAreNoWholeBlocks) {
  const std::string path = OwnTempDir() + "/random.gguf";
  const Outcome o = RunTool("make-random-model", "Q4_K " + path + " 2 DeepSeek-V2-Lite");
  EXPECT_EQ(o.exit, 1);
  EXPECT_THAT(o.out, HasSubstr("random.gguf: tensor 'blk.0.ffn_down.weight' of DeepSeek-V2-Lite "
                               "has rows of 10944 numbers, and Q4_K has blocks of 256"));
  EXPECT_THAT(o.out, HasSubstr("Q8_0"));
  EXPECT_THAT(o.out, Not(HasSubstr(", Q4_K")));
  EXPECT_FALSE(std::ifstream(path)) << "nothing is written";
}

}  // namespace
}  // namespace tessera::llm
