// Rows of Fourier transforms and of decompositions of matrices.
#include "tests/support/composite_rows.h"

namespace tessera {

namespace {

using In = const std::vector<Tensor>&;
using Out = std::vector<Tensor>;

void AddTransforms(std::vector<CompositeRow>& rows) {
  rows.push_back({"Fft", {{{3, 36, 2}}}, [](In x) -> Out { return {x[0].Fft(), x[0].Ifft(0)}; }});
  rows.push_back({"FftOfPrime", {{{2, 131, 2}}}, [](In x) -> Out { return {x[0].Fft()}; }});
  rows.push_back({"RealFft", {{{3, 24}}}, [](In x) -> Out {
                    return {x[0].Rfft(), x[0].Rfft(0, {5}, "forward"), x[0].Rfft({1, 0})};
                  }});
  rows.push_back({"RealFftBack", {{{3, 13, 2}}}, [](In x) -> Out {
                    return {x[0].Irfft(), x[0].Irfft(-1, {21}, "ortho"), x[0].Irfft({1, 0})};
                  }});
  rows.push_back({"Frequencies", {{{4, 7}}}, [](In x) -> Out {
                    return {x[0].FftShift(1), x[0].IfftShift({0, 1}), x[0] * Tensor::FftFreq(7),
                            x[0].Transpose() * Tensor::RfftFreq(6, 0.5)};
                  }});
}

}  // namespace

void AddMatrixRows(std::vector<CompositeRow>& rows) { AddTransforms(rows); }

}  // namespace tessera
