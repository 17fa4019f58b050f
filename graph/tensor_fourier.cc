// Fourier transforms.
//
// Of n = A B elements x[B a + b], element A l + k of the transform is the sum over b of
// e^(-2 pi i b l / B) times y[k, b] e^(-2 pi i k b / n), where y[k, b] sums x[B a + b] e^(-2 pi i a
// k / A) over a: products with a matrix of A by A, a turn of each element, and B left to transform.
// Elements are [..., n, inner, 2]: what has been transformed goes to `inner`, so that results come
// in order.
#include <cmath>
#include <functional>
#include <map>

#include "graph/tensor.h"
#include "graph/tensor_along.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::FittedTo;
using internal::FloatResult;
using internal::NormalAxes;
using internal::Show;
using internal::WideFloat;

namespace {

constexpr double kPi = 3.14159265358979323846;
// A larger prime factor is no product with a matrix.
constexpr int64_t kMostRadix = 128;
// What one more pass over all elements costs, in products for each of them.
constexpr int64_t kPassCost = 20;

// Cut to n elements of an axis, or zeros after it, also where its extent varies.
Tensor Fitted(const Tensor& t, int axis, int64_t n) {
  const Extent& have = t.shape()[axis];
  if (have.is_int() || have.min() >= n) return FittedTo(t, axis, n);
  return t.Take(Tensor::Arange(n), axis);
}

// Half an axis on, or back.
Tensor Turned(Tensor x, const Ints& axes, bool back) {
  for (const int64_t axis : axes) {
    const int a = static_cast<int>(axis);
    const Extent n = x.shape()[a];
    if (n.is_int()) {
      x = x.Roll(back ? -(n.value() / 2) : n.value() / 2, a);
      continue;
    }
    const Extent first = tessera::FloorDiv(back ? n : n + Extent(1), 2);
    const Tensor from = Tensor::Arange(n, kInt64) + Tensor::FromExtent(first, kInt64);
    x = x.Take(from % Tensor::FromExtent(n, kInt64), a);
  }
  return x;
}

struct Complex {
  Tensor re, im;
};

Complex Parts(const Tensor& x) { return {x.Select(-1, 0), x.Select(-1, 1)}; }
Tensor Joined(const Complex& z) { return Stack({z.re, z.im}, -1); }
Tensor Conjugate(const Tensor& x) {
  const Complex z = Parts(x);
  return Joined({z.re, -z.im});
}

// Points of the unit circle, stored: they are computed once, and not again for each batch. Their
// angles are 2 pi k / n, the remainder of k taken in integers, so that they stay exact.
struct Circle {
  Tensor cos, sin;
  Circle(const Tensor& k, int64_t n, DType type) {
    const Tensor angle = k.Mod(n).Cast(kFloat64) * (2 * kPi / static_cast<double>(n));
    cos = angle.Cos().Cast(type).Contiguous();
    sin = angle.Sin().Cast(type).Contiguous();
  }
};

// The products i * j for i below `rows` and j below `columns`.
Tensor Table(int64_t rows, int64_t columns) {
  return Tensor::Arange(rows, kInt64).Unsqueeze(1) * Tensor::Arange(columns, kInt64);
}

// z e^(sign i angle), of points that broadcast.
Complex Turned(const Complex& z, const Tensor& cos, const Tensor& sin, int sign) {
  const Tensor re = z.im * sin, im = z.re * sin;
  if (sign < 0) return {z.re * cos + re, z.im * cos - im};
  return {z.re * cos - re, z.im * cos + im};
}

// The axes from the given one on replaced by others.
Tensor WithEnd(const Tensor& x, int axis, const Extents& end) {
  Extents dims(x.shape().begin(), x.shape().begin() + axis);
  dims.insert(dims.end(), end.begin(), end.end());
  return x.Reshape(Dims(dims));
}

// The factors of n whose products and passes cost least; none if a prime is too large, or n is 1.
Ints Radices(int64_t n) {
  struct Best {
    int64_t cost, radix;
  };
  constexpr int64_t none = int64_t{1} << 40;
  std::map<int64_t, Best> known = {{1, {0, 1}}};
  const std::function<int64_t(int64_t)> cost_of = [&](int64_t m) {
    if (const auto it = known.find(m); it != known.end()) return it->second.cost;
    Best best = {none, 1};
    for (int64_t a = std::min(m, kMostRadix); a > 1; --a) {
      if (m % a != 0) continue;
      const int64_t cost = a + kPassCost + cost_of(m / a);
      if (cost < best.cost) best = {cost, a};
    }
    known[m] = best;
    return best.cost;
  };
  Ints out;
  if (cost_of(n) >= none) return out;
  for (int64_t m = n; m > 1; m /= out.back()) out.push_back(known[m].radix);
  return out;
}

// [..., n, inner, 2] transformed along n, of which the radices are. On the way real parts and
// imaginary ones are apart, [..., 2, n, inner], and a product with both is one of real numbers.
Tensor ByRadices(const Tensor& x, const Ints& radices, int sign) {
  const int axis = x.rank() - 3;
  const int64_t n = x.size(axis);
  const Extent within = x.shape()[axis + 1];
  Extent inner = within;
  int64_t rest = n;
  Complex z = Parts(x);
  for (const int64_t a : radices) {
    rest /= a;
    const Circle by(Table(a, a), a, x.dtype());
    const Tensor sin = sign < 0 ? by.sin : -by.sin;
    const Tensor matrix = Cat({Cat({by.cos, sin}, 1), Cat({-sin, by.cos}, 1)}, 0).Contiguous();
    const Tensor both = Stack({z.re, z.im}, axis).Contiguous();
    const Tensor y = matrix.MatMul(WithEnd(both, axis, {2 * a, inner * rest}));
    const auto part = [&](int64_t i) {
      return WithEnd(y.SliceAxis(axis, {i * a, (i + 1) * a}), axis, {a, rest, inner});
    };
    z = {part(0), part(1)};
    if (rest > 1) {
      const Circle turn(Table(a, rest), a * rest, x.dtype());
      z = Turned(z, turn.cos.Unsqueeze(-1), turn.sin.Unsqueeze(-1), sign);
    }
    inner = inner * a;
    z = {WithEnd(z.re.Transpose(axis, axis + 1), axis, {rest, inner}),
         WithEnd(z.im.Transpose(axis, axis + 1), axis, {rest, inner})};
  }
  return Joined({WithEnd(z.re, axis, {n, within}), WithEnd(z.im, axis, {n, within})});
}

// At least n, of a kind whose transform is cheap.
int64_t GoodLength(int64_t n) {
  int64_t best = 0;
  for (int64_t length : {1, 3, 5}) {
    while (length < n) length *= 2;
    if (best == 0 || length < best) best = length;
  }
  return best;
}

// The same of any n: as k m = (k^2 + m^2 - (k - m)^2) / 2, a convolution between two turns.
Tensor ByConvolution(const Tensor& x, int sign) {
  const int axis = x.rank() - 3;
  const int64_t n = x.size(axis);
  constexpr int64_t kLongest = int64_t{1} << 31;  // squares of which are counted below
  if (n > kLongest) Fail("an axis of ", n, " elements has no factors, and is above ", kLongest);
  const int64_t length = GoodLength(2 * n - 1);
  const Ints radices = Radices(length);
  const Tensor k = Tensor::Arange(n, kInt64);
  const Circle square(k * k, 2 * n, x.dtype());
  const Tensor cos = square.cos.Unsqueeze(-1), sin = square.sin.Unsqueeze(-1);
  const Tensor back = Joined({cos, sign < 0 ? sin : -sin});
  const Tensor wrapped = back.SliceAxis(0, {1, {}}).Flip(0);
  const Tensor weights = Cat({FittedTo(back, 0, length - n + 1), wrapped}, 0);
  const double scale = 1 / static_cast<double>(length);
  const Complex filter = Parts((ByRadices(weights, radices, -1) * scale).Contiguous());
  const Tensor turned = Joined(Turned(Parts(x), cos, sin, sign));
  const Tensor y = ByRadices(FittedTo(turned, axis, length), radices, -1);
  const Tensor filtered = Joined(Turned(Parts(y), filter.re, filter.im, 1));
  const Tensor z = ByRadices(filtered, radices, 1).SliceAxis(axis, {0, n});
  return Joined(Turned(Parts(z), cos, sin, sign));
}

Tensor Transformed(const Tensor& x, int sign) {
  const int64_t n = x.size(-3);
  const Ints radices = Radices(n);
  return radices.empty() && n > 1 ? ByConvolution(x, sign) : ByRadices(x, radices, sign);
}

// What joins the transforms of elements that are even and odd, given both as parts of one: with y
// the elements 0 to m of x, and of its conjugate backwards, (x + y + turn (x - y)) / 2, where the
// turn is -i e^(sign i pi k / m).
Tensor Halves(const Tensor& x, const Tensor& backwards, int64_t m, int sign) {
  const Circle turn(Tensor::Arange(m + 1, kInt64), 2 * m, x.dtype());
  const Complex a = Parts(x), b = Parts(backwards);
  const Complex sum = {a.re + b.re, a.im - b.im}, difference = {a.re - b.re, a.im + b.im};
  const Tensor cos = turn.cos.Unsqueeze(-1), sin = turn.sin.Unsqueeze(-1);
  const Complex t = Turned(difference, cos, sin, sign);
  if (sign < 0) return Joined({(sum.re + t.im) * 0.5, (sum.im - t.re) * 0.5});
  return Joined({sum.re - t.im, sum.im + t.re});
}

// The first n / 2 + 1 elements of the transform of real [..., n, inner]: of an even n by pairs, as
// parts of complex numbers.
Tensor OfReal(const Tensor& x) {
  const int axis = x.rank() - 2;
  const int64_t n = x.size(axis), m = n / 2;
  if (n % 2 != 0) {
    return Transformed(Joined({x, x.ZerosLike()}), -1).SliceAxis(axis, {0, m + 1});
  }
  const Tensor pairs = WithEnd(x, axis, {m, 2, x.shape()[axis + 1]}).Transpose();
  const Tensor z = Transformed(pairs, -1).Contiguous();
  const Tensor first = z.SliceAxis(axis, {0, 1});
  return Halves(Cat({z, first}, axis), Cat({first, z.Flip(axis)}, axis), m, -1);
}

// The real [..., n, inner] of which [..., n / 2 + 1, inner, 2] is the transform, times n.
Tensor ToReal(const Tensor& given, int64_t n) {
  const int axis = given.rank() - 3;
  const int64_t m = n / 2;
  if (n % 2 != 0) {
    const Tensor mirrored = Conjugate(given.SliceAxis(axis, {1, m + 1}).Flip(axis));
    return Transformed(Cat({given, mirrored}, axis), 1).Select(-1, 0);
  }
  // The first and the last are their own conjugates: real.
  const Tensor k = Tensor::Arange(m + 1).Unsqueeze(-1);
  const Complex z = Parts(given);
  const Tensor x = Joined({z.re, Where((k == 0) | (k == m), 0, z.im)});
  const Tensor pairs = Halves(x, x.Flip(axis), m, 1).SliceAxis(axis, {0, m});
  return WithEnd(Transformed(pairs, 1).Transpose(), axis, {n, given.shape()[axis + 1]});
}

// f of [..., n, inner, 2] or, of real numbers, [..., n, inner], along an axis of x; where what is
// sharded would become part of `inner`, that axis goes to the end.
Tensor OnAxis(const Tensor& x, int axis, bool complex, const std::function<Tensor(Tensor)>& f) {
  const int last = x.rank() - (complex ? 2 : 1);
  if (x.device().is_sharding() && axis != last) {
    return OnAxis(x.MoveAxis(axis, last), last, complex, f).MoveAxis(last, axis);
  }
  Extents others(x.shape().begin() + axis + 1, x.shape().begin() + last + 1);
  Extents end = {x.shape()[axis], Shape(others).Elements()};
  if (complex) end.push_back(2);
  const Tensor y = f(WithEnd(x, axis, end));
  Extents back = {y.shape()[axis]};
  back.insert(back.end(), others.begin(), others.end());
  if (y.rank() > axis + 2) back.push_back(2);
  return WithEnd(y, axis, back);
}

Tensor Along(const Tensor& x, int axis, bool complex, const std::function<Tensor(Tensor)>& f) {
  return internal::AlongAxis({x}, axis, [&](const std::vector<Tensor>& s) -> std::vector<Tensor> {
    return {OnAxis(s[0], axis, complex, f)};
  })[0];
}

// What a transform is asked for: its axes and their lengths, the last of which may be halved, and
// the factor of its result.
struct Request {
  Ints axes, lengths;
  double scale = 1;

  Request(const Tensor& x, bool complex, bool halved, const Axes& given, const Ints& n,
          absl::string_view norm, bool inverse) {
    const int rank = x.rank() - (complex ? 1 : 0);
    if (complex && (rank < 0 || !x.shape()[rank].is_int(2))) {
      Fail("takes complex numbers, whose last axis holds real and imaginary part, not ", Show(x));
    }
    axes = NormalAxes(given, rank);
    if (axes.empty()) Fail("takes at least one axis, not ", Show(x));
    if (!n.empty() && n.size() != axes.size()) {
      Fail(n.size(), " lengths do not fit ", axes.size(), " axes of ", Show(x));
    }
    double elements = 1;
    for (size_t i = 0; i < axes.size(); ++i) {
      const Extent& extent = x.shape()[static_cast<int>(axes[i])];
      if (n.empty() && !extent.is_int()) {
        Fail("axis ", axes[i], " of ", Show(x), " has a symbolic extent; name the lengths, n");
      }
      const int64_t had = n.empty() ? extent.value() : n[i];
      lengths.push_back(n.empty() && halved && i + 1 == axes.size() ? 2 * (had - 1) : had);
      if (lengths.back() < 1) Fail("an axis of ", lengths.back(), " elements; ", Show(x));
      elements *= static_cast<double>(lengths.back());
    }
    if (norm != "backward" && norm != "forward" && norm != "ortho") {
      Fail("the norm is '", norm, "'; it is backward, ortho or forward");
    }
    if (norm == "ortho") scale = 1 / std::sqrt(elements);
    if (norm == (inverse ? "backward" : "forward")) scale = 1 / elements;
  }

  int last() const { return static_cast<int>(axes.back()); }
  Tensor Scaled(const Tensor& x, DType type) const {
    return (scale == 1 ? x : x * scale).Cast(FloatResult(type));
  }
  // The complex transforms along the first so many axes.
  Tensor OfComplex(Tensor x, size_t count, int sign) const {
    for (size_t i = 0; i < count; ++i) {
      x = Along(x, static_cast<int>(axes[i]), true, [&](const Tensor& t) {
        return Transformed(Fitted(t, t.rank() - 3, lengths[i]), sign);
      });
    }
    return x;
  }
};

}  // namespace

Tensor Tensor::Fft(const Axes& axes, const Ints& n, absl::string_view norm, CallSite at) const {
  Call call("Fft", at, *this);
  const Request ask(*this, true, false, axes, n, norm, false);
  return ask.Scaled(ask.OfComplex(WideFloat(*this), ask.axes.size(), -1), dtype());
}

Tensor Tensor::Ifft(const Axes& axes, const Ints& n, absl::string_view norm, CallSite at) const {
  Call call("Ifft", at, *this);
  const Request ask(*this, true, false, axes, n, norm, true);
  return ask.Scaled(ask.OfComplex(WideFloat(*this), ask.axes.size(), 1), dtype());
}

Tensor Tensor::Rfft(const Axes& axes, const Ints& n, absl::string_view norm, CallSite at) const {
  Call call("Rfft", at, *this);
  const Request ask(*this, false, false, axes, n, norm, false);
  const Tensor half = Along(WideFloat(*this), ask.last(), false, [&](const Tensor& t) {
    return OfReal(Fitted(t, t.rank() - 2, ask.lengths.back()));
  });
  return ask.Scaled(ask.OfComplex(half, ask.axes.size() - 1, -1), dtype());
}

Tensor Tensor::Irfft(const Axes& axes, const Ints& n, absl::string_view norm, CallSite at) const {
  Call call("Irfft", at, *this);
  const Request ask(*this, true, true, axes, n, norm, true);
  const Tensor half = ask.OfComplex(WideFloat(*this), ask.axes.size() - 1, 1);
  const int64_t length = ask.lengths.back();
  const Tensor whole = Along(half, ask.last(), true, [&](const Tensor& t) {
    return ToReal(Fitted(t, t.rank() - 3, length / 2 + 1), length);
  });
  return ask.Scaled(whole, dtype());
}

Tensor Tensor::FftShift(const Axes& axes, CallSite at) const {
  Call call("FftShift", at, *this);
  return Turned(*this, NormalAxes(axes, rank()), /*back=*/false);
}

Tensor Tensor::IfftShift(const Axes& axes, CallSite at) const {
  Call call("IfftShift", at, *this);
  return Turned(*this, NormalAxes(axes, rank()), /*back=*/true);
}

Tensor Tensor::FftFreq(int64_t n, double spacing, DType dtype, CallSite at) {
  Call call("FftFreq", at);
  if (n < 1) Fail("of a transform of ", n, " elements");
  const Tensor k = (Arange(n, kInt64) + n / 2).Mod(n) - n / 2;
  return (k.Cast(kFloat64) / (static_cast<double>(n) * spacing)).Cast(dtype);
}

Tensor Tensor::RfftFreq(int64_t n, double spacing, DType dtype, CallSite at) {
  Call call("RfftFreq", at);
  if (n < 1) Fail("of a transform of ", n, " elements");
  return (Arange(n / 2 + 1, kFloat64) / (static_cast<double>(n) * spacing)).Cast(dtype);
}

}  // namespace tessera
