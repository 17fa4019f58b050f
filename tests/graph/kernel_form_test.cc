// Kernels as sets of ranges: what is too much for them, and what becomes of a pass that makes it.
#include "graph/kernel_form.h"

#include "graph/pass.h"
#include "tests/testing.h"

namespace tessera {
namespace {

// Stores of zeros over so many ranges of their own.
UOp StoresOver(size_t ranges) {
  const UOp to = UOp::Make(Op::kParam, kFloat32, {}, ParamArg{0, {Extent(8)}, {}});
  std::vector<UOp> stores;
  for (size_t i = 0; i < ranges; ++i) {
    const UOp r = UOp::Make(Op::kRange, kInt64, {UOp::Index(8)},
                            RangeArg{static_cast<int64_t>(i), RangeKind::kLoop});
    stores.push_back(UOp::Make(Op::kStore,
                               {UOp::Make(Op::kIndex, {to, r}), UOp::Const(kFloat32, Scalar()), r},
                               Arg(int64_t{0})));
  }
  return UOp::Make(Op::kSink, stores);
}

TEST(RangeSets, MoreRangesThanTheyHoldAreThrown) {
  EXPECT_EQ(RangeSets(StoresOver(kMostRanges)).ranges().size(), kMostRanges);
  EXPECT_THROW(RangeSets(StoresOver(kMostRanges + 1)), TooManyRanges);
}

TEST(RangeSets, AnOptionalPassThatMakesTooManyIsLeftOut) {
  const Target target;
  PassRunner passes("codegen", SpecStage::kKernel, target);
  const PassRunner::Pass pass = [](const PassRunner::Roots&) {
    const UOp many = StoresOver(kMostRanges + 1);
    RangeSets sets(many);
    return PassRunner::Roots{many};
  };
  PassRunner::Roots roots = {StoresOver(1)};
  EXPECT_OK(passes.RunOptional("optimise", roots, pass));
  EXPECT_EQ(roots[0], StoresOver(1));
  EXPECT_THROW(passes.Run("expand", roots, pass).IgnoreError(), TooManyRanges);
}

}  // namespace
}  // namespace tessera
