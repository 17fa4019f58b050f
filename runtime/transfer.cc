// Transfers through memory: pointers where places are of the host, copies through it elsewhere.
//
// In this process no ring is needed: what a ring hands on from place to place, each place reads
// where it lies, in the order of the places. Of small reductions every place combines all parts for
// itself; of larger ones a chunk is combined once and copied to the others, which moves what the
// two halves of a ring move. Nor is a deadline: one call does the work of all places, none of
// which waits for another, and a place that fails is an error of that call.
#include "runtime/transfer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "graph/fold.h"
#include "graph/infer.h"
#include "graph/scalar_math.h"
#include "graph/status.h"
#include "runtime/box_rows.h"
#include "runtime/counters.h"
#include "runtime/mesh.h"

namespace tessera {
namespace {

template <typename T, typename Fn>
void CombineBy(T* out, absl::Span<const void* const> parts, int64_t begin, int64_t end, Fn fn) {
  std::memcpy(out + begin, static_cast<const T*>(parts[0]) + begin, (end - begin) * sizeof(T));
  for (size_t p = 1; p < parts.size(); ++p) {
    const T* in = static_cast<const T*>(parts[p]);
    for (int64_t i = begin; i < end; ++i) out[i] = fn(out[i], in[i]);
  }
}

// Elements of one dtype, one at a time: what no loop above covers.
void CombineScalars(Op op, DType dtype, void* out, absl::Span<const void* const> parts,
                    int64_t begin, int64_t end) {
  const int64_t width = dtype.bytes();
  for (int64_t i = begin; i < end; ++i) {
    const auto at = [&](const void* p) {
      return LoadScalar(static_cast<const uint8_t*>(p) + i * width, dtype);
    };
    Scalar value = at(parts[0]);
    for (size_t p = 1; p < parts.size(); ++p) {
      value = EvaluateScalarOp(op, dtype, dtype, {value, at(parts[p])});
    }
    StoreScalar(static_cast<uint8_t*>(out) + i * width, dtype, value);
  }
}

template <typename T>
void CombineFloats(Op op, DType dtype, T* out, absl::Span<const void* const> parts, int64_t begin,
                   int64_t end) {
  switch (op) {
    case Op::kAdd:
      return CombineBy(out, parts, begin, end, [](T a, T b) { return a + b; });
    case Op::kMul:
      return CombineBy(out, parts, begin, end, [](T a, T b) { return a * b; });
    default:
      return CombineScalars(op, dtype, out, parts, begin, end);
  }
}

// Bytes of which at most one part has any that are not zero.
void CombineSelected(int64_t width, char* out, absl::Span<const void* const> parts, int64_t begin,
                     int64_t end) {
  CombineBy(out, parts, begin * width, end * width,
            [](char a, char b) { return static_cast<char>(a | b); });
}

void CombineAny(Op op, DType dtype, void* out, absl::Span<const void* const> parts, int64_t begin,
                int64_t end) {
  if (op == Op::kWhere) {
    return CombineSelected(dtype.bytes(), static_cast<char*>(out), parts, begin, end);
  }
  if (dtype == kFloat32) {
    return CombineFloats(op, dtype, static_cast<float*>(out), parts, begin, end);
  }
  if (dtype == kFloat64) {
    return CombineFloats(op, dtype, static_cast<double*>(out), parts, begin, end);
  }
  CombineScalars(op, dtype, out, parts, begin, end);
}

constexpr int64_t kChunk = 1 << 14;        // elements that one worker combines at a time
constexpr int64_t kSerialBytes = 1 << 15;  // less is copied at once rather than by several cores
constexpr int kMaxRows = 16;               // copied one by one where a place is not of the host

// As errors name it: with shapes, and where the parts lie before and after.
std::string NameInErrors(const Plan& plan, const PlanStep& step) {
  const PlanBuffer &to = plan.buffers[step.buffers[0]], &from = plan.buffers[step.buffers[1]];
  const auto lies = [](const PlanBuffer& b, const std::shared_ptr<const Boxes>& boxes) {
    return absl::StrCat(Describe(b.dtype, b.shape, b.device),
                        boxes != nullptr ? absl::StrCat(" as ", boxes->ToString()) : "");
  };
  return absl::StrCat(StepName(plan, step), ": of ", lies(from, step.from), " to ",
                      lies(to, step.to),
                      step.site != nullptr ? absl::StrCat(", at ", step.site->ToString()) : "");
}

}  // namespace

Transfer::Copies Transfer::CopiesOf(const Boxes& from, const Boxes& to) {
  Copies out;
  const int sources = static_cast<int>(from.device.places().size());
  const int targets = static_cast<int>(to.device.places().size());
  for (int i = 0; i < sources; ++i) out.have.push_back(from.At(i));
  for (int i = 0; i < targets; ++i) {
    out.want.push_back(to.At(i));
    out.moves.push_back(MovesTo(from, to, i));
    for (const Move& m : out.moves.back()) out.elements += Volume(m.box);
  }
  return out;
}

std::vector<Transfer::Length> Transfer::LengthsOf(const Plan& plan, const PlanBuffer& buffer,
                                                  const Boxes& boxes) {
  std::vector<Length> out;
  for (int a = 0; a < buffer.shape.rank(); ++a) {
    if (buffer.shape[a].is_int()) continue;
    const AxisBoxes& axis = boxes.axes[a];
    std::vector<bool> known(axis.pieces.size(), false);
    for (size_t i = 0; i < boxes.device.places().size(); ++i) {
      const auto place = static_cast<int>(i);
      const bool divided = !axis.dims.empty();
      const size_t piece =
          divided ? boxes.device.sharding().mesh().CoordinateOver(place, axis.dims) : 0;
      if (known[piece]) continue;
      known[piece] = true;
      const Extent length = ExtentOn(plan, buffer.shape[a], buffer.device, place);
      if (length.is_int()) continue;
      out.push_back({a, piece, length});
    }
  }
  return out;
}

absl::StatusOr<Boxes> Transfer::Shortened(const Boxes& boxes, absl::Span<const Length> lengths,
                                          Values value) {
  Boxes out = boxes;
  for (const Length& l : lengths) {
    Interval& piece = out.axes[l.axis].pieces[l.piece];
    ASSIGN_OR_RETURN(const int64_t length, value(l.extent));
    piece.end = piece.begin + length;
  }
  return out;
}

absl::StatusOr<std::unique_ptr<const Transfer>> Transfer::Make(const Plan& plan,
                                                               const PlanStep& step) {
  auto t = std::unique_ptr<Transfer>(new Transfer);
  const PlanBuffer &to = plan.buffers[step.buffers[0]], &from = plan.buffers[step.buffers[1]];
  t->kind_ = step.kind;
  t->op_ = step.op;
  t->dtype_ = to.dtype;
  const bool exchanges = step.kind == PlanStep::kExchange;
  ASSIGN_OR_RETURN(t->to_, DevicesOf(exchanges ? step.to->device : to.device));
  ASSIGN_OR_RETURN(t->from_, DevicesOf(exchanges ? step.from->device : from.device));
  for (DeviceRuntime* d : t->to_) {
    t->wanted_ &= d->Computes();
    t->on_host_ &= d->IsHost();
  }
  for (DeviceRuntime* d : t->from_) {
    t->there_ &= d->Computes();
    t->on_host_ &= d->IsHost();
  }
  t->bytes_moved_ = BytesMoved(plan, step);
  t->bytes_sent_ = BytesSent(plan, step);
  if (!t->wanted_ || !t->there_) return t;
  if (!t->on_host_) {
    t->FindGpus();
    t->what_ = NameInErrors(plan, step);
  }
  if (exchanges) {
    t->boxes_from_ = step.from;
    t->boxes_to_ = step.to;
    t->lengths_from_ = LengthsOf(plan, from, *step.from);
    t->lengths_to_ = LengthsOf(plan, to, *step.to);
    if (t->lengths_from_.empty() && t->lengths_to_.empty()) {
      t->copies_ = CopiesOf(*step.from, *step.to);
    }
    return t;
  }
  if (step.kind == PlanStep::kReduceScatter) {
    for (size_t i = 0; i < t->to_.size(); ++i) {
      t->copies_.want.push_back(step.to->At(static_cast<int>(i)));
      t->copies_.have.push_back(step.from->At(static_cast<int>(i)));
      t->copies_.elements += Volume(t->copies_.have.back());
    }
  }
  for (std::vector<int>& places : to.device.sharding().mesh().Groups(step.dims)) {
    Group g;
    g.elements = 1;
    for (const Extent& e : to.shape) {
      g.elements = g.elements * ExtentOn(plan, e, to.device, places[0]);
    }
    g.places = std::move(places);
    t->groups_.push_back(std::move(g));
  }
  return t;
}

absl::Status Transfer::Run(absl::Span<void* const> target, absl::Span<const void* const> source,
                           Values value) const {
  Count(&RuntimeStats::transfers_run);
  Count(&RuntimeStats::bytes_moved, bytes_moved_);
  Count(&RuntimeStats::bytes_sent, bytes_sent_);
  if (!wanted_) return absl::OkStatus();
  if (!there_) return from_[0]->CopyOut(target[0], source[0], 0);  // the error of such a read
  if (kind_ == PlanStep::kReduceScatter) return RunReduceScatter(target, source);
  if (kind_ == PlanStep::kAllReduce) return RunAllReduce(target, source, value);
  if (lengths_from_.empty() && lengths_to_.empty()) return RunExchange(copies_, target, source);
  ASSIGN_OR_RETURN(const Boxes from, Shortened(*boxes_from_, lengths_from_, value));
  ASSIGN_OR_RETURN(const Boxes to, Shortened(*boxes_to_, lengths_to_, value));
  return RunExchange(CopiesOf(from, to), target, source);
}

absl::Status Transfer::RunExchange(const Copies& copies, absl::Span<void* const> target,
                                   absl::Span<const void* const> source) const {
  const int places = static_cast<int>(target.size());
  if (!on_host_) {
    ASSIGN_OR_RETURN(const bool done, ExchangeByNccl(copies, target, source));
    if (done) return absl::OkStatus();
    for (int i = 0; i < places; ++i) {
      RETURN_IF_ERROR(FillDevice(copies, i, target[i], source));
    }
    return absl::OkStatus();
  }
  if (copies.elements * dtype_.bytes() <= kSerialBytes) {
    for (int i = 0; i < places; ++i) RETURN_IF_ERROR(FillHost(copies, i, target[i], source));
    return absl::OkStatus();
  }
  return ForEachPlace(places, [&](int i) { return FillHost(copies, i, target[i], source); });
}

absl::Status Transfer::FillHost(const Copies& copies, int place, void* target,
                                absl::Span<const void* const> source) const {
  const int64_t width = dtype_.bytes();
  for (const Move& m : copies.moves[place]) {
    const char* in = static_cast<const char*>(source[m.from]);
    char* out = static_cast<char*>(target);
    ForEachRow(m.box, copies.want[place], copies.have[m.from],
               [&](int64_t a, int64_t b, int64_t n) {
                 std::memcpy(out + a * width, in + b * width, n * width);
               });
  }
  return absl::OkStatus();
}

// Few rows are copied as they are; many are gathered in memory of the host, one source at a time.
absl::Status Transfer::FillDevice(const Copies& copies, int place, void* target,
                                  absl::Span<const void* const> source) const {
  const int64_t width = dtype_.bytes();
  DeviceRuntime& to = *to_[place];
  int64_t rows = 0;
  for (const Move& m : copies.moves[place]) {
    ForEachRow(m.box, copies.want[place], copies.have[m.from],
               [&](int64_t, int64_t, int64_t) { ++rows; });
  }
  if (rows <= kMaxRows) {
    absl::Status status;
    for (const Move& m : copies.moves[place]) {
      ForEachRow(
          m.box, copies.want[place], copies.have[m.from], [&](int64_t a, int64_t b, int64_t n) {
            if (!status.ok()) return;
            status = CopyBytes(to, static_cast<char*>(target) + a * width, *from_[m.from],
                               static_cast<const char*>(source[m.from]) + b * width, n * width);
          });
    }
    return status;
  }
  std::vector<char> part(Volume(copies.want[place]) * width), piece;
  for (const Move& m : copies.moves[place]) {
    DeviceRuntime& from = *from_[m.from];
    const char* in = static_cast<const char*>(source[m.from]);
    if (!from.IsHost()) {
      piece.resize(Volume(copies.have[m.from]) * width);
      RETURN_IF_ERROR(from.CopyOut(piece.data(), in, static_cast<int64_t>(piece.size())));
      in = piece.data();
    }
    ForEachRow(m.box, copies.want[place], copies.have[m.from],
               [&](int64_t a, int64_t b, int64_t n) {
                 std::memcpy(part.data() + a * width, in + b * width, n * width);
               });
  }
  return to.CopyIn(target, part.data(), static_cast<int64_t>(part.size()));
}

// One place's part of what its group has.
void Transfer::CombinePart(const Group& group, int place, void* target,
                           absl::Span<const void* const> parts) const {
  const int64_t width = dtype_.bytes();
  absl::InlinedVector<const void*, 16> moved(parts.size());
  ForEachRow(copies_.want[place], copies_.want[place], copies_.have[group.places[0]],
             [&](int64_t a, int64_t b, int64_t n) {
               for (size_t i = 0; i < parts.size(); ++i) {
                 moved[i] = static_cast<const char*>(parts[i]) + (b - a) * width;
               }
               CombineAny(op_, dtype_, target, moved, a, a + n);
             });
}

absl::Status Transfer::RunReduceScatter(absl::Span<void* const> target,
                                        absl::Span<const void* const> source) const {
  const int64_t width = dtype_.bytes();
  for (const Group& group : groups_) {
    if (!on_host_) {
      ASSIGN_OR_RETURN(const bool done, ScatterByNccl(group, target, source));
      if (done) continue;
    }
    std::vector<std::vector<char>> staged;
    absl::InlinedVector<const void*, 16> parts;
    for (int i : group.places) {
      if (on_host_) {
        parts.push_back(source[i]);
        continue;
      }
      staged.emplace_back(Volume(copies_.have[i]) * width);
      RETURN_IF_ERROR(from_[i]->CopyOut(staged.back().data(), source[i],
                                        static_cast<int64_t>(staged.back().size())));
      parts.push_back(staged.back().data());
    }
    const auto one = [&](int k) -> absl::Status {
      const int place = group.places[k];
      if (on_host_) {
        CombinePart(group, place, target[place], parts);
        return absl::OkStatus();
      }
      std::vector<char> part(Volume(copies_.want[place]) * width);
      CombinePart(group, place, part.data(), parts);
      return to_[place]->CopyIn(target[place], part.data(), static_cast<int64_t>(part.size()));
    };
    const auto places = static_cast<int>(group.places.size());
    if (on_host_ && copies_.elements * width > kSerialBytes) {
      RETURN_IF_ERROR(ForEachPlace(places, one));
    } else {
      for (int k = 0; k < places; ++k) RETURN_IF_ERROR(one(k));
    }
  }
  return absl::OkStatus();
}

// Few elements are combined by every place for itself; of many, a part at one place for all.
void Transfer::Combine(const Group& group, int64_t begin, int64_t end,
                       absl::Span<void* const> target, absl::Span<const void* const> source) const {
  absl::InlinedVector<const void*, 16> parts;
  for (int i : group.places) parts.push_back(source[i]);
  const int64_t width = dtype_.bytes();
  if (GoesAtOnce(end * width, static_cast<int>(parts.size()))) {
    for (int i : group.places) CombineAny(op_, dtype_, target[i], parts, begin, end);
    return;
  }
  char* first = static_cast<char*>(target[group.places[0]]);
  CombineAny(op_, dtype_, first, parts, begin, end);
  for (size_t i = 1; i < group.places.size(); ++i) {
    std::memcpy(static_cast<char*>(target[group.places[i]]) + begin * width, first + begin * width,
                (end - begin) * width);
  }
}

absl::Status Transfer::RunAllReduce(absl::Span<void* const> target,
                                    absl::Span<const void* const> source, Values value) const {
  for (const Group& group : groups_) {
    int64_t n = 0;
    if (group.elements.is_int()) {
      n = group.elements.value();
    } else {
      ASSIGN_OR_RETURN(n, value(group.elements));
    }
    if (!on_host_) {
      ASSIGN_OR_RETURN(const bool done, ReduceByNccl(group, n, target, source));
      if (done) continue;
      RETURN_IF_ERROR(ReduceOffHost(group, n, target, source));
      continue;
    }
    const auto chunks = static_cast<int>((n + kChunk - 1) / kChunk);
    if (chunks == 0) continue;
    RETURN_IF_ERROR(ForEachPlace(chunks, [&](int c) {
      Combine(group, c * kChunk, std::min(n, (c + 1) * kChunk), target, source);
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

absl::Status Transfer::ReduceOffHost(const Group& group, int64_t elements,
                                     absl::Span<void* const> target,
                                     absl::Span<const void* const> source) const {
  const int64_t bytes = elements * dtype_.bytes();
  if (bytes == 0) return absl::OkStatus();
  std::vector<std::vector<char>> staged(group.places.size(), std::vector<char>(bytes));
  std::vector<char> sum(bytes);
  std::vector<const void*> parts;
  for (size_t i = 0; i < staged.size(); ++i) {
    const int place = group.places[i];
    RETURN_IF_ERROR(from_[place]->CopyOut(staged[i].data(), source[place], bytes));
    parts.push_back(staged[i].data());
  }
  CombineAny(op_, dtype_, sum.data(), parts, 0, elements);
  for (int place : group.places) {
    RETURN_IF_ERROR(to_[place]->CopyIn(target[place], sum.data(), bytes));
  }
  return absl::OkStatus();
}

}  // namespace tessera
