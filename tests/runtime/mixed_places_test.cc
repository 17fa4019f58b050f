// One graph on places of several kinds: each kernel is made for the chip that runs it.
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

// What is scheduled differently on chips with other caches, cores and dialects.
std::vector<Tensor> Work(const Place& place) {
  const Tensor x = Tensor::Empty({512, 384}, kFloat32, place);
  const Tensor y = Tensor::Empty({1 << 20}, kFloat32, place);
  const Tensor rows = Tensor::Empty({4096}, kInt32, place);
  const Tensor q = Tensor::Empty({2, 256, 64}, kFloat32, place);
  return {x.Softmax(),
          x.MatMul(x.T()).Relu(),
          y.Sum(),
          y.Reshape({4, 1 << 18}).Softmax(),
          rows.BinCount(1024),
          (q.MatMul(q.Transpose(1, 2)) * 0.125).Softmax().MatMul(q)};
}

std::vector<PlanKernel> Kernels(const std::vector<Tensor>& tensors) {
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
  const absl::StatusOr<Plan> plan = PlanOnly(roots, MakePlanKey(roots));
  EXPECT_OK(plan);
  return plan.ok() ? plan->kernels : std::vector<PlanKernel>();
}

TEST(MixedPlaces, EachKernelIsMadeForItsOwnDevice) {
  const std::vector<Tensor> host = Work(Place("CPU", 0)), gpu = Work(Place("SIM", 0));
  std::vector<PlanKernel> apart = Kernels(host);
  const size_t on_host = apart.size();
  for (PlanKernel& k : Kernels(gpu)) apart.push_back(std::move(k));
  EXPECT_NE(on_host, apart.size() - on_host) << "the two need no targets of their own here";
  for (const bool host_first : {true, false}) {
    std::vector<Tensor> both = host_first ? host : gpu;
    const std::vector<Tensor>& rest = host_first ? gpu : host;
    both.insert(both.end(), rest.begin(), rest.end());
    const std::vector<PlanKernel> together = Kernels(both);
    EXPECT_EQ(together.size(), apart.size());
    for (const PlanKernel& k : together) {
      const bool same = std::any_of(apart.begin(), apart.end(), [&](const PlanKernel& a) {
        return a.graph == k.graph && a.workers == k.workers && a.device == k.device;
      });
      EXPECT_TRUE(same) << k.name << " on " << k.device.ToString();
    }
  }
}

// To NULL everything goes; from there to where something runs nothing does, by no way.
TEST(MixedPlaces, NothingComesFromWhereNothingRuns) {
  const Tensor x = Tensor::Zeros({4, 3}, kFloat32, "NULL").Contiguous().Realize();
  const Sharding paper({"NULL:0", "NULL:1"}, 0), hosts({"CPU:0", "CPU:1"}, 0);
  const Tensor parts = Tensor::Zeros({4, 3}).To(paper).Contiguous().Realize();
  for (const Tensor& t : {x.To("CPU"), x.To("CPU") + 1, x.To(hosts), parts.To(hosts),
                          parts.To("CPU"), parts.Sum({0}).To("CPU:1")}) {
    Tensor y = t;
    EXPECT_THAT(ErrorOf([&] { y.Realize(); }), testing::HasSubstr("NULL has no values"));
  }
  for (const Tensor& from : {x, parts}) {
    Jit step([](const Tensor& t) { return t.To("CPU") * 2; });
    EXPECT_THAT(ErrorOf([&] { step.One({from}); }), testing::HasSubstr("NULL has no values"));
  }
  const Tensor y = Count({4, 3}).To("CPU").Realize();
  for (const Tensor& t : {x.To("NULL:1"), x.To(paper), parts.To("NULL:2"), y.To("NULL"),
                          y.To(paper), y.Shard(hosts).To(paper)}) {
    Tensor there = t;
    EXPECT_EQ(ErrorOf([&] { there.Realize(); }), "");
  }
}

TEST(MixedPlaces, ValuesOfBothFromOneCall) {
  const Tensor x = Count({33, 70}) * 0.01;
  for (const bool host_first : {true, false}) {
    const Place a("CPU", 0), b("SIM", 1);
    const Tensor p = x.To(host_first ? a : b), q = x.To(host_first ? b : a);
    EXPECT_REFERENCE(p.Softmax(), q.Softmax(), p.Sum({0}).To(q.device()) + q, q.MatMul(q.T()),
                     (q * 2).To(p.device()).MatMul(p.T()));
  }
}

}  // namespace
}  // namespace tessera
