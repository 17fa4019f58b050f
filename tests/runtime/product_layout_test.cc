// Values of products of which the scheduler lays out what they read: many images as one matrix,
// rows that lie across memory as rows. Each is compared with products that need no laying out.
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/tensor.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

ConvOptions Padded(int64_t by, int64_t stride = 1) {
  ConvOptions out;
  out.padding = {by, by};
  out.stride = {stride, stride};
  return out;
}

// The same convolution image by image.
Tensor OneByOne(const Tensor& x, const Tensor& w, const ConvOptions& options) {
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < x.size(0); ++i) {
    const Tensor image = x.SliceAxis(0, {i, i + 1}).Contiguous();
    parts.push_back(Tensor(image.Conv2d(w, options)).Realize());
  }
  return Cat(parts, 0);
}

void ExpectAlike(const Tensor& x, const Tensor& y, double tolerance) {
  ExpectNear(x.Cast(kFloat64).ToVector<double>(), y.Cast(kFloat64).ToVector<double>(), tolerance);
}

TEST(ProductLayout, ConvolutionsOfManySmallImagesSlow) {
  for (const DType dtype : {kFloat32, kBFloat16, kFloat16, kFloat64}) {
    for (const int64_t side : {4, 7}) {
      SCOPED_TRACE(absl::StrCat(dtype.ToString(), " ", side));
      std::vector<double> numbers = Draw(6 * 40 * side * side, 11);
      numbers[17] = kInf;
      numbers[40 * side * side + 3] = kNan;
      const Tensor x = Tensor::From(numbers, {6, 40, side, side}).Cast(dtype).Realize(),
                   w = Tensor::From(Draw(136 * 40 * 9, 12), {136, 40, 3, 3}).Cast(dtype).Realize();
      const double tolerance = dtype.bytes() == 8 ? 1e-12 : dtype.bytes() == 4 ? 1e-4 : 2e-2;
      ExpectAlike(x.Conv2d(w, Padded(1)), OneByOne(x, w, Padded(1)), tolerance);
      ExpectAlike(x.Relu().Conv2d(w, Padded(1, 2)).Tanh(),
                  OneByOne(x.Relu().Realize(), w, Padded(1, 2)).Tanh(), tolerance);
    }
  }
}

// The weight of [out, in, window] is read by the gradient as rows of `in`.
TEST(ProductLayout, RowsThatLieAcrossMemory) {
  const Tensor a = Tensor::From(Draw(600 * 512 * 4, 1), {600, 512, 4}).Cast(kFloat32).Realize(),
               b = Tensor::From(Draw(600 * 4 * 300, 2), {600, 4, 300}).Cast(kFloat32).Realize();
  const Tensor product = Einsum("kiw,kwj->ij", {a, b});
  const Tensor rows = a.Permute({1, 0, 2}).Contiguous().Reshape({512, 2400}).Realize();
  ExpectAlike(product, rows.MatMul(b.Reshape({2400, 300})), 1e-4);
}

}  // namespace
}  // namespace tessera
