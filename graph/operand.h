// What the arguments of Tensor's functions convert from: numbers, operands, shapes, axes, indices.
//
// Numbers are weakly typed: beside a tensor they take its dtype (PromoteWeak in graph/dtype.h).
// Those with a CallSite argument record where the caller wrote them, which is how operators, which
// cannot have defaulted arguments, know their place in the user's program.
#pragma once

#include <concepts>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "graph/callsite.h"
#include "graph/uop.h"

namespace tessera {

class Tensor;

// The C++ types whose values are a dtype's: bool, integers of 64 bits at most, float and double. No
// dtype holds a wider type (long double, __int128): convert it first.
template <typename T>
concept HasDType = std::is_arithmetic_v<T> && sizeof(T) <= 8;

// The dtype that holds such a type: f32 for float, i64 for long, bool for bool.
template <HasDType T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, bool>) return kBool;
  if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? kFloat32 : kFloat64;
  constexpr bool s = std::is_signed_v<T>;
  switch (sizeof(T)) {
    case 1:
      return s ? kInt8 : kUInt8;
    case 2:
      return s ? kInt16 : kUInt16;
    case 4:
      return s ? kInt32 : kUInt32;
    default:
      return s ? kInt64 : kUInt64;
  }
}

// A C++ number with its class: bool, signed or unsigned integer, float.
struct Number {
  KindClass cls = KindClass::kInt;
  Scalar value;  // as of bool, i64, u64 or f64
  Number() = default;
  template <typename T>
  requires std::is_arithmetic_v<T> Number(T v) {
    if constexpr (std::is_floating_point_v<T>) {
      cls = KindClass::kFloat;
      value = Scalar::Float(v);
    } else {
      const bool large = std::is_unsigned_v<T> && static_cast<uint64_t>(v) >> 63;
      cls = std::is_same_v<T, bool> ? KindClass::kBool : large ? KindClass::kUint : KindClass::kInt;
      value = Scalar::Int(static_cast<int64_t>(v));
    }
  }
  double AsDouble() const;
  // The dtype of a tensor made of it alone: bool, i32 (i64 or u64 where it does not fit) or f32.
  DType DefaultType() const;
  std::string ToString() const;
};

// An integer known when a computation is launched, between min and max: an extent or a bound of
// slices, Arange and shapes, or a number in an expression. One name has one pair of bounds.
class Variable : public Extent {
 public:
  Variable(const std::string& name, int64_t min, int64_t max, CallSite at = CallSite::Here());
};

// One operand of an elementwise op: a tensor, a number, or an extent (also weak).
class Operand {
 public:
  Operand(const Tensor& t, CallSite at = CallSite::Here()) : tensor_(&t), site_(at) {}
  template <typename T>
  requires std::is_arithmetic_v<T> Operand(T v, CallSite at = CallSite::Here())
      : number_(v), site_(at) {}
  Operand(Number n, CallSite at = CallSite::Here()) : number_(n), site_(at) {}
  Operand(const Extent& e, CallSite at = CallSite::Here()) : extent_(e.expr()), site_(at) {
    if (e.is_int()) number_ = e.value();
  }

  const Tensor* tensor() const { return tensor_; }  // null for a number or extent
  const Number& number() const { return number_; }
  const UOp& extent() const { return extent_; }  // null unless a symbolic extent
  CallSite site() const { return site_; }

 private:
  const Tensor* tensor_ = nullptr;
  Number number_;
  UOp extent_;
  CallSite site_;
};

// A shape: {2, 3}, {n, 4}, a vector of integers, the shape() of a tensor. {} is rank 0.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<Extent> dims) : dims_(dims) {}
  Dims(const Shape& shape) : dims_(shape.ToExtents()) {}
  Dims(Extents dims) : dims_(std::move(dims)) {}
  template <std::integral T>
  Dims(const std::vector<T>& dims) {
    for (T d : dims) dims_.push_back(static_cast<int64_t>(d));
  }
  const Extents& extents() const { return dims_; }
  Extents& extents() { return dims_; }

 private:
  Extents dims_;
};

// Axes of a tensor: 0, {0, -1}, a vector. Negative ones count from the last; none means all.
class Axes {
 public:
  Axes() = default;
  Axes(int axis) : axes_{axis} {}
  Axes(std::initializer_list<int64_t> axes) : axes_(axes) {}
  template <std::integral T>
  Axes(const std::vector<T>& axes) : axes_(axes.begin(), axes.end()) {}
  Axes(const Ints& axes) : axes_(axes) {}
  const Ints& axes() const { return axes_; }

 private:
  Ints axes_;
};

// Part of an axis, as in NumPy: elements begin, begin+step, ... before end. Negative numbers count
// from the end (an expression of variables never does), bounds outside the axis are cut to it, a
// step below 0 runs backwards. Slice{} is all of it.
struct Slice {
  std::optional<Extent> begin = std::nullopt;
  std::optional<Extent> end = std::nullopt;
  int64_t step = 1;
};

// In x[...]: an axis of one that x does not have; and whole axes for all that are not named.
struct NewAxisEntry {};
inline constexpr NewAxisEntry NewAxis;
struct EllipsisEntry {};
inline constexpr EllipsisEntry Ellipsis;

// One entry of x[...]: a position, which drops the axis, a Slice, which keeps it, a tensor of
// positions, which puts its own axes there, or one of the above.
class Index {
 public:
  using Entry = std::variant<Extent, Slice, UOp, NewAxisEntry, EllipsisEntry>;

  template <std::integral T>
  requires(!std::same_as<T, bool>) Index(T position, CallSite at = CallSite::Here())
      : entry_(Extent(std::in_range<int64_t>(position) ? static_cast<int64_t>(position)
                                                       : std::numeric_limits<int64_t>::max())),
        site_(at) {}
  Index(const Extent& position, CallSite at = CallSite::Here()) : entry_(position), site_(at) {}
  Index(const Slice& slice, CallSite at = CallSite::Here()) : entry_(slice), site_(at) {}
  Index(NewAxisEntry entry, CallSite at = CallSite::Here()) : entry_(entry), site_(at) {}
  Index(EllipsisEntry entry, CallSite at = CallSite::Here()) : entry_(entry), site_(at) {}
  template <std::same_as<Tensor> T>
  Index(const T& positions, CallSite at = CallSite::Here())
      : entry_(UOp(positions.uop())), site_(at) {}
  Index(const Index&);
  Index(Index&&) noexcept;
  Index& operator=(const Index&);
  Index& operator=(Index&&) noexcept;
  ~Index();
  const Entry& entry() const { return entry_; }
  CallSite site() const { return site_; }

 private:
  Entry entry_;
  CallSite site_;
};

// Numbers in nested braces, {{1, 2}, {3, 4}}: what Tensor::From makes a tensor of.
struct Nested {
  Number number;
  std::vector<Nested> items;
  bool is_list = true;
  Nested() = default;  // an empty list
  template <typename T>
  requires std::is_arithmetic_v<T> Nested(T v) : number(v), is_list(false) {}
  Nested(std::initializer_list<Nested> list) : items(list) {}
};

}  // namespace tessera
