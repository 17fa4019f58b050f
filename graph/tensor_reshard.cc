// Reshards: where a value is moved, below its movement ops, and what that costs.
#include <algorithm>
#include <cstdio>

#include "graph/box.h"
#include "graph/callsite.h"
#include "graph/flags.h"
#include "graph/infer_device.h"
#include "graph/tensor_align.h"

namespace tessera::internal {

UOp Made(Op op, DType dtype, absl::Span<const UOp> srcs, Arg arg) {
  absl::StatusOr<UOp> made = UOp::TryMake(op, dtype, srcs, std::move(arg));
  if (made.ok()) return *std::move(made);
  absl::string_view message = made.status().message();
  const std::string prefix = absl::StrCat(Info(op).text, ": ");
  if (message.substr(0, prefix.size()) == prefix) message.remove_prefix(prefix.size());
  Fail(message);
}

int64_t BytesBetween(const UOp& u, Device to) {
  if (!u.device()) return 0;  // each place makes its own
  return MovedElements(BoxesOf(u.shape(), u.device()), BoxesOf(u.shape(), to)) * u.dtype().bytes();
}

UOp ImpliedCopy(const UOp& u, const Sharding& to, const std::string& why) {
  const bool asked =
      !WeighedOnly::Now() && (IntFlag(Flag::kStrict) > 0 || IntFlag(Flag::kDebug) >= 1);
  const int64_t bytes = asked ? BytesBetween(u, to) : 0;
  if (bytes > 0 && IntFlag(Flag::kStrict) > 0) {
    Fail(
        why, ": ", Describe(u), " would be moved to ", to.ToString(), " (", bytes,
        " bytes), and STRICT=1 forbids implicit moves; write .To(Sharding(...)) where it is meant");
  }
  if (bytes > 0 && IntFlag(Flag::kDebug) >= 1) {
    const CallSite* at = CurrentCallSite();
    std::fprintf(stderr, "tessera: %s: %s to %s, %lld bytes%s%s\n", why.c_str(),
                 Describe(u).c_str(), to.ToString().c_str(), static_cast<long long>(bytes),
                 at != nullptr ? " at " : "", at != nullptr ? at->ToString().c_str() : "");
  }
  const UOp copy = Made(Op::kCopy, u.dtype(), {u}, Device(to));
  if (copy.note().empty()) copy.SetNote(why);
  return copy;
}

namespace {

using How = Placement::Kind;
using Placements = std::vector<Placement>;

// The sharding that a movement's source needs for its result to come out as close to `to` as can
// be; nothing where the reshard belongs above it.
std::optional<Sharding> BelowMovement(const UOp& u, const Sharding& to) {
  const UOp& src = u.src(0);
  if (!src.device().is_sharding() || !(src.device().sharding().mesh() == to.mesh())) {
    return std::nullopt;
  }
  Placements out = to.placements();
  switch (u.op()) {
    case Op::kExpand:
      for (Placement& p : out) {
        if (p.is(How::kShard) && !(src.shape()[p.axis] == u.shape()[p.axis])) {
          p = Placement::Replicate();
        }
      }
      return to.With(std::move(out));
    case Op::kPermute:
      for (Placement& p : out) {
        if (p.is(How::kShard)) p.axis = static_cast<int>(u.arg<Ints>()[p.axis]);
      }
      return to.With(std::move(out));
    case Op::kReshape: {
      std::vector<int> lost;
      const Sharding back = ReshapeImage(u.shape(), to, src.shape(), &lost);
      // A dim that cuts only repeated elements is lost as well, and is cut above.
      std::vector<int> again;
      ReshapeImage(src.shape(), back, u.shape(), &again);
      if (!again.empty()) return std::nullopt;
      for (int d : lost) {
        if (!u.shape()[to(d).axis].is_int(1)) return std::nullopt;
      }
      return CheckPlacement(src.shape(), back).ok() ? std::optional<Sharding>(back) : std::nullopt;
    }
    case Op::kCast:
      return to;
    default:
      return std::nullopt;
  }
}

// The chain of movement ops down to where a repetition starts, if there is one.
bool HasExpandBelow(const UOp& u) {
  UOp v = u;
  while (v.is(Op::kExpand) || v.is(Op::kPermute) || v.is(Op::kReshape) || v.is(Op::kCast)) {
    if (v.is(Op::kExpand)) return true;
    v = UOp(v.src(0));
  }
  return false;
}

}  // namespace

UOp Reshard(const UOp& u, const Sharding& to, const std::string& why) {
  if (SamePlacement(u.shape(), u.device(), to)) return u;
  // Down through movement ops to the smallest tensor, then up again.
  std::vector<UOp> path;
  std::vector<Sharding> wanted = {to};
  UOp at = u;
  while (HasExpandBelow(at)) {
    const std::optional<Sharding> below = BelowMovement(at, wanted.back());
    if (!below) break;
    path.push_back(at);
    wanted.push_back(*below);
    at = UOp(at.src(0));
    if (SamePlacement(at.shape(), at.device(), wanted.back())) break;
  }
  UOp out = SamePlacement(at.shape(), at.device(), wanted.back())
                ? at
                : ImpliedCopy(at, wanted.back(), why);
  for (size_t i = path.size(); i-- > 0;) {
    out = Made(path[i].op(), path[i].dtype(), {out}, path[i].arg());
    if (!SamePlacement(out.shape(), out.device(), wanted[i]))
      out = ImpliedCopy(out, wanted[i], why);
  }
  return out;
}

int64_t ReshardBytes(const UOp& u, const Sharding& to) {
  int64_t bytes = 0;
  UOp at = u;
  Sharding wanted = to;
  while (HasExpandBelow(at) && !SamePlacement(at.shape(), at.device(), wanted)) {
    const std::optional<Sharding> below = BelowMovement(at, wanted);
    if (!below) break;
    at = UOp(at.src(0));
    wanted = *below;
  }
  if (!SamePlacement(at.shape(), at.device(), wanted)) bytes += BytesBetween(at, wanted);
  return bytes;
}

void OneMesh(Op op, std::vector<UOp>& srcs) {
  std::vector<const UOp*> sharded;
  bool one = true;
  for (const UOp& s : srcs) {
    if (s.device().is_sharding()) sharded.push_back(&s);
    one &= !s.device() || (s.device().is_sharding() &&
                           s.device().sharding().mesh() == sharded[0]->device().sharding().mesh());
  }
  if (one) return;
  // The mesh to which the others move with the fewest bytes; the one that is written first if tied.
  std::optional<Mesh> best;
  int64_t least = 0;
  for (const UOp* s : sharded) {
    const Mesh mesh = s->device().sharding().mesh();
    int64_t bytes = 0;
    for (const UOp& o : srcs) {
      if (!o.device()) continue;
      if (o.device().is_sharding() && o.device().sharding().mesh() == mesh) continue;
      bytes += BytesBetween(o, Sharding(mesh));
    }
    if (!best || bytes < least || (bytes == least && mesh.ToString() < best->ToString())) {
      best = mesh;
      least = bytes;
    }
  }
  for (UOp& s : srcs) {
    if (!s.device()) continue;
    const absl::Span<const Place> places = s.device().places();
    const bool same = static_cast<int>(places.size()) == best->size() &&
                      std::all_of(places.begin(), places.end(),
                                  [&best](const Place& p) { return best->IndexOf(p) >= 0; });
    if (!same) {
      // Not their shapes: within an op they are no longer those that it was given.
      Fail("the operands are on different devices, ", best->ToString(), " and ",
           s.device().is_sharding() ? s.device().sharding().mesh().ToString()
                                    : s.device().ToString(),
           "; move one of them with .To(...)");
    }
    if (s.device().is_sharding() && s.device().sharding().mesh() == *best) continue;
    s = ImpliedCopy(s, Sharding(*best),
                    absl::StrCat(Info(op).text, " over another mesh of the same places"));
  }
}

}  // namespace tessera::internal
