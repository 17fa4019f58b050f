// NCCL over the simulated machine: communicators, groups and collectives, each call checked.
//
// A collective is a meeting: each rank's stream arrives and goes on when all have, and whoever goes
// on first does the work of all. What a real NCCL would hang on (a rank that is missing from a
// group, counts that differ, a receive without its send) is an error here.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "graph/fold.h"
#include "graph/scalar_math.h"
#include "runtime/sim/faults.h"
#include "runtime/sim/machine.h"

namespace tessera::sim {
namespace {

using namespace cuda;

using Lock = std::lock_guard<std::recursive_mutex>;
Machine& M() { return Machine::Get(); }

struct Rank;

// All ranks that share one unique id.
struct Clique {
  std::vector<Rank*> ranks;
  ncclResult_t error = kNcclSuccess;
  bool never_ready = false;
  int polls = 0;  // for which it is still in progress
  bool complete() const {
    return std::none_of(ranks.begin(), ranks.end(), [](const Rank* r) { return r == nullptr; });
  }
};

struct Rank {  // what an ncclComm_t is
  std::shared_ptr<Clique> clique;
  int index = 0;
  Device* device = nullptr;
};
Rank* Of(ncclComm_t c) { return reinterpret_cast<Rank*>(c); }

struct Call {
  enum Kind : uint8_t { kAllReduce, kReduceScatter, kReduce, kAllGather, kSend, kReceive };
  Kind kind;
  Rank* rank;
  const void* send;
  void* receive;
  size_t count;
  int type, op, peer;  // the peer, or the root
  Stream* stream;

  bool is_pair() const { return kind == kSend || kind == kReceive; }
  bool Agrees(const Call& o) const {
    return kind == o.kind && count == o.count && type == o.type && op == o.op && peer == o.peer;
  }
};

// What a thread has asked for since its outermost ncclGroupStart.
struct Group {
  int depth = 0;
  std::vector<Call> calls;
  std::vector<std::pair<Rank*, std::string>> joins;
};
thread_local Group group;

std::map<std::string, std::weak_ptr<Clique>>& Cliques() {
  static auto& all = *new std::map<std::string, std::weak_ptr<Clique>>;
  return all;
}

DType TypeOf(int type) {
  switch (type) {
    case kNcclInt8:
      return kInt8;
    case kNcclUint8:
      return kUInt8;
    case kNcclInt32:
      return kInt32;
    case kNcclUint32:
      return kUInt32;
    case kNcclInt64:
      return kInt64;
    case kNcclUint64:
      return kUInt64;
    case kNcclFloat16:
      return kFloat16;
    case kNcclFloat32:
      return kFloat32;
    case kNcclFloat64:
      return kFloat64;
    default:
      return kBFloat16;
  }
}

Op OpOf(int op) {
  return op == kNcclSum    ? Op::kAdd
         : op == kNcclProd ? Op::kMul
         : op == kNcclMax  ? Op::kMax
                           : Op::kMin;
}

absl::Status Within(const Rank& rank, const void* p, size_t bytes) {
  if (bytes == 0 ||
      rank.device->memory.Holds(reinterpret_cast<uint64_t>(p), static_cast<int64_t>(bytes))) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("a collective reaches ", bytes, " bytes at ",
                                          absl::Hex(reinterpret_cast<uint64_t>(p)), " of rank ",
                                          rank.index, ", which are not allocated there"));
}

// A rank's kernel reads and writes the buffers of the ranks that it talks to, where their pools let
// it: as NCCL did up to 2.22.
absl::Status Reaches(const Rank& rank, const Rank& other) {
  if (rank.device == other.device || other.device->peers.contains(rank.device->index)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "rank ", rank.index, " of a collective may not reach the ", "memory of rank ", other.index));
}

// Elements [first, first + count) of all ranks' buffers, combined in the order of the ranks.
std::vector<uint8_t> Combined(const std::vector<Call>& calls, size_t first, size_t count) {
  const DType dtype = TypeOf(calls[0].type);
  const auto width = static_cast<size_t>(dtype.bytes());
  std::vector<uint8_t> out(count * width);
  const auto at = [&](const Call& c, size_t i) {
    return static_cast<const uint8_t*>(c.send) + (first + i) * width;
  };
  for (size_t i = 0; i < count; ++i) {
    Scalar value = LoadScalar(at(calls[0], i), dtype);
    for (size_t r = 1; r < calls.size(); ++r) {
      value = EvaluateScalarOp(OpOf(calls[0].op), dtype, dtype,
                               {value, LoadScalar(at(calls[r], i), dtype)});
    }
    StoreScalar(out.data() + i * width, dtype, value);
  }
  return out;
}

// One collective of all ranks, in their order.
absl::Status Perform(const std::vector<Call>& calls) {
  const Call& c = calls[0];
  const size_t ranks = calls.size(), bytes = c.count * static_cast<size_t>(TypeOf(c.type).bytes());
  for (const Call& call : calls) {
    for (const Call& other : calls) {
      if (auto s = Reaches(*call.rank, *other.rank); !s.ok()) return s;
    }
    const bool many = call.kind == Call::kReduceScatter;
    if (auto s = Within(*call.rank, call.send, many ? bytes * ranks : bytes); !s.ok()) return s;
    if (call.kind == Call::kReduce && call.rank->index != call.peer) continue;
    const bool gathers = call.kind == Call::kAllGather;
    if (auto s = Within(*call.rank, call.receive, gathers ? bytes * ranks : bytes); !s.ok())
      return s;
  }
  std::vector<std::vector<uint8_t>> results;  // before any is written: a buffer may be both
  if (c.kind == Call::kAllGather) {
    results.emplace_back();
    for (const Call& call : calls) {
      const auto* p = static_cast<const uint8_t*>(call.send);
      results[0].insert(results[0].end(), p, p + bytes);
    }
  } else if (c.kind == Call::kReduceScatter) {
    for (size_t r = 0; r < ranks; ++r) results.push_back(Combined(calls, r * c.count, c.count));
  } else {
    results.push_back(Combined(calls, 0, c.count));
  }
  for (size_t r = 0; r < ranks; ++r) {
    if (c.kind == Call::kReduce && static_cast<int>(r) != c.peer) continue;
    const std::vector<uint8_t>& result = results[results.size() == ranks ? r : 0];
    if (!result.empty()) std::memcpy(calls[r].receive, result.data(), result.size());
  }
  return absl::OkStatus();
}

using Pair = std::pair<Call, Call>;  // a send and its receive

absl::Status PerformPairs(const std::vector<Pair>& pairs) {
  std::vector<std::vector<uint8_t>> sent;
  for (const auto& [send, receive] : pairs) {
    const size_t bytes = send.count * static_cast<size_t>(TypeOf(send.type).bytes());
    if (auto s = Within(*send.rank, send.send, bytes); !s.ok()) return s;
    if (auto s = Within(*receive.rank, receive.receive, bytes); !s.ok()) return s;
    if (auto s = Reaches(*send.rank, *receive.rank); !s.ok()) return s;
    const auto* p = static_cast<const uint8_t*>(send.send);
    sent.emplace_back(p, p + bytes);
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!sent[i].empty()) std::memcpy(pairs[i].second.receive, sent[i].data(), sent[i].size());
  }
  return absl::OkStatus();
}

// Each stream arrives, waits for the others, and goes on.
void Meet(const std::shared_ptr<Clique>& clique, const std::vector<Stream*>& streams,
          std::function<absl::Status()> work) {
  struct Meeting {
    std::vector<Event> arrived;
    bool done = false;
    std::function<absl::Status()> work;
  };
  auto meeting = std::make_shared<Meeting>();
  meeting->arrived.resize(streams.size());
  meeting->work = std::move(work);
  const size_t missing =
      Strikes(Fault::kCollectiveStalls) ? M().random() % streams.size() : streams.size();
  for (size_t i = 0; i < streams.size(); ++i) {
    const auto add = [&](Event* records, Event* wait, std::function<absl::Status()> run) {
      Task t;
      t.run = std::move(run);
      t.records = records;
      t.record = 1;
      t.wait = wait;
      t.until = 1;
      t.owner = clique.get();
      M().Enqueue(*streams[i], std::move(t));
    };
    const auto keep = [meeting] { return absl::OkStatus(); };
    if (i != missing) add(&meeting->arrived[i], nullptr, keep);
    for (Event& other : meeting->arrived) add(nullptr, &other, keep);
    add(nullptr, nullptr, [meeting] {
      if (std::exchange(meeting->done, true)) return absl::OkStatus();
      ++M().counts.collectives;
      return meeting->work();
    });
  }
}

ncclResult_t Refuse(Clique& clique, const std::string& why) {
  M().fault = absl::StrCat("NCCL: ", why);
  clique.error = kNcclInvalidUsage;
  return kNcclInvalidUsage;
}

// The calls of one communicator in a group: collectives that each rank makes in the same order, and
// pairs.
ncclResult_t Launch(const std::shared_ptr<Clique>& clique, const std::vector<Call>& calls) {
  if (!clique->complete()) return Refuse(*clique, "a communicator is used that lacks ranks");
  const size_t ranks = clique->ranks.size();
  std::vector<std::vector<Call>> collectives(ranks);
  std::map<std::pair<int, int>, std::pair<std::vector<Call>, std::vector<Call>>> pairs;
  std::vector<Stream*> talking;
  for (const Call& c : calls) {
    if (!c.is_pair()) {
      collectives[c.rank->index].push_back(c);
      continue;
    }
    const int own = c.rank->index;
    if (c.kind == Call::kSend) {
      pairs[{own, c.peer}].first.push_back(c);
    } else {
      pairs[{c.peer, own}].second.push_back(c);
    }
    if (std::find(talking.begin(), talking.end(), c.stream) == talking.end()) {
      talking.push_back(c.stream);
    }
  }
  for (size_t r = 0; r < ranks; ++r) {
    if (collectives[r].size() != collectives[0].size()) {
      return Refuse(*clique,
                    absl::StrCat("rank ", r, " makes ", collectives[r].size(),
                                 " collectives in a group, and rank 0 ", collectives[0].size()));
    }
    for (size_t k = 0; k < collectives[r].size(); ++k) {
      if (!collectives[r][k].Agrees(collectives[0][k])) {
        return Refuse(*clique, absl::StrCat("rank ", r, " and rank 0 differ in collective ", k));
      }
    }
  }
  std::vector<Pair> matched;
  for (const auto& [between, both] : pairs) {
    const auto& [sends, receives] = both;
    if (sends.size() != receives.size()) {
      return Refuse(*clique,
                    absl::StrCat("rank ", between.first, " sends ", sends.size(), " times to rank ",
                                 between.second, ", which receives ", receives.size(), " times"));
    }
    for (size_t i = 0; i < sends.size(); ++i) {
      if (sends[i].count != receives[i].count || sends[i].type != receives[i].type) {
        return Refuse(*clique, "a receive differs from its send");
      }
      matched.emplace_back(sends[i], receives[i]);
    }
  }
  if (Strikes(Fault::kCollectiveFails)) {
    clique->error = kNcclRemoteError;
    return kNcclInProgress;
  }
  clique->polls = static_cast<int>(M().random() % 4);
  for (size_t k = 0; k < collectives[0].size(); ++k) {
    std::vector<Call> one;
    std::vector<Stream*> streams;
    for (size_t r = 0; r < ranks; ++r) {
      one.push_back(collectives[r][k]);
      streams.push_back(collectives[r][k].stream);
    }
    Meet(clique, streams, [one] { return Perform(one); });
  }
  if (!matched.empty()) Meet(clique, talking, [matched] { return PerformPairs(matched); });
  return kNcclInProgress;
}

ncclResult_t GroupStart() {
  ++group.depth;
  return kNcclSuccess;
}

ncclResult_t GroupEnd() {
  if (group.depth == 0) return kNcclInvalidUsage;
  if (--group.depth > 0) return kNcclSuccess;
  Lock lock(M().mutex);
  const Group now = std::exchange(group, Group());
  for (const auto& [rank, id] : now.joins) {
    rank->clique->ranks[rank->index] = rank;
    rank->clique->polls = static_cast<int>(M().random() % 4);
    if (rank->clique->complete()) ++M().counts.communicators;
  }
  ncclResult_t result = now.joins.empty() ? kNcclSuccess : kNcclInProgress;
  std::vector<std::shared_ptr<Clique>> order;
  for (const Call& c : now.calls) {
    if (std::find(order.begin(), order.end(), c.rank->clique) == order.end()) {
      order.push_back(c.rank->clique);
    }
  }
  for (const auto& clique : order) {
    std::vector<Call> own;
    for (const Call& c : now.calls) {
      if (c.rank->clique == clique) own.push_back(c);
    }
    result = Launch(clique, own);
    if (result != kNcclInProgress) return result;
  }
  return result;
}

ncclResult_t Init(ncclComm_t* out, int ranks, ncclUniqueId id, int index, NcclConfig* config) {
  Lock lock(M().mutex);
  if (out == nullptr || ranks < 1 || index < 0 || index >= ranks || config == nullptr ||
      config->magic != 0xcafebeef || config->size < sizeof(NcclConfig)) {
    return kNcclInvalidArgument;
  }
  const int device = CurrentDevice();
  // A blocking one could not be given up, and made one by one they would wait for each other.
  if (device < 0 || config->blocking != 0 || group.depth == 0) return kNcclInvalidUsage;
  const std::string key(id.internal, sizeof(id.internal));
  std::shared_ptr<Clique> clique = Cliques()[key].lock();
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->ranks.resize(ranks);
    clique->never_ready = Strikes(Fault::kCommunicator);
    Cliques()[key] = clique;
  }
  if (clique->ranks.size() != static_cast<size_t>(ranks)) return kNcclInvalidArgument;
  for (const auto& [other, name] : group.joins) {  // several ranks on one GPU are refused
    if (name == key && (other->index == index || other->device->index == device)) {
      return kNcclInvalidUsage;
    }
  }
  auto* rank = new Rank{clique, index, M().devices[device].get()};
  group.joins.emplace_back(rank, key);
  *out = reinterpret_cast<ncclComm_t>(rank);
  return kNcclSuccess;
}

ncclResult_t AsyncError(ncclComm_t comm, ncclResult_t* out) {
  Lock lock(M().mutex);
  if (comm == nullptr || out == nullptr) return kNcclInvalidArgument;
  Clique& clique = *Of(comm)->clique;
  *out = clique.error;
  if (clique.error == kNcclSuccess &&
      (clique.never_ready || !clique.complete() || clique.polls > 0)) {
    --clique.polls;
    *out = kNcclInProgress;
  }
  return kNcclSuccess;
}

ncclResult_t Abort(ncclComm_t comm) {
  Lock lock(M().mutex);
  if (comm == nullptr) return kNcclInvalidArgument;
  M().Drop(Of(comm)->clique.get());
  delete Of(comm);
  return kNcclSuccess;
}

ncclResult_t Ask(Call call, ncclComm_t comm, CUstream stream) {
  Lock lock(M().mutex);
  call.rank = Of(comm);
  call.stream = reinterpret_cast<Stream*>(stream);
  if (comm == nullptr || stream == nullptr || call.type < 0 || call.type > kNcclBFloat16 ||
      call.op < 0 || call.op > kNcclMin || call.peer < 0 ||
      static_cast<size_t>(call.peer) >= call.rank->clique->ranks.size() ||
      call.stream->device != call.rank->device) {
    return kNcclInvalidArgument;
  }
  // Several ranks of one thread, called one by one, would wait for each other.
  if (group.depth == 0) return kNcclInvalidUsage;
  group.calls.push_back(call);
  return kNcclSuccess;
}

std::atomic<bool> have_nccl{true};

}  // namespace

void HaveNccl(bool have) { have_nccl = have; }

absl::StatusOr<const NcclTable*> FindNccl() {
  if (have_nccl) return Nccl();
  return absl::UnavailableError("cuda: there is no NCCL on this simulated machine");
}

const NcclTable* Nccl() {
  static const NcclTable* const table = [] {
    auto* t = new NcclTable;
    t->ncclGetVersion = [](int* v) { return *v = 22800, ncclResult_t{kNcclSuccess}; };
    t->ncclGetErrorString = [](ncclResult_t r) {
      return r == kNcclSuccess        ? "no error"
             : r == kNcclInvalidUsage ? "invalid usage"
             : r == kNcclRemoteError  ? "a remote process has gone"
             : r == kNcclInProgress   ? "in progress"
                                      : "invalid argument";
    };
    t->ncclGetUniqueId = [](ncclUniqueId* out) {
      Lock lock(M().mutex);
      static uint64_t next = 0;
      *out = {};
      ++next;
      std::memcpy(out->internal, &next, sizeof(next));
      return ncclResult_t{kNcclSuccess};
    };
    t->ncclCommInitRankConfig = Init;
    t->ncclCommGetAsyncError = AsyncError;
    t->ncclCommAbort = Abort;
    t->ncclGroupStart = GroupStart;
    t->ncclGroupEnd = GroupEnd;
    t->ncclAllReduce = [](const void* send, void* receive, size_t n, int type, int op, ncclComm_t c,
                          CUstream s) {
      return Ask({Call::kAllReduce, nullptr, send, receive, n, type, op, 0, nullptr}, c, s);
    };
    t->ncclReduceScatter = [](const void* send, void* receive, size_t n, int type, int op,
                              ncclComm_t c, CUstream s) {
      return Ask({Call::kReduceScatter, nullptr, send, receive, n, type, op, 0, nullptr}, c, s);
    };
    t->ncclReduce = [](const void* send, void* receive, size_t n, int type, int op, int root,
                       ncclComm_t c, CUstream s) {
      return Ask({Call::kReduce, nullptr, send, receive, n, type, op, root, nullptr}, c, s);
    };
    t->ncclAllGather = [](const void* send, void* receive, size_t n, int type, ncclComm_t c,
                          CUstream s) {
      return Ask({Call::kAllGather, nullptr, send, receive, n, type, 0, 0, nullptr}, c, s);
    };
    t->ncclSend = [](const void* send, size_t n, int type, int peer, ncclComm_t c, CUstream s) {
      return Ask({Call::kSend, nullptr, send, nullptr, n, type, 0, peer, nullptr}, c, s);
    };
    t->ncclRecv = [](void* receive, size_t n, int type, int peer, ncclComm_t c, CUstream s) {
      return Ask({Call::kReceive, nullptr, nullptr, receive, n, type, 0, peer, nullptr}, c, s);
    };
    return t;
  }();
  return table;
}

}  // namespace tessera::sim
