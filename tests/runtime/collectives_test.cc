// Collectives of NCCL over simulated GPUs: which calls a program makes, its values, and what
// becomes of peers that stall or fail.
#include "graph/flags.h"
#include "runtime/cuda_collectives.h"
#include "runtime/sim/sim.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

using sim::Fault;
using Values = std::vector<float>;

class Collectives : public testing::Test {
 protected:
  void TearDown() override {
    sim::ClearFaults();
    sim::HaveNccl(true);
  }
};

Sharding Gpus(int n, std::optional<int> axis = 0, Layout layout = {}) {
  return Line(n, axis, std::move(layout), "SIM");
}
Values Numbers(int64_t n) {
  Values v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 5) % 17) - 8;
  return v;
}
Tensor Laid(const Sharding& s, const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return Tensor::From(Numbers(n), shape).To("CPU").To(s).Realize();
}
// How many collectives it takes to realise the tensor.
int64_t Used(Tensor t) {
  const int64_t before = sim::GetCounts().collectives;
  t.Realize();
  for (int i = 0; i < 4; ++i) EXPECT_OK((*GetDevice(Place("SIM", i)))->Wait());
  return sim::GetCounts().collectives - before;
}
Values Read(const Tensor& t) { return t.ToVector<float>(); }

TEST_F(Collectives, OneForEachStep) {
  const Tensor x = Laid(Gpus(4), {8, 6});
  EXPECT_EQ(Used(x.Sum({0})), 1);                                  // an all-reduce
  EXPECT_EQ(Used(x.To(Gpus(4, std::nullopt)) + 1), 1);             // an all-gather
  EXPECT_EQ(Used(Laid(Gpus(4), {8, 8}).Sum({0}).To(Gpus(4))), 1);  // a reduce-scatter
  EXPECT_EQ(Used(x.To(Gpus(4, 1))), 1);                            // sends and receives
  EXPECT_EQ(Used(x + 1), 0);
}

TEST_F(Collectives, ValuesAreThoseOfTheHost) {
  const Layout uneven = Layout::Sizes({1, 0, 5, 2});
  for (const Sharding& s : {Gpus(4), Gpus(3), Gpus(2, 1), Gpus(4, 0, uneven)}) {
    for (const bool nccl : {true, false}) {
      sim::HaveNccl(nccl);
      const int64_t before = sim::GetCounts().collectives;
      const Tensor x = Laid(s, {8, 6}), plain = Tensor::From(Numbers(48), {8, 6}).To("CPU");
      const auto both = [&](const auto& fn) { EXPECT_EQ(Read(fn(x)), Read(fn(plain))) << nccl; };
      both([](const Tensor& t) { return t.Sum(); });
      both([](const Tensor& t) { return t.Sum({0}) + t.Sum({1}).Sum(); });
      both([](const Tensor& t) { return t.Max({0}); });
      both([](const Tensor& t) { return t.Cast(kInt32).Max(); });
      both([](const Tensor& t) { return t.Cast(kInt32).Prod({1}); });
      both([](const Tensor& t) { return (t > 0).Any({0}); });
      for (const Sharding& to : {Gpus(4), Gpus(4, 1), Gpus(2, std::nullopt), Gpus(4, 0, uneven)}) {
        EXPECT_EQ(Read(x.To(to)), Read(plain));
        EXPECT_EQ(Read(x.Sum({1}).To(Gpus(3))), Read(plain.Sum({1})));
        EXPECT_EQ(Read((x * 2).Sum({0}).To(Gpus(2))), Read((plain * 2).Sum({0})));
      }
      EXPECT_EQ(sim::GetCounts().collectives > before, nccl);
    }
  }
}

TEST_F(Collectives, OverTheDimsOfAGrid) {
  const Mesh mesh({"SIM:0", "SIM:1", "SIM:2", "SIM:3"}, {{2, "dp"}, {2, "tp"}});
  const Sharding grid(mesh, {Placement::Shard(0), Placement::Shard(1)});
  const Tensor x = Laid(grid, {6, 4});
  const Tensor plain = Tensor::From(Numbers(24), {6, 4}).To("CPU");
  EXPECT_EQ(Read(x.Sum({0})), Read(plain.Sum({0})));
  EXPECT_EQ(Read(x.Sum({1})), Read(plain.Sum({1})));
  EXPECT_EQ(Used(x.Sum({1})), 2);  // a communicator for each row of the grid
}

TEST_F(Collectives, NaNsWinMaximaWhichNcclWouldDrop) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::From(Values{1, nan, 3, 4}, {4}).To("CPU").To(Gpus(4)).Realize();
  EXPECT_EQ(Used(x.Max()), 0);
  EXPECT_TRUE(std::isnan(x.Max().Item()));
}

TEST_F(Collectives, ACommunicatorIsMadeOnce) {
  const Tensor x = Laid(Gpus(4), {8, 6});
  x.Sum({0}).Realize();
  const int64_t before = sim::GetCounts().communicators;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Used((x * i).Sum({0})), 1);
  EXPECT_EQ(sim::GetCounts().communicators, before);
}

TEST_F(Collectives, ManyOrdersOfStreams) {
  const Tensor x = Laid(Gpus(4), {8, 6});
  const Tensor plain = Tensor::From(Numbers(48), {8, 6}).To("CPU").Realize();
  const auto fn = [](const Tensor& t) { return ((t * 2).Sum({0}) + t).Sum({1}) * 3; };
  const Values want = Read(fn(plain));
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    sim::Seed(seed);
    ASSERT_EQ(Read(fn(x)), want) << seed;
  }
}

// ---- errors: named, in time, and the next operation is right

void ExpectError(Fault fault, const std::string& part) {
  const SetFlagForTest soon(Flag::kCollectiveSeconds, "1");
  const Tensor x = Laid(Gpus(3), {6, 5});
  sim::Plant(fault);
  const std::string error = ErrorOf([&] { Read(x.Sum({0})); });
  EXPECT_THAT(error, testing::ContainsRegex("all-reduce ADD of groups of 3 along .*: of f32\\["));
  EXPECT_THAT(error, testing::HasSubstr("SIM:0-2"));  // the shardings
  EXPECT_THAT(error, testing::HasSubstr(part));
  EXPECT_THAT(error, testing::HasSubstr(".Shard(...)"));
  sim::ClearFaults();
  EXPECT_EQ(Read(x.Sum({0})), Read(Tensor::From(Numbers(30), {6, 5}).To("CPU").Sum({0})));
}
TEST_F(Collectives, APeerThatStalls) {
  ExpectError(Fault::kCollectiveStalls, "SIM, SIM:1, SIM:2 have taken part within 1 s");
}
TEST_F(Collectives, APeerThatFails) {
  ExpectError(Fault::kCollectiveFails, "NCCL fails with 6 (a remote process has gone)");
}
TEST_F(Collectives, NoSecondsAreNoLimit) {
  const SetFlagForTest off(Flag::kCollectiveSeconds, "0");
  const Tensor x = Laid(Sharding({"SIM:2", "SIM:0"}, 0), {6, 5});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Read(x.Sum({0})), Read(Tensor::From(Numbers(30), {6, 5}).To("CPU").Sum({0})));
  }
}
TEST_F(Collectives, APeerThatDies) {
  const SetFlagForTest soon(Flag::kCollectiveSeconds, "5");
  const Sharding far({"SIM:10", "SIM:11", "SIM:12"}, 0);
  const Tensor x = Laid(far, {6, 5});
  EXPECT_EQ(Read(x.Sum({0})).size(), 5u);
  sim::Plant(Fault::kDeviceLost, 1);
  EXPECT_THAT(ErrorOf([&] {
                for (int i = 0; i < 3; ++i) Read((x * i).Sum({0}));
              }),
              testing::HasSubstr("the device is lost"));
  const Tensor elsewhere = Laid(Gpus(3), {6, 5});
  EXPECT_EQ(Read(elsewhere.Sum({0})), Read(Tensor::From(Numbers(30), {6, 5}).To("CPU").Sum({0})));
}
// In this process no peer can be late: one call does the work of all places, and a place that fails
// is the error of that call.
TEST_F(Collectives, APlaceThatDiesWithoutNccl) {
  sim::HaveNccl(false);
  const Sharding far({"SIM:8", "SIM:9", "SIM:5"}, 0);
  const Tensor x = Laid(far, {6, 5});
  EXPECT_EQ(Read(x.Sum({0})).size(), 5u);
  sim::Plant(Fault::kDeviceLost, 1);
  EXPECT_THAT(ErrorOf([&] {
                for (int i = 0; i < 3; ++i) Read((x * i).Sum({0}));
              }),
              testing::HasSubstr("the device is lost"));
  sim::ClearFaults();
  EXPECT_THAT(ErrorOf([&] { Read(x.To(Sharding(far.mesh()))); }),
              testing::HasSubstr("the device is lost"));
  const Tensor elsewhere = Laid(Gpus(3), {6, 5});
  EXPECT_EQ(Read(elsewhere.Sum({0})), Read(Tensor::From(Numbers(30), {6, 5}).To("CPU").Sum({0})));
}
TEST_F(Collectives, ACommunicatorThatIsNeverReady) {
  const SetFlagForTest soon(Flag::kCollectiveSeconds, "1");
  const Tensor x = Laid(Sharding({"SIM:1", "SIM:0"}, 0), {6, 5});
  sim::Plant(Fault::kCommunicator);
  EXPECT_THAT(ErrorOf([&] { Read(x.Sum({0})); }), testing::HasSubstr("have taken part within 1 s"));
  EXPECT_EQ(Read(x.Sum({0})).size(), 5u);
}

// ---- what the simulated NCCL refuses, of calls that a real one would hang on

class WrongCalls : public Collectives {
 protected:
  void SetUp() override {
    std::vector<cuda::GpuPlace> places;
    for (int i = 0; i < 2; ++i) {
      const auto device = GetDevice(Place("SIM", i));
      ASSERT_OK(device);
      places.push_back(*GpuPlaceOf(**device));
      ASSERT_OK_AND_ASSIGN(memory_[i], (*device)->Allocate(64));
    }
    ASSERT_OK_AND_ASSIGN(communicator_, cuda::Communicator::Over(places, "Test"));
  }
  void ExpectRefused(cuda::Communicator::Launch launch) {
    EXPECT_THAT(communicator_->Run("Test", launch),
                StatusIs(absl::StatusCode::kUnavailable, "Test: NCCL fails with 5"));
  }
  std::shared_ptr<Storage> memory_[2];
  std::shared_ptr<cuda::Communicator> communicator_;
};

TEST_F(WrongCalls, CountsThatDiffer) {
  ExpectRefused([&](const cuda::NcclTable& n, int rank, auto comm, auto stream) {
    return n.ncclAllReduce(memory_[rank]->data, memory_[rank]->data, 1 + rank, cuda::kNcclFloat32,
                           cuda::kNcclSum, comm, stream);
  });
}
TEST_F(WrongCalls, ARankThatIsMissing) {
  ExpectRefused([&](const cuda::NcclTable& n, int rank, auto comm, auto stream) {
    if (rank == 1) return cuda::ncclResult_t{cuda::kNcclSuccess};
    return n.ncclAllReduce(memory_[0]->data, memory_[0]->data, 4, cuda::kNcclFloat32,
                           cuda::kNcclSum, comm, stream);
  });
}
TEST_F(WrongCalls, ASendWithoutItsReceive) {
  ExpectRefused([&](const cuda::NcclTable& n, int rank, auto comm, auto stream) {
    return n.ncclSend(memory_[rank]->data, 4, cuda::kNcclFloat32, 1 - rank, comm, stream);
  });
}
TEST_F(WrongCalls, AnotherDevicesStream) {
  cuda::CUstream first = nullptr;
  EXPECT_THAT(communicator_->Run("Test",
                                 [&](const cuda::NcclTable& n, int rank, auto comm, auto stream) {
                                   if (rank == 0) first = stream;
                                   return n.ncclAllReduce(memory_[rank]->data, memory_[rank]->data,
                                                          4, cuda::kNcclFloat32, cuda::kNcclSum,
                                                          comm, first);
                                 }),
              StatusIs(absl::StatusCode::kUnavailable, "Test: NCCL fails with 4"));
}

}  // namespace
}  // namespace tessera
