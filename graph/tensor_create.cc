// Tensors made of numbers, host data and counting.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numbers>
#include <optional>

#include "graph/buffer.h"
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::CastTo;
using internal::Fail;

namespace {

UOp Filled(const UOp& scalar, const Shape& shape, Device device) {
  return internal::CopyTo(internal::BroadcastTo(scalar, shape, /*keep_scalar=*/false), device);
}

Tensor FullOf(const char* name, const Dims& dims, Number value, DType dtype, Device device,
              CallSite at) {
  Call call(name, at);
  internal::CheckHoldsValues(device);
  for (const Extent& e : dims.extents()) {
    if (!e.is_int() || e.value() >= 0) continue;
    Fail("the extent ", e.value(), " of ", Shape(dims.extents()).ToString(), " is negative");
  }
  return Tensor(Filled(internal::NumberAs(value, dtype), Shape(dims.extents()), device));
}

// 0, 1, ... n-1 in the dtype; narrow floats count in f32 first.
UOp Counting(const Extent& n, DType dtype) {
  if (dtype.IsBool()) Fail("counts in numbers, not bools; cast the result");
  return Build(Op::kIota, dtype, {}, Extents{n});
}

// What an integer dtype has of a number: its low bits.
UOp Wrapped(const Number& n, DType dtype) { return CastTo(internal::NumberAs(n, kInt64), dtype); }

}  // namespace

Tensor Tensor::Empty(const Dims& shape, DType dtype, Device device, CallSite at) {
  Call call("Empty", at);
  internal::CheckHoldsValues(device);
  return Tensor(
      internal::NewBuffer(dtype, shape.extents(), device ? device : internal::DefaultDevice()));
}

Tensor Tensor::Zeros(const Dims& shape, DType dtype, Device device, CallSite at) {
  return FullOf("Zeros", shape, 0, dtype, device, at);
}

Tensor Tensor::Ones(const Dims& shape, DType dtype, Device device, CallSite at) {
  return FullOf("Ones", shape, 1, dtype, device, at);
}

Tensor Tensor::Full(const Dims& shape, Number value, std::optional<DType> dtype, Device device,
                    CallSite at) {
  return FullOf("Full", shape, value, dtype.value_or(value.DefaultType()), device, at);
}

Tensor Tensor::Scalar(Number value, std::optional<DType> dtype, Device device, CallSite at) {
  return FullOf("Scalar", {}, value, dtype.value_or(value.DefaultType()), device, at);
}

Tensor Tensor::FromExtent(const Extent& value, DType dtype, CallSite at) {
  Call call("FromExtent", at);
  return Tensor(internal::AsNode(value, dtype));
}

Tensor Tensor::FromBytes(const void* bytes, const Dims& shape, DType dtype, Device device,
                         CallSite at) {
  Call call("From", at);
  internal::CheckHoldsValues(device);
  const UOp node = internal::NewBuffer(dtype, shape.extents(), Device(Place("CPU", 0)));
  constexpr int64_t kAlign = 64;
  auto storage = std::make_shared<Storage>();
  storage->bytes = internal::CheckHostBytes(node, bytes);
  const int64_t room = (storage->bytes + kAlign) / kAlign * kAlign;
  storage->data = std::aligned_alloc(kAlign, static_cast<size_t>(room));
  if (storage->data == nullptr) {
    throw Error(absl::ResourceExhaustedError(
        absl::StrCat("From: there is no memory for ", storage->bytes, " bytes")));
  }
  storage->deleter = [](Storage& s) { std::free(s.data); };
  if (dtype.IsBool()) {  // kernels rely on 0 and 1
    auto* const out = static_cast<uint8_t*>(storage->data);
    const auto* const in = static_cast<const uint8_t*>(bytes);
    for (int64_t i = 0; i < storage->bytes; ++i) out[i] = in[i] != 0;
  } else if (storage->bytes > 0) {
    std::memcpy(storage->data, bytes, static_cast<size_t>(storage->bytes));
  }
  node.arg<BufferArg>().buffer->storage = std::move(storage);
  return Tensor(internal::CopyTo(node, device ? device : internal::DefaultDevice()));
}

namespace {

bool IsLarge(const Number& n) { return n.cls == KindClass::kUint; }
bool FitsUInt64(const Number& n) {
  return IsLarge(n) || n.cls == KindClass::kBool ||
         (n.cls != KindClass::kFloat && n.value.AsInt() >= 0);
}

// The extents of nested lists, and their numbers in order. Depth is bounded by the program's text.
void Unnest(const Nested& list, size_t depth, Extents& dims, std::vector<Number>& numbers) {
  if (!list.is_list) {
    if (depth != dims.size()) Fail("the lists are nested unevenly");
    numbers.push_back(list.number);
    return;
  }
  const auto n = static_cast<int64_t>(list.items.size());
  if (depth == dims.size()) {
    if (!numbers.empty()) Fail("the lists are nested unevenly");
    dims.push_back(n);
  } else if (!dims[depth].is_int(n)) {
    Fail("a list has ", n, " entries where another has ", dims[depth].ToString());
  }
  for (const Nested& item : list.items) Unnest(item, depth + 1, dims, numbers);
}

}  // namespace

Tensor Tensor::From(const Nested& values, std::optional<DType> dtype, Device device, CallSite at) {
  Call call("From", at);
  Extents dims;
  std::vector<Number> numbers;
  Unnest(values, 0, dims, numbers);
  DType type = numbers.empty() ? kFloat32 : kBool;
  for (const Number& n : numbers) type = Promote(type, n.DefaultType());
  // Beside a number that only u64 holds, others that are not negative are no reason for floats.
  if (std::any_of(numbers.begin(), numbers.end(), IsLarge) &&
      std::all_of(numbers.begin(), numbers.end(), FitsUInt64)) {
    type = kUInt64;
  }
  type = dtype.value_or(type);
  std::vector<uint8_t> bytes(numbers.size() * type.bytes());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const tessera::Scalar value = internal::NumberAs(numbers[i], type).arg<tessera::Scalar>();
    StoreScalar(&bytes[i * type.bytes()], type, value);
  }
  return FromBytes(bytes.data(), dims, type, device, at);
}

Tensor Tensor::Arange(const Extent& stop, DType dtype, CallSite at) {
  Call call("Arange", at);
  if (stop.is_int() && stop.value() < 0) Fail("cannot count to ", stop.value());
  // Whoever asks for a narrow dtype wants it to wrap round; the default must not.
  if (stop.is_int() && dtype == kInt32) internal::NumberAs(stop.value() - 1, dtype);
  return Tensor(Counting(stop, dtype));
}

namespace {

// How many numbers lie from `first` on and before `last`; nothing if 64 bits do not hold it.
std::optional<int64_t> StepsOf(double first, double last, double by) {
  const double count = std::max(0.0, std::ceil((last - first) / by));
  if (count >= 9e18) return std::nullopt;
  return static_cast<int64_t>(count);
}
std::optional<int64_t> StepsOf(const Number& first, const Number& last, const Number& by) {
  const auto exact = [](const Number& n) {
    return n.cls == KindClass::kUint ? static_cast<__int128>(n.value.bits)
                                     : static_cast<__int128>(n.value.AsInt());
  };
  const __int128 way = exact(last) - exact(first), step = exact(by);
  const bool more = way % step != 0 && (way < 0) == (step < 0);
  const __int128 count = way / step + (more ? 1 : 0);
  if (count > std::numeric_limits<int64_t>::max()) return std::nullopt;
  return static_cast<int64_t>(std::max<__int128>(0, count));
}

}  // namespace

Tensor Tensor::Arange(Number start, Number stop, Number step, std::optional<DType> dtype,
                      CallSite at) {
  Call call("Arange", at);
  const auto is_float = [](const Number& n) { return n.cls == KindClass::kFloat; };
  const double first = start.AsDouble(), last = stop.AsDouble(), by = step.AsDouble();
  if (by == 0 || !std::isfinite(first) || !std::isfinite(last) || !std::isfinite(by)) {
    Fail("cannot count from ", start.ToString(), " to ", stop.ToString(), " by ", step.ToString());
  }
  const bool floats = is_float(start) || is_float(stop) || is_float(step);
  const DType type = dtype.value_or(
      floats ? kFloat32
             : Promote(start.DefaultType(), Promote(stop.DefaultType(), step.DefaultType())));
  const std::optional<int64_t> count =
      floats ? StepsOf(first, last, by) : StepsOf(start, stop, step);
  if (!count) Fail("the number of elements does not fit in 64 bits");
  // Narrow floats are computed in f32, as a sum of two rounded numbers is not the number rounded.
  Tensor t(Counting(*count, type.IsFloat() ? AccumulateType(type) : type));
  // Numbers after the first wrap round, as sums do, and so may the step: -1 of u8 counts down.
  const bool wraps = type.IsInt() && step.cls == KindClass::kInt &&
                     (step.value.AsInt() < MinInt(type) || step.value.AsInt() > MaxInt(type));
  if (by != 1) t = wraps ? t * Tensor(Wrapped(step, type)) : t * step;
  if (first != 0) t = t + start;
  return Tensor(CastTo(t.uop(), type));
}

Tensor Tensor::Linspace(double start, double stop, int64_t n, DType dtype, CallSite at) {
  Call call("Linspace", at);
  if (n < 0) Fail("cannot make ", n, " elements");
  if (!dtype.IsFloat()) Fail("gives floats, not ", dtype.ToString(), "; cast the result");
  if (n == 1) return Full({1}, start, dtype);
  // From both ends, so that both are exact.
  const Tensor i(Counting(n, AccumulateType(dtype)));
  const double step = (stop - start) / static_cast<double>(n - 1);
  const Tensor up = i * step + start, down = stop - (static_cast<double>(n - 1) - i) * step;
  return Where(i < static_cast<double>(n / 2), up, down).Cast(dtype);
}

Tensor Tensor::Eye(int64_t rows, int64_t columns, DType dtype, CallSite at) {
  Call call("Eye", at);
  if (columns == -1) columns = rows;
  if (rows < 0 || columns < 0) Fail("cannot make ", rows, " rows and ", columns, " columns");
  const DType counted = std::max(rows, columns) <= INT32_MAX ? kInt32 : kInt64;
  return (Arange(rows, counted).Unsqueeze(1) == Arange(columns, counted)).Cast(dtype);
}

Tensor Tensor::EmptyLike(std::optional<DType> dtype, CallSite at) const {
  Call call("EmptyLike", at, *this);
  return Empty(shape(), dtype.value_or(this->dtype()), device(), at);
}

Tensor Tensor::ZerosLike(std::optional<DType> dtype, CallSite at) const {
  Call call("ZerosLike", at, *this);
  return FullLike(0, dtype, at);
}

Tensor Tensor::OnesLike(std::optional<DType> dtype, CallSite at) const {
  Call call("OnesLike", at, *this);
  return FullLike(1, dtype, at);
}

Tensor Tensor::FullLike(Number value, std::optional<DType> dtype, CallSite at) const {
  Call call("FullLike", at, *this);
  // Where the tensor is, which may be inside a per-place program.
  const UOp number = internal::NumberAs(value, dtype.value_or(this->dtype()));
  return Tensor(Filled(number, shape(), device()));
}

namespace {

Tensor TriangleIndices(int64_t rows, int64_t columns, int64_t diagonal, bool lower) {
  constexpr int64_t kMost = int64_t{1} << 28;  // they are listed one by one
  if (rows < 0 || columns < 0) Fail("there is no matrix of ", rows, " by ", columns);
  diagonal = std::clamp(diagonal, -rows, columns);  // beyond, all or nothing is on one side
  // Rows without an element come first, or last.
  const int64_t first = lower ? std::max<int64_t>(0, -diagonal) : 0;
  const int64_t end = columns == 0                         ? 0
                      : lower || diagonal < columns - rows ? rows
                                                           : columns - diagonal;
  const auto span = [&](int64_t i) {
    const int64_t edge =
        std::clamp<int64_t>(i + diagonal, lower ? -1 : 0, columns - (lower ? 1 : 0));
    return lower ? std::pair<int64_t, int64_t>(0, edge + 1) : std::pair(edge, columns);
  };
  int64_t count = 0;
  for (int64_t i = first; i < end; ++i) {
    const auto [from, to] = span(i);
    if (to - from > kMost - count) {
      Fail("a matrix of ", rows, " by ", columns, " has more than ", kMost,
           " such elements; Tri gives a matrix that says where they are");
    }
    count += to - from;
  }
  std::vector<int64_t> row, column;
  row.reserve(2 * count);
  column.reserve(count);
  for (int64_t i = first; i < end; ++i) {
    const auto [from, to] = span(i);
    for (int64_t j = from; j < to; ++j) {
      row.push_back(i);
      column.push_back(j);
    }
  }
  const auto n = static_cast<int64_t>(row.size());
  row.insert(row.end(), column.begin(), column.end());
  return Tensor::From(row, {2, n});
}

// a - b cos(2 pi i / m) + c cos(4 pi i / m), where the weights begin anew after m.
Tensor Cosines(int64_t n, bool periodic, double a, double b, double c, DType dtype) {
  if (n < 0) Fail("cannot have ", n, " points");
  if (!dtype.IsFloat()) Fail("gives floats, not ", dtype.ToString());
  if (n == 1) return Tensor::Ones({1}, dtype);
  const double turn = 2 * std::numbers::pi / static_cast<double>(periodic ? n : n - 1);
  const Tensor angle = Tensor::Arange(n, kFloat64) * turn;
  return (a - angle.Cos() * b + (angle * 2).Cos() * c).Cast(dtype);
}

}  // namespace

Tensor Tensor::TrilIndices(int64_t rows, int64_t columns, int64_t diagonal, CallSite at) {
  Call call("TrilIndices", at);
  return TriangleIndices(rows, columns, diagonal, /*lower=*/true);
}

Tensor Tensor::TriuIndices(int64_t rows, int64_t columns, int64_t diagonal, CallSite at) {
  Call call("TriuIndices", at);
  return TriangleIndices(rows, columns, diagonal, /*lower=*/false);
}

Tensor Tensor::GeomSpace(double start, double stop, int64_t n, DType dtype, CallSite at) {
  Call call("GeomSpace", at);
  if (start == 0 || stop == 0 || (start < 0) != (stop < 0)) {
    Fail("goes from one number to another of its sign, not from ", start, " to ", stop);
  }
  const Tensor steps = Linspace(0, 1, n, kFloat64);
  return ((steps * std::log(stop / start)).Exp() * start).Cast(dtype);
}

Tensor Tensor::HannWindow(int64_t n, bool periodic, DType dtype, CallSite at) {
  Call call("HannWindow", at);
  return Cosines(n, periodic, 0.5, 0.5, 0, dtype);
}

Tensor Tensor::HammingWindow(int64_t n, bool periodic, DType dtype, CallSite at) {
  Call call("HammingWindow", at);
  return Cosines(n, periodic, 0.54, 0.46, 0, dtype);
}

Tensor Tensor::BlackmanWindow(int64_t n, bool periodic, DType dtype, CallSite at) {
  Call call("BlackmanWindow", at);
  return Cosines(n, periodic, 0.42, 0.5, 0.08, dtype);
}

Tensor Tensor::BartlettWindow(int64_t n, bool periodic, DType dtype, CallSite at) {
  Call call("BartlettWindow", at);
  const Tensor ramp = Cosines(n, periodic, 1, 0, 0, dtype);  // checks, and the window of one point
  if (n <= 1) return ramp;
  const double half = static_cast<double>(periodic ? n : n - 1) / 2;
  return (1 - (Arange(n, kFloat64) / half - 1).Abs()).Cast(dtype);
}

}  // namespace tessera
