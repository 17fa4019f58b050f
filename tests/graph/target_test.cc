// Target::Key tells apart all chips that would get different code.
#include "graph/target.h"

#include "tests/testing.h"

namespace tessera {
namespace {

TEST(Target, KeyDependsOnTheChip) {
  Target small, large;
  large.vector_bytes = 64;
  EXPECT_NE(small.Key(), large.Key());
  EXPECT_EQ(small.Key(), Target().Key());
}

}  // namespace
}  // namespace tessera
