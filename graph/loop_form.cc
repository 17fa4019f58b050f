// Parts of LOOPs, and the rules of inference on them.
#include "graph/loop_form.h"

#include <algorithm>

#include "graph/infer_context.h"
#include "graph/status.h"
#include "graph/walk.h"

namespace tessera {
namespace {

constexpr int kHeightBit = 32;

}  // namespace

int64_t ItemSlot(int64_t height, int64_t number) { return (height << kHeightBit) + number; }
int64_t HeightOfItem(const UOp& item) { return item.arg<ParamArg>().slot >> kHeightBit; }
int64_t NumberOfItem(const UOp& item) {
  return item.arg<ParamArg>().slot & ((int64_t{1} << kHeightBit) - 1);
}

LoopForm::LoopForm(const UOp& loop) : LoopForm(loop.srcs(), loop.arg<Ints>()) {}

LoopForm::LoopForm(absl::Span<const UOp> srcs, const Ints& arg)
    : body(srcs[0]),
      turns(srcs[1]),
      carried(srcs.subspan(2, arg[0])),
      sequences(srcs.subspan(2 + arg[0], arg[1])),
      fixed(srcs.subspan(2 + arg[0] + arg[1])),
      backwards(arg[2] != 0),
      height(arg[3]),
      all_(srcs.subspan(2)) {}

const UOp& LoopForm::OfResult(int i) const {
  return i < body.size() ? body.src(i) : carried[i - body.size()];
}

Shape LoopForm::ShapeOfResult(int i) const {
  const Shape& each = OfResult(i).shape();
  if (i < static_cast<int>(carried.size())) return carried[i].shape();
  Extents dims = {Extent(turns)};
  dims.insert(dims.end(), each.begin(), each.end());
  return Shape(std::move(dims));
}

Device LoopForm::DeviceOfResult(int i) const {
  const Device device = OfResult(i).device();
  if (i < static_cast<int>(carried.size())) return device ? device : carried[i].device();
  if (!device.is_sharding()) return device;
  std::vector<Placement> p = device.sharding().placements();
  for (Placement& each : p) {
    if (each.is(Placement::Kind::kShard)) ++each.axis;
  }
  return device.sharding().With(std::move(p));
}

std::vector<UOp> LoopForm::Items() const {
  std::vector<UOp> out;
  WalkDown(body.srcs(), [&](const UOp& u) {
    if (u.is(Op::kItem) && HeightOfItem(u) == height) out.push_back(u);
    return true;
  });
  return out;
}

bool LoopForm::IsOfSequence(int64_t number) const {
  const auto first = static_cast<int64_t>(carried.size());
  return number >= first && number < first + static_cast<int64_t>(sequences.size());
}

Shape LoopForm::ShapeOfItem(int64_t number) const {
  const UOp& source = SourceOf(number);
  return IsOfSequence(number) ? ShapeOfElement(source) : source.shape();
}

Shape ShapeOfElement(const UOp& sequence) {
  return Shape(Extents(sequence.shape().begin() + 1, sequence.shape().end()));
}

UOp ElementOf(const UOp& sequence, const Extent& at) {
  Pairs bounds = {{at, at + Extent(1)}};
  Extents dims;
  for (int i = 1; i < sequence.rank(); ++i) {
    bounds.emplace_back(Extent(0), sequence.shape()[i]);
    dims.push_back(sequence.shape()[i]);
  }
  const UOp element = UOp::Make(Op::kShrink, {sequence}, std::move(bounds));
  return UOp::Make(Op::kReshape, {element}, std::move(dims));
}

absl::StatusOr<Shape> InferLoop(const InferContext& c) {
  ASSIGN_OR_RETURN(const Ints* arg, ArgOf<Ints>(c));
  const auto& a = *arg;
  const auto sources = static_cast<int64_t>(c.srcs.size()) - 2;
  const bool counts = a.size() == 4 && a[0] >= 0 && a[1] >= 0 && a[0] <= sources &&
                      a[1] <= sources - a[0] && (a[2] == 0 || a[2] == 1) && a[3] >= 0;
  if (!counts) {
    return c.Fail("takes how many values are carried, how many sequences there are, whether it ",
                  "goes backwards, and its height");
  }
  const UOp &body = c.srcs[0], &turns = c.srcs[1];
  if (!body.is(Op::kSink) || body.size() < a[0]) {
    return c.Fail("the body is no SINK of all that is carried");
  }
  if (turns.rank() != 0 || !(turns.dtype() == kInt64) || turns.device() || turns.vmin() < 0) {
    return c.Fail("the number of turns is an i64 of at least 0, on no device");
  }
  const LoopForm form(c.srcs, a);
  for (size_t i = 0; i < form.carried.size(); ++i) {
    const UOp &before = form.carried[i], &after = body.src(static_cast<int>(i));
    if (!(before.dtype() == after.dtype()) || !(before.shape() == after.shape())) {
      return c.Fail("carried value ", i, " is ", Describe(before), ", and comes back as ",
                    Describe(after));
    }
    if (before.device() && after.device() && !(before.device() == after.device())) {
      return c.Fail("carried value ", i, " is on ", before.device().ToString(),
                    ", and comes back on ", after.device().ToString());
    }
  }
  for (const UOp& s : form.sequences) {
    if (s.rank() == 0 || !(s.shape()[0] == Extent(turns))) {
      return c.Fail("a sequence has no element for each turn");
    }
  }
  return Shape();
}

absl::StatusOr<Shape> InferResult(const InferContext& c) {
  RETURN_IF_ERROR(CheckResult(c));
  const auto number = static_cast<int>(std::get<int64_t>(c.arg.value));
  Shape shape = LoopForm(c.srcs[0]).ShapeOfResult(number);
  RETURN_IF_ERROR(CheckExtents(c, shape.dims()));
  return shape;
}

absl::Status CheckResult(const InferContext& c) {
  ASSIGN_OR_RETURN(const int64_t* number, ArgOf<int64_t>(c));
  if (!c.srcs[0].is(Op::kLoop)) return c.Fail("is of a LOOP");
  const int results = LoopForm(c.srcs[0]).num_results();
  if (*number < 0 || *number >= results) {
    return c.Fail("the number ", *number, " is none of the ", results, " that the loop leaves");
  }
  return absl::OkStatus();
}

}  // namespace tessera
