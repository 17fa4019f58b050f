// Alignment of the operands of GATHER and SCATTER.
#include <algorithm>

#include "graph/box.h"
#include "graph/fold.h"
#include "graph/infer_device.h"
#include "graph/lookup.h"
#include "graph/tensor_align.h"

namespace tessera::internal {
namespace {

using How = Placement::Kind;
using Placements = std::vector<Placement>;

bool IsIdempotent(Op op) {
  return op == Op::kMax || op == Op::kMin || op == Op::kAnd || op == Op::kOr;
}

// Lookups: what a mesh dim cuts in one operand, it cuts in the others that have the axis. Where
// they disagree, the table's own cut of the axis that is looked up stays, and else the cut for
// which the fewest bytes move, ties to the one that sorts first.
class LookupAligner {
 public:
  LookupAligner(Op op, std::vector<UOp>& srcs, const Arg& arg) : op_(op), srcs_(srcs) {
    OneMesh(op, srcs);
    const absl::StatusOr<Lookup> l = Lookup::Of(op, srcs, arg);
    if (!l.ok()) return;  // inference says what is wrong
    l_ = *l;
    // The elements' rank is not checked before inference either.
    if (srcs.size() == 3 && srcs[2].rank() != l_.element_rank()) return;
    ordered_ = op == Op::kScatter && std::get<ReduceArg>(arg.value).op == Op::kAssign;
    for (const UOp& s : srcs) {
      if (!s.device()) continue;
      if (!mesh_) first_ = &s - srcs.data();
      mesh_ = s.device().sharding().mesh();
      have_.emplace_back(CanonicalSharding(s.shape(), s.device().sharding()));
    }
    if (!mesh_) return;
    for (int d = 0; d < mesh_->ndim(); ++d) cuts_.push_back(Choose(d));
    if (Fits()) return;
    // Cuts of several operands that do not nest: the first one's alone.
    for (int d = 0; d < mesh_->ndim(); ++d) {
      const LookupCut first = CutOf(l_, kParts[first_], have_[0](d));
      cuts_[d] = ordered_ && l_.IsOwn(first.axis) ? LookupCut() : first;
    }
  }

  bool known() const { return !cuts_.empty(); }
  const Lookup& lookup() const { return l_; }
  const Mesh& mesh() const { return *mesh_; }
  const std::vector<LookupCut>& cuts() const { return cuts_; }
  // Mesh dims that divide the updates of one element.
  bool DividesUpdates() const {
    return std::any_of(cuts_.begin(), cuts_.end(),
                       [this](const LookupCut& c) { return l_.IsOwn(c.axis); });
  }

  void Apply() {
    const std::string why = absl::StrCat("what a mesh dim cuts in one source of ", Info(op_).text,
                                         " differs in others");
    for (size_t i = 0; i < srcs_.size(); ++i) {
      if (!srcs_[i].device()) continue;
      srcs_[i] = Reshard(srcs_[i], PartSharding(l_, kParts[i], *mesh_, cuts_), why);
    }
  }

 private:
  static constexpr LookupPart kParts[] = {LookupPart::kTable, LookupPart::kIndex,
                                          LookupPart::kElements};

  LookupCut Choose(int d) const {
    std::vector<LookupCut> all;
    size_t next = 0;
    for (size_t i = 0; i < srcs_.size(); ++i) {
      if (!srcs_[i].device()) continue;
      const LookupCut c = CutOf(l_, kParts[i], have_[next++](d));
      if (c.manual || c.axis == Lookup::kTarget) return c;
      if (c.axis == Lookup::kNone || (ordered_ && l_.IsOwn(c.axis))) continue;
      if (std::find(all.begin(), all.end(), c) == all.end()) all.push_back(c);
    }
    if (all.empty()) return {};
    std::sort(all.begin(), all.end(), [](const LookupCut& a, const LookupCut& b) {
      return Placement::Shard(a.axis, a.layout) < Placement::Shard(b.axis, b.layout);
    });
    LookupCut best = all[0];
    int64_t least = INT64_MAX;
    for (const LookupCut& c : all) {
      const int64_t bytes = all.size() == 1 ? 0 : Cost(d, c);
      if (bytes >= least) continue;
      best = c;
      least = bytes;
    }
    return best;
  }

  bool Fits() const {
    for (size_t i = 0; i < srcs_.size(); ++i) {
      const Sharding to = PartSharding(l_, kParts[i], *mesh_, cuts_);
      if (srcs_[i].device() && !CheckPlacement(srcs_[i].shape(), to).ok()) return false;
    }
    return true;
  }

  // What moves if a mesh dim cuts as given.
  int64_t Cost(int d, const LookupCut& cut) const {
    int64_t bytes = 0;
    size_t next = 0;
    for (size_t i = 0; i < srcs_.size(); ++i) {
      if (!srcs_[i].device()) continue;
      const Sharding& own = have_[next++];
      std::vector<LookupCut> cuts(mesh_->ndim());
      cuts[d] = cut;
      Placements p = own.placements();
      p[d] = PartSharding(l_, kParts[i], *mesh_, cuts)(d);
      const Sharding to = own.With(std::move(p));
      if (!CheckPlacement(srcs_[i].shape(), to).ok()) return INT64_MAX - 1;
      if (__builtin_add_overflow(bytes, BytesBetween(srcs_[i], to), &bytes)) return INT64_MAX - 1;
    }
    return bytes;
  }

  const Op op_;
  std::vector<UOp>& srcs_;
  Lookup l_;
  bool ordered_ = false;  // whether the last update must win
  size_t first_ = 0;      // the first source that has a device
  std::optional<Mesh> mesh_;
  std::vector<Sharding> have_;  // of the sources that have a device
  std::vector<LookupCut> cuts_;
};

// Whether combining with each of its elements changes nothing, however often.
bool IsNeutral(const UOp& base, Op op) {
  UOp u = base;
  while (u.is(Op::kExpand) || u.is(Op::kReshape)) u = UOp(u.src(0));
  if (!u.IsConst()) return false;
  const Scalar s = u.arg<Scalar>(), none = ReduceIdentity(op, u.dtype());
  return s == none || (op == Op::kAdd && u.dtype().IsFloat() && s.AsFloat() == 0);
}

}  // namespace

// Where the table is cut on the axis that is looked up the index is gathered; what was cut of it is
// cut again from the result.
std::optional<Sharding> AlignGather(std::vector<UOp>& srcs, const Arg& arg) {
  LookupAligner aligner(Op::kGather, srcs, arg);
  if (!aligner.known()) return std::nullopt;
  Placements again(aligner.mesh().ndim(), Placement::Replicate());
  bool any = false;
  for (int d = 0; srcs[0].device() && srcs[1].device() && d < aligner.mesh().ndim(); ++d) {
    if (aligner.cuts()[d].axis != Lookup::kTarget) continue;
    const LookupCut own =
        CutOf(aligner.lookup(), LookupPart::kIndex, srcs[1].device().sharding()(d));
    if (own.axis == Lookup::kNone) continue;
    again[d] = Placement::Shard(own.axis, own.layout);
    any = true;
  }
  aligner.Apply();
  // In terms of the result's axes, which inference gives for the rest.
  return any ? std::optional<Sharding>(Sharding(aligner.mesh(), std::move(again))) : std::nullopt;
}

// Where places have some of the updates each, what they add to a base is combined first, so that
// the base counts once: of floats -0 is what changes no sum.
UOp BuildScatter(DType dtype, std::vector<UOp> srcs, const Arg& arg) {
  LookupAligner aligner(Op::kScatter, srcs, arg);
  const Op op = std::get<ReduceArg>(arg.value).op;
  if (aligner.known() && aligner.DividesUpdates() && !IsIdempotent(op) && !IsNeutral(srcs[0], op)) {
    const UOp base = srcs[0];
    const bool zero = op == Op::kAdd && base.dtype().IsFloat();
    const UOp none = zero ? UOp::Const(base.dtype(), -0.0)
                          : UOp::Const(base.dtype(), ReduceIdentity(op, base.dtype()));
    srcs[0] = BroadcastTo(none, base.shape(), /*keep_scalar=*/false);
    return Build(op, {base, Build(Op::kScatter, dtype, srcs, arg)});
  }
  if (aligner.known()) aligner.Apply();
  return Made(Op::kScatter, dtype, srcs, arg);
}

}  // namespace tessera::internal
