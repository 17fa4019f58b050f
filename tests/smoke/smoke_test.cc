// The test harness itself: the status macros and matchers, and the environment it sets.
#include <cstdlib>
#include <string>

#include "tests/testing.h"

namespace tessera {
namespace {

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError("[half] got an odd number");
  return n / 2;
}

absl::StatusOr<int> Quarter(int n) {
  ASSIGN_OR_RETURN(int half, Half(n));
  RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(Status, MacrosReturnTheValueOrTheFirstError) {
  ASSERT_OK_AND_ASSIGN(int quarter, Quarter(12));
  EXPECT_EQ(quarter, 3);
  EXPECT_THAT(Quarter(12), IsOkAndHolds(3));
  EXPECT_OK(absl::OkStatus());
  EXPECT_THAT(Quarter(6), StatusIs(absl::StatusCode::kInvalidArgument, "odd number"));
}

TEST(Status, MatchersReject) {
  EXPECT_FALSE(Half(3).ok());
  EXPECT_THAT(Half(3), testing::Not(StatusIs(absl::StatusCode::kInternal, "odd")));
  EXPECT_THAT(Half(3), testing::Not(StatusIs(absl::StatusCode::kInvalidArgument, "even")));
  EXPECT_THAT(Half(4), testing::Not(IsOkAndHolds(3)));
}

TEST(StatusDeathTest, CheckAbortsWithItsParts) {
  EXPECT_DEATH(CHECK(1 == 2, "one is ", 1), "CHECK failed: 1 == 2 one is 1");
}

TEST(Environment, TestsRunAtSpec2WithTheirOwnCache) {
  EXPECT_STREQ(std::getenv("SPEC"), "2");
  EXPECT_NE(std::getenv("CACHE_DIR"), nullptr);
}

}  // namespace
}  // namespace tessera
