// Transfers between GPUs by NCCL: which of its calls a step is, where it is any.
#include <algorithm>

#include "graph/status.h"
#include "runtime/box_rows.h"
#include "runtime/cuda_collectives.h"
#include "runtime/transfer.h"

namespace tessera {
namespace {

using cuda::Communicator;
using cuda::CUstream;
using cuda::GpuPlace;
using cuda::ncclComm_t;
using cuda::ncclResult_t;
using cuda::NcclTable;

constexpr int64_t kMostPieces = 256;  // sent one by one for each place; more are staged by the host

// How NCCL combines elements, if it does it as we do: it drops NaNs from maxima.
struct Reduction {
  int type = 0, op = 0;
  int64_t width = 1;  // NCCL's elements in one of ours
};
std::optional<Reduction> ReductionOf(Op op, DType dtype) {
  // Bytes of which at most one place has any that are not zero.
  if (op == Op::kWhere) return Reduction{cuda::kNcclUint8, cuda::kNcclSum, dtype.bytes()};
  Reduction out;
  if (dtype == kInt8) {
    out.type = cuda::kNcclInt8;
  } else if (dtype == kUInt8) {
    out.type = cuda::kNcclUint8;
  } else if (dtype == kInt32) {
    out.type = cuda::kNcclInt32;
  } else if (dtype == kUInt32) {
    out.type = cuda::kNcclUint32;
  } else if (dtype == kInt64) {
    out.type = cuda::kNcclInt64;
  } else if (dtype == kUInt64) {
    out.type = cuda::kNcclUint64;
  } else if (dtype == kFloat16) {
    out.type = cuda::kNcclFloat16;
  } else if (dtype == kBFloat16) {
    out.type = cuda::kNcclBFloat16;
  } else if (dtype == kFloat32) {
    out.type = cuda::kNcclFloat32;
  } else if (dtype == kFloat64) {
    out.type = cuda::kNcclFloat64;
  } else {
    return std::nullopt;
  }
  const bool integer = out.type <= cuda::kNcclUint64;
  if (op == Op::kAdd) {
    out.op = cuda::kNcclSum;
  } else if (op == Op::kMul) {
    out.op = cuda::kNcclProd;
  } else if (op == Op::kMax && integer) {
    out.op = cuda::kNcclMax;
  } else if (op == Op::kMin && integer) {
    out.op = cuda::kNcclMin;
  } else {
    return std::nullopt;
  }
  return out;
}

// A run of bytes from one rank to another.
struct Piece {
  int from = 0, to = 0;
  const char* in = nullptr;
  char* out = nullptr;
  int64_t bytes = 0;
};

// Whether every rank gets what all ranks send, one after another, as many bytes of each.
std::optional<int64_t> GatheredBytes(const std::vector<Piece>& pieces, int ranks,
                                     absl::Span<const void* const> source,
                                     absl::Span<void* const> target) {
  if (pieces.size() != static_cast<size_t>(ranks) * ranks || source.size() != target.size() ||
      source.size() != static_cast<size_t>(ranks)) {
    return std::nullopt;
  }
  const int64_t bytes = pieces[0].bytes;
  std::vector<bool> seen(pieces.size(), false);
  for (const Piece& p : pieces) {
    const bool fits = p.bytes == bytes && p.in == source[p.from] &&
                      p.out == static_cast<char*>(target[p.to]) + p.from * bytes;
    if (!fits || seen[p.from * ranks + p.to]) return std::nullopt;
    seen[p.from * ranks + p.to] = true;
  }
  return bytes;
}

}  // namespace

bool Transfer::HaveNccl() const {
  if (gpus_.empty()) return false;
  return gpus_[0].nccl().ok();
}

// All places, if all are GPUs that one NCCL serves.
void Transfer::FindGpus() {
  for (const auto* places : {&from_, &to_}) {
    for (DeviceRuntime* d : *places) {
      const std::optional<GpuPlace> gpu = GpuPlaceOf(*d);
      if (!gpu || (!gpus_.empty() && gpu->nccl != gpus_[0].nccl)) {
        gpus_.clear();
        return;
      }
      const bool known = std::any_of(gpus_.begin(), gpus_.end(),
                                     [&](const GpuPlace& g) { return g.device == gpu->device; });
      if (!known) gpus_.push_back(*gpu);
    }
  }
  if (gpus_.size() < 2) gpus_.clear();
}

std::vector<GpuPlace> Transfer::GpusOf(const Group& group) const {
  std::vector<GpuPlace> out;
  for (int i : group.places) out.push_back(*GpuPlaceOf(*from_[i]));
  return out;
}

absl::StatusOr<bool> Transfer::ReduceByNccl(const Group& group, int64_t elements,
                                            absl::Span<void* const> target,
                                            absl::Span<const void* const> source) const {
  const std::optional<Reduction> how = ReductionOf(op_, dtype_);
  if (!how || group.places.size() < 2 || !HaveNccl()) return false;
  if (elements == 0) return true;
  ASSIGN_OR_RETURN(const auto communicator, Communicator::Over(GpusOf(group), what_));
  RETURN_IF_ERROR(communicator->Run(
      what_, [&](const NcclTable& nccl, int rank, ncclComm_t comm, CUstream stream) {
        const int place = group.places[rank];
        return nccl.ncclAllReduce(source[place], target[place],
                                  static_cast<size_t>(elements * how->width), how->type, how->op,
                                  comm, stream);
      }));
  return true;
}

// Equal parts in the order of the ranks are one call; else each run of a part is reduced to the
// place that wants it.
absl::StatusOr<bool> Transfer::ScatterByNccl(const Group& group, absl::Span<void* const> target,
                                             absl::Span<const void* const> source) const {
  const std::optional<Reduction> how = ReductionOf(op_, dtype_);
  if (!how || group.places.size() < 2 || !HaveNccl()) return false;
  struct Run {
    int root;
    int64_t to, from, elements;
  };
  std::vector<Run> runs;
  const Box& have = copies_.have[group.places[0]];
  for (size_t r = 0; r < group.places.size(); ++r) {
    const Box& want = copies_.want[group.places[r]];
    ForEachRow(want, want, have, [&](int64_t to, int64_t from, int64_t n) {
      if (n > 0) runs.push_back({static_cast<int>(r), to, from, n});
    });
  }
  const auto ranks = static_cast<int64_t>(group.places.size());
  if (static_cast<int64_t>(runs.size()) > kMostPieces * ranks) return false;
  if (runs.empty()) return true;
  bool even = static_cast<int64_t>(runs.size()) == ranks;
  for (size_t i = 0; even && i < runs.size(); ++i) {
    even = runs[i].root == static_cast<int>(i) && runs[i].elements == runs[0].elements &&
           runs[i].from == static_cast<int64_t>(i) * runs[0].elements;
  }
  const int64_t width = dtype_.bytes();
  ASSIGN_OR_RETURN(const auto communicator, Communicator::Over(GpusOf(group), what_));
  RETURN_IF_ERROR(communicator->Run(
      what_, [&](const NcclTable& nccl, int rank, ncclComm_t comm, CUstream stream) {
        const int place = group.places[rank];
        const char* in = static_cast<const char*>(source[place]);
        char* out = static_cast<char*>(target[place]);
        if (even) {
          return nccl.ncclReduceScatter(in, out, static_cast<size_t>(runs[0].elements * how->width),
                                        how->type, how->op, comm, stream);
        }
        ncclResult_t result = cuda::kNcclSuccess;
        for (const Run& run : runs) {
          const bool own = run.root == rank;
          const ncclResult_t r =
              nccl.ncclReduce(in + run.from * width, own ? out + run.to * width : nullptr,
                              static_cast<size_t>(run.elements * how->width), how->type, how->op,
                              run.root, comm, stream);
          if (r != cuda::kNcclSuccess && r != cuda::kNcclInProgress) result = r;
        }
        return result;
      }));
  return true;
}

absl::StatusOr<bool> Transfer::ExchangeByNccl(const Copies& copies, absl::Span<void* const> target,
                                              absl::Span<const void* const> source) const {
  if (!HaveNccl()) return false;
  const auto rank_of = [&](DeviceRuntime* d) {
    const cuda::DriverDevice* device = GpuPlaceOf(*d)->device;
    for (size_t i = 0; i < gpus_.size(); ++i) {
      if (gpus_[i].device == device) return static_cast<int>(i);
    }
    return -1;
  };
  const int64_t width = dtype_.bytes();
  std::vector<Piece> pieces;
  for (size_t i = 0; i < target.size(); ++i) {
    for (const Move& m : copies.moves[i]) {
      ForEachRow(m.box, copies.want[i], copies.have[m.from],
                 [&](int64_t to, int64_t from, int64_t n) {
                   pieces.push_back({rank_of(from_[m.from]), rank_of(to_[i]),
                                     static_cast<const char*>(source[m.from]) + from * width,
                                     static_cast<char*>(target[i]) + to * width, n * width});
                 });
    }
    if (pieces.size() > kMostPieces * target.size()) return false;
  }
  const bool crosses =
      std::any_of(pieces.begin(), pieces.end(), [](const Piece& p) { return p.from != p.to; });
  if (!crosses) return false;
  const auto ranks = static_cast<int>(gpus_.size());
  const std::optional<int64_t> gathered = GatheredBytes(pieces, ranks, source, target);
  ASSIGN_OR_RETURN(const auto communicator, Communicator::Over(gpus_, what_));
  if (!gathered) {  // what stays where it is
    for (size_t i = 0; i < target.size(); ++i) {
      for (const Piece& p : pieces) {
        if (p.to != rank_of(to_[i]) || p.from != p.to) continue;
        RETURN_IF_ERROR(to_[i]->CopyWithin(p.out, p.in, p.bytes));
      }
    }
  }
  RETURN_IF_ERROR(communicator->Run(
      what_, [&](const NcclTable& nccl, int rank, ncclComm_t comm, CUstream stream) {
        if (gathered) {
          return nccl.ncclAllGather(source[rank], target[rank], static_cast<size_t>(*gathered),
                                    cuda::kNcclUint8, comm, stream);
        }
        ncclResult_t result = cuda::kNcclSuccess;
        const auto keep = [&](ncclResult_t r) {
          if (r != cuda::kNcclSuccess && r != cuda::kNcclInProgress) result = r;
        };
        for (const Piece& p : pieces) {
          if (p.from == p.to) continue;
          const auto n = static_cast<size_t>(p.bytes);
          if (p.from == rank) keep(nccl.ncclSend(p.in, n, cuda::kNcclUint8, p.to, comm, stream));
          if (p.to == rank) keep(nccl.ncclRecv(p.out, n, cuda::kNcclUint8, p.from, comm, stream));
        }
        return result;
      }));
  return true;
}

}  // namespace tessera
