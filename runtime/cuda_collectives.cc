// Communicators: making them, polling them, giving them up.
#include "runtime/cuda_collectives.h"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/flags.h"
#include "graph/status.h"

namespace tessera::cuda {
namespace {

// Communicators by their devices. One collective at a time: two that reach the devices in different
// orders would wait for each other.
struct Known {
  std::recursive_mutex mutex;
  std::map<std::vector<DriverDevice*>, std::shared_ptr<Communicator>> by_devices;
};
Known& All() {
  static Known& known = *new Known;
  return known;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Communicator>> Communicator::Over(
    const std::vector<GpuPlace>& places, absl::string_view what) {
  std::vector<DriverDevice*> devices;
  for (const GpuPlace& p : places) devices.push_back(p.device);
  std::lock_guard lock(All().mutex);
  std::shared_ptr<Communicator>& known = All().by_devices[devices];
  if (known != nullptr) return known;
  auto made = std::shared_ptr<Communicator>(new Communicator);
  ASSIGN_OR_RETURN(made->nccl_, places[0].nccl());
  made->devices_ = std::move(devices);
  if (absl::Status s = made->Start(what); !s.ok()) {
    made->Abort();
    return s;
  }
  return known = made;
}

Communicator::~Communicator() { Abort(); }

// A kernel of NCCL may write straight into a peer's buffer. What a pool gives is reached from its
// own device alone until the pool is told otherwise.
absl::Status Communicator::LetReach() {
  for (DriverDevice* owner : devices_) {
    for (DriverDevice* peer : devices_) {
      if (peer == owner) continue;
      const DriverTable& d = owner->driver();
      int can = 0;
      RETURN_IF_ERROR(owner->Check(d.cuDeviceCanAccessPeer(&can, peer->id(), owner->id()),
                                   "asking for peer access"));
      if (can == 0) continue;
      const MemAccessDesc access = {{kLocationDevice, peer->id()}, kAccessReadWrite};
      RETURN_IF_ERROR(owner->Check(d.cuMemPoolSetAccess(owner->pool(), &access, 1),
                                   absl::StrCat("opening the memory pool to ", peer->name())));
    }
  }
  return absl::OkStatus();
}

absl::Status Communicator::Start(absl::string_view what) {
  RETURN_IF_ERROR(LetReach());
  ncclUniqueId id;
  if (const ncclResult_t r = nccl_->ncclGetUniqueId(&id); r != kNcclSuccess) {
    return Failed(what, r);
  }
  ranks_.resize(devices_.size(), nullptr);
  const int count = static_cast<int>(devices_.size());
  ncclResult_t result = nccl_->ncclGroupStart();
  absl::Status entered;
  for (int i = 0; i < count && result == kNcclSuccess && entered.ok(); ++i) {
    entered = devices_[i]->Enter();
    NcclConfig config;
    if (entered.ok()) {
      result = nccl_->ncclCommInitRankConfig(&ranks_[i], count, id, i, &config);
      if (result == kNcclInProgress) result = kNcclSuccess;
    }
  }
  const ncclResult_t ended = nccl_->ncclGroupEnd();
  RETURN_IF_ERROR(entered);
  if (result == kNcclSuccess) result = ended;
  if (result != kNcclSuccess && result != kNcclInProgress) return Failed(what, result);
  RETURN_IF_ERROR(Await(what, [&] { return LaunchesDone(what); }));
  for (DriverDevice* d : devices_) {
    RETURN_IF_ERROR(d->Enter());
    events_.emplace_back();
    RETURN_IF_ERROR(d->Check(d->driver().cuEventCreate(&events_.back(), kEventDisableTiming),
                             "making an event"));
  }
  return absl::OkStatus();
}

absl::Status Communicator::Run(absl::string_view what, Launch launch) {
  std::lock_guard lock(All().mutex);
  const auto run = [&]() -> absl::Status {
    if (ranks_.empty()) return Failed(what, kNcclInvalidUsage);  // given up by another thread
    for (DriverDevice* d : devices_) RETURN_IF_ERROR(d->Enter());
    ncclResult_t result = nccl_->ncclGroupStart();
    absl::Status entered;
    for (size_t i = 0; i < devices_.size() && result == kNcclSuccess && entered.ok(); ++i) {
      entered = devices_[i]->Enter();
      if (entered.ok()) {
        result = launch(*nccl_, static_cast<int>(i), ranks_[i], devices_[i]->compute());
      }
      if (result == kNcclInProgress) result = kNcclSuccess;
    }
    const ncclResult_t ended = nccl_->ncclGroupEnd();
    RETURN_IF_ERROR(entered);
    if (result == kNcclSuccess) result = ended;
    if (result != kNcclSuccess && result != kNcclInProgress) return Failed(what, result);
    RETURN_IF_ERROR(Await(what, [&] { return LaunchesDone(what); }));
    for (size_t i = 0; i < devices_.size(); ++i) {
      DriverDevice& d = *devices_[i];
      RETURN_IF_ERROR(d.Enter());
      RETURN_IF_ERROR(
          d.Check(d.driver().cuEventRecord(events_[i], d.compute()), "recording an event"));
    }
    return Await(what, [&]() -> absl::StatusOr<bool> {
      RETURN_IF_ERROR(LaunchesDone(what).status());  // a peer may go while it runs
      return StreamsDone();
    });
  };
  absl::Status status = run();
  if (status.ok()) return status;
  Abort();
  All().by_devices.erase(devices_);
  return status;
}

// Polls without a pause at first: most are done in microseconds.
absl::Status Communicator::Await(absl::string_view what,
                                 absl::FunctionRef<absl::StatusOr<bool>()> done) {
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::seconds limit(IntFlag(Flag::kCollectiveSeconds));
  for (int64_t polls = 0;; ++polls) {
    ASSIGN_OR_RETURN(const bool over, done());
    if (over) return absl::OkStatus();
    if (polls > 1000) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (limit.count() == 0 || std::chrono::steady_clock::now() - begin < limit) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        what, ": not all of ",
        absl::StrJoin(devices_, ", ",
                      [](std::string* out, const DriverDevice* d) { out->append(d->name()); }),
        " have taken part within ", limit.count(),
        " s: one of them stalls; NCCL has given the collective up. See what NCCL_DEBUG=INFO "
        "prints, "
        "set COLLECTIVE_SECONDS if it needs longer, or lay the tensor on other devices with "
        ".Shard(...)"));
  }
}

absl::StatusOr<bool> Communicator::LaunchesDone(absl::string_view what) {
  bool done = true;
  for (const ncclComm_t rank : ranks_) {
    ncclResult_t state = kNcclSuccess;
    const ncclResult_t r = nccl_->ncclCommGetAsyncError(rank, &state);
    if (r != kNcclSuccess) return Failed(what, r);
    if (state == kNcclInProgress) {
      done = false;
    } else if (state != kNcclSuccess) {
      return Failed(what, state);
    }
  }
  return done;
}

absl::StatusOr<bool> Communicator::StreamsDone() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    DriverDevice& d = *devices_[i];
    RETURN_IF_ERROR(d.Enter());
    const CUresult r = d.driver().cuEventQuery(events_[i]);
    if (r == kNotReady) return false;
    RETURN_IF_ERROR(d.Check(r, "waiting for a collective"));
  }
  return true;
}

absl::Status Communicator::Failed(absl::string_view what, ncclResult_t result) const {
  const char* text = nccl_->ncclGetErrorString(result);
  return absl::UnavailableError(absl::StrCat(
      what, ": NCCL fails with ", result, " (", text != nullptr ? text : "unknown",
      "): a device of the group is gone, or its driver or links are; see what NCCL_DEBUG=INFO "
      "prints, or lay the tensor on other devices with .Shard(...)"));
}

void Communicator::Abort() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    devices_[i]->MakeCurrent();
    if (ranks_[i] != nullptr) (void)nccl_->ncclCommAbort(ranks_[i]);
  }
  ranks_.clear();
  for (size_t i = 0; i < events_.size(); ++i) {
    if (events_[i] == nullptr) continue;
    devices_[i]->MakeCurrent();
    (void)devices_[i]->driver().cuEventDestroy(events_[i]);
  }
  events_.clear();
}

}  // namespace tessera::cuda
