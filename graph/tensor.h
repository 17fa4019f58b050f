// The user's tensor: creation, arithmetic, movement, reductions, neural-network functions,
// assignment.
//
// A Tensor is an expression. Nothing runs until a value is asked for (Realize, Item, ToVector,
// Data, printing); then everything it needs is fused, compiled and run. Copying a Tensor copies a
// handle: both names are the same tensor.
//
// Assignment. An expression captures the values of its operands when it is written; an Assign later
// does not change it. The results of movement functions (Reshape, Permute, Slice, Flip, ...) are
// such expressions, and views as well: assigning to one writes into the tensor it was made from,
// and into the views it was made through. Unlike in NumPy and PyTorch, a view does not follow its
// tensor: after v = x[0]; x.Assign(0), v still has the old values, and v += 1 writes those plus 1;
// take a view when you need it. What is written through a view renews it, and those between: they
// then show all of the tensor as it has become.
//
// Broadcasting. Shapes are aligned at the last axis; extents of 1 repeat.
//
// Axes. Negative ones count from the last. What looks along an axis (reductions, Softmax, running
// and ordered results, Take, Gather, Scatter, Flip, Squeeze) also takes axes 0 and -1 of a tensor
// of rank 0, which is one element along them, as in PyTorch; what cuts or moves an axis needs one.
//
// Dtypes. Two tensors meet in Promote(a, b); a C++ number takes the dtype of the tensor beside it,
// but makes f32 of integers where it is a float, and i32 of bools where it is an integer. Functions
// that need floats (Exp, Mean, operator/) take integers and bools as f32. Bools: + and * are "or"
// and "and". docs/numerics.md says what numbers give at their edges.
//
// Low precision. Sums, products of matrices, Softmax and norms of f16, bf16 and fp8 are computed in
// f32 and rounded once at the end; those of narrow integers are returned as i32 or u32.
//
// Devices. A tensor made of numbers alone (Full, Zeros, Arange and the like) has no device and
// takes that of what it meets; one made of data, with From, lies on the CPU unless a device is
// given.
//
// Threads. Any number may use tensors of their own, and read one that is realised. Asking a tensor
// for its values where it is not realised yet changes it, as assigning to it does: two threads may
// not do so at once, nor one while others use it. Memory of the caller, or that was given out, is
// read where it lies and written there.
//
// Errors. A mistake throws tessera::Error where it is written; its message starts with the
// function's name and shows the tensors that it was given.
//
// The last argument `at` records the caller's file and line; leave it out.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/device.h"
#include "graph/error.h"
#include "graph/operand.h"
#include "graph/tensor_options.h"
#include "graph/uop.h"

namespace tessera {

struct ConvOptions;
struct ConvTransposeOptions;
struct AttentionOptions;
struct ClassLossOptions;
struct ValuesAndIndices;
struct Normalised;
struct SingularValues;
struct UniqueElements;
namespace internal {
class Trace;  // graph/trace.h
}

class Tensor {
 public:
  Tensor() = default;  // empty: no tensor; where an argument is optional, none
  explicit Tensor(UOp value);
  Tensor(const Tensor&);
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) &;  // the variable becomes a handle to that tensor
  Tensor& operator=(Tensor&&) & noexcept;
  ~Tensor();
  void operator=(const Operand& value) &&;  // x[0] = y writes into x

  // ---- what it is
  const Shape& shape() const { return uop().shape(); }
  DType dtype() const { return uop().dtype(); }
  Device device() const { return uop().device(); }
  int rank() const { return uop().rank(); }
  int64_t size(int axis) const;  // the extent of an axis; an Error where it is symbolic
  int64_t elements() const;      // an Error where it is symbolic
  explicit operator bool() const { return state_ != nullptr; }  // not empty

  // ---- what runs it (runtime/realize.cc): computes the values that are not there yet
  Tensor& Realize(CallSite at = CallSite::Here());
  static void Realize(absl::Span<Tensor> tensors, CallSite at = CallSite::Here());
  double Item(CallSite at = CallSite::Here()) const;  // of one element
  template <typename E>
  E Item(CallSite at = CallSite::Here()) const;
  template <typename E>
  std::vector<E> ToVector(CallSite at = CallSite::Here()) const;  // row-major, converted to E
  // The realised elements themselves, on a CPU; E must be the dtype's own type.
  template <typename E>
  const E* Data(CallSite at = CallSite::Here()) const;
  // A tensor over the caller's memory, which must outlive it or be freed by the deleter; on a
  // Sharding that replicates, each place reads that memory, and nothing may be assigned to it. What
  // is assigned elsewhere is written there. On an Error the memory is still the caller's: the
  // deleter is not called.
  static Tensor FromBlob(void* data, const Dims& shape, DType dtype,
                         std::function<void(void*)> deleter = {}, Device device = {},
                         CallSite at = CallSite::Here());

  // ---- creation. What no data is given for has no device unless one is given.
  static Tensor Empty(const Dims& shape, DType dtype = kFloat32, Device device = {},
                      CallSite at = CallSite::Here());  // storage without contents
  static Tensor Zeros(const Dims& shape, DType dtype = kFloat32, Device device = {},
                      CallSite at = CallSite::Here());  // 0, and 1, everywhere
  static Tensor Ones(const Dims& shape, DType dtype = kFloat32, Device device = {},
                     CallSite at = CallSite::Here());
  // Without a dtype: bool, i32 or f32, as the number is.
  static Tensor Full(const Dims& shape, Number value, std::optional<DType> dtype = {},
                     Device device = {}, CallSite at = CallSite::Here());
  // The same of rank 0; and the value of an extent, of a shape or a Variable.
  static Tensor Scalar(Number value, std::optional<DType> dtype = {}, Device device = {},
                       CallSite at = CallSite::Here());
  static Tensor FromExtent(const Extent& value, DType dtype = kInt32,
                           CallSite at = CallSite::Here());
  // Of numbers in braces, copied: From({{1, 2}, {3, 4}}).
  static Tensor From(const Nested& values, std::optional<DType> dtype = {}, Device device = {},
                     CallSite at = CallSite::Here());
  // Of a vector, copied; a tensor of E's own dtype.
  template <HasDType E>
  static Tensor From(const std::vector<E>& values, CallSite at = CallSite::Here());
  template <HasDType E>
  static Tensor From(const std::vector<E>& values, const Dims& shape, Device device = {},
                     CallSite at = CallSite::Here());
  // Of row-major bytes, copied.
  static Tensor FromBytes(const void* bytes, const Dims& shape, DType dtype, Device device = {},
                          CallSite at = CallSite::Here());
  // 0, 1, ... stop-1. Narrow integers wrap round: docs/numerics.md.
  static Tensor Arange(const Extent& stop, DType dtype = kInt32, CallSite at = CallSite::Here());
  // start, start + step, ... before stop; i32 if all three are integers, else f32.
  static Tensor Arange(Number start, Number stop, Number step = 1, std::optional<DType> dtype = {},
                       CallSite at = CallSite::Here());
  // n points at equal distances from start to stop, both included; of one point, start.
  static Tensor Linspace(double start, double stop, int64_t n, DType dtype = kFloat32,
                         CallSite at = CallSite::Here());
  // Ones on the main diagonal; as many columns as rows if none are given.
  static Tensor Eye(int64_t rows, int64_t columns = -1, DType dtype = kFloat32,
                    CallSite at = CallSite::Here());
  // base to the powers that Linspace gives.
  static Tensor Logspace(double start, double stop, int64_t n, double base = 10,
                         DType dtype = kFloat32, CallSite at = CallSite::Here());
  // Ones on and below a diagonal.
  static Tensor Tri(int64_t rows, int64_t columns = -1, int64_t diagonal = 0,
                    DType dtype = kFloat32, CallSite at = CallSite::Here());
  // Rows and columns, [2, n], of the elements on and below a diagonal, or on and above it, by rows.
  static Tensor TrilIndices(int64_t rows, int64_t columns, int64_t diagonal = 0,
                            CallSite at = CallSite::Here());
  static Tensor TriuIndices(int64_t rows, int64_t columns, int64_t diagonal = 0,
                            CallSite at = CallSite::Here());
  // From start to stop by equal ratios.
  static Tensor GeomSpace(double start, double stop, int64_t n, DType dtype = kFloat32,
                          CallSite at = CallSite::Here());
  // Weights of n points: one period, whose next one follows the last point, or symmetric.
  static Tensor HannWindow(int64_t n, bool periodic = true, DType dtype = kFloat32,
                           CallSite at = CallSite::Here());
  static Tensor HammingWindow(int64_t n, bool periodic = true, DType dtype = kFloat32,
                              CallSite at = CallSite::Here());
  static Tensor BlackmanWindow(int64_t n, bool periodic = true, DType dtype = kFloat32,
                               CallSite at = CallSite::Here());
  static Tensor BartlettWindow(int64_t n, bool periodic = true, DType dtype = kFloat32,
                               CallSite at = CallSite::Here());
  // A row for each element of a vector: its powers from n - 1 (-1: of a square) down to 0, or up.
  Tensor Vander(int64_t n = -1, bool increasing = false, CallSite at = CallSite::Here()) const;
  // Of the same shape, dtype and device; or of another dtype.
  Tensor EmptyLike(std::optional<DType> dtype = {}, CallSite at = CallSite::Here()) const;
  Tensor ZerosLike(std::optional<DType> dtype = {}, CallSite at = CallSite::Here()) const;
  Tensor OnesLike(std::optional<DType> dtype = {}, CallSite at = CallSite::Here()) const;
  Tensor FullLike(Number value, std::optional<DType> dtype = {},
                  CallSite at = CallSite::Here()) const;

  // ---- random numbers. Element i of the process's n-th draw after ManualSeed(seed) is made of
  // the 64 bits THREEFRY(elements drawn before + i, seed): the same for any device, sharding or
  // order of evaluation. Without ManualSeed the seed is 0. Rand has as many random bits as the
  // dtype's mantissa; RandN is made of two halves of 24 bits (f64: 32), and no magnitude is above
  // 5.77 (f64: 6.66).
  static void ManualSeed(uint64_t seed);
  static Tensor Rand(const Dims& shape, DType dtype = kFloat32, Device device = {},
                     CallSite at = CallSite::Here());  // uniform in [0, 1)
  static Tensor Uniform(double low, double high, const Dims& shape, DType dtype = kFloat32,
                        Device device = {}, CallSite at = CallSite::Here());
  static Tensor RandN(const Dims& shape, DType dtype = kFloat32, Device device = {},
                      CallSite at = CallSite::Here());  // normal, mean 0, deviation 1
  static Tensor RandInt(int64_t low, int64_t high, const Dims& shape, DType dtype = kInt32,
                        Device device = {}, CallSite at = CallSite::Here());  // below high
  static Tensor Normal(double mean, double deviation, const Dims& shape, DType dtype = kFloat32,
                       Device device = {}, CallSite at = CallSite::Here());
  static Tensor Exponential(double rate, const Dims& shape, DType dtype = kFloat32,
                            Device device = {}, CallSite at = CallSite::Here());
  static Tensor LogNormal(double mean, double deviation, const Dims& shape, DType dtype = kFloat32,
                          Device device = {}, CallSite at = CallSite::Here());  // e^Normal
  static Tensor Laplace(double mean, double scale, const Dims& shape, DType dtype = kFloat32,
                        Device device = {}, CallSite at = CallSite::Here());
  static Tensor Logistic(double mean, double scale, const Dims& shape, DType dtype = kFloat32,
                         Device device = {}, CallSite at = CallSite::Here());
  static Tensor Gumbel(double mode, double scale, const Dims& shape, DType dtype = kFloat32,
                       Device device = {}, CallSite at = CallSite::Here());  // of maxima
  static Tensor Cauchy(double median, double scale, const Dims& shape, DType dtype = kFloat32,
                       Device device = {}, CallSite at = CallSite::Here());
  // Normal, but none below low or above high, either of which may be infinite.
  static Tensor TruncatedNormal(double mean, double deviation, double low, double high,
                                const Dims& shape, DType dtype = kFloat32, Device device = {},
                                CallSite at = CallSite::Here());
  // How many trials there are up to the first success, from 1, of which each has that probability.
  static Tensor Geometric(double p, const Dims& shape, DType dtype = kInt32, Device device = {},
                          CallSite at = CallSite::Here());
  // Initial weights [out, in, ...] of a layer that keep the variance of what goes through it; a is
  // the slope of the LeakyRelu after it.
  static Tensor GlorotUniform(const Dims& shape, DType dtype = kFloat32, Device device = {},
                              CallSite at = CallSite::Here());
  static Tensor KaimingUniform(const Dims& shape, double a = 0.01, DType dtype = kFloat32,
                               Device device = {}, CallSite at = CallSite::Here());
  static Tensor KaimingNormal(const Dims& shape, double a = 0.01, DType dtype = kFloat32,
                              Device device = {}, CallSite at = CallSite::Here());
  Tensor RandLike(CallSite at = CallSite::Here()) const;
  Tensor RandNLike(CallSite at = CallSite::Here()) const;
  // 0 to n-1 in random order; the rows of an axis in random order.
  static Tensor Permutation(int64_t n, DType dtype = kInt32, CallSite at = CallSite::Here());
  Tensor Shuffle(int axis = 0, CallSite at = CallSite::Here()) const;
  // 1 with the probability of each element, else 0.
  Tensor Bernoulli(CallSite at = CallSite::Here()) const;
  // n positions of the last axis, as i32, drawn in proportion to its weights; none that are 0,
  // negative or NaN. -1 where no weight is left.
  Tensor Multinomial(int64_t n, bool replacement = true, CallSite at = CallSite::Here()) const;
  // A position of an axis, as i32, drawn with the probabilities that Softmax makes of these logits;
  // -1 where all are -inf.
  Tensor Categorical(int axis = -1, CallSite at = CallSite::Here()) const;
  // n positions of an axis drawn alike, or in proportion to the weights of its positions: what lies
  // there, 0 where no weight is left.
  Tensor Choice(int64_t n, bool replacement = true, const Tensor& weights = {}, int axis = 0,
                CallSite at = CallSite::Here()) const;
  // A number for each element, which is a parameter of the distribution, in its float dtype. NaN
  // outside the parameter's domain. Constants to derivatives. Numbers are proposed, and the first
  // that is accepted is drawn; where none of so many is, with a probability below 1e-7, one near
  // the middle.
  Tensor RandGamma(CallSite at = CallSite::Here()) const;  // of shape this and scale 1; this > 0
  Tensor RandBeta(const Operand& b) const;                 // of shapes this and b, both above 0
  // Rows of the last axis that add up to 1, of concentrations above 0.
  Tensor RandDirichlet(CallSite at = CallSite::Here()) const;
  Tensor RandPoisson(CallSite at = CallSite::Here()) const;  // of this rate, from 0 on
  // How many of so many trials, a whole number, succeed, each with probability p from 0 to 1.
  Tensor RandBinomial(const Operand& p) const;
  // Each element 0 with probability p, else divided by 1 - p.
  Tensor Dropout(double p = 0.5, CallSite at = CallSite::Here()) const;
  // The same for whole channels: elements that share their first two positions go together.
  Tensor DropoutChannels(double p = 0.5, CallSite at = CallSite::Here()) const;
  // Softmax of (x + Gumbel noise) / tau; hard: 1 at its largest element and 0 elsewhere, with the
  // derivative of the soft one.
  Tensor GumbelSoftmax(double tau = 1, bool hard = false, int axis = -1,
                       CallSite at = CallSite::Here()) const;

  // ---- operators: / divides integers as f32, % is Mod, & | ^ ~ are bitwise, the comparisons give
  // bool, and NaN is unequal to all
  friend Tensor operator+(const Operand& a, const Operand& b);
  friend Tensor operator-(const Operand& a, const Operand& b);
  friend Tensor operator*(const Operand& a, const Operand& b);
  friend Tensor operator/(const Operand& a, const Operand& b);
  friend Tensor operator%(const Operand& a, const Operand& b);
  friend Tensor operator&(const Operand& a, const Operand& b);
  friend Tensor operator|(const Operand& a, const Operand& b);
  friend Tensor operator^(const Operand& a, const Operand& b);
  friend Tensor operator<<(const Operand& a, const Operand& b);
  friend Tensor operator>>(const Operand& a, const Operand& b);
  friend Tensor operator==(const Operand& a, const Operand& b);
  friend Tensor operator!=(const Operand& a, const Operand& b);
  friend Tensor operator<(const Operand& a, const Operand& b);
  friend Tensor operator<=(const Operand& a, const Operand& b);
  friend Tensor operator>(const Operand& a, const Operand& b);
  friend Tensor operator>=(const Operand& a, const Operand& b);
  friend Tensor operator-(const Operand& a);
  friend Tensor operator~(const Operand& a);

  // x += y is x.Assign(x + y): it writes into the tensor, or into the one that x is a view of. An
  // expression, which has nothing to write into yet, becomes x + y, and gradients go on through it.
  // Of what no variable holds only views are written into: x[0] += y; all else is an Error.
  Tensor& operator+=(const Operand& b) &;
  Tensor& operator+=(const Operand& b) &&;
  Tensor& operator-=(const Operand& b) &;
  Tensor& operator-=(const Operand& b) &&;
  Tensor& operator*=(const Operand& b) &;
  Tensor& operator*=(const Operand& b) &&;
  Tensor& operator/=(const Operand& b) &;
  Tensor& operator/=(const Operand& b) &&;
  Tensor& operator%=(const Operand& b) &;
  Tensor& operator%=(const Operand& b) &&;
  Tensor& operator&=(const Operand& b) &;
  Tensor& operator&=(const Operand& b) &&;
  Tensor& operator|=(const Operand& b) &;
  Tensor& operator|=(const Operand& b) &&;
  Tensor& operator^=(const Operand& b) &;
  Tensor& operator^=(const Operand& b) &&;
  Tensor& operator<<=(const Operand& b) &;
  Tensor& operator<<=(const Operand& b) &&;
  Tensor& operator>>=(const Operand& b) &;
  Tensor& operator>>=(const Operand& b) &&;

  // ---- two operands, in the dtype in which they meet; integers wrap
  Tensor Add(const Operand& b) const;       // of bools "or"
  Tensor Sub(const Operand& b) const;       // no bools
  Tensor Mul(const Operand& b) const;       // of bools "and"
  Tensor Div(const Operand& b) const;       // integers are divided as f32
  Tensor FloorDiv(const Operand& b) const;  // rounds down; of integers by 0 it is 0
  Tensor TruncDiv(const Operand& b) const;  // rounds toward 0; of integers by 0 it is 0
  Tensor Mod(const Operand& b) const;   // the sign of b, as % in Python; x mod 0 of integers is 0
  Tensor Fmod(const Operand& b) const;  // the sign of this, as % in C++
  Tensor Pow(const Operand& b) const;   // of integers an integer, truncated where b is negative
  Tensor Maximum(const Operand& b) const;  // NaN wins
  Tensor Minimum(const Operand& b) const;  // NaN wins
  Tensor BitAnd(const Operand& b) const;   // no floats, in all three
  Tensor BitOr(const Operand& b) const;
  Tensor BitXor(const Operand& b) const;
  Tensor Shl(const Operand& b) const;  // 0 where the count is negative or not below the width
  Tensor Shr(const Operand& b) const;  // arithmetic for signed; such counts give 0 or -1
  Tensor LogicalAnd(const Operand& b) const;  // bools; what is not 0 is true, as is NaN
  Tensor LogicalOr(const Operand& b) const;
  Tensor LogicalXor(const Operand& b) const;
  Tensor Lerp(const Operand& end, const Operand& weight) const;  // this + (end - this) * weight
  // Floats from here to LogAddExp, and XLogY; integers as f32.
  Tensor Atan2(const Operand& x) const;      // the angle of the point (x, this), from -pi to pi
  Tensor Hypot(const Operand& b) const;      // sqrt(this^2 + b^2), not overflowing between
  Tensor LogAddExp(const Operand& b) const;  // log(e^this + e^b), not overflowing between
  Tensor CopySign(const Operand& b) const;   // the magnitude of this, the sign of b
  Tensor Heaviside(const Operand& b) const;  // 0 below 0, 1 above, b at 0
  Tensor XLogY(const Operand& b) const;      // this * log(b), 0 where this is 0
  Tensor Remainder(const Operand& b) const;  // Mod
  Tensor XLog1pY(const Operand& b) const;    // this * log(1 + b), 0 where this is 0
  Tensor BetaLn(const Operand& b) const;     // ln of gamma(a) gamma(b) / gamma(a + b); a, b > 0
  // The share of the integral of t^(a - 1) e^-t, a being this, that lies up to x, and beyond it;
  // a, x >= 0. Errors are about 1e-13 of a share, or 1e-15 where that is more.
  Tensor GammaInc(const Operand& x) const;
  Tensor GammaIncC(const Operand& x) const;
  Tensor Zeta(const Operand& q) const;  // the sum over k >= 0 of (k + q)^-this; this >= 1, q > 0
  Tensor LogAddExp2(const Operand& b) const;  // log2(2^this + 2^b)
  Tensor FMax(const Operand& b) const;        // Maximum and Minimum, but a number wins over NaN
  Tensor FMin(const Operand& b) const;
  Tensor Gcd(const Operand& b) const;        // of magnitudes; with 0 the other one
  Tensor Lcm(const Operand& b) const;        // with 0 it is 0
  Tensor LdExp(const Operand& b) const;      // this * 2^b
  Tensor NextAfter(const Operand& b) const;  // the next number towards b
  // this + value * a * b, and this + value * a / b.
  Tensor AddCMul(const Operand& a, const Operand& b, double value = 1) const;
  Tensor AddCDiv(const Operand& a, const Operand& b, double value = 1) const;
  Tensor Clamp(const Operand& low, const Operand& high) const;        // between tensors; high wins
  Tensor MaskedFill(const Tensor& mask, const Operand& value) const;  // where the mask holds
  Tensor IsClose(const Operand& b, double rtol = 1e-5, double atol = 1e-8,
                 bool equal_nan = false) const;  // |this - b| <= atol + rtol |b|
  Tensor AllClose(const Operand& b, double rtol = 1e-5, double atol = 1e-8,
                  bool equal_nan = false) const;  // one bool

  // ---- one operand, in its own dtype
  Tensor Neg(CallSite at = CallSite::Here()) const;     // integers wrap; no bools
  Tensor Abs(CallSite at = CallSite::Here()) const;     // the lowest signed integer stays itself
  Tensor Sign(CallSite at = CallSite::Here()) const;    // zeros and NaN give themselves
  Tensor Square(CallSite at = CallSite::Here()) const;  // x.Mul(x)
  Tensor Frac(CallSite at = CallSite::Here()) const;    // x - Trunc(x); no bools
  Tensor Floor(CallSite at = CallSite::Here()) const;   // integers stay as they are, in all four
  Tensor Ceil(CallSite at = CallSite::Here()) const;
  Tensor Trunc(CallSite at = CallSite::Here()) const;
  Tensor Round(CallSite at = CallSite::Here()) const;                  // ties to even
  Tensor RoundTo(int decimals, CallSite at = CallSite::Here()) const;  // ties of x 10^d to even
  Tensor BitNot(CallSite at = CallSite::Here()) const;                 // no floats; of bools "not"
  Tensor Detach(CallSite at = CallSite::Here()) const;                 // a constant to derivatives
  // This, with the derivative of another of its shape and dtype, which is computed only for that:
  // a function's own derivative, or that of what it rounds (straight through). If the other has
  // this in it as Detach of it, derivatives of that derivative take the result for it.
  Tensor WithDerivativeOf(const Tensor& other, CallSite at = CallSite::Here()) const;
  // NaN becomes `nan`, infinities those numbers, or the dtype's largest finite ones.
  Tensor NanToNum(Number nan = 0.0, std::optional<Number> positive = {},
                  std::optional<Number> negative = {}, CallSite at = CallSite::Here()) const;
  // No less than low and no more than high, which are of this dtype; high wins, NaN stays.
  Tensor Clip(std::optional<Number> low, std::optional<Number> high,
              CallSite at = CallSite::Here()) const;
  Tensor Cast(DType dtype, CallSite at = CallSite::Here()) const;  // see Convert in dtype.h
  // The same bits. Where the widths differ, the last axis has so many times more or fewer elements,
  // as memory has them: the lowest bits come first.
  Tensor Bitcast(DType dtype, CallSite at = CallSite::Here()) const;

  // ---- one operand, as floats; integers and bools as f32. NaN gives NaN, and so does what lies
  // outside a function's domain, which is stated where it is not every number.
  Tensor Reciprocal(CallSite at = CallSite::Here()) const;  // zeros give infinities of their sign
  Tensor Sqrt(CallSite at = CallSite::Here()) const;        // x >= 0
  Tensor Rsqrt(CallSite at = CallSite::Here()) const;       // x >= 0; infinite at 0
  Tensor Cbrt(CallSite at = CallSite::Here()) const;        // with the sign of x
  Tensor Exp(CallSite at = CallSite::Here()) const;         // infinite where too large
  Tensor Exp2(CallSite at = CallSite::Here()) const;
  Tensor Expm1(CallSite at = CallSite::Here()) const;  // e^x - 1, all digits near 0
  Tensor Log(CallSite at = CallSite::Here()) const;    // x >= 0; Log, Log2 and Log10 are -inf at 0
  Tensor Log2(CallSite at = CallSite::Here()) const;
  Tensor Log10(CallSite at = CallSite::Here()) const;
  Tensor Log1p(CallSite at = CallSite::Here()) const;  // log(1 + x), all digits near 0; x >= -1
  Tensor Sin(CallSite at = CallSite::Here()) const;    // radians; NaN of infinities, as Cos and Tan
  Tensor Cos(CallSite at = CallSite::Here()) const;
  Tensor Tan(CallSite at = CallSite::Here()) const;
  Tensor Asin(CallSite at = CallSite::Here()) const;  // -1 <= x <= 1, Acos as well
  Tensor Acos(CallSite at = CallSite::Here()) const;
  Tensor Atan(CallSite at = CallSite::Here()) const;
  Tensor Sinh(CallSite at = CallSite::Here()) const;
  Tensor Cosh(CallSite at = CallSite::Here()) const;
  Tensor Tanh(CallSite at = CallSite::Here()) const;
  Tensor Asinh(CallSite at = CallSite::Here()) const;
  Tensor Acosh(CallSite at = CallSite::Here()) const;    // x >= 1
  Tensor Atanh(CallSite at = CallSite::Here()) const;    // -1 <= x <= 1, infinite at both ends
  Tensor Sinc(CallSite at = CallSite::Here()) const;     // sin(pi x) / (pi x), 1 at 0
  Tensor Erf(CallSite at = CallSite::Here()) const;      // 2/sqrt(pi) integral of e^(-t^2), 0 to x
  Tensor Erfc(CallSite at = CallSite::Here()) const;     // 1 - Erf, with all digits
  Tensor ErfInv(CallSite at = CallSite::Here()) const;   // -1 <= x <= 1, infinite at both ends
  Tensor Lgamma(CallSite at = CallSite::Here()) const;   // ln |gamma(x)|
  Tensor Digamma(CallSite at = CallSite::Here()) const;  // the derivative of ln gamma(x)
  Tensor Polygamma(int n, CallSite at = CallSite::Here()) const;  // that of Digamma, the n-th
  // ln of the gamma function of p x p matrices; x > (p - 1) / 2.
  Tensor MvLgamma(int p, CallSite at = CallSite::Here()) const;
  Tensor Erfcx(CallSite at = CallSite::Here()) const;  // e^(x^2) Erfc(x), all digits for large x
  // The share of the normal distribution up to x, its logarithm, with all digits, and the x of such
  // a share; 0 <= share <= 1, infinite at both ends.
  Tensor Ndtr(CallSite at = CallSite::Here()) const;
  Tensor LogNdtr(CallSite at = CallSite::Here()) const;
  Tensor Ndtri(CallSite at = CallSite::Here()) const;
  // Modified Bessel functions of the first kind, of order 0 and 1; and those times e^-|x|.
  Tensor BesselI0(CallSite at = CallSite::Here()) const;
  Tensor BesselI1(CallSite at = CallSite::Here()) const;
  Tensor BesselI0e(CallSite at = CallSite::Here()) const;
  Tensor BesselI1e(CallSite at = CallSite::Here()) const;
  Tensor Entr(CallSite at = CallSite::Here()) const;  // -x ln(x), 0 at 0, -inf below
  Tensor Deg2Rad(CallSite at = CallSite::Here()) const;
  Tensor Rad2Deg(CallSite at = CallSite::Here()) const;
  // x = fraction 2^n as (fraction, of magnitude in [0.5, 1), n, as i32); zeros, infinities and NaN
  // give themselves and 0.
  std::pair<Tensor, Tensor> FrExp(CallSite at = CallSite::Here()) const;

  // ---- what an element is: bools
  Tensor LogicalNot(CallSite at = CallSite::Here()) const;  // whether it is 0
  Tensor IsNan(CallSite at = CallSite::Here()) const;       // false for integers, as is IsInf
  Tensor IsInf(CallSite at = CallSite::Here()) const;       // of either sign
  Tensor IsFinite(CallSite at = CallSite::Here()) const;    // true for integers
  Tensor IsPosInf(CallSite at = CallSite::Here()) const;
  Tensor IsNegInf(CallSite at = CallSite::Here()) const;
  Tensor SignBit(CallSite at = CallSite::Here()) const;   // true for -0.0; of NaN its sign bit
  Tensor PopCount(CallSite at = CallSite::Here()) const;  // how many bits are 1, as i32; no floats

  // ---- activations, as floats; integers and bools as f32, except Relu, Relu6 and Prelu, which
  // keep integers (Relu6 makes i32 of bools). NaN stays NaN.
  Tensor Relu(CallSite at = CallSite::Here()) const;                            // 0 below 0
  Tensor Relu6(CallSite at = CallSite::Here()) const;                           // and 6 above 6
  Tensor LeakyRelu(double slope = 0.01, CallSite at = CallSite::Here()) const;  // slope x below 0
  Tensor Elu(double alpha = 1, CallSite at = CallSite::Here()) const;  // alpha (e^x - 1) below 0
  Tensor Sigmoid(CallSite at = CallSite::Here()) const;                // 1 / (1 + e^-x)
  Tensor LogSigmoid(CallSite at = CallSite::Here()) const;             // its logarithm
  Tensor HardSigmoid(double alpha = 1.0 / 6, double beta = 0.5,
                     CallSite at = CallSite::Here()) const;  // alpha x + beta, in [0, 1]
  Tensor HardSwish(CallSite at = CallSite::Here()) const;    // x HardSigmoid(x)
  Tensor Silu(CallSite at = CallSite::Here()) const;         // x Sigmoid(x)
  Tensor Softplus(CallSite at = CallSite::Here()) const;     // log(1 + e^x) without overflow
  // log(1 + e^(beta x)) / beta; x where beta x is above the threshold.
  Tensor Softplus(double beta, double threshold = 20, CallSite at = CallSite::Here()) const;
  Tensor Mish(CallSite at = CallSite::Here()) const;       // x Tanh(Softplus(x))
  Tensor Gelu(CallSite at = CallSite::Here()) const;       // by Erf
  Tensor GeluTanh(CallSite at = CallSite::Here()) const;   // the usual approximation
  Tensor QuickGelu(CallSite at = CallSite::Here()) const;  // x Sigmoid(1.702 x)
  // alpha (e^(x / alpha) - 1) below 0; and gamma times Elu.
  Tensor Celu(double alpha = 1, CallSite at = CallSite::Here()) const;
  Tensor Selu(double alpha = 1.6732632423543772, double gamma = 1.0507009873554805,
              CallSite at = CallSite::Here()) const;
  Tensor Swish(double beta = 1, CallSite at = CallSite::Here()) const;  // x Sigmoid(beta x)
  Tensor Softsign(CallSite at = CallSite::Here()) const;                // x / (1 + |x|)
  // 0 from -lambda to lambda; elsewhere x, which Softshrink moves towards 0 by lambda.
  Tensor Softshrink(double lambda = 0.5, CallSite at = CallSite::Here()) const;
  Tensor Hardshrink(double lambda = 0.5, CallSite at = CallSite::Here()) const;
  Tensor Tanhshrink(CallSite at = CallSite::Here()) const;  // x - Tanh(x)
  // No less than low and no more than high, with derivative 0 at both.
  Tensor Hardtanh(double low = -1, double high = 1, CallSite at = CallSite::Here()) const;
  Tensor ThresholdedRelu(double alpha = 1, CallSite at = CallSite::Here()) const;  // 0 up to alpha
  // slope x below 0; the slope broadcasts to this.
  Tensor Prelu(const Tensor& slope, CallSite at = CallSite::Here()) const;
  Tensor Glu(int axis = -1, CallSite at = CallSite::Here()) const;  // a Sigmoid(b), of halves a, b
  // 1 at the first maximum of the axis, else 0; in this dtype.
  Tensor Hardmax(int axis = -1, CallSite at = CallSite::Here()) const;
  Tensor Softmin(int axis = -1, CallSite at = CallSite::Here()) const;  // Softmax of -x
  // `value` up to the threshold, x above it.
  Tensor Threshold(double threshold, double value, CallSite at = CallSite::Here()) const;
  // Each negative element times a slope of its own, Uniform from low to high.
  Tensor RRelu(double low = 1.0 / 8, double high = 1.0 / 3, CallSite at = CallSite::Here()) const;
  // log(x / (1 - x)), 0 <= x <= 1; with eps, of x kept that far from 0 and 1.
  Tensor Logit(std::optional<double> eps = {}, CallSite at = CallSite::Here()) const;

  // ---- movement; the results are views
  Tensor Reshape(const Dims& shape, CallSite at = CallSite::Here()) const;  // one extent may be -1
  Tensor View(const Dims& shape, CallSite at = CallSite::Here()) const;     // Reshape
  // Axes first to last joined, rank 0 as [1]; and one axis as several, one of which may be -1.
  Tensor Flatten(int first = 0, int last = -1, CallSite at = CallSite::Here()) const;
  Tensor Unflatten(int axis, const Dims& shape, CallSite at = CallSite::Here()) const;
  // With another axis of extent 1 there, or after the last; without such axes.
  Tensor Unsqueeze(int axis, CallSite at = CallSite::Here()) const;
  Tensor Squeeze(CallSite at = CallSite::Here()) const;  // every axis of extent 1
  Tensor Squeeze(const Axes& axes, CallSite at = CallSite::Here()) const;
  // Axis i is what axis order[i] was; two axes exchanged.
  Tensor Permute(const Axes& order, CallSite at = CallSite::Here()) const;
  Tensor Transpose(int a = -2, int b = -1, CallSite at = CallSite::Here()) const;
  Tensor T(CallSite at = CallSite::Here()) const;  // all axes reversed
  // To exactly this shape; -1 keeps an extent.
  Tensor Expand(const Dims& shape, CallSite at = CallSite::Here()) const;
  Tensor BroadcastTo(const Dims& shape, CallSite at = CallSite::Here()) const;  // Expand
  // A pair (before, after) for each axis.
  Tensor Pad(const Pairs& pairs, Number value = 0, CallSite at = CallSite::Here()) const;
  // A pair (begin, end) for each axis, within it.
  Tensor Shrink(const Pairs& pairs, CallSite at = CallSite::Here()) const;
  // Filled by the mode, mirrored or wrapped around as often as needed; negative numbers remove
  // elements, before any are added.
  Tensor PadBy(PadMode mode, const Pairs& pairs, Number value = 0,
               CallSite at = CallSite::Here()) const;
  // One Slice an axis, from the first; axes beyond the list stay whole.
  Tensor Slice(const std::vector<tessera::Slice>& slices, CallSite at = CallSite::Here()) const;
  Tensor SliceAxis(int axis, const tessera::Slice& slice, CallSite at = CallSite::Here()) const;
  // x[2], x[Slice{1, 3}], x[{2, Slice{1, 3}}], x[{Ellipsis, NewAxis, rows}]. Tensors of positions
  // broadcast together: their axes stand where the first of them is, or, where others come between
  // them, before all. Positions that are numbers are taken first; all may count from the end.
  Tensor operator[](const Index& index) const;
  Tensor operator[](std::initializer_list<Index> indices) const;
  // One position of an axis, without that axis; negative ones count from the end, outside is an
  // Error.
  Tensor Select(int axis, const Extent& position, CallSite at = CallSite::Here()) const;
  Tensor Flip(const Axes& axes, CallSite at = CallSite::Here()) const;  // backwards along each
  // Each windowed axis becomes positions (every stride-th), and an axis of `size` elements,
  // `dilation` apart, is appended for each.
  Tensor Window(const Axes& axes, const Ints& size, const Ints& stride = {},
                const Ints& dilation = {}, CallSite at = CallSite::Here()) const;

  // Windows of one axis, every step-th; their elements are a last axis.
  Tensor Unfold(int axis, int64_t size, int64_t step = 1, CallSite at = CallSite::Here()) const;
  // Each axis of `from` moved to its place in `to`; the others keep their order.
  Tensor MoveAxis(const Axes& from, const Axes& to, CallSite at = CallSite::Here()) const;
  Tensor SwapAxes(int a, int b, CallSite at = CallSite::Here()) const;  // Transpose
  // `length` positions of an axis from start.
  Tensor Narrow(int axis, const Extent& start, const Extent& length,
                CallSite at = CallSite::Here()) const;
  Tensor ExpandAs(const Tensor& other, CallSite at = CallSite::Here()) const;  // to its shape
  Tensor FlipLr(CallSite at = CallSite::Here()) const;                         // along axis 1
  Tensor FlipUd(CallSite at = CallSite::Here()) const;                         // along axis 0
  // Every position of an axis, each without that axis.
  std::vector<Tensor> Unbind(int axis = 0, CallSite at = CallSite::Here()) const;
  Tensor AtLeast(int rank, CallSite at = CallSite::Here()) const;  // with axes of extent 1 before
  // By k quarter turns from axis a towards axis b.
  Tensor Rot90(int64_t k = 1, int a = 0, int b = 1, CallSite at = CallSite::Here()) const;
  // Elements [i, i + offset] of two axes, as a last axis.
  Tensor Diagonal(int64_t offset = 0, int a = 0, int b = 1, CallSite at = CallSite::Here()) const;

  // ---- movement; the results are tensors of their own
  Tensor Repeat(const Ints& counts, CallSite at = CallSite::Here()) const;  // the whole, per axis
  // Each element of an axis `count` times; elements moved on, those past the end to the beginning.
  // Without an axis of all elements in order: a vector of them, or this shape again.
  Tensor RepeatInterleave(int64_t count, CallSite at = CallSite::Here()) const;
  Tensor RepeatInterleave(int64_t count, int axis, CallSite at = CallSite::Here()) const;
  Tensor Roll(int64_t shift, CallSite at = CallSite::Here()) const;
  Tensor Roll(int64_t shift, int axis, CallSite at = CallSite::Here()) const;
  Tensor Roll(const Ints& shifts, const Axes& axes, CallSite at = CallSite::Here()) const;
  // Matrices with 0 above a diagonal, and below it; positive ones lie above the main one.
  Tensor Tril(int64_t diagonal = 0, CallSite at = CallSite::Here()) const;
  Tensor Triu(int64_t diagonal = 0, CallSite at = CallSite::Here()) const;
  // Repeat, which may be given fewer counts than there are axes.
  Tensor Tile(const Ints& counts, CallSite at = CallSite::Here()) const;
  // The last axis as a diagonal of matrices; and DiagEmbed of a vector, or Diagonal of a matrix.
  Tensor DiagEmbed(int64_t offset = 0, CallSite at = CallSite::Here()) const;
  Tensor Diag(int64_t offset = 0, CallSite at = CallSite::Here()) const;
  // [.., C r r, H, W] as [.., C, H r, W r], and back.
  Tensor PixelShuffle(int64_t r, CallSite at = CallSite::Here()) const;
  Tensor PixelUnshuffle(int64_t r, CallSite at = CallSite::Here()) const;
  // [N, groups c, ...] with the channels (axis 1) dealt out over the groups.
  Tensor ChannelShuffle(int64_t groups, CallSite at = CallSite::Here()) const;
  // With a part replaced: what Select or SliceAxis would read, or the main diagonal of matrices.
  Tensor SelectScatter(const Tensor& src, int axis, int64_t position,
                       CallSite at = CallSite::Here()) const;
  Tensor SliceScatter(const Tensor& src, int axis, const tessera::Slice& slice,
                      CallSite at = CallSite::Here()) const;
  Tensor FillDiagonal(Number value, CallSite at = CallSite::Here()) const;
  // Pieces between the positions; negative ones count from the end.
  std::vector<Tensor> TensorSplit(const std::vector<int64_t>& positions, int axis = 0,
                                  CallSite at = CallSite::Here()) const;
  // Pieces of `size`, the last perhaps smaller; of the given sizes; of the extent over n, rounded
  // up, perhaps fewer than n (of a symbolic axis always n, the last perhaps empty); and n pieces as
  // even as can be, as NumPy's array_split makes them.
  std::vector<Tensor> Split(int64_t size, int axis = 0, CallSite at = CallSite::Here()) const;
  std::vector<Tensor> Split(const std::vector<int64_t>& sizes, int axis = 0,
                            CallSite at = CallSite::Here()) const;
  std::vector<Tensor> Chunk(int64_t n, int axis = 0, CallSite at = CallSite::Here()) const;
  std::vector<Tensor> ArraySplit(int64_t n, int axis = 0, CallSite at = CallSite::Here()) const;

  // ---- reductions over axes (none: all), which are removed, or keep extent 1 if keepdim
  // Of no elements 0, 1 and NaN. Bools and narrow integers give i32 or u32, which wrap; Mean gives
  // floats.
  Tensor Sum(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  Tensor Prod(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  Tensor Mean(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  // NaN wins; of no elements an Error.
  Tensor Max(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  Tensor Min(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  // Whether one is, or all are, not 0 (NaN is not). Of no elements false, and true.
  Tensor Any(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  Tensor All(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  // The sum of squared distances from the mean over the count less `correction`, NaN or infinite
  // where that is not above 0; and its square root. Floats.
  Tensor Var(const Axes& axes = {}, int correction = 1, bool keepdim = false,
             CallSite at = CallSite::Here()) const;
  Tensor Std(const Axes& axes = {}, int correction = 1, bool keepdim = false,
             CallSite at = CallSite::Here()) const;
  std::pair<Tensor, Tensor> VarMean(const Axes& axes = {}, int correction = 1, bool keepdim = false,
                                    CallSite at = CallSite::Here()) const;
  // (sum |x|^p)^(1/p); p may be 0 (how many are not 0), or an infinity of either sign.
  Tensor Norm(double p = 2, const Axes& axes = {}, bool keepdim = false,
              CallSite at = CallSite::Here()) const;
  Tensor CountNonzero(const Axes& axes = {}, bool keepdim = false,
                      CallSite at = CallSite::Here()) const;  // i32
  // Ignoring NaNs. NanMax and NanMin of nothing but NaNs are NaN.
  Tensor NanSum(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  Tensor NanMean(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  Tensor NanMax(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  Tensor NanMin(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  Tensor NanProd(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  Tensor NanVar(const Axes& axes = {}, int correction = 1, bool keepdim = false,
                CallSite at = CallSite::Here()) const;
  Tensor NanStd(const Axes& axes = {}, int correction = 1, bool keepdim = false,
                CallSite at = CallSite::Here()) const;
  // Max minus Min.
  Tensor Ptp(const Axes& axes = {}, bool keepdim = false, CallSite at = CallSite::Here()) const;
  // The weighted mean; the weights broadcast to this, or are a vector along the one axis.
  Tensor Average(const Tensor& weights, const Axes& axes = {}, bool keepdim = false,
                 CallSite at = CallSite::Here()) const;
  // The extreme of an axis and its first position.
  ValuesAndIndices MaxWithIndices(int axis, bool keepdim = false,
                                  CallSite at = CallSite::Here()) const;
  ValuesAndIndices MinWithIndices(int axis, bool keepdim = false,
                                  CallSite at = CallSite::Here()) const;
  Tensor Dist(const Tensor& b, double p = 2, CallSite at = CallSite::Here()) const;  // Norm(this-b)
  // The logarithm of the sum of e^x, not overflowing between; of no elements -inf.
  Tensor LogSumExp(const Axes& axes = {}, bool keepdim = false,
                   CallSite at = CallSite::Here()) const;
  // e^x over its sum along an axis, and the logarithm of that. A row of nothing but -inf has no
  // maximum to subtract: it is NaN throughout.
  Tensor Softmax(int axis = -1, CallSite at = CallSite::Here()) const;
  Tensor LogSoftmax(int axis = -1, CallSite at = CallSite::Here()) const;
  // The first position of the extreme, as i32; NaN counts as the extreme. Without an axis, of all
  // elements in order.
  Tensor ArgMax(std::optional<int> axis = {}, bool keepdim = false,
                CallSite at = CallSite::Here()) const;
  Tensor ArgMin(std::optional<int> axis = {}, bool keepdim = false,
                CallSite at = CallSite::Here()) const;
  // The same, ignoring NaNs; -1 of nothing but NaNs.
  Tensor NanArgMax(std::optional<int> axis = {}, bool keepdim = false,
                   CallSite at = CallSite::Here()) const;
  Tensor NanArgMin(std::optional<int> axis = {}, bool keepdim = false,
                   CallSite at = CallSite::Here()) const;

  // ---- running along an axis, from its beginning
  // Everything so far, in the dtype that Sum and Prod have.
  Tensor CumSum(int axis, CallSite at = CallSite::Here()) const;
  Tensor CumSum(int axis, const ScanOptions& options, CallSite at = CallSite::Here()) const;
  Tensor CumProd(int axis, const ScanOptions& options = {}, CallSite at = CallSite::Here()) const;
  // With the last position so far that holds the extreme, as i32; NaN wins. An extreme has the
  // derivative of the element there.
  ValuesAndIndices CumMax(int axis, CallSite at = CallSite::Here()) const;
  ValuesAndIndices CumMin(int axis, CallSite at = CallSite::Here()) const;
  Tensor LogCumSumExp(int axis, CallSite at = CallSite::Here()) const;  // LogSumExp so far
  // Each element less the one before it, n times over.
  Tensor Diff(int n = 1, int axis = -1, CallSite at = CallSite::Here()) const;
  // Areas under lines between samples dx apart: all of it, and up to each sample but the first.
  Tensor Trapezoid(double dx = 1, int axis = -1, CallSite at = CallSite::Here()) const;
  Tensor CumTrapezoid(double dx = 1, int axis = -1, CallSite at = CallSite::Here()) const;
  // The slope at samples dx apart, between both neighbours; at an edge, to the one there is.
  Tensor Gradient(double dx = 1, int axis = -1, CallSite at = CallSite::Here()) const;

  // ---- in order. Equal elements keep the order they have, -0 and 0 are equal, and NaN is above
  // all. Positions are i32, or i64 where those do not fit.
  ValuesAndIndices Sort(int axis = -1, bool descending = false,
                        CallSite at = CallSite::Here()) const;
  Tensor ArgSort(int axis = -1, bool descending = false, CallSite at = CallSite::Here()) const;
  // The k largest or smallest, in order.
  ValuesAndIndices TopK(int64_t k, int axis = -1, bool largest = true,
                        CallSite at = CallSite::Here()) const;
  // The k-th smallest, from 1.
  ValuesAndIndices KthValue(int64_t k, int axis = -1, bool keepdim = false,
                            CallSite at = CallSite::Here()) const;
  // The middle one, of an even number the lower; NaN where there is one.
  ValuesAndIndices Median(int axis = -1, bool keepdim = false,
                          CallSite at = CallSite::Here()) const;
  // At position q (n - 1) of the n sorted elements, between two of them as the method says; NaN
  // where there is one.
  Tensor Quantile(double q, std::optional<int> axis = {}, bool keepdim = false,
                  QuantileMethod method = QuantileMethod::kLinear,
                  CallSite at = CallSite::Here()) const;
  // Where each value would go into the last axis of this tensor, which is in order: before its
  // equals, or after them.
  Tensor SearchSorted(const Tensor& values, bool right = false,
                      CallSite at = CallSite::Here()) const;
  // How often each of 0 to n-1 occurs in this tensor of integers, or the sum of its weights; others
  // count nowhere.
  Tensor BinCount(int64_t n, const Tensor& weights = {}, CallSite at = CallSite::Here()) const;
  // How many lie in each of `bins` equal intervals from low to high, both included, as i32; NaN and
  // what lies outside count nowhere.
  Tensor Histogram(int64_t bins, double low, double high, CallSite at = CallSite::Here()) const;
  // For each element, its interval among the sorted boundaries: boundaries.SearchSorted(*this,
  // right).
  Tensor Bucketize(const Tensor& boundaries, bool right = false,
                   CallSite at = CallSite::Here()) const;
  Tensor IsIn(const Tensor& values, CallSite at = CallSite::Here()) const;  // equal to one of them
  // Piecewise-linear interpolation through the points (x, y); outside them, the y at that end. x
  // must ascend, which is not checked.
  Tensor Interp(const Tensor& x, const Tensor& y, CallSite at = CallSite::Here()) const;
  // Of M variables, the rows of [M, N]: their covariances [M, M], and their correlations.
  Tensor Cov(int correction = 1, CallSite at = CallSite::Here()) const;
  Tensor CorrCoef(CallSite at = CallSite::Here()) const;
  // Median, ignoring NaNs; of nothing but NaNs it is NaN.
  ValuesAndIndices NanMedian(int axis = -1, bool keepdim = false,
                             CallSite at = CallSite::Here()) const;
  Tensor NanQuantile(double q, std::optional<int> axis = {}, bool keepdim = false,
                     QuantileMethod method = QuantileMethod::kLinear,
                     CallSite at = CallSite::Here()) const;
  // The element that occurs most often, of several the smallest, and the last position that has it.
  // NaNs count as equal, here and below.
  ValuesAndIndices Mode(int axis = -1, bool keepdim = false, CallSite at = CallSite::Here()) const;
  // Of all elements, each once: the first n, ascending; then, as the shape cannot say how many
  // there are, `fill`. CountUnique is how many, as i32.
  UniqueElements Unique(int64_t n, Number fill = 0, CallSite at = CallSite::Here()) const;
  Tensor CountUnique(CallSite at = CallSite::Here()) const;

  // ---- by index. An index outside the axis, negative ones included, reads 0 and writes nothing.
  // The axis is replaced by the axes of the index.
  Tensor Take(const Tensor& index, int axis = 0, CallSite at = CallSite::Here()) const;
  // Element [i][j][k] is this[i][index[i][j][k]][k] for axis 1, and so on.
  Tensor Gather(int axis, const Tensor& index, CallSite at = CallSite::Here()) const;
  // This tensor of integers as rows of n zeros with a one at each position.
  Tensor OneHot(int64_t n, DType dtype = kFloat32, CallSite at = CallSite::Here()) const;

  // Element [i][index[i][j][k]][k] of the result, for axis 1, is made of src[i][j][k] and, unless
  // include_self is false, of what this tensor has there. Of several updates kSet keeps the last.
  Tensor Scatter(int axis, const Tensor& index, const Tensor& src, ScatterMode = ScatterMode::kSet,
                 bool include_self = true, CallSite at = CallSite::Here()) const;
  Tensor ScatterAdd(int axis, const Tensor& index, const Tensor& src,
                    CallSite at = CallSite::Here()) const;  // by kAdd
  // The last axis of the index names positions of as many axes, after `batch` common ones. The
  // result has the index's other axes, then those that are not named.
  Tensor GatherND(const Tensor& index, int batch = 0, CallSite at = CallSite::Here()) const;
  Tensor ScatterND(const Tensor& index, const Tensor& updates, ScatterMode = ScatterMode::kSet,
                   CallSite at = CallSite::Here()) const;
  // Whole rows of an axis by a vector of positions: read, added to, set, and set to a number.
  Tensor IndexSelect(int axis, const Tensor& index, CallSite at = CallSite::Here()) const;
  Tensor IndexAdd(int axis, const Tensor& index, const Tensor& src,
                  CallSite at = CallSite::Here()) const;
  Tensor IndexCopy(int axis, const Tensor& index, const Tensor& src,
                   CallSite at = CallSite::Here()) const;
  Tensor IndexFill(int axis, const Tensor& index, Number value,
                   CallSite at = CallSite::Here()) const;
  // By one index for each of the first axes, which broadcast together: x[i, j], and x[i, j] = v.
  Tensor IndexGet(absl::Span<const Tensor> indices, CallSite at = CallSite::Here()) const;
  Tensor IndexPut(absl::Span<const Tensor> indices, const Tensor& values, bool accumulate = false,
                  CallSite at = CallSite::Here()) const;
  // With values, which broadcast, in place of x[indices], or added to it; of several for an element
  // the last is kept.
  Tensor PutAt(std::initializer_list<Index> indices, const Operand& values, bool accumulate = false,
               CallSite at = CallSite::Here()) const;
  // Positions [n, rank] of the first n elements that are not 0, in order; then rows of -1.
  Tensor NonZero(int64_t n, CallSite at = CallSite::Here()) const;
  // The first n elements where the mask, which broadcasts to this shape, holds; then `fill`.
  Tensor MaskedSelect(const Tensor& mask, int64_t n, Number fill = 0,
                      CallSite at = CallSite::Here()) const;
  // Where the mask holds, the elements of src in order, then 0 where it has too few.
  Tensor MaskedScatter(const Tensor& mask, const Tensor& src, CallSite at = CallSite::Here()) const;
  // Flat positions in a tensor of that shape, as positions along each axis.
  std::vector<Tensor> UnravelIndex(const Ints& extents, CallSite at = CallSite::Here()) const;

  // ---- linear algebra
  // Vectors, matrices and batches of matrices, as in NumPy; in the dtype that Sum has.
  Tensor MatMul(const Tensor& b, CallSite at = CallSite::Here()) const;
  Tensor Dot(const Tensor& b, CallSite at = CallSite::Here()) const;  // MatMul
  // Sums of products over the last `axes` axes of this and the first of b; or over pairs of axes.
  Tensor TensorDot(const Tensor& b, int axes = 2, CallSite at = CallSite::Here()) const;
  Tensor TensorDot(const Tensor& b, const Axes& own, const Axes& of_b,
                   CallSite at = CallSite::Here()) const;
  Tensor Outer(const Tensor& b, CallSite at = CallSite::Here()) const;  // of vectors
  Tensor Inner(const Tensor& b, CallSite at = CallSite::Here()) const;  // over both last axes
  Tensor Kron(const Tensor& b, CallSite at = CallSite::Here()) const;   // b times each element
  Tensor Cross(const Tensor& b, int axis = -1, CallSite at = CallSite::Here()) const;  // of triples
  // The sum of Diagonal.
  Tensor Trace(int64_t offset = 0, int a = 0, int b = 1, CallSite at = CallSite::Here()) const;
  // Distances by the p-norm between rows [..., M, E] and rows [..., N, E].
  Tensor CDist(const Tensor& b, double p = 2, CallSite at = CallSite::Here()) const;
  Tensor Det(CallSite at = CallSite::Here()) const;  // of square matrices [..., N, N]
  // The sign of Det, and the logarithm of its magnitude.
  std::pair<Tensor, Tensor> SlogDet(CallSite at = CallSite::Here()) const;
  // The X of this X = b, for columns [..., N, K] or vectors [N]; of a singular matrix infinities or
  // NaNs. By elimination: the graph grows with N.
  Tensor Solve(const Tensor& b, CallSite at = CallSite::Here()) const;
  Tensor SolveTriangular(const Tensor& b, bool upper = false,
                         CallSite at = CallSite::Here()) const;  // reads that triangle alone
  Tensor Inverse(CallSite at = CallSite::Here()) const;          // Solve of Eye
  Tensor Cholesky(CallSite at = CallSite::Here()) const;  // the lower L of L L^T; reads the lower
  Tensor MatrixPower(int64_t n, CallSite at = CallSite::Here()) const;  // n < 0: of Inverse
  // Decompositions of [..., M, N], K = min(M, N); M or N may be 0. Their graphs grow as those
  // above. Q [..., M, K] of orthonormal columns, R [..., K, N] upper triangular; the signs are
  // LAPACK's. The derivative is that of the columns before K, which must be independent.
  std::pair<Tensor, Tensor> Qr(CallSite at = CallSite::Here()) const;
  // Of symmetric matrices, of which the lower triangle is read: eigenvalues [..., N], ascending,
  // and eigenvectors, as columns. Derivatives of vectors are infinite or NaN where eigenvalues
  // coincide.
  std::pair<Tensor, Tensor> Eigh(CallSite at = CallSite::Here()) const;
  // this = u diag(s) vt, s descending. Columns of u and rows of vt are orthonormal, also where s is
  // 0. Derivatives of u and vt are infinite or NaN where elements of s coincide or are 0.
  SingularValues Svd(CallSite at = CallSite::Here()) const;
  // The pseudo-inverse [..., N, M]: singular values up to rtol times the largest count as 0;
  // without rtol it is max(M, N) times the dtype's epsilon. And how many there are above that, as
  // i32.
  Tensor PInverse(std::optional<double> rtol = {}, CallSite at = CallSite::Here()) const;
  Tensor MatrixRank(std::optional<double> rtol = {}, CallSite at = CallSite::Here()) const;
  // The shortest X with the least |this X - b|, by PInverse; b is [..., M, K] or [M].
  Tensor LstSq(const Tensor& b, std::optional<double> rtol = {},
               CallSite at = CallSite::Here()) const;
  // beta this + alpha a b
  Tensor AddMatMul(const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1,
                   CallSite at = CallSite::Here()) const;
  // Of vectors: every overlap ("full"), as many as the longer has, from the middle ("same"), or
  // whole overlaps ("valid").
  Tensor Convolve(const Tensor& b, absl::string_view mode = "full",
                  CallSite at = CallSite::Here()) const;
  // ---- Fourier transforms. Complex numbers are [..., 2], real and imaginary part; axes count
  // those before that one (none: all of them). Each axis is first cut, or padded with zeros, to the
  // length in n, if any. The norm divides the inverse by the number of elements ("backward"), the
  // transform ("forward"), or both by its root ("ortho"). The largest prime factor of a length may
  // be any; one above 128 costs some times more. Floats, narrow ones computed in f32.
  Tensor Fft(const Axes& axes = -1, const Ints& n = {}, absl::string_view norm = "backward",
             CallSite at = CallSite::Here()) const;
  Tensor Ifft(const Axes& axes = -1, const Ints& n = {}, absl::string_view norm = "backward",
              CallSite at = CallSite::Here()) const;
  // Of real numbers, of which the first n / 2 + 1 elements along the last of the axes tell the
  // others; and back, to 2 (m - 1) elements of m unless n says otherwise.
  Tensor Rfft(const Axes& axes = -1, const Ints& n = {}, absl::string_view norm = "backward",
              CallSite at = CallSite::Here()) const;
  Tensor Irfft(const Axes& axes = -1, const Ints& n = {}, absl::string_view norm = "backward",
               CallSite at = CallSite::Here()) const;
  // The element of frequency 0 moved to the middle of each axis of this, and back.
  Tensor FftShift(const Axes& axes, CallSite at = CallSite::Here()) const;
  Tensor IfftShift(const Axes& axes, CallSite at = CallSite::Here()) const;
  // The frequencies of a transform's elements, of samples so far apart.
  static Tensor FftFreq(int64_t n, double spacing = 1, DType dtype = kFloat32,
                        CallSite at = CallSite::Here());
  static Tensor RfftFreq(int64_t n, double spacing = 1, DType dtype = kFloat32,
                         CallSite at = CallSite::Here());

  // ---- networks
  // x W^T + bias; weight is [out, in].
  Tensor Linear(const Tensor& weight, const Tensor& bias = {},
                CallSite at = CallSite::Here()) const;
  // [N, C, D1, ...] under weight [out, C / groups, d1, ...], of any number of axes.
  Tensor Conv(const Tensor& weight, CallSite at = CallSite::Here()) const;
  Tensor Conv(const Tensor& weight, const ConvOptions& options,
              CallSite at = CallSite::Here()) const;
  Tensor Conv1d(const Tensor& weight, CallSite at = CallSite::Here()) const;
  Tensor Conv1d(const Tensor& weight, const ConvOptions& options,
                CallSite at = CallSite::Here()) const;
  Tensor Conv2d(const Tensor& weight, CallSite at = CallSite::Here()) const;
  Tensor Conv2d(const Tensor& weight, const ConvOptions& options,
                CallSite at = CallSite::Here()) const;
  Tensor Conv3d(const Tensor& weight, CallSite at = CallSite::Here()) const;
  Tensor Conv3d(const Tensor& weight, const ConvOptions& options,
                CallSite at = CallSite::Here()) const;
  // The adjoint of Conv with the same options; weight is [C, out / groups, d1, ...].
  Tensor ConvTranspose(const Tensor& weight, CallSite at = CallSite::Here()) const;
  Tensor ConvTranspose(const Tensor& weight, const ConvTransposeOptions& options,
                       CallSite at = CallSite::Here()) const;
  // [N, C, D1, ...] as columns of windows, [N, C d1 ..., positions]; and such columns added up to
  // [N, C, D1, ...] of the given extents after C.
  Tensor Im2Col(const PoolOptions& options, CallSite at = CallSite::Here()) const;
  Tensor Col2Im(const Ints& extents, const PoolOptions& options,
                CallSite at = CallSite::Here()) const;
  // Over windows of the axes after [N, C], any number of them, or just two: the largest element,
  // NaN where there is one; the mean; and the p-norm.
  Tensor MaxPool(const PoolOptions& options, CallSite at = CallSite::Here()) const;
  Tensor AvgPool(const PoolOptions& options, CallSite at = CallSite::Here()) const;
  Tensor MaxPool2d(const PoolOptions& options, CallSite at = CallSite::Here()) const;
  Tensor AvgPool2d(const PoolOptions& options, CallSite at = CallSite::Here()) const;
  Tensor LpPool(double p, const PoolOptions& options, CallSite at = CallSite::Here()) const;
  // With the positions of the maxima in the axes after [N, C], flattened, as i64. And back: each
  // value at its position among zeros of the given extents.
  ValuesAndIndices MaxPoolWithIndices(const PoolOptions& options,
                                      CallSite at = CallSite::Here()) const;
  Tensor MaxUnpool(const Tensor& indices, const Ints& extents,
                   CallSite at = CallSite::Here()) const;
  // Pools to the given extents, by windows of nearly equal size.
  Tensor AdaptiveAvgPool(const Ints& extents, CallSite at = CallSite::Here()) const;
  Tensor AdaptiveMaxPool(const Ints& extents, CallSite at = CallSite::Here()) const;
  Tensor GlobalAvgPool(CallSite at = CallSite::Here()) const;  // to extents of 1
  Tensor GlobalMaxPool(CallSite at = CallSite::Here()) const;
  // Interpolated to other extents of the last axes, as many as are given.
  Tensor Resize(const Ints& extents, const ResizeOptions& options = {},
                CallSite at = CallSite::Here()) const;
  // [N, C, D1, ...] read at the points [N, d1, ..., axes] of a grid: coordinates from -1 to 1, the
  // one along the last axis of this first.
  Tensor GridSample(const Tensor& grid, const GridSampleOptions& options = {},
                    CallSite at = CallSite::Here()) const;
  // The grid of affine maps [N, axes, axes + 1] for [N, C, D1, ...]: extents are N, C, D1, ...
  Tensor AffineGrid(const Ints& extents, bool align_corners = false,
                    CallSite at = CallSite::Here()) const;
  // (x - mean) / sqrt(variance + eps) of the last `axes` axes, to which weight and bias broadcast;
  // and x / sqrt(mean of x^2 + eps) of them.
  Tensor LayerNorm(const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
                   int axes = 1, CallSite at = CallSite::Here()) const;
  Tensor RmsNorm(const Tensor& weight = {}, double eps = 1e-6, int axes = 1,
                 CallSite at = CallSite::Here()) const;
  // By given statistics of axis 1.
  Tensor BatchNorm(const Tensor& mean, const Tensor& variance, const Tensor& weight = {},
                   const Tensor& bias = {}, double eps = 1e-5,
                   CallSite at = CallSite::Here()) const;
  // By the statistics of this batch, which are returned, the variance with that correction.
  Normalised BatchNormTraining(const Tensor& weight = {}, const Tensor& bias = {},
                               double eps = 1e-5, int correction = 0,
                               CallSite at = CallSite::Here()) const;
  // By the statistics of groups of channels (axis 1) of each sample; of each channel alone.
  Tensor GroupNorm(int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                   double eps = 1e-5, CallSite at = CallSite::Here()) const;
  Tensor InstanceNorm(const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
                      CallSite at = CallSite::Here()) const;
  // Divided by (bias + alpha / size * sum of squares over `size` channels)^beta: of channel c
  // those from c - (size - 1) / 2 to c + size / 2.
  Tensor LocalResponseNorm(int64_t size, double alpha = 1e-4, double beta = 0.75, double bias = 1,
                           CallSite at = CallSite::Here()) const;
  // Divided by the p-norm along an axis, or by eps if that is more.
  Tensor LpNormalize(double p = 2, int axis = -1, double eps = 1e-12,
                     CallSite at = CallSite::Here()) const;
  // The rows of this table at the indices.
  Tensor Embedding(const Tensor& index, CallSite at = CallSite::Here()) const;
  // Queries [..., L, E], keys [..., S, E], values [..., S, F]; the mask is bool (true: may be seen)
  // or is added to the scores. A query that may see no key gets zeros. Of the axis before, heads,
  // queries may have several times as many: neighbours then share keys and values.
  Tensor ScaledDotProductAttention(const Tensor& key, const Tensor& value,
                                   const AttentionOptions& options,
                                   CallSite at = CallSite::Here()) const;
  Tensor ScaledDotProductAttention(const Tensor& key, const Tensor& value,
                                   CallSite at = CallSite::Here()) const;

  // ---- losses of this prediction; first (this - target)^2 and |this - target|
  Tensor MseLoss(const Tensor& target, LossReduction = LossReduction::kMean,
                 CallSite at = CallSite::Here()) const;
  Tensor L1Loss(const Tensor& target, LossReduction = LossReduction::kMean,
                CallSite at = CallSite::Here()) const;
  // Half the square up to delta, then a line; SmoothL1Loss is that over beta.
  Tensor HuberLoss(const Tensor& target, double delta = 1, LossReduction = LossReduction::kMean,
                   CallSite at = CallSite::Here()) const;
  Tensor SmoothL1Loss(const Tensor& target, double beta = 1, LossReduction = LossReduction::kMean,
                      CallSite at = CallSite::Here()) const;
  // Of logits, or of log-probabilities (NllLoss), [N, classes, ...]; targets are classes [N, ...],
  // for CrossEntropy also probabilities of this shape. A class that there is not does not count, as
  // the one to ignore.
  Tensor CrossEntropy(const Tensor& target, CallSite at = CallSite::Here()) const;
  Tensor CrossEntropy(const Tensor& target, const ClassLossOptions& options,
                      CallSite at = CallSite::Here()) const;
  Tensor NllLoss(const Tensor& target, const ClassLossOptions& options,
                 CallSite at = CallSite::Here()) const;
  // Of probabilities, whose logarithms are limited to -100; and of logits.
  Tensor BinaryCrossEntropy(const Tensor& target, LossReduction = LossReduction::kMean,
                            const Tensor& weight = {}, CallSite at = CallSite::Here()) const;
  Tensor BinaryCrossEntropyWithLogits(const Tensor& target, LossReduction = LossReduction::kMean,
                                      const Tensor& weight = {}, const Tensor& positive_weight = {},
                                      CallSite at = CallSite::Here()) const;
  // KL(target || this) of each element: this holds log-probabilities, the target probabilities, or
  // their logarithms if log_target.
  Tensor KlDivLoss(const Tensor& target, LossReduction = LossReduction::kMean,
                   bool log_target = false, CallSite at = CallSite::Here()) const;
  // The dot product over the product of both norms, each at least eps.
  Tensor CosineSimilarity(const Tensor& b, int axis = 1, double eps = 1e-8,
                          CallSite at = CallSite::Here()) const;
  // max(0, 1 - target * this), of targets 1 and -1.
  Tensor HingeLoss(const Tensor& target, LossReduction = LossReduction::kMean,
                   CallSite at = CallSite::Here()) const;
  // e^this - target this, or this - target log(this + eps); in full with Stirling's log(target!) of
  // targets above 1.
  Tensor PoissonNllLoss(const Tensor& target, bool log_input = true,
                        LossReduction = LossReduction::kMean, bool full = false, double eps = 1e-8,
                        CallSite at = CallSite::Here()) const;
  // Half of log(variance) + (this - target)^2 / variance, the variance at least eps; in full with
  // half of log(2 pi). The variance may lack the last axis.
  Tensor GaussianNllLoss(const Tensor& target, const Tensor& variance, double eps = 1e-6,
                         LossReduction = LossReduction::kMean, bool full = false,
                         CallSite at = CallSite::Here()) const;
  // log(1 + exp(-target * this)), of targets 1 and -1.
  Tensor SoftMarginLoss(const Tensor& target, LossReduction = LossReduction::kMean,
                        CallSite at = CallSite::Here()) const;
  // this where the target is 1, max(0, margin - this) where it is -1.
  Tensor HingeEmbeddingLoss(const Tensor& target, double margin = 1,
                            LossReduction = LossReduction::kMean,
                            CallSite at = CallSite::Here()) const;
  // max(0, margin - target * (this - b)), of targets 1 and -1.
  Tensor MarginRankingLoss(const Tensor& b, const Tensor& target, double margin = 0,
                           LossReduction = LossReduction::kMean,
                           CallSite at = CallSite::Here()) const;
  // Of rows: 1 - CosineSimilarity where the target is 1, its excess over the margin where -1.
  Tensor CosineEmbeddingLoss(const Tensor& b, const Tensor& target, double margin = 0,
                             LossReduction = LossReduction::kMean,
                             CallSite at = CallSite::Here()) const;
  // max(0, distance to the positive - distance to the negative + margin), distances being p-norms
  // of rows; with swap the negative's is the smaller one of those to this and to the positive.
  Tensor TripletMarginLoss(const Tensor& positive, const Tensor& negative, double margin = 1,
                           double p = 2, LossReduction = LossReduction::kMean, bool swap = false,
                           CallSite at = CallSite::Here()) const;
  // Of logits [N, classes]: the sum of max(0, margin - right + other)^p over the other classes,
  // over the number of classes, times the weight of the right one.
  Tensor MultiMarginLoss(const Tensor& target, int p = 1, double margin = 1,
                         LossReduction = LossReduction::kMean, const Tensor& weight = {},
                         CallSite at = CallSite::Here()) const;
  // Of logits [N, classes], several of which are right: the targets [N, classes] begin with those
  // classes, then -1. The sum of max(0, 1 - right + other) over all pairs of a right class and
  // another one, over the number of classes.
  Tensor MultiLabelMarginLoss(const Tensor& target, LossReduction = LossReduction::kMean,
                              CallSite at = CallSite::Here()) const;
  // The mean of BinaryCrossEntropyWithLogits over the last axis, the classes.
  Tensor MultiLabelSoftMarginLoss(const Tensor& target, LossReduction = LossReduction::kMean,
                                  const Tensor& weight = {}, CallSite at = CallSite::Here()) const;
  // Of log-probabilities [T, N, classes]: the negative logarithm of the probability that the first
  // input_lengths [N] of T steps spell the first target_lengths [N] of the classes in each row of
  // the target [N, S], each class any number of times, with blanks between, or without where
  // neighbours differ. Infinite where there are too few steps, or 0 if zero_infinity. The mean is
  // that of each over its target length. By recurrence: the graph grows with T.
  Tensor CtcLoss(const Tensor& target, const Tensor& input_lengths, const Tensor& target_lengths,
                 int64_t blank = 0, LossReduction = LossReduction::kMean,
                 bool zero_infinity = false, CallSite at = CallSite::Here()) const;
  // The p-norm of this - b + eps along the last axis.
  Tensor PairwiseDistance(const Tensor& b, double p = 2, double eps = 1e-6, bool keepdim = false,
                          CallSite at = CallSite::Here()) const;

  // ---- place and storage
  Tensor To(Device device, CallSite at = CallSite::Here()) const;  // itself if it lies there
  // Spread over places: as the Sharding says, or a piece of an axis on each.
  Tensor Shard(const Sharding& to, CallSite at = CallSite::Here()) const;
  Tensor Shard(const PlaceList& places, int axis, CallSite at = CallSite::Here()) const;
  // One tensor of parts, the i-th on the i-th place; and the part on one place.
  static Tensor FromShards(absl::Span<const Tensor> shards, const Sharding& to,
                           CallSite at = CallSite::Here());
  Tensor ShardAt(int index, CallSite at = CallSite::Here()) const;
  Tensor Contiguous(CallSite at = CallSite::Here()) const;  // in storage of its own
  // Makes the next version: this tensor, or the part of the tensor that this is a view of, becomes
  // the value, cast to the dtype and broadcast to the shape.
  Tensor& Assign(const Operand& value);

  // ---- gradients; graph/grad.h has them as a function, which keeps nothing
  // Marks a tensor as one whose gradient Backward keeps. What is computed from it keeps its history
  // when it is realised. An expression becomes a parameter of its own: what was computed from it
  // before, or from an equal one, does not depend on it.
  Tensor& RequireGrad(bool required = true);
  static std::vector<Tensor> AllRequiringGrad();  // those that are alive
  // Adds the derivative of this, a float scalar, to the gradient of every marked tensor that it
  // depends on. Also in a step under capture, each call of which then adds to, makes and clears
  // gradients.
  void Backward(CallSite at = CallSite::Here()) const;
  // What was added up since the mark or ClearGrad, or empty; and clears it.
  Tensor grad() const;
  void ClearGrad();

  // ---- for the core
  const UOp& uop() const;
  // Replaces the value by an equal one (the storage it was computed into).
  void SetUOp(const UOp& value) const;
  // Whether both are handles to one tensor.
  bool Is(const Tensor& other) const { return state_ == other.state_; }
  // Gives the value of what is no view a node that no other tensor has.
  void MakeOwn() const;
  // Fails where what is written into this would be lost, as nothing else holds it.
  void CheckHeld() const;
  // Detaches a view from a base that nobody else holds; false if the base is still shared.
  bool StandAlone() const;

 private:
  // One version chain. A view's `view` is a chain of movement ops over `base_version`, the value
  // that its base had when the view was taken. It may have been made through other views of that
  // base; what is written into it is written into those, too, which live as long as someone holds
  // them.
  struct State {
    UOp value;
    std::shared_ptr<State> base;
    UOp base_version;
    UOp view;
    std::vector<std::weak_ptr<State>> through;
    bool own = false;             // MakeOwn has made the value its own
    uint64_t trace = 0;           // the capture that made it
    uint64_t function = 0;        // the function under Vmap, or its like, that made it
    std::shared_ptr<State> grad;  // see Backward
  };
  friend class internal::Trace;
  // The state as this thread sees it: under capture, that of a tensor from outside is a stand-in.
  State& Now() const;
  // The gradient, as this thread sees it; whether it is looked at or another takes its place.
  std::shared_ptr<State>& GradNow(bool replaced) const;
  // An Error of the call under way where a function under Vmap would write into what is not its.
  static void CheckOwn(const State& written);
  // Makes this, a view, show that version of its base.
  void Renew(const UOp& base_version) const;
  Tensor& Update(const Tensor& value);
  // The view of this tensor that fn, from node to node by movement ops, makes.
  template <typename Fn>
  Tensor Moved(Fn fn) const;

  std::shared_ptr<State> state_;
};

struct ConvOptions {
  Tensor bias = {};
  Ints stride = {}, padding = {}, dilation = {};  // as in PoolOptions; a stride is 1 if not given
  int64_t groups = 1;
};
using Conv2dOptions = ConvOptions;
struct ConvTransposeOptions {
  Tensor bias = {};
  Ints stride = {}, padding = {}, dilation = {};
  int64_t groups = 1;
  Ints output_padding = {};  // more elements at the end
};
struct AttentionOptions {
  Tensor mask = {};
  bool causal = false;               // query i sees keys up to i + S - L
  std::optional<double> scale = {};  // 1 / sqrt(E)
};

struct ClassLossOptions {
  Tensor weight = {};                        // of each class
  std::optional<int64_t> ignore_index = {};  // a class that does not count
  double label_smoothing = 0;                // the share that all classes get; of CrossEntropy
  LossReduction reduction = LossReduction::kMean;  // the mean divides by the sum of the weights
};
struct ValuesAndIndices {
  Tensor values, indices;
};
struct Normalised {
  Tensor output, mean, variance;
};
struct SingularValues {
  Tensor u, s, vt;
};
// Vectors of n: the values, where each comes first, and how often; 0 where there are no more. And,
// in the shape of what they are of, which of the values each element is, also of those beyond n.
struct UniqueElements {
  Tensor values, indices, counts, inverse;
};

// ---- of several tensors alike
// a where the condition (bools) holds, else b; all three broadcast, a and b meet in one dtype.
Tensor Where(const Operand& condition, const Operand& a, const Operand& b);
// Side by side along an axis, where extents may differ; or along a new one. Dtypes meet.
Tensor Cat(absl::Span<const Tensor> tensors, int axis = 0, CallSite at = CallSite::Here());
Tensor Stack(absl::Span<const Tensor> tensors, int axis = 0, CallSite at = CallSite::Here());

Tensor HStack(absl::Span<const Tensor> tensors, CallSite at = CallSite::Here());  // along axis 1
Tensor VStack(absl::Span<const Tensor> tensors, CallSite at = CallSite::Here());  // as rows
Tensor DStack(absl::Span<const Tensor> tensors, CallSite at = CallSite::Here());  // along axis 2
Tensor ColumnStack(absl::Span<const Tensor> tensors,
                   CallSite at = CallSite::Here());  // vectors as columns
// Along the diagonal of a matrix, 0 elsewhere.
Tensor BlockDiag(absl::Span<const Tensor> matrices, CallSite at = CallSite::Here());
// Every choice of an element of each vector, as rows, the last varying fastest.
Tensor CartesianProd(absl::Span<const Tensor> vectors, CallSite at = CallSite::Here());
// Each expanded to the shape in which all meet.
std::vector<Tensor> BroadcastTensors(absl::Span<const Tensor> tensors,
                                     CallSite at = CallSite::Here());
// A grid of vectors: the i-th varies along axis i ("ij"), or with the first two exchanged ("xy").
std::vector<Tensor> MeshGrid(absl::Span<const Tensor> vectors, absl::string_view indexing = "ij",
                             CallSite at = CallSite::Here());
// Sums of products by an equation of letters: "ij,jk->ik", "...ii", with the output or without.
Tensor Einsum(absl::string_view equation, absl::Span<const Tensor> tensors,
              CallSite at = CallSite::Here());

// Values, dtype, shape and device (runtime/realize.cc).
std::ostream& operator<<(std::ostream& out, const Tensor& t);

// What realising would run, as text, without running it: kernels with their bytes, flops and cores,
// copies with their reason, buffers, and where each was written (runtime/explain.cc).
std::string Explain(const Tensor& tensor, CallSite at = CallSite::Here());
std::string Explain(absl::Span<const Tensor> tensors, CallSite at = CallSite::Here());

// ---- implementation

template <HasDType E>
Tensor Tensor::From(const std::vector<E>& values, const Dims& shape, Device device, CallSite at) {
  const Extent n = Shape(shape.extents()).Elements();
  if (!n.is_int(static_cast<int64_t>(values.size()))) {
    throw Error(absl::InvalidArgumentError("From: " + std::to_string(values.size()) +
                                           " values do not fill the shape " +
                                           Shape(shape.extents()).ToString()));
  }
  if constexpr (std::is_same_v<E, bool>) {
    const std::vector<uint8_t> bytes(values.begin(), values.end());
    return FromBytes(bytes.data(), shape, kBool, device, at);
  } else {
    return FromBytes(values.data(), shape, DTypeOf<E>(), device, at);
  }
}
template <HasDType E>
Tensor Tensor::From(const std::vector<E>& values, CallSite at) {
  return From(values, {static_cast<int64_t>(values.size())}, {}, at);
}

}  // namespace tessera
